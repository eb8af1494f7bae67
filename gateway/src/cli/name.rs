//! The endpoint or member that somebody means: by its whole name, by the part that is enough, and
//! with a guess where it is neither.

use gateway::config::nearest;
use serde_json::Value;

use super::client::Client;
use super::failure::{Failure, REFUSED};
use super::text::{plain, rows};

/// Finds the endpoint that `text` means: `pool/name`, or a name that only one pool has.
///
/// # Errors
/// None has this name, or several; or there is no answer.
pub(super) async fn endpoint(client: &Client, text: &str) -> Result<String, Failure> {
    if text.contains('/') {
        // A whole name is most often right, and then the list need not be had.
        match client.get(&format!("endpoints/{}", in_path(text))).await {
            Err(failure) if failure.code == REFUSED => {}
            answered => return answered.map(|_| text.to_owned()),
        }
    }
    let answer = client.get("endpoints").await?;
    let known: Vec<&str> = rows(&answer.value, "/endpoints")
        .iter()
        .filter_map(|row| row.get("endpoint").and_then(Value::as_str))
        .collect();
    pick(text, &known).map_err(Failure::refused)
}

/// The one of `known` that `text` means, or the sentence that says why there is none.
fn pick(text: &str, known: &[&str]) -> Result<String, String> {
    if known.contains(&text) {
        return Ok(text.to_owned());
    }
    let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    let same: Vec<&str> = known.iter().copied().filter(|name| last(name) == text).collect();
    match same.as_slice() {
        [only] => return Ok((*only).to_owned()),
        [] => {}
        [first, ..] => {
            let many = same.len();
            let shown = plain(text);
            return Err(format!(
                "{many} models have an endpoint {shown}; write which, for example {}",
                plain(first)
            ));
        }
    }
    let bare: Vec<String> = known.iter().map(|name| last(name)).collect();
    let bare: Vec<&str> = bare.iter().map(String::as_str).collect();
    let guess = nearest(text, known).or_else(|| {
        let near = nearest(text, &bare)?;
        known.iter().copied().find(|name| last(name) == near)
    });
    let cure = guess.map_or_else(
        || "see quorumgate endpoints".to_owned(),
        |guess| format!("did you mean {}?", plain(guess)),
    );
    Err(format!("there is no endpoint {}; {cure}", plain(text)))
}

/// Puts the member that was probably meant into a refusal of `id`, if there is one.
pub(super) async fn member_guess(client: &Client, id: &str, failure: Failure) -> Failure {
    let Ok(answer) = client.get("members").await else { return failure };
    let known: Vec<&str> = rows(&answer.value, "/members")
        .iter()
        .filter_map(|row| row.get("id").and_then(Value::as_str))
        .collect();
    if known.contains(&id) {
        return failure;
    }
    let cure = match nearest(id, &known) {
        Some(guess) => format!("did you mean {}?", plain(guess)),
        None => "see quorumgate members".to_owned(),
    };
    Failure { message: format!("there is no member {}; {cure}", plain(id)), ..failure }
}

/// A name as a part of a path: all but letters, digits, slashes and plain marks is encoded.
pub(super) fn in_path(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["m/gpu-a", "m/gpu-b", "meta/n/gpu-b", "meta/n/gpu-c"];

    #[test]
    fn a_name_that_only_one_model_has_is_enough() {
        assert_eq!(pick("m/gpu-b", &KNOWN).unwrap(), "m/gpu-b");
        assert_eq!(pick("gpu-a", &KNOWN).unwrap(), "m/gpu-a");
        assert_eq!(pick("gpu-c", &KNOWN).unwrap(), "meta/n/gpu-c");
    }

    #[test]
    fn a_name_that_is_none_or_several_gets_a_cure() {
        let cure = |text| pick(text, &KNOWN).unwrap_err();
        assert_eq!(cure("m/gpu-aa"), "there is no endpoint m/gpu-aa; did you mean m/gpu-a?");
        assert_eq!(cure("gpuc"), "there is no endpoint gpuc; did you mean meta/n/gpu-c?");
        assert_eq!(cure("?"), "there is no endpoint ?; see quorumgate endpoints");
        assert!(cure("gpu-b").contains("2 models have an endpoint gpu-b"), "{}", cure("gpu-b"));
        assert!(pick("", &[]).is_err());
    }

    #[test]
    fn a_name_cannot_leave_its_place_in_the_path() {
        assert_eq!(in_path("meta/n/gpu-b"), "meta/n/gpu-b");
        assert_eq!(in_path("a?b#c d%\r\nä"), "a%3Fb%23c%20d%25%0D%0A%C3%A4");
    }
}

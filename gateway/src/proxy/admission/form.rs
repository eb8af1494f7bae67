//! What a form asks for: the fields beside its files.

use std::ops::Range;

use super::parts::{self, Part, parts};
use super::{BYTES_PER_TOKEN, Choices, PREFIX_BYTES, Reading, model_missing, named};
use crate::error::ApiError;
use crate::fnv;
use crate::proxy::route::Route;

/// Reads a form; files are passed over.
///
/// # Errors
/// `invalid_request`, or `model_not_found` for a name that cannot be one.
pub(super) fn read(route: Route, content_type: &[u8], body: &[u8]) -> Result<Reading, ApiError> {
    let unclear = |problem: &str| ApiError::invalid_request(format!("The form {problem}."));
    let boundary = parts::boundary(content_type)
        .ok_or_else(|| ApiError::invalid_request("The content type names no clear boundary."))?;
    let parts = parts(body, boundary).map_err(unclear)?;
    let model_at = only(&parts, "model")?.ok_or_else(model_missing)?;
    let text =
        |place: &Range<usize>| std::str::from_utf8(body.get(place.clone()).unwrap_or_default());
    let model = named(text(&model_at).map_err(|_| model_missing())?.to_owned())?;
    let is_stream = match only(&parts, "stream")?.as_ref().map(text) {
        Some(Ok("true")) => true,
        Some(Ok("false")) | None => false,
        Some(Ok(_) | Err(_)) => {
            let message = "stream must be true or false.";
            return Err(ApiError::invalid_request(message).param("stream"));
        }
    };
    let choices = match only(&parts, "n")?.filter(|_| route.has_choices()) {
        Some(place) => Choices::of(Some(text(&place).unwrap_or_default())),
        None => Choices::of(None),
    };
    // A file is no text: what a minute of speech or a picture costs is not in its bytes.
    let bytes: usize =
        parts.iter().filter(|part| !part.is_opaque).map(|part| part.content.len()).sum();
    let prompt = only(&parts, "prompt")?.and_then(|place| body.get(place)).unwrap_or_default();
    Ok(Reading {
        model,
        model_at,
        is_form: true,
        is_stream,
        options_at: None,
        choices,
        drafts: Choices::Default,
        prompts: 1,
        max_tokens: None,
        messages: 0,
        prompt_tokens: (bytes as u64).div_ceil(BYTES_PER_TOKEN),
        media_tokens: 0,
        prefix: fnv::digest(prompt.iter().copied().take(PREFIX_BYTES)),
    })
}

/// Where the value of the field of this name stands.
///
/// # Errors
/// The field is there twice, or as a file.
fn only(parts: &[Part<'_>], name: &'static str) -> Result<Option<Range<usize>>, ApiError> {
    let mut places = parts.iter().filter(|part| part.name == name);
    let Some(part) = places.next() else { return Ok(None) };
    if part.is_opaque || places.next().is_some() {
        let message = format!("The form must have {name} once, as a plain field.");
        return Err(ApiError::invalid_request(message).param(name));
    }
    Ok(Some(part.content.clone()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::header::HeaderValue;

    use super::*;
    use crate::config::FailClosed;
    use crate::proxy::admission::{Call, within};

    const KIND: &str = "multipart/form-data; boundary=b";

    fn field(name: &str, value: &str) -> String {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    }

    const FILE: &str = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n\
                        name=\"model\"\r\n\r\n{\"model\":\"x\"}\r\n";

    fn ask(fields: &[String]) -> Result<Call, ApiError> {
        let body = Bytes::from(format!("{}--b--\r\n", fields.concat()));
        let reading = read(Route::Images, KIND.as_bytes(), &body)?;
        within(&FailClosed::default(), Route::Images, &reading)?;
        let kind = HeaderValue::from_static(KIND);
        Ok(reading.into_call(Route::Images, "/v1/images/edits", kind, None, body))
    }

    #[test]
    fn only_the_bytes_of_the_model_are_spliced() {
        let form = [FILE.to_owned(), field("model", "m"), field("stream", "true")];
        let call = ask(&form).unwrap();
        assert_eq!((call.model.as_str(), call.is_stream), ("m", true));
        let expected = format!("{}--b--\r\n", form.concat()).replace("\nm\r", "\norg/Big-1\r");
        assert_eq!(call.body_for("org/Big-1", true).whole(), expected);
        assert_eq!(call.body_for("m", true).whole(), call.body);
    }

    #[test]
    fn a_file_costs_no_tokens_and_a_prompt_does() {
        let file = FILE.replace("{\"model\":\"x\"}", &"x".repeat(100_000));
        let call = ask(&[file, field("model", "m"), field("prompt", &"y".repeat(4_000))]).unwrap();
        assert_eq!(call.prompt_tokens, 1_001);
    }

    #[test]
    fn the_fields_that_are_read_are_there_once_and_plain() {
        let model = field("model", "m");
        for (fields, param) in [
            (vec![FILE.to_owned()], "model"),
            (vec![model.clone(), model.clone()], "model"),
            (vec![model.clone(), FILE.replace("\"file\"", "\"model\"")], "model"),
            (vec![FILE.replace("\"file\"", "\"model\"")], "model"),
            (vec![model.clone(), field("stream", "yes")], "stream"),
            (vec![model.clone(), field("stream", "true"), field("stream", "true")], "stream"),
            (vec![model.clone(), field("n", "17")], "n"),
            (vec![model.clone(), field("n", "")], "n"),
            (vec![model.clone(), field("n", "1"), field("n", "1")], "n"),
        ] {
            let error = ask(&fields).unwrap_err();
            assert_eq!((error.code, error.param), ("invalid_request", Some(param)), "{fields:?}");
        }
        assert_eq!(ask(&[field("model", "")]).unwrap_err().code, "model_not_found");
        assert!(ask(&[model, field("n", "2"), field("stream", "false")]).is_ok());
    }
}

//! Paths and queries as the admin API reads them: decoded once, then compared whole.
//!
//! Invariants: a path that climbs, in whatever spelling, is no path; an encoding that is broken is
//! none either; a query that says anything unknown, or anything twice, is refused.

/// Most parameters of one query.
const PARAMETERS_MAX: usize = 16;

/// The decoded segments of a path. `None`: it is none of ours.
pub(super) fn segments(path: &str) -> Option<Vec<String>> {
    let segments: Option<Vec<String>> =
        path.strip_prefix('/')?.split('/').map(|segment| decoded(segment, false)).collect();
    let is_plain = |segment: &String| {
        // A pool's name may hold slashes, and each part of it must be one.
        segment.split('/').all(|part| !matches!(part, "" | "." | ".."))
            && !segment.chars().any(char::is_control)
    };
    segments.filter(|segments| segments.iter().all(is_plain))
}

/// What a pattern's names stand for in these segments. `{pool}` takes as many segments as are left over
/// by the others, at least one; any other name takes one. `None`: the pattern does not fit.
pub(super) fn bind(pattern: &'static str, segments: &[String]) -> Option<Bound> {
    let words: Vec<&'static str> = pattern.split('/').collect();
    let spare = segments.len().checked_sub(words.len())?;
    let mut rest = segments.iter();
    let mut bound = Vec::new();
    let mut was_stretched = false;
    for word in words {
        let segment = rest.next()?;
        match name_of(word) {
            None if word == segment => {}
            None => return None,
            Some(name @ "pool") => {
                was_stretched = true;
                let more = rest.by_ref().take(spare);
                let whole = more.fold(segment.clone(), |whole, more| format!("{whole}/{more}"));
                bound.push((name, whole));
            }
            Some(name) => bound.push((name, segment.clone())),
        }
    }
    (spare == 0 || was_stretched).then_some(Bound(bound))
}

/// The name in a word of a pattern, if it is one.
pub(super) fn name_of(word: &'static str) -> Option<&'static str> {
    word.strip_prefix('{')?.strip_suffix('}')
}

/// What the names of a pattern, or of a query, stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bound(Vec<(&'static str, String)>);

impl Bound {
    /// What a name stands for.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// All of them.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

/// Reads a query in which only these names may stand, each at most once.
///
/// # Errors
/// What is wrong and what may stand there.
pub(super) fn query(query: &str, known: &[&'static str]) -> Result<Bound, String> {
    let mut bound: Vec<(&'static str, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()).take(PARAMETERS_MAX) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decoded(name, true);
        let name = name.as_deref().and_then(|name| known.iter().find(|known| **known == name));
        let Some(name) = name else {
            return Err(if known.is_empty() {
                "This path takes no query.".to_owned()
            } else {
                format!("The query has a parameter that is not known; there are {}.", list(known))
            });
        };
        if bound.iter().any(|(before, _)| before == name) {
            return Err(format!("{name} stands twice in the query; give it once."));
        }
        let value = decoded(value, true);
        let Some(value) = value.filter(|value| !value.chars().any(char::is_control)) else {
            return Err(format!("{name} is not well encoded; percent-encode its UTF-8."));
        };
        bound.push((*name, value));
    }
    Ok(Bound(bound))
}

fn list(names: &[&str]) -> String {
    names.join(", ")
}

/// Percent-decodes once. `None`: it is broken, or no UTF-8.
fn decoded(text: &str, is_query: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                bytes.push(u8::try_from(high * 16 + low).ok()?);
            }
            b'+' if is_query => bytes.push(b' '),
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(any(test, feature = "fuzzing"))]
/// A path that is taken climbs nowhere, however it is spelled, and a query says what is known, once.
pub(crate) fn promise(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (path, said) = text.split_once('?').unwrap_or((text, ""));
    if let Some(segments) = segments(path) {
        let joined = segments.join("/");
        let mut parts = joined.split('/');
        assert!(parts.all(|part| !matches!(part, "" | "." | "..")), "{path:?} climbs");
        assert!(!joined.chars().any(char::is_control), "{path:?}");
        assert_eq!(segments.len(), path.matches('/').count());
        for pattern in
            ["endpoints/{pool}/{name}", "endpoints/{pool}/{name}/explain", "members/{id}"]
        {
            let Some(bound) = bind(pattern, &segments) else { continue };
            let whole = bound.pairs().fold(pattern.to_owned(), |whole, (name, value)| {
                whole.replacen(&format!("{{{name}}}"), value, 1)
            });
            assert!(whole == joined || joined.contains('{'), "{pattern} binds {joined} as {whole}");
        }
    }
    let known = ["since", "until", "limit"];
    let Ok(bound) = query(said, &known) else { return };
    assert!(bound.pairs().count() <= known.len());
    let named = |name: &&&str| bound.get(name).is_some();
    assert_eq!(bound.pairs().count(), known.iter().filter(named).count());
    assert!(!bound.pairs().any(|(_, value)| value.chars().any(char::is_control)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(pattern: &'static str, path: &str) -> Option<Vec<(String, String)>> {
        let bound = bind(pattern, &segments(path)?)?;
        Some(bound.pairs().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_pool_with_a_slash_is_found_plain_and_encoded() {
        let wanted = Some(vec![pair("pool", "meta/llama"), pair("name", "gpu-a")]);
        let pattern = "endpoints/{pool}/{name}";
        assert_eq!(bound(pattern, "/endpoints/meta/llama/gpu-a"), wanted);
        assert_eq!(bound(pattern, "/endpoints/meta%2Fllama/gpu-a"), wanted);
        assert_eq!(
            bound("endpoints/{pool}/{name}/explain", "/endpoints/m/a/explain").unwrap()[1].1,
            "a"
        );
        assert_eq!(bound("endpoints/{pool}/{name}/explain", "/endpoints/m/explain"), None);
        assert_eq!(bound("members/{id}/drain", "/members/a/b/drain"), None);
        assert_eq!(bound("members", "/members/a"), None);
    }

    #[test]
    fn m07_a_path_that_climbs_is_none_in_whatever_spelling() {
        for path in [
            "/admin/../v1/members",
            "/admin/v1/..",
            "/admin/v1/%2e%2e/members",
            "/admin/v1/.%2E/members",
            "/admin/v1/..%2f..%2fetc%2fpasswd",
            "/admin/v1/endpoints/m/..%2fa",
            "/admin/v1/./members",
            "//admin/v1/members",
            "/admin/v1/members/",
            "/admin/v1//members",
            "/admin/v1/members%00",
            "/admin/v1/a%0d%0ab",
            "/admin/v1/%",
            "/admin/v1/%2",
            "/admin/v1/%zz",
            "/admin/v1/%ff",
            "admin/v1/members",
            "*",
            "",
        ] {
            assert_eq!(segments(path), None, "{path}");
        }
        // Decoded once: what is left is a name, and no such thing exists.
        assert_eq!(segments("/%252e%252e").unwrap(), ["%2e%2e"]);
    }

    #[test]
    fn a_query_says_what_is_known_and_once() {
        let known = ["since", "until"];
        let read = |text| query(text, &known);
        assert_eq!(read("since=7-1&until=now").unwrap().get("until"), Some("now"));
        assert_eq!(read("").unwrap(), Bound::default());
        assert_eq!(read("since=a%20b+c").unwrap().get("since"), Some("a b c"));
        assert!(read("sinc=1").unwrap_err().contains("since, until"));
        assert!(read("since=1&since=1").unwrap_err().contains("twice"));
        assert!(read("since=%ff").unwrap_err().contains("encoded"));
        assert!(read("since=%0a").unwrap_err().contains("encoded"));
        assert!(query("x=1", &[]).unwrap_err().contains("no query"));
    }
}

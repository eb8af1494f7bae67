//! The path of a request as its endpoint knows it.

use std::borrow::Cow;

use crate::config::{self, Kind};

/// What Azure puts before every path.
const AZURE: &str = "/openai";
/// What every path of a request begins with.
const VERSION: &str = "/v1";
/// Azure's paths that name the model in the body alone.
const WITHOUT_DEPLOYMENT: [&str; 1] = ["/responses"];

/// The path, with its query, of a request for `path` (which begins with `/v1`) and a model of this name
/// at `endpoint`.
pub(super) fn target<'a>(endpoint: &config::Endpoint, path: &'a str, model: &str) -> Cow<'a, str> {
    let base = endpoint.base_path.as_str();
    if endpoint.kind == Kind::Azure {
        return Cow::Owned(azure(base, path, model, endpoint.api_version.as_deref()));
    }
    if base.is_empty() { Cow::Borrowed(path) } else { Cow::Owned(format!("{base}{path}")) }
}

/// Azure's newer interface has OpenAI's paths behind a prefix; the older one wants its own version, and
/// the deployment in the path.
fn azure(base: &str, path: &str, model: &str, version: Option<&str>) -> String {
    let bare = path.strip_prefix(VERSION).unwrap_or(path);
    let root = base.strip_suffix(VERSION).unwrap_or(base);
    let root = root.strip_suffix(AZURE).unwrap_or(root);
    let Some(version) = version else { return format!("{root}{AZURE}{VERSION}{bare}") };
    let sign = if bare.contains('?') { '&' } else { '?' };
    let (plain, _) = bare.split_once('?').unwrap_or((bare, ""));
    if WITHOUT_DEPLOYMENT.contains(&plain) {
        return format!("{root}{AZURE}{bare}{sign}api-version={version}");
    }
    let deployment = encoded(model);
    format!("{root}{AZURE}/deployments/{deployment}{bare}{sign}api-version={version}")
}

/// A name as one segment of a path (RFC 3986, section 3.3).
fn encoded(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len() * 3);
    for byte in name.bytes() {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn azure_knows_a_request_by_deployment_and_version_or_as_openai_does() {
        let old = Some("2024-10-21");
        for (base, path, version, wanted) in [
            ("", "/v1/chat/completions", None, "/openai/v1/chat/completions"),
            ("/openai", "/v1/chat/completions", None, "/openai/v1/chat/completions"),
            ("/x/openai/v1", "/v1/embeddings", None, "/x/openai/v1/embeddings"),
            (
                "",
                "/v1/chat/completions",
                old,
                "/openai/deployments/gpt%2F4/chat/completions?api-version=2024-10-21",
            ),
            (
                "/x/openai",
                "/v1/embeddings?a=b",
                old,
                "/x/openai/deployments/gpt%2F4/embeddings?a=b&api-version=2024-10-21",
            ),
            ("", "/v1/responses", old, "/openai/responses?api-version=2024-10-21"),
        ] {
            assert_eq!(azure(base, path, "gpt/4", version), wanted);
        }
    }
}

//! The live page, as the binary carries it: its files, and the headers that keep it in its place.
//!
//! At three in the morning nothing may be missing: no build step, no outside asset, no file beside the
//! binary. The page is plain HTML, CSS and ES modules, embedded as they are; all it knows it asks of
//! the admin API with the operator's token, so that the files themselves are served to anyone.
//!
//! What holds: only the paths of [`FILES`] exist, compared whole, so that no path can climb; nothing
//! is ever loaded from, sent to, or framed by another origin; no inline script or style runs; and a
//! string cannot become markup, because the browser refuses every sink that would make it so.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Response, StatusCode};

use crate::fnv;

/// What the browser lets the page do.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// What the page never asks the browser for.
const PERMISSIONS: &str = "camera=(), geolocation=(), microphone=(), payment=(), usb=()";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! file {
    ($kind:expr, $name:literal) => {
        (concat!("/page/", $name), $kind, include_str!(concat!("page/", $name)))
    };
}

/// Every file of the page: its path, its kind, its text.
const FILES: [(&str, &str, &str); 20] = [
    ("/", HTML, include_str!("page/index.html")),
    file!(CSS, "frame.css"),
    file!(CSS, "parts.css"),
    file!(IMAGE, "in.svg"),
    file!(IMAGE, "out.svg"),
    file!(IMAGE, "lost.svg"),
    file!(SCRIPT, "main.js"),
    file!(SCRIPT, "api.js"),
    file!(SCRIPT, "poll.js"),
    file!(SCRIPT, "stream.js"),
    file!(SCRIPT, "words.js"),
    file!(SCRIPT, "view.js"),
    file!(SCRIPT, "dom.js"),
    file!(SCRIPT, "fleet.js"),
    file!(SCRIPT, "matrix.js"),
    file!(SCRIPT, "timeline.js"),
    file!(SCRIPT, "explain.js"),
    file!(SCRIPT, "sheet.js"),
    file!(SCRIPT, "orders.js"),
    file!(SCRIPT, "spark.js"),
];

/// One file of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asset {
    kind: &'static str,
    text: &'static str,
}

/// The file at this path, if it is one of the page's.
pub(crate) fn asset(path: &str) -> Option<Asset> {
    let (_, kind, text) = FILES.iter().find(|(known, ..)| *known == path)?;
    Some(Asset { kind, text })
}

impl Asset {
    /// The answer to a request with these headers: the file, or that the browser has it already.
    pub(crate) fn answer(self, asked: &HeaderMap) -> Response<Full<Bytes>> {
        let tag = format!("\"{:016x}\"", fnv::digest(self.text.bytes()));
        let is_known =
            asked.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let text = if is_known { "" } else { self.text };
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        for (name, value) in [
            (CONTENT_TYPE, self.kind),
            // Kept, and asked for again each time: an upgraded gateway shows its own page at once.
            (CACHE_CONTROL, "no-cache"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (X_FRAME_OPTIONS, "DENY"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
            (HeaderName::from_static("permissions-policy"), PERMISSIONS),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Ok(tag) = HeaderValue::try_from(tag) {
            headers.insert(ETAG, tag);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m07_only_a_file_of_the_page_is_found() {
        assert!(asset("/").is_some());
        assert!(asset("/page/main.js").is_some());
        for path in ["", "//", "/page", "/page/", "/page/../main.js", "/page/%2e%2e/main.js", "/x"]
        {
            assert!(asset(path).is_none(), "{path}");
        }
    }

    #[test]
    fn every_file_is_answered_with_the_strict_policy_and_known_again() {
        for (path, ..) in FILES {
            let first = asset(path).unwrap().answer(&HeaderMap::new());
            assert_eq!(first.status(), StatusCode::OK);
            assert_eq!(first.headers()[CONTENT_SECURITY_POLICY], POLICY);
            assert_eq!(first.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
            let mut asked = HeaderMap::new();
            asked.insert(IF_NONE_MATCH, first.headers()[ETAG].clone());
            let second = asset(path).unwrap().answer(&asked);
            assert_eq!(second.status(), StatusCode::NOT_MODIFIED, "{path}");
        }
    }

    #[test]
    fn the_markup_runs_nothing_inline_and_names_only_files_that_exist() {
        let (_, _, html) = FILES[0];
        assert!(!html.contains(" style=") && !html.contains("<style"));
        let is_listener = |rest: &str| {
            rest.trim_start_matches(|letter: char| letter.is_ascii_lowercase()).starts_with('=')
        };
        assert!(!html.split(" on").skip(1).any(is_listener));
        for (start, _) in html.match_indices("\"page/") {
            let name = html[start + 1..].split('"').next().unwrap();
            assert!(asset(&format!("/{name}")).is_some(), "{name}");
        }
    }

    #[test]
    fn every_module_imports_only_files_that_exist_and_no_string_becomes_markup() {
        for (path, kind, text) in FILES {
            if kind != SCRIPT {
                continue;
            }
            for line in text.lines().filter(|line| line.contains("from \"")) {
                let name = line.split("from \"./").nth(1).unwrap().split('"').next().unwrap();
                assert!(asset(&format!("/page/{name}")).is_some(), "{path}: {name}");
            }
            let sinks = ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("];
            for sink in sinks {
                assert!(!text.contains(sink), "{path}: {sink}");
            }
        }
    }
}

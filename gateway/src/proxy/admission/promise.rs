//! What admission promises of any body: it asks for what another parser reads in it, and differs in the
//! model's name alone when it goes on.

#![expect(clippy::unwrap_used, reason = "a promise that is broken stops loudly")]

use std::fmt;

use bytes::Bytes;
use hyper::header::HeaderValue;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::parts::{self, parts};
use super::{Call, Choices, Reading, form, json as own};
use crate::proxy::route::Route;

/// What a model is renamed to: neither a name that bodies have, nor without signs of its own.
const OTHER: &str = "org/\"other\"-1";
/// The same in a form, where a name stands as it is.
const OTHER_IN_FORM: &str = "org/other-1";

const ROUTES: [Route; 9] = [
    Route::Chat,
    Route::Completions,
    Route::Embeddings,
    Route::Responses,
    Route::Messages,
    Route::Rerank,
    Route::Other,
    Route::Audio,
    Route::Images,
];

/// The outermost members of an object as another parser reads them, none left out.
#[derive(Debug, PartialEq, Eq)]
struct Members(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Look;
        impl<'de> Visitor<'de> for Look {
            type Value = Members;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Members, A::Error> {
                let mut all = Vec::new();
                while let Some((name, raw)) = members.next_entry::<String, Box<RawValue>>()? {
                    all.push((name, raw.get().to_owned()));
                }
                Ok(Members(all))
            }
        }
        deserializer.deserialize_map(Look)
    }
}

impl Members {
    fn of(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap()
    }

    /// The only value of this name, unless it is `null`.
    fn only(&self, name: &str) -> Option<&str> {
        let alike = self.0.iter().filter(|(known, _)| known.to_lowercase() == name);
        assert!(alike.count() <= 1, "{name} stands there twice");
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, raw)| raw.as_str()).filter(|raw| *raw != "null")
    }

    /// How many elements an array has.
    fn elements(&self, name: &str) -> usize {
        let elements = self.only(name).map(serde_json::from_str::<Vec<IgnoredAny>>);
        elements.map_or(0, |elements| elements.unwrap_or_default().len())
    }
}

fn call(route: Route, reading: Reading, body: &Bytes, kind: HeaderValue) -> Call {
    reading.into_call(route, "/v1/x", kind, None, body.clone())
}

/// The first byte says by which route the others come.
pub(crate) fn json(bytes: &[u8]) {
    let Some((first, body)) = bytes.split_first() else { return };
    let Some(route) = ROUTES.get(usize::from(first & 0x7f) % ROUTES.len()).copied() else { return };
    let body = Bytes::copy_from_slice(body);
    let Ok(reading) = own::read(route, &body, *first > 0x7f) else { return };
    let members = Members::of(&body);
    let model: String = serde_json::from_str(members.only("model").unwrap()).unwrap();
    assert_eq!(reading.model, model);
    assert_eq!(reading.is_stream, members.only("stream") == Some("true"));
    let number = |name| match members.only(name).map(str::parse) {
        None => Choices::Default,
        Some(Ok(number)) => Choices::Number(number),
        Some(Err(_)) => Choices::Nonsense,
    };
    assert_eq!((reading.choices, reading.drafts), (number("n"), number("best_of")));
    let bounds = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
    let bounds = bounds.into_iter().filter_map(|name| members.only(name)?.parse::<u64>().ok());
    assert_eq!(reading.max_tokens, bounds.max());
    let list = if route == Route::Responses { "input" } else { "messages" };
    assert_eq!(reading.messages, members.elements(list));
    let prompts = members.only("prompt").map(serde_json::from_str::<Vec<&RawValue>>);
    let prompts = prompts.and_then(Result::ok).unwrap_or_default();
    let is_list = prompts.first().is_some_and(|first| first.get().starts_with(['"', '[']));
    assert_eq!(reading.prompts, if is_list { prompts.len() as u64 } else { 1 });
    if let Some((texts, _)) = own::texts(&body) {
        assert!(texts.iter().map(String::len).sum::<usize>() <= body.len());
    }
    let call = call(route, reading, &body, HeaderValue::from_static("application/json"));
    assert_eq!(call.body_for(&model, false).whole(), body);
    goes_on(&call, &members, false);
    goes_on(&call, &members, true);
}

/// What goes on differs in the model's name, and in what it asks about usage if it is to.
fn goes_on(call: &Call, members: &Members, wants_usage: bool) {
    let mut expected: Vec<_> = members.0.clone();
    for (_, raw) in expected.iter_mut().filter(|(name, _)| name == "model") {
        *raw = serde_json::to_string(OTHER).unwrap();
    }
    let has_options = members.0.iter().any(|(name, _)| name == "stream_options");
    let may_ask = matches!(call.route, Route::Chat | Route::Completions) && call.is_stream;
    if wants_usage && may_ask && !has_options {
        expected.insert(0, ("stream_options".into(), r#"{"include_usage":true}"#.into()));
    }
    assert_eq!(Members::of(&call.body_for(OTHER, wants_usage).whole()).0, expected);
}

/// The first line is the content type, the rest the body.
pub(crate) fn form(bytes: &[u8]) {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let (kind, body) = bytes.split_at(end);
    let body = Bytes::copy_from_slice(body.get(1..).unwrap_or_default());
    let Some(boundary) = parts::boundary(kind) else { return };
    let Ok(found) = parts(&body, boundary) else { return };
    let contents: Vec<_> = found.iter().map(|part| part.content.clone()).collect();
    assert_eq!(generous(&body, boundary), contents, "two readers find two forms");
    let Ok(reading) = form::read(Route::Images, kind, &body) else { return };
    let named: Vec<_> = found.iter().filter(|part| part.name == "model").collect();
    assert!(matches!(named.as_slice(), [one] if !one.is_opaque));
    let kind = HeaderValue::from_bytes(kind);
    let call = call(Route::Images, reading, &body, kind.unwrap_or(HeaderValue::from_static("")));
    assert_eq!(body.get(call.model_at.clone()).unwrap(), call.model.as_bytes());
    let spliced = call.body_for(OTHER_IN_FORM, true).whole();
    let renamed = parts(&spliced, boundary).unwrap();
    let seen = |body: &Bytes, part: &parts::Part<'_>| {
        let is_model = part.name == "model";
        let content = if is_model { Bytes::new() } else { body.slice(part.content.clone()) };
        (part.name.to_owned(), part.is_opaque, content)
    };
    let before: Vec<_> = found.iter().map(|part| seen(&body, part)).collect();
    let after: Vec<_> = renamed.iter().map(|part| seen(&spliced, part)).collect();
    assert_eq!(before, after);
}

/// Where the contents stand for a reader that takes any end of a line before a delimiter, and spaces
/// behind it.
fn generous(body: &[u8], boundary: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mark = [b"--".as_slice(), boundary].concat();
    let mut delimiters = Vec::new();
    for at in 0..body.len() {
        let (before, rest) = body.split_at(at);
        let is_first_of_line =
            before.is_empty() || before.ends_with(b"\n") || before.ends_with(b"\r");
        let Some(behind) = rest.strip_prefix(mark.as_slice()).filter(|_| is_first_of_line) else {
            continue;
        };
        let line = behind.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        if matches!(line.trim_ascii(), b"" | b"--") {
            delimiters.push(at);
        }
    }
    let content = |pair: &[usize]| {
        let [from, to] = pair else { return 0..0 };
        let part = body.get(*from..*to).unwrap_or_default();
        let head = memchr::memmem::find(part, b"\r\n\r\n").map_or(part.len(), |head| head + 4);
        from + head..to - 2
    };
    delimiters.windows(2).map(content).collect()
}

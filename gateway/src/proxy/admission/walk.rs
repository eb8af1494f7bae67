//! A walk over JSON that is known to be well-formed: where its texts stand and how deep it goes.
//!
//! It looks at each byte once, keeps nothing and does not recurse, so that neither depth nor length
//! costs more than time in proportion.

use memchr::memchr2;

/// A text longer than this can be media; a shorter one costs no more tokens than media do.
const MEDIA_BYTES_MIN: usize = 4 * 1024;
/// A data URL says within this that it is one.
const DATA_URL_HEAD_MAX: usize = 128;
/// The keys whose value may be a data URL: of images and of files. Engines decode it and do not read it.
const DATA_URL_KEYS: [&str; 3] = ["url", "image_url", "file_data"];

/// What is met on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// The beginning of an object or array.
    Open,
    /// The end of one.
    Close,
    /// What parts two members or elements.
    Comma,
    /// The name of a member, escapes and all.
    Key(&'a str),
    /// A text that is a value, escapes and all.
    Text {
        /// What stands between the quotes.
        raw: &'a str,
        /// Whether it is an image, sound or file in base64.
        is_media: bool,
    },
}

/// Walks over `text` and shows each token with its place and the number of objects and arrays that
/// are open there, its own included.
pub(super) fn walk<'a>(text: &'a str, mut visit: impl FnMut(usize, usize, Token<'a>)) {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    let mut media = Media::default();
    while let Some(byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                media.open(depth);
                visit(start, depth, Token::Open);
            }
            b'}' | b']' => {
                visit(start, depth, Token::Close);
                media.close(depth);
                depth = depth.saturating_sub(1);
            }
            b',' => visit(start, depth, Token::Comma),
            b'"' => {
                at = behind_text(bytes, at);
                let raw = text.get(start + 1..at.saturating_sub(1)).unwrap_or_default();
                if is_key(bytes, at) {
                    media.key = raw;
                    visit(start, depth, Token::Key(raw));
                } else {
                    let is_media = media.has(depth, raw);
                    visit(start, depth, Token::Text { raw, is_media });
                }
            }
            _ => {}
        }
    }
}

/// The place behind the quote that ends the text that began before `at`.
fn behind_text(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes.get(at) == Some(&b'"') {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

/// Whether the text that ends at `at` names a member.
fn is_key(bytes: &[u8], at: usize) -> bool {
    let mut rest = bytes.get(at..).unwrap_or_default().iter();
    rest.find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// What was met of the shapes in which clients send media.
#[derive(Default)]
struct Media<'a> {
    /// The last key.
    key: &'a str,
    /// How deep the object stands whose `data` is media; 0: none does.
    depth: usize,
}

impl<'a> Media<'a> {
    /// OpenAI's `"input_audio": { "data": …`.
    fn open(&mut self, depth: usize) {
        if self.key == "input_audio" {
            self.depth = depth;
        }
        self.key = "";
    }

    fn close(&mut self, depth: usize) {
        self.key = "";
        if self.depth == depth {
            self.depth = 0;
        }
    }

    /// Whether the value `raw` of the last key is media.
    fn has(&mut self, depth: usize, raw: &str) -> bool {
        let key = std::mem::take(&mut self.key);
        // Anthropic's `"source": { "type": "base64", …, "data": …`.
        if key == "type" && raw == "base64" {
            self.depth = depth;
        }
        if raw.len() < MEDIA_BYTES_MIN {
            return false;
        }
        let head = raw.as_bytes().get(..DATA_URL_HEAD_MAX).unwrap_or_default();
        let is_data_url =
            || head.starts_with(b"data:") && head.windows(8).any(|window| window == b";base64,");
        (key == "data" && self.depth == depth) || (DATA_URL_KEYS.contains(&key) && is_data_url())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Vec<(usize, usize, Token<'_>)> {
        let mut all = Vec::new();
        walk(text, |at, depth, token| all.push((at, depth, token)));
        all
    }

    #[test]
    fn brackets_within_texts_are_no_brackets() {
        let text = r#"{"a\"}":["x,]\\", 1],"b":"[\\\""}"#;
        let token = |raw| Token::Text { raw, is_media: false };
        let kinds: Vec<_> = seen(text).into_iter().map(|(_, depth, kind)| (depth, kind)).collect();
        let expected = [
            (1, Token::Open),
            (1, Token::Key(r#"a\"}"#)),
            (2, Token::Open),
            (2, token(r"x,]\\")),
            (2, Token::Comma),
            (2, Token::Close),
            (1, Token::Comma),
            (1, Token::Key("b")),
            (1, token(r#"[\\\""#)),
            (1, Token::Close),
        ];
        assert_eq!(kinds, expected);
    }

    /// A value of at most this depth, with signs in its texts that mean something outside of them.
    fn any(random: &mut fastrand::Rng, depth: usize) -> serde_json::Value {
        const SIGNS: [char; 10] = ['"', '\\', '{', '}', '[', ']', ',', ':', 'x', '\u{4f60}'];
        let text = |random: &mut fastrand::Rng| -> String {
            (0..random.usize(..5)).filter_map(|_| random.choice(SIGNS)).collect()
        };
        match random.usize(..if depth == 0 { 3 } else { 6 }) {
            0 => serde_json::Value::from(random.i64(..)),
            1 => serde_json::Value::Null,
            2 => serde_json::Value::from(text(random)),
            3 | 4 => (0..random.usize(..4))
                .map(|_| (text(random), any(random, depth - 1)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            _ => (0..random.usize(..4)).map(|_| any(random, depth - 1)).collect(),
        }
    }

    /// How deep a value is, how many names it has, and its texts in order.
    fn known(value: &serde_json::Value, texts: &mut Vec<String>) -> (usize, usize) {
        let (mut depth, mut keys) = (0, 0);
        let mut add = |value: &serde_json::Value| {
            let (inner, more) = known(value, texts);
            (depth, keys) = (depth.max(inner), keys + more);
        };
        match value {
            serde_json::Value::Object(members) => {
                members.values().for_each(&mut add);
                (depth + 1, keys + members.len())
            }
            serde_json::Value::Array(elements) => {
                elements.iter().for_each(&mut add);
                (depth + 1, keys)
            }
            serde_json::Value::String(text) => {
                texts.push(text.clone());
                (0, 0)
            }
            _ => (0, 0),
        }
    }

    #[test]
    fn a_walk_sees_what_a_parser_sees() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..3_000 {
            let value = any(&mut random, 5);
            let text = if round % 2 == 0 {
                format!("{value}")
            } else {
                format!("{value:#}").replace('\n', "\r\n")
            };
            let (mut depth_max, mut keys, mut texts) = (0, 0, Vec::new());
            walk(&text, |at, depth, token| match token {
                Token::Open => depth_max = depth_max.max(depth),
                Token::Key(_) => keys += 1,
                Token::Text { raw, .. } => {
                    let quoted = &text[at..at + raw.len() + 2];
                    texts.push(serde_json::from_str::<String>(quoted).unwrap());
                }
                Token::Comma | Token::Close => {}
            });
            let mut expected = Vec::new();
            let known = known(&value, &mut expected);
            assert_eq!((depth_max, keys), known, "seed {seed}: {text}");
            assert_eq!(texts, expected, "seed {seed}: {text}");
        }
    }

    #[test]
    fn media_are_told_by_their_place_and_not_by_their_look() {
        let data = "A".repeat(MEDIA_BYTES_MIN);
        let url = format!("data:image/png;base64,{data}");
        for (body, expected) in [
            (format!(r#"{{"image_url":{{"url":"{url}"}}}}"#), true),
            (format!(r#"{{"image_url":"{url}"}}"#), true),
            (format!(r#"{{"input_audio":{{"format":"wav","data":"{data}"}}}}"#), true),
            (format!(r#"{{"source":{{"type":"base64","x":{{}},"data":"{data}"}}}}"#), true),
            (format!(r#"{{"content":"{url}"}}"#), false),
            (format!(r#"{{"url":["{url}"]}}"#), false),
            (format!(r#"{{"url":"{data}"}}"#), false),
            (format!(r#"{{"source":{{"type":"text","data":"{data}"}}}}"#), false),
            (format!(r#"[{{"type":"base64"}},{{"data":"{data}"}}]"#), false),
        ] {
            let is_media = seen(&body)
                .into_iter()
                .any(|(_, _, token)| matches!(token, Token::Text { is_media: true, .. }));
            assert_eq!(is_media, expected, "{}", &body[..60]);
        }
    }
}

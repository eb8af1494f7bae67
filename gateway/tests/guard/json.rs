//! Bodies that name a model where none is named, that are not JSON, or that are more than they look.

use std::fmt::Write as _;

use crate::kit::{CHAT, SMUGGLED, Ward, chat, question, rest, statuses};
use crate::local::QUESTION;

const INVALID: &str = "invalid_request";

/// A chat with this body, its length and these lines.
fn sized(lines: &str, body: &[u8]) -> Vec<u8> {
    let head = chat(&format!("{lines}Connection: close\r\nContent-Length: {}\r\n", body.len()), "");
    [head.as_bytes(), body].concat()
}

/// Asserts that a body is refused, and that nothing of it reaches the upstream.
async fn refuses(ward: &Ward, lines: &str, body: &[u8], status: u16, code: &str) {
    let before = ward.raw.connections();
    let said = ward.says(sized(lines, body)).await;
    assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{lines}{body:?}\n{said}");
    assert!(said.contains(&format!("\"code\":\"{code}\"")), "{lines}{body:?}\n{said}");
    assert_eq!(ward.raw.connections(), before, "{lines}{body:?}");
}

#[tokio::test]
async fn j05_a_model_is_named_by_the_body_alone() {
    let ward = Ward::new().await;
    let elsewhere = QUESTION.replace("demo", "elsewhere");
    let lines = "x-litellm-model: demo\r\nx-model: demo\r\nmodel: demo\r\n";
    for (target, body) in [
        ("?model=demo", elsewhere.as_str()),
        ("?model=demo&model=demo", &elsewhere),
        ("?model=demo", "{\"messages\":[]}"),
    ] {
        let bytes = sized(lines, body.as_bytes());
        let bytes = String::from_utf8(bytes).unwrap().replacen(CHAT, &format!("{CHAT}{target}"), 1);
        let status = if body == elsewhere { "404" } else { "400" };
        assert_eq!(statuses(&ward.says(bytes).await), [status], "{target} {body}");
    }
    // What is named there is nobody's business, and goes nowhere.
    let bytes = question(&format!("{}Connection: close\r\n", lines.replace("demo", "denied")));
    let bytes = bytes.replacen(CHAT, &format!("{CHAT}?model=denied"), 1);
    assert_eq!(statuses(&ward.says(bytes).await), ["200"]);
    let head = ward.raw.seen().pop().unwrap().head;
    assert!(!head.contains('?') && !head.contains("denied"), "{head}");
    ward.is_unharmed(1).await;
}

#[tokio::test]
async fn j10_j11_j22_what_is_not_read_is_passed_on_byte_for_byte_and_refused_by_its_size_alone() {
    let ward = Ward::new().await;
    let bomb = "(a+)+$|".repeat(20_000);
    let mut deep = String::new();
    for _ in 0..50 {
        deep.push_str("{\"anyOf\":[");
    }
    deep.push_str("null");
    deep.push_str(&"]}".repeat(50));
    let mut asked = 0;
    for more in [
        r#""x":"\ud800""#,
        r#""x":{"\udfff\ud800":"\ud83d\ude00"}"#,
        r#""x":[-0,1e999,1234567890123456789012345678901234567890,0.1e-400]"#,
        &format!(r#""response_format":{{"schema":{{"pattern":"{bomb}"}}}}"#),
        &format!(r#""tools":[{{"function":{{"parameters":{deep}}}}}]"#),
    ] {
        let body = QUESTION.replacen('{', &format!("{{{more},"), 1);
        let said = ward.says(sized("", body.as_bytes())).await;
        assert_eq!(statuses(&said), ["200"], "{more:.60}\n{said}");
        asked += 1;
        assert_eq!(ward.raw.count(), asked);
        assert!(ward.raw.seen().pop().unwrap().text() == body, "{more:.60}");
    }
    let large = format!(r#""tools":"{}""#, "y".repeat(4 * 1024 * 1024));
    let body = QUESTION.replacen('{', &format!("{{{large},"), 1);
    refuses(&ward, "", body.as_bytes(), 413, "body_too_large").await;
    // A name at the top might be one that is read, and is.
    for bad in [
        r#""\ud800":1"#,
        r#""x":"\ud80""#,
        r#""x":"\u00g0""#,
        r#""x":NaN"#,
        r#""x":01"#,
        r#""x":1."#,
    ] {
        let body = QUESTION.replacen('{', &format!("{{{bad},"), 1);
        refuses(&ward, "", body.as_bytes(), 400, INVALID).await;
    }
    assert_eq!(ward.raw.count(), asked);
    assert_eq!(ward.house.ask().await.status, 200);
    ward.house.is_untouched("a").await;
}

/// What ten gigabytes of zeros begin like when they are packed: a head of gzip, and one block that
/// repeats itself.
fn packed() -> Vec<u8> {
    let mut bytes =
        b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xec\xc1\x01\r\0\0\0\xc2\xa0\xf7Om\x0e7\xa0".to_vec();
    bytes.resize(10 * 1024, 0);
    bytes
}

#[tokio::test]
async fn j17_nothing_is_unpacked() {
    let ward = Ward::new().await;
    let (bomb, plain) = (packed(), QUESTION.as_bytes());
    for coding in ["gzip", "gzip, gzip", "br", "zstd", "deflate", "x-unknown", "identity", ""] {
        for body in [&bomb[..], plain] {
            let lines = format!("Content-Encoding: {coding}\r\n");
            refuses(&ward, &lines, body, 415, "unsupported_media_type").await;
        }
    }
    let twice = "Content-Encoding: gzip\r\ncontent-encoding: gzip\r\n";
    refuses(&ward, twice, &bomb, 415, "unsupported_media_type").await;
    // Packed and not said to be, it is no JSON.
    refuses(&ward, "", &bomb, 400, INVALID).await;
    // The refusal does not wait for the body.
    let mut stream = ward.connect().await;
    let head = chat("Content-Encoding: gzip\r\nContent-Length: 1000000\r\n", "");
    tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
    let said = rest(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 415 ") && said.contains("\r\nconnection: close"), "{said}");
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn j01_j02_j19_a_body_is_one_object_and_nothing_else() {
    let ward = Ward::new().await;
    let object = QUESTION;
    let mut bodies: Vec<String> =
        ["", " ", "null", "[]", "\"x\"", "1", "{}{}", "{\"mess"].map(str::to_owned).into();
    for behind in ["{}", object, "x", "\0", "// why", "/* why */", ",", "\u{feff}", SMUGGLED] {
        bodies.push(format!("{object}{behind}"));
        bodies.push(format!("{behind}{object}"));
    }
    let mut lines = String::new();
    for _ in 0..2 {
        let _ = writeln!(lines, "{object}");
    }
    bodies.push(lines);
    for body in bodies {
        refuses(&ward, "", body.as_bytes(), 400, INVALID).await;
    }
    ward.is_unharmed(0).await;
}

//! Forms as clients write them, and as nobody should.

use super::*;

/// A form of these parts, each a head and a content.
fn form(boundary: &str, parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (head, content) in parts {
        body.extend_from_slice(format!("--{boundary}\r\n{head}\r\n\r\n").as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}

fn named<'a>(body: &'a [u8], boundary: &str) -> Vec<(&'a str, bool, &'a [u8])> {
    let parts = parts(body, boundary.as_bytes()).unwrap();
    parts.into_iter().map(|part| (part.name, part.is_opaque, &body[part.content])).collect()
}

const MODEL: &str = "Content-Disposition: form-data; name=\"model\"";
const FILE: &str = "Content-Disposition: form-data; name=\"file\"; filename=\"a;b=\u{e4}.mp3\"\r\n\
                    Content-Type: audio/mpeg";

#[test]
fn names_stand_with_quotes_or_without_and_files_are_told_apart() {
    let body = form(
        "b",
        &[
            (MODEL, b"whisper"),
            ("content-disposition:form-data;NAME=stream", b"true"),
            (FILE, b"\x00\xff\r\n--\r\n-- b\r\n--\xff"),
            ("Content-Disposition: form-data; name=\"x[]\"; filename*=utf-8''y", b""),
            (
                "Content-Transfer-Encoding: base64\r\nContent-Disposition: form-data; name=e",
                b"aGk=",
            ),
        ],
    );
    let expected: [(&str, bool, &[u8]); 5] = [
        ("model", false, b"whisper"),
        ("stream", false, b"true"),
        ("file", true, b"\x00\xff\r\n--\r\n-- b\r\n--\xff"),
        ("x[]", true, b""),
        ("e", true, b"aGk="),
    ];
    assert_eq!(named(&body, "b"), expected);
}

#[test]
fn the_boundary_within_a_line_is_content_and_behind_half_a_line_end_a_refusal() {
    for content in ["x--bound", "--boun\r\n", "\r\n --bound", "\r\n-bound", "\n--boun", "--bound"] {
        let body = form("bound", &[(MODEL, format!("y{content}").as_bytes())]);
        assert_eq!(named(&body, "bound").len(), 1, "{content:?}");
    }
    for content in
        ["\n--bound", "\r--bound", "\n--bound\nContent-Disposition: form-data", "\r\n--boundX"]
    {
        let body = form("bound", &[(MODEL, format!("y{content}").as_bytes())]);
        assert!(parts(&body, b"bound").is_err(), "{content:?}");
    }
    let body = form("bound", &[(MODEL, b"--bound")]);
    assert!(parts(&body, b"bound").is_err(), "at the very beginning of a content");
}

#[test]
fn what_two_readers_could_read_in_two_ways_is_refused() {
    let whole = form("b", &[(MODEL, b"m"), (FILE, b"x")]);
    assert!(parts(&whole, b"b").is_ok());
    for head in [
        "",
        "Content-Type: text/plain",
        "Content-Disposition: form-data",
        "Content-Disposition: attachment; name=\"model\"",
        "Content-Disposition: form-data; name=\"model\"; name=\"other\"",
        "Content-Disposition: form-data; name=\"model\"; name*=utf-8''other",
        "Content-Disposition: form-data; name*=utf-8''model",
        "Content-Disposition: form-data; name=\"mod\\el\"",
        "Content-Disposition: form-data; name=\"mod%65l\"",
        "Content-Disposition: form-data; name=\"model\u{e4}\"",
        "Content-Disposition: form-data; name=\"model",
        "Content-Disposition: form-data; name=\"model\"x",
        "Content-Disposition: form-data; name =model",
        "Content-Disposition: form-data; name=\"file\"; filename=\"a\\\"; name=\\\"model\\\"\"",
        "Content-Disposition: form-data; name=\"file\"; filename=\"a\\\"",
        "Content-Disposition: form-data; name=model\r\nContent-Disposition: form-data; name=x",
        "Content-Disposition: form-data;\r\n name=\"model\"",
        "Content-Disposition : form-data; name=\"model\"",
        "Content-Disposition: form-data; name=\"model\"\nX: y",
        "Content-Disposition: form-data; name=\"model\"\rX: y",
    ] {
        assert!(parts(&form("b", &[(head, b"m")]), b"b").is_err(), "{head:?}");
    }
    let text = String::from_utf8(whole.clone()).unwrap();
    for (from, to) in
        [("\r\n", "\n"), ("--b--\r\n", "--b--\r\nmore"), ("--b--", "--b"), ("--b--", "")]
    {
        assert!(parts(text.replace(from, to).as_bytes(), b"b").is_err(), "{from:?} {to:?}");
    }
    for before in ["\r\n", "preamble\r\n", " "] {
        assert!(parts(format!("{before}{text}").as_bytes(), b"b").is_err(), "{before:?}");
    }
    assert!(parts(text.strip_suffix("\r\n").unwrap().as_bytes(), b"b").is_ok());
    for length in 0..whole.len() - 2 {
        assert!(parts(&whole[..length], b"b").is_err(), "cut at {length}");
    }
}

#[test]
fn heads_and_parts_are_bounded() {
    let long = format!("{MODEL}\r\nX: {}", "y".repeat(HEAD_BYTES_MAX));
    assert!(parts(&form("b", &[(&long, b"m")]), b"b").is_err());
    let many = vec![(MODEL, b"m".as_slice()); PARTS_MAX + 1];
    assert_eq!(parts(&form("b", &many[1..]), b"b").unwrap().len(), PARTS_MAX);
    assert!(parts(&form("b", &many), b"b").is_err());
}

#[test]
fn the_boundary_is_what_the_content_type_says_once_and_clearly() {
    for (text, expected) in [
        ("multipart/form-data; boundary=abc", Some("abc")),
        ("multipart/form-data; charset=utf-8; Boundary=\"a b:c\"", Some("a b:c")),
        ("multipart/form-data;boundary=----X'()+_,-./:=?", None),
        ("multipart/form-data;boundary=\"--X'()+_,-./:=?\"", Some("--X'()+_,-./:=?")),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
        ("multipart/form-data; boundary=\"a \"", None),
        ("multipart/form-data; boundary=\"a\"b", None),
        ("multipart/form-data; boundary=a; boundary=b", None),
        ("multipart/form-data; boundary=a,b", None),
    ] {
        assert_eq!(boundary(text.as_bytes()), expected.map(str::as_bytes), "{text}");
    }
    let long = format!("multipart/form-data; boundary={}", "a".repeat(71));
    assert_eq!(boundary(long.as_bytes()), None);
}

/// Bytes that are mostly those of which boundaries and line ends are made.
fn noise(random: &mut fastrand::Rng) -> Vec<u8> {
    const WORDS: [&[u8]; 8] = [b"\r\n", b"\r", b"\n", b"--", b"-", b"b0", b"--b0", b"\xff"];
    let count = random.usize(..12);
    (0..count).flat_map(|_| random.choice(WORDS).unwrap_or_default()).copied().collect()
}

/// Whether the boundary stands at the beginning of a line, by any reader's idea of a line.
fn is_torn(content: &[u8]) -> bool {
    let ends =
        |before: &[u8]| before.is_empty() || before.ends_with(b"\n") || before.ends_with(b"\r");
    memmem::find_iter(content, b"--b0").any(|at| ends(&content[..at]))
}

#[test]
fn whatever_stands_between_boundaries_the_parts_are_found_exactly_or_the_form_is_refused() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut found, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let contents: Vec<_> = (0..random.usize(1..5)).map(|_| noise(&mut random)).collect();
        let heads = ["Content-Disposition: form-data; name=a", MODEL, FILE];
        let whole: Vec<_> = contents
            .iter()
            .map(|content| (*random.choice(&heads).unwrap(), content.as_slice()))
            .collect();
        let body = form("b0", &whole);
        match parts(&body, b"b0") {
            Ok(parts) => {
                let read: Vec<_> =
                    parts.into_iter().map(|part| body[part.content].to_vec()).collect();
                assert_eq!(read, contents, "seed {seed}: {:?}", body.escape_ascii().to_string());
                assert!(!contents.iter().any(|content| is_torn(content)), "seed {seed}: {read:?}");
                found += 1;
            }
            Err(_) => {
                let is_torn = contents.iter().any(|content| is_torn(content));
                assert!(is_torn, "seed {seed}: {:?}", body.escape_ascii().to_string());
                refused += 1;
            }
        }
    }
    assert!(found > 1_000 && refused > 1_000, "{found} {refused}");
}

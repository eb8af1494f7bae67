//! The guard against every way to cut, and against the parser that reads behind it.

use super::promise::pieces;
use super::*;

const CHUNKED: &[u8] = b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A head of this request line and these lines of fields.
fn head(line: &str, fields: &[&str]) -> Vec<u8> {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    format!("{line}\r\n{fields}\r\n").into_bytes()
}

/// One that asks for `/` with these lines beside its host.
fn asks(fields: &[&str]) -> Vec<u8> {
    head("POST / HTTP/1.1", &[&["Host: a"], fields].concat())
}

fn verdict(bytes: &[u8]) -> Option<Violation> {
    pieces([bytes]).1.map(|(violation, _)| violation)
}

#[test]
fn what_a_request_may_be_passes() {
    for bytes in [
        head("GET /v1/models HTTP/1.1", &["Host: a.example:8080"]),
        head("GET /?a[]=b%20c&d=/e HTTP/1.1", &["hOST:\t[::1]:8080 \t", "X-Long: \t\u{e4}\tb "]),
        head("GET /?{a|b}^c\\d`e?f HTTP/1.1", &["Host: a"]),
        head("GET http://a?{b} HTTP/1.1", &["Host: a"]),
        head("GET http://a:80/v1/models?b HTTP/1.1", &["Host: 127.0.0.1", "Empty:"]),
        head("GET / HTTP/1.0", &[]),
        head("POST / HTTP/1.0", &["Content-Length: 0", "Expect: anything"]),
        head("\r\n\r\nPATCH / HTTP/1.1", &["Host: a", "x_y: z", "Upgrade: foo"]),
        asks(&["Expect: 100-Continue", "Content-Length: 00"]),
    ] {
        assert_eq!(pieces([&bytes[..]]), (bytes.len(), None, 1), "{}", bytes.escape_ascii());
    }
}

/// None of these heads gets to whoever is guarded.
fn are_refused(heads: &[(Vec<u8>, Violation)]) {
    for (bytes, violation) in heads {
        let (passed, refused, heads) = pieces([&bytes[..]]);
        let seen = bytes.get(..100).unwrap_or(bytes).escape_ascii();
        assert_eq!((passed, refused, heads), (0, Some((*violation, Place::Head)), 0), "{seen}");
    }
}

#[test]
fn fields_and_framing_that_could_be_read_in_two_ways_are_refused_for_what_they_are() {
    use Violation::*;
    are_refused(&[
        (asks(&["Content-Length: 4", "Transfer-Encoding: chunked"]), TransferEncoding),
        (asks(&["Transfer-Encoding: chunked", "Content-Length: 4"]), TransferEncoding),
        (asks(&["Transfer-Encoding: chunked, chunked"]), TransferEncoding),
        (asks(&["Transfer-Encoding: gzip, chunked"]), TransferEncoding),
        (asks(&["Transfer-Encoding: chunked", "transfer-encoding: chunked"]), TransferEncoding),
        (asks(&["Transfer-Encoding: \"chunked\""]), TransferEncoding),
        (asks(&["Transfer-Encoding:"]), TransferEncoding),
        (head("POST / HTTP/1.0", &["Transfer-Encoding: chunked"]), TransferEncoding),
        (asks(&["Content-Length: 4", "Content-Length: 4"]), ContentLength),
        (asks(&["Content-Length: 4, 4"]), ContentLength),
        (asks(&["Content-Length: +4"]), ContentLength),
        (asks(&["Content-Length: 0x4"]), ContentLength),
        (asks(&["Content-Length:"]), ContentLength),
        (asks(&["Content-Length: 18446744073709551616"]), ContentLength),
        (asks(&["Content-Length: 18446744073709551615"]), BodyTooLarge),
        (asks(&["Content-Length : 4"]), FieldName),
        (asks(&["X\u{ff}: b"]), FieldName),
        (asks(&["NoColon"]), FieldName),
        (asks(&[": v"]), FieldName),
        (asks(&[" folded: v"]), FieldName),
        (asks(&["X: a", "\tb"]), FieldName),
        (head("GET / HTTP/1.1", &[" Host: a"]), FieldName),
        (asks(&["X: a\rb"]), FieldValue),
        (asks(&["X: a\0b"]), FieldValue),
        (asks(&["X: a\x7f"]), FieldValue),
        (asks(&["Expect: 200-ok"]), Expectation),
    ]);
}

#[test]
fn what_a_request_must_not_ask_for_is_refused_for_what_it_is() {
    use Violation::*;
    let long = "x".repeat(8_190);
    are_refused(&[
        (head("GET / HTTP/1.1", &[]), Host),
        (asks(&["Host: a"]), Host),
        (head("GET / HTTP/1.0", &["Host: a", "Host: b"]), Host),
        (head("GET / HTTP/1.1", &["Host: a b/c@d"]), Host),
        (head("GET / HTTP/1.1", &["Host:"]), Host),
        (head("GET / HTTP/1.1", &["Host: a,b"]), Host),
        (head("GET / HTTP/1.1", &["Host: a:b"]), Host),
        (head("GET / HTTP/1.1", &["Host: [::1"]), Host),
        (head("TRACE / HTTP/1.1", &["Host: a"]), Method),
        (head("CONNECT a:80 HTTP/1.1", &["Host: a"]), Method),
        (head("OPTIONS * HTTP/1.1", &["Host: a"]), Method),
        (head("GET * HTTP/1.1", &["Host: a"]), Target),
        (head("GET a HTTP/1.1", &["Host: a"]), Target),
        (head("GET /a#b HTTP/1.1", &["Host: a"]), Target),
        (head("GET /a?b#c HTTP/1.1", &["Host: a"]), Target),
        (head("GET /{a}?b HTTP/1.1", &["Host: a"]), Target),
        (head("GET /?<a> HTTP/1.1", &["Host: a"]), Target),
        (head("GET /?\u{4f60} HTTP/1.1", &["Host: a"]), Target),
        (head("GET /\u{4f60} HTTP/1.1", &["Host: a"]), Target),
        (head("GET http://a@b/ HTTP/1.1", &["Host: a"]), Target),
        (head("GET ftp://a/ HTTP/1.1", &["Host: a"]), Target),
        (head(&format!("GET /{long}xxx HTTP/1.1"), &["Host: a"]), TargetTooLong),
        (head(&format!("GET /{long}{long}"), &[]), TargetTooLong),
        (head("GET / HTTP/2.0", &["Host: a"]), Version),
        (head("GET / HTTP/9.9", &["Host: a"]), Version),
        (head("GET /", &[]), RequestLine),
        (head("GET / HTTP/1.1 ", &["Host: a"]), RequestLine),
        (head("GET  / HTTP/1.1", &["Host: a"]), RequestLine),
        (head("GET / http/1.1", &["Host: a"]), RequestLine),
        (head("\r\n\r\n\r\nGET / HTTP/1.1", &["Host: a"]), RequestLine),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc".to_vec(), RequestLine),
        (b"GET / HTTP/1.1\nHost: a\n\n".to_vec(), LineEnd),
        (b"GET / HTTP/1.1\r\nHost: a\n\r\n".to_vec(), LineEnd),
        (asks(&["X: y"; 100]), HeadTooLarge),
        (asks(&[format!("X: {long}").as_str(); 4]), HeadTooLarge),
    ]);
    assert_eq!(verdict(&head(&format!("GET /{long} HTTP/1.1"), &["Host: a"])), None);
    assert_eq!(verdict(&asks(&["X: y"; 99])), None);
}

#[test]
fn what_browsers_write_into_queries_passes_and_nothing_else_does() {
    for (target, violation) in [
        ("/?{a|b}^c\\d`e?f", None),
        ("http://a?{b}", None),
        ("/{a}?b", Some(Violation::Target)),
        ("/?<a>", Some(Violation::Target)),
        ("/?a\"", Some(Violation::Target)),
        ("/a?b#c", Some(Violation::Target)),
        ("/?\u{4f60}", Some(Violation::Target)),
    ] {
        let bytes = head(&format!("GET {target} HTTP/1.1"), &["Host: a"]);
        assert_eq!(verdict(&bytes), violation, "{target}");
    }
}

#[test]
fn what_chunks_may_be_passes_and_the_rest_is_refused() {
    let trailers = |count: usize| format!("0\r\n{}\r\n", "A: b\r\n".repeat(count));
    for body in
        ["0\r\n\r\n", "4\r\nabcd\r\n0\r\n\r\n", "00A;b=\"c\r\n0123456789\r\n0;d\r\nE: f\r\n\r\n"]
    {
        let bytes = [CHUNKED, body.as_bytes(), CHUNKED].concat();
        assert_eq!(pieces([&bytes[..]]), (bytes.len(), None, 2), "{body}");
    }
    assert_eq!(verdict(&[CHUNKED, trailers(32).as_bytes()].concat()), None);
    for (body, violation) in [
        (String::from("\r\n"), Violation::Chunk),
        ("g\r\n".into(), Violation::Chunk),
        ("-1\r\n".into(), Violation::Chunk),
        ("0x4\r\n".into(), Violation::Chunk),
        ("4 \r\nabcd\r\n".into(), Violation::Chunk),
        ("4\nabcd\r\n".into(), Violation::Chunk),
        ("4\r\nabcde\r\n".into(), Violation::Chunk),
        ("4\r\nabcd\n".into(), Violation::Chunk),
        ("4;a\nb\r\nabcd\r\n".into(), Violation::Chunk),
        ("000000000000004\r\nabcd\r\n".into(), Violation::Chunk),
        ("ffffffffffffffff\r\n".into(), Violation::Chunk),
        (format!("4;{}\r\n", "a".repeat(20_000)), Violation::Chunk),
        ("1;aaaa\r\nb\r\n".repeat(300), Violation::Chunk),
        ("0\r\n\n".into(), Violation::Trailer),
        ("0\r\nA : b\r\n\r\n".into(), Violation::Trailer),
        ("0\r\n: b\r\n\r\n".into(), Violation::Trailer),
        ("0\r\n b: c\r\n\r\n".into(), Violation::Trailer),
        ("0\r\nA: b\rc\r\n\r\n".into(), Violation::Trailer),
        ("0\r\n\rx".into(), Violation::Chunk),
        (trailers(200), Violation::Trailer),
        (format!("0\r\nA: {}\r\n\r\n", "b".repeat(5_000)), Violation::Trailer),
    ] {
        let bytes = [CHUNKED, body.as_bytes()].concat();
        let seen = body.get(..40).unwrap_or(&body).escape_debug();
        assert_eq!(pieces([&bytes[..]]).1, Some((violation, Place::Body)), "{seen}");
    }
}

/// Conversations of more than one message, good and bad.
fn conversations() -> Vec<Vec<u8>> {
    let good = asks(&["Content-Length: 5"]);
    let chunks = b"4;x=y\r\nabcd\r\n1\r\ne\r\n0\r\nA: b\r\n\r\n";
    let mut all = vec![
        [&good[..], b"hello", CHUNKED, chunks, &asks(&[]), &good[..], b"GET /"].concat(),
        [&good[..], b"GET /smuggled HTTP/1.1\r\n\r\n"].concat(),
        [CHUNKED, b"0\r\n\r\nG".as_slice(), &asks(&["Transfer-Encoding: x"])].concat(),
        [CHUNKED, b"5\r\nhelloo"].concat(),
        b"\r\n\r\n\r\n".to_vec(),
        b"\r\n\n".to_vec(),
        b"GET /\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost: a\n\n".to_vec(),
        b"G\rT / HTTP/1.1\n".to_vec(),
        b"X".repeat(40),
        [b"GET /".to_vec(), b"y".repeat(9_000), b"\nGET / HTTP/1.1\r\n".to_vec()].concat(),
        [b"GET /".to_vec(), b"y".repeat(8_191 + 9), b"\n".to_vec()].concat(),
        asks(&[&format!("X: {}", "y".repeat(32 * 1024))]),
    ];
    for fields in [&["Host: b"][..], &["X: a\0"], &["Content-Length: 1, 1"], &["A: b", " c"]] {
        all.push([&good[..], b"hello", &asks(fields)].concat());
    }
    all
}

#[test]
fn how_the_bytes_are_cut_changes_no_verdict() {
    for bytes in conversations() {
        let whole = pieces([&bytes[..]]);
        // A long one is cut where something may change, and here and there.
        let step = 1 + bytes.len() / 2_000;
        for at in (0..bytes.len()).step_by(step) {
            let (first, second) = bytes.split_at(at);
            let cut = pieces([first, second]);
            let seen = first.get(first.len().saturating_sub(60)..).unwrap_or(first).escape_ascii();
            assert_eq!(cut, whole, "cut behind {seen}");
        }
        assert_eq!(pieces(bytes.chunks(1)), whole, "{}", bytes.len());
    }
}

#[test]
fn random_bytes_meet_the_same_verdict_however_they_are_cut() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let seeds = conversations();
    for round in 0..3_000 {
        let mut bytes = seeds[random.usize(..seeds.len())].clone();
        bytes.truncate(2_000);
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => bytes[at] = *random.choice(b"\r\n :;,\0_0f\t").unwrap(),
                _ => drop(bytes.remove(at)),
            }
            if bytes.is_empty() {
                bytes.push(b'\r');
            }
        }
        let (at, more) = (random.usize(..bytes.len()), random.usize(1..50));
        let whole = pieces([&bytes[..]]);
        let (first, second) = bytes.split_at(at);
        assert_eq!(pieces([first, second]), whole, "seed {seed}, round {round}");
        assert_eq!(pieces(bytes.chunks(more)), whole, "seed {seed}, round {round}");
        agrees(&bytes, &format!("seed {seed}, round {round}"));
    }
}

/// If the guard takes the first head of `bytes`, hyper's parser reads a request of the same length, the
/// framing that the guard has read is the only one that stands there, and its target is a URI.
fn agrees(bytes: &[u8], seen: &str) {
    let mut head = Head::default();
    let Ok(Some(length)) = head.read(bytes) else { return };
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    assert_eq!(request.parse(bytes), Ok(httparse::Status::Complete(length)), "{seen}");
    assert!(request.path.unwrap().parse::<hyper::Uri>().is_ok(), "{seen}");
    let values = |name: &str| -> Vec<Vec<u8>> {
        let named = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value.to_ascii_lowercase()).collect()
    };
    let lines = bytes[..length].split(|byte| *byte == b'\n').filter(|line| line.len() > 1).count();
    assert_eq!(request.headers.len(), lines - 1, "{seen}");
    let expected = match (&values("transfer-encoding")[..], &values("content-length")[..]) {
        ([], []) => Framing::Length(0),
        ([], [length]) => Framing::Length(std::str::from_utf8(length).unwrap().parse().unwrap()),
        ([coding], []) if coding == b"chunked" => Framing::Chunked,
        other => panic!("{seen}: {other:?}"),
    };
    assert_eq!(head.framing(), expected, "{seen}");
    assert!(values("host").len() == 1 || request.version == Some(0), "{seen}");
}

#[test]
fn hypers_parser_reads_what_the_guard_takes_and_reads_the_same() {
    for byte in 0..=u8::MAX {
        for (before, after) in [
            (&b"GET /"[..], &b" HTTP/1.1\r\nHost: a\r\n\r\n"[..]),
            (b"GET /?", b" HTTP/1.1\r\nHost: a\r\n\r\n"),
            (b"GET http://a?", b" HTTP/1.1\r\nHost: a\r\n\r\n"),
            (b"GET http://a", b"/ HTTP/1.1\r\nHost: a\r\n\r\n"),
            (b"GE", b" / HTTP/1.1\r\nHost: a\r\n\r\n"),
            (b"GET / HTTP/1.1\r\nHost: a", b"\r\n\r\n"),
            (b"GET / HTTP/1.1\r\nHost: a\r\nX", b": b\r\n\r\n"),
            (b"GET / HTTP/1.1\r\nHost: a\r\nX:", b"\r\n\r\n"),
            (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1", b"\r\n\r\n"),
            (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:", b"chunked\r\n\r\n"),
            (b"GET / HTTP/1.1\r\nHost: a\r\n", b"Content-Length: 1\r\n\r\n"),
        ] {
            let bytes = [before, &[byte], after].concat();
            agrees(&bytes, &bytes.escape_ascii().to_string());
        }
    }
}

#[test]
fn a_head_that_is_late_is_refused_and_a_body_is_not() {
    let mut guard = Guard::new();
    assert_eq!(guard.look(b"\r\n").then, Then::Held);
    assert!(!guard.is_in_head());
    assert_eq!(guard.look(b"\r\nGE").then, Then::Held);
    assert!(guard.is_in_head());
    assert!(guard.refuse(Violation::Late));
    let refused = Then::Refused(Violation::Late, Place::Head);
    assert_eq!(guard.look(b"T / HTTP/1.1\r\nHost: a\r\n\r\n"), Look { passed: 0, then: refused });
    let mut guard = Guard::new();
    let bytes = asks(&["Content-Length: 5", "a_b: c"]);
    assert_eq!(guard.look(&bytes), Look { passed: bytes.len(), then: Then::All });
    assert!(guard.is_in_body() && guard.has_underscores() && !guard.refuse(Violation::Late));
    assert_eq!(guard.look(b"hello").then, Then::All);
    assert!(!guard.is_in_body());
}

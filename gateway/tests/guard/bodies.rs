//! Bodies whose end could be found in two places, and what surrounds them.

use crate::kit::{CHAT, SMUGGLED, Ward, chat, question, statuses};
use crate::local::QUESTION;

const INVALID: &str = "invalid_request";

/// A question in two chunks, with this behind its sizes and these trailers.
fn chunked(lines: &str, extension: &str, trailers: &str) -> String {
    let (first, second) = QUESTION.split_at(20);
    let chunk = |part: &str| format!("{:x}{extension}\r\n{part}\r\n", part.len());
    let body = format!("{}{}0\r\n{trailers}\r\n", chunk(first), chunk(second));
    chat(&format!("Transfer-Encoding: chunked\r\n{lines}"), &body)
}

#[tokio::test]
async fn h01_h02_a_body_is_framed_in_one_way() {
    let ward = Ward::new().await;
    let body = format!("0\r\n\r\n{SMUGGLED}");
    for lines in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "transfer-encoding: chunked\r\nX: y\r\ncontent-length: 0\r\n",
    ] {
        ward.refuses(chat(lines, &body), 400, INVALID).await;
    }
    // Each could be taken for a good question.
    let last = chunked("Content-Length: 4\r\n", "", "");
    let first = chunked("", "", "").replacen("Host: a\r\n", "Host: a\r\nContent-Length: 4\r\n", 1);
    ward.refuses(last + SMUGGLED, 400, INVALID).await;
    ward.refuses(first + SMUGGLED, 400, INVALID).await;
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn h04_h05_h07_a_length_is_one_number() {
    let ward = Ward::new().await;
    for lines in [
        "Content-Length: 4\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 4, 4\r\n",
        "Content-Length: 4,\r\n",
        "Content-Length: +4\r\n",
        "Content-Length: -4\r\n",
        "Content-Length: 0x4\r\n",
        "Content-Length: 4.0\r\n",
        "Content-Length: 4 4\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
    ] {
        ward.refuses(chat(lines, &format!("null{SMUGGLED}")), 400, INVALID).await;
    }
    for length in ["18446744073709551615", "9223372036854775807", "99999999999"] {
        let lines = format!("Content-Length: {length}\r\n");
        ward.refuses(chat(&lines, "null"), 413, "body_too_large").await;
    }
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn h08_h10_h11_h13_a_coding_is_chunked_once() {
    let ward = Ward::new().await;
    for lines in [
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: ,chunked\r\n",
        "Transfer-Encoding: \u{b}chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\ntransfer-encoding: identity\r\n",
    ] {
        ward.refuses(chat(lines, &format!("0\r\n\r\n{SMUGGLED}")), 400, INVALID).await;
    }
    let old = chunked("", "", "").replacen("HTTP/1.1", "HTTP/1.0", 1);
    ward.refuses(old + SMUGGLED, 400, INVALID).await;
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn h37_what_surrounds_chunks_is_bounded() {
    let ward = Ward::new().await;
    let trailers = |count: usize| "X: y\r\n".repeat(count);
    for bytes in [
        chunked("", &format!(";{}", "x".repeat(20 * 1024)), ""),
        chunked("", ";a\nb", ""),
        chunked("", " ", ""),
        chunked("", "", &trailers(200)),
        chunked("", "", &format!("X: {}\r\n", "y".repeat(20 * 1024))),
        chunked("", "", "X : y\r\n"),
        chunked("", "", "X: y\n"),
        chat("Transfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\n{}"),
        chat("Transfer-Encoding: chunked\r\n", "0x2\r\n{}\r\n0\r\n\r\n"),
        chat("Transfer-Encoding: chunked\r\n", "2\n{}\r\n0\r\n\r\n"),
        chat("Transfer-Encoding: chunked\r\n", "1\r\n{}\r\n0\r\n\r\n"),
        chat("Transfer-Encoding: chunked\r\n", "\r\n"),
    ] {
        ward.refuses(bytes + SMUGGLED, 400, INVALID).await;
    }
    let few = chunked("Connection: close\r\n", ";a=b", &trailers(20));
    assert_eq!(statuses(&ward.says(few).await), ["200"]);
    ward.is_unharmed(1).await;
}

#[tokio::test]
async fn h38_trailers_are_dropped() {
    let ward = Ward::new().await;
    let trailers = "Content-Length: 99\r\nAuthorization: Bearer x\r\nTransfer-Encoding: gzip\r\n\
                    x-request-id: trailed\r\n";
    let said =
        ward.says(chunked("", "", trailers) + &chunked("Connection: close\r\n", "", "")).await;
    assert_eq!(statuses(&said), ["200", "200"]);
    for seen in ward.raw.seen() {
        assert!(!seen.head.contains("trailed") && seen.header("authorization").is_none());
    }
    ward.is_unharmed(2).await;
}

#[tokio::test]
async fn a_body_that_breaks_its_framing_is_the_last_and_what_was_asked_before_is_answered() {
    let ward = Ward::new().await;
    let broken = chat("Transfer-Encoding: chunked\r\n", "2\r\n{}x");
    let said = ward.says(chunked("", "", "") + &broken + SMUGGLED).await;
    assert_eq!(statuses(&said), ["200", "400"]);
    assert!(!said.contains("smuggled"), "{said}");
    assert_eq!(ward.counted("guard_refusals_total{reason=\"chunk\"}").await, 1);
    ward.is_unharmed(1).await;
}

#[tokio::test]
async fn an_answer_to_chunks_that_nobody_read_says_that_it_is_the_last() {
    let ward = Ward::new().await;
    let unread = chunked("", "", "").replacen(CHAT, "/v1/models", 1);
    for method in ["POST", "GET"] {
        let said = ward.says(unread.replacen("POST", method, 1)).await;
        assert_eq!(statuses(&said).len(), 1);
        assert!(said.contains("\r\nconnection: close\r\n"), "{said}");
    }
    // What was read to its end is no reason to part.
    let bad = chat("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n");
    let said = ward.says(bad + &question("Connection: close\r\n")).await;
    assert_eq!(statuses(&said), ["400", "200"]);
    ward.is_unharmed(1).await;
}

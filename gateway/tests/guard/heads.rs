//! Heads that are refused, and what is made of the odd ones that are not.

use tokio::io::AsyncWriteExt;

use crate::kit::{CHAT, SMUGGLED, Ward, chat, is_refused, question, rest, said_to, statuses};
use crate::local::Ask;

const INVALID: &str = "invalid_request";

#[tokio::test]
async fn h20_h22_one_host_that_is_a_host() {
    let ward = Ward::new().await;
    let get = |lines: &str| format!("GET /v1/models HTTP/1.1\r\n{lines}\r\n{SMUGGLED}");
    for lines in ["", "Host: a\r\nHost: a\r\n", "Host: a\r\nhost: b\r\n", "Host:\r\n"] {
        ward.refuses(get(lines), 400, INVALID).await;
    }
    for host in ["a b/c@d", "a/b", "a@b", "a,b", "a:b", "a:1:2", "[::1", "a%2f", "\"a\"", "a?"] {
        ward.refuses(get(&format!("Host: {host}\r\n")), 400, INVALID).await;
    }
    assert_eq!(ward.counted("guard_refusals_total{reason=\"host\"}").await, 14);
    for lines in ["Host: a.b-c_d:80\r\n", "Host: [::1]:8080\r\n", "HOST:\t127.0.0.1 \r\n"] {
        let get = format!("GET /v1/models HTTP/1.1\r\n{lines}connection: close\r\n\r\n");
        assert_eq!(statuses(&ward.says(get).await), ["200"]);
    }
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn h14_h17_h19_a_field_is_a_name_a_colon_and_a_value() {
    let ward = Ward::new().await;
    for lines in [
        &b"Content-Length : 4\r\n"[..],
        b"Content-Length\t: 4\r\n",
        b"X: a\rb\r\n",
        b"X: a\x00b\r\n",
        b"X: a\x7f\r\n",
        b"X: a\x1b[2J\r\n",
        b"X\xff: b\r\n",
        b"X\x00: b\r\n",
        b"NoColon\r\n",
        b": v\r\n",
        b"X: a\r\n folded\r\n",
        b"X: a\r\n\tfolded\r\n",
        b"(X): a\r\n",
    ] {
        let head = format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\n");
        let bytes = [head.as_bytes(), lines, b"\r\n", SMUGGLED.as_bytes()].concat();
        ward.refuses(bytes, 400, INVALID).await;
    }
    ward.refuses(format!("GET /v1/models HTTP/1.1\r\n Host: a\r\n\r\n{SMUGGLED}"), 400, INVALID)
        .await;
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn h16_every_line_ends_by_both_signs() {
    let ward = Ward::new().await;
    for bytes in [
        question("").replace("\r\n", "\n"),
        question("").replacen("\r\n", "\n", 1),
        question("X: y\n"),
        question("").replacen("\r\n\r\n", "\r\n\n", 1),
        question("").replacen("\r\n\r\n", "\n\r\n", 1),
    ] {
        ward.refuses(bytes + SMUGGLED, 400, INVALID).await;
    }
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn h23_the_authority_of_a_target_routes_nothing() {
    let ward = Ward::new().await;
    let target = format!("http://evil.example{CHAT}");
    let said = ward.says(question("Connection: close\r\n").replacen(CHAT, &target, 1)).await;
    assert_eq!(statuses(&said), ["200"]);
    for target in ["http://a@evil.example/v1/models", "evil.example/v1/models", "//", "ftp://a/"] {
        let get = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let said = ward.says(get).await;
        assert!(["400", "404"].contains(&statuses(&said)[0]), "{target}: {said}");
    }
    ward.is_unharmed(1).await;
}

#[tokio::test]
async fn h25_h26_methods_that_are_not_for_a_gateway() {
    let ward = Ward::new().await;
    for line in ["TRACE / HTTP/1.1", "CONNECT a.example:443 HTTP/1.1", "OPTIONS * HTTP/1.1"] {
        let bytes = format!("{line}\r\nHost: a\r\n\r\n{SMUGGLED}");
        ward.refuses(&bytes, 405, "method_not_allowed").await;
        assert!(ward.says(&bytes).await.contains("\r\nallow: GET, POST\r\n"));
    }
    // One that nobody knows is none of the path's.
    let said = ward.says(question("Connection: close\r\n").replacen("POST", "BREW", 1)).await;
    assert_eq!(statuses(&said), ["405"]);
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn h28_h43_a_request_line_is_three_words() {
    let ward = Ward::new().await;
    for line in [
        "GET /v1/models#frag HTTP/1.1",
        "GET /v1/\u{4f60} HTTP/1.1",
        "GET /v1/<script> HTTP/1.1",
        "GET /v1/a\\b HTTP/1.1",
        "GET * HTTP/1.1",
        "GET /v1/models",
        "GET /v1/models HTTP/1.1 ",
        "GET  /v1/models HTTP/1.1",
        "GET /v1/models\tHTTP/1.1",
        "GET /v1/models HTTP/1.10",
        "GET /v1/models http/1.1",
        "G(T /v1/models HTTP/1.1",
    ] {
        ward.refuses(format!("{line}\r\nHost: a\r\n\r\n{SMUGGLED}"), 400, INVALID).await;
    }
    for version in ["HTTP/2.0", "HTTP/9.9", "HTTP/0.9", "HTTP/1.2"] {
        let bytes = format!("GET /v1/models {version}\r\nHost: a\r\n\r\n{SMUGGLED}");
        ward.refuses(bytes, 400, INVALID).await;
    }
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn h31_a_head_has_its_limits() {
    let ward = Ward::new().await;
    for kibibytes in [33, 300, 600] {
        let line = format!("X: {}\r\n", "y".repeat(kibibytes * 1024));
        ward.refuses(question(&line), 431, INVALID).await;
    }
    let lines =
        |count: usize| (0..count).map(|field| format!("X{field}: y\r\n")).collect::<String>();
    // Two of them are its host and its length.
    ward.refuses(question(&lines(99)), 431, INVALID).await;
    let long = format!("/v1/models?{}", "x".repeat(8_192));
    ward.refuses(format!("GET {long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414, INVALID).await;
    ward.refuses(format!("GET {long}{long}{long}{long}"), 414, INVALID).await;
    let fits = format!("Connection: close\r\n{}", lines(97));
    assert_eq!(statuses(&ward.says(question(&fits)).await), ["200"]);
    let fits = format!("Connection: close\r\nX: {}\r\n", "y".repeat(31 * 1024));
    assert_eq!(statuses(&ward.says(question(&fits)).await), ["200"]);
    ward.is_unharmed(2).await;
}

#[tokio::test]
async fn h32_a_name_with_an_underscore_is_nobodys() {
    let ward = Ward::with("fail_closed: { require_header: x-agent-id }", |_| ()).await;
    let said = ward.says(question("X_Agent_Id: a\r\nConnection: close\r\n")).await;
    assert!(said.contains("missing_required_header"), "{said}");
    let said = ward.says(question("X_Agent_Id: a\r\nx-agent-id: b\r\nConnection: close\r\n")).await;
    assert_eq!(statuses(&said), ["200"]);
    let seen = ward.raw.seen().pop().unwrap();
    assert!(!seen.head.contains('_'), "{}", seen.head);
    // Nor is it there for a rule that asks for it.
    let required = Some("x_agent_id".to_owned());
    let ward = Ward::with("", |config| config.fail_closed.require_header = required).await;
    let said = ward.says(question("X_Agent_Id: a\r\nConnection: close\r\n")).await;
    assert!(said.contains("missing_required_header"), "{said}");
}

#[tokio::test]
async fn h34_nothing_is_upgraded() {
    let ward = Ward::new().await;
    let upgrade = question("Connection: upgrade\r\nUpgrade: foo\r\n");
    let h2c = "Connection: close, upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    let said = ward.says(upgrade.clone() + &upgrade + &question(h2c)).await;
    assert_eq!(statuses(&said), ["200", "200", "200"]);
    assert!(ward.raw.seen().iter().all(|seen| seen.header("upgrade").is_none()));
    ward.is_unharmed(3).await;
}

#[tokio::test]
async fn h34_who_asks_for_an_upgrade_and_is_refused_while_he_sends_reads_why() {
    let ward = Ward::new().await;
    let long = "y".repeat(6 * 1024 * 1024);
    let lines =
        format!("Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: {}\r\n", long.len());
    for round in 0..5 {
        let mut stream = ward.connect().await;
        let seen = format!("round {round}");
        let sent = stream.write_all(chat(&lines, &long).as_bytes()).await;
        assert!(sent.is_ok(), "{seen}: {sent:?}");
        is_refused(&rest(&mut stream).await, 413, "body_too_large", &seen);
    }
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn h35_what_a_stranger_says_about_the_way_it_came_is_not_passed_on() {
    let ward = Ward::new().await;
    let long = format!("X-Request-Id: {}\r\n", "x".repeat(20 * 1024));
    for lines in [
        "X-Forwarded-For: 10.0.0.1\r\nForwarded: for=10.0.0.1\r\nX-Real-IP: 10.0.0.1\r\n",
        "X-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\nVia: 1.1 evil\r\n",
        &long,
        "X-Request-Id: a b\r\n",
        "X-Request-Id: a%0d%0aX: y\r\n",
    ] {
        let said = ward.says(question(&format!("{lines}Connection: close\r\n"))).await;
        assert_eq!(statuses(&said), ["200"], "{lines}");
        let seen = ward.raw.seen().pop().unwrap();
        assert!(!seen.head.contains("evil") && !seen.head.contains("10.0.0.1"), "{}", seen.head);
        let id = seen.header("x-request-id").unwrap();
        assert!(id.len() < 64 && id.starts_with("req-"), "{id}");
        assert!(said.contains(id));
    }
    ward.is_unharmed(5).await;
}

#[tokio::test]
async fn h40_h41_only_one_thing_can_be_expected() {
    let ward = Ward::new().await;
    ward.refuses(question("Expect: 200-ok\r\n"), 417, INVALID).await;
    ward.refuses(question("Expect: 100-continue, x\r\n"), 417, INVALID).await;
    let said = ward.says(question("Expect: 100-continue\r\nConnection: close\r\n")).await;
    assert_eq!(*statuses(&said).last().unwrap(), "200");
    let old = question("Expect: 100-continue\r\n").replacen("HTTP/1.1", "HTTP/1.0", 1);
    let said = ward.says(old).await;
    assert!(said.starts_with("HTTP/1.0 200 "), "{said}");
    ward.is_unharmed(2).await;
}

#[tokio::test]
async fn h44_answers_come_in_order_and_garbage_comes_last() {
    let ward = Ward::new().await;
    let get =
        |id: &str| format!("GET /v1/models HTTP/1.1\r\nHost: a\r\nx-request-id: {id}\r\n\r\n");
    let said = ward.says(get("one") + &get("two") + &get("three") + "\0\0\0\0" + SMUGGLED).await;
    assert_eq!(statuses(&said), ["200", "200", "200", "400"]);
    let places: Vec<_> =
        ["x-request-id: one", "x-request-id: two", "x-request-id: three", "\"error\""]
            .map(|word| said.find(word).unwrap())
            .into();
    assert!(places.is_sorted(), "{said}");
    is_refused(&said[said.rfind("HTTP/1.1 ").unwrap()..], 400, INVALID, "garbage");
    // A refusal waits for the answer to what was asked before it.
    let said = ward.says(question("") + "GET /v1/models HTTP/1.1\r\n\r\n" + SMUGGLED).await;
    assert_eq!(statuses(&said), ["200", "400"]);
    assert!(said.contains("\"yes\"") && !said.contains("smuggled"), "{said}");
    // A body that nobody asked for is not the next request.
    let body =
        format!("GET /v1/models HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", SMUGGLED.len());
    let said = ward.says(body + SMUGGLED + "GET /v1/models HTTP/1.0\r\n\r\n").await;
    assert_eq!(statuses(&said)[0], "200");
    assert!(!said.contains("404"), "{said}");
    ward.is_unharmed(1).await;
}

#[tokio::test]
async fn h46_what_is_no_http_at_all_is_shown_out_and_nobody_notices() {
    let ward = Ward::new().await;
    let mut random = fastrand::Rng::with_seed(46);
    let noise: Vec<u8> = (0..64 * 1024).map(|_| random.u8(..)).collect();
    for noise in [&noise[..], &noise[1..], b"\0", b"\r\n\r\n\r\n"] {
        let said = ward.says(noise).await;
        is_refused(&said, 400, INVALID, "noise");
    }
    let said = ward.says("\r\n".repeat(10_000)).await;
    is_refused(&said, 400, INVALID, "empty lines");
    assert_eq!(ward.says(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03").await, "");
    assert_eq!(ward.counted("guard_refusals_total{reason=\"request_line\"}").await, 5);
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn a_head_in_pieces_is_judged_like_a_whole_one() {
    let ward = Ward::new().await;
    let good = question("Connection: close\r\nX: y\r\n");
    let bad = question("X: y\r\nContent-Length : 3\r\n");
    for length in [1, 7] {
        let mut stream = ward.connect().await;
        stream.set_nodelay(true).unwrap();
        for piece in good.as_bytes().chunks(length) {
            stream.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(statuses(&rest(&mut stream).await), ["200"]);
        let mut stream = ward.connect().await;
        stream.set_nodelay(true).unwrap();
        for piece in bad.as_bytes().chunks(length) {
            if stream.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        is_refused(&rest(&mut stream).await, 400, INVALID, "in pieces");
    }
    ward.is_unharmed(2).await;
}

#[tokio::test]
async fn operators_are_guarded_as_well_and_told_in_their_own_way() {
    let ward = Ward::new().await;
    let address = ward.house.app.admin_address;
    let head = |lines: &str| format!("GET /healthz HTTP/1.1\r\n{lines}\r\n");
    for (bytes, status, code) in [
        (head(""), 400, INVALID),
        (head("Host: a\r\nHost: b\r\n"), 400, INVALID),
        (head("Host: a\r\nTransfer-Encoding: chunked, chunked\r\n"), 400, INVALID),
        (head("Host: a\r\n").replacen("GET", "TRACE", 1), 405, "method_not_allowed"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 400, INVALID),
    ] {
        let said = said_to(address, bytes.as_bytes()).await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes}\n{said}");
        assert!(said.contains("\r\nconnection: close\r\n"), "{bytes}\n{said}");
        assert!(said.contains("\r\nx-content-type-options: nosniff\r\n"), "{bytes}\n{said}");
        let body: serde_json::Value =
            serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(
            (&body["error"]["code"], body["error"].as_object().unwrap().len()),
            (&code.into(), 2)
        );
    }
    assert_eq!(Ask::get("/healthz").send(address).await.status, 200);
}

#[tokio::test]
async fn an_answer_before_the_end_of_a_body_says_that_it_is_the_last() {
    let ward = Ward::new().await;
    let said =
        ward.says(chat("Content-Length: 100000\r\n", "{").replacen(CHAT, "/v1/models", 1)).await;
    assert_eq!(statuses(&said), ["405"]);
    assert!(said.contains("\r\nconnection: close\r\n"), "{said}");
    ward.is_unharmed(0).await;
}

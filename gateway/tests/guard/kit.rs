//! A gateway before an upstream that keeps what it gets, and a client that says what it likes.

use std::net::SocketAddr;
use std::time::Duration;

use gateway::config::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::local::{House, Plan, QUESTION, soon};
use crate::raw::{Act, Raw, good};

/// Where a chat is asked for.
pub(crate) const CHAT: &str = "/v1/chat/completions";
/// A request that nobody must ever answer.
pub(crate) const SMUGGLED: &str = "GET /v1/models/smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// The gateway and its upstream.
pub(crate) struct Ward {
    pub(crate) raw: Raw,
    pub(crate) house: House,
}

impl Ward {
    /// As it is configured by default.
    pub(crate) async fn new() -> Self {
        Self::with("", |_| ()).await
    }

    /// With one more line at the top of its configuration, and with that changed.
    pub(crate) async fn with(top: &str, change: impl FnOnce(&mut Config)) -> Self {
        let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
        let house = Plan::of(&[("a", raw.address)]).top(top).start_as(change).await;
        Self { raw, house }
    }

    /// A connection to it.
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.house.address()).await.unwrap()
    }

    /// What a client gets that says this and waits for the end.
    pub(crate) async fn says(&self, bytes: impl AsRef<[u8]>) -> String {
        said_to(self.house.address(), bytes.as_ref()).await
    }

    /// Asserts that a client that says this is refused with this status and code as the rule is, and
    /// that nothing of it reaches the upstream.
    pub(crate) async fn refuses(&self, bytes: impl AsRef<[u8]>, status: u16, code: &str) {
        let bytes = bytes.as_ref();
        let seen = bytes[..bytes.len().min(200)].escape_ascii();
        let before = self.raw.count();
        let said = self.says(bytes).await;
        assert!(!said.contains("smuggled"), "{seen}\n{said}");
        is_refused(&said, status, code, &seen.to_string());
        assert_eq!(self.raw.count(), before, "{seen}");
    }

    /// Asserts that others are served as ever, and that nothing has reached the upstream but `asked`
    /// requests for a chat.
    pub(crate) async fn is_unharmed(&self, asked: usize) {
        assert_eq!(self.house.ask().await.status, 200);
        let seen = self.raw.seen();
        assert_eq!(seen.len(), asked + 1);
        for seen in seen {
            assert!(seen.head.starts_with(&format!("POST {CHAT} HTTP/1.1\r\n")), "{}", seen.head);
            assert_eq!(seen.header("transfer-encoding"), None);
            let lengths = seen.head.lines().filter(|line| line.starts_with("content-length"));
            assert_eq!(lengths.count(), 1, "{}", seen.head);
            assert_eq!(seen.text(), QUESTION);
        }
        self.house.is_untouched("a").await;
    }

    /// What is counted for this reason.
    pub(crate) async fn counted(&self, metric: &str) -> u64 {
        let address = self.house.app.admin_address;
        let page = crate::local::Ask::get("/metrics").send(address).await;
        let line = page.text().lines().find_map(|line| {
            line.strip_prefix("quorumgate_")?.strip_prefix(metric)?.strip_prefix(' ')
        });
        line.map_or(0, |number| number.parse().unwrap())
    }
}

/// A request for a chat with these lines behind its host, and what follows them.
pub(crate) fn chat(lines: &str, body: &str) -> String {
    format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}")
}

/// One whose body is a good question.
pub(crate) fn question(lines: &str) -> String {
    chat(&format!("{lines}Content-Length: {}\r\n", QUESTION.len()), QUESTION)
}

/// What a client gets that says this and waits for the end. A refusal may come before it has said all.
pub(crate) async fn said_to(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    rest(&mut stream).await
}

/// What comes until the end.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let _ = soon("the end", stream.read_to_end(&mut said)).await;
    String::from_utf8(said).unwrap()
}

/// Asserts that this is a refusal, whole and with all that belongs to it, and nothing else.
pub(crate) fn is_refused(said: &str, status: u16, code: &str, seen: &str) {
    assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{seen}\n{said}");
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("\r\nconnection: close"), "{seen}\n{said}");
    assert!(head.contains("\r\nx-request-id: "), "{seen}\n{said}");
    assert!(head.contains("\r\ncontent-type: application/json"), "{seen}\n{said}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let error = body["error"].as_object().unwrap();
    assert_eq!(error.len(), 4, "{seen}\n{said}");
    assert_eq!(error["code"], code, "{seen}\n{said}");
}

/// The answers in what was said, by their statuses.
pub(crate) fn statuses(said: &str) -> Vec<&str> {
    said.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect()
}

/// Periods of the tests that wait for the end of one.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

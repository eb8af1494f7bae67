//! What a client sees of the mock, over real sockets on loopback.
//!
//! The client here is a bare TCP stream: a client library would hide the very things that are
//! claimed, such as a missing last chunk or a reset.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Behaviour, Counts, Mock, serve};

mod books;
mod dialects;
mod faults;
mod routes;

/// No test waits longer for anything that has to come.
const PATIENCE: Duration = Duration::from_secs(20);

const CHAT: &str = r#"{"model":"m","messages":[]}"#;
const CHAT_STREAM: &str = r#"{"model":"m","messages":[],"stream":true}"#;

/// How the server let go of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Fin,
    Reset,
}

/// All that came back on one connection.
#[derive(Debug)]
struct Seen {
    text: String,
    ending: Ending,
}

impl Seen {
    fn status(&self) -> u16 {
        self.text.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let head = self.text.split("\r\n\r\n").next().unwrap();
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(line_name, _)| *line_name == name).map(|(_, value)| value)
    }

    fn body(&self) -> &str {
        self.text.split_once("\r\n\r\n").unwrap().1
    }

    fn json(&self) -> Value {
        serde_json::from_str(self.body()).unwrap()
    }

    /// The data of each event, in order.
    fn events(&self) -> Vec<&str> {
        self.body().lines().filter_map(|line| line.strip_prefix("data: ")).collect()
    }

    /// The tokens in the events, one after the other.
    fn content(&self) -> String {
        let events = self.events().into_iter().filter_map(|event| serde_json::from_str(event).ok());
        events
            .filter_map(|event: Value| {
                let choice = &event["choices"][0];
                let text = choice["delta"]["content"].as_str().or(choice["text"].as_str());
                text.map(str::to_owned)
            })
            .collect()
    }

    fn has_last_chunk(&self) -> bool {
        self.text.ends_with("\r\n0\r\n\r\n")
    }
}

async fn start(behaviour: Behaviour) -> (Mock, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mock = Mock::new("north");
    mock.set(behaviour);
    tokio::spawn(serve(listener, mock.clone()));
    (mock, address)
}

fn post(path: &str, body: &str) -> String {
    post_with(path, "connection: close\r\n", body)
}

fn post_with(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: a\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
}

async fn open(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn read_all(mut stream: TcpStream) -> Seen {
    let mut bytes = Vec::new();
    let result = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap();
    let ending = match result {
        Ok(_) => Ending::Fin,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ending::Reset,
        Err(error) => panic!("{error}"),
    };
    Seen { text: String::from_utf8(bytes).unwrap(), ending }
}

/// Reads until the text holds the given part, and leaves the connection open.
async fn read_until(stream: &mut TcpStream, part: &str) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&bytes).contains(part) {
            let read = stream.read_buf(&mut bytes).await.unwrap();
            assert!(read > 0, "the connection ended before {part:?}");
        }
    };
    assert!(timeout(PATIENCE, read).await.is_ok(), "{part:?} did not come");
    String::from_utf8(bytes).unwrap()
}

/// Asserts that nothing comes for a while; the while is short, as nothing can only be waited for.
async fn assert_silent(stream: &mut TcpStream) {
    let mut byte = [0];
    let read = timeout(Duration::from_millis(50), stream.read(&mut byte)).await;
    assert!(read.is_err(), "{read:?}");
}

async fn ask(address: SocketAddr, request: &str) -> Seen {
    read_all(open(address, request).await).await
}

/// Waits until the counts are as claimed.
async fn counted(mock: &Mock, claim: impl Fn(&Counts) -> bool) -> Counts {
    let wait = async {
        while !claim(&mock.counts()) {
            tokio::task::yield_now().await;
        }
    };
    assert!(timeout(PATIENCE, wait).await.is_ok(), "{:?}", mock.counts());
    mock.counts()
}

//! An upstream on raw TCP, for what no HTTP library lets one do.
//!
//! Most faults of real endpoints are no HTTP: half an answer, a reset, two answers for one request, a
//! stream torn at any byte. Each request is answered by a script that the test writes, and what came
//! and who left is on record, with the moment.
//!
//! Invariants: a request is read whole before its script begins; a connection is a task of the test's
//! runtime and ends with it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// One step of a script. A script that ends leaves the connection to the next request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Writes these bytes.
    Say(Vec<u8>),
    /// Waits for [`Raw::go`].
    Wait,
    /// Rests for this long.
    Rest(Duration),
    /// Says nothing more, and keeps the connection until the other side lets it go.
    Hang,
    /// Ends the connection by FIN.
    Close,
    /// Ends the connection by RST.
    Reset,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The head with its line ends, names in lower case as hyper writes them.
    pub(crate) head: String,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Seen {
    /// A header's value; `None` if the header is not there.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

type Script = Arc<dyn Fn(usize, &Seen) -> Vec<Act> + Send + Sync>;

/// A running upstream.
#[derive(Clone)]
pub(crate) struct Raw {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    books: Arc<Books>,
}

struct Books {
    seen: Mutex<Vec<Seen>>,
    left: Mutex<Vec<Instant>>,
    connections: AtomicUsize,
    said: AtomicUsize,
    steps: Semaphore,
}

impl Raw {
    /// Starts an upstream; `script` answers the request of that number, counted from 0.
    pub(crate) async fn start(
        script: impl Fn(usize, &Seen) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let books = Arc::new(Books {
            seen: Mutex::default(),
            left: Mutex::default(),
            connections: AtomicUsize::new(0),
            said: AtomicUsize::new(0),
            steps: Semaphore::new(0),
        });
        let script: Script = Arc::new(script);
        let raw = Self { address, books: Arc::clone(&books) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                books.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(converse(stream, Arc::clone(&books), Arc::clone(&script)));
            }
        });
        raw
    }

    /// Starts an upstream that answers every request by the same script.
    pub(crate) async fn always(script: Vec<Act>) -> Self {
        Self::start(move |_, _| script.clone()).await
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.books.seen.lock().unwrap().clone()
    }

    /// How many requests came.
    pub(crate) fn count(&self) -> usize {
        self.books.seen.lock().unwrap().len()
    }

    /// How many connections came.
    pub(crate) fn connections(&self) -> usize {
        self.books.connections.load(Ordering::SeqCst)
    }

    /// How many [`Act::Say`] were performed to their end.
    pub(crate) fn said(&self) -> usize {
        self.books.said.load(Ordering::SeqCst)
    }

    /// When other sides let go of connections in the middle of a script.
    pub(crate) fn left(&self) -> Vec<Instant> {
        self.books.left.lock().unwrap().clone()
    }

    /// Lets one [`Act::Wait`] pass.
    pub(crate) fn go(&self) {
        self.books.steps.add_permits(1);
    }
}

async fn converse(mut stream: TcpStream, books: Arc<Books>, script: Script) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = Vec::new();
    while let Some(seen) = request(&mut stream, &mut buffer).await {
        let number = {
            let mut all = books.seen.lock().unwrap();
            all.push(seen.clone());
            all.len() - 1
        };
        for act in script(number, &seen) {
            let goes_on = perform(&mut stream, &books, act).await;
            if !goes_on {
                return;
            }
        }
    }
}

/// Performs one act. Returns whether the connection goes on.
async fn perform(stream: &mut TcpStream, books: &Books, act: Act) -> bool {
    match act {
        Act::Say(bytes) => {
            let is_written = stream.write_all(&bytes).await.is_ok();
            books.said.fetch_add(usize::from(is_written), Ordering::SeqCst);
            if !is_written {
                books.left.lock().unwrap().push(Instant::now());
            }
            is_written
        }
        Act::Wait => {
            books.steps.acquire().await.unwrap().forget();
            true
        }
        Act::Rest(period) => {
            tokio::time::sleep(period).await;
            true
        }
        Act::Hang => {
            let mut rest = [0; 64];
            while !matches!(stream.read(&mut rest).await, Ok(0) | Err(_)) {}
            books.left.lock().unwrap().push(Instant::now());
            false
        }
        Act::Close => false,
        Act::Reset => {
            stream.set_zero_linger().unwrap();
            false
        }
    }
}

/// Reads one request; `None` when the other side has no more.
async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        read_more(stream, buffer).await?;
    };
    let head: Vec<u8> = buffer.drain(..head_end).collect();
    let mut seen = Seen { head: String::from_utf8(head).unwrap(), body: Vec::new() };
    let length = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
    while buffer.len() < length {
        read_more(stream, buffer).await?;
    }
    seen.body = buffer.drain(..length).collect();
    Some(seen)
}

async fn read_more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut piece = vec![0; 64 * 1024];
    let length = stream.read(&mut piece).await.ok().filter(|length| *length > 0)?;
    buffer.extend(piece.iter().take(length));
    Some(())
}

/// A whole answer: a status with further head lines (each with its line end) and a body.
pub(crate) fn answer(status: u16, lines: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\n{lines}content-length: {length}\r\n\r\n{body}").into_bytes()
}

/// A whole JSON answer.
pub(crate) fn json(status: u16, body: &str) -> Vec<u8> {
    answer(status, "content-type: application/json\r\n", body)
}

/// A good plain answer to a chat request, with `text` in it.
pub(crate) fn good(text: &str) -> Vec<u8> {
    json(200, &format!(r#"{{"choices":[{{"message":{{"content":"{text}"}}}}]}}"#))
}

/// An error object with this status.
pub(crate) fn failed(status: u16) -> Vec<u8> {
    json(status, r#"{"error":{"message":"no","type":"x","param":null,"code":null}}"#)
}

/// The head of a stream of events, in chunks.
pub(crate) fn stream_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        .to_vec()
}

/// One chunk; an empty one is the last.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// An event that says `text`.
pub(crate) fn event(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

/// The event that only names the speaker.
pub(crate) const ROLE: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n";
/// The event with the finish reason.
pub(crate) const FINISH: &str =
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
/// The end of a stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// A stream's head and these parts, each a chunk and a write of its own, and then no end.
pub(crate) fn open_stream<P: AsRef<[u8]>>(parts: &[P]) -> Vec<Act> {
    let chunks = parts.iter().map(|part| Act::Say(chunk(part.as_ref())));
    std::iter::once(Act::Say(stream_head())).chain(chunks).collect()
}

/// A stream of these parts that ends in good order.
pub(crate) fn whole_stream<P: AsRef<[u8]>>(parts: &[P]) -> Vec<Act> {
    let mut acts = open_stream(parts);
    acts.push(Act::Say(chunk(b"")));
    acts
}

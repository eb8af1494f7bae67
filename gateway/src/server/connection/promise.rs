//! What is promised of any bytes that a client sends: what goes on to an endpoint is one request for one
//! of the client's, for whoever reads it.
//!
//! The bytes go through everything that is ours: the connection of HTTP/1, the proxy, the pool and its
//! connection to an endpoint, which keeps what it gets. The client's end is a pipe, the endpoint's a socket
//! of this machine, all in one thread, on virtual time: whoever waits for the client waits no time at all.

#![expect(clippy::unwrap_used, reason = "a promise that is broken stops loudly")]

use std::sync::Mutex;

use tokio::io::{AsyncWriteExt, duplex};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::*;
use crate::promises::http1::{self, Read};
use crate::proxy::Gate;
use crate::server::guard::Guard;
use crate::server::guard::promise::passes;
use crate::upstream::{Roads, Upstream};

/// What an endpoint answers, whatever it is asked.
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 16\r\n\r\n\
    {\"choices\":[{}]}";
/// The fields that may go along, in any request.
const GO_ALONG: [&str; 9] = [
    "host",
    "content-type",
    "content-length",
    "accept",
    "user-agent",
    "traceparent",
    "tracestate",
    "openai-beta",
    "x-request-id",
];
/// Pieces beyond this many come as one, so that a run stays short.
const PIECES_MAX: usize = 64;

/// A gateway with one endpoint, in one thread.
struct Stage {
    runtime: Runtime,
    gate: Arc<Gate>,
    roads: Arc<Roads>,
    entry: Entry,
    /// What the endpoint has got, by connection. A plain mutex: it is one thread.
    got: Arc<Mutex<Vec<Vec<u8>>>>,
}

thread_local! {
    /// Made once: a gateway costs more than what is asked of it here.
    static STAGE: Stage = Stage::new();
}

/// The first byte says in how long pieces the others come.
pub(crate) fn keep(bytes: &[u8]) {
    let Some((size, said)) = bytes.split_first() else { return };
    if said.starts_with(PREFACE) || said.first() == Some(&HANDSHAKE_BYTE) {
        return;
    }
    let size = usize::from(*size).max(said.len() / PIECES_MAX).max(1);
    let got = STAGE.with(|stage| stage.say(said, size));
    let (_, passed) = passes(said);
    let (asked, _) = http1::strict(passed).unwrap();
    let mut asked = asked.iter().filter(|one| one.body.is_some());
    for connection in got {
        for request in read(&connection) {
            let is_it = |one: &&Read| one.body == request.body && path(one) == path(&request);
            assert!(asked.any(|one| is_it(&one)), "nobody has asked for this: {request:?}");
        }
    }
}

/// A request's path, without host and query.
fn path(request: &Read) -> Vec<u8> {
    let target = String::from_utf8_lossy(&request.target);
    let behind = target.find("://").map_or(0, |at| {
        let authority = target.get(at + 3..).unwrap_or_default();
        at + 3 + authority.find('/').unwrap_or(authority.len())
    });
    let path = target.get(behind..).unwrap_or_default().split('?').next().unwrap_or_default();
    path.as_bytes().to_vec()
}

/// What a connection to an endpoint carried, which three readers take for the same requests.
fn read(connection: &[u8]) -> Vec<Read> {
    let (requests, left) = http1::strict(connection).unwrap();
    assert_eq!(http1::generous(connection), Some((requests.clone(), left)), "two readers differ");
    let mut guard = Guard::new();
    let look = guard.look(connection);
    assert_eq!((look.passed, guard.heads()), (connection.len(), requests.len() as u64));
    assert_eq!(left, 0, "there is more than requests");
    let mut rest = connection;
    for request in &requests {
        assert!(request.body.is_some() && request.method == b"POST", "{request:?}");
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Request::new(&mut fields);
        assert!(head.parse(rest).unwrap().is_complete());
        for field in head.headers.iter() {
            let name = field.name.to_ascii_lowercase();
            assert!(GO_ALONG.contains(&name.as_str()), "{name} goes along");
        }
        rest = rest.get(request.head + request.framed..).unwrap();
    }
    requests
}

/// Connections to the endpoint at once.
const SOCKETS_MAX: usize = 64;

impl Stage {
    fn new() -> Self {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let text = format!(
            "circuit_breaker: {{ mode: off }}\nretry: {{ max_attempts: 1 }}\n\
             models: [ {{ name: m, endpoints: [ {{ name: a, address: \"http://{address}\" }} ] }} ]"
        );
        let config = config::parse(&text, "promise.yaml", &|_| None).unwrap();
        let meters = Arc::new(Meters::new());
        let gate = crate::app::gate_of(&config, &meters);
        let entry = Entry::new(Patiences::of(&config.server), None, &meters);
        let got = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        runtime.spawn(serve(listener, Arc::clone(&got)));
        Self { runtime, gate, roads: Roads::new(&config.pools, SOCKETS_MAX).unwrap(), entry, got }
    }

    /// Says `said` in pieces of this size, waits until the gateway has closed the connection, and returns
    /// what the endpoint has got meanwhile.
    fn say(&self, said: &[u8], size: usize) -> Vec<Vec<u8>> {
        self.got.lock().unwrap().clear();
        self.runtime.block_on(async {
            let (near, far) = duplex(64 * 1024);
            let (mut reads, mut writes) = tokio::io::split(far);
            let says = async {
                for piece in said.chunks(size) {
                    if writes.write_all(piece).await.is_err() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            };
            let hears = async {
                let mut heard = Vec::new();
                let _ = reads.read_to_end(&mut heard).await;
            };
            tokio::join!(self.serve(near), says, hears);
        });
        std::mem::take(&mut *self.got.lock().unwrap())
    }

    async fn serve(&self, near: tokio::io::DuplexStream) {
        let (gate, upstream) = (Arc::clone(&self.gate), Upstream::new(&self.roads));
        let answer = move |asked: Asked| {
            let (gate, upstream) = (Arc::clone(&gate), upstream.clone());
            Box::pin(async move {
                match asked {
                    Ok(request) => gate.receive(&upstream, request).await,
                    Err(error) => Ok(gate.turn_away(&error)),
                }
            })
        };
        let (entry, (_stop, told)) = (&self.entry, watch::channel(Stop::Serving));
        let stream = Patient::new(near, entry.patiences.write, entry.cuts.write.clone());
        let outlet = stream.outlet();
        let Some((version, stream)) = entry.begins(stream).await else { return };
        let since = stream.since;
        let _ = entry.speak(version, (stream, outlet), since, answer, told).await;
    }
}

/// The endpoint: answers whatever is whole and keeps all that it gets.
async fn serve(listener: TcpListener, got: Arc<Mutex<Vec<Vec<u8>>>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let got = Arc::clone(&got);
        let place = {
            let mut got = got.lock().unwrap();
            got.push(Vec::new());
            got.len() - 1
        };
        tokio::spawn(async move {
            let (mut bytes, mut answered) = (vec![0; 16 * 1024], 0);
            while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                let requests = {
                    let mut got = got.lock().unwrap();
                    let Some(all) = got.get_mut(place) else { return };
                    all.extend_from_slice(bytes.get(..length).unwrap_or_default());
                    let Some((requests, _)) = http1::strict(all) else { return };
                    requests.iter().filter(|one| one.body.is_some()).count()
                };
                while answered < requests {
                    answered += 1;
                    let _ = stream.write_all(ANSWER).await;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_goes_on_once_and_whole_whatever_stands_around_it() {
        let body = r#"{"model":"m","messages":[]}"#;
        let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nCookie: b=c\r\n";
        let whole = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        let chunks = format!("{head}Transfer-Encoding: chunked\r\n\r\n1b\r\n{body}\r\n0\r\n\r\n");
        let refused = format!("{head}Content-Length: 1, 1\r\n\r\n{body}");
        let said = [whole, chunks, refused].concat();
        for size in [1, 7, said.len()] {
            let got = STAGE.with(|stage| stage.say(said.as_bytes(), size));
            let bodies: Vec<_> = got.iter().flat_map(|one| read(one)).map(|one| one.body).collect();
            let expected = Some(body.as_bytes().to_vec());
            assert_eq!(bodies, [expected.clone(), expected], "in pieces of {size}");
        }
    }
}

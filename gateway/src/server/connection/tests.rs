//! What becomes of clients that leave undone what a connection needs, in virtual time.

use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpListener;

use super::http2::PING_AFTER;
use super::*;
use crate::config::ServerTls;

const FIRST_BYTE: Duration = Duration::from_secs(5);
const HEAD: Duration = Duration::from_secs(7);
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const WRITE: Duration = Duration::from_secs(30);
/// Timers fire a little late.
const SLACK: Duration = Duration::from_millis(50);

fn entry(identity: Option<Arc<Identity>>) -> Entry {
    let (first_byte, head) = (FIRST_BYTE, HEAD);
    let patiences = Patiences { first_byte, head, keep_alive: KEEP_ALIVE, write: WRITE };
    Entry::new(patiences, identity, &Meters::new())
}

impl Cut for Full<Bytes> {
    fn cut(&mut self) {}
}

async fn pong(asked: Asked) -> Result<Response<Full<Bytes>>, Infallible> {
    let status = asked.as_ref().err().map_or(StatusCode::OK, |error| error.status);
    let is_long = asked.is_ok_and(|request| request.uri().path() == "/long");
    let length = if is_long { 1024 * 1024 } else { 4 };
    let mut answer = Response::new(Full::new(Bytes::from(vec![b'y'; length])));
    *answer.status_mut() = status;
    Ok(answer)
}

fn told() -> (watch::Sender<Stop>, watch::Receiver<Stop>) {
    watch::channel(Stop::Serving)
}

/// A drain that has begun; `is_old_news`: whoever listens was told of it before.
fn draining(is_old_news: bool) -> (watch::Sender<Stop>, watch::Receiver<Stop>) {
    let (sender, mut receiver) = told();
    sender.send(Stop::Draining).unwrap();
    if is_old_news {
        receiver.mark_unchanged();
    }
    (sender, receiver)
}

fn is_about(took: Duration, expected: Duration) {
    assert!(took >= expected && took <= expected + SLACK, "{took:?} is not {expected:?}");
}

/// Serves HTTP/2 over a pipe, with a client at its other end.
async fn talk(
    entry: &Arc<Entry>,
) -> (SendRequest<Full<Bytes>>, tokio::task::JoinHandle<hyper::Result<()>>, watch::Sender<Stop>) {
    let (near, far) = duplex(64 * 1024);
    let (sender, receiver) = told();
    let entry = Arc::clone(entry);
    let served =
        tokio::spawn(
            async move { entry.speak_http2((near, Arc::default()), pong, receiver).await },
        );
    let (client, connection) = handshake(TokioExecutor::new(), TokioIo::new(far)).await.unwrap();
    tokio::spawn(connection);
    (client, served, sender)
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://x{path}")).body(Full::default()).unwrap()
}

async fn begin(entry: &Entry, said: &[u8]) -> (Option<Version>, Vec<u8>, DuplexStream) {
    let (near, mut far) = duplex(64);
    far.write_all(said).await.unwrap();
    let Some((version, begun)) = entry.begins(near).await else { return (None, Vec::new(), far) };
    let mut unread = vec![0; said.len()];
    let mut begun = begun;
    begun.read_exact(&mut unread).await.unwrap();
    (Some(version), unread, far)
}

#[tokio::test(start_paused = true)]
async fn the_first_bytes_tell_what_is_spoken_and_are_read_all_the_same() {
    let entry = entry(None);
    for (said, version) in [
        (&b"GET / HTTP/1.1\r\nhost: x\r\nx-long: 1\r\n\r\n"[..], Some(Version::Http1)),
        (b"POST /v1", Some(Version::Http1)),
        (b"PRI * HTTP/1.1\r\n", Some(Version::Http1)),
        (b"\r\n", Some(Version::Http1)),
        (PREFACE, Some(Version::Http2)),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04", Some(Version::Http2)),
        (b"\x16\x03\x01\x02\0", None),
    ] {
        let (found, unread, _far) = begin(&entry, said).await;
        assert_eq!(found, version, "{said:?}");
        assert!(version.is_none() || unread == said);
    }
}

#[tokio::test(start_paused = true)]
async fn h47_who_says_nothing_is_waited_for_no_longer_than_a_first_byte_may_take() {
    let (entry, began) = (entry(None), clock::instant());
    let (found, _, _far) = begin(&entry, b"").await;
    assert_eq!(found, None);
    is_about(began.elapsed(), FIRST_BYTE);
}

#[tokio::test(start_paused = true)]
async fn h49_what_may_become_a_preface_has_the_time_of_a_head_from_its_first_byte() {
    let entry = entry(None);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (first, then) in [("P", ""), ("P", "OST"), ("PRI * HTTP", ""), ("PRI", " * HTTP/2.0")] {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let says = async {
            tokio::time::sleep(FIRST_BYTE / 2).await;
            client.write_all(first.as_bytes()).await.unwrap();
            let began = clock::instant();
            tokio::time::sleep(HEAD - SLACK).await;
            client.write_all(then.as_bytes()).await.unwrap();
            let mut said = String::new();
            client.read_to_string(&mut said).await.unwrap();
            is_about(began.elapsed(), HEAD);
            said
        };
        let (_sender, told) = told();
        let ((), said) = tokio::join!(entry.receive(stream, pong, told), says);
        assert!(said.starts_with("HTTP/1.1 408 "), "{first}{then}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn t10_a_preface_and_then_silence_is_closed_within_forty_seconds() {
    let (entry, (near, mut far)) = (entry(None), duplex(64 * 1024));
    let (_sender, receiver) = told();
    far.write_all(PREFACE).await.unwrap();
    far.write_all(b"\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let began = clock::instant();
    let reads = tokio::spawn(async move {
        let mut said = Vec::new();
        let _ = far.read_to_end(&mut said).await;
    });
    entry.speak_http2((near, Arc::default()), pong, receiver).await.unwrap_err();
    reads.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    assert!(began.elapsed() >= PING_AFTER, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_of_http2_is_closed_though_it_answers_every_ping() {
    let entry = Arc::new(entry(None));
    let (mut client, served, _sender) = talk(&entry).await;
    tokio::time::sleep(KEEP_ALIVE / 2).await;
    let answer = client.send_request(get("/")).await.unwrap();
    answer.into_body().collect().await.unwrap();
    let began = clock::instant();
    // Whose half ends first is no matter.
    let _ = served.await.unwrap();
    is_about(began.elapsed(), KEEP_ALIVE);
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_answer_nobody_takes_is_not_idle_and_its_stream_is_reset() {
    let entry = Arc::new(entry(None));
    let (near, far) = duplex(64 * 1024);
    let (_sender, receiver) = told();
    let served = tokio::spawn({
        let entry = Arc::clone(&entry);
        async move { entry.speak_http2((near, Arc::default()), pong, receiver).await }
    });
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(20_000);
    let (mut client, connection) = builder.handshake(TokioIo::new(far)).await.unwrap();
    tokio::spawn(connection);
    let began = clock::instant();
    let answer = client.send_request(get("/long")).await.unwrap();
    let mut other = client.clone();
    tokio::time::sleep(WRITE / 2).await;
    assert_eq!(other.send_request(get("/")).await.unwrap().status(), 200);
    tokio::time::sleep(WRITE).await;
    let mut body = answer.into_body();
    let mut read = 0;
    let end = loop {
        match body.frame().await {
            Some(Ok(frame)) => read += frame.into_data().unwrap().len(),
            end => break end,
        }
    };
    assert!(end.unwrap().is_err(), "it was reset");
    assert!(read < 64 * 1024, "{read}");
    assert!(began.elapsed() < WRITE * 2, "{:?}", began.elapsed());
    assert_eq!(other.send_request(get("/")).await.unwrap().status(), 200);
    served.abort();
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_before_a_drain_is_served_before_the_connection_ends() {
    let (entry, (near, far)) = (entry(None), duplex(64 * 1024));
    let (sender, receiver) = told();
    let (mut client, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(far)).await.unwrap();
    tokio::spawn(connection);
    let asked = tokio::spawn(client.send_request(get("/")));
    // Everything that can be sent is on its way when the time moves on.
    tokio::time::sleep(SLACK).await;
    sender.send(Stop::Draining).unwrap();
    let _ = entry.speak_http2((near, Arc::default()), pong, receiver).await;
    assert_eq!(asked.await.unwrap().unwrap().status(), 200);
}

const ASKED: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

/// Serves HTTP/1 over a pipe; the other end, and what becomes of it.
fn say(
    entry: &Arc<Entry>,
    told: watch::Receiver<Stop>,
) -> (DuplexStream, tokio::task::JoinHandle<hyper::Result<()>>) {
    let (near, far) = duplex(64 * 1024);
    let entry = Arc::clone(entry);
    let served = async move { entry.speak_http1((near, Arc::default()), None, pong, told).await };
    (far, tokio::spawn(served))
}

async fn all_of(mut far: DuplexStream) -> String {
    let mut said = Vec::new();
    let _ = far.read_to_end(&mut said).await;
    String::from_utf8(said).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_first_request_that_lies_ready_when_a_drain_is_heard_of_is_served() {
    let entry = Arc::new(entry(None));
    // Chance must not decide it.
    for _ in 0..16 {
        let (_sender, receiver) = draining(false);
        let (mut far, served) = say(&entry, receiver);
        far.write_all(ASKED).await.unwrap();
        let said = all_of(far).await;
        assert!(said.starts_with("HTTP/1.1 200"), "{said:?}");
        assert!(said.contains("connection: close"), "{said:?}");
        served.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_request_that_comes_after_a_drain_began_is_served_and_is_the_last() {
    let entry = Arc::new(entry(None));
    for is_old_news in [false, true] {
        let (_sender, receiver) = draining(is_old_news);
        let (mut far, _served) = say(&entry, receiver);
        tokio::time::sleep(HEAD / 2).await;
        far.write_all(ASKED).await.unwrap();
        let said = all_of(far).await;
        assert!(said.starts_with("HTTP/1.1 200") && said.contains("connection: close"), "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_holds_a_drain_no_longer_than_a_first_byte_may_take() {
    let entry = Arc::new(entry(None));
    for is_old_news in [false, true] {
        let (_sender, receiver) = draining(is_old_news);
        let began = clock::instant();
        let (far, _served) = say(&entry, receiver);
        assert_eq!(all_of(far).await, "");
        is_about(began.elapsed(), FIRST_BYTE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_between_two_requests_ends_with_the_drain() {
    let entry = Arc::new(entry(None));
    let (sender, receiver) = told();
    let (mut far, _served) = say(&entry, receiver);
    far.write_all(ASKED).await.unwrap();
    tokio::time::sleep(SLACK).await;
    let began = clock::instant();
    sender.send(Stop::Draining).unwrap();
    assert!(all_of(far).await.ends_with("yyyy"));
    assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn h49_a_head_that_lies_behind_an_answer_has_its_time_once_that_is_out() {
    let entry = entry(None);
    for (rest, last) in [(&ASKED[3..], "HTTP/1.1 200"), (b"", "HTTP/1.1 408")] {
        let (near, mut far) = duplex(64 * 1024);
        let slow = |asked: Asked| async {
            if asked.is_ok() {
                tokio::time::sleep(HEAD * 2).await;
            }
            pong(asked).await
        };
        far.write_all(&[ASKED, &ASKED[..3]].concat()).await.unwrap();
        let began = clock::instant();
        let client = async {
            tokio::time::sleep(HEAD * 2 - SLACK).await;
            far.write_all(rest).await.unwrap();
            all_of(far).await
        };
        let (_sender, told) = told();
        let (served, said) =
            tokio::join!(entry.speak_http1((near, Arc::default()), None, slow, told), client);
        served.unwrap();
        let said: Vec<_> = said.split("yyyy").collect();
        assert!(said[0].starts_with("HTTP/1.1 200") && said[1].starts_with(last), "{said:?}");
        let waited = if rest.is_empty() { HEAD } else { HEAD * 2 + KEEP_ALIVE };
        is_about(began.elapsed(), HEAD * 2 + waited);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_http2_that_comes_with_a_drain_hears_of_it() {
    let (entry, (near, far)) = (entry(None), duplex(64 * 1024));
    let (sender, mut receiver) = told();
    sender.send(Stop::Draining).unwrap();
    receiver.mark_unchanged();
    tokio::spawn(async move { entry.speak_http2((near, Arc::default()), pong, receiver).await });
    let (_client, connection) =
        handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(far)).await.unwrap();
    let began = clock::instant();
    let _ = connection.await;
    assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn t14_a_handshake_that_never_comes_or_never_ends_is_given_up_at_its_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap();
    let (cert, key) = (directory.path().join("cert"), directory.path().join("key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let entry = entry(Some(Identity::load(&ServerTls { cert, key }).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for said in [&b""[..], &[22, 3, 1, 1, 0, 1]] {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(said).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let began = clock::instant();
        entry.receive(stream, pong, told().1).await;
        is_about(began.elapsed(), HANDSHAKE_MAX);
    }
}

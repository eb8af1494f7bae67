//! The same bytes, however they come: behind a good request, after a good answer, byte by byte, and
//! over TLS. The verdict is always the same.

use std::net::SocketAddr;
use std::sync::Arc;

use gateway::config::ServerTls;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::kit::{CHAT, SMUGGLED, Ward, chat, question, statuses};
use crate::local::{QUESTION, soon};

/// A case is written in at most so many pieces, and in single bytes if it is no longer.
const PIECES_MAX: usize = 400;

/// How a case comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By itself.
    Alone,
    /// Together with a good request before it.
    Pipelined,
    /// After the answer to one.
    Kept,
    /// Byte by byte.
    Split,
    /// In two pieces, cut here.
    Cut(usize),
}

/// A head of a question with these lines before its length, and what must not be answered behind it.
fn with(lines: &str) -> Vec<u8> {
    (question(lines) + SMUGGLED).into_bytes()
}

/// A question whose framing is this, with a body that could be read as chunks or as a length.
fn framed(lines: &str) -> Vec<u8> {
    chat(lines, &format!("0\r\n\r\n{SMUGGLED}")).into_bytes()
}

fn line(request: &str) -> Vec<u8> {
    format!("{request}\r\nHost: a\r\n\r\n{SMUGGLED}").into_bytes()
}

/// The cases of the catalogue whose verdict is in their bytes, with their status.
fn cases() -> Vec<(&'static str, Vec<u8>, u16)> {
    let no_host = format!("GET /v1/models HTTP/1.1\r\n\r\n{SMUGGLED}").into_bytes();
    let old = chat("Transfer-Encoding: chunked\r\n", "0\r\n\r\n").replacen("1.1", "1.0", 1);
    let bare = question("").replace("\r\n", "\n") + SMUGGLED;
    let many = "X: y\r\n".repeat(101);
    let extension = format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(20 * 1024));
    vec![
        ("h01", framed("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"), 400),
        ("h02", framed("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"), 400),
        ("h04", framed("Content-Length: 4\r\nContent-Length: 4\r\n"), 400),
        ("h05", framed("Content-Length: 4, 4\r\n"), 400),
        ("h07", framed("Content-Length: 18446744073709551616\r\n"), 400),
        ("h07", framed("Content-Length: 18446744073709551615\r\n"), 413),
        ("h08", framed("Transfer-Encoding: chunked, chunked\r\n"), 400),
        ("h10", framed("Transfer-Encoding: gzip, chunked\r\n"), 400),
        ("h11", framed("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400),
        ("h13", (old + SMUGGLED).into_bytes(), 400),
        ("h14", framed("Content-Length : 4\r\n"), 400),
        ("h16", bare.into_bytes(), 400),
        ("h17", with("X: a\rb\r\n"), 400),
        ("h17", with("X: a\0b\r\n"), 400),
        ("h19", with("X\u{ff}: b\r\n"), 400),
        ("h19", with("NoColon\r\n"), 400),
        ("h19", with(": v\r\n"), 400),
        ("h20", no_host, 400),
        ("h22", format!("GET /v1/models HTTP/1.1\r\nHost: a b/c@d\r\n\r\n{SMUGGLED}").into(), 400),
        ("h25", line("TRACE / HTTP/1.1"), 405),
        ("h26", line("OPTIONS * HTTP/1.1"), 405),
        ("h28", line("GET /v1/models#frag HTTP/1.1"), 400),
        ("h28", line("GET /v1/\u{4f60} HTTP/1.1"), 400),
        ("h31", with(&format!("X: {}\r\n", "y".repeat(33 * 1024))), 431),
        ("h31", with(&many), 431),
        ("h37", chat("Transfer-Encoding: chunked\r\n", &extension).into(), 400),
        ("h40", with("Expect: 200-ok\r\n"), 417),
        ("h43", line("GET /v1/models HTTP/2.0"), 400),
        ("h43", format!("GET /v1/models\r\n\r\n{SMUGGLED}").into(), 400),
        ("h46", vec![0; 64], 400),
    ]
}

/// What is answered to this on `io`, which is written to until nothing more is taken.
async fn answers<T: AsyncRead + AsyncWrite>(io: T, bytes: &[u8], way: Way) -> String {
    let (mut reads, mut writes) = tokio::io::split(io);
    let mut said = Vec::new();
    let first = question("");
    if way == Way::Kept {
        writes.write_all(first.as_bytes()).await.unwrap();
        let mut piece = [0; 4096];
        while !String::from_utf8_lossy(&said).contains("yes\"}}]}") {
            let length = soon("the first answer", reads.read(&mut piece)).await.unwrap();
            assert!(length > 0, "{said:?}");
            said.extend_from_slice(&piece[..length]);
        }
    }
    let bytes =
        if way == Way::Pipelined { [first.as_bytes(), bytes].concat() } else { bytes.into() };
    let piece = match way {
        Way::Alone | Way::Pipelined | Way::Kept => bytes.len(),
        Way::Split => bytes.len().div_ceil(PIECES_MAX),
        Way::Cut(at) => at.clamp(1, bytes.len()),
    };
    let writing = async {
        for piece in bytes.chunks(piece) {
            // A refusal may come before all of it is said.
            if writes.write_all(piece).await.is_err() || writes.flush().await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let reading = async { drop(reads.read_to_end(&mut said).await) };
    soon("the end", async { tokio::join!(writing, reading) }).await;
    String::from_utf8(said).unwrap()
}

fn judge(id: &str, way: Way, said: &str, status: u16, bytes: &[u8]) {
    let seen = bytes[..bytes.len().min(120)].escape_ascii();
    let mut expected = vec![status.to_string()];
    if matches!(way, Way::Pipelined | Way::Kept) {
        expected.insert(0, "200".to_owned());
    }
    assert_eq!(statuses(said), expected, "{id} {way:?}: {seen}\n{said}");
    assert!(!said.contains("smuggled"), "{id} {way:?}: {seen}\n{said}");
    let last = &said[said.rfind("HTTP/1.1 ").unwrap()..];
    assert!(last.contains("\r\nconnection: close\r\n"), "{id} {way:?}: {seen}\n{said}");
}

/// Nothing but good questions has reached the upstream, and so many of them.
fn is_clean(ward: &Ward, asked: usize) {
    let seen = ward.raw.seen();
    assert_eq!(seen.len(), asked);
    for seen in seen {
        assert!(seen.head.starts_with(&format!("POST {CHAT} HTTP/1.1\r\n")), "{}", seen.head);
        assert_eq!(seen.text(), QUESTION);
    }
}

async fn wire(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

#[tokio::test]
async fn a_verdict_does_not_depend_on_what_came_before_or_on_how_bytes_are_cut() {
    let ward = Ward::new().await;
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut asked = 0;
    for (id, bytes, status) in cases() {
        let head = bytes.len().min(300);
        let cuts = [random.usize(1..head), random.usize(1..head)].map(Way::Cut);
        for way in [Way::Alone, Way::Pipelined, Way::Kept, Way::Split].into_iter().chain(cuts) {
            let said = answers(wire(ward.house.address()).await, &bytes, way).await;
            judge(id, way, &said, status, &bytes);
            asked += usize::from(matches!(way, Way::Pipelined | Way::Kept));
        }
    }
    is_clean(&ward, asked);
    ward.is_unharmed(asked).await;
}

#[tokio::test]
async fn a_verdict_is_the_same_over_tls() {
    let made = rcgen::generate_simple_self_signed(vec!["gateway.test".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = ["cert", "key"].map(|name| directory.path().join(name));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let ward = Ward::with("", |config| config.server.tls = Some(ServerTls { cert, key })).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let client = builder.with_root_certificates(roots).with_no_client_auth();
    let client = TlsConnector::from(Arc::new(client));
    let mut asked = 0;
    for (id, bytes, status) in cases() {
        for way in [Way::Alone, Way::Kept] {
            let name = ServerName::try_from("gateway.test").unwrap();
            let stream = wire(ward.house.address()).await;
            let stream = soon("a handshake", client.connect(name, stream)).await.unwrap();
            let said = answers(stream, &bytes, way).await;
            judge(id, way, &said, status, &bytes);
            asked += usize::from(way == Way::Kept);
        }
    }
    is_clean(&ward, asked);
    ward.house.is_untouched("a").await;
}

//! The gateway as a process, an upstream in the test, and what the one costs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::frames::{END_HEADERS, HEADERS, fields, frame};
use crate::local::{Ask, PATIENCE, soon};
use crate::process::{Gateway, endpoint_rows};
use crate::raw::Raw;

/// What a hostile connection may cost, in KiB of resident memory.
pub(crate) const CONNECTION_KIB_MAX: u64 = 4 * 1024;
/// The allocator takes memory from the system in pieces, whoever asks for it first.
const GRAIN_KIB: u64 = 4 * 1024;
/// Whoever measures has the machine to itself.
pub(crate) static MACHINE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Whether the full figures are asked for.
pub(crate) fn is_full() -> bool {
    std::env::var("FLOODS").is_ok_and(|how| how == "full")
}

/// One number by default, another when the full figures are asked for.
pub(crate) fn sized(usual: usize, full: usize) -> usize {
    if is_full() { full } else { usual }
}

/// A gateway before one upstream.
pub(crate) struct Stand {
    pub(crate) gateway: Gateway,
    pub(crate) raw: Raw,
    certificate: Option<CertificateDer<'static>>,
    _directory: TempDir,
}

impl Stand {
    /// In the clear, with these further keys of the server (each with a comma before it).
    pub(crate) async fn new(raw: Raw, server: &str) -> Self {
        Self::start(raw, server, None).await
    }

    /// Behind TLS.
    pub(crate) async fn secured(raw: Raw) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["gateway.test".to_owned()]).unwrap();
        Self::start(raw, "", Some(made)).await
    }

    async fn start(
        raw: Raw,
        server: &str,
        made: Option<rcgen::CertifiedKey<rcgen::KeyPair>>,
    ) -> Self {
        let found = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: found.maximum, ..found }).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let tls = made.as_ref().map(|made| papers(directory.path(), made)).unwrap_or_default();
        let yaml = format!(
            "server: {{ listen: 127.0.0.1:0, workers: 1, drain_delay: 0s{tls}{server} }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: \"info,access=off\" }}
models:
  - name: demo
    endpoints:
{}",
            endpoint_rows(&[("a", raw.address)])
        );
        let gateway = Gateway::serve(directory.path(), "gateway", &yaml);
        let certificate = made.map(|made| made.cert.der().clone());
        let stand = Self { gateway, raw, certificate, _directory: directory };
        // A few requests put every page of its code in place.
        for _ in 0..20 {
            stand.serves_others().await;
        }
        stand
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.clients
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// What a client says that trusts the gateway's certificate.
    pub(crate) fn client(&self, alpn: &[&str]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone().unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }

    /// A connection by TLS.
    pub(crate) async fn shake(&self, alpn: &[&str]) -> TlsStream<TcpStream> {
        let name = ServerName::try_from("gateway.test").unwrap();
        let client = TlsConnector::from(Arc::new(self.client(alpn)));
        soon("a handshake", client.connect(name, self.connect().await)).await.unwrap()
    }

    /// Asserts that another client is answered.
    pub(crate) async fn serves_others(&self) {
        if self.certificate.is_some() {
            let mut stream = self.shake(&[]).await;
            soon("an answer", crate::shakes::asks(&mut stream)).await;
            return;
        }
        let reply = soon("an answer", Ask::chat().send(self.address())).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// Resident memory, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.gateway.id()));
        let status = status.unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// The processor's time it has used, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.gateway.id())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    }

    async fn in_flight(&self) -> u64 {
        self.gateway.look("/admin/v1/endpoints/demo/a").await["in_flight"].as_u64().unwrap()
    }

    /// What is counted under this name and these labels.
    pub(crate) async fn counted(&self, metric: &str) -> u64 {
        let page = self.gateway.text("/metrics").await;
        let line = page.lines().find_map(|line| {
            line.strip_prefix("quorumgate_")?.strip_prefix(metric)?.strip_prefix(' ')
        });
        line.map_or(0, |count| count.parse().unwrap())
    }

    /// Waits until no request is under way and the processor is at rest.
    pub(crate) async fn comes_to_rest(&self) {
        let began = Instant::now();
        while self.in_flight().await > 0 {
            assert!(began.elapsed() < PATIENCE, "requests are still in flight");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        loop {
            let before = self.ticks();
            tokio::time::sleep(Duration::from_millis(100)).await;
            if self.ticks() - before <= 3 {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "the gateway is still busy");
        }
    }

    /// Asserts what each of so many connections has cost since `before`, in KiB, at most. Returns it.
    pub(crate) fn costs(&self, what: &str, before: u64, count: usize, kib_max: u64) -> u64 {
        let count = u64::try_from(count).unwrap();
        let grown = self.resident_kib().saturating_sub(before);
        println!("{what}: {} KiB each of {count}", grown / count);
        assert!(grown <= count * kib_max + GRAIN_KIB, "{what}: {grown} KiB for {count}");
        grown / count
    }
}

/// Puts a certificate into files; the keys of the server that name them.
fn papers(directory: &Path, made: &rcgen::CertifiedKey<rcgen::KeyPair>) -> String {
    let (cert, key) = (directory.join("cert"), directory.join("key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    format!(", tls: {{ cert: {}, key: {} }}", cert.display(), key.display())
}

/// What a request for a chat begins with.
pub(crate) const POST: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/v1/chat/completions"),
    (":authority", "a"),
];

/// The head of a request for a chat.
pub(crate) fn head(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &fields(&POST))
}

/// Streams as a client numbers them.
pub(crate) fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|stream| stream * 2 + 1)
}

/// A setting as it is written.
pub(crate) fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// The setting of the window that a stream begins with.
pub(crate) const INITIAL_WINDOW: u16 = 4;

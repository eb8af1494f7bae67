//! TLS to an endpoint: who is trusted, and by which name.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway::app::{App, StartError};
use gateway::config::{Health, Protocol, UpstreamTls};
use gateway::upstream::{ConnectError, SendError};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::kit::{Kit, always, gateway, kit_with, plan};
use crate::local::{Ask, until};
use crate::raw::good;

/// An authority with a folder for its files.
pub(crate) struct House {
    issuer: Issuer<'static, KeyPair>,
    root: rustls::pki_types::CertificateDer<'static>,
    folder: TempDir,
}

/// What a server saw of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Handshake {
    name: Option<String>,
    is_resumed: bool,
    has_client: bool,
}

type Book = Arc<Mutex<Vec<Handshake>>>;

impl House {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.crt"), root.pem()).unwrap();
        Self { issuer: Issuer::new(params, key), root: root.der().clone(), folder }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A certificate for `name`, and its key.
    fn leaf(&self, name: &str, is_expired: bool) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if is_expired {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        }
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Writes a certificate of a client's own.
    fn client(&self) -> UpstreamTls {
        let (certificate, key) = self.leaf("client", false);
        std::fs::write(self.file("client.crt"), certificate.pem()).unwrap();
        std::fs::write(self.file("client.key"), key.serialize_pem()).unwrap();
        let (cert, key) = (Some(self.file("client.crt")), Some(self.file("client.key")));
        UpstreamTls { cert, key, ..self.trusted() }
    }

    /// How an endpoint that this house signs is known.
    pub(crate) fn trusted(&self) -> UpstreamTls {
        UpstreamTls { ca: Some(self.file("ca.crt")), ..UpstreamTls::default() }
    }

    /// What a server shows.
    pub(crate) fn server(&self, name: &str, is_expired: bool, asks: bool) -> ServerConfig {
        let (certificate, key) = self.leaf(name, is_expired);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .unwrap();
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap();
        let builder = if asks {
            builder.with_client_cert_verifier(clients)
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        builder.with_single_cert(vec![certificate.der().clone()], key).unwrap()
    }
}

/// Answers the first request of each connection and ends it in good order.
async fn serve(config: ServerConfig) -> (SocketAddr, Book) {
    serve_late(config, Duration::ZERO).await
}

/// The same, with a handshake that begins only after `late`.
async fn serve_late(config: ServerConfig, late: Duration) -> (SocketAddr, Book) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let book = Book::default();
    let written = Arc::clone(&book);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, written) = (acceptor.clone(), Arc::clone(&written));
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                let Ok(mut tls) = acceptor.accept(stream).await else { return };
                let mut piece = [0; 4096];
                let _ = tls.read(&mut piece).await;
                let connection = tls.get_ref().1;
                written.lock().unwrap().push(Handshake {
                    name: connection.server_name().map(str::to_owned),
                    is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
                    has_client: connection.peer_certificates().is_some(),
                });
                let mut answer = good("x");
                let head = b"HTTP/1.1 200 X\r\n".len();
                answer.splice(head..head, *b"connection: close\r\n");
                let _ = tls.write_all(&answer).await;
                let _ = tls.shutdown().await;
                while matches!(tls.read(&mut piece).await, Ok(length) if length > 0) {}
            });
        }
    });
    (address, book)
}

fn way(address: SocketAddr, tls: &UpstreamTls) -> Kit {
    let authority = format!("gpu-a.test:{}", address.port());
    kit_with(&authority, always(&["127.0.0.1"]), |endpoint| endpoint.tls = Some(tls.clone()))
        .unwrap()
}

fn distrusted() -> Result<(u16, String), SendError> {
    Err(SendError::Connect(ConnectError::Tls))
}

#[tokio::test]
async fn an_endpoint_is_known_by_its_name_and_sessions_are_resumed() {
    let house = House::new();
    let (address, book) = serve(house.server("gpu-a.test", false, false)).await;
    let kit = way(address, &house.trusted());
    for _ in 0..2 {
        assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200));
    }
    let name = Some("gpu-a.test".to_owned());
    let first = Handshake { name, is_resumed: false, has_client: false };
    let second = Handshake { is_resumed: true, ..first.clone() };
    assert_eq!(*book.lock().unwrap(), [first, second]);
}

#[tokio::test]
async fn an_endpoint_of_another_authority_name_or_time_is_not_trusted() {
    let (house, stranger) = (House::new(), House::new());
    let (address, book) = serve(house.server("gpu-a.test", false, false)).await;
    assert_eq!(way(address, &stranger.trusted()).ask().await, distrusted());
    let other = UpstreamTls { server_name: Some("gpu-b.test".into()), ..house.trusted() };
    assert_eq!(way(address, &other).ask().await, distrusted());
    let (expired, _) = serve(house.server("gpu-a.test", true, false)).await;
    assert_eq!(way(expired, &house.trusted()).ask().await, distrusted());
    assert!(book.lock().unwrap().is_empty(), "nothing was said to it");
    // A name of its own makes another host good.
    let (named, _) = serve(house.server("gpu-b.test", false, false)).await;
    assert_eq!(way(named, &house.trusted()).ask().await, distrusted());
    assert_eq!(way(named, &other).ask().await.map(|(status, _)| status), Ok(200));
}

#[tokio::test]
async fn an_endpoint_that_is_not_trusted_is_a_fault_and_a_502_that_names_nothing() {
    let (house, stranger) = (House::new(), House::new());
    let (address, _) = serve(house.server("127.0.0.1", false, false)).await;
    for (tls, status) in [(stranger.trusted(), 502), (house.trusted(), 200)] {
        let app = gateway(address, |endpoint| endpoint.tls = Some(tls.clone())).await;
        let reply = Ask::chat().send(app.address).await;
        assert_eq!(reply.status, status);
        let endpoint =
            Arc::clone(app.fleet().endpoint(&quorum::EndpointKey::new("demo/a")).unwrap().1);
        let faults = endpoint.view(gateway::clock::now()).faults;
        assert_eq!(faults > 0.0, status == 502);
        if status == 502 {
            assert_eq!(reply.code(), "upstream_unavailable");
        }
    }
}

#[tokio::test]
async fn a_health_check_speaks_tls_where_the_endpoint_does() {
    let house = House::new();
    let (address, book) = serve(house.server("127.0.0.1", false, false)).await;
    let interval = Duration::from_millis(20);
    let health = Health { path: "/health".into(), interval, timeout: Duration::from_secs(5) };
    let app = gateway(address, |endpoint| {
        endpoint.tls = Some(house.trusted());
        endpoint.health = Some(health.clone());
    })
    .await;
    until("it was checked", || book.lock().unwrap().len() > 2).await;
    let endpoint = Arc::clone(app.fleet().endpoint(&quorum::EndpointKey::new("demo/a")).unwrap().1);
    let view = endpoint.view(gateway::clock::now());
    assert_eq!((view.faults, view.streak), (0.0, 0));
}

#[tokio::test]
async fn a_certificate_of_our_own_is_shown_where_there_is_one() {
    let house = House::new();
    let (address, book) = serve(house.server("gpu-a.test", false, true)).await;
    assert_eq!(way(address, &house.client()).ask().await.map(|(status, _)| status), Ok(200));
    assert!(book.lock().unwrap()[0].has_client);
    // Refused by the other side, which TLS 1.3 tells only behind the handshake.
    let error = way(address, &house.trusted()).ask().await.unwrap_err();
    assert!(matches!(error, SendError::Broken | SendError::Connect(ConnectError::Tls)), "{error}");
}

#[tokio::test]
async fn a_file_that_is_of_no_use_stops_the_start_with_one_line() {
    let house = House::new();
    let address = "127.0.0.1:1".parse::<SocketAddr>().unwrap();
    std::fs::write(house.file("empty.crt"), "nothing\n").unwrap();
    let client = house.client();
    let trusted = house.trusted();
    let empty = || Some(house.file("empty.crt"));
    for (tls, says) in [
        (UpstreamTls { ca: Some(house.file("none.crt")), ..trusted.clone() }, "none.crt"),
        (UpstreamTls { ca: empty(), ..trusted }, "no certificate in it"),
        (UpstreamTls { key: empty(), ..client.clone() }, "no private key in it"),
        (UpstreamTls { cert: Some(house.file("ca.crt")), ..client }, "ca.crt"),
    ] {
        let config = plan(&address.to_string(), |endpoint| endpoint.tls = Some(tls.clone()));
        let Err(error) = App::start(&config).await else { unreachable!("{says}") };
        let text = error.to_string();
        assert!(matches!(error, StartError::Road(_)), "{text}");
        assert!(text.contains(says) && text.contains("demo/a"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
}

#[tokio::test]
async fn an_endpoint_that_does_not_choose_http2_is_spoken_to_in_http1() {
    let house = House::new();
    let mut config = house.server("gpu-a.test", false, false);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let (address, _) = serve(config).await;
    let authority = format!("gpu-a.test:{}", address.port());
    let kit = kit_with(&authority, always(&["127.0.0.1"]), |endpoint| {
        endpoint.tls = Some(house.trusted());
        endpoint.protocol = Protocol::Http2;
    });
    let kit = kit.unwrap();
    for _ in 0..3 {
        assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200));
    }
}

#[tokio::test]
async fn a_burst_at_an_endpoint_that_does_not_choose_http2_does_not_queue() {
    let house = House::new();
    let mut config = house.server("gpu-a.test", false, false);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // One after the other they would take two and a half times what a connection may.
    let (address, _) = serve_late(config, Duration::from_millis(150)).await;
    let authority = format!("gpu-a.test:{}", address.port());
    let kit = kit_with(&authority, always(&["127.0.0.1"]), |endpoint| {
        endpoint.tls = Some(house.trusted());
        endpoint.protocol = Protocol::Http2;
    });
    let kit = Arc::new(kit.unwrap());
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let kit = Arc::clone(&kit);
        all.spawn(async move { kit.ask().await.map(|(status, _)| status) });
    }
    let answers = all.join_all().await;
    assert!(answers.iter().all(|answer| *answer == Ok(200)), "{answers:?}");
}

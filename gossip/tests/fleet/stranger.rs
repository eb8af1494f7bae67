//! A peer that holds a connection and writes what it likes.

use std::net::SocketAddr;
use std::sync::Arc;

use gossip::Tls;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, SendStream};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// A connection, and the port it needs.
pub(crate) struct Stranger {
    endpoint: Endpoint,
    pub(crate) connection: Connection,
}

impl Stranger {
    /// Connects to a node, with these certificates or none, as a member of that fleet.
    pub(crate) async fn connect(
        to: SocketAddr,
        tls: Option<Tls>,
        cluster_id: &str,
    ) -> Result<Self, ConnectionError> {
        let endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        let config = client(tls, cluster_id);
        let connecting = endpoint.connect_with(config, to, "quorumgate.invalid").unwrap();
        let connection = connecting.await?;
        Ok(Self { endpoint, connection })
    }

    /// Connects once more, from the same address.
    pub(crate) async fn again(&self, to: SocketAddr, tls: Tls) -> Connection {
        let config = client(Some(tls), "fleet");
        self.endpoint.connect_with(config, to, "quorumgate.invalid").unwrap().await.unwrap()
    }

    /// Where it is connected from.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.endpoint.local_addr().unwrap()
    }

    /// Sends one frame, and waits until the node has read it, or will not.
    pub(crate) async fn send(&self, frame: &[u8]) {
        if let Some(stream) = self.throw(frame).await {
            let _ = stream.stopped().await;
        }
    }

    /// Sends one frame as soon as the connection takes it. A node that does not read it to its end
    /// makes no difference.
    pub(crate) async fn throw(&self, frame: &[u8]) -> Option<SendStream> {
        let mut stream = self.connection.open_uni().await.ok()?;
        let _ = stream.write_all(frame).await;
        let _ = stream.finish();
        Some(stream)
    }
}

fn client(tls: Option<Tls>, cluster_id: &str) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)));
    let mut config = match tls {
        Some(Tls::Files { cert, key, .. }) => {
            let chain = CertificateDer::pem_file_iter(cert).unwrap().map(Result::unwrap).collect();
            let key = PrivateKeyDer::from_pem_file(key).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        Some(Tls::Insecure) | None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![format!("quorumgate/1/{cluster_id}").into_bytes()];
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()))
}

#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

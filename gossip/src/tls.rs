//! Who may talk to this node: mutual TLS for QUIC, and the name in a peer's certificate.
//!
//! Every node is server and client. A seed is an address behind which any member may answer, so a
//! client cannot know the name it will meet: both sides check that the CA signed the certificate
//! and that it is valid today, and read the node id from it after the handshake.
//!
//! # Invariants
//! - The crypto provider is passed explicitly: no process-wide default is read or set.
//! - The fleet and the version of the protocol are part of the handshake.
//! - No session is resumed, so that a peer's certificate is checked on every connection.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509_parser::extensions::GeneralName;

use crate::seal::{self, Authority};
use crate::{Config, GossipError, Tls};

/// The version of the frames. It changes when nodes of two versions could not understand each
/// other at all.
const PROTOCOL_VERSION: u8 = 1;

/// Both sides of a handshake, and the bytes they were made of.
pub(crate) struct Credentials {
    pub(crate) server: QuicServerConfig,
    pub(crate) client: QuicClientConfig,
    /// The files as they were read, to notice a change; empty without files.
    pub(crate) material: Vec<u8>,
    /// What records are signed with; `None` without files.
    pub(crate) authority: Option<Authority>,
    /// Whose certificates are good; `None`: anybody's.
    pub(crate) roots: Option<Arc<RootCertStore>>,
    /// The last second, since 1970, in which this node's certificate is good; `None` without files.
    pub(crate) good_until: Option<u64>,
}

/// What a handshake is made of.
struct Parts {
    /// `None`: anybody may talk.
    roots: Option<Arc<RootCertStore>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    material: Vec<u8>,
}

/// Reads the files and makes both sides of the handshake.
///
/// # Errors
/// If a file cannot be read or used, or the certificate is made out to another node.
pub(crate) fn load(config: &Config) -> Result<Credentials, GossipError> {
    let parts = match &config.tls {
        Tls::Files { ca, cert, key } => read_files(&config.node_id, ca, cert, key)?,
        Tls::Insecure => make_self_signed()?,
    };
    let protocol = format!("quorumgate/{PROTOCOL_VERSION}/{}", config.cluster_id).into_bytes();
    make(parts, protocol).map_err(|source| GossipError::UseCertificates { source })
}

/// The first DNS name in the certificate that the peer has shown, if it has shown one.
pub(crate) fn peer_name(connection: &quinn::Connection) -> Option<String> {
    name_in(peer_chain(connection)?.first()?)
}

/// Whether the peer's certificate is good today, by these roots.
pub(crate) fn is_good(roots: &RootCertStore, connection: &quinn::Connection) -> bool {
    let algorithms = ring::default_provider().signature_verification_algorithms;
    let until = peer_chain(connection).and_then(|chain| {
        let name = name_in(chain.first()?)?;
        seal::check_chain(roots, &algorithms, &name, &chain)
    });
    until.is_some()
}

fn peer_chain(connection: &quinn::Connection) -> Option<Vec<CertificateDer<'static>>> {
    connection.peer_identity()?.downcast().ok().map(|chain| *chain)
}

/// The last second, since 1970, in which the certificate is good.
pub(crate) fn last_second_of(certificate: &CertificateDer<'_>) -> Option<u64> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    u64::try_from(parsed.validity().not_after.timestamp()).ok()
}

/// The first DNS name in the certificate.
pub(crate) fn name_in(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let names = parsed.subject_alternative_name().ok()??;
    let dns = names.value.general_names.iter().find_map(|name| match name {
        GeneralName::DNSName(dns) => Some(*dns),
        _ => None,
    });
    dns.map(str::to_owned)
}

fn read_files(node_id: &str, ca: &Path, cert: &Path, key: &Path) -> Result<Parts, GossipError> {
    let read = |path: &Path| {
        fs::read(path).map_err(|source| GossipError::ReadFile { path: path.to_owned(), source })
    };
    let (ca_pem, cert_pem, key_pem) = (read(ca)?, read(cert)?, read(key)?);
    let mut roots = RootCertStore::empty();
    for root in certificates(&ca_pem).ok_or_else(|| unusable(ca, "certificate"))? {
        roots.add(root).map_err(|source| GossipError::UseCertificates { source })?;
    }
    let chain = certificates(&cert_pem).ok_or_else(|| unusable(cert, "certificate"))?;
    let secret = PrivateKeyDer::from_pem_slice(&key_pem).ok();
    let secret = secret.ok_or_else(|| unusable(key, "private key"))?;
    let found = chain.first().and_then(name_in).unwrap_or_default();
    if found != node_id {
        return Err(GossipError::CertificateName { found, wanted: node_id.to_owned() });
    }
    let material = [ca_pem, cert_pem, key_pem].concat();
    Ok(Parts { roots: Some(Arc::new(roots)), chain, key: secret, material })
}

fn unusable(path: &Path, what: &'static str) -> GossipError {
    GossipError::ParsePem { path: path.to_owned(), what }
}

fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|certificates| !certificates.is_empty())
}

fn make_self_signed() -> Result<Parts, GossipError> {
    let made = rcgen::generate_simple_self_signed(vec!["insecure.invalid".to_owned()]);
    let made = made.map_err(|source| GossipError::MakeCertificate { source })?;
    Ok(Parts {
        roots: None,
        chain: vec![made.cert.der().clone()],
        key: PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()),
        material: Vec::new(),
    })
}

fn make(parts: Parts, protocol: Vec<u8>) -> Result<Credentials, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let general = |error: &dyn std::fmt::Display| rustls::Error::General(error.to_string());
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let server = match &parts.roots {
        Some(roots) => {
            let roots = Arc::clone(roots);
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
            server.with_client_cert_verifier(verifier.map_err(|error| general(&error))?)
        }
        None => server.with_no_client_auth(),
    };
    let mut server = server.with_single_cert(parts.chain.clone(), parts.key.clone_key())?;
    server.alpn_protocols = vec![protocol.clone()];
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;

    let authority = match &parts.roots {
        Some(roots) => Some(Authority::new(
            ring::sign::any_supported_type(&parts.key)?,
            parts.chain.iter().map(|der| der.to_vec()).collect(),
            Arc::clone(roots),
            provider.signature_verification_algorithms,
        )?),
        None => None,
    };
    let roots = parts.roots.clone();
    let own = parts.chain.first().filter(|_| roots.is_some());
    let good_until = own.and_then(last_second_of);
    let verifier = Arc::new(AnyMember { roots: parts.roots, provider: Arc::clone(&provider) });
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut client = client.with_client_auth_cert(parts.chain, parts.key)?;
    client.alpn_protocols = vec![protocol];
    client.resumption = rustls::client::Resumption::disabled();

    Ok(Credentials {
        server: QuicServerConfig::try_from(server).map_err(|error| general(&error))?,
        client: QuicClientConfig::try_from(client).map_err(|error| general(&error))?,
        material: parts.material,
        authority,
        roots,
        good_until,
    })
}

/// Takes a server's certificate if the CA signed it, whatever the name in it.
#[derive(Debug)]
struct AnyMember {
    /// `None`: any certificate will do.
    roots: Option<Arc<RootCertStore>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyMember {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(roots) = &self.roots else {
            return Ok(ServerCertVerified::assertion());
        };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &certificate,
            roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // QUIC knows TLS 1.3 only.
        Err(rustls::Error::General("TLS 1.2 is not spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs;

    #[test]
    fn the_node_id_is_the_first_dns_name() {
        let directory = tempfile::tempdir().unwrap();
        certs::throw_away(directory.path(), &["gateway-7"]).unwrap();
        let pem = fs::read(directory.path().join("gateway-7.crt")).unwrap();
        let chain = certificates(&pem).unwrap();
        assert_eq!(name_in(&chain[0]).as_deref(), Some("gateway-7"));
    }

    #[test]
    fn a_certificate_of_another_node_is_refused_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        certs::throw_away(directory.path(), &["one"]).unwrap();
        let file = |name: &str| directory.path().join(name);
        let read = read_files("two", &file("ca.crt"), &file("one.crt"), &file("one.key"));
        assert!(matches!(read, Err(GossipError::CertificateName { .. })));
    }
}

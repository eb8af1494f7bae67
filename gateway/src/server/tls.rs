//! The certificate that clients are shown, and the settings of TLS towards them.
//!
//! Certificates are renewed every few weeks, connections live for hours: the certificate lies behind
//! a resolver and can be replaced while everything goes on. Whoever asks for another name gets it all
//! the same and judges for itself; there is only one.
//!
//! Invariants: a key is held only together with the certificate it belongs to; a replacement is whole
//! or does not happen; no key is ever printed.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::config::ServerTls;
use crate::files;

/// HTTP/2 as ALPN calls it.
pub(super) const HTTP2: &[u8] = b"h2";
/// HTTP/1.1 as ALPN calls it.
const HTTP1: &[u8] = b"http/1.1";

/// Why a certificate cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there, not readable, or no such file at all.
    #[error("server.tls: {path} cannot be read; it must be a file of at most 1MiB")]
    Read {
        /// The file.
        path: String,
        /// Why it was not read.
        source: io::Error,
    },
    /// The file of the certificate holds none.
    #[error("server.tls.cert: {path} holds no readable certificate; give the whole chain as PEM")]
    NoCertificate {
        /// The file.
        path: String,
    },
    /// The file of the key holds none.
    #[error("server.tls.key: {path} holds no readable private key; give an unencrypted key as PEM")]
    NoKey {
        /// The file.
        path: String,
    },
    /// The two files are not a pair.
    #[error("server.tls: the key in {key} does not belong to the certificate in {cert}")]
    NoPair {
        /// The file of the certificate.
        cert: String,
        /// The file of the key.
        key: String,
    },
    /// The certificate or the key is of a kind that TLS cannot use here.
    #[error("server.tls: the certificate in {path} cannot be used")]
    Unusable {
        /// The file.
        path: String,
        /// What rustls said.
        source: rustls::Error,
    },
}

/// Who the gateway is to its clients.
pub struct Identity {
    shown: Arc<Shown>,
    acceptor: TlsAcceptor,
}

impl Identity {
    /// Reads the certificate and its key.
    ///
    /// # Errors
    /// [`TlsError`]: a file cannot be read or used, or the two are no pair.
    pub fn load(files: &ServerTls) -> Result<Arc<Self>, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let pair = pair(files, &provider)?;
        let unusable = |source| TlsError::Unusable { path: shown(&files.cert), source };
        let shown = Arc::new(Shown(RwLock::new(Arc::new(pair))));
        let resolver = Arc::clone(&shown);
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(unusable)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        // A returning client brings its session along, so that none is kept here.
        config.ticketer = ring::Ticketer::new().map_err(unusable)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Arc::new(Self { shown, acceptor }))
    }

    /// Reads a certificate and its key, to be shown later or not at all.
    ///
    /// # Errors
    /// As [`Identity::load`].
    pub(crate) fn read(files: &ServerTls) -> Result<Pair, TlsError> {
        pair(files, &ring::default_provider()).map(Pair)
    }

    /// Shows this certificate from the next handshake on; connections that stand are not touched.
    pub(crate) fn show(&self, Pair(pair): Pair) {
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
    }

    /// Reads a certificate and shows it.
    ///
    /// # Errors
    /// As [`Identity::load`]; the certificate that was shown stays.
    pub fn replace(&self, files: &ServerTls) -> Result<(), TlsError> {
        self.show(Self::read(files)?);
        Ok(())
    }

    /// What shakes hands.
    pub(super) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

/// A certificate with its key that can be shown.
pub(crate) struct Pair(CertifiedKey);

/// The certificate of the moment. The lock is held for the copy of a pointer.
struct Shown(RwLock<Arc<CertifiedKey>>);

impl fmt::Debug for Shown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Shown")
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn pair(files: &ServerTls, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let ServerTls { cert, key } = files;
    let no_certificate = |_| TlsError::NoCertificate { path: shown(cert) };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(cert)?)
        .collect::<Result<_, _>>()
        .map_err(no_certificate)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: shown(cert) });
    }
    let private = PrivateKeyDer::from_pem_slice(&read(key)?)
        .map_err(|_| TlsError::NoKey { path: shown(key) })?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsError::NoPair { cert: shown(cert), key: shown(key) }
        }
        source => TlsError::Unusable { path: shown(cert), source },
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    files::read(path).map_err(|source| TlsError::Read { path: shown(path), source })
}

/// A path in one line.
fn shown(path: &Path) -> String {
    path.display().to_string().replace(char::is_control, "?")
}

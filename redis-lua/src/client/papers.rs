//! The certificates by which the servers are known, and we are.
//!
//! They are replaced in place, on both sides and not at one moment. A dial that they did not let
//! through has them read anew, so that nobody has to start a gateway again for a new authority.
//!
//! Invariant: files that cannot be used leave those in use that were.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::config::Tls;
use crate::error::RedisError;

/// They are read anew at most so often.
const READ_EVERY: Duration = Duration::from_secs(10);
/// How long is waited for the files; a reading that takes longer is of no use to anybody.
const READ_TAKES_MAX: Duration = Duration::from_secs(1);

/// Certificates and where they are.
pub(super) struct Papers {
    files: Tls,
    /// Held for a moment only.
    held: Mutex<Held>,
}

struct Held {
    connector: TlsConnector,
    /// When they were read anew last.
    read_at: Option<Instant>,
    /// Whether it was told that they cannot be.
    is_told: bool,
}

impl Papers {
    /// Reads the files.
    ///
    /// # Errors
    /// [`RedisError`]: a file cannot be read or used.
    pub(super) fn read(files: &Tls) -> Result<Self, RedisError> {
        let held = Held { connector: connector(files)?, read_at: None, is_told: false };
        Ok(Self { files: files.clone(), held: Mutex::new(held) })
    }

    /// What to dial with.
    pub(super) fn connector(&self) -> TlsConnector {
        self.held().connector.clone()
    }

    /// Reads the files anew, unless they were lately.
    pub(super) async fn renew(&self) {
        let now = Instant::now();
        {
            let mut held = self.held();
            if held.read_at.is_some_and(|at| now < at + READ_EVERY) {
                return;
            }
            held.read_at = Some(now);
        }
        let files = self.files.clone();
        let reading = tokio::task::spawn_blocking(move || connector(&files));
        let Ok(Ok(found)) = timeout(READ_TAKES_MAX, reading).await else { return };
        let mut held = self.held();
        match found {
            Ok(connector) => (held.connector, held.is_told) = (connector, false),
            Err(error) => {
                if !std::mem::replace(&mut held.is_told, true) {
                    tracing::warn!(%error, "the certificates for redis cannot be read anew");
                }
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the certificates.
///
/// # Errors
/// [`RedisError`]: a file cannot be read or used.
fn connector(tls: &Tls) -> Result<TlsConnector, RedisError> {
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(path) => {
            for root in certificates(path)? {
                roots.add(root)?;
            }
        }
        // A store of hundreds has ones that cannot be read; the rest is good.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            let secret = PrivateKeyDer::from_pem_slice(&read(key)?);
            let secret = secret.map_err(|_| unusable(key, "private key"))?;
            builder.with_client_auth_cert(certificates(cert)?, secret)?
        }
        (None, None) => builder.with_no_client_auth(),
        (Some(_), None) | (None, Some(_)) => return Err(RedisError::HalfIdentity),
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn read(path: &Path) -> Result<Vec<u8>, RedisError> {
    std::fs::read(path).map_err(|source| RedisError::ReadFile { path: path.to_owned(), source })
}

fn unusable(path: &Path, what: &'static str) -> RedisError {
    RedisError::ParsePem { path: path.to_owned(), what }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, RedisError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let found = found.ok().filter(|certificates| !certificates.is_empty());
    found.ok_or_else(|| unusable(path, "certificate"))
}

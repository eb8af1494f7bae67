//! How endpoints are known over TLS, read from files once.
//!
//! Endpoints of public providers are checked against the roots that the system trusts, so that an
//! operator's own additions and removals count here as everywhere else on the machine; one's own
//! authority can be named instead and is then the only one.
//!
//! Invariants: the provider of cryptography is passed explicitly; the file of a key is named in an
//! error, its content never.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::config::{Protocol, UpstreamTls};
use crate::{files, fnv};

/// Why endpoints cannot be known.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read.
    #[error("{}: {source}; make it readable", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file without what it is read for.
    #[error("{}: no {wanted} in it; give a PEM file", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
        /// What was looked for.
        wanted: &'static str,
    },
    /// Certificates that cannot be used.
    #[error("{}: {source}; check the file", path.display())]
    Use {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// A system that trusts nobody.
    #[error("the system has no root certificates; install ca-certificates, or set tls.ca")]
    NoRoots,
    /// A host that no certificate can carry.
    #[error("{name} is no name of a certificate; set tls.server_name")]
    Name {
        /// The host.
        name: String,
    },
    /// Nothing of the files: the library itself.
    #[error("TLS cannot be used: {0}")]
    Library(rustls::Error),
}

/// What was read so far, so that a thousand endpoints read each file once and share their sessions.
#[derive(Default)]
pub(super) struct Wardrobe {
    configs: HashMap<Outfit, Arc<ClientConfig>>,
    system: Option<Arc<RootCertStore>>,
    /// Digests of files; bounded by those that the configuration names.
    digests: HashMap<PathBuf, u64>,
}

/// What makes two configurations one: the authority, our certificate, its key, and whether HTTP/2 is
/// asked for. The key counts, so that one that cannot be read is never passed over for another's.
type Outfit = (Option<PathBuf>, Option<PathBuf>, Option<PathBuf>, bool);

impl Wardrobe {
    /// The side of a client for endpoints that are known so.
    ///
    /// # Errors
    /// [`TlsError`]; nothing is kept.
    pub(super) fn config(
        &mut self,
        tls: &UpstreamTls,
        protocol: Protocol,
    ) -> Result<Arc<ClientConfig>, TlsError> {
        let is_http2 = protocol == Protocol::Http2;
        let outfit = (tls.ca.clone(), tls.cert.clone(), tls.key.clone(), is_http2);
        if let Some(config) = self.configs.get(&outfit) {
            return Ok(Arc::clone(config));
        }
        let roots = match &tls.ca {
            Some(path) => Arc::new(authority(path)?),
            None => self.system()?,
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Library)?
            .with_root_certificates(roots);
        let mut config = match (&tls.cert, &tls.key) {
            (Some(cert), Some(key)) => builder
                .with_client_auth_cert(certificates(cert)?, private_key(key)?)
                .map_err(|source| TlsError::Use { path: cert.clone(), source })?,
            (Some(_), None) | (None, Some(_)) | (None, None) => builder.with_no_client_auth(),
        };
        config.alpn_protocols = match protocol {
            Protocol::Http1 => vec![b"http/1.1".to_vec()],
            Protocol::Http2 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        let config = Arc::new(config);
        self.configs.insert(outfit, Arc::clone(&config));
        Ok(config)
    }

    /// A digest of all that is read of an endpoint that is known so: what a configuration amounts to
    /// is another when a file holds something else.
    ///
    /// # Errors
    /// [`TlsError`]; a file cannot be read.
    pub(super) fn print(&mut self, tls: &UpstreamTls) -> Result<u64, TlsError> {
        let mut digests = Vec::new();
        for path in [&tls.ca, &tls.cert, &tls.key].into_iter().flatten() {
            let digest = match self.digests.get(path) {
                Some(known) => *known,
                None => fnv::digest(read(path)?),
            };
            self.digests.insert(path.clone(), digest);
            digests.extend(digest.to_le_bytes());
        }
        Ok(fnv::digest(digests))
    }

    fn system(&mut self) -> Result<Arc<RootCertStore>, TlsError> {
        if let Some(roots) = &self.system {
            return Ok(Arc::clone(roots));
        }
        let mut roots = RootCertStore::empty();
        // A store of hundreds has ones that cannot be read; the rest is good.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(TlsError::NoRoots);
        }
        let roots = Arc::new(roots);
        self.system = Some(Arc::clone(&roots));
        Ok(roots)
    }
}

/// How a host is known that is no endpoint: by the roots that the system trusts.
///
/// # Errors
/// [`TlsError`]: the system trusts nobody, or no certificate can carry the host's name.
pub(crate) fn by_system(host: &str) -> Result<(Arc<ClientConfig>, ServerName<'static>), TlsError> {
    let tls = UpstreamTls::default();
    let config = Wardrobe::default().config(&tls, Protocol::Http1)?;
    Ok((config, server_name(&tls, host)?))
}

/// The name that a certificate must carry: the one that is configured, or the host.
pub(super) fn server_name(tls: &UpstreamTls, host: &str) -> Result<ServerName<'static>, TlsError> {
    let name = tls.server_name.as_deref().unwrap_or(host);
    // The dot that makes a name absolute is no part of it in a certificate.
    let bare = name.trim_start_matches('[').trim_end_matches([']', '.']).to_owned();
    ServerName::try_from(bare)
        .map_err(|_: InvalidDnsNameError| TlsError::Name { name: name.to_owned() })
}

fn authority(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for root in certificates(path)? {
        roots.add(root).map_err(|source| TlsError::Use { path: path.to_owned(), source })?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.unwrap_or_default();
    let empty = || TlsError::Empty { path: path.to_owned(), wanted: "certificate" };
    if found.is_empty() { Err(empty()) } else { Ok(found) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read(path)?;
    PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|_| TlsError::Empty { path: path.to_owned(), wanted: "private key" })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    files::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

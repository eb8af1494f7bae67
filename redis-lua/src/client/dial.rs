//! One connection to one server: TCP, TLS, `HELLO`, in a bounded time.
//!
//! The protocol is the redis crate's; the stream below it is our own, so that the provider of
//! cryptography is passed explicitly and the certificates are read once and not at every dial.
//!
//! Invariant: a connection ends when its [`Wire`] is dropped, whoever still holds a handle to it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::config::{Address, Tls};
use super::setback::{Setback, step, within};
use crate::error::{RedisError, Trouble};

/// How many commands wait for the task that writes them, at most; more wait in their callers.
const BUFFER: usize = 1_024;
/// Beyond the time of one call, what TCP, TLS and `HELLO` may take.
const DIAL_EXTRA: Duration = Duration::from_millis(150);

/// A live connection.
pub(super) struct Wire {
    pub(super) connection: MultiplexedConnection,
    driver: JoinHandle<()>,
}

impl Wire {
    /// Returns when the connection has ended.
    ///
    /// # Cancel safety
    /// It can be dropped and called again.
    pub(super) async fn ended(&mut self) {
        // Asked again after the end, the handle would panic.
        if !self.driver.is_finished() {
            let _ = (&mut self.driver).await;
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Opens connections as one user.
#[derive(Clone)]
pub(super) struct Dialer {
    connector: Option<TlsConnector>,
    settings: RedisConnectionInfo,
    deadline: Duration,
}

impl Dialer {
    /// A dialer for calls that may take `timeout`.
    pub(super) fn new(
        connector: Option<TlsConnector>,
        timeout: Duration,
        username: Option<&str>,
        password: Option<&str>,
    ) -> Self {
        let mut settings = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        if let Some(username) = username {
            settings = settings.set_username(username);
        }
        if let Some(password) = password {
            settings = settings.set_password(password);
        }
        Self { connector, settings, deadline: timeout + DIAL_EXTRA }
    }

    /// A dialer for sentinels, which need not know `HELLO`.
    pub(super) fn plain(
        connector: Option<TlsConnector>,
        timeout: Duration,
        password: Option<&str>,
    ) -> Self {
        let dialer = Self::new(connector, timeout, None, password);
        let settings = dialer.settings.set_protocol(ProtocolVersion::RESP2);
        Self { settings, ..dialer }
    }

    /// Connects, and tells `push` what the server sends unasked.
    ///
    /// # Errors
    /// [`Setback`]; no connection is left behind.
    pub(super) async fn dial(
        &self,
        address: &Address,
        push: Option<Box<dyn Fn(PushInfo) + Send + Sync>>,
    ) -> Result<Wire, Setback> {
        let deadline = within(self.deadline);
        let found = step(address, "resolve", deadline, async {
            let found = lookup_host((address.host.as_str(), address.port)).await;
            let mut found: Vec<_> = found.map_err(|_| Trouble::Away)?.collect();
            // One that swallows everything uses up the time; so it must not always be the first.
            fastrand::shuffle(&mut found);
            Ok(found)
        });
        let found = found.await?;
        let stream = step(address, "connect", deadline, async {
            TcpStream::connect(found.as_slice()).await.map_err(|_| Trouble::Away)
        });
        let stream = stream.await?;
        // Without it a small command waits for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(BUFFER);
        if let Some(push) = push {
            config = config.set_push_sender(move |info| {
                push(info);
                Ok::<(), ()>(())
            });
        }
        let Some(connector) = &self.connector else {
            return step(address, "HELLO", deadline, self.greet(stream, config)).await;
        };
        let stream = step(address, "TLS", deadline, async {
            let name = ServerName::try_from(address.host.clone());
            let name = name.map_err(|_| Trouble::Tls("no certificate can name that host"))?;
            let stream = connector.connect(name, stream).await;
            stream.map_err(|error| Trouble::of_stream(&error))
        });
        let stream = stream.await?;
        step(address, "HELLO", deadline, self.greet(stream, config)).await
    }

    async fn greet<S>(&self, stream: S, config: AsyncConnectionConfig) -> Result<Wire, Trouble>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let made = MultiplexedConnection::new_with_config(&self.settings, stream, config).await;
        let (connection, driver) = made.map_err(|error| Trouble::from(&error))?;
        Ok(Wire { connection, driver: tokio::spawn(driver) })
    }
}

/// Reads the certificates.
///
/// # Errors
/// [`RedisError`]: a file cannot be read or used.
pub(super) fn connector(tls: &Tls) -> Result<TlsConnector, RedisError> {
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

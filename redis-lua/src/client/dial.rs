//! One connection to one server: TCP, TLS, `HELLO`, in a bounded time.
//!
//! The protocol is the redis crate's; the stream below it is our own, so that the provider of
//! cryptography is passed explicitly and the certificates are not read at every dial.
//!
//! Invariant: a connection ends when its [`Wire`] is dropped, whoever still holds a handle to it.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo};
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinHandle;

use super::config::Address;
use super::papers::Papers;
use super::setback::{Setback, step, within};
use crate::error::Trouble;

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
    papers: Option<Arc<Papers>>,
    settings: RedisConnectionInfo,
    deadline: Duration,
}

impl Dialer {
    /// A dialer for calls that may take `timeout`.
    pub(super) fn new(
        papers: Option<Arc<Papers>>,
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
        Self { papers, settings, deadline: timeout + DIAL_EXTRA }
    }

    /// A dialer for sentinels, which need not know `HELLO`.
    pub(super) fn plain(
        papers: Option<Arc<Papers>>,
        timeout: Duration,
        password: Option<&str>,
    ) -> Self {
        let dialer = Self::new(papers, timeout, None, password);
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
        let dialled = self.open(address, push).await;
        let is_let_in = !matches!(&dialled, Err(Setback { step: "TLS" | "HELLO", .. }));
        if let Some(papers) = self.papers.as_ref().filter(|_| !is_let_in) {
            papers.renew().await;
        }
        dialled
    }

    async fn open(
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
        let Some(papers) = &self.papers else {
            return step(address, "HELLO", deadline, self.greet(stream, config)).await;
        };
        let stream = step(address, "TLS", deadline, async {
            let name = ServerName::try_from(address.host.clone());
            let name = name.map_err(|_| Trouble::Tls("no certificate can name that host"))?;
            let stream = papers.connector().connect(name, stream).await;
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

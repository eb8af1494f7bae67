//! Makes connections: a name becomes addresses, one of them a socket, the socket speaks TLS if need be.
//!
//! Several addresses are tried a little apart, so that one that swallows everything costs a quarter of
//! a second and not the whole time-out (RFC 8305). What is never to be called is refused by the address
//! that would be called, whatever the name was when the configuration was read.
//!
//! Invariants: dropped in the middle, no attempt goes on.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::resolve::Resolver;
use super::socket::{Socket, Stream};
use crate::config;

/// The next address is tried after this long (RFC 8305, section 5).
const STAGGER: Duration = Duration::from_millis(250);
/// A connection on which nothing comes is asked after this long whether it still stands, then so often.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How often it is asked in vain before it is given up.
const KEEPALIVE_RETRIES: u32 = 3;

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("the name has no address")]
    Name,
    /// The address is never to be called.
    #[error("the address must not be called")]
    Forbidden,
    /// Nobody answers there.
    #[error("nobody answers there")]
    Refused,
    /// It took too long.
    #[error("it took too long")]
    Timeout,
    /// The other side is not who it should be, or does not speak TLS.
    #[error("TLS failed")]
    Tls,
    /// It does not speak the protocol.
    #[error("it does not speak the protocol")]
    Protocol,
}

/// Where connections of one kind lead.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// Whether HTTP/2 is to be spoken: over TLS only if the other side agrees.
    pub(super) wants_http2: bool,
}

/// What is called.
#[derive(Debug)]
pub(super) enum Host {
    /// An address.
    Literal(IpAddr),
    /// What has addresses.
    Name(String),
}

/// A socket, and whether HTTP/2 is spoken over it.
pub(super) struct Dialled {
    pub(super) socket: Socket,
    pub(super) is_http2: bool,
}

impl Destination {
    /// Makes a connection.
    ///
    /// # Errors
    /// [`ConnectError`]; nothing is left open.
    pub(super) async fn dial(&self, resolver: &Arc<Resolver>) -> Result<Dialled, ConnectError> {
        let tcp = match &self.host {
            Host::Literal(address) => reach(&[*address], self.port).await?,
            Host::Name(name) => {
                let addresses = resolver.resolve(name).await.ok_or(ConnectError::Name)?;
                reach(&addresses, self.port).await.inspect_err(|_| resolver.distrust(name))?
            }
        };
        let Some((config, name)) = &self.tls else {
            let socket = Socket::new(Stream::Clear(tcp));
            return Ok(Dialled { socket, is_http2: self.wants_http2 });
        };
        let connector = TlsConnector::from(Arc::clone(config));
        let tls = connector.connect(name.clone(), tcp).await.map_err(|error| {
            tracing::warn!(name = ?name, %error, "an endpoint cannot be trusted");
            ConnectError::Tls
        })?;
        let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Dialled { socket: Socket::new(Stream::Tls(Box::new(tls))), is_http2 })
    }
}

/// Whether nobody has business at this address, whatever a name says.
fn is_forbidden(address: &IpAddr) -> bool {
    config::is_metadata_address(*address) || address.is_unspecified() || address.is_multicast()
}

/// Connects to the first address that answers.
async fn reach(addresses: &[IpAddr], port: u16) -> Result<TcpStream, ConnectError> {
    let allowed = addresses.iter().filter(|address| !is_forbidden(address));
    let allowed: Vec<_> = allowed.map(|address| SocketAddr::new(*address, port)).collect();
    let mut left = allowed.into_iter();
    let Some(first) = left.next() else { return Err(ConnectError::Forbidden) };
    if left.len() == 0 {
        return connect(first).await.map_err(|_| ConnectError::Refused);
    }
    // Dropped with this future, the set ends its tasks.
    let mut attempts = JoinSet::new();
    attempts.spawn(connect(first));
    loop {
        let ended = tokio::time::timeout(STAGGER, attempts.join_next()).await;
        match ended {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            // One has failed or is late: the next begins.
            Ok(Some(Ok(Err(_)) | Err(_)) | None) | Err(_) => {
                if let Some(next) = left.next() {
                    attempts.spawn(connect(next));
                } else if attempts.is_empty() {
                    return Err(ConnectError::Refused);
                }
            }
        }
    }
}

async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    // A system that does not know these settings is no reason to do without the connection.
    let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES));
    Ok(stream)
}

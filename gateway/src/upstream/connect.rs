//! Makes connections: a name becomes addresses, one of them a socket, the socket speaks TLS if need be.
//!
//! Several addresses are tried a little apart, so that one that swallows everything costs a quarter of
//! a second and not the whole time-out (RFC 8305). What is never to be called is refused by the address
//! that would be called, whatever the name was when the configuration was read.
//!
//! Invariants: dropped in the middle, no attempt goes on; what is wanting on this machine is never said
//! of an endpoint.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::resolve::Resolver;
use super::socket::{Socket, Stream};
use crate::config;
use crate::handles::Taken;

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
    /// This machine has no file, port or memory left for a further connection.
    #[error("this machine has nothing left for a connection")]
    Own,
    /// As many connections are shared as may be, and each carries all that it may.
    #[error("all shared connections are full")]
    Full,
}

impl ConnectError {
    /// Whether it is this side that could not, which says nothing about the endpoint.
    pub fn is_ours(self) -> bool {
        match self {
            Self::Own | Self::Full => true,
            Self::Name
            | Self::Forbidden
            | Self::Refused
            | Self::Timeout
            | Self::Tls
            | Self::Protocol => false,
        }
    }
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
    /// Makes a connection, by the right to one.
    ///
    /// # Errors
    /// [`ConnectError`]; nothing is left open.
    pub(super) async fn dial(
        &self,
        resolver: &Arc<Resolver>,
        right: Taken,
    ) -> Result<Dialled, ConnectError> {
        let name = match &self.host {
            Host::Literal(address) => return self.dial_at(&[*address], right).await,
            Host::Name(name) => name,
        };
        let addresses = resolver.resolve(name).await.ok_or(ConnectError::Name)?;
        let mut doubt = Doubt { resolver, name: Some(name) };
        let dialled = self.dial_at(&addresses, right).await?;
        doubt.name = None;
        Ok(dialled)
    }

    async fn dial_at(&self, addresses: &[IpAddr], right: Taken) -> Result<Dialled, ConnectError> {
        let tcp = reach(addresses, self.port).await?;
        let Some((config, name)) = &self.tls else {
            let socket = Socket::new(Stream::Clear(tcp), right);
            return Ok(Dialled { socket, is_http2: self.wants_http2 });
        };
        let connector = TlsConnector::from(Arc::clone(config));
        let tls = connector.connect(name.clone(), tcp).await.map_err(|error| {
            // At the rate of requests, so that it is counted, and told only to who asks for it.
            tracing::debug!(name = ?name, %error, "an endpoint cannot be trusted");
            ConnectError::Tls
        })?;
        let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        let socket = Socket::new(Stream::Tls(Box::new(tls)), right);
        Ok(Dialled { socket, is_http2 })
    }
}

/// What a name stands for, in doubt until a connection stands: one that is given up in the middle, by a
/// time-out say, or that a stranger takes, speaks against the addresses as a refusal does.
struct Doubt<'a> {
    resolver: &'a Resolver,
    /// `None` once it has proved good.
    name: Option<&'a str>,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name {
            self.resolver.distrust(name);
        }
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
        return connect(first).await.map_err(|error| meaning(&error));
    }
    // Dropped with this future, the set ends its tasks.
    let mut attempts = JoinSet::new();
    attempts.spawn(connect(first));
    // Ours only if nobody there was asked at all.
    let mut failure = ConnectError::Own;
    loop {
        let ended = tokio::time::timeout(STAGGER, attempts.join_next()).await;
        match ended {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(error)))) if meaning(&error) == ConnectError::Own => {}
            Ok(Some(Ok(Err(_)) | Err(_)) | None) | Err(_) => failure = ConnectError::Refused,
        }
        // One has failed or is late: the next begins.
        if let Some(next) = left.next() {
            attempts.spawn(connect(next));
        } else if attempts.is_empty() {
            return Err(failure);
        }
    }
}

/// Whose failure it is that there is no socket.
fn meaning(error: &io::Error) -> ConnectError {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::ADDRNOTAVAIL | Errno::NOBUFS | Errno::NOMEM) => {
            ConnectError::Own
        }
        Some(_) | None => ConnectError::Refused,
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    // A system that does not know these settings is no reason to do without the connection.
    let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES));
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanting_here_is_not_said_of_the_endpoint() {
        for own in [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM] {
            assert_eq!(meaning(&own.into()), ConnectError::Own, "{own}");
        }
        for there in [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::TIMEDOUT, Errno::NETUNREACH] {
            assert_eq!(meaning(&there.into()), ConnectError::Refused, "{there}");
        }
    }
}

//! What can go wrong with Redis: before anything is dialled, and with one call.
//!
//! Invariant: nothing a server has said is kept beyond an error code out of a fixed list, and no
//! secret is part of an error.

use std::fmt;
use std::path::PathBuf;

/// Why a client could not be made of its configuration. Nothing was dialled.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// There is no address.
    #[error("redis has no urls")]
    NoUrls,
    /// Too many addresses.
    #[error("redis has {found} urls, more than {most}")]
    ManyUrls {
        /// How many there are.
        found: usize,
        /// How many may be.
        most: usize,
    },
    /// An address is none.
    #[error("redis url {url:?}: {problem}")]
    ParseUrl {
        /// The address, without what may be a secret in it.
        url: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// A prefix that would change the tag of a key.
    #[error("redis prefix: only printable ASCII without spaces and braces")]
    Prefix,
    /// TLS is configured for addresses that do not speak it.
    #[error("redis tls needs rediss:// urls")]
    TlsUnused,
    /// A client certificate without its key, or a key without its certificate.
    #[error("redis tls needs cert and key, or neither")]
    HalfIdentity,
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    ReadFile {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("no {what} in {}", path.display())]
    ParsePem {
        /// Which file.
        path: PathBuf,
        /// What should be in it.
        what: &'static str,
    },
    /// The certificates cannot be used.
    #[error("cannot use the certificates for redis")]
    UseCertificates(#[from] rustls::Error),
}

/// What became of a call that was not answered well. Whether it was carried out is unknown after
/// [`Trouble::Timeout`] and [`Trouble::Away`]; after the others it was not, or as the script says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// There is no connection, or it was lost.
    Away,
    /// No answer came in time.
    Timeout,
    /// Too many calls are under way, or more than the server can carry in their time.
    Busy,
    /// Redis has refused; the error code, out of [`CODES`].
    Refused(&'static str),
    /// One side does not believe the other who it is; what is wrong.
    Tls(&'static str),
    /// Call or answer are not as agreed; what is wrong.
    Wrong(&'static str),
}

/// Every error code that is told apart; the last stands for all others.
pub const CODES: [&str; 21] = [
    "READONLY",
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "OOM",
    "WRONGTYPE",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "NOREPLICAS",
    "MISCONF",
    "CROSSSLOT",
    "MOVED",
    "ASK",
    "NOSCRIPT",
    "NOPROTO",
    "UNKILLABLE",
    "ERR",
    "other",
];

impl Trouble {
    /// One word for it: a label of a metric, out of a fixed set.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::Timeout => "timeout",
            Self::Busy => "busy",
            Self::Refused(code) => code,
            Self::Tls(_) => "tls",
            Self::Wrong(_) => "wrong",
        }
    }

    /// Whether it says that Redis as a whole is not to be relied on, and not only this call.
    #[must_use]
    pub fn is_everywhere(self) -> bool {
        match self {
            Self::Away | Self::Timeout | Self::Tls(_) => true,
            Self::Refused(code) => !matches!(code, "WRONGTYPE" | "ERR" | "other"),
            Self::Busy | Self::Wrong(_) => false,
        }
    }

    /// What an error of TLS says: the error itself may repeat what a certificate has written.
    pub(crate) fn of_tls(error: &rustls::Error) -> Self {
        use rustls::CertificateError as Bad;
        Self::Tls(match error {
            rustls::Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
                "its certificate has expired"
            }
            rustls::Error::InvalidCertificate(
                Bad::NotValidYet | Bad::NotValidYetContext { .. },
            ) => "its certificate is not valid yet",
            rustls::Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
                "its certificate is signed by nobody we trust"
            }
            rustls::Error::InvalidCertificate(
                Bad::NotValidForName | Bad::NotValidForNameContext { .. },
            ) => "its certificate is made out to another name",
            rustls::Error::InvalidCertificate(_) => "its certificate cannot be used",
            rustls::Error::AlertReceived(_) => "it has refused our certificate, or us",
            _ => "the handshake failed",
        })
    }

    /// What an error of a stream says, which may be one of TLS.
    pub(crate) fn of_stream(error: &std::io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        inner.map_or(Self::Away, Self::of_tls)
    }

    /// What an error code says.
    pub(crate) fn of_code(code: &str) -> Self {
        let known = CODES.iter().find(|known| **known == code);
        Self::Refused(known.copied().unwrap_or("other"))
    }
}

impl From<&redis::RedisError> for Trouble {
    fn from(error: &redis::RedisError) -> Self {
        match error.kind() {
            redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType => {
                Self::Wrong("an answer that is none")
            }
            redis::ErrorKind::AuthenticationFailed => Self::Refused("WRONGPASS"),
            redis::ErrorKind::RESP3NotSupported => Self::Refused("NOPROTO"),
            _ => match error.code() {
                Some(code) => Self::of_code(code),
                None => std::error::Error::source(error)
                    .and_then(|source| source.downcast_ref::<std::io::Error>())
                    .map_or(Self::Away, Self::of_stream),
            },
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away => out.write_str("Redis is away"),
            Self::Timeout => out.write_str("Redis did not answer in time"),
            Self::Busy => out.write_str("too many calls to Redis are under way"),
            Self::Refused(code) => write!(out, "Redis has refused ({code})"),
            Self::Tls(what) => write!(out, "TLS with Redis: {what}"),
            Self::Wrong(what) => write!(out, "Redis and we disagree ({what})"),
        }
    }
}

impl std::error::Error for Trouble {}

#[cfg(test)]
mod tests {
    use super::Trouble;

    #[test]
    fn what_a_server_says_is_not_kept() {
        assert_eq!(Trouble::of_code("OOM"), Trouble::Refused("OOM"));
        assert_eq!(Trouble::of_code("MY SECRET"), Trouble::Refused("other"));
    }
}

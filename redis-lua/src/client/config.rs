//! Where Redis is and how we show ourselves to it, checked before anything is dialled.
//!
//! Invariant: a secret is in no `Debug`, and an address with one in it is refused without repeating it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::RedisError;

/// At most so many addresses are taken: sentinels, or the nodes a cluster is first asked through.
pub const URLS_MAX: usize = 64;

/// Where Redis is, and who we are.
///
/// A user of ours needs no more than this, `quorumgate` being the prefix, and `+cluster|slots` and
/// `+asking` only in a cluster; a sentinel needs `+sentinel|master`:
///
/// ```text
/// user gate on >SECRET ~quorumgate{* &quorumgate{notices} -@all +@string +@hash +@list +@sortedset
///   -@dangerous -@blocking +del +exists +pexpire +pttl +time +eval +evalsha +ping +role +publish
///   +spublish +subscribe +ssubscribe +asking +cluster|slots +info
/// ```
///
/// By `+info` a script knows the server's run; without it all goes on, but numbers do not leap after a
/// failover.
#[derive(Clone)]
pub struct Config {
    /// `redis://host:port` or, with TLS, `rediss://host:port`, all of one kind; the port may be left
    /// out. One for [`Mode::Standalone`], the sentinels for [`Mode::Sentinel`], some nodes for
    /// [`Mode::Cluster`]. At most [`URLS_MAX`].
    pub urls: Vec<String>,
    /// What is there.
    pub mode: Mode,
    /// What all keys and channels begin with: printable ASCII without spaces and braces.
    pub prefix: String,
    /// How long one call may take, redirections and all. 10 ms to 1 s. Whatever it is, a server that
    /// does not take a write within 300 ms is not relied on.
    pub timeout: Duration,
    /// The ACL user; `None`: the default one.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// The password of the sentinels, which have users of their own.
    pub sentinel_password: Option<String>,
    /// How the other side is known, and how we are; used with `rediss://`.
    pub tls: Tls,
}

/// What is at the addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One server.
    Standalone,
    /// Sentinels that know the primary.
    Sentinel {
        /// What they call it.
        master: String,
    },
    /// Nodes of a cluster.
    Cluster,
}

/// Certificates, all PEM files. They are read at the start, and anew after a dial that they did not let
/// through, at most every ten seconds; what cannot be read leaves those in use that were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Who signs the servers' certificates; `None`: whom the system trusts.
    pub ca: Option<PathBuf>,
    /// Our certificate.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

impl Config {
    /// A configuration with the defaults: prefix `quorumgate`, 100 ms, nobody's password.
    #[must_use]
    pub fn new(urls: Vec<String>, mode: Mode) -> Self {
        Self {
            urls,
            mode,
            prefix: "quorumgate".to_owned(),
            timeout: Duration::from_millis(100),
            username: None,
            password: None,
            sentinel_password: None,
            tls: Tls::default(),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masked = |secret: &Option<String>| secret.as_ref().map(|_| "***");
        out.debug_struct("Config")
            .field("urls", &self.urls)
            .field("mode", &self.mode)
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("username", &self.username)
            .field("password", &masked(&self.password))
            .field("sentinel_password", &masked(&self.sentinel_password))
            .field("tls", &self.tls)
            .finish()
    }
}

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A name or an IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Address {
    /// Where nothing answers.
    pub(super) fn nowhere() -> Self {
        Self { host: String::new(), port: 0 }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(out, "[{}]:{}", self.host, self.port)
        } else {
            write!(out, "{}:{}", self.host, self.port)
        }
    }
}

/// Whether keys that begin so still have the tag that we give them.
///
/// # Errors
/// [`RedisError::Prefix`].
pub(super) fn check_prefix(prefix: &str) -> Result<(), RedisError> {
    let is_good = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
    if prefix.bytes().all(is_good) { Ok(()) } else { Err(RedisError::Prefix) }
}

/// The addresses, and whether they speak TLS.
///
/// # Errors
/// [`RedisError`]: there are none or too many, one is no address, or they are of two kinds.
pub(super) fn addresses(config: &Config) -> Result<(Vec<Address>, bool), RedisError> {
    let default_port = match config.mode {
        Mode::Standalone | Mode::Cluster => 6_379,
        Mode::Sentinel { .. } => 26_379,
    };
    let most = if config.mode == Mode::Standalone { 1 } else { URLS_MAX };
    if config.urls.len() > most {
        return Err(RedisError::ManyUrls { found: config.urls.len(), most });
    }
    let mut found = Vec::with_capacity(config.urls.len());
    let mut kind = None;
    for url in &config.urls {
        let refuse = |problem| RedisError::ParseUrl { url: shown(url), problem };
        let (address, is_tls) = parse(url, default_port).map_err(refuse)?;
        if *kind.get_or_insert(is_tls) != is_tls {
            return Err(refuse("some addresses speak TLS and some do not; choose one"));
        }
        found.push(address);
    }
    kind.map(|is_tls| (found, is_tls)).ok_or(RedisError::NoUrls)
}

/// The URL as it may be repeated: without anything before an at sign.
fn shown(url: &str) -> String {
    url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, rest)| format!("…@{rest}"))
}

fn parse(url: &str, default_port: u16) -> Result<(Address, bool), &'static str> {
    let (is_tls, rest) = match (url.strip_prefix("redis://"), url.strip_prefix("rediss://")) {
        (Some(rest), _) => (false, rest),
        (None, Some(rest)) => (true, rest),
        (None, None) => return Err("it must begin with redis:// or rediss://"),
    };
    if rest.contains('@') {
        return Err("user and password do not belong in it; set redis.username and redis.password");
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#']) {
        return Err("only a host and a port may follow; database 0 is used");
    }
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().map_err(|_| "the port is no number up to 65535")?)
        }
        Some(_) | None => (rest, default_port),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() || port == 0 {
        return Err("a host and a port are needed");
    }
    Ok((Address { host: host.to_owned(), port }, is_tls))
}

#[cfg(test)]
mod tests {
    use super::{Address, Config, Mode, addresses, check_prefix, parse};

    fn of(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    #[test]
    fn an_address_is_a_host_and_perhaps_a_port() {
        assert_eq!(parse("redis://db", 6_379), Ok((of("db", 6_379), false)));
        assert_eq!(parse("rediss://db:1/", 6_379), Ok((of("db", 1), true)));
        assert_eq!(parse("redis://[::1]:7000", 6_379), Ok((of("::1", 7_000), false)));
        assert_eq!(parse("redis://[::1]", 6_379), Ok((of("::1", 6_379), false)));
        assert_eq!(of("::1", 7_000).to_string(), "[::1]:7000");
        for bad in
            ["db:6379", "http://db", "redis://", "redis://:1", "redis://db:x", "redis://db/1"]
        {
            assert!(parse(bad, 6_379).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_secret_in_an_address_is_refused_and_not_repeated() {
        let config = Config::new(vec!["redis://me:hush@db".to_owned()], Mode::Standalone);
        let error = addresses(&config).unwrap_err().to_string();
        assert!(error.contains("redis.password") && !error.contains("hush"), "{error}");
    }

    #[test]
    fn a_prefix_leaves_the_tag_alone() {
        assert!(check_prefix("quorumgate:1.").is_ok() && check_prefix("").is_ok());
        for bad in ["a{b}", "{", "a b", "ä"] {
            assert!(check_prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let mut config = Config::new(Vec::new(), Mode::Cluster);
        config.password = Some("hush".to_owned());
        config.sentinel_password = Some("hush".to_owned());
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn addresses_are_of_one_kind_and_few() {
        let urls = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect();
        let mixed = Config::new(urls(&["redis://a", "rediss://b"]), Mode::Cluster);
        assert!(addresses(&mixed).is_err());
        assert!(addresses(&Config::new(urls(&[]), Mode::Cluster)).is_err());
        assert!(
            addresses(&Config::new(urls(&["redis://a", "redis://b"]), Mode::Standalone)).is_err()
        );
        let sentinels = Mode::Sentinel { master: "main".to_owned() };
        let (found, is_tls) = addresses(&Config::new(urls(&["redis://a"]), sentinels)).unwrap();
        assert_eq!((found, is_tls), (vec![of("a", 26_379)], false));
    }
}

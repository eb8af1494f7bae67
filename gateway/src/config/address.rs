//! Where things are reached: `host:port`, and the address of an endpoint.
//!
//! An address in a configuration decides where prompts and credentials go, so it is taken apart by
//! hand and refused when two readers could understand it differently: `http://127.1`,
//! `http://2852039166` and a user name before the host are such cases.
//!
//! Invariants: what is accepted has a host, a port from 1 on, no user, query or fragment; a host
//! that ends in a number is an address in the usual form; metadata addresses are never accepted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::scalar::{KEY_BEGINS, Refusal};

/// Longest host name, in bytes (RFC 1035, 2.3.4).
const HOST_BYTES_MAX: usize = 253;
/// Longest path that is asked for at an endpoint, in bytes.
const PATH_BYTES_MAX: usize = 256;
/// What to write for the address of an endpoint.
pub(super) const FORM: &str = "write http://host:port or https://host:port";
/// Where one cloud answers questions about the machine over IPv6.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254);

/// Tells whether clouds answer questions about the machine, credentials included, at `address`:
/// 169.254.0.0/16 in any of its spellings, and fd00:ec2::254.
///
/// A name may resolve to one later, so whoever connects asks again with the resolved address.
#[must_use]
pub fn is_metadata_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six == METADATA_V6 || embedded(six).is_some_and(|v4| v4.is_link_local()),
    }
}

/// Finds the IPv4 address an IPv6 address stands for: mapped or compatible (RFC 4291, 2.5.5), or
/// behind the well-known translation prefix (RFC 6052).
fn embedded(six: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = six.segments();
    let is_compatible = [a, b, c, d, e] == [0; 5] && (f == 0 || f == 0xffff);
    let is_translated = [a, b, c, d, e, f] == [0x64, 0xff9b, 0, 0, 0, 0];
    let [first, second] = high.to_be_bytes();
    let [third, fourth] = low.to_be_bytes();
    (is_compatible || is_translated).then(|| Ipv4Addr::new(first, second, third, fourth))
}

/// How an endpoint is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// The scheme as addresses begin with it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port where none is given.
    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Where an endpoint is reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Upstream {
    /// How it is spoken to.
    pub(super) scheme: Scheme,
    /// `host:port` in lower case.
    pub(super) authority: String,
    /// Empty, or `/prefix` without a trailing slash.
    pub(super) base_path: String,
}

/// Takes the address of an endpoint apart: `http://host` or `https://host`, with a port and a base
/// path if wanted.
///
/// # Errors
/// Another scheme, a part that has no meaning here, or a host that is never to be called.
pub(super) fn upstream(text: &str) -> Result<Upstream, Refusal> {
    let (scheme, rest) = split_scheme(text)?;
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if authority.contains('@') {
        return Err(Refusal::new("has a user before the host", "remove it and use api_key"));
    }
    if rest.contains(['?', '#']) {
        return Err(Refusal::new("has a query or fragment", FORM));
    }
    let (host, port) = split_port(authority)?;
    let host = checked_host(host)?;
    let port = port.map_or(Ok(scheme.port()), checked_port)?;
    Ok(Upstream { scheme, authority: format!("{host}:{port}"), base_path: base_path(path)? })
}

fn split_scheme(text: &str) -> Result<(Scheme, &str), Refusal> {
    let (scheme, rest) =
        text.split_once("://").ok_or_else(|| Refusal::new("has no scheme", FORM))?;
    let known = [Scheme::Http, Scheme::Https];
    known
        .into_iter()
        .find(|known| scheme.eq_ignore_ascii_case(known.as_str()))
        .map(|known| (known, rest))
        .ok_or_else(|| Refusal::new("has a scheme that is neither http nor https", FORM))
}

fn base_path(path: &str) -> Result<String, Refusal> {
    let base = path.trim_end_matches('/');
    if !is_plain(base) {
        return Err(Refusal::new(
            "has a path that is not plain",
            "use letters, digits and -._~ between single slashes",
        ));
    }
    if base.split('/').any(|segment| segment.starts_with(KEY_BEGINS)) {
        return Err(Refusal::new("has a key in its path, where it is shown", "use api_key"));
    }
    // Every request path begins with /v1, so with this base it would go out as /v1/v1.
    if base.ends_with("/v1") {
        return Err(Refusal::new("ends in /v1, which each request brings along", "leave /v1 out"));
    }
    Ok(base.to_owned())
}

/// Whether two readers understand `path`, which is empty or begins with a slash, in the same way.
fn is_plain(path: &str) -> bool {
    let is_allowed = |one: char| one.is_ascii_alphanumeric() || "/-._~".contains(one);
    let is_odd = |segment: &str| matches!(segment, "" | "." | "..");
    path.chars().all(is_allowed) && !path.split('/').skip(1).any(is_odd)
}

/// Takes a path at an endpoint, such as `/health`.
///
/// # Errors
/// It does not begin with a slash, has parts that a server may take for others, or is too long.
pub(super) fn plain_path(text: &str) -> Result<String, Refusal> {
    if !text.starts_with('/') {
        return Err(Refusal::new("does not begin with /", "write it like /health"));
    }
    // A slash at the end, or alone, is a path of its own to many servers.
    let is_short = text.len() <= PATH_BYTES_MAX;
    if is_short && is_plain(text.strip_suffix('/').unwrap_or(text)) {
        return Ok(text.to_owned());
    }
    Err(Refusal::new(
        "is not a plain path",
        format!(
            "use at most {PATH_BYTES_MAX} letters, digits and -._~ between single slashes, as in \
             /health"
        ),
    ))
}

/// Takes `host:port`, the form nodes of a fleet are named in, and gives it back in lower case.
///
/// # Errors
/// No port, or a host that is never to be called.
pub(super) fn host_and_port(text: &str) -> Result<String, Refusal> {
    let (_, port) = split_port(text)?;
    port.ok_or_else(|| Refusal::new("has no port", "write host:port"))?;
    host_and_port_or(text, 0)
}

/// Takes `host:port` or, where nothing but the port `usual` is to be expected, `host` alone, and
/// gives both back in lower case.
///
/// # Errors
/// A host that is never to be called, or no valid port.
pub(super) fn host_and_port_or(text: &str, usual: u16) -> Result<String, Refusal> {
    let (host, port) = split_port(text)?;
    let host = checked_host(host)?;
    let port = port.map_or(Ok(usual), checked_port)?;
    Ok(format!("{host}:{port}"))
}

/// Takes the name that a certificate must carry: a host name or an IP address, without brackets.
///
/// # Errors
/// No certificate can carry it.
pub(super) fn certificate_name(text: &str) -> Result<String, Refusal> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    let is_plain = |label: &str| !label.starts_with('-') && !label.ends_with('-');
    match checked_name(text) {
        Ok(name) if name.split('.').all(is_plain) && !name.ends_with('.') => Ok(name),
        _ => Err(Refusal::new(
            "is no name of a certificate",
            "write a host name or an IP address, without a scheme or port",
        )),
    }
}

/// Takes the origin of a page as a browser names it: `scheme://host[:port]` in lower case.
///
/// # Errors
/// A browser never writes it so, and no page would ever be let in by it.
pub(super) fn origin(text: &str) -> Result<String, Refusal> {
    const CURE: &str = "write scheme://host or scheme://host:port, for example https://app.example";
    let refuse = |problem: &str| Err(Refusal::new(problem, CURE));
    let Some((scheme, authority)) = text.split_once("://") else {
        return refuse("has no scheme");
    };
    let is_allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+.-".contains(&byte);
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return refuse("has capital letters, which a browser does not send");
    }
    if !scheme.starts_with(|first: char| first.is_ascii_lowercase())
        || !scheme.bytes().all(is_allowed)
    {
        return refuse("has no valid scheme");
    }
    if authority.contains(['/', '?', '#', '@', '*']) {
        return refuse("has more than a scheme, a host and a port");
    }
    let (host, port) = split_port(authority)?;
    let port = port.map(checked_port).transpose()?;
    let written = match port {
        None => host.to_owned(),
        Some(port) => format!("{host}:{port}"),
    };
    if checked_host(host)? != host || written != authority {
        return refuse("is not spelled as a browser does");
    }
    let known = [Scheme::Http, Scheme::Https].into_iter().find(|known| known.as_str() == scheme);
    if known.is_some_and(|known| port == Some(known.port())) {
        return Err(Refusal::new(
            "names the port that its scheme has anyway, which a browser leaves out",
            "leave the port out",
        ));
    }
    Ok(text.to_owned())
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), Refusal> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (inside, after) = rest
            .split_once(']')
            .ok_or_else(|| Refusal::new("has a [ without a ]", "write [address]:port"))?;
        let end = authority.len() - after.len();
        let is_six = inside.parse::<Ipv6Addr>().is_ok();
        let port = after.strip_prefix(':');
        if !is_six || (port.is_none() && !after.is_empty()) {
            return Err(Refusal::new(
                "has no valid IPv6 address in brackets",
                "write [address]:port",
            ));
        }
        return Ok((authority.get(..end).unwrap_or_default(), port));
    }
    match authority.split_once(':') {
        None => Ok((authority, None)),
        Some((_, port)) if port.contains(':') => Err(Refusal::new(
            "has more than one colon",
            "put an IPv6 address in brackets, [address]:port",
        )),
        Some((host, port)) => Ok((host, Some(port))),
    }
}

fn checked_port(text: &str) -> Result<u16, Refusal> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u16>()
        .ok()
        .filter(|port| is_number && *port > 0)
        .ok_or_else(|| Refusal::new("has no valid port", "use 1 to 65535"))
}

/// Gives the host back in its one spelling: an IP address as the standard library writes it, a
/// name in lower case.
fn checked_host(host: &str) -> Result<String, Refusal> {
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match bracketed {
        Some(inside) => inside.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    };
    let Some(address) = address else {
        return checked_name(host);
    };
    if is_metadata_address(address) {
        return Err(Refusal::new("is a metadata address", "use the address of a model server"));
    }
    if address.is_unspecified() || address.is_multicast() {
        return Err(Refusal::new("names no single host", "use the address of one host"));
    }
    Ok(match address {
        IpAddr::V4(four) => four.to_string(),
        IpAddr::V6(six) => format!("[{six}]"),
    })
}

fn checked_name(host: &str) -> Result<String, Refusal> {
    let labels = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if host.len() > HOST_BYTES_MAX || !labels.split('.').all(is_label) {
        return Err(Refusal::new("has no valid host", "use a host name or an IP address"));
    }
    // System resolvers read "127.1", "0x7f.1" and "2852039166" as addresses, so a name whose last
    // label is a number would slip past every check of addresses (WHATWG URL, "ends in a number").
    let last = labels.rsplit('.').next().unwrap_or_default();
    let is_decimal = last.bytes().all(|byte| byte.is_ascii_digit());
    let is_hexadecimal = last.starts_with("0x") || last.starts_with("0X");
    if is_decimal || is_hexadecimal {
        return Err(Refusal::new(
            "has a host that ends in a number but is no address",
            "write all four parts of the address in decimal",
        ));
    }
    Ok(host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority_of(text: &str) -> Result<String, Refusal> {
        upstream(text).map(|found| found.authority)
    }

    #[test]
    fn an_address_is_kept_in_one_spelling() {
        assert_eq!(authority_of("http://10.0.0.11:8000"), Ok("10.0.0.11:8000".into()));
        assert_eq!(authority_of("HTTP://Gpu-A.Example./"), Ok("gpu-a.example.:80".into()));
        assert_eq!(authority_of("http://[::0001]:1"), Ok("[::1]:1".into()));
        assert_eq!(authority_of("http://[::1]"), Ok("[::1]:80".into()));
        assert_eq!(authority_of("HTTPS://Api.Example"), Ok("api.example:443".into()));
        assert_eq!(authority_of("https://[::1]:8443"), Ok("[::1]:8443".into()));
        let found = upstream("http://a:1/openai/x/").unwrap();
        assert_eq!(found.base_path, "/openai/x");
        assert_eq!(upstream("http://a:1//").unwrap().base_path, "");
    }

    #[test]
    fn m08_an_address_two_readers_understand_differently_is_refused() {
        for text in [
            "",
            "http://",
            "http:///x",
            "gpu-a:8000",
            "ftp://a",
            "https://",
            "https://user:pass@a",
            "https://a/v1",
            "file:///etc/passwd",
            "gopher://a",
            "http://user:pass@a",
            "http://user@a",
            "http://a?x",
            "http://a#x",
            "http://a/?x",
            "http://127.1",
            "http://0x7f.1",
            "http://2852039166",
            "http://2852039166./",
            "http://0251.0376.0251.0376",
            "http://1.2.3.4.",
            "http://a:0",
            "http://a:65536",
            "http://a:+1",
            "http://a:",
            "http://a:1:2",
            "http://::1",
            "http://[::1",
            "http://[::1]x",
            "http://[fe80::1%25eth0]",
            "http://[127.0.0.1]",
            "http://a b",
            "http://a\\b",
            "http://ä",
            "http://a..b",
            "http://0.0.0.0:1",
            "http://[::]:1",
            "http://224.0.0.1",
            "http://a/../b",
            "http://a/b//c",
            "http://a/%2e%2e",
            "http://a:8000/v1",
        ] {
            assert!(upstream(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn m08_a_metadata_address_is_refused_in_every_spelling() {
        for text in [
            "http://169.254.169.254",
            "https://169.254.169.254",
            "http://169.254.0.1:80/latest",
            "http://[fd00:ec2::254]",
            "http://[::ffff:169.254.169.254]",
            "http://[::ffff:a9fe:a9fe]",
            "http://[::169.254.169.254]",
            "http://[64:ff9b::a9fe:a9fe]",
        ] {
            assert_eq!(upstream(text).unwrap_err().problem, "is a metadata address", "{text}");
        }
        for text in ["http://[::ffff:127.0.0.1]", "http://169.253.1.1", "http://[fd00:ec2::253]"] {
            assert!(upstream(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn an_origin_is_taken_only_as_a_browser_writes_it() {
        for text in [
            "https://app.example",
            "http://localhost:3000",
            "https://[::1]:8443",
            "http://app.example:443",
            "capacitor://localhost",
        ] {
            assert_eq!(origin(text).as_deref(), Ok(text));
        }
        for text in [
            "",
            "*",
            "null",
            "app.example",
            "https://",
            "https://App.example",
            "HTTPS://app.example",
            "https://app.example/",
            "https://app.example/path",
            "https://app.example?x",
            "https://*.example",
            "https://u@app.example",
            "https://app.example:443",
            "http://app.example:80",
            "https://app.example:0443",
            "https://app.example:",
            "https://[::0001]",
            "https://ä.example",
            "1s://a",
        ] {
            assert!(origin(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_certificate_names_a_host_and_nothing_else() {
        assert_eq!(certificate_name("Gpu-A.internal"), Ok("gpu-a.internal".into()));
        assert_eq!(certificate_name("10.0.0.1"), Ok("10.0.0.1".into()));
        assert_eq!(certificate_name("::0001"), Ok("::1".into()));
        for text in ["", "a:443", "https://a", "*.a", "a.", "-a", "a-.b", "[::1]", "1.2.3", "a b"] {
            assert!(certificate_name(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_node_is_named_by_host_and_port() {
        assert_eq!(host_and_port("GW-0.gw:7946"), Ok("gw-0.gw:7946".into()));
        assert_eq!(host_and_port("[::1]:1"), Ok("[::1]:1".into()));
        for text in ["gw-0", "gw-0:", ":7946", "0.0.0.0:1", "::1:1", "http://a:1", "a:1/x"] {
            assert!(host_and_port(text).is_err(), "{text:?}");
        }
    }
}

//! Where traces of requests go.

use std::time::Duration;

/// A collector that is told of requests by OpenTelemetry's protocol, in HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct Otlp {
    /// `http://host:port` or `https://host:port`, with a base path if it has one.
    pub endpoint: String,
    /// `host:port`, as in `endpoint`.
    pub authority: String,
    /// The base path of `endpoint`, and `/v1/traces`.
    pub path: String,
    /// Whether it is known by TLS, and by the authorities that the system trusts.
    pub is_tls: bool,
    /// Which part of the requests is traced that nobody else has decided on, 0 to 1; 0.1 by default.
    pub sample: f64,
    /// What this gateway is called in traces; 1 to 64 of `[A-Za-z0-9._-]`, `quorumgate` by default.
    pub service_name: String,
    /// How long one call of the collector may take; 100 ms to 60 s, 5 s by default.
    pub timeout: Duration,
}

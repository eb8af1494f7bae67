//! How the tenants of an endpoint are shown to graphs: by their number.
//!
//! Tenants are named by clients, so no metric carries a name.

use std::time::Duration;

use crate::fleet::Endpoint;
use crate::metrics::Meters;

/// Sets the gauges of one endpoint.
pub(super) fn measure(now: Duration, meters: &Meters, endpoint: &Endpoint) {
    let Some(tenants) = &endpoint.tenants else { return };
    let (known, out) = tenants.count(now);
    let labels = [("endpoint", endpoint.key.as_str())];
    meters.gauge("tenant_breakers", &labels).set(known as f64);
    meters.gauge("tenant_breakers_out", &labels).set(out as f64);
}

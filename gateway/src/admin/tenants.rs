//! How the tenants of an endpoint are shown: their number to graphs, those that are out to people.
//!
//! Tenants are named by clients, so no metric carries a name.

use std::time::Duration;

use serde_json::{Value, json};

use crate::fleet::Endpoint;
use crate::metrics::Meters;

/// Most tenants that are shown by name.
const SHOWN_MAX: usize = 50;

/// The tenants for which the endpoint is out; null without such a scope.
pub(super) fn shown(now: Duration, endpoint: &Endpoint) -> Value {
    let Some(tenants) = &endpoint.tenants else { return Value::Null };
    let (known, _) = tenants.count(now);
    let mut out = tenants.out(now);
    out.sort_by(|one, other| one.name.cmp(&other.name));
    let rows: Vec<Value> = out
        .iter()
        .take(SHOWN_MAX)
        .map(|tenant| (tenant, tenant.view(now)))
        .map(|(tenant, view)| {
            json!({
                "tenant": &*tenant.name,
                "state": view.state.to_string(),
                "reason": view.opened_for.map(|reason| reason.to_string()),
                "remaining_ms": view.remaining.map(|left| left.as_millis() as u64),
            })
        })
        .collect();
    json!({
        "header": tenants.scope().header,
        "known": known,
        "max": tenants.scope().most,
        "out_count": out.len(),
        "out": rows,
    })
}

/// Sets the gauges of one endpoint.
pub(super) fn measure(now: Duration, meters: &Meters, endpoint: &Endpoint) {
    let Some(tenants) = &endpoint.tenants else { return };
    let (known, out) = tenants.count(now);
    let labels = [("endpoint", endpoint.key.as_str())];
    meters.gauge("tenant_breakers", &labels).set(known as f64);
    meters.gauge("tenant_breakers_out", &labels).set(out as f64);
}

//! How the tenants of an endpoint are shown: their number to graphs, those that are out to people.
//!
//! Tenants are named by clients, so no metric carries a name.

use std::time::Duration;

use breaker::State;
use serde_json::{Value, json};

use crate::fleet::Endpoint;
use crate::metrics::Meters;

/// Most tenants that are shown by name.
const SHOWN_MAX: usize = 50;

/// The tenants for which the endpoint is not simply in; null without such a scope.
pub(super) fn shown(now: Duration, endpoint: &Endpoint) -> Value {
    let Some(tenants) = &endpoint.tenants else { return Value::Null };
    let all = tenants.all();
    let mut out: Vec<_> = all
        .iter()
        .map(|tenant| (tenant, tenant.view(now)))
        .filter(|(_, view)| view.state != State::Closed)
        .collect();
    out.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let rows: Vec<Value> = out
        .iter()
        .take(SHOWN_MAX)
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
        "known": all.len(),
        "max": tenants.scope().most,
        "out_count": out.len(),
        "out": rows,
    })
}

/// Sets the gauges of one endpoint.
pub(super) fn measure(now: Duration, meters: &Meters, endpoint: &Endpoint) {
    let Some(tenants) = &endpoint.tenants else { return };
    let all = tenants.all();
    let out = all.iter().filter(|tenant| tenant.view(now).state != State::Closed).count();
    let labels = [("endpoint", endpoint.key.as_str())];
    meters.gauge("tenant_breakers", &labels).set(all.len() as f64);
    meters.gauge("tenant_breakers_out", &labels).set(out as f64);
}

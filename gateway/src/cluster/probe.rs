//! The synthetic probe: one tiny request that an endpoint must answer in time.
//!
//! For an endpoint that the fleet took out, the steward alone sends it. An endpoint that only this
//! node took out is probed by this node, when its cool-down is over and no small request has tried
//! it, so that half-open ends without traffic too.

use std::sync::Arc;
use std::time::Duration;

use breaker::{Cause, Errand, Outcome, Rung};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use quorum::{EndpointKey, ProbeResult};
use serde_json::json;

use super::Seat;
use crate::clock;
use crate::config::ProbeRoute;
use crate::fleet::{Endpoint, Pool};
use crate::proxy::admission::Route;
use crate::upstream::{self, PROBE_HEADER, Upstream};

/// The pause before an endpoint that awaits a probe gets one, and between two that say nothing.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// What is read of a probe's answer.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Sends the fleet's one probe and reports to the council.
pub(super) fn lead(seat: &Arc<Seat>, key: EndpointKey, fence: (u64, u32)) {
    let Some((pool, endpoint)) = seat.parts.fleet.endpoint(&key) else { return };
    let (seat, pool, endpoint) = (Arc::clone(seat), Arc::clone(pool), Arc::clone(endpoint));
    // The task ends by the probe's own deadline; the council does not wait for it.
    tokio::spawn(async move {
        let (result, _) = probe(&seat.parts.probes, &pool, &endpoint).await;
        seat.probed(&key, fence, result);
    });
}

/// Probes the endpoints that are half-open by this node's own breaker: those that await a probe, and
/// those on the canary rung that no small request has tried for as long as their first cool-down.
pub(super) fn recover_locally(seat: &Arc<Seat>, now: Duration) {
    for (pool, endpoint) in seat.parts.fleet.endpoints() {
        let pause = match endpoint.rung() {
            Some(Rung::Probe) => PROBE_PAUSE,
            // Where nobody asks with a small request there is no use in waiting for one.
            Some(Rung::Canary) if !pool.has_small(now) => PROBE_PAUSE,
            Some(Rung::Canary) => endpoint.config.rule.open.base,
            Some(Rung::Ramp) | None => continue,
        };
        let view = endpoint.view(now);
        let is_due = !view.held
            && view.half_open_in_flight == 0
            && view.half_open_idle.is_some_and(|idle| idle >= pause);
        if !is_due || !pool.probe.enabled {
            continue;
        }
        let Ok(admission) = endpoint.admit(now, Errand::Probe) else { continue };
        let (seat, pool, endpoint) = (Arc::clone(seat), Arc::clone(pool), Arc::clone(endpoint));
        tokio::spawn(async move {
            let (result, cause) = probe(&seat.parts.probes, &pool, &endpoint).await;
            let outcome = match result {
                ProbeResult::Passed => Outcome::Success,
                ProbeResult::Failed => Outcome::Fault { weight: 1.0, cause },
                ProbeResult::Inconclusive => Outcome::Neutral,
            };
            admission.settle(clock::now(), outcome);
        });
    }
}

/// Sends one probe and judges the answer.
async fn probe(upstream: &Upstream, pool: &Pool, endpoint: &Endpoint) -> (ProbeResult, Cause) {
    let model = endpoint.config.upstream_model.as_deref().unwrap_or(&pool.name);
    let (prompt, max_tokens) = (&pool.probe.prompt, pool.probe.max_tokens);
    let (route, body) = match pool.probe.route {
        ProbeRoute::Chat => {
            let messages = json!([{ "role": "user", "content": prompt }]);
            let body = json!({ "model": model, "messages": messages, "max_tokens": max_tokens });
            (Route::Chat, body)
        }
        ProbeRoute::Completions => {
            let body = json!({ "model": model, "prompt": prompt, "max_tokens": max_tokens });
            (Route::Completions, body)
        }
        ProbeRoute::Embeddings => (Route::Embeddings, json!({ "model": model, "input": prompt })),
    };
    let id = format!("probe-{:016x}", fastrand::u64(..));
    let id = HeaderValue::from_str(&id).unwrap_or_else(|_| HeaderValue::from_static("probe"));
    let body = Bytes::from(body.to_string());
    let Some(mut request) =
        upstream::request(&endpoint.config, route.path(), (&id, &HeaderMap::new()), body)
    else {
        return (ProbeResult::Inconclusive, Cause::Other);
    };
    let mark = HeaderName::from_static(PROBE_HEADER);
    request.headers_mut().insert(mark, HeaderValue::from_static("1"));
    let answer = async {
        let response = upstream
            .send(request)
            .await
            .map_err(|error| if error.is_connect() { Cause::Refused } else { Cause::Cut })?;
        let status = response.status();
        let body = http_body_util::Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|_| Cause::Cut)?.to_bytes();
        Ok::<_, Cause>((status, body))
    };
    match tokio::time::timeout(pool.probe.first_token, answer).await {
        Err(_) => (ProbeResult::Failed, Cause::Timeout),
        Ok(Err(cause)) => (ProbeResult::Failed, cause),
        Ok(Ok((status, body))) if status.is_success() => {
            match serde_json::from_slice::<serde_json::Value>(&body) {
                Ok(answer) if answer.get("error").is_none_or(serde_json::Value::is_null) => {
                    (ProbeResult::Passed, Cause::Other)
                }
                Ok(_) | Err(_) => (ProbeResult::Failed, Cause::Malformed),
            }
        }
        Ok(Ok((status, _))) if status.is_client_error() => {
            (ProbeResult::Inconclusive, Cause::Status(status.as_u16()))
        }
        Ok(Ok((status, _))) => (ProbeResult::Failed, Cause::Status(status.as_u16())),
    }
}

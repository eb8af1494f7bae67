//! What the client gets: the answer that was found, or the refusal, with the headers that are ours.

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::time::Instant;

use super::attempt::Rest;
use super::dispatch::Served;
use super::log::Line;
use super::relay::{self, Patience, Relay};
use super::usage::Usage;
use super::{Body, Gate, limit};
use crate::error::ApiError;
use crate::fleet::Pool;
use crate::keys::Caller;
use crate::limits::Place;

impl Gate {
    /// Turns what was found into the answer.
    pub(super) fn answer(
        &self,
        served: Served,
        id: &HeaderValue,
        started: Instant,
        deadline: Instant,
        mut line: Line,
        mut place: Place,
    ) -> Response<Body> {
        let Served { answer, pool, endpoint, is_degraded } = served;
        let attempts = line.attempts;
        line.upstream_status = answer.status.as_u16();
        line.first_token = Some(started.elapsed());
        pool.meters.first_token.record(started.elapsed().as_secs_f64());
        self.meters.answered(&pool.meters, answer.status.as_u16());
        let status = answer.status.as_u16();
        let patience = Patience {
            idle: pool.timeouts.idle,
            deadline,
            slow_at: answer.slow_at,
            pace_min: endpoint.config.rule.slow.min_tokens_per_second,
        };
        let duration = pool.meters.duration.clone();
        let on_end: relay::OnEnd = Box::new(move |end, usage| {
            // A stream holds its place to its last byte, or until the client leaves.
            limit::ended(&mut place, usage);
            duration.record(started.elapsed().as_secs_f64());
            line.end(status, end);
        });
        let body = match answer.rest {
            Rest::Nothing => {
                on_end(relay::End::Complete, Usage::default());
                Body::Full(answer.held.into_iter().next())
            }
            Rest::Events(rest, guard) => {
                let relay = Relay::events(answer.held, rest, guard, patience, on_end);
                Body::Relay(Box::new(relay))
            }
            Rest::Bytes(rest, guard) => {
                let relay = Relay::bytes(answer.held, rest, guard, patience, on_end);
                Body::Relay(Box::new(relay))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        let headers = response.headers_mut();
        if let Ok(name) = HeaderValue::from_str(endpoint.key.as_str()) {
            headers.insert(HeaderName::from_static("x-quorumgate-endpoint"), name);
        }
        headers.insert(HeaderName::from_static("x-quorumgate-attempts"), attempts.into());
        if is_degraded {
            let all_open = HeaderValue::from_static("all-open");
            headers.insert(HeaderName::from_static("x-quorumgate-degraded"), all_open);
        }
        self.stamp(response, id)
    }

    /// Turns a refusal or a failure into the answer.
    pub(super) fn refuse(
        &self,
        error: ApiError,
        id: &HeaderValue,
        mut line: Line,
        pool: Option<&Pool>,
    ) -> Response<Body> {
        match pool {
            Some(pool) => self.meters.answered(&pool.meters, error.status.as_u16()),
            None => {
                let labels = [("reason", error.code)];
                self.meters.counter("admission_rejects_total", &labels).increment(1);
            }
        }
        line.blocked_reason = error.code;
        line.close(error.status.as_u16());
        let mut response = Response::new(Body::Full(Some(error.body())));
        *response.status_mut() = error.status;
        let headers = response.headers_mut();
        for (name, value) in error.headers() {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // A body that was refused half-way is not read to its end: the connection goes with it.
        if error.status == StatusCode::PAYLOAD_TOO_LARGE
            || error.status == StatusCode::REQUEST_TIMEOUT
        {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        self.stamp(response, id)
    }

    /// The configured models that the caller may ask, in OpenAI's form.
    pub(super) fn models(&self, caller: Option<&Caller>) -> Response<Body> {
        let pools = self.fleet.pools().iter().filter(|pool| may_ask(caller, pool));
        let names = pools.flat_map(|pool| std::iter::once(&pool.name).chain(&pool.aliases));
        let data: Vec<_> = names.map(|name| described(name)).collect();
        json(&serde_json::json!({ "object": "list", "data": data }))
    }

    /// One of them.
    ///
    /// # Errors
    /// `model_not_found`, also for one that the caller may not ask.
    pub(super) fn model(
        &self,
        name: &str,
        caller: Option<&Caller>,
    ) -> Result<Response<Body>, ApiError> {
        let pool = self.fleet.pool(name).filter(|pool| may_ask(caller, pool));
        pool.map(|_| json(&described(name))).ok_or_else(ApiError::model_not_found)
    }

    /// Adds what every answer carries.
    pub(super) fn stamp(&self, mut response: Response<Body>, id: &HeaderValue) -> Response<Body> {
        let headers = response.headers_mut();
        headers.insert(HeaderName::from_static("x-request-id"), id.clone());
        headers.insert(HeaderName::from_static("x-quorumgate-node"), self.node.clone());
        response
    }
}

fn may_ask(caller: Option<&Caller>, pool: &Pool) -> bool {
    caller.is_none_or(|caller| caller.may_ask(&pool.name))
}

/// A model in OpenAI's form.
fn described(name: &str) -> serde_json::Value {
    serde_json::json!({ "id": name, "object": "model", "created": 0, "owned_by": "quorumgate" })
}

fn json(value: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(Body::Full(Some(Bytes::from(value.to_string()))));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

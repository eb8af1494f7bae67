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
use super::{Body, Gate};
use crate::error::ApiError;
use crate::fleet::Pool;

impl Gate {
    /// Turns what was found into the answer.
    pub(super) fn answer(
        &self,
        served: Served,
        id: &HeaderValue,
        started: Instant,
        deadline: Instant,
        mut line: Line,
    ) -> Response<Body> {
        let Served { answer, pool, fallback, endpoint, is_degraded } = served;
        let attempts = line.attempts;
        line.upstream_status = answer.status.as_u16();
        line.fallback = fallback.as_ref().map(|pool| pool.name.clone());
        line.first_token = Some(started.elapsed());
        pool.meters.first_token.record(started.elapsed().as_secs_f64());
        self.meters.answered(&pool.meters, answer.status.as_u16());
        let status = answer.status.as_u16();
        let patience = Patience {
            idle: fallback.as_ref().unwrap_or(&pool).timeouts.idle,
            deadline,
            slow_at: answer.slow_at,
            pace_min: endpoint.config.rule.slow.min_tokens_per_second,
        };
        let duration = pool.meters.duration.clone();
        let on_end: relay::OnEnd = Box::new(move |end, _| {
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
        if let Some(name) = fallback.and_then(|pool| HeaderValue::from_str(&pool.name).ok()) {
            headers.insert(HeaderName::from_static("x-quorumgate-fallback"), name);
        }
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
        let attempts = line.attempts;
        line.close(error.status.as_u16());
        let mut response = Response::new(Body::Full(Some(error.body())));
        *response.status_mut() = error.status;
        let headers = response.headers_mut();
        if attempts > 0 {
            headers.insert(HeaderName::from_static("x-quorumgate-attempts"), attempts.into());
        }
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

    /// The configured models, in OpenAI's form.
    pub(super) fn models(&self) -> Response<Body> {
        let names = self
            .fleet
            .pools()
            .iter()
            .flat_map(|pool| std::iter::once(&pool.name).chain(&pool.aliases));
        let data: Vec<_> = names
            .map(|name| {
                serde_json::json!({
                    "id": name, "object": "model", "created": 0, "owned_by": "quorumgate",
                })
            })
            .collect();
        let body = serde_json::json!({ "object": "list", "data": data }).to_string();
        let mut response = Response::new(Body::Full(Some(Bytes::from(body))));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }

    /// Adds what every answer carries.
    pub(super) fn stamp(&self, mut response: Response<Body>, id: &HeaderValue) -> Response<Body> {
        let headers = response.headers_mut();
        headers.insert(HeaderName::from_static("x-request-id"), id.clone());
        headers.insert(HeaderName::from_static("x-quorumgate-node"), self.node.clone());
        response
    }
}

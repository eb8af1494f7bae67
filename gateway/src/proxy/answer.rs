//! What the client gets: the answer that was found, or the refusal, with the headers that are ours.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::time::Instant;

use super::attempt::Rest;
use super::dispatch::Served;
use super::log::Line;
use super::relay::{End, Events, OnEnd, Patience, Proof, Relay};
use super::route::Dialect;
use super::{Body, Gate, limit, request_id};
use crate::clock;
use crate::error::ApiError;
use crate::fleet::Pool;
use crate::keys::Caller;
use crate::limits::Place;

impl Gate {
    /// Turns what was found into the answer.
    pub(super) fn answer(
        &self,
        mut served: Served,
        id: &HeaderValue,
        started: Instant,
        deadline: Instant,
        line: Line,
        place: Place,
    ) -> Response<Body> {
        let mut response = Response::new(Body::Full(None));
        *response.status_mut() = served.answer.status;
        *response.headers_mut() = std::mem::take(&mut served.answer.headers);
        let headers = response.headers_mut();
        if let Ok(name) = HeaderValue::from_str(served.endpoint.key.as_str()) {
            headers.insert(HeaderName::from_static("x-quorumgate-endpoint"), name);
        }
        headers.insert(HeaderName::from_static("x-quorumgate-attempts"), line.attempts.into());
        let fallback = served.fallback.as_ref();
        if let Some(name) = fallback.and_then(|pool| HeaderValue::from_str(&pool.name).ok()) {
            headers.insert(HeaderName::from_static("x-quorumgate-fallback"), name);
        }
        if served.is_degraded {
            let all_open = HeaderValue::from_static("all-open");
            headers.insert(HeaderName::from_static("x-quorumgate-degraded"), all_open);
        }
        *response.body_mut() = self.body(served, started, deadline, line, place);
        self.stamp(response, id)
    }

    /// The body of the answer, which writes the request's line and counts at its last byte.
    pub(super) fn body(
        &self,
        served: Served,
        started: Instant,
        deadline: Instant,
        mut line: Line,
        mut place: Place,
    ) -> Body {
        let Served { answer, pool, fallback, endpoint, .. } = served;
        line.fallback = fallback.as_ref().map(|pool| pool.name.clone());
        let status = answer.status.as_u16();
        line.upstream_status = status;
        line.first_token = Some(started.elapsed());
        if answer.status.is_success() {
            pool.meters.first_token.record(started.elapsed().as_secs_f64());
        }
        self.meters.answered(&pool.meters, status);
        self.meters.overhead.record(line.overhead().as_secs_f64());
        if fallback.is_some() {
            pool.meters.fallbacks.increment(1);
        }
        let is_stream = matches!(answer.rest, Rest::Events(..));
        let patience = Patience {
            idle: fallback.as_ref().unwrap_or(&pool).timeouts.idle,
            deadline,
            slow_at: answer.slow_at,
            pace_min: endpoint.config.rule.slow.min_tokens_per_second,
            heartbeat: self.heartbeat.filter(|_| is_stream),
        };
        let events = Events::new(line.dialect, pool.meters.unreadable_events.clone());
        let (first_token_at, meters) = (clock::instant(), Arc::clone(&self.meters));
        let on_end: OnEnd = Box::new(move |end, usage| {
            let is_whole = is_stream && end == End::Complete;
            let streamed_for = is_whole.then(|| first_token_at.elapsed());
            pool.meters.duration.record(started.elapsed().as_secs_f64());
            pool.meters.count_tokens(usage.input, usage.output, streamed_for);
            meters.streams.ended(end, is_stream);
            // A stream holds its place to its last byte, or until the client leaves.
            limit::ended(&mut place, end, usage);
            line.usage = usage;
            line.end(status, end);
        });
        let (rest, events, guard, proof) = match answer.rest {
            Rest::Nothing(usage) => {
                on_end(End::Complete, usage);
                return Body::Full(answer.held.into_iter().next());
            }
            Rest::Events(rest, guard) => (rest, Some(events), guard, Proof::Event),
            Rest::Json(rest, guard) => (rest, None, guard, Proof::Json),
            Rest::Bytes(rest, guard) => (rest, None, guard, Proof::Nothing),
        };
        let proof = if answer.is_framed { Proof::Nothing } else { proof };
        let relay = Relay::new(answer.held, rest, events, guard, patience, on_end);
        Body::Relay(Box::new(relay.proven_by(proof)))
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
            Some(pool) => {
                self.meters.answered(&pool.meters, error.status.as_u16());
                self.meters.overhead.record(line.overhead().as_secs_f64());
            }
            None => {
                self.meters.rejects.count(error.code);
            }
        }
        let dialect = line.dialect;
        line.blocked_reason = error.code;
        let attempts = line.attempts;
        line.close(error.status.as_u16());
        let mut response = written(&error, dialect);
        let headers = response.headers_mut();
        if attempts > 0 {
            headers.insert(HeaderName::from_static("x-quorumgate-attempts"), attempts.into());
        }
        // Anthropic's clients look for it under their own name.
        if dialect == Dialect::Messages {
            headers.insert(HeaderName::from_static("request-id"), id.clone());
        }
        // A body that was refused half-way is not read to its end: the connection goes with it.
        if error.status == StatusCode::PAYLOAD_TOO_LARGE
            || error.status == StatusCode::REQUEST_TIMEOUT
        {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        self.stamp(response, id)
    }

    /// Turns away what could not be understood as a request.
    pub(crate) fn turn_away(&self, error: &ApiError) -> Response<Body> {
        self.meters.rejects.count(error.code);
        self.stamp(written(error, Dialect::Opaque), &request_id(&HeaderMap::new()))
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

/// An error with the headers that belong to it.
fn written(error: &ApiError, dialect: Dialect) -> Response<Body> {
    let mut response = Response::new(Body::Full(Some(error.body(dialect))));
    *response.status_mut() = error.status;
    let headers = response.headers_mut();
    for (name, value) in error.headers() {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
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

//! The routes below `/__admin/` by which a person or a test steers the mock.
//!
//! Faults have to be switched from outside the process too: by a walk-through with curl, by the
//! chaos scenarios, by a test that started the binary. All of it is JSON, and what is not
//! understood is refused with the name of the trouble rather than ignored.
//!
//! Invariants: these routes never meet a fault and are in no count; a refused change leaves the
//! behaviour as it was.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::answer::{AnswerBody, error_response, json_response};
use super::behaviour::Behaviour;
use super::ledger::masked;
use super::{LetGo, Mock, ReadBody, method_not_allowed, read_body};

/// The longest body of an admin request: 1 MiB, which bounds the behaviour's own `body` too.
const ADMIN_BODY_BYTES_MAX: usize = 1024 * 1024;
/// The status that `fail` switches on.
const FAIL_STATUS: u16 = 502;
/// The latency that `slow` switches on, in milliseconds.
const SLOW_LATENCY_MS: u64 = 20_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    fail: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Slow {
    slow: bool,
}

/// Answers an admin request.
///
/// # Errors
/// [`LetGo`] if the client goes away before its request is read.
pub(super) async fn respond(
    mock: &Mock,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, LetGo> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().strip_prefix("/__admin/").unwrap_or_default();
    let allowed = match path {
        "state" | "counts" | "requests" => Method::GET,
        "set" | "fail" | "slow" | "reset" | "reset_counts" => Method::POST,
        _ => return Ok(unknown_path()),
    };
    if head.method != allowed {
        return Ok(method_not_allowed(if allowed == Method::GET { "GET" } else { "POST" }));
    }
    let body = match read_body(body, ADMIN_BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(ReadBody::TooLong) => {
            return Ok(error_response(StatusCode::PAYLOAD_TOO_LARGE, "The body is too long."));
        }
        Err(ReadBody::Broken) => return Err(LetGo),
    };
    Ok(match path {
        "counts" => ok(&json!(mock.counts())),
        "requests" => ok(&json!(mock.requests())),
        "reset_counts" => {
            mock.reset_counts();
            ok(&json!(mock.counts()))
        }
        "set" => changed(mock, set(mock, &body)),
        "fail" => changed(mock, fail(mock, &body)),
        "slow" => changed(mock, slow(mock, &body)),
        "reset" => {
            mock.set(Behaviour::default());
            changed(mock, Ok(()))
        }
        // What is left of the paths above is `state`.
        _ => changed(mock, Ok(())),
    })
}

fn ok(value: &Value) -> Response<AnswerBody> {
    json_response(StatusCode::OK, value)
}

fn unknown_path() -> Response<AnswerBody> {
    let message = "There are GET /__admin/{state,counts,requests} and POST \
        /__admin/{set,fail,slow,reset,reset_counts}.";
    error_response(StatusCode::NOT_FOUND, message)
}

/// Answers a change with the state after it.
fn changed(mock: &Mock, change: Result<(), String>) -> Response<AnswerBody> {
    if let Err(reason) = change {
        return error_response(StatusCode::BAD_REQUEST, &reason);
    }
    let mut behaviour = mock.behaviour();
    // The key is for comparing; whoever has set it knows it.
    behaviour.require_key = behaviour.require_key.as_deref().map(masked);
    ok(&json!(behaviour))
}

fn set(mock: &Mock, body: &Bytes) -> Result<(), String> {
    let changes: Map<String, Value> = read(body)?;
    // One lock for reading and writing, so that two changes at once both hold.
    let mut behaviour = mock.lock_behaviour();
    *behaviour = behaviour.with_changes(changes)?;
    Ok(())
}

fn fail(mock: &Mock, body: &Bytes) -> Result<(), String> {
    let Fail { fail } = read(body)?;
    mock.lock_behaviour().status = fail.then_some(FAIL_STATUS);
    Ok(())
}

fn slow(mock: &Mock, body: &Bytes) -> Result<(), String> {
    let Slow { slow } = read(body)?;
    mock.lock_behaviour().latency_ms = slow.then_some(SLOW_LATENCY_MS);
    Ok(())
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

//! Attempts that gave no answer: what that says about the endpoint, and what the client hears.
//!
//! Invariant: whoever makes a failure has settled the admission.

use std::time::Duration;

use breaker::{Cause, Outcome, SlowKind};
use hyper::StatusCode;

use super::{COOL_CREDENTIAL, COOL_DEFAULT};
use crate::clock;
use crate::config::StatusClass;
use crate::error::ApiError;
use crate::fleet::Admission;
use crate::metrics::UpstreamError;
use crate::upstream::SendError;

/// Who finds that this node has nothing left for a connection is told to come back after this long.
const OWN_PAUSE: Duration = Duration::from_secs(1);

/// What kind of failure an attempt was: whether another endpoint, or the same one again, may be asked
/// depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum FailureKind {
    /// No connection could be made.
    Refused,
    /// There was nothing here to make a connection of, which is no endpoint's fault.
    Own,
    /// The connection broke before the answer could be passed on.
    Cut,
    /// A limit of time has passed.
    Timeout,
    /// The answer was not one.
    Malformed,
    /// The endpoint refuses the gateway's credential, by this status.
    Auth(u16),
    /// The endpoint is at a limit, by this status.
    Limited(u16),
    /// A fault by this status.
    Status(u16),
    /// The request's own, in a form that cannot be passed on.
    Neutral,
}

/// An attempt that gave no answer.
pub(in crate::proxy) struct Failure {
    /// What to tell the client if this was the last attempt.
    pub(in crate::proxy) error: ApiError,
    /// What kind of failure it was.
    pub(in crate::proxy) kind: FailureKind,
    /// The status that the endpoint gave; 0: no answer, or one that was none.
    pub(in crate::proxy) upstream_status: u16,
}

impl Failure {
    pub(super) fn new(kind: FailureKind, error: ApiError) -> Self {
        Self { error, kind, upstream_status: 0 }
    }
}

/// The status by which the client hears of a failure that is not its own: one that blames the client,
/// or that the official clients retry by themselves, would mislead it.
pub(super) fn told(status: StatusCode) -> StatusCode {
    let is_clients = status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS;
    if is_clients { StatusCode::BAD_GATEWAY } else { status }
}

/// The endpoint is at a limit: it is left alone for a while, and nothing is held against it.
pub(super) fn limited(admission: Admission, status: StatusCode, pause: Duration) -> Failure {
    let now = clock::now();
    let pause = admission.endpoint().limit(now, pause);
    admission.endpoint().meters.error(UpstreamError::of_limit(status.as_u16()));
    admission.settle(now, Outcome::Neutral);
    let error = if status == StatusCode::TOO_MANY_REQUESTS {
        ApiError::all_limited(pause)
    } else {
        ApiError::upstream_error(told(status))
    };
    Failure::new(FailureKind::Limited(status.as_u16()), error.retry_after(pause))
}

/// The endpoint refuses our credential, which is for an operator to mend and no client's concern. A
/// 401 is about nothing else; of another status the first may be about what this client asked for.
pub(super) fn unauthorised(admission: Admission, status: StatusCode) -> Failure {
    let (now, endpoint) = (clock::now(), admission.endpoint());
    let is_certain = if status == StatusCode::UNAUTHORIZED {
        endpoint.refuse_credential(now, COOL_CREDENTIAL);
        true
    } else {
        endpoint.deny(now, COOL_CREDENTIAL)
    };
    if is_certain {
        tracing::error!(endpoint = %endpoint.key, status = status.as_u16(),
            "the endpoint refuses our credential");
    } else {
        tracing::warn!(endpoint = %endpoint.key, status = status.as_u16(),
            "the endpoint denies a request, or refuses our credential");
    }
    endpoint.meters.error(UpstreamError::Credential);
    admission.settle(now, Outcome::Neutral);
    let message = "The model refused the gateway's credential.";
    let error = ApiError::new(StatusCode::BAD_GATEWAY, "upstream_auth", message);
    Failure::new(FailureKind::Auth(status.as_u16()), error)
}

/// A fault, told so.
pub(super) fn faulty(
    admission: Admission,
    cause: Cause,
    kind: FailureKind,
    error: ApiError,
) -> Failure {
    admission.settle(clock::now(), Outcome::Fault { weight: 1.0, cause });
    Failure::new(kind, error)
}

/// A limit of time has passed. A request that was already evidence of slowness is no fault besides:
/// a burst that times out together must stay one piece of evidence. One that `is_cut` by the overall
/// limit of its request before it was slow had too little time left by earlier attempts or by the
/// client, which says nothing about the endpoint.
pub(super) fn timed_out(admission: Admission, is_cut: bool) -> Failure {
    let outcome = match (admission.is_slow(), is_cut) {
        (true, _) => Outcome::Slow(SlowKind::Total),
        (false, true) => Outcome::Neutral,
        (false, false) => Outcome::Fault { weight: 1.0, cause: Cause::Timeout },
    };
    if !matches!(outcome, Outcome::Fault { .. }) {
        admission.endpoint().meters.error(UpstreamError::Timeout);
    }
    admission.settle(clock::now(), outcome);
    Failure::new(FailureKind::Timeout, ApiError::upstream_timeout())
}

/// What came was no answer.
pub(super) fn malformed(admission: Admission, cause: Cause) -> Failure {
    let message = "The model's answer was not one.";
    let kind = if cause == Cause::Cut { FailureKind::Cut } else { FailureKind::Malformed };
    faulty(
        admission,
        cause,
        kind,
        ApiError::new(StatusCode::BAD_GATEWAY, "upstream_error", message),
    )
}

/// The connection failed before the response head.
pub(super) fn broken(admission: Admission, error: SendError) -> Failure {
    tracing::debug!(endpoint = %admission.endpoint().key, %error, "no answer");
    let (cause, kind) = match error {
        SendError::Connect(error) if error.is_ours() => {
            // Nothing was sent, which says nothing about the endpoint.
            admission.withdraw();
            return Failure::new(FailureKind::Own, ApiError::all_full(OWN_PAUSE));
        }
        SendError::Connect(_) => (Cause::Refused, FailureKind::Refused),
        SendError::Broken => (Cause::Cut, FailureKind::Cut),
        SendError::Malformed(_) => return malformed(admission, Cause::Malformed),
    };
    faulty(admission, cause, kind, ApiError::upstream_unavailable())
}

/// Whether the official clients ask again by themselves after an answer that is the request's own fault.
pub(super) fn is_retried(status: StatusCode) -> bool {
    [StatusCode::REQUEST_TIMEOUT, StatusCode::CONFLICT].contains(&status)
}

/// An error inside a 200 counts as the status that it speaks of.
pub(in crate::proxy) fn embedded(admission: Admission, status: Option<u16>) -> Failure {
    let Some(status) = status.and_then(|status| StatusCode::from_u16(status).ok()) else {
        return malformed(admission, Cause::Malformed);
    };
    let code = status.as_u16();
    match admission.endpoint().config.codes.class(code) {
        StatusClass::Capacity => limited(admission, status, COOL_DEFAULT),
        StatusClass::Credential => unauthorised(admission, status),
        StatusClass::Neutral => {
            admission.settle(clock::now(), Outcome::Neutral);
            let told = if is_retried(status) { StatusCode::BAD_GATEWAY } else { status };
            Failure::new(FailureKind::Neutral, ApiError::upstream_error(told))
        }
        StatusClass::Fault => {
            let failure = malformed(admission, Cause::Status(code));
            Failure { kind: FailureKind::Status(code), ..failure }
        }
    }
}

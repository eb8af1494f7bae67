//! One request on its way through the faults to its answer.
//!
//! Every fault that comes before the body of a healthy answer is decided here, in one place and
//! one order, so that two faults set together mean the same on every route.
//!
//! Invariants: a model request is in the books from its head on, and leaves them once.

use std::future::pending;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Request, Response, StatusCode};
use tokio::time::sleep;

use super::answer::{
    self, AnswerBody, Content, content_type_of, error_response, json_response, open_response,
    refusal, whole_response,
};
use super::behaviour::{Behaviour, Closing, Hang, pause};
use super::ledger::Entry;
use super::question::Question;
use super::reply::{Reply, Shape};
use super::route::Route;
use super::stream::Events;
use super::{BODY_BYTES_MAX, LetGo, Mock, ReadBody, ResetOrder, read_body, whole};

/// Answers `GET /health` and `GET /v1/models`, which meet the faults but are not in the books.
pub(super) async fn plain_request(
    mock: &Mock,
    reset_order: ResetOrder,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, LetGo> {
    let mut behaviour = mock.behaviour();
    if behaviour.spare_health || behaviour.fail_next == Some(0) {
        behaviour = behaviour.without_faults();
    }
    let is_health = request.uri().path() == "/health";
    if is_health {
        // A health check carries no key.
        behaviour.require_key = None;
    }
    let answer = if is_health {
        serde_json::json!({"status": "ok", "name": mock.shared.name})
    } else {
        answer::models(&mock.shared.name)
    };
    before_head(&behaviour, &reset_order).await?;
    let response = misbehaviour(&behaviour, Route::Other, request.headers(), false)
        .unwrap_or_else(|| json_response(StatusCode::OK, &answer));
    Ok(with_retry_after(response, &behaviour))
}

/// Answers `GET /metrics`, which meets the faults before the head unless health is spared.
pub(super) async fn metrics(
    mock: &Mock,
    reset_order: ResetOrder,
) -> Result<Response<AnswerBody>, LetGo> {
    let behaviour = mock.behaviour();
    if !behaviour.spare_health {
        before_head(&behaviour, &reset_order).await?;
    }
    Ok(match behaviour.cache_usage_percent {
        Some(percent) => whole_response(
            StatusCode::OK,
            "text/plain; version=0.0.4",
            Bytes::from(answer::metrics(percent)),
        ),
        None => error_response(StatusCode::NOT_FOUND, "There is no such route."),
    })
}

/// Answers a POST below `/v1/` and keeps the books.
pub(super) async fn model_request(
    mock: &Mock,
    reset_order: ResetOrder,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, LetGo> {
    let (head, body) = request.into_parts();
    let entry = mock.shared.ledger.begin(&head);
    let body = match read_body(body, BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(ReadBody::TooLong) => {
            let route = Route::of(head.uri.path());
            let response = refusal(route, StatusCode::PAYLOAD_TOO_LARGE, "The body is too long.");
            return Ok(accounted(response, entry, reset_order, Closing::Close));
        }
        // Nobody is left to be answered; the dropped entry counts as aborted.
        Err(ReadBody::Broken) => return Err(LetGo),
    };
    let behaviour = mock.lock_behaviour().take();
    mock.shared.ledger.record(&head, &body, behaviour.show_keys);
    if let Err(let_go) = before_head(&behaviour, &reset_order).await {
        entry.cut_short();
        return Err(let_go);
    }
    let response = model_answer(mock, &behaviour, &head, &body);
    let response = with_retry_after(response, &behaviour);
    Ok(accounted(response, entry, reset_order, behaviour.closing))
}

fn accounted(
    mut response: Response<AnswerBody>,
    entry: Entry,
    reset_order: ResetOrder,
    closing: Closing,
) -> Response<AnswerBody> {
    response.body_mut().account(entry, reset_order, closing);
    response
}

/// Lives through the faults that come before any byte of an answer.
async fn before_head(behaviour: &Behaviour, reset_order: &ResetOrder) -> Result<(), LetGo> {
    if let Some(pause) = pause(behaviour.latency_ms) {
        sleep(pause).await;
    }
    if behaviour.hang == Some(Hang::Accept) {
        // hyper drops this future when the client goes away, and `serve` drops all.
        return pending().await;
    }
    if behaviour.reset {
        reset_order.ask(behaviour.closing);
        return Err(LetGo);
    }
    Ok(())
}

/// Returns the answer that stands for a healthy one, if the behaviour wants that.
fn misbehaviour(
    behaviour: &Behaviour,
    route: Route,
    headers: &HeaderMap,
    is_stream: bool,
) -> Option<Response<AnswerBody>> {
    if behaviour.require_key.as_deref().is_some_and(|key| !carries_key(headers, key)) {
        let message = "The key is missing or wrong.";
        return Some(refusal(route, StatusCode::UNAUTHORIZED, message));
    }
    let status = behaviour.status.map(|status| {
        // 1xx is no answer, and neither is a number that is no status.
        StatusCode::from_u16(status)
            .ok()
            .filter(|status| !status.is_informational())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    });
    if let Some(body) = &behaviour.body {
        let content_type = content_type_of(body, is_stream);
        let status = status.unwrap_or(StatusCode::OK);
        return Some(whole_response(status, content_type, Bytes::from(body.clone())));
    }
    if let Some(status) = status {
        return Some(refusal(route, status, "The mock was told to fail."));
    }
    behaviour.hang.map(|_| open_response(media_type(is_stream), Content::Silence))
}

/// Whether the key is there as OpenAI, Anthropic or Azure wants it.
fn carries_key(headers: &HeaderMap, key: &str) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(AUTHORIZATION.as_str()).and_then(|value| value.split_once(' '));
    bearer.is_some_and(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && token == key)
        || ["x-api-key", "api-key"].into_iter().any(|name| text(name) == Some(key))
}

fn with_retry_after(
    mut response: Response<AnswerBody>,
    behaviour: &Behaviour,
) -> Response<AnswerBody> {
    let value = behaviour.retry_after.as_deref().map(HeaderValue::from_str);
    if let Some(Ok(value)) = value {
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    response
}

fn media_type(is_stream: bool) -> &'static str {
    if is_stream { "text/event-stream" } else { "application/json" }
}

/// Makes the answer to a model request whose body has arrived.
fn model_answer(
    mock: &Mock,
    behaviour: &Behaviour,
    head: &Parts,
    body: &Bytes,
) -> Response<AnswerBody> {
    let path = head.uri.path();
    let route = Route::of(path);
    let question = read_question(route, &head.headers, body);
    let is_stream = question.as_ref().is_ok_and(|question| question.stream == Some(true));
    if let Some(response) = misbehaviour(behaviour, route, &head.headers, is_stream) {
        return response;
    }
    let answered = match question {
        // Forms of routes it does not know; their bytes have no place in a JSON answer.
        Err(_) if route == Route::Other && !claims_json(&head.headers) => {
            let echo = answer::echo(path, b"null");
            return whole_response(StatusCode::OK, media_type(false), echo);
        }
        Ok(_) if route == Route::Other => {
            return whole_response(StatusCode::OK, media_type(false), answer::echo(path, body));
        }
        Ok(question) => healthy(mock, behaviour, route, &question, body.len()),
        Err(reason) => Err(format!("The body cannot be read: {reason}")),
    };
    answered.unwrap_or_else(|reason| refusal(route, StatusCode::BAD_REQUEST, &reason))
}

fn read_question<'a>(
    route: Route,
    headers: &HeaderMap,
    body: &'a [u8],
) -> Result<Question<'a>, String> {
    if !route.takes_form() {
        return Question::read(body);
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Question::read_form(content_type.unwrap_or_default(), body)
}

/// Makes the answer of a healthy server.
///
/// # Errors
/// A sentence for the caller if the question is none.
fn healthy(
    mock: &Mock,
    behaviour: &Behaviour,
    route: Route,
    question: &Question<'_>,
    body_bytes: usize,
) -> Result<Response<AnswerBody>, String> {
    let model = question.model.as_deref().ok_or("The body names no model.")?;
    let number = mock.shared.answers.fetch_add(1, Ordering::Relaxed);
    let Some(shape) = Shape::of(route, question) else {
        let value = match route {
            Route::Rerank => whole::ranking(question, model, body_bytes, number),
            Route::Moderations => whole::moderation(question, model, number),
            Route::CountTokens => whole::count(body_bytes),
            Route::Chat
            | Route::Completions
            | Route::Responses
            | Route::Messages
            | Route::Images
            | Route::ImageForms
            | Route::Speech
            | Route::Transcriptions
            | Route::Embeddings
            | Route::Other => whole::embeddings(question, model, body_bytes),
        };
        return Ok(json_response(StatusCode::OK, &value));
    };
    let reply = Reply::new(shape, question, model, body_bytes, number, behaviour)?;
    if question.stream == Some(true) || reply.is_always_stream() {
        let content_type = reply.stream_type();
        let events = Events::new(reply, behaviour);
        return Ok(open_response(content_type, Content::Events(Box::new(events))));
    }
    let (content_type, body) = reply.whole();
    Ok(whole_response(StatusCode::OK, content_type, body))
}

/// A body without a content type is taken for JSON, as a person with a terminal may forget it.
fn claims_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_none_or(|value| {
        value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("json"))
    })
}

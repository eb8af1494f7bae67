//! Traces as a collector gets them, read by the types generated from OpenTelemetry's own schema.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use gateway::mock::{Behaviour, Mock};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, status};
use prost::Message;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::local;
use crate::local::{Ask, House, Plan, mock, nobody, until};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const SECRET: &str = "sk-nobody-may-see-this";

/// A collector that keeps what it is told.
#[derive(Clone, Default)]
struct Collector {
    calls: Arc<Mutex<Vec<(String, Bytes)>>>,
    status: Option<u16>,
    is_deaf: bool,
}

impl Collector {
    async fn start(self) -> (SocketAddr, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let own = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let own = own.clone();
                let service = service_fn(move |request| own.clone().hear(request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        (address, self)
    }

    async fn hear(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        assert_eq!(head.headers.get("content-type").unwrap(), "application/x-protobuf");
        let body = body.collect().await.unwrap().to_bytes();
        self.calls.lock().unwrap().push((head.uri.path().to_owned(), body));
        if self.is_deaf {
            std::future::pending::<()>().await;
        }
        let status = self.status.unwrap_or(200);
        Ok(Response::builder().status(status).body(Full::default()).unwrap())
    }

    fn bytes(&self) -> Vec<u8> {
        self.calls.lock().unwrap().iter().flat_map(|(_, body)| body.clone()).collect()
    }

    /// Every span that it was told, with the service's attributes.
    fn spans(&self) -> Vec<(Vec<KeyValue>, Span)> {
        let mut all = Vec::new();
        for (path, body) in self.calls.lock().unwrap().iter() {
            assert_eq!(path, "/v1/traces");
            for service in ExportTraceServiceRequest::decode(body.clone()).unwrap().resource_spans {
                let resource = service.resource.unwrap().attributes;
                let spans = service.scope_spans.into_iter().flat_map(|scope| scope.spans);
                all.extend(spans.map(|span| (resource.clone(), span)));
            }
        }
        all
    }

    async fn has(&self, count: usize) -> Vec<Span> {
        until("the spans arrive", || self.spans().len() >= count).await;
        let spans = self.spans();
        assert_eq!(spans.len(), count);
        spans.into_iter().map(|(_, span)| span).collect()
    }
}

fn attribute(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|one| one.key == key);
    match found.and_then(|one| one.value.clone()).and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn telemetry(collector: SocketAddr, more: &str) -> String {
    format!("telemetry: {{ otlp: {{ endpoint: \"http://{collector}\", {more} }} }}")
}

/// A gateway that tells the collector, over one mock.
async fn traced(more: &str) -> (House, Mock, Collector) {
    let (address, a) = mock("a").await;
    let (at, collector) = Collector::default().start().await;
    let plan = Plan::of(&[("a", address)]).top(&telemetry(at, more));
    (plan.start().await, a, collector)
}

/// A header of the last request that an endpoint got.
fn seen(mock: &Mock, name: &str) -> Option<String> {
    let last = mock.requests().pop()?;
    let mut headers = last.headers.into_iter();
    headers.find(|(known, _)| known == name).map(|(_, value)| value)
}

fn parent_seen(mock: &Mock) -> Option<String> {
    seen(mock, "traceparent")
}

#[tokio::test]
async fn a_request_is_one_span_and_each_attempt_another_below_it() {
    let (down, b) = mock("b").await;
    let (up, a) = mock("a").await;
    let (at, collector) = Collector::default().start().await;
    b.set(Behaviour { status: Some(500), ..Behaviour::default() });
    let house = Plan::of(&[])
        .top(&telemetry(at, "sample: 0, service_name: gw"))
        .endpoint("b", down, &format!(", api_key: {SECRET}"))
        .endpoint("a", up, ", priority: 1, upstream_model: llama, kind: vllm")
        .start()
        .await;
    let ask = Ask::chat()
        .header("traceparent", PARENT)
        .header("tracestate", "vendor=1")
        .header("x-agent-id", "agent-7")
        .header("authorization", &format!("Bearer {SECRET}"));
    assert_eq!(house.send(ask).await.endpoint(), "demo/a");
    let spans = collector.has(3).await;
    let of_kind = |kind: SpanKind| spans.iter().filter(move |span| span.kind() == kind);
    let server = of_kind(SpanKind::Server).next().unwrap();
    assert_eq!(hex(&server.trace_id), &PARENT[3..35]);
    assert_eq!(hex(&server.parent_span_id), &PARENT[36..52]);
    assert_eq!(server.name, "chat demo");
    let told = |key: &str| attribute(&server.attributes, key);
    assert_eq!(told("gen_ai.operation.name"), "chat");
    assert_eq!(told("gen_ai.request.model"), "demo");
    assert_eq!(told("gen_ai.agent.id"), "agent-7");
    assert_eq!(told("http.response.status_code"), "200");
    assert_eq!(
        (told("quorumgate.endpoint"), told("quorumgate.attempts")),
        ("demo/a".into(), "2".into())
    );
    assert!(
        !told("gen_ai.usage.input_tokens").is_empty()
            && !told("gen_ai.usage.output_tokens").is_empty()
    );
    let attempts: Vec<&Span> = of_kind(SpanKind::Client).collect();
    let [failed, served] = attempts.as_slice() else { unreachable!("{attempts:?}") };
    for attempt in [failed, served] {
        assert_eq!(attempt.trace_id, server.trace_id);
        assert_eq!(attempt.parent_span_id, server.span_id);
        assert!(server.start_time_unix_nano <= attempt.start_time_unix_nano);
        assert!(attempt.start_time_unix_nano <= attempt.end_time_unix_nano);
        assert!(attempt.end_time_unix_nano <= server.end_time_unix_nano);
    }
    assert_eq!(failed.status.as_ref().unwrap().code(), status::StatusCode::Error);
    assert_eq!(attribute(&failed.attributes, "error.type"), "status");
    assert_eq!(attribute(&failed.attributes, "http.response.status_code"), "500");
    assert_eq!(attribute(&served.attributes, "gen_ai.request.model"), "llama");
    assert_eq!(attribute(&served.attributes, "server.port"), up.port().to_string());
    assert!(served.status.is_none());
    // Each endpoint was given its own attempt as the parent.
    for (mock, span) in [(&b, failed), (&a, served)] {
        let expected = format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id));
        assert_eq!(parent_seen(mock), Some(expected));
    }
    let (resource, _) = collector.spans().remove(0);
    assert_eq!(attribute(&resource, "service.name"), "gw");
    assert_eq!(attribute(&resource, "service.instance.id"), "single");
    let bytes = collector.bytes();
    for never in [SECRET, "hello", "messages"] {
        let is_there = bytes.windows(never.len()).any(|window| window == never.as_bytes());
        assert!(!is_there, "{never}");
    }
}

#[tokio::test]
async fn the_sender_of_a_trace_decides_whether_it_is_recorded() {
    let (house, a, collector) = traced("sample: 1").await;
    let quiet = PARENT.replace("-01", "-00");
    assert_eq!(house.send(Ask::chat().header("traceparent", &quiet)).await.status, 200);
    assert_eq!(parent_seen(&a), Some(quiet), "as it came");
    // What comes without is a trace of its own.
    assert_eq!(house.ask().await.status, 200);
    let spans = collector.has(2).await;
    assert!(spans.iter().all(|span| hex(&span.trace_id) != PARENT[3..35]));
    let server = spans.iter().find(|span| span.kind() == SpanKind::Server).unwrap();
    assert!(server.parent_span_id.is_empty());
}

#[tokio::test]
async fn a_malformed_parent_begins_a_new_trace_and_goes_no_further() {
    for (sample, is_recorded) in [("sample: 1", true), ("sample: 0", false)] {
        let (house, a, collector) = traced(sample).await;
        let ask = Ask::chat().header("traceparent", "00-1-2-01").header("tracestate", "vendor=1");
        assert_eq!(house.send(ask).await.status, 200);
        assert_eq!(seen(&a, "tracestate"), None);
        assert_eq!(parent_seen(&a).is_some(), is_recorded);
        assert_ne!(parent_seen(&a).as_deref(), Some("00-1-2-01"));
        if is_recorded {
            collector.has(2).await;
        }
    }
}

#[tokio::test]
async fn what_is_refused_and_what_breaks_off_is_told_as_an_error() {
    let (house, a, collector) = traced("sample: 1").await;
    let no = r#"{"model":"no","messages":[]}"#;
    assert_eq!(house.send(Ask::post("/v1/chat/completions", no)).await.status, 404);
    let refused = collector.has(1).await.remove(0);
    assert_eq!(refused.name, "chat");
    assert_eq!(attribute(&refused.attributes, "error.type"), "model_not_found");
    a.set(Behaviour { cut_after_tokens: Some(2), ..Behaviour::default() });
    assert!(!house.ask_stream().await.is_clean);
    let spans = collector.has(3).await;
    let broken = spans.iter().filter(|span| span.status.is_some());
    assert_eq!(broken.count(), 2, "the attempt and the request: {spans:?}");
}

async fn lost(house: &House) -> u64 {
    let page = Ask::get("/metrics").send(house.app.admin_address).await;
    let lines = page.text().lines().filter(|line| line.starts_with("quorumgate_spans_lost_total"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn a_collector_that_is_gone_or_against_it_costs_spans_only() {
    let (against, _) = Collector { status: Some(503), ..Collector::default() }.start().await;
    for collector in [nobody().await, against] {
        let (address, _) = mock("a").await;
        let plan =
            Plan::of(&[("a", address)]).top(&telemetry(collector, "sample: 1, timeout: 100ms"));
        let house = plan.start().await;
        for _ in 0..10 {
            assert_eq!(house.ask().await.status, 200);
        }
        let deadline = Instant::now() + local::PATIENCE;
        while lost(&house).await < 20 {
            assert!(Instant::now() < deadline, "{}", lost(&house).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(lost(&house).await, 20);
    }
}

#[tokio::test]
async fn at_the_end_what_waits_is_told_within_two_seconds_or_not_at_all() {
    for is_deaf in [false, true] {
        let (at, collector) = Collector { is_deaf, ..Collector::default() }.start().await;
        let (address, _) = mock("a").await;
        let plan = Plan::of(&[("a", address)]).top(&telemetry(at, "sample: 1, timeout: 60s"));
        let house = plan.start_as(|config| config.server.drain_delay = Duration::ZERO).await;
        assert_eq!(house.ask().await.status, 200);
        let began = Instant::now();
        house.app.shutdown().await;
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        assert_eq!(collector.spans().len(), 2);
    }
}

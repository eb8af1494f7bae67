//! Writes the effective configuration: every setting with the value that holds, as YAML.
//!
//! It is what `check` prints and what the fingerprint of a configuration is taken from. It fills
//! the same tables that reading fills, so the result can be read again.
//!
//! Invariants: reading the result gives an equal configuration, secrets apart; a secret is only
//! ever its mask; what a model's endpoints have in common stands at the model, the rest at each.

mod cluster;

use std::path::{Path, PathBuf};
use std::time::Duration;

use breaker::{Mode, P95Rule, Recovery, SlowRule};

use self::cluster::{cluster, redis};
use super::{
    AdminSection, ApiKeySection, At, CircuitSection, CorsSection, EndpointSection,
    FailClosedSection, FailoverSection, File, Given, HalfOpenSection, LimitsSection, List,
    LogSection, ModelSection, OpenSection, OtlpSection, P95Section, Place, ProbeSection,
    RampSection, RetrySection, Scalar, ServerSection, ServerTimeoutsSection, ServerTlsSection,
    SlowSection, StateSection, TelemetrySection, TenantSection, TimeoutsSection,
    UpstreamTlsSection,
};
use crate::config::scalar::{duration_text, escape, size_text};
use crate::config::{
    Admin, ApiKey, Cluster, Config, Cors, Endpoint, FailClosed, FailoverOn, Limits, Log, LogFormat,
    MASK, OnAllOpen, Otlp, Policy, Pool, Probe, Protocol, Retry, Server, ServerTls, StateFile,
    Timeouts, Tokenizer, UpstreamTls,
};

/// Writes `config` as YAML, secrets masked.
pub(in crate::config) fn effective(config: &Config) -> String {
    let file = File {
        server: Given::written(server(&config.server)),
        admin: Given::written(admin(&config.admin)),
        cluster: optional(config.cluster.as_ref(), cluster),
        redis: optional(config.cluster.as_ref().and_then(Cluster::redis), redis),
        state: optional(config.state.as_ref(), state),
        fail_closed: Given::written(fail_closed(&config.fail_closed)),
        api_keys: match config.api_keys.as_slice() {
            [] => Given::default(),
            keys => Given::written(list(keys.iter().map(api_key))),
        },
        retry: Given::written(retry(&config.retry)),
        failover: failover(&config.retry.failover_on),
        models: Given::written(list(config.pools.iter().map(model))),
        log: Given::written(log(&config.log)),
        telemetry: optional(config.telemetry.as_ref(), telemetry),
        ..File::default()
    };
    // Writing text into memory cannot fail; an error here would be a table that YAML cannot hold.
    let written = serde_saphyr::to_string(&file);
    debug_assert!(written.is_ok(), "the tables hold only text and numbers");
    written.unwrap_or_default()
}

fn optional<T, S>(value: Option<&T>, write: impl Fn(&T) -> S) -> Given<S> {
    value.map_or_else(Given::default, |value| Given::written(write(value)))
}

fn text(value: &str) -> Given<Scalar> {
    Given::written(Scalar(escape(value)))
}

fn optional_text(value: Option<&String>) -> Given<Scalar> {
    value.map_or_else(Given::default, |value| text(value))
}

fn number(value: impl ToString) -> Given<Scalar> {
    Given::written(Scalar(value.to_string()))
}

fn optional_number(value: Option<impl ToString>) -> Given<Scalar> {
    value.map_or_else(Given::default, number)
}

fn duration(value: Duration) -> Given<Scalar> {
    Given::written(Scalar(duration_text(value)))
}

/// A limit that is not set must be written, or the reader would take the inherited one.
fn limit(value: Option<Duration>) -> Given<Scalar> {
    value.map_or_else(|| text("off"), duration)
}

/// As `limit`, for a limit without a unit.
fn number_limit(value: Option<f64>) -> Given<Scalar> {
    value.map_or_else(|| text("off"), number)
}

fn optional_path(value: Option<&PathBuf>) -> Given<Scalar> {
    value.map_or_else(Given::default, |value| path(value))
}

fn masked<T>(secret: Option<&T>) -> Given<Scalar> {
    secret.map_or_else(Given::default, |_| text(MASK))
}

fn path(value: &Path) -> Given<Scalar> {
    // Paths come from a text file, so nothing is lost here.
    text(&value.to_string_lossy())
}

fn list<T, const MAX: usize>(entries: impl Iterator<Item = T>) -> List<T, MAX> {
    let place = Place::START;
    List(entries.map(|value| At { value, place }).collect())
}

fn texts<const MAX: usize>(entries: &[String]) -> Given<List<Scalar, MAX>> {
    Given::written(list(entries.iter().map(|entry| Scalar(escape(entry)))))
}

fn numbers<const MAX: usize>(entries: &[u16]) -> Given<List<Scalar, MAX>> {
    Given::written(list(entries.iter().map(|entry| Scalar(entry.to_string()))))
}

fn server(server: &Server) -> ServerSection {
    ServerSection {
        listen: text(&server.listen.to_string()),
        tls: optional(server.tls.as_ref(), |ServerTls { cert, key }| ServerTlsSection {
            cert: path(cert),
            key: path(key),
        }),
        cors: optional(server.cors.as_ref(), |Cors { origins, max_age_seconds }| CorsSection {
            origins: texts(origins),
            max_age: duration(Duration::from_secs(u64::from(*max_age_seconds))),
        }),
        max_body: text(&size_text(u64::try_from(server.max_body_bytes).unwrap_or(u64::MAX))),
        max_body_memory: text(&size_text(
            u64::try_from(server.max_body_memory_bytes).unwrap_or(u64::MAX),
        )),
        workers: number(server.workers),
        max_connections: number(server.max_connections),
        timeouts: Given::written(ServerTimeoutsSection {
            first_byte: duration(server.first_byte_timeout),
            headers: duration(server.header_timeout),
            body_idle: duration(server.body_idle),
            keep_alive: duration(server.keep_alive),
            write_stall: duration(server.write_stall),
        }),
        heartbeat: limit(server.heartbeat),
        drain_delay: duration(server.drain_delay),
        drain_timeout: duration(server.drain_timeout),
    }
}

fn admin(admin: &Admin) -> AdminSection {
    AdminSection {
        listen: text(&admin.listen.to_string()),
        token: masked(admin.token.as_ref()),
        read_token: masked(admin.read_token.as_ref()),
        protect_metrics: text(&admin.protect_metrics.to_string()),
    }
}

fn state(state: &StateFile) -> StateSection {
    StateSection { file: path(&state.path), every: duration(state.every) }
}

fn fail_closed(fail_closed: &FailClosed) -> FailClosedSection {
    let tokenizer = fail_closed.tokenizer.map(|tokenizer| match tokenizer {
        Tokenizer::Cl100kBase => "cl100k_base",
        Tokenizer::O200kBase => "o200k_base",
    });
    FailClosedSection {
        require_header: optional_text(fail_closed.require_header.as_ref()),
        allowed_paths: fail_closed
            .allowed_paths
            .as_ref()
            .map_or_else(Given::default, |paths| texts(paths)),
        max_messages: optional_number(fail_closed.max_messages),
        max_input_tokens: optional_number(fail_closed.max_input_tokens),
        tokenizer: text(tokenizer.unwrap_or("off")),
        max_n: number(fail_closed.max_n),
    }
}

/// A digest is no secret, and a fleet whose nodes know different keys must be seen to.
fn api_key(key: &ApiKey) -> ApiKeySection {
    ApiKeySection {
        name: text(&key.name),
        sha256: text(&key.sha256.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        models: key.models.as_ref().map_or_else(Given::default, |models| texts(models)),
        limits: limits(&key.limits),
    }
}

fn limits(limits: &Limits) -> Given<LimitsSection> {
    if *limits == Limits::default() {
        return Given::default();
    }
    Given::written(LimitsSection {
        rpm: optional_number(limits.rpm),
        tpm: optional_number(limits.tpm),
        concurrency: optional_number(limits.concurrency),
    })
}

fn retry(retry: &Retry) -> RetrySection {
    let refused = retry.on.refused.then(|| Scalar("refused".to_owned()));
    let codes = retry.on.codes.iter().map(|code| Scalar(code.to_string()));
    RetrySection {
        max_attempts: number(retry.max_attempts),
        budget: number(retry.budget),
        budget_floor: number(retry.budget_floor),
        on: Given::written(list(refused.into_iter().chain(codes))),
    }
}

/// Only a list that was written has statuses; left out, it lets every failure go elsewhere.
fn failover(on: &FailoverOn) -> Given<FailoverSection> {
    let FailoverOn { refused, cut, timeout, malformed, auth, codes } = on;
    let Some(codes) = codes else {
        return Given::default();
    };
    let words = [
        (refused, "refused"),
        (cut, "cut"),
        (timeout, "timeout"),
        (malformed, "malformed"),
        (auth, "auth"),
    ];
    let words = words.into_iter().filter(|(is_on, _)| **is_on).map(|(_, word)| word.to_owned());
    let entries = words.chain(codes.iter().map(u16::to_string)).map(Scalar);
    Given::written(FailoverSection { on: Given::written(list(entries)) })
}

fn telemetry(otlp: &Otlp) -> TelemetrySection {
    let otlp = OtlpSection {
        endpoint: text(&otlp.endpoint),
        sample: number(otlp.sample),
        service_name: text(&otlp.service_name),
        timeout: duration(otlp.timeout),
    };
    TelemetrySection { otlp: Given::written(otlp) }
}

fn log(log: &Log) -> LogSection {
    let format = match log.format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    LogSection { format: text(format), level: text(&log.level) }
}

fn model(pool: &Pool) -> ModelSection {
    let policy = match pool.policy {
        Policy::LeastRequest => "least_request",
        Policy::Weighted => "weighted",
        Policy::Ewma => "ewma",
        Policy::PrefixHash => "prefix_hash",
    };
    let on_all_open = match pool.on_all_open {
        OnAllOpen::PassThrough => "pass_through",
        OnAllOpen::Reject => "reject",
    };
    // What the first endpoint has stands at the model; each that differs repeats its own.
    let common = pool.endpoints.first();
    let circuit_breaker =
        common.map_or_else(Given::default, |common| Given::written(Box::new(circuit(common))));
    ModelSection {
        name: text(&pool.name),
        aliases: texts(&pool.aliases),
        policy: text(policy),
        fallback: texts(&pool.fallback),
        on_all_open: text(on_all_open),
        limits: limits(&pool.limits),
        include_usage: number(pool.include_usage),
        timeouts: Given::written(Box::new(timeouts(&pool.timeouts))),
        circuit_breaker,
        endpoints: Given::written(list(pool.endpoints.iter().map(|found| endpoint(found, common)))),
    }
}

fn endpoint(endpoint: &Endpoint, common: Option<&Endpoint>) -> EndpointSection {
    let is_common = |common: &Endpoint| {
        endpoint.rule == common.rule
            && endpoint.codes == common.codes
            && endpoint.probe == common.probe
            && endpoint.tenants == common.tenants
    };
    let circuit_breaker = if common.is_some_and(is_common) {
        Given::default()
    } else {
        Given::written(Box::new(circuit(endpoint)))
    };
    let health = endpoint.health.as_ref();
    EndpointSection {
        name: text(&endpoint.name),
        address: text(&format!("{}{}", endpoint.address, endpoint.base_path)),
        tls: upstream_tls(endpoint.tls.as_ref()),
        protocol: text(match endpoint.protocol {
            Protocol::Http1 => "http1",
            Protocol::Http2 => "http2",
        }),
        kind: text(endpoint.kind.as_str()),
        api_version: optional_text(endpoint.api_version.as_ref()),
        upstream_model: optional_text(endpoint.upstream_model.as_ref()),
        weight: number(endpoint.weight),
        priority: number(endpoint.priority),
        quota_group: optional_text(endpoint.quota_group.as_ref()),
        limits: limits(&endpoint.limits),
        api_key: masked(endpoint.api_key.as_ref()),
        health_path: optional_text(health.map(|health| &health.path)),
        health_interval: health.map_or_else(Given::default, |health| duration(health.interval)),
        health_timeout: health.map_or_else(Given::default, |health| duration(health.timeout)),
        circuit_breaker,
    }
}

/// The address says already that there is TLS.
fn upstream_tls(tls: Option<&UpstreamTls>) -> Given<UpstreamTlsSection> {
    optional(tls.filter(|tls| **tls != UpstreamTls::default()), |tls| UpstreamTlsSection {
        ca: optional_path(tls.ca.as_ref()),
        cert: optional_path(tls.cert.as_ref()),
        key: optional_path(tls.key.as_ref()),
        server_name: optional_text(tls.server_name.as_ref()),
    })
}

fn timeouts(timeouts: &Timeouts) -> TimeoutsSection {
    TimeoutsSection {
        connect: duration(timeouts.connect),
        first_byte: duration(timeouts.first_byte),
        first_token: limit(timeouts.first_token),
        idle: duration(timeouts.idle),
        total: duration(timeouts.total),
    }
}

fn circuit(endpoint: &Endpoint) -> CircuitSection {
    let Endpoint { rule, codes, probe, tenants, .. } = endpoint;
    let mode = match rule.mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    };
    // Each way back has one setting of its own, and the reader refuses it beside the other.
    let (recovery, ramp, ttl) = match rule.recovery {
        Recovery::Staged { probe: _, ramp } => {
            let ramp = RampSection { duration: duration(ramp) };
            ("staged", Given::written(ramp), Given::default())
        }
        Recovery::Lazy { ttl } => ("lazy", Given::default(), duration(ttl)),
    };
    CircuitSection {
        preset: Given::default(),
        mode: text(mode),
        scope: text(if tenants.is_some() { "endpoint+tenant" } else { "endpoint" }),
        tenant: tenants.as_ref().map_or_else(Given::default, |tenants| {
            let (header, max) = (text(&tenants.header), number(tenants.most));
            Given::written(TenantSection { header, max })
        }),
        failure_threshold: number(rule.failure_threshold),
        failure_ratio: number(rule.failure_ratio),
        window: duration(rule.window),
        min_requests: number(rule.min_requests),
        slow: Given::written(slow(&rule.slow)),
        open: Given::written(OpenSection {
            base: duration(rule.open.base),
            max: duration(rule.open.max),
            reset_after: duration(rule.open.reset_after),
            ttl,
        }),
        recovery: text(recovery),
        ramp,
        half_open: Given::written(HalfOpenSection {
            max_requests: number(rule.half_open.max_requests),
            max_prompt_tokens: number(rule.half_open.max_prompt_tokens),
            successes: number(rule.half_open.successes),
            share: number(rule.half_open.share),
            deadline: duration(rule.half_open.deadline),
        }),
        probe: Given::written(self::probe(probe)),
        fault_status_codes: numbers(&codes.fault),
        neutral_status_codes: numbers(&codes.neutral),
        capacity_status_codes: numbers(&codes.capacity),
        credential_status_codes: numbers(&codes.credential),
        pause_status_codes: numbers(&codes.pause),
    }
}

fn slow(slow: &SlowRule) -> SlowSection {
    let p95 = slow.p95.unwrap_or(P95Rule { first_token: None, total: None });
    SlowSection {
        total: duration(slow.total),
        first_token: limit(slow.first_token),
        min_tokens_per_second: number_limit(slow.min_tokens_per_second),
        dedup: duration(slow.dedup),
        confirmations: number(slow.confirmations),
        p95: Given::written(P95Section {
            first_token: limit(p95.first_token),
            total: limit(p95.total),
        }),
        relative: number_limit(slow.relative),
    }
}

fn probe(probe: &Probe) -> ProbeSection {
    ProbeSection {
        enabled: number(probe.enabled),
        route: text(probe.route.as_str()),
        first_token: duration(probe.first_token),
        max_tokens: number(probe.max_tokens),
        prompt: text(&probe.prompt),
        cache_usage_max: number_limit(probe.cache_usage_max),
        metrics_path: text(&probe.metrics_path),
    }
}

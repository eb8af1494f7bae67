//! The sections of the file: which keys each has, in the order in which they are written.
//!
//! A key is named here and nowhere else, so that it cannot be read under one name and written under
//! another.
//!
//! Invariants: every key is optional and every value has its place; every list has its bound.

use serde::{Deserialize, Serialize};

use super::{Given, List, Overlay, Scalar, Shape, Shaped, Way};
use crate::config::scalar::Refusal;
use crate::config::{
    ALIASES_MAX, ALLOWED_PATHS_MAX, API_KEYS_MAX, CORS_ORIGINS_MAX, ENDPOINTS_MAX, FAILOVER_ON_MAX,
    FALLBACK_MAX, KEY_MODELS_MAX, MODELS_MAX, REDIS_URLS_MAX, RETRY_ON_MAX, SEEDS_MAX,
    STATUS_CODES_MAX,
};

/// A list of statuses.
pub(in crate::config) type CodeList = List<Scalar, STATUS_CODES_MAX>;

/// Declares a section: its keys, in the order in which they are written.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($key:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub(in crate::config) struct $name {
            $(
                #[serde(skip_serializing_if = "Given::is_absent")]
                pub(in crate::config) $key: Given<$type>,
            )*
        }

        impl Shaped for $name {
            fn shape() -> Shape {
                Shape::Section(
                    stringify!($name),
                    || vec![$((stringify!($key), <$type as Shaped>::shape()),)*],
                )
            }
        }

        impl Overlay for $name {
            fn over(before: Option<Self>, way: Way<'_>) -> Result<Self, Refusal> {
                const KEYS: &[&str] = &[$(stringify!($key),)*];
                let (key, on) = way.step(KEYS)?;
                let mut section = before.unwrap_or_default();
                match key {
                    $(stringify!($key) => section.$key.put(on)?,)*
                    _ => return Err(way.unknown(key, KEYS)),
                }
                Ok(section)
            }
        }
    };
}

section! {
    /// The whole file.
    File {
        server: ServerSection,
        admin: AdminSection,
        cluster: ClusterSection,
        redis: RedisSection,
        state: StateSection,
        fail_closed: FailClosedSection,
        api_keys: List<ApiKeySection, API_KEYS_MAX>,
        circuit_breaker: Box<CircuitSection>,
        timeouts: Box<TimeoutsSection>,
        retry: RetrySection,
        failover: FailoverSection,
        models: List<ModelSection, MODELS_MAX>,
        log: LogSection,
        telemetry: TelemetrySection,
    }
}

section! {
    /// `server`.
    ServerSection {
        listen: Scalar,
        tls: ServerTlsSection,
        cors: CorsSection,
        max_body: Scalar,
        max_body_memory: Scalar,
        workers: Scalar,
        max_connections: Scalar,
        timeouts: ServerTimeoutsSection,
        heartbeat: Scalar,
        drain_delay: Scalar,
        drain_timeout: Scalar,
    }
}

section! {
    /// `server.timeouts`.
    ServerTimeoutsSection {
        first_byte: Scalar,
        headers: Scalar,
        body_idle: Scalar,
        keep_alive: Scalar,
        write_stall: Scalar,
    }
}

section! {
    /// `server.tls`.
    ServerTlsSection {
        cert: Scalar,
        key: Scalar,
    }
}

section! {
    /// `server.cors`.
    CorsSection {
        origins: List<Scalar, CORS_ORIGINS_MAX>,
        max_age: Scalar,
    }
}

section! {
    /// `admin`.
    AdminSection {
        listen: Scalar,
        token: Scalar,
        read_token: Scalar,
        protect_metrics: Scalar,
    }
}

section! {
    /// `cluster`.
    ClusterSection {
        id: Scalar,
        node_id: Scalar,
        backend: Scalar,
        gossip: Scalar,
        listen: Scalar,
        advertise: Scalar,
        seeds: List<Scalar, SEEDS_MAX>,
        tls: ClusterTlsSection,
        gossip_interval: Scalar,
        push: Scalar,
        quorum: QuorumSection,
    }
}

section! {
    /// `cluster.tls`.
    ClusterTlsSection {
        ca: Scalar,
        cert: Scalar,
        key: Scalar,
        insecure: Scalar,
    }
}

section! {
    /// `cluster.quorum`.
    QuorumSection {
        expected_members: Scalar,
        member_grace: Scalar,
        max_open: Scalar,
        observe: Scalar,
        of: Scalar,
        max_open_share: Scalar,
        suspect_unready: Scalar,
    }
}

section! {
    /// `redis`.
    RedisSection {
        urls: List<Scalar, REDIS_URLS_MAX>,
        mode: Scalar,
        master: Scalar,
        prefix: Scalar,
        timeout: Scalar,
        username: Scalar,
        password: Scalar,
        sentinel_password: Scalar,
        tls: RedisTlsSection,
        on_unavailable: Scalar,
    }
}

section! {
    /// `redis.tls`.
    RedisTlsSection {
        ca: Scalar,
        cert: Scalar,
        key: Scalar,
    }
}

section! {
    /// `state`.
    StateSection {
        file: Scalar,
        every: Scalar,
    }
}

section! {
    /// `fail_closed`.
    FailClosedSection {
        require_header: Scalar,
        allowed_paths: List<Scalar, ALLOWED_PATHS_MAX>,
        max_messages: Scalar,
        max_input_tokens: Scalar,
        tokenizer: Scalar,
        max_n: Scalar,
    }
}

section! {
    /// One entry of `api_keys`.
    ApiKeySection {
        name: Scalar,
        sha256: Scalar,
        models: List<Scalar, KEY_MODELS_MAX>,
        limits: LimitsSection,
    }
}

section! {
    /// `limits`, of a caller, of a model or of an endpoint.
    LimitsSection {
        rpm: Scalar,
        tpm: Scalar,
        concurrency: Scalar,
    }
}

section! {
    /// `circuit_breaker`, of all endpoints, of a model or of an endpoint.
    CircuitSection {
        preset: Scalar,
        mode: Scalar,
        scope: Scalar,
        tenant: TenantSection,
        failure_threshold: Scalar,
        failure_ratio: Scalar,
        window: Scalar,
        min_requests: Scalar,
        slow: SlowSection,
        open: OpenSection,
        recovery: Scalar,
        ramp: RampSection,
        half_open: HalfOpenSection,
        probe: ProbeSection,
        fault_status_codes: CodeList,
        neutral_status_codes: CodeList,
        capacity_status_codes: CodeList,
        credential_status_codes: CodeList,
        pause_status_codes: CodeList,
    }
}

section! {
    /// `circuit_breaker.tenant`.
    TenantSection {
        header: Scalar,
        max: Scalar,
    }
}

section! {
    /// `circuit_breaker.slow`.
    SlowSection {
        total: Scalar,
        first_token: Scalar,
        min_tokens_per_second: Scalar,
        dedup: Scalar,
        confirmations: Scalar,
        p95: P95Section,
        relative: Scalar,
    }
}

section! {
    /// `circuit_breaker.slow.p95`.
    P95Section {
        first_token: Scalar,
        total: Scalar,
    }
}

section! {
    /// `circuit_breaker.open`.
    OpenSection {
        base: Scalar,
        max: Scalar,
        reset_after: Scalar,
        ttl: Scalar,
    }
}

section! {
    /// `circuit_breaker.ramp`.
    RampSection {
        duration: Scalar,
    }
}

section! {
    /// `circuit_breaker.half_open`.
    HalfOpenSection {
        max_requests: Scalar,
        max_prompt_tokens: Scalar,
        successes: Scalar,
        share: Scalar,
        deadline: Scalar,
    }
}

section! {
    /// `circuit_breaker.probe`.
    ProbeSection {
        enabled: Scalar,
        route: Scalar,
        first_token: Scalar,
        max_tokens: Scalar,
        prompt: Scalar,
        cache_usage_max: Scalar,
        metrics_path: Scalar,
    }
}

section! {
    /// `timeouts`, of all models or of one.
    TimeoutsSection {
        connect: Scalar,
        first_byte: Scalar,
        first_token: Scalar,
        idle: Scalar,
        total: Scalar,
    }
}

section! {
    /// `retry`.
    RetrySection {
        max_attempts: Scalar,
        budget: Scalar,
        budget_floor: Scalar,
        on: List<Scalar, RETRY_ON_MAX>,
    }
}

section! {
    /// `failover`.
    FailoverSection {
        on: List<Scalar, FAILOVER_ON_MAX>,
    }
}

section! {
    /// One entry of `models`.
    ModelSection {
        name: Scalar,
        aliases: List<Scalar, ALIASES_MAX>,
        policy: Scalar,
        fallback: List<Scalar, FALLBACK_MAX>,
        on_all_open: Scalar,
        limits: LimitsSection,
        include_usage: Scalar,
        timeouts: Box<TimeoutsSection>,
        circuit_breaker: Box<CircuitSection>,
        endpoints: List<EndpointSection, ENDPOINTS_MAX>,
    }
}

section! {
    /// One entry of a model's `endpoints`.
    EndpointSection {
        name: Scalar,
        address: Scalar,
        tls: UpstreamTlsSection,
        protocol: Scalar,
        kind: Scalar,
        api_version: Scalar,
        upstream_model: Scalar,
        weight: Scalar,
        priority: Scalar,
        quota_group: Scalar,
        limits: LimitsSection,
        api_key: Scalar,
        health_path: Scalar,
        health_interval: Scalar,
        health_timeout: Scalar,
        circuit_breaker: Box<CircuitSection>,
    }
}

section! {
    /// An endpoint's `tls`.
    UpstreamTlsSection {
        ca: Scalar,
        cert: Scalar,
        key: Scalar,
        server_name: Scalar,
    }
}

section! {
    /// `telemetry`.
    TelemetrySection {
        otlp: OtlpSection,
    }
}

section! {
    /// `telemetry.otlp`.
    OtlpSection {
        endpoint: Scalar,
        sample: Scalar,
        service_name: Scalar,
        timeout: Scalar,
    }
}

section! {
    /// `log`.
    LogSection {
        format: Scalar,
        level: Scalar,
    }
}

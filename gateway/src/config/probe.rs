//! What an endpoint is to its breaker: its kind, its synthetic probe, and whose breaker it is.

use std::time::Duration;

/// What kind of server an endpoint is: how it takes its credential, where a probe is sent and what its
/// page of metrics calls its cache. Other servers with OpenAI's routes are `openai`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// OpenAI's routes, the credential as `Authorization: Bearer`.
    #[default]
    OpenAi,
    /// Anthropic's `/v1/messages`, the credential as `x-api-key`.
    Anthropic,
    /// Azure's OpenAI routes, the credential as `api-key`.
    Azure,
    /// vLLM: OpenAI's routes and a page of metrics.
    Vllm,
    /// SGLang: likewise.
    Sglang,
}

impl Kind {
    /// The words of the configuration.
    pub const ALL: [(&'static str, Self); 5] = [
        ("openai", Self::OpenAi),
        ("anthropic", Self::Anthropic),
        ("azure", Self::Azure),
        ("vllm", Self::Vllm),
        ("sglang", Self::Sglang),
    ];

    /// The word of the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("openai", |(word, _)| word)
    }

    /// What the server's page of metrics calls the share of its KV cache that is in use, 0 to 1; none
    /// if it has no such page. vLLM has changed the name (its pull request 18354), so both are known.
    #[must_use]
    pub fn cache_usage_names(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi | Self::Anthropic | Self::Azure => &[],
            Self::Vllm => &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
            Self::Sglang => &["sglang:token_usage"],
        }
    }
}

/// A breaker for each tenant of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantScope {
    /// The header that names the tenant, in lower case.
    pub header: String,
    /// Most tenants remembered for the endpoint, the least recently used being forgotten; 1 to 10,000,
    /// 1,000 by default, and at most 100,000 over all endpoints. One takes less than two kilobytes.
    pub most: usize,
}

/// The synthetic request that tries an endpoint before real ones do.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Whether one is sent at all; true by default.
    pub enabled: bool,
    /// Where it is sent; chat by default. Anthropic's servers have their own route instead.
    pub route: ProbeRoute,
    /// How long the first content of its answer may take; 1 ms to less than `half_open.deadline`, 10 s
    /// by default.
    pub first_token: Duration,
    /// Most tokens asked for; 1 to 1,024, 16 by default.
    pub max_tokens: u32,
    /// What it says; `ping` by default.
    pub prompt: String,
    /// From this share of the KV cache on the endpoint is too full to come back; above 0 to 1, `None`
    /// by default: the page of metrics is not read.
    pub cache_usage_max: Option<f64>,
    /// Where the page of metrics is, in full; `/metrics` by default.
    pub metrics_path: String,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            enabled: true,
            route: ProbeRoute::default(),
            first_token: Duration::from_secs(10),
            max_tokens: 16,
            prompt: "ping".to_owned(),
            cache_usage_max: None,
            metrics_path: "/metrics".to_owned(),
        }
    }
}

/// Which of an endpoint's routes a probe is sent to: one that its model serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeRoute {
    /// `/v1/chat/completions`.
    #[default]
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/embeddings`.
    Embeddings,
}

impl ProbeRoute {
    /// The words of the configuration.
    pub const ALL: [(&'static str, Self); 3] = [
        ("chat", Self::Chat),
        ("completions", Self::Completions),
        ("embeddings", Self::Embeddings),
    ];

    /// The word of the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, route)| *route == self).map_or("chat", |(word, _)| word)
    }
}

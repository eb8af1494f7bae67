//! The providers that LiteLLM knows by a prefix of a model's name, as far as they speak a dialect
//! that goes through here unchanged.

/// How a provider is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Provider {
    /// The prefix.
    pub(super) name: &'static str,
    /// Our kind of endpoint.
    pub(super) kind: &'static str,
    /// Where it is when nothing else is said.
    pub(super) address: Option<&'static str>,
    /// The variable LiteLLM takes its key from when nothing else is said.
    pub(super) key: Option<&'static str>,
}

const fn provider(
    name: &'static str,
    kind: &'static str,
    address: Option<&'static str>,
    key: Option<&'static str>,
) -> Provider {
    Provider { name, kind, address, key }
}

const OPENAI: &str = "https://api.openai.com";

/// Those that can be served.
const KNOWN: [Provider; 25] = [
    provider("openai", "openai", Some(OPENAI), Some("OPENAI_API_KEY")),
    provider("text-completion-openai", "openai", Some(OPENAI), Some("OPENAI_API_KEY")),
    provider("custom_openai", "openai", None, None),
    provider("openai_like", "openai", None, None),
    provider("litellm_proxy", "openai", None, None),
    provider("azure", "azure", None, Some("AZURE_API_KEY")),
    provider(
        "anthropic",
        "anthropic",
        Some("https://api.anthropic.com"),
        Some("ANTHROPIC_API_KEY"),
    ),
    provider("hosted_vllm", "vllm", None, None),
    provider("vllm", "vllm", None, None),
    provider("sglang", "sglang", None, None),
    provider("ollama", "openai", Some("http://localhost:11434"), None),
    provider("ollama_chat", "openai", Some("http://localhost:11434"), None),
    provider("lm_studio", "openai", None, None),
    provider("llamafile", "openai", None, None),
    provider("xinference", "openai", None, None),
    provider("docker_model_runner", "openai", None, None),
    provider("groq", "openai", Some("https://api.groq.com/openai"), Some("GROQ_API_KEY")),
    provider("mistral", "openai", Some("https://api.mistral.ai"), Some("MISTRAL_API_KEY")),
    provider("deepseek", "openai", Some("https://api.deepseek.com"), Some("DEEPSEEK_API_KEY")),
    provider("together_ai", "openai", Some("https://api.together.xyz"), Some("TOGETHERAI_API_KEY")),
    provider(
        "fireworks_ai",
        "openai",
        Some("https://api.fireworks.ai/inference"),
        Some("FIREWORKS_AI_API_KEY"),
    ),
    provider("openrouter", "openai", Some("https://openrouter.ai/api"), Some("OPENROUTER_API_KEY")),
    provider("xai", "openai", Some("https://api.x.ai"), Some("XAI_API_KEY")),
    provider("cerebras", "openai", Some("https://api.cerebras.ai"), Some("CEREBRAS_API_KEY")),
    provider(
        "nvidia_nim",
        "openai",
        Some("https://integrate.api.nvidia.com"),
        Some("NVIDIA_NIM_API_KEY"),
    ),
];

/// Takes `model` apart into who serves it and what it is called there; `named` is the provider where
/// it is named beside. `None`: its dialect would have to be translated, which is not done here.
pub(super) fn find<'a>(model: &'a str, named: Option<&str>) -> Option<(Provider, &'a str)> {
    let known = |name: &str| KNOWN.into_iter().find(|provider| provider.name == name);
    if let Some(named) = named {
        let rest = model.strip_prefix(named).and_then(|rest| rest.strip_prefix('/'));
        return known(named).map(|provider| (provider, rest.unwrap_or(model)));
    }
    match model.split_once('/') {
        Some((prefix, rest)) => known(prefix).map(|provider| (provider, rest)),
        None if model.starts_with("claude") => known("anthropic").map(|provider| (provider, model)),
        None if model.starts_with("gemini") || model.starts_with("command") => None,
        None => known("openai").map(|provider| (provider, model)),
    }
}

/// The address without what each request brings along, and without what has no meaning here.
pub(super) fn base(address: &str, kind: &str) -> String {
    let plain = address.split(['?', '#']).next().unwrap_or_default().trim().trim_end_matches('/');
    if kind == "azure" {
        let plain = plain.split("/openai/deployments").next().unwrap_or_default();
        return plain.trim_end_matches("/openai").to_owned();
    }
    let mut base = plain;
    for end in ["/chat/completions", "/completions", "/embeddings", "/messages", "/v1"] {
        base = base.strip_suffix(end).unwrap_or(base);
    }
    base.trim_end_matches('/').to_owned()
}

/// A short name for whoever is at `address`: the host, or its first part if it is a name.
pub(super) fn short(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    // What stands before it may be a password.
    let host = host.rsplit('@').next().unwrap_or_default();
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    };
    let is_number = host.bytes().all(|byte| byte.is_ascii_digit() || b".:[]".contains(&byte));
    let labels: Vec<&str> = host.split('.').collect();
    let part = match labels.as_slice() {
        _ if is_number => host,
        // "api" says nothing of whose it is.
        ["api" | "integrate", owner, _, ..] => owner,
        [first, ..] => first,
        [] => host,
    };
    let is_allowed = |one: &char| one.is_ascii_alphanumeric() || ".-_".contains(*one);
    part.chars().map(|one| if one == ':' { '-' } else { one }).filter(is_allowed).take(48).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_taken_apart_by_its_provider() {
        let of = |model| find(model, None).map(|(provider, rest)| (provider.name, rest));
        assert_eq!(of("azure/gpt-4o-eu"), Some(("azure", "gpt-4o-eu")));
        assert_eq!(of("openai/meta-llama/Llama-3"), Some(("openai", "meta-llama/Llama-3")));
        assert_eq!(of("gpt-4o"), Some(("openai", "gpt-4o")));
        assert_eq!(of("claude-sonnet-4"), Some(("anthropic", "claude-sonnet-4")));
        assert_eq!(of("bedrock/anthropic.claude"), None);
        assert_eq!(of("gemini-2.5-pro"), None);
        let named = find("meta/llama", Some("openai")).map(|(_, rest)| rest);
        assert_eq!(named, Some("meta/llama"));
    }

    #[test]
    fn an_address_loses_what_each_request_brings_along() {
        assert_eq!(base("http://a:8000/v1/", "openai"), "http://a:8000");
        assert_eq!(base("http://a/x/v1/chat/completions", "openai"), "http://a/x");
        let azure = "https://a.openai.azure.com/openai/deployments/x?api-version=1";
        assert_eq!(base(azure, "azure"), "https://a.openai.azure.com");
        assert_eq!(base("", "openai"), "");
    }

    #[test]
    fn an_endpoint_is_called_by_its_host() {
        assert_eq!(short("http://gpu-a.internal:8000"), "gpu-a");
        assert_eq!(short("https://api.openai.com"), "openai");
        assert_eq!(short("http://10.0.0.1:8000/x"), "10.0.0.1");
        assert_eq!(short("http://[::1]:8000"), "--1");
        assert_eq!(short("http://user:secret@gpu-a/x"), "gpu-a");
        assert_eq!(short(""), "");
    }
}

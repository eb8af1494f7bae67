//! What LiteLLM's settings become, those of the router and those beside it; and what is said of
//! those that become nothing.

use serde_json::{Map, Value};

/// Settings that have no counterpart of their own, and what to do instead. A key that is not here
/// has none at all.
const HINTS: [(&str, &str); 29] = [
    ("routing_strategy", "this strategy has no counterpart; see policy of a model"),
    ("num_retries", "a number of 0 or more would be understood"),
    ("allowed_fails", "a number of 0 or more would be understood"),
    ("cooldown_time", "10 ms to 24 h would be understood; see circuit_breaker.open.base"),
    ("fallbacks", "a list of models and lists would be understood"),
    ("callbacks", "metrics stand at /metrics of the admin address, an access log on stderr"),
    ("success_callback", "metrics stand at /metrics of the admin address, an access log on stderr"),
    ("failure_callback", "metrics stand at /metrics of the admin address, an access log on stderr"),
    ("cache", "answers are not cached"),
    ("cache_params", "answers are not cached"),
    ("drop_params", "requests go on as they came; the endpoint says what it does not take"),
    ("modify_params", "requests go on as they came"),
    ("set_verbose", "see log.level"),
    ("json_logs", "see log.format"),
    ("context_window_fallbacks", "a request that is too long is the client's; see fallback"),
    ("content_policy_fallbacks", "a refusal by content is the client's; see fallback"),
    ("retry_policy", "see retry.on for what is asked again"),
    ("allowed_fails_policy", "see circuit_breaker.*_status_codes for what counts"),
    ("retry_after", "an endpoint's own Retry-After is obeyed"),
    ("redis_host", "nodes tell each other directly; or see cluster.backend and redis"),
    ("redis_port", "nodes tell each other directly; or see cluster.backend and redis"),
    ("redis_password", "nodes tell each other directly; or see cluster.backend and redis"),
    ("redis_url", "nodes tell each other directly; or see cluster.backend and redis"),
    ("enable_pre_call_checks", "see fail_closed.max_input_tokens"),
    ("stream_timeout", "see timeouts.first_byte, first_token and idle"),
    ("database_url", "there is no database; callers stand in api_keys"),
    ("store_model_in_db", "there is no database; models stand in the file"),
    ("max_parallel_requests", "see limits.concurrency of api_keys and models"),
    ("background_health_checks", "see health_path of an endpoint"),
];

/// What is said of a setting that becomes nothing.
pub(super) fn nothing(section: &str, key: &str) -> String {
    let hint = HINTS.iter().find(|(known, _)| *known == key).map(|(_, hint)| *hint);
    let hint = hint.unwrap_or("no counterpart");
    format!("{section}.{}: {hint}", key_name(key))
}

/// A key as it may be shown: short and plain, whatever stood in the file.
pub(super) fn key_name(key: &str) -> String {
    let is_plain = |one: &char| one.is_ascii_alphanumeric() || "._-/:".contains(*one);
    key.chars().filter(is_plain).take(64).collect()
}

/// A whole number, also where it stands as a text or with a fraction of nothing.
pub(super) fn whole(value: &Value) -> Option<u64> {
    let number = number(value)?;
    // The range was checked: nothing is lost.
    (0.0..=1e12).contains(&number).then_some(number as u64)
}

/// A finite number, also where it stands as a text.
pub(super) fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse::<f64>().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

/// Seconds as milliseconds, from 10 ms to 24 h.
pub(super) fn millis(value: &Value) -> Option<u64> {
    const DAY: f64 = 86_400_000.0;
    let millis = number(value)? * 1_000.0;
    // The range was checked: nothing is lost.
    (10.0..=DAY).contains(&millis).then_some(millis.round() as u64)
}

/// The router's settings, taken from wherever LiteLLM lets them stand.
#[derive(Debug, Default)]
pub(super) struct Router {
    pub(super) policy: Option<&'static str>,
    pub(super) attempts: Option<u64>,
    pub(super) total_millis: Option<u64>,
    pub(super) threshold: Option<u64>,
    pub(super) cooldown_millis: Option<u64>,
    pub(super) has_no_breaker: bool,
    /// A model, and those that are asked when nothing is left of it.
    pub(super) fallbacks: Vec<(String, Vec<String>)>,
    /// Those that are asked for every model.
    pub(super) default_fallbacks: Vec<String>,
    /// A further name, and the model it means.
    pub(super) aliases: Vec<(String, String)>,
    pub(super) notes: Vec<String>,
}

impl Router {
    /// Takes one section; what an earlier one has said stands.
    pub(super) fn take(&mut self, section: &str, settings: &Map<String, Value>) {
        for (key, value) in settings {
            if value.is_null() {
                continue;
            }
            let is_taken = match key.as_str() {
                "routing_strategy" => self.strategy(value),
                "num_retries" | "max_retries" => {
                    keep(&mut self.attempts, whole(value).map(|retries| (retries + 1).min(10)))
                }
                "timeout" | "request_timeout" => keep(&mut self.total_millis, millis(value)),
                "allowed_fails" => {
                    keep(&mut self.threshold, whole(value).map(|fails| (fails + 1).min(10_000)))
                }
                "cooldown_time" => keep(&mut self.cooldown_millis, millis(value)),
                "disable_cooldowns" => {
                    self.has_no_breaker = *value == Value::Bool(true);
                    true
                }
                "fallbacks" => self.fallbacks(value),
                "default_fallbacks" => {
                    self.default_fallbacks.extend(names(value));
                    true
                }
                "model_group_alias" => self.group_aliases(value),
                _ => false,
            };
            if !is_taken {
                self.notes.push(nothing(section, key));
            }
        }
    }

    fn strategy(&mut self, value: &Value) -> bool {
        let (policy, note) = match value.as_str().unwrap_or_default() {
            "simple-shuffle" => ("weighted", None),
            "least-busy" => ("least_request", None),
            "latency-based-routing" => ("ewma", None),
            "usage-based-routing" | "usage-based-routing-v2" => {
                ("least_request", Some("usage-based: the least busy is taken instead"))
            }
            _ => return false,
        };
        if keep(&mut self.policy, Some(policy))
            && let Some(note) = note
        {
            self.notes.push(format!("router_settings.routing_strategy: {note}"));
        }
        true
    }

    fn fallbacks(&mut self, value: &Value) -> bool {
        let Some(entries) = value.as_array() else { return false };
        for (model, others) in entries.iter().filter_map(Value::as_object).flatten() {
            match model.as_str() {
                "*" => self.default_fallbacks.extend(names(others)),
                _ => self.fallbacks.push((model.clone(), names(others))),
            }
        }
        true
    }

    fn group_aliases(&mut self, value: &Value) -> bool {
        let Some(aliases) = value.as_object() else { return false };
        for (alias, model) in aliases {
            let model = model.as_str().or_else(|| model.get("model").and_then(Value::as_str));
            if let Some(model) = model {
                self.aliases.push((alias.clone(), model.to_owned()));
            }
        }
        true
    }
}

/// Keeps the first value that is one; whether the setting was understood.
fn keep<T>(slot: &mut Option<T>, value: Option<T>) -> bool {
    let is_understood = value.is_some();
    if slot.is_none() {
        *slot = value;
    }
    is_understood
}

/// The names in a list.
fn names(value: &Value) -> Vec<String> {
    let entries = value.as_array().map_or(&[][..], Vec::as_slice);
    entries.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

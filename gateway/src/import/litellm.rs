//! The `config.yaml` of a LiteLLM proxy: its model list, its router, its master key.
//!
//! A deployment becomes an endpoint, a group of deployments of one name a model. Each endpoint is
//! tried against our own check alone, so that one that cannot be served costs itself only.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::names::{environment, variable};
use super::provider::{self, Provider};
use super::settings::{Router, key_name, millis, nothing, number, whole};
use super::write::{self, Endpoint, Model, comment, quoted, time};
use super::{ImportError, Imported, Stands, Variables, check};
use crate::config::{ALIASES_MAX, ENDPOINTS_MAX, FALLBACK_MAX, MODELS_MAX};

/// Most YAML nodes that are read.
const NODES_MAX: usize = 1_000_000;
/// Most nodes that aliases may repeat.
const REPEATED_NODES_MAX: usize = 100_000;
/// Most notes that are kept; a file that needs more is none of LiteLLM's.
const NOTES_MAX: usize = 500;
/// Longest name of a model, in bytes, as our configuration has it.
const MODEL_BYTES_MAX: usize = 128;
/// Where LiteLLM listens, so that clients need not be told another address.
const LISTEN: &str = "0.0.0.0:4000";
/// Where nobody but this machine spends what the providers' keys pay for.
const LISTEN_OPEN: &str = "127.0.0.1:4000";
/// Said where the file has no master key, with which LiteLLM serves whoever comes.
const OPEN: &str = "there is no master_key, so that nobody has to show a key: it listens on 127.0.0.1 \
                    only; set api_keys before server.listen is opened to others";

/// What a deployment may say that is translated.
const UNDERSTOOD: [&str; 13] = [
    "model",
    "api_base",
    "base_url",
    "api_key",
    "api_version",
    "rpm",
    "tpm",
    "weight",
    "order",
    "timeout",
    "request_timeout",
    "max_parallel_requests",
    "custom_llm_provider",
];

/// Turns the text of a LiteLLM proxy's configuration into ours.
///
/// # Errors
/// It is no such file, or nothing in it can be served.
pub fn litellm(text: &str) -> Result<Imported, ImportError> {
    let document = read(text)?;
    let list = document.get("model_list").and_then(Value::as_array);
    let list = list.filter(|list| !list.is_empty()).ok_or(ImportError::NoModels)?;
    let mut router = Router::default();
    let mut draft = Draft::default();
    for section in ["router_settings", "litellm_settings"] {
        if let Some(settings) = document.get(section).and_then(Value::as_object) {
            router.take(section, settings);
        }
    }
    draft.outside(&document);
    for (index, entry) in list.iter().enumerate() {
        if let Err(why) = draft.deployment(index, entry) {
            draft.note(format!("model_list[{index}]: {why}"));
        }
    }
    draft.finish(router)
}

fn read(text: &str) -> Result<Value, ImportError> {
    let mut options = serde_saphyr::Options::default();
    options.with_snippet = false;
    options.emit_comments = false;
    if let Some(budget) = options.budget.as_mut() {
        budget.max_nodes = NODES_MAX;
        budget.max_events = NODES_MAX * 2;
    }
    options.alias_limits.max_total_replayed_events = REPEATED_NODES_MAX;
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        ImportError::Syntax { line }
    })
}

#[derive(Default)]
struct Draft {
    models: Vec<Model>,
    /// Where the model of a name stands.
    places: BTreeMap<String, usize>,
    endpoints: usize,
    variables: Variables,
    /// The variable that takes the place of a secret that stood in clear.
    clear: BTreeMap<String, String>,
    /// Where the master key is, as a variable.
    master: Option<String>,
    notes: Vec<String>,
    noted: BTreeSet<String>,
    warnings: Vec<String>,
}

impl Draft {
    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX && self.noted.insert(note.clone()) {
            self.notes.push(note);
        }
    }

    /// Takes what stands beside the models and the router.
    fn outside(&mut self, document: &Value) {
        let no_settings = Map::new();
        let of = |section: &str| document.get(section).and_then(Value::as_object);
        for (key, value) in of("general_settings").unwrap_or(&no_settings) {
            match (key.as_str(), value) {
                ("master_key", Value::String(key)) if !key.is_empty() => {
                    self.master = Some(self.secret(key, "LITELLM_MASTER_KEY", "master_key"));
                }
                _ => self.note(nothing("general_settings", key)),
            }
        }
        for key in of("environment_variables").unwrap_or(&no_settings).keys() {
            let key = key_name(key);
            self.note(format!("environment_variables.{key}: set it in the environment"));
        }
        let known = [
            "model_list",
            "router_settings",
            "litellm_settings",
            "general_settings",
            "environment_variables",
        ];
        for key in document.as_object().into_iter().flat_map(Map::keys) {
            if !known.contains(&key.as_str()) {
                self.note(format!("{}: no counterpart", key_name(key)));
            }
        }
    }

    /// A secret as our file has it: by a variable, LiteLLM's own or one that takes its place.
    fn secret(&mut self, value: &str, wanted: &str, whose: &str) -> String {
        if let Some(name) = environment(value) {
            self.variables.insert(name.to_owned(), Stands::Text);
            return name.to_owned();
        }
        if let Some(name) = self.clear.get(value) {
            return name.clone();
        }
        let mut name = variable(wanted);
        while self.variables.contains_key(&name) {
            name.push_str("_2");
        }
        self.variables.insert(name.clone(), Stands::Text);
        self.clear.insert(value.to_owned(), name.clone());
        self.warnings.push(format!(
            "the {whose} stands in the file in clear; set {name} to it, and give it a new value soon"
        ));
        name
    }

    /// A value as our file has it.
    fn value(&mut self, value: &str, stands: Stands) -> String {
        match environment(value) {
            Some(name) => {
                self.variables.insert(name.to_owned(), stands);
                format!("${{{name}}}")
            }
            None => value.replace("${", "$${"),
        }
    }

    /// Takes one entry of the model list, or says why not.
    fn deployment(&mut self, index: usize, entry: &Value) -> Result<(), String> {
        let name = entry.get("model_name").and_then(Value::as_str).unwrap_or_default();
        let name = self.model_name(index, name)?;
        let none = Map::new();
        let params = entry.get("litellm_params").and_then(Value::as_object).unwrap_or(&none);
        for key in params.keys().filter(|key| !UNDERSTOOD.contains(&key.as_str())) {
            self.note(nothing("litellm_params", key));
        }
        let (mut endpoint, provider) = self.endpoint(&name, params)?;
        let mode = entry.pointer("/model_info/mode").and_then(Value::as_str).unwrap_or("chat");
        let probe = match mode {
            "chat" | "responses" => None,
            "embedding" => Some("embeddings"),
            "completion" => Some("completions"),
            _ => Some(""),
        };
        if provider.kind == "anthropic" {
            endpoint.comments.push(
                "Speaks /v1/messages only: requests are not translated between dialects."
                    .to_owned(),
            );
        }
        let total = params.get("timeout").or_else(|| params.get("request_timeout"));
        self.place(name, endpoint, probe, total.and_then(millis))
    }

    fn model_name(&mut self, index: usize, name: &str) -> Result<String, String> {
        if name.contains('*') {
            return Err("a wildcard; name each model that is to be served".to_owned());
        }
        let is_allowed = |one: char| one.is_ascii_alphanumeric() || "._:/-".contains(one);
        let plain: String =
            name.chars().map(|one| if is_allowed(one) { one } else { '-' }).collect();
        if plain.is_empty() || plain.len() > MODEL_BYTES_MAX {
            return Err("it has no model_name that can be used".to_owned());
        }
        if plain != name {
            self.note(format!("model_list[{index}]: its name is written {plain} here"));
        }
        Ok(plain)
    }

    fn endpoint(
        &mut self,
        model: &str,
        params: &Map<String, Value>,
    ) -> Result<(Endpoint, Provider), String> {
        let text = |key: &str| params.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
        let called = text("model").ok_or("it has no litellm_params.model")?;
        if environment(called).is_some() {
            return Err("its model is a variable; write which model it is".to_owned());
        }
        let found = provider::find(called, text("custom_llm_provider"));
        let Some((provider, upstream_model)) = found else {
            let prefix = called.split('/').next().unwrap_or_default();
            let prefix = key_name(text("custom_llm_provider").unwrap_or(prefix));
            return Err(format!("{prefix} speaks a dialect of its own, which is not translated"));
        };
        let elsewhere = text("api_base").or_else(|| text("base_url"));
        let is_elsewhere = elsewhere.is_some();
        let Some(base) = elsewhere.or(provider.address) else {
            return Err(format!("{} needs an api_base", provider.name));
        };
        let mut comments = Vec::new();
        let (address, short) = if environment(base).is_some() {
            comments.push("Its value must not end in /v1, which each request brings.".to_owned());
            (self.value(base, Stands::Address), provider.name.to_owned())
        } else {
            let address = provider::base(base, provider.kind);
            let short = provider::short(&address);
            (self.value(&address, Stands::Address), short)
        };
        let api_key = match params.get("api_key") {
            Some(Value::String(key)) if !key.is_empty() => {
                let whose = format!("api_key of {model}");
                Some(self.secret(key, &format!("{model}_{short}_KEY"), &whose))
            }
            // The default is for the provider itself, not for whoever else speaks like it.
            _ if !is_elsewhere || provider.kind == "azure" => {
                let key = provider.key.map(str::to_owned);
                self.variables.extend(key.clone().map(|key| (key, Stands::Text)));
                key
            }
            _ => None,
        };
        let api_version = text("api_version").filter(|_| provider.kind == "azure");
        let count = |key: &str| params.get(key).and_then(whole).filter(|count| *count > 0);
        let endpoint = Endpoint {
            name: short,
            address,
            kind: provider.kind,
            api_version: api_version.map(|version| self.value(version, Stands::Text)),
            upstream_model: Some(self.value(upstream_model, Stands::Text)),
            api_key: api_key.map(|name| format!("${{{name}}}")),
            weight: params.get("weight").and_then(number),
            // Theirs begins at 1, and the lower one is asked first in both.
            priority: count("order").map_or(0, |order| (order - 1).min(15)),
            rpm: count("rpm").map(|rpm| rpm.min(1_000_000_000)),
            tpm: count("tpm").map(|tpm| tpm.min(1_000_000_000_000)),
            concurrency: count("max_parallel_requests").map(|most| most.min(1_000_000)),
            comments,
        };
        Ok((endpoint, provider))
    }

    /// Puts an endpoint that can be served to its model.
    fn place(
        &mut self,
        name: String,
        mut endpoint: Endpoint,
        probe: Option<&'static str>,
        total: Option<u64>,
    ) -> Result<(), String> {
        if endpoint.weight == Some(0.0) {
            return Err("its weight is 0, so that it is left out".to_owned());
        }
        if self.endpoints >= ENDPOINTS_MAX {
            return Err(format!("there are more than {ENDPOINTS_MAX} endpoints"));
        }
        let place = match self.places.get(&name) {
            Some(place) => *place,
            None if self.models.len() >= MODELS_MAX => {
                return Err(format!("there are more than {MODELS_MAX} models"));
            }
            None => self.models.len(),
        };
        let others = self.models.get(place).map_or(&[][..], |model| model.endpoints.as_slice());
        let is_same = |other: &Endpoint| {
            other.address == endpoint.address && other.upstream_model == endpoint.upstream_model
        };
        if others.iter().any(is_same) {
            let why =
                "the same model at the same address as before; a second key has no counterpart";
            return Err(why.to_owned());
        }
        endpoint.name = unused(&endpoint.name, others);
        let weight = endpoint.weight.take();
        let mut alone =
            Model { name: name.clone(), probe, endpoints: vec![endpoint], ..Model::default() };
        let mut yaml = String::new();
        write::models(&mut yaml, std::slice::from_ref(&alone));
        check(&yaml, &self.variables)?;
        for endpoint in &mut alone.endpoints {
            endpoint.weight = weight;
        }
        self.endpoints += 1;
        self.places.insert(name, place);
        match self.models.get_mut(place) {
            None => self.models.push(Model { total_millis: total, ..alone }),
            Some(model) => {
                model.endpoints.append(&mut alone.endpoints);
                model.total_millis = model.total_millis.max(total);
            }
        }
        Ok(())
    }

    /// Puts everything together and checks it.
    fn finish(mut self, mut router: Router) -> Result<Imported, ImportError> {
        if self.models.is_empty() {
            let first = self.notes.into_iter().find(|note| note.starts_with("model_list["));
            let first = first.unwrap_or_else(|| "the list is empty".to_owned());
            return Err(ImportError::NothingServed { first });
        }
        for note in std::mem::take(&mut router.notes) {
            self.note(note);
        }
        self.aliases(&router);
        self.fallbacks(&router);
        for model in &mut self.models {
            model.policy = router.policy;
            model.total_millis = model.total_millis.or(router.total_millis);
            whole_weights(model);
        }
        if self.master.is_none() {
            self.warnings.push(OPEN.to_owned());
        }
        let yaml = self.yaml(&router);
        check(&yaml, &self.variables).map_err(ImportError::Refused)?;
        Ok(Imported { yaml, notes: self.notes, warnings: self.warnings })
    }

    fn aliases(&mut self, router: &Router) {
        for (alias, target) in &router.aliases {
            let shown = key_name(alias);
            let is_plain = shown == *alias && !alias.is_empty();
            let place = self.places.get(target).copied();
            let why = match place {
                _ if !is_plain => "its name cannot be used",
                None => "the model it means is not served",
                _ if self.places.contains_key(alias) => "a model has this name already",
                Some(place) => match self.models.get_mut(place) {
                    Some(model) if model.aliases.len() < ALIASES_MAX => {
                        model.aliases.push(alias.clone());
                        self.places.insert(alias.clone(), place);
                        continue;
                    }
                    _ => "the model has too many already",
                },
            };
            self.note(format!("router_settings.model_group_alias.{shown}: {why}"));
        }
    }

    fn fallbacks(&mut self, router: &Router) {
        let named = router.fallbacks.iter().map(|(model, others)| (model.clone(), others));
        let all: Vec<String> = self.models.iter().map(|model| model.name.clone()).collect();
        let defaults = all.into_iter().map(|model| (model, &router.default_fallbacks));
        let wanted: Vec<(String, &Vec<String>)> = named.chain(defaults).collect();
        for (model, others) in wanted {
            let Some(from) = self.places.get(&model).copied() else {
                let shown = key_name(&model);
                self.note(format!("fallbacks.{shown}: the model is not served"));
                continue;
            };
            for other in others {
                self.fallback(from, other);
            }
        }
    }

    fn fallback(&mut self, from: usize, other: &str) {
        let target = self.places.get(other).copied();
        let names: Vec<String> = self.models.iter().map(|model| model.name.clone()).collect();
        let Some(model) = self.models.get_mut(from) else { return };
        let (shown, whose) = (key_name(other), model.name.clone());
        match target.and_then(|target| names.get(target)) {
            None => self.note(format!("fallbacks.{whose}: {shown} is not served")),
            Some(name) if *name == whose || model.fallback.contains(name) => {}
            Some(_) if model.fallback.len() >= FALLBACK_MAX => {
                self.note(format!(
                    "fallbacks.{whose}: at most {FALLBACK_MAX}, {shown} is left out"
                ));
            }
            Some(name) => model.fallback.push(name.clone()),
        }
    }

    fn yaml(&mut self, router: &Router) -> String {
        let listen = if self.master.is_some() { LISTEN } else { LISTEN_OPEN };
        let mut rest = format!("server: {{ listen: {} }}\n", quoted(listen));
        if let Some(master) = self.master.clone() {
            let digest = format!("{master}_SHA256");
            self.variables.insert(digest.clone(), Stands::Digest);
            rest.push_str("# The master key orders, and calls as every model's caller.\n");
            rest.push_str(&format!("admin: {{ token: \"${{{master}}}\" }}\napi_keys:\n"));
            rest.push_str(&format!("  # printf %s \"${master}\" | sha256sum\n"));
            rest.push_str(&format!("  - {{ name: master, sha256: \"${{{digest}}}\" }}\n"));
        }
        circuit(&mut rest, router);
        if let Some(attempts) = router.attempts {
            rest.push_str(&format!("retry: {{ max_attempts: {attempts} }}\n"));
        }
        write::models(&mut rest, &self.models);
        let mut yaml = String::new();
        comment(&mut yaml, 0, "Made by quorumgate import litellm; quorumgate check validates it.");
        if !self.variables.is_empty() {
            let names: Vec<&str> = self.variables.keys().map(String::as_str).collect();
            comment(&mut yaml, 0, &format!("To be set in the environment: {}", names.join(", ")));
        }
        for warning in &self.warnings {
            comment(&mut yaml, 0, &format!("WARNING: {warning}"));
        }
        if !self.notes.is_empty() {
            comment(&mut yaml, 0, "What has no counterpart, or works differently:");
        }
        for note in &self.notes {
            comment(&mut yaml, 0, &format!("- {note}"));
        }
        yaml + &rest
    }
}

fn circuit(yaml: &mut String, router: &Router) {
    const MAX_MILLIS: u64 = 120_000;
    if router.has_no_breaker {
        yaml.push_str("circuit_breaker: { mode: off }\n");
        return;
    }
    let mut parts = Vec::new();
    if let Some(threshold) = router.threshold {
        comment(yaml, 0, "Theirs counts failures in a minute, ours failures in a row.");
        parts.push(format!("failure_threshold: {threshold}"));
        parts.push("window: 60s".to_owned());
    }
    if let Some(cooldown) = router.cooldown_millis {
        comment(yaml, 0, "After the cool-down a probe decides, and each relapse doubles it.");
        let most = cooldown.max(MAX_MILLIS);
        parts.push(format!("open: {{ base: {}, max: {} }}", time(cooldown), time(most)));
    }
    if !parts.is_empty() {
        yaml.push_str(&format!("circuit_breaker: {{ {} }}\n", parts.join(", ")));
    }
}

/// A name that no other endpoint has.
fn unused(name: &str, others: &[Endpoint]) -> String {
    let name = if name.is_empty() { "endpoint" } else { name };
    let is_taken = |name: &str| others.iter().any(|other| other.name == name);
    let mut candidate = name.to_owned();
    let mut number = 2;
    // One of as many names as there are endpoints, and one more, is free.
    while is_taken(&candidate) && number <= others.len() + 2 {
        candidate = format!("{name}-{number}");
        number += 1;
    }
    candidate
}

/// Makes weights whole numbers of 1 to 1,000; those that are so already stay.
fn whole_weights(model: &mut Model) {
    let given = model.endpoints.iter().filter_map(|endpoint| endpoint.weight);
    let most = given.clone().fold(0.0_f64, f64::max);
    let is_fine = |weight: f64| weight.fract() == 0.0 && (1.0..=1_000.0).contains(&weight);
    if given.clone().all(is_fine) {
        return;
    }
    for endpoint in &mut model.endpoints {
        if let Some(weight) = &mut endpoint.weight {
            *weight = (*weight / most * 100.0).round().clamp(1.0, 1_000.0);
        }
    }
    model.comments.push("The weights were made whole numbers.".to_owned());
}

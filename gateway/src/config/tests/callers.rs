//! What is refused about callers: their keys, their limits, their pages, what they may ask.

use super::refused::{refused, refused_before};
use super::*;

/// SHA-256 of "123".
const DIGEST: &str = "a665a45920422f9d417e4867efdc4fb8a04a1f3fff1fa07e998e86f7f7a27ae3";
const DIGEST_CURE: &str = "write what sha256sum makes of the key, 64 hexadecimal digits";

#[test]
fn a_key_without_name_or_digest_is_refused() {
    refused_before(
        &format!("api_keys:\n- {{sha256: {DIGEST}}}"),
        "2:3: api_keys[0].name: is missing; write what the caller is called",
    );
    refused_before(
        "api_keys:\n- {name: a}",
        &format!("2:3: api_keys[0](a).sha256: is missing; {DIGEST_CURE}"),
    );
    let long = "a".repeat(65);
    for name in ["a b", "ä", "a/b", long.as_str()] {
        refused_before(
            &format!("api_keys:\n- {{name: {name}, sha256: {DIGEST}}}"),
            &format!(
                "2:10: api_keys[0]{}.name: {} is not a valid name; use 1 to 64 letters, digits and \
                 ._-",
                if name.contains([' ', 'ä']) { String::new() } else { format!("({name})") },
                scalar::shown(name),
            ),
        );
    }
}

#[test]
fn a_key_in_place_of_its_digest_is_refused_without_being_shown() {
    let short = &DIGEST[1..];
    let odd = format!("g{short}");
    let wide = format!("{}é", &DIGEST[2..]);
    for value in ["hunter2-hunter2", short, &odd, &wide, "0x00", &DIGEST.repeat(2)] {
        refused_before(
            &format!("api_keys:\n- {{name: a, sha256: {value}}}"),
            &format!("2:21: api_keys[0](a).sha256: the value is no SHA-256 digest; {DIGEST_CURE}"),
        );
    }
    refused_before(
        "api_keys:\n- {name: a, sha256: \"${QUORUMGATE_TOKEN}\"}",
        &format!("2:21: api_keys[0](a).sha256: the value is no SHA-256 digest; {DIGEST_CURE}"),
    );
    let nothing = "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855";
    refused_before(
        &format!("api_keys:\n- {{name: a, sha256: {nothing}}}"),
        "2:21: api_keys[0](a).sha256: the value is the digest of an empty key; check that the key \
         was set when its digest was taken",
    );
}

#[test]
fn a_key_or_caller_that_stands_twice_is_refused() {
    let other = DIGEST.replace('a', "b");
    refused_before(
        &format!("api_keys:\n- {{name: a, sha256: {DIGEST}}}\n- {{name: a, sha256: {other}}}"),
        "3:10: api_keys[1](a).name: this name is taken in line 2; choose another or remove one of \
         them",
    );
    let capital = DIGEST.to_ascii_uppercase();
    refused_before(
        &format!("api_keys:\n- {{name: a, sha256: {DIGEST}}}\n- {{name: b, sha256: {capital}}}"),
        "3:21: api_keys[1](b).sha256: this key is the one in line 2; give each caller a key of its \
         own, or remove one of them",
    );
}

#[test]
fn a_list_of_keys_or_models_without_an_entry_is_refused() {
    refused_before(
        "api_keys: []",
        "1:11: api_keys: an empty list lets everyone in; name a key, or remove the section if that \
         is meant",
    );
    refused_before(
        &format!("api_keys:\n- {{name: a, sha256: {DIGEST}, models: []}}"),
        "2:95: api_keys[0](a).models: an empty list admits no model at all; name a model or remove \
         the key",
    );
}

#[test]
fn a_key_for_a_model_that_is_not_there_is_refused_with_the_nearest() {
    let with = |models: &str| {
        format!(
            "api_keys:\n- {{name: a, sha256: {DIGEST}, models: [{models}]}}\nmodels:\n- {{name: \
             llama-70b, aliases: [gpt-4o], endpoints: [{{name: a, address: \"http://a\"}}]}}\n"
        )
    };
    parsed(&with("gpt-4o, llama-70b"));
    refused(
        &with("gpt-4o, lama-70b"),
        "2:104: api_keys[0](a).models[1]: \"lama-70b\" is no model; did you mean \"llama-70b\"?",
    );
    refused(
        &with("claude"),
        "2:96: api_keys[0](a).models[0]: \"claude\" is no model; write the name or an alias of a \
         model in this file",
    );
    refused(
        &with("gpt-4o, gpt-4o"),
        "2:104: api_keys[0](a).models[1]: this name stands in the list already; keep one of them",
    );
    let many = (0..=KEY_MODELS_MAX).map(|index| format!("m{index}, ")).collect::<String>();
    let said = refusal(&with(&many));
    assert!(said.contains("has more than 256 entries"), "{said}");
}

#[test]
fn as_many_keys_as_are_allowed_are_read_and_not_one_more() {
    let key = |index| format!("- {{name: k{index}, sha256: \"{index:064x}\", models: [m]}}\n");
    let many = |count| (0..count).map(key).collect::<String>();
    let text = format!("api_keys:\n{}{SMALLEST}", many(API_KEYS_MAX));
    let config = parsed(&text);
    assert_eq!(config.api_keys.len(), API_KEYS_MAX);
    assert_eq!(config.api_keys[258].sha256[30..], [1, 2]);
    assert_eq!(parsed(&config.effective_yaml()), config);
    let said = refusal(&format!("api_keys:\n{}{SMALLEST}", many(API_KEYS_MAX + 1)));
    assert!(said.ends_with("has more than 10000 entries; remove some"), "{said}");
}

#[test]
fn a_limit_of_nothing_or_of_more_than_can_be_is_refused_wherever_it_stands() {
    let places = [
        ("api_keys:\n- {name: a, sha256: @, limits: #}", "api_keys[0](a)"),
        (
            "models:\n- {name: n, endpoints: [{name: b, address: \"http://n\"}], limits: #}",
            "models[0](n)",
        ),
        (
            "models:\n- {name: n, endpoints: [{name: b, address: \"http://n\", limits: #}]}",
            "models[0](n).endpoints[0](b)",
        ),
    ];
    let nothing = "it limits nothing; name rpm, tpm or concurrency, or remove the section";
    let rows = [
        ("{}", "limits", nothing),
        ("{rpm: 0}", "limits.rpm", "\"0\" is out of range; use 1 to 1000000000"),
        ("{rpm: 1000000001}", "limits.rpm", "\"1000000001\" is out of range; use 1 to 1000000000"),
        ("{tpm: 0}", "limits.tpm", "\"0\" is out of range; use 1 to 1000000000000"),
        (
            "{concurrency: 1000001}",
            "limits.concurrency",
            "\"1000001\" is out of range; use 1 to 1000000",
        ),
        ("{rpm: -1}", "limits.rpm", "\"-1\" is not a whole number; use 1 to 1000000000"),
    ];
    for (template, path) in places {
        for (value, key, said) in rows {
            let text = template.replace('@', DIGEST).replace('#', value);
            let rest = if text.starts_with("models") { "" } else { SMALLEST };
            let line = refusal(&format!("{text}\n{rest}"));
            let (place, line) = line.split_once(": ").unwrap();
            assert_eq!(line, format!("{path}.{key}: {said}"));
            assert!(place.starts_with("gw.yaml:2:"), "{place}");
        }
        let most = "{rpm: 1000000000, tpm: 1000000000000, concurrency: 1000000}";
        let text = template.replace('@', DIGEST).replace('#', most);
        let rest = if text.starts_with("models") { "" } else { SMALLEST };
        let config = parsed(&format!("{text}\n{rest}"));
        assert_eq!(parsed(&config.effective_yaml()), config);
    }
}

#[test]
fn a_page_that_no_browser_names_so_is_refused() {
    let cure = "write scheme://host or scheme://host:port, for example https://app.example";
    let named = "name the origins of the pages that may call, or remove the section";
    for (cors, place, said) in [
        ("{}", "1:16: server.cors.origins", format!("is missing; {named}")),
        ("{origins: []}", "1:26: server.cors.origins", format!("an empty list lets no page call; {named}")),
        (
            "{origins: [app.example]}",
            "1:27: server.cors.origins[0]",
            format!("\"app.example\" has no scheme; {cure}"),
        ),
        (
            "{origins: [\"https://app.example/\"]}",
            "1:27: server.cors.origins[0]",
            format!("\"https://app.example/\" has more than a scheme, a host and a port; {cure}"),
        ),
        (
            "{origins: [\"https://App.example\"]}",
            "1:27: server.cors.origins[0]",
            format!("\"https://App.example\" has capital letters, which a browser does not send; {cure}"),
        ),
        (
            "{origins: [\"https://a:443\"]}",
            "1:27: server.cors.origins[0]",
            "\"https://a:443\" names the port that its scheme has anyway, which a browser leaves out; \
             leave the port out"
                .to_owned(),
        ),
        (
            "{origins: [\"https://a\", \"*\"]}",
            "1:40: server.cors.origins[1]",
            "it lets all pages call and makes the others useless; write it alone".to_owned(),
        ),
        (
            "{origins: [\"https://a\", \"https://a\"]}",
            "1:40: server.cors.origins[1]",
            "this origin stands in the list already; keep one of them".to_owned(),
        ),
        (
            "{origins: [\"*\"], max_age: 25h}",
            "1:42: server.cors.max_age",
            "\"25h\" is out of range; use 0s to 24h".to_owned(),
        ),
        (
            "{origins: [\"*\"], max_age: 1s500ms}",
            "1:42: server.cors.max_age",
            "\"1s500ms\" has a part of a second; write whole seconds, as in 600s".to_owned(),
        ),
    ] {
        refused_before(&format!("server: {{cors: {cors}}}"), &format!("{place}: {said}"));
    }
    let config =
        parsed(&format!("server: {{cors: {{origins: [\"*\"], max_age: 0s}}}}\n{SMALLEST}"));
    assert_eq!(parsed(&config.effective_yaml()), config);
}

#[test]
fn what_counts_prompts_needs_a_limit_to_count_for() {
    refused_before(
        "fail_closed: {tokenizer: o200k_base}",
        "1:26: fail_closed.tokenizer: without max_input_tokens nothing is counted; set \
         max_input_tokens as well, or remove it",
    );
    refused_before(
        "fail_closed: {max_input_tokens: 9, tokenizer: o200k}",
        "1:47: fail_closed.tokenizer: \"o200k\" is not known; known here: off, cl100k_base, \
         o200k_base",
    );
    let off = parsed(&format!("fail_closed: {{tokenizer: off}}\n{SMALLEST}"));
    assert_eq!(off.fail_closed, FailClosed::default());
    for (value, said) in [("0", "0"), ("129", "129")] {
        refused_before(
            &format!("fail_closed: {{max_n: {value}}}"),
            &format!("1:22: fail_closed.max_n: \"{said}\" is out of range; use 1 to 128"),
        );
    }
}

#[test]
fn a_changed_key_limit_or_list_changes_the_fingerprint() {
    let hash = |head: &str| parsed(&format!("{head}\n{SMALLEST}")).hash();
    let key = |name: &str, digest: &str, rest: &str| {
        hash(&format!("api_keys: [{{name: {name}, sha256: {digest}{rest}}}]"))
    };
    let other = DIGEST.replace('a', "b");
    let hashes = [
        hash(""),
        key("a", DIGEST, ""),
        key("b", DIGEST, ""),
        key("a", &other, ""),
        key("a", DIGEST, ", models: [m]"),
        key("a", DIGEST, ", limits: {rpm: 1}"),
        key("a", DIGEST, ", limits: {rpm: 2}"),
        hash("failover: {on: []}"),
        hash("failover: {on: [429]}"),
        hash("failover: {on: [auth]}"),
        hash("retry: {budget: 0.3}"),
        hash("fail_closed: {max_n: 1}"),
    ];
    let distinct: std::collections::BTreeSet<&String> = hashes.iter().collect();
    assert_eq!(distinct.len(), hashes.len(), "{hashes:?}");
    assert_eq!(key("a", DIGEST, ""), key("a", &DIGEST.to_ascii_uppercase(), ""));
    for own in ["server: {heartbeat: off}", "server: {tls: {cert: a, key: b}}"] {
        assert_eq!(hash(own), hash(""), "{own} is this node's own");
    }
}

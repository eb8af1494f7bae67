//! What is refused, with the place, the problem and the cure, one claim for each kind of mistake.
//!
//! The whole line is compared, because the line is all that whoever repairs the file gets to see.

use super::*;

/// Asserts that `text` is refused with exactly `expected`, the file's name left out.
pub(super) fn refused(text: &str, expected: &str) {
    assert_eq!(refusal(text), format!("gw.yaml:{expected}"), "{text}");
}

/// As `refused`, with the smallest configuration behind `head`.
pub(super) fn refused_before(head: &str, expected: &str) {
    refused(&format!("{head}\n{SMALLEST}"), expected);
}

#[test]
fn k01_a_mistyped_key_is_refused_with_the_nearest() {
    refused_before(
        "server:\n  listn: 1",
        "2:3: unknown key \"listn\" in server; did you mean \"listen\"?",
    );
    refused_before("sever: {}", "1:1: unknown key \"sever\" in the file; did you mean \"server\"?");
    refused(
        &model(", wieght: 1", ""),
        "4:42: unknown key \"wieght\" in models[0].endpoints[0]; did you mean \"weight\"?",
    );
    refused_before(
        "circuit_breaker: {slow: {totl: 1s}}",
        "1:26: unknown key \"totl\" in circuit_breaker.slow; did you mean \"total\"?",
    );
}

#[test]
fn k01_a_key_like_no_other_is_refused_with_all_known_ones() {
    refused_before(
        "retry: {\"a\\nb\": 1}",
        "1:9: unknown key \"a b\" in retry; known here: max_attempts, budget, \
         budget_floor, on",
    );
}

#[test]
fn k01_a_key_that_stands_twice_is_refused() {
    refused_before(
        "retry:\n  max_attempts: 1\n  max_attempts: 2",
        "3:3: key \"max_attempts\" stands twice in retry; keep one of them",
    );
}

#[test]
fn a_key_of_a_later_version_is_named_as_such() {
    refused_before(
        "circuit_breaker: {canary: {}}",
        "1:19: circuit_breaker.canary is not supported by this version; remove it",
    );
    refused(
        &model("", "    failover: {}\n"),
        "5:5: models[0].failover is not supported by this version; remove it",
    );
}

#[test]
fn k02_a_duration_without_a_proper_unit_is_refused() {
    for text in ["-1s", "1e99h", "10 secs", "1.5s", "99999999999999999h"] {
        refused_before(
            &format!("timeouts: {{idle: {text}}}"),
            &format!(
                "1:18: timeouts.idle: \"{text}\" is not a duration; write 10s (or 250ms, 5m, \
                 1m30s, 1h)"
            ),
        );
    }
    refused_before(
        "timeouts:\n  connect: 1s\n  idle: 10",
        "3:9: timeouts.idle: \"10\" has no unit; write 10s",
    );
    refused_before(
        "timeouts: {idle: 0s}",
        "1:18: timeouts.idle: \"0s\" is out of range; use 1ms to 24h",
    );
}

#[test]
fn k02_a_size_without_a_proper_unit_is_refused() {
    refused_before(
        "server: {max_body: 10 MB}",
        "1:20: server.max_body: \"10 MB\" is not a size; write 10MiB (or 64KiB, or plain bytes)",
    );
    refused_before(
        "server: {max_body: 0}",
        "1:20: server.max_body: \"0\" is out of range; use 1KiB to 1GiB",
    );
}

#[test]
fn k02_a_number_out_of_its_range_is_refused() {
    refused_before(
        "retry: {max_attempts: 11}",
        "1:23: retry.max_attempts: \"11\" is out of range; use 1 to 10",
    );
    refused_before(
        "retry: {max_attempts: three}",
        "1:23: retry.max_attempts: \"three\" is not a whole number; use 1 to 10",
    );
    refused_before(
        "circuit_breaker: {failure_ratio: .nan}",
        "1:34: circuit_breaker.failure_ratio: \".nan\" is not a number; write it like 0.5",
    );
}

#[test]
fn k04_a_text_that_is_no_configuration_is_refused() {
    let first = "describe at least one model with one endpoint";
    for text in ["", " \n\n", "\u{feff}"] {
        refused(text, &format!(" the file is empty; {first}"));
    }
    for text in ["# only a comment\n", "server: {}", "models: []"] {
        assert!(refusal(text).ends_with(&format!("there is no model; {first}")), "{text}");
    }
    refused("- a", "1:1: this must be a mapping of keys to values; write it so");
    refused("models: 5", "1:9: models: this must be a list; write it so");
    refused(
        &format!("{SMALLEST}---\na: b\n"),
        "3:1: a second document begins; keep one document in the file",
    );
    assert!(refusal("server: {listen: \"a").starts_with("gw.yaml:1:18: this is not valid YAML ("));
    assert!(refusal("server:\n\tlisten: a").starts_with("gw.yaml:2:"));
    assert!(refusal("admin: {token: ${T}}").ends_with("a value such as ${NAME} needs quotes"));
}

#[test]
fn k04_a_file_that_cannot_be_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gw.yaml");
    let said = |path: &Path| read(path).unwrap_err().to_string();
    assert!(said(&file).contains("cannot be read (entity not found); check the path"));
    assert!(said(directory.path()).contains("cannot be read"));
    std::fs::write(&file, [0x61, 0xff]).unwrap();
    assert!(said(&file).ends_with("the file is not UTF-8 text; save it as UTF-8"));
    std::fs::write(&file, vec![b'#'; FILE_BYTES_MAX as usize + 1]).unwrap();
    assert!(said(&file).ends_with("the file is longer than 8MiB; make it shorter"));
    std::fs::write(&file, []).unwrap();
    assert!(said(&file).contains("the file is empty"));
}

#[test]
fn k05_more_than_the_bound_is_refused() {
    let endpoint = |index| format!("{{name: e{index}, address: \"http://h:1/{index}\"}}");
    let many = |count| (0..count).map(endpoint).collect::<Vec<_>>().join(", ");
    let text = format!("models: [{{name: m, endpoints: [{}]}}]", many(ENDPOINTS_MAX));
    assert_eq!(parsed(&text).pools[0].endpoints.len(), ENDPOINTS_MAX);
    let text = format!("models: [{{name: m, endpoints: [{}]}}]", many(ENDPOINTS_MAX + 1));
    let said = refusal(&text);
    assert!(said.ends_with("has more than 10000 entries; remove some"), "{said}");

    let half = many(ENDPOINTS_MAX / 2 + 1);
    let text = format!(
        "models:\n- {{name: m, endpoints: [{half}]}}\n- {{name: n, endpoints: [{half}]}}\n"
    );
    let said = refusal(&text);
    assert!(said.contains("models[1](n).endpoints: with this model"), "{said}");

    let models = "{}, ".repeat(MODELS_MAX + 1);
    let said = refusal(&format!("models: [{models}]"));
    assert!(said.contains("has more than 1000 entries"), "{said}");
    let aliases = (0..=ALIASES_MAX).map(|index| format!("a{index}, ")).collect::<String>();
    let said = refusal(&model("", &format!("    aliases: [{aliases}]\n")));
    assert!(said.contains("has more than 64 entries"), "{said}");
}

#[test]
fn k05_a_small_text_that_stands_for_a_huge_one_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let inner = format!("*a{}, ", level - 1).repeat(10);
        text.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    refused(
        &text,
        "1:1: unknown key \"a0\" in the file; known here: server, admin, cluster, redis, \
         state, fail_closed, api_keys, circuit_breaker, timeouts, retry, failover, models, log, \
         telemetry",
    );
    let nested = format!("server: {}", "[".repeat(100_000));
    assert_one_line(&refusal(&nested));
    let nested = format!("models: {}", "[{endpoints: ".repeat(50_000));
    assert_one_line(&refusal(&nested));
    let items = "{name: a, address: b}, ".repeat(200);
    let list = format!("[{items}]");
    let models = "{name: m, endpoints: *e}, ".repeat(999);
    let said = refusal(&format!("models: [{{name: m, endpoints: &e {list}}}, {models}]"));
    assert!(said.contains("the file holds more than a configuration may"), "{said}");
    assert_one_line(&said);
}

#[test]
fn k08_an_unset_empty_or_broken_variable_is_refused_and_never_shown() {
    refused_before(
        "admin: {token: \"${NOPE}\"}",
        "1:16: admin.token: the value uses the variable NOPE, which is not set; set NOPE or write \
         ${NOPE:-default}",
    );
    refused_before(
        "admin: {token: \"${EMPTY}\"}",
        "1:16: admin.token: the value uses the variable EMPTY, which is empty; set EMPTY or remove \
         the key",
    );
    let broken = "which holds a line break or control character; set BROKEN to a single line, \
                  without a line break at its end";
    for (head, path) in [
        ("admin:\n  token: ${BROKEN}", "2:10: admin.token"),
        ("server:\n  listen: ${BROKEN}", "2:11: server.listen"),
        ("log:\n  level: a${BROKEN}", "2:10: log.level"),
    ] {
        let expected = format!("{path}: the value uses the variable BROKEN, {broken}");
        refused_before(head, &expected);
    }
    for value in ["\"\"", "", "~"] {
        assert!(
            refusal(&format!("admin:\n  token: {value}\n{SMALLEST}")).starts_with("gw.yaml:2:")
        );
    }
}

#[test]
fn k08_a_value_from_a_variable_is_refused_without_being_shown() {
    refused_before(
        "server: {listen: \"${QUORUMGATE_TOKEN}\"}",
        "1:18: server.listen: \"${QUORUMGATE_TOKEN}\" is not an address to listen on; write \
         IP:PORT, for example 127.0.0.1:8080",
    );
    let said = refusal(&format!("admin: {{token: \"hunter2 hunter2\"}}\n{SMALLEST}"));
    assert_one_line(&said);
    let said = refusal(&model("", "    circuit_breaker: {preset: \"${QUORUMGATE_TOKEN}\"}\n"));
    assert_one_line(&said);
    let said =
        refusal("models: [{name: m, endpoints: [{name: a, address: \"http://u:hunter2@h\"}]}]");
    assert!(said.contains("\"***@h\" has a user before the host"), "{said}");
    assert_one_line(&said);
}

#[test]
fn a_section_without_a_value_is_refused() {
    for key in ["server", "cluster", "fail_closed", "circuit_breaker", "models"] {
        refused(
            &format!("{key}:\n"),
            &format!(
                "1:{}: {key}: there is no value; give it one or remove the key",
                key.len() + 1
            ),
        );
    }
}

#[test]
fn an_open_door_for_operators_is_refused() {
    let problem = "admin.listen: anyone can reach this address and no token is set; set \
                   admin.token or listen on 127.0.0.1";
    for address in ["0.0.0.0:9090", "10.0.0.1:9090", "[::]:9090"] {
        refused_before(&format!("admin:\n  listen: \"{address}\""), &format!("2:11: {problem}"));
    }
    refused_before(
        "admin: {read_token: abc}",
        "1:21: admin.read_token: a token for reading without one for everything protects nothing; \
         set admin.token as well",
    );
    refused_before(
        "admin: {token: abc, read_token: abc}",
        "1:33: admin.read_token: it equals admin.token and so allows everything; use a different \
         secret",
    );
    refused_before(
        "admin:\n  listen: 127.0.0.1:8080",
        "2:11: admin.listen: server.listen takes this port already; choose another port",
    );
}

#[test]
fn a_fleet_without_proof_or_address_is_refused() {
    let base = "cluster:\n  id: c\n  node_id: n\n";
    let cure = "name ca, cert and key, or for a trial on loopback write insecure: true";
    refused_before(
        &format!("{base}  listen: 127.0.0.1:1"),
        &format!("2:3: cluster.tls: is missing; {cure}"),
    );
    refused_before(
        &format!("{base}  listen: 127.0.0.1:1\n  tls: {{ca: a, cert: b}}"),
        &format!("5:8: cluster.tls: is incomplete; {cure}"),
    );
    refused_before(
        &format!("{base}  listen: 127.0.0.1:1\n  tls: {{ca: a, insecure: true}}"),
        "5:26: cluster.tls.insecure: true contradicts the files beside it; keep one of the two",
    );
    refused_before(
        &format!("{base}  listen: 0.0.0.0:1\n  tls: {{insecure: true}}"),
        "4:11: cluster.advertise: is missing, and other nodes cannot connect to the address in \
         cluster.listen; write the address they reach, for example ${POD_IP}:7946",
    );
    refused_before(
        "cluster: {id: c, node_id: N, listen: \"127.0.0.1:1\", tls: {insecure: true}}",
        "1:27: cluster.node_id: \"N\" is not a node name; use 1 to 63 of a-z, 0-9, . and -, as in \
         a host name",
    );
}

#[test]
fn a_limit_that_admits_nothing_is_refused() {
    refused_before(
        "fail_closed: {allowed_paths: []}",
        "1:30: fail_closed.allowed_paths: an empty list admits no request at all; name a path or \
         remove the key",
    );
    refused_before(
        "fail_closed: {max_messages: 0}",
        "1:29: fail_closed.max_messages: \"0\" is out of range; use 1 to 1000000",
    );
    refused_before(
        "fail_closed: {require_header: X-Agent-Id}",
        "1:31: fail_closed.require_header: \"X-Agent-Id\" has capital letters; write it in lower \
         case; clients may still use any",
    );
    refused_before(
        "fail_closed: {require_header: x_agent_id}",
        "1:31: fail_closed.require_header: \"x_agent_id\" has _ in it, and headers of clients that do \
         are dropped; use -, for example x-agent-id",
    );
}

#[test]
fn a_name_that_is_taken_is_refused() {
    let endpoint = "endpoints: [{name: a, address: \"http://h\"}]";
    let pair = |a: &str, b: &str| format!("models:\n- name: m\n  endpoints:\n  - {a}\n  - {b}\n");
    let again = "choose another or remove one of them";
    refused(
        &format!("models:\n- {{name: m, {endpoint}}}\n- {{name: m, {endpoint}}}\n"),
        &format!("3:10: models[1](m).name: this name is taken in line 2; {again}"),
    );
    refused(
        &format!("models:\n- {{name: m, {endpoint}}}\n- {{name: n, aliases: [m], {endpoint}}}\n"),
        &format!("3:23: models[1](n).aliases[0]: this name is taken in line 2; {again}"),
    );
    refused(
        &pair("{name: a, address: \"http://h\"}", "{name: a, address: \"http://i\"}"),
        &format!("5:12: models[0](m).endpoints[1](a).name: this name is taken in line 4; {again}"),
    );
    refused(
        &pair("{name: a, address: \"http://h:80/\"}", "{name: b, address: \"http://H\"}"),
        "5:24: models[0](m).endpoints[1](b).address: line 4 sends the same model to it already; \
         remove one of them and use weight to give it a larger share",
    );
}

#[test]
fn m08_an_endpoint_that_is_never_to_be_called_is_refused() {
    let with = |address: &str| {
        refusal(&format!("models: [{{name: m, endpoints: [{{name: a, address: \"{address}\"}}]}}]"))
    };
    let said = with("http://169.254.169.254/latest");
    assert_eq!(
        said,
        "gw.yaml:1:51: models[0](m).endpoints[0](a).address: \"http://169.254.169.254/latest\" is a \
         metadata address; use the address of a model server"
    );
    let said = with("ftp://api.example");
    assert!(said.contains("has a scheme that is neither http nor https; write "), "{said}");
}

#[test]
fn a_rule_that_cannot_work_is_refused_where_it_is_written() {
    let said =
        refusal(&model("", "    circuit_breaker:\n      slow:\n        confirmations: 99\n"));
    let start =
        "gw.yaml:7:24: models[0](m).circuit_breaker.slow.confirmations: \"99\" cannot work; ";
    assert!(said.starts_with(start), "{said}");
    assert_one_line(&said);
    // What clashes may have been inherited; then the place is the section that made it clash.
    let said = refusal(&model(", circuit_breaker: {slow: {total: 20s}}", ""));
    let start = "gw.yaml:4:59: models[0](m).endpoints[0](a).circuit_breaker.slow.first_token: ";
    assert!(said.starts_with(start), "{said}");
    refused_before(
        "circuit_breaker: {preset: defalt}",
        "1:27: circuit_breaker.preset: \"defalt\" is no preset; did you mean \"default\"?",
    );
}

#[test]
fn a_slow_limit_no_request_can_cross_is_refused() {
    refused_before(
        "timeouts: {total: 60s}",
        "1:19: circuit_breaker.slow.total: 1m10s is never seen, timeouts.total ends the request at \
         1m; set it below 1m or raise timeouts.total",
    );
    refused(
        &model("", "    timeouts: {first_token: 30s}\n"),
        "5:29: models[0](m).circuit_breaker.slow.first_token: 30s is never seen, \
         timeouts.first_token ends the request at 30s; set it below 30s or raise \
         timeouts.first_token",
    );
    refused_before(
        "timeouts: {idle: 11m}",
        "1:18: timeouts.idle: it is longer than timeouts.total (10m) and never reached; use at \
         most 10m or raise timeouts.total",
    );
}

#[test]
fn j08_the_memory_for_bodies_holds_two_of_them() {
    let server = |keys: &str| format!("server: {{ {keys} }}\n{SMALLEST}");
    let said = refusal(&server("max_body: 10MiB, max_body_memory: 19MiB"));
    assert!(said.contains("server.max_body_memory") && said.contains("two bodies"), "{said}");
    let told = parsed(&server("max_body: 10MiB, max_body_memory: 20MiB"));
    assert_eq!(told.server.max_body_memory_bytes, 20 << 20);
    // Who says nothing gets what two take, however small the machine is.
    let giant = parsed(&server("max_body: 1GiB"));
    assert_eq!(giant.server.max_body_memory_bytes, 2 << 30);
    let usual = parsed(SMALLEST).server.max_body_memory_bytes;
    assert!((32 << 20..=1 << 30).contains(&usual), "{usual}");
}

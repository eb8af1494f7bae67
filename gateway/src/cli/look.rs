//! The views of a fleet for people: endpoints, members, the cluster, the configuration, and the why
//! of one endpoint.
//!
//! The documents are the admin API's; what one lacks is shown as a dash, so that a gateway of
//! another version can be asked as well.

mod explained;

use serde_json::Value;

use super::client::{Answer, Client};
use super::failure::Failure;
use super::table::{Side, Table, WIDTH};
use super::text::{harmless, is, number, percent_at, period, period_at, plain, rows, word, wrap};
use super::{Output, name, say};

/// What is said of an endpoint of which nothing is to be said.
const NOTHING_HELD: &str = "in: nothing is held against it";

/// Lists the endpoints.
pub(super) async fn endpoints(client: &Client, output: Output) -> Result<(), Failure> {
    let answer = client.get("endpoints").await?;
    show(&answer, output, |value| {
        let rows = rows(value, "/endpoints");
        let out = rows.iter().filter(|row| !is(row, "/in_rotation")).count();
        let closing = match (rows.len(), out) {
            (all, 0) => format!("all {all} in"),
            (all, out) => {
                format!("{out} of {all} out; quorumgate explain ENDPOINT tells the whole why")
            }
        };
        format!("{}{closing}\n", endpoint_table(rows).text())
    })
}

/// The table of endpoints, with the why beneath each that is not simply in.
pub(super) fn endpoint_table(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("ENDPOINT", Side::Left),
        ("STATE", Side::Left),
        ("VOTES", Side::Right),
        ("RUNNING", Side::Right),
        ("FIRST P50", Side::Right),
        ("P95", Side::Right),
        ("OUT 1H", Side::Right),
    ]);
    for row in rows {
        table.row([
            word(row, "/endpoint"),
            state(row),
            votes(row),
            word(row, "/in_flight"),
            period_at(row, "/latency/first_token_p50_ms"),
            period_at(row, "/latency/first_token_p95_ms"),
            percent_at(row, "/open_share"),
        ]);
        let verdict = word(row, "/verdict");
        if verdict != NOTHING_HELD && verdict != super::text::NOTHING {
            table.note(verdict);
        }
    }
    table
}

/// One word for where an endpoint stands: in capitals if it is out.
pub(super) fn state(row: &Value) -> String {
    let forced = word(row, "/forced");
    let percent = number(row, "/weight_percent").unwrap_or(100);
    match forced.as_str() {
        "force_open" => return "OUT forced".to_owned(),
        "force_closed" => return "in forced".to_owned(),
        _ => {}
    }
    if is(row, "/in_rotation") {
        return match (word(row, "/local/state").as_str(), percent) {
            ("half-open" | "half_open", percent) if percent < 100 => format!("in {percent}%"),
            ("half-open" | "half_open", _) => "half-open".to_owned(),
            (_, percent) if percent < 100 => format!("in {percent}%"),
            _ => "in".to_owned(),
        };
    }
    if word(row, "/cluster/state") == "open" {
        return "OUT fleet".to_owned();
    }
    if number(row, "/cooling_ms").is_some_and(|millis| millis > 0) {
        return "OUT paused".to_owned();
    }
    "OUT here".to_owned()
}

/// Votes that stand, of those that are needed.
pub(super) fn votes(row: &Value) -> String {
    let (counted, quorum) = (word(row, "/cluster/votes_counted"), word(row, "/cluster/quorum"));
    format!("{counted}/{quorum}")
}

/// Tells why an endpoint is in or out.
pub(super) async fn explain(
    client: &Client,
    endpoint: &str,
    output: Output,
) -> Result<(), Failure> {
    let endpoint = name::endpoint(client, endpoint).await?;
    let answer = client.get(&format!("endpoints/{}/explain", name::in_path(&endpoint))).await?;
    show(&answer, output, explained::text)
}

/// Lists the gateways of the fleet.
pub(super) async fn members(client: &Client, output: Output) -> Result<(), Failure> {
    let answer = client.get("members").await?;
    show(&answer, output, |value| {
        let rows = rows(value, "/members");
        let mut closing = String::new();
        let hashes: std::collections::BTreeSet<String> = rows
            .iter()
            .map(|row| word(row, "/config_hash"))
            .filter(|hash| hash != super::text::NOTHING)
            .collect();
        if hashes.len() > 1 {
            closing.push_str("the configurations differ: the members decide by different rules\n");
        }
        format!("{}{closing}", member_table(rows).text())
    })
}

fn member_table(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("MEMBER", Side::Left),
        ("STATE", Side::Left),
        ("HEARD", Side::Right),
        ("LEADS", Side::Right),
        ("VERSION", Side::Left),
        ("CONFIG", Side::Left),
        ("ADDRESS", Side::Left),
    ]);
    for row in rows {
        let is_self = is(row, "/self");
        let mark = if is_self { "*" } else { "" };
        let muted = if is(row, "/muted") { " muted" } else { "" };
        let hash: String = word(row, "/config_hash").chars().take(8).collect();
        table.row([
            format!("{}{mark}", word(row, "/id")),
            format!("{}{muted}", word(row, "/state")),
            if is_self { "self".to_owned() } else { period_at(row, "/age_ms") },
            word(row, "/steward_of"),
            word(row, "/version"),
            hash,
            word(row, "/address"),
        ]);
        if let Some(lost) = number(row, "/lost_for_ms") {
            let id = word(row, "/id");
            let cure = "counts in the electorate until its grace has passed, or";
            table.note(format!("lost for {}; {cure} quorumgate forget {id}", period(lost)));
        }
    }
    table
}

/// Shows whether the fleet can decide.
pub(super) async fn cluster(client: &Client, output: Output) -> Result<(), Failure> {
    let answer = client.get("cluster").await?;
    show(&answer, output, |value| {
        let mut lines = vec![
            ("node", word(value, "/node")),
            ("version", word(value, "/version")),
            ("up for", period_at(value, "/uptime_ms")),
            ("backend", word(value, "/backend")),
            ("live", word(value, "/live")),
            ("electorate", format!("{} ({})", word(value, "/electorate"), word(value, "/of"))),
            ("quorum", word(value, "/quorum")),
            ("can decide", yes(value, "/can_decide")),
            ("suspects itself", yes(value, "/suspect")),
            ("configuration", word(value, "/config_hash")),
            ("differs", yes(value, "/config_skew")),
            ("limit share", share(value)),
        ];
        if number(value, "/observing_ms").is_some_and(|left| left > 0) {
            lines.push(("only watches for", period_at(value, "/observing_ms")));
        }
        if value.get("name_used_at").is_some_and(|at| !at.is_null()) {
            lines.push(("NAME USED AT", word(value, "/name_used_at")));
        }
        if value.get("redis").is_some_and(|redis| !redis.is_null()) {
            lines.push(("redis", word(value, "/redis/sentence")));
            let failed = number(value, "/redis/errors").filter(|count| *count > 0);
            if let Some(failed) = failed {
                lines.push((
                    "redis calls",
                    format!("{}, {failed} failed", word(value, "/redis/calls")),
                ));
            }
        }
        let gossip = value.get("gossip").and_then(Value::as_object);
        let counts = gossip.into_iter().flatten();
        let counts: Vec<String> =
            counts.map(|(key, count)| format!("{} {}", plain(key), word(count, ""))).collect();
        let mut text = pairs(&lines);
        if !counts.is_empty() {
            text.push_str("gossip\n");
            for line in wrap(&counts.join(" · "), 2, WIDTH) {
                text.push_str(&format!("{line}\n"));
            }
        }
        text
    })
}

/// The part of every limit that a node holds. The document counts its place from 0, people do not: a `0 of
/// 3` would look as if it held nothing.
fn share(value: &Value) -> String {
    match (number(value, "/limit_share/rank"), number(value, "/limit_share/among")) {
        (Some(_), Some(1)) => "the whole".to_owned(),
        (Some(rank), Some(among)) => format!("1/{among} of each limit, place {}", rank + 1),
        (None, _) | (_, None) => super::text::NOTHING.to_owned(),
    }
}

fn yes(value: &Value, path: &str) -> String {
    match value.pointer(path).and_then(Value::as_bool) {
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
        None => super::text::NOTHING.to_owned(),
    }
}

/// Lines of a name and what it is, one below the other.
fn pairs(lines: &[(&str, String)]) -> String {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().map(|(name, what)| format!("{name:<width$}  {what}\n")).collect()
}

/// Prints the configuration that holds; what stands beside it goes to stderr.
pub(super) async fn config(client: &Client, output: Output) -> Result<(), Failure> {
    let answer = client.get("config").await?;
    if output == Output::Text {
        let value = &answer.value;
        eprintln!(
            "# {} · hash {} · loaded {} UTC",
            word(value, "/source"),
            word(value, "/hash"),
            number(value, "/loaded_unix_ms").map_or_else(String::new, super::text::moment)
        );
        if value.get("last_error").is_some_and(|error| !error.is_null()) {
            eprintln!("# the file was refused since: {}", word(value, "/last_error/message"));
        }
        for key in rows(value, "/needs_restart") {
            eprintln!("# {} waits for a restart", word(key, ""));
        }
    }
    show(&answer, output, |value| {
        let yaml = value.get("yaml").and_then(Value::as_str).unwrap_or_default();
        yaml.lines().map(|line| format!("{}\n", plain(line))).collect()
    })
}

/// Prints an answer: as it came for programs, else as `text` says it.
fn show(answer: &Answer, output: Output, text: impl Fn(&Value) -> String) -> Result<(), Failure> {
    match output {
        Output::Json => {
            say(&format!("{}\n", harmless(String::from_utf8_lossy(&answer.raw).trim_end())))
        }
        Output::Text => say(&text(&answer.value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nobody_seems_to_hold_nothing() {
        let told = |rank, among| share(&json!({ "limit_share": { "rank": rank, "among": among } }));
        assert_eq!(told(0, 3), "1/3 of each limit, place 1");
        assert_eq!(told(2, 3), "1/3 of each limit, place 3");
        assert_eq!(told(0, 1), "the whole");
        assert_eq!(share(&json!({})), super::super::text::NOTHING);
    }

    #[test]
    fn where_an_endpoint_stands_is_one_word() {
        let row = |more: Value| {
            let mut row = json!({
                "in_rotation": true, "forced": "auto", "weight_percent": 100, "cooling_ms": 0,
                "local": { "state": "closed" }, "cluster": { "state": "closed" },
            });
            if let (Some(row), Some(more)) = (row.as_object_mut(), more.as_object()) {
                row.extend(more.clone());
            }
            state(&row)
        };
        assert_eq!(row(json!({})), "in");
        assert_eq!(row(json!({ "weight_percent": 25 })), "in 25%");
        assert_eq!(row(json!({ "forced": "force_closed" })), "in forced");
        assert_eq!(row(json!({ "forced": "force_open", "in_rotation": false })), "OUT forced");
        let open = json!({ "state": "open" });
        assert_eq!(row(json!({ "in_rotation": false, "cluster": open })), "OUT fleet");
        assert_eq!(row(json!({ "in_rotation": false, "local": open })), "OUT here");
        assert_eq!(row(json!({ "in_rotation": false, "cooling_ms": 5 })), "OUT paused");
        assert_eq!(state(&Value::Null), "OUT here");
    }
}

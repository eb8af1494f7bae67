//! The whole why of one endpoint, for whoever was woken up by it: what is so, what happens next, who
//! says so, and what happened lately.

use serde_json::Value;

use super::super::table::{Side, Table, WIDTH};
use super::super::text::{is, number, period, period_at, rows, word, wrap};

/// Most rows of what happened lately.
const LATELY_MAX: usize = 20;

/// The answer to `explain` in words.
pub(super) fn text(value: &Value) -> String {
    let mut lines =
        vec![format!("{}, as {} sees it", word(value, "/endpoint"), word(value, "/node"))];
    sentence(&mut lines, "now", &word(value, "/verdict"));
    sentence(&mut lines, "next", &word(value, "/next"));
    if let Some(order) = order(value) {
        sentence(&mut lines, "order", &order);
    }
    for note in rows(value, "/notes") {
        sentence(&mut lines, "note", &word(note, "/message"));
    }
    sentence(&mut lines, "here", &here(value));
    sentence(&mut lines, "fleet", &fleet(value));
    sentence(&mut lines, "evidence", &evidence(value));
    table_of(&mut lines, "votes", &votes(value));
    table_of(&mut lines, "seen by members", &windows(value));
    table_of(&mut lines, "lately", &history(value));
    if let Some(tenants) = tenants(value) {
        sentence(&mut lines, "tenants", &tenants);
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Adds a titled sentence, wrapped beneath itself.
fn sentence(lines: &mut Vec<String>, title: &str, sentence: &str) {
    const INDENT: usize = 12;
    let wrapped = wrap(sentence, INDENT, WIDTH);
    for (index, line) in wrapped.iter().enumerate() {
        let title = if index == 0 { title } else { "" };
        lines.push(format!("  {title:<10}{}", line.trim_start()));
    }
}

fn table_of(lines: &mut Vec<String>, title: &str, table: &Option<Table>) {
    if let Some(table) = table {
        lines.push(format!("  {title}"));
        lines.extend(table.lines(WIDTH).iter().map(|line| format!("    {line}")));
    }
}

fn order(value: &Value) -> Option<String> {
    let what = match word(value, "/forced").as_str() {
        "force_open" => "forced out",
        "force_closed" => "forced in",
        _ => return None,
    };
    let left = number(value, "/forced_for_ms")
        .map_or_else(String::new, |millis| format!(", for {} more", period(millis)));
    let (by, reason) = (word(value, "/forced_by"), word(value, "/forced_reason"));
    Some(format!("{what} by {by}{left}: {reason}"))
}

fn here(value: &Value) -> String {
    let mut parts = vec![format!("circuit {}", word(value, "/local/state"))];
    for (title, path) in [("by", "/local/reason"), ("rung", "/local/rung")] {
        if value.pointer(path).is_some_and(|part| !part.is_null()) {
            parts.push(format!("{title} {}", word(value, path)));
        }
    }
    if is(value, "/local/held") {
        parts.push("held by the fleet".to_owned());
    }
    if number(value, "/local/remaining_ms").is_some() {
        parts.push(format!("{} left", period_at(value, "/local/remaining_ms")));
    }
    parts.push(format!("mode {}", word(value, "/local/mode")));
    parts.push(format!("{} % of its weight", word(value, "/weight_percent")));
    parts.push(format!("{} in flight", word(value, "/in_flight")));
    parts.join(" · ")
}

fn fleet(value: &Value) -> String {
    let mut parts = vec![
        format!("circuit {}", word(value, "/cluster/state")),
        format!("incident {}", word(value, "/cluster/incident")),
        format!(
            "{} votes of {} members, {} needed",
            word(value, "/cluster/votes_counted"),
            word(value, "/cluster/electorate"),
            word(value, "/cluster/quorum")
        ),
    ];
    if number(value, "/cluster/open_for_ms").is_some() {
        parts.push(format!("open for {}", period_at(value, "/cluster/open_for_ms")));
    }
    parts.push(format!("steward {}", word(value, "/cluster/steward")));
    if value.pointer("/cluster/step").is_some_and(|step| !step.is_null()) {
        let (stage, by) = (word(value, "/cluster/step/stage"), word(value, "/cluster/step/by"));
        parts.push(format!("step {stage} by {by}"));
    }
    parts.join(" · ")
}

fn evidence(value: &Value) -> String {
    format!(
        "{} requests in {}: {} faults, {} slow pieces, {} successes, {} failures in a row",
        word(value, "/evidence/requests"),
        period_at(value, "/evidence/window_ms"),
        word(value, "/evidence/faults"),
        word(value, "/evidence/slow_pieces"),
        word(value, "/evidence/successes"),
        word(value, "/evidence/streak"),
    )
}

/// The columns that say what somebody has seen.
const SEEN: [(&str, Side); 5] = [
    ("AGE", Side::Right),
    ("REQUESTS", Side::Right),
    ("FAULTS", Side::Right),
    ("SLOW", Side::Right),
    ("GOOD", Side::Right),
];

fn votes(value: &Value) -> Option<Table> {
    let votes = rows(value, "/votes");
    let [age, requests, faults, slow, good] = SEEN;
    let mut table = Table::new(&[
        ("VOTER", Side::Left),
        ("SAYS", Side::Left),
        ("BASIS", Side::Left),
        age,
        requests,
        faults,
        slow,
        good,
    ]);
    for vote in votes {
        table.row([
            word(vote, "/voter"),
            format!("{} {}", word(vote, "/state"), word(vote, "/incident")),
            word(vote, "/basis"),
            period_at(vote, "/age_ms"),
            word(vote, "/evidence/requests"),
            word(vote, "/evidence/faults"),
            word(vote, "/evidence/slow_pieces"),
            word(vote, "/evidence/successes"),
        ]);
        table.note(format!("{}: {}", word(vote, "/weight"), word(vote, "/reason")));
    }
    (!votes.is_empty()).then_some(table)
}

fn windows(value: &Value) -> Option<Table> {
    let windows = rows(value, "/windows");
    let [age, requests, faults, slow, good] = SEEN;
    let mut table = Table::new(&[("MEMBER", Side::Left), age, requests, faults, slow, good]);
    for window in windows {
        table.row([
            word(window, "/member"),
            period_at(window, "/age_ms"),
            word(window, "/requests"),
            word(window, "/faults"),
            word(window, "/slow_pieces"),
            word(window, "/successes"),
        ]);
    }
    (!windows.is_empty()).then_some(table)
}

fn history(value: &Value) -> Option<Table> {
    let entries = rows(value, "/history");
    let mut table =
        Table::new(&[("AGO", Side::Right), ("WHOSE", Side::Left), ("WHAT", Side::Left)]);
    for entry in entries.iter().rev().take(LATELY_MAX) {
        table.row([period_at(entry, "/age_ms"), word(entry, "/scope"), word(entry, "/what")]);
    }
    (!entries.is_empty()).then_some(table)
}

fn tenants(value: &Value) -> Option<String> {
    value.get("tenants").filter(|tenants| !tenants.is_null())?;
    let names = rows(value, "/tenants/out").iter().map(|tenant| word(tenant, "/tenant"));
    let names: Vec<String> = names.collect();
    let (out, known) = (word(value, "/tenants/out_count"), word(value, "/tenants/known"));
    Some(format!("{out} of {known} are out: {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_of_another_version_is_told_all_the_same() {
        for value in [Value::Null, json!([]), json!({ "votes": [null, 3], "history": [{}] })] {
            assert!(text(&value).lines().all(|line| line.chars().count() <= WIDTH));
        }
    }
}

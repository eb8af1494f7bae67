//! What stands on the screen: a title, the members, what is wrong, and the endpoints, those that are
//! out first.

use serde_json::Value;

use super::super::look::{endpoint_table, state};
use super::super::table::Table;
use super::super::text::{cut, is, plain, rows, word};
use super::Picture;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// The first line.
    Title,
    /// Over columns.
    Head,
    /// Nothing to see to.
    Plain,
    /// Something passes, or was ordered.
    Notable,
    /// Something is wrong.
    Bad,
}

/// One line of the screen.
pub(super) struct Line {
    pub(super) text: String,
    pub(super) style: Style,
}

/// What is drawn.
pub(super) struct Frame<'a> {
    pub(super) picture: &'a Picture,
    /// Why the picture is not of now.
    pub(super) problem: Option<String>,
    /// Endpoints that are scrolled over.
    pub(super) scroll: usize,
    /// Whether it is renewed; then it says which keys there are.
    pub(super) is_live: bool,
}

impl Frame<'_> {
    /// The most endpoints that can be scrolled over.
    pub(super) fn scroll_max(&self) -> usize {
        self.endpoints().len().saturating_sub(1)
    }

    /// The lines for a screen of this size, at most `height`, none longer than `width` characters.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<Line> {
        let mut lines = vec![self.title(), self.members()];
        lines.extend(self.warnings());
        lines.push(line(String::new(), Style::Plain));
        let foot = usize::from(self.is_live);
        let room = height.saturating_sub(lines.len() + foot);
        lines.extend(self.table(width, room));
        lines.truncate(height.saturating_sub(foot));
        if self.is_live && height > 0 {
            lines.push(line("q quit · j/k scroll".to_owned(), Style::Plain));
        }
        for line in &mut lines {
            line.text = cut(&line.text, width);
        }
        lines
    }

    /// The endpoints, those that are out first, else in the order of the configuration.
    fn endpoints(&self) -> Vec<&Value> {
        let mut rows: Vec<&Value> = rows(&self.picture.endpoints, "/endpoints").iter().collect();
        rows.sort_by_key(|row| is(row, "/in_rotation"));
        rows
    }

    fn title(&self) -> Line {
        let (cluster, endpoints) = (&self.picture.cluster, self.endpoints());
        let out = endpoints.iter().filter(|row| !is(row, "/in_rotation")).count();
        let text = format!(
            "{} · {} of {} live, {} decide · {out} of {} endpoints out",
            word(cluster, "/node"),
            word(cluster, "/live"),
            word(cluster, "/electorate"),
            word(cluster, "/quorum"),
            endpoints.len()
        );
        line(text, Style::Title)
    }

    fn members(&self) -> Line {
        let rows = rows(&self.picture.members, "/members");
        let is_well = |row: &Value| word(row, "/state") == "live";
        let style = if rows.iter().all(is_well) { Style::Plain } else { Style::Notable };
        let words: Vec<String> = rows
            .iter()
            .map(|row| {
                let mark = if is(row, "/self") { "*" } else { "" };
                format!("{}{mark} {}", word(row, "/id"), word(row, "/state"))
            })
            .collect();
        line(words.join("   "), style)
    }

    fn warnings(&self) -> Vec<Line> {
        let cluster = &self.picture.cluster;
        let mut lines = Vec::new();
        let mut warn = |text: String| lines.push(line(text, Style::Bad));
        if let Some(problem) = &self.problem {
            warn(plain(problem));
        }
        let redis = word(cluster, "/redis/state");
        if redis == "away" || redis == "returning" {
            warn(word(cluster, "/redis/sentence"));
        }
        if is(cluster, "/suspect") {
            warn("this node suspects itself: its own network seems to fail".to_owned());
        }
        if is(cluster, "/config_skew") {
            warn("the configurations of the members differ".to_owned());
        }
        if lacks_majority(cluster) {
            warn("the fleet cannot decide: no majority of its members is heard".to_owned());
        }
        lines
    }

    /// The endpoints that fit into `room` lines, with their head.
    fn table(&self, width: usize, room: usize) -> Vec<Line> {
        let endpoints = self.endpoints();
        let total = endpoints.len();
        let shown: Vec<Value> = endpoints
            .into_iter()
            .skip(self.scroll)
            // More rows than lines need not be laid out.
            .take(room)
            .cloned()
            .collect();
        let table: Table = endpoint_table(&shown);
        let mut lines: Vec<Line> = Vec::new();
        let mut style = Style::Head;
        let mut row = 0;
        for text in table.lines(width) {
            if !text.starts_with(' ') && !lines.is_empty() {
                style = shown.get(row).map_or(Style::Plain, style_of);
                row += 1;
            }
            lines.push(line(text, style));
        }
        let needed = total.saturating_sub(self.scroll + row);
        if lines.len() > room || needed > 0 {
            lines.truncate(room.saturating_sub(1));
            let visible = lines.iter().skip(1).filter(|line| !line.text.starts_with(' ')).count();
            let left = total.saturating_sub(self.scroll + visible);
            lines.push(line(format!("… {left} more"), Style::Plain));
        }
        lines
    }
}

fn line(text: String, style: Style) -> Line {
    Line { text, style }
}

fn style_of(row: &Value) -> Style {
    match state(row).as_str() {
        "in" => Style::Plain,
        word if word.starts_with("OUT") => Style::Bad,
        _ => Style::Notable,
    }
}

/// Whether it is for want of a live majority that the fleet cannot decide: not where Redis is to decide
/// and is away, and not on a node alone.
fn lacks_majority(cluster: &Value) -> bool {
    let figure = |name: &str| cluster.get(name).and_then(Value::as_u64).unwrap_or_default();
    let redis = word(cluster, "/redis/state");
    let is_redis_away =
        (redis == "away" || redis == "returning") && word(cluster, "/redis/fallback") != "gossip";
    let decides = cluster.get("can_decide").and_then(Value::as_bool);
    decides == Some(false)
        && figure("electorate") > 1
        && figure("live") < figure("quorum")
        && !is_redis_away
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn that_no_majority_is_heard_is_said_only_where_it_is_so() {
        let cluster = |live: u64, redis: Value| json!({ "electorate": 3, "quorum": 2, "live": live, "can_decide": false, "redis": redis });
        let away = |fallback: &str| json!({ "state": "away", "fallback": fallback });
        assert!(lacks_majority(&cluster(1, Value::Null)));
        assert!(lacks_majority(&cluster(1, away("gossip"))));
        assert!(!lacks_majority(&cluster(3, away("local"))), "three of three are live");
        assert!(!lacks_majority(&cluster(1, away("local"))), "without gossip nobody is heard");
        assert!(!lacks_majority(
            &json!({ "electorate": 1, "quorum": 1, "live": 1, "can_decide": false })
        ));
    }
}

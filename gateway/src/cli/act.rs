//! Orders: an endpoint forced out or in, a member sent away, seeds named, the configuration read
//! again. Each says what was done in one line.

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::failure::{Failure, REFUSED};
use super::text::{harmless, period, plain, rows, word};
use super::{Output, name, say};

/// The order that forces an endpoint for a while.
///
/// # Errors
/// The period is none.
pub(super) fn forced(
    state: &str,
    period: &str,
    reason: &str,
    is_confirmed: bool,
) -> Result<Value, Failure> {
    gateway::config::parse_duration(period)
        .map_err(|why| Failure::usage(format!("--for {}: {why}", plain(period))))?;
    let mut order = json!({ "state": state, "for": period, "reason": reason });
    if let (true, Some(order)) = (is_confirmed, order.as_object_mut()) {
        order.insert("confirm".to_owned(), json!(true));
    }
    Ok(order)
}

/// The order that gives an endpoint back to the automatic rule.
pub(super) fn auto(reason: &str) -> Value {
    json!({ "state": "auto", "reason": reason })
}

/// Gives an order about an endpoint.
pub(super) async fn force(
    client: &Client,
    endpoint: &str,
    order: &Value,
    output: Output,
) -> Result<(), Failure> {
    let endpoint = name::endpoint(client, endpoint).await?;
    let path = format!("endpoints/{}/override", name::in_path(&endpoint));
    let answer = client.post(&path, order).await.map_err(|failure| {
        if failure.word != "needs_confirmation" {
            return failure;
        }
        // What the API says to send is for programs.
        let what = failure.message.split("; send").next().unwrap_or_default();
        Failure { message: format!("{what}; with --yes it is done all the same"), ..failure }
    })?;
    done(&answer, output, |value| {
        let what = match value.get("state").and_then(Value::as_str) {
            Some("force_open") => "is forced out on every node",
            Some("force_closed") => "is forced in on every node",
            _ => "is back under the automatic rule",
        };
        let until = match value.get("for_ms").and_then(Value::as_u64) {
            Some(millis) => format!(", for {}", period(millis)),
            None => String::new(),
        };
        format!("{} {what}{until}", plain(&endpoint))
    })
}

/// Orders a member to drain, to leave, or to be forgotten.
pub(super) async fn order(
    client: &Client,
    member: &str,
    order: &str,
    reason: &str,
    output: Output,
) -> Result<(), Failure> {
    let path = format!("members/{}/{order}", name::in_path(member));
    let answer = match client.post(&path, &json!({ "reason": reason })).await {
        Ok(answer) => answer,
        Err(failure) if failure.code == REFUSED => {
            return Err(name::member_guess(client, member, failure).await);
        }
        Err(failure) => return Err(failure),
    };
    done(&answer, output, |_| {
        let member = plain(member);
        match order {
            "drain" => format!("{member} drains: no new clients, its streams finish"),
            "leave" => format!("{member} leaves: it drains, and its vote is needed no more"),
            _ => format!("{member} is forgotten: it is no part of the electorate"),
        }
    })
}

/// Names further seeds.
pub(super) async fn join(client: &Client, seeds: &[String], output: Output) -> Result<(), Failure> {
    let answer = client.post("join", &json!({ "seeds": seeds })).await?;
    done(&answer, output, |value| {
        let tried: Vec<String> = rows(value, "/seeds").iter().map(|seed| word(seed, "")).collect();
        format!("asks for the fleet at {}", tried.join(", "))
    })
}

/// Has the configuration read again.
pub(super) async fn reload(client: &Client, output: Output) -> Result<(), Failure> {
    let answer = client.post("config/reload", &json!({})).await?;
    done(&answer, output, |value| {
        let hash = word(value, "/hash");
        let is_changed = value.get("changed").and_then(Value::as_bool).unwrap_or(false);
        let mut line = if is_changed {
            format!("the configuration is read again, its hash is {hash}")
        } else {
            format!("nothing has changed, the hash is {hash}")
        };
        for (kind, path) in [
            ("added", "/endpoints/added"),
            ("removed", "/endpoints/removed"),
            ("changed", "/endpoints/changed"),
        ] {
            line.push_str(&listed(&format!("\n  {kind}: "), value, path));
        }
        line.push_str(&listed("\n  waits for a restart: ", value, "/needs_restart"));
        line
    })
}

/// The entries of a list after `title`; nothing where there are none.
fn listed(title: &str, value: &Value, path: &str) -> String {
    let entries: Vec<String> = rows(value, path).iter().map(|entry| word(entry, "")).collect();
    match entries.is_empty() {
        true => String::new(),
        false => format!("{title}{}", entries.join(", ")),
    }
}

/// Prints an answer: as it came for programs, else as the line says it.
fn done(answer: &Answer, output: Output, line: impl Fn(&Value) -> String) -> Result<(), Failure> {
    match output {
        Output::Json => {
            say(&format!("{}\n", harmless(String::from_utf8_lossy(&answer.raw).trim_end())))
        }
        Output::Text => say(&format!("{}\n", line(&answer.value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_what_the_api_reads() {
        let order = forced("force_open", "10m", "why", true).unwrap();
        let wanted =
            json!({ "state": "force_open", "for": "10m", "reason": "why", "confirm": true });
        assert_eq!(order, wanted);
        assert_eq!(forced("force_closed", "1h30m", "", false).unwrap().get("confirm"), None);
    }

    #[test]
    fn a_period_that_is_none_is_refused_before_anything_is_sent() {
        let failure = forced("force_open", "ten", "", false).unwrap_err();
        assert_eq!(failure.code, 64);
        assert!(failure.message.starts_with("--for ten: is not a duration; write 10s"));
    }
}

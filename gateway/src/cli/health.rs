//! Whether a gateway is alive, or should get clients, by exit code: what an image without a shell is
//! looked after by.
//!
//! No token is needed. Alive and ready are two questions: a gateway that drains is alive, and whoever
//! replaced it for not being ready would cut its streams.

use serde_json::Value;

use super::client::Client;
use super::failure::Failure;
use super::text::{harmless, rows, word};
use super::{Output, say};

/// Asks whether the gateway is alive, or `for_clients`, whether it should get any.
///
/// # Errors
/// It is not, and why; or there is no answer.
pub(super) async fn ask(client: &Client, for_clients: bool, output: Output) -> Result<(), Failure> {
    let (path, good, bad) = match for_clients {
        true => ("readyz", "ready", "not ready"),
        false => ("healthz", "alive", "stuck: restart it"),
    };
    let (is_good, answer) = client.condition(path).await?;
    let why = reasons(&answer.value);
    if output == Output::Json {
        say(&format!("{}\n", harmless(String::from_utf8_lossy(&answer.raw).trim_end())))?;
    }
    if !is_good {
        return Err(Failure::unavailable(format!("{}: {bad}{why}", client.address())));
    }
    match output {
        Output::Text => say(&format!("{good}{why}\n")),
        Output::Json => Ok(()),
    }
}

/// The codes of what is to be known, behind the word for it; nothing where there is nothing.
fn reasons(value: &Value) -> String {
    let codes: Vec<String> =
        rows(value, "/reasons").iter().map(|reason| word(reason, "/code")).collect();
    match codes.is_empty() {
        true => String::new(),
        false => format!(" ({})", codes.join(", ")),
    }
}

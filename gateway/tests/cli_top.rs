//! `top` in a terminal of its own: it draws, follows the size, quits, and gives the terminal back.
//!
//! The terminal is made by python3's `pty`, which is there wherever the tests of the clients are.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "process/mod.rs"]
mod process;

use std::process::{Command, Stdio};

use crate::process::{BINARY, Gateway};

/// Runs a command in a terminal, resizes it, presses keys; prints what was seen.
const SCRIPT: &str = include_str!("cli/terminal.py");

async fn in_terminal(gateway: &Gateway, plan: &str) -> String {
    let mut command = Command::new("python3");
    command
        .args(["-c", SCRIPT, plan, BINARY, "top", "--every", "200ms"])
        .env("QUORUMGATE_ADMIN", gateway.operators.to_string())
        .env_remove("QUORUMGATE_TOKEN")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let Ok(output) = output else { panic!("python3 is missing; install python3") };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    out.into_owned()
}

#[tokio::test]
async fn top_draws_at_any_size_quits_by_a_key_and_gives_the_terminal_back() {
    let directory = tempfile::tempdir().unwrap();
    let (upstream, _) = process::mock("a").await;
    let rows: String = (0..40)
        .map(|n| format!("      - {{ name: gpu-{n}, address: \"http://{upstream}/{n}\" }}\n"))
        .collect();
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: info }}
models:
  - name: m
    endpoints:
{rows}"
    );
    let gateway = Gateway::serve(directory.path(), "top", &yaml);
    // Each step waits until the screen holds its text.
    let drawn = "size 80 24;see m/gpu-0;see more;see q quit";
    let small = "size 20 5;size 1 1;size 3 2;size 200 60;see m/gpu-39";
    let scrolled = "size 80 10;key j;key j;see m/gpu-2";
    for (plan, end) in [("key q", 0), ("key \x03", 0), ("key \x1b[B;key q", 0), ("term", 0)] {
        let plan = format!("{drawn};{small};{scrolled};{plan};end {end}");
        let seen = in_terminal(&gateway, &plan).await;
        assert!(seen.contains("restored"), "{seen}");
    }
    let resting = in_terminal(&gateway, "size 80 24;see q quit;hang;end any").await;
    assert!(resting.contains("ended"), "{resting}");
}

//! A well-known client that asks as fast as it can, by many streams, and is served to the last.

use std::process::Command;

use crate::local::QUESTION;
use crate::raw::{Act, Raw, good};
use crate::stand::{MACHINE, Stand, sized};

/// Asks so often over so many connections with so many streams each: what h2load says.
async fn h2load(stand: &Stand, scheme: &str, (asks, connections, streams): (usize, usize, usize)) {
    let directory = tempfile::tempdir().unwrap();
    let body = directory.path().join("question");
    std::fs::write(&body, QUESTION).unwrap();
    let mut command = Command::new("h2load");
    command.args(["-n", &asks.to_string(), "-c", &connections.to_string()]);
    command.args(["-m", &streams.to_string(), "-H", "content-type: application/json", "-d"]);
    command.arg(body).arg(format!("{scheme}://{}/v1/chat/completions", stand.address()));
    let ran = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let output = ran.unwrap_or_else(|_| panic!("h2load is missing; install nghttp2-client"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let says = |wanted: &str| assert!(said.contains(wanted), "{wanted} is not in: {said}");
    says(&format!("{asks} succeeded, 0 failed, 0 errored, 0 timeout"));
    says(&format!("status codes: {asks} 2xx, 0 3xx, 0 4xx, 0 5xx"));
    let line = said.lines().find(|line| line.starts_with("finished in")).unwrap();
    println!("{connections} connections of {streams} streams, {scheme}: {line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2load_is_served_to_the_last_request() {
    let _alone = MACHINE.lock().await;
    let yes = || Raw::always(vec![Act::Say(good("yes"))]);
    let stand = Stand::new(yes().await, "").await;
    let asks = sized(1_500, 100_000);
    h2load(&stand, "http", (asks, 4, 1)).await;
    h2load(&stand, "http", (asks, 4, 100)).await;
    let secured = Stand::secured(yes().await).await;
    h2load(&secured, "https", (asks, 4, 100)).await;
    assert_eq!(stand.counted("guard_refusals_total{reason=\"flood\"}").await, 0);
}

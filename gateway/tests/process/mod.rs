//! Real processes for the tests: the binary with a configuration file, asked over its own sockets.
//!
//! A process is ended by its own handle, with SIGKILL, when the test drops it. Every wait has a
//! deadline and says what it waited for.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway::mock::{self, Mock};
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

/// No single wait of a test takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The binary.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_quorumgate");

/// What operators show where a gateway asks for it; where it does not, it is no matter.
pub(crate) const TOKEN: &str = "the-operators-of-the-test-fleet";

/// A command that becomes the binary, ahead of what else the machine has to do, where that is not
/// what is measured. Linux prefers a process within its session and one session to another, so it
/// gets a session of its own. Who may not be preferred is started all the same.
pub(crate) fn preferred() -> Command {
    let script = "{ echo -15 > /proc/self/autogroup; } 2>/dev/null; exec nice -n -15 \"$0\" \"$@\"";
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", script, BINARY]);
    command
}

/// A gateway process.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) name: String,
    pub(crate) clients: SocketAddr,
    pub(crate) operators: SocketAddr,
    pub(crate) gossip: Option<SocketAddr>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Gateway {
    /// Starts `quorumgate serve` with this configuration and waits until it serves.
    pub(crate) fn serve(directory: &Path, name: &str, yaml: &str) -> Self {
        Self::serve_by(Command::new(BINARY), directory, name, yaml)
    }

    /// The same by a command that ends in the binary and lacks its arguments only. The command must
    /// become the binary and not start it, for its process is the one that is stopped and killed.
    pub(crate) fn serve_by(mut by: Command, directory: &Path, name: &str, yaml: &str) -> Self {
        let file = directory.join(format!("{name}.yaml"));
        std::fs::write(&file, yaml).unwrap();
        by.args(["serve", "--config"]).arg(&file);
        Self::serve_whole(by, name)
    }

    /// The same by a command that lacks nothing.
    pub(crate) fn serve_whole(mut by: Command, name: &str) -> Self {
        let mut child = by.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (served, serving) = std::sync::mpsc::channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Ok(event) = serde_json::from_str::<Value>(&line)
                    && event["message"] == "serving"
                {
                    let _ = served.send(event);
                }
                kept.lock().unwrap().push(line);
            }
        });
        let Ok(event) = serving.recv_timeout(PATIENCE) else {
            let _ = child.kill();
            panic!("{name} does not serve: {:?}", log.lock().unwrap());
        };
        let address = |key: &str| event[key].as_str().unwrap().parse().unwrap();
        let gossip = event["gossip"].as_str().unwrap();
        let gossip = gossip.strip_prefix("Some(").map(|rest| rest.trim_end_matches(')'));
        Self {
            child,
            name: name.to_owned(),
            clients: address("clients"),
            operators: address("operators"),
            gossip: gossip.map(|address| address.parse().unwrap()),
            log,
        }
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name, for example `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Ends the process at once, as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Whether the process has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the process to end by itself.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{} does not end", self.name);
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// `GET` on the operators' listener.
    pub(crate) async fn look(&self, path: &str) -> Value {
        let bearer = format!("Bearer {TOKEN}");
        let headers = [("authorization", bearer.as_str())];
        let (status, body) = call(self.operators, Method::GET, path, &headers, "").await.unwrap();
        assert!(status.is_success(), "{path}: {status} {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// What it says of an endpoint.
    pub(crate) async fn explain(&self, endpoint: &str) -> Value {
        self.look(&format!("/admin/v1/endpoints/{endpoint}/explain")).await
    }

    /// `GET` of a text on the operators' listener.
    pub(crate) async fn text(&self, path: &str) -> String {
        call(self.operators, Method::GET, path, &[], "").await.unwrap().1
    }

    /// One plain chat request; its status.
    pub(crate) async fn chat(&self) -> StatusCode {
        self.chat_for("m").await
    }

    /// One plain chat request for a model; its status.
    pub(crate) async fn chat_for(&self, model: &str) -> StatusCode {
        let body = chat_body(false).replace("\"m\"", &format!("\"{model}\""));
        let answer = call(self.clients, Method::POST, CHAT, &[], &body).await;
        answer.map_or(StatusCode::IM_A_TEAPOT, |(status, _)| status)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of {}\n{}", self.name, self.log().join("\n"));
        }
    }
}

pub(crate) const CHAT: &str = "/v1/chat/completions";

/// A small chat request.
pub(crate) fn chat_body(is_stream: bool) -> String {
    json!({
        "model": "m",
        "messages": [{ "role": "user", "content": "hello" }],
        "stream": is_stream,
    })
    .to_string()
}

/// One HTTP request on a connection of its own.
pub(crate) async fn call(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<(StatusCode, String), hyper_util::client::legacy::Error> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://{address}{path}"))
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
    let response = client.request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await.map(|body| body.to_bytes());
    let body = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
    Ok((status, body))
}

/// A mock model server in the test's own process.
pub(crate) async fn mock(name: &str) -> (SocketAddr, Mock) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mock = Mock::new(name);
    tokio::spawn(mock::serve(listener, mock.clone()));
    (address, mock)
}

/// The rows of these endpoints in a model's configuration.
pub(crate) fn endpoint_rows(endpoints: &[(&str, SocketAddr)]) -> String {
    let row = |(name, address): &(&str, SocketAddr)| {
        format!("      - {{ name: {name}, address: \"http://{address}\" }}\n")
    };
    endpoints.iter().map(row).collect()
}

/// The sections of a node of a test fleet but for what its test is about: `cluster` comes last and is
/// still open. Its certificates lie in `directory`.
pub(crate) fn member_head(directory: &Path, node: &str, seed: Option<SocketAddr>) -> String {
    let seed = seed.map(|seed| seed.to_string()).unwrap_or_default();
    let directory = directory.display();
    format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1, drain_delay: 100ms }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: info }}
cluster:
  id: test
  node_id: {node}
  listen: 127.0.0.1:0
  seeds: [{seed}]
  tls: {{ ca: {directory}/ca.crt, cert: {directory}/{node}.crt, key: {directory}/{node}.key }}
"
    )
}

/// Waits until `done` holds.
pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !done().await {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

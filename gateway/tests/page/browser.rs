//! A headless Chromium for the tests, driven through chromedriver by the W3C WebDriver protocol.
//!
//! The protocol is JSON over HTTP, so that it needs no library. Each browser has a profile of its own,
//! and is ended with its driver when the test drops it. Every wait has a deadline and says what it
//! waited for.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::process::PATIENCE;

const CURE: &str = "install Chromium and its driver (Debian: chromium, chromium-driver)";
/// What the browser shall not do: ask the network for anything of its own.
const FLAGS: [&str; 9] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--disable-component-update",
    "--hide-scrollbars",
];

/// Keys of the WebDriver protocol.
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const SPACE: &str = "\u{e00d}";

/// Browsers at a time; more wait, so that each is as quick as an operator's.
static ROOM: Semaphore = Semaphore::const_new(2);

/// One browser with one window.
pub(crate) struct Browser {
    driver: Child,
    client: Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    session: String,
    profile: TempDir,
    _place: SemaphorePermit<'static>,
}

impl Browser {
    /// Starts a browser whose window is so wide and high.
    pub(crate) async fn open(width: u32, height: u32) -> Self {
        let place = ROOM.acquire().await.unwrap();
        let profile = tempfile::tempdir().unwrap();
        let (driver, address) = start_driver();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut browser =
            Self { driver, client, address, session: String::new(), profile, _place: place };
        let mut flags: Vec<String> = FLAGS.map(str::to_owned).to_vec();
        flags.push(format!("--user-data-dir={}", browser.profile.path().display()));
        let session = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "unhandledPromptBehavior": "ignore",
            "goog:chromeOptions": { "args": flags },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        }}});
        let made = browser.ask(Method::POST, "/session", &session).await;
        let id = made["sessionId"].as_str().unwrap_or_else(|| panic!("{made}: {CURE}"));
        id.clone_into(&mut browser.session);
        browser.size(width, height).await;
        browser
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> Value {
        let body = if method == Method::GET { String::new() } else { body.to_string() };
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let answer = tokio::time::timeout(PATIENCE, self.client.request(request));
        let answer = answer.await.unwrap().unwrap().into_body().collect().await.unwrap();
        let mut answer: Value = serde_json::from_slice(&answer.to_bytes()).unwrap();
        answer["value"].take()
    }

    /// A command of the session; an error of the protocol comes back as a value with `error`.
    pub(crate) async fn command(&self, method: Method, path: &str, body: &Value) -> Value {
        self.ask(method, &format!("/session/{}{path}", self.session), body).await
    }

    async fn cdp(&self, command: &str, parameters: &Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.command(Method::POST, "/goog/cdp/execute", &body).await
    }

    /// Makes the window so wide and high; a narrow one is a phone's.
    pub(crate) async fn size(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1,
            "mobile": width < 700 });
        self.cdp("Emulation.setDeviceMetricsOverride", &size).await;
    }

    /// Says that the reader prefers `dark` or `light`.
    pub(crate) async fn prefer(&self, scheme: &str) {
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.cdp("Emulation.setEmulatedMedia", &scheme).await;
    }

    /// Goes to an address.
    pub(crate) async fn go(&self, url: &str) {
        let gone = self.command(Method::POST, "/url", &json!({ "url": url })).await;
        assert!(gone.is_null(), "{gone}");
    }

    /// What a script returns; scripts of the driver are not bound by the page's policy.
    pub(crate) async fn run(&self, script: &str) -> Value {
        let body = json!({ "script": script, "args": [] });
        let value = self.command(Method::POST, "/execute/sync", &body).await;
        assert!(value.get("error").is_none(), "{script}: {value}");
        value
    }

    /// The same for a script that calls `arguments[0]` with its result.
    pub(crate) async fn run_later(&self, script: &str) -> Value {
        let body = json!({ "script": script, "args": [] });
        self.command(Method::POST, "/execute/async", &body).await
    }

    /// Waits until a script's expression holds, at most for the time that a test waits for anything.
    pub(crate) async fn until(&self, what: &str, expression: &str) -> Duration {
        self.within(PATIENCE, what, expression).await
    }

    /// Waits until a script's expression holds; says how long it took.
    pub(crate) async fn within(&self, limit: Duration, what: &str, expression: &str) -> Duration {
        let began = Instant::now();
        while self.run(&format!("return Boolean({expression})")).await != true {
            if began.elapsed() > limit {
                let text = self.run("return document.body.innerText").await;
                let text = text.as_str().unwrap_or_default().to_owned();
                panic!("waited {limit:?} in vain: {what}; the page says:\n{text}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        began.elapsed()
    }

    /// Types, as a keyboard does, wherever the focus is.
    pub(crate) async fn keys(&self, keys: &str) {
        let strokes = |key: char| {
            let key = key.to_string();
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        };
        let strokes: Vec<Value> = keys.chars().flat_map(strokes).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        let done = self.command(Method::POST, "/actions", &json!({ "actions": [keyboard] })).await;
        assert!(done.is_null(), "{done}");
    }

    /// Whether some script has opened an alert.
    pub(crate) async fn has_alert(&self) -> bool {
        let text = self.command(Method::GET, "/alert/text", &Value::Null).await;
        text.get("error").is_none()
    }

    async fn log(&self, kind: &str) -> Vec<Value> {
        let log = self.command(Method::POST, "/se/log", &json!({ "type": kind })).await;
        log.as_array().unwrap_or_else(|| panic!("{log}")).clone()
    }

    /// What the console has complained of since it was last asked: errors of scripts, violations of
    /// the policy, requests that failed.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let log = self.log("browser").await.into_iter();
        let bad = log.filter(|line| line["level"] == "SEVERE" || line["level"] == "WARNING");
        bad.map(|line| format!("{}: {}", line["source"], line["message"])).collect()
    }

    /// Every address that the page has asked for since this was last asked.
    pub(crate) async fn requests(&self) -> Vec<String> {
        let sent = |line: Value| -> Option<String> {
            let event: Value = serde_json::from_str(line["message"].as_str()?).ok()?;
            let event = &event["message"];
            let is_request = event["method"] == "Network.requestWillBeSent";
            let url = event["params"]["request"]["url"].as_str()?;
            // The browser's own first tab is no page of ours.
            let by = event["params"]["documentURL"].as_str()?;
            (is_request && !by.starts_with("chrome:")).then(|| url.to_owned())
        };
        self.log("performance").await.into_iter().filter_map(sent).collect()
    }

    /// Takes a picture for people to look at, below the target directory.
    pub(crate) async fn shoot(&self, name: &str) {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
        std::fs::create_dir_all(&directory).unwrap();
        let shot = self.command(Method::GET, "/screenshot", &Value::Null).await;
        let png = decoded(shot.as_str().unwrap());
        std::fs::write(directory.join(format!("{name}.png")), png).unwrap();
    }

    /// Whether the page is wider than its window.
    pub(crate) async fn overflows(&self) -> bool {
        let script = "return document.documentElement.scrollWidth > window.innerWidth";
        self.run(script).await == true
    }

    /// Ends the browser in good order.
    pub(crate) async fn close(self) {
        self.command(Method::DELETE, "", &Value::Null).await;
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends when its driver asks it to; SIGTERM gives the driver the time for it.
        let pid = self.driver.id().to_string();
        let _ = Command::new("kill").args(["-s", "TERM", &pid]).status();
        let _ = self.driver.wait();
    }
}

fn start_driver() -> (Child, SocketAddr) {
    // Ahead of what else the machine has to do, as the processes that are measured are: how soon a
    // flip is seen is the page's matter, not the scheduler's.
    let script = "{ echo -15 > /proc/self/autogroup; } 2>/dev/null; exec nice -n -15 \"$0\" \"$@\"";
    let driver = Command::new("setsid")
        .args(["sh", "-c", script, "chromedriver", "--port=0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut driver = driver.unwrap_or_else(|error| panic!("chromedriver: {error}; {CURE}"));
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| {
        let rest = line.split("started successfully on port ").nth(1)?;
        rest.trim_end_matches('.').parse::<u16>().ok()
    });
    // What else it has to say goes nowhere, but the pipe must not fill.
    std::thread::spawn(move || lines.for_each(drop));
    let port = port.unwrap_or_else(|| panic!("chromedriver does not start; {CURE}"));
    (driver, SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Bytes from base 64 (RFC 4648, section 4).
fn decoded(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(digit).map(u32::from).collect();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let word = group.iter().enumerate().fold(0, |word, (at, six)| word | six << (18 - 6 * at));
        bytes.extend(word.to_be_bytes().into_iter().skip(1).take(group.len() - 1));
    }
    bytes
}

//! The live page in a real browser: over a real fleet with faults, and over an API that lies.
//!
//! What is claimed of the page is what somebody on call relies on: a flip is seen, one order overrules
//! it, nothing that a stranger wrote can act, and the page finds its node again. Pictures of it are
//! left below the target directory, in `tmp/page`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "page/browser.rs"]
mod browser;
#[path = "fleet/mod.rs"]
mod fleet;
#[path = "page/news.rs"]
mod news;
#[path = "process/mod.rs"]
mod process;
#[path = "page/stage.rs"]
mod stage;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser::{Browser, ENTER, ESCAPE, SPACE, TAB};
use crate::fleet::{B, Fleet, Plan, is_out};
use crate::process::{Gateway, until};
use crate::stage::{Door, cluster, endpoint, feed, members, poisoned, stage};

/// How long after the node knows of a flip the page may take to show it.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// The most elements on the page, whatever the size of the fleet.
const ELEMENTS_MAX: u64 = 25_000;
/// What must never become an element.
const HOSTILE: &str = "\"><img src=x onerror=alert(1)><script>alert(2)</script>";

const TITLE: &str = "document.getElementById('headline').textContent";

/// A script's expression: whether the page's row of an endpoint has this text.
fn row_has(endpoint: &str, text: &str) -> String {
    let name = endpoint.replace('/', " / ");
    format!(
        "[...document.querySelectorAll('.row')].some((row) => \
         row.querySelector('.name').textContent === '{name}' && row.textContent.includes('{text}'))"
    )
}

/// A gateway of its own with both tokens.
fn lone_gateway() -> (Gateway, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let yaml = "server: { listen: 127.0.0.1:0, workers: 1 }
admin: { listen: 127.0.0.1:0, token: the-full-token-of-the-page, read_token: only-for-looking-at-it }
log: { format: json, level: info }
models:
  - name: m
    endpoints: [ { name: a, address: \"http://127.0.0.1:9\" }, { name: b, address: \"http://127.0.0.2:9\" } ]
";
    (Gateway::serve(directory.path(), "page", yaml), directory)
}

/// The accessibility checker at its pinned version, below the target directory.
fn axe() -> String {
    let pins = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page-audit");
    let lock = fs::read_to_string(format!("{pins}/package-lock.json")).unwrap();
    let script: PathBuf = directory.join("node_modules/axe-core/axe.min.js");
    let kept = fs::read_to_string(directory.join("package-lock.json"));
    if !(script.exists() && kept.is_ok_and(|kept| kept == lock)) {
        fs::create_dir_all(&directory).unwrap();
        for name in ["package.json", "package-lock.json"] {
            fs::copy(format!("{pins}/{name}"), directory.join(name)).unwrap();
        }
        let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
        let done = Command::new("npm").args(install).current_dir(&directory).status();
        let is_done = done.as_ref().is_ok_and(std::process::ExitStatus::success);
        assert!(is_done, "npm ci: {done:?}; install node from version 20 on, with npm");
    }
    fs::read_to_string(script).unwrap()
}

/// What the checker finds wrong by WCAG 2.1, levels A and AA.
async fn violations(browser: &Browser) -> Vec<String> {
    browser.run(&axe()).await;
    let tags = "{ type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] }";
    let script = format!(
        "const done = arguments[0]; axe.run(document, {{ runOnly: {tags} }}).then((found) => done(
           found.violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.html + ' '
             + node.failureSummary).join(' | '))), (error) => done([String(error)]))"
    );
    let found = browser.run_later(&script).await;
    let found = found.as_array().unwrap_or_else(|| panic!("{found}"));
    found.iter().map(|one| one.as_str().unwrap().to_owned()).collect()
}

/// Drains a member by the page, which shows that it is going.
async fn drain(browser: &Browser, id: &str) {
    let member = format!(
        "[...document.querySelectorAll('.member')].find((one) => one.textContent.includes('{id}'))"
    );
    browser.run(&format!("{member}.querySelector('.act').click()")).await;
    browser.until("the dialog", "document.getElementById('order').open").await;
    browser.run("document.getElementById('order-reason').focus()").await;
    browser.keys("its host is replaced").await;
    browser.keys(ENTER).await;
    let asked = "document.querySelector('#order .primary').textContent.startsWith('Yes, drain')";
    browser.until("it asks once more", asked).await;
    browser.keys(ENTER).await;
    browser.until("it drains", &format!("{member}.textContent.includes('draining')")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flip_is_seen_within_two_seconds_and_one_order_overrules_it() {
    let (fleet, browser) = tokio::join!(Fleet::start(Plan::new("60s")), Browser::open(1440, 1100));
    let origin = format!("http://{}", fleet.nodes[2].operators);
    browser.go(&origin).await;
    browser.until("all is well", &format!("{TITLE} === 'All 2 endpoints are in.'")).await;
    browser.until("three members", "document.querySelectorAll('.member').length === 3").await;

    fleet.convict(&[0, 1]).await;
    until("the third follows", async || is_out(&fleet.nodes[2]).await).await;
    let known = Instant::now();
    browser
        .within(SHOWN_WITHIN, "the flip", &format!("{TITLE} === '1 of 2 endpoints is out.'"))
        .await;
    browser.within(SHOWN_WITHIN, "its row", &row_has(B, "Out, whole fleet")).await;
    eprintln!("the page showed the flip {:?} after the node knew of it", known.elapsed());
    let votes = "document.querySelectorAll('.row .vote[data-kind=out]').length === 2";
    browser.until("who says so", votes).await;
    let told =
        "[...document.querySelectorAll('.event')].some((one) => one.textContent.includes('fleet'))";
    browser.until("the timeline tells of it", told).await;
    browser.shoot("fleet-out-light").await;
    browser.prefer("dark").await;
    browser.shoot("fleet-out-dark").await;
    browser.prefer("light").await;

    // By keyboard: the first action of the first row, which is the one that is out.
    browser.run("document.querySelector('.row .act').focus()").await;
    browser.keys(ENTER).await;
    browser.until("the dialog", "document.getElementById('order').open").await;
    browser.keys(HOSTILE).await;
    browser.shoot("override").await;
    browser.keys(ENTER).await;
    browser.until("it is done", "!document.getElementById('order').open").await;
    browser.until("it is in by order", &row_has(B, "In by order")).await;
    until("the order holds everywhere", async || {
        fleet.nodes[0].explain(B).await["forced"] == "force_closed"
    })
    .await;
    browser
        .until(
            "the reason is shown as it is",
            "document.body.textContent.includes('onerror=alert(1)')",
        )
        .await;
    assert_eq!(browser.run("return document.querySelectorAll('img, body script').length").await, 0);
    assert!(!browser.has_alert().await);
    drain(&browser, "gw-1").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    let elsewhere = |url: &String| !url.starts_with(&origin);
    let left: Vec<String> = browser.requests().await.into_iter().filter(elsewhere).collect();
    assert_eq!(left, Vec::<String>::new(), "requests that left the origin");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_gone_is_told_and_found_again() {
    let (mut fleet, browser) =
        tokio::join!(Fleet::start(Plan::new("60s")), Browser::open(1200, 900));
    let door = Door::to(fleet.nodes[2].operators).await;
    browser.go(&format!("http://{}", door.address)).await;
    browser.until("all is well", &format!("{TITLE} === 'All 2 endpoints are in.'")).await;
    fleet.nodes.remove(2).kill();
    let banner = "document.getElementById('banners').textContent";
    browser.until("it says so", &format!("{banner}.includes('gw-3 does not answer')")).await;
    browser.until("how old it is", &format!("/is [0-9]+ s old/.test({banner})")).await;
    let title = browser.run(&format!("return {TITLE}")).await;
    assert_eq!(title, "All 2 endpoints were in.", "it is told as what is so");
    let tab = browser.run("return document.title").await;
    assert_eq!(tab, "not connected · gw-3 · quorumgate", "the tab tells it as what is so");
    browser.shoot("unreachable").await;
    let third = fleet.restart_third();
    door.lead(third.operators);
    browser.until("it is back", &format!("!{banner}.includes('does not answer')")).await;
    browser.until("events are followed", "document.getElementById('event-note').hidden").await;
    let bad: Vec<String> = browser.complaints().await;
    let other: Vec<&String> = bad.iter().filter(|line| !line.starts_with("\"network\"")).collect();
    assert!(other.is_empty(), "{other:?}");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m05_a_read_only_token_looks_and_is_offered_no_deed() {
    let (gateway, _directory) = lone_gateway();
    let browser = Browser::open(1200, 900).await;
    browser.go(&format!("http://{}", gateway.operators)).await;
    let asked = "document.getElementById('sign-in').open";
    browser.until("it asks for a token", asked).await;
    browser.keys("a-wrong-token").await;
    browser.keys(ENTER).await;
    browser.until("it asks again", "!document.getElementById('sign-in-error').hidden").await;
    assert_eq!(browser.run(&format!("return {asked}")).await, true);
    browser.shoot("sign-in").await;
    browser.keys("only-for-looking-at-it").await;
    browser.keys(ENTER).await;
    browser.until("it looks", &format!("{TITLE} === 'All 2 endpoints are in.'")).await;
    let acts = "[...document.querySelectorAll('.act')].filter((one) => one.offsetParent).length";
    assert_eq!(browser.run(&format!("return {acts}")).await, 0, "deeds offered");
    assert_eq!(browser.run("return document.getElementById('role').hidden").await, false);
    // The sheet cannot be reached either where a script or an old button would ask for it.
    browser.run("document.querySelector('.row .act').click()").await;
    browser.run("document.getElementById('reload').click()").await;
    assert_eq!(browser.run("return document.getElementById('order').open").await, false);

    browser.run("document.getElementById('sign-out').click()").await;
    browser.until("it asks for a token", asked).await;
    browser.keys("the-full-token-of-the-page").await;
    browser.keys(ENTER).await;
    browser.until("deeds are offered", &format!("{acts} > 0")).await;
    let stored = browser.run("return JSON.stringify(localStorage) + document.cookie").await;
    assert!(!stored.as_str().unwrap().contains("token-of-the-page"), "{stored}");
    browser.close().await;
}

/// A stage with three members on which `m/e0` is out; every string of the API is hostile.
async fn hostile_stage(gateway: SocketAddr) -> SocketAddr {
    let script = |_: &Method, path: &str| {
        let value = match path {
            "whoami" => json!({ "role": "full" }),
            "cluster" => cluster(3),
            "members" => members(3),
            "config" => {
                json!({ "hash": "h", "loaded_unix_ms": 1, "needs_restart": ["server.listen"],
                "last_error": { "unix_ms": 1, "message": "line 3" } })
            }
            path if path.starts_with("events") => {
                let event = json!({ "unix_ms": 1, "kind": "flip", "endpoint": "e", "node": "n",
                    "what": "w", "detail": { "reason": "r" } });
                let mut event = poisoned(event, HOSTILE);
                // The id of an event is no text on the page, and goes into a header.
                event["id"] = json!("1-1");
                return (StatusCode::OK, feed(&[event]));
            }
            path if path.contains("explain") => endpoint(0, true),
            _ => json!({ "endpoints": [endpoint(0, true), endpoint(1, false)] }),
        };
        (StatusCode::OK, poisoned(value, HOSTILE).to_string())
    };
    stage(gateway, Arc::new(script)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_string_of_the_api_becomes_an_element() {
    let (gateway, _directory) = lone_gateway();
    let address = hostile_stage(gateway.operators).await;
    let browser = Browser::open(1200, 900).await;
    browser.go(&format!("http://{address}")).await;
    browser.until("it is shown", &format!("{TITLE} === '1 of 2 endpoints is out.'")).await;
    browser.until("events", "document.querySelectorAll('.event').length === 1").await;
    browser.run("document.querySelector('.row .name').click()").await;
    browser.until("the panel", "document.getElementById('explain').open").await;
    browser.run("document.querySelector('#explain .act').click()").await;
    browser.until("the dialog", "document.getElementById('order').open").await;
    browser.keys(ESCAPE).await;
    browser.keys(ESCAPE).await;
    browser.run("document.querySelector('.member .act').click()").await;
    browser.until("a member", "document.getElementById('order').open").await;
    let shown =
        browser.run("return document.body.textContent.split('onerror=alert(1)').length").await;
    assert!(shown.as_u64().unwrap() > 20, "only {shown} hostile strings are shown");
    assert_eq!(browser.run("return document.querySelectorAll('img, body script').length").await, 0);
    assert!(!browser.has_alert().await);
    browser.run("document.getElementById('order').close()").await;
    browser.size(360, 800).await;
    assert!(!browser.overflows().await, "the page scrolls sideways on a phone");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_endpoints_on_fifty_nodes_stay_a_small_page() {
    let (gateway, _directory) = lone_gateway();
    let (whole, parts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (all_asked, out_asked) = (Arc::clone(&whole), Arc::clone(&parts));
    let rows: Vec<Value> = (0..10_000).map(|index| endpoint(index, index == 9_000)).collect();
    let all = json!({ "endpoints": rows }).to_string();
    let script = move |_: &Method, path: &str| {
        let value = match path {
            "whoami" => json!({ "role": "full" }),
            "cluster" => cluster(50),
            "members" => members(50),
            "endpoints" => {
                all_asked.fetch_add(1, Ordering::Relaxed);
                return (StatusCode::OK, all.clone());
            }
            "endpoints?state=out" => {
                out_asked.fetch_add(1, Ordering::Relaxed);
                json!({ "endpoints": [endpoint(9_000, true)] })
            }
            _ => return (StatusCode::NOT_FOUND, "{}".to_owned()),
        };
        (StatusCode::OK, value.to_string())
    };
    let address = stage(gateway.operators, Arc::new(script)).await;
    let browser = Browser::open(1440, 900).await;
    browser.go(&format!("http://{address}")).await;
    browser.until("all", &format!("{TITLE} === '1 of 10,000 endpoints is out.'")).await;
    let first = "document.querySelector('.row .name').textContent";
    assert_eq!(browser.run(&format!("return {first}")).await, "m / e9000", "what is out is first");
    // All are asked for again too, at a distance: on a slow machine that may be due in the meantime.
    let (parts, whole) = (|| parts.load(Ordering::Relaxed), || whole.load(Ordering::Relaxed));
    until("what is out is asked for more often than all", async || parts() > 2 * whole()).await;
    browser.run("document.querySelector('#pager button:last-of-type').click()").await;
    browser
        .until("the next page", "document.getElementById('pager').textContent.includes('51–100')")
        .await;
    browser.run("document.getElementById('filter').focus()").await;
    browser.keys("e777").await;
    browser.until("eleven match", "document.querySelectorAll('.row').length === 11").await;
    browser.keys(ESCAPE).await;
    browser.until("fifty rows", "document.querySelectorAll('.row').length === 50").await;
    let elements = browser.run("return document.querySelectorAll('*').length").await;
    assert!(elements.as_u64().unwrap() < ELEMENTS_MAX, "{elements} elements");
    assert!(!browser.overflows().await, "the page scrolls sideways");
    browser.shoot("many-nodes").await;
    browser.close().await;
}

/// A stage on which two of three endpoints are well, and orders must be confirmed.
async fn calm_stage(gateway: SocketAddr, orders: Arc<std::sync::Mutex<Vec<String>>>) -> SocketAddr {
    let sure = AtomicUsize::new(0);
    let script = move |method: &Method, path: &str| {
        if method == Method::POST {
            orders.lock().unwrap().push(path.to_owned());
            let message = "No endpoint of m would be left; send \"confirm\": true to go on.";
            let refusal = json!({ "error": { "code": "needs_confirmation", "message": message } });
            return match sure.fetch_add(1, Ordering::Relaxed) {
                0 => (StatusCode::CONFLICT, refusal.to_string()),
                _ => (StatusCode::OK, "{}".to_owned()),
            };
        }
        let value = match path {
            "whoami" => json!({ "role": "full" }),
            "cluster" => cluster(3),
            "members" => members(3),
            "config" => json!({ "hash": "h", "last_error": null, "needs_restart": [] }),
            path if path.starts_with("events") => {
                let event = json!({ "id": "1-1", "unix_ms": 1, "kind": "flip", "endpoint": "m/e0",
                    "node": "gw-1", "what": "the fleet takes it out", "detail": {} });
                return (StatusCode::OK, feed(&[event]));
            }
            path if path.contains("explain") => endpoint(0, true),
            _ => {
                json!({ "endpoints": [endpoint(0, true), endpoint(1, false), endpoint(2, false)] })
            }
        };
        (StatusCode::OK, value.to_string())
    };
    stage(gateway, Arc::new(script)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_alone_lead_everywhere_and_back() {
    let (gateway, _directory) = lone_gateway();
    let orders = Arc::new(std::sync::Mutex::new(Vec::new()));
    let address = calm_stage(gateway.operators, Arc::clone(&orders)).await;
    let browser = Browser::open(1200, 900).await;
    browser.go(&format!("http://{address}")).await;
    browser.until("it is shown", &format!("{TITLE} === '1 of 3 endpoints is out.'")).await;
    let focus = "document.activeElement";
    browser.keys(TAB).await;
    assert_eq!(browser.run(&format!("return {focus}.className")).await, "skip");
    browser.keys(ENTER).await;
    browser.until("the endpoints", &format!("{focus}.id === 'endpoints'")).await;
    browser.keys("/").await;
    browser.until("the filter", &format!("{focus}.id === 'filter'")).await;
    // From the filter over the check box and the scrolling box to the name of the first row.
    for _ in 0..3 {
        browser.keys(TAB).await;
    }
    assert_eq!(browser.run(&format!("return {focus}.textContent")).await, "m / e0");
    browser.keys(ENTER).await;
    browser.until("the panel", "document.getElementById('explain').open").await;
    browser
        .until("its votes", "document.querySelectorAll('#explain .votes li').length === 1")
        .await;
    browser.keys(ESCAPE).await;
    browser.until("it closes", "!document.getElementById('explain').open").await;
    assert_eq!(
        browser.run(&format!("return {focus}.textContent")).await,
        "m / e0",
        "focus is lost"
    );

    browser.keys(TAB).await;
    browser.keys(TAB).await;
    browser.keys(SPACE).await;
    browser.until("the dialog", "document.getElementById('order').open").await;
    browser.keys(ENTER).await;
    browser.until("a reason is wanted", &format!("{focus}.id === 'order-reason'")).await;
    assert!(orders.lock().unwrap().is_empty(), "an order without a reason");
    browser.keys("it is fine").await;
    browser.keys(ENTER).await;
    let asked = "document.querySelector('#order .primary').textContent.startsWith('Yes, ')";
    browser.until("it asks once more", asked).await;
    browser.keys(ENTER).await;
    browser.until("it is done", "!document.getElementById('order').open").await;
    browser.until("and said", "document.getElementById('said').textContent.includes('m/e0')").await;
    let path = "endpoints/m/e0/override".to_owned();
    assert_eq!(*orders.lock().unwrap(), [path.clone(), path]);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_accessible_in_both_themes_and_fits_a_phone() {
    let (gateway, _directory) = lone_gateway();
    let address = calm_stage(gateway.operators, Arc::default()).await;
    let browser = Browser::open(1200, 900).await;
    browser.go(&format!("http://{address}")).await;
    browser.until("it is shown", &format!("{TITLE} === '1 of 3 endpoints is out.'")).await;
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await;
        for (width, device) in [(1_200, "desktop"), (360, "phone")] {
            browser.size(width, 800).await;
            assert!(!browser.overflows().await, "{device} scrolls sideways");
            browser.shoot(&format!("{device}-{scheme}")).await;
            assert_eq!(violations(&browser).await, Vec::<String>::new(), "{device}, {scheme}");
            for (open, dialog) in [(".row .name", "explain"), (".row .act", "order")] {
                browser.run(&format!("document.querySelector('{open}').click()")).await;
                let is_open = format!("document.getElementById('{dialog}').open");
                browser.until("it opens", &is_open).await;
                browser.shoot(&format!("{dialog}-{device}-{scheme}")).await;
                let found = violations(&browser).await;
                assert_eq!(found, Vec::<String>::new(), "{dialog}, {device}, {scheme}");
                browser.run(&format!("document.getElementById('{dialog}').close()")).await;
            }
        }
    }
    browser.close().await;
}

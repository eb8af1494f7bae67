//! What the page tells while nobody looks, while it may not ask, and when its node reads its file again.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::{Method, StatusCode};
use serde_json::json;
use tempfile::TempDir;

use crate::browser::{Browser, ENTER};
use crate::process::Gateway;
use crate::stage::{cluster, endpoint, feed, members, stage};
use crate::{TITLE, lone_gateway};

/// Hides the page as another tab would. Its timers run `window.hurry` times as fast, and say how long
/// they were to wait.
const HIDE: &str = "
    Object.assign(window, { unseen: true, hurry: 10, pauses: [], wait: window.setTimeout });
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => window.unseen });
    window.setTimeout = (work, ms, ...rest) => {
        window.pauses.push(ms);
        return window.wait(work, ms / window.hurry, ...rest);
    };
    document.dispatchEvent(new Event('visibilitychange'));";

/// A script's expression: whether the tab has this title, and this icon.
fn tab(title: &str, icon: &str) -> String {
    format!(
        "document.title === '{title} · gw-1 · quorumgate' && \
         document.getElementById('icon').getAttribute('href') === 'page/{icon}.svg'"
    )
}

/// What the page is served from.
type Kept = (Gateway, TempDir);

/// A page over a fleet of three whose first endpoint is out while `out` says so, and that asks for a
/// token while `shut` says so.
async fn page(out: &Arc<AtomicBool>, shut: &Arc<AtomicBool>) -> (Browser, Kept) {
    let (gateway, directory) = lone_gateway();
    let (is_out, is_shut) = (Arc::clone(out), Arc::clone(shut));
    let script = move |_: &Method, path: &str| {
        if is_shut.load(Ordering::Relaxed) {
            let refusal = json!({ "error": { "code": "unauthorized", "message": "No token." } });
            return (StatusCode::UNAUTHORIZED, refusal.to_string());
        }
        let value = match path {
            "whoami" => json!({ "role": "full" }),
            "cluster" => cluster(3),
            "members" => members(3),
            "config/reload" => {
                json!({ "changed": true, "hash": "h", "needs_restart": ["server.workers"],
                "endpoints": { "added": ["m/c"], "removed": [], "changed": ["m/a", "m/b"] } })
            }
            "endpoints" => json!({ "endpoints": [endpoint(0, is_out.load(Ordering::Relaxed))] }),
            path if path.starts_with("events") => return (StatusCode::OK, feed(&[])),
            _ => return (StatusCode::NOT_FOUND, "{}".to_owned()),
        };
        (StatusCode::OK, value.to_string())
    };
    let address = stage(gateway.operators, Arc::new(script)).await;
    let browser = Browser::open(1200, 900).await;
    browser.go(&format!("http://{address}")).await;
    browser.until("all is well", &tab("all in", "in")).await;
    (browser, (gateway, directory))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tab_in_the_background_tells_what_is_so_or_that_it_does_not_know() {
    let out = Arc::new(AtomicBool::new(false));
    let (browser, _kept) = page(&out, &Arc::default()).await;
    browser.run(HIDE).await;
    out.store(true, Ordering::Relaxed);
    browser.until("the flip, unseen", &tab("1 out", "out")).await;
    let row = "document.querySelector('.row .back').textContent";
    let next = "gw-2 sends one probe for the whole fleet in 0:";
    assert!(browser.run(&format!("return {row}")).await.as_str().unwrap().starts_with(next));

    // The next round is far away when the clock jumps, as after a night with the lid closed.
    browser.run("Object.assign(window, { hurry: 1, pauses: [] })").await;
    browser.until("it asks at a distance", "window.pauses.includes(20_000)").await;
    let jump =
        "const now = performance.now.bind(performance); performance.now = () => now() + 180_000;";
    browser.run(jump).await;
    browser.until("it says that it is old", &tab("no news for 3 min", "lost")).await;
    browser
        .run("window.unseen = false; document.dispatchEvent(new Event('visibilitychange'))")
        .await;
    browser.until("it is seen again", &tab("1 out", "out")).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_signed_out_tells_nothing_as_what_is_so() {
    let shut = Arc::new(AtomicBool::new(false));
    let (browser, _kept) = page(&Arc::default(), &shut).await;
    shut.store(true, Ordering::Relaxed);
    browser.until("it asks", "document.getElementById('sign-in').open").await;
    browser.until("the tab says so", &tab("signed out", "lost")).await;
    assert_eq!(browser.run(&format!("return {TITLE}")).await, "The only endpoint was in.");
    let pulse = "document.getElementById('pulse-text').textContent";
    browser.until("how old it is", &format!("/^signed out, [0-9]+ s old$/.test({pulse})")).await;
    shut.store(false, Ordering::Relaxed);
    browser.keys("another-token").await;
    browser.keys(ENTER).await;
    browser.until("it looks again", &tab("all in", "in")).await;
    browser.until("it is live", &format!("{pulse}.startsWith('live')")).await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_button_has_the_configuration_read_again_and_says_what_came_of_it() {
    let (gateway, directory) = lone_gateway();
    let browser = Browser::open(1200, 900).await;
    browser.go(&format!("http://{}", gateway.operators)).await;
    browser.until("it asks", "document.getElementById('sign-in').open").await;
    browser.keys("the-full-token-of-the-page").await;
    browser.keys(ENTER).await;
    browser.until("it looks", &format!("{TITLE} === 'All 2 endpoints are in.'")).await;

    let file = directory.path().join("page.yaml");
    let said = "document.getElementById('said').textContent";
    let (open, closed) =
        ("document.getElementById('order').open", "!document.getElementById('order').open");
    browser.run("document.getElementById('reload').click()").await;
    browser.until("the dialog", open).await;
    browser.shoot("reload").await;
    browser.keys(ENTER).await;
    browser.until("nothing is another", &format!("{said} === 'Nothing has changed.'")).await;

    fs::write(&file, "models: 7").unwrap();
    browser.until("it is closed", closed).await;
    browser.run("document.getElementById('reload').click()").await;
    browser.keys(ENTER).await;
    let error = "document.querySelector('#order .error').textContent";
    browser.until("the refusal", &format!("{error}.includes('models')")).await;
    browser.run("document.getElementById('order').close()").await;
    browser.close().await;

    let (browser, _kept) = page(&Arc::default(), &Arc::default()).await;
    browser.run("document.getElementById('reload').click()").await;
    browser.until("the dialog", open).await;
    browser.keys(ENTER).await;
    let holds = "The new configuration holds: 1 endpoint added, 2 changed. \
                 At the next restart only: server.workers.";
    browser.until("what came of it", &format!("{said} === '{holds}'")).await;
    browser.close().await;
}

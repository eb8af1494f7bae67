//! Many calls at once, and a server that is slow or stops answering.

mod running;
mod servers;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis_lua::client::{Config, Invocation, Mode};
use redis_lua::error::Trouble;
use running::{Running, add};
use servers::fake::{Fake, Mood};
use tokio::time::sleep;

/// As many as one node ever has under way.
const MANY: usize = 256;
/// Longer than the default, since the machine may have much else to do.
const TIMEOUT: Duration = Duration::from_millis(200);
/// Several times what a full turn takes.
const PATIENCE: Duration = Duration::from_secs(15);

async fn up(fake: &Fake) -> Running {
    let mut config = Config::new(vec![fake.url()], Mode::Standalone);
    config.timeout = TIMEOUT;
    Running::up(config).await
}

fn many() -> Vec<Invocation> {
    (0..MANY).map(|number| add(&format!("a{{{number}}}"))).collect()
}

#[tokio::test]
async fn a_slow_server_is_given_what_it_can_carry_and_stays_up() {
    let fake = Fake::start(Mood::Good).await;
    let running = up(&fake).await;
    // All at once would take it more than six times what a call may take.
    fake.is(Mood::Slow(Duration::from_millis(5)));
    let mut health = running.client.health();
    health.mark_unchanged();
    let began = Instant::now();
    let mut served = BTreeSet::new();
    let mut late = 0;
    // One that is late has another turn only after all others.
    while served.len() < MANY || began.elapsed() < Duration::from_secs(3) {
        assert!(began.elapsed() < PATIENCE, "only {} were served", served.len());
        let results = running.client.run_all(many()).await;
        for (number, result) in results.iter().enumerate() {
            match result {
                Ok(_) => drop(served.insert(number)),
                Err(Trouble::Busy) => {}
                Err(trouble) => {
                    assert_eq!(*trouble, Trouble::Timeout);
                    late += 1;
                }
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
    println!("{MANY} calls were served, {late} were late");
    assert!(!health.has_changed().unwrap(), "{:?}", *health.borrow());
    running.end().await;
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_followed_by_no_storm() {
    let fake = Fake::start(Mood::Good).await;
    let running = up(&fake).await;
    for _ in 0..20 {
        assert!(running.client.run_all(many()).await.iter().any(Result::is_ok));
    }
    fake.is(Mood::Silent);
    let heard = fake.scripts.load(Ordering::Relaxed);
    let began = Instant::now();
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let client = running.client.clone();
            tokio::spawn(async move { client.run_all(many()).await })
        })
        .collect();
    for call in calls {
        let results = call.await.unwrap();
        assert!(results.iter().all(Result::is_err));
    }
    let took = began.elapsed();
    // What comes while it rests is not sent at all.
    assert!(running.client.run_all(many()).await.iter().all(Result::is_err));
    let sent = fake.scripts.load(Ordering::Relaxed) - heard;
    println!("{sent} scripts were sent in {took:?}");
    assert!(took < TIMEOUT * 3 && sent < 48, "{sent} in {took:?}");
    running.end().await;
}

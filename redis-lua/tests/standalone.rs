//! The supervised client and one real server.

#![expect(clippy::unwrap_used, reason = "a test may stop loudly")]

mod servers;

use std::time::{Duration, Instant};

use redis::Value;
use redis_lua::client::{self, Client, Config, Health, Invocation, Mode};
use redis_lua::script::Script;
use servers::Standalone;
use tokio::sync::watch;

static ADD: Script = Script::new("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])");

fn add(key: &str, by: u32) -> Invocation {
    let arguments = vec![by.to_string().into_bytes()];
    Invocation { script: &ADD, keys: vec![key.to_owned()], arguments }
}

async fn is_up(client: &Client) {
    let mut health = client.health();
    let up = health.wait_for(Health::is_up);
    tokio::time::timeout(Duration::from_secs(10), up).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_script_runs_and_a_notice_arrives() {
    let redis = Standalone::start();
    let (_running, stop) = watch::channel(false);
    let config = Config::new(vec![redis.url()], Mode::Standalone);
    let (client, supervise) = client::start(config, stop).unwrap();
    let task = tokio::spawn(supervise);
    let mut notices = client.notices();
    is_up(&client).await;
    assert_eq!(client.run(add("a{b}", 2)).await, Ok(Value::Int(2)));
    let many = client.run_all((0..300).map(|_| add("a{b}", 1)).collect()).await;
    assert_eq!(many.last(), Some(&Ok(Value::Int(302))));
    let began = Instant::now();
    let heard = loop {
        client.publish(b"hello".to_vec());
        let heard = tokio::time::timeout(Duration::from_millis(50), notices.recv()).await;
        if let Ok(heard) = heard {
            break heard.unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(5));
    };
    assert_eq!(heard, b"hello");
    println!("{:?}", client.figures());
    task.abort();
}

//! What the sections of a fleet with Redis mean, and what they refuse.

use super::refused::refused_before;
use super::*;

const GOSSIP: &str = "listen: \"127.0.0.1:7946\", tls: {insecure: true}";

/// A fleet with these keys, and this section of Redis.
fn fleet(cluster: &str, redis: &str) -> String {
    format!("cluster: {{id: c, node_id: n, {cluster}}}\n{redis}\n{SMALLEST}")
}

/// A fleet that gossips and decides in the Redis that has these keys.
fn redis(keys: &str) -> String {
    fleet(&format!("backend: redis, {GOSSIP}"), &format!("redis: {{{keys}}}"))
}

fn found(text: &str) -> (Redis, bool) {
    let config = parsed(text);
    assert_eq!(parsed(&config.effective_yaml()).effective_yaml(), config.effective_yaml());
    let cluster = config.cluster.unwrap();
    let Backend::Redis(redis) = cluster.backend else { panic!("{text}") };
    (*redis, cluster.gossip.is_some())
}

#[test]
fn one_address_is_enough() {
    let (redis, is_gossiping) = found(&redis("urls: [\"redis://Redis\"]"));
    assert!(is_gossiping);
    let wanted = Redis {
        urls: vec!["redis://redis:6379".to_owned()],
        mode: RedisMode::Standalone,
        prefix: "quorumgate".to_owned(),
        timeout: Duration::from_millis(100),
        username: None,
        password: None,
        sentinel_password: None,
        tls: None,
        on_unavailable: OnUnavailable::Gossip,
    };
    assert_eq!(redis, wanted);
}

#[test]
fn every_key_means_what_it_says() {
    let keys = "urls: [\"rediss://a\", \"rediss://[::1]:5\"], mode: sentinel, master: mymaster, \
        prefix: \"eu:gw\", timeout: 50ms, username: gw, password: \"pa ss-CANARY\", \
        sentinel_password: s-CANARY, tls: {ca: a, cert: b, key: c}, on_unavailable: fail_closed";
    let text = fleet("backend: redis, gossip: false", &format!("redis: {{{keys}}}"));
    let (redis, is_gossiping) = found(&text);
    assert!(!is_gossiping);
    assert_eq!(redis.urls, ["rediss://a:26379", "rediss://[::1]:5"]);
    assert_eq!(redis.mode, RedisMode::Sentinel { master: "mymaster".to_owned() });
    assert_eq!((redis.prefix.as_str(), redis.timeout.as_millis()), ("eu:gw", 50));
    assert_eq!(redis.username.as_deref(), Some("gw"));
    assert_eq!(redis.password.as_ref().unwrap().expose(), "pa ss-CANARY");
    assert_eq!(redis.sentinel_password.as_ref().unwrap().expose(), "s-CANARY");
    let file = |name: &str| Some(name.into());
    assert_eq!(redis.tls, Some(RedisTls { ca: file("a"), cert: file("b"), key: file("c") }));
    assert_eq!(redis.on_unavailable, OnUnavailable::FailClosed);
    let shown = parsed(&text).effective_yaml();
    assert!(!shown.contains("CANARY") && !format!("{:?}", parsed(&text)).contains("CANARY"));
}

#[test]
fn a_cluster_may_have_many_addresses() {
    let (redis, _) = found(&redis("urls: [\"redis://a\", \"redis://b:7000/\"], mode: cluster"));
    assert_eq!(redis.mode, RedisMode::Cluster);
    assert_eq!(redis.urls, ["redis://a:6379", "redis://b:7000"]);
}

#[test]
fn an_address_that_could_never_work_is_refused_and_shows_no_secret() {
    for (urls, problem) in [
        ("", "redis.urls: is missing or empty; write where Redis is"),
        ("urls: []", "redis.urls: is missing or empty"),
        ("urls: [\"redis:6379\"]", "has no scheme; write redis://host:port"),
        ("urls: [\"http://a\"]", "has a scheme that is neither redis nor rediss"),
        (
            "urls: [\"redis://me:hunter2@a\"]",
            "has a user or a password before the host; remove them and use redis.username and \
             redis.password",
        ),
        ("urls: [\"redis://a?x=hunter2\"]", "has a query or fragment"),
        ("urls: [\"redis://a/1\"]", "has a path; end it after the port; database 0 is used"),
        ("urls: [\"redis://a:0\"]", "redis.urls[0]"),
        ("urls: [\"redis://169.254.169.254\"]", "redis.urls[0]"),
        ("urls: [\"redis://a\", \"redis://b\"]", "one too many for a Redis that stands alone"),
        ("urls: [\"redis://a\", \"redis://A\"], mode: cluster", "stands twice"),
        ("urls: [\"redis://a\", \"rediss://b\"], mode: cluster", "differs in its kind"),
    ] {
        let told = refusal(&redis(urls));
        assert!(told.contains(problem) && told.starts_with("gw.yaml:2:"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[test]
fn what_contradicts_the_rest_of_the_section_is_refused() {
    let at = "urls: [\"redis://a\"]";
    for (keys, problem) in [
        ("mode: alone", "redis.mode: \"alone\" is not known"),
        ("mode: sentinel", "redis.master: is missing with mode: sentinel"),
        ("master: m", "redis.master: is of no use without mode: sentinel"),
        ("sentinel_password: hunter2", "redis.sentinel_password: is of no use without"),
        ("username: gw", "redis.password: is missing beside username"),
        ("username: \"g w\", password: hunter2", "redis.username: \"g w\" holds a space"),
        ("timeout: 9ms", "redis.timeout: \"9ms\" is out of range; use 10ms to 1s"),
        ("timeout: 2s", "redis.timeout: \"2s\" is out of range"),
        ("prefix: \"a{b}\"", "redis.prefix: \"a{b}\" is not a valid name"),
        ("tls: {ca: a}", "redis.tls: is of no use without TLS; write rediss:// in redis.urls"),
        ("on_unavailable: open", "redis.on_unavailable: \"open\" is not known"),
    ] {
        let told = refusal(&redis(&format!("{at}, {keys}")));
        assert!(told.contains(problem) && told.starts_with("gw.yaml:2:"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
    let told = refusal(&redis("urls: [\"rediss://a\"], tls: {cert: a}"));
    assert!(told.contains("redis.tls: has only one of cert and key"), "{told}");
}

#[test]
fn an_answer_may_not_take_longer_than_an_interval() {
    let with = |interval: &str, timeout: &str| {
        let cluster = format!("backend: redis, gossip_interval: {interval}, {GOSSIP}");
        fleet(&cluster, &format!("redis: {{urls: [\"redis://a\"], timeout: {timeout}}}"))
    };
    let told = refusal(&with("50ms", "100ms"));
    let problem = "cluster.gossip_interval: is shorter than redis.timeout";
    assert!(told.contains(problem) && told.starts_with("gw.yaml:1:"), "{told}");
    found(&with("100ms", "100ms"));
}

#[test]
fn what_decides_is_there_and_what_is_there_decides() {
    let at = "redis: {urls: [\"redis://a\"]}";
    refused_before(
        at,
        "1:8: redis: is of no use without a cluster section; write cluster.backend: redis, or \
         remove it",
    );
    for (cluster, section, problem) in [
        (GOSSIP.to_owned(), at, "2:8: redis: is of no use with cluster.backend: gossip"),
        (
            format!("backend: redis, {GOSSIP}"),
            "",
            "redis: is missing with cluster.backend: redis; say where it is",
        ),
        (format!("backend: raft, {GOSSIP}"), at, "cluster.backend: \"raft\" is not known"),
        (
            "gossip: false".to_owned(),
            at,
            "cluster.gossip: false leaves the nodes with no way to speak to each other",
        ),
        (
            "backend: redis, gossip: false, seeds: [\"a:1\"]".to_owned(),
            at,
            "cluster.seeds: is of no use with gossip: false; remove one of the two",
        ),
        (
            format!("backend: redis, gossip: false, {GOSSIP}"),
            at,
            "cluster.listen: is of no use with gossip: false",
        ),
        (
            "backend: redis, gossip: false".to_owned(),
            at,
            "redis.on_unavailable: is missing, and its default, gossip, is not there with \
             cluster.gossip: false; write local, for each node's own breaker, or fail_closed",
        ),
        (
            "backend: redis, gossip: false".to_owned(),
            "redis: {urls: [\"redis://a\"], on_unavailable: gossip}",
            "redis.on_unavailable: gossip is not there with cluster.gossip: false",
        ),
    ] {
        let told = refusal(&fleet(&cluster, section));
        assert!(told.contains(problem), "{told}");
    }
}

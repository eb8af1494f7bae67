//! Limits on requests, tokens and concurrency, against a running gateway: who is refused, what is told,
//! what is given back. Minutes pass in the tests of the rule alone.

use sha2::Digest;

use crate::local::{Ask, House, Plan, QUESTION, Reply, STREAM_QUESTION, read_until, until};
use crate::raw::{
    Act, DONE, FINISH, ROLE, Raw, chunk, event, failed, good, json, open_stream, whole_stream,
};

/// What a question is taken for: four bytes a token.
const QUESTION_TOKENS: u64 = (QUESTION.len() as u64).div_ceil(4);

fn number(reply: &Reply, name: &str) -> u64 {
    let value = reply.header(name).parse();
    assert!(value.is_ok(), "{name}: {:?}", reply.headers);
    value.unwrap()
}

async fn counts(house: &House, series: &str, count: u32) {
    let metrics = Ask::get("/metrics").send(house.app.admin_address).await;
    let line = format!("quorumgate_{series} {count}\n");
    assert!(metrics.text().contains(&line), "{line} in {}", metrics.text());
}

/// A gateway whose model has these limits, over one upstream.
async fn limited(raw: &Raw, limits: &str) -> House {
    Plan::of(&[("a", raw.address)]).pool(&format!("limits: {limits}")).start().await
}

#[tokio::test]
async fn f06_the_gateways_own_rejects_reach_no_upstream_and_count_for_nothing() {
    let yes = || Raw::always(vec![Act::Say(good("yes"))]);
    let (a, b) = (yes().await, yes().await);
    let plan = Plan::of(&[("a", a.address), ("b", b.address)]).pool("limits: { rpm: 1 }");
    let house = plan.top("circuit_breaker: { failure_threshold: 1 }").start().await;
    let mut told = Vec::new();
    for _ in 0..10 {
        let reply = house.ask().await;
        told.push(reply.status);
        if reply.status == 429 {
            assert_eq!(reply.code(), "rate_limit_exceeded");
            let seconds = number(&reply, "retry-after");
            assert_eq!(seconds, number(&reply, "retry-after-ms").div_ceil(1_000));
            assert!((1..=60).contains(&seconds), "{seconds}");
            assert_eq!(reply.header("x-should-retry"), "");
            assert_eq!(reply.header("x-quorumgate-attempts"), "");
        }
    }
    assert_eq!(told, [200, 429, 429, 429, 429, 429, 429, 429, 429, 429]);
    assert_eq!(a.count() + b.count(), 1);
    let requests = ["a", "b"].map(|name| house.view(name).requests);
    assert_eq!(requests.iter().sum::<u32>(), 1, "samples");
    for name in ["a", "b"] {
        house.is_untouched(name).await;
    }
    counts(&house, "admission_rejects_total{reason=\"rate_limit_exceeded\"}", 9).await;
    counts(&house, "requests_total{model=\"demo\",code=\"200\"}", 1).await;
}

#[tokio::test]
async fn what_is_left_is_told_as_openai_tells_it() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = limited(&raw, "{ rpm: 2, tpm: 100 }").await;
    let told = |reply: &Reply| {
        let names = ["limit-requests", "remaining-requests", "limit-tokens", "remaining-tokens"];
        names.map(|name| number(reply, &format!("x-ratelimit-{name}")))
    };
    let first = house.ask().await;
    assert_eq!((first.status, told(&first)), (200, [2, 1, 100, 100 - QUESTION_TOKENS]));
    // Nothing has passed since the place was taken.
    assert_eq!(first.header("x-ratelimit-reset-requests"), "1m0s");
    assert_eq!(first.header("x-ratelimit-reset-tokens"), "1m0s");
    let second = house.ask_stream().await;
    assert_eq!((second.status, told(&second)[1]), (200, 0));
    let third = house.ask().await;
    assert_eq!((third.status, told(&third)[..2].to_vec()), (429, vec![2, 0]));
    let reset = third.header("x-ratelimit-reset-requests");
    assert!(reset.ends_with('s') && (reset.starts_with("5") || reset == "1m0s"), "{reset}");
    assert_eq!(third.json()["error"]["type"], "rate_limit_error");
    // Without a limit nothing is told of any.
    let free = Plan::of(&[("a", raw.address)]).start().await.ask().await;
    assert!(free.headers.keys().all(|name| !name.as_str().starts_with("x-ratelimit")));
}

#[tokio::test]
async fn what_never_fits_into_a_minute_is_not_told_to_come_back() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = limited(&raw, "{ rpm: 1, tpm: 20 }").await;
    let long = QUESTION.replace("hello", &"long ".repeat(20));
    let refused = house.send(Ask::post("/v1/chat/completions", long)).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"));
    assert_eq!((refused.header("retry-after"), refused.header("x-should-retry")), ("", "false"));
    assert!(refused.text().contains("20 tokens a minute"), "{}", refused.text());
    // It took the place of nobody.
    assert_eq!((house.ask().await.status, raw.count()), (200, 1));
}

#[tokio::test]
async fn of_two_at_a_time_a_third_is_refused_until_a_client_has_left() {
    let raw = Raw::start(|number, _| match number {
        0 | 1 => vec![Act::Hang],
        _ => vec![Act::Say(good("yes"))],
    })
    .await;
    let house = limited(&raw, "{ concurrency: 2 }").await;
    let first = Ask::chat().wire(house.address()).await;
    let _second = Ask::chat().wire(house.address()).await;
    until("both are asked", || raw.count() == 2).await;
    for _ in 0..5 {
        let refused = house.ask().await;
        assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"));
        assert_eq!((refused.header("retry-after"), raw.count()), ("1", 2));
        assert_eq!(refused.header("x-ratelimit-limit-requests"), "");
    }
    drop(first);
    until("the upstream is let go", || raw.left().len() == 1).await;
    while house.ask().await.status == 429 {}
    assert_eq!((house.ask().await.status, raw.count()), (200, 4));
}

#[tokio::test]
async fn a_stream_keeps_its_place_to_its_last_byte() {
    let mut acts = open_stream(&[ROLE, &event("one")]);
    acts.extend([Act::Wait, Act::Say(chunk(format!("{FINISH}{DONE}").as_bytes()))]);
    acts.push(Act::Say(chunk(b"")));
    let raw = Raw::always(acts).await;
    let house = limited(&raw, "{ concurrency: 1 }").await;
    for _ in 0..3 {
        let mut live = Ask::stream().open(house.address()).await;
        live.reads("one").await;
        assert_eq!(house.ask_stream().await.status, 429);
        raw.go();
        assert!(live.rest().await.is_clean);
    }
    let mut leaving = Ask::stream().wire(house.address()).await;
    read_until(&mut leaving, "one").await;
    assert_eq!((house.ask_stream().await.status, raw.count()), (429, 4));
    drop(leaving);
    for _ in 0..2 {
        raw.go();
    }
    while house.ask_stream().await.status == 429 {}
}

#[tokio::test]
async fn what_no_endpoint_was_asked_for_is_given_back() {
    let raw = Raw::always(vec![Act::Say(failed(500))]).await;
    let plan = Plan::of(&[("a", raw.address)]).pool("on_all_open: reject");
    let plan = plan
        .pool("limits: { rpm: 2, tpm: 1000, concurrency: 1 }")
        .top("circuit_breaker: { failure_threshold: 1, open: { base: 60s } }\nretry: { on: [] }");
    let house = plan.start().await;
    // What was asked for in vain keeps its place in the minute.
    let failed = house.ask().await;
    assert_eq!((failed.status, number(&failed, "x-ratelimit-remaining-requests")), (500, 1));
    for _ in 0..10 {
        let refused = house.ask().await;
        assert_eq!((refused.status, refused.code().as_str()), (503, "circuit_open"));
        assert_eq!(number(&refused, "x-ratelimit-remaining-requests"), 0);
        let left = 1_000 - 2 * QUESTION_TOKENS;
        assert_eq!(number(&refused, "x-ratelimit-remaining-tokens"), left);
    }
    assert_eq!(raw.count(), 1);
}

/// A whole plain answer and a whole stream that say what they took.
fn took(prompt: u64, answer: u64) -> (Vec<Act>, Vec<Act>) {
    let usage = format!(
        "\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{answer},\"total_tokens\":{}}}",
        prompt + answer
    );
    let plain = format!("{{\"choices\":[{{\"message\":{{\"content\":\"x\"}}}}],{usage}}}");
    let last = format!("data: {{\"choices\":[],{usage}}}\n\n{DONE}");
    let stream = whole_stream(&[ROLE, &event("one"), FINISH, &last]);
    (vec![Act::Say(json(200, &plain))], stream)
}

#[tokio::test]
async fn tokens_are_corrected_by_what_the_answer_says_it_took() {
    let raw = Raw::start(|number, seen| {
        let (plain, stream) = took([3, 5, 5_000][number], 4);
        if seen.text().contains("\"stream\"") { stream } else { plain }
    })
    .await;
    let house = limited(&raw, "{ tpm: 2000 }").await;
    let left = |reply: &Reply| number(reply, "x-ratelimit-remaining-tokens");
    let estimate = |ask: &str| (ask.len() as u64).div_ceil(4);
    let first = house.ask().await;
    assert_eq!((first.status, left(&first)), (200, 2_000 - QUESTION_TOKENS));
    let second = house.ask_stream().await;
    assert_eq!((second.status, left(&second)), (200, 2_000 - 7 - estimate(STREAM_QUESTION)));
    let third = house.ask().await;
    assert_eq!((third.status, left(&third)), (200, 2_000 - 7 - 9 - QUESTION_TOKENS));
    // The estimate has missed so much that the minute is full.
    let fourth = house.ask().await;
    assert_eq!((fourth.status, left(&fourth), raw.count()), (429, 0, 3));
    assert!(fourth.text().contains("2000 tokens a minute of this model"), "{}", fourth.text());
}

#[tokio::test]
async fn of_a_stream_that_broke_off_the_estimate_stands() {
    let started = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3,\
                   \"output_tokens\":1}}}\n\n";
    let delta = "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"one\"}}\n\n";
    let acts = [open_stream(&[started, delta]), vec![Act::Wait, Act::Close]].concat();
    let raw = Raw::always(acts).await;
    let house = limited(&raw, "{ tpm: 5000 }").await;
    let body = "{\"model\":\"demo\",\"stream\":true,\"max_tokens\":500,\"messages\":[]}";
    let ask = Ask::post("/v1/messages", body);
    let mut left = Vec::new();
    let mut cut = ask.open(house.address()).await;
    cut.reads("one").await;
    raw.go();
    let cut = cut.rest().await;
    assert!(!cut.is_clean && cut.text().contains("stream_interrupted"), "{}", cut.text());
    left.push(number(&cut, "x-ratelimit-remaining-tokens"));
    let mut leaving = ask.wire(house.address()).await;
    let head = read_until(&mut leaving, "one").await;
    drop(leaving);
    let told = head.lines().find_map(|line| line.strip_prefix("x-ratelimit-remaining-tokens: "));
    left.push(told.unwrap().parse().unwrap());
    until("the client has left", || house.endpoint("a").in_flight() == 0).await;
    // One for the script that nobody listens to any more.
    for _ in 0..2 {
        raw.go();
    }
    let last = ask.open(house.address()).await.rest().await;
    left.push(number(&last, "x-ratelimit-remaining-tokens"));
    let took = 5_000 - left[0];
    assert!(took > 500 && left == [5_000 - took, 5_000 - 2 * took, 5_000 - 3 * took], "{left:?}");
}

#[tokio::test]
async fn a_stream_whose_head_went_first_has_its_place_and_says_what_is_left() {
    let mut acts = vec![Act::Wait];
    acts.extend(took(3, 4).1);
    let raw = Raw::always(acts).await;
    let text = format!(
        "server: {{ listen: 127.0.0.1:0, heartbeat: 1s }}\nadmin: {{ listen: 127.0.0.1:0 }}\nmodels: \
         [ {{ name: demo, limits: {{ rpm: 9, tpm: 100, concurrency: 1 }}, endpoints: \
         [ {{ name: a, address: \"http://{}\" }} ] }} ]\n",
        raw.address
    );
    let config = gateway::config::parse(&text, "test.yaml", &|_| None).unwrap();
    let app = gateway::app::App::start(&config).await.unwrap();
    let mut live = Ask::stream().open(app.address).await;
    live.reads(": keep-alive").await;
    let refused = Ask::stream().send(app.address).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"));
    raw.go();
    let reply = live.rest().await;
    assert!(reply.is_clean && reply.text().ends_with(DONE), "{}", reply.text());
    assert_eq!((number(&reply, "x-ratelimit-remaining-requests"), raw.count()), (8, 1));
    raw.go();
    let next = Ask::chat().send(app.address).await;
    assert_eq!(number(&next, "x-ratelimit-remaining-tokens"), 100 - 7 - QUESTION_TOKENS);
}

#[tokio::test]
async fn an_answer_is_taken_for_as_long_as_it_may_be_until_it_is_known() {
    let raw = Raw::start(|number, _| match number {
        0 => vec![Act::Say(good("of unknown length"))],
        1 => vec![Act::Say(failed(500))],
        _ => vec![Act::Say(json(400, r#"{"error":{"message":"no"}}"#))],
    })
    .await;
    let plan = Plan::of(&[("a", raw.address)]).top("retry: { on: [] }");
    let house = plan.pool("limits: { tpm: 2000 }").start().await;
    let ask = |more: &str| {
        let body = QUESTION.replacen('{', &format!("{{{more},"), 1);
        let tokens = (body.len() as u64).div_ceil(4);
        (Ask::post("/v1/chat/completions", body), tokens)
    };
    let left = |reply: &Reply| number(reply, "x-ratelimit-remaining-tokens");
    let (plain, most) = ask("\"max_tokens\":500");
    let first = house.send(plain).await;
    // It does not say what it took, so that it stays what it may have been.
    let first_took = most + 500;
    assert_eq!((first.status, left(&first)), (200, 2_000 - first_took));
    // What has failed took its prompt.
    let (twice, prompt) = ask("\"n\":2,\"max_completion_tokens\":600");
    let second = house.send(twice).await;
    assert_eq!((second.status, left(&second)), (500, 2_000 - first_took - prompt - 1_200));
    let third = house.ask().await;
    assert_eq!((third.status, left(&third)), (400, 2_000 - first_took - prompt - QUESTION_TOKENS));
    let (long, _) = ask("\"max_tokens\":2000");
    let refused = house.send(long).await;
    assert_eq!((refused.status, refused.header("x-should-retry"), raw.count()), (429, "false", 3));
}

/// The section of keys: each caller's key is its name and `-key`.
fn keys(callers: &[(&str, &str)]) -> String {
    let row = |(name, limits): &(&str, &str)| {
        let digest = sha2::Sha256::digest(format!("{name}-key"));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("  - {{ name: {name}, sha256: \"{digest}\"{limits} }}\n")
    };
    format!("api_keys:\n{}", callers.iter().map(row).collect::<String>())
}

async fn ask_as(house: &House, caller: &str) -> Reply {
    house.send(Ask::chat().header("authorization", &format!("Bearer {caller}-key"))).await
}

#[tokio::test]
async fn callers_do_not_share_and_the_model_is_shared_by_all() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let one = ", limits: { rpm: 1 }";
    let callers = [("a", one), ("b", ", limits: { rpm: 2 }"), ("c", one), ("d", "")];
    let plan = Plan::of(&[("a", raw.address)]).top(&keys(&callers)).pool("limits: { rpm: 5 }");
    let house = plan.start().await;
    let told = |reply: &Reply| {
        let names = ["limit-requests", "remaining-requests"];
        (reply.status, names.map(|name| number(reply, &format!("x-ratelimit-{name}"))))
    };
    // The tightest limit that applies is told: the caller's own, until the model has less.
    assert_eq!(told(&ask_as(&house, "a").await), (200, [1, 0]));
    let refused = ask_as(&house, "a").await;
    assert_eq!(told(&refused), (429, [1, 0]));
    assert!(refused.text().contains("1 request a minute of this caller"), "{}", refused.text());
    // What a was refused took nothing of the model's.
    assert_eq!(told(&ask_as(&house, "d").await), (200, [5, 3]));
    assert_eq!(told(&ask_as(&house, "b").await), (200, [2, 1]));
    assert_eq!(told(&ask_as(&house, "d").await), (200, [5, 1]));
    assert_eq!(told(&ask_as(&house, "d").await), (200, [5, 0]));
    let refused = ask_as(&house, "b").await;
    assert_eq!(told(&refused), (429, [5, 0]));
    assert!(refused.text().contains("5 requests a minute of this model"), "{}", refused.text());
    assert_eq!((ask_as(&house, "c").await.status, raw.count()), (429, 5));
    // Without a key nobody comes as far as the limits.
    let stranger = house.ask().await;
    assert_eq!((stranger.status, stranger.header("x-ratelimit-limit-requests")), (401, ""));
    counts(&house, "admission_rejects_total{reason=\"rate_limit_exceeded\"}", 3).await;
}

#[tokio::test]
async fn one_callers_hanging_requests_are_no_others() {
    let raw = Raw::start(|number, _| match number {
        0 | 1 => vec![Act::Hang],
        _ => vec![Act::Say(good("yes"))],
    })
    .await;
    let two = ", limits: { concurrency: 2 }";
    let plan = Plan::of(&[("a", raw.address)]).top(&keys(&[("a", two), ("b", two)]));
    let house = plan.start().await;
    let hanging = Ask::chat().header("x-api-key", "a-key");
    let address = house.address();
    let held: Vec<_> = (0..2)
        .map(|_| {
            let hanging = hanging.clone();
            tokio::spawn(async move { hanging.send(address).await })
        })
        .collect();
    until("both hang", || raw.count() == 2).await;
    for _ in 0..5 {
        assert_eq!(ask_as(&house, "a").await.status, 429);
        assert_eq!(ask_as(&house, "b").await.status, 200);
    }
    held.iter().for_each(tokio::task::JoinHandle::abort);
    while ask_as(&house, "a").await.status == 429 {}
}

#[tokio::test]
async fn a_hanging_model_does_not_slow_another() {
    let hanging = Raw::always(vec![Act::Hang]).await;
    let well = Raw::always(vec![Act::Say(good("yes"))]).await;
    let top = format!(
        "models:\n  - name: slow\n    limits: {{ concurrency: 1 }}\n    endpoints: \
         [ {{ name: s, address: \"http://{}\" }} ]",
        hanging.address
    );
    let text = format!(
        "server: {{ listen: 127.0.0.1:0 }}\nadmin: {{ listen: 127.0.0.1:0 }}\n{top}\n  - name: demo\n    \
         endpoints: [ {{ name: a, address: \"http://{}\" }} ]\n",
        well.address
    );
    let config = gateway::config::parse(&text, "test.yaml", &|_| None).unwrap();
    let app = gateway::app::App::start(&config).await.unwrap();
    let slow = Ask::post("/v1/chat/completions", QUESTION.replace("demo", "slow"));
    let _held = slow.wire(app.address).await;
    until("it hangs", || hanging.count() == 1).await;
    for _ in 0..20 {
        assert_eq!(slow.send(app.address).await.status, 429);
        assert_eq!(Ask::chat().send(app.address).await.status, 200);
    }
    assert_eq!(hanging.count(), 1);
}

//! What the ring of events promises to those who follow.

use super::*;

fn events() -> Arc<Events> {
    Arc::new(Events::new(NodeId::new("gw-1"), 7))
}

fn tell(events: &Events, count: u64) {
    for number in 1..=count {
        events.tell(Event::new(Kind::Member, format!("number {number}")));
    }
}

/// All that a follower that ends is given.
async fn read(mut follower: Follower) -> String {
    let mut text = String::new();
    while let Some((bytes, rest)) = follower.next().await {
        text.push_str(std::str::from_utf8(&bytes).unwrap());
        follower = rest;
    }
    text
}

/// The data of each event.
fn data(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn kept(events: &Arc<Events>, since: Since) -> Vec<Value> {
    data(&read(events.follow(since, true).unwrap()).await)
}

#[tokio::test]
async fn an_event_is_told_as_documented() {
    let events = events();
    let endpoint = EndpointKey::new("m/a");
    let detail = json!({ "direction": "open" });
    let event = Event::new(Kind::Flip, "opened").endpoint(&endpoint).detail(detail.clone());
    events.tell(event.node(&NodeId::new("gw-2")));
    let text = read(events.follow(Since::Oldest, true).unwrap()).await;
    assert!(text.contains("id: 7-1\nevent: flip\ndata: {"), "{text}");
    assert!(text.ends_with("}\n\n"), "{text}");
    let mut told = data(&text).remove(0);
    assert!(told["unix_ms"].as_u64().unwrap() > 0);
    told["unix_ms"] = Value::Null;
    let wanted = json!({
        "id": "7-1", "unix_ms": null, "kind": "flip", "endpoint": "m/a", "node": "gw-2",
        "what": "opened", "detail": detail,
    });
    assert_eq!(told, wanted);
}

#[tokio::test]
async fn no_text_begins_a_line_of_its_own() {
    let events = events();
    events.tell(Event::new(Kind::Override, "x\r\n\r\nid: 9-9\ndata: {}"));
    let text = read(events.follow(Since::Oldest, true).unwrap()).await;
    let ids: Vec<&str> = text.lines().filter(|line| line.starts_with("id:")).collect();
    assert_eq!(ids, ["id: 7-0", "id: 7-1"], "{text}");
    assert_eq!(data(&text).len(), 1);
}

#[tokio::test]
async fn who_was_cut_off_resumes_without_loss_or_repetition() {
    let events = events();
    tell(&events, 10);
    let told = kept(&events, Since::parse("7-4").unwrap()).await;
    let whats: Vec<_> = told.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!(whats, ["7-5", "7-6", "7-7", "7-8", "7-9", "7-10"]);
    assert_eq!(kept(&events, Since::parse("7-10").unwrap()).await, Vec::<Value>::new());
}

#[tokio::test]
async fn who_is_cut_off_before_the_first_event_resumes_as_well() {
    let events = events();
    tell(&events, 10);
    for (since, place) in [(Since::Now, "7-10"), (Since::Oldest, "7-0")] {
        let (greeting, _) = events.follow(since, false).unwrap().next().await.unwrap();
        let greeting = std::str::from_utf8(&greeting).unwrap().to_owned();
        assert!(greeting.ends_with(&format!("\nid: {place}\n\n")), "{greeting}");
        assert!(Since::parse(place).is_some());
    }
    tell(&events, 1);
    assert_eq!(kept(&events, Since::parse("7-10").unwrap()).await[0]["id"], "7-11");
    // Whoever has a gap to be told of keeps the place that says so.
    let since = Since::parse("6-3").unwrap();
    let (greeting, _) = events.follow(since, false).unwrap().next().await.unwrap();
    assert_eq!(greeting.as_ref(), b": what happens follows\n\n");
}

#[tokio::test]
async fn no_event_is_larger_than_the_ring_has_room_for() {
    let events = events();
    let names: Vec<String> = (0..10_000).map(|number| format!("pool/{number}")).collect();
    events.tell(Event::new(Kind::Config, "ä".repeat(100_000)).detail(json!({ "names": names })));
    let text = read(events.follow(Since::Oldest, true).unwrap()).await;
    assert!(text.len() < DETAIL_BYTES_MAX + WHAT_BYTES_MAX + 1_024, "{}", text.len());
    let told = data(&text).remove(0);
    assert!(told["detail"]["left_out_bytes"].as_u64().unwrap() > 100_000, "{told}");
    assert!(told["what"].as_str().unwrap().ends_with("ä…"), "{told}");
    let small = json!({ "names": ["pool/1"] });
    events.tell(Event::new(Kind::Config, "small").detail(small.clone()));
    assert_eq!(kept(&events, Since::Oldest).await[1]["detail"], small);
}

#[tokio::test]
async fn what_can_no_longer_be_told_is_said_to_be_a_gap() {
    let events = events();
    tell(&events, KEPT as u64 + 10);
    let told = kept(&events, Since::parse("7-3").unwrap()).await;
    assert_eq!((&told[0]["kind"], &told[0]["id"]), (&json!("gap"), &json!("7-10")));
    assert_eq!(told[1]["id"], "7-11");
    assert_eq!(told.len(), KEPT + 1);
    // The last life, and a number that was never given, are no places of this life.
    for id in ["6-1030", "7-99999"] {
        assert_eq!(kept(&events, Since::parse(id).unwrap()).await[0]["kind"], "gap", "{id}");
    }
    assert_eq!(kept(&events, Since::Oldest).await[0]["id"], "7-11");
    // The gap's own id is a place to resume from.
    assert_eq!(kept(&events, Since::parse("7-10").unwrap()).await[0]["id"], "7-11");
}

#[tokio::test]
async fn who_is_slower_than_the_ring_is_told_so_and_goes_on() {
    let events = events();
    let follower = events.follow(Since::Now, false).unwrap();
    let (_, follower) = follower.next().await.unwrap();
    tell(&events, 3 * KEPT as u64);
    let (bytes, _) = follower.next().await.unwrap();
    let told = data(std::str::from_utf8(&bytes).unwrap());
    assert_eq!(told[0]["kind"], "gap");
    assert_eq!(told[1]["id"], format!("7-{}", 2 * KEPT + 1));
}

#[tokio::test(start_paused = true)]
async fn while_nothing_happens_a_comment_comes_every_fifteen_seconds() {
    let events = events();
    let follower = events.follow(Since::Now, false).unwrap();
    let (_, follower) = follower.next().await.unwrap();
    let began = clock::instant();
    let (bytes, follower) = follower.next().await.unwrap();
    assert_eq!((bytes.as_ref(), began.elapsed().as_secs()), (&b": still here\n\n"[..], 15));
    tell(&events, 1);
    let (bytes, _) = follower.next().await.unwrap();
    assert!(bytes.starts_with(b"id: 7-1\n"));
}

#[tokio::test]
async fn so_many_may_follow_and_no_more() {
    let events = events();
    let mut followers: Vec<_> =
        (0..FOLLOWERS_MAX).map(|_| events.follow(Since::Now, false).unwrap()).collect();
    assert_eq!(events.follow(Since::Now, false).err(), Some(TooMany));
    followers.pop();
    assert!(events.follow(Since::Now, false).is_ok());
}

#[test]
fn only_zero_and_ids_are_places() {
    assert_eq!(Since::parse("0"), Some(Since::Oldest));
    assert_eq!(Since::parse("12-0"), Some(Since::After { boot: 12, seq: 0 }));
    for text in ["", "1", "-", "1-", "-1", "+1-2", "1-+2", "1-2-3", "x-1", "1- 2", "00"] {
        assert_eq!(Since::parse(text), None, "{text}");
    }
    let greatest = format!("{0}-{0}", u64::MAX);
    assert!(Since::parse(&greatest).is_some());
}

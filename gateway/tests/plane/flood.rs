//! A stream that comes as fast as it can: whole, in few writes, and in nobody's way.

use std::time::{Duration, Instant};

use crate::local::{Ask, Plan, soon, until};
use crate::raw::{Act, DONE, FINISH, Raw, chunk, event, good, stream_head};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s10_a_flood_of_tiny_events_comes_out_whole_and_starves_nobody() {
    const EVENTS: usize = 200_000;
    // Each event a chunk of its own, a hundred to a write.
    let one = chunk(event("a").as_bytes());
    let mut acts = vec![Act::Say(stream_head())];
    acts.extend(vec![Act::Say(one.repeat(100)); EVENTS / 100]);
    let end = format!("{FINISH}{DONE}");
    acts.extend([Act::Say(chunk(end.as_bytes())), Act::Say(chunk(b""))]);
    let raw = Raw::start(move |_, seen| {
        if seen.text().contains("\"stream\"") { acts.clone() } else { vec![Act::Say(good("yes"))] }
    })
    .await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    let gateway = house.address();
    let flood = tokio::spawn(async move { Ask::stream().send(gateway).await });
    until("the flood runs", || raw.said() > 10).await;
    let (mut worst, mut asked) = (Duration::ZERO, 0);
    while !flood.is_finished() {
        let began = Instant::now();
        assert_eq!(house.ask().await.status, 200);
        worst = worst.max(began.elapsed());
        asked += 1;
    }
    let reply = soon("the flood", flood).await.unwrap();
    assert!(reply.is_clean && reply.body.len() == event("a").len() * EVENTS + end.len());
    assert!(
        asked >= 3 && worst < Duration::from_secs(1),
        "{asked} asked, the worst took {worst:?}"
    );
}

//! Which connections are used again, and what happens when one ends just then.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use gateway::upstream::SendError;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::{gateway, kit, pass};
use crate::local::{Ask, QUESTION, soon, until};
use crate::raw::{self, Act, Raw, answer, chunk, event, good, json, open_stream, whole_stream};

/// Requests of one asker, and how many ask at once.
const ASKED: usize = 2_500;
const ASKERS: usize = 8;

/// Reads a request of the tests; false: the other side has left.
async fn reads_request(stream: &mut TcpStream) -> bool {
    let mut seen = Vec::new();
    let mut piece = [0; 4096];
    while !seen.ends_with(QUESTION.as_bytes()) {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return false,
            Ok(length) => seen.extend_from_slice(&piece[..length]),
        }
    }
    true
}

/// Answers the first request of a connection and then ends it in one of several bad moments.
async fn ends_badly(mut stream: TcpStream, seed: u64) {
    stream.set_nodelay(true).unwrap();
    let mut chance = fastrand::Rng::with_seed(seed);
    if !reads_request(&mut stream).await || stream.write_all(&good("x")).await.is_err() {
        return;
    }
    match chance.u8(..4) {
        // At once, by FIN.
        0 => return,
        // About when the next request is sent, by RST or FIN.
        1 => {
            for _ in 0..chance.usize(..40) {
                tokio::task::yield_now().await;
            }
        }
        // When the next request has come, of which nothing is heard any more.
        2 => {
            reads_request(&mut stream).await;
        }
        // After some more in good order.
        _ => {
            for _ in 0..chance.usize(1..10) {
                if !reads_request(&mut stream).await || stream.write_all(&good("x")).await.is_err()
                {
                    return;
                }
            }
        }
    }
    if chance.bool() {
        let _ = stream.set_zero_linger();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn u04_connections_that_end_just_as_they_are_used_cost_no_request() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kit = Arc::new(kit(listener.local_addr().unwrap()));
    let connections = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(ends_badly(stream, seed.wrapping_add(number)));
        }
    });
    let mut askers = tokio::task::JoinSet::new();
    for _ in 0..ASKERS {
        let kit = Arc::clone(&kit);
        askers.spawn(async move {
            for number in 0..ASKED {
                let answer = kit.ask().await;
                assert_eq!(answer.as_ref().map(|(status, _)| *status), Ok(200), "{number}");
                if number % 3 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    while let Some(asker) = askers.join_next().await {
        asker.unwrap();
    }
    let (stale, connections) = (kit.stale(), connections.load(Ordering::Relaxed));
    println!("{} requests, {connections} connections, {stale} sent again", ASKED * ASKERS);
    assert!(stale > 100, "the race was never lost: {stale}");
    assert!(connections < (ASKED * ASKERS) as u64, "nothing was used again");
    let view = kit.endpoint.view(gateway::clock::now());
    assert_eq!((view.faults, view.streak), (0.0, 0), "not the endpoint's fault");
}

#[tokio::test]
async fn u04_a_request_is_not_sent_again_once_it_may_have_been_heard() {
    // Each script is of the second request, on the connection of the first.
    let cases: [(&str, Vec<Act>); 2] = [
        ("half a head", vec![Act::Say(b"HTTP/1.1 200".to_vec()), Act::Close]),
        ("an end after work", vec![Act::Rest(Duration::from_millis(2_100)), Act::Reset]),
    ];
    for (what, script) in cases {
        let raw = Raw::start(
            move |number, _| {
                if number == 0 { vec![Act::Say(good("x"))] } else { script.clone() }
            },
        )
        .await;
        let kit = kit(raw.address);
        kit.ask().await.unwrap();
        assert_eq!(kit.ask().await, Err(SendError::Broken), "{what}");
        assert_eq!((raw.count(), raw.connections(), kit.stale()), (2, 1, 0), "{what}");
    }
}

#[tokio::test]
async fn u04_a_failure_of_a_fresh_connection_is_not_silent() {
    for act in [Act::Close, Act::Reset] {
        let raw = Raw::always(vec![act]).await;
        let kit = kit(raw.address);
        assert_eq!(kit.ask().await, Err(SendError::Broken));
        assert_eq!((raw.count(), kit.stale()), (1, 0));
    }
    // Nor is the one that replaces a used one.
    let raw = Raw::start(
        |number, _| {
            if number == 0 { vec![Act::Say(good("x"))] } else { vec![Act::Reset] }
        },
    )
    .await;
    let kit = kit(raw.address);
    kit.ask().await.unwrap();
    assert_eq!(kit.ask().await, Err(SendError::Broken));
    assert_eq!((raw.count(), raw.connections(), kit.stale()), (3, 2, 1));
}

#[tokio::test]
async fn u04_an_endpoint_that_dies_of_a_request_on_a_used_connection_is_not_one_that_was_never_asked()
 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kit = kit(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(reads_request(&mut stream).await);
        stream.write_all(&good("x")).await.unwrap();
        assert!(reads_request(&mut stream).await);
        // It dies: its port first, so that nobody answers there.
        drop(listener);
        stream.set_zero_linger().unwrap();
    });
    kit.ask().await.unwrap();
    assert_eq!(kit.ask().await, Err(SendError::Broken));
    assert_eq!(kit.stale(), 1);
}

#[tokio::test]
async fn an_answer_that_ends_in_good_order_leaves_its_connection() {
    let stream = whole_stream(&[event("a"), raw::FINISH.into(), raw::DONE.into()]);
    let stream: Vec<u8> = stream
        .into_iter()
        .flat_map(|act| if let Act::Say(bytes) = act { bytes } else { Vec::new() })
        .collect();
    let raw = Raw::start(move |number, _| {
        vec![Act::Say(match number % 3 {
            0 => good("x"),
            1 => stream.clone(),
            _ => answer(204, "", ""),
        })]
    })
    .await;
    let kit = kit(raw.address);
    for _ in 0..9 {
        kit.ask().await.unwrap();
    }
    assert_eq!((raw.count(), raw.connections()), (9, 1));
}

#[tokio::test]
async fn s04_a_stream_whose_end_comes_late_leaves_its_connection() {
    let mut script = open_stream(&[event("a"), raw::FINISH.into(), raw::DONE.into()]);
    script.extend([Act::Wait, Act::Say(chunk(b""))]);
    let raw = Raw::always(script).await;
    let app = gateway(raw.address, |_| {}).await;
    for number in 1..4 {
        let reply = Ask::stream().send(app.address).await;
        assert!(reply.is_clean, "the client does not wait for it");
        raw.go();
        until("the end has come", || raw.said() == number * 5).await;
        // The gateway hears of it no later than of a further question.
        let other = Ask::get("/v1/models").send(app.address).await;
        assert_eq!(other.status, 200);
    }
    assert_eq!((raw.count(), raw.connections()), (3, 1));
}

#[tokio::test]
async fn a_short_refusal_that_nobody_reads_leaves_its_connection() {
    let raw = Raw::always(vec![Act::Say(json(503, "{}"))]).await;
    let kit = kit(raw.address);
    for _ in 0..5 {
        drop(kit.head().await.unwrap());
    }
    assert_eq!((raw.count(), raw.connections()), (5, 1));
}

#[tokio::test]
async fn a_refusal_whose_body_comes_after_its_head_leaves_its_connection() {
    let head = b"HTTP/1.1 503 X\r\ncontent-length: 2\r\n\r\n".to_vec();
    let raw = Raw::always(vec![Act::Say(head), Act::Wait, Act::Say(b"{}".to_vec())]).await;
    let app = gateway(raw.address, |_| {}).await;
    for number in 1..4 {
        let reply = Ask::chat().send(app.address).await;
        assert_eq!(reply.status, 503);
        raw.go();
        until("the body has come", || raw.said() == number * 2).await;
        // The gateway hears of it no later than of a further question.
        let other = Ask::get("/v1/models").send(app.address).await;
        assert_eq!(other.status, 200);
    }
    assert_eq!((raw.count(), raw.connections()), (3, 1));
}

#[tokio::test]
async fn a_refusal_that_does_not_end_costs_its_connection_after_a_second() {
    let head = b"HTTP/1.1 503 X\r\ncontent-length: 2\r\n\r\n".to_vec();
    let raw = Raw::always(vec![Act::Say(head), Act::Hang]).await;
    let kit = kit(raw.address);
    kit.head().await.unwrap().into_body().dismiss();
    until("the connection is closed", || raw.left().len() == 1).await;
}

#[tokio::test]
async fn an_answer_that_is_let_go_of_in_the_middle_takes_its_connection_along() {
    let half = [raw::stream_head(), chunk(event("a").as_bytes())].concat();
    let raw = Raw::always(vec![Act::Say(half), Act::Hang]).await;
    let kit = kit(raw.address);
    let mut body = kit.head().await.unwrap().into_body();
    soon("a piece", body.frame()).await.unwrap().unwrap();
    drop(body);
    until("the connection is closed", || raw.left().len() == 1).await;
    let head = soon("nothing", async {
        tokio::time::timeout(Duration::from_millis(20), kit.head()).await
    });
    drop(head.await);
    assert_eq!(raw.connections(), 2);
}

#[tokio::test]
async fn u17_bytes_behind_an_answer_never_become_the_next_one() {
    let poison = [good("x"), good("poison")].concat();
    let raw = Raw::start(move |number, _| {
        vec![Act::Say(if number == 0 { poison.clone() } else { good("y") })]
    })
    .await;
    let kit = kit(raw.address);
    assert!(kit.ask().await.unwrap().1.contains('x'));
    assert!(kit.ask().await.unwrap().1.contains('y'));
    assert_eq!((raw.connections(), kit.stale()), (2, 0));
}

#[tokio::test]
async fn u17_bytes_that_come_while_a_connection_rests_never_become_the_next_answer() {
    let raw = Raw::start(move |number, _| match number {
        0 => vec![Act::Say(good("x")), Act::Wait, Act::Say(good("poison"))],
        _ => vec![Act::Say(good("y"))],
    })
    .await;
    let kit = kit(raw.address);
    assert!(kit.ask().await.unwrap().1.contains('x'));
    raw.go();
    until("they have come", || raw.said() == 2).await;
    assert!(kit.ask().await.unwrap().1.contains('y'));
    assert_eq!((raw.connections(), kit.stale()), (2, 0));
}

#[tokio::test]
async fn u17_what_came_since_the_runtime_last_looked_is_seen_before_a_connection_is_used() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let kit = kit(listener.local_addr().unwrap());
    let (go, told) = std::sync::mpsc::channel::<()>();
    let (said, has_said) = std::sync::mpsc::channel::<()>();
    let reads = |stream: &mut std::net::TcpStream| {
        let mut seen = Vec::new();
        while !seen.ends_with(QUESTION.as_bytes()) {
            let mut piece = [0; 4096];
            let length = stream.read(&mut piece).unwrap();
            seen.extend_from_slice(&piece[..length]);
        }
    };
    let server = std::thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        reads(&mut first);
        first.write_all(&good("x")).unwrap();
        told.recv().unwrap();
        first.write_all(&good("poison")).unwrap();
        said.send(()).unwrap();
        let (mut second, _) = listener.accept().unwrap();
        reads(&mut second);
        second.write_all(&good("y")).unwrap();
    });
    assert!(kit.ask().await.unwrap().1.contains('x'));
    // The connection has only just come to rest, however long the thread of the runtime waits here, so
    // that nothing tells the runtime.
    tokio::time::pause();
    go.send(()).unwrap();
    has_said.recv().unwrap();
    let mut second = std::pin::pin!(kit.ask());
    let begun =
        std::future::poll_fn(|context| Poll::Ready(second.as_mut().poll(context).is_pending()));
    assert!(begun.await, "its answer cannot be there");
    tokio::time::resume();
    assert!(second.await.unwrap().1.contains('y'));
    server.join().unwrap();
}

#[tokio::test]
async fn a_connection_that_has_ended_while_it_rested_is_noticed_before_it_is_used() {
    let raw = Raw::start(move |number, _| match number {
        0 => vec![Act::Say(good("x")), Act::Close],
        _ => vec![Act::Say(good("y"))],
    })
    .await;
    let kit = kit(raw.address);
    kit.ask().await.unwrap();
    // The end has come when a second connection of the same upstream has been served.
    let other = crate::kit::kit(raw.address);
    other.ask().await.unwrap();
    kit.ask().await.unwrap();
    assert_eq!((raw.count(), kit.stale()), (3, 0));
}

#[tokio::test]
async fn a_connection_rests_for_twenty_seconds_and_serves_for_three_hundred() {
    let raw = Raw::always(vec![Act::Say(good("x"))]).await;
    let kit = kit(raw.address);
    kit.ask().await.unwrap();
    pass(Duration::from_secs(19)).await;
    kit.ask().await.unwrap();
    assert_eq!(raw.connections(), 1);
    pass(Duration::from_secs(21)).await;
    kit.ask().await.unwrap();
    assert_eq!(raw.connections(), 2, "it had rested for too long");
    for _ in 0..21 {
        pass(Duration::from_secs(15)).await;
        kit.ask().await.unwrap();
    }
    assert_eq!(raw.connections(), 3, "it was warm all the time, and old");
}

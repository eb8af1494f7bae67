//! Frames that ask for nothing, by the thousand.

use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::frames::{
    DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, PROTOCOL_ERROR, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, Wire, fields, frame,
};
use crate::local::{QUESTION, soon};
use crate::raw::{Act, Raw, good};
use crate::stand::{
    CONNECTION_KIB_MAX, INITIAL_WINDOW, MACHINE, Stand, head, setting, sized, streams,
};

const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const PADDED: u8 = 8;
const CANCEL: [u8; 4] = 8_u32.to_be_bytes();

/// A flood: what comes first, what comes again and again, and the error that ends it.
struct Flood(&'static str, Vec<u8>, Vec<u8>, u32);

/// All of them.
fn floods() -> Vec<Flood> {
    let calm = |name, opening, unit| Flood(name, opening, unit, ENHANCE_YOUR_CALM);
    let wrong = |name, opening, unit| Flood(name, opening, unit, PROTOCOL_ERROR);
    let ping = |flags| frame(PING, flags, 0, b"12345678");
    let set = |name, value| frame(SETTINGS, 0, 0, &setting(name, value));
    let window = |stream| frame(WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes());
    let priority = |on: u32| frame(PRIORITY, 0, 1, &[&on.to_be_bytes()[..], &[16]].concat());
    let open: Vec<u8> = streams(100).flat_map(head).collect();
    let endless = frame(HEADERS, 0, 1, &[]);
    let whole = frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&crate::stand::POST));
    let padded = frame(DATA, PADDED, 1, &[&[255][..], &[0; 255]].concat());
    let goes = [&0x7fff_ffff_u32.to_be_bytes()[..], &[0; 4]].concat();
    vec![
        calm("pings", vec![], ping(0)),
        calm("answers to no ping", vec![], ping(ACK)),
        calm("settings", vec![], frame(SETTINGS, 0, 0, &[])),
        calm(
            "windows of a hundred streams to and fro",
            open,
            [set(INITIAL_WINDOW, 0), set(INITIAL_WINDOW, 0x7fff_ffff)].concat(),
        ),
        calm("a table of 4 GiB and of nothing", vec![], [set(1, u32::MAX), set(1, 0)].concat()),
        calm(
            "settings by the thousand",
            vec![],
            frame(SETTINGS, 0, 0, &setting(4, 5).repeat(2_700)),
        ),
        calm("priorities", vec![], priority(3)),
        calm("a stream that depends on itself", vec![], priority(1)),
        calm("frames that nobody knows", vec![], frame(0xbe, 0, 0, &[])),
        calm("long frames that nobody knows", vec![], frame(0xbe, 0, 0, &[b'x'; 16 * 1024])),
        calm("resets of a stream that has ended", whole.clone(), frame(RST_STREAM, 0, 1, &CANCEL)),
        wrong("resets of no stream", vec![], frame(RST_STREAM, 0, 9, &CANCEL)),
        calm("a byte of window for the connection", vec![], window(0)),
        calm("a byte of window for a stream", head(1), window(1)),
        calm(
            "a head without end",
            endless.clone(),
            frame(CONTINUATION, 0, 1, &fields(&[("x", "y")])),
        ),
        calm("a head of nothing without end", endless, frame(CONTINUATION, 0, 1, &[])),
        calm("farewells", whole.clone(), frame(GOAWAY, 0, 0, &goes)),
        calm("data of nothing", head(1), frame(DATA, 0, 1, &[])),
        calm("data of a byte", head(1), frame(DATA, 0, 1, b" ")),
        calm("data of padding", head(1), padded),
        wrong("promises", vec![], frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])),
    ]
}

/// Floods a connection: how it ended.
async fn floods_on<S>(stream: S, opening: &[u8], unit: &[u8]) -> Option<u32>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let wire = Wire::over(stream).await;
    let bytes_max = sized(20_000_000, 400_000_000);
    // Three thousand empty any purse.
    let times = sized(20_000, 1_000_000).min(bytes_max / unit.len()).max(3_000);
    let bytes = [opening, &unit.repeat(times)].concat();
    wire.floods(bytes).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_ask_for_nothing_end_their_connection_for_little_memory_and_time() {
    let _alone = MACHINE.lock().await;
    let stand = Stand::new(Raw::always(vec![Act::Say(good("yes"))]).await, "").await;
    let connections = sized(2, 20);
    for Flood(name, opening, unit, expected) in floods() {
        let (before, began) = (stand.resident_kib(), Instant::now());
        for _ in 0..connections {
            let error = floods_on(stand.connect().await, &opening, &unit).await;
            assert!(error == Some(expected) || name == "farewells", "{name}: {error:?}");
        }
        stand.costs(name, before, connections, CONNECTION_KIB_MAX / 4);
        println!("{name}: {:?} each", began.elapsed() / u32::try_from(connections).unwrap());
        stand.serves_others().await;
    }
    stand.comes_to_rest().await;
    assert!(stand.counted("guard_refusals_total{reason=\"flood\"}").await > 0);
    let log = stand.gateway.log();
    assert!(log.len() < 50, "{} lines: {:?}", log.len(), log.last());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_by_tls_end_as_those_in_the_clear() {
    let _alone = MACHINE.lock().await;
    let stand = Stand::secured(Raw::always(vec![Act::Say(good("yes"))]).await).await;
    for Flood(name, opening, unit, expected) in floods().into_iter().step_by(4) {
        let error = floods_on(stand.shake(&["h2"]).await, &opening, &unit).await;
        assert_eq!(error, Some(expected), "{name}");
        stand.serves_others().await;
    }
    stand.comes_to_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_floods_and_reads_nothing_is_cut() {
    let _alone = MACHINE.lock().await;
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let stand = Stand::new(raw, ", timeouts: { write_stall: 1s }").await;
    let whole = |stream| {
        let data = frame(DATA, END_STREAM, stream, QUESTION.as_bytes());
        [head(stream), data].concat()
    };
    // Pings alone would end by what they cost; whoever asks, too, is paid for.
    let asks: Vec<u8> = streams(200_000).flat_map(whole).collect();
    let before = stand.resident_kib();
    let mut wire = Wire::over(stand.connect().await).await;
    let written = soon("the end", wire.0.write_all(&asks)).await;
    assert!(written.is_err(), "all was taken");
    stand.costs("a client that asks and reads nothing", before, 1, CONNECTION_KIB_MAX);
    stand.serves_others().await;
    stand.comes_to_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_of_requests_that_have_begun_are_paid_for() {
    let _alone = MACHINE.lock().await;
    // The first few are the stand's own.
    let answer = |number, _: &_| vec![if number < 20 { Act::Say(good("yes")) } else { Act::Hang }];
    let stand = Stand::new(Raw::start(answer).await, "").await;
    let mut wire = Wire::over(stand.connect().await).await;
    let mut ended = false;
    for round in streams(4_000).collect::<Vec<_>>().chunks(50) {
        let asked = round.iter().flat_map(|stream| {
            let data = frame(DATA, END_STREAM, *stream, QUESTION.as_bytes());
            [head(*stream), data].concat()
        });
        let resets = round.iter().flat_map(|stream| frame(RST_STREAM, 0, *stream, &CANCEL));
        // The answer to a ping tells that those before it were looked at, and taken.
        let asked: Vec<u8> = asked.chain(frame(PING, 0, 0, b"12345678")).collect();
        let is_written = wire.0.write_all(&asked).await.is_ok();
        if !is_written || !is_ponged(&mut wire).await {
            ended = true;
            break;
        }
        if wire.0.write_all(&resets.collect::<Vec<u8>>()).await.is_err() {
            ended = true;
            break;
        }
    }
    assert!(ended, "four thousand requests were begun and reset");
    stand.comes_to_rest().await;
    assert!(stand.raw.count() < 3_000, "{}", stand.raw.count());
}

/// Reads until a ping is answered; whether it is.
async fn is_ponged(wire: &mut Wire) -> bool {
    while let Some(frame) = wire.next().await {
        match frame.kind {
            PING => return true,
            GOAWAY => return false,
            _ => {}
        }
    }
    false
}

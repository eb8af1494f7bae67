//! Answers that nobody takes.

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::frames::{DATA, END_STREAM, WINDOW_UPDATE, Wire, frame};
use crate::local::{STREAM_QUESTION, until};
use crate::raw::{Act, Raw, chunk, event, good, open_stream};
use crate::stand::{
    CONNECTION_KIB_MAX, INITIAL_WINDOW, MACHINE, Stand, head, setting, sized, streams,
};

/// A window as wide as can be.
const WIDE: u32 = 0x7fff_ffff;
/// What an upstream says of a stream to somebody who does not listen: more than a stream may hold.
const SAID_BYTES: usize = 200_000;

/// An upstream whose streams say one event, or so many that nobody could hold them.
async fn upstream(is_long: bool) -> Raw {
    let mut script = open_stream(&[event("one")]);
    if is_long {
        let one = chunk(event(&"y".repeat(200)).as_bytes());
        script.push(Act::Say(one.repeat(SAID_BYTES / one.len())));
    }
    script.push(Act::Hang);
    Raw::start(move |_, seen| {
        let is_stream = seen.text().contains("\"stream\"");
        if is_stream { script.clone() } else { vec![Act::Say(good("yes"))] }
    })
    .await
}

/// Opens a hundred streams on each of so many connections and reads nothing: what each costs, in KiB.
async fn stalled(is_long: bool, window: u32, count: usize) -> u64 {
    let stand = Stand::new(upstream(is_long).await, "").await;
    let (before, asked) = (stand.resident_kib(), stand.raw.count());
    let mut wires = Vec::new();
    for _ in 0..count {
        let mut wire = Wire::with(stand.connect().await, &setting(INITIAL_WINDOW, window)).await;
        let mut bytes = frame(WINDOW_UPDATE, 0, 0, &(WIDE - 0xffff).to_be_bytes());
        for stream in streams(100) {
            bytes.extend(head(stream));
            bytes.extend(frame(DATA, END_STREAM, stream, STREAM_QUESTION.as_bytes()));
        }
        wire.0.write_all(&bytes).await.unwrap();
        wires.push(wire);
    }
    until("all are asked", || stand.raw.count() == asked + 100 * count).await;
    stand.serves_others().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let what = format!("a hundred streams that nobody reads, long: {is_long}, window: {window}");
    let each = stand.costs(&what, before, count, 100 * 256);
    stand.serves_others().await;
    drop(wires);
    stand.comes_to_rest().await;
    each
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t11_what_nobody_reads_is_not_held_beyond_a_bound() {
    let _alone = MACHINE.lock().await;
    let count = sized(2, 20);
    // What a hundred streams cost that say little is what it takes to serve them.
    let served = stalled(false, WIDE, count).await;
    for window in [WIDE, 0] {
        let held = stalled(true, window, count).await.saturating_sub(served);
        println!("of it held: {held} KiB");
        assert!(held <= CONNECTION_KIB_MAX, "{held} KiB");
    }
}

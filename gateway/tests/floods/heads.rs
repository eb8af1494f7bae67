//! Heads that are larger than they look, and connections that say nothing.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;

use crate::frames::{
    END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frame, GOAWAY, HEADERS, RST_STREAM, Wire, fields,
    frame,
};
use crate::raw::{Act, Raw, good};
use crate::stand::{
    CONNECTION_KIB_MAX, INITIAL_WINDOW, MACHINE, POST, Stand, is_full, setting, sized, streams,
};

/// A field that is put into the table, and the byte that stands for it from then on.
const FIRST_OF_TABLE: u8 = 0x80 | 62;
/// By how much more than what it sent a client may make the gateway grow.
const AMPLIFICATION_MAX: u64 = 100;

/// What it is called, its flags, and its block: of the first stream, or of another.
type Form<'a> = (&'a str, u8, &'a dyn Fn(bool) -> Vec<u8>);

/// A head of a hundred fields and almost all the bytes that a list may have.
fn large() -> Vec<u8> {
    let names: Vec<_> = (0..90).map(|number| format!("x-{number}")).collect();
    let value = "v".repeat(120);
    let rest: Vec<_> = names.iter().map(|name| (name.as_str(), value.as_str())).collect();
    fields(&[&POST, &rest[..]].concat())
}

/// A head of `count` fields in so many bytes.
fn bomb(is_first: bool, count: usize) -> Vec<u8> {
    let mut block = fields(&POST);
    if is_first {
        block.extend([0x40, 1, b'x', 0]);
    }
    block.extend(vec![FIRST_OF_TABLE; count]);
    block
}

/// Opens a hundred streams by each of these connections: what was sent.
async fn opens(wires: &mut [Wire], flags: u8, block: impl Fn(bool) -> Vec<u8>) -> u64 {
    let heads: Vec<u8> = streams(100)
        .flat_map(|stream| frame(HEADERS, END_HEADERS | flags, stream, &block(stream == 1)))
        .collect();
    for wire in wires.iter_mut() {
        wire.0.write_all(&heads).await.unwrap();
    }
    u64::try_from(heads.len() * wires.len()).unwrap()
}

async fn wires(stand: &Stand, count: usize, settings: &[u8]) -> Vec<Wire> {
    let mut wires = Vec::new();
    for _ in 0..count {
        wires.push(Wire::with(stand.connect().await, settings).await);
    }
    wires
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t05_bombs_of_heads_cost_little_and_their_streams_end() {
    let _alone = MACHINE.lock().await;
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let stand = Stand::new(raw, ", timeouts: { write_stall: 500ms, body_idle: 500ms }").await;
    let (count, closed) = (sized(5, 20), setting(INITIAL_WINDOW, 0));
    let forms: [Form<'_>; 5] = [
        ("a hundred streams with nothing in them", 0, &|_| fields(&POST)),
        ("a hundred streams with 450 fields of one byte", 0, &|is_first| bomb(is_first, 450)),
        ("the same, asked to the end", END_STREAM, &|is_first| bomb(is_first, 450)),
        ("a hundred streams with 90 fields of one byte", 0, &|is_first| bomb(is_first, 90)),
        ("a hundred streams with heads of 14 KiB", 0, &|_| large()),
    ];
    let mut plain = None;
    for (name, flags, block) in forms {
        let before = stand.resident_kib();
        let mut wires = wires(&stand, count, &closed).await;
        let sent = opens(&mut wires, flags, block).await;
        stand.serves_others().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let each = stand.costs(name, before, count, CONNECTION_KIB_MAX);
        // What it takes to serve a hundred streams is no matter of their heads.
        let by_heads = each.saturating_sub(*plain.get_or_insert(each));
        let amplification = by_heads * 1024 * u64::try_from(count).unwrap() / sent;
        println!("{name}: {amplification} times what was sent");
        assert!(amplification < AMPLIFICATION_MAX, "{name}: {amplification}");
        // Nothing of the answers is ever taken: each stream is reset in time.
        for wire in &mut wires {
            let ended = wire.ends(100).await;
            assert_eq!(ended, 100, "{name}");
        }
    }
    stand.comes_to_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_is_far_too_large_ends_its_connection() {
    let _alone = MACHINE.lock().await;
    let stand = Stand::new(Raw::always(vec![Act::Say(good("yes"))]).await, "").await;
    // Each byte stands for four thousand.
    let mut block = fields(&POST);
    block.extend([0x40, 1, b'x', 0x7f, 0xa0 - 0x7f + 0x80, 0x1e]);
    block.extend(vec![b'v'; 0x7f + 0x21 + (0x1e << 7)]);
    block.extend(vec![FIRST_OF_TABLE; 10_000]);
    let before = stand.resident_kib();
    let wire = Wire::over(stand.connect().await).await;
    let error = wire.floods(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)).await;
    assert_eq!(error, Some(ENHANCE_YOUR_CALM));
    stand.costs("a head of 40 MB in 14 KiB", before, 1, CONNECTION_KIB_MAX);
    stand.serves_others().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_preface_and_then_silence_is_asked_and_ended() {
    // Its periods are no settings: what is short of them is tried in virtual time, beside the code.
    if !is_full() {
        println!("the whole 35 s are waited for with FLOODS=full");
    }
    let stand = Stand::new(Raw::always(vec![Act::Say(good("yes"))]).await, "").await;
    let began = Instant::now();
    let mut wire = Wire::over(stand.connect().await).await;
    let asked = wire.next().await.unwrap();
    assert_eq!(asked.kind, crate::frames::SETTINGS);
    if is_full() {
        let mut kinds = Vec::new();
        while let Some(frame) = wire.patient().await {
            kinds.push(frame.kind);
        }
        assert!(kinds.contains(&6), "{kinds:?}");
        assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    }
    stand.serves_others().await;
}

impl Wire {
    /// Reads until so many streams have ended, or the connection has: how many.
    pub(crate) async fn ends(&mut self, most: usize) -> usize {
        let mut ended = 0;
        while ended < most {
            match self.next().await {
                Some(Frame { kind: RST_STREAM, .. }) => ended += 1,
                Some(Frame { kind: GOAWAY, .. }) | None => return ended,
                Some(_) => {}
            }
        }
        ended
    }
}

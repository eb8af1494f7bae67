//! What this crate promises of any bytes from another node, as functions that panic where a promise is
//! broken.
//!
//! Fuzzers look for such bytes (`gateway/fuzz`), and the gateway's tests run all that they have found so
//! far. It is compiled for them only.

#![expect(clippy::unwrap_used, reason = "a promise that is broken stops loudly")]

use std::collections::HashMap;
use std::time::Duration;

use chitchat::{ChitchatMessage, Deserializable};
use tokio::time::Instant;

use crate::codec::{self, Push};
use crate::push::{Known, Layer, Overlay};
use crate::records::{self, KEY_BYTES_MAX, Record};
use crate::seal::Seals;
use crate::stats::Stats;
use crate::vet::Vet;

/// A record, sealed record or push that is read can be written, and reads the same again; the text form
/// of a sealed record is one for each.
pub fn records(bytes: &[u8]) {
    if let Ok(record) = codec::decode(bytes) {
        assert!(record.key().len() <= KEY_BYTES_MAX, "{}", record.key());
        let written = codec::encode(&record).unwrap();
        assert!(written.len() <= codec::RECORD_BYTES_MAX);
        assert_eq!(codec::decode(&written).unwrap(), record);
    }
    if let Ok(sealed) = codec::decode_sealed(bytes) {
        let written = codec::encode_sealed(sealed.clone()).unwrap();
        assert_eq!(codec::decode_sealed(&written).unwrap(), sealed);
        assert_eq!(records::from_value(&records::to_value(&written)).unwrap(), sealed);
    }
    if let Ok(push) = codec::decode_push(bytes) {
        let written = codec::encode_push(push.clone()).unwrap();
        assert_eq!(codec::decode_push(&written).unwrap(), push);
        merges(push);
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(sealed) = records::from_value(text)
    {
        assert!(codec::encode_sealed(sealed).is_ok());
    }
}

/// What was pushed is laid over what is there once, and in any order comes to the same.
fn merges(push: Push) {
    let (seals, stats, now) = (Seals::new("fleet", None), Stats::default(), Instant::now());
    let lay = |overlay: &mut Overlay, push: Push| {
        let known = Known { generation: 0, seq_max: 0, newest: |_, _: &str| 0 };
        overlay.merge(push, known, (&seals, &stats), now).ok()
    };
    let mut overlay = Overlay::new(Duration::from_secs(1));
    let (node_id, count) = (push.node_id.clone(), push.records.len());
    let Some(news) = lay(&mut overlay, push.clone()) else { return };
    assert!(news.len() <= count);
    let held = laid(&overlay, &node_id);
    assert_eq!(lay(&mut overlay, push.clone()), Some(Vec::new()), "it is news twice");
    assert_eq!(laid(&overlay, &node_id), held);
    let mut turned = Overlay::new(Duration::from_secs(1));
    let records = push.records.iter().rev().cloned().collect();
    assert!(lay(&mut turned, Push { records, ..push.clone() }).is_some());
    let number = |held: &HashMap<String, Record>| -> HashMap<String, u64> {
        held.iter().map(|(key, record)| (key.clone(), record.seq)).collect()
    };
    assert_eq!(number(&laid(&turned, &node_id)), number(&held), "the order decides");
}

fn laid(overlay: &Overlay, node_id: &str) -> HashMap<String, Record> {
    let records = overlay.layer(node_id).into_iter().flat_map(Layer::records);
    records.map(|(key, record)| (key.to_owned(), record.clone())).collect()
}

/// A frame that is let in does chitchat's own decoder no harm: it reads all of it. What was let in once
/// is let in again.
pub fn frames(bytes: &[u8]) {
    let vet = Vet::new("fleet", "own", 10);
    if vet.check(bytes).is_err() {
        return;
    }
    let mut rest = bytes;
    ChitchatMessage::deserialize(&mut rest).unwrap();
    assert!(rest.is_empty(), "{} bytes are left", rest.len());
    vet.check(bytes).unwrap();
}

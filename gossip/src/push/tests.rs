//! Laying pushes over each other, and packing them.

use quorum::{Card, Standing};

use super::*;

fn seals() -> Seals {
    Seals::new("fleet", None)
}

fn known(generation: u64) -> Known<impl Fn(u64, &str) -> u64> {
    Known { generation, seq_max: 0, newest: |_, _: &str| 0 }
}

fn push(generation: u64, seqs: &[u64]) -> Push {
    let encode = |seq: &u64| {
        let card = Card {
            version: format!("version {seq}"),
            config_hash: String::new(),
            standing: Standing::Serving,
            is_suspect: false,
        };
        let record = codec::encode(&Record { seq: *seq, body: Body::Card(card) }).unwrap();
        let place = Place { node_id: "one", generation, key: "c" };
        seals().seal(place, record).unwrap()
    };
    let records = seqs.iter().map(encode).collect();
    Push { node_id: "one".to_owned(), generation, records, ..Push::default() }
}

fn held(overlay: &Overlay) -> Vec<u64> {
    let layer = overlay.layer("one");
    layer.into_iter().flat_map(Layer::records).map(|(_, record)| record.seq).collect()
}

#[test]
fn the_greater_number_wins_in_any_order() {
    let (now, stats) = (Instant::now(), Stats::default());
    for order in [[1, 2, 3], [3, 1, 2], [2, 3, 1], [3, 3, 3]] {
        let mut overlay = Overlay::new(Duration::from_secs(1));
        for seq in order {
            overlay.merge(push(5, &[seq]), known(0), (&seals(), &stats), now).unwrap();
        }
        assert_eq!(held(&overlay), [3], "{order:?}");
    }
}

#[test]
fn a_past_life_is_refused_and_a_new_one_starts_empty() {
    let (now, stats) = (Instant::now(), Stats::default());
    let mut overlay = Overlay::new(Duration::from_secs(1));
    overlay.merge(push(5, &[9]), known(0), (&seals(), &stats), now).unwrap();
    assert_eq!(
        overlay.merge(push(4, &[10]), known(0), (&seals(), &stats), now),
        Err(Reject::Identity)
    );
    assert_eq!(
        overlay.merge(push(5, &[10]), known(6), (&seals(), &stats), now),
        Err(Reject::Identity)
    );
    overlay.merge(push(6, &[1]), known(6), (&seals(), &stats), now).unwrap();
    assert_eq!(held(&overlay), [1]);
}

#[test]
fn what_gossip_has_brought_or_time_has_taken_is_forgotten() {
    let (now, stats) = (Instant::now(), Stats::default());
    let mut overlay = Overlay::new(Duration::from_secs(1));
    overlay.merge(push(5, &[9]), known(0), (&seals(), &stats), now).unwrap();
    overlay.prune(now, |_, _, _| 8);
    assert_eq!(held(&overlay), [9]);
    overlay.prune(now, |_, _, _| 9);
    assert_eq!(held(&overlay), [0; 0]);
    overlay.merge(push(5, &[10]), known(0), (&seals(), &stats), now).unwrap();
    overlay.prune(now + Duration::from_secs(10), |_, _, _| 0);
    assert_eq!(held(&overlay), [0; 0]);
}

#[test]
fn one_record_that_cannot_be_read_does_not_take_the_others_with_it() {
    let (now, stats) = (Instant::now(), Stats::default());
    let mut mixed = push(5, &[9]);
    mixed.records.insert(0, vec![1, 0, 0]);
    mixed.records.insert(0, vec![2, 7]);
    let mut overlay = Overlay::new(Duration::from_secs(1));
    let news = overlay.merge(mixed, known(0), (&seals(), &stats), now).unwrap();
    assert_eq!(news, push(5, &[9]).records);
    assert_eq!(held(&overlay), [9]);
    assert_eq!(stats.rejects(Reject::UnknownFormat), 1);
    assert_eq!(stats.rejects(Reject::Undecodable), 1);
}

#[test]
fn many_records_are_spread_over_frames_that_fit() {
    for (count, bytes) in [(100, codec::SEALED_BYTES_MAX), (10_000, 12), (2_000, 200)] {
        let records = vec![vec![1; bytes]; count];
        let head = Push {
            node_id: "n".repeat(253),
            generation: u64::MAX >> 11,
            chain: vec![vec![7; CHAIN_BYTES_MAX]],
            ..Push::default()
        };
        let frames = pack(&head, records).unwrap();
        assert!(frames.len() < 12, "{} frames", frames.len());
        let decode = |frame: &Vec<u8>| codec::decode_push(frame).unwrap().records.len();
        assert_eq!(frames.iter().map(decode).sum::<usize>(), count);
    }
}

#[test]
fn what_was_news_once_is_not_news_again_while_copies_may_be_under_way() {
    let (now, stats) = (Instant::now(), Stats::default());
    let mut overlay = Overlay::new(Duration::from_secs(1));
    let news = |overlay: &mut Overlay, seq, now| {
        overlay.merge(push(5, &[seq]), known(0), (&seals(), &stats), now).unwrap().len()
    };
    assert_eq!(news(&mut overlay, 9, now), 1);
    assert_eq!(news(&mut overlay, 9, now), 0);
    // Gossip has brought it too, and the record itself is forgotten.
    overlay.prune(now, |_, _, _| 9);
    assert_eq!(news(&mut overlay, 9, now), 0);
    assert_eq!(held(&overlay), [0; 0]);
    assert_eq!(news(&mut overlay, 10, now), 1);
}

#[test]
fn what_gossip_holds_already_is_no_news() {
    let (now, stats) = (Instant::now(), Stats::default());
    let mut overlay = Overlay::new(Duration::from_secs(1));
    let held = Known { generation: 5, seq_max: 9, newest: |_, _: &str| 9 };
    let news = overlay.merge(push(5, &[9]), held, (&seals(), &stats), now).unwrap();
    assert!(news.is_empty());
    assert!(overlay.layer("one").is_none());
}

#[test]
fn a_number_that_no_later_one_could_exceed_is_refused() {
    let (now, stats) = (Instant::now(), Stats::default());
    let mut overlay = Overlay::new(Duration::from_secs(1));
    overlay.merge(push(5, &[1 << 50]), known(0), (&seals(), &stats), now).unwrap();
    assert_eq!(stats.rejects(Reject::Implausible), 1);
    overlay.merge(push(5, &[1]), known(0), (&seals(), &stats), now).unwrap();
    assert_eq!(held(&overlay), [1], "it is still heard");
}

#[test]
fn a_push_never_brings_a_pulse() {
    let (now, stats) = (Instant::now(), Stats::default());
    let mut overlay = Overlay::new(Duration::from_secs(1));
    let record = codec::encode(&Record { seq: 9, body: Body::Pulse(7) }).unwrap();
    let place = Place { node_id: "one", generation: 5, key: "p" };
    let records = vec![seals().seal(place, record).unwrap()];
    let push = Push { records, ..push(5, &[]) };
    let news = overlay.merge(push, known(0), (&seals(), &stats), now).unwrap();
    assert!(news.is_empty() && overlay.layer("one").is_none());
    assert_eq!(stats.rejects(Reject::Undecodable), 1);
}

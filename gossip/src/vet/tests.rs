//! Frames that must not reach chitchat, made by hand, and honest ones that must.

use chitchat::{ChitchatMessage, Deserializable};

use super::*;

fn vet() -> Vet {
    Vet::new("fleet", "own", 10)
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_le_bytes(), text.as_bytes()].concat()
}

fn id(name: &str, generation: u64) -> Vec<u8> {
    let address = [4, 127, 0, 0, 1, 0x90, 0x1f];
    [text(name), generation.to_le_bytes().to_vec(), address.to_vec()].concat()
}

fn head(kind: u8) -> Vec<u8> {
    [&MAGIC.to_le_bytes()[..], &[VERSION, kind]].concat()
}

fn digest(names: &[(String, u64)]) -> Vec<u8> {
    let mut bytes = (names.len() as u16).to_le_bytes().to_vec();
    for (name, heartbeat) in names {
        bytes.extend(id(name, 1));
        bytes.extend([*heartbeat, 0, 5].iter().flat_map(|number| number.to_le_bytes()));
    }
    bytes
}

fn syn(names: &[(String, u64)]) -> Vec<u8> {
    [head(SYN), digest(names), text("fleet")].concat()
}

fn op_node(name: &str, generation: u64) -> Vec<u8> {
    [vec![OP_NODE], id(name, generation), vec![0; 16]].concat()
}

fn op_key(key: &str, version: u64) -> Vec<u8> {
    let version = version.to_le_bytes().to_vec();
    [vec![OP_KEY_VALUE], text(key), text("value"), version, vec![0]].concat()
}

fn op_max(version: u64) -> Vec<u8> {
    [vec![OP_MAX_VERSION], version.to_le_bytes().to_vec()].concat()
}

fn plain(ops: &[u8]) -> Vec<u8> {
    [vec![2], (ops.len() as u16).to_le_bytes().to_vec(), ops.to_vec()].concat()
}

fn ack(ops: &[Vec<u8>]) -> Vec<u8> {
    [head(ACK), plain(&ops.concat()), vec![0]].concat()
}

fn names(count: usize) -> Vec<(String, u64)> {
    (0..count).map(|number| (format!("n{number}"), 7)).collect()
}

/// Runs the frame through chitchat's own decoder, to show that the test's frames are of its form.
fn decodes(frame: &[u8]) -> bool {
    let mut rest = frame;
    ChitchatMessage::deserialize(&mut rest).is_ok()
}

#[test]
fn honest_frames_pass() {
    for frame in [
        syn(&names(3)),
        ack(&[op_node("n1", 1), op_key("v/a", 5), op_key("v/b", 9)]),
        ack(&[op_node("n1", 1), op_max(4), op_node("own", 9), op_key("c", 1)]),
        [head(SYN_ACK), digest(&names(2)), vec![0]].concat(),
    ] {
        assert!(decodes(&frame));
        assert_eq!(vet().check(&frame), Ok(()), "{frame:?}");
    }
}

#[test]
fn a_frame_cut_at_any_byte_is_refused() {
    let whole = [
        syn(&names(2)),
        [head(SYN_ACK), digest(&names(2)), plain(&op_node("n1", 1)), vec![0]].concat(),
    ];
    for frame in whole {
        for end in 0..frame.len() {
            assert_eq!(vet().check(&frame[..end]), Err(Reject::Undecodable), "{end} bytes");
        }
        let longer = [frame.as_slice(), &[0]].concat();
        assert_eq!(vet().check(&longer), Err(Reject::Undecodable));
    }
}

#[test]
fn another_fleet_is_refused() {
    let frame = [head(SYN), digest(&[]), text("other")].concat();
    assert_eq!(vet().check(&frame), Err(Reject::WrongCluster));
    assert_eq!(vet().check(&head(BAD_CLUSTER)), Err(Reject::WrongCluster));
}

#[test]
fn numbers_that_would_freeze_a_member_are_refused() {
    for heartbeat in [NUMBER_MAX + 1, u64::MAX] {
        let frame = syn(&[("n1".to_owned(), heartbeat)]);
        assert!(decodes(&frame));
        assert_eq!(vet().check(&frame), Err(Reject::Implausible));
    }
    let frame = ack(&[op_node("n1", 1), op_key("v/a", u64::MAX)]);
    assert_eq!(vet().check(&frame), Err(Reject::Implausible));
    let frame = ack(&[op_node("n1", 1), op_max(u64::MAX)]);
    assert_eq!(vet().check(&frame), Err(Reject::Implausible));
}

#[test]
fn nobody_writes_this_nodes_present() {
    let frame = ack(&[op_node("own", 10), op_key("v/a", 5)]);
    assert!(decodes(&frame));
    let vet = vet();
    assert_eq!(vet.check(&frame), Err(Reject::Identity));
    let another_process = ack(&[op_node("own", 11), op_key("v/a", 5)]);
    assert_eq!(vet.check(&another_process), Ok(()));
    vet.live_as(12);
    assert_eq!(vet.check(&ack(&[op_node("own", 11), op_max(5)])), Ok(()));
}

#[test]
fn a_greatest_version_below_a_key_is_refused() {
    let frame = ack(&[op_node("n1", 1), op_key("v/a", 5), op_max(4)]);
    assert!(decodes(&frame), "chitchat takes it, and stops later");
    assert_eq!(vet().check(&frame), Err(Reject::Undecodable));
}

#[test]
fn g19_a_key_that_begins_inside_a_character_or_holds_a_newline_is_refused() {
    for key in ["", "ä", "模/型", " v", "v/a\nb", "v/\u{0}"] {
        let frame = ack(&[op_node("n1", 1), op_key(key, 5)]);
        assert!(decodes(&frame));
        assert_eq!(vet().check(&frame), Err(Reject::Implausible), "{key:?}");
    }
}

#[test]
fn invented_nodes_are_bounded_in_one_frame_and_over_many() {
    assert_eq!(vet().check(&syn(&names(2_000))), Err(Reject::Oversize));
    let vet = vet();
    let mut passed = 0;
    for round in 0..200 {
        let invented: Vec<_> = (0..20).map(|number| (format!("x{round}-{number}"), 1)).collect();
        passed += usize::from(vet.check(&syn(&invented)).is_ok());
    }
    assert!((30..=51).contains(&passed), "{passed} frames of 20 nodes passed");
    vet.hold(HashMap::new());
    assert_eq!(vet.check(&syn(&names(20))), Ok(()), "what is not held any more makes room");
}

#[test]
fn a_life_that_is_told_on_no_more_makes_room_and_does_not_come_back_for_nothing() {
    let vet = vet();
    let life =
        |number: usize| ChitchatId::new(format!("n{number}"), 1, "127.0.0.1:8080".parse().unwrap());
    let hold = |is_shared| {
        let held = (0..900).map(|number| (life(number), Holding { keys: 1, is_shared }));
        vet.hold(held.collect())
    };
    assert!(hold(true) > DIGEST_BYTES_MAX * 8 / 10);
    let others: Vec<_> = (0..300).map(|number| (format!("x{number}"), 1)).collect();
    assert_eq!(vet.check(&syn(&others)), Err(Reject::Oversize));
    assert_eq!(hold(false), 0);
    assert_eq!(vet.check(&syn(&others)), Ok(()));
    assert_eq!(vet.check(&syn(&names(900))), Err(Reject::Oversize), "they would not fit beside");
}

#[test]
fn a_node_cannot_be_given_keys_without_end() {
    let vet = vet();
    let held = ChitchatId::new("n1", 1, "127.0.0.1:8080".parse().unwrap());
    vet.hold(HashMap::from([(held, Holding { keys: KEYS_MAX, is_shared: true })]));
    let frame = ack(&[op_node("n1", 1), op_key("v/a", 5)]);
    assert_eq!(vet.check(&frame), Err(Reject::Oversize));
}

#[test]
fn a_small_frame_that_unpacks_to_much_is_refused() {
    let packed = zstd::bulk::compress(&[0; 65_000], 19).unwrap();
    let mut frame = head(ACK);
    while frame.len() + packed.len() + 4 < 64 * 1_024 {
        frame.push(1);
        frame.extend((packed.len() as u16).to_le_bytes());
        frame.extend(&packed);
    }
    frame.push(0);
    assert_eq!(vet().check(&frame), Err(Reject::Oversize));
}

#[test]
fn addresses_that_nobody_has_are_refused() {
    for address in [[4, 0, 0, 0, 0, 1, 1], [4, 224, 0, 0, 1, 1, 1], [4, 127, 0, 0, 1, 0, 0]] {
        let mut frame = [head(SYN), vec![1, 0], text("n1"), vec![0; 8]].concat();
        frame.extend(address);
        frame.extend([0; 24]);
        frame.extend(text("fleet"));
        assert_eq!(vet().check(&frame), Err(Reject::Implausible), "{address:?}");
    }
}

#[test]
fn random_frames_never_do_more_than_fail() {
    let seed = 77;
    let mut random = fastrand::Rng::with_seed(seed);
    let vet = vet();
    let honest = [syn(&names(3)), ack(&[op_node("n1", 1), op_key("v/a", 5), op_key("v/b", 9)])];
    for round in 0..50_000 {
        let mut frame = honest[round % 2].clone();
        for _ in 0..random.usize(1..6) {
            let place = random.usize(4..frame.len());
            frame[place] = random.u8(..);
        }
        if vet.check(&frame).is_ok() {
            assert!(decodes(&frame), "seed {seed}, round {round}: {frame:?}");
        }
    }
}

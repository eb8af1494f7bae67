//! The bytes of each record, and what is refused.

use std::time::Duration;

use quorum::statement::SLOW_PIECES_MAX;
use quorum::{
    Basis, Card, EndpointKey, Evidence, Forced, MemberOrder, MemberVerb, NodeId, Override, Stage,
    Standing, Step, Vote, VoteState, Window,
};

use super::inward::{WAIT_MAX, from_millis};
use super::outward::to_millis;
use super::wire::{
    WireCard, WireForced, WireOverride, WireStage, WireStanding, WireStep, WireVerb, WireWindow,
};
use super::*;

fn vote(reason: &str) -> Record {
    let vote = Vote {
        incident: 3,
        basis: Basis::Seconded,
        state: VoteState::Stands,
        reason: reason.to_owned(),
        evidence: Evidence { requests: 40, faults_milli: 12_500, successes: 2, slow_pieces: 1 },
        age: Duration::from_millis(1_500),
    };
    let statement = Statement::Vote(EndpointKey::new("chat/a"), vote);
    Record { seq: 300, body: Body::Statement(statement) }
}

fn step(stage: Stage) -> Record {
    let step = Step {
        incident: 3,
        failures: 2,
        level: 1,
        stage,
        steward: NodeId::new("n1"),
        age: Duration::from_secs(70),
        is_held: true,
    };
    Record { seq: 7, body: Body::Statement(Statement::Step(EndpointKey::new("chat/a"), step)) }
}

fn order() -> Record {
    let order = Override {
        forced: Forced::Closed,
        stamp: 9,
        author: NodeId::new("n2"),
        remaining: Some(Duration::from_secs(60)),
        reason: "repaired".to_owned(),
    };
    let statement = Statement::Override(EndpointKey::new("chat/a"), order);
    Record { seq: 8, body: Body::Statement(statement) }
}

fn card() -> Record {
    let card = Card {
        version: "0.1.0".to_owned(),
        config_hash: "ab12".to_owned(),
        standing: Standing::Left,
        is_suspect: true,
    };
    Record { seq: 1, body: Body::Card(card) }
}

fn window(slow: Vec<Duration>) -> Record {
    let window = Window {
        requests: 30,
        faults_milli: 4_000,
        successes: 20,
        slow,
        last_success: Some(Duration::from_millis(700)),
        has_small: true,
    };
    let statement = Statement::Window(EndpointKey::new("chat/a"), window);
    Record { seq: 9, body: Body::Statement(statement) }
}

fn asked(member: &str, verb: MemberVerb, reason: &str) -> Record {
    let order = MemberOrder { verb, generation: 1_000, reason: reason.to_owned() };
    Record { seq: 11, body: Body::Statement(Statement::Member(NodeId::new(member), order)) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_bytes_of_each_record_are_golden() {
    let remaining = Duration::from_secs(5);
    let canary = Stage::Canary { holder: NodeId::new("n3"), turn: 4, successes: 2, remaining };
    let golden = [
        (card(), "02010005302e312e3004616231320201"),
        (vote("504"), "02fb2c010106636861742f610301000335303428fbd4300201fbdc05"),
        (
            step(Stage::Probing { remaining }),
            "02070206636861742f6103020101fb8813026e31fc7011010001",
        ),
        (step(canary), "02070206636861742f6103020102026e330402fb8813026e31fc7011010001"),
        (order(), "02080306636861742f610109026e3201fb60ea087265706169726564"),
        (
            window(vec![Duration::from_millis(40), Duration::from_secs(2)]),
            "02090406636861742f611efba00f140228fbd00701fbbc0201",
        ),
        (asked("gw-3", MemberVerb::Leave, "new disk"), "030b0467772d3301fbe803086e6577206469736b"),
        (Record { seq: 300, body: Body::Pulse(77) }, "02fb2c01054d"),
        (
            Record { seq: 1, body: Body::Certificate(vec![vec![3], vec![4, 5]]) },
            "020106020103020405",
        ),
    ];
    for (record, expected) in golden {
        let bytes = encode(&record).unwrap();
        assert_eq!(hex(&bytes), expected, "{record:?}");
        assert_eq!(decode(&bytes).unwrap(), record);
    }
}

#[test]
fn the_bytes_of_a_push_are_golden() {
    let records = vec![encode(&card()).unwrap()];
    let chain = vec![vec![9, 8, 7]];
    let push = Push { node_id: "n1".to_owned(), generation: 1_000, hops: 2, chain, records };
    let bytes = encode_push(push.clone()).unwrap();
    assert_eq!(hex(&bytes), "02026e31fbe803020103090807011002010005302e312e3004616231320201");
    assert_eq!(decode_push(&bytes).unwrap(), push);
}

#[test]
fn the_bytes_of_a_sealed_record_are_golden() {
    let sealed = Sealed { record: vec![1, 2, 3], scheme: 0x0403, signature: vec![4, 5] };
    let bytes = encode_sealed(sealed.clone()).unwrap();
    assert_eq!(hex(&bytes), "0203010203fb0304020405");
    assert_eq!(decode_sealed(&bytes).unwrap(), sealed);
    for end in 0..bytes.len() {
        assert_eq!(decode_sealed(&bytes[..end]), Err(CodecError::Malformed), "{end} bytes");
    }
}

#[test]
fn a_certificate_that_is_too_long_is_refused() {
    for chain in [vec![vec![0; CHAIN_BYTES_MAX + 1]], vec![Vec::new(); CHAIN_MAX + 1]] {
        let record = Record { seq: 1, body: Body::Certificate(chain.clone()) };
        assert_eq!(encode(&record), Err(CodecError::TooLong));
        let wire = WireRecord { seq: 1, body: WireBody::Certificate(chain) };
        let bytes = write(&wire, 2 * RECORD_BYTES_MAX).unwrap();
        assert_eq!(decode(&bytes), Err(CodecError::TooLong));
    }
    let longest = Record { seq: 1, body: Body::Certificate(vec![vec![0; CHAIN_BYTES_MAX / 4]; 4]) };
    assert_eq!(decode(&encode(&longest).unwrap()).unwrap(), longest);
}

#[test]
fn missing_bytes_are_refused() {
    let bytes = encode(&vote("504")).unwrap();
    for end in 0..bytes.len() {
        assert_eq!(decode(&bytes[..end]), Err(CodecError::Malformed), "{end} bytes");
    }
}

#[test]
fn what_a_later_version_appends_to_a_record_is_skipped() {
    let waiting = step(Stage::Waiting { remaining: Duration::from_secs(5) });
    let asked = asked("gw-3", MemberVerb::Drain, "");
    let pulse = Record { seq: 300, body: Body::Pulse(77) };
    for record in [card(), vote("504"), waiting, order(), window(Vec::new()), asked, pulse] {
        let longer = [encode(&record).unwrap().as_slice(), &[1, 250, 0, 9]].concat();
        assert_eq!(decode(&longer), Ok(record));
    }
    let longest = [encode(&card()).unwrap(), vec![0; RECORD_BYTES_MAX]].concat();
    assert_eq!(decode(&longest), Err(CodecError::TooLong));
}

#[test]
fn nothing_is_appended_to_an_envelope() {
    let sealed = Sealed { record: vec![1, 2, 3], scheme: 0x0403, signature: vec![4, 5] };
    let longer = [encode_sealed(sealed).unwrap(), vec![0]].concat();
    assert_eq!(decode_sealed(&longer), Err(CodecError::Malformed));
    let longer = [encode_push(Push::default()).unwrap(), vec![0]].concat();
    assert_eq!(decode_push(&longer), Err(CodecError::Malformed));
}

#[test]
fn another_format_is_told_apart_from_garbage() {
    let mut bytes = encode(&vote("504")).unwrap();
    bytes[0] = FORMAT - 1;
    assert_eq!(decode(&bytes), Err(CodecError::UnknownFormat));
}

#[test]
fn who_knows_no_orders_to_members_skips_them() {
    let bytes = encode(&asked("gw-3", MemberVerb::Drain, "")).unwrap();
    let older = read_open::<WireRecord, RECORD_MEMORY_MAX>(FORMAT, &bytes, RECORD_BYTES_MAX);
    assert_eq!(older.err(), Some(CodecError::UnknownFormat));
}

#[test]
fn an_order_to_a_member_is_within_its_bounds() {
    let named = |member: &str, reason: &str| asked(member, MemberVerb::Forget, reason);
    let longest = named(&"n".repeat(NODE_ID_BYTES_MAX), &"r".repeat(ORDER_REASON_BYTES_MAX));
    assert_eq!(decode(&encode(&longest).unwrap()).unwrap(), longest);
    assert_eq!(encode(&named(&"n".repeat(254), "")), Err(CodecError::TooLong));
    assert_eq!(encode(&named("a\nb", "")), Err(CodecError::Malformed));
    let wire = |member: &str, generation, reason: &str| WireAsked {
        seq: 1,
        member: member.to_owned(),
        verb: WireVerb::Drain,
        generation,
        reason: reason.to_owned(),
    };
    for (bad, why) in [
        (wire(&"n".repeat(254), 1, ""), CodecError::TooLong),
        (wire("a\nb", 1, ""), CodecError::Malformed),
        (wire("gw", NUMBER_MAX + 1, ""), CodecError::OutOfRange),
        (wire("gw", 1, &"r".repeat(257)), CodecError::TooLong),
    ] {
        let bytes = write_as(MEMBER_FORMAT, &bad, RECORD_BYTES_MAX).unwrap();
        assert_eq!(decode(&bytes), Err(why));
    }
}

#[test]
fn a_long_reason_is_cut_at_a_character() {
    let long = "ä".repeat(100);
    let bytes = encode(&vote(&format!("x{long}"))).unwrap();
    let Body::Statement(Statement::Vote(_, vote)) = decode(&bytes).unwrap().body else {
        panic!("a vote was encoded");
    };
    assert_eq!(vote.reason, format!("x{}", "ä".repeat(31)));
}

#[test]
fn a_longer_reason_than_allowed_is_refused_on_the_way_in() {
    let wire = WireRecord {
        seq: 1,
        body: WireBody::Override(
            "a".to_owned(),
            WireOverride {
                forced: WireForced::Auto,
                stamp: 1,
                author: "n".to_owned(),
                remaining_millis: None,
                reason: "r".repeat(ORDER_REASON_BYTES_MAX + 1),
            },
        ),
    };
    let bytes = write(&wire, RECORD_BYTES_MAX).unwrap();
    assert_eq!(decode(&bytes), Err(CodecError::TooLong));
}

#[test]
fn a_name_is_refused_rather_than_cut() {
    let endpoint = EndpointKey::new(&"e".repeat(ENDPOINT_BYTES_MAX + 1));
    let Body::Statement(Statement::Vote(_, vote)) = vote("504").body else {
        panic!("it is a vote");
    };
    let record = Record { seq: 1, body: Body::Statement(Statement::Vote(endpoint, vote)) };
    assert_eq!(encode(&record), Err(CodecError::TooLong));
}

#[test]
fn g10_numbers_that_would_end_all_counting_are_refused() {
    let mut record = vote("504");
    record.seq = u64::MAX;
    assert_eq!(encode(&record), Err(CodecError::OutOfRange));
    let wire = WireRecord { seq: u64::MAX, body: WireBody::Card(wire_card()) };
    let bytes = write(&wire, RECORD_BYTES_MAX).unwrap();
    assert_eq!(decode(&bytes), Err(CodecError::OutOfRange));
}

#[test]
fn durations_are_cut_to_a_year_going_out_and_refused_beyond_it_coming_in() {
    assert_eq!(to_millis(Duration::MAX), MILLIS_MAX);
    assert_eq!(from_millis(MILLIS_MAX + 1), Err(CodecError::OutOfRange));
}

#[test]
fn g10_a_wait_of_a_year_is_cut_to_a_day_and_its_step_is_still_heard() {
    let stage = WireStage::Waiting { remaining_millis: MILLIS_MAX };
    let step = WireStep {
        incident: 1,
        failures: 0,
        level: 0,
        stage,
        steward: "n".to_owned(),
        age_millis: 0,
        is_held: false,
    };
    let wire = WireRecord { seq: 1, body: WireBody::Step("a".to_owned(), step) };
    let bytes = write(&wire, RECORD_BYTES_MAX).unwrap();
    let Body::Statement(Statement::Step(_, step)) = decode(&bytes).unwrap().body else {
        panic!("a step was encoded");
    };
    assert_eq!(step.stage, Stage::Waiting { remaining: WAIT_MAX });
}

#[test]
fn the_oldest_slow_pieces_are_cut_going_out_and_too_many_are_refused_coming_in() {
    let pieces = |count: u64| (0..count).map(Duration::from_secs).collect::<Vec<_>>();
    let max = SLOW_PIECES_MAX as u64;
    let bytes = encode(&window(pieces(max + 5))).unwrap();
    assert_eq!(decode(&bytes).unwrap(), window(pieces(max)));
    let wire = WireWindow {
        requests: 0,
        faults_milli: 0,
        successes: 0,
        slow_millis: vec![1; SLOW_PIECES_MAX + 1],
        last_success_millis: None,
        has_small: false,
    };
    let wire = WireRecord { seq: 1, body: WireBody::Window("a".to_owned(), wire) };
    let bytes = write(&wire, RECORD_BYTES_MAX).unwrap();
    assert_eq!(decode(&bytes), Err(CodecError::TooLong));
}

#[test]
fn a_length_prefix_allocates_nothing_beyond_the_limit() {
    // Format, sequence number, card, then a version said to have 2^63 bytes.
    let mut bytes = vec![FORMAT, 1, 0, 0xfd];
    bytes.extend((1_u64 << 63).to_le_bytes());
    assert_eq!(decode(&bytes), Err(CodecError::Malformed));
}

#[test]
fn random_bytes_never_do_more_than_fail() {
    let seed = 20_260_501;
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..20_000 {
        let mut bytes: Vec<u8> = (0..random.usize(0..200)).map(|_| random.u8(..)).collect();
        if let Some(first) = bytes.first_mut() {
            *first = FORMAT;
        }
        if let Ok(record) = decode(&bytes) {
            assert!(encode(&record).is_ok(), "seed {seed}, round {round}: {bytes:?}");
        }
        let _ = decode_push(&bytes);
    }
}

fn wire_card() -> WireCard {
    WireCard {
        version: String::new(),
        config_hash: String::new(),
        standing: WireStanding::Serving,
        is_suspect: false,
    }
}

//! The file and its bytes, what is set aside, and what a restart remembers.

use breaker::{
    Breaker, Cause, Errand, Outcome, Reason, Refusal, Rule, Rung, SavedCounts, SavedEvidence,
    SavedPhase, SavedTimes, SlowKind, Snapshot, State,
};

use super::*;

const WRITTEN: u64 = 1_700_000_000_000;

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn saved(key: &str, phase: SavedPhase) -> Saved {
    let snapshot = Snapshot {
        clock: millis(100_001),
        away: Duration::ZERO,
        epoch: 3,
        level: Some(1),
        held_for: None,
        last_success: Some(millis(4_007)),
        phase,
    };
    Saved { key: key.to_owned(), snapshot }
}

fn open(opened_for: Reason) -> SavedPhase {
    SavedPhase::Open { remaining: millis(60_000), opened_for }
}

fn half_open(opened_for: Option<Reason>, rung: Rung) -> SavedPhase {
    let (idle, age) = (millis(3), millis(1_234));
    SavedPhase::HalfOpen { opened_for, idle, age, rung, successes: 2, asked: 40, admitted: 5 }
}

fn evidence() -> SavedEvidence {
    let counts = |age| SavedCounts {
        age: millis(age),
        requests: 7,
        successes: 5,
        fault_millionths: 1_500_000,
    };
    SavedEvidence {
        age: millis(90_000),
        streak: 2,
        window: millis(60_000),
        counts: vec![counts(12_001), counts(6_001)],
        slow_pieces: vec![millis(9_999), millis(1)],
        slow_latest: [Some(millis(1)), None, Some(millis(9_999))],
        times: vec![SavedTimes {
            age: millis(6_001),
            first_token: vec![(40, 3), (41, 300)],
            total: vec![(159, u32::MAX)],
        }],
    }
}

/// One of each phase.
fn fleet() -> Vec<Saved> {
    vec![
        saved("chat/a", SavedPhase::Closed(evidence())),
        saved("chat/b", open(Reason::HalfOpenFault(Cause::Status(503)))),
        saved("chat/c", half_open(Some(Reason::Slow(SlowKind::FirstToken)), Rung::Canary)),
    ]
}

struct Place {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("breakers");
        Place { folder, path }
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Reads something that must be set aside, and says why it was.
    fn why(&self) -> String {
        match read(&self.path, WRITTEN) {
            Found::SetAside { to, why } => {
                assert_eq!(to, self.folder.path().join("breakers.bad"));
                assert_eq!(self.names(), ["breakers.bad"], "{why}");
                why
            }
            found @ (Found::Nothing | Found::Saved(_)) => panic!("{found:?}"),
        }
    }

    fn why_of(&self, bytes: &[u8]) -> String {
        fs::write(&self.path, bytes).unwrap();
        self.why()
    }
}

/// A file with a right checksum over any data.
fn made_up(payload: &[u8]) -> Vec<u8> {
    [b"QGS\x01".as_slice(), &format::checksum(payload).to_le_bytes(), payload].concat()
}

fn encoded(saved: &[Saved]) -> Vec<u8> {
    format::encode(WRITTEN, saved).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn what_was_written_is_read_to_the_millisecond() {
    let place = Place::new();
    assert_eq!(read(&place.path, WRITTEN), Found::Nothing);
    write(&place.path, WRITTEN, &fleet()).unwrap();
    assert_eq!(read(&place.path, WRITTEN), Found::Saved(fleet()));
    assert_eq!(place.names(), ["breakers"], "reading leaves the file");
    write(&place.path, WRITTEN, &[]).unwrap();
    assert_eq!(read(&place.path, WRITTEN), Found::Saved(Vec::new()));
    assert_eq!(place.names(), ["breakers"]);
}

#[test]
fn every_reason_and_rung_comes_back() {
    let mut fleet = Vec::new();
    for kind in SlowKind::ALL {
        fleet.extend([open(Reason::Slow(kind)), open(Reason::HalfOpenSlow(kind))]);
    }
    for cause in [
        Cause::Refused,
        Cause::Timeout,
        Cause::Status(u16::MAX),
        Cause::Malformed,
        Cause::Cut,
        Cause::Other,
    ] {
        fleet.push(open(Reason::HalfOpenFault(cause)));
    }
    for reason in [
        Reason::ConsecutiveFaults,
        Reason::FailureRatio,
        Reason::FirstTokenP95,
        Reason::TotalP95,
        Reason::SlowerThanSiblings,
        Reason::PermitLost,
        Reason::CooledDown,
        Reason::ProbePassed,
        Reason::CanaryPassed,
        Reason::Recovered,
        Reason::PassedThrough,
        Reason::Released,
        Reason::ProbeAbolished,
        Reason::TurnedOff,
    ] {
        fleet.push(open(reason));
    }
    for rung in [Rung::Probe, Rung::Canary, Rung::Ramp] {
        fleet.push(half_open(None, rung));
    }
    let fleet: Vec<_> = fleet.into_iter().map(|phase| saved("chat/a", phase)).collect();
    let bytes = encoded(&fleet);
    let golden = "48e2739817a4d5ba";
    assert_eq!(hex(&bytes[4..12]), golden, "the checksum pins the number of each");
    assert_eq!(format::decode(&bytes), Ok((WRITTEN, fleet)));
}

#[test]
fn the_bytes_of_a_file_are_golden() {
    let bytes = encoded(&fleet());
    let expected = "51475301 4a96b4f497257b3b fd0068e5cf8b010000 03 \
        06636861742f61 fca1860100 03 0101 00 01fba70f \
        00 fc905f0100 02 fb60ea \
        02 fbe12e 07 05 fc60e31600 fb7117 07 05 fc60e31600 \
        02 fb0f27 01 0101 00 01fb0f27 \
        01 fb7117 02 2803 29fb2c01 01 9ffcffffffff \
        06636861742f62 fca1860100 03 0101 00 01fba70f \
        01 fb60ea 06 02 fbf701 \
        06636861742f63 fca1860100 03 0101 00 01fba70f \
        02 0102 01 03 fbd204 01 02 28 05";
    assert_eq!(hex(&bytes), expected.replace(' ', ""));
    let order = [SlowKind::Total, SlowKind::FirstToken, SlowKind::TokensPerSecond];
    assert_eq!(SlowKind::ALL, order, "the latest pieces are written in this order");
}

#[test]
fn the_checksum_is_that_of_its_authors() {
    assert_eq!(format::checksum(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(format::checksum(b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(format::checksum(b"foobar"), 0x8594_4171_f739_67e8);
}

#[test]
fn every_truncation_is_set_aside() {
    let place = Place::new();
    let bytes = encoded(&fleet());
    for length in 0..bytes.len() {
        let why = place.why_of(&bytes[..length]);
        let expected = match length {
            0 => "it is empty",
            1..12 => "it is cut short",
            _ => "its checksum does not match",
        };
        assert_eq!(why, expected, "{length} bytes");
    }
}

#[test]
fn every_flipped_byte_is_set_aside() {
    let place = Place::new();
    let bytes = encoded(&fleet());
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        for mask in 1..=u8::MAX {
            flipped[at] = bytes[at] ^ mask;
            assert!(format::decode(&flipped).is_err(), "byte {at} with {mask:#04x}");
        }
        let expected = match at {
            0..3 => "it is no snapshot",
            3 => "its format is 254, and this version reads 1",
            _ => "its checksum does not match",
        };
        assert_eq!(place.why_of(&flipped), expected, "byte {at}");
    }
}

#[test]
fn bytes_behind_the_data_are_set_aside() {
    let bytes = encoded(&fleet());
    let longer = made_up(&[&bytes[12..], &[0]].concat());
    assert_eq!(Place::new().why_of(&longer), "its data is malformed");
    assert_eq!(Place::new().why_of(&[bytes, vec![0]].concat()), "its checksum does not match");
}

#[test]
fn another_version_is_set_aside_before_its_checksum_is_looked_at() {
    for format in [0, 2] {
        let why = Place::new().why_of(&[b"QGS".as_slice(), &[format]].concat());
        assert_eq!(why, format!("its format is {format}, and this version reads 1"));
    }
}

#[test]
fn a_file_that_is_too_large_is_set_aside() {
    let place = Place::new();
    let file = File::create(&place.path).unwrap();
    // A file with a hole: it takes no room on the disk.
    file.set_len(FILE_BYTES_MAX as u64 + 1).unwrap();
    assert_eq!(place.why(), "it is larger than 67108864 bytes");
}

#[test]
fn lists_beyond_their_bounds_are_refused_both_ways() {
    let evidence = evidence();
    let with = |change: fn(&mut SavedEvidence)| {
        let mut evidence = evidence.clone();
        change(&mut evidence);
        format::encode(WRITTEN, &[saved("chat/a", SavedPhase::Closed(evidence))])
    };
    let refused = [
        with(|evidence| evidence.counts = vec![evidence.counts[0].clone(); 65]),
        with(|evidence| evidence.slow_pieces = vec![Duration::ZERO; 65]),
        with(|evidence| evidence.times = vec![evidence.times[0].clone(); 65]),
        with(|evidence| evidence.times[0].total = vec![(0, 1); 4_097]),
        format::encode(WRITTEN, &[saved(&"k".repeat(257), open(Reason::FailureRatio))]),
    ];
    for result in refused {
        assert!(matches!(result, Err(SnapshotError::FitEndpoint { .. })), "{result:?}");
    }
    assert!(with(|evidence| evidence.times[0].total = vec![(0, 1); 4_096]).is_ok());

    let many = vec![saved("chat/a", open(Reason::FailureRatio)); 10_001];
    let result = format::encode(WRITTEN, &many);
    assert!(matches!(result, Err(SnapshotError::CountEndpoints { count: 10_001, .. })));
    let most = &many[..10_000];
    assert_eq!(format::decode(&encoded(most)), Ok((WRITTEN, most.to_vec())));

    // The number of endpoints is 10,001 where there is not one.
    let promise = [&[0][..], &[251], &10_001_u16.to_le_bytes()].concat();
    assert_eq!(format::decode(&made_up(&promise)), Err(Unfit::Malformed));
    // So many bytes of a key are more than there can be in any file.
    let promise = [&[0, 1][..], &[253], &u64::MAX.to_le_bytes()].concat();
    assert_eq!(format::decode(&made_up(&promise)), Err(Unfit::Malformed));
}

#[test]
fn times_beyond_their_range_are_cut_when_written_and_refused_when_read() {
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    let phase =
        SavedPhase::Open { remaining: Duration::MAX, opened_for: Reason::ConsecutiveFaults };
    let mut longest = saved("a", phase);
    longest.snapshot.clock = Duration::MAX;
    longest.snapshot.held_for = Some(Duration::MAX);
    let bytes = encoded(&[longest]);
    let (_, read) = format::decode(&bytes).unwrap();
    assert_eq!(read[0].snapshot.clock, year * 100);
    assert_eq!(read[0].snapshot.held_for, Some(year));
    let cut = SavedPhase::Open { remaining: year, opened_for: Reason::ConsecutiveFaults };
    assert_eq!(read[0].snapshot.phase, cut);

    let within = year.as_millis() as u64;
    let mut payload = bytes[12..].to_vec();
    let place = payload.windows(8).rposition(|eight| eight == within.to_le_bytes()).unwrap();
    payload[place..place + 8].copy_from_slice(&(within + 1).to_le_bytes());
    assert_eq!(Place::new().why_of(&made_up(&payload)), "a number in it is out of range");
}

#[test]
fn made_up_data_neither_panics_nor_opens_a_circuit_for_longer_than_a_day() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let bytes = encoded(&fleet());
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut payload = bytes[12..].to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..payload.len());
            payload[at] = random.u8(..);
        }
        let Ok((_, saved)) = format::decode(&made_up(&payload)) else {
            continue;
        };
        accepted += 1;
        for Saved { snapshot, .. } in saved {
            let breaker = Breaker::restore(Rule::default(), 7, &snapshot, millis(5));
            let view = breaker.view(millis(5));
            assert!(view.remaining.unwrap_or_default() <= AWAY_MAX, "{snapshot:?}");
        }
    }
    assert!(accepted > 1_000, "only {accepted} were read at all");
}

#[test]
fn the_wall_clock_tells_for_how_long_nobody_was_there() {
    let place = Place::new();
    write(&place.path, WRITTEN, &fleet()).unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    for (wall_millis, expected) in [
        (WRITTEN, Duration::ZERO),
        (WRITTEN + 3_001, millis(3_001)),
        (WRITTEN - 3_600_000, Duration::ZERO),
        (0, Duration::ZERO),
        (WRITTEN + 86_400_001, day),
        (u64::MAX, day),
    ] {
        let Found::Saved(saved) = read(&place.path, wall_millis) else {
            panic!("nothing was read");
        };
        assert!(saved.iter().all(|saved| saved.snapshot.away == expected), "{wall_millis}");
    }
}

#[test]
fn a_restart_remembers_an_open_circuit_less_the_time_it_took() {
    let place = Place::new();
    let (rule, opened) = (Rule::default(), Duration::from_micros(50_300));
    let mut breaker = Breaker::new(rule.clone(), 7);
    while breaker.view(opened).state == State::Closed {
        let (permit, _) = breaker.admit(opened, Errand::Request { prompt_tokens: 1 });
        let fault = Outcome::Fault { weight: 1.0, cause: Cause::Status(500) };
        breaker.settle(opened, permit.unwrap(), fault);
    }
    let taken = millis(51);
    let before = breaker.view(taken).remaining.unwrap();
    let key = "chat/a".to_owned();
    let saved = [Saved { key, snapshot: breaker.snapshot(taken) }];
    write(&place.path, WRITTEN, &saved).unwrap();

    let Found::Saved(read) = read(&place.path, WRITTEN + 3_000) else {
        panic!("nothing was read");
    };
    let mut restored = Breaker::restore(rule, 7, &read[0].snapshot, millis(1));
    let (permit, _) = restored.admit(millis(1), Errand::Request { prompt_tokens: 1 });
    let Err(Refusal::Open { remaining }) = permit else {
        panic!("a request was admitted");
    };
    let late = (remaining + millis(3_000)).checked_sub(before).expect("no earlier than before");
    assert!(late < millis(2), "{late:?} late");
}

#[test]
fn a_window_that_is_cut_within_a_millisecond_keeps_its_buckets() {
    let rule = Rule { window: millis(1_005), ..Rule::default() };
    let mut breaker = Breaker::new(rule.clone(), 7);
    // A bucket is 100.5 ms wide and gets a request at its beginning; the look is from a middle.
    let bucket = |number: u32| Duration::from_micros(100_500) * number;
    for number in 7..17 {
        let (permit, _) = breaker.admit(bucket(number), Errand::Request { prompt_tokens: 1 });
        breaker.settle(bucket(number), permit.unwrap(), Outcome::Success);
    }
    let middle = bucket(16) + Duration::from_micros(50_800);
    let snapshot = breaker.snapshot(middle);
    let (_, read) = format::decode(&encoded(&[Saved { key: "a".into(), snapshot }])).unwrap();
    let restored = Breaker::restore(rule, 7, &read[0].snapshot, millis(9));
    // Two milliseconds after each next bucket began, one request less counts.
    for passed in 0..10_u32 {
        let later = (bucket(17 + passed) - middle) + millis(2);
        let (old, new) = (breaker.view(middle + later), restored.view(millis(9) + later));
        assert_eq!((old.requests, new.requests), (9 - passed, 9 - passed));
    }
}

#[test]
fn what_cannot_be_written_leaves_the_old_file() {
    let place = Place::new();
    let nowhere = place.folder.path().join("missing").join("breakers");
    let result = write(&nowhere, WRITTEN, &fleet());
    assert!(matches!(result, Err(SnapshotError::WriteBeside { .. })), "{result:?}");

    write(&place.path, WRITTEN, &fleet()).unwrap();
    let before = fs::read(&place.path).unwrap();
    // A folder stands where the new file would be written.
    fs::create_dir(place.folder.path().join("breakers.new")).unwrap();
    let result = write(&place.path, WRITTEN, &[]);
    assert!(matches!(result, Err(SnapshotError::WriteBeside { .. })), "{result:?}");
    assert_eq!(fs::read(&place.path).unwrap(), before);

    let result = write(&place.path, WRITTEN, &[saved(&"k".repeat(257), open(Reason::Released))]);
    assert!(matches!(result, Err(SnapshotError::FitEndpoint { .. })), "{result:?}");
    assert_eq!(fs::read(&place.path).unwrap(), before);
}

#[test]
fn what_cannot_be_replaced_leaves_nothing_beside_it() {
    let place = Place::new();
    fs::create_dir(&place.path).unwrap();
    let result = write(&place.path, WRITTEN, &fleet());
    assert!(matches!(result, Err(SnapshotError::Replace { .. })), "{result:?}");
    assert_eq!(place.names(), ["breakers"]);
}

#[test]
fn what_cannot_be_renamed_is_still_no_error() {
    let place = Place::new();
    fs::write(&place.path, b"QGX").unwrap();
    // A folder that is not empty has the name already.
    fs::create_dir_all(place.folder.path().join("breakers.bad").join("kept")).unwrap();
    let Found::SetAside { to, why } = read(&place.path, WRITTEN) else {
        panic!("it was read");
    };
    assert_eq!(to, place.path);
    assert!(why.starts_with("it is no snapshot, and it cannot be renamed ("), "{why}");
    write(&place.path, WRITTEN, &fleet()).unwrap();
    assert_eq!(read(&place.path, WRITTEN), Found::Saved(fleet()));
}

#[cfg(unix)]
mod unix {
    //! Links, modes and things that are no files.

    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_symbolic_link_is_set_aside_and_what_it_leads_to_is_left_alone() {
        let place = Place::new();
        let elsewhere = Place::new();
        write(&elsewhere.path, WRITTEN, &fleet()).unwrap();
        symlink(&elsewhere.path, &place.path).unwrap();
        assert_eq!(place.why(), "it is a symbolic link");
        symlink("to nothing at all", &place.path).unwrap();
        assert_eq!(place.why(), "it is a symbolic link");
        assert_eq!(read(&elsewhere.path, WRITTEN), Found::Saved(fleet()));
    }

    #[test]
    fn what_is_no_file_is_set_aside_unopened() {
        let place = Place::new();
        let _listener = UnixListener::bind(&place.path).unwrap();
        assert_eq!(place.why(), "it is no regular file");
    }

    #[test]
    fn a_snapshot_is_for_its_owner_only_whatever_was_left_there() {
        let place = Place::new();
        let beside = place.folder.path().join("breakers.new");
        let elsewhere = place.folder.path().join("elsewhere");
        fs::write(&elsewhere, b"precious").unwrap();
        symlink(&elsewhere, &beside).unwrap();
        write(&place.path, WRITTEN, &fleet()).unwrap();
        let metadata = fs::symlink_metadata(&place.path).unwrap();
        assert!(metadata.is_file());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
        assert_eq!(place.names(), ["breakers", "elsewhere"]);
    }
}

//! The data of a snapshot, field by field in the order in which it is written.
//!
//! The structures mirror the breaker's own and belong to the file: they change only together with
//! the format byte, and the breaker's may change without them.
//!
//! Times are milliseconds. The clock and what remains are rounded up and ages down, so that no
//! cool-down ends early and a bucket of the window begins in the same bucket when it is restored,
//! however the window is cut.
//!
//! Invariants:
//! - A list is within its bound before it is allocated.
//! - What is written is within every range that a reader asks for.

use std::time::Duration;

use bincode::de::{BorrowDecoder, Decoder};
use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{BorrowDecode, Decode, Encode};
use breaker::{SavedCounts, SavedEvidence, SavedPhase, SavedTimes, Snapshot};

use super::format::Unfit;
use super::reason::{WireReason, WireRung};
use super::{Saved, SnapshotError};

/// The most endpoints in a file.
const ENDPOINTS_MAX: usize = 10_000;

/// The most bytes of a key, as nodes tell it to each other.
const KEY_BYTES_MAX: usize = 256;

/// The most buckets of a window, and pieces of slow evidence; breakers keep ten and 16.
const PARTS_MAX: usize = 64;

/// The most bins of a histogram; breakers keep 160.
const BINS_MAX: usize = 4_096;

/// The longest age or remainder: a year, where no setting of a breaker is longer than a day.
const MILLIS_MAX: u64 = 365 * 24 * 60 * 60 * 1_000;

/// The longest a breaker's clock has run over all its lives: a century, as the breaker has it.
const CLOCK_MILLIS_MAX: u64 = 100 * MILLIS_MAX;

/// A list of at most `MOST` items, written as its length and the items.
struct Few<T, const MOST: usize>(Vec<T>);

impl<T, const MOST: usize> Few<T, MOST> {
    fn new(items: Vec<T>) -> Option<Self> {
        (items.len() <= MOST).then_some(Few(items))
    }
}

impl<T: Encode + 'static, const MOST: usize> Encode for Few<T, MOST> {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        self.0.encode(encoder)
    }
}

impl<Context, T: Decode<Context>, const MOST: usize> Decode<Context> for Few<T, MOST> {
    fn decode<D: Decoder<Context = Context>>(decoder: &mut D) -> Result<Self, DecodeError> {
        let length = u64::decode(decoder)?;
        if length > MOST as u64 {
            return Err(DecodeError::Other("a list is too long"));
        }
        // Nothing is set aside for what the length promises; each item brings its own bytes.
        let items = (0..length).map(|_| T::decode(decoder)).collect::<Result<_, _>>()?;
        Ok(Few(items))
    }
}

impl<'de, Context, T: Decode<Context>, const MOST: usize> BorrowDecode<'de, Context>
    for Few<T, MOST>
{
    fn borrow_decode<D: BorrowDecoder<'de, Context = Context>>(
        decoder: &mut D,
    ) -> Result<Self, DecodeError> {
        Self::decode(decoder)
    }
}

/// Everything after the checksum.
#[derive(Encode, Decode)]
pub(super) struct WireFile {
    /// When it was written, by the wall clock.
    wall_millis: u64,
    saved: Few<WireSaved, ENDPOINTS_MAX>,
}

#[derive(Encode, Decode)]
struct WireSaved {
    key: String,
    clock_millis: u64,
    epoch: u64,
    level: Option<u32>,
    held_for_millis: Option<u64>,
    last_success_millis: Option<u64>,
    phase: WirePhase,
}

#[derive(Encode, Decode)]
enum WirePhase {
    Closed(WireEvidence),
    Open {
        remaining_millis: u64,
        opened_for: WireReason,
    },
    HalfOpen {
        opened_for: Option<WireReason>,
        idle_millis: u64,
        age_millis: u64,
        rung: WireRung,
        successes: u32,
        asked: u64,
        admitted: u64,
    },
}

#[derive(Encode, Decode)]
struct WireEvidence {
    age_millis: u64,
    streak: u32,
    window_millis: u64,
    counts: Few<WireCounts, PARTS_MAX>,
    slow_pieces_millis: Few<u64, PARTS_MAX>,
    /// For the total, for the first token, for the tokens per second.
    slow_latest_millis: [Option<u64>; 3],
    times: Few<WireTimes, PARTS_MAX>,
}

#[derive(Encode, Decode)]
struct WireCounts {
    age_millis: u64,
    requests: u32,
    successes: u32,
    fault_millionths: u64,
}

#[derive(Encode, Decode)]
struct WireTimes {
    age_millis: u64,
    first_token: Few<(u16, u32), BINS_MAX>,
    total: Few<(u16, u32), BINS_MAX>,
}

impl WireFile {
    /// The data of a file with these breakers.
    ///
    /// # Errors
    /// If something is longer than a reader accepts.
    pub(super) fn new(wall_millis: u64, saved: &[Saved]) -> Result<Self, SnapshotError> {
        let too_many = SnapshotError::CountEndpoints { count: saved.len(), most: ENDPOINTS_MAX };
        let saved = saved.iter().map(to_saved).collect::<Result<_, _>>()?;
        Ok(WireFile { wall_millis, saved: Few::new(saved).ok_or(too_many)? })
    }

    /// When the file was written, and its breakers.
    ///
    /// # Errors
    /// If a key is too long or a number out of range.
    pub(super) fn into_saved(self) -> Result<(u64, Vec<Saved>), Unfit> {
        let saved = self.saved.0.into_iter().map(from_saved).collect::<Result<_, _>>()?;
        Ok((self.wall_millis, saved))
    }
}

fn to_saved(saved: &Saved) -> Result<WireSaved, SnapshotError> {
    let too_long = |part| SnapshotError::FitEndpoint { key: saved.key.clone(), part };
    if saved.key.len() > KEY_BYTES_MAX {
        return Err(too_long("its key is"));
    }
    // For how long nobody was there is found out on reading.
    let Snapshot { clock, away: _, epoch, level, held_for, last_success, phase } = &saved.snapshot;
    Ok(WireSaved {
        key: saved.key.clone(),
        clock_millis: millis_up(*clock).min(CLOCK_MILLIS_MAX),
        epoch: *epoch,
        level: *level,
        held_for_millis: held_for.map(age_millis),
        last_success_millis: last_success.map(age_millis),
        phase: to_phase(phase).map_err(too_long)?,
    })
}

fn from_saved(wire: WireSaved) -> Result<Saved, Unfit> {
    if wire.key.len() > KEY_BYTES_MAX {
        return Err(Unfit::Malformed);
    }
    let snapshot = Snapshot {
        clock: at_most(wire.clock_millis, CLOCK_MILLIS_MAX)?,
        away: Duration::ZERO,
        epoch: wire.epoch,
        level: wire.level,
        held_for: wire.held_for_millis.map(period).transpose()?,
        last_success: wire.last_success_millis.map(period).transpose()?,
        phase: from_phase(wire.phase)?,
    };
    Ok(Saved { key: wire.key, snapshot })
}

/// On failure, what is too long.
fn to_phase(phase: &SavedPhase) -> Result<WirePhase, &'static str> {
    Ok(match phase {
        SavedPhase::Closed(evidence) => WirePhase::Closed(to_evidence(evidence)?),
        SavedPhase::Open { remaining, opened_for } => WirePhase::Open {
            remaining_millis: millis_up(*remaining).min(MILLIS_MAX),
            opened_for: (*opened_for).into(),
        },
        SavedPhase::HalfOpen { opened_for, idle, age, rung, successes, asked, admitted } => {
            WirePhase::HalfOpen {
                opened_for: opened_for.map(WireReason::from),
                idle_millis: age_millis(*idle),
                age_millis: age_millis(*age),
                rung: (*rung).into(),
                successes: *successes,
                asked: *asked,
                admitted: *admitted,
            }
        }
    })
}

fn from_phase(wire: WirePhase) -> Result<SavedPhase, Unfit> {
    Ok(match wire {
        WirePhase::Closed(evidence) => SavedPhase::Closed(from_evidence(evidence)?),
        WirePhase::Open { remaining_millis, opened_for } => {
            SavedPhase::Open { remaining: period(remaining_millis)?, opened_for: opened_for.into() }
        }
        WirePhase::HalfOpen {
            opened_for,
            idle_millis,
            age_millis,
            rung,
            successes,
            asked,
            admitted,
        } => SavedPhase::HalfOpen {
            opened_for: opened_for.map(breaker::Reason::from),
            idle: period(idle_millis)?,
            age: period(age_millis)?,
            rung: rung.into(),
            successes,
            asked,
            admitted,
        },
    })
}

fn to_evidence(evidence: &SavedEvidence) -> Result<WireEvidence, &'static str> {
    let counts = evidence.counts.iter().map(|counts| WireCounts {
        age_millis: age_millis(counts.age),
        requests: counts.requests,
        successes: counts.successes,
        fault_millionths: counts.fault_millionths,
    });
    let pieces = evidence.slow_pieces.iter().copied().map(age_millis);
    let times = evidence.times.iter().map(to_times).collect::<Result<_, _>>()?;
    Ok(WireEvidence {
        age_millis: age_millis(evidence.age),
        streak: evidence.streak,
        window_millis: age_millis(evidence.window),
        counts: Few::new(counts.collect()).ok_or("its counts are")?,
        slow_pieces_millis: Few::new(pieces.collect()).ok_or("its slow evidence is")?,
        slow_latest_millis: evidence.slow_latest.map(|age| age.map(age_millis)),
        times: Few::new(times).ok_or("its times are")?,
    })
}

fn from_evidence(wire: WireEvidence) -> Result<SavedEvidence, Unfit> {
    let counts = wire.counts.0.into_iter().map(|counts| {
        Ok(SavedCounts {
            age: period(counts.age_millis)?,
            requests: counts.requests,
            successes: counts.successes,
            fault_millionths: counts.fault_millionths,
        })
    });
    let pieces = wire.slow_pieces_millis.0.into_iter().map(period);
    let [total, first_token, tokens_per_second] = wire.slow_latest_millis;
    let latest = |millis: Option<u64>| millis.map(period).transpose();
    Ok(SavedEvidence {
        age: period(wire.age_millis)?,
        streak: wire.streak,
        window: period(wire.window_millis)?,
        counts: counts.collect::<Result<_, Unfit>>()?,
        slow_pieces: pieces.collect::<Result<_, _>>()?,
        slow_latest: [latest(total)?, latest(first_token)?, latest(tokens_per_second)?],
        times: wire.times.0.into_iter().map(from_times).collect::<Result<_, _>>()?,
    })
}

fn to_times(times: &SavedTimes) -> Result<WireTimes, &'static str> {
    let too_long = "a histogram is";
    Ok(WireTimes {
        age_millis: age_millis(times.age),
        first_token: Few::new(times.first_token.clone()).ok_or(too_long)?,
        total: Few::new(times.total.clone()).ok_or(too_long)?,
    })
}

fn from_times(wire: WireTimes) -> Result<SavedTimes, Unfit> {
    Ok(SavedTimes {
        age: period(wire.age_millis)?,
        first_token: wire.first_token.0,
        total: wire.total.0,
    })
}

/// Whole milliseconds that have passed, within what a reader accepts.
fn age_millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX).min(MILLIS_MAX)
}

/// Milliseconds, one that has begun counted as a whole one.
fn millis_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn period(millis: u64) -> Result<Duration, Unfit> {
    at_most(millis, MILLIS_MAX)
}

fn at_most(millis: u64, most: u64) -> Result<Duration, Unfit> {
    match millis <= most {
        true => Ok(Duration::from_millis(millis)),
        false => Err(Unfit::OutOfRange),
    }
}

//! How long an opening lasts: growth with each return, a cap, and chance so that nodes come back
//! apart.

use std::time::Duration;

use crate::rule::{JITTER, OpenRule};

/// The highest exponent of a cool-down; by then every base has met its maximum.
pub(super) const LEVEL_MAX: u32 = 31;

/// The steps a cool-down's jitter is drawn in, as parts of the whole.
const JITTER_PARTS: u32 = 10_000;

/// The length of a cool-down: capped first and then strayed from, so that nodes whose cool-down has
/// reached the cap still come back apart.
pub(super) fn cool_down(rule: &OpenRule, level: u32, seed: u64, epoch: u64) -> Duration {
    let growth = 1_u32.checked_shl(level).unwrap_or(u32::MAX);
    let nominal = rule.base.saturating_mul(growth).min(rule.max);
    let stray = (JITTER * f64::from(JITTER_PARTS)) as u32;
    let steps = u64::from(stray) * 2 + 1;
    let step = (mix(seed, epoch) % steps) as u32;
    let parts = JITTER_PARTS - stray + step;
    (nominal / JITTER_PARTS).saturating_mul(parts).min(rule.max)
}

/// Draws a number from the seed and the epoch: one step of SplitMix64 (Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators", 2014), the epoch being its counter.
fn mix(seed: u64, epoch: u64) -> u64 {
    let mut mixed = seed.wrapping_add(epoch.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

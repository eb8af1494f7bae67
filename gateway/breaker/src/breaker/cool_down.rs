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

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: OpenRule = OpenRule {
        base: Duration::from_secs(5),
        max: Duration::from_secs(120),
        reset_after: Duration::from_secs(300),
    };

    /// The shortest and the longest of many cool-downs.
    fn bounds(level: u32) -> (Duration, Duration) {
        let all = || (0..100_000).map(|seed| cool_down(&RULE, level, seed, 3));
        (all().min().unwrap(), all().max().unwrap())
    }

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // The first five that Sebastiano Vigna's splitmix64.c gives for this seed.
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!([0, 1, 2, 3, 4].map(|epoch| mix(1_234_567, epoch)), expected);
    }

    #[test]
    fn a_cool_down_strays_by_a_fifth_either_way_and_no_further() {
        for (level, nominal) in [(0, 5), (1, 10), (4, 80)] {
            let nominal = Duration::from_secs(nominal);
            assert_eq!(bounds(level), (nominal * 4 / 5, nominal * 6 / 5), "level {level}");
        }
    }

    #[test]
    fn at_the_cap_a_cool_down_strays_only_below() {
        for level in [5, 6, LEVEL_MAX, 32, u32::MAX] {
            assert_eq!(bounds(level), (RULE.max * 4 / 5, RULE.max), "level {level}");
        }
    }
}

//! Seeded chance for the tests: splitmix64 (Steele, Lea and Flood, 2014).
//!
//! A test that draws from it is repeated exactly by its seed, on every machine.

/// A source of numbers that is the same for the same seed.
pub(crate) struct Chance(u64);

impl Chance {
    /// Chance that starts from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number from 0 to `bound`, `bound` left out. The slight bias does not matter here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound.max(1)
    }

    /// Whether something of `permille` thousandths happens.
    pub(crate) fn happens(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    /// Puts `items` in a random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

//! How often wrong tokens come from one address: who guesses is made to wait.
//!
//! A wrong token costs its address one attempt; attempts come back one a second. An address without
//! attempts is not listened to, so that guessing on is of no use. No address can use up another's. Who
//! shows no token at all guesses nothing and is not counted.
//!
//! Behind one address there may be many people, and one who guesses would lock the others out. A token
//! that was right from there within the last hour is listened to all the same.
//!
//! Invariant: at most [`ADDRESSES_MAX`] addresses are remembered, of either kind; the one that guessed
//! least, or showed its token the longest ago, makes room.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Most addresses that are remembered: 64 KiB at most.
const ADDRESSES_MAX: usize = 1_024;
/// Wrong tokens in a row that an address may show.
const ATTEMPTS_MAX: u32 = 20;
/// An attempt comes back after this.
const RETURN: Duration = Duration::from_secs(1);
/// A token that was right is known for this long.
const KNOWN: Duration = Duration::from_secs(60 * 60);

/// The hash of a token.
type Hash = [u8; 32];

/// The addresses that showed wrong tokens of late.
#[derive(Default)]
pub(super) struct Attempts {
    /// When all attempts of an address will have come back.
    whole_at: Mutex<BTreeMap<IpAddr, Duration>>,
    /// When a right token last came from an address.
    right_at: Mutex<BTreeMap<(IpAddr, Hash), Duration>>,
}

impl Attempts {
    /// How long this address is not listened to; `None`: it is.
    pub(super) fn barred(&self, now: Duration, address: IpAddr) -> Option<Duration> {
        let whole_at = self.whole_at.lock().unwrap_or_else(PoisonError::into_inner);
        let whole_at = whole_at.get(&source(address)).copied()?;
        // The last attempt is there as soon as one has come back.
        let one_at = whole_at.saturating_sub(RETURN * (ATTEMPTS_MAX - 1));
        one_at.checked_sub(now).filter(|wait| !wait.is_zero())
    }

    /// A wrong token came from this address.
    pub(super) fn failed(&self, now: Duration, address: IpAddr) {
        let mut known = self.whole_at.lock().unwrap_or_else(PoisonError::into_inner);
        let address = source(address);
        if known.len() >= ADDRESSES_MAX && !known.contains_key(&address) {
            known.retain(|_, whole_at| *whole_at > now);
            if known.len() >= ADDRESSES_MAX {
                let least = known.iter().min_by_key(|(_, whole_at)| **whole_at);
                let least = least.map(|(address, _)| *address);
                least.and_then(|least| known.remove(&least));
            }
        }
        let whole_at = known.entry(address).or_default();
        *whole_at = ((*whole_at).max(now) + RETURN).min(now + RETURN * ATTEMPTS_MAX);
    }
}

impl Attempts {
    /// The right token of this hash came from this address.
    pub(super) fn succeeded(&self, now: Duration, address: IpAddr, token: &Hash) {
        let mut known = self.right_at.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = (source(address), *token);
        if known.len() >= ADDRESSES_MAX && !known.contains_key(&shown) {
            let oldest = known.iter().min_by_key(|(_, at)| **at).map(|(oldest, _)| *oldest);
            oldest.and_then(|oldest| known.remove(&oldest));
        }
        known.insert(shown, now);
    }

    /// Whether this token was right when it last came from this address, not long ago.
    pub(super) fn is_known(&self, now: Duration, address: IpAddr, token: &Hash) -> bool {
        let known = self.right_at.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.get(&(source(address), *token));
        at.is_some_and(|at| now.saturating_sub(*at) < KNOWN)
    }
}

/// What counts as one address: with IPv6 its network of 64 bits, of which one host has all.
pub(super) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn who_guesses_twenty_times_waits_a_second_for_each_further_guess() {
        let (attempts, guesser) = (Attempts::default(), address("10.0.0.1"));
        for guess in 0..ATTEMPTS_MAX {
            assert_eq!(attempts.barred(at(5), guesser), None, "{guess}");
            attempts.failed(at(5), guesser);
        }
        assert_eq!(attempts.barred(at(5), guesser), Some(at(1)));
        assert_eq!(attempts.barred(at(6), guesser), None);
        attempts.failed(at(6), guesser);
        assert_eq!(attempts.barred(at(6), guesser), Some(at(1)));
        assert_eq!(attempts.barred(at(60), guesser), None);
    }

    #[test]
    fn m01_nobody_is_locked_out_by_another_address() {
        let attempts = Attempts::default();
        for _ in 0..1_000 {
            attempts.failed(at(0), address("10.0.0.1"));
        }
        assert_eq!(attempts.barred(at(0), address("10.0.0.2")), None);
        assert!(attempts.barred(at(0), address("::ffff:10.0.0.1")).is_some(), "the same address");
    }

    #[test]
    fn a_host_does_not_guess_on_from_its_other_addresses() {
        let attempts = Attempts::default();
        for host in 0..ATTEMPTS_MAX {
            attempts.failed(at(0), address(&format!("2001:db8::{host:x}")));
        }
        assert!(attempts.barred(at(0), address("2001:db8::ffff")).is_some());
        assert_eq!(attempts.barred(at(0), address("2001:db8:0:1::1")), None);
    }

    #[test]
    fn a_token_that_was_right_is_known_for_an_hour_at_its_address() {
        let (attempts, office) = (Attempts::default(), address("10.0.0.1"));
        attempts.succeeded(at(0), office, &[7; 32]);
        assert!(attempts.is_known(at(3_599), office, &[7; 32]));
        assert!(!attempts.is_known(at(3_600), office, &[7; 32]), "an hour later");
        assert!(!attempts.is_known(at(0), office, &[8; 32]), "another token");
        assert!(!attempts.is_known(at(0), address("10.0.0.2"), &[7; 32]), "from elsewhere");
        attempts.succeeded(at(3_000), office, &[7; 32]);
        assert!(attempts.is_known(at(6_000), office, &[7; 32]), "the last time counts");
        for host in 0..10_000_u32 {
            let other = IpAddr::V4((0x0b00_0000 + host).into());
            attempts.succeeded(at(6_001), other, &[7; 32]);
        }
        assert_eq!(attempts.right_at.lock().unwrap().len(), ADDRESSES_MAX);
        assert!(!attempts.is_known(at(6_001), office, &[7; 32]), "the oldest made room");
    }

    #[test]
    fn so_many_addresses_are_remembered_and_the_busiest_guesser_among_them() {
        let (attempts, guesser) = (Attempts::default(), address("10.0.0.1"));
        for _ in 0..ATTEMPTS_MAX {
            attempts.failed(at(0), guesser);
        }
        for host in 0..10_000_u32 {
            attempts.failed(at(0), IpAddr::V4((0x0b00_0000 + host).into()));
        }
        assert_eq!(attempts.whole_at.lock().unwrap().len(), ADDRESSES_MAX);
        assert!(attempts.barred(at(0), guesser).is_some());
    }
}

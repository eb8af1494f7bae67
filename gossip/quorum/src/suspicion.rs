//! Whether a member that accuses nearly everything is to be believed: self-suspicion.
//!
//! A node whose own network is bad sees every endpoint fail; so does everybody when every endpoint
//! truly fails. What tells the two apart is whether anybody else sees it too. The same function
//! judges this node itself, which then abstains, and every other, whose votes then do not count.

use std::collections::BTreeSet;

use crate::statement::PoolKey;

/// What a member accuses, and how much of it others have seen too.
#[derive(Clone, Debug, Default)]
pub struct Accusations<'a> {
    /// Endpoints that it accuses by first-hand votes, counted or abstaining.
    pub accused: usize,
    /// The pools of these.
    pub pools: BTreeSet<&'a PoolKey>,
    /// How many of these at least one other live member has seen bad evidence of itself.
    pub corroborated: usize,
}

/// The pools of what a suspect accuses: one pool may be down for all.
const POOLS_MIN: usize = 2;

/// Whether a member with these accusations is suspect, of `endpoints` that are enrolled.
///
/// It becomes so when it accuses more than half, of which fewer than half are corroborated. It
/// remains so until it accuses a third or less, or two thirds are corroborated, so that it does not
/// flap about one mark.
pub fn is_suspect(was_suspect: bool, accusations: &Accusations<'_>, endpoints: usize) -> bool {
    let Accusations { accused, pools, corroborated } = accusations;
    let (is_wide, is_alone) = if was_suspect {
        (accused * 3 > endpoints, corroborated * 3 < accused * 2)
    } else {
        (accused * 2 > endpoints, corroborated * 2 < *accused)
    };
    pools.len() >= POOLS_MIN && is_wide && is_alone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspects(was_suspect: bool, accused: usize, corroborated: usize) -> bool {
        let (one, two) = (PoolKey::new("one"), PoolKey::new("two"));
        let pools = BTreeSet::from([&one, &two]);
        is_suspect(was_suspect, &Accusations { accused, pools, corroborated }, 12)
    }

    #[test]
    fn who_accuses_more_than_half_alone_is_suspect() {
        assert!(!suspects(false, 6, 0));
        assert!(suspects(false, 7, 0));
        assert!(suspects(false, 12, 5));
    }

    #[test]
    fn who_is_corroborated_is_not() {
        assert!(!suspects(false, 12, 6));
        assert!(!suspects(false, 12, 12));
    }

    #[test]
    fn suspicion_ends_well_below_where_it_began() {
        assert!(suspects(true, 5, 0));
        assert!(!suspects(true, 4, 0));
        assert!(suspects(true, 12, 7));
        assert!(!suspects(true, 12, 8));
    }

    #[test]
    fn who_accuses_one_pool_only_is_not() {
        let one = PoolKey::new("one");
        let accusations =
            Accusations { accused: 12, pools: BTreeSet::from([&one]), corroborated: 0 };
        assert!(!is_suspect(false, &accusations, 12));
    }
}

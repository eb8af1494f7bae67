//! Which live member leads the recovery of which endpoint: rendezvous hashing.
//!
//! Every node ranks the same members the same way without asking anyone, and the loss of one
//! member moves only the endpoints that it led (Thaler and Ravishankar, 1998).

use crate::statement::{EndpointKey, NodeId};

/// The place of `me` among `leaders` for `endpoint`: 0 leads, 1 is next. `None`: not among them.
pub fn rank<'a>(
    me: &NodeId,
    endpoint: &EndpointKey,
    leaders: impl Iterator<Item = &'a NodeId>,
) -> Option<u32> {
    let mine = weight(me, endpoint);
    let mut is_leader = false;
    let mut rank = 0;
    for leader in leaders {
        let theirs = weight(leader, endpoint);
        if leader == me {
            is_leader = true;
        } else if (theirs, leader) > (mine, me) {
            rank += 1;
        }
    }
    is_leader.then_some(rank)
}

/// The `leaders` of `endpoint`, the first first.
pub fn ranking<'a>(
    endpoint: &EndpointKey,
    leaders: impl Iterator<Item = &'a NodeId>,
) -> Vec<&'a NodeId> {
    let mut ranking: Vec<&NodeId> = leaders.collect();
    ranking.sort_by_cached_key(|leader| std::cmp::Reverse((weight(leader, endpoint), *leader)));
    ranking
}

/// The member that leads `endpoint`.
pub fn first<'a>(
    endpoint: &EndpointKey,
    leaders: impl Iterator<Item = &'a NodeId>,
) -> Option<&'a NodeId> {
    leaders.max_by_key(|leader| (weight(leader, endpoint), *leader))
}

/// Those that may lead, each with what its weights for all endpoints have in common: many endpoints are
/// drawn among them for less than one by one.
pub(crate) struct Leaders<'a>(Vec<(u64, &'a NodeId)>);

impl<'a> Leaders<'a> {
    pub(crate) fn new(leaders: impl Iterator<Item = &'a NodeId>) -> Self {
        Self(leaders.map(|leader| (begun(leader), leader)).collect())
    }

    /// The member that leads `endpoint`, as [`first`] draws it.
    pub(crate) fn first(&self, endpoint: &EndpointKey) -> Option<&'a NodeId> {
        let drawn = self.0.iter().map(|(begun, leader)| (ended(*begun, endpoint), *leader));
        drawn.max().map(|(_, leader)| leader)
    }
}

/// FNV-1a over both names, stirred by the finaliser of splitmix64: the plain hash of two names that
/// differ in the last letter differs too little for a fair draw.
fn weight(node: &NodeId, endpoint: &EndpointKey) -> u64 {
    ended(begun(node), endpoint)
}

/// The weight as far as it is made of the name of the node.
fn begun(node: &NodeId) -> u64 {
    fnv(node.as_str().bytes().chain([0]))
}

/// The weight that was begun, with the name of the endpoint.
fn ended(begun: u64, endpoint: &EndpointKey) -> u64 {
    stir(fnv_on(begun, endpoint.as_str().bytes()))
}

/// FNV-1a, 64 bit.
pub(crate) fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    fnv_on(0xcbf2_9ce4_8422_2325, bytes)
}

/// The same, going on from the `hash` of what comes before.
fn fnv_on(hash: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The finaliser of splitmix64 (Steele, Lea and Flood, 2014).
pub(crate) fn stir(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: usize) -> Vec<NodeId> {
        (1..=count).map(|n| NodeId::new(&format!("gw-{n}"))).collect()
    }

    #[test]
    fn every_member_has_a_rank_of_its_own() {
        let members = nodes(9);
        let endpoint = EndpointKey::new("llama/gpu-a");
        let mut ranks: Vec<_> =
            members.iter().filter_map(|me| rank(me, &endpoint, members.iter())).collect();
        ranks.sort_unstable();
        assert_eq!(ranks, (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn losing_a_member_moves_only_what_it_led() {
        let members = nodes(5);
        let rest: Vec<_> = members[1..].to_vec();
        for n in 0..500 {
            let endpoint = EndpointKey::new(&format!("pool/e{n}"));
            let before = first(&endpoint, members.iter()).unwrap();
            if *before != members[0] {
                assert_eq!(first(&endpoint, rest.iter()), Some(before));
            }
        }
    }

    #[test]
    fn the_lead_is_shared_fairly() {
        let members = nodes(5);
        let mut led = [0_u32; 5];
        for n in 0..5_000 {
            let endpoint = EndpointKey::new(&format!("pool/e{n}"));
            let leader = first(&endpoint, members.iter()).unwrap();
            led[members.iter().position(|m| m == leader).unwrap()] += 1;
        }
        assert!(led.iter().all(|count| (850..1_150).contains(count)), "{led:?}");
    }

    #[test]
    fn many_are_drawn_as_one_by_one() {
        for count in [0, 1, 5, 50] {
            let members = nodes(count);
            let leaders = Leaders::new(members.iter());
            for n in 0..200 {
                let endpoint = EndpointKey::new(&format!("pool/e{n}"));
                assert_eq!(leaders.first(&endpoint), first(&endpoint, members.iter()));
            }
        }
    }

    #[test]
    fn who_may_not_lead_has_no_rank() {
        let endpoint = EndpointKey::new("p/e");
        assert_eq!(rank(&NodeId::new("gone"), &endpoint, nodes(3).iter()), None);
    }
}

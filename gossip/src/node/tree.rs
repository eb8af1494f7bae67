//! Who sends news on to whom in a large fleet: a tree that every member works out for itself.
//!
//! Sending to all of a large fleet would cost the writer more than the time it saves. So the writer
//! sends to a few, each of which sends to as many. The order is that of a hash of writer and
//! member, so that each writer has a tree of its own and no member is everybody's first. Members
//! whose views differ may leave some out; gossip brings it to these.
//!
//! # Invariants
//! - Nobody sends a piece of news to more than [`FAN_OUT`] members.
//! - Where views agree everybody is reached, once.

/// To how many members one sends news on. A fleet of 1,000 is four levels deep.
pub(super) const FAN_OUT: usize = 8;

/// Up to as many members the writer sends to all itself: one hop is the quickest.
pub(super) const DIRECT_MAX: usize = 32;

/// News that has been sent on so often stops: deeper than any fleet that fits a digest.
pub(super) const HOPS_MAX: u8 = 6;

/// The members that `own` sends the writer's news to. `members` are all that are live, with or
/// without the two.
pub(super) fn children<'a>(
    writer: &str,
    own: &'a str,
    members: impl Iterator<Item = &'a str>,
) -> Vec<&'a str> {
    let others = members.chain([own]).filter(|member| *member != writer);
    let mut order: Vec<_> = others.map(|member| (rank(writer, member), member)).collect();
    order.sort_unstable();
    order.dedup();
    // The writer is the root, number 0; the order begins at number 1.
    let place = match own == writer {
        true => Some(0),
        false => order.iter().position(|(_, member)| *member == own).map(|at| at + 1),
    };
    let first = place.map_or(order.len(), |place| place * FAN_OUT);
    order.into_iter().skip(first).take(FAN_OUT).map(|(_, member)| member).collect()
}

/// FNV-1a over both names, with the end of MurmurHash3 so that each bit of a name counts for all
/// bits of the rank.
fn rank(writer: &str, member: &str) -> u64 {
    let bytes = writer.bytes().chain([0]).chain(member.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Sends one piece of news through a fleet; returns how often each member got it, how many each
    /// sent at most, and the depth.
    fn spread(names: &[String], writer: &str) -> (HashMap<String, usize>, usize, u8) {
        let (mut got, mut sent_max, mut depth) = (HashMap::new(), 0, 0);
        let mut level = vec![writer.to_owned()];
        while !level.is_empty() && depth <= HOPS_MAX {
            let mut next = Vec::new();
            for own in &level {
                let to = children(writer, own, names.iter().map(String::as_str));
                sent_max = sent_max.max(to.len());
                next.extend(to.into_iter().map(str::to_owned));
            }
            for member in &next {
                *got.entry(member.clone()).or_insert(0) += 1;
            }
            depth += u8::from(!next.is_empty());
            level = next;
        }
        (got, sent_max, depth)
    }

    #[test]
    fn everybody_is_reached_once_and_nobody_sends_to_more_than_a_few() {
        for (count, deep) in [(33, 2), (100, 3), (1_000, 4)] {
            let names: Vec<_> = (0..count).map(|number| format!("gateway-{number}")).collect();
            for writer in names.iter().step_by(count / 10) {
                let (got, sent_max, depth) = spread(&names, writer);
                assert_eq!(got.len(), count - 1, "{count} members, written by {writer}");
                assert!(got.values().all(|times| *times == 1) && !got.contains_key(writer));
                assert_eq!((sent_max, depth), (FAN_OUT, deep), "{count} members");
            }
        }
    }

    #[test]
    fn the_views_need_not_hold_the_member_itself_or_the_writer() {
        let names: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        let all = || names.iter().map(String::as_str);
        for own in all() {
            let without = all().filter(|name| *name != own && *name != "7");
            assert_eq!(children("7", own, without), children("7", own, all()), "{own}");
        }
    }

    #[test]
    fn writers_do_not_all_lean_on_the_same_members() {
        let names: Vec<_> = (0..200).map(|number| format!("gateway-{number}")).collect();
        let mut load: HashMap<&str, usize> = HashMap::new();
        for writer in &names {
            for member in children(writer, writer, names.iter().map(String::as_str)) {
                *load.entry(member).or_default() += 1;
            }
        }
        // Eight each on average.
        assert!(load.values().all(|times| *times <= 4 * FAN_OUT), "{load:?}");
    }
}

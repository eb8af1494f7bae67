//! Which server a key is with, and the connection to it, as of one moment.

use std::collections::HashMap;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;

use super::config::Address;

/// The way to one server.
#[derive(Clone)]
pub(super) struct Link {
    /// `None` while there is none that is good.
    pub(super) connection: Option<MultiplexedConnection>,
    /// Asks its keeper to try it at once.
    pub(super) poke: Arc<Notify>,
}

/// Who has which slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Owners {
    /// It is not known.
    #[default]
    Nobody,
    /// One server has all.
    One(Address),
    /// First slot, last slot, owner; sorted, no two overlap.
    Ranges(Vec<(u16, u16, Address)>),
}

impl Owners {
    pub(super) fn of(&self, slot: u16) -> Option<&Address> {
        match self {
            Self::Nobody => None,
            Self::One(address) => Some(address),
            Self::Ranges(ranges) => {
                let at = ranges.partition_point(|(_, last, _)| *last < slot);
                let (first, _, owner) = ranges.get(at)?;
                (*first <= slot).then_some(owner)
            }
        }
    }
}

/// All ways, and what each is for.
#[derive(Clone, Default)]
pub(super) struct Table {
    pub(super) links: HashMap<Address, Link>,
    pub(super) owners: Owners,
}

impl Table {
    /// The server that a slot is with.
    pub(super) fn owner(&self, slot: u16) -> Option<(&Address, &Link)> {
        self.links.get_key_value(self.owners.of(slot)?)
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Owners};

    #[test]
    fn a_slot_is_with_the_range_that_holds_it() {
        let at = |port| Address { host: "a".to_owned(), port };
        let owners = Owners::Ranges(vec![(0, 99, at(1)), (200, 300, at(2))]);
        assert_eq!(owners.of(0), Some(&at(1)));
        assert_eq!(owners.of(99), Some(&at(1)));
        assert_eq!(owners.of(100), None);
        assert_eq!(owners.of(200), Some(&at(2)));
        assert_eq!(owners.of(301), None);
        assert_eq!(Owners::One(at(3)).of(9), Some(&at(3)));
    }
}

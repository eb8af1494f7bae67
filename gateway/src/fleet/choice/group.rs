//! The endpoints of a pool that share a priority, and what their policy must remember.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::turns::Turns;
use crate::fleet::Endpoint;

/// Endpoints of one priority, in the order of the configuration; at least one.
pub(in crate::fleet) struct Group {
    /// The endpoints.
    pub(super) endpoints: Vec<Arc<Endpoint>>,
    /// Whose turn it is.
    pub(super) turns: Turns,
}

impl Group {
    /// The groups of a pool, the first to be asked first.
    pub(in crate::fleet) fn all(endpoints: &[Arc<Endpoint>]) -> Vec<Self> {
        let mut groups: BTreeMap<u8, Vec<Arc<Endpoint>>> = BTreeMap::new();
        for endpoint in endpoints {
            groups.entry(endpoint.config.priority).or_default().push(Arc::clone(endpoint));
        }
        let group = |endpoints: Vec<_>| Self { turns: Turns::new(endpoints.len()), endpoints };
        groups.into_values().map(group).collect()
    }
}

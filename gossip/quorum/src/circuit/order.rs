//! An operator's order about one endpoint: the newest wins everywhere, and ends everywhere in time.
//!
//! Orders are passed on by every node, each saying how long the order still holds as that node
//! knows it. What is passed on can only come late, and so claim too long a time: of two tellings of
//! one order the one that ends earlier is right. So all nodes agree whatever order they heard them
//! in, and an order that is over does not come back with what its dead author said last.

use std::time::Duration;

use crate::circuit::Circuit;
use crate::statement::{Forced, Override};

/// How far a stamp may lie above the newest known: the bound keeps a lying member from using up all
/// stamps by one order. A million orders on one endpoint are more than a partition can miss.
const STAMP_GAP_MAX: u64 = 1 << 20;

/// Stamps above this are refused even by a node that knows no order yet.
const STAMP_MAX: u64 = 1 << 40;

/// An override with the moment it lapses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldOverride {
    /// What was ordered.
    pub order: Override,
    /// When it lapses, on this node's clock.
    pub until: Option<Duration>,
}

impl Circuit {
    /// Takes in an operator's order stated `aged` ago. Returns whether it is the newest.
    pub fn hear_order(&mut self, now: Duration, aged: Duration, order: &Override) -> bool {
        let stated_at = now.saturating_sub(aged);
        let until = order.remaining.map(|remaining| stated_at.saturating_add(remaining));
        let Some(held) = &mut self.order else {
            let is_plausible = order.stamp <= STAMP_MAX;
            if is_plausible {
                self.order = Some(HeldOverride { order: order.clone(), until });
            }
            return is_plausible;
        };
        let is_same = (order.stamp, &order.author) == (held.order.stamp, &held.order.author);
        if is_same && let (Some(until), Some(known)) = (until, &mut held.until) {
            *known = until.min(*known);
        }
        let is_newer = (order.stamp, &order.author) > (held.order.stamp, &held.order.author)
            && order.stamp <= held.order.stamp.saturating_add(STAMP_GAP_MAX);
        if is_newer {
            *held = HeldOverride { order: order.clone(), until };
        }
        is_newer
    }

    /// What an operator's order makes of the endpoint at `now`.
    pub fn forced(&self, now: Duration) -> Forced {
        match &self.order {
            Some(held) if held.until.is_none_or(|until| now < until) => held.order.forced,
            Some(_) | None => Forced::Auto,
        }
    }

    /// The newest order as it would be stated at `now`.
    pub fn order_at(&self, now: Duration) -> Option<Override> {
        let held = self.order.as_ref()?;
        let remaining = held.until.map(|until| until.saturating_sub(now));
        Some(Override { remaining, ..held.order.clone() })
    }
}

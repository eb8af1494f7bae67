//! How a node tells what is new: pushed at once, written for gossip, sent on for others.
//!
//! # Invariants
//! - News leaves by push before it is written for gossip.
//! - What came from others is sent on once, as it came.
//! - A node that has given way to a younger process of its name states nothing but its card.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chitchat::ChitchatHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::outbox::Sealer;
use super::tree::{self, DIRECT_MAX, HOPS_MAX};
use super::{FAREWELL_MAX, Node};
use crate::Mine;
use crate::codec::Push;
use crate::push;
use crate::stats;
use crate::transport::KIND_PUSH;

/// Frames acknowledge each other in ping-pong; this many looks without one under way are the end.
const FAREWELL_QUIET: u32 = 3;
const FAREWELL_LOOK: Duration = Duration::from_millis(10);

impl Node {
    /// Pushes what is new in *mine*, and writes what has changed.
    pub(super) async fn tell(&mut self, handle: &ChitchatHandle) {
        let letters = {
            let gives_way = self.gives_way();
            let mine = self.channels.mine.borrow_and_update();
            let mine = audible(&mine, gives_way);
            let (node_id, generation) = (self.config.node_id.as_str(), self.generation);
            let sealer = Sealer { seals: &self.seals, node_id, generation };
            self.outbox.take(&mine, sealer, &self.stats)
        };
        self.push(letters.push);
        handle
            .with_chitchat(|chitchat| {
                let state = chitchat.self_node_state();
                for (key, value) in &letters.write {
                    state.set(key, value);
                }
                // Every key to delete was written in this life.
                for key in &letters.delete {
                    state.delete(key);
                }
                // Keys travel in the order of their writing: who has the last has them all.
                if let Some((key, value)) = &letters.pulse {
                    state.set(key, value);
                }
            })
            .await;
    }

    /// Sends this node's sealed records: to all members that can be reached if these are few,
    /// otherwise to those that send them on.
    fn push(&self, records: Vec<Vec<u8>>) {
        if records.is_empty() || !self.config.push {
            return;
        }
        let mut head = Push {
            node_id: self.config.node_id.clone(),
            generation: self.generation,
            chain: self.seals.chain(),
            ..Push::default()
        };
        let members = self.reachable();
        let targets = match members.len() <= self.direct_max {
            true => members.into_values().collect(),
            false => {
                head.hops = 1;
                self.children(&head.node_id, &members)
            }
        };
        self.send(&head, records, &targets);
    }

    /// Lays what a member has pushed over what gossip holds, and sends it on if that is asked for.
    pub(super) fn merge(&mut self, push: Push) {
        let head = Push {
            node_id: push.node_id.clone(),
            generation: push.generation,
            hops: push.hops.saturating_add(1),
            chain: push.chain.clone(),
            records: Vec::new(),
        };
        let is_sent_on = (1..HOPS_MAX).contains(&push.hops) && self.config.push;
        let known = self.held.known(&head.node_id);
        let readers = (&self.seals, &*self.stats);
        let news = match self.overlay.merge(push, known, readers, Instant::now()) {
            Ok(news) => news,
            Err(reason) => return self.stats.reject(reason),
        };
        if news.is_empty() {
            return;
        }
        if is_sent_on {
            let targets = self.children(&head.node_id, &self.reachable());
            self.send(&head, news, &targets);
        }
        self.publish();
    }

    fn send(&self, head: &Push, records: Vec<Vec<u8>>, targets: &[SocketAddr]) {
        let frames = match push::pack(head, records) {
            Ok(frames) => frames,
            Err(error) => return warn!(?error, "news cannot be packed"),
        };
        for frame in frames {
            let bytes = Bytes::from([&[KIND_PUSH], frame.as_slice()].concat());
            for target in targets {
                self.net.net().send(*target, bytes.clone());
            }
            stats::add(&self.stats.pushes_out, targets.len());
        }
    }

    /// The members to tell at once: those that are live, and those that there is a connection
    /// with, for the detector takes some rounds to call a newcomer live.
    fn reachable(&self) -> HashMap<&str, SocketAddr> {
        let net = self.net.net();
        let members = self.held.places();
        let reachable = members.filter(|(_, at, is_live)| *is_live || net.is_connected(*at));
        reachable.map(|(name, at, _)| (name, at)).collect()
    }

    fn children(&self, writer: &str, members: &HashMap<&str, SocketAddr>) -> Vec<SocketAddr> {
        let names = members.keys().copied();
        let children = tree::children(writer, &self.config.node_id, names).into_iter();
        children.filter_map(|name| members.get(name).copied()).collect()
    }

    /// Tells everything once more, and gives it a moment to arrive.
    pub(super) async fn farewell(&mut self, handle: ChitchatHandle) {
        self.tell(&handle).await;
        let everything = {
            let gives_way = self.gives_way();
            let mine = self.channels.mine.borrow();
            let mine = audible(&mine, gives_way);
            let (node_id, generation) = (self.config.node_id.as_str(), self.generation);
            let sealer = Sealer { seals: &self.seals, node_id, generation };
            self.outbox.everything(&mine, sealer, &self.stats)
        };
        self.push(everything);
        for target in self.reachable().into_values().take(DIRECT_MAX) {
            let _ = handle.gossip(target);
        }
        let net = Arc::clone(self.net.net());
        let quiet = async {
            let mut looks = 0;
            while looks < FAREWELL_QUIET {
                sleep(FAREWELL_LOOK).await;
                looks = if net.pending() == 0 { looks + 1 } else { 0 };
            }
        };
        if timeout(FAREWELL_MAX, quiet).await.is_err() {
            debug!(frames = net.pending(), "left with frames under way");
        }
        handle.abort();
    }
}

/// What of *mine* may be said.
fn audible(mine: &Mine, gives_way: bool) -> Cow<'_, Mine> {
    match gives_way {
        true => Cow::Owned(Mine { card: mine.card.clone(), ..Mine::default() }),
        false => Cow::Borrowed(mine),
    }
}

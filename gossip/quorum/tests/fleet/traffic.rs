//! The traffic of one simulated node: what its window holds, and what its canaries meet.
//!
//! Both are scripted: requests are noted one by one, and canaries are sent while the node has small
//! requests and holds the slot.

use std::time::Duration;

use quorum::{CanaryFence, CanaryWord, Decision, Window};

use super::ledger::Event;
use super::world::World;

/// How far back a window reaches.
const WINDOW: Duration = Duration::from_secs(30);
/// How long a canary takes, or the pause between two.
pub(crate) const CANARY_TAKES: Duration = Duration::from_millis(500);

/// What came of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    Success,
    Fault,
    Slow,
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A hold of the slot.
struct Hold {
    fence: CanaryFence,
    successes: u32,
    /// When the next canary has its answer.
    answers_at: Duration,
    /// Since when there has been no small request.
    idle_since: Option<Duration>,
}

/// The traffic of one node.
#[derive(Default)]
pub(crate) struct Traffic {
    requests: Vec<(Duration, Met)>,
    /// Whether clients ask for small things.
    pub(crate) has_small: bool,
    /// Whether the node is deaf to the slot: its task is stuck.
    pub(crate) is_stuck: bool,
    hold: Option<Hold>,
}

impl Traffic {
    /// Notes a request settled at `now`.
    pub(crate) fn meet(&mut self, now: Duration, met: Met) {
        self.requests.retain(|(at, _)| now <= *at + WINDOW + seconds(4));
        self.requests.push((now, met));
    }

    /// Forgets all requests, as the breaker does after a closing.
    pub(crate) fn forget(&mut self) {
        self.requests.clear();
        self.hold = None;
    }

    /// Whether there has been none.
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether the node believes to hold the slot.
    pub(crate) fn holds(&self) -> bool {
        self.hold.is_some()
    }

    /// Whether the endpoint has done this node wrong so recently that others may still know.
    pub(crate) fn is_witness(&self, now: Duration) -> bool {
        let is_recent = |at: Duration| now <= at + WINDOW + seconds(4);
        self.requests.iter().any(|(at, met)| *met != Met::Success && is_recent(*at))
    }

    /// The window at `now`.
    pub(crate) fn window(&self, now: Duration) -> Window {
        let recent: Vec<(Duration, Met)> =
            self.requests.iter().filter(|(at, _)| now <= *at + WINDOW).copied().collect();
        let count = |met: Met| recent.iter().filter(|(_, of)| *of == met).count() as u32;
        let ages = |met: Met| {
            let of = recent.iter().filter(move |(_, of)| *of == met);
            let mut ages: Vec<Duration> = of.map(|(at, _)| now - *at).collect();
            ages.sort_unstable();
            ages
        };
        Window {
            requests: recent.len() as u32,
            faults_milli: count(Met::Fault) * 1_000,
            successes: count(Met::Success),
            last_success: ages(Met::Success).first().copied(),
            slow: ages(Met::Slow),
            has_small: self.has_small,
        }
    }
}

/// Takes in what a decision says of the slot.
pub(crate) fn follow(world: &mut World, index: usize, decision: &Decision) {
    let now = world.now;
    let traffic = &mut world.nodes[index].traffic;
    match decision {
        Decision::Lend { fence, successes, .. } => {
            traffic.hold = Some(Hold {
                fence: *fence,
                successes: *successes,
                answers_at: now + CANARY_TAKES,
                idle_since: None,
            });
            world.ledger.note(now, index, Event::Lent { fence: *fence, successes: *successes });
        }
        Decision::Recall { .. } => {
            traffic.hold = None;
            world.ledger.note(now, index, Event::Recalled);
        }
        Decision::Opened { .. }
        | Decision::Closed { .. }
        | Decision::Probe { .. }
        | Decision::Forced { .. }
        | Decision::Ordered { .. }
        | Decision::Forgotten { .. } => {}
    }
}

/// Reports what the canaries of node `index` met by now.
pub(crate) fn report(world: &mut World, index: usize) {
    let (now, is_sick, key) = (world.now, world.is_sick, world.key.clone());
    let turn = world.turn();
    let node = &mut world.nodes[index];
    let clock = node.clock(now);
    let Traffic { has_small, is_stuck, hold, .. } = &mut node.traffic;
    let Some(hold) = hold.as_mut().filter(|_| !*is_stuck) else {
        return;
    };
    if *has_small {
        hold.idle_since = None;
    }
    let word = if *has_small && now >= hold.answers_at {
        hold.answers_at = now + CANARY_TAKES;
        world.ledger.canaries.push((now, index));
        hold.successes += u32::from(!is_sick);
        Some(if is_sick { CanaryWord::Failed } else { CanaryWord::Counted(hold.successes) })
    } else if !*has_small && now >= *hold.idle_since.get_or_insert(now) + turn {
        hold.idle_since = None;
        Some(CanaryWord::Idle)
    } else {
        None
    };
    if let Some(word) = word {
        node.council.canaried(clock, &key, hold.fence, word);
    }
}

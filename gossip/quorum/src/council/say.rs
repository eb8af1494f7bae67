//! What this node states: its vote, the furthest step, the newest order, its window, and what an
//! operator asked of a member.
//!
//! Durations that run are told anew by one member only, and the less often the longer they are: a
//! quarter of the time left, so that who learns late is late by a quarter at most.

use std::time::Duration;

use crate::council::{Council, Denominator};
use crate::dossier::Dossier;
use crate::statement::{EndpointKey, NodeId, Override, Said, Statement, Step, VoteState, Window};
use crate::steward;
use crate::voice::Item;

/// A node states at most this many windows: those with the most bad evidence.
const WINDOWS_MAX: usize = 256;

impl Council {
    /// What this node states at `now`, as a whole set, if anything in it changed or the pulse is
    /// raised. To be called after each [`step`](Self::step).
    pub fn statements(&mut self, now: Duration) -> Option<Said> {
        self.note_changes(now);
        let mut items = Vec::new();
        let mut windows: Vec<(EndpointKey, Window)> = Vec::new();
        let known = |endpoint| self.dossiers.get_key_value(endpoint);
        for (endpoint, dossier) in self.stirred.iter().filter_map(known) {
            self.add_facts(now, endpoint, dossier, &mut items);
            if self.wants_window(now, dossier) {
                windows.push((endpoint.clone(), dossier.window_at(now)));
            }
        }
        windows
            .sort_by_key(|(_, window)| std::cmp::Reverse((window.slow.len(), window.faults_milli)));
        windows.truncate(WINDOWS_MAX);
        let interval = self.rule.interval;
        items.extend(windows.into_iter().map(|(endpoint, window)| Item {
            statement: Statement::Window(endpoint, window),
            renewed_after: Some(interval.saturating_mul(2)),
            held_for: interval,
            is_relayed: false,
        }));
        let orders = self.orders.statements(now);
        let said = self.speech.say(now, &self.stirred, (items, orders), self.rule.renew_every);
        let lapse = self.window_lapse();
        let dossiers = &self.dossiers;
        let is_stirred = |endpoint: &EndpointKey| {
            dossiers.get(endpoint).is_some_and(|dossier| !dossier.is_calm(now, lapse))
        };
        self.stirred.retain(is_stirred);
        said
    }

    /// Adds vote, step and order of an endpoint.
    fn add_facts(
        &self,
        now: Duration,
        endpoint: &EndpointKey,
        dossier: &Dossier,
        items: &mut Vec<Item>,
    ) {
        let mut add = |statement, renewed_after, is_relayed| {
            let held_for = Duration::ZERO;
            items.push(Item { statement, renewed_after, held_for, is_relayed });
        };
        if let Some(vote) = self.my_vote(now, dossier) {
            add(Statement::Vote(endpoint.clone(), vote), None, false);
        }
        if let Some(step) = dossier.circuit.step_at(now) {
            let renewed_after = self.step_renewal(endpoint, &step);
            let is_relayed = step.steward != self.me;
            add(Statement::Step(endpoint.clone(), step), renewed_after, is_relayed);
        }
        if let Some(order) = dossier.circuit.order_at(now) {
            let renewed_after = self.order_renewal(&order);
            let is_relayed = order.author != self.me;
            add(Statement::Override(endpoint.clone(), order), renewed_after, is_relayed);
        }
    }

    /// The taker of a step tells its durations anew; if it is gone, the first of those who lead.
    fn step_renewal(&self, endpoint: &EndpointKey, step: &Step) -> Option<Duration> {
        let remaining = step.stage.remaining();
        if remaining.is_zero() || !step.is_held {
            return None;
        }
        let is_mine = step.steward == self.me
            || !self.electorate.is_live(&step.steward)
                && steward::first(endpoint, self.electorate.leaders()) == Some(&self.me);
        is_mine.then(|| self.renewed_after(remaining))
    }

    /// The author of an order does, or the first live member by name.
    fn order_renewal(&self, order: &Override) -> Option<Duration> {
        let remaining = order.remaining.filter(|remaining| !remaining.is_zero())?;
        let is_mine = order.author == self.me
            || !self.electorate.is_live(&order.author)
                && self.electorate.live().next() == Some(&self.me);
        is_mine.then(|| self.renewed_after(remaining))
    }

    fn renewed_after(&self, remaining: Duration) -> Duration {
        self.rule.renew_every.max(remaining / 4)
    }

    /// Whether this node is to state its window: somebody suspects the endpoint and this node has
    /// traffic to it; not all have it out yet; or the canary slot looks for who has small requests.
    fn wants_window(&self, now: Duration, dossier: &Dossier) -> bool {
        let own = dossier.own.window();
        match &dossier.circuit.opening {
            Some(opening) => {
                let soon = now.saturating_add(self.rule.interval.saturating_mul(2));
                let has_small =
                    own.has_small && dossier.circuit.canaries() > 0 && soon >= opening.due;
                // Who opened as it saw nothing more says so, or the others would count it.
                let is_idle = self.rule.of == Denominator::Observers
                    && own.requests == 0
                    && dossier.circuit.standing_basis().is_none();
                // What it saw is what the others need to come to the same verdict, and without it
                // their count would differ from this node's for as long as its window holds it.
                let has_say = is_idle || own.is_bad();
                has_small || has_say && self.holders(now, dossier) < self.electorate.live_count()
            }
            // Where only observers count, who sees nothing has to say so.
            None => {
                let has_say = own.requests > 0 || self.rule.of == Denominator::Observers;
                has_say && self.is_suspected(now, dossier)
            }
        }
    }

    /// Whether any live member has anything against the endpoint.
    fn is_suspected(&self, now: Duration, dossier: &Dossier) -> bool {
        let is_voted = |(id, word): (&NodeId, &crate::dossier::Word)| {
            word.vote.as_ref().is_some_and(|told| {
                told.what.state != VoteState::Withdrawn && self.is_present(id, word, told.at)
            })
        };
        dossier.own.is_open
            || dossier.own.window().is_bad()
            || dossier.words.iter().any(is_voted)
            || self.windows(now, dossier).any(|(_, window, _)| window.is_bad())
    }

    /// Notes how often this node changed its own votes, as the others see it.
    fn note_changes(&mut self, now: Duration) {
        for endpoint in &self.stirred {
            if let Some(dossier) = self.dossiers.get_mut(endpoint) {
                dossier.own.note_vote(now, dossier.circuit.mine.as_ref());
            }
        }
    }
}

//! Who accuses nearly everything alone: this node itself, or another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::council::Council;
use crate::statement::{Basis, NodeId, VoteState};
use crate::suspicion::{Accusations, is_suspect};

impl Council {
    /// Looks anew at `now` who is suspect, a few times in each round of gossip.
    pub(super) fn suspect(&mut self, now: Duration) {
        let is_due = now >= self.suspected_at.saturating_add(self.rule.interval / 8);
        let has_suspects = self.is_suspect || self.voices.values().any(|voice| voice.is_suspect);
        // Nobody accuses more endpoints than are stirred.
        let is_possible = has_suspects || self.stirred.len() * 2 > self.dossiers.len();
        if !is_due || !is_possible {
            return;
        }
        self.suspected_at = now;
        let has_peer = self.electorate.live_count() > 1;
        let accusations = self.accusations(now);
        let endpoints = self.dossiers.len();
        let judge = |id: &NodeId, was_suspect: bool| {
            let accusations = accusations.get(id);
            has_peer && accusations.is_some_and(|of| is_suspect(was_suspect, of, endpoints))
        };
        let me = judge(&self.me, self.is_suspect);
        let suspects: BTreeSet<NodeId> = self
            .voices
            .iter()
            .filter(|(id, voice)| judge(id, voice.is_suspect))
            .map(|(id, _)| id.clone())
            .collect();
        for (id, voice) in &mut self.voices {
            voice.is_suspect = suspects.contains(id);
        }
        if self.is_suspect && !me {
            // Others lead in its place until its card has reached them.
            self.cleared_from = now.saturating_add(self.rule.interval.saturating_mul(2));
        }
        self.is_suspect = me;
        self.electorate.suspect(me);
    }

    /// What each member accuses. An abstaining vote accuses as well, else a suspect would be
    /// cleared by its own abstaining; a shadow's does not.
    fn accusations(&self, now: Duration) -> BTreeMap<&NodeId, Accusations<'_>> {
        let mut accusations: BTreeMap<&NodeId, Accusations<'_>> = BTreeMap::new();
        for endpoint in &self.stirred {
            let Some(dossier) = self.dossiers.get(endpoint) else {
                continue;
            };
            let has_vote = dossier.circuit.standing_basis() == Some(Basis::FirstHand);
            let mine = has_vote && !dossier.own.is_shadow;
            let mut accusers: Vec<&NodeId> = self
                .accusers(now, dossier)
                .filter(|(_, state)| *state != VoteState::Shadow)
                .map(|(id, _)| id)
                .collect();
            accusers.extend(mine.then_some(&self.me));
            if accusers.is_empty() {
                continue;
            }
            let seers = self.windows(now, dossier).filter(|(_, window, _)| window.is_bad());
            let mut witnesses: BTreeSet<&NodeId> = seers.map(|(id, _, _)| id).collect();
            witnesses.extend(dossier.own.window().is_bad().then_some(&self.me));
            witnesses.extend(&accusers);
            witnesses.retain(|id| !self.muted.contains(*id));
            for id in accusers {
                let of = accusations.entry(id).or_default();
                of.accused += 1;
                of.pools.insert(&dossier.pool);
                let has_other = witnesses.iter().any(|other| *other != id);
                of.corroborated += usize::from(has_other);
            }
        }
        accusations
    }
}

//! The story of a run that is told: what each node makes of an endpoint while the nodes differ.
//!
//! What happens is told as it is noted; what is told here is why nothing happens.

use quorum::view::{EndpointView, VoteView};

use super::World;

impl World {
    /// Tells how every node counts each endpoint of which views differ, when that changes.
    pub(super) fn tell_views(&mut self) {
        if !self.manner.is_told {
            return;
        }
        for endpoint in 0..self.plan.endpoints() {
            let outs =
                (0..self.nodes.len()).filter(|node| self.ledger.of(*node, endpoint).is_out).count();
            if outs == 0 || outs == self.nodes.len() {
                continue;
            }
            for node in 0..self.nodes.len() {
                let Some(line) = self.view_line(node, endpoint) else { continue };
                let place = node * self.plan.endpoints() + endpoint;
                if self.told_views.get(&place) != Some(&line) {
                    self.story.push(format!("{:>6}   gw-{node} e{endpoint}: {line}", self.now));
                    self.told_views.insert(place, line);
                }
            }
        }
    }

    fn view_line(&self, node: usize, endpoint: usize) -> Option<String> {
        let process = &self.nodes[node];
        let clock = process.clock.read(self.now);
        let one = &process.seat.endpoints[endpoint];
        let view = process.seat.deputy.council().endpoint(clock, &one.key)?;
        let EndpointView { is_open, tally, electorate, step, votes, .. } = view;
        let step = step.map_or_else(String::new, |step| {
            let held = if step.is_held { "held" } else { "not held" };
            let (incident, failures, stage) = (step.incident, step.failures, step.stage.as_str());
            format!("{incident}.{failures} {stage} by {} {held}", step.steward.as_str())
        });
        let vote = |one: VoteView| {
            let (by, incident) = (one.voter.as_str().to_owned(), one.vote.incident);
            format!("{by}:{incident} {:?} {}", one.vote.basis, one.weight.as_str())
        };
        let votes: Vec<String> = votes.into_iter().map(vote).collect();
        Some(format!(
            "{} {}/{} of {electorate}, {} hold; {step}; {}; breaker {:?} {:?}",
            if is_open { "OUT" } else { "in" },
            tally.counted,
            tally.quorum,
            tally.holders,
            votes.join(", "),
            one.local_opening().is_some(),
            one.rung(),
        ))
    }
}

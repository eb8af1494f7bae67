//! Why an endpoint is in or out, for whoever is woken up: the verdict in one sentence.
//!
//! The words are those of the README: an endpoint is in or out, the fleet takes it out, a member votes. A
//! verdict carries no time that runs, so that it stays the same for as long as what it says; times are in
//! `next`.
//!
//! Invariants: every state has a sentence; an operator's order is said before anything else, since it
//! outranks everything else.

mod next;
mod notes;
#[cfg(test)]
mod tests;

use breaker::{Mode, Rung, State};
use quorum::Forced;
use quorum::view::{VoteView, Weight};

use super::case::Case;
use crate::limits::{Full, What};
use crate::people::listed;

pub(super) use self::next::next;
pub(super) use self::notes::notes;

/// One sentence: what is so, and why.
pub(super) fn verdict(case: &Case<'_>) -> String {
    match case.cluster.forced {
        Forced::Open => format!("out: an operator forced it open{}", order(case)),
        Forced::Closed => format!("in: an operator forced it closed{}", order(case)),
        Forced::Auto => automatic(case),
    }
}

/// Which node took the order, and the reason that was given.
fn order(case: &Case<'_>) -> String {
    match &case.cluster.order {
        Some((node, reason)) if reason.is_empty() => format!(" (on {node}, no reason given)"),
        Some((node, reason)) => format!(" (on {node}: {reason})"),
        None => String::new(),
    }
}

/// The verdict as it would be without an order.
fn automatic(case: &Case<'_>) -> String {
    match (case.endpoint.config.rule.mode, pause(case)) {
        (Mode::Enforce, pause) => enforced(case, pause),
        (Mode::Shadow | Mode::Off, Some(pause)) => pause.to_owned(),
        (Mode::Shadow, None) => shadowed(case),
        (Mode::Off, None) if case.cluster.is_open => {
            format!("in: its breaker is off, though the whole fleet has it out: {}", stand(case))
        }
        (Mode::Off, None) => format!("in: its breaker is off{}", but(case)),
    }
}

/// Why it is left alone for a while, if it is: whatever its breaker thinks and whether it is obeyed.
fn pause(case: &Case<'_>) -> Option<&'static str> {
    let (endpoint, now) = (case.endpoint, case.now);
    let cooling = endpoint.cooling_for(now);
    if cooling.is_zero() {
        None
    } else if endpoint.shunned_for(now) == cooling {
        Some("out for a while on this node: it refused our credential, see its api_key")
    } else if endpoint.limited_for(now) == cooling {
        Some("out for a while on this node: it says that a limit of its own is reached")
    } else {
        Some("out for a while on this node: it asked for a pause")
    }
}

/// What is to be known of an endpoint that is in.
fn but(case: &Case<'_>) -> String {
    if let Some(full) = full(case) {
        return format!(", but full: {}", reached(full.what));
    }
    if case.endpoint.is_misconfigured() {
        return ", but it refused our credential when it was last asked: see its api_key"
            .to_owned();
    }
    String::new()
}

/// The limit of its own that has no room for even the smallest request.
pub(super) fn full(case: &Case<'_>) -> Option<Full> {
    case.endpoint.allowance.as_ref()?.look(case.now, 1).err()
}

/// The sentence for a limit that is reached.
pub(super) fn reached(what: What) -> &'static str {
    match what {
        What::Requests => "this node's part of its requests per minute is used up",
        What::Tokens => "this node's part of its tokens per minute is used up",
        What::Concurrency => "as many requests are in flight as it may have",
    }
}

/// The fleet's incident with the votes it rests on.
fn stand(case: &Case<'_>) -> String {
    let (cluster, tally) = (&case.cluster, &case.cluster.tally);
    let accusers = accusers(case);
    let said = if accusers.is_empty() { String::new() } else { format!("; {accusers}") };
    format!(
        "incident {}, {} of {} votes stand ({} needed){said}",
        cluster.incident, tally.counted, cluster.electorate, tally.quorum
    )
}

/// Who says so and why: the votes that count, those of one reason together.
fn accusers(case: &Case<'_>) -> String {
    let counted = |vote: &&VoteView| vote.weight == Weight::Counts;
    let votes: Vec<&VoteView> = case.cluster.votes.iter().filter(counted).collect();
    let mut reasons: Vec<&str> = votes.iter().map(|view| view.vote.reason.as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let group = |reason: &&str| {
        let of = votes.iter().filter(|view| view.vote.reason == **reason);
        let mut names: Vec<&str> = of.map(|view| view.voter.as_str()).collect();
        names.sort_unstable();
        format!("{}: {reason}", listed(&names))
    };
    let groups: Vec<String> = reasons.iter().map(group).collect();
    groups.join("; ")
}

/// What holds for a breaker that is obeyed.
fn enforced(case: &Case<'_>, pause: Option<&str>) -> String {
    let view = &case.local;
    match (case.cluster.is_open, view.state) {
        (true, _) => format!("out for the whole fleet: {}", stand(case)),
        (false, _) if view.held => {
            "out on this node: the fleet had it out before this node started, and has not said since \
             whether it still has"
                .to_owned()
        }
        (false, State::Open) => opened(case),
        (false, State::HalfOpen) => match view.rung {
            Some(Rung::Probe) => "out on this node: a probe decides".to_owned(),
            Some(Rung::Ramp) => pause.map_or_else(|| ramping(case), ToOwned::to_owned),
            Some(Rung::Canary) | None => pause.map_or_else(trying, ToOwned::to_owned),
        },
        (false, State::Closed) => pause.map_or_else(|| closed(case), ToOwned::to_owned),
    }
}

fn trying() -> String {
    "half-open on this node: a few small requests are let through".to_owned()
}

fn ramping(case: &Case<'_>) -> String {
    let weight = case.endpoint.weight();
    format!("in, with {weight} % of its weight: it has just recovered{}", but(case))
}

fn closed(case: &Case<'_>) -> String {
    match but(case) {
        but if !but.is_empty() => format!("in{but}"),
        _ if case.cluster.tally.counted > 0 => {
            let (tally, electorate) = (&case.cluster.tally, case.cluster.electorate);
            format!(
                "in: {} of {electorate} votes stand against it ({} needed); {}",
                tally.counted,
                tally.quorum,
                accusers(case)
            )
        }
        _ => "in: nothing is held against it".to_owned(),
    }
}

/// Its own breaker has it out and the fleet has not: why not?
fn opened(case: &Case<'_>) -> String {
    let (seat, tally) = (case.seat, &case.cluster.tally);
    let reason = reason(case);
    if seat.is_alone() {
        return format!("out: its breaker opened ({reason})");
    }
    let out = format!("out on this node, not for the fleet: its breaker opened ({reason})");
    if seat.is_suspect {
        return format!(
            "{out}, and so did most others while other members see no fault; this node suspects itself \
             and abstains"
        );
    }
    if let Some(cap) = &case.cluster.cap {
        let (most, of) = (cap.most, cap.of);
        return format!(
            "{out}; {} of {} needed votes, but max_open_share lets the fleet have {most} of the {of} \
             endpoints of its pool out at most",
            tally.counted, tally.quorum
        );
    }
    if seat.is_on_its_own() {
        return format!("{out}; Redis is away, and each node goes by its own breaker meanwhile");
    }
    if seat.is_frozen() {
        let (live, electorate, quorum) = (seat.live, seat.electorate, seat.quorum);
        return format!(
            "{out}; only {live} of {electorate} members are live ({quorum} needed), so that the fleet \
             decides nothing"
        );
    }
    format!("{out}; {} of {} needed votes", tally.counted, tally.quorum)
}

fn reason(case: &Case<'_>) -> String {
    case.local.opened_for.map(|reason| reason.to_string()).unwrap_or_default()
}

/// What holds for a breaker that is only watched: it is in, and what would be so if it were obeyed.
fn shadowed(case: &Case<'_>) -> String {
    let reason = reason(case);
    match (case.cluster.is_open, case.local.state) {
        (true, _) => {
            let stand = stand(case);
            format!("in: as a shadow it would be out because the whole fleet has it out: {stand}")
        }
        (false, State::Open) => {
            format!("in: as a shadow it would be out because its breaker opened ({reason})")
        }
        (false, State::HalfOpen) => {
            format!("in: as a shadow it would be half-open after its breaker opened ({reason})")
        }
        (false, State::Closed) => closed(case),
    }
}

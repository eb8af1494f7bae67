//! What else bears on an endpoint: votes that do not count and why, what holds the fleet back, its pool.
//!
//! Each note has a word for programs and a sentence for people; the words are stable.

use quorum::view::{VoteView, Weight};
use quorum::{Forced, NodeId};

use super::super::case::Case;
use super::super::view::Note;
use super::{full, reached};
use crate::cluster::Link;
use crate::config::OnAllOpen;
use crate::fleet::Tenants;
use crate::people::{for_people, listed};

/// What else is to be known, what matters most first.
pub(crate) fn notes(case: &Case<'_>) -> Vec<Note> {
    let mut notes: Vec<Note> = [
        pool_out(case),
        capped(case),
        frozen(case),
        ledger(case),
        suspect(case),
        observing(case),
        votes_gone(case),
        lost(case),
        full(case).map(|full| Note::new("full", format!("it is full: {}", reached(full.what)))),
        credential(case),
        paused(case),
        case.endpoint.tenants.as_ref().and_then(|tenants| out_for_tenants(case, tenants)),
    ]
    .into_iter()
    .flatten()
    .collect();
    notes.extend(Weight::ALL.iter().filter_map(|weight| void(case, *weight)));
    notes
}

/// Whether requests are sent to the pool at all.
fn pool_out(case: &Case<'_>) -> Option<Note> {
    let pool = case.pool;
    if !pool.is_all_open() {
        return None;
    }
    let first = match pool.fallback.first() {
        Some(fallback) => format!("requests go to the fallback {fallback} first, and then "),
        None => String::new(),
    };
    let note = match (pool.on_all_open, case.cluster.forced) {
        (OnAllOpen::PassThrough, Forced::Auto | Forced::Closed) => Note::new(
            "pass_through",
            format!(
                "every endpoint of {} is out: {first}requests pass through to this one all the same, \
                 since all presumed dead is no reason to refuse",
                pool.name
            ),
        ),
        (OnAllOpen::PassThrough, Forced::Open) => Note::new(
            "pass_through",
            format!(
                "every endpoint of {} is out: {first}requests pass through to the others, and not to \
                 one that an operator forced open",
                pool.name
            ),
        ),
        (OnAllOpen::Reject, Forced::Auto | Forced::Closed | Forced::Open) => Note::new(
            "pool_out",
            format!("every endpoint of {} is out: {first}requests are refused (503)", pool.name),
        ),
    };
    Some(note)
}

fn capped(case: &Case<'_>) -> Option<Note> {
    let cap = case.cluster.cap.as_ref()?;
    let warden = cap.warden.as_ref().map_or("nobody", NodeId::as_str);
    let message = format!(
        "votes enough stand against it, but max_open_share lets the fleet have {} of the {} endpoints of \
         its pool out at most, and {} are; {warden} keeps the count",
        cap.most, cap.of, cap.open
    );
    Some(Note::new("cap_reached", message))
}

fn frozen(case: &Case<'_>) -> Option<Note> {
    let seat = case.seat;
    let (live, electorate, quorum) = (seat.live, seat.electorate, seat.quorum);
    seat.is_frozen().then(|| {
        let message = format!(
            "no majority is live ({live} of {electorate} members, {quorum} needed): the fleet opens and \
             closes nothing, and each node goes by its own breaker"
        );
        Note::new("no_majority", message)
    })
}

/// By what the fleet decides, where it is not gossip alone.
fn ledger(case: &Case<'_>) -> Option<Note> {
    let reached = case.seat.reached.as_ref()?;
    let code = if reached.link == Link::Up { "redis" } else { "redis_away" };
    Some(Note::new(code, reached.sentence()))
}

fn suspect(case: &Case<'_>) -> Option<Note> {
    case.seat.is_suspect.then(|| {
        let message = "this node suspects itself: it sees most endpoints fail and no other member does; \
                       it abstains, look at its network";
        Note::new("suspect", message)
    })
}

fn observing(case: &Case<'_>) -> Option<Note> {
    let left = case.seat.observing;
    (!left.is_zero() && !case.seat.is_alone()).then(|| {
        let message = format!(
            "this node has just started or was paused: for {} more it only watches, and neither votes by \
             the evidence of others nor opens or closes anything for the fleet",
            for_people(left)
        );
        Note::new("observing", message)
    })
}

/// The fleet has it out, and fewer votes than a majority stand.
fn votes_gone(case: &Case<'_>) -> Option<Note> {
    let (cluster, tally) = (&case.cluster, &case.cluster.tally);
    (cluster.is_open && tally.counted < tally.quorum).then(|| {
        let message = format!(
            "it went out by a majority, and {} of these votes still stand: an incident ends by its \
             recovery and not by votes that lapse",
            tally.counted
        );
        Note::new("votes_gone", message)
    })
}

/// Members that count and cannot vote, where that matters: somebody votes and it is not enough.
fn lost(case: &Case<'_>) -> Option<Note> {
    let (seat, tally) = (case.seat, &case.cluster.tally);
    let lost = seat.electorate.saturating_sub(seat.live);
    let matters = lost > 0 && !case.cluster.is_open && tally.counted > 0;
    let matters = matters && !seat.is_frozen() && !seat.is_on_its_own();
    matters.then(|| {
        let message = format!(
            "{lost} of {} members are not live and still count, so that {} votes are needed: forget a \
             member that will not come back",
            seat.electorate, tally.quorum
        );
        Note::new("lost_members", message)
    })
}

fn credential(case: &Case<'_>) -> Option<Note> {
    case.endpoint.is_misconfigured().then(|| {
        let message = "it refused our credential (401 or 403) and has served nothing since: see its \
                       api_key";
        Note::new("credential", message)
    })
}

fn paused(case: &Case<'_>) -> Option<Note> {
    let cooling = case.endpoint.cooling_for(case.now);
    let group = case.endpoint.config.quota_group.as_deref();
    (!cooling.is_zero()).then(|| {
        let who = match group {
            Some(group) => format!("it, or another endpoint of quota group {group},"),
            None => "it".to_owned(),
        };
        let why = if case.endpoint.shunned_for(case.now) == cooling {
            "refused our credential"
        } else if case.endpoint.limited_for(case.now) == cooling {
            "said that a limit is reached"
        } else {
            "asked for a pause (retry-after)"
        };
        let left = for_people(cooling);
        Note::new("paused", format!("{who} {why}: left alone for {left} more on this node"))
    })
}

fn out_for_tenants(case: &Case<'_>, tenants: &Tenants) -> Option<Note> {
    let (known, out) = tenants.count(case.now);
    (out > 0).then(|| {
        let header = &tenants.scope().header;
        let message = format!(
            "out for {out} of {known} tenants on this node (by {header}), each by a breaker of its own: \
             see tenants"
        );
        Note::new("tenants", message)
    })
}

/// The votes that do not count for one and the same reason.
fn void(case: &Case<'_>, weight: Weight) -> Option<Note> {
    let of = |view: &&VoteView| view.weight == weight;
    let names: Vec<&str> =
        case.cluster.votes.iter().filter(of).map(|view| view.voter.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let who = listed(&names);
    let (code, message) = match weight {
        Weight::Counts | Weight::Withdrawn => return None,
        Weight::Lapsed => (
            "vote_lapsed",
            format!("the vote of {who} has lapsed: its node has not stood by it of late"),
        ),
        Weight::VoterLost => (
            "voter_lost",
            format!(
                "the vote of {who} does not count: its node is not live, has restarted, or is just back"
            ),
        ),
        Weight::IncidentClosed => {
            ("vote_void", format!("the vote of {who} is void: it is for an incident that is over"))
        }
        Weight::Abstains => (
            "voter_abstains",
            format!("{who} sees it fail and abstains: that node suspects itself"),
        ),
        Weight::Shadow => (
            "voter_shadow",
            format!("{who} would vote against it, but its breaker is only a shadow"),
        ),
        Weight::Suspect => (
            "voter_suspect",
            format!(
                "the vote of {who} does not count: it accuses most endpoints and nobody else sees a fault"
            ),
        ),
        Weight::Muted => (
            "voter_muted",
            format!("the vote of {who} does not count on this node: an operator muted it"),
        ),
        Weight::Flapping => (
            "voter_flapping",
            format!("the vote of {who} does not count: it changed too often within a minute"),
        ),
        Weight::NoWitness => (
            "no_witness",
            format!(
                "the vote of {who} does not count yet: it rests on the evidence of others, and fewer than \
                 two members have seen any themselves"
            ),
        ),
        Weight::NotObserver => (
            "not_observer",
            format!("the vote of {who} does not count: that node has no traffic to the endpoint"),
        ),
    };
    Some(Note::new(code, message))
}

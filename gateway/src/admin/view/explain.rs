//! The answer of `GET endpoints/{pool}/{name}/explain`: the full why of one endpoint.

use std::sync::MutexGuard;
use std::time::Duration;

use quorum::electorate::Presence;
use quorum::view::{CapView, SeatView};
use quorum::{Council, Denominator, EndpointKey, NodeId};
use schemars::JsonSchema;
use serde::Serialize;

use super::cluster::word_of;
use super::endpoint::EndpointRow;
use super::{Note, millis};
use crate::admin::case::{Case, Seated};
use crate::admin::why;
use crate::cluster::Reached;
use crate::fleet::{Endpoint, Fleet};
use crate::history::Entry;
use crate::limits::{Figure, What};

/// What is so, who says it, what happens next and when, what happened lately.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Explained {
    /// The endpoint as the list shows it.
    #[serde(flatten)]
    pub(crate) row: EndpointRow,
    /// The node that answers.
    pub(crate) node: String,
    /// What else bears on it: votes that do not count and why, what holds the fleet back, other limits.
    pub(crate) notes: Vec<Note>,
    /// Of whom a majority is wanted.
    pub(crate) denominator: DenominatorRow,
    /// What this node itself has seen in its window.
    pub(crate) evidence: OwnEvidence,
    /// How much of its own limits is left on this node; null without any.
    pub(crate) limits: Option<LimitsRow>,
    /// The last twenty things that happened, oldest first.
    pub(crate) history: Vec<HistoryRow>,
    /// The tenants for which it is out; null where there is one breaker for all.
    pub(crate) tenants: Option<TenantsRow>,
}

/// Of whom a majority is wanted, and why so many are enough or not.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct DenominatorRow {
    /// `members`, or `observers`: only those with traffic to the endpoint.
    pub(crate) of: &'static str,
    /// How many count for this endpoint.
    pub(crate) electorate: usize,
    /// How many members are live.
    pub(crate) live: usize,
    /// How many votes take it out: more than half of the electorate.
    pub(crate) quorum: usize,
    /// How many are expected by the configuration and were never met; they count.
    pub(crate) unmet: usize,
    /// Each member, in the order of their names; at most 1,024.
    pub(crate) members: Vec<ElectorRow>,
    /// The cap, where votes enough are there and it alone keeps the endpoint in.
    pub(crate) cap: Option<CapRow>,
}

/// What a member is to the majority.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ElectorRow {
    /// Its name.
    pub(crate) id: String,
    /// How it takes part: `live`, `draining` or `left`.
    pub(crate) standing: &'static str,
    /// `live` or `lost`.
    pub(crate) presence: &'static str,
    /// How long it has been lost.
    pub(crate) lost_for_ms: Option<u64>,
    /// `vote`: it is one of those against the endpoint. `no_vote`: it counts and says nothing against
    /// it. `lost`: it counts and cannot vote. `idle`: it has no traffic and does not count. Else why its
    /// vote is void: `lapsed`, `voter_lost`, `abstains`, `shadow`, `suspect`, `muted`, `flapping`,
    /// `no_witness` or `not_observer`.
    pub(crate) counts_as: &'static str,
}

/// How much of a pool may be out.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct CapRow {
    /// How many endpoints of the pool may be out at once.
    pub(crate) most: usize,
    /// How many it has.
    pub(crate) of: usize,
    /// How many are out.
    pub(crate) open: usize,
    /// Who keeps the count.
    pub(crate) warden: Option<String>,
}

/// What this node itself has seen.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct OwnEvidence {
    /// Faults in a row.
    pub(crate) streak: u32,
    /// Requests that ended in the window.
    pub(crate) requests: u32,
    /// Weighted faults among them.
    pub(crate) faults: f64,
    /// Successes among them.
    pub(crate) successes: u32,
    /// Pieces of slow evidence that still count.
    pub(crate) slow_pieces: u32,
    /// How long the window is.
    pub(crate) window_ms: u64,
}

/// What is left of an endpoint's own limits on this node.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct LimitsRow {
    /// The limit that is reached: `requests`, `tokens` or `concurrency`; null while there is room.
    pub(crate) full: Option<&'static str>,
    /// In how long there is room again.
    pub(crate) room_in_ms: Option<u64>,
    /// Requests in a minute; null if not limited.
    pub(crate) requests: Option<FigureRow>,
    /// Tokens in a minute; null if not limited.
    pub(crate) tokens: Option<FigureRow>,
}

/// One figure of a limit.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct FigureRow {
    /// What this node may take of it.
    pub(crate) limit: u64,
    /// What is left.
    pub(crate) remaining: u64,
    /// In how long all of it is back.
    pub(crate) reset_ms: u64,
}

/// One thing that happened.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct HistoryRow {
    /// How long ago.
    pub(crate) age_ms: u64,
    /// When, in milliseconds since 1970.
    pub(crate) unix_ms: u64,
    /// `local` for this node's breaker, `vote` for what a member says, `cluster` for the fleet,
    /// `operator` for an order.
    pub(crate) scope: &'static str,
    /// What.
    pub(crate) what: String,
}

/// The tenants of an endpoint.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct TenantsRow {
    /// The header that names the tenant.
    pub(crate) header: String,
    /// How many are remembered.
    pub(crate) known: usize,
    /// How many are at most.
    pub(crate) max: usize,
    /// For how many it is out.
    pub(crate) out_count: usize,
    /// Those, by name; at most fifty.
    pub(crate) out: Vec<TenantRow>,
}

/// One tenant for which the endpoint is out.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct TenantRow {
    /// As its requests name it.
    pub(crate) tenant: String,
    /// The state of its breaker.
    pub(crate) state: String,
    /// Why it opened.
    pub(crate) reason: Option<String>,
    /// What is left of its cool-down.
    pub(crate) remaining_ms: Option<u64>,
}

/// What the council says of the majority of one endpoint.
struct Electors {
    /// Whose votes count.
    of: Denominator,
    /// Each member.
    seats: Vec<SeatView>,
}

/// Most tenants that are shown by name.
const TENANTS_MAX: usize = 50;

impl Explained {
    /// What a node says of an endpoint; `None`: it has none of this name. `council` locks the council,
    /// for as long as it takes to look.
    pub(crate) fn look<'c>(
        now: Duration,
        (me, fleet, of): (&NodeId, &Fleet, Denominator),
        reached: Option<Reached>,
        council: impl FnOnce() -> MutexGuard<'c, Council>,
        key: &EndpointKey,
        history: &[Entry],
    ) -> Option<Self> {
        let (pool, endpoint) = fleet.endpoint(key)?;
        let (cluster, seat, seats) = {
            let council = council();
            let seat = Seated::new(now, me, &council).by(reached);
            (council.endpoint(now, key)?, seat, council.seats(now, key)?)
        };
        let case = Case::new(now, (pool, endpoint), cluster, &seat);
        Some(Self::new(&case, &Electors { of, seats }, history))
    }

    /// The full why of a case; `history` is what happened lately, oldest first.
    fn new(case: &Case<'_>, electors: &Electors, history: &[Entry]) -> Self {
        let (now, view) = (case.now, &case.local);
        Self {
            row: EndpointRow::new(case),
            node: case.seat.me.to_string(),
            notes: why::notes(case),
            denominator: DenominatorRow::new(case, electors),
            evidence: OwnEvidence {
                streak: view.streak,
                requests: view.requests,
                faults: view.faults,
                successes: view.successes,
                slow_pieces: view.slow_pieces,
                window_ms: millis(case.endpoint.config.rule.window),
            },
            limits: LimitsRow::new(case),
            history: history.iter().map(|entry| HistoryRow::new(now, entry)).collect(),
            tenants: TenantsRow::new(now, case.endpoint),
        }
    }
}

impl DenominatorRow {
    fn new(case: &Case<'_>, electors: &Electors) -> Self {
        Self {
            of: word_of(electors.of),
            electorate: case.cluster.electorate,
            live: case.seat.live,
            quorum: case.cluster.tally.quorum,
            unmet: case.seat.electorate.saturating_sub(electors.seats.len()),
            members: electors.seats.iter().map(ElectorRow::new).collect(),
            cap: case.cluster.cap.as_ref().map(CapRow::new),
        }
    }
}

impl ElectorRow {
    fn new(seat: &SeatView) -> Self {
        let (presence, lost_for) = match seat.presence {
            Presence::Live => ("live", None),
            Presence::Lost(period) => ("lost", Some(millis(period))),
        };
        Self {
            id: seat.id.to_string(),
            standing: seat.standing.as_str(),
            presence,
            lost_for_ms: lost_for,
            counts_as: seat.part.as_str(),
        }
    }
}

impl CapRow {
    fn new(cap: &CapView) -> Self {
        let warden = cap.warden.as_ref().map(ToString::to_string);
        Self { most: cap.most, of: cap.of, open: cap.open, warden }
    }
}

impl LimitsRow {
    fn new(case: &Case<'_>) -> Option<Self> {
        let allowance = case.endpoint.allowance.as_ref()?;
        let left = allowance.left(case.now);
        let full = why::full(case);
        let figure = |figure: Figure| FigureRow {
            limit: figure.limit,
            remaining: figure.remaining,
            reset_ms: millis(figure.reset),
        };
        Some(Self {
            full: full.map(|full| match full.what {
                What::Requests => "requests",
                What::Tokens => "tokens",
                What::Concurrency => "concurrency",
            }),
            room_in_ms: full.and_then(|full| full.returns_in).map(millis),
            requests: left.requests.map(figure),
            tokens: left.tokens.map(figure),
        })
    }
}

impl HistoryRow {
    fn new(now: Duration, entry: &Entry) -> Self {
        Self {
            age_ms: millis(now.saturating_sub(entry.at)),
            unix_ms: entry.wall_millis,
            scope: entry.scope,
            what: entry.what.clone(),
        }
    }
}

impl TenantsRow {
    fn new(now: Duration, endpoint: &Endpoint) -> Option<Self> {
        let tenants = endpoint.tenants.as_ref()?;
        let (known, _) = tenants.count(now);
        let mut out = tenants.out(now);
        out.sort_by(|one, other| one.name.cmp(&other.name));
        let row = |tenant: &std::sync::Arc<crate::fleet::Tenant>| {
            let view = tenant.view(now);
            TenantRow {
                tenant: tenant.name.to_string(),
                state: view.state.to_string(),
                reason: view.opened_for.map(|reason| reason.to_string()),
                remaining_ms: view.remaining.map(millis),
            }
        };
        Some(Self {
            header: tenants.scope().header.to_string(),
            known,
            max: tenants.scope().most,
            out_count: out.len(),
            out: out.iter().take(TENANTS_MAX).map(row).collect(),
        })
    }
}

//! How the state of the fleet is written down, for programs and people: JSON.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::StatusCode;
use quorum::view::MemberView;
use quorum::{Council, EndpointKey, Member, Reliance, Standing};

use super::case::{Case, Seated};
use super::view::cluster::{self, Cluster, LimitShare, RedisRow};
use super::view::endpoint::EndpointRow;
use super::view::explain::Explained;
use super::view::health::{Condition, Health, Readiness};
use super::view::list::{Endpoints, Wanted};
use super::view::member::{Me, MemberRow, Members};
use super::view::millis;
use super::{Admin, Reply, measure};
use crate::clock;
use crate::cluster::Reached;

impl Admin {
    pub(super) fn health(&self) -> Reply {
        let health = Health::new(self.seat.since_round(clock::now()));
        let status =
            if health.is_stuck() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
        Reply::written(status, &health)
    }

    pub(super) fn readiness(&self, is_for_operators: bool) -> Reply {
        let readiness = Readiness::new(&self.condition(clock::now()));
        let readiness = if is_for_operators { readiness } else { readiness.for_strangers() };
        let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Reply::written(status, &readiness)
    }

    fn condition(&self, now: Duration) -> Condition {
        let fleet = self.seat.fleet();
        let pools = fleet.pools();
        let out = pools.iter().filter(|pool| pool.is_all_open());
        let council = self.seat.council();
        Condition {
            is_draining: self.is_draining.load(Ordering::Relaxed),
            has_drained: self.seat.has_drained(),
            is_suspect: council.is_suspect(),
            suspect_unready: self.suspect_unready,
            observing: council.observing_until().saturating_sub(now),
            name_used_at: self.seat.duplicate(),
            config_error: self.reload.last_error().map(|failure| failure.message),
            pools_out: out.map(|pool| pool.name.clone()).collect(),
            pools: pools.len(),
            can_decide: self.can_decide(&council),
            reached: self.reached(),
        }
    }

    /// How this node stands with the ledger; whoever has left the fleet has none.
    pub(super) fn reached(&self) -> Option<Reached> {
        let reach = self.seat.reach().filter(|_| self.seat.card().standing != Standing::Left)?;
        Some(reach.look(clock::now()))
    }

    /// Whether a verdict of the fleet may come about, as far as this node can tell. A ledger counts the
    /// votes of those too whom gossip does not hear.
    fn can_decide(&self, council: &Council) -> bool {
        match council.reliance() {
            Reliance::Gossip => council.has_quorum(),
            Reliance::Ledger => council.has_quorum() || self.gossip.is_some(),
            Reliance::Alone => false,
        }
    }

    pub(super) fn members(&self) -> Members {
        let now = clock::now();
        let known = self.seat.members();
        let me =
            Me { card: self.seat.card(), generation: self.seat.generation, uptime: clock::now() };
        let views = self.seat.council().members(now);
        let row = |view: &MemberView| {
            let member = known.iter().find(|member| member.id == view.id);
            MemberRow::new(view, (member, self.seat.heard_ago(&view.id)), &me)
        };
        let mut members: Vec<MemberRow> = views.iter().map(row).collect();
        let counts = |member: &&Member| views.iter().any(|view| view.id == member.id);
        let gone = known.iter().filter(|member| !counts(member)).filter_map(MemberRow::left);
        members.extend(gone);
        Members { members }
    }

    pub(super) fn cluster(&self) -> Cluster {
        let now = clock::now();
        let reached = self.reached();
        let (part, card) = (self.seat.fleet().share().get(), self.seat.card());
        let config_skew = cluster::is_skewed(&card, &self.seat.members());
        let council = self.seat.council();
        Cluster {
            node: self.seat.me.to_string(),
            version: card.version,
            uptime_ms: millis(now),
            config_hash: card.config_hash,
            config_skew,
            backend: match (self.seat.reach(), &self.gossip) {
                (Some(_), _) => "redis",
                (None, Some(_)) => "gossip",
                (None, None) => "none",
            },
            electorate: council.electorate_size(),
            quorum: council.quorum(),
            live: council.live_count(),
            of: cluster::word_of(self.of),
            suspect: council.is_suspect(),
            name_used_at: self.seat.duplicate(),
            limit_share: LimitShare { rank: part.rank(), among: part.among() },
            can_decide: council.electorate_size() > 1 && self.can_decide(&council),
            observing_ms: millis(council.observing_until().saturating_sub(now)),
            gossip: self
                .gossip
                .as_ref()
                .map(|stats| measure::gossip_counts(stats).into_iter().collect()),
            redis: reached.map(|reached| RedisRow::new(&reached, &self.ledger_figures())),
        }
    }

    /// The endpoints that are wanted.
    ///
    /// # Errors
    /// What is wrong with what is wanted, and what to do.
    pub(super) fn endpoints(&self, wanted: &Wanted) -> Result<Endpoints, String> {
        let fleet = self.seat.fleet();
        Endpoints::new(clock::now(), (&self.seat.me, &fleet), || self.seat.council(), wanted)
    }

    pub(super) fn endpoint(&self, key: &EndpointKey) -> Option<EndpointRow> {
        let now = clock::now();
        let fleet = self.seat.fleet();
        let (pool, endpoint) = fleet.endpoint(key)?;
        let (cluster, seat) = {
            let council = self.seat.council();
            (council.endpoint(now, key)?, Seated::new(now, &self.seat.me, &council))
        };
        Some(EndpointRow::new(&Case::new(now, (pool, endpoint), cluster, &seat)))
    }

    /// The full why: what is so, who says it, what happens next and when, what happened lately.
    pub(super) fn explain(&self, key: &EndpointKey) -> Option<Explained> {
        let fleet = self.seat.fleet();
        let of = (&self.seat.me, &*fleet, self.of);
        let (now, reached) = (clock::now(), self.reached());
        Explained::look(now, of, reached, || self.seat.council(), key, &self.history.of(key))
    }
}

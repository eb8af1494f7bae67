//! What keeps a request from an endpoint, and for how long.
//!
//! Invariants: of several obstacles the one that lasts longest is told, since nothing helps before it is
//! gone.

use std::time::Duration;

use super::{Endpoint, Judge};
use crate::limits::{Charge, Claim, Full, Patience, What};

/// What keeps a request from an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// A limit on requests or tokens, the provider's or ours.
    Limited,
    /// As many requests in flight as it may have.
    Full,
    /// Its breaker, the cluster, an order, or a pause after a failure.
    Open,
}

/// A request that takes more tokens than an endpoint has in a minute is told to come back after this,
/// which is long enough for the official clients not to try.
const NEVER: Duration = Duration::from_secs(3_600);

impl Endpoint {
    /// Whether one of its own limits has no room for a request of so many tokens.
    pub(in crate::fleet) fn is_full(&self, now: Duration, tokens: u64) -> bool {
        self.full(now, tokens).is_some()
    }

    /// Takes the place of a request of so many tokens, unless only the fleet's ledger knows whether there
    /// is one and it `may_ask`; `None`: nothing is limited.
    pub(in crate::fleet) fn charge(
        &self,
        now: Duration,
        tokens: u64,
        may_ask: bool,
    ) -> Option<Claim> {
        let allowance = self.allowance.as_ref()?;
        Some(match may_ask {
            true => allowance.claim(now, tokens),
            false => allowance.take(now, tokens).into(),
        })
    }

    /// Asks the fleet's ledger for the place of a request of so many tokens, for its `patience` at most.
    ///
    /// # Errors
    /// [`Full`]: nothing was taken.
    pub async fn ask(&self, tokens: u64, patience: &mut Patience) -> Result<Option<Charge>, Full> {
        match &self.allowance {
            Some(allowance) => allowance.ask(tokens, patience).await.map(Some),
            None => Ok(None),
        }
    }

    /// How long a request that `judge` judges is kept from it, and by what.
    pub(in crate::fleet) fn obstacle_to(
        &self,
        now: Duration,
        judge: &Judge<'_>,
        tokens: u64,
    ) -> (Duration, Obstacle) {
        let (returns_in, limited) = (self.returns_in_to(now, judge), self.pause.limited(now));
        let is_limited = !limited.is_zero() && limited >= returns_in;
        let by_health = (returns_in, if is_limited { Obstacle::Limited } else { Obstacle::Open });
        let Some(full) = self.full(now, tokens) else { return by_health };
        let obstacle = match full.what {
            What::Requests | What::Tokens => Obstacle::Limited,
            What::Concurrency => Obstacle::Full,
        };
        let by_limit = (full.returns_in.unwrap_or(NEVER), obstacle);
        if by_limit.0 >= by_health.0 { by_limit } else { by_health }
    }

    fn full(&self, now: Duration, tokens: u64) -> Option<Full> {
        self.allowance.as_ref()?.look(now, tokens).err()
    }
}

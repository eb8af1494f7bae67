//! Whose limits a request has to keep: its caller's and its model's, all of them or none.
//!
//! An endpoint's limits are the fleet's affair: an endpoint that is full is passed over, whereas who
//! comes to this desk in vain is refused.
//!
//! Invariants: what one of them refuses takes nothing of the others; two callers never share, nor do
//! two models; the names are the configured ones, so that no client can make more of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Allowance, Charge, Claim, Full, Kind, Left, Patience, Share, Whom};
use crate::clock;
use crate::config::{Config, Limits};

/// The allowances of all callers and models of this node.
#[derive(Debug, Default)]
pub struct Desk {
    /// Bounded by the number of configured keys.
    callers: HashMap<String, Arc<Allowance>>,
    /// By the name of the pool; bounded by the number of configured ones.
    models: HashMap<String, Arc<Allowance>>,
}

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The caller's.
    Caller,
    /// The model's.
    Model,
}

/// A request that is not admitted, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Whose limit is reached; of both, the one that lasts longer.
    pub whose: Whose,
    /// Which.
    pub full: Full,
    /// What is left, by the tightest of the limits that apply.
    pub left: Left,
}

/// The place of one request under every limit that applies to it. Dropped, it frees its slots, and what
/// it took of the minute stays taken.
#[derive(Debug)]
#[must_use = "dropping a place frees its slots"]
pub struct Place {
    charges: [Option<Charge>; 2],
    left: Left,
    patience: Patience,
}

impl Desk {
    /// This node's share of the limits of a checked configuration.
    pub fn new(config: &Config, share: &Arc<Share>) -> Self {
        Self::default().heir(config, share)
    }

    /// The same for a configuration that takes the place of this one's: what a caller of the same name
    /// or a model has used up stays used up.
    pub fn heir(&self, config: &Config, share: &Arc<Share>) -> Self {
        type Allowances = HashMap<String, Arc<Allowance>>;
        let under = |kind, old: &Allowances, (name, limits): (&String, &Limits)| {
            let whom = Whom::new(kind, name);
            Some((name.clone(), Allowance::under(limits, share, whom, old.get(name))?))
        };
        let callers = config.api_keys.iter().map(|key| (&key.name, &key.limits));
        let models = config.pools.iter().map(|pool| (&pool.name, &pool.limits));
        Self {
            callers: callers.filter_map(|one| under(Kind::Caller, &self.callers, one)).collect(),
            models: models.filter_map(|one| under(Kind::Model, &self.models, one)).collect(),
        }
    }

    /// Takes a place for a request of about `tokens`, and asks nobody.
    ///
    /// # Errors
    /// [`Refused`]: nothing was taken.
    pub fn admit(
        &self,
        now: Duration,
        caller: Option<&str>,
        model: &str,
        tokens: u64,
    ) -> Result<Place, Refused> {
        let those = self.those(caller, model);
        let claims = those.map(|one| one.map(|(_, one)| one.take(now, tokens).into()));
        conclude(now, those, claims)
    }

    /// The same, and asks the fleet's ledger where it has to, for all its [`Patience`] at most.
    ///
    /// # Errors
    /// [`Refused`]: nothing was taken.
    ///
    /// # Cancel safety
    /// What was taken is taken for used up, as if the request had been sent.
    pub async fn admit_or_ask(
        &self,
        now: Duration,
        caller: Option<&str>,
        model: &str,
        tokens: u64,
    ) -> Result<Place, Refused> {
        let those = self.those(caller, model);
        let mut claims = those.map(|one| one.map(|(_, one)| one.claim(now, tokens)));
        let is_unsure = claims.iter().any(|claim| matches!(claim, Some(Claim::Unsure)));
        if !is_unsure {
            return conclude(now, those, claims);
        }
        let mut patience = Patience::default();
        // One after another, so that what one refuses is not taken of the other.
        for (one, claim) in those.into_iter().zip(0..) {
            let is_refused = claims.iter().any(|claim| matches!(claim, Some(Claim::Refused(_))));
            let Some(claim) = claims.get_mut(claim) else { continue };
            if let (Some((_, one)), Some(Claim::Unsure), false) = (one, &claim, is_refused) {
                *claim = Some(one.ask(tokens, &mut patience).await.into());
            }
        }
        let place = conclude(clock::now(), those, claims)?;
        Ok(Place { patience, ..place })
    }

    fn those(&self, caller: Option<&str>, model: &str) -> Those<'_> {
        let caller = caller.and_then(|name| self.callers.get(name));
        let model = self.models.get(model);
        [caller.map(|one| (Whose::Caller, one)), model.map(|one| (Whose::Model, one))]
    }
}

/// The allowances that apply to one request.
type Those<'a> = [Option<(Whose, &'a Arc<Allowance>)>; 2];

/// All of what was claimed, or none of it.
fn conclude(now: Duration, those: Those<'_>, claims: [Option<Claim>; 2]) -> Result<Place, Refused> {
    let mut worst: Option<(Whose, Full)> = None;
    let mut charges = [None, None];
    for ((one, claim), charge) in those.into_iter().zip(claims).zip(&mut charges) {
        match (one, claim) {
            (Some(_), Some(Claim::Granted(granted))) => *charge = Some(granted),
            (Some((whose, _)), Some(Claim::Refused(full))) => {
                let is_worse = worst.is_none_or(|(_, known)| full.outlasts(&known));
                worst = if is_worse { Some((whose, full)) } else { worst };
            }
            // What was not asked for is not needed: another has refused.
            (Some(_), Some(Claim::Unsure) | None) | (None, _) => {}
        }
    }
    let left = || {
        let all = those.into_iter().flatten();
        all.fold(Left::default(), |left, (_, allowance)| left.tightest(allowance.left(now)))
    };
    match worst {
        None => Ok(Place { charges, left: left(), patience: Patience::default() }),
        Some((whose, full)) => {
            charges.into_iter().flatten().for_each(Charge::cancel);
            Err(Refused { whose, full, left: left() })
        }
    }
}

impl From<Result<Charge, Full>> for Claim {
    fn from(taken: Result<Charge, Full>) -> Self {
        taken.map_or_else(Self::Refused, Self::Granted)
    }
}

impl Place {
    /// What was left when it was taken, by the tightest of the limits that apply.
    pub fn left(&self) -> Left {
        self.left
    }

    /// For how long the request will yet wait for the ledger.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// Says how many tokens the request took, in place of the estimate.
    pub fn correct(&mut self, tokens: u64) {
        self.charges.iter_mut().flatten().for_each(|charge| charge.correct(tokens));
    }

    /// Says that the request took so many tokens, or more than anybody has counted: a larger estimate
    /// stands.
    pub fn at_least(&mut self, tokens: u64) {
        self.charges.iter_mut().flatten().for_each(|charge| charge.at_least(tokens));
    }

    /// Gives everything back: nothing was sent.
    pub fn cancel(&mut self) {
        self.charges.iter_mut().filter_map(Option::take).for_each(Charge::cancel);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Figure, What};
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn desk(callers: &[(&str, Limits)], models: &[(&str, Limits)]) -> Desk {
        let all = |those: &[(&str, Limits)]| {
            let one = |(name, limits): &(&str, Limits)| {
                let whom = Whom::new(Kind::Caller, name);
                Some(((*name).to_owned(), Allowance::new(limits, &Arc::default(), whom)?))
            };
            those.iter().filter_map(one).collect()
        };
        Desk { callers: all(callers), models: all(models) }
    }

    fn rpm(rpm: u64) -> Limits {
        Limits { rpm: Some(rpm), ..Limits::default() }
    }

    fn concurrency(concurrency: u32) -> Limits {
        Limits { concurrency: Some(concurrency), ..Limits::default() }
    }

    #[test]
    fn callers_do_not_share_and_models_do_not_either() {
        let desk = desk(&[("a", rpm(1)), ("b", rpm(1))], &[("m", rpm(3)), ("n", rpm(1))]);
        let ask = |caller, model| desk.admit(MINUTE, caller, model, 1).map(drop);
        assert!(ask(Some("a"), "m").is_ok());
        assert!(ask(Some("a"), "n").is_err_and(|refused| refused.whose == Whose::Caller));
        assert!(ask(Some("b"), "m").is_ok());
        // Whoever shows no key, and a model without limits.
        assert!(ask(None, "m").is_ok());
        assert!(ask(None, "m").is_err_and(|refused| refused.whose == Whose::Model));
        assert!(ask(None, "n").is_ok());
        assert!((0..100).all(|_| ask(Some("c"), "o").is_ok()));
    }

    #[test]
    fn what_one_refuses_takes_nothing_of_the_other() {
        let both = desk(&[("a", rpm(5))], &[("m", concurrency(1))]);
        let held = both.admit(MINUTE, Some("a"), "m", 1).unwrap();
        for _ in 0..10 {
            let refused = both.admit(MINUTE, Some("a"), "m", 1).unwrap_err();
            assert_eq!((refused.whose, refused.full.what), (Whose::Model, What::Concurrency));
            assert_eq!(refused.left.requests.unwrap().remaining, 4);
        }
        drop(held);
        let both = desk(&[("a", rpm(1))], &[("m", concurrency(1))]);
        drop(both.admit(MINUTE, Some("a"), "m", 1).unwrap());
        let refused = both.admit(MINUTE, Some("a"), "m", 1).unwrap_err();
        assert_eq!((refused.whose, refused.full.what), (Whose::Caller, What::Requests));
        assert!(both.admit(MINUTE, None, "m", 1).is_ok());
    }

    #[test]
    fn of_two_refusals_the_one_that_lasts_longer_is_told() {
        let desk = desk(&[("a", rpm(1))], &[("m", Limits { tpm: Some(10), ..rpm(2) })]);
        let ask = |seconds, caller, tokens| {
            let refused = desk.admit(Duration::from_secs(seconds), caller, "m", tokens).map(drop);
            refused.err().map(|refused| (refused.whose, refused.full.returns_in))
        };
        assert_eq!(ask(0, None, 1), None);
        assert_eq!(ask(20, Some("a"), 1), None);
        let in_seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(ask(30, Some("a"), 1), Some((Whose::Caller, in_seconds(50))));
        assert_eq!(ask(30, None, 1), Some((Whose::Model, in_seconds(30))));
        assert_eq!(ask(30, Some("a"), 11), Some((Whose::Model, None)));
    }

    #[test]
    fn what_is_left_is_by_the_tightest() {
        let desk = desk(&[("a", Limits { tpm: Some(100), ..rpm(2) })], &[("m", rpm(60))]);
        let mut place = desk.admit(MINUTE, Some("a"), "m", 30).unwrap();
        let figure = |limit, remaining| Some(Figure { limit, remaining, reset: MINUTE });
        assert_eq!(place.left(), Left { requests: figure(2, 1), tokens: figure(100, 70) });
        place.correct(99);
        drop(place);
        let refused = desk.admit(MINUTE, Some("a"), "m", 2).unwrap_err();
        assert_eq!(refused.full.what, What::Tokens);
        assert_eq!(refused.left, Left { requests: figure(2, 1), tokens: figure(100, 1) });
        let mut other = desk.admit(MINUTE, Some("b"), "m", 2).unwrap();
        assert_eq!(other.left(), Left { requests: figure(60, 58), tokens: None });
        other.cancel();
    }

    #[test]
    fn what_a_caller_has_used_up_stays_so_when_its_figure_is_another() {
        let config = |rpm: u32, name: &str| {
            let digest = "0".repeat(64);
            let text = format!(
                "api_keys: [ {{ name: {name}, sha256: \"{digest}\", limits: {{ rpm: {rpm} }} }} ]
models: [ {{ name: m, endpoints: [ {{ name: e, address: \"http://e\" }} ] }} ]
"
            );
            crate::config::parse(&text, "test.yaml", &|_| None).unwrap()
        };
        let share = Arc::default();
        let desk = Desk::new(&config(2, "a"), &share);
        let ask = |desk: &Desk, name| desk.admit(MINUTE, Some(name), "m", 1).map(drop);
        assert!((0..2).all(|_| ask(&desk, "a").is_ok()));
        let heir = desk.heir(&config(3, "a"), &share);
        assert!(ask(&heir, "a").is_ok() && ask(&heir, "a").is_err());
        assert!(ask(&heir.heir(&config(1, "b"), &share), "b").is_ok(), "another is another");
    }
}

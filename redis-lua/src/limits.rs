//! Limits that a fleet keeps in Redis: one subject's minute and slots, by one script and one round trip.
//!
//! The rule is a sliding log, as on a node alone, and not GCRA: that admits up to twice its figure
//! within one minute. A node tells in one [`Turn`] what it corrects, what it has admitted without the
//! ledger, what it asks for, and how much it would have set aside so that its next requests need not ask.
//!
//! What is set aside counts from the last moment at which the node may use it, and room comes back by as
//! much later; so no minute is above its figure, whenever it is used. What a node that dies had set
//! aside is lost for that minute; its slots return with the lease.
//!
//! Invariants: a key is made of configured names and never of a secret; the keys of a turn share a slot;
//! time is the server's.

mod book;
mod window;

use std::time::Duration;

use redis::Value;

pub use self::book::{Book, SLOT_RETURNS_IN, spare};
pub use self::window::{AHEAD, Load, MINUTE, RUN, RUNS_MAX, Window};
use crate::client::{Client, Invocation};
use crate::error::Trouble;
use crate::keys::Keys;
use crate::script::Script;

static TURN: Script = Script::new("limit_turn", include_str!("../lua/limit_turn.lua"));

/// Most demands of a turn.
pub const DEMANDS_MAX: usize = 32;
/// Most corrections of a turn.
pub const CORRECTIONS_MAX: usize = 32;

/// Who is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A caller, by the configured name of its key.
    Caller,
    /// A model, by the name of its pool.
    Model,
    /// An endpoint, by `pool/endpoint`.
    Endpoint,
}

/// One that is limited: where its minute and its slots are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    minute: String,
    slots: String,
}

/// What is configured for it; `None`: not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests in a minute, 1 to 10^9.
    pub requests: Option<u64>,
    /// Tokens in a minute, 1 to 10^12.
    pub tokens: Option<u64>,
    /// Requests at a time.
    pub slots: Option<u64>,
}

/// What was counted, and what is to be counted in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correction {
    /// By which moment it was counted: [`Answer::at`] or [`Answer::aside_at`].
    pub at: u64,
    /// What was counted.
    pub was: Load,
    /// What is to be.
    pub is: Load,
}

/// What a node says to one subject's minute and slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// What is configured.
    pub figures: Figures,
    /// Who says it.
    pub node: String,
    /// In which life: slots of an earlier one are its own.
    pub generation: u64,
    /// Its requests in flight.
    pub in_use: u64,
    /// How many free slots it would keep.
    pub keep: u64,
    /// How long its slots are its own unless it says so again.
    pub lease: Duration,
    /// What it has admitted without the ledger.
    pub debt: Load,
    /// What it would have set aside.
    pub aside: Load,
    /// For how long it would use that, at most [`AHEAD`].
    pub hold: Duration,
    /// What was counted wrongly; at most [`CORRECTIONS_MAX`].
    pub corrections: Vec<Correction>,
    /// The tokens of each request it would admit; at most [`DEMANDS_MAX`].
    pub demands: Vec<u64>,
}

/// Which figure is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Requests in a minute.
    Requests,
    /// Tokens in a minute.
    Tokens,
    /// Requests at a time.
    Slots,
}

/// What became of one demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is counted.
    Granted,
    /// It is not.
    Full {
        /// The figure that is reached; of several, the one that lasts longest.
        what: What,
        /// When there is room again if nobody else comes; `None`: never.
        returns_in: Option<Duration>,
    },
}

/// What became of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// By which moment the granted demands are counted, in the ledger's microseconds.
    pub at: u64,
    /// By which moment what was set aside is counted.
    pub aside_at: u64,
    /// What was set aside.
    pub aside: Load,
    /// What counts, of all nodes, with what is set aside.
    pub sum: Load,
    /// In how long nothing of it counts, of requests and of tokens.
    pub resets: [Duration; 2],
    /// The slots of this node, those in use among them.
    pub slots: u64,
    /// The slots of all.
    pub slots_of_all: u64,
    /// Values of the store that could not be read, and were taken for absent.
    pub torn: u64,
    /// Of each demand.
    pub verdicts: Vec<Verdict>,
}

impl Figures {
    /// Whether anything is limited by the minute.
    pub fn has_minute(&self) -> bool {
        self.requests.is_some() || self.tokens.is_some()
    }
}

impl Subject {
    /// The one of this kind and name, among the fleet's keys.
    pub fn new(keys: &Keys, kind: Kind, name: &str) -> Self {
        let kind = match kind {
            Kind::Caller => "caller",
            Kind::Model => "model",
            Kind::Endpoint => "endpoint",
        };
        let tag = format!("limit/{kind}/{name}");
        Self { minute: keys.tagged(&tag, "minute"), slots: keys.tagged(&tag, "slots") }
    }

    /// Its keys, as the script takes them.
    pub fn keys(&self) -> [&str; 2] {
        [&self.minute, &self.slots]
    }
}

impl Turn {
    /// The arguments of the script.
    pub fn arguments(&self) -> Vec<Vec<u8>> {
        let number = |number: u64| number.to_string().into_bytes();
        let period = |period: Duration| number(u64::try_from(period.as_micros()).unwrap_or(0));
        let limit = |limit: Option<u64>| number(limit.unwrap_or(0));
        let Figures { requests, tokens, slots } = self.figures;
        let corrections = self.corrections.get(..CORRECTIONS_MAX).unwrap_or(&self.corrections);
        let demands = self.demands.get(..DEMANDS_MAX).unwrap_or(&self.demands);
        let mut all = vec![
            limit(requests),
            limit(tokens),
            limit(slots),
            self.node.clone().into_bytes(),
            number(self.generation),
            number(self.in_use),
            number(self.keep),
            period(self.lease),
            number(self.debt.requests),
            number(self.debt.tokens),
            number(self.aside.requests),
            number(self.aside.tokens),
            period(self.hold),
            number(corrections.len() as u64),
        ];
        for Correction { at, was, is } in corrections {
            let five = [*at, was.requests, was.tokens, is.requests, is.tokens];
            all.extend(five.map(number));
        }
        all.extend(demands.iter().copied().map(number));
        all
    }
}

impl Answer {
    /// Reads what the script returned; `None`: it is nothing that the script returns.
    pub fn read(value: &Value) -> Option<Self> {
        let Value::Array(items) = value else { return None };
        let numbers: Option<Vec<i64>> = items.iter().map(integer).collect();
        let numbers = numbers?;
        let (head, verdicts) = numbers.split_at_checked(11)?;
        let head: Vec<u64> =
            head.iter().map(|one| u64::try_from(*one).ok()).collect::<Option<_>>()?;
        let &[at, aside_at, requests, tokens, all_requests, all_tokens, ..] = head.as_slice()
        else {
            return None;
        };
        let &[.., requests_reset, tokens_reset, slots, slots_of_all, torn] = head.as_slice() else {
            return None;
        };
        let (pairs, rest) = verdicts.as_chunks::<2>();
        rest.is_empty().then_some(())?;
        Some(Self {
            at,
            aside_at,
            aside: Load { requests, tokens },
            sum: Load { requests: all_requests, tokens: all_tokens },
            resets: [requests_reset, tokens_reset].map(Duration::from_micros),
            slots,
            slots_of_all,
            torn,
            verdicts: pairs.iter().map(|pair| verdict(*pair)).collect::<Option<_>>()?,
        })
    }
}

fn verdict([what, wait]: [i64; 2]) -> Option<Verdict> {
    let what = match what {
        0 => return Some(Verdict::Granted),
        1 => What::Requests,
        2 => What::Tokens,
        3 => What::Slots,
        _ => return None,
    };
    Some(Verdict::Full { what, returns_in: u64::try_from(wait).ok().map(Duration::from_micros) })
}

fn integer(value: &Value) -> Option<i64> {
    if let Value::Int(number) = value { Some(*number) } else { None }
}

/// Takes one turn of `subject`, and counts with `keys` what could not be read.
///
/// # Errors
/// [`Trouble`]; see there for whether the turn was taken.
///
/// # Cancel safety
/// It may be taken all the same.
pub async fn turn(
    client: &Client,
    keys: &Keys,
    subject: &Subject,
    turn: &Turn,
) -> Result<Answer, Trouble> {
    let invocation = Invocation {
        script: &TURN,
        keys: subject.keys().map(str::to_owned).to_vec(),
        arguments: turn.arguments(),
    };
    let value = client.run(invocation).await?;
    let answer = Answer::read(&value).ok_or(Trouble::Wrong("no answer of the limits' script"))?;
    keys.count_unread(answer.torn);
    Ok(answer)
}

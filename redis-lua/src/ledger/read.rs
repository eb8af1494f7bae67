//! What a script of the ledger returns, read strictly; its shape stands in `lua/page.lua`.

use std::time::Duration;

use quorum::ledger::{Answer, Count, Entry, Floor, Lead, NUMBER_MAX, Outcome};
use quorum::{Forced, NodeId, Override, Stage, Step};
use redis::Value;

use crate::keys::unescaped;
use crate::ledger::Reply;
use crate::ledger::write::{INCIDENT_MAX, is_name, word_of};

/// Reads all of it; `None` if any of it is not as agreed.
pub(super) fn reply(value: &Value) -> Option<Reply> {
    let [outcome, changed, unread, at, version, epoch, lead, rest @ ..] = array(value)? else {
        return None;
    };
    let [step, order, leading, counted] = rest else {
        return None;
    };
    let floor = Floor { version: number(version)?, epoch: number(epoch)?, lead: number(lead)? };
    let entry = Entry {
        floor,
        step: optional(step, of_step)?,
        order: optional(order, of_order)?,
        lead: optional(leading, of_lead)?,
        count: count(counted)?,
    };
    Some(Reply {
        answer: Answer { outcome: of_outcome(text(outcome)?)?, entry },
        has_changed: number(changed)? == 1,
        unread: number(unread)?,
        at: span(at)?,
    })
}

fn of_outcome(word: &str) -> Option<Outcome> {
    match word {
        "done" => Some(Outcome::Done),
        "opened" => Some(Outcome::Opened),
        "stale" => Some(Outcome::Stale),
        "led" => Some(Outcome::Led),
        "fenced" => Some(Outcome::Fenced),
        _ => None,
    }
}

fn of_step(value: &Value) -> Option<Step> {
    let [incident, failures, level, stage, turn, successes, remaining, age, steward, holder] =
        array(value)?
    else {
        return None;
    };
    let remaining = span(remaining)?;
    let stage = match text(stage)? {
        "waiting" => Stage::Waiting { remaining },
        "probing" => Stage::Probing { remaining },
        "canary" => Stage::Canary {
            holder: name(holder)?,
            turn: small(turn)?,
            successes: small(successes)?,
            remaining,
        },
        "closed" => Stage::Closed,
        _ => return None,
    };
    Some(Step {
        incident: number(incident).filter(|incident| *incident <= INCIDENT_MAX)?,
        failures: small(failures)?,
        level: small(level)?,
        is_held: stage != Stage::Closed,
        stage,
        steward: name(steward)?,
        age: span(age)?,
    })
}

fn of_order(value: &Value) -> Option<Override> {
    let [stamp, forced, remaining, author, reason] = array(value)? else {
        return None;
    };
    let word = text(forced)?;
    let all = [Forced::Open, Forced::Closed, Forced::Auto];
    let remaining = match remaining {
        Value::Int(-1) => None,
        remaining => Some(span(remaining)?),
    };
    Some(Override {
        forced: all.into_iter().find(|forced| word_of(*forced) == word)?,
        stamp: number(stamp)?,
        author: name(author)?,
        remaining,
        reason: match text(reason)? {
            "*" => String::new(),
            reason => unescaped(reason)?,
        },
    })
}

fn of_lead(value: &Value) -> Option<Lead> {
    let [holder, generation, lead, remaining] = array(value)? else {
        return None;
    };
    Some(Lead {
        holder: name(holder)?,
        generation: number(generation)?,
        number: number(lead)?,
        remaining: span(remaining)?,
    })
}

fn count(value: &Value) -> Option<Count> {
    let [first_hand, seconded, counted, holders, quorum] = array(value)? else {
        return None;
    };
    Some(Count {
        first_hand: small(first_hand)?,
        seconded: small(seconded)?,
        counted: small(counted)?,
        holders: small(holders)?,
        quorum: small(quorum)?,
    })
}

/// None for nil, and what `read` reads otherwise.
#[expect(clippy::option_option, reason = "the outer one is whether it could be read")]
fn optional<T>(value: &Value, read: fn(&Value) -> Option<T>) -> Option<Option<T>> {
    match value {
        Value::Nil => Some(None),
        value => read(value).map(Some),
    }
}

fn array(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn name(value: &Value) -> Option<NodeId> {
    text(value).filter(|text| is_name(text)).map(NodeId::new)
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok().filter(|number| *number <= NUMBER_MAX),
        _ => None,
    }
}

fn small(value: &Value) -> Option<u32> {
    number(value).and_then(|number| u32::try_from(number).ok())
}

fn span(value: &Value) -> Option<Duration> {
    number(value).map(Duration::from_micros)
}

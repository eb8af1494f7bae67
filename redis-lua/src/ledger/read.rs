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

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn numbers(all: &[i64]) -> Vec<Value> {
        all.iter().copied().map(Value::Int).collect()
    }

    /// An answer with nothing in it but its numbers.
    fn bare() -> Vec<Value> {
        let mut all = vec![bulk("done")];
        all.extend(numbers(&[1, 0, 1_800_000_000_000_000, 7, 3, 2]));
        all.extend([Value::Nil, Value::Nil, Value::Nil]);
        all.push(Value::Array(numbers(&[0, 0, 0, 0, 2])));
        all
    }

    fn with(index: usize, value: Value) -> Option<Reply> {
        let mut all = bare();
        all[index] = value;
        reply(&Value::Array(all))
    }

    #[test]
    fn an_entry_of_which_nothing_is_known_is_read() {
        let read = reply(&Value::Array(bare())).unwrap();
        assert_eq!(read.answer.entry.floor, Floor { version: 7, epoch: 3, lead: 2 });
        assert_eq!((read.answer.entry.step, read.has_changed), (None, true));
    }

    #[test]
    fn what_no_script_of_ours_returns_is_refused() {
        for value in [Value::Nil, Value::Okay, bulk("done"), Value::Array(Vec::new())] {
            assert_eq!(reply(&value), None);
        }
        let mut long = bare();
        long.push(Value::Nil);
        assert_eq!(reply(&Value::Array(long)), None);
        for index in 0..bare().len() {
            for value in [Value::Int(-2), Value::Double(1.0), bulk("\u{7f}"), Value::Array(vec![])]
            {
                assert_eq!(with(index, value.clone()), None, "{index} {value:?}");
            }
        }
        assert_eq!(with(4, Value::Int(i64::MAX)), None);
        assert_eq!(with(10, Value::Array(numbers(&[0, 0, 0, 0, 1 << 32]))), None);
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let lead = |holder: &str| {
            let lead = [bulk(holder)].into_iter().chain(numbers(&[1, 1, 5]));
            with(9, Value::Array(lead.collect()))
        };
        assert!(lead("gw-1").is_some());
        for holder in ["", "gw 1", "gw\n1", "*", &"g".repeat(254)] {
            assert_eq!(lead(holder), None, "{holder}");
        }
    }

    #[test]
    fn an_order_is_read_with_its_reason() {
        let order = |forced: &str, remaining: i64, reason: &str| {
            let fields = vec![
                Value::Int(4),
                bulk(forced),
                Value::Int(remaining),
                bulk("gw-1"),
                bulk(reason),
            ];
            with(8, Value::Array(fields))
        };
        let read = order("open", -1, "it%20is%20fine").unwrap().answer.entry.order.unwrap();
        assert_eq!((read.remaining, read.reason.as_str()), (None, "it is fine"));
        assert_eq!(order("shut", -1, "*"), None);
        assert_eq!(order("open", -2, "*"), None);
        assert_eq!(order("open", 0, "%zz"), None);
    }
}

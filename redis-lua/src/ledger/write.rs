//! A call as the arguments of its script; how each is written stands in `lua/words.lua`.
//!
//! What a double could not hold, or a field could not, is refused here, before anything is sent.

use std::time::Duration;

use quorum::ledger::{Call, Deed, NUMBER_MAX, WORDS_MAX, Word};
use quorum::{Forced, NodeId, Override, Stage, Step};

use crate::error::Trouble;
use crate::keys::escaped;

/// The longest name of a node, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 253;

/// The longest reason that is kept, in bytes; what is longer is cut.
const REASON_BYTES_MAX: usize = 256;

/// The largest incident: nobody believes in a larger one.
pub(super) const INCIDENT_MAX: u64 = 1 << 40;

/// The longest duration, in microseconds: 35 years, so that no sum leaves what a double can hold.
const MICROS_MAX: u64 = 1 << 50;

/// For none.
const NONE: &str = "*";

/// The arguments of the script that carries out `call`.
pub(super) fn arguments(call: &Call) -> Result<Vec<Vec<u8>>, Trouble> {
    let seen = call.floor;
    let mut all = vec![name(&call.by)?.to_owned(), number(call.generation)?];
    let floors = [seen.version, seen.epoch, seen.lead];
    all.extend(floors.map(|floor| floor.min(NUMBER_MAX).to_string()));
    match &call.deed {
        Deed::Read => {}
        Deed::Cast(word) => all.extend(of_word(word)?),
        Deed::Take { hold } => all.push(micros(*hold)),
        Deed::Renew { number: lead, hold } => all.extend([number(*lead)?, micros(*hold)]),
        Deed::Release { number: lead } => all.push(number(*lead)?),
        Deed::Advance { number: lead, step } => all.extend([number(*lead)?, of_step(step)?]),
        Deed::Carry(step) => all.push(of_step(step)?),
        Deed::Order(order) => all.push(of_order(order)?),
    }
    Ok(all.into_iter().map(String::into_bytes).collect())
}

fn of_word(word: &Word) -> Result<[String; 10], Trouble> {
    let (voted, basis) = match word.vote {
        Some(vote) => (vote.incident, if vote.is_first_hand { "first" } else { "second" }),
        None => (0, NONE),
    };
    if word.discounted.len() > WORDS_MAX {
        return Err(Trouble::Wrong("more members than count"));
    }
    // A name that cannot be kept has no word in the ledger that could be left out.
    let names = word.discounted.iter().map(NodeId::as_str);
    let discounted: Vec<&str> = names.filter(|text| is_name(text)).collect();
    Ok([
        number(word.seq)?,
        micros(word.lease),
        incident(voted)?,
        basis.to_owned(),
        u8::from(word.is_witness).to_string(),
        word.hold.as_ref().map_or(Ok(NONE.to_owned()), of_step)?,
        word.electorate.max(1).to_string(),
        discounted.join(" "),
        word.opening.map_or(NONE.to_owned(), |begin| begin.level.to_string()),
        micros(word.opening.map_or(Duration::ZERO, |begin| begin.cool_down)),
    ])
}

fn of_step(step: &Step) -> Result<String, Trouble> {
    let (turn, successes, holder) = match &step.stage {
        Stage::Canary { holder, turn, successes, .. } => (*turn, *successes, name(holder)?),
        Stage::Waiting { .. } | Stage::Probing { .. } | Stage::Closed => (0, 0, NONE),
    };
    let fields = [
        incident(step.incident)?,
        step.failures.to_string(),
        step.level.to_string(),
        step.stage.as_str().to_owned(),
        turn.to_string(),
        successes.to_string(),
        micros(step.stage.remaining()),
        micros(step.age),
        name(&step.steward)?.to_owned(),
        holder.to_owned(),
    ];
    Ok(fields.join(" "))
}

fn of_order(order: &Override) -> Result<String, Trouble> {
    let fields = [
        number(order.stamp)?,
        word_of(order.forced).to_owned(),
        order.remaining.map_or(NONE.to_owned(), micros),
        name(&order.author)?.to_owned(),
        reason(&order.reason),
    ];
    Ok(fields.join(" "))
}

/// The word that an order is kept under.
pub(super) fn word_of(forced: Forced) -> &'static str {
    match forced {
        Forced::Open => "open",
        Forced::Closed => "closed",
        Forced::Auto => "auto",
    }
}

fn reason(text: &str) -> String {
    let cut = (0..=REASON_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end));
    let kept =
        if text.len() <= REASON_BYTES_MAX { Some(text) } else { text.get(..cut.unwrap_or(0)) };
    let kept = kept.unwrap_or_default();
    if kept.is_empty() { NONE.to_owned() } else { escaped(kept, b"*") }
}

fn name(id: &NodeId) -> Result<&str, Trouble> {
    let text = id.as_str();
    if is_name(text) { Ok(text) } else { Err(Trouble::Wrong("a name that cannot be kept")) }
}

/// Whether the text may be a node's name in the ledger: 1 to 253 letters, digits, dots, dashes and
/// underscores.
pub fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_plain)
}

fn number(number: u64) -> Result<String, Trouble> {
    within(number, NUMBER_MAX)
}

fn incident(number: u64) -> Result<String, Trouble> {
    within(number, INCIDENT_MAX)
}

fn within(number: u64, most: u64) -> Result<String, Trouble> {
    if number > most {
        return Err(Trouble::Wrong("a number that is too large"));
    }
    Ok(number.to_string())
}

fn micros(span: Duration) -> String {
    u64::try_from(span.as_micros()).unwrap_or(MICROS_MAX).min(MICROS_MAX).to_string()
}

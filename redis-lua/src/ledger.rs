//! The ledger in Redis: each call is one script that touches one slot.
//!
//! What the calls mean is said by `quorum::ledger`, and what each does to an entry by its `Book`; the
//! scripts in `lua/` do the same, and a test runs both side by side.
//!
//! Invariants:
//! - A call is carried out whole or not at all, at one moment of the server's clock.
//! - Names are letters, digits, dots, dashes and underscores; numbers are at most 2⁵³ − 1. A call that
//!   says something else is not sent.
//! - Who has changed an entry says so on the channel of notices.

mod notice;
mod read;
mod write;

use std::time::Duration;

use quorum::ledger::{Answer, Call, Deed};

use crate::client::{Client, Invocation};
use crate::error::Trouble;
use crate::keys::Keys;
use crate::script::Script;

pub use notice::Notice;
pub use write::is_name;

/// Joins the parts that every script begins with and its own.
macro_rules! script {
    ($name:literal) => {
        Script::new(
            $name,
            concat!(
                include_str!("../lua/server.lua"),
                include_str!("../lua/words.lua"),
                include_str!("../lua/page.lua"),
                include_str!(concat!("../lua/", $name, ".lua")),
            ),
        )
    };
}

static CAST: Script = script!("cast");
static TAKE: Script = script!("take");
static RENEW: Script = script!("renew");
static RELEASE: Script = script!("release");
static ADVANCE: Script = script!("advance");
static CARRY: Script = script!("carry");
static ORDER: Script = script!("order");
static READ: Script = script!("read");

/// All scripts of the ledger, for whoever loads them before they are needed or counts by them.
pub fn scripts() -> [&'static Script; 8] {
    [&CAST, &TAKE, &RENEW, &RELEASE, &ADVANCE, &CARRY, &ORDER, &READ]
}

/// The script that does a deed.
pub fn script(deed: &Deed) -> &'static Script {
    match deed {
        Deed::Read => &READ,
        Deed::Cast(_) => &CAST,
        Deed::Take { .. } => &TAKE,
        Deed::Renew { .. } => &RENEW,
        Deed::Release { .. } => &RELEASE,
        Deed::Advance { .. } => &ADVANCE,
        Deed::Carry(_) => &CARRY,
        Deed::Order(_) => &ORDER,
    }
}

/// What the ledger answered, with what only the ledger knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The answer.
    pub answer: Answer,
    /// Whether the version rose.
    pub has_changed: bool,
    /// How many values could not be read, and were taken for absent.
    pub unread: u64,
    /// When the call was carried out, by the server's clock since 1970.
    pub at: Duration,
}

/// Makes one call.
///
/// # Errors
/// As [`Client::run`]; [`Trouble::Wrong`] if the call cannot be said, in which case nothing was sent,
/// or if the answer cannot be read. After an error it is unknown whether the call was carried out.
///
/// # Cancel safety
/// A call that is dropped may have been carried out, and is then not told on the channel.
pub async fn call(client: &Client, keys: &Keys, call: &Call) -> Result<Answer, Trouble> {
    ask(client, keys, call).await.map(|reply| reply.answer)
}

/// Makes one call, as [`call`], and answers with all that the ledger said.
///
/// # Errors
/// As [`call`].
pub async fn ask(client: &Client, keys: &Keys, call: &Call) -> Result<Reply, Trouble> {
    let value = client.run(invocation(keys, call)?).await?;
    settle(client, keys, call, reply(&value)?)
}

/// Makes many calls at once, in no particular order among those about different endpoints. The
/// answers stand in the order of the calls.
///
/// # Errors
/// Each as [`call`].
pub async fn call_all(
    client: &Client,
    keys: &Keys,
    calls: &[Call],
) -> Vec<Result<Answer, Trouble>> {
    let prepared: Vec<_> = calls.iter().map(|call| invocation(keys, call)).collect();
    let invocations = prepared.iter().filter_map(|one| one.as_ref().ok().cloned()).collect();
    let mut values = client.run_all(invocations).await.into_iter();
    let answers = calls.iter().zip(prepared).map(|(call, prepared)| {
        prepared?;
        let value = values.next().unwrap_or(Err(Trouble::Wrong("too few answers")))?;
        settle(client, keys, call, reply(&value)?).map(|reply| reply.answer)
    });
    answers.collect()
}

/// What is sent for a call.
///
/// # Errors
/// [`Trouble::Wrong`] if it holds a name or a number that cannot be kept.
pub fn invocation(keys: &Keys, call: &Call) -> Result<Invocation, Trouble> {
    let script = script(&call.deed);
    let arguments = write::arguments(call)?;
    Ok(Invocation { script, keys: keys.of(&call.endpoint), arguments })
}

/// What came back for a call.
///
/// # Errors
/// [`Trouble::Wrong`] if it is not what a script of the ledger returns.
pub fn reply(value: &redis::Value) -> Result<Reply, Trouble> {
    read::reply(value).ok_or(Trouble::Wrong("an answer of the ledger"))
}

/// Counts what could not be read, and tells others of a change.
fn settle(client: &Client, keys: &Keys, call: &Call, reply: Reply) -> Result<Reply, Trouble> {
    if reply.unread > 0 {
        keys.count_unread(reply.unread);
    }
    if reply.has_changed {
        let endpoint = call.endpoint.clone();
        let notice = Notice { endpoint, version: reply.answer.entry.floor.version };
        client.publish(notice.to_bytes());
    }
    Ok(reply)
}

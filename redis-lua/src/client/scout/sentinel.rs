//! Asks all sentinels at once where the primary is.
//!
//! Each failover has a configuration epoch, and what is known of a higher one wins: so the sentinels
//! themselves settle who is right. The one that leads a failover gives the old address under the new
//! epoch until all replicas follow: it is not asked until then.

use std::time::Duration;

use redis::Value;

use super::{ask, text};
use crate::client::config::Address;
use crate::client::dial::{Dialer, Wire};
use crate::client::exchange::join;
use crate::client::setback::Setback;
use crate::error::Trouble;

/// What is done there.
const STEP: &str = "SENTINEL";

/// The sentinels, each with the connection that was good last.
pub(super) struct Sentinels {
    all: Vec<(Address, Option<Wire>)>,
    dialer: Dialer,
    timeout: Duration,
    name: String,
}

impl Sentinels {
    pub(super) fn new(urls: Vec<Address>, dialer: Dialer, timeout: Duration, name: String) -> Self {
        let all = urls.into_iter().map(|address| (address, None)).collect();
        Self { all, dialer, timeout, name }
    }

    /// Where the primary is.
    ///
    /// # Errors
    /// The setback of one of them, when none has an answer.
    pub(super) async fn primary(&mut self) -> Result<Address, Setback> {
        let (dialer, timeout, name) = (&self.dialer, self.timeout, self.name.as_str());
        let asked = self.all.iter_mut().map(|(address, wire)| {
            Box::pin(async move {
                let answer = one(dialer, address, wire, name, timeout).await;
                if answer.is_err() {
                    *wire = None;
                }
                answer
            })
        });
        let answers = join(asked.collect()).await;
        newest(answers)
    }
}

/// The address of the highest epoch; the last setback, when there is none.
fn newest(answers: Vec<Result<(u64, Address), Setback>>) -> Result<Address, Setback> {
    let mut best = Err(Setback::nowhere(STEP, Trouble::Away));
    for answer in answers {
        let is_better = match (&best, &answer) {
            (Err(_), _) => true,
            (Ok(_), Err(_)) => false,
            (Ok((known, _)), Ok((epoch, _))) => epoch > known,
        };
        if is_better {
            best = answer;
        }
    }
    best.map(|(_, address)| address)
}

/// The epoch and the address that one sentinel knows.
async fn one(
    dialer: &Dialer,
    address: &Address,
    wire: &mut Option<Wire>,
    name: &str,
    timeout: Duration,
) -> Result<(u64, Address), Setback> {
    let wire = match wire {
        Some(wire) => wire,
        None => wire.insert(dialer.dial(address, None).await?),
    };
    let mut command = redis::cmd("SENTINEL");
    command.arg("MASTER").arg(name);
    let answer = ask(&mut wire.connection, &command, timeout).await;
    let wrong = Trouble::Wrong("no word of a sentinel of where the primary is");
    let found = answer.and_then(|answer| parse(&answer).ok_or(wrong));
    found.map_err(|trouble| Setback::at(address, STEP, trouble))
}

/// Names and values by turns, or a map of them.
fn parse(answer: &Value) -> Option<(u64, Address)> {
    let field = |wanted: &str| match answer {
        Value::Array(parts) => {
            let (pairs, _) = parts.as_chunks::<2>();
            let pair = pairs.iter().find(|[name, _]| text(name) == Some(wanted));
            pair.and_then(|[_, value]| text(value))
        }
        Value::Map(pairs) => {
            let pair = pairs.iter().find(|(name, _)| text(name) == Some(wanted));
            pair.and_then(|(_, value)| text(value))
        }
        _ => None,
    };
    if field("flags")?.split(',').any(|flag| flag == "failover_in_progress") {
        return None;
    }
    let host = field("ip").filter(|host| !host.is_empty())?.to_owned();
    let port = field("port")?.parse().ok().filter(|port| *port != 0)?;
    Some((field("config-epoch")?.parse().ok()?, Address { host, port }))
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::{Address, STEP, Setback, newest, parse};
    use crate::error::Trouble;

    fn says(pairs: &[(&str, &str)]) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(pairs.iter().flat_map(|(name, value)| [text(name), text(value)]).collect())
    }

    #[test]
    fn what_a_sentinel_says_is_read_by_name() {
        let good = [
            ("name", "main"),
            ("ip", "10.0.0.1"),
            ("port", "1"),
            ("flags", "master"),
            ("config-epoch", "7"),
        ];
        let (epoch, address) = parse(&says(&good)).unwrap();
        assert_eq!((epoch, address.to_string().as_str()), (7, "10.0.0.1:1"));
        for without in 1..good.len() {
            let mut pairs = good.to_vec();
            pairs.remove(without);
            assert_eq!(parse(&says(&pairs)), None, "{pairs:?}");
        }
        assert_eq!(parse(&Value::Nil), None);
    }

    #[test]
    fn a_sentinel_that_leads_a_failover_does_not_name_the_old_primary_under_the_new_epoch() {
        let leads = |flags| {
            let old = [("ip", "10.0.0.1"), ("port", "1"), ("flags", flags), ("config-epoch", "7")];
            parse(&says(&old)).is_some()
        };
        assert!(leads("s_down,o_down,master"));
        assert!(!leads("s_down,o_down,master,failover_in_progress"));
    }

    #[test]
    fn a_sentinel_that_missed_a_failover_is_overruled() {
        let at = |port| Address { host: "a".to_owned(), port };
        let silent = || Err(Setback::nowhere(STEP, Trouble::Timeout));
        let stale = || Ok((3, at(1)));
        assert_eq!(newest(vec![stale(), silent(), Ok((4, at(2))), stale()]), Ok(at(2)));
        assert_eq!(newest(vec![silent(), stale()]), Ok(at(1)));
        assert_eq!(newest(vec![silent(), silent()]), Err(Setback::nowhere(STEP, Trouble::Timeout)));
        assert_eq!(newest(Vec::new()), Err(Setback::nowhere(STEP, Trouble::Away)));
    }
}

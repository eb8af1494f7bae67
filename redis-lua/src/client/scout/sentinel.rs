//! Asks all sentinels at once where the primary is.
//!
//! Each failover has a configuration epoch, and what is known of a higher one wins: so the sentinels
//! themselves settle who is right.

use std::time::Duration;

use redis::Value;

use super::{ask, text};
use crate::client::config::Address;
use crate::client::dial::{Dialer, Wire};
use crate::client::exchange::join;
use crate::error::Trouble;

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
    /// The trouble of one of them, when none has an answer.
    pub(super) async fn primary(&mut self) -> Result<Address, Trouble> {
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
        let mut trouble = Trouble::Away;
        let mut best: Option<(u64, Address)> = None;
        for answer in answers {
            match answer {
                Err(other) => trouble = other,
                Ok(found) if best.as_ref().is_none_or(|best| best.0 < found.0) => {
                    best = Some(found);
                }
                Ok(_) => {}
            }
        }
        best.map(|(_, address)| address).ok_or(trouble)
    }
}

/// The epoch and the address that one sentinel knows.
async fn one(
    dialer: &Dialer,
    address: &Address,
    wire: &mut Option<Wire>,
    name: &str,
    timeout: Duration,
) -> Result<(u64, Address), Trouble> {
    let wire = match wire {
        Some(wire) => wire,
        None => wire.insert(dialer.dial(address, None).await?),
    };
    let mut command = redis::cmd("SENTINEL");
    command.arg("MASTER").arg(name);
    let answer = ask(&mut wire.connection, &command, timeout).await?;
    parse(&answer).ok_or(Trouble::Wrong("what a sentinel says of the primary"))
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
    let host = field("ip").filter(|host| !host.is_empty())?.to_owned();
    let port = field("port")?.parse().ok().filter(|port| *port != 0)?;
    Some((field("config-epoch")?.parse().ok()?, Address { host, port }))
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::parse;

    fn says(pairs: &[(&str, &str)]) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(pairs.iter().flat_map(|(name, value)| [text(name), text(value)]).collect())
    }

    #[test]
    fn what_a_sentinel_says_is_read_by_name() {
        let good = [("name", "main"), ("ip", "10.0.0.1"), ("port", "1"), ("config-epoch", "7")];
        let (epoch, address) = parse(&says(&good)).unwrap();
        assert_eq!((epoch, address.to_string().as_str()), (7, "10.0.0.1:1"));
        for without in 1..good.len() {
            let mut pairs = good.to_vec();
            pairs.remove(without);
            assert_eq!(parse(&says(&pairs)), None, "{pairs:?}");
        }
        assert_eq!(parse(&Value::Nil), None);
    }
}

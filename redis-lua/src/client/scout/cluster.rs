//! Asks a cluster who has which slots.
//!
//! A server that takes our writes believes its cluster to be whole, so its word is taken first; the
//! configured addresses only when there is no such server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::{Places, ask, text};
use crate::client::config::Address;
use crate::client::dial::Dialer;
use crate::client::setback::Setback;
use crate::client::table::{Owners, Table};
use crate::error::Trouble;
use crate::slot;

/// At most so many servers are asked in one look.
const ASKED_MAX: usize = 8;
/// So many names are tried for a key in one of a server's slots: with a single slot of 16,384 all
/// fail once in 10⁵ times.
const NAMES_MAX: u32 = 200_000;

/// What is done there.
pub(in crate::client) const STEP: &str = "CLUSTER SLOTS";

/// Where a cluster is asked.
pub(super) struct Seeds {
    urls: Vec<Address>,
    dialer: Arc<Dialer>,
    timeout: Duration,
}

impl Seeds {
    pub(super) fn new(urls: Vec<Address>, dialer: Arc<Dialer>, timeout: Duration) -> Self {
        Self { urls, dialer, timeout }
    }

    /// Who has which slots.
    ///
    /// # Errors
    /// The last setback, when nobody has an answer.
    pub(super) async fn places(&self, prefix: &str, table: &Table) -> Result<Places, Setback> {
        let good = table
            .links
            .iter()
            .filter_map(|(address, link)| Some((address.clone(), Some(link.connection.clone()?))));
        let mut known: Vec<_> = good.collect();
        fastrand::shuffle(&mut known);
        let mut seeds: Vec<_> = self.urls.iter().map(|url| (url.clone(), None)).collect();
        fastrand::shuffle(&mut seeds);
        let mut last = Setback::nowhere(STEP, Trouble::Away);
        for (address, connection) in known.into_iter().chain(seeds).take(ASKED_MAX) {
            let found = match connection {
                Some(connection) => self.ask(connection, &address).await,
                None => match self.dialer.dial(&address, None).await {
                    Ok(wire) => self.ask(wire.connection.clone(), &address).await,
                    Err(setback) => Err(setback),
                },
            };
            match found {
                Ok(ranges) if !ranges.is_empty() => return Ok(arrange(prefix, ranges)),
                Ok(_) => last = Setback::at(&address, STEP, Trouble::Refused("CLUSTERDOWN")),
                Err(other) => last = other,
            }
        }
        Err(last)
    }

    async fn ask(
        &self,
        mut connection: redis::aio::MultiplexedConnection,
        asked: &Address,
    ) -> Result<Vec<(u16, u16, Address)>, Setback> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let answer = ask(&mut connection, &command, self.timeout).await;
        let wrong = Trouble::Wrong("what a cluster says of its slots");
        let found = answer.and_then(|answer| parse(&answer, asked).ok_or(wrong));
        found.map_err(|trouble| Setback::at(asked, STEP, trouble))
    }
}

/// First slot, last slot, and the primary first among the servers; a host that is not named is the
/// one that was asked, and one that is not known has its slots left out.
fn parse(answer: &Value, asked: &Address) -> Option<Vec<(u16, u16, Address)>> {
    let Value::Array(ranges) = answer else { return None };
    let mut found = Vec::with_capacity(ranges.len());
    for range in ranges {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice()
        else {
            return None;
        };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host = match host {
            Value::Nil => asked.host.as_str(),
            named => text(named)?,
        };
        if first > last || last >= slot::SLOTS {
            return None;
        }
        let host = if host.is_empty() { asked.host.as_str() } else { host };
        if host != "?" {
            let port = u16::try_from(*port).ok()?;
            found.push((first, last, Address { host: host.to_owned(), port }));
        }
    }
    found.sort();
    let is_apart = found.windows(2).all(|pair| match pair {
        [(_, last, _), (first, _, _)] => last < first,
        _ => true,
    });
    is_apart.then_some(found)
}

/// Gives each owner a key of ours that is in one of its slots.
fn arrange(prefix: &str, ranges: Vec<(u16, u16, Address)>) -> Places {
    let slots = ranges.iter().map(|(first, last, _)| u32::from(last - first) + 1).sum::<u32>();
    let all = ranges.iter().map(|(_, _, owner)| owner.clone());
    let mut wanting: HashMap<Address, ()> = all.map(|owner| (owner, ())).collect();
    let owners = Owners::Ranges(ranges);
    let mut servers = Vec::with_capacity(wanting.len());
    for number in 0..NAMES_MAX {
        if wanting.is_empty() {
            break;
        }
        let key = format!("{prefix}{{health-{number}}}:beat");
        let owner = owners.of(slot::of(key.as_bytes()));
        if let Some((owner, ())) = owner.and_then(|owner| wanting.remove_entry(owner)) {
            servers.push((owner, key));
        }
    }
    // A key that is elsewhere is answered with where: that too shows that the server is alive.
    let rest = wanting.into_keys().map(|owner| (owner, format!("{prefix}{{health}}:beat")));
    servers.extend(rest);
    Places { owners, servers, is_whole: slots == u32::from(slot::SLOTS) }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::{Address, arrange, parse};
    use crate::slot;

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let primary = Value::Array(vec![host, Value::Int(port)]);
        let replica = Value::Array(vec![Value::BulkString(b"other".to_vec()), Value::Int(1)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), primary, replica])
    }

    #[test]
    fn slots_are_with_the_first_server_named() {
        let named = Value::BulkString(b"a".to_vec());
        let answer =
            Value::Array(vec![range(100, 16_383, Value::Nil, 2), range(0, 99, named.clone(), 1)]);
        let found = parse(&answer, &at("asked", 9)).unwrap();
        assert_eq!(found, [(0, 99, at("a", 1)), (100, 16_383, at("asked", 2))]);
        let overlapping = [range(0, 99, named.clone(), 1), range(99, 100, named.clone(), 2)];
        assert_eq!(parse(&Value::Array(overlapping.to_vec()), &at("asked", 9)), None);
        assert_eq!(parse(&Value::Array(vec![range(0, 16_384, named, 1)]), &at("x", 9)), None);
        let unknown = Value::BulkString(b"?".to_vec());
        let found = parse(&Value::Array(vec![range(0, 9, unknown, 1)]), &at("x", 9));
        assert_eq!(found, Some(Vec::new()));
    }

    #[test]
    fn each_owner_has_a_key_in_its_own_slots() {
        let ranges =
            vec![(0, 9, at("a", 1)), (10, 16_000, at("b", 1)), (16_001, 16_383, at("c", 1))];
        let places = arrange("quorumgate", ranges);
        assert!(places.is_whole);
        assert_eq!(places.servers.len(), 3);
        for (owner, key) in &places.servers {
            assert_eq!(places.owners.of(slot::of(key.as_bytes())), Some(owner), "{key}");
        }
        assert!(!arrange("quorumgate", vec![(0, 9, at("a", 1))]).is_whole);
    }
}

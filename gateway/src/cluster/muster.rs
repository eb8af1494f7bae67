//! Brings what the members state where they do not gossip: the roll in Redis, in gossip's terms.
//!
//! The council hears whole sets and does not know what carried them. On the roll a set is opaque; here
//! it is written and read, by the same records that gossip carries.
//!
//! Invariants: this node's last word is on its way to the roll before the roll is told to stop; a set
//! is read once, and again only when it is another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gossip::{Mine, Ours, set};
use quorum::{Member, NodeId, Standing};
use redis_lua::client::Client;
use redis_lua::roll::{self, RollError};
use tokio::sync::watch;

use crate::metrics::Meters;

/// What stands for the address of a member that is met in Redis alone.
const ADDRESS: &str = "redis";

/// Returns where the members' word comes, and the future that brings it until `stop`: this node's word
/// is written a last time then.
///
/// # Errors
/// If the configuration is out of its bounds. Nothing runs then.
pub(crate) fn start(
    config: roll::Config,
    (client, meters): (Client, Arc<Meters>),
    mine: watch::Receiver<Mine>,
    stop: watch::Receiver<bool>,
) -> Result<(watch::Receiver<Ours>, impl Future<Output = ()> + Send + use<>), RollError> {
    let (roll_mine, said) = watch::channel(roll::Mine::default());
    let (roll_stop, stopped) = watch::channel(false);
    let (ours_in, ours) = watch::channel(Ours::default());
    let (carrier, carrying) = roll::start(config, client, said, stopped)?;
    let (read, figures) = (carrier.ours, carrier.figures);
    let translating = async move {
        let count = || counted(&meters, &figures);
        translate((mine, roll_mine), (read, ours_in), count, stop).await;
        roll_stop.send_replace(true);
    };
    let running = async move {
        tokio::join!(carrying, translating);
    };
    Ok((ours, running))
}

/// Translates both ways until `stop`; with each set that comes it is counted.
async fn translate(
    (mut mine, said): (watch::Receiver<Mine>, watch::Sender<roll::Mine>),
    (mut read, ours): (watch::Receiver<roll::Ours>, watch::Sender<Ours>),
    count: impl Fn(),
    mut stop: watch::Receiver<bool>,
) {
    let mut outward = Outward::default();
    let mut inward = Inward::default();
    loop {
        let (is_over, has_spoken) = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => (true, true),
            Ok(()) = mine.changed() => (false, true),
            Ok(()) = read.changed() => (false, false),
        };
        if has_spoken {
            said.send_replace(outward.write(&mine.borrow_and_update()));
        } else {
            ours.send_replace(inward.read(&read.borrow_and_update()));
            count();
        }
        if is_over {
            return;
        }
    }
}

/// Shows what the roll has counted.
fn counted(meters: &Meters, figures: &roll::Figures) {
    for (name, figure) in [
        ("roll_beats_total", &figures.beats),
        ("roll_readings_total", &figures.readings),
        ("roll_failures_total", &figures.failures),
        ("roll_rows_ignored_total", &figures.ignored),
        ("roll_duplicates_total", &figures.duplicates),
    ] {
        meters.counter(name, &[]).absolute(figure.load(Ordering::Relaxed));
    }
}

/// This node's word on its way out.
#[derive(Default)]
struct Outward {
    card: Option<quorum::Card>,
    /// The greatest number of a statement so far.
    seq: u64,
    news: u64,
    /// Statements that were left out the last time, so that it is said once.
    left_out: usize,
}

impl Outward {
    fn write(&mut self, mine: &Mine) -> roll::Mine {
        let seq = self.seq;
        let mut is_news = self.card != mine.card;
        for stated in &mine.stated {
            is_news |= stated.fresh && stated.seq > seq;
            self.seq = self.seq.max(stated.seq);
        }
        self.card.clone_from(&mine.card);
        self.news += u64::from(is_news);
        let (bytes, left_out) = set::encode(mine.card.as_ref(), &mine.stated);
        if left_out > self.left_out {
            tracing::warn!(left_out, "statements beyond the bounds are not carried");
        }
        self.left_out = left_out;
        roll::Mine {
            said: mine.card.is_some().then(|| Arc::from(bytes)),
            pulse: mine.pulse,
            news: self.news,
            has_left: mine.card.as_ref().is_some_and(|card| card.standing == Standing::Left),
        }
    }
}

/// The members' words on their way in.
#[derive(Default)]
struct Inward {
    /// What each member says, with the bytes that it was read from; no more than are on the roll.
    known: BTreeMap<NodeId, (Arc<[u8]>, set::Set)>,
}

impl Inward {
    fn read(&mut self, ours: &roll::Ours) -> Ours {
        let known = std::mem::take(&mut self.known);
        let mut members = Vec::with_capacity(ours.members.len());
        for row in &ours.members {
            let set = match known.get(&row.id) {
                Some((bytes, set)) if *bytes == row.said => set.clone(),
                Some(_) | None => open(row),
            };
            self.known.insert(row.id.clone(), (Arc::clone(&row.said), set.clone()));
            members.push(Member {
                id: row.id.clone(),
                generation: row.generation,
                address: ADDRESS.to_owned(),
                is_live: row.is_live,
                card: set.card,
                pulse: row.pulse,
                heard: set.heard,
            });
        }
        let seen = |row: &roll::Member| Some((row.id.clone(), row.seen_at?));
        let beats = ours.members.iter().filter_map(seen).collect();
        Ours { members, at: ours.at, duplicate: ours.duplicate.clone(), beats }
    }
}

/// Reads what a member says; of what cannot be read, nothing.
fn open(row: &roll::Member) -> set::Set {
    let set = set::decode(&row.said).unwrap_or_else(|error| {
        tracing::debug!(member = %row.id, %error, "what a member states cannot be read");
        set::Set::default()
    });
    if set.ignored > 0 {
        tracing::debug!(member = %row.id, records = set.ignored, "records cannot be read");
    }
    set
}

#[cfg(test)]
mod tests {
    use quorum::{Card, EndpointKey, Stated, Statement, Window};

    use super::*;

    fn card(standing: Standing) -> Card {
        Card { version: "1".to_owned(), config_hash: "h".to_owned(), standing, is_suspect: false }
    }

    fn window(seq: u64, fresh: bool) -> Stated {
        let window = Window { requests: seq as u32, ..Window::default() };
        Stated { seq, fresh, statement: Statement::Window(EndpointKey::new("chat/a"), window) }
    }

    fn row(said: Option<Arc<[u8]>>) -> roll::Member {
        roll::Member {
            id: NodeId::new("gw-2"),
            generation: 7,
            address: "10.0.0.2:80".to_owned(),
            is_live: true,
            pulse: 3,
            said: said.unwrap_or_default(),
            seen_at: None,
        }
    }

    #[test]
    fn what_one_node_states_another_hears() {
        let mut outward = Outward::default();
        let stated = vec![window(5, true)];
        let mine = Mine { card: Some(card(Standing::Serving)), stated: stated.clone(), pulse: 3 };
        let said = outward.write(&mine);
        let read = roll::Ours { members: vec![row(said.said)], at: 1, duplicate: None };
        let ours = Inward::default().read(&read);
        let member = &ours.members[0];
        assert_eq!((member.card.as_ref(), member.pulse), (mine.card.as_ref(), 3));
        assert_eq!(member.heard[0].statement, stated[0].statement);
        assert_eq!((member.heard[0].seq, member.address.as_str()), (5, "redis"));
    }

    #[test]
    fn others_are_told_at_once_of_news_only() {
        let mut outward = Outward::default();
        let mut news = |standing, stated| {
            let mine = Mine { card: Some(card(standing)), stated, pulse: 1 };
            outward.write(&mine).news
        };
        let serving = Standing::Serving;
        assert_eq!(news(serving, Vec::new()), 1, "the first card");
        assert_eq!(news(serving, vec![window(1, false)]), 1);
        assert_eq!(news(serving, vec![window(2, true)]), 2);
        assert_eq!(news(serving, vec![window(2, true)]), 2);
        assert_eq!(news(Standing::Draining, vec![window(2, true)]), 3);
    }

    #[test]
    fn a_member_whose_word_cannot_be_read_is_one_all_the_same() {
        let read = |said: &[u8]| {
            let members = vec![row(Some(said.into()))];
            Inward::default().read(&roll::Ours { members, at: 1, duplicate: None })
        };
        for said in [&b""[..], b"\xff\x00", b"\x01\x00\x09"] {
            let ours = read(said);
            let member = &ours.members[0];
            assert!(member.is_live && member.card.is_none() && member.heard.is_empty());
        }
    }
}

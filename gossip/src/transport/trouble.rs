//! Says in the log why a peer that this node has dialled cannot be talked to, and what cures it.
//!
//! Who sets up a fleet meets these troubles first, and a fleet that does not form looks as if it were well:
//! each node serves, alone. Only what this node dialled itself is told, since whoever reaches the
//! port can make a handshake fail, as often as he likes.
//!
//! Its own certificate is told of before it runs out: issued together, all of a fleet run out together,
//! and then each serves alone.
//!
//! # Invariants
//! - At most one line in [`SAID_EVERY`] about peers; one in [`OWN_SAID_EVERY`] about this node's own
//!   certificate and one more where that comes closer to its end, whatever happens.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use quinn::ConnectionError;
use rustls::pki_types::UnixTime;
use tokio::time::Instant;
use tracing::warn;

use super::locked;

/// Every round dials anew what did not answer; one line a minute is seen as well as sixty.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// A certificate is looked at every half minute; who has to renew it needs no more than this.
const OWN_SAID_EVERY: Duration = Duration::from_secs(6 * 60 * 60);

/// Long enough before the end for whoever has to ask for another one.
const RENEW_DAYS: u64 = 30;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Where the codes begin by which QUIC carries an alert of TLS (RFC 9001, 4.8).
const ALERTS: u64 = 0x100;

/// Why a connection is not in the table.
pub(super) enum Unlinked {
    /// The handshake failed.
    Handshake(ConnectionError),
    /// The peer's certificate names nobody.
    Nameless,
    /// It names this node.
    Namesake,
    /// The certificates have changed meanwhile, or there is no room.
    Superseded,
}

/// What has been told.
#[derive(Default)]
pub(super) struct Troubles {
    /// When the last line about a peer was written; a plain lock held for one comparison.
    said_at: Mutex<Option<Instant>>,
    /// The same about this node's own certificate, with what was said of it.
    own_said: Mutex<Option<(End, Instant)>>,
}

impl Troubles {
    /// Tells why the peer at `address`, which this node dialled, is not talked to.
    pub(super) fn tell(&self, address: SocketAddr, why: &Unlinked) {
        let Some(cure) = cure(why) else { return };
        if is_due(&self.said_at, SAID_EVERY, Instant::now()) {
            warn!(%address, "no gossip with this peer: {cure}");
        }
    }

    /// Tells that this node's certificate has run out or soon will, if it is good until then, in
    /// seconds since 1970.
    pub(super) fn tell_own(&self, good_until: Option<u64>) {
        let end = good_until.and_then(|until| End::of(until, UnixTime::now().as_secs()));
        let Some(end) = end else { return };
        if self.is_own_due(end, Instant::now()) {
            let end = end.words();
            warn!(
                "this node's certificate for gossip {end}; issue another: quorumgate certs issue NODE"
            );
        }
    }

    /// Whether it is to be said anew of the own certificate that its end is so near. What has just
    /// run out is not kept back because it was said before that it would.
    fn is_own_due(&self, end: End, now: Instant) -> bool {
        let mut said = locked(&self.own_said);
        let is_said =
            |(what, at): (End, Instant)| end.stage() == what.stage() && now < at + OWN_SAID_EVERY;
        let is_due = !said.is_some_and(is_said);
        if is_due {
            *said = Some((end, now));
        }
        is_due
    }
}

fn is_due(said_at: &Mutex<Option<Instant>>, every: Duration, now: Instant) -> bool {
    let mut said_at = locked(said_at);
    let is_due = said_at.is_none_or(|at| now >= at + every);
    if is_due {
        *said_at = Some(now);
    }
    is_due
}

/// How near a certificate's end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It comes within so many days.
    Days(u64),
    /// It comes within a day.
    Day,
    /// It has passed.
    Passed,
}

impl End {
    /// Both in seconds since 1970; `None` while it is far off.
    fn of(until: u64, now: u64) -> Option<Self> {
        match until.checked_sub(now) {
            None => Some(Self::Passed),
            Some(left) if left < DAY_SECONDS => Some(Self::Day),
            Some(left) if left < RENEW_DAYS * DAY_SECONDS => {
                Some(Self::Days(left / DAY_SECONDS + 1))
            }
            Some(_) => None,
        }
    }

    /// Grows where it becomes more urgent, and not from day to day.
    fn stage(self) -> u8 {
        match self {
            Self::Days(_) => 0,
            Self::Day => 1,
            Self::Passed => 2,
        }
    }

    /// Continues "the certificate …".
    fn words(self) -> String {
        match self {
            Self::Days(days) => format!("runs out within {days} days"),
            Self::Day => "runs out within a day".to_owned(),
            Self::Passed => "has run out".to_owned(),
        }
    }
}

/// What is wrong and what to do; `None` where it is nobody's fault, or plain silence: a member that
/// is down is told of as lost, and who hears nobody at all says so itself.
fn cure(why: &Unlinked) -> Option<String> {
    match why {
        Unlinked::Handshake(ConnectionError::TransportError(error)) => {
            alert("its", error.code.into())
        }
        Unlinked::Handshake(ConnectionError::ConnectionClosed(close)) => {
            alert("this node's", close.error_code.into())
        }
        Unlinked::Handshake(_) | Unlinked::Superseded => None,
        Unlinked::Nameless => Some("its certificate has no DNS name; issue another".to_owned()),
        Unlinked::Namesake => Some(
            "it has this node's own name; give that process another cluster.node_id and certificate, \
             unless it is this very node under another address"
                .to_owned(),
        ),
    }
}

/// What an alert of TLS means here (RFC 8446, 6.2) for whoever's certificate was looked at.
fn alert(whose: &str, code: u64) -> Option<String> {
    Some(match code.checked_sub(ALERTS)? {
        45 => format!(
            "{whose} certificate has run out or does not hold yet; issue another, or set the clock \
             that is wrong"
        ),
        // All CAs that we make have one name, so that a foreign one is found by its signature.
        42 | 46 | 48 | 51 => format!(
            "{whose} certificate is of another CA; all members need certificates of one CA in \
             cluster.tls"
        ),
        43 => {
            format!("{whose} certificate is not for both sides; it needs clientAuth and serverAuth")
        }
        116 => "it shows no certificate; does one side have cluster.tls.insecure?".to_owned(),
        120 => "it is of another fleet; cluster.id must be the same".to_owned(),
        number => format!("TLS alert {number}; compare cluster.tls of both"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_is_written() {
        let (troubles, begin) = (Troubles::default(), Instant::now());
        let at =
            |seconds| is_due(&troubles.said_at, SAID_EVERY, begin + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59, 60, 61, 120].map(at), [true, false, false, true, false, true]);
    }

    #[test]
    fn a_certificate_is_told_of_a_month_before_its_end_and_after_it() {
        let month = RENEW_DAYS * DAY_SECONDS;
        let told = |until, now| End::of(until, now).map(End::words);
        assert_eq!(told(month, 0), None);
        assert_eq!(told(month - 1, 0).unwrap(), "runs out within 30 days");
        assert_eq!(told(5, 5).unwrap(), "runs out within a day");
        assert_eq!(told(4, 5).unwrap(), "has run out");
    }

    #[test]
    fn that_a_certificate_has_run_out_is_said_at_once() {
        let (troubles, begin) = (Troubles::default(), Instant::now());
        let is_due =
            |end, minutes: u64| troubles.is_own_due(end, begin + Duration::from_secs(minutes * 60));
        assert!(is_due(End::Days(2), 0) && !is_due(End::Days(2), 359) && is_due(End::Days(2), 360));
        assert!(!is_due(End::Days(1), 361), "a day is no news");
        assert!(is_due(End::Day, 362) && is_due(End::Passed, 363));
        assert!(!is_due(End::Passed, 364) && is_due(End::Passed, 363 + 360));
        // Another one that is no better is told of as well.
        assert!(is_due(End::Day, 363 + 361));
    }

    #[test]
    fn an_alert_names_its_cure_and_whose_certificate_it_is_about() {
        let told = |whose, code| alert(whose, ALERTS + code).unwrap();
        assert!(told("its", 45).starts_with("its certificate has run out"));
        assert!(told("this node's", 48).starts_with("this node's certificate is of another CA"));
        assert!(told("its", 120).contains("cluster.id"));
        assert!(alert("its", 7).is_none(), "no alert of TLS");
    }
}

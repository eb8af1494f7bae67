//! What the carrier counts.
//!
//! Plain atomics that the metrics page reads: counting never takes a lock and never fails.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the start, and some gauges.
#[derive(Debug, Default)]
pub struct Stats {
    /// Rounds of gossip begun.
    pub rounds: AtomicU64,
    /// Frames taken in whole, before they were looked at.
    pub frames_in: AtomicU64,
    /// Frames written to a connection.
    pub frames_out: AtomicU64,
    /// Bytes of the frames taken in.
    pub bytes_in: AtomicU64,
    /// Bytes of the frames written.
    pub bytes_out: AtomicU64,
    /// Frames of news queued for members.
    pub pushes_out: AtomicU64,
    /// Frames of news taken from members.
    pub pushes_in: AtomicU64,
    /// Frames not sent: the queue was full or the peer out of reach. Gossip repairs what they held.
    pub send_queue_drops: AtomicU64,
    /// Handshakes that failed: another CA, no certificate, another fleet, another version, or no
    /// answer.
    pub handshakes_refused: AtomicU64,
    /// Statements of this node that are beyond the bounds and were not carried.
    pub unstated: AtomicU64,
    /// Open connections (a gauge).
    pub connections: AtomicU64,
    /// Lives of nodes that are told on, past ones too (a gauge). A node that is gone is told on for
    /// seven minutes and a half.
    pub lives: AtomicU64,
    /// The size of the digest of all lives (a gauge). At [`DIGEST_BYTES_MAX`](crate::DIGEST_BYTES_MAX) no further life is let
    /// in, and gossip that names one is refused.
    pub digest_bytes: AtomicU64,
    /// The last second, since 1970, in which the certificate is good that this node shows (a gauge);
    /// 0 without one.
    pub certificate_end: AtomicU64,
    /// How often the chitchat task ended and was started again.
    pub restarts: AtomicU64,
    /// How often another process was found under this node's name.
    pub duplicates: AtomicU64,
    rejects: [AtomicU64; Reject::ALL.len()],
}

/// Why a frame or a record was thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// It is larger than the limit, unpacks to more, or names too many nodes or keys.
    Oversize,
    /// It is not of the form.
    Undecodable,
    /// It speaks for somebody the sender is not, or for this very node.
    Identity,
    /// It belongs to another fleet.
    WrongCluster,
    /// It came faster than the sender may send or this node can take.
    Rate,
    /// It holds a number or an address that no honest node would state.
    Implausible,
    /// It has a format that this version does not know.
    UnknownFormat,
    /// It is not signed by the one it is said to be of, or that one's certificate is not good.
    Signature,
}

impl Reject {
    /// All reasons, in the order in which they are counted.
    pub const ALL: [Self; 8] = [
        Self::Oversize,
        Self::Undecodable,
        Self::Identity,
        Self::WrongCluster,
        Self::Rate,
        Self::Implausible,
        Self::UnknownFormat,
        Self::Signature,
    ];

    /// The word used in the metrics and the logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Oversize => "oversize",
            Self::Undecodable => "undecodable",
            Self::Identity => "identity",
            Self::WrongCluster => "wrong_cluster",
            Self::Rate => "rate",
            Self::Implausible => "implausible",
            Self::UnknownFormat => "unknown_format",
            Self::Signature => "signature",
        }
    }
}

impl Stats {
    /// How many frames and records were thrown away for this reason.
    pub fn rejects(&self, reason: Reject) -> u64 {
        self.rejects.get(reason as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Counts one thrown away.
    pub(crate) fn reject(&self, reason: Reject) {
        if let Some(count) = self.rejects.get(reason as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Adds to a counter. Counters are read alone, so no order between them is needed.
pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_apart() {
        let stats = Stats::default();
        for reason in Reject::ALL {
            stats.reject(reason);
        }
        stats.reject(Reject::Rate);
        for reason in Reject::ALL {
            let expected = if reason == Reject::Rate { 2 } else { 1 };
            assert_eq!(stats.rejects(reason), expected, "{}", reason.as_str());
        }
    }
}

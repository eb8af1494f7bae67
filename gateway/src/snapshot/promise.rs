//! What is promised of any bytes that lie where a snapshot should.

#![expect(clippy::unwrap_used, reason = "a promise that is broken stops loudly")]

use std::time::Duration;

use breaker::{Breaker, Rule};

use super::format::{checksum, decode, encode};

/// Where the checksum ends and what it sums begins.
const HEAD_BYTES: usize = 3 + 1 + 8;

/// What is read can be written, reads the same again, and makes a breaker that can be asked. The checksum
/// is put right before: it guards against disks, and whoever looks for bytes would never guess one.
pub(crate) fn keep(bytes: &[u8]) {
    let _ = decode(bytes);
    let Some((head, payload)) = bytes.split_at_checked(HEAD_BYTES) else { return };
    let head = head.get(..HEAD_BYTES - 8).unwrap_or_default();
    let whole = [head, &checksum(payload).to_le_bytes(), payload].concat();
    let Ok((wall, saved)) = decode(&whole) else { return };
    let written = encode(wall, &saved).unwrap();
    assert_eq!(decode(&written).unwrap(), (wall, saved.clone()));
    for one in saved {
        let now = Duration::from_secs(1);
        let mut breaker = Breaker::restore(Rule::default(), 7, &one.snapshot, now);
        let _ = breaker.tick(now);
        let view = breaker.view(now);
        assert!(view.successes <= view.requests, "{view:?}");
        assert!((0.0..=1.0).contains(&breaker.share(now)));
        let later = now + Duration::from_secs(2 * 24 * 60 * 60);
        let _ = breaker.tick(later);
        let _ = breaker.snapshot(later);
    }
}

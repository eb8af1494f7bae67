//! How a stream ends uncleanly, and one that is ended for a reason of this gateway's own.
//!
//! When a drain's time is over, what still flows ends as any broken stream does. It speaks against no
//! endpoint.

use breaker::Outcome;

use super::{End, Relay, Source, State};
use crate::clock;
use crate::proxy::Cut;

/// The error that ends a body uncleanly.
#[derive(Debug, thiserror::Error)]
#[error("the stream was interrupted")]
pub struct Interrupted;

impl<B: Source> Cut for Relay<B> {
    fn cut(&mut self) {
        if self.state == State::Flowing {
            self.tell_usage(End::Drained);
            if let Some(admission) = self.admission.take() {
                admission.settle(clock::now(), Outcome::Neutral);
            }
            self.report(End::Drained);
            self.break_off();
        }
    }
}

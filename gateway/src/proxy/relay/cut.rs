//! A stream that is ended for a reason of this gateway's own.
//!
//! When a drain's time is over, what still flows ends as any broken stream does. It speaks against no
//! endpoint.

use breaker::Outcome;

use super::{Relay, Source, State};
use crate::proxy::Cut;

impl<B: Source> Cut for Relay<B> {
    fn cut(&mut self) {
        if self.state == State::Flowing {
            self.settle(Outcome::Neutral);
            self.break_off();
        }
    }
}

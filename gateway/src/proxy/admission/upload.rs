//! How a body is read: bounded in size, in time and in what all of them hold, and mostly without a copy.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;

use crate::clock;
use crate::error::ApiError;
use crate::memory::{Loan, Memory, SMALL_BYTES_MAX};

/// A body must come at least at this pace on average, in bytes a second, once it has come for as long as
/// it may pause.
const PACE_MIN: u64 = 1024;
/// The same for one that is not small while more than half of the memory for bodies is lent: what is
/// scarce is not for who takes hours to use it.
const PACE_MIN_PRESSED: u64 = 64 * 1024;
/// What is taken at first for a body whose length is not stated.
const FIRST_BYTES: usize = 4 * 1024;

/// Reads the body, bounded in size, in the pause between its parts, by [`PACE_MIN`], and by what `memory`
/// lends.
///
/// # Errors
/// The refusal to answer with; `None` when the client went away in the middle.
pub(super) async fn read<B>(
    mut body: B,
    bytes_max: usize,
    idle: Duration,
    memory: &Memory,
) -> Result<Bytes, Option<ApiError>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Error + 'static,
{
    let too_large = || Some(ApiError::body_too_large(bytes_max));
    let size = body.size_hint();
    let most = match usize::try_from(size.lower()) {
        Ok(stated) if stated <= bytes_max => {
            // What cannot be held is refused before anything of it is read.
            if stated > 0 && !memory.has_room(stated) {
                return Err(Some(ApiError::overloaded()));
            }
            size.exact().map_or(bytes_max, |_| stated)
        }
        Ok(_) | Err(_) => return Err(too_large()),
    };
    let mut held = Held { first: Bytes::new(), whole: Vec::new(), loan: None, most };
    let started = clock::instant();
    loop {
        let bytes = held.bytes();
        let is_pressed = bytes > SMALL_BYTES_MAX && memory.is_pressed();
        let pace = if is_pressed { PACE_MIN_PRESSED } else { PACE_MIN };
        // By then what has come is too little for the time.
        let paced = started + idle.max(Duration::from_millis(bytes as u64 * 1_000 / pace));
        let deadline = paced.min(clock::instant() + idle);
        let frame = match tokio::time::timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(is_broken(&error).then(ApiError::broken_body)),
            Ok(None) => return Ok(held.finish()),
            Err(_) => {
                let status = hyper::StatusCode::REQUEST_TIMEOUT;
                let message = "The request body stopped arriving.";
                return Err(Some(ApiError::new(status, "request_timeout", message)));
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        if bytes + data.len() > bytes_max {
            return Err(too_large());
        }
        if !held.push(data, memory) {
            return Err(Some(ApiError::overloaded()));
        }
    }
}

/// What has come of a body.
struct Held {
    /// Most bodies come in one piece, which is then passed on without a copy.
    first: Bytes,
    /// The pieces of the others. It grows by doubling, and never beyond what may yet come: memory is not
    /// taken for what was only announced.
    whole: Vec<u8>,
    loan: Option<Loan>,
    /// The stated length, or else the longest that there may be.
    most: usize,
}

impl Held {
    fn bytes(&self) -> usize {
        if self.whole.is_empty() { self.first.len() } else { self.whole.len() }
    }

    /// Takes another piece. Returns whether memory was lent for it.
    fn push(&mut self, data: Bytes, memory: &Memory) -> bool {
        let Some(loan) = &mut self.loan else {
            self.loan = memory.lend(data.len());
            self.first = data;
            return self.loan.is_some();
        };
        let needed = self.first.len() + self.whole.len() + data.len();
        if needed > self.whole.capacity() {
            let least = if self.whole.capacity() == 0 { FIRST_BYTES } else { 0 };
            let room = (self.whole.capacity() * 2).max(least).min(self.most).max(needed);
            if !memory.grow(loan, room) {
                return false;
            }
            // While it moves, both places are there; only one body of a worker moves at a time.
            self.whole.reserve_exact(room - self.whole.len());
        }
        self.whole.extend_from_slice(&std::mem::take(&mut self.first));
        self.whole.extend_from_slice(&data);
        true
    }

    fn finish(self) -> Bytes {
        match self.loan {
            None => self.first,
            Some(loan) if self.whole.is_empty() => loan.keep(self.first),
            Some(loan) => loan.keep(self.whole),
        }
    }
}

/// Whether a body ended since its framing makes no sense, and not since its client left.
fn is_broken(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
            );
        }
        cause = error.source();
    }
    false
}

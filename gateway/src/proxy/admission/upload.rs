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

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::{Frame, SizeHint};
    use tokio::time::{Sleep, sleep};

    use super::*;
    use crate::metrics::Meters;

    const MEBIBYTE: usize = 1 << 20;
    const IDLE: Duration = Duration::from_secs(10);

    /// A body that comes in pieces, each after a pause.
    struct Pieces {
        sizes: Vec<usize>,
        pause: Duration,
        stated: Option<u64>,
        sleep: Pin<Box<Sleep>>,
    }

    impl Pieces {
        /// Pieces of these sizes, with the length stated or not.
        fn new(sizes: &[usize], pause: Duration, is_stated: bool) -> Self {
            let stated = is_stated.then(|| sizes.iter().sum::<usize>() as u64);
            Self { sizes: sizes.to_vec(), pause, stated, sleep: Box::pin(sleep(pause)) }
        }
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            if self.sizes.is_empty() {
                return Poll::Ready(None);
            }
            std::task::ready!(self.sleep.as_mut().poll(context));
            let next = clock::instant() + self.pause;
            self.sleep.as_mut().reset(next);
            let piece = vec![b'x'; self.sizes.remove(0)];
            Poll::Ready(Some(Ok(Frame::data(piece.into()))))
        }

        fn size_hint(&self) -> SizeHint {
            self.stated.map_or_else(SizeHint::default, SizeHint::with_exact)
        }
    }

    fn memory(bytes: usize) -> Memory {
        Memory::new(bytes, &Meters::new())
    }

    async fn code(body: Pieces, memory: &Memory) -> &'static str {
        match read(body, 4 * MEBIBYTE, IDLE, memory).await {
            Ok(_) => "",
            Err(error) => error.unwrap().code,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_takes_its_length_and_gives_it_back_with_its_last_reference() {
        let memory = memory(16 * MEBIBYTE);
        for (sizes, is_stated) in [
            (vec![100], true),
            (vec![100], false),
            (vec![1, 99, 3 * 65_536, 7], true),
            (vec![65_536; 32], true),
        ] {
            let body = Pieces::new(&sizes, Duration::ZERO, is_stated);
            let whole = read(body, 4 * MEBIBYTE, IDLE, &memory).await.unwrap();
            let length: usize = sizes.iter().sum();
            assert_eq!((whole.len(), memory.lent_bytes()), (length, length), "{sizes:?}");
            assert!(whole.iter().all(|byte| *byte == b'x'));
            drop(whole);
            assert_eq!(memory.lent_bytes(), 0);
        }
        // Who does not state it is lent at most twice that, and never more than a body may be.
        for count in [2, 16, 33, 63, 64] {
            let body = Pieces::new(&vec![65_536; count], Duration::ZERO, false);
            let whole = read(body, 4 * MEBIBYTE, IDLE, &memory).await.unwrap();
            let lent = whole.len()..=(whole.len() * 2).min(4 * MEBIBYTE);
            assert!(lent.contains(&memory.lent_bytes()), "{count}: {}", memory.lent_bytes());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_held_is_refused_before_it_is_read_or_as_soon_as_it_shows() {
        let memory = memory(8 * MEBIBYTE);
        let others = memory.lend(6 * MEBIBYTE).unwrap();
        let two = vec![65_536; 32];
        let began = clock::instant();
        assert_eq!(
            code(Pieces::new(&two, Duration::from_secs(1), true), &memory).await,
            "overloaded"
        );
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(code(Pieces::new(&two, Duration::ZERO, false), &memory).await, "overloaded");
        assert_eq!(code(Pieces::new(&[MEBIBYTE], Duration::ZERO, true), &memory).await, "");
        assert_eq!(memory.lent_bytes(), others.bytes());
    }

    #[tokio::test(start_paused = true)]
    async fn while_memory_is_scarce_who_is_slow_and_not_small_is_let_go() {
        let memory = memory(16 * MEBIBYTE);
        let slow = || Pieces::new(&[16_384; 64], Duration::from_secs(2), true);
        assert_eq!(code(slow(), &memory).await, "", "8 KiB/s are enough in quiet times");
        let others = memory.lend(9 * MEBIBYTE).unwrap();
        let began = clock::instant();
        assert_eq!(code(slow(), &memory).await, "request_timeout");
        assert!(began.elapsed() <= IDLE * 2, "{:?}", began.elapsed());
        let small = Pieces::new(&[2_048; 32], Duration::from_secs(1), true);
        assert_eq!(code(small, &memory).await, "", "what is small takes little");
        assert_eq!(memory.lent_bytes(), others.bytes());
    }
}

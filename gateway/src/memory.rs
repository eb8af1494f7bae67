//! How much memory bodies may take that are held: one account for the whole process.
//!
//! A request's body is held until an endpoint has begun to answer, since until then it may have to be
//! sent to another; an answer in one piece is held until it was looked at and taken. Each of them is
//! bounded; a crowd of them is bounded here. Memory is lent as it is really filled and not as a client
//! says that it will be: to state ten megabytes costs a client nothing, to send them costs as much as to
//! hold them. The loan travels with the bytes, and ends when the last reference to them is gone.
//!
//! The last eighth is lent to small bodies only. They are what nearly everybody sends, and together they
//! take little: a few giants that fill the house keep out giants, and a chat still passes. Turned round,
//! small bodies may take everything, since whoever is refused has to come again, which costs the less the
//! smaller it is.
//!
//! Invariants: no more is lent than the limit that held when it was asked for; what is lent comes back
//! exactly once; taking and giving back is one atomic operation each, of no order with anything else.

mod machine;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use metrics::Counter;

use crate::metrics::Meters;

pub use self::machine::default_bytes;

/// A body of at most this size is small: nearly every chat without pictures is.
pub const SMALL_BYTES_MAX: usize = 64 * 1024;
/// This part of the memory is lent to small bodies only.
const PART_FOR_SMALL: usize = 8;

/// The memory for the bodies of one gateway.
#[derive(Clone)]
pub struct Memory {
    /// What is lent, in bytes. Relaxed: the number orders nothing but itself.
    lent: Arc<AtomicUsize>,
    /// Most of it, in bytes.
    bytes_max: usize,
    /// How often it was not enough.
    full: Counter,
}

impl Memory {
    /// At most `bytes_max` of memory, told in `meters` as whoever asks in vain is.
    pub fn new(bytes_max: usize, meters: &Meters) -> Self {
        let full = meters.counter("body_memory_full_total", &[]);
        let memory = Self { lent: Arc::default(), bytes_max, full };
        memory.tell(meters);
        memory
    }

    /// Tells the limit in `meters`.
    pub fn tell(&self, meters: &Meters) {
        meters.keep("body_memory_max_bytes", self.bytes_max as f64);
    }

    /// The same account under another limit; what is lent stays lent, be it more than that.
    #[must_use]
    pub fn heir(&self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self.clone() }
    }

    /// Lends memory for a body of `bytes`. `None`: there is not enough.
    pub fn lend(&self, bytes: usize) -> Option<Loan> {
        let mut loan = Loan { lent: Arc::clone(&self.lent), bytes: 0 };
        self.grow(&mut loan, bytes).then_some(loan)
    }

    /// Makes a loan one of `bytes` in all, if it is less. Returns whether there was enough; if not, the
    /// loan is what it was.
    pub fn grow(&self, loan: &mut Loan, bytes: usize) -> bool {
        let more = bytes.saturating_sub(loan.bytes);
        let most = self.most_for(bytes);
        let taken = |lent: usize| lent.checked_add(more).filter(|all| *all <= most);
        let is_lent = self.lent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok();
        if is_lent {
            loan.bytes += more;
        } else {
            self.full.increment(1);
        }
        is_lent
    }

    /// Lends for what comes of a body that is small until it is more, in steps that double. Returns whether
    /// there was enough; if not, the loan is what it was.
    pub fn cover(&self, loan: &mut Option<Loan>, bytes: usize) -> bool {
        match loan {
            None if bytes <= SMALL_BYTES_MAX => true,
            None => {
                *loan = self.lend(bytes);
                loan.is_some()
            }
            Some(loan) if bytes <= loan.bytes => true,
            Some(loan) => self.grow(loan, bytes.max(loan.bytes * 2)),
        }
    }

    /// Whether a body of `bytes` could be held at this moment. Whoever asks in vain is counted.
    pub fn has_room(&self, bytes: usize) -> bool {
        let has_room = self.lent_bytes().saturating_add(bytes) <= self.most_for(bytes);
        self.full.increment(u64::from(!has_room));
        has_room
    }

    /// Whether more than half is lent.
    pub fn is_pressed(&self) -> bool {
        self.lent_bytes() > self.bytes_max / 2
    }

    /// What is lent, in bytes.
    pub fn lent_bytes(&self) -> usize {
        self.lent.load(Ordering::Relaxed)
    }

    /// The limit, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Up to where a body of this size may fill the memory.
    fn most_for(&self, bytes: usize) -> usize {
        let kept = if bytes <= SMALL_BYTES_MAX { 0 } else { self.bytes_max / PART_FOR_SMALL };
        self.bytes_max - kept
    }
}

/// Memory that is lent; dropped, it is given back.
#[derive(Debug)]
#[must_use = "dropped, the memory is given back"]
pub struct Loan {
    lent: Arc<AtomicUsize>,
    bytes: usize,
}

impl Loan {
    /// How much it is, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The same bytes, which give the memory back when the last reference to them is gone.
    pub fn keep(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Kept { bytes, _loan: self })
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.lent.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes with the loan that they are held by.
struct Kept<T> {
    bytes: T,
    _loan: Loan,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Kept<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: usize = 1 << 20;

    fn memory(bytes_max: usize) -> Memory {
        Memory::new(bytes_max, &Meters::new())
    }

    #[test]
    fn what_is_lent_comes_back_with_the_last_reference_to_the_bytes() {
        let memory = memory(8 * MEBIBYTE);
        let loan = memory.lend(MEBIBYTE).unwrap();
        let bytes = loan.keep(vec![b'x'; MEBIBYTE]);
        let part = bytes.slice(5..6);
        drop(bytes);
        assert_eq!(memory.lent_bytes(), MEBIBYTE);
        drop(part);
        assert_eq!(memory.lent_bytes(), 0);
    }

    #[test]
    fn giants_leave_the_last_eighth_to_small_ones_and_small_ones_may_have_everything() {
        let memory = memory(8 * MEBIBYTE);
        let giants: Vec<_> = std::iter::from_fn(|| memory.lend(MEBIBYTE)).collect();
        assert_eq!(giants.len(), 7);
        assert!(!memory.has_room(SMALL_BYTES_MAX + 1) && memory.has_room(SMALL_BYTES_MAX));
        let small: Vec<_> = std::iter::from_fn(|| memory.lend(SMALL_BYTES_MAX)).collect();
        assert_eq!(small.len(), MEBIBYTE / SMALL_BYTES_MAX);
        assert_eq!(memory.lent_bytes(), 8 * MEBIBYTE);
        drop(giants);
        let small: Vec<_> = std::iter::from_fn(|| memory.lend(SMALL_BYTES_MAX)).collect();
        assert_eq!(small.len(), 7 * MEBIBYTE / SMALL_BYTES_MAX);
    }

    #[test]
    fn a_loan_that_cannot_grow_stays_what_it_was() {
        let memory = memory(8 * MEBIBYTE);
        let mut loan = memory.lend(1).unwrap();
        assert!(memory.grow(&mut loan, 6 * MEBIBYTE) && memory.grow(&mut loan, 7));
        assert_eq!((loan.bytes(), memory.lent_bytes()), (6 * MEBIBYTE, 6 * MEBIBYTE));
        assert!(!memory.grow(&mut loan, 7 * MEBIBYTE + 1) && !memory.grow(&mut loan, usize::MAX));
        assert_eq!((loan.bytes(), memory.lent_bytes()), (6 * MEBIBYTE, 6 * MEBIBYTE));
        drop(loan);
        assert_eq!(memory.lent_bytes(), 0);
    }

    #[test]
    fn what_grows_is_lent_for_once_it_is_not_small() {
        let (memory, mut loan) = (memory(8 * MEBIBYTE), None);
        assert!(memory.cover(&mut loan, SMALL_BYTES_MAX) && loan.is_none());
        for bytes in (SMALL_BYTES_MAX..=MEBIBYTE).step_by(4_096) {
            assert!(memory.cover(&mut loan, bytes));
            assert!(bytes <= SMALL_BYTES_MAX || (bytes..=bytes * 2).contains(&memory.lent_bytes()));
        }
        assert!(!memory.cover(&mut loan, 7 * MEBIBYTE + 1));
        assert!(loan.unwrap().bytes() >= MEBIBYTE);
    }

    #[test]
    fn another_limit_goes_on_with_what_is_lent() {
        let before = memory(8 * MEBIBYTE);
        let loan = before.lend(6 * MEBIBYTE).unwrap();
        let after = before.heir(4 * MEBIBYTE);
        assert!(after.is_pressed() && after.lend(1).is_none());
        drop(loan);
        assert!(!after.is_pressed() && after.lend(1).is_some());
    }

    #[test]
    fn many_threads_never_take_more_than_there_is() {
        let memory = memory(MEBIBYTE);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let loan = memory.lend(300 * 1024);
                        assert!(memory.lent_bytes() <= MEBIBYTE);
                        drop(loan);
                    }
                });
            }
        });
        assert_eq!(memory.lent_bytes(), 0);
    }
}

//! The page of metrics at a bounded price, whoever asks for it and however often.
//!
//! To write the page takes time that grows with the fleet. Strangers may ask for it, so that it is
//! written one at a time, and in the long run a tenth of one core at most goes into it. Half a second of
//! writing is there to begin with and comes back with time, so that whoever asks now and then, a few
//! times in a row too, gets a page of the moment; whoever asks without end gets the last one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

/// What was written is paid for after so many times what it took.
const REST: u32 = 10;
/// So much may be unpaid when a page is written: ten times half a second.
const CREDIT: Duration = Duration::from_secs(5);

/// The last page of metrics.
#[derive(Default)]
pub(super) struct Scrape {
    last: Mutex<Option<Page>>,
    is_written: AtomicBool,
}

#[derive(Clone)]
struct Page {
    text: Bytes,
    /// When all that was written so far is paid for.
    paid: Duration,
}

impl Page {
    /// Whether it is good enough: too much is unpaid for another.
    fn is_good(&self, now: Duration) -> bool {
        self.paid > now + CREDIT
    }
}

/// That the page is being written, for as long as it is, however that ends.
struct Writing<'a>(&'a AtomicBool);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Scrape {
    /// The last page, if it is good enough at `now` or another is being written.
    pub(super) fn last(&self, now: Duration) -> Option<Bytes> {
        let is_written = self.is_written.load(Ordering::Acquire);
        self.lock()
            .as_ref()
            .filter(|page| is_written || page.is_good(now))
            .map(|page| page.text.clone())
    }

    /// The page: the last one as long as it is good enough or another is being written, else a new one.
    /// `clock` tells the time, `write` writes.
    pub(super) fn page(
        &self,
        clock: impl Fn() -> Duration,
        write: impl FnOnce() -> String,
    ) -> Bytes {
        let began = clock();
        let last = self.lock().clone();
        if let Some(page) = &last
            && page.is_good(began)
        {
            return page.text.clone();
        }
        let is_mine = !self.is_written.swap(true, Ordering::AcqRel);
        // Only at the very beginning are two written at once: there is no last one to give.
        if let (Some(page), false) = (&last, is_mine) {
            return page.text.clone();
        }
        let writing = Writing(&self.is_written);
        let text = Bytes::from(write());
        let (ended, page) = (clock(), text.clone());
        let owed = last.map_or(began, |page| page.paid.max(began));
        let paid = owed + ended.saturating_sub(began) * REST;
        *self.lock() = Some(Page { text, paid });
        drop(writing);
        page
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Page>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn m16_a_tenth_of_the_time_at_most_goes_into_the_page() {
        let (scrape, time, written) = (Scrape::default(), Cell::new(0_u64), Cell::new(0_u32));
        // A scrape each millisecond; to write the page takes five.
        for _ in 0..100_000 {
            time.set(time.get() + 1);
            scrape.page(
                || Duration::from_millis(time.get()),
                || {
                    time.set(time.get() + 5);
                    written.set(written.get() + 1);
                    String::new()
                },
            );
        }
        let (spent, passed) = (f64::from(written.get() * 5), time.get() as f64);
        // Half a second is there to begin with, and one page goes beyond it.
        assert!(spent <= passed / 10.0 + 505.0, "{spent} of {passed} ms");
        assert!(spent >= passed / 11.0, "{spent} of {passed} ms");
    }

    #[test]
    fn a_few_in_a_row_are_all_of_the_moment() {
        let (scrape, time) = (Scrape::default(), Cell::new(0_u64));
        for number in 0..10_u64 {
            let page = scrape.page(
                || Duration::from_millis(time.get()),
                || {
                    time.set(time.get() + 40);
                    number.to_string()
                },
            );
            assert_eq!(page, number.to_string());
        }
    }

    #[test]
    fn who_asks_now_and_then_gets_a_page_of_the_moment() {
        let scrape = Scrape::default();
        for moment in 0..10_u64 {
            let clock = || Duration::from_secs(moment);
            assert_eq!(scrape.page(clock, || moment.to_string()), moment.to_string());
        }
    }
}

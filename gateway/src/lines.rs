//! The log's way out: who logs puts a line in a queue, and one thread of its own writes it.
//!
//! A log that is written where it is said is written by those who serve: a reader that stalls would
//! stall them, and one that is gone would end them. Here nobody waits for the reader. Lines for which
//! there is no room, or that nobody took, are dropped and counted. The usual crate for this,
//! `tracing-appender`, bounds lines and not bytes, passes over what could not be written without
//! counting it, and tells of a flush in vain on the very stream that is stuck.
//!
//! Invariants: at most `BYTES_MAX` wait and as many are being written; lines are whole and in order.

use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use metrics::Counter;

/// Most bytes that wait: some ten thousand lines of requests.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long the end of the process waits for a reader.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// Lines gather for this long before they are written: a thread that were woken for each line would cost a
/// busy worker on its core two changes of context a request.
const GATHER: Duration = Duration::from_millis(5);
/// A stream that is full and does not block is tried again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The queue and its thread; dropped, it waits for what was said before, for a second at most.
pub struct Lines(Arc<Shared>);

/// Where lines are put, each by one `write`; it never fails and never waits for a reader.
#[derive(Clone)]
pub struct Writer(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The lock is held for one copy and never while anything is written.
    queue: Mutex<Queue>,
    /// There is something to write, or it is over.
    news: Condvar,
    /// All is written.
    rest: Condvar,
    /// Who else is told of lost lines.
    meter: OnceLock<Counter>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<u8>,
    is_writing: bool,
    is_over: bool,
    lost: u64,
}

impl Lines {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || own.run(out))?;
        Ok(Self(shared))
    }

    /// Where to put lines.
    pub fn writer(&self) -> Writer {
        Writer(Arc::clone(&self.0))
    }

    /// Counts lost lines by `meter`, those lost before too.
    pub fn count(&self, meter: Counter) {
        meter.absolute(self.0.lock().lost);
        let _ = self.0.meter.set(meter);
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_over = true;
        self.0.news.notify_all();
        let is_busy = |queue: &mut Queue| queue.is_writing || !queue.waiting.is_empty();
        drop(self.0.rest.wait_timeout_while(queue, FLUSH_MAX, is_busy));
    }
}

impl Write for Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn put(&self, line: &[u8]) {
        let mut queue = self.lock();
        if queue.waiting.len() + line.len() > BYTES_MAX {
            return self.lose(queue, 1);
        }
        let was_empty = queue.waiting.is_empty();
        queue.waiting.extend_from_slice(line);
        drop(queue);
        if was_empty {
            self.news.notify_one();
        }
    }

    fn lose(&self, mut queue: MutexGuard<'_, Queue>, lines: u64) {
        queue.lost += lines;
        let lost = queue.lost;
        drop(queue);
        if let Some(meter) = self.meter.get() {
            meter.absolute(lost);
        }
    }

    fn run(&self, mut out: impl Write) {
        let mut batch = Vec::new();
        while self.take(&mut batch) {
            let rest = write(&mut out, &batch);
            let lines = rest.iter().filter(|byte| **byte == b'\n').count();
            if lines > 0 {
                self.lose(self.lock(), lines as u64);
            }
        }
    }

    /// Waits for lines and takes all that wait. Returns whether there are any: without, it is over.
    fn take(&self, batch: &mut Vec<u8>) -> bool {
        batch.clear();
        let mut queue = self.lock();
        queue.is_writing = false;
        if queue.waiting.is_empty() {
            self.rest.notify_all();
        }
        let is_idle = |queue: &mut Queue| queue.waiting.is_empty() && !queue.is_over;
        let queue = self.news.wait_while(queue, is_idle).unwrap_or_else(PoisonError::into_inner);
        let is_on = |queue: &mut Queue| !queue.is_over;
        let gathered = self.news.wait_timeout_while(queue, GATHER, is_on);
        let (mut queue, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut queue.waiting, batch);
        queue.is_writing = !batch.is_empty();
        queue.is_writing
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes all of `batch`, however long it takes. Returns what cannot be written.
fn write<'b>(out: &mut impl Write, batch: &'b [u8]) -> &'b [u8] {
    let mut rest = batch;
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(0) => break,
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Whoever shares the stream with us may have made it so.
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(AGAIN_AFTER),
            Err(_) => break,
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;
    use crate::metrics::Meters;

    /// Shows each piece that is written, and waits until somebody takes it.
    struct Slow(SyncSender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let closed = |_| io::Error::from(ErrorKind::BrokenPipe);
            self.0.send(bytes.to_vec()).map(|()| bytes.len()).map_err(closed)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (Lines, Receiver<Vec<u8>>) {
        let (taken, pieces) = sync_channel(0);
        (Lines::start(Slow(taken)).unwrap(), pieces)
    }

    fn lost(meters: &Meters) -> String {
        let text = meters.render();
        let line = text.lines().find(|line| line.starts_with("quorumgate_log_lines_lost_total"));
        line.unwrap().rsplit(' ').next().unwrap().to_owned()
    }

    #[test]
    fn lines_come_out_whole_and_in_order() {
        let (lines, pieces) = slow();
        let mut expected = Vec::new();
        for number in 0..1_000 {
            let line = format!("line {number}\n").into_bytes();
            lines.writer().write_all(&line).unwrap();
            expected.extend(line);
        }
        let reader = std::thread::spawn(move || pieces.into_iter().flatten().collect::<Vec<u8>>());
        drop(lines);
        assert_eq!(reader.join().unwrap(), expected);
    }

    #[test]
    fn where_nobody_reads_lines_are_dropped_and_counted_and_nobody_waits() {
        let ((lines, pieces), meters) = (slow(), Meters::new());
        let line = [b'x'; 1_024];
        for _ in 0..3 * BYTES_MAX / line.len() {
            lines.writer().write_all(&line).unwrap();
        }
        // One batch is stuck on its way out, one waits; more there is no room for.
        assert!(lines.0.lock().waiting.len() <= BYTES_MAX);
        lines.count(meters.counter("log_lines_lost_total", &[]));
        let before: usize = lost(&meters).parse().unwrap();
        assert!((4_096..=8_192).contains(&before), "{before}");
        lines.writer().write_all(&line).unwrap();
        assert_eq!(lost(&meters), (before + 1).to_string());
        drop(pieces);
    }

    #[test]
    fn what_nobody_takes_any_more_is_counted_and_the_next_line_is_tried() {
        let ((lines, pieces), meters) = (slow(), Meters::new());
        lines.count(meters.counter("log_lines_lost_total", &[]));
        drop(pieces);
        for _ in 0..3 {
            lines.writer().write_all(b"one\ntwo\n").unwrap();
        }
        drop(lines);
        assert_eq!(lost(&meters), "6");
    }
}

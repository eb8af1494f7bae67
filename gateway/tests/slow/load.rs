//! Good clients that ask at a steady rate, whatever becomes of the answers, and how long those take.
//!
//! Each client is a thread with one connection, so that nothing of what else a test does on its own
//! runtime is measured. A request is due at a moment that was fixed before, and its time counts from
//! there: what waits behind a late answer is late as well.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::process::chat_body;

/// Clients, each with a connection that it keeps.
const CLIENTS: u32 = 4;
/// How often all of them together ask: 400 times a second.
const EVERY: Duration = Duration::from_micros(2_500);
/// No answer takes longer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// When a request was due, and how long its answer took from then on.
type Taken = (Instant, Duration);

/// The clients.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Result<Vec<Taken>, String>>>,
}

/// What they have met.
pub(crate) struct Record(Vec<Taken>);

impl Load {
    /// Begins to ask.
    pub(crate) fn on(gateway: SocketAddr) -> Self {
        let (is_over, began) = (Arc::<AtomicBool>::default(), Instant::now());
        let client = |number| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || ask(gateway, began + EVERY * number, &is_over))
        };
        Self { clients: (0..CLIENTS).map(client).collect(), is_over }
    }

    /// Stops asking. Every answer was good, or the test ends here.
    pub(crate) fn stop(self) -> Record {
        self.is_over.store(true, Ordering::Relaxed);
        let met = self.clients.into_iter().map(|client| client.join().unwrap().unwrap());
        Record(met.flatten().collect())
    }
}

fn ask(gateway: SocketAddr, first: Instant, is_over: &AtomicBool) -> Result<Vec<Taken>, String> {
    let told = |error: std::io::Error| format!("a good client: {error}");
    let mut stream = TcpStream::connect(gateway).map_err(told)?;
    stream.set_nodelay(true).map_err(told)?;
    stream.set_read_timeout(Some(ANSWER_MAX)).map_err(told)?;
    let body = chat_body(false);
    let length = body.len();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length";
    let question = format!("{head}: {length}\r\n\r\n{body}");
    let (mut taken, mut due) = (Vec::new(), first);
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        stream.write_all(question.as_bytes()).map_err(told)?;
        let mut said = Vec::new();
        while !said.ends_with(b"\"}}]}") {
            let mut piece = [0; 4096];
            let length = stream.read(&mut piece).map_err(told)?;
            if length == 0 {
                return Err(format!("a good client: ended at {}", said.escape_ascii()));
            }
            said.extend_from_slice(&piece[..length]);
        }
        if !said.starts_with(b"HTTP/1.1 200 ") {
            return Err(format!("a good client: {}", said.escape_ascii()));
        }
        taken.push((due, due.elapsed()));
        due += EVERY * CLIENTS;
    }
    Ok(taken)
}

impl Record {
    /// How many answers there were in this time, and what 50 and 99 % of them stayed within.
    pub(crate) fn within(&self, from: Instant, to: Instant) -> (usize, Duration, Duration) {
        let within = self.0.iter().filter(|(due, _)| (from..to).contains(due));
        let mut taken: Vec<_> = within.map(|(_, taken)| *taken).collect();
        taken.sort_unstable();
        let share = |percent: usize| taken[(taken.len() * percent / 100).min(taken.len() - 1)];
        (taken.len(), share(50), share(99))
    }
}

//! Clients that ask at a fixed rate whatever becomes of their questions, and how long each took.
//!
//! The load is open: a gateway that stalls is asked all the same, so that every question that comes
//! meanwhile shows the stall. It has a thread and bare sockets of its own: what is measured is the
//! gateway, and as little else as may be.
//!
//! Invariants: each question has a connection to itself while it lasts; an answer that does not come,
//! or is not `200`, is a failure; how long an answer took is counted from its sending.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};

use crate::process::{CHAT, chat_body};

/// No answer takes longer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A connection that was idle for longer is not used again: the gateway may be closing it.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// What became of one question.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// When it was sent.
    pub(crate) at: Instant,
    /// How long the answer took.
    pub(crate) took: Duration,
    /// Why it was not good.
    pub(crate) failure: Option<String>,
}

/// Clients that ask until they are stopped.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Load {
    /// Begins to ask these nodes in turn, once every `pace` for all of them together, for these models
    /// in turn.
    pub(crate) fn on(nodes: Vec<SocketAddr>, models: &[&str], pace: Duration) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let question = |model: &&str| chat_body(false).replace("\"m\"", &format!("\"{model}\""));
        let bodies: Vec<String> = models.iter().map(question).collect();
        let stop = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(ask_on(nodes, bodies, pace, stop))
        });
        Self { is_over, thread }
    }

    /// Stops asking, waits for what was asked, and tells all of it in the order of sending.
    pub(crate) fn stop(self) -> Vec<Sample> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut samples = self.thread.join().unwrap();
        samples.sort_by_key(|sample| sample.at);
        samples
    }
}

/// The connections to one node that are idle.
type Idle = Arc<Mutex<Vec<(Instant, TcpStream)>>>;

async fn ask_on(
    nodes: Vec<SocketAddr>,
    bodies: Vec<String>,
    pace: Duration,
    is_over: Arc<AtomicBool>,
) -> Vec<Sample> {
    let nodes: Vec<(SocketAddr, Idle)> =
        nodes.into_iter().map(|to| (to, Idle::default())).collect();
    let bodies: Vec<Arc<str>> = bodies.into_iter().map(Arc::from).collect();
    let (done, mut samples) = mpsc::unbounded_channel();
    let began = Instant::now();
    let mut asked: u32 = 0;
    while !is_over.load(Ordering::Relaxed) {
        // Whatever is due by now, so that a timer that wakes late changes no rate.
        while began + pace * asked <= Instant::now() {
            let (to, idle) = &nodes[asked as usize % nodes.len()];
            let body = Arc::clone(&bodies[asked as usize % bodies.len()]);
            let (to, idle, done) = (*to, Arc::clone(idle), done.clone());
            tokio::spawn(async move {
                let at = Instant::now();
                let asked = tokio::time::timeout(ANSWER_MAX, ask(to, &idle, &body)).await;
                let failure = asked.unwrap_or_else(|_| Err("no answer".to_owned())).err();
                let failure = failure.map(|failure| format!("{to}: {failure}"));
                let _ = done.send(Sample { at, took: at.elapsed(), failure });
            });
            asked += 1;
        }
        tokio::time::sleep_until((began + pace * asked).into()).await;
    }
    drop(done);
    let mut all = Vec::new();
    while let Some(sample) = samples.recv().await {
        all.push(sample);
    }
    all
}

async fn ask(to: SocketAddr, idle: &Idle, body: &str) -> Result<(), String> {
    let kept = idle.lock().await.pop();
    let mut stream = match kept {
        Some((since, stream)) if since.elapsed() < IDLE_MAX => stream,
        Some(_) | None => TcpStream::connect(to).await.map_err(|error| error.to_string())?,
    };
    let length = body.len();
    let question = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: {to}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(question.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    while !is_whole(&answer) {
        let read = stream.read_buf(&mut answer).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err(format!("cut after {:?}", String::from_utf8_lossy(&answer)));
        }
    }
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        return Err(String::from_utf8_lossy(&answer).into_owned());
    }
    idle.lock().await.push((Instant::now(), stream));
    Ok(())
}

/// Whether an answer with a stated length has come whole.
fn is_whole(answer: &[u8]) -> bool {
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let text = String::from_utf8_lossy(&answer[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    answer.len() == head + 4 + length.trim().parse::<usize>().unwrap()
}

/// What did not go well, at most a few of them in full.
pub(crate) fn failures(samples: &[Sample]) -> (usize, Vec<&str>) {
    let all = samples.iter().filter_map(|sample| sample.failure.as_deref());
    (all.clone().count(), all.take(3).collect())
}

/// The 99th percentile of how long answers took.
pub(crate) fn p99<'a>(samples: impl Iterator<Item = &'a Sample>) -> Duration {
    let mut took: Vec<Duration> = samples.map(|sample| sample.took).collect();
    took.sort_unstable();
    took[(took.len() * 99).div_ceil(100) - 1]
}

//! A server that misbehaves as told, and a way to a real one that can be blocked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How a fake server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Every script returns 1.
    Good,
    /// Every answer takes so long.
    Slow(Duration),
    /// Everything but `HELLO` is answered with this error line, without the minus sign.
    Fails(&'static str),
    /// Scripts are answered with this error line, without the minus sign.
    FailsScripts(&'static str),
    /// Connections are taken, and nothing is ever answered.
    Silent,
    /// Connections are closed at once, those that are open too.
    Closed,
}

/// A server without data.
pub struct Fake {
    pub port: u16,
    mood: watch::Sender<Mood>,
    /// Connections that were ever taken.
    pub taken: Arc<AtomicUsize>,
    /// Scripts that were ever asked for.
    pub scripts: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Fake {
    pub async fn start(mood: Mood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mood, moods) = watch::channel(mood);
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&taken);
        let scripts = Arc::new(AtomicUsize::new(0));
        let heard = Arc::clone(&scripts);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, moods.clone(), Arc::clone(&heard)));
            }
        });
        Self { port, mood, taken, scripts, task }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn is(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, mut moods: watch::Receiver<Mood>, scripts: Arc<AtomicUsize>) {
    // As a real server has it, or an answer waits for the acknowledgement of the one before.
    stream.set_nodelay(true).unwrap();
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading);
    let mut closing = moods.clone();
    let answering = async {
        while let Some(words) = read(&mut reading).await {
            let mood = *moods.borrow_and_update();
            if words.first().is_some_and(|word| word.starts_with("EVAL")) {
                scripts.fetch_add(1, Ordering::Relaxed);
            }
            if let Mood::Slow(pause) = mood {
                tokio::time::sleep(pause).await;
            }
            let Some(answer) = answer(&words, mood) else { continue };
            if writing.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = answering => {}
        _ = closing.wait_for(|mood| *mood == Mood::Closed) => {}
    }
}

fn answer(words: &[String], mood: Mood) -> Option<String> {
    let word = words.first()?.to_ascii_uppercase();
    let is_script = word.starts_with("EVAL");
    match mood {
        Mood::Silent | Mood::Closed => return None,
        Mood::Fails(line) if word != "HELLO" => return Some(format!("-{line}\r\n")),
        Mood::FailsScripts(line) if is_script => return Some(format!("-{line}\r\n")),
        Mood::Good | Mood::Slow(_) | Mood::Fails(_) | Mood::FailsScripts(_) => {}
    }
    let answer = match word.as_str() {
        "HELLO" => "%0\r\n".to_owned(),
        "PING" => "+PONG\r\n".to_owned(),
        "ROLE" => "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_owned(),
        "SUBSCRIBE" | "SSUBSCRIBE" => {
            let (kind, channel) = (word.to_ascii_lowercase(), words.get(1)?);
            let (long, wide) = (kind.len(), channel.len());
            format!(">3\r\n${long}\r\n{kind}\r\n${wide}\r\n{channel}\r\n:1\r\n")
        }
        _ if is_script => ":1\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    };
    Some(answer)
}

/// One command, an array of texts.
async fn read(reading: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Vec<String>> {
    let count = length(reading, '*').await?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let mut bytes = vec![0; length(reading, '$').await? + 2];
        reading.read_exact(&mut bytes).await.ok()?;
        bytes.truncate(bytes.len() - 2);
        words.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    Some(words)
}

async fn length(reading: &mut (impl AsyncBufReadExt + Unpin), sign: char) -> Option<usize> {
    let mut line = String::new();
    reading.read_line(&mut line).await.ok()?;
    line.trim_end().strip_prefix(sign)?.parse().ok()
}

/// What a [`Proxy`] lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// Connections stay and can be made, but nothing gets through.
    Hole,
    /// Connections are closed at once.
    Closed,
}

/// A way to a server.
pub struct Proxy {
    pub port: u16,
    gate: watch::Sender<Gate>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (gate, gates) = watch::channel(Gate::Open);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(forward(stream, to, gates.clone()));
            }
        });
        Self { port, gate, task }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Swallows everything from here on, like a firewall that drops.
    pub fn swallow(&self) {
        self.gate.send_replace(Gate::Hole);
    }

    /// Closes all connections, and each that is made.
    pub fn close(&self) {
        self.gate.send_replace(Gate::Closed);
    }

    /// Lets everything through; what was swallowed is lost with its connections.
    pub fn open(&self) {
        self.gate.send_replace(Gate::Open);
    }

    /// Closes all connections, and takes new ones.
    pub async fn cut(&self) {
        self.close();
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.open();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut from: TcpStream, to: u16, mut gates: watch::Receiver<Gate>) {
    let mut swallowing = gates.clone();
    let work = async {
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
        let is_over = tokio::select! {
            _ = copy_bidirectional(&mut from, &mut server) => true,
            _ = swallowing.wait_for(|gate| *gate == Gate::Hole) => false,
        };
        if !is_over {
            // Both connections stay open and are not read any more.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = work => {}
        _ = gates.wait_for(|gate| *gate == Gate::Closed) => {}
    }
}

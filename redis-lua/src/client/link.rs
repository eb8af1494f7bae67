//! Keeps one connection to one server, and says at once when that server cannot be relied on.
//!
//! A server that accepts connections may still be a replica, full, loading, stuck or as good as dead
//! behind a firewall. So a script that writes is sent four times a second; two failures in a row end
//! the connection, and what follows is dialled with growing, jittered pauses.
//!
//! Invariant: *up* is said only after a connection answered `PING`, was a primary, and took the write.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep};

use super::config::Address;
use super::dial::{Dialer, Wire};
use super::setback::{Setback, step, within};
use super::tally::Tally;
use crate::error::Trouble;
use crate::script::Script;

/// How often a server is tried while all is well.
const BEAT_EVERY: Duration = Duration::from_millis(250);
/// How long after a failure it is tried again.
const BEAT_AGAIN: Duration = Duration::from_millis(50);
/// No beat may take longer, however long a call may: two that fail must fit into a second.
const BEAT_TAKES_MAX: Duration = Duration::from_millis(300);
/// So many failures in a row are believed.
const STRIKES: u32 = 2;
/// The first pause between dials; it doubles up to [`PAUSE_MAX`], each time cut by up to half.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long the written key stands, in milliseconds.
const BEAT_STANDS_MS: u64 = 10_000;

static BEAT: Script = Script::new("beat", include_str!("../../lua/beat.lua"));

/// How a connection stands.
#[derive(Clone)]
pub(super) enum State {
    /// It is being dialled for the first time, or anew at once after it was lost.
    Dialling,
    /// It is good.
    Up(MultiplexedConnection),
    /// The server is not to be relied on.
    Down(Setback),
}

/// What the keeper of a connection needs.
pub(super) struct Keeper {
    /// Tells this server's reports from those of an earlier keeper of the same address.
    pub(super) id: u64,
    pub(super) address: Address,
    pub(super) dialer: Arc<Dialer>,
    /// How long one call may take.
    pub(super) timeout: Duration,
    /// Whether keys may be elsewhere.
    pub(super) is_cluster: bool,
    /// The key to write, which is in a slot of this server.
    pub(super) key: watch::Receiver<String>,
    /// Asks for a try at once.
    pub(super) poke: Arc<Notify>,
    /// Asks for another look at who is where.
    pub(super) look: Arc<Notify>,
    pub(super) reports: mpsc::Sender<(u64, State)>,
    pub(super) tally: Arc<Tally>,
}

impl Keeper {
    /// Keeps the connection for as long as somebody listens.
    pub(super) async fn keep(self) {
        let mut pause = PAUSE_MIN;
        // A server that was never good is believed to be bad at once.
        let mut failures = STRIKES;
        let mut is_first = true;
        while !self.reports.is_closed() {
            if !std::mem::take(&mut is_first) {
                self.tally.reconnected();
            }
            let setback = match self.connect().await {
                Ok(wire) => {
                    let began = Instant::now();
                    let setback = self.stay(wire).await;
                    // One that is lost at once, again and again, is dialled with growing pauses.
                    if began.elapsed() > PAUSE_MAX {
                        (pause, failures) = (PAUSE_MIN, 0);
                    }
                    setback
                }
                Err(setback) => {
                    failures = failures.saturating_add(1);
                    (failures >= STRIKES).then_some(setback)
                }
            };
            self.look.notify_one();
            self.report(setback.map_or(State::Dialling, State::Down)).await;
            sleep(jittered(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn report(&self, state: State) {
        // Nobody listens any more: the loop above ends.
        let _ = self.reports.send((self.id, state)).await;
    }

    /// Dials, and finds out whether the server is of use.
    async fn connect(&self) -> Result<Wire, Setback> {
        let wire = self.dialer.dial(&self.address, None).await?;
        let mut connection = wire.connection.clone();
        self.ask(&mut connection, "PING", &redis::cmd("PING"), self.timeout).await?;
        let role = self.ask(&mut connection, "ROLE", &redis::cmd("ROLE"), self.timeout).await?;
        if !is_primary(&role) {
            return Err(Setback::at(&self.address, "ROLE", Trouble::Refused("READONLY")));
        }
        self.beat(&mut connection).await?;
        Ok(wire)
    }

    /// Stays with a connection: `None` when it was lost, and why when it is given up.
    async fn stay(&self, mut wire: Wire) -> Option<Setback> {
        let mut connection = wire.connection.clone();
        self.report(State::Up(connection.clone())).await;
        let mut strikes = 0;
        loop {
            let pause = if strikes == 0 { jittered(BEAT_EVERY) } else { BEAT_AGAIN };
            tokio::select! {
                () = wire.ended() => return None,
                () = sleep(pause) => {}
                () = self.poked(), if strikes == 0 => {}
            }
            strikes = match self.beat(&mut connection).await {
                Ok(()) => 0,
                Err(setback) if strikes + 1 == STRIKES => return Some(setback),
                Err(_) => strikes + 1,
            };
        }
    }

    /// Callers in trouble ask for a beat; how many ever do, it is one each 50 ms.
    async fn poked(&self) {
        sleep(BEAT_AGAIN).await;
        self.poke.notified().await;
    }

    /// Runs the script that writes. A key that is elsewhere by now says nothing against the server.
    async fn beat(&self, connection: &mut MultiplexedConnection) -> Result<(), Setback> {
        let key = self.key.borrow().clone();
        let limit = self.timeout.min(BEAT_TAKES_MAX);
        let command = |how: &str, what: &str| {
            let mut command = redis::cmd(how);
            command.arg(what).arg(1).arg(&key).arg(BEAT_STANDS_MS);
            command
        };
        let is = |answer: &Result<Value, Setback>, codes: &[&str]| match answer {
            Err(Setback { trouble: Trouble::Refused(code), .. }) => codes.contains(code),
            Ok(_) | Err(_) => false,
        };
        let mut answer =
            self.ask(connection, "write", &command("EVALSHA", BEAT.sha()), limit).await;
        if is(&answer, &["NOSCRIPT"]) {
            answer = self.ask(connection, "write", &command("EVAL", BEAT.source), limit).await;
        }
        if self.is_cluster && is(&answer, &["MOVED", "ASK"]) {
            self.look.notify_one();
            return Ok(());
        }
        answer.map(|_| ())
    }

    async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        name: &'static str,
        command: &Cmd,
        limit: Duration,
    ) -> Result<Value, Setback> {
        let began = Instant::now();
        let answer = step(&self.address, name, within(limit), async {
            let answer = connection.send_packed_command(command).await;
            answer.and_then(Value::extract_error).map_err(|error| Trouble::from(&error))
        });
        let answer = answer.await;
        if answer.is_ok() {
            self.tally.took(began.elapsed());
        }
        answer
    }
}

fn is_primary(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    match parts.first() {
        Some(Value::BulkString(word)) => word == b"master",
        Some(Value::SimpleString(word)) => word == "master",
        Some(_) | None => false,
    }
}

/// Between half of it and all of it, so that a fleet does not come back as one.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

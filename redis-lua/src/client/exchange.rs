//! Brings calls to the servers that have their keys, and back, within one deadline.
//!
//! Calls to one server go as one pipeline. What comes back as *elsewhere*, *script unknown* or *not
//! right now* goes out again, a bounded number of times: none of these was carried out. A call whose
//! answer did not come is never sent again, since nobody knows whether it was.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, ServerError, ServerErrorKind, Value};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::Invocation;
use super::config::Address;
use super::table::Table;
use super::tally::Tally;
use crate::error::Trouble;

/// So often a call is sent elsewhere, or with its script, at most.
const REDIRECTS_MAX: u32 = 5;
/// How long a call waits that is refused while its keys move.
const MOVING_PAUSE: Duration = Duration::from_millis(10);
/// So often it waits, at most.
const WAITS_MAX: u32 = 20;
/// So often it is sent anew since a server was no primary any more.
const DEMOTIONS_MAX: u32 = 1;

/// What is to be brought.
pub(super) enum Errand<'a> {
    /// A script to be run.
    Run(&'a Invocation),
    /// A notice to be published.
    Publish {
        /// `PUBLISH` or `SPUBLISH`.
        command: &'static str,
        channel: &'a str,
        payload: &'a [u8],
    },
}

/// What is known of where things are.
pub(super) struct Ways<'a> {
    pub(super) table: &'a watch::Receiver<Arc<Table>>,
    /// Asks for another look at who is where.
    pub(super) look: &'a Notify,
    /// Takes servers that are not known, to be connected to.
    pub(super) guests: &'a mpsc::Sender<Address>,
    pub(super) tally: &'a Tally,
}

/// An errand that is still open.
struct Open {
    /// Its place among the errands.
    index: usize,
    slot: u16,
    /// Where a server has sent it, and whether for this once.
    sent_to: Option<(Address, bool)>,
    /// Whether the server has to be given the script's text.
    is_whole: bool,
    /// How often it was sent anew, and how often it was not the right moment.
    tries: u32,
    waits: u32,
    /// How often a server turned out to be no primary any more.
    demotions: u32,
}

impl Open {
    fn is_spent(&self) -> bool {
        self.tries > REDIRECTS_MAX || self.waits > WAITS_MAX || self.demotions > DEMOTIONS_MAX
    }
}

/// The errands for one server.
struct Batch {
    address: Address,
    connection: MultiplexedConnection,
    poke: Arc<Notify>,
    open: Vec<Open>,
    took: Duration,
}

/// What an answer means for an errand.
enum Meaning {
    Settled(Result<Value, Trouble>),
    Elsewhere {
        address: Address,
        is_once: bool,
    },
    ScriptUnknown,
    NotNow(Trouble),
    /// The server is no primary any more.
    Demoted,
}

/// Brings errands, each with its slot; answers in their order.
pub(super) async fn bring(
    ways: &Ways<'_>,
    errands: &[(u16, Errand<'_>)],
    deadline: Instant,
) -> Vec<Result<Value, Trouble>> {
    let mut results = vec![Err(Trouble::Timeout); errands.len()];
    let numbered = errands.iter().enumerate();
    let mut open: Vec<Open> = numbered
        .map(|(index, (slot, _))| Open {
            index,
            slot: *slot,
            sent_to: None,
            is_whole: false,
            tries: 0,
            waits: 0,
            demotions: 0,
        })
        .collect();
    let mut table = ways.table.clone();
    while !open.is_empty() {
        let known = Arc::clone(&table.borrow_and_update());
        let mut again = Again::default();
        let batches = sort(&known, open, &mut results, &mut again);
        let sent = batches.into_iter().map(|batch| Box::pin(send(batch, errands, deadline)));
        for (batch, answers) in join(sent.collect()).await {
            settle(ways, batch, answers, &mut results, &mut again);
        }
        open = again.open;
        if again.has_to_wait && !open.is_empty() {
            wait(&mut table, deadline).await;
        }
    }
    results
}

/// What goes out again.
#[derive(Default)]
struct Again {
    open: Vec<Open>,
    /// Whether it is of no use at once.
    has_to_wait: bool,
}

impl Again {
    /// Takes what is of no use at once.
    fn put(&mut self, open: Open) {
        self.open.push(open);
        self.has_to_wait = true;
    }
}

/// Waits for another table, or for a moment.
async fn wait(table: &mut watch::Receiver<Arc<Table>>, deadline: Instant) {
    let moment = sleep(MOVING_PAUSE);
    let either = async {
        tokio::select! {
            _ = table.changed() => {}
            () = moment => {}
        }
    };
    // What goes out past the deadline is not awaited, and how often anything waits has a bound.
    let _ = timeout_at(deadline, either).await;
}

/// Sorts errands by server. Those whose server is away are settled; one that was sent to a server that
/// is being connected to waits for it.
fn sort(
    table: &Table,
    open: Vec<Open>,
    results: &mut [Result<Value, Trouble>],
    again: &mut Again,
) -> Vec<Batch> {
    let mut batches: HashMap<Address, Batch> = HashMap::new();
    for mut errand in open {
        let way = match &errand.sent_to {
            Some((to, _)) => table.links.get_key_value(to),
            None => table.owner(errand.slot),
        };
        let way = way.and_then(|(address, link)| Some((address, link, link.connection.as_ref()?)));
        let Some((address, link, connection)) = way else {
            errand.waits += 1;
            if errand.sent_to.is_none() {
                keep(results, errand.index, Err(Trouble::Away));
            } else if !errand.is_spent() {
                again.put(errand);
            }
            continue;
        };
        let batch = batches.entry(address.clone()).or_insert_with(|| Batch {
            address: address.clone(),
            connection: connection.clone(),
            poke: Arc::clone(&link.poke),
            open: Vec::new(),
            took: Duration::ZERO,
        });
        batch.open.push(errand);
    }
    batches.into_values().collect()
}

fn keep(results: &mut [Result<Value, Trouble>], index: usize, result: Result<Value, Trouble>) {
    if let Some(place) = results.get_mut(index) {
        *place = result;
    }
}

/// Sends a batch as one pipeline.
async fn send(
    mut batch: Batch,
    errands: &[(u16, Errand<'_>)],
    deadline: Instant,
) -> (Batch, Result<Vec<Value>, Trouble>) {
    let mut pipeline = Pipeline::new();
    let mut given = Vec::new();
    for open in &batch.open {
        if matches!(open.sent_to, Some((_, true))) {
            pipeline.cmd("ASKING");
        }
        let Some((_, errand)) = errands.get(open.index) else { continue };
        pipeline.add_command(command(errand, open.is_whole, &mut given));
    }
    let count = pipeline.len();
    let began = Instant::now();
    let answers = batch.connection.send_packed_commands(&pipeline, 0, count);
    let answers = match timeout_at(deadline, answers).await {
        Err(_) => Err(Trouble::Timeout),
        Ok(Err(error)) => Err(Trouble::from(&error)),
        Ok(Ok(answers)) if answers.len() == count => Ok(without_asking(&batch.open, answers)),
        Ok(Ok(_)) => Err(Trouble::Wrong("a number of answers")),
    };
    batch.took = began.elapsed();
    (batch, answers)
}

/// A script's text is given once in a pipeline; from there on the server knows it.
fn command<'a>(errand: &Errand<'a>, is_whole: bool, given: &mut Vec<&'a str>) -> Cmd {
    match errand {
        Errand::Run(invocation) => {
            let script = invocation.script;
            let is_first = is_whole && !given.contains(&script.source);
            let mut command = if is_first {
                given.push(script.source);
                let mut command = redis::cmd("EVAL");
                command.arg(script.source);
                command
            } else {
                let mut command = redis::cmd("EVALSHA");
                command.arg(script.sha());
                command
            };
            command.arg(invocation.keys.len()).arg(&invocation.keys).arg(&invocation.arguments);
            command
        }
        Errand::Publish { command, channel, payload } => {
            let mut publish = redis::cmd(command);
            publish.arg(*channel).arg(*payload);
            publish
        }
    }
}

/// Leaves out what `ASKING` was answered with.
fn without_asking(open: &[Open], answers: Vec<Value>) -> Vec<Value> {
    let mut answers = answers.into_iter();
    let take = |open: &Open| {
        if matches!(open.sent_to, Some((_, true))) {
            answers.next();
        }
        answers.next()
    };
    open.iter().filter_map(take).collect()
}

/// Settles what is done, and collects what goes out again.
fn settle(
    ways: &Ways<'_>,
    batch: Batch,
    answers: Result<Vec<Value>, Trouble>,
    results: &mut [Result<Value, Trouble>],
    again: &mut Again,
) {
    let answers = match answers {
        Ok(answers) => {
            ways.tally.took(batch.took);
            answers
        }
        Err(trouble) => {
            batch.poke.notify_one();
            for open in batch.open {
                keep(results, open.index, Err(trouble));
            }
            return;
        }
    };
    for (mut open, answer) in batch.open.into_iter().zip(answers) {
        let meaning = meaning(answer, &batch.address);
        if let Meaning::Settled(result) = meaning {
            if matches!(&result, Err(trouble) if trouble.is_everywhere()) {
                batch.poke.notify_one();
            }
            keep(results, open.index, result);
            continue;
        }
        if matches!(meaning, Meaning::Demoted) {
            batch.poke.notify_one();
        }
        keep(results, open.index, Err(renew(ways, &mut open, meaning, again)));
        if !open.is_spent() {
            again.open.push(open);
        }
    }
}

/// Makes an errand ready to go out again, and tells what became of it should it not.
fn renew(ways: &Ways<'_>, open: &mut Open, meaning: Meaning, again: &mut Again) -> Trouble {
    match meaning {
        Meaning::Settled(_) => Trouble::Away,
        Meaning::Elsewhere { address, is_once } => {
            ways.tally.redirected();
            if !is_once {
                ways.look.notify_one();
            }
            if !ways.table.borrow().links.contains_key(&address) {
                // A full queue means that it is under way.
                let _ = ways.guests.try_send(address.clone());
            }
            open.sent_to = Some((address, is_once));
            open.tries += 1;
            Trouble::Refused(if is_once { "ASK" } else { "MOVED" })
        }
        Meaning::ScriptUnknown => {
            ways.tally.missed_script();
            open.is_whole = true;
            open.tries += 1;
            Trouble::Refused("NOSCRIPT")
        }
        Meaning::NotNow(trouble) => {
            // It is asked again where it was sent to: its keys are on their way there.
            again.has_to_wait = true;
            open.waits += 1;
            trouble
        }
        Meaning::Demoted => {
            ways.look.notify_one();
            // Once more only, should the primary be found elsewhere in time.
            open.sent_to = None;
            open.demotions += 1;
            again.has_to_wait = true;
            Trouble::Refused("READONLY")
        }
    }
}

fn meaning(answer: Value, from: &Address) -> Meaning {
    let error = match answer {
        Value::ServerError(error) => error,
        value => return Meaning::Settled(Ok(value)),
    };
    match error.kind() {
        Some(ServerErrorKind::Moved) => elsewhere(&error, from, false),
        Some(ServerErrorKind::Ask) => elsewhere(&error, from, true),
        Some(ServerErrorKind::NoScript) => Meaning::ScriptUnknown,
        Some(ServerErrorKind::TryAgain) => Meaning::NotNow(Trouble::Refused("TRYAGAIN")),
        Some(ServerErrorKind::ReadOnly) => Meaning::Demoted,
        Some(_) | None => Meaning::Settled(Err(Trouble::of_code(error.code()))),
    }
}

/// `MOVED 3999 127.0.0.1:6381`; an IPv6 address has no brackets there, and no host at all means the
/// host that was asked.
fn elsewhere(error: &ServerError, from: &Address, is_once: bool) -> Meaning {
    let parsed = || {
        let place = error.details()?.split_ascii_whitespace().nth(1)?;
        let (host, port) = place.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = if host.is_empty() { from.host.as_str() } else { host };
        Some(Address { host: host.to_owned(), port: port.parse().ok()? })
    };
    match parsed() {
        Some(address) => Meaning::Elsewhere { address, is_once },
        None => Meaning::Settled(Err(Trouble::Wrong("a redirection to nowhere"))),
    }
}

/// Awaits all of a few futures.
pub(super) async fn join<F: Future>(mut futures: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut done = Vec::with_capacity(futures.len());
    poll_fn(|context| {
        futures.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Ready(output) => {
                done.push(output);
                false
            }
            Poll::Pending => true,
        });
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done
}

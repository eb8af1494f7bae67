//! Publishes notices, and hears those of others.
//!
//! Hearing has a connection of its own. A cluster ends a subscription unasked when its slot moves,
//! which on a shared connection would be taken for the answer to somebody's call.
//!
//! Notices may be lost at any time; whoever needs all looks for itself from time to time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};

use super::Shared;
use super::config::Address;
use super::dial::{Dialer, Wire};
use super::exchange::{self, Errand};
use super::link::jittered;
use crate::error::Trouble;
use crate::slot;

/// So many notices go out at once, at most.
const TOLD_MAX: usize = 64;
/// How often the connection is tried while nothing is heard.
const PING_EVERY: Duration = Duration::from_secs(1);
/// The pause after a failure, cut by up to half.
const PAUSE: Duration = Duration::from_millis(500);

/// Publishes what comes, for as long as something can come.
pub(super) async fn tell(shared: Arc<Shared>, mut outgoing: mpsc::Receiver<Vec<u8>>) {
    let slot = slot::of(shared.channel.as_bytes());
    let mut payloads = Vec::with_capacity(TOLD_MAX);
    while outgoing.recv_many(&mut payloads, TOLD_MAX).await > 0 {
        if !shared.health.borrow().is_up() {
            shared.tally.lost_notices(payloads.len());
            payloads.clear();
            continue;
        }
        let is_sharded = shared.is_sharded.load(Ordering::Relaxed);
        let command = if is_sharded { "SPUBLISH" } else { "PUBLISH" };
        let channel = shared.channel.as_str();
        let errand = |payload| (slot, Errand::Publish { command, channel, payload });
        let errands: Vec<_> = payloads.iter().map(|payload| errand(payload.as_slice())).collect();
        let deadline = Instant::now() + shared.timeout;
        let results = exchange::bring(&shared.ways(), &errands, deadline).await;
        shared.tally.lost_notices(results.iter().filter(|result| result.is_err()).count());
        payloads.clear();
    }
}

/// Hears, and tells all receivers.
pub(super) async fn hear(shared: Arc<Shared>, dialer: Arc<Dialer>) {
    let slot = slot::of(shared.channel.as_bytes());
    let mut table = shared.table.clone();
    loop {
        // A server that is down has its own keeper to dial it.
        let good = table
            .wait_for(|table| table.owner(slot).is_some_and(|(_, link)| link.connection.is_some()));
        let Ok(owner) = good.await.map(|table| table.owners.of(slot).cloned()) else { return };
        let Some(owner) = owner else { continue };
        if let Err(trouble) = listen(&shared, &dialer, &owner, slot).await {
            tracing::debug!(server = %owner, %trouble, "notices are not heard");
        }
        sleep(jittered(PAUSE)).await;
    }
}

/// Listens to one server, for as long as it is the right one.
async fn listen(
    shared: &Shared,
    dialer: &Dialer,
    owner: &Address,
    slot: u16,
) -> Result<(), Trouble> {
    let ended = Arc::new(Notify::new());
    let (notices, end) = (shared.notices.clone(), Arc::clone(&ended));
    let push = move |info: PushInfo| match info.kind {
        PushKind::Message | PushKind::SMessage => {
            if let Some(Value::BulkString(payload)) = info.data.into_iter().nth(1) {
                // Without a receiver there is nobody to tell.
                let _ = notices.send(payload);
            }
        }
        PushKind::SUnsubscribe | PushKind::Unsubscribe | PushKind::Disconnection => {
            end.notify_one();
        }
        _ => {}
    };
    let dialled = dialer.dial(owner, Some(Box::new(push))).await;
    let mut wire = dialled.map_err(|setback| setback.trouble)?;
    subscribe(shared, &mut wire).await?;
    loop {
        tokio::select! {
            () = ended.notified() => return Ok(()),
            () = wire.ended() => return Ok(()),
            () = sleep(jittered(PING_EVERY)) => {}
        }
        if shared.table.borrow().owners.of(slot) != Some(owner) {
            return Ok(());
        }
        ask(shared, &mut wire, "PING", None).await?;
    }
}

async fn subscribe(shared: &Shared, wire: &mut Wire) -> Result<(), Trouble> {
    if shared.is_sharded.load(Ordering::Relaxed) {
        match ask(shared, wire, "SSUBSCRIBE", Some(&shared.channel)).await {
            // A server before version 7: a cluster of those tells notices to all of its servers.
            Err(Trouble::Refused("ERR")) => shared.is_sharded.store(false, Ordering::Relaxed),
            Err(trouble) => {
                shared.look.notify_one();
                return Err(trouble);
            }
            Ok(()) => return Ok(()),
        }
    }
    ask(shared, wire, "SUBSCRIBE", Some(&shared.channel)).await
}

async fn ask(
    shared: &Shared,
    wire: &mut Wire,
    word: &str,
    argument: Option<&str>,
) -> Result<(), Trouble> {
    let mut command = redis::cmd(word);
    if let Some(argument) = argument {
        command.arg(argument);
    }
    let answer = timeout(shared.timeout, wire.connection.send_packed_command(&command)).await;
    let answer = answer.map_err(|_| Trouble::Timeout)?;
    let answer = answer.and_then(Value::extract_error).map_err(|error| Trouble::from(&error));
    answer.map(|_| ())
}

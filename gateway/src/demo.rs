//! The story in one command: three gateways, four mock endpoints, one falls ill and comes back.
//!
//! Everything is real: listeners, gossip over QUIC with throw-away certificates, steady traffic over
//! HTTP. The stage is set by `stage`, the load driven by `traffic`; this file tells what happens and
//! judges at the end whether it went as promised.

#![expect(clippy::print_stdout, reason = "the demo speaks to a person")]

mod stage;
mod traffic;

use std::time::Duration;

use breaker::State;
use quorum::EndpointKey;

use self::stage::Stage;
use self::traffic::Traffic;
use crate::clock;
use crate::mock::Behaviour;

/// The endpoint that falls ill.
const ILL: &str = "gpu-b";
/// The illness: each answer takes this long, where the limit is one second.
const SLOWNESS: Duration = Duration::from_secs(4);
/// How long everything is well at first, so that the fleet has formed.
const PEACE: Duration = Duration::from_secs(5);
/// How long after the flip the endpoint is healed, well before its cool-down is over.
const ILLNESS_AFTER_FLIP: Duration = Duration::from_secs(2);
/// No part of the story takes longer than this.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the observer looks.
const GLANCE: Duration = Duration::from_millis(2);
/// A flip is to follow the deciding vote within this.
const FLIP_MAX: Duration = Duration::from_secs(2);

/// What the observer saw of the illness.
struct Flip {
    /// From the deciding node's own opening to the last node's following.
    latency: Duration,
    /// From falling ill to that moment.
    since_ill: Duration,
}

/// Plays the story; with `exit` it ends with the verdict, else it stays up until Ctrl-C.
///
/// # Errors
/// One line: what did not go as promised.
pub async fn run(exit: bool) -> Result<(), String> {
    let stage = Stage::set().await?;
    stage.introduce();
    let traffic = Traffic::start(&stage.client_addresses());
    let verdict = tell(&stage, &traffic).await;
    if verdict.is_ok() && !exit {
        say("the fleet stays up for you to play with; Ctrl-C ends it");
        stage.introduce();
        let _ = tokio::signal::ctrl_c().await;
    }
    traffic.stop().await;
    stage.strike().await;
    verdict
}

async fn tell(stage: &Stage, traffic: &Traffic) -> Result<(), String> {
    let key = stage.key(ILL);
    let began = clock::now();
    wait(stage, "the three nodes do not find each other", |stage| stage.is_fleet_formed()).await?;
    say(&format!(
        "the fleet has formed: three members, quorum two ({} ms)",
        (clock::now() - began).as_millis()
    ));
    tokio::time::sleep(PEACE).await;
    let served = traffic.tally();
    say(&format!("peace: {} requests answered, {} failed", served.good, served.bad));

    say(&format!("{ILL} falls ill: every answer takes {} s from here on", SLOWNESS.as_secs()));
    let latency_ms = u64::try_from(SLOWNESS.as_millis()).ok();
    stage.mock(ILL).set(Behaviour { latency_ms, ..Behaviour::default() });
    let flip = watch_flip(stage, &key).await?;
    say(&format!(
        "FLIP: {ILL} is out on all three nodes, {:.1} ms after the deciding vote, {:.1} s after it fell ill",
        flip.latency.as_secs_f64() * 1_000.0,
        flip.since_ill.as_secs_f64()
    ));

    tokio::time::sleep(ILLNESS_AFTER_FLIP).await;
    let while_out = stage.mock(ILL).counts();
    stage.mock(ILL).set(Behaviour::default());
    let steward = stage.steward(&key).unwrap_or_else(|| "nobody".to_owned());
    say(&format!("{ILL} is well again; nobody knows yet. {steward} will send one probe"));
    wait(stage, "the endpoint does not return", |stage| stage.is_in_everywhere(&key)).await?;
    let probes = stage.mock(ILL).counts().probes.saturating_sub(while_out.probes);
    say(&format!("{ILL} is back on all three nodes after {probes} probe from the whole fleet"));
    wait(stage, "the endpoint gets no traffic after its return", |stage| {
        let counts = stage.mock(ILL).counts();
        counts.requests - counts.probes > while_out.requests - while_out.probes + 10
    })
    .await?;
    say(&format!("{ILL} serves again"));

    let served = traffic.tally();
    say(&format!("in all: {} requests answered, {} failed", served.good, served.bad));
    let judged = judge(&flip, probes, &served);
    match &judged {
        Ok(()) => say(&format!(
            "VERDICT: as promised. flip latency {:.1} ms, {probes} probe, {} errors",
            flip.latency.as_secs_f64() * 1_000.0,
            served.bad
        )),
        Err(error) => say(&format!("VERDICT: not as promised: {error}")),
    }
    judged
}

fn judge(flip: &Flip, probes: u64, served: &traffic::Tally) -> Result<(), String> {
    if flip.latency > FLIP_MAX {
        return Err(format!("the flip took {} ms", flip.latency.as_millis()));
    }
    if probes != 1 {
        return Err(format!("{probes} probes reached the endpoint, not one"));
    }
    if served.bad > 0 {
        return Err(format!("{} requests failed", served.bad));
    }
    Ok(())
}

/// Watches until the fleet has taken the endpoint out everywhere, telling each step on the way.
async fn watch_flip(stage: &Stage, key: &EndpointKey) -> Result<Flip, String> {
    let ill_since = clock::now();
    let nodes = stage.nodes();
    let mut pieces = vec![0; nodes.len()];
    let mut opened: Vec<Option<Duration>> = vec![None; nodes.len()];
    let mut followed = vec![false; nodes.len()];
    let mut deciding = None;
    while clock::now() < ill_since + PATIENCE {
        let seen = nodes.iter().zip(pieces.iter_mut()).zip(opened.iter_mut()).zip(&mut followed);
        for (((node, pieces), opened), followed) in seen {
            let now = clock::now();
            let Some(sight) = node.sight(now, key) else { continue };
            if sight.slow_pieces > *pieces {
                *pieces = sight.slow_pieces;
                say(&format!("{}: slow evidence, piece {}", node.name(), sight.slow_pieces));
            }
            if sight.local == State::Open && opened.is_none() {
                *opened = Some(sight.local_since.unwrap_or(now));
                say(&format!("{}: its own breaker opens; it votes open", node.name()));
            }
            if sight.is_out && !*followed {
                *followed = true;
                say(&format!(
                    "{}: {} of 3 votes, quorum {}: the fleet takes {key} out",
                    node.name(),
                    sight.votes,
                    sight.quorum
                ));
            }
        }
        let mut votes: Vec<Duration> = opened.iter().flatten().copied().collect();
        votes.sort_unstable();
        deciding = deciding.or(votes.get(1).copied());
        if followed.iter().all(|followed| *followed) {
            let now = clock::now();
            let latency = now.saturating_sub(deciding.unwrap_or(now));
            return Ok(Flip { latency, since_ill: now - ill_since });
        }
        tokio::time::sleep(GLANCE).await;
    }
    Err("the fleet did not take the ill endpoint out".to_owned())
}

async fn wait(stage: &Stage, otherwise: &str, done: impl Fn(&Stage) -> bool) -> Result<(), String> {
    let began = clock::now();
    while !done(stage) {
        if clock::now() > began + PATIENCE {
            return Err(otherwise.to_owned());
        }
        tokio::time::sleep(GLANCE).await;
    }
    Ok(())
}

/// One line of the story, with the time since the program started.
fn say(line: &str) {
    println!("[{:6.2} s] {line}", clock::now().as_secs_f64());
}

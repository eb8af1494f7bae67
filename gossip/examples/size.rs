//! Prints what gossip costs by the number of members: `cargo run -p gossip --example size`.
//!
//! The digest is measured with chitchat's own encoder; the traffic by running chitchat itself in
//! virtual time over channels, with values as long as the sealed records are. The fleets that are
//! run are small, since all of them live in one process; what is beyond is worked out from these.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a table for people")]

use std::net::SocketAddr;
use std::time::Duration;

use chitchat::transport::ChannelTransport;
use chitchat::{
    ChitchatConfig, ChitchatHandle, ChitchatId, ChitchatMessage, Deserializable,
    FailureDetectorConfig, Serializable, spawn_chitchat,
};
use tokio::time::sleep;

/// The members of the fleets in the table, and of those that are run.
const MEMBERS: [usize; 6] = [10, 50, 100, 200, 500, 1_000];
const RUN: [usize; 3] = [10, 25, 50];

/// Open endpoints: one in a hundred of up to 10,000.
const OPEN: [usize; 3] = [1, 10, 100];

/// The lengths of sealed records in base64: a test of the crate holds them to these.
const VOTE_BYTES: usize = 194;
const PULSE_BYTES: usize = 119;
const CERTIFICATE_BYTES: usize = 646;

/// A name as an orchestrator gives it.
const NAME: &str = "quorumgate-7d9f8b6c5-";

/// chitchat's own limit of a frame, and what the vet lets a digest have of it.
const FRAME_BYTES_MAX: usize = 65_507;
const DIGEST_BYTES_MAX: usize = 48_000;

const SECOND: Duration = Duration::from_secs(1);
const REST_SECONDS: u32 = 10;

/// What one fleet was measured to send, in bytes for each node.
struct Measured {
    members: usize,
    /// In a second, without anything to tell.
    idle: f64,
    /// In a second, with one pulse a second of each member.
    resting: f64,
    /// With the votes of all members on so many endpoints at once: in total, and the seconds until
    /// everybody had them.
    votes: Vec<(usize, f64, u32)>,
}

fn name(number: usize) -> String {
    format!("{NAME}{number:05}")
}

fn address(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 7_946))
}

/// The bytes of a hello that names so many members.
fn hello_bytes(members: usize) -> usize {
    let text = |text: &str| [&(text.len() as u16).to_le_bytes(), text.as_bytes()].concat();
    let mut frame = [&45_139_u16.to_le_bytes()[..], &[0, 0]].concat();
    frame.extend((members as u16).to_le_bytes());
    for number in 0..members {
        frame.extend(text(&name(number)));
        frame.extend(1_780_000_000_000_u64.to_le_bytes());
        frame.extend([&[4, 10, 0, (number >> 8) as u8, number as u8][..], &[10, 31]].concat());
        frame.extend([1_u64, 0, 9].map(u64::to_le_bytes).concat());
    }
    frame.extend(text("fleet"));
    ChitchatMessage::deserialize(&mut frame.as_slice()).unwrap().serialized_len()
}

/// Text that does not shrink, as signatures do not.
fn noise(bytes: usize) -> String {
    std::iter::repeat_with(fastrand::alphanumeric).take(bytes).collect()
}

async fn start(number: usize, transport: &ChannelTransport) -> ChitchatHandle {
    let at = address(number);
    let config = ChitchatConfig {
        chitchat_id: ChitchatId::new(name(number), 1_780_000_000_000, at),
        cluster_id: "fleet".to_owned(),
        gossip_interval: SECOND,
        listen_addr: at,
        seed_nodes: vec![address(0).to_string()],
        failure_detector_config: FailureDetectorConfig::default(),
        marked_for_deletion_grace_period: 900 * SECOND,
        catchup_callback: None,
        extra_liveness_predicate: None,
    };
    let first = vec![("k".to_owned(), noise(CERTIFICATE_BYTES)), ("c".to_owned(), noise(200))];
    spawn_chitchat(config, first, transport).await.unwrap()
}

async fn set(handle: &ChitchatHandle, mut keys: impl Iterator<Item = (String, String)>) {
    handle
        .with_chitchat(|chitchat| {
            let state = chitchat.self_node_state();
            keys.by_ref().for_each(|(key, value)| state.set(key, value));
        })
        .await;
}

/// The number of keys that a node holds of all.
async fn held(handle: &ChitchatHandle) -> usize {
    let count = |chitchat: &mut chitchat::Chitchat| {
        chitchat.node_states().values().map(chitchat::NodeState::num_key_values).sum()
    };
    handle.with_chitchat(count).await
}

/// Waits until each node holds so many keys; returns the seconds.
async fn converge(fleet: &[ChitchatHandle], keys: usize) -> u32 {
    for seconds in 0..10_000 {
        let mut is_whole = true;
        for handle in fleet {
            is_whole &= held(handle).await >= keys;
        }
        if is_whole {
            return seconds;
        }
        sleep(SECOND).await;
    }
    u32::MAX
}

async fn measure(members: usize) -> Measured {
    let transport = ChannelTransport::with_mtu(FRAME_BYTES_MAX);
    let mut fleet = Vec::new();
    for number in 0..members {
        fleet.push(start(number, &transport).await);
    }
    let mut keys = 2 * members;
    converge(&fleet, keys).await;
    sleep(10 * SECOND).await;
    let sent = || transport.statistics().num_bytes_total as f64 / members as f64;
    let begin = sent();
    sleep(REST_SECONDS * SECOND).await;
    let idle = (sent() - begin) / f64::from(REST_SECONDS);
    let begin = sent();
    for _ in 0..REST_SECONDS {
        for handle in &fleet {
            set(handle, std::iter::once(("p".to_owned(), noise(PULSE_BYTES)))).await;
        }
        sleep(SECOND).await;
    }
    let resting = (sent() - begin) / f64::from(REST_SECONDS);
    keys += members;
    let mut votes = Vec::new();
    for open in OPEN {
        converge(&fleet, keys).await;
        let begin = sent();
        for handle in &fleet {
            let key = |number| format!("v/{open}/pool/endpoint-{number}");
            set(handle, (0..open).map(|number| (key(number), noise(VOTE_BYTES)))).await;
        }
        keys += members * open;
        let seconds = converge(&fleet, keys).await;
        // What the rest costs in these seconds is not for the votes.
        let bytes = sent() - begin - idle * f64::from(seconds);
        votes.push((open, bytes, seconds));
    }
    for handle in fleet {
        handle.shutdown().await.unwrap();
    }
    Measured { members, idle, resting, votes }
}

fn kilo(bytes: f64) -> String {
    format!("{:.1}", bytes / 1_024.0)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    tokio::time::pause();
    println!("| members | hello, bytes | of 64 KB | lives that fit besides |");
    println!("|--:|--:|--:|--:|");
    let entry = hello_bytes(2) - hello_bytes(1);
    let lives_max = (DIGEST_BYTES_MAX / entry).min(1_024);
    for members in MEMBERS {
        let bytes = hello_bytes(members);
        let share = 100 * bytes / FRAME_BYTES_MAX;
        let besides = match lives_max.checked_sub(members) {
            Some(besides) => besides.to_string(),
            None => "none: refused".to_owned(),
        };
        println!("| {members} | {bytes} | {share} % | {besides} |");
    }
    println!("\n{entry} bytes for each life; the vet lets in {lives_max} lives.\n");

    println!("| members | idle, KB/s a node | with pulses | votes at once: KB a node (seconds) |");
    println!("|--:|--:|--:|:--|");
    let mut all = Vec::new();
    for members in RUN {
        let found = measure(members).await;
        let votes: Vec<_> = found
            .votes
            .iter()
            .map(|(open, bytes, seconds)| format!("{open} open: {} ({seconds} s)", kilo(*bytes)))
            .collect();
        let (idle, resting) = (kilo(found.idle), kilo(found.resting));
        println!("| {members} | {idle} | {resting} | {} |", votes.join(", "));
        all.push(found);
    }
    let Some(largest) = all.last() else { return };
    let pulse = (largest.resting - largest.idle) / largest.members as f64;
    let vote = |open: usize| {
        let found = largest.votes.iter().find(|(of, ..)| *of == open);
        found.map_or(0.0, |(_, bytes, _)| bytes / (open * largest.members) as f64)
    };
    let [one, ten, hundred] = OPEN.map(|open| format!("{:.0}", vote(open)));
    println!(
        "\nWorked out: six hellos, {pulse:.0} bytes a pulse, {one}, {ten}, {hundred} a vote.\n"
    );
    println!("| members | with pulses, KB/s a node | 1 open | 10 open | 100 open, KB a node |");
    println!("|--:|--:|--:|--:|--:|");
    for members in MEMBERS.into_iter().filter(|members| *members <= lives_max) {
        let resting = (6 * hello_bytes(members)) as f64 + pulse * members as f64;
        let votes = OPEN.map(|open| kilo(vote(open) * (open * members) as f64)).join(" | ");
        println!("| {members} | {} | {votes} |", kilo(resting));
    }
}

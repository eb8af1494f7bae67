//! How the fleet's words grow: `cargo run --release -p quorum --example scale` prints a table.
//!
//! One council is real and hears all others; what those state was stated by a real council too. Who
//! knows whose words is simulated for every member, since a thousand councils that each hold the
//! words of a thousand members do not fit into one machine. Pushes are left out: this is what gossip
//! alone costs and takes.

#![expect(clippy::print_stdout, reason = "it exists to print")]

mod bytes;
mod council;
mod spread;

use std::process::Command;
use std::time::Instant;

use council::Fleet;
use spread::Spread;

/// The share of endpoints that is out: one in a hundred, and one at least.
const OPEN_ONE_IN: usize = 100;

/// Rounds after which a fleet that has not agreed is given up.
const ROUNDS_MAX: u32 = 900;

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).flat_map(|text| text.parse()).collect();
    if let [members, endpoints] = numbers.as_slice() {
        return measure(*members, *endpoints);
    }
    println!(
        "| members | endpoints | out | rounds until all know a majority | all know all | one council \
         has opened all after | at rest, KB/s per node (of these digests) | converging, KB/s per node \
         (peak) | memory of the process, MB | a round of a council at rest, ms | the costliest, ms |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for members in [10, 100, 1_000] {
        for endpoints in [10, 100, 1_000, 10_000] {
            row(members, endpoints);
        }
    }
}

/// Measures in a process of its own, so that no row has the memory of the rows before.
fn row(members: usize, endpoints: usize) {
    let child = std::env::current_exe().and_then(|program| {
        Command::new(program).args([members.to_string(), endpoints.to_string()]).status()
    });
    if !child.is_ok_and(|status| status.success()) {
        println!("| {members} | {endpoints} | could not be measured |");
    }
}

fn measure(members: usize, endpoints: usize) {
    let open = (endpoints / OPEN_ONE_IN).max(1);
    let before = resident_kb();
    let mut fleet = Fleet::new(members, endpoints, open);
    let sizes = fleet.sizes();
    let mut spread = Spread::new(members, open, &sizes);
    let (mut majority, mut everything, mut opened) = (None, None, None);
    let mut costliest = 0.0_f64;
    let mut peak = 0;
    let mut converging = 0;
    let mut rounds = 0;
    while rounds < ROUNDS_MAX && (everything.is_none() || opened.is_none()) {
        rounds += 1;
        let sent = spread.round();
        peak = peak.max(sent);
        converging += sent;
        let begun = Instant::now();
        let out = fleet.hear(rounds, &spread.known_to_first());
        costliest = costliest.max(begun.elapsed().as_secs_f64() * 1e3);
        if spread.have_majority() {
            majority.get_or_insert(rounds);
        }
        if spread.have_everything() {
            everything.get_or_insert(rounds);
        }
        if out == open {
            opened.get_or_insert(rounds);
        }
    }
    let at_rest = fleet.rest(rounds);
    let memory = resident_kb().saturating_sub(before) as f64 / 1_024.0;
    let digests = bytes::digests(members);
    let pulses = bytes::pulses(members);
    let kb = |bytes: usize| bytes as f64 / 1_024.0;
    let shown =
        |round: Option<u32>| round.map_or_else(|| "—".to_owned(), |round| round.to_string());
    println!(
        "| {members} | {endpoints} | {open} | {} | {} | {} | {:.1} ({:.1}) | {:.1} ({:.1}) | {memory:.1} | {:.2} | {:.1} |",
        shown(majority),
        shown(everything),
        shown(opened),
        kb(digests + pulses),
        kb(digests),
        kb(digests + converging / rounds as usize / members),
        kb(digests + peak / members),
        at_rest,
        costliest,
    );
}

/// What this process holds in memory, by the kernel's word; zero where there is none.
fn resident_kb() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

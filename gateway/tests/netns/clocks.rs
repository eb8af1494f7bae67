//! Cases of a node whose wall clock is wrong: it moves nothing but the times in its log.
//!
//! libfaketime is laid over the node's calls and lies about the wall clock alone, as a clock that is
//! set does: the monotonic clock goes on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::StatusCode;

use crate::apart::apart;
use crate::process::BINARY;
use crate::town::{ALL, B, Plan, TEN_SECONDS, Town, throughout, within};
use crate::wires::Machine;

const DAY_SECONDS: i64 = 86_400;
const HOUR_SECONDS: i64 = 3_600;
/// How far a wall clock may be from where it was set, for the time it takes to look.
const SLACK_SECONDS: i64 = 60;

/// A command that becomes the binary on a node's machine, its wall clock off by what the file says.
fn with_clock(number: u8, file: &Path) -> Command {
    let mut command = Machine(number).command("env");
    let mut preload = std::ffi::OsString::from("LD_PRELOAD=");
    preload.push(library());
    let mut offset = std::ffi::OsString::from("FAKETIME_TIMESTAMP_FILE=");
    offset.push(file);
    command.arg(preload).arg(offset);
    command.args(["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", BINARY]);
    command
}

fn library() -> PathBuf {
    let mut folders = vec![PathBuf::from("/usr/lib64"), PathBuf::from("/usr/lib")];
    let below = std::fs::read_dir("/usr/lib").unwrap();
    folders.extend(below.map(|entry| entry.unwrap().path()));
    let libraries = folders.iter().map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    let found = libraries.into_iter().find(|library| library.is_file());
    found.unwrap_or_else(|| panic!("libfaketimeMT.so.1 is missing; install faketime"))
}

/// By how many seconds a node's wall clock is ahead of this one, by the last line of its log: within
/// half a day either way.
async fn ahead(town: &Town, number: u8) -> i64 {
    let node = town.node(number);
    let lines = node.log().len();
    assert_eq!(node.chat().await, StatusCode::OK);
    within(TEN_SECONDS, "the request is in the log", async || node.log().len() > lines).await;
    let line: serde_json::Value = serde_json::from_str(node.log().last().unwrap()).unwrap();
    let time = line["timestamp"].as_str().unwrap();
    // 2026-01-02T03:04:05.678901Z
    let part = |at: usize| time[at..at + 2].parse::<i64>().unwrap();
    let there = part(11) * 3_600 + part(14) * 60 + part(17);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let here = i64::try_from(since_epoch.as_secs()).unwrap();
    (there - here + DAY_SECONDS / 2).rem_euclid(DAY_SECONDS) - DAY_SECONDS / 2
}

fn is_about(ahead: i64, seconds: i64) -> bool {
    (ahead - seconds).abs() < SLACK_SECONDS
}

#[test]
fn c05_a_node_that_starts_again_an_hour_ago_still_joins() {
    apart(async || {
        let mut town = Town::start(Plan::default()).await;
        let generation = town.row(1, 2).await["generation"].as_u64().unwrap();
        town.kill(2);
        let offset = town.directory().join("offset");
        std::fs::write(&offset, "-3600").unwrap();
        town.begin(2, with_clock(2, &offset));
        let joined = within(TEN_SECONDS, "the new life is known and live", async || {
            let row = town.row(1, 2).await;
            row["generation"].as_u64().unwrap() > generation && row["state"] == "live"
        })
        .await;
        town.forms(TEN_SECONDS.saturating_sub(joined)).await;
        let ahead = ahead(&town, 2).await;
        assert!(is_about(ahead, -HOUR_SECONDS), "its clock is ahead by {ahead} s");
        let electorate = &town.node(1).look("/admin/v1/cluster").await["electorate"];
        assert_eq!(*electorate, 5, "it counts once");
        eprintln!("C05: joined {joined:?} after it served, its clock ahead by {ahead} s");
    });
}

#[test]
fn c10_a_wall_clock_that_jumps_an_hour_either_way_changes_nothing() {
    apart(async || {
        let mut town = Town::start(Plan::default()).await;
        let offset = town.directory().join("offset");
        std::fs::write(&offset, "+0").unwrap();
        town.kill(2);
        town.begin(2, with_clock(2, &offset));
        town.forms(Duration::from_secs(20)).await;
        town.b.falls_ill().await;
        let load = town.load(&ALL);
        within(TEN_SECONDS, "all five flip", async || town.is_out_on(&ALL).await).await;
        assert_eq!(load.stop().await, [""; 0], "a is well");
        let mut votes = Vec::new();
        within(
            TEN_SECONDS,
            "every opening of a node's own is a vote that both count",
            async || {
                votes = town.voters(1).await;
                let mut are_all = true;
                for number in ALL {
                    let is_open = town.own(number).await == "open";
                    are_all &= !is_open || votes.contains(&format!("gw-{number}"));
                }
                are_all && town.voters(2).await == votes
            },
        )
        .await;
        let due_in = async |number| {
            let view = town.node(number).explain(B).await;
            Duration::from_millis(view["cluster"]["due_in_ms"].as_u64().unwrap())
        };
        let changes: Vec<usize> = ALL.iter().map(|number| town.member_changes(*number)).collect();
        let began = Instant::now();
        let due: Vec<Duration> = [due_in(1).await, due_in(2).await].to_vec();
        for jump in ["+3600", "-3600"] {
            std::fs::write(&offset, jump).unwrap();
            throughout(Duration::from_secs(4), "nothing changes", async || {
                town.is_out_on(&ALL).await && town.voters(1).await == votes
            })
            .await;
            let ahead = ahead(&town, 2).await;
            assert!(is_about(ahead, jump.parse().unwrap()), "ahead by {ahead} s after {jump}");
        }
        for (number, due) in [1, 2].into_iter().zip(due) {
            let wanted = due.saturating_sub(began.elapsed());
            let left = due_in(number).await;
            let off = left.abs_diff(wanted);
            assert!(off < Duration::from_millis(500), "{number}: {left:?} left, not {wanted:?}");
        }
        assert_eq!(town.voters(2).await, votes);
        let after: Vec<usize> = ALL.iter().map(|number| town.member_changes(*number)).collect();
        assert_eq!(after, changes, "members came and went");
        eprintln!("C10: {} votes stood through both jumps", votes.len());
    });
}

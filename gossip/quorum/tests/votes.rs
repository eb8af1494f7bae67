//! The majority rule against a table that needs no programmer to read: `votes.txt`.
//!
//! Each row is one claim; the row's line stands in the message when it does not hold.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop loudly")]

use quorum::{Ballot, Basis, NodeId, tally};

const TABLE: &str = include_str!("votes.txt");
/// Fewer rows than this, and the table was cut short.
const ROWS_MIN: usize = 30;

struct Row {
    electorate: usize,
    closed: u64,
    witnesses: usize,
    votes: Vec<(NodeId, Basis, u64)>,
    is_open: bool,
    counted: usize,
    needed: usize,
    void: usize,
}

fn read_vote(text: &str) -> (NodeId, Basis, u64) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [voter, basis, incident] = words.as_slice() else {
        panic!("a vote is a voter, a basis and an incident: {text}");
    };
    let basis = match *basis {
        "first-hand" => Basis::FirstHand,
        "seconded" => Basis::Seconded,
        other => panic!("no such basis: {other}"),
    };
    (NodeId::new(voter), basis, incident.parse().unwrap())
}

fn read_row(line: &str) -> Row {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [electorate, closed, witnesses, votes, verdict, count, void] = cells.as_slice() else {
        panic!("a row has seven cells: {line}");
    };
    let (counted, needed) = count.split_once(" of ").unwrap();
    Row {
        electorate: electorate.parse().unwrap(),
        closed: closed.parse().unwrap(),
        witnesses: witnesses.parse().unwrap(),
        votes: match *votes {
            "none" => Vec::new(),
            votes => votes.split(',').map(read_vote).collect(),
        },
        is_open: match *verdict {
            "open" => true,
            "closed" => false,
            other => panic!("no such verdict: {other}"),
        },
        counted: counted.parse().unwrap(),
        needed: needed.parse().unwrap(),
        void: void.parse().unwrap(),
    }
}

#[test]
fn every_row_of_the_table_holds() {
    let mut rows = 0;
    for (line, text) in (1..).zip(TABLE.lines()) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let row = read_row(text);
        let ballots = row.votes.iter().map(|(voter, basis, incident)| Ballot {
            voter,
            incident: *incident,
            basis: *basis,
        });
        let count = tally(row.electorate, row.closed, row.witnesses, ballots);
        assert_eq!(
            (count.is_open(), count.counted, count.quorum, count.void),
            (row.is_open, row.counted, row.needed, row.void),
            "votes.txt, line {line}: {text}"
        );
        rows += 1;
    }
    assert!(rows >= ROWS_MIN, "only {rows} rows");
}

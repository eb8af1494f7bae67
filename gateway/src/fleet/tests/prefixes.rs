//! The same beginning of a prompt finds the same endpoint, unless it is too busy.

use super::*;

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn eight() -> Fleet {
    pool("prefix_hash", &NAMES.map(|name| (name, "")))
}

/// Where a prefix is served while nobody is busy.
fn home(fleet: &Fleet, prefix: u64) -> String {
    let chosen = m(fleet).choose(at(1), asker(prefix), &Tried::default()).unwrap();
    let name = name(&chosen.admission).to_owned();
    chosen.admission.withdraw();
    name
}

#[test]
fn the_same_prefix_finds_the_same_endpoint_on_every_node_and_all_have_some() {
    let (one, other) = (eight(), eight());
    let mut counts: HashMap<String, u32> = HashMap::new();
    for prefix in 1..=8_000 {
        let home_ = home(&one, prefix);
        assert_eq!(home_, home(&other, prefix));
        *counts.entry(home_).or_default() += 1;
    }
    assert!(NAMES.iter().all(|name| counts[*name].abs_diff(1_000) < 150), "{counts:?}");
}

#[test]
fn b11_only_the_prefixes_of_an_endpoint_that_goes_out_move_and_they_come_back_with_it() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let fleet = eight();
    let prefixes: Vec<u64> = (0..2_000).map(|_| chance.u64(1..)).collect();
    let homes: Vec<String> = prefixes.iter().map(|prefix| home(&fleet, *prefix)).collect();
    for out in NAMES {
        find(&fleet, out).force(quorum::Forced::Open);
        for (prefix, before) in prefixes.iter().zip(&homes) {
            let after = home(&fleet, *prefix);
            assert!(if before == out { after != out } else { after == *before }, "{prefix}");
        }
        find(&fleet, out).force(quorum::Forced::Auto);
        let back = prefixes.iter().map(|prefix| home(&fleet, *prefix));
        assert!(back.eq(homes.iter().cloned()));
    }
}

#[test]
fn one_that_was_tried_is_passed_over_for_the_next_in_the_order() {
    let fleet = eight();
    let (mut tried, mut seen) = (Tried::default(), Vec::new());
    while let Ok(chosen) = m(&fleet).choose(at(1), asker(7), &tried) {
        seen.push(name(&chosen.admission).to_owned());
        tried.insert(chosen.admission.endpoint());
        chosen.admission.withdraw();
    }
    assert_eq!((seen.len(), seen.first()), (8, Some(&home(&fleet, 7))));
    // Who is next does not depend on why the first is not asked.
    find(&fleet, seen.first().unwrap()).cool(at(1), at(9));
    assert_eq!(Some(&home(&fleet, 7)), seen.get(1));
}

#[test]
fn no_endpoint_has_more_than_a_quarter_above_the_mean_however_hot_a_prefix_is() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let fleet = eight();
    let mut held: Vec<Admission> = Vec::new();
    for _ in 0..3_000 {
        if held.len() > 100 && chance.bool() {
            drop(held.swap_remove(chance.usize(..held.len())));
        }
        // One prefix in two is the same.
        let prefix = if chance.bool() { 42 } else { chance.u64(1..) };
        let before = held.len() as f64;
        let chosen = m(&fleet).choose(at(1), asker(prefix), &Tried::default()).unwrap();
        let in_flight = f64::from(chosen.admission.endpoint().in_flight());
        assert!(in_flight <= ((before + 1.0) / 8.0 * 1.25).ceil(), "{in_flight} of {before}");
        held.push(chosen.admission);
    }
}

#[test]
fn weights_share_the_prefixes_out() {
    let fleet = pool("prefix_hash", &[("a", ", weight: 3"), ("b", "")]);
    let a = (1..=4_000).filter(|prefix| home(&fleet, *prefix) == "a").count();
    assert!(a.abs_diff(3_000) < 150, "{a}");
}

#[test]
fn without_a_prefix_all_are_as_good() {
    let fleet = eight();
    let mut seen: Vec<String> = (0..200).map(|_| home(&fleet, 0)).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 8);
}

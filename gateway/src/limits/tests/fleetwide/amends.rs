//! What is said to the ledger later: corrections, and what was admitted without it.

use super::*;

#[test]
fn what_was_admitted_without_the_ledger_is_corrected_after_it_was_told_as_well() {
    let limits = Limits { tpm: Some(30_000), ..Limits::default() };
    let ([mut one, ..], mut book) = (three(&limits), Book::default());
    let mut sum = |one: &mut Node, now| {
        one.tick(&mut book, now);
        book.sum(Duration::from_secs(1 << 20) + now).tokens
    };
    one.link.stand(Standing::Away);
    let mut charge = one.allowance.take(at(5), 100).unwrap();
    let cancelled = one.allowance.take(at(5), 30).unwrap();
    one.link.stand(Standing::Quick);
    assert_eq!(sum(&mut one, at(6)), 130);
    charge.correct(5_100);
    assert_eq!(sum(&mut one, at(7)), 5_130);
    let lost = "limit_corrections_lost_total 1";
    assert!(!one.meters.render().contains(lost));
    // What is given back now can no longer be found there.
    cancelled.cancel();
    assert!(one.meters.render().contains(lost), "{}", one.meters.render());
    assert_eq!(sum(&mut one, at(8)), 5_130);
    charge.correct(100);
    let lost = "limit_corrections_lost_total 2";
    assert!(one.meters.render().contains(lost));
    assert_eq!(sum(&mut one, at(67)), 0);
    // By now it counts no longer anyway.
    charge.correct(1);
    assert!(one.meters.render().contains(lost));
}

#[test]
fn what_surely_did_not_arrive_is_said_again_and_what_may_have_is_not() {
    let limits = Limits { tpm: Some(30_000), ..Limits::default() };
    for trouble in [
        Trouble::Busy,
        Trouble::Refused("LOADING"),
        Trouble::Away,
        Trouble::Timeout,
        Trouble::Wrong("no answer of the limits' script"),
    ] {
        let ([one, ..], mut book) = (three(&limits), Book::default());
        let mut charge = one.ask(&mut book, at(5), 100).unwrap();
        charge.correct(900);
        one.link.stand(Standing::Away);
        drop(one.allowance.take(at(5), 20).unwrap());
        one.link.stand(Standing::Quick);
        let turn = one.allowance.compose(at(6), &[]).unwrap();
        assert_eq!((turn.corrections.len(), turn.debt.tokens), (1, 20));
        let (_, lost) = one.allowance.settled((at(6), at(6)), &turn, Err(trouble));
        one.turn(&mut book, (at(7), Duration::ZERO), &[], Fate::Arrives);
        let sum = book.sum(Duration::from_secs(1 << 20) + at(7)).tokens;
        let is_known = matches!(trouble, Trouble::Busy | Trouble::Refused(_));
        assert_eq!((sum, lost), if is_known { (920, 0) } else { (100, 1) }, "{trouble:?}");
    }
}

#[test]
fn what_many_requests_of_many_moments_took_is_said_to_the_last() {
    let limits = Limits { tpm: Some(1_000_000), ..Limits::default() };
    let ([mut one, ..], mut book) = (three(&limits), Book::default());
    let mut running = Vec::new();
    for moment in 0..50_u64 {
        // So seldom that nothing is set aside, which would be of few moments.
        let now = at(10) + Duration::from_millis(1_100 * moment);
        let told = one.turn(&mut book, (now, Duration::ZERO), &[100; 10], Fate::Arrives);
        running.extend(told.into_iter().map(Result::unwrap));
    }
    while one.intake.told.try_recv().is_ok() {}
    // They end in an order that has nothing to do with the moments of which they are.
    fastrand::Rng::with_seed(7).shuffle(&mut running);
    let mut is_told = Vec::new();
    for charge in &mut running {
        charge.correct(200);
        is_told.push(one.intake.told.try_recv().is_ok());
    }
    // Once they fill a turn the teller is told, and not before the next turn once more.
    assert!(is_told[..31].iter().all(|is_told| !is_told));
    assert_eq!(is_told.iter().filter(|is_told| **is_told).count(), 1);
    assert!(one.meters.render().contains("limit_corrections_lost_total 0"));
    for _ in 0..2 {
        one.turn(&mut book, (at(66), Duration::ZERO), &[], Fate::Arrives);
    }
    assert_eq!(book.sum(Duration::from_secs(1 << 20) + at(66)).tokens, 100_000);
}

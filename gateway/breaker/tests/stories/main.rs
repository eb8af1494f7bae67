//! Runs the stories of the text files beside it, which say in plain sentences what the breaker
//! promises.
//!
//! A table of sentences can be checked against the specification by someone who reads no Rust. The
//! reader here knows the few sentence forms that are explained at the top of `stories.txt`, and stops
//! at the first line that it does not understand or that does not hold, naming the line.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop loudly"
)]

mod telling;
mod words;

use crate::telling::Telling;

const SPECIFICATION: &str = include_str!("specification.txt");

const FILES: [(&str, &str); 8] = [
    ("stories.txt", include_str!("stories.txt")),
    ("ladder.txt", include_str!("ladder.txt")),
    ("times.txt", include_str!("times.txt")),
    ("modes.txt", include_str!("modes.txt")),
    ("held.txt", include_str!("held.txt")),
    ("lent.txt", include_str!("lent.txt")),
    ("specification.txt", SPECIFICATION),
    ("cases.txt", include_str!("cases.txt")),
];

/// One paragraph: its title and its other lines, each with its number in the file.
struct Story {
    file: &'static str,
    title: &'static str,
    lines: Vec<(usize, &'static str)>,
}

fn stories() -> Vec<Story> {
    FILES.iter().flat_map(|(file, text)| read(file, text)).collect()
}

fn read(file: &'static str, text: &'static str) -> Vec<Story> {
    let mut stories: Vec<Story> = Vec::new();
    let mut is_inside = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            is_inside = false;
        } else if is_inside {
            stories.last_mut().unwrap().lines.push((index + 1, line));
        } else {
            stories.push(Story { file, title: line, lines: Vec::new() });
            is_inside = true;
        }
    }
    stories
}

fn tell(story: &Story) {
    let mut telling = Telling::new();
    for (number, line) in &story.lines {
        if let Err(complaint) = telling.line(line) {
            panic!("{}:{number}: in \"{}\": {line}: {complaint}", story.file, story.title);
        }
    }
}

/// Tells every story whose title begins with this id.
fn tell_case(id: &str) {
    let stories = stories();
    let chosen: Vec<&Story> = stories.iter().filter(|story| story.title.starts_with(id)).collect();
    assert!(!chosen.is_empty(), "there is no story {id}");
    for story in chosen {
        tell(story);
    }
}

#[test]
fn every_story_holds() {
    let stories = stories();
    for story in &stories {
        tell(story);
    }
    println!("{} stories", stories.len());
    assert!(stories.len() >= 150, "some stories were not found");
}

#[test]
fn every_row_of_the_specification_has_a_story_that_exists() {
    let stories = stories();
    let rows = SPECIFICATION.lines().filter_map(|line| line.strip_prefix("#   "));
    let mut count = 0;
    for row in rows {
        let (_, title) = row.split_once(" = ").expect(row);
        let is_outside = title.starts_with("outside: ");
        assert!(is_outside || stories.iter().any(|story| story.title == title), "{row}");
        count += 1;
    }
    println!("{count} rows");
    assert!(count >= 90, "some rows were not found");
}

#[test]
fn no_two_stories_have_one_title() {
    let mut titles: Vec<&str> = stories().iter().map(|story| story.title).collect();
    titles.sort_unstable();
    let twice = titles.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None);
}

#[test]
#[should_panic(expected = "it is closed")]
fn a_story_that_is_not_true_is_noticed() {
    tell(&Story {
        file: "here",
        title: "One fault opens",
        lines: vec![(1, "at 0s  a request fails (500)"), (2, "then the circuit is open")],
    });
}

#[test]
fn f02_neutral_is_not_success() {
    tell_case("F02");
}

#[test]
fn f06_what_the_gateway_refuses_is_not_recorded() {
    tell_case("F06");
}

#[test]
fn f08_a_single_jitter_does_not_disable() {
    tell_case("F08");
}

#[test]
fn f09_a_burst_is_one_piece_of_evidence() {
    tell_case("F09");
}

#[test]
fn u32_sixty_slow_requests_in_one_interval_are_one_piece() {
    tell_case("U32");
}

#[test]
fn u34_two_slow_requests_six_hours_apart_are_no_trip() {
    tell_case("U34");
}

#[test]
fn u35_a_flapping_endpoint_is_kept_out_ever_longer() {
    tell_case("U35");
}

#[test]
fn b01_half_open_ends_whatever_becomes_of_the_probe() {
    tell_case("B01");
}

#[test]
fn b02_half_open_admits_exactly_as_many_as_it_should() {
    tell_case("B02");
}

#[test]
fn b04_becoming_half_open_twice_is_becoming_half_open_once() {
    tell_case("B04");
}

#[test]
fn b05_only_small_requests_decide_about_recovery() {
    tell_case("B05");
}

#[test]
fn b07_a_clock_that_jumps_back_changes_nothing() {
    tell_case("B07");
}

#[test]
fn f01_4xx_does_not_trip() {
    tell_case("F01");
}

#[test]
fn f04_a_client_that_goes_away_is_neutral() {
    tell_case("F04");
}

#[test]
fn f05_a_timeout_that_the_client_chose_is_neutral() {
    tell_case("F05");
}

#[test]
fn f11_expiry_really_restores() {
    tell_case("F11");
}

#[test]
fn f12_half_open_admits_one() {
    tell_case("F12");
}

#[test]
fn f13_a_lost_probe_owner_does_not_block() {
    tell_case("F13");
}

#[test]
fn f14_a_retry_asks_the_breaker_again() {
    tell_case("F14");
}

#[test]
fn f41_a_reload_keeps_the_opening() {
    tell_case("F41");
}

#[test]
fn f42_a_restart_remembers() {
    tell_case("F42");
}

#[test]
fn b08_a_restart_keeps_the_opening_less_the_time_away() {
    tell_case("B08");
}

#[test]
fn a05_a_cancelled_probe_frees_its_place_at_once() {
    tell_case("A05");
}

#[test]
fn u10_too_many_requests_is_no_fault() {
    tell_case("U10");
}

#[test]
fn u37_passing_through_finds_the_endpoint_that_is_well() {
    tell_case("U37");
}

#[test]
fn x10_a_starved_process_does_not_blame_the_endpoint() {
    tell_case("X10");
}

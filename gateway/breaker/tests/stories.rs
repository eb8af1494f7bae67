//! Runs the stories of `stories.txt`, `held.txt` and `cases.txt`, which say in plain sentences what the breaker promises.
//!
//! A table of sentences can be checked against the specification by someone who reads no Rust. The
//! reader here knows the few sentence forms that are explained at the top of that file, and stops
//! at the first line that it does not understand or that does not hold, naming the line.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop loudly"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use breaker::{
    Breaker, Cause, Errand, JITTER, Outcome, Permit, Refusal, Rule, SlowKind, State, Transition,
};

const FILES: [(&str, &str); 3] = [
    ("stories.txt", include_str!("stories.txt")),
    ("held.txt", include_str!("held.txt")),
    ("cases.txt", include_str!("cases.txt")),
];

/// One paragraph: its title and its other lines, each with its number in the file.
struct Story {
    file: &'static str,
    title: &'static str,
    lines: Vec<(usize, &'static str)>,
}

/// A story as it is being told.
struct Telling {
    rule: Rule,
    breaker: Option<Breaker>,
    now: Duration,
    permits: BTreeMap<String, Vec<Permit>>,
    last: Option<Transition>,
    has_changed: bool,
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
    let mut telling = Telling {
        rule: Rule::default(),
        breaker: None,
        now: Duration::ZERO,
        permits: BTreeMap::new(),
        last: None,
        has_changed: false,
    };
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

impl Telling {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(preset) = line.strip_prefix("given the preset ") {
            self.rule = Rule::preset(preset).ok_or("no such preset")?;
            return Ok(());
        }
        if let Some(setting) = line.strip_prefix("given ") {
            let (key, value) = setting.split_once(" is ").ok_or("no value")?;
            return set(&mut self.rule, key, value);
        }
        if let Some(event) = line.strip_prefix("at ") {
            let (time, event) = event.split_once(' ').ok_or("no event")?;
            self.now = duration(time)?;
            self.has_changed = false;
            return self.event(event.trim());
        }
        let claim = line.strip_prefix("then ").ok_or("no such sentence")?;
        self.claim(claim)
    }

    fn breaker(&mut self) -> &mut Breaker {
        let rule = &self.rule;
        self.breaker.get_or_insert_with(|| {
            rule.check().expect("a story's settings are sound");
            Breaker::new(rule.clone(), 1)
        })
    }

    fn note(&mut self, transition: Option<Transition>) {
        if transition.is_some() {
            self.last = transition;
            self.has_changed = true;
        }
    }

    fn event(&mut self, event: &str) -> Result<(), String> {
        let now = self.now;
        match event {
            "time passes" => {
                let transition = self.breaker().tick(now);
                self.note(transition);
                return Ok(());
            }
            "the fleet holds the endpoint" => {
                self.breaker().hold(now);
                return Ok(());
            }
            "the fleet releases the endpoint" => {
                let transition = self.breaker().release(now);
                self.note(transition);
                return Ok(());
            }
            _ => {}
        }
        if let Some((key, value)) = event.split_once(" becomes ") {
            set(&mut self.rule, key, value)?;
            let rule = self.rule.clone();
            self.breaker().set_rule(rule);
            return Ok(());
        }
        if let Some((name, start)) = event.split_once(": ")
            && is_name(name)
        {
            let start = start.strip_suffix(" starts").or(start.strip_suffix(" start"));
            return self.start(name, start.ok_or("it should start")?);
        }
        let (subject, deed) = event.split_once(' ').ok_or("no deed")?;
        if is_name(subject) {
            return self.go_on(subject, deed);
        }
        self.at_once(event)
    }

    /// `A: 3 requests start`
    fn start(&mut self, name: &str, subject: &str) -> Result<(), String> {
        let (count, errand, rest) = errand(subject)?;
        if !rest.is_empty() {
            return Err(format!("what is {rest:?}?"));
        }
        for _ in 0..count {
            let permit = self.admit(errand).map_err(|refusal| format!("refused: {refusal}"))?;
            self.permits.entry(name.to_owned()).or_default().push(permit);
        }
        Ok(())
    }

    /// `A crosses the total limit`, `A is forgotten`, `A fails (cut)`
    fn go_on(&mut self, name: &str, deed: &str) -> Result<(), String> {
        let mut permits = self.permits.remove(name).ok_or("nobody has that name")?;
        if let Some(kind) = deed.strip_prefix("crosses the ") {
            let kind = slow_kind(kind.strip_suffix(" limit").ok_or("which limit?")?)?;
            for permit in &mut permits {
                let now = self.now;
                let transition = self.breaker().slow(now, permit, kind);
                self.note(transition);
            }
            self.permits.insert(name.to_owned(), permits);
            return Ok(());
        }
        if deed == "is forgotten" {
            return Ok(());
        }
        let outcome = outcome(deed)?;
        for permit in permits {
            self.settle(permit, outcome);
        }
        Ok(())
    }

    /// `4 requests fail (500)`, `a probe is refused: open`
    fn at_once(&mut self, event: &str) -> Result<(), String> {
        let (count, errand, deed) = errand(event)?;
        let refusal = deed.strip_prefix("is refused: ").or(deed.strip_prefix("are refused: "));
        for _ in 0..count {
            match (self.admit(errand), refusal) {
                (Ok(permit), None) => self.settle(permit, outcome(deed)?),
                (Err(got), Some(expected)) if refusal_word(got) == expected => {}
                (Ok(_), Some(_)) => return Err("it was admitted".to_owned()),
                (Err(got), _) => return Err(format!("it was refused: {got}")),
            }
        }
        Ok(())
    }

    fn admit(&mut self, errand: Errand) -> Result<Permit, Refusal> {
        let now = self.now;
        let (answer, transition) = self.breaker().admit(now, errand);
        self.note(transition);
        answer
    }

    fn settle(&mut self, permit: Permit, outcome: Outcome) {
        let now = self.now;
        let transition = self.breaker().settle(now, permit, outcome);
        self.note(transition);
    }

    fn claim(&mut self, claim: &str) -> Result<(), String> {
        let now = self.now;
        let view = self.breaker().view(now);
        let (subject, expected) =
            claim.split_once(" is ").or(claim.split_once(" are ")).unwrap_or((claim, ""));
        let got = match subject {
            "nothing changed" => {
                let last = self.last.filter(|_| self.has_changed);
                return last.map_or(Ok(()), |last| Err(format!("but {last:?}")));
            }
            "the cool-down" => return self.claim_cool_down(expected),
            "the reason" => self.last.ok_or("nothing changed so far")?.reason.to_string(),
            "the circuit" => view.state.to_string(),
            "the endpoint" if view.held => "held".to_owned(),
            "the endpoint" => "not held".to_owned(),
            "the epoch" => view.epoch.to_string(),
            "the level" => view.level.to_string(),
            "the streak" => view.streak.to_string(),
            "the requests" => view.requests.to_string(),
            "the faults" => view.faults.to_string(),
            "the successes" => view.successes.to_string(),
            "the slow pieces" => view.slow_pieces.to_string(),
            "the half-open in flight" => view.half_open_in_flight.to_string(),
            "the half-open successes" => view.half_open_successes.to_string(),
            "the half-open idle" => age(view.half_open_idle),
            "the last success" => age(view.last_success),
            _ => return Err("no such claim".to_owned()),
        };
        if got == expected { Ok(()) } else { Err(format!("it is {got}")) }
    }

    /// `the cool-down is about 5s`: within the jitter and not beyond the cap.
    fn claim_cool_down(&self, expected: &str) -> Result<(), String> {
        let nominal = duration(expected.strip_prefix("about ").ok_or("about what?")?)?;
        let last = self.last.ok_or("nothing changed so far")?;
        let got = last.remaining.ok_or("the last change opened nothing")?;
        let (low, high) = (nominal.mul_f64(1.0 - JITTER), nominal.mul_f64(1.0 + JITTER));
        let is_about = (low..=high).contains(&got) && got <= self.rule.open.max;
        if is_about && last.to == State::Open { Ok(()) } else { Err(format!("it is {got:?}")) }
    }
}

fn is_name(word: &str) -> bool {
    word.len() == 1 && word.chars().all(|letter| letter.is_ascii_uppercase())
}

/// Reads `a request`, `4 forced requests`, `a request of 300 tokens`, and returns the rest.
fn errand(text: &str) -> Result<(usize, Errand, &str), String> {
    let (count, text) = text.split_once(' ').ok_or("how many?")?;
    let count = if count == "a" { 1 } else { count.parse().map_err(|_| "how many?")? };
    for (kind, errand) in [
        ("forced request", Errand::PassThrough),
        ("request", Errand::Request { prompt_tokens: 100 }),
        ("probe", Errand::Probe),
    ] {
        let Some(rest) = text.strip_prefix(kind) else {
            continue;
        };
        let rest = rest.strip_prefix('s').unwrap_or(rest).trim_start();
        let Some(size) = rest.strip_prefix("of ") else {
            return Ok((count, errand, rest));
        };
        let (tokens, rest) = size.split_once(" tokens ").ok_or("how many tokens?")?;
        let prompt_tokens = tokens.parse().map_err(|_| "how many tokens?")?;
        return Ok((count, Errand::Request { prompt_tokens }, rest));
    }
    Err("what kind of request?".to_owned())
}

/// Reads `succeeds`, `fails (500, weight 0.5)`, `is slow (total)`, `is neutral (a remark)`.
fn outcome(deed: &str) -> Result<Outcome, String> {
    let (deed, remark) = deed.split_once(" (").unwrap_or((deed, ""));
    let remark = remark.trim_end_matches(')');
    match deed {
        "succeeds" | "succeed" => Ok(Outcome::Success),
        "is neutral" | "are neutral" => Ok(Outcome::Neutral),
        "is slow" | "are slow" => Ok(Outcome::Slow(slow_kind(remark)?)),
        "fails" | "fail" => {
            let (word, weight) = remark.split_once(", weight ").unwrap_or((remark, "1"));
            let weight = weight.parse().map_err(|_| "what weight?")?;
            Ok(Outcome::Fault { weight, cause: cause(word)? })
        }
        _ => Err(format!("what does {deed:?} mean?")),
    }
}

fn cause(word: &str) -> Result<Cause, String> {
    match word {
        "refused" => Ok(Cause::Refused),
        "timeout" => Ok(Cause::Timeout),
        "malformed" => Ok(Cause::Malformed),
        "cut" => Ok(Cause::Cut),
        "other" => Ok(Cause::Other),
        code => Ok(Cause::Status(code.parse().map_err(|_| "what fault?")?)),
    }
}

fn slow_kind(word: &str) -> Result<SlowKind, String> {
    match word {
        "total" => Ok(SlowKind::Total),
        "first token" => Ok(SlowKind::FirstToken),
        _ => Err("slow in what way?".to_owned()),
    }
}

fn refusal_word(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Open { remaining } => {
            assert!(!remaining.is_zero(), "an open circuit says for how long");
            "open"
        }
        Refusal::HalfOpenFull => "full",
        Refusal::PromptTooLarge => "too large",
        Refusal::Held => "held",
    }
}

fn set(rule: &mut Rule, key: &str, value: &str) -> Result<(), String> {
    let number = || value.parse::<u32>().map_err(|_| format!("{value:?} is no number"));
    match key {
        "failure_threshold" => rule.failure_threshold = number()?,
        "window" => rule.window = duration(value)?,
        "open.base" => rule.open.base = duration(value)?,
        "open.max" => rule.open.max = duration(value)?,
        "half_open.max_requests" => rule.half_open.max_requests = number()?,
        "half_open.successes" => rule.half_open.successes = number()?,
        _ => return Err("no such setting".to_owned()),
    }
    Ok(())
}

fn age(age: Option<Duration>) -> String {
    age.map_or("none".to_owned(), |age| format!("{age:?}"))
}

/// Reads one number with one unit.
fn duration(text: &str) -> Result<Duration, String> {
    for (unit, milliseconds) in [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)] {
        if let Some(Ok(number)) = text.strip_suffix(unit).map(str::parse::<u64>) {
            return Ok(Duration::from_millis(number * milliseconds));
        }
    }
    Err(format!("{text:?} is no time"))
}

#[test]
fn every_story_holds() {
    let stories = stories();
    for story in &stories {
        tell(story);
    }
    println!("{} stories", stories.len());
    assert!(stories.len() >= 60, "some stories were not found");
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

//! A story as it is being told: the breaker, the requests that have a name, and what last changed.
//!
//! The process of a story can stop and start again; its clock then begins at zero once more, while
//! the story's time goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use breaker::{
    Breaker, Errand, JITTER, Outcome, Permit, Refusal, Rule, Snapshot, State, Timing, Transition,
};

use crate::words;

/// A story as it is being told.
pub(crate) struct Telling {
    rule: Rule,
    breaker: Option<Breaker>,
    now: Duration,
    permits: BTreeMap<String, Vec<Permit>>,
    last: Option<Transition>,
    has_changed: bool,
    /// When the process began, in the story's time.
    origin: Duration,
    /// What the process that stopped left behind, and when.
    left: Option<(Snapshot, Duration)>,
}

impl Telling {
    pub(crate) fn new() -> Self {
        Telling {
            rule: words::plain_rule(),
            breaker: None,
            now: Duration::ZERO,
            permits: BTreeMap::new(),
            last: None,
            has_changed: false,
            origin: Duration::ZERO,
            left: None,
        }
    }

    /// The process's clock.
    fn clock(&self) -> Duration {
        self.now.saturating_sub(self.origin)
    }

    pub(crate) fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(preset) = line.strip_prefix("given the preset ") {
            let Rule { recovery, half_open, .. } = words::plain_rule();
            let rule = Rule::preset(preset).ok_or("no such preset")?;
            self.rule = Rule { recovery, half_open, ..rule };
            return Ok(());
        }
        if line == "given the whole ladder" {
            let Rule { recovery, half_open, .. } = Rule::default();
            self.rule = Rule { recovery, half_open, ..self.rule.clone() };
            return Ok(());
        }
        if let Some(setting) = line.strip_prefix("given ") {
            let (key, value) = setting.split_once(" is ").ok_or("no value")?;
            return words::set(&mut self.rule, key, value);
        }
        if let Some(event) = line.strip_prefix("at ") {
            let (time, event) = event.split_once(' ').ok_or("no event")?;
            self.now = words::duration(time)?;
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
        if let Some(transition) = self.deed_of_the_process(event) {
            self.note(transition);
            return Ok(());
        }
        if let Some(successes) = event.strip_prefix("the fleet lends the slot") {
            let (clock, successes) = (self.clock(), words::successes(successes)?);
            let transition = self.breaker().lend(clock, successes);
            self.note(transition);
            return Ok(());
        }
        if let Some(since) = event.strip_prefix("the process was late since ") {
            let since = words::duration(since)?.saturating_sub(self.origin);
            let clock = self.clock();
            self.breaker().discard_slow(clock, since);
            return Ok(());
        }
        if let Some((key, value)) = event.split_once(" becomes ") {
            words::set(&mut self.rule, key, value)?;
            let rule = self.rule.clone();
            let transition = self.breaker().set_rule(rule);
            self.note(transition);
            return Ok(());
        }
        if let Some((name, start)) = event.split_once(": ")
            && words::is_name(name)
        {
            let start = start.strip_suffix(" starts").or(start.strip_suffix(" start"));
            return self.start(name, start.ok_or("it should start")?);
        }
        let (subject, deed) = event.split_once(' ').ok_or("no deed")?;
        if words::is_name(subject) {
            return self.go_on(subject, deed);
        }
        self.at_once(event)
    }

    fn deed_of_the_process(&mut self, event: &str) -> Option<Option<Transition>> {
        let clock = self.clock();
        Some(match event {
            "time passes" => self.breaker().tick(clock),
            "the endpoint is found much slower than its siblings" => {
                self.breaker().convict_relative(clock)
            }
            "the fleet holds the endpoint" => self.breaker().hold(clock),
            "the fleet releases the endpoint" => self.breaker().release(clock),
            "the process stops" => {
                self.left = Some((self.breaker().snapshot(clock), self.now));
                self.permits.clear();
                None
            }
            "the process starts again" => self.start_again(false),
            "the process starts again and knows for how long it was away" => self.start_again(true),
            _ => return None,
        })
    }

    fn start_again(&mut self, knows: bool) -> Option<Transition> {
        let (mut snapshot, stopped) = self.left.take().expect("it has stopped");
        if knows {
            snapshot.away = self.now - stopped;
        }
        self.origin = self.now;
        self.breaker = Some(Breaker::restore(self.rule.clone(), 1, &snapshot, Duration::ZERO));
        None
    }

    /// `A: 3 requests start`
    fn start(&mut self, name: &str, subject: &str) -> Result<(), String> {
        let (count, errand, rest) = words::errand(subject)?;
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
            let kind = words::slow_kind(kind.strip_suffix(" limit").ok_or("which limit?")?)?;
            for permit in &mut permits {
                let now = self.clock();
                let transition = self.breaker().slow(now, permit, kind);
                self.note(transition);
            }
            self.permits.insert(name.to_owned(), permits);
            return Ok(());
        }
        if deed == "is forgotten" {
            return Ok(());
        }
        let outcome = words::outcome(deed)?;
        for permit in permits {
            self.settle(permit, outcome);
        }
        Ok(())
    }

    /// `4 requests fail (500)`, `a probe is refused: open`
    fn at_once(&mut self, event: &str) -> Result<(), String> {
        let (count, errand, deed) = words::errand(event)?;
        let refusal = deed.strip_prefix("is refused: ").or(deed.strip_prefix("are refused: "));
        for _ in 0..count {
            match (self.admit(errand), refusal) {
                (Ok(permit), None) => self.settle(permit, words::outcome(deed)?),
                (Err(got), Some(expected)) if words::refusal(got) == expected => {}
                (Ok(_), Some(_)) => return Err("it was admitted".to_owned()),
                (Err(got), _) => return Err(format!("it was refused: {got}")),
            }
        }
        Ok(())
    }

    fn admit(&mut self, errand: Errand) -> Result<Permit, Refusal> {
        let now = self.clock();
        let (answer, transition) = self.breaker().admit(now, errand);
        self.note(transition);
        answer
    }

    fn settle(&mut self, permit: Permit, (outcome, timing): (Outcome, Option<Timing>)) {
        let now = self.clock();
        let transition = self.breaker().settle_timed(now, permit, outcome, timing);
        self.note(transition);
    }

    fn claim(&mut self, claim: &str) -> Result<(), String> {
        if let Some(key) = claim.strip_prefix("the settings are refused: ") {
            let error = self.rule.check().err().ok_or("they are sound")?;
            return if error.key == key { Ok(()) } else { Err(format!("because of {error}")) };
        }
        if let Some((what, expected)) = words::about_evidence(claim) {
            let got = self.evidence(what)?;
            return if got == expected { Ok(()) } else { Err(format!("it is {got}")) };
        }
        let now = self.clock();
        let view = self.breaker().view(now);
        let (subject, expected) =
            claim.split_once(" is ").or(claim.split_once(" are ")).unwrap_or((claim, ""));
        let got = match subject {
            "nothing changed" => {
                let last = self.last.filter(|_| self.has_changed);
                return last.map_or(Ok(()), |last| Err(format!("but {last:?}")));
            }
            "the cool-down" => return self.claim_cool_down(expected),
            "the remaining time" => words::age(view.remaining),
            "the reason" => self.last.ok_or("nothing changed so far")?.reason.to_string(),
            "the circuit" => view.state.to_string(),
            "the rung" => view.rung.map_or("none".to_owned(), |rung| rung.to_string()),
            "the share" => self.breaker().share(now).to_string(),
            "the first token p95" => return words::claim_about(view.first_token_p95, expected),
            "the total p95" => return words::claim_about(view.total_p95, expected),
            "the canaries asked" => view.canary_asked.to_string(),
            "the canaries admitted" => view.canary_admitted.to_string(),
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
            "the half-open idle" => words::age(view.half_open_idle),
            "the last success" => words::age(view.last_success),
            _ => return Err("no such claim".to_owned()),
        };
        if got == expected { Ok(()) } else { Err(format!("it is {got}")) }
    }

    /// What is there to be pooled, or what the last change of state had gathered.
    fn evidence(&mut self, what: &str) -> Result<String, String> {
        let now = self.clock();
        let pooled = self.breaker().evidence(now);
        let gathered = self.last.map(|last| last.gathered).unwrap_or_default();
        let whole = |millionths: u64| (millionths as f64 / 1e6).to_string();
        Ok(match what {
            "pooled requests" => pooled.requests.to_string(),
            "pooled faults" => whole(pooled.fault_millionths),
            "pooled successes" => pooled.successes.to_string(),
            "pooled slow ages" => words::ages(pooled.slow.iter().flatten()),
            "pooled last success" => words::age(pooled.last_success),
            "gathered requests" => gathered.requests.to_string(),
            "gathered faults" => whole(gathered.fault_millionths),
            "gathered successes" => gathered.successes.to_string(),
            "gathered streak" => gathered.streak.to_string(),
            "gathered slow pieces" => gathered.slow_pieces.to_string(),
            _ => return Err("no such evidence".to_owned()),
        })
    }

    /// `the cool-down is about 5s`: within the jitter and not beyond the cap.
    fn claim_cool_down(&self, expected: &str) -> Result<(), String> {
        let nominal = words::duration(expected.strip_prefix("about ").ok_or("about what?")?)?;
        let last = self.last.ok_or("nothing changed so far")?;
        let got = last.remaining.ok_or("the last change opened nothing")?;
        let (low, high) = (nominal.mul_f64(1.0 - JITTER), nominal.mul_f64(1.0 + JITTER));
        let is_about = (low..=high).contains(&got) && got <= self.rule.open.max;
        if is_about && last.to == State::Open { Ok(()) } else { Err(format!("it is {got:?}")) }
    }
}

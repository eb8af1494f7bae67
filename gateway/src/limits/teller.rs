//! The one task that speaks to the fleet's ledger for all limits of this node.
//!
//! At most one turn of a subject is under way: what comes meanwhile goes into the next, so that a crowd
//! that asks at once costs two round trips and not one each.
//!
//! Invariants: at most [`TURNS_MAX`] turns are under way, at most [`WAITING_MAX`] demands of a subject
//! wait, at most [`SUBJECTS_MAX`] subjects are known; what finds no place is decided without the ledger.
//! A subject that finds too many turns under way has its own before any that came later.
//! A place that nobody waits for is given back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redis_lua::client::{Client, Health};
use redis_lua::error::Trouble;
use redis_lua::keys::Keys;
use redis_lua::limits::{Answer, CORRECTIONS_MAX, DEMANDS_MAX, Subject, Turn, turn};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::link::{ASK_MAX, Demand, Intake, Link, SUBJECTS_MAX, Standing};
use super::{Allowance, Share, Whom};
use crate::clock;
use crate::metrics::Meters;

/// What is not urgent is said this often.
const TICK: Duration = Duration::from_millis(100);
/// Most turns under way.
const TURNS_MAX: usize = 256;
/// Most demands of one subject that wait for its next turn.
const WAITING_MAX: usize = 4_096;
/// At the end everything is given back within this.
const FAREWELL: Duration = Duration::from_millis(200);

/// Where a fleet keeps its limits, and as whom this node speaks there.
pub struct Ledger {
    /// The way to it.
    pub client: Client,
    /// What its keys are called.
    pub keys: Keys,
    /// This node.
    pub node: String,
    /// Which life of it.
    pub generation: u64,
}

/// Keeps the limits of `share` in a ledger from here on. The future must be polled for that to be so; when
/// it ends, at `stopped`, this node goes by its share again.
pub fn keep(
    ledger: Ledger,
    share: &Share,
    meters: &Meters,
    stopped: watch::Receiver<bool>,
) -> impl Future<Output = ()> + Send + use<> {
    let (link, intake) = Link::new(meters);
    share.join(&link);
    Teller::new(ledger, link).run(intake, stopped)
}

struct Teller {
    ledger: Ledger,
    link: Arc<Link>,
    /// At most [`SUBJECTS_MAX`].
    known: HashMap<Whom, Entry>,
    /// At most [`TURNS_MAX`].
    turns: JoinSet<Turned>,
    /// Whose turn is next once another has ended; each subject once.
    due: VecDeque<Whom>,
}

/// What is known of one subject.
struct Entry {
    allowance: Arc<Allowance>,
    subject: Arc<Subject>,
    /// At most [`WAITING_MAX`].
    waiting: VecDeque<Demand>,
    is_busy: bool,
    /// Whether there is something that cannot wait for the next tick.
    is_urgent: bool,
    /// Whether it stands in the queue.
    is_due: bool,
}

/// A turn that was taken, or not.
struct Turned {
    allowance: Arc<Allowance>,
    turn: Turn,
    demands: Vec<Demand>,
    sent: Duration,
    result: Result<Answer, Trouble>,
}

impl Teller {
    fn new(ledger: Ledger, link: Arc<Link>) -> Self {
        let (known, turns, due) = (HashMap::new(), JoinSet::new(), VecDeque::new());
        Self { ledger, link, known, turns, due }
    }

    async fn run(mut self, mut intake: Intake, mut stopped: watch::Receiver<bool>) {
        let mut health = self.ledger.client.health();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.stand(&health.borrow_and_update());
        loop {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => break,
                changed = health.changed() => {
                    // Without its supervisor the client answers nobody.
                    if changed.is_err() { break }
                    self.stand(&health.borrow_and_update());
                }
                Some(turned) = self.turns.join_next() => self.turned(turned.ok()),
                Some(demand) = intake.demands.recv() => self.demand(demand),
                Some(allowance) = intake.told.recv() => self.told(&allowance),
                _ = tick.tick() => self.tick(),
            }
        }
        self.farewell().await;
    }

    fn stand(&self, health: &Health) {
        match health {
            Health::Up => self.link.stand(Standing::Quick),
            Health::Down { .. } => self.link.stand(Standing::Away),
        }
    }

    fn demand(&mut self, demand: Demand) {
        let whom = demand.allowance.whom().clone();
        let allowance = Arc::clone(&demand.allowance);
        let Some(entry) = self.entry(&allowance) else { return };
        // Whoever asks is served from here on; what runs on may have begun elsewhere.
        entry.allowance = allowance;
        if entry.waiting.len() < WAITING_MAX {
            entry.waiting.push_back(demand);
            self.turn(&whom);
        }
    }

    fn told(&mut self, allowance: &Arc<Allowance>) {
        if let Some(entry) = self.entry(allowance) {
            entry.is_urgent = true;
            self.turn(allowance.whom());
        }
    }

    /// What is known of a subject.
    fn entry(&mut self, allowance: &Arc<Allowance>) -> Option<&mut Entry> {
        let whom = allowance.whom();
        if !self.known.contains_key(whom) {
            if self.known.len() >= SUBJECTS_MAX {
                return None;
            }
            let subject = Subject::new(&self.ledger.keys, whom.kind, &whom.name);
            let entry = Entry {
                allowance: Arc::clone(allowance),
                subject: Arc::new(subject),
                waiting: VecDeque::new(),
                is_busy: false,
                is_urgent: false,
                is_due: false,
            };
            self.known.insert(whom.clone(), entry);
        }
        self.known.get_mut(whom)
    }

    /// Takes the next turn of a subject, unless the ledger is away.
    fn turn(&mut self, whom: &Whom) {
        if self.link.standing() != Standing::Away {
            self.begin(whom);
        } else if let Some(entry) = self.known.get_mut(whom) {
            // Those who wait are answered by their share.
            entry.waiting.clear();
        }
    }

    /// Takes the next turns of those that had to wait for others.
    fn begin_due(&mut self) {
        while self.turns.len() < TURNS_MAX
            && let Some(whom) = self.due.pop_front()
        {
            self.known.get_mut(&whom).into_iter().for_each(|entry| entry.is_due = false);
            self.begin(&whom);
        }
    }

    /// Takes the next turn of a subject, if there is something to say and none is under way; once there is
    /// place for it.
    fn begin(&mut self, whom: &Whom) {
        let Some(entry) = self.known.get_mut(whom).filter(|entry| !entry.is_busy) else { return };
        if self.turns.len() >= TURNS_MAX {
            if !std::mem::replace(&mut entry.is_due, true) {
                self.due.push_back(whom.clone());
            }
            return;
        }
        let mut demands = Vec::new();
        while demands.len() < DEMANDS_MAX
            && let Some(demand) = entry.waiting.pop_front()
        {
            if !demand.reply.is_closed() {
                demands.push(demand);
            }
        }
        let tokens: Vec<u64> = demands.iter().map(|demand| demand.tokens).collect();
        entry.is_urgent = false;
        let now = clock::now();
        let Some(turn) = entry.allowance.compose(now, &tokens) else { return };
        entry.is_busy = true;
        let (node, generation) = (self.ledger.node.clone(), self.ledger.generation);
        let turn = Turn { node, generation, ..turn };
        let Ledger { client, keys, .. } = &self.ledger;
        let (client, keys, subject) = (client.clone(), keys.clone(), Arc::clone(&entry.subject));
        let allowance = Arc::clone(&entry.allowance);
        self.turns.spawn(async move {
            let result = self::turn(&client, &keys, &subject, &turn).await;
            Turned { allowance, turn, demands, sent: now, result }
        });
    }

    /// Takes what became of a turn; `None`: it was cut off.
    fn turned(&mut self, turned: Option<Turned>) {
        let Some(Turned { allowance, turn, demands, sent, result }) = turned else {
            // Nobody knows whose it was, and no subject must wait for it for ever.
            self.known.values_mut().for_each(|entry| entry.is_busy = false);
            return self.begin_due();
        };
        let now = clock::now();
        self.measure(now.saturating_sub(sent), result.as_ref().err());
        // A full turn has left others behind; after a failure they wait for the next tick.
        let is_behind = result.is_ok() && turn.corrections.len() >= CORRECTIONS_MAX;
        if let Some(torn) = result.as_ref().ok().map(|answer| answer.torn).filter(|torn| *torn > 0)
        {
            tracing::warn!(whom = %allowance.whom().name, torn, "limits in Redis cannot be read");
        }
        let answer = result.as_ref().map_err(|trouble| *trouble);
        let (decided, lost) = allowance.settled((sent, now), &turn, answer);
        self.link.lose(lost);
        for (demand, decision) in demands.into_iter().zip(decided) {
            if let Err(Ok(charge)) = demand.reply.send(decision) {
                charge.cancel();
            }
        }
        // Before this one has its next turn others have theirs.
        self.begin_due();
        let Some(entry) = self.known.get_mut(allowance.whom()) else { return };
        entry.is_busy = false;
        if entry.is_urgent || is_behind || !entry.waiting.is_empty() {
            self.turn(allowance.whom());
        }
    }

    /// Whether somebody can wait for a ledger that takes so long.
    fn measure(&self, took: Duration, trouble: Option<&Trouble>) {
        if self.link.standing() == Standing::Away {
            return;
        }
        let is_quick = took <= ASK_MAX && trouble.is_none();
        self.link.stand(if is_quick { Standing::Quick } else { Standing::Slow });
    }

    fn tick(&mut self) {
        if self.link.standing() == Standing::Away {
            return;
        }
        let all: Vec<Whom> = self.known.keys().cloned().collect();
        for whom in &all {
            self.turn(whom);
        }
        self.known.retain(|_, entry| {
            let has_news = entry.is_busy || entry.is_due || !entry.waiting.is_empty();
            has_news || !entry.allowance.is_done()
        });
        // Whoever asks next measures how quick it is.
        if self.turns.is_empty() && self.link.standing() == Standing::Slow {
            self.link.stand(Standing::Quick);
        }
    }

    /// Gives back what is held, so that nobody waits for its lease.
    async fn farewell(mut self) {
        self.link.stand(Standing::Away);
        let all: Vec<Whom> = self.known.keys().cloned().collect();
        for whom in &all {
            if let Some(entry) = self.known.get_mut(whom) {
                entry.allowance.relinquish();
                // A place that is granted from now on would be nobody's.
                entry.waiting.clear();
                entry.is_busy = false;
                self.begin(whom);
            }
        }
        let last = async {
            while self.turns.join_next().await.is_some() {
                self.begin_due();
            }
        };
        let _ = tokio::time::timeout(FAREWELL, last).await;
    }
}

#[cfg(test)]
mod tests {
    use redis_lua::client::{self, Config, Mode};
    use tokio::sync::oneshot;

    use super::super::{Charge, Full, Kind, Part};
    use super::*;
    use crate::config::Limits;

    /// One whose ledger nobody has dialled, for turns of more subjects than may be under way.
    fn teller() -> (Teller, Intake, Vec<Arc<Allowance>>) {
        let config = Config {
            urls: vec!["redis://127.0.0.1:1".to_owned()],
            mode: Mode::Standalone,
            prefix: "quorumgate".to_owned(),
            timeout: Duration::from_millis(100),
            username: None,
            password: None,
            sentinel_password: None,
            tls: client::Tls::default(),
        };
        let (_stop, stopped) = watch::channel(false);
        let (client, _supervise) = client::start(config, stopped).unwrap();
        let (keys, node) = (Keys::new("quorumgate"), "gw-0".to_owned());
        let (link, intake) = Link::new(&Meters::new());
        let share = Arc::new(Share::default());
        share.set(Part::WHOLE);
        share.join(&link);
        link.stand(Standing::Quick);
        let limits = Limits { rpm: Some(10), ..Limits::default() };
        let one = |index: usize| {
            let whom = Whom::new(Kind::Model, &format!("m{index}"));
            Allowance::new(&limits, &share, whom).unwrap()
        };
        let all = (0..2 * TURNS_MAX + 10).map(one).collect();
        (Teller::new(Ledger { client, keys, node, generation: 1 }, link), intake, all)
    }

    fn demand(allowance: &Arc<Allowance>) -> (Demand, oneshot::Receiver<Result<Charge, Full>>) {
        let (reply, told) = oneshot::channel();
        (Demand { allowance: Arc::clone(allowance), tokens: 1, reply }, told)
    }

    #[tokio::test]
    async fn who_finds_too_many_turns_under_way_waits_for_its_own() {
        let (mut teller, _intake, all) = teller();
        let mut told = Vec::new();
        for allowance in &all {
            let (demand, answer) = demand(allowance);
            teller.demand(demand);
            told.push(answer);
        }
        teller.tick();
        let waiting = |teller: &Teller| -> usize {
            teller.known.values().map(|entry| entry.waiting.len()).sum()
        };
        assert_eq!((teller.turns.len(), waiting(&teller)), (TURNS_MAX, TURNS_MAX + 10));
        assert_eq!(teller.due.len(), TURNS_MAX + 10);
        let mut had = 0;
        while let Some(turned) = teller.turns.join_next().await {
            had += 1;
            teller.turned(turned.ok());
            assert!(teller.turns.len() <= TURNS_MAX);
        }
        assert_eq!((had, waiting(&teller), teller.due.len()), (all.len(), 0, 0));
        // Each was heard: the ledger is away, and nobody waits for it.
        assert!(told.iter_mut().all(|told| told.try_recv().is_err()));
    }

    #[tokio::test]
    async fn at_the_end_every_subject_gives_back_what_it_holds() {
        let (mut teller, _intake, all) = teller();
        for allowance in &all {
            teller.link.stand(Standing::Away);
            drop(allowance.take(clock::now(), 1).unwrap());
            teller.link.stand(Standing::Quick);
            teller.entry(allowance);
        }
        teller.farewell().await;
        for allowance in &all {
            assert!(allowance.compose(clock::now(), &[]).is_none(), "it has had its turn");
        }
    }
}

//! The carrier of the simulated fleet: what a node has of every other, as whole sets.
//!
//! It behaves as gossip does where the rule could notice: it relays what others stated, lists the
//! dead for long and a restarted member twice for a while, holds a member alive while its heartbeat
//! grows, and tells old statements again. Whoever has a pulse has all that was stated with it; a push
//! brings news without one.

use std::rc::Rc;

use quorum::{Card, Heard, Member, NodeId, Said, Stage, Standing, Statement, VoteState};

use crate::chance::Chance;
use crate::ledger::Beat;
use crate::plan::Ms;
use crate::sabotage::Sabotage;

/// Silence of this length makes a member lost.
pub(crate) const DETECTION: Ms = 4_000;

/// A member's past generation is listed for this long.
const GHOST_LASTS: Ms = 8_000;

/// More news than this is not kept beside what is gossiped of a member.
const PUSHED_MAX: usize = 64;

/// What is carried of one member.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) generation: u64,
    pub(crate) heartbeat: u64,
    /// Grows with each whole set that the member stated.
    pub(crate) version: u64,
    pub(crate) pulse: u64,
    pub(crate) is_suspect: bool,
    pub(crate) heard: Rc<[Heard]>,
}

/// A record on its way, with the number of its node.
pub(crate) type Parcel = Rc<[(usize, Record)]>;

/// A record with the moment its heartbeat was last seen to grow, on the keeper's clock.
struct Kept {
    record: Record,
    grown_at: Option<Ms>,
    /// The set stated before, which may be told again.
    past: Rc<[Heard]>,
    /// The generation before this one, listed until then.
    ghost: Option<(Record, Ms)>,
    /// What was pushed and not yet gossiped, with the version that will hold it.
    pushed: Vec<(u64, Heard)>,
    /// Whether the member, as it was last told, holds all of this: then it is told again and not
    /// drawn up anew, which took a tenth of a run.
    is_told: bool,
    /// That member, while the members are drawn up.
    told: Option<Member>,
}

/// News on its way, apart from gossip: it says nothing of the member's heart or pulse.
pub(crate) struct Push {
    generation: u64,
    version: u64,
    news: Vec<Heard>,
}

/// One node's carrier.
pub(crate) struct Carrier {
    me: usize,
    mine: Record,
    kept: Vec<Option<Kept>>,
    names: Rc<[NodeId]>,
    members: Vec<Member>,
    /// Of which node each of the members is, and whether it is its present process.
    told_of: Vec<(usize, bool)>,
    is_stale: bool,
    told_at: Ms,
    sabotage: Option<Sabotage>,
}

impl Carrier {
    /// A carrier that knows its own node only.
    pub(crate) fn new(
        (me, generation): (usize, u64),
        names: &Rc<[NodeId]>,
        sabotage: Option<Sabotage>,
    ) -> Self {
        let mine = Record {
            generation,
            heartbeat: 1,
            version: 0,
            pulse: 0,
            is_suspect: false,
            heard: Rc::new([]),
        };
        let kept = names.iter().map(|_| None).collect();
        let names = Rc::clone(names);
        let (members, told_of) = (Vec::new(), Vec::new());
        Self { me, mine, kept, names, members, told_of, is_stale: true, told_at: 0, sabotage }
    }

    /// States this node's whole set.
    pub(crate) fn state(&mut self, said: Said, is_suspect: bool) {
        self.mine.version += 1;
        self.mine.pulse = said.pulse;
        self.mine.is_suspect = is_suspect;
        self.mine.heard = said
            .stated
            .into_iter()
            .map(|stated| Heard { seq: stated.seq, statement: stated.statement })
            .collect();
    }

    /// Puts other words in the mouth of a member that lies.
    pub(crate) fn forge(&mut self, forge: impl FnOnce(&mut Vec<Heard>, &mut u64)) {
        let mut heard = self.mine.heard.to_vec();
        forge(&mut heard, &mut self.mine.pulse);
        self.mine.version += 1;
        self.mine.heard = heard.into();
    }

    /// What this node states.
    pub(crate) fn stated(&self) -> &Rc<[Heard]> {
        &self.mine.heard
    }

    /// What this node states with a number above `after`, to be pushed.
    pub(crate) fn push(&self, after: u64) -> Rc<Push> {
        let news = self.mine.heard.iter().filter(|heard| heard.seq > after).cloned().collect();
        let (generation, version) = (self.mine.generation, self.mine.version);
        Rc::new(Push { generation, version, news })
    }

    /// Takes in what `from` pushed. Who is not known yet, or as another process, is not heard.
    pub(crate) fn take_push(&mut self, from: usize, push: &Push) -> bool {
        let Some(Some(kept)) = self.kept.get_mut(from) else { return false };
        let is_news = kept.record.generation == push.generation
            && kept.record.version < push.version
            && kept.pushed.len() < PUSHED_MAX;
        if is_news {
            kept.is_told = false;
            kept.pushed.extend(push.news.iter().map(|heard| (push.version, heard.clone())));
        }
        self.is_stale |= is_news;
        is_news
    }

    /// All records, as they are gossiped.
    pub(crate) fn all(&self) -> Parcel {
        let others = self.kept.iter().enumerate();
        others
            .filter_map(|(node, kept)| Some((node, kept.as_ref()?.record.clone())))
            .chain([(self.me, self.mine.clone())])
            .collect()
    }

    /// Lets this node's heart beat.
    pub(crate) fn beats(&mut self) {
        self.mine.heartbeat += 1;
    }

    /// The last beat of this node's heart.
    pub(crate) fn beat(&self) -> Beat {
        (self.mine.generation, self.mine.heartbeat)
    }

    /// Whether this node knows a member's heart to have come to this beat.
    pub(crate) fn has_felt(&self, node: usize, beat: Beat) -> bool {
        let kept = self.kept[node].as_ref().filter(|kept| kept.grown_at.is_some());
        kept.is_some_and(|kept| (kept.record.generation, kept.record.heartbeat) >= beat)
    }

    /// Merges what came from `from` at `now`. Returns whether it held news.
    pub(crate) fn merge(&mut self, now: Ms, from: usize, parcel: &[(usize, Record)]) -> bool {
        let mut has_news = false;
        for (node, record) in parcel.iter().filter(|(node, _)| *node != self.me) {
            let place = &mut self.kept[*node];
            match place {
                Some(kept) if kept.record.generation == record.generation => {
                    has_news |= kept.merge(now, record);
                }
                Some(kept) if kept.record.generation > record.generation => {}
                Some(_) | None => {
                    // Who is met for the first time through others is alive once its heart is seen
                    // to beat.
                    let grown_at = (*node == from).then_some(now);
                    let ghost = place.take().map(|kept| (kept.record, now + GHOST_LASTS));
                    let (record, past) = (record.clone(), Rc::new([]));
                    let pushed = Vec::new();
                    let (is_told, told) = (false, None);
                    *place = Some(Kept { record, grown_at, past, ghost, pushed, is_told, told });
                    has_news = true;
                }
            }
        }
        self.is_stale |= has_news;
        has_news
    }

    /// The whole set, drawn up anew at `now` if there is something to tell: news, or a second has
    /// passed.
    pub(crate) fn tell(&mut self, now: Ms, chance: &mut Chance) -> &[Member] {
        if !self.is_stale && now < self.told_at + 900 {
            return &self.members;
        }
        self.is_stale = false;
        self.told_at = now;
        self.put_back();
        for (node, kept) in self.kept.iter_mut().enumerate() {
            let Some(kept) = kept else { continue };
            self.told_of.push((node, true));
            kept.ghost.take_if(|(_, until)| now > *until);
            self.told_of.extend(kept.ghost.as_ref().map(|_| (node, false)));
        }
        chance.shuffle(&mut self.told_of);
        for (node, is_present) in &self.told_of {
            let Some(kept) = &mut self.kept[*node] else { continue };
            let name = &self.names[*node];
            let member = match &kept.ghost {
                Some((ghost, _)) if !is_present => listed(name, ghost, false, ghost.heard.to_vec()),
                Some(_) | None => kept.member(now, name, chance, self.sabotage),
            };
            self.members.push(member);
        }
        if self.sabotage == Some(Sabotage::TwoBallots) {
            double_ballots(&mut self.members);
        }
        &self.members
    }

    /// Puts back what was told before and still holds.
    fn put_back(&mut self) {
        for ((node, is_present), member) in self.told_of.drain(..).zip(self.members.drain(..)) {
            if let Some(kept) = self.kept[node].as_mut().filter(|kept| is_present && kept.is_told) {
                kept.told = Some(member);
            }
        }
    }

    /// What this node has of a member's words.
    pub(crate) fn words_of(&self, node: usize) -> impl Iterator<Item = &Heard> {
        let kept = self.kept[node].as_ref();
        let pushed = kept.into_iter().flat_map(|kept| &kept.pushed).map(|(_, heard)| heard);
        let gossiped = match kept {
            _ if node == self.me => &self.mine.heard[..],
            Some(kept) => &kept.record.heard[..],
            None => &[],
        };
        gossiped.iter().chain(pushed)
    }
}

impl Kept {
    fn is_live(&self, now: Ms) -> bool {
        self.grown_at.is_some_and(|at| now < at + DETECTION)
    }

    fn merge(&mut self, now: Ms, record: &Record) -> bool {
        if record.heartbeat > self.record.heartbeat {
            self.record.heartbeat = record.heartbeat;
            self.grown_at = Some(now);
        }
        let is_new = record.version > self.record.version;
        if is_new {
            self.is_told = false;
            self.past = Rc::clone(&self.record.heard);
            self.pushed.retain(|(version, _)| *version > record.version);
            self.record = Record { heartbeat: self.record.heartbeat, ..record.clone() };
        }
        is_new
    }

    /// The member as the rule hears of it; now and then with its past told again.
    fn member(
        &mut self,
        now: Ms,
        name: &NodeId,
        chance: &mut Chance,
        sabotage: Option<Sabotage>,
    ) -> Member {
        let (is_live, tells_past) = (self.is_live(now), chance.happens(100));
        if let Some(told) = self.told.take().filter(|_| !tells_past) {
            return Member { is_live, ..told };
        }
        let mut heard = self.record.heard.to_vec();
        heard.extend(self.pushed.iter().map(|(_, heard)| heard.clone()));
        if tells_past {
            heard.extend(self.past.iter().cloned());
            chance.shuffle(&mut heard);
        }
        // What a sabotage does to a member must not stay.
        self.is_told = !tells_past && sabotage.is_none();
        let mut member = listed(name, &self.record, is_live, heard);
        if sabotage == Some(Sabotage::LostShrinks)
            && !is_live
            && let Some(card) = &mut member.card
        {
            card.standing = Standing::Left;
        }
        member
    }
}

fn listed(name: &NodeId, record: &Record, is_live: bool, heard: Vec<Heard>) -> Member {
    let card = Card {
        version: String::new(),
        config_hash: String::new(),
        standing: Standing::Serving,
        is_suspect: record.is_suspect,
    };
    Member {
        id: name.clone(),
        generation: record.generation,
        address: String::new(),
        is_live,
        card: Some(card),
        pulse: record.pulse,
        heard,
    }
}

/// Hands a member's standing votes on as those of the member listed next, too.
fn double_ballots(members: &mut [Member]) {
    for index in 1..members.len() {
        let (before, rest) = members.split_at_mut(index);
        let (Some(from), Some(to)) = (before.last(), rest.first_mut()) else { continue };
        let votes = from.heard.iter().filter(|heard| match &heard.statement {
            Statement::Vote(_, vote) => vote.state == VoteState::Stands,
            Statement::Step(..)
            | Statement::Override(..)
            | Statement::Window(..)
            | Statement::Member(..) => false,
        });
        let mut votes: Vec<Heard> = votes.cloned().collect();
        for vote in &mut votes {
            vote.seq += 1_000_000;
        }
        to.heard.extend(votes);
    }
}

/// Turns the step of recovery that a node states into a closing.
pub(crate) fn close_step(heard: &mut [Heard]) {
    for heard in heard {
        if let Statement::Step(_, step) = &mut heard.statement
            && step.stage != Stage::Closed
        {
            step.stage = Stage::Closed;
            heard.seq += 1_000_000;
        }
    }
}

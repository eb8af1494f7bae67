//! The one real council of the fleet, and the words of all others.

use std::time::{Duration, Instant};

use quorum::{
    Card, Conviction, Council, CouncilRule, Denominator, ElectorateRule, EndpointKey, Enrolment,
    Evidence, Heard, Local, LocalOpening, Member, NodeId, PoolKey, Recovery, Standing, Statement,
    Way,
};

use crate::bytes;

const SECOND: Duration = Duration::from_secs(1);

/// When the fleet is past its observing.
const READY: Duration = Duration::from_secs(5);

/// Rounds over which the cost at rest is averaged.
const ROUNDS_AT_REST: u32 = 10;

/// A fleet of one council and many names.
pub(crate) struct Fleet {
    council: Council,
    endpoints: Vec<EndpointKey>,
    names: Vec<NodeId>,
    /// What every other member states, votes first.
    words: Vec<Heard>,
    pulse: u64,
}

impl Fleet {
    /// A fleet whose members have all just seen `open` of the endpoints fail.
    pub(crate) fn new(members: usize, endpoints: usize, open: usize) -> Self {
        let names: Vec<NodeId> =
            (0..members).map(|n| NodeId::new(&format!("gateway-{n:04}"))).collect();
        let keys: Vec<EndpointKey> = (0..endpoints)
            .map(|n| EndpointKey::new(&format!("pool-{:03}/endpoint-{n:05}", n % 100)))
            .collect();
        let ill: Vec<EndpointKey> = keys.iter().take(open).cloned().collect();
        let words = words(&keys, &ill);
        let mut council = council(&NodeId::new("gateway-0000"), &keys);
        for second in 0..=READY.as_secs() {
            let now = Duration::from_secs(second);
            let others: Vec<Member> =
                names.iter().skip(1).map(|name| member(name, 0, Vec::new())).collect();
            council.hear(now, &others);
            let _ = council.step(now);
        }
        Self { council, endpoints: ill, names, words, pulse: 1 }
    }

    /// The bytes of each of a member's words.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.words.iter().map(|heard| bytes::of(&heard.statement)).collect()
    }

    /// One round in which the council knows so many words of each member. Returns how many endpoints
    /// it has out.
    pub(crate) fn hear(&mut self, round: u32, known: &[u16]) -> usize {
        let now = READY + SECOND * round;
        let members: Vec<Member> = self
            .names
            .iter()
            .zip(known)
            .skip(1)
            .map(|(name, words)| {
                let heard = self.words.iter().take(usize::from(*words)).cloned().collect();
                member(name, self.pulse, heard)
            })
            .collect();
        self.pulse += 1;
        self.turn(now, &members);
        self.endpoints.iter().filter(|key| self.council.is_open(key)).count()
    }

    /// Milliseconds of a round in which nothing but pulses is new.
    pub(crate) fn rest(&mut self, round: u32) -> f64 {
        let mut took = Duration::ZERO;
        for turn in 0..ROUNDS_AT_REST {
            self.pulse += 1;
            let members: Vec<Member> = self
                .names
                .iter()
                .skip(1)
                .map(|name| member(name, self.pulse, self.words.clone()))
                .collect();
            let begun = Instant::now();
            self.turn(READY + SECOND * (round + 1 + turn), &members);
            took += begun.elapsed();
        }
        took.as_secs_f64() * 1e3 / f64::from(ROUNDS_AT_REST)
    }

    fn turn(&mut self, now: Duration, members: &[Member]) {
        self.council.hear(now, members);
        let _ = self.council.step(now);
        for key in &self.endpoints {
            self.council.state(now, key, failed(now));
        }
        let _ = self.council.step(now);
        let _ = self.council.statements(now);
    }
}

fn failed(now: Duration) -> Local {
    let opening = LocalOpening {
        since: now.min(READY),
        reason: "consecutive faults".to_owned(),
        evidence: Evidence { requests: 12, faults_milli: 4_000, successes: 8, slow_pieces: 0 },
    };
    Local { opening: Some(opening), ..Local::default() }
}

/// What one of two members states that have taken `ill` out together, by a council that did.
fn words(keys: &[EndpointKey], ill: &[EndpointKey]) -> Vec<Heard> {
    let names = ["gateway-0001", "gateway-0002"].map(NodeId::new);
    let mut councils = names.clone().map(|name| council(&name, keys));
    let mut said: [Vec<Heard>; 2] = [Vec::new(), Vec::new()];
    for round in 0..8 {
        let now = SECOND * round;
        let heard = said.clone();
        let turns =
            councils.iter_mut().zip(&mut said).zip(names.iter().rev()).zip(heard.iter().rev());
        for (((council, mine), other), theirs) in turns {
            council.hear(now, &[member(other, u64::from(round), theirs.clone())]);
            let _ = council.step(now);
            for key in ill.iter().filter(|_| now >= READY) {
                council.state(now, key, failed(now));
            }
            let _ = council.step(now);
            if let Some(all) = council.statements(now) {
                let told = all.stated.into_iter();
                *mine = told.map(|one| Heard { seq: one.seq, statement: one.statement }).collect();
            }
        }
    }
    let [mut words, _] = said;
    words.sort_by_key(|heard| !matches!(heard.statement, Statement::Vote(..)));
    words
}

fn member(name: &NodeId, pulse: u64, heard: Vec<Heard>) -> Member {
    Member {
        id: name.clone(),
        generation: 1,
        address: "10.0.0.1:7946".to_owned(),
        is_live: true,
        card: Some(Card {
            version: "1.0.0".to_owned(),
            config_hash: "0123456789abcdef".to_owned(),
            standing: Standing::Serving,
            is_suspect: false,
        }),
        pulse,
        heard,
    }
}

fn council(name: &NodeId, keys: &[EndpointKey]) -> Council {
    let rule = CouncilRule {
        electorate: ElectorateRule { expected_members: 0, member_grace: SECOND * 60 },
        of: Denominator::Members,
        max_open_share_milli: 1_000,
        interval: SECOND,
        observe: SECOND * 3,
        vote_ttl: SECOND * 10,
        renew_every: SECOND * 2,
        max_open: SECOND * 1_800,
    };
    let mut council = Council::new(name.clone(), rule, Duration::ZERO);
    for (index, key) in keys.iter().enumerate() {
        council.enrol(
            key.clone(),
            Enrolment {
                pool: PoolKey::new(&format!("pool-{:03}", index % 100)),
                recovery: Recovery {
                    base: SECOND * 1_000,
                    max: SECOND * 1_000,
                    reset_after: SECOND * 300,
                    probe_timeout: SECOND * 10,
                    way: Way::Ladder { probe: true, canaries: 5, turn: SECOND * 10 },
                },
                conviction: Conviction {
                    failure_threshold: 4,
                    failure_ratio_milli: 500,
                    min_requests: 10,
                    window: SECOND * 30,
                    dedup: SECOND * 5,
                    confirmations: 2,
                },
            },
        );
    }
    council
}

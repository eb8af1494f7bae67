//! The ledger through the client, on a real server by its own clock.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop loudly")]

mod servers;

use std::time::Duration;

use quorum::ledger::{
    Against, Begin, Call, Deed, EPOCH_LEAP, Floor, NUMBER_LEAP, NUMBER_MAX, Outcome, Word,
};
use quorum::{EndpointKey, NodeId, Stage, Step};
use redis_lua::client::{self, Client, Config, Health, Mode};
use redis_lua::error::Trouble;
use redis_lua::keys::Keys;
use redis_lua::ledger::{Notice, ask, call, call_all};
use servers::Server;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;

const LEASE: Duration = Duration::from_secs(5);

struct Bench {
    server: Server,
    client: Client,
    keys: Keys,
    _running: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What a user may at least do who calls the ledger.
const RULES: &str = "~quorumgate{* &quorumgate{notices} -@all +@string +@hash +@list +@sortedset \
    -@dangerous -@blocking +del +exists +pexpire +pttl +time +eval +evalsha +ping +role +publish \
    +spublish +subscribe +ssubscribe +asking +cluster|slots";

impl Bench {
    async fn new() -> Self {
        Self::with_user("+info").await
    }

    /// A bench whose user has the least rights and these.
    async fn with_user(rights: &str) -> Self {
        let server = Server::start(&["--enable-debug-command", "yes"]).answers();
        let words = ["ACL", "SETUSER", "gate", "on", ">hush"].into_iter();
        let words = words.chain(RULES.split_whitespace()).chain(rights.split_whitespace());
        assert_eq!(server.cli(&words.collect::<Vec<_>>()), "OK");
        let (running, stop) = watch::channel(false);
        let mut config = Config::new(vec![server.url()], Mode::Standalone);
        config.username = Some("gate".to_owned());
        config.password = Some("hush".to_owned());
        // A busy machine may stop for longer than an operator would wait.
        config.timeout = Duration::from_secs(1);
        let (client, supervise) = client::start(config, stop).unwrap();
        let task = tokio::spawn(supervise);
        let mut health = client.health();
        let up = health.wait_for(Health::is_up);
        tokio::time::timeout(Duration::from_secs(10), up).await.unwrap().unwrap();
        Self { server, client, keys: Keys::new("quorumgate"), _running: running, task }
    }

    fn key(&self, index: usize) -> String {
        self.keys.of(&EndpointKey::new("pool/gpu a")).swap_remove(index)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn said(by: &str, floor: Floor, deed: Deed) -> Call {
    let (endpoint, by) = (EndpointKey::new("pool/gpu a"), NodeId::new(by));
    Call { endpoint, by, generation: 1, floor, deed }
}

fn vote(by: &str, incident: u64) -> Call {
    let vote = Some(Against { incident, is_first_hand: true });
    let opening = Some(Begin { level: 3, cool_down: Duration::from_secs(10) });
    let word = Word { seq: 1, vote, lease: LEASE, electorate: 3, opening, ..Word::default() };
    said(by, Floor::default(), Deed::Cast(word))
}

/// A notice of a change; those before the channel is listened to are lost.
async fn notice(bench: &Bench, notices: &mut broadcast::Receiver<Vec<u8>>) -> Notice {
    let take = said("gw-1", Floor::default(), Deed::Take { hold: LEASE });
    for _ in 0..100 {
        call(&bench.client, &bench.keys, &take).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_millis(50), notices.recv()).await;
        if let Ok(heard) = heard {
            return Notice::read(&heard.unwrap()).unwrap();
        }
    }
    panic!("no notice arrives");
}

#[tokio::test]
async fn an_endpoint_opens_and_is_led_by_the_servers_clock() {
    let bench = Bench::new().await;
    let (client, keys) = (&bench.client, &bench.keys);
    let mut notices = client.notices();
    let answers = call_all(client, keys, &[vote("gw-1", 1), vote("gw-2", 1)]).await;
    let opened = answers.last().unwrap().as_ref().unwrap();
    assert_eq!(opened.outcome, Outcome::Opened);
    let step = opened.entry.step.clone().unwrap();
    assert_eq!((step.incident, step.level), (1, 3));
    assert_eq!(step.stage, Stage::Waiting { remaining: Duration::from_secs(10) });

    let take = said("gw-1", Floor::default(), Deed::Take { hold: LEASE });
    let taken = ask(client, keys, &take).await.unwrap();
    assert!(taken.has_changed);
    let lead = taken.answer.entry.lead.clone().unwrap();
    let step = Step { stage: Stage::Probing { remaining: LEASE }, ..step };
    let deed = Deed::Advance { number: lead.number, step };
    let advance = said("gw-1", taken.answer.entry.floor, deed);
    let advanced = call(client, keys, &advance).await.unwrap();
    assert_eq!(advanced.outcome, Outcome::Done);

    let read = ask(client, keys, &said("gw-3", Floor::default(), Deed::Read)).await.unwrap();
    assert!(read.at >= taken.at && !read.has_changed);
    let remaining = read.answer.entry.step.unwrap().stage.remaining();
    assert!(remaining <= LEASE && remaining > Duration::ZERO, "{remaining:?}");

    let heard = notice(&bench, &mut notices).await;
    assert_eq!(heard.endpoint.as_str(), "pool/gpu a");
    assert!(heard.version > 0);

    // The state stays; what runs out goes a while after.
    let lives = [0, 1, 2].map(|index| bench.server.cli(&["PTTL", &bench.key(index)]));
    let lives = lives.map(|life| life.trim().parse::<i64>().unwrap());
    assert_eq!(lives[0], -1);
    assert!(lives[1..].iter().all(|life| (1..=65_000).contains(life)), "{lives:?}");
}

#[tokio::test]
async fn in_another_run_of_the_server_all_numbers_leap() {
    let bench = Bench::new().await;
    let (client, keys) = (&bench.client, &bench.keys);
    let take = said("gw-1", Floor::default(), Deed::Take { hold: LEASE });
    let before = call(client, keys, &take).await.unwrap().entry.floor;
    bench.server.cli(&["DEBUG", "CHANGE-REPL-ID"]);
    let after = call(client, keys, &take).await.unwrap().entry.floor;
    assert_eq!(after.version, before.version + NUMBER_LEAP + 1);
    assert_eq!(after.lead, before.lead + NUMBER_LEAP + 1);
    assert_eq!(after.epoch, before.epoch + EPOCH_LEAP);
    let again = call(client, keys, &take).await.unwrap().entry.floor;
    assert_eq!(again.version, after.version + 1);
}

#[tokio::test]
async fn a_user_that_may_not_ask_for_the_run_does_without_leaps() {
    let bench = Bench::with_user("").await;
    let (client, keys) = (&bench.client, &bench.keys);
    let take = said("gw-1", Floor::default(), Deed::Take { hold: LEASE });
    let before = call(client, keys, &take).await.unwrap().entry.floor;
    bench.server.cli(&["DEBUG", "CHANGE-REPL-ID"]);
    let after = call(client, keys, &take).await.unwrap().entry.floor;
    assert_eq!((after.version, after.lead), (before.version + 1, before.lead + 1));
}

#[tokio::test]
async fn what_cannot_be_kept_is_not_sent_and_stops_nothing_else() {
    let bench = Bench::new().await;
    let (client, keys) = (&bench.client, &bench.keys);
    let wrong = [vote("gw 1", 1), vote("", 1), vote("gw-1", 1 << 41)];
    let calls: Vec<Call> = wrong.into_iter().chain([vote("gw-1", 1)]).collect();
    let answers = call_all(client, keys, &calls).await;
    for answer in answers.iter().take(3) {
        assert!(matches!(answer, Err(Trouble::Wrong(_))), "{answer:?}");
    }
    assert_eq!(answers.last().unwrap().as_ref().unwrap().entry.count.counted, 1);
    // Nor does a stranger's name spoil the word of whoever has read it.
    let mut cast = vote("gw-2", 1);
    let Deed::Cast(word) = &mut cast.deed else { unreachable!("it is a cast") };
    word.discounted = ["gw 3", "", "gw-1"].map(NodeId::new).into();
    assert_eq!(call(client, keys, &cast).await.unwrap().entry.count.counted, 1);
    let seen = Floor { version: u64::MAX, epoch: 0, lead: 0 };
    let take = said("gw-1", seen, Deed::Take { hold: Duration::MAX });
    let taken = call(client, keys, &take).await.unwrap();
    assert_eq!(taken.entry.floor.version, NUMBER_MAX);
    assert_eq!(call(client, keys, &take).await.unwrap().outcome, Outcome::Done);
}

#[tokio::test]
async fn a_key_that_is_not_ours_is_counted_and_passed_over() {
    let bench = Bench::new().await;
    let (client, keys) = (&bench.client, &bench.keys);
    bench.server.cli(&["HSET", &bench.key(0), "version", "a lot"]);
    let answer = call(client, keys, &vote("gw-1", 1)).await.unwrap();
    assert_eq!((answer.outcome, keys.unread()), (Outcome::Done, 1));
    bench.server.cli(&["DEL", &bench.key(1)]);
    bench.server.cli(&["SET", &bench.key(1), "7"]);
    let refused = call(client, keys, &vote("gw-1", 1)).await;
    assert_eq!(refused, Err(Trouble::Refused("WRONGTYPE")));
    assert!(client.health().borrow().is_up());
}

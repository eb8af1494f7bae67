//! The roll of members on a real Redis: who comes, goes, comes back, and what others write there.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop loudly"
)]

#[path = "servers/mod.rs"]
mod servers;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis_lua::client::{self, Client, Invocation, Mode};
use redis_lua::roll::{self, Carrier, Member, Mine, Ours};
use redis_lua::script::Script;
use servers::Standalone;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

const INTERVAL: Duration = Duration::from_millis(100);
/// Five intervals.
const LEASE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(8);
const FLEET: &str = "test fleet {1}";
const TAG: &str = "quorumgate{fleet/test%20fleet%20%7B1%7D}";

/// A Redis, and a way to it.
struct Ground {
    server: Standalone,
    client: Client,
    _stop: watch::Sender<bool>,
}

impl Ground {
    async fn lay() -> Self {
        Self::with(Duration::from_millis(100)).await
    }

    async fn with(deadline: Duration) -> Self {
        let server = Standalone::start();
        let mut config = client::Config::new(vec![server.url()], Mode::Standalone);
        config.timeout = deadline;
        let (stop, stopped) = watch::channel(false);
        let (client, supervised) = client::start(config, stopped).unwrap();
        tokio::spawn(supervised);
        let ground = Self { server, client, _stop: stop };
        ground.is_up().await;
        ground
    }

    async fn is_up(&self) {
        let mut health = self.client.health();
        timeout(PATIENCE, health.wait_for(|health| health.is_up())).await.unwrap().unwrap();
    }

    /// Says something to Redis by hand.
    async fn ask(&self, words: &[&str]) -> redis::Value {
        let client = redis::Client::open(self.server.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await.unwrap()
    }

    fn member(&self, name: &str, generation: u64) -> Node {
        let config = roll::Config {
            prefix: "quorumgate".to_owned(),
            cluster_id: FLEET.to_owned(),
            node_id: name.to_owned(),
            generation,
            address: format!("{name}:80"),
            interval: INTERVAL,
        };
        let said = Some(format!("{name} of {generation}").into_bytes().into());
        let (mine, heard) = watch::channel(Mine { said, pulse: 1, news: 1, has_left: false });
        let (stop, stopped) = watch::channel(false);
        let (carrier, running) = roll::start(config, self.client.clone(), heard, stopped).unwrap();
        Node { carrier, mine, stop, task: tokio::spawn(running) }
    }
}

struct Node {
    carrier: Carrier,
    mine: watch::Sender<Mine>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Node {
    async fn until(&self, what: impl Fn(&Ours) -> bool) -> Ours {
        let mut ours = self.carrier.ours.clone();
        let seen = timeout(PATIENCE, ours.wait_for(|ours| what(ours))).await;
        match seen {
            Ok(seen) => seen.unwrap().clone(),
            Err(_) => panic!("in vain: {:?}", self.carrier.ours.borrow()),
        }
    }

    /// Waits until exactly these others are live.
    async fn sees(&self, names: &[&str]) -> Ours {
        self.until(|ours| live(ours) == names).await
    }

    fn say(&self, said: &str, pulse: u64, is_news: bool) {
        self.mine.send_modify(|mine| {
            mine.said = Some(said.as_bytes().into());
            mine.pulse = pulse;
            mine.news += u64::from(is_news);
        });
    }

    /// Ends without a word.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

fn live(ours: &Ours) -> Vec<&str> {
    ours.members.iter().filter(|member| member.is_live).map(|member| member.id.as_str()).collect()
}

fn of<'a>(ours: &'a Ours, name: &str) -> &'a Member {
    ours.members.iter().find(|member| member.id.as_str() == name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_find_each_other_and_hear_what_each_one_says() {
    let ground = Ground::lay().await;
    let (a, b, c) = (ground.member("a", 7), ground.member("b", 8), ground.member("c", 9));
    let ours = a.sees(&["b", "c"]).await;
    assert_eq!((&*of(&ours, "b").said, of(&ours, "b").generation), (&b"b of 8"[..], 8));
    assert_eq!(of(&ours, "c").address, "c:80");
    b.sees(&["a", "c"]).await;
    c.sees(&["a", "b"]).await;
    // News comes at once, and the pulse with it; 20 of them, since one might meet a tick by chance.
    let before = Instant::now();
    for round in 2..22 {
        let said = format!("news {round}");
        c.say(&said, round, true);
        let ours = a.until(|ours| of(ours, "c").pulse == round).await;
        assert_eq!(*of(&ours, "c").said, *said.as_bytes());
    }
    let took = before.elapsed();
    println!("news to another member: {:?}", took / 20);
    assert!(took < 20 * INTERVAL / 2, "{took:?}");
    // A pulse alone and what nobody waits for come with the next beat.
    c.say("nothing new", 30, false);
    let ours = a.until(|ours| of(ours, "c").pulse == 30).await;
    assert_eq!(&*of(&ours, "c").said, b"nothing new");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_restarts_is_one_member_and_its_past_says_nothing() {
    let ground = Ground::lay().await;
    let (watcher, old) = (ground.member("w", 1), ground.member("a", 5));
    watcher.sees(&["a"]).await;
    let young = ground.member("a", 6);
    let ours = watcher.until(|ours| of(ours, "a").generation == 6).await;
    assert_eq!((ours.members.len(), &*of(&ours, "a").said), (1, &b"a of 6"[..]));
    // The past life lives, and finds out.
    let ours = old.until(|ours| ours.duplicate.is_some()).await;
    assert_eq!(ours.duplicate.as_deref(), Some("a:80"));
    old.say("I am still here", 99, true);
    young.say("I am the member", 3, true);
    let ours = watcher.until(|ours| of(ours, "a").pulse == 3).await;
    assert_eq!(&*of(&ours, "a").said, b"I am the member");
    assert_eq!(old.carrier.figures.duplicates.load(Ordering::Relaxed), 1);
    assert_eq!(young.carrier.ours.borrow().duplicate, None);
    // When the younger is gone the past one is no duplicate, and no member either.
    young.kill().await;
    old.until(|ours| ours.duplicate.is_none()).await;
    let ours = watcher.sees(&[]).await;
    assert_eq!(of(&ours, "a").generation, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_was_set_back_is_a_member_once_its_past_is_over() {
    let ground = Ground::lay().await;
    let (watcher, past) = (ground.member("w", 1), ground.member("a", 9));
    watcher.sees(&["a"]).await;
    past.kill().await;
    let began = Instant::now();
    let back = ground.member("a", 5);
    let ours = watcher.until(|ours| of(ours, "a").generation == 10).await;
    assert_eq!((live(&ours), &*of(&ours, "a").said), (vec!["a"], &b"a of 5"[..]));
    println!("a member again after {:?}", began.elapsed());
    back.sees(&["w"]).await;
    assert_eq!(back.carrier.ours.borrow().duplicate, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_with_one_generation_one_gives_way() {
    let ground = Ground::lay().await;
    let (watcher, one, other) =
        (ground.member("w", 1), ground.member("a", 5), ground.member("a", 5));
    watcher.sees(&["a"]).await;
    let gave_way = |node: &Node| node.carrier.ours.borrow().duplicate.is_some();
    let deadline = Instant::now() + PATIENCE;
    while gave_way(&one) == gave_way(&other) {
        assert!(Instant::now() < deadline, "both or none");
        let mut ours = one.carrier.ours.clone();
        ours.changed().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_killed_is_lost_and_who_leaves_is_gone_at_once() {
    let ground = Ground::lay().await;
    let (a, b, c) = (ground.member("a", 1), ground.member("b", 1), ground.member("c", 1));
    a.sees(&["b", "c"]).await;
    let killed_at = Instant::now();
    b.kill().await;
    let ours = a.sees(&["c"]).await;
    let took = killed_at.elapsed();
    println!("lost after {took:?} with a lease of {LEASE:?}");
    assert!(took + INTERVAL * 2 > LEASE, "not before its lease is over: {took:?}");
    assert!(took < LEASE + 4 * INTERVAL, "{took:?}");
    assert_eq!(&*of(&ours, "b").said, b"b of 1", "it is listed with what it said");
    // The last word is written with a lease that is over.
    let left_at = Instant::now();
    c.mine.send_modify(|mine| (mine.said, mine.has_left) = (Some(b"left".as_slice().into()), true));
    c.stop.send_replace(true);
    timeout(PATIENCE, c.task).await.unwrap().unwrap();
    let ours = a.sees(&[]).await;
    assert!(left_at.elapsed() < LEASE, "{:?}", left_at.elapsed());
    assert_eq!(&*of(&ours, "c").said, b"left");
    // And it may come back in a new life.
    let _again = ground.member("c", 2);
    a.sees(&["c"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_lost_by_a_flush() {
    let ground = Ground::lay().await;
    let (a, b) = (ground.member("a", 1), ground.member("b", 1));
    a.sees(&["b"]).await;
    b.sees(&["a"]).await;
    let mut ours = a.carrier.ours.clone();
    ground.ask(&["FLUSHALL"]).await;
    let until = Instant::now() + 3 * LEASE;
    while Instant::now() < until {
        timeout(PATIENCE, ours.changed()).await.unwrap().unwrap();
        assert_eq!(live(&ours.borrow_and_update()), ["b"]);
    }
    b.say("after the flush", 9, true);
    a.until(|ours| &*of(ours, "b").said == b"after the flush").await;
    // Who does not come back after it is lost.
    ground.ask(&["FLUSHALL"]).await;
    b.kill().await;
    a.sees(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_away_nobody_is_known_to_be_alive_and_nobody_is_forgotten() {
    let ground = Ground::lay().await;
    let (a, b) = (ground.member("a", 1), ground.member("b", 1));
    a.sees(&["b"]).await;
    ground.server.server.stop();
    let ours = a.sees(&[]).await;
    assert_eq!((of(&ours, "b").generation, &*of(&ours, "b").said), (1, &b"b of 1"[..]));
    b.say("meanwhile", 5, true);
    ground.server.server.cont();
    a.until(|ours| live(ours) == ["b"] && of(ours, "b").pulse == 5).await;
    b.sees(&["a"]).await;
}

/// Writes rows that are none, wherever the roll is.
async fn spoil(ground: &Ground) {
    let key = |part: &str| format!("{TAG}:{part}");
    let (members, said) = (key("members"), key("said"));
    let (leases, changes) = (key("leases"), key("changes"));
    let (huge, long) = ("x".repeat(300_000), "n".repeat(300));
    for (name, row) in [
        ("evil-1", "return redis.call('FLUSHALL')"),
        ("evil-2", "2 1 1 1 1 address"),
        ("evil-3", "1 99999999999999999999 1 1 1 address"),
        ("evil-4", huge.as_str()),
        ("evil-5", "1 1 1 1 1 an address of words"),
        ("evil\n6", "1 1 1 1 1 address"),
        ("evil/7", "1 1 1 1 1 address"),
        (long.as_str(), "1 1 1 1 1 address"),
        ("a", "nothing that can be read"),
    ] {
        ground.ask(&["HSET", &members, name, row]).await;
        ground.ask(&["HSET", &said, name, &huge]).await;
        ground.ask(&["ZADD", &leases, "+inf", name]).await;
        ground.ask(&["ZADD", &changes, "1.5", name]).await;
    }
    ground.ask(&["ZADD", &changes, "+inf", "evil-1"]).await;
    ground.ask(&["ZADD", &changes, "9007199254740991", "evil-2"]).await;
    ground.ask(&["ZADD", &changes, "-5", "evil-3"]).await;
    ground.ask(&["HSET", &members, "too-much", "1 1 1 1 1 address"]).await;
    ground.ask(&["HSET", &said, "too-much", &huge]).await;
    ground.ask(&["ZADD", &changes, "7", "too-much"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_nobody_of_us_wrote_change_nothing() {
    let ground = Ground::lay().await;
    spoil(&ground).await;
    let (a, b) = (ground.member("a", 1), ground.member("b", 1));
    let known = |ours: &Ours| ours.members.iter().map(|member| member.id.to_string()).collect();
    let check = async |round: u64| {
        b.say("still here", round, true);
        let ours = a.until(|ours| live(ours) == ["b"] && of(ours, "b").pulse == round).await;
        let names: Vec<String> = known(&ours);
        // Whose word is too large says nothing, and is not alive without a lease.
        let strangers = ["b", "too-much"];
        assert!(names.iter().all(|name| strangers.contains(&name.as_str())), "{names:?}");
        b.sees(&["a"]).await;
    };
    check(5).await;
    // Again, on top of what stands.
    spoil(&ground).await;
    check(6).await;
    assert!(a.carrier.figures.ignored.load(Ordering::Relaxed) > 0);
    // Keys of another type: out of reach until somebody removes them.
    ground.ask(&["SET", &format!("{TAG}:members"), "a string"]).await;
    a.sees(&[]).await;
    ground.ask(&["DEL", &format!("{TAG}:members")]).await;
    check(7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_member_says_may_be_large() {
    let ground = Ground::lay().await;
    let nodes: Vec<Node> = (0..5).map(|at| ground.member(&format!("n{at}"), 1)).collect();
    let large = "w".repeat(roll::SAID_BYTES_MAX);
    for node in &nodes {
        node.say(&large, 4, true);
    }
    // More than one page of it.
    let late = ground.member("z", 1);
    let is_whole = |member: &Member| member.said.len() == roll::SAID_BYTES_MAX;
    late.until(|ours| ours.members.len() == 5 && ours.members.iter().all(is_whole)).await;
}

/// What Redis spent on scripts.
fn spent(ground: &Ground) -> String {
    let stats = ground.server.server.cli(&["INFO", "commandstats"]);
    stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap().to_owned()
}

static BEAT: Script = Script::new("roll_beat", include_str!("../lua/roll_beat.lua"));
static READ: Script = Script::new("roll_read", include_str!("../lua/roll_read.lua"));

/// The scripts themselves, with answers as text.
struct Scripts<'a>(&'a Ground);

impl Scripts<'_> {
    fn keys() -> Vec<String> {
        ["members", "said", "leases", "changes"].map(|part| format!("{TAG}:{part}")).into()
    }

    fn beat(name: &str, pulse: u64, said: &str) -> Invocation {
        let (pulse, of_old) = (pulse.to_string(), "0");
        let texts = [name, "5", "1", &pulse, "10.0.0.1:80", "60000", of_old, said];
        let arguments = texts.map(|text| text.as_bytes().to_vec()).into();
        Invocation { script: &BEAT, keys: Self::keys(), arguments }
    }

    fn read(since: u64) -> Invocation {
        let arguments = [since, 0, 512 * 1_024].map(|number| number.to_string().into_bytes());
        Invocation { script: &READ, keys: Self::keys(), arguments: arguments.into() }
    }

    /// Runs a script, and gives the second part of what it returns, a number: the mark of what was
    /// said, or the last change that was read.
    async fn number(&self, invocation: Invocation) -> u64 {
        let answer = self.0.client.run(invocation).await.unwrap();
        let redis::Value::Array(parts) = answer else { panic!("{answer:?}") };
        let redis::Value::BulkString(text) = &parts[1] else { panic!("{parts:?}") };
        String::from_utf8_lossy(text).parse().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_number_comes_twice_when_a_failover_has_lost_the_last_ones() {
    let ground = Ground::lay().await;
    let scripts = Scripts(&ground);
    let key = |part: &str| format!("{TAG}:{part}");
    let first = scripts.number(Scripts::beat("b", 1, "one")).await;
    let row = ground.server.server.cli(&["HGET", &key("members"), "b"]);
    let second = scripts.number(Scripts::beat("b", 2, "two")).await;
    let known = scripts.number(Scripts::read(0)).await;
    assert!(first < second && known == second);
    // The new primary has never heard of the second.
    ground.ask(&["HSET", &key("members"), "b", &row]).await;
    ground.ask(&["HSET", &key("said"), "b", "one"]).await;
    ground.ask(&["ZADD", &key("changes"), &first.to_string(), "b"]).await;
    let third = scripts.number(Scripts::beat("b", 3, "three")).await;
    assert!(third > known, "{third} {known}: whoever knows the second would miss the third");
    assert_eq!(scripts.number(Scripts::read(known)).await, third);
}

/// One round of a large fleet: each member writes, and each reads what all the others wrote.
#[tokio::test(flavor = "multi_thread")]
async fn a_round_of_two_hundred_members_is_cheap() {
    const MEMBERS: usize = 200;
    let ground = Ground::with(Duration::from_secs(1)).await;
    let beat = |at: usize, pulse, said: &str| Scripts::beat(&format!("member-{at}"), pulse, said);
    let read = Scripts::read;
    let said = "s".repeat(400);
    let took = AtomicU64::new(0);
    let run = async |calls: Vec<Invocation>| {
        for some in calls.chunks(10) {
            let before = Instant::now();
            let answers = ground.client.run_all(some.to_vec()).await;
            took.fetch_add(before.elapsed().as_micros() as u64, Ordering::Relaxed);
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        }
    };
    let time = |took: &AtomicU64| Duration::from_micros(took.swap(0, Ordering::Relaxed));
    run((0..MEMBERS).map(|at| beat(at, 1, &said)).collect()).await;
    let change = Scripts(&ground).number(read(0)).await;
    println!("{MEMBERS} members come: {:?}", time(&took));
    run((0..MEMBERS).map(|_| read(change)).collect()).await;
    let at_rest = time(&took);
    run((0..MEMBERS).map(|at| beat(at, 2, &said)).collect()).await;
    let writing = time(&took);
    ground.server.server.cli(&["CONFIG", "RESETSTAT"]);
    run((0..MEMBERS).map(|_| read(change)).collect()).await;
    let reading = time(&took);
    println!(
        "a round of {MEMBERS}, by this slow client: reading at rest {at_rest:?}, all write {writing:?}"
    );
    println!("and all read all of it {reading:?}, by Redis: {}", spent(&ground));
    assert!(at_rest + writing < Duration::from_millis(500), "less than half of an interval");
}

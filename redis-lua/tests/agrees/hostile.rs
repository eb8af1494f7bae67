//! What somebody else writes into our keys is taken for absent, never repeated, and stops nothing.
#![expect(clippy::unwrap_used, reason = "a test may stop loudly")]

use std::time::Duration;

use quorum::ledger::{Against, Begin, Call, Deed, Floor, Outcome, WORDS_MAX, Word};
use quorum::{EndpointKey, Forced, NodeId, Override, Stage, Step};
use redis::{Connection, Value};
use redis_lua::keys::Keys;
use redis_lua::ledger::{Reply, reply};

use super::server::{Scripts, Server};

const NOW: Duration = Duration::from_secs(1_800_000_000);
const LEASE: Duration = Duration::from_secs(5);
const LUA: &str = "') redis.call('FLUSHALL') --";

struct Bench {
    _server: Server,
    connection: Connection,
    keys: Keys,
    scripts: Scripts,
}

impl Bench {
    fn new() -> Self {
        let server = Server::start();
        let (mut connection, keys) = (server.connect(), Keys::new("quorumgate"));
        let scripts = Scripts::load(&mut connection, &keys);
        Self { _server: server, connection, keys, scripts }
    }

    fn send(&mut self, endpoint: &str, by: &str, deed: Deed) -> redis::RedisResult<Value> {
        let (endpoint, by, floor) = (EndpointKey::new(endpoint), NodeId::new(by), Floor::default());
        let call = Call { endpoint, by, generation: 1, floor, deed };
        self.scripts.call(&mut self.connection, NOW, &call)
    }

    fn call(&mut self, endpoint: &str, by: &str, deed: Deed) -> Reply {
        let value = self.send(endpoint, by, deed).unwrap();
        assert!(!format!("{value:?}").contains("FLUSHALL"), "{value:?}");
        reply(&value).unwrap()
    }

    fn raw<T: redis::FromRedisValue>(&mut self, words: &[&[u8]]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.query(&mut self.connection).unwrap()
    }

    /// The keys of an endpoint: state, votes, lease.
    fn keys(&self, endpoint: &str) -> Vec<String> {
        self.keys.of(&EndpointKey::new(endpoint))
    }

    /// An endpoint that two have opened, that one leads, and that has an order.
    fn open(&mut self, endpoint: &str) {
        for key in self.keys(endpoint) {
            self.raw::<()>(&[b"DEL", key.as_bytes()]);
        }
        self.call(endpoint, "gw-1", Deed::Cast(word(1)));
        let opened = self.call(endpoint, "gw-2", Deed::Cast(word(1)));
        assert_eq!(opened.answer.outcome, Outcome::Opened);
        self.call(endpoint, "gw-1", Deed::Take { hold: LEASE });
        self.call(endpoint, "gw-1", Deed::Order(order(1)));
    }
}

fn word(seq: u64) -> Word {
    let vote = Some(Against { incident: 1, is_first_hand: true });
    let opening = Some(Begin { level: 0, cool_down: Duration::from_secs(10) });
    Word { seq, vote, lease: LEASE, electorate: 3, opening, ..Word::default() }
}

fn order(stamp: u64) -> Override {
    let author = NodeId::new("gw-1");
    Override { forced: Forced::Open, stamp, author, remaining: None, reason: LUA[..9].to_owned() }
}

fn step(stage: Stage) -> Step {
    let steward = NodeId::new("gw-1");
    let age = Duration::ZERO;
    Step { incident: 1, failures: 0, level: 0, stage, steward, age, is_held: true }
}

fn deeds() -> [Deed; 8] {
    let probing = step(Stage::Probing { remaining: LEASE });
    [
        Deed::Read,
        Deed::Cast(word(2)),
        Deed::Take { hold: LEASE },
        Deed::Renew { number: 1, hold: LEASE },
        Deed::Release { number: 1 },
        Deed::Advance { number: 1, step: probing.clone() },
        Deed::Carry(probing),
        Deed::Order(order(2)),
    ]
}

/// Values that none of our fields may hold.
fn hostile() -> Vec<Vec<u8>> {
    let texts = [
        "",
        " ",
        "-1",
        "+1",
        "1.0",
        "1e3",
        "0x10",
        "007",
        "nan",
        "9007199254740992",
        "99999999999999999999",
        "1 2 3",
        "1 2 3 4",
        " 1 2 3 4 5",
        "%s%s%n",
        "\n",
        "\0",
        LUA,
        // Of another layout, with an incident out of range, and with canaries that nobody sends.
        "2:1:0:0:waiting",
        "1 1099511627777 0 0 waiting 0 0 5 0 gw-1 *",
        "1 1 0 0 canary 0 0 5 0 gw-1 *",
        "1 1 0 0 closed 1 0 5 0 gw-1 *",
        "1 1 0 0 open 0 0 5 0 gw-1 *",
        "1 1 0 0 waiting 0 0 5 0 gw\n1 *",
        // A name, a basis, and a lease out of range.
        "1 5 1 1 gw/1",
        "1 5 1 1 1 third 0 *",
        "1 99999999999999999 1 1 1 first 0 3 *",
        "1 1 shut * gw-1 *",
        "1 1 open -1 gw-1 *",
    ];
    let name = format!("1 5 1 1 {}", "g".repeat(254));
    let long = ["9".repeat(2 << 20), "1 ".repeat(1 << 20), name];
    let long = long.into_iter().map(String::into_bytes);
    texts
        .map(|text| text.as_bytes().to_vec())
        .into_iter()
        .chain(long)
        .chain([vec![0xff; 64]])
        .collect()
}

#[test]
fn a_value_that_we_did_not_write_is_as_good_as_none() {
    let mut bench = Bench::new();
    let fields = ["version", "epoch", "lead", "step", "order", "count", "run", "gw-1", ""];
    let values = hostile();
    for (field, value) in
        fields.iter().flat_map(|field| values.iter().map(move |value| (field, value)))
    {
        // A run is any hexadecimal number.
        if *field == "run"
            && value.iter().all(u8::is_ascii_hexdigit)
            && !value.is_empty()
            && value.len() <= 64
        {
            continue;
        }
        for deed in deeds() {
            bench.open("pool/a");
            bench.open("pool/b");
            let (poisoned, bare) = (bench.keys("pool/a"), bench.keys("pool/b"));
            let at = match *field {
                "" => 2,
                "gw-1" => 1,
                _ => 0,
            };
            let (key, other) = (poisoned[at].as_bytes(), bare[at].as_bytes());
            if at == 2 {
                bench.raw::<()>(&[b"SET", key, value]);
                bench.raw::<()>(&[b"DEL", other]);
            } else {
                bench.raw::<()>(&[b"HSET", key, field.as_bytes(), value]);
                bench.raw::<()>(&[b"HDEL", other, field.as_bytes()]);
            }
            let got = bench.call("pool/a", "gw-1", deed.clone());
            let expected = bench.call("pool/b", "gw-1", deed.clone());
            let shown = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
            assert_eq!(got.answer, expected.answer, "{field} {shown:?} {deed:?}");
            let is_read = *field != "gw-1" || deed != Deed::Read;
            assert_eq!(got.unread > 0, is_read, "{field} {shown:?} {deed:?}");
        }
    }
}

#[test]
fn a_key_of_another_type_is_an_error_without_its_content() {
    let mut bench = Bench::new();
    for index in 0..3 {
        for deed in deeds().into_iter().skip(1) {
            bench.open("pool/a");
            let key = bench.keys("pool/a")[index].clone();
            bench.raw::<()>(&[b"DEL", key.as_bytes()]);
            bench.raw::<()>(&[b"RPUSH", key.as_bytes(), LUA.as_bytes()]);
            let refused = bench.send("pool/a", "gw-1", deed);
            let shown = format!("{refused:?}");
            assert!(shown.contains("WRONGTYPE"), "{shown}");
            assert!(!shown.contains("FLUSHALL"), "{shown}");
            let kept: u32 = bench.raw(&[b"LLEN", key.as_bytes()]);
            assert_eq!(kept, 1);
        }
    }
}

#[test]
fn words_that_nobody_cast_are_swept_out() {
    let mut bench = Bench::new();
    let votes = bench.keys("pool/a")[1].clone();
    for number in 0..3_000 {
        let voter = format!("nobody {number}");
        let text = format!("{} 5000000 1 1 1 first 1 3 *", NOW.as_micros());
        bench.raw::<()>(&[b"HSET", votes.as_bytes(), voter.as_bytes(), text.as_bytes()]);
    }
    let answer = bench.call("pool/a", "gw-1", Deed::Cast(word(1)));
    assert_eq!(answer.answer.entry.count.counted, 1);
    assert_eq!(answer.unread, 3_000);
    assert_eq!(bench.raw::<u32>(&[b"HLEN", votes.as_bytes()]), 1);
}

#[test]
fn words_of_more_members_than_count_are_not_kept() {
    let mut bench = Bench::new();
    for member in 0..WORDS_MAX {
        let silent = Word { vote: None, ..word(1) };
        let answer = bench.call("pool/a", &format!("gw-{member}"), Deed::Cast(silent));
        assert_eq!(answer.answer.outcome, Outcome::Done);
    }
    assert_eq!(
        bench.call("pool/a", "one-more", Deed::Cast(word(1))).answer.outcome,
        Outcome::Stale
    );
    assert_eq!(bench.call("pool/a", "gw-0", Deed::Cast(word(2))).answer.outcome, Outcome::Done);
}

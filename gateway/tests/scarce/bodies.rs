//! More bodies than there is memory for.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::house::House;
use crate::local::{self, Ask, QUESTION, Reply, soon};
use crate::process::{BINARY, until};
use crate::raw::{Act, DONE, FINISH, ROLE, Raw, event, good, open_stream, whole_stream};

const MEBIBYTE: usize = 1 << 20;
/// The longest body of these gateways.
const BODY: usize = 4 * MEBIBYTE;

/// A good question of this length.
fn question(bytes: usize) -> Vec<u8> {
    let (head, tail) = QUESTION.split_once("hello").unwrap();
    let fill = "x".repeat(bytes - head.len() - tail.len());
    format!("{head}{fill}{tail}").into_bytes()
}

/// Asks with this body, in chunks or with its length stated. The answer may come before all is said.
async fn ask(address: SocketAddr, body: Vec<u8>, is_chunked: bool) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (mut reads, mut writes) = stream.split();
    let framing = match is_chunked {
        true => "transfer-encoding: chunked".to_owned(),
        false => format!("content-length: {}", body.len()),
    };
    let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{framing}\r\n\r\n");
    let says = async {
        writes.write_all(head.as_bytes()).await?;
        for piece in body.chunks(256 * 1024) {
            let piece = if is_chunked { crate::raw::chunk(piece) } else { piece.to_vec() };
            writes.write_all(&piece).await?;
        }
        if is_chunked { writes.write_all(b"0\r\n\r\n").await } else { Ok(()) }
    };
    let hears = async {
        let (mut said, mut piece) = (Vec::new(), [0; 4_096]);
        loop {
            let text = String::from_utf8_lossy(&said);
            if let Some((head, body)) = text.split_once("\r\n\r\n")
                && body.ends_with('}')
            {
                return (head.to_owned(), body.to_owned());
            }
            match reads.read(&mut piece).await {
                Ok(length) if length > 0 => said.extend_from_slice(&piece[..length]),
                ended => panic!("{ended:?} after {text:?}"),
            }
        }
    };
    let (_, heard) = tokio::join!(says, tokio::time::timeout(Duration::from_secs(60), hears));
    heard.unwrap()
}

fn is_shed((head, body): &(String, String)) -> bool {
    let is_shed = head.starts_with("HTTP/1.1 503 ");
    if is_shed {
        assert!(head.contains("\r\nretry-after: 1\r\n") && body.contains("overloaded"), "{head}");
        assert!(head.contains("\r\nconnection: close"), "{head}");
    } else {
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}\n{body}");
    }
    is_shed
}

/// An upstream that answers what is small at once and everything else when it is let.
async fn patient() -> Raw {
    Raw::start(|_, seen| {
        let answer = Act::Say(good("yes"));
        let is_small = seen.body.len() < 100_000;
        if is_small { vec![answer] } else { vec![Act::Wait, answer] }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j08_bodies_beyond_the_memory_are_shed_before_they_are_read_and_small_ones_pass() {
    let raw = patient().await;
    let house = House::start(raw.address, "max_body: 4MiB, max_body_memory: 32MiB", "");
    let address = house.address();
    assert_eq!(house.counted("body_memory_max_bytes").await, 32 * MEBIBYTE as u64);
    // The last eighth is for small ones.
    let mut held = JoinSet::new();
    let before = house.status_kib("VmRSS:");
    for number in 1..=7 {
        held.spawn(ask(address, question(BODY), number % 2 == 0));
        until("it is held", async || raw.count() == number).await;
    }
    house.counts("body_memory_bytes", 7 * BODY as u64).await;
    let taken = house.status_kib("VmRSS:") - before;
    println!("7 bodies of 4 MiB: {} KiB lent, {taken} KiB resident", 7 * BODY / 1_024);
    let mut more = JoinSet::new();
    for number in 0..25 {
        more.spawn(ask(address, question(BODY), number % 5 == 0));
    }
    let answers = more.join_all().await;
    assert!(answers.iter().all(is_shed) && raw.count() == 7);
    assert_eq!(house.counted("admission_rejects_total{reason=\"overloaded\"}").await, 25);
    assert!(house.counted("body_memory_full_total").await >= 25);
    assert_eq!(Ask::chat().send(address).await.status, 200);
    (0..7).for_each(|_| raw.go());
    let answers = held.join_all().await;
    assert!(!answers.iter().any(is_shed));
    house.counts("body_memory_bytes", 0).await;
    let after = ask(address, question(BODY), false);
    raw.go();
    assert!(!is_shed(&after.await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j08_thirty_two_bodies_at_once_are_served_or_shed_and_nothing_else() {
    let raw = patient().await;
    let house = House::start(raw.address, "max_body: 4MiB, max_body_memory: 32MiB", "");
    let before = house.status_kib("VmRSS:");
    (0..32).for_each(|_| raw.go());
    let mut asked = JoinSet::new();
    for number in 0..32 {
        asked.spawn(ask(house.address(), question(BODY), number % 2 == 0));
    }
    let answers = asked.join_all().await;
    let shed = answers.iter().filter(|answer| is_shed(answer)).count();
    let most = house.status_kib("VmHWM:") - before;
    println!("32 bodies of 4 MiB in 32 MiB: {shed} shed, {most} KiB at most");
    assert!(shed < 32 && most < 96 * 1_024, "{shed} shed, {most} KiB");
    house.counts("body_memory_bytes", 0).await;
}

/// A group of processes that may have so much memory; `None`: none can be made here.
struct Group(PathBuf);

impl Group {
    fn make(bytes: usize) -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let name = format!("quorumgate-scarce-{}", std::process::id());
        let place = |line: &str| {
            let (rest, path) = line.rsplit_once(':')?;
            let path = path.trim_start_matches('/');
            if rest.ends_with("memory") {
                let root = PathBuf::from("/sys/fs/cgroup/memory");
                return Some((root.join(path).join(&name), "memory.limit_in_bytes"));
            }
            let root = PathBuf::from("/sys/fs/cgroup");
            // Beside its own group and not below it, where there are processes already.
            let group = if path.is_empty() {
                root.join(&name)
            } else {
                root.join(path).with_file_name(&name)
            };
            rest.ends_with("0:").then_some((group, "memory.max"))
        };
        own.lines().filter_map(place).find_map(|(group, file)| {
            std::fs::create_dir(&group).ok()?;
            let made = Self(group);
            std::fs::write(made.0.join(file), bytes.to_string()).ok()?;
            let mut enters = made.command("true");
            enters
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
                .then_some(made)
        })
    }

    /// A command that becomes `program` in it.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", self.0.display());
        command.args(["-c", &script, program]);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever was in it has ended; the kernel may not have noticed yet.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A stream that waits to be let on.
fn waiting_stream() -> Vec<Act> {
    let mut script = open_stream(&[ROLE, &event("one")]);
    script.push(Act::Wait);
    script.extend(whole_stream(&[FINISH, DONE]).into_iter().skip(1));
    script
}

const STREAMS: usize = 500;
const BODIES: usize = 100;
const HOUSE: usize = 256 * MEBIBYTE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_house_with_500_streams_and_100_bodies_at_the_limit_sheds_and_lives() {
    gateway::handles::raise();
    let streams = Raw::always(waiting_stream()).await;
    let bodies = patient().await;
    let other = format!(
        "name: big, endpoints: [ {{ name: b, upstream_model: other, address: \"http://{}\" }} ]",
        bodies.address
    );
    let group = Group::make(HOUSE);
    let (by, memory) = match &group {
        Some(group) => (group.command(BINARY), String::new()),
        None => (Command::new(BINARY), ", max_body_memory: 64MiB".to_owned()),
    };
    let directory = tempfile::tempdir().unwrap();
    let server = format!("max_body: 4MiB{memory}");
    let yaml = crate::house::yaml(streams.address, &server, "") + &format!("  - {{ {other} }}\n");
    let gateway = crate::process::Gateway::serve_by(by, directory.path(), "gateway", &yaml);
    let mut house = House { gateway, _directory: directory };
    // What it finds out by itself, or is told where no group can be made.
    assert_eq!(house.counted("body_memory_max_bytes").await, 64 * MEBIBYTE as u64);
    let mut clients = Vec::new();
    for _ in 0..STREAMS {
        clients.push(Ask::stream().wire(house.address()).await);
    }
    until("all have begun", async || streams.said() == STREAMS * 3).await;
    let calm = house.status_kib("VmRSS:");
    let mut asked = JoinSet::new();
    for _ in 0..BODIES {
        let body = String::from_utf8(question(BODY - 8)).unwrap().replacen("demo", "big", 1);
        asked.spawn(ask(house.address(), body.into_bytes(), false));
    }
    // Those that were let in are held until all the others were told.
    let (mut answers, mut is_over) = (Vec::new(), false);
    until("all are told", async || {
        while let Some(answer) = asked.try_join_next() {
            answers.push(answer.unwrap());
        }
        if !is_over && asked.len() <= bodies.count() {
            is_over = true;
            (0..BODIES).for_each(|_| bodies.go());
        }
        asked.is_empty()
    })
    .await;
    let shed = answers.iter().filter(|answer| is_shed(answer)).count();
    let served = BODIES - shed;
    let most = house.status_kib("VmHWM:");
    let how = if group.is_some() {
        "in a group of 256 MiB"
    } else {
        "by itself: no group of processes with a limit of memory can be made here"
    };
    println!(
        "{how}: {calm} KiB with {STREAMS} streams, {most} KiB at most; {shed} of {BODIES} bodies shed, {served} served"
    );
    assert!(shed > 0 && served > 0);
    assert!(most < HOUSE as u64 / 1_024, "{most} KiB");
    assert!(house.gateway.is_running());
    (0..STREAMS).for_each(|_| streams.go());
    for mut client in clients {
        let said = local::read_until(&mut client, "[DONE]").await;
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    }
    house.counts("body_memory_bytes", 0).await;
    drop(house);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_states_a_giant_and_sends_nothing_takes_no_memory_from_others() {
    let raw = patient().await;
    let house = House::start(raw.address, "max_body: 4MiB, max_body_memory: 8MiB", "");
    let mut silent = Vec::new();
    for _ in 0..50 {
        let mut stream = TcpStream::connect(house.address()).await.unwrap();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {BODY}\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    house.counts("body_memory_bytes", 50).await;
    raw.go();
    let answer = soon("the answer", ask(house.address(), question(BODY), false)).await;
    assert!(!is_shed(&answer));
    drop(silent);
    house.counts("body_memory_bytes", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_for_which_there_is_no_memory_is_passed_on_all_the_same() {
    let long = good(&"y".repeat(600 * 1024));
    let expected = long.len() - long.windows(4).position(|four| four == b"\r\n\r\n").unwrap() - 4;
    let raw = Raw::start(move |_, seen| {
        let answer = if seen.body.len() < 100_000 { long.clone() } else { good("yes") };
        vec![Act::Wait, Act::Say(answer)]
    })
    .await;
    let house = House::start(raw.address, "max_body: 4MiB, max_body_memory: 8MiB", "");
    let address = house.address();
    let small = tokio::spawn(async move { Ask::chat().send(address).await });
    until("it is held", async || raw.count() == 1).await;
    let giants = [BODY, 3 * MEBIBYTE - 4_096]
        .map(|bytes| tokio::spawn(ask(house.address(), question(bytes), false)));
    until("all are held", async || raw.count() == 3).await;
    // Whoever came first is answered first.
    raw.go();
    let reply: Reply = soon("the long answer", small).await.unwrap();
    assert_eq!((reply.status, reply.body.len()), (200, expected), "{:?}", reply.headers);
    assert_eq!(house.counted("body_memory_full_total").await, 1);
    (0..2).for_each(|_| raw.go());
    for giant in giants {
        assert!(!is_shed(&giant.await.unwrap()));
    }
    house.counts("body_memory_bytes", 0).await;
}

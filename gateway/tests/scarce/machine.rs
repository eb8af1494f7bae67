//! A machine without ports, without room on its disk, without time, and without what it needs to start.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::apart::apart;
use crate::house::{House, yaml};
use crate::local::{Ask, QUESTION};
use crate::process::{BINARY, until};
use crate::raw::{Act, Raw, good};

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
}

#[test]
fn x08_without_a_port_left_to_an_endpoint_requests_are_shed_and_the_endpoint_is_not_blamed() {
    apart(async || {
        const PORTS: usize = 10;
        const ASKED: usize = 40;
        run("ip", &["link", "set", "lo", "up"]);
        let raw = Raw::always(vec![Act::Wait, Act::Say(good("yes"))]).await;
        let house = House::start(raw.address, "", "");
        // One connection with many requests on it, so that clients need none of these ports.
        let io = TokioIo::new(TcpStream::connect(house.address()).await.unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40009").unwrap();
        let mut asked = JoinSet::new();
        for _ in 0..ASKED {
            let mut sender = sender.clone();
            asked.spawn(async move {
                let request = Request::builder().method(Method::POST);
                let request = request.uri("http://x/v1/chat/completions");
                let request = request.body(Full::new(Bytes::from(QUESTION))).unwrap();
                let answer = sender.send_request(request).await.unwrap();
                let status = answer.status().as_u16();
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                (status, String::from_utf8_lossy(&body).into_owned())
            });
        }
        let began = Instant::now();
        let mut shed = 0;
        while shed < ASKED - PORTS {
            let (status, body) = asked.join_next().await.unwrap().unwrap();
            assert!(status == 503 && body.contains("overloaded"), "{status} {body}");
            shed += 1;
        }
        println!("{shed} of {ASKED} shed in {:?}", began.elapsed());
        until("those with a port ask", async || raw.count() == PORTS).await;
        (0..ASKED).for_each(|_| raw.go());
        for (status, body) in asked.join_all().await {
            assert_eq!(status, 200, "{body}");
        }
        let explained = house.gateway.explain("demo/a").await;
        assert_eq!(explained["local"]["state"], "closed", "{explained}");
        let own = "connections_failed_total{endpoint=\"demo/a\",reason=\"own\"}";
        assert_eq!(house.counted(own).await, shed as u64);
    });
}

#[test]
fn x04_on_a_full_disk_the_old_state_file_stays_and_the_gateway_serves() {
    apart(async || {
        run("ip", &["link", "set", "lo", "up"]);
        let disk = tempfile::tempdir().unwrap();
        let at = disk.path().to_str().unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", at]);
        let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
        let file = disk.path().join("state");
        let state = format!("state: {{ file: {}, every: 1s }}", file.display());
        let house = House::start(raw.address, "", &state);
        let written = |result: &str| format!("state_writes_total{{result=\"{result}\"}}");
        until("it is written", async || house.counted(&written("ok")).await > 0).await;
        let before = fill(disk.path(), &file);
        until("a write fails", async || house.counted(&written("error")).await > 0).await;
        assert_eq!(std::fs::read(&file).unwrap(), before, "the old one stays");
        assert_eq!(Ask::chat().send(house.address()).await.status, 200);
        let log = house.gateway.log();
        assert!(log.iter().any(|line| line.contains("the old one stays")), "{log:?}");
        std::fs::remove_file(disk.path().join("fill")).unwrap();
        let (ok, metric) = (house.counted(&written("ok")).await, written("ok"));
        until("it is written again", async || house.counted(&metric).await > ok).await;
    });
}

/// Fills a disk to its last byte. Returns what the file holds then.
fn fill(disk: &Path, file: &Path) -> Vec<u8> {
    use std::io::Write;
    let mut fill = std::fs::File::create(disk.join("fill")).unwrap();
    while fill.write(&[0; 512]).is_ok_and(|length| length > 0) {}
    std::fs::read(file).unwrap()
}

/// Processes that take all the time there is.
struct Burners(Vec<Child>);

impl Burners {
    fn start(count: usize) -> Self {
        let burner = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..count).map(|_| burner()).collect())
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for burner in &mut self.0 {
            let _ = burner.kill();
            let _ = burner.wait();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x10_beside_processes_that_take_all_the_time_health_is_told_and_no_circuit_opens() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = House::start(raw.address, "", "");
    let cores = std::thread::available_parallelism().unwrap().get();
    let burners = Burners::start(cores * 2);
    let mut times = Vec::new();
    for _ in 0..21 {
        let began = Instant::now();
        assert_eq!(Ask::get("/healthz").send(house.gateway.operators).await.status, 200);
        times.push(began.elapsed());
        assert_eq!(Ask::chat().send(house.address()).await.status, 200);
    }
    drop(burners);
    times.sort();
    println!(
        "health beside {} burners: {:?} in the middle, {:?} at most",
        cores * 2,
        times[10],
        times[20]
    );
    // How long a single one takes is the scheduler's affair on a machine that others use as well.
    assert!(times[10] < Duration::from_secs(1), "{times:?}");
    let explained = house.gateway.explain("demo/a").await;
    assert_eq!(explained["local"]["state"], "closed", "{explained}");
}

/// What a gateway says that cannot start, and that it says it with the right code.
fn refused(listen: &str, before: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let file = directory.path().join("gw.yaml");
    let yaml = yaml(nobody, "", "").replacen("127.0.0.1:0", &format!("\"{listen}\""), 1);
    std::fs::write(&file, yaml).unwrap();
    let script = format!("{before}; exec \"$0\" serve --config \"$1\"");
    let output = Command::new("sh").args(["-c", &script, BINARY]).arg(file).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{told}");
    told
}

#[test]
fn x11_what_is_wanting_at_the_start_is_said_with_what_to_look_at() {
    apart(async || {
        run("ip", &["link", "set", "lo", "up"]);
        std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
        let told = refused("[::1]:0", ":");
        assert!(
            told.contains("server.listen [::1]:0") && told.contains("of IPv6: is it on?"),
            "{told}"
        );
        let told = refused("10.1.2.3:0", ":");
        assert!(told.contains("no interface of this machine has that address"), "{told}");
        let told = refused("127.0.0.1:0", "ulimit -n 12");
        assert!(told.contains("open files"), "{told}");
    });
}

#[test]
fn x11_without_names_and_with_a_disk_that_cannot_be_written_it_serves_and_says_so() {
    apart(async || {
        run("ip", &["link", "set", "lo", "up"]);
        let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
        let disk = tempfile::tempdir().unwrap();
        let at = disk.path().to_str().unwrap();
        run("mount", &["-t", "tmpfs", "-o", "ro", "tmpfs", at]);
        // No server answers for names in this network.
        let top = format!("state: {{ file: {at}/state, every: 1s }}");
        let other = "  - name: named\n    endpoints: [ { name: a, address: \"http://nowhere.example\" } ]\n";
        let directory = tempfile::tempdir().unwrap();
        let yaml = yaml(raw.address, "", &top) + other;
        let gateway = crate::process::Gateway::serve(directory.path(), "gateway", &yaml);
        let house = House { gateway, _directory: directory };
        let failed = "state_writes_total{result=\"error\"}";
        until("it cannot be written", async || house.counted(failed).await > 0).await;
        assert_eq!(Ask::chat().send(house.address()).await.status, 200);
        let named = QUESTION.replace("demo", "named");
        let reply = Ask::post("/v1/chat/completions", named).send(house.address()).await;
        assert_eq!((reply.status, reply.code().as_str()), (502, "upstream_unavailable"));
    });
}

//! More clients than there are files for.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tokio::net::TcpStream;

use crate::house::House;
use crate::local::{Ask, read_until};
use crate::process::{BINARY, until};
use crate::raw::{Act, Raw, good};

/// How long is looked at what it spends.
const WATCHED: Duration = Duration::from_millis(1_500);

/// What share of a core it spends while this goes on.
async fn share_of_a_core(house: &House) -> f64 {
    let (before, began) = (house.spent(), Instant::now());
    tokio::time::sleep(WATCHED).await;
    (house.spent() - before).as_secs_f64() / began.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x01_two_hundred_clients_of_64_files_wait_while_all_others_are_served() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let mut by = Command::new("sh");
    by.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\"", BINARY]);
    let house = House::start_by(by, raw.address, "", "");
    let room = house.counted("client_connections_max").await;
    assert!((8..=30).contains(&room), "{room}");
    assert!(house.gateway.log().iter().any(|line| line.contains("room for fewer connections")));
    let mut first = Ask::chat().wire(house.address()).await;
    read_until(&mut first, "yes").await;
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(TcpStream::connect(house.address()).await.unwrap());
    }
    until("the house is full", async || house.counted("client_connections_full_total").await > 0)
        .await;
    let share = share_of_a_core(&house).await;
    println!("200 clients of 64 files: room for {room}, {:.1} % of a core", share * 100.0);
    assert!(share < 0.2, "{share} of a core");
    // Who is in is served, endpoints are called, and operators are heard.
    Ask::chat().write(&mut first).await;
    read_until(&mut first, "yes").await;
    assert_eq!(house.gateway.look("/admin/v1/cluster").await["live"], 1);
    drop(crowd);
    let mut late = Ask::chat().wire(house.address()).await;
    read_until(&mut late, "yes").await;
    assert_eq!(
        house.counted("accept_errors_total{listener=\"clients\",reason=\"scarce\"}").await,
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x01_without_a_file_left_nothing_spins_and_everybody_is_served_in_the_end() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = House::start(raw.address, "", "");
    let id = Pid::from_raw(i32::try_from(house.gateway.id()).unwrap());
    let mut first = Ask::chat().wire(house.address()).await;
    read_until(&mut first, "yes").await;
    // The hard limit is the test's own, which the gateway has inherited.
    let none = Rlimit { current: Some(3), ..getrlimit(Resource::Nofile) };
    let found = prlimit(id, Resource::Nofile, none).unwrap();
    let mut crowd = Vec::new();
    for _ in 0..50 {
        crowd.push(Ask::chat().wire(house.address()).await);
    }
    // Operators wait as well.
    let operator = TcpStream::connect(house.gateway.operators).await.unwrap();
    let share = share_of_a_core(&house).await;
    println!("no file left: {:.1} % of a core", share * 100.0);
    assert!(share < 0.2, "{share} of a core");
    // By the connection to the endpoint that is at rest.
    Ask::chat().write(&mut first).await;
    read_until(&mut first, "yes").await;
    prlimit(id, Resource::Nofile, found).unwrap();
    for client in &mut crowd {
        read_until(client, "yes").await;
    }
    drop(operator);
    for listener in ["clients", "operators"] {
        let metric = format!("accept_errors_total{{listener=\"{listener}\",reason=\"scarce\"}}");
        let failed = house.counted(&metric).await;
        assert!((1..200).contains(&failed), "{listener}: {failed}");
    }
    let log = house.gateway.log();
    let told = log.iter().filter(|line| line.contains("connections wait to be accepted")).count();
    assert!((1..=4).contains(&told), "{told} lines\n{}", log.join("\n"));
}

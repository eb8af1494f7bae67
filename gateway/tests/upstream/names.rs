//! Names, addresses, and what answers there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gateway::upstream::{ConnectError, SendError};
use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;

use crate::kit::{always, kit, kit_with, pass};
use crate::local::nobody;
use crate::raw::{Act, Raw, good};

/// An address that swallows whoever wants to connect: a queue of nobody accepted that is full.
async fn black_hole(address: SocketAddr) -> (SocketAddr, (Socket, Vec<TcpStream>)) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(1).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut taken = Vec::new();
    let patience = Duration::from_millis(100);
    while let Ok(stream) = tokio::time::timeout(patience, TcpStream::connect(address)).await {
        taken.push(stream.unwrap());
        assert!(taken.len() < 16, "the queue is never full");
    }
    (address, (socket, taken))
}

fn refused(error: ConnectError) -> Result<(u16, String), SendError> {
    Err(SendError::Connect(error))
}

#[tokio::test]
async fn u01_u02_refusal_is_told_at_once_and_silence_after_the_time_out_of_the_model() {
    assert_eq!(kit(nobody().await).ask().await, refused(ConnectError::Refused));
    let (address, _hole) = black_hole("127.0.0.1:0".parse().unwrap()).await;
    let began = Instant::now();
    assert_eq!(kit(address).ask().await, refused(ConnectError::Timeout));
    let took = began.elapsed();
    assert!((500..3_000).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test]
async fn u28_a_name_without_an_address_is_a_refusal() {
    let kit = kit_with("gpu-a:1", always(&[]), |_| {}).unwrap();
    assert_eq!(kit.ask().await, refused(ConnectError::Name));
}

#[tokio::test]
async fn u28_of_fifty_addresses_the_one_that_answers_is_found() {
    let raw = Raw::always(vec![Act::Say(good("x"))]).await;
    let mut all: Vec<String> = (1..50).map(|last| format!("127.0.1.{last}")).collect();
    all.push("127.0.0.1".to_owned());
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let authority = format!("gpu-a:{}", raw.address.port());
    let kit = kit_with(&authority, always(&all), |_| {}).unwrap();
    assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200));
    assert_eq!(raw.seen()[0].header("host"), Some(authority.as_str()));
}

#[tokio::test]
async fn an_address_that_swallows_everything_costs_a_quarter_of_a_second() {
    let raw = Raw::always(vec![Act::Say(good("x"))]).await;
    let (address, _hole) =
        black_hole(SocketAddr::new("127.0.0.2".parse().unwrap(), raw.address.port())).await;
    let authority = format!("gpu-a:{}", address.port());
    let kit = kit_with(&authority, always(&["127.0.0.2", "127.0.0.1"]), |_| {}).unwrap();
    let began = Instant::now();
    assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200));
    assert!(began.elapsed() >= Duration::from_millis(240), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_name_whose_address_swallows_everything_is_asked_anew() {
    let raw = Raw::always(vec![Act::Say(good("x"))]).await;
    let port = raw.address.port();
    let (_, _hole) = black_hole(SocketAddr::new("127.0.0.2".parse().unwrap(), port)).await;
    let has_moved = Arc::new(AtomicBool::new(false));
    let moved = Arc::clone(&has_moved);
    let lookup = Box::new(move |_: &str| -> gateway::upstream::Answering {
        let last = if moved.load(Ordering::SeqCst) { 1 } else { 2 };
        Box::pin(async move { Ok(vec![[127, 0, 0, last].into()]) })
    });
    let kit = kit_with(&format!("gpu-a:{port}"), lookup, |_| {}).unwrap();
    assert_eq!(kit.ask().await, refused(ConnectError::Timeout));
    has_moved.store(true, Ordering::SeqCst);
    // Long before the answer has lost its freshness.
    pass(Duration::from_secs(2)).await;
    // This one has the name asked anew, and goes by what is known.
    assert_eq!(kit.ask().await, refused(ConnectError::Timeout));
    assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200));
}

#[tokio::test]
async fn m08_a_name_that_leads_to_a_metadata_address_is_not_followed() {
    for address in ["169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "0.0.0.0"] {
        let kit = kit_with("gpu-a:1", always(&[address]), |_| {}).unwrap();
        assert_eq!(kit.ask().await, refused(ConnectError::Forbidden), "{address}");
    }
    let raw = Raw::always(vec![Act::Say(good("x"))]).await;
    let authority = format!("gpu-a:{}", raw.address.port());
    let kit = kit_with(&authority, always(&["169.254.169.254", "127.0.0.1"]), |_| {}).unwrap();
    assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200));
}

#[tokio::test]
async fn u29_a_name_that_moves_is_followed_though_traffic_keeps_its_connection_warm() {
    let old = Raw::always(vec![Act::Say(good("old"))]).await;
    let new = Raw::always(vec![Act::Say(good("new"))]).await;
    // One port at two addresses would race with other tests; a relay stands in for the second.
    let (port, target) = (old.address.port(), new.address);
    let listener = tokio::net::TcpListener::bind(("127.0.0.3", port)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut far = TcpStream::connect(target).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    let has_moved = Arc::new(AtomicBool::new(false));
    let moved = Arc::clone(&has_moved);
    let lookup = Box::new(move |_: &str| -> gateway::upstream::Answering {
        let last = if moved.load(Ordering::SeqCst) { 3 } else { 1 };
        Box::pin(async move { Ok(vec![[127, 0, 0, last].into()]) })
    });
    let kit = kit_with(&format!("gpu-a:{port}"), lookup, |_| {}).unwrap();
    assert!(kit.ask().await.unwrap().1.contains("old"));
    has_moved.store(true, Ordering::SeqCst);
    let mut passed = Duration::ZERO;
    let step = Duration::from_secs(15);
    while !kit.ask().await.unwrap().1.contains("new") {
        pass(step).await;
        passed += step;
        assert!(passed <= Duration::from_secs(345), "{passed:?}");
    }
    assert!(passed >= Duration::from_secs(285), "the old one was of use until then: {passed:?}");
}

//! Upstreams of HTTP/2 that flood: their clients are answered by another, and nothing is left.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::frames::{END_HEADERS, HEADERS, SETTINGS, fields, frame};
use crate::local::{Ask, soon};
use crate::process::Gateway;
use crate::raw::{Act, Raw, good};
use crate::stand::{CONNECTION_KIB_MAX, MACHINE, sized};

/// An upstream that greets, waits for a request, and says these bytes again and again.
async fn hostile(opening: Vec<u8>, unit: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let many = unit.repeat(60_000 / unit.len() + 1);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (opening, many) = (opening.clone(), many.clone());
            tokio::spawn(async move {
                let (mut reads, mut writes) = stream.into_split();
                writes.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
                let mut came = [0; 4096];
                let mut seen = Vec::new();
                while !seen.windows(5).any(|five| five == b"hello") {
                    match reads.read(&mut came).await {
                        Ok(length) if length > 0 => seen.extend_from_slice(&came[..length]),
                        Ok(_) | Err(_) => return,
                    }
                }
                tokio::spawn(
                    async move { while reads.read(&mut came).await.is_ok_and(|n| n > 0) {} },
                );
                let _ = writes.write_all(&opening).await;
                for _ in 0..sized(2_000, 20_000) {
                    if writes.write_all(&many).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// What it takes to be an answer.
fn status(status: &str, flags: u8, more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, flags, 1, &fields(&[&[(":status", status)], more].concat()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_floods_costs_little_and_its_clients_are_answered_by_another() {
    let _alone = MACHINE.lock().await;
    let ping = frame(6, 0, 0, b"12345678");
    let field = "v".repeat(120);
    let more = [("x", field.as_str())];
    let large = status("200", END_HEADERS, &more.repeat(126));
    let floods = [
        ("pings", vec![], ping),
        ("settings", vec![], frame(SETTINGS, 0, 0, &[])),
        ("hints", vec![], status("103", END_HEADERS, &more)),
        ("a head without end", status("200", 0, &[]), frame(9, 0, 1, &fields(&more))),
        ("a head of 16 KiB again and again", vec![], large),
        (
            "promises",
            vec![],
            frame(5, END_HEADERS, 1, &[&[0, 0, 0, 2], &fields(&more)[..]].concat()),
        ),
        ("farewells", vec![], frame(7, 0, 0, &[0; 8])),
    ];
    for (name, opening, unit) in floods {
        let hostile = hostile(opening, unit).await;
        let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
        let directory = tempfile::tempdir().unwrap();
        let yaml = format!(
            "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0 }}
timeouts: {{ first_byte: 1s }}
log: {{ format: json, level: \"info,access=off\" }}
models:
  - name: demo
    endpoints:
      - {{ name: a, address: \"http://{hostile}\", protocol: http2, priority: 0 }}
      - {{ name: b, address: \"http://{}\", priority: 1 }}
",
            raw.address
        );
        let gateway = Gateway::serve(directory.path(), "gateway", &yaml);
        let before = resident_kib(&gateway);
        let began = std::time::Instant::now();
        let reply = soon("an answer", Ask::chat().send(gateway.clients)).await;
        assert_eq!((reply.status, reply.endpoint()), (200, "demo/b"), "{name}: {}", reply.text());
        let grown = resident_kib(&gateway).saturating_sub(before);
        println!("an upstream's {name}: {grown} KiB, answered after {:?}", began.elapsed());
        // What a first request takes for good is in it.
        assert!(grown <= 4 * CONNECTION_KIB_MAX, "{name}: {grown} KiB");
        let log = gateway.log();
        assert!(log.len() < 50, "{name}: {} lines, {:?}", log.len(), log.last());
    }
}

fn resident_kib(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

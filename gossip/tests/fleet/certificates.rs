//! Certificates change while a node runs.

use std::fs;

use gossip::{Command, certs};

use crate::stranger::Stranger;
use crate::world::{Certificates, config, is_live, read, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_ca_is_taken_without_a_restart_and_the_old_one_is_refused() {
    let old = Certificates::for_nodes(&["one", "two", "late"]);
    let mut one = start(config("one", old.of("one"), &[])).await;
    let mut two = start(config("two", old.of("two"), &[one.address()])).await;
    one.wait("the peer", |ours| is_live(ours, "two")).await;
    let late = old.directory.path().join("kept");
    fs::create_dir(&late).unwrap();
    for name in ["ca.crt", "late.crt", "late.key"] {
        fs::copy(old.directory.path().join(name), late.join(name)).unwrap();
    }
    let late_tls = crate::world::files(&late, "late");

    for name in ["ca.crt", "ca.key", "one.crt", "one.key", "two.crt", "two.key", "late.crt"] {
        fs::remove_file(old.directory.path().join(name)).unwrap();
    }
    fs::remove_file(old.directory.path().join("late.key")).unwrap();
    certs::throw_away(old.directory.path(), &["one", "two"]).unwrap();
    for node in [&one, &two] {
        node.carrier.commands.send(Command::ReloadCertificates).await.unwrap();
    }
    let before = read(&one.carrier.stats.handshakes_refused);
    // Until the order is carried out the old certificate is still good.
    loop {
        match Stranger::connect(one.address(), Some(late_tls.clone()), "fleet").await {
            Ok(stranger) => drop(stranger.connection.closed().await),
            Err(_) => break,
        }
        if read(&one.carrier.stats.handshakes_refused) > before {
            break;
        }
    }
    let rounds = read(&two.carrier.stats.rounds);
    two.wait_for_count("rounds with the new CA", |carrier| {
        read(&carrier.stats.rounds) > rounds + 20
    })
    .await;
    assert!(is_live(&one.carrier.ours.borrow(), "two"));
    assert!(is_live(&two.carrier.ours.borrow(), "one"));
}

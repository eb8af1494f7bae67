//! Certificates change, and run out, while a node runs.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gossip::{Carrier, Command, Reject, certs};
use rcgen::{CertificateParams, Issuer, KeyPair, date_time_ymd};
use tokio::time::timeout;

use crate::stranger::Stranger;
use crate::world::{
    Certificates, PATIENCE, config, has_vote, is_live, read, renewal, start, start_fleet,
};

/// Issues a certificate that is good for this long from now on; none at all: it ran out yesterday.
pub(crate) fn issue_for(directory: &Path, node_id: &str, good_for: Option<Duration>) {
    let pem = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    let ca_key = KeyPair::from_pem(&pem("ca.key")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&pem("ca.crt"), ca_key).unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    let now = date_time_ymd(1970, 1, 1) + SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut params = CertificateParams::new(vec![node_id.to_owned()]).unwrap();
    params.not_before = now - 2 * day;
    params.not_after = match good_for {
        Some(good_for) => now + good_for,
        None => now - day,
    };
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    fs::write(directory.join(format!("{node_id}.crt")), certificate.pem()).unwrap();
    fs::write(directory.join(format!("{node_id}.key")), key.serialize_pem()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g08_a_new_ca_is_taken_without_a_restart_and_the_old_one_is_refused() {
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
    two.state(vec![renewal("chat/before", 1)]);
    one.wait("a vote", |ours| has_vote(ours, "two", "chat/before")).await;
    // One connection that another one from the same address has replaced, and that other one.
    let early = Stranger::connect(one.address(), Some(late_tls.clone()), "fleet").await.unwrap();
    let again = early.again(one.address(), late_tls.clone()).await;

    for name in ["ca.crt", "ca.key", "one.crt", "one.key", "two.crt", "two.key", "late.crt"] {
        fs::remove_file(old.directory.path().join(name)).unwrap();
    }
    fs::remove_file(old.directory.path().join("late.key")).unwrap();
    certs::throw_away(old.directory.path(), &["one", "two"]).unwrap();
    for node in [&one, &two] {
        node.carrier.commands.send(Command::ReloadCertificates).await.unwrap();
    }
    let before = read(&one.carrier.stats.handshakes_refused);
    timeout(PATIENCE, early.connection.closed()).await.unwrap();
    timeout(PATIENCE, again.closed()).await.unwrap();
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
    one.wait("the vote, signed anew", |ours| has_vote(ours, "two", "chat/before")).await;
    assert!(is_live(&one.carrier.ours.borrow(), "two"));
    assert!(is_live(&two.carrier.ours.borrow(), "one"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g08_a_certificate_that_runs_out_ends_the_connection_and_the_votes() {
    let certificates = Certificates::for_nodes(&["one", "two", "rogue"]);
    let directory = certificates.directory.path();
    for name in ["two", "rogue"] {
        issue_for(directory, name, Some(Duration::from_secs(5)));
    }
    let mut one = start(config("one", certificates.of("one"), &[])).await;
    let two = start(config("two", certificates.of("two"), &[one.address()])).await;
    let rogue = Stranger::connect(one.address(), Some(certificates.of("rogue")), "fleet").await;
    two.state(vec![renewal("chat/a", 1)]);
    one.wait("the vote", |ours| has_vote(ours, "two", "chat/a")).await;
    let closed = async {
        let rogue = rogue.unwrap();
        let mut looks = tokio::time::interval(Duration::from_millis(100));
        while rogue.connection.close_reason().is_none() {
            // As the node does by itself every half minute.
            one.carrier.commands.send(Command::ReloadCertificates).await.unwrap();
            looks.tick().await;
        }
    };
    timeout(PATIENCE, closed).await.unwrap();
    let is_silent = |ours: &gossip::Ours| !has_vote(ours, "two", "chat/a");
    one.carrier.commands.send(Command::ReloadCertificates).await.unwrap();
    one.wait("the end of the vote", is_silent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g08_a_rotated_key_signs_everything_anew_and_nothing_is_refused() {
    let certificates = Certificates::for_nodes(&["one", "two"]);
    let mut fleet = start_fleet(&certificates, &["one", "two"], crate::world::QUICK).await;
    let [one, two] = fleet.as_mut_slice() else { panic!("two nodes were started") };
    two.mine.send_modify(|mine| {
        mine.stated = vec![renewal("chat/a", 1), renewal("chat/b", 2)];
        mine.pulse = 1;
    });
    let has_pulse = |ours: &gossip::Ours, pulse| {
        crate::world::member(ours, "two").is_some_and(|two| two.pulse == pulse)
    };
    one.wait("the pulse", |ours| has_pulse(ours, 1)).await;

    issue_for(certificates.directory.path(), "two", Some(Duration::from_secs(3_600)));
    two.carrier.commands.send(Command::ReloadCertificates).await.unwrap();
    two.mine.send_modify(|mine| {
        mine.stated.push(renewal("chat/c", 3));
        mine.pulse = 2;
    });
    one.wait("a later pulse", |ours| has_pulse(ours, 2)).await;
    let ours = one.carrier.ours.borrow().clone();
    for endpoint in ["chat/a", "chat/b", "chat/c"] {
        assert!(has_vote(&ours, "two", endpoint), "{endpoint}");
    }
    let refused = |carrier: &Carrier| {
        Reject::ALL.into_iter().map(|reason| carrier.stats.rejects(reason)).sum::<u64>()
    };
    assert_eq!(refused(&one.carrier), 0, "{:?}", one.carrier.stats);
}

//! What goes wrong on the way from a clone to a fleet: each slip is told in one line, once, with its cure.

use std::path::Path;
use std::process::{Command, Output};

use crate::process::{BINARY, Gateway, until};
use crate::quorumgate;

const MODELS: &str =
    "models: [{ name: m, endpoints: [{ name: a, address: \"http://127.0.0.1:1\" }] }]\n";

/// Starts a gateway that cannot start.
fn start(directory: &Path, listen: &str, rest: &str) -> Output {
    let file = directory.join("gw.yaml");
    let yaml = format!(
        "server: {{ listen: \"{listen}\" }}\nadmin: {{ listen: 127.0.0.1:0 }}\n{rest}{MODELS}"
    );
    std::fs::write(&file, yaml).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["serve", "--config"]).arg(file).current_dir(directory).output().unwrap()
}

/// Asserts that it ended with 69 and a last line that says each of `told`, the first of them once.
fn is_told(output: &Output, told: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{error}");
    let last = error.lines().last().unwrap();
    assert!(last.starts_with("quorumgate: "), "{error}");
    for part in told {
        assert!(last.contains(part), "{part:?} is missing in {last:?}");
    }
    assert_eq!(last.matches(told[0]).count(), 1, "{last}");
}

fn cluster(node_id: &str, tls: &str) -> String {
    format!("cluster: {{ id: t, node_id: {node_id}, listen: 127.0.0.1:0, tls: {{ {tls} }} }}\n")
}

fn authority(directory: &Path, nodes: &[&str]) {
    let dir = directory.to_str().unwrap();
    assert!(quorumgate(&["certs", "init", "--dir", dir]).status.success());
    for node in nodes {
        assert!(quorumgate(&["certs", "issue", node, "--dir", dir]).status.success());
    }
}

#[test]
fn a_start_that_fails_names_its_cause_once_and_the_cure() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    authority(at, &["gw-1", "gw-2"]);
    let with = |node: &str, tls: &str| start(at, "127.0.0.1:0", &cluster(node, tls));
    is_told(
        &start(at, "192.0.2.1:8080", ""),
        &["server.listen 192.0.2.1:8080", "no interface of this machine"],
    );
    is_told(
        &with("gw-1", "ca: none.crt, cert: gw-1.crt, key: gw-1.key"),
        &["cannot read none.crt", "certs issue NODE"],
    );
    is_told(
        &with("gw-3", "ca: ca.crt, cert: gw-1.crt, key: gw-1.key"),
        &["made out to \"gw-1\"", "cluster.node_id"],
    );
    is_told(
        &with("gw-1", "ca: ca.crt, cert: gw-1.crt, key: gw-2.key"),
        &["cannot use the certificates", "must be the key of"],
    );
    is_told(
        &with("gw-1", "ca: gw.yaml, cert: gw-1.crt, key: gw-1.key"),
        &["gw.yaml holds no usable certificate", "PEM"],
    );
    let held = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let rest = cluster("gw-1", "ca: ca.crt, cert: gw-1.crt, key: gw-1.key");
    let rest = rest.replace("127.0.0.1:0", &held.local_addr().unwrap().to_string());
    is_told(&start(at, "127.0.0.1:0", &rest), &["cannot bind", "is the port taken?"]);
    drop(held);
}

#[test]
fn a_certificate_without_its_key_or_the_other_way_round_is_not_taken_for_whole() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let dir = directory.path().to_str().unwrap();
    let ensure = || quorumgate(&["certs", "ensure", "gw-1", "gw-2", "--dir", dir]);
    assert!(ensure().status.success());
    let before = std::fs::read(file("gw-1.crt")).unwrap();
    assert!(ensure().status.success());
    assert_eq!(std::fs::read(file("gw-1.crt")).unwrap(), before);
    for (gone, left) in [("gw-2.crt", "gw-2.key"), ("gw-2.key", "gw-2.crt")] {
        let kept = std::fs::read(file(gone)).unwrap();
        std::fs::remove_file(file(gone)).unwrap();
        is_told(&ensure(), &[left, "is there without", gone, "bring"]);
        std::fs::write(file(gone), kept).unwrap();
    }
    // Where every node has its own, nothing is signed, and the authority's key may be kept elsewhere.
    let key = std::fs::read(file("ca.key")).unwrap();
    std::fs::remove_file(file("ca.key")).unwrap();
    assert!(ensure().status.success());
    std::fs::remove_file(file("gw-2.key")).unwrap();
    std::fs::remove_file(file("gw-2.crt")).unwrap();
    is_told(&ensure(), &["ca.crt", "is there without", "ca.key"]);
    std::fs::write(file("ca.key"), key).unwrap();
    std::fs::remove_file(file("ca.crt")).unwrap();
    is_told(&ensure(), &["ca.key", "is there without", "ca.crt"]);
}

#[test]
fn certificates_that_cannot_be_made_name_the_cure() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().to_str().unwrap();
    is_told(
        &quorumgate(&["certs", "issue", "gw-1", "--dir", dir]),
        &["cannot read", "quorumgate certs init"],
    );
    authority(directory.path(), &["gw-1"]);
    let again = quorumgate(&["certs", "init", "--dir", dir]);
    is_told(&again, &["cannot make", "never overwritten", "--dir"]);
    let again = quorumgate(&["certs", "issue", "gw-1", "--dir", dir]);
    is_told(&again, &["cannot make", "never overwritten", "move the old"]);
    let odd = quorumgate(&["certs", "issue", "gw_1/..", "--dir", dir]);
    is_told(&odd, &["no DNS name", "letters, digits"]);
}

/// A gateway in `directory`, which has its certificates, that asks `seed`.
fn member(directory: &Path, node_id: &str, fleet: &str, seed: &str) -> Gateway {
    let tls = ["ca.crt", &format!("{node_id}.crt"), &format!("{node_id}.key")]
        .map(|file| directory.join(file).display().to_string());
    let [ca, cert, key] = tls;
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0 }}\nadmin: {{ listen: 127.0.0.1:0 }}\n\
         log: {{ format: json }}\n\
         cluster: {{ id: {fleet}, node_id: {node_id}, listen: 127.0.0.1:0, seeds: [{seed}], \
         gossip_interval: 100ms, tls: {{ ca: {ca}, cert: {cert}, key: {key} }} }}\n{MODELS}"
    );
    Gateway::serve(directory, node_id, &yaml)
}

#[tokio::test]
async fn a_peer_that_cannot_be_talked_to_is_named_with_the_cure() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    authority(here.path(), &["gw-1", "gw-2"]);
    authority(there.path(), &["gw-3"]);
    let first = member(here.path(), "gw-1", "t", "127.0.0.1:9");
    let seed = first.gossip.unwrap().to_string();
    let of_another_ca = member(there.path(), "gw-3", "t", &seed);
    let of_another_fleet = member(here.path(), "gw-2", "other", &seed);
    for (node, told) in [(&of_another_ca, "is of another CA"), (&of_another_fleet, "cluster.id")] {
        until("the peer is named", async || {
            node.log().iter().any(|line| line.contains(told) && line.contains(&seed))
        })
        .await;
    }
}

//! The pods of the chart as plain processes: the same arguments, variables and files, the latter laid out as
//! the kubelet does. They form a fleet, and take on another ConfigMap while they run.
//!
//! What is replaced is where things are: directories, the Service's name, and each TCP port by a free one. For
//! gossip each has an address of its own, as pods do, so that its port is free.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::chart::Manifests;
use crate::process::{BINARY, Gateway, TOKEN, call, until};

const REPLICAS: usize = 3;

/// Where a pod is.
struct Pod {
    directory: PathBuf,
    /// Where it gossips.
    gossip: SocketAddr,
    seed: SocketAddr,
}

impl Pod {
    /// The file of a secret.
    fn secret(&self, name: &str) -> PathBuf {
        self.directory.join("run/secrets/quorumgate").join(name)
    }
}

/// The text of a ConfigMap with everything where it is on this machine.
fn placed(text: &str, pod: &Pod, model: SocketAddr) -> String {
    let gossip = pod.gossip;
    let places = [
        ("quorumgate-fleet:7946", pod.seed.to_string()),
        ("0.0.0.0:8080", "127.0.0.1:0".to_owned()),
        ("0.0.0.0:9090", "127.0.0.1:0".to_owned()),
        ("0.0.0.0:7946", gossip.to_string()),
        ("vllm.models:8000", model.to_string()),
        ("a:8000", model.to_string()),
    ];
    let text = places.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    below(pod, &text)
}

/// The same with every mounted path below the pod's own directory.
fn below(pod: &Pod, text: &str) -> String {
    let directory = pod.directory.display();
    let mounts = ["/etc/", "/run/secrets/", "/var/lib/"];
    mounts
        .iter()
        .fold(text.to_owned(), |text, mount| text.replace(mount, &format!("{directory}{mount}")))
}

/// Lets the mounted ConfigMap hold `text`, as the kubelet does: a directory of its own, and one link that is
/// replaced.
fn mount(pod: &Path, version: &str, text: &str) {
    let etc = pod.join("etc/quorumgate");
    let data = etc.join(version);
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("quorumgate.yaml"), text).unwrap();
    symlink(version, etc.join("..data_tmp")).unwrap();
    fs::rename(etc.join("..data_tmp"), etc.join("..data")).unwrap();
    let link = etc.join("quorumgate.yaml");
    if !link.is_symlink() {
        symlink("..data/quorumgate.yaml", link).unwrap();
    }
}

/// The container's process, with its variables and no others.
fn process(manifests: &Manifests, name: &str, pod: &Pod) -> Command {
    let mut command = Command::new(BINARY);
    command.env_clear();
    for variable in manifests.container()["env"].as_array().unwrap() {
        let from = &variable["valueFrom"];
        let value = match from["fieldRef"]["fieldPath"].as_str() {
            Some("metadata.name") => name,
            Some("status.podIP") => &pod.gossip.ip().to_string(),
            _ => variable["value"].as_str().unwrap(),
        };
        command.env(variable["name"].as_str().unwrap(), below(pod, value));
    }
    command
}

/// Starts the container of the pod `name` on its files.
fn start(manifests: &Manifests, name: &str, pod: &Pod, certs: &Path, model: SocketAddr) -> Gateway {
    for mount in manifests.container()["volumeMounts"].as_array().unwrap() {
        fs::create_dir_all(below(pod, mount["mountPath"].as_str().unwrap())).unwrap();
    }
    let secret = &manifests.volume("secrets")["projected"]["sources"][0]["secret"]["items"][0];
    assert_eq!(secret["key"], "token");
    fs::write(pod.secret(secret["path"].as_str().unwrap()), TOKEN).unwrap();
    for entry in fs::read_dir(certs).unwrap() {
        let file = entry.unwrap();
        let copy = pod.directory.join("etc/quorumgate-fleet").join(file.file_name());
        if file.file_name() != "ca.key" {
            fs::copy(file.path(), copy).unwrap();
        }
    }
    let text = placed(manifests.text(), pod, model);
    mount(&pod.directory, "..1", &text);
    let args = json!(["serve", "--config", "/etc/quorumgate/quorumgate.yaml"]);
    assert_eq!(manifests.container()["args"], args);
    // The same file, through the link.
    Gateway::serve_by(
        process(manifests, name, pod),
        &pod.directory,
        "etc/quorumgate/quorumgate",
        &text,
    )
}

async fn live_members(gateway: &Gateway) -> usize {
    let members = gateway.look("/admin/v1/members").await;
    let live = |one: &&Value| one["state"] == "live";
    members["members"].as_array().unwrap().iter().filter(live).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_the_chart_form_a_fleet_and_take_on_another_configmap() {
    let manifests = Manifests::of("default");
    let set = manifests.one("StatefulSet");
    assert_eq!(set["spec"]["replicas"], REPLICAS);
    let names: Vec<String> = (0..REPLICAS).map(|ordinal| format!("quorumgate-{ordinal}")).collect();
    let (model, _mock) = crate::process::mock("gpu-a").await;
    let directory = tempfile::tempdir().unwrap();
    let certs = directory.path().join("certs");
    let ids: Vec<&str> = names.iter().map(String::as_str).collect();
    gossip::certs::throw_away(&certs, &ids).unwrap();
    let mut seed = None;
    let mut gateways = Vec::new();
    for (ordinal, name) in (1..).zip(&names) {
        // Of this process alone: the number of a process takes 22 bits.
        let [_, address @ ..] = (std::process::id() * 4 + ordinal).to_be_bytes();
        let gossip = SocketAddr::from(([127, address[0], address[1], address[2]], 7946));
        let seed = *seed.get_or_insert(gossip);
        let pod = Pod { directory: directory.path().join(name), gossip, seed };
        gateways.push((start(&manifests, name, &pod, &certs, model), pod));
    }
    for (gateway, _) in &gateways {
        until("all are members", async || live_members(gateway).await == REPLICAS).await;
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let path = manifests.container()[probe]["httpGet"]["path"].as_str().unwrap();
            until(path, async || {
                let answer = call(gateway.operators, Method::GET, path, &[], "").await;
                answer.unwrap().0 == StatusCode::OK
            })
            .await;
        }
        assert_eq!(gateway.chat_for("example").await, StatusCode::OK);
    }
    let other = Manifests::of("other models").text();
    for (gateway, pod) in &gateways {
        mount(&pod.directory, "..2", &placed(other, pod, model));
        gateway.signal("HUP");
        until("the other model is served", async || gateway.chat_for("b").await == StatusCode::OK)
            .await;
        // A secret that was replaced is read along.
        let headers = [("authorization", "Bearer of-another-day")];
        fs::write(pod.secret("QUORUMGATE_TOKEN"), "of-another-day").unwrap();
        gateway.signal("HUP");
        until("the other token is taken", async || {
            let path = "/admin/v1/whoami";
            call(gateway.operators, Method::GET, path, &headers, "").await.unwrap().0
                == StatusCode::OK
        })
        .await;
    }
}

//! The Compose file: accepted by the specification's own schema, and its services run as it says, each on
//! a machine (a network namespace) of its own with the names that an engine would give them.
//!
//! Gateways and mocks run in the image's file tree, Redis by the program of this machine; Prometheus and
//! Grafana are not run, what they are given is checked.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::apart::apart;
use crate::container::{Container, assemble, readable, volume};
use crate::process::{CHAT, Gateway, PATIENCE, TOKEN, call, chat_body, until};
use crate::wires::{Machine, Wires};
use crate::{checker, python, repository};

const GATEWAYS: [&str; 3] = ["gw-1", "gw-2", "gw-3"];
const MOCKS: [&str; 3] = ["gpu-a", "gpu-b", "gpu-c"];
/// What is built here; everything else is somebody else's image.
const IMAGE: &str = concat!("quorumgate:", env!("CARGO_PKG_VERSION"));

fn compose() -> Value {
    let text = fs::read_to_string(repository("deploy/compose/compose.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn texts(value: &Value) -> Vec<String> {
    let entries = value.as_array().into_iter().flatten();
    entries.map(|entry| entry.as_str().unwrap().to_owned()).collect()
}

/// A configuration of the gateways, as one of them reads it.
fn config() -> gateway::config::Config {
    let file = "deploy/compose/gateway/quorumgate.yaml";
    let text = fs::read_to_string(repository(file)).unwrap();
    let environment = |name: &str| match name {
        "HOSTNAME" => Some("gw-1".to_owned()),
        "QUORUMGATE_TOKEN" => Some(TOKEN.to_owned()),
        _ => None,
    };
    gateway::config::parse(&text, file, &environment).unwrap()
}

#[test]
fn the_file_is_one_by_the_schema_of_compose() {
    let mut check = checker("check-jsonschema");
    check.args(["--builtin-schema", "vendor.compose-spec"]);
    python::run("check-jsonschema", check.arg(repository("deploy/compose/compose.yaml")));
}

#[test]
fn every_service_is_bounded_has_no_rights_and_one_known_image() {
    let compose = compose();
    let services = compose["services"].as_object().unwrap();
    for (name, service) in services {
        let image = service["image"].as_str().unwrap();
        let (_, tag) = image.split_once(':').unwrap_or_else(|| panic!("{name}: {image}"));
        assert!(tag.starts_with(|one: char| one.is_ascii_digit() || one == 'v'), "{name}: {image}");
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["cap_drop"], json!(["ALL"]), "{name}");
        assert_eq!(service["security_opt"], json!(["no-new-privileges:true"]), "{name}");
        let limits = &service["deploy"]["resources"]["limits"];
        assert!(limits["cpus"].is_string() && limits["memory"].is_string(), "{name}");
        assert!(service["pids_limit"].is_u64(), "{name}");
        let check = &service["healthcheck"];
        assert!(check["test"].is_array() || check["disable"] == true, "{name}");
        for port in texts(&service["ports"]) {
            assert!(port.starts_with("127.0.0.1:"), "{name}: {port} is open to everybody");
        }
    }
    for name in GATEWAYS {
        assert_eq!(services[name]["hostname"], name);
        assert_eq!(services[name]["image"], IMAGE);
    }
}

#[test]
fn the_engine_waits_for_a_whole_drain() {
    let server = config().server;
    let drain = server.drain_delay + server.drain_timeout;
    for name in GATEWAYS {
        let waits = compose()["services"][name]["stop_grace_period"].clone();
        let seconds = waits.as_str().unwrap().trim_end_matches('s').parse().unwrap();
        let waits = Duration::from_secs(seconds);
        assert!(drain + Duration::from_secs(10) <= waits, "{drain:?}, and {waits:?} are waited");
    }
}

#[test]
fn prometheus_and_grafana_are_given_what_they_can_read() {
    // As the file mounts them: side by side.
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let own = repository("deploy/compose/prometheus/prometheus.yaml");
    fs::copy(&own, at("prometheus.yaml")).unwrap();
    fs::copy(repository("deploy/prometheus/rules.yaml"), at("rules.yaml")).unwrap();
    let mut promtool = Command::new("promtool");
    python::run("promtool", promtool.args(["check", "config"]).arg(at("prometheus.yaml")));
    let scrapes = fs::read_to_string(own).unwrap();
    for name in GATEWAYS {
        assert!(scrapes.contains(&format!("\"{name}:9090\"")), "{name}");
    }
    let read = |file: &str| -> Value {
        let text = fs::read_to_string(repository(file)).unwrap();
        serde_saphyr::from_str(&text).unwrap()
    };
    let source = read("deploy/compose/grafana/datasources/prometheus.yaml");
    assert_eq!(source["datasources"][0]["url"], "http://prometheus:9090");
    let boards = read("deploy/compose/grafana/dashboards/quorumgate.yaml");
    let grafana = &compose()["services"]["grafana"];
    let path = boards["providers"][0]["options"]["path"].as_str().unwrap();
    let mounted = format!("../grafana:{path}:ro");
    assert!(texts(&grafana["volumes"]).contains(&mounted), "{mounted}");
}

/// The services that run, each on its machine.
struct Engine {
    services: Value,
    tree: PathBuf,
    hosts: PathBuf,
    volumes: BTreeMap<String, PathBuf>,
    machines: BTreeMap<String, Machine>,
    _wires: Wires,
    directory: tempfile::TempDir,
}

impl Engine {
    fn start() -> Self {
        let compose = compose();
        let directory = tempfile::tempdir().unwrap();
        let tree = assemble(directory.path());
        let names = GATEWAYS.iter().chain(&MOCKS).chain(&["redis"]);
        let machines: BTreeMap<String, Machine> =
            (1..).zip(names).map(|(number, name)| ((*name).to_owned(), Machine(number))).collect();
        let lines =
            machines.iter().map(|(name, machine)| format!("{} {name}\n", machine.address()));
        let hosts = readable(directory.path(), "names", &[("hosts", &lines.collect::<String>())]);
        let named = compose["volumes"].as_object().unwrap().keys();
        let volumes = named.map(|name| (name.clone(), volume(directory.path(), name))).collect();
        Self {
            services: compose["services"].clone(),
            tree,
            hosts: hosts.join("hosts"),
            volumes,
            _wires: Wires::lay(u8::try_from(machines.len()).unwrap()),
            machines,
            directory,
        }
    }

    fn address(&self, name: &str, port: u16) -> SocketAddr {
        SocketAddr::new(self.machines[name].address(), port)
    }

    /// The container of a service of ours.
    fn container(&self, name: &str) -> Container<'_> {
        let service = &self.services[name];
        let mut container = Container::new(&self.tree).mount(&self.hosts, "/etc/hosts", false);
        for entry in texts(&service["volumes"]) {
            let parts: Vec<&str> = entry.split(':').collect();
            let from = match parts[0].strip_prefix("./") {
                Some(path) => self.copied(path),
                None => self.volumes[parts[0]].clone(),
            };
            container = container.mount(&from, parts[1], parts.get(2) != Some(&"ro"));
        }
        if let Some(hostname) = service["hostname"].as_str() {
            container = container.variable("HOSTNAME", hostname);
        }
        if service["environment"]["QUORUMGATE_TOKEN"].is_string() {
            container = container.variable("QUORUMGATE_TOKEN", TOKEN);
        }
        container
    }

    /// A folder beside the Compose file, where the image's user may read it.
    fn copied(&self, path: &str) -> PathBuf {
        let to = self.directory.path().join(format!("copy-of-{path}"));
        if !to.exists() {
            readable(self.directory.path(), &format!("copy-of-{path}"), &[]);
            for entry in fs::read_dir(repository("deploy/compose").join(path)).unwrap() {
                let entry = entry.unwrap();
                fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
        }
        to
    }

    /// A command that becomes the binary of a service, with these arguments.
    fn inside(&self, name: &str, arguments: &[&str]) -> Command {
        let by = match self.machines.get(name) {
            Some(machine) => machine.command("unshare"),
            // It has no network.
            None => Command::new("unshare"),
        };
        self.container(name).command(by, arguments)
    }

    /// The same with the command that the file, or else the image, says.
    fn as_written(&self, name: &str) -> Command {
        let mut words = texts(&self.services[name]["command"]);
        if words.is_empty() {
            words =
                ["serve", "--config", "/etc/quorumgate/quorumgate.yaml"].map(String::from).into();
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.inside(name, &words)
    }

    fn makes_certificates(&self) {
        let mut command = self.as_written("certs");
        python::run("certs", &mut command);
    }

    fn redis(&self) -> Running {
        let words = texts(&self.services["redis"]["command"]);
        let mut command = self.machines["redis"].command(&words[0]);
        command.args(&words[1..]).args(["--protected-mode", "no"]);
        Running::start(command.current_dir(self.directory.path()).stdout(Stdio::null()))
    }

    fn gateway(&self, name: &str) -> Gateway {
        let mut gateway = Gateway::serve_whole(self.as_written(name), name);
        gateway.clients = self.address(name, 8080);
        gateway.operators = self.address(name, 9090);
        gateway
    }

    /// What the check of a service says, as the file writes it.
    fn is_healthy(&self, name: &str) -> bool {
        let words = texts(&self.services[name]["healthcheck"]["test"]);
        assert_eq!(words[..2], ["CMD", "/usr/bin/quorumgate"]);
        let words: Vec<&str> = words[2..].iter().map(String::as_str).collect();
        self.inside(name, &words).output().unwrap().status.success()
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stderr(Stdio::null()).spawn().unwrap())
    }

    /// Asks it to end; how it did.
    fn terminate(mut self) -> Option<i32> {
        let id = self.0.id().to_string();
        python::run("kill", Command::new("kill").args(["-s", "TERM", &id]));
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_services_form_a_fleet_that_serves_decides_in_redis_and_ends_well() {
    apart(async || {
        let engine = Engine::start();
        engine.makes_certificates();
        // As at every further start.
        engine.makes_certificates();
        let _redis = engine.redis();
        let mocks = MOCKS.map(|name| Running::start(&mut engine.as_written(name)));
        let mut gateways = GATEWAYS.map(|name| engine.gateway(name));
        let body = chat_body(false).replace("\"m\"", "\"demo-model\"");
        for gateway in &gateways {
            until("the fleet is whole and decides in Redis", async || {
                let cluster = gateway.look("/admin/v1/cluster").await;
                cluster["live"] == 3 && cluster["can_decide"] == true && decides(&cluster)
            })
            .await;
            until("its check says that it is well", async || engine.is_healthy(&gateway.name))
                .await;
            let (status, said) =
                call(gateway.clients, Method::POST, CHAT, &[], &body).await.unwrap();
            assert_eq!(status, StatusCode::OK, "{said}");
            assert!(gateway.text("/metrics").await.contains("quorumgate_electorate"));
        }
        for gateway in &gateways {
            gateway.signal("TERM");
        }
        for gateway in &mut gateways {
            assert_eq!(gateway.wait(), Some(0), "{}", gateway.name);
        }
        assert!(!engine.is_healthy("gw-1"));
        for mock in mocks {
            assert_eq!(mock.terminate(), Some(0));
        }
    });
}

/// Whether the ledger in Redis is reached.
fn decides(cluster: &Value) -> bool {
    cluster["backend"] == "redis" && cluster["redis"]["up"] == true
}

#[test]
fn whoever_reads_the_folder_finds_every_file_that_is_mounted() {
    let compose = compose();
    let services = compose["services"].as_object().unwrap();
    for entry in services.values().flat_map(|service| texts(&service["volumes"])) {
        let from = entry.split(':').next().unwrap();
        if from.starts_with('.') {
            assert!(Path::new(&repository("deploy/compose")).join(from).exists(), "{entry}");
        }
    }
}

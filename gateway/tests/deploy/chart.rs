//! The chart: rendered by Helm with many sets of values, each manifest held against Kubernetes' own schema,
//! each configuration against ours, and what one says of another against what is there.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use gateway::config::{self, Config};
use serde_json::{Map, Value, json};

use crate::{checker, python, repository};

pub(crate) const CHART: &str = "deploy/helm/quorumgate";
/// The oldest Kubernetes that Chart.yaml admits, and the newest that the checker knows.
const VERSIONS: [&str; 2] = ["1.27", "1.37"];
/// What each pod gets to end beyond what its configuration says.
const LAST_WORDS: Duration = Duration::from_secs(30);

/// Values that make something of their own of the chart.
fn good() -> Vec<(&'static str, Value)> {
    let redis = json!({ "urls": ["redis://redis:6379"], "password": "${REDIS_PASSWORD}" });
    let password =
        json!({ "REDIS_PASSWORD": { "name": "redis", "key": "password", "optional": true } });
    let alone = json!({ "urls": ["redis://redis:6379"], "on_unavailable": "local" });
    let issuer = json!({ "name": "fleet", "kind": "ClusterIssuer" });
    let monitoring = json!({
        "serviceMonitor": { "enabled": true, "labels": { "release": "prometheus" } },
        "rules": { "enabled": true, "labels": { "release": "prometheus" }, "runbookBase": "https://git.example/q/" },
        "dashboard": { "enabled": true },
    });
    let admin = json!({ "protect_metrics": true, "read_token": "${QUORUMGATE_READ_TOKEN}" });
    let read = json!({ "QUORUMGATE_READ_TOKEN": { "name": "quorumgate-admin", "key": "read" } });
    let patience = json!({ "drain_delay": "1500ms", "drain_timeout": "1h2m3s" });
    vec![
        ("default", json!({})),
        ("redis", json!({ "config": { "redis": redis }, "secrets": password })),
        ("redis alone", json!({ "config": { "redis": alone, "cluster": { "gossip": false } } })),
        ("cert-manager", json!({ "fleetTls": { "mode": "certManager" } })),
        (
            "issuer",
            json!({ "fleetTls": { "mode": "certManager", "issuerRef": issuer }, "replicas": 5 }),
        ),
        ("csi", json!({ "fleetTls": { "mode": "csi", "issuerRef": issuer } })),
        ("trial", json!({ "fleetTls": { "mode": "insecure" }, "replicas": 2 })),
        ("one", json!({ "replicas": 1, "cluster": { "enabled": false } })),
        (
            "monitored",
            json!({ "monitoring": monitoring, "config": { "admin": admin }, "secrets": read }),
        ),
        (
            "tls",
            json!({ "clientTls": { "secretName": "gw", "dnsNames": ["gw.example"], "issuerRef": issuer },
                    "service": { "type": "LoadBalancer", "port": 443 } }),
        ),
        (
            "placed",
            json!({ "topologySpread": { "hostname": "", "zone": "DoNotSchedule" }, "nodeSelector": { "a": "b" },
                    "tolerations": [{ "operator": "Exists" }], "priorityClassName": "high", "podLabels": { "c": "d" },
                    "imagePullSecrets": [{ "name": "registry" }], "ipFamily": "IPv6", "config": { "server": patience },
                    "persistence": { "enabled": true, "storageClass": "fast" }, "podAnnotations": { "e": "f" } }),
        ),
        (
            "bare",
            json!({ "networkPolicy": { "enabled": false }, "podDisruptionBudget": { "enabled": false },
                    "topologySpread": { "hostname": "", "zone": "" } }),
        ),
        ("workers", json!({ "config": { "server": { "workers": 4 } } })),
        ("larger", json!({ "replicas": 5 })),
        ("larger, same floor", json!({ "replicas": 5, "cluster": { "expectedMembers": 3 } })),
        (
            "larger, cert-manager",
            json!({ "replicas": 5, "cluster": { "expectedMembers": 3 }, "fleetTls": { "mode": "certManager" } }),
        ),
        (
            "other models",
            json!({ "config": { "models": models("b"), "retry": { "max_attempts": 2 } } }),
        ),
        (
            "verbose",
            json!({ "config": { "log": { "level": "debug" }, "server": { "max_body": "1MiB" } } }),
        ),
        ("large", json!({ "config": { "models": models("b"), "api_keys": keys() } })),
    ]
}

fn models(name: &str) -> Value {
    json!([{ "name": name, "endpoints": [{ "name": "a", "address": "http://a:8000" }] }])
}

/// A number that a careless writer of YAML puts down as 1e+12.
fn keys() -> Value {
    json!([{ "name": "a", "sha256": "0".repeat(64), "limits": { "tpm": 1_000_000_000_000_u64 } }])
}

/// Values that are refused, and the words that say why.
fn bad() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("no node", json!({ "replicas": 0 }), "/replicas"),
        ("a typing error", json!({ "replica": 3 }), "'replica' not allowed"),
        (
            "ours mistyped",
            json!({ "config": { "server": { "worker": 2 } } }),
            "'worker' not allowed",
        ),
        (
            "the chart's own",
            json!({ "config": { "server": { "listen": "a:1" } } }),
            "/config/server",
        ),
        ("a bare off", json!({ "config": { "circuit_breaker": { "mode": false } } }), "/mode"),
        ("no unit", json!({ "config": { "server": { "drain_delay": 5 } } }), "/drain_delay"),
        ("out of bounds", json!({ "config": { "server": { "workers": 4096 } } }), "/workers"),
        ("no models", json!({ "config": { "models": null } }), "'models'"),
        ("no such mode", json!({ "fleetTls": { "mode": "none" } }), "/fleetTls/mode"),
        ("no key", json!({ "secrets": { "A": { "name": "a" } } }), "'key'"),
        ("nobody signs", json!({ "fleetTls": { "mode": "csi" } }), "an issuer must be named"),
        ("nobody knows for whom", json!({ "clientTls": { "dnsNames": ["a"] } }), "name the Secret"),
        ("without a fleet", json!({ "cluster": { "enabled": false } }), "decide alone"),
        ("no majority", json!({ "podDisruptionBudget": { "maxUnavailable": 2 } }), "no majority"),
        (
            "a variable",
            json!({ "config": { "server": { "drain_timeout": "${TIMEOUT}" } } }),
            "cannot be a variable",
        ),
    ]
}

/// What became of every set, rendered once for all tests.
pub(crate) fn rendered() -> &'static Value {
    static RENDERED: OnceLock<Value> = OnceLock::new();
    RENDERED.get_or_init(|| {
        let bad = bad().into_iter().map(|(name, values, _)| (name, values));
        let sets: Map<String, Value> =
            good().into_iter().chain(bad).map(|(name, values)| (name.to_owned(), values)).collect();
        let asked = json!({ "chart": repository(CHART), "versions": VERSIONS, "sets": sets });
        let mut python = checker("python");
        python.arg(repository("gateway/tests/deploy/render.py"));
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = python.spawn().unwrap();
        child.stdin.take().unwrap().write_all(asked.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "render.py: {}", output.status);
        serde_json::from_slice(&output.stdout).unwrap()
    })
}

/// What is rendered with these values, all of it and those of one kind.
pub(crate) struct Manifests(pub(crate) &'static [Value]);

impl Manifests {
    pub(crate) fn of(set: &str) -> Self {
        let of = &rendered()[set];
        assert!(of["error"].is_null(), "{set}: {of}");
        Self(of["documents"].as_array().unwrap())
    }

    pub(crate) fn all(&self, kind: &str) -> impl Iterator<Item = &'static Value> {
        let kind = kind.to_owned();
        self.0.iter().filter(move |one| one["kind"] == kind.as_str())
    }

    /// The first of this kind.
    pub(crate) fn one(&self, kind: &str) -> &'static Value {
        self.all(kind).next().unwrap()
    }

    pub(crate) fn pod(&self) -> &'static Value {
        &self.one("StatefulSet")["spec"]["template"]
    }

    pub(crate) fn container(&self) -> &'static Value {
        &self.pod()["spec"]["containers"][0]
    }

    /// The volume of this name.
    pub(crate) fn volume(&self, name: &str) -> &'static Value {
        let volumes = self.pod()["spec"]["volumes"].as_array().unwrap();
        volumes.iter().find(|one| one["name"] == name).unwrap()
    }

    pub(crate) fn text(&self) -> &'static str {
        self.one("ConfigMap")["data"]["quorumgate.yaml"].as_str().unwrap()
    }

    /// The configuration as a pod reads it, which has the variables of its container only.
    fn config(&self) -> Config {
        let address = if self.text().contains("[::]") { "fd00::7" } else { "10.0.0.7" };
        let mut names = strings(&self.container()["env"], "/name");
        for source in self.volume("secrets")["projected"]["sources"].as_array().unwrap() {
            names.extend(strings(&source["secret"]["items"], "/path"));
        }
        let value = |name: &str| match name {
            "POD_NAME" => Some("quorumgate-0".to_owned()),
            "POD_IP" => Some(address.to_owned()),
            other => Some(format!("value-of-{}", other.to_lowercase())),
        };
        let given = |name: &str| names.contains(name).then(|| value(name)).flatten();
        config::parse(self.text(), "rendered", &given).unwrap()
    }
}

/// The texts at `pointer` in each of a list.
fn strings(list: &Value, pointer: &str) -> BTreeSet<String> {
    let of = |one: &Value| one.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    list.as_array().unwrap_or(&Vec::new()).iter().filter_map(of).collect()
}

fn each_good() -> impl Iterator<Item = (&'static str, Manifests)> {
    good().into_iter().map(|(name, _)| (name, Manifests::of(name)))
}

#[test]
fn the_chart_is_clean_in_the_eyes_of_helm_and_kubernetes() {
    for (name, _) in good() {
        let of = &rendered()[name];
        assert_eq!(of["found"], json!([]), "{name}: helm lint --strict");
        assert_eq!(of["invalid"], json!([]), "{name}");
        for foreign in of["foreign"].as_array().unwrap() {
            let group = foreign.as_str().unwrap();
            let is_known = ["cert-manager.io/", "monitoring.coreos.com/"];
            assert!(is_known.iter().any(|known| group.starts_with(known)), "{name}: {group}");
        }
    }
}

#[test]
fn wrong_values_are_refused_by_their_key() {
    for (name, _, why) in bad() {
        let error = rendered()[name]["error"].as_str().unwrap_or("it was rendered");
        assert!(error.contains(why), "{name}: {error}");
    }
}

#[test]
fn every_rendered_configuration_is_accepted() {
    for (name, manifests) in each_good() {
        let config = manifests.config();
        let replicas = manifests.one("StatefulSet")["spec"]["replicas"].as_u64().unwrap();
        let floor = config.cluster.map(|cluster| cluster.quorum.expected_members as u64);
        let wanted = match name {
            "one" => None,
            "larger, same floor" | "larger, cert-manager" => Some(3),
            _ => Some(replicas),
        };
        assert_eq!(floor, wanted, "{name}");
    }
    assert!(Manifests::of("redis").config().cluster.unwrap().redis().is_some());
    assert!(Manifests::of("redis alone").config().cluster.unwrap().gossip.is_none());
    assert!(Manifests::of("tls").config().server.tls.is_some());
}

#[test]
fn a_pod_gets_as_long_to_end_as_its_gateway_may_take() {
    for (name, manifests) in each_good() {
        let server = manifests.config().server;
        let whole = |time: Duration| time.as_millis().div_ceil(1000);
        let wanted = whole(server.drain_delay) + whole(server.drain_timeout) + whole(LAST_WORDS);
        let grace = &manifests.pod()["spec"]["terminationGracePeriodSeconds"];
        assert_eq!(grace.as_u64().map(u128::from), Some(wanted), "{name}");
    }
}

/// The digest by which pods are made anew.
fn restart(set: &str) -> &'static Value {
    let digest = &Manifests::of(set).pod()["metadata"]["annotations"]["checksum/restart"];
    assert!(digest.is_string(), "{set}");
    digest
}

#[test]
fn only_what_a_running_process_cannot_take_on_makes_pods_anew() {
    for set in ["other models", "verbose", "large"] {
        let (other, default) = (Manifests::of(set), Manifests::of("default"));
        assert_ne!(other.text(), default.text(), "{set}");
        assert_eq!(other.pod(), default.pod(), "{set}");
    }
    assert_eq!(Manifests::of("larger, same floor").pod(), Manifests::of("default").pod());
    // Which the chart's README warns of.
    assert_ne!(Manifests::of("larger, cert-manager").pod(), Manifests::of("cert-manager").pod());
    for set in ["workers", "larger", "redis", "tls", "one", "trial"] {
        assert_ne!(restart(set), restart("default"), "{set}");
    }
}

#[test]
fn what_a_manifest_names_is_there() {
    for (set, manifests) in each_good() {
        let (pod, container) = (manifests.pod(), manifests.container());
        let ports = strings(&container["ports"], "/name");
        let volumes = strings(&pod["spec"]["volumes"], "/name");
        let claims = &manifests.one("StatefulSet")["spec"]["volumeClaimTemplates"];
        let volumes: BTreeSet<_> =
            volumes.union(&strings(claims, "/metadata/name")).cloned().collect();
        assert_eq!(strings(&container["volumeMounts"], "/name"), volumes, "{set}");
        for service in manifests.all("Service") {
            let wanted = strings(&service["spec"]["ports"], "/targetPort");
            assert!(wanted.is_subset(&ports), "{set}: {wanted:?}");
            assert_selects(&service["spec"]["selector"], pod);
        }
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert!(ports.contains(container[probe]["httpGet"]["port"].as_str().unwrap()));
        }
        for kind in ["PodDisruptionBudget", "NetworkPolicy", "StatefulSet"] {
            for one in manifests.all(kind) {
                let selector = match kind {
                    "NetworkPolicy" => &one["spec"]["podSelector"]["matchLabels"],
                    _ => &one["spec"]["selector"]["matchLabels"],
                };
                assert_selects(selector, pod);
            }
        }
        let named: BTreeSet<String> =
            manifests.all("Service").map(|one| one["metadata"]["name"].to_string()).collect();
        assert!(named.contains(&manifests.one("StatefulSet")["spec"]["serviceName"].to_string()));
        let cluster = manifests.config().cluster;
        for seed in cluster.and_then(|cluster| cluster.gossip).map_or(Vec::new(), |wire| wire.seeds)
        {
            let name = seed.strip_suffix(":7946").unwrap();
            let service = manifests.all("Service").find(|one| one["metadata"]["name"] == name);
            let spec = &service.unwrap()["spec"];
            assert_eq!(
                (&spec["clusterIP"], &spec["publishNotReadyAddresses"]),
                (&json!("None"), &json!(true))
            );
        }
        assert_files_are_mounted(set, &manifests);
    }
}

#[test]
fn a_pod_may_do_nothing_that_it_needs_not() {
    for (set, manifests) in each_good() {
        let (pod, container) =
            (&manifests.pod()["spec"], &manifests.container()["securityContext"]);
        let of_pod = &pod["securityContext"];
        assert_eq!(pod["automountServiceAccountToken"], false, "{set}");
        assert_eq!((&of_pod["runAsNonRoot"], &of_pod["runAsUser"]), (&json!(true), &json!(65532)));
        assert_eq!(of_pod["seccompProfile"]["type"], "RuntimeDefault", "{set}");
        assert_eq!(container["readOnlyRootFilesystem"], true, "{set}");
        assert_eq!(container["allowPrivilegeEscalation"], false, "{set}");
        assert_eq!(container["capabilities"], json!({ "drop": ["ALL"] }), "{set}");
        // Clients may come from anywhere; to gossip and to operate, only who is named.
        let fleet = manifests
            .all("NetworkPolicy")
            .flat_map(|one| one["spec"]["ingress"].as_array().unwrap());
        for rule in fleet.filter(|rule| rule["ports"][0]["port"] != "clients") {
            assert!(!rule["from"].as_array().unwrap().is_empty(), "{set}: {rule}");
        }
    }
}

fn assert_selects(selector: &Value, what: &Value) {
    let labels = &what["metadata"]["labels"];
    for (key, value) in selector.as_object().unwrap() {
        assert_eq!(&labels[key], value, "{key}: {labels}");
    }
}

/// Every path of the configuration lies below a mount, and every certificate that cert-manager is asked for
/// is where the configuration looks.
fn assert_files_are_mounted(set: &str, manifests: &Manifests) {
    let mounts = strings(&manifests.container()["volumeMounts"], "/mountPath");
    for line in manifests.text().lines() {
        let path = line.split_once(": /").map_or("/etc/quorumgate/x", |(_, path)| path);
        let path = Path::new("/").join(path);
        let is_below = mounts.iter().any(|mount| path.starts_with(mount));
        assert!(is_below, "{set}: {line}: {mounts:?}");
    }
    let sources = manifests.pod()["spec"]["volumes"].as_array().unwrap();
    let Some(fleet) =
        sources.iter().find(|one| one["name"] == "fleet" && one["projected"].is_object())
    else {
        return;
    };
    let mut made: BTreeSet<String> = BTreeSet::new();
    for certificate in manifests.all("Certificate") {
        let secret = certificate["spec"]["secretName"].as_str().unwrap();
        for name in certificate["spec"]["dnsNames"].as_array().unwrap_or(&Vec::new()) {
            made.insert(format!("{secret}:{}", name.as_str().unwrap()));
        }
    }
    for source in fleet["projected"]["sources"].as_array().unwrap() {
        let secret = source["secret"]["name"].as_str().unwrap();
        let paths = strings(&source["secret"]["items"], "/path");
        let node = paths.iter().find_map(|path| path.strip_suffix(".key")).unwrap();
        assert!(made.contains(&format!("{secret}:{node}")), "{set}: {secret} {node}: {made:?}");
    }
}

#[test]
fn the_alerts_and_the_dashboard_come_along_whole() {
    let manifests = Manifests::of("monitored");
    let rules = &manifests.one("PrometheusRule")["spec"];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.yaml");
    // What is JSON is YAML.
    fs::write(&file, rules.to_string()).unwrap();
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "rules", "--lint-fatal"]).arg(&file);
    let said = python::run("promtool", &mut promtool);
    let ours = fs::read_to_string(repository("deploy/prometheus/rules.yaml")).unwrap();
    let alerts = ours.lines().filter(|line| line.trim_start().starts_with("- alert: ")).count();
    let rendered: usize = rules["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["rules"].as_array().unwrap().len())
        .sum();
    assert!(rendered >= alerts && said.contains(&format!("{rendered} rules found")), "{said}");
    let dashboard =
        manifests.all("ConfigMap").find(|one| one["data"]["quorumgate.json"].is_string());
    let dashboard = dashboard.unwrap()["data"]["quorumgate.json"].as_str().unwrap();
    let ours = fs::read_to_string(repository("deploy/grafana/quorumgate.json")).unwrap();
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(parsed(dashboard), parsed(&ours));
    let monitor = &manifests.one("ServiceMonitor")["spec"];
    let fleet = manifests.all("Service").find(|one| one["spec"]["clusterIP"] == "None").unwrap();
    assert_selects(&monitor["selector"]["matchLabels"], fleet);
    assert_eq!(monitor["endpoints"][0]["authorization"]["credentials"]["key"], "read");
}

#[test]
fn what_is_made_of_the_chart_is_as_it_would_be_made() {
    let directory = tempfile::tempdir().unwrap();
    let mut python = checker("python");
    python.arg(repository("deploy/helm/generate.py")).arg(env!("CARGO_BIN_EXE_quorumgate"));
    python::run("generate.py", python.arg(directory.path()));
    for place in ["kubernetes", "helm/quorumgate"] {
        let made = directory.path().join(place);
        let names: BTreeSet<_> =
            fs::read_dir(&made).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.is_empty());
        for name in &names {
            let kept = repository("deploy").join(place).join(name);
            let kept = fs::read_to_string(&kept).unwrap_or_default();
            let made = fs::read_to_string(made.join(name)).unwrap();
            assert!(made == kept, "{place}/{}: run generate.py", name.display());
        }
        if place == "kubernetes" {
            let kept = fs::read_dir(repository("deploy/kubernetes")).unwrap();
            let kept: BTreeSet<_> = kept.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(kept, names);
        }
    }
}

#[test]
fn the_table_of_values_names_each_with_its_default() {
    let readme = fs::read_to_string(repository("deploy/helm/README.md")).unwrap();
    let mut listed = BTreeSet::new();
    for row in readme.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (key, default) = (cells[1].trim_matches('`'), cells[2].trim_matches('`'));
        let pointer = format!("/{}", key.replace('.', "/"));
        let value = rendered()["values"].pointer(&pointer).unwrap_or(&Value::Null);
        let shown = match value {
            Value::String(text) if text.is_empty() => "\"\"".to_owned(),
            Value::String(text) => text.clone(),
            Value::Null | Value::Object(_) | Value::Array(_) if default == "see there" => {
                default.to_owned()
            }
            other => other.to_string(),
        };
        assert_eq!(shown, default, "{key}");
        listed.insert(key.split('.').next().unwrap().to_owned());
    }
    let keys: BTreeSet<String> =
        rendered()["values"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(listed, keys);
}

//! The unit: accepted by systemd's own checks, and told by the process what it waits for.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{BINARY, Gateway, PATIENCE};
use crate::{python, repository};

const CURE: &str = "systemd-analyze is missing or older than 250; install systemd";
/// How exposed the unit may be in the eyes of systemd-analyze, in tenths: what is left is that a gateway
/// talks to networks, and to whoever supervises it.
const EXPOSURE_MAX: &str = "15";
/// What must be no exposure at all. Other versions of systemd look at more.
const HELD: [&str; 22] = [
    "CapabilityBoundingSet=~CAP_SYS_ADMIN",
    "CapabilityBoundingSet=~CAP_NET_ADMIN",
    "User=/DynamicUser=",
    "NoNewPrivileges=",
    "ProtectSystem=",
    "ProtectHome=",
    "ProtectProc=",
    "ProtectClock=",
    "ProtectKernelLogs=",
    "ProtectKernelModules=",
    "ProtectKernelTunables=",
    "ProtectControlGroups=",
    "PrivateTmp=",
    "PrivateDevices=",
    "PrivateUsers=",
    "PrivateMounts=",
    "RestrictRealtime=",
    "RestrictSUIDSGID=",
    "MemoryDenyWriteExecute=",
    "LockPersonality=",
    "SystemCallFilter=~@resources",
    "SystemCallFilter=~@privileged",
];

fn unit() -> String {
    std::fs::read_to_string(repository("deploy/systemd/quorumgate.service")).unwrap()
}

/// What the unit says of a setting, the last time it does.
fn setting(name: &str) -> String {
    let unit = unit();
    let mut values = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    values.next_back().unwrap_or_else(|| panic!("no {name}= in the unit")).to_owned()
}

/// The unit in a directory of its own, with the binary of this test where it names the installed one.
fn installed() -> (TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("quorumgate.service");
    std::fs::write(&file, unit().replace("/usr/bin/quorumgate", BINARY)).unwrap();
    (directory, file)
}

fn systemd_analyze(arguments: &[&str], file: &std::path::Path) -> String {
    let mut command = Command::new("systemd-analyze");
    let output = command.args(arguments).arg(file).output();
    let Ok(output) = output else { panic!("{CURE}") };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "systemd-analyze {arguments:?}: {said}");
    said
}

#[test]
fn systemd_accepts_the_unit_without_a_word() {
    let (_directory, file) = installed();
    assert_eq!(systemd_analyze(&["verify", "--man=no"], &file), "");
}

#[test]
fn the_unit_is_hardly_exposed() {
    let (_directory, file) = installed();
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let arguments = ["security", "--offline=true", "--no-pager", "--json=short", &threshold];
    let checks: Vec<Value> = serde_json::from_str(&systemd_analyze(&arguments, &file)).unwrap();
    for name in HELD {
        let check = checks.iter().find(|check| check["name"] == name);
        assert!(check.is_some_and(|check| check["exposure"].is_null()), "{name} {check:?}");
    }
}

#[test]
fn the_unit_waits_as_long_as_the_default_drain_takes() {
    let model = "models: [ { name: m, endpoints: [ { name: a, address: \"http://a\" } ] } ]";
    let config = gateway::config::parse(model, "defaults", &|_| None).unwrap();
    let drain = config.server.drain_delay + config.server.drain_timeout;
    let seconds = setting("TimeoutStopSec").trim_end_matches('s').parse().unwrap();
    let waits = Duration::from_secs(seconds);
    assert!(drain + Duration::from_secs(10) <= waits, "{drain:?}, and {waits:?} are waited");
    assert_eq!(setting("Type"), "notify");
}

#[test]
fn the_process_tells_the_manager_every_stage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut room = [0; 512];
        let length = socket.recv(&mut room).unwrap();
        String::from_utf8(room[..length].to_vec()).unwrap()
    };
    let yaml = "server: { listen: 127.0.0.1:0, workers: 1, drain_delay: 0s, drain_timeout: 7s }
admin: { listen: 127.0.0.1:0, token: \"${QUORUMGATE_TOKEN}\" }
log: { format: json, level: info }
models: [ { name: m, endpoints: [ { name: a, address: \"http://127.0.0.1:9\" } ] } ]
";
    // As systemd gives a token, and not in the environment.
    std::fs::write(directory.path().join("QUORUMGATE_TOKEN"), "of-the-operators\n").unwrap();
    let mut command = Command::new(BINARY);
    command.env("NOTIFY_SOCKET", &path).env("CREDENTIALS_DIRECTORY", directory.path());
    command.env_remove("QUORUMGATE_TOKEN");
    let mut gateway = Gateway::serve_by(command, directory.path(), "gw", yaml);
    assert_eq!(heard(), "READY=1\nSTATUS=serving\n");

    let file = directory.path().join("gw.yaml");
    std::fs::write(&file, yaml.replace("7s", "9s")).unwrap();
    gateway.signal("HUP");
    assert_eq!([heard(), heard()], ["RELOADING=1\n", "READY=1\nSTATUS=serving\n"]);
    std::fs::write(&file, yaml.replace("models", "modles")).unwrap();
    gateway.signal("HUP");
    assert_eq!(heard(), "RELOADING=1\n");
    let refused = heard();
    assert!(refused.starts_with("READY=1\nSTATUS=") && refused.contains("modles"), "{refused}");
    // Mended, and asked for by somebody else than the manager: what it shows is right all the same.
    std::fs::write(&file, yaml.replace("7s", "9s")).unwrap();
    let mut reload = Command::new(BINARY);
    reload.args(["reload", "--admin", &gateway.operators.to_string()]);
    let reload = reload.env("QUORUMGATE_TOKEN", "of-the-operators").output().unwrap();
    assert!(reload.status.success(), "{reload:?}");
    assert_eq!(heard(), "READY=1\nSTATUS=serving\n");

    gateway.signal("TERM");
    // The drain that the configuration of the moment allows, and 15 s for the end.
    assert_eq!(heard(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=24000000\n");
    assert_eq!(gateway.wait(), Some(0));
}

/// The variables that the unit's process has: those that are said there, and those of its credentials.
fn variables() -> Vec<(String, String)> {
    let unit = unit();
    let said = unit.lines().filter_map(|line| line.strip_prefix("Environment=")?.split_once('='));
    let given =
        unit.lines().filter_map(|line| line.strip_prefix("LoadCredential=")?.split_once(':'));
    said.chain(given).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_guide_s_configuration_needs_no_variable_that_the_unit_does_not_set() {
    let guide = std::fs::read_to_string(repository("deploy/guide/start.md")).unwrap();
    let text = guide.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let variables = variables();
    assert!(variables.contains(&("NODE".to_owned(), "%H".to_owned())), "{variables:?}");
    let given = |name: &str| {
        let (_, value) = variables.iter().find(|(known, _)| known == name)?;
        Some(if value == "%H" { "gw-1".to_owned() } else { "of-the-operators".to_owned() })
    };
    let config = gateway::config::parse(text, "start.md", &given).unwrap();
    assert_eq!(config.cluster.unwrap().node_id, "gw-1");
}

#[test]
fn what_passes_is_waited_for_as_long_as_it_takes() {
    // A port that is not free yet, an address that is not up: it is tried again until it is there, and
    // only what never becomes right by trying is not.
    assert_eq!(setting("Restart"), "on-failure");
    assert_eq!(setting("StartLimitIntervalSec"), "0");
    assert_eq!(setting("RestartPreventExitStatus"), "64");
}

#[test]
fn the_user_of_the_unit_is_the_one_that_sysusers_makes() {
    let made = std::fs::read_to_string(repository("deploy/systemd/quorumgate.sysusers")).unwrap();
    let line = format!("u {} ", setting("User"));
    assert!(made.lines().any(|entry| entry.starts_with(&line)), "{made}");
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("etc")).unwrap();
    let mut sysusers = Command::new("systemd-sysusers");
    sysusers.arg("--root").arg(root.path()).arg("--inline");
    sysusers.args(made.lines().filter(|entry| !entry.starts_with('#')));
    python::run("systemd-sysusers", &mut sysusers);
    let users = std::fs::read_to_string(root.path().join("etc/passwd")).unwrap();
    assert!(users.contains("quorumgate") && users.contains("nologin"), "{users}");
}

//! Runs a case in a network, a process table and mounts of its own, which end with it.
//!
//! Fleets need addresses, bridges and packet filters, and a test may die before it clears up. So the
//! test binary starts itself once more for the one case, in new namespaces: whatever the case makes
//! there is nobody else's, and the kernel takes it back when the case's first process ends.
//!
//! Invariants: at most [`AT_ONCE`] cases run at once; a case that did not run is a failure.

use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Fleets at once: two cores are shared by five gateways each.
const AT_ONCE: usize = 2;
/// No case takes longer.
const CASE_MAX: Duration = Duration::from_secs(90);
/// Tells the second life of the binary from the first.
const INSIDE: &str = "QUORUMGATE_TEST_APART";
/// What the cases are made with, and the package that brings it.
const TOOLS: [(&str, &str, &str); 4] = [
    ("unshare", "--version", "util-linux"),
    ("mount", "--version", "mount"),
    ("ip", "-Version", "iproute2"),
    ("nft", "--version", "nftables"),
];

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// Runs the test that calls it apart from everything else; `case` is what it does there.
pub(crate) fn apart<F: AsyncFnOnce()>(case: F) {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let ended = runtime.block_on(async { tokio::time::timeout(CASE_MAX, case()).await });
        assert!(ended.is_ok(), "the case took longer than {CASE_MAX:?}");
        return;
    }
    demand_tools();
    // A closure bears the name of the function it is written in, after the binary's.
    let path = std::any::type_name::<F>().trim_end_matches("::{{closure}}");
    let (_, name) = path.split_once("::").unwrap();
    let turn = Turn::take();
    let output = again(name);
    drop(turn);
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    eprintln!("{complained}");
    let has_run = output.status.success() && said.contains("test result: ok. 1 passed");
    assert!(has_run, "{name}, apart: {}\n{said}", output.status);
}

fn again(name: &str) -> Output {
    let mut command = Command::new("unshare");
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.arg(std::env::current_exe().unwrap()).args([name, "--exact", "--nocapture"]);
    command.env(INSIDE, "1").stdin(Stdio::null()).output().unwrap()
}

fn demand_tools() {
    for (tool, version, package) in TOOLS {
        let is_there = Command::new(tool).arg(version).output().is_ok();
        assert!(is_there, "{tool} is missing; install {package}");
    }
}

/// One of the places of those that run at once.
struct Turn;

impl Turn {
    fn take() -> Self {
        let running = RUNNING.lock().unwrap();
        *ENDED.wait_while(running, |running| *running >= AT_ONCE).unwrap() += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap() -= 1;
        ENDED.notify_one();
    }
}

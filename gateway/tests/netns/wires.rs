//! The network of a fleet: a bridge, a namespace a machine, and packet filters that break it.
//!
//! Invariants: it is made in a network namespace that is the test's own; the test itself stands at the
//! bridge, which no fault reaches, so that it can look at both sides of a split.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Output, Stdio};

/// A machine on the bridge: a namespace `m1`, `m2` and so on, with the address that ends so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine(pub(crate) u8);

/// Where the endpoints are.
pub(crate) const UPSTREAM: Machine = Machine(200);

impl Machine {
    /// Its address.
    pub(crate) fn address(self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, self.0))
    }

    fn name(self) -> String {
        format!("m{}", self.0)
    }

    /// A command that becomes `program` on this machine.
    pub(crate) fn command(self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(), program]);
        command
    }
}

/// The bridge and the machines on it.
pub(crate) struct Wires {
    machines: Vec<Machine>,
}

impl Wires {
    /// Lays wires from the bridge to so many nodes, and to the upstream.
    pub(crate) fn lay(nodes: u8) -> Self {
        // Names of namespaces are files below /run; these are seen by this test alone.
        run(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]), "");
        let bridge = "link set lo up\nlink add bridge type bridge\n\
            addr add 10.0.0.254/24 dev bridge\nlink set bridge up\n";
        run(Command::new("ip").args(["-batch", "-"]), bridge);
        let machines: Vec<Machine> = (1..=nodes).map(Machine).chain([UPSTREAM]).collect();
        for machine in &machines {
            machine.connect();
        }
        Self { machines }
    }

    /// From here on `to` hears nothing that `from` sends.
    pub(crate) fn mute(&self, from: Machine, to: Machine) {
        let rule = format!("add rule inet faults arriving ip saddr {} drop", from.address());
        to.filter(&rule);
    }

    /// Parts the machines of one side from those of the other, in both directions.
    pub(crate) fn split(&self, one: &[Machine], other: &[Machine]) {
        for (near, far) in one.iter().flat_map(|near| other.iter().map(move |far| (near, far))) {
            self.mute(*near, *far);
            self.mute(*far, *near);
        }
    }

    /// From here on nothing that `from` sends to this port of the upstream leaves it.
    pub(crate) fn close_way(&self, from: Machine, port: u16) {
        let upstream = UPSTREAM.address();
        let rule = format!(
            "add rule inet faults leaving ip daddr {upstream} tcp dport {port} counter drop"
        );
        from.filter(&rule);
    }

    /// Ends every fault.
    pub(crate) fn heal(&self) {
        for machine in &self.machines {
            machine.filter("flush table inet faults");
        }
    }
}

impl Machine {
    fn connect(self) {
        let (name, address) = (self.name(), self.address());
        run(Command::new("ip").args(["netns", "add", &name]), "");
        let wire = format!(
            "link add w{name} type veth peer name wire netns {name}\n\
             link set w{name} master bridge up\n"
        );
        run(Command::new("ip").args(["-batch", "-"]), &wire);
        let end = format!("link set lo up\naddr add {address}/24 dev wire\nlink set wire up\n");
        run(Command::new("ip").args(["-n", &name, "-batch", "-"]), &end);
        self.filter(
            "add table inet faults
             add chain inet faults arriving { type filter hook input priority 0; }
             add chain inet faults leaving { type filter hook output priority 0; }",
        );
    }

    fn filter(self, rules: &str) {
        run(self.command("nft").args(["-f", "-"]), rules);
    }
}

/// Runs a command to its end, with this to read.
pub(crate) fn run(command: &mut Command, input: &str) -> Output {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {complaint}", output.status);
    output
}

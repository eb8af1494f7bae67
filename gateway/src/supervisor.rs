//! Tells the service manager that started the process how far it has come.
//!
//! systemd gives a unit of `Type=notify` the name of a datagram socket in `NOTIFY_SOCKET`; each datagram
//! is a few lines of `NAME=value`, see sd_notify(3). So a unit is started when clients can connect and not
//! before, is shown to reload while it does, and gets the time for its drain that the configuration of
//! the moment says, whatever the unit's file says.
//!
//! Invariants: a process that nobody supervises tells nobody; telling never waits, and what cannot be
//! told is logged and changes nothing.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Longest reason that is told, in characters: a manager throws a datagram away that is longer than 4,096
/// bytes, with all that it says.
const WHY_CHARACTERS_MAX: usize = 512;
/// The variable that names the socket.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// How far the process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage<'a> {
    /// Clients can connect, and the configuration that was meant holds.
    Ready,
    /// Clients can connect, and the configuration that was meant is refused for this reason.
    Refused(&'a str),
    /// A configuration is being taken on.
    Reloading,
    /// It goes, and will have gone within this time.
    Stopping(Duration),
}

impl Stage<'_> {
    /// The datagram.
    fn words(self) -> String {
        match self {
            Self::Ready => "READY=1\nSTATUS=serving\n".to_owned(),
            Self::Refused(why) => {
                let harmless = |one: char| if one.is_control() { ' ' } else { one };
                let why: String = why.chars().take(WHY_CHARACTERS_MAX).map(harmless).collect();
                format!("READY=1\nSTATUS=serving by the old configuration; not reloaded: {why}\n")
            }
            Self::Reloading => "RELOADING=1\n".to_owned(),
            Self::Stopping(within) => {
                format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}\n", within.as_micros())
            }
        }
    }
}

/// Whoever started the process, if it wants to be told.
#[derive(Debug)]
pub struct Supervisor {
    address: Option<OsString>,
}

impl Supervisor {
    /// The one that the environment names.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::at(std::env::var_os(VARIABLE))
    }

    /// The one that listens at `address`: a path, or a name behind an `@`, as the variable holds it.
    fn at(address: Option<OsString>) -> Self {
        Self { address: address.filter(|address| !address.is_empty()) }
    }

    /// Tells it. Never waits.
    pub fn tell(&self, stage: Stage<'_>) {
        let Some(address) = &self.address else { return };
        if let Err(error) = send(address, &stage.words()) {
            tracing::warn!(%error, ?stage, "the service manager cannot be told");
        }
    }
}

fn send(address: &OsStr, words: &str) -> io::Result<()> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => by_name(name)?,
        _ => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(words.as_bytes(), &address).map(drop)
}

/// An address that is no path. Other systems than Linux have none, and no systemd.
#[cfg(target_os = "linux")]
fn by_name(name: &[u8]) -> io::Result<SocketAddr> {
    <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn by_name(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut room = [0; 4_096];
        let length = socket.recv(&mut room).unwrap();
        String::from_utf8(room[..length].to_vec()).unwrap()
    }

    #[test]
    fn every_stage_is_told_in_its_words() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor::at(Some(path.into()));
        supervisor.tell(Stage::Ready);
        assert_eq!(heard(&socket), "READY=1\nSTATUS=serving\n");
        supervisor.tell(Stage::Refused("line 1\nREADY=0"));
        let told = heard(&socket);
        assert!(
            told.starts_with("READY=1\nSTATUS=") && told.ends_with("line 1 READY=0\n"),
            "{told}"
        );
        supervisor.tell(Stage::Refused(&"é".repeat(5_000)));
        let told = heard(&socket);
        assert!(told.len() < 1_200 && told.starts_with("READY=1\n"), "{}", told.len());
        supervisor.tell(Stage::Reloading);
        assert_eq!(heard(&socket), "RELOADING=1\n");
        supervisor.tell(Stage::Stopping(Duration::from_millis(605_500)));
        assert_eq!(heard(&socket), "STOPPING=1\nEXTEND_TIMEOUT_USEC=605500000\n");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_name_behind_an_at_is_no_path() {
        let name = format!("quorumgate-test-{}-{}", std::process::id(), fastrand::u64(..));
        let socket = by_name(name.as_bytes()).unwrap();
        let socket = UnixDatagram::bind_addr(&socket).unwrap();
        Supervisor::at(Some(format!("@{name}").into())).tell(Stage::Ready);
        assert_eq!(heard(&socket), "READY=1\nSTATUS=serving\n");
    }

    #[test]
    fn who_is_not_supervised_or_not_heard_goes_on() {
        let missing = tempfile::tempdir().unwrap().path().join("notify");
        for address in
            [None, Some(OsString::new()), Some(missing.into()), Some("@".repeat(200).into())]
        {
            Supervisor::at(address).tell(Stage::Ready);
        }
    }

    #[test]
    fn a_manager_that_does_not_read_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let _socket = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor::at(Some(path.into()));
        // More than any queue of datagrams holds.
        (0..10_000).for_each(|_| supervisor.tell(Stage::Ready));
    }
}

//! chitchat's frames, made by hand.

use std::net::{IpAddr, SocketAddr};

pub(crate) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_le_bytes(), text.as_bytes()].concat()
}

fn node(name: &str, generation: u64, address: SocketAddr) -> Vec<u8> {
    let ip = match address.ip() {
        IpAddr::V4(ip) => [&[4], &ip.octets()[..]].concat(),
        IpAddr::V6(ip) => [&[6], &ip.octets()[..]].concat(),
    };
    let (generation, port) = (generation.to_le_bytes(), address.port().to_le_bytes());
    [&text(name), &generation[..], &ip, &port].concat()
}

/// One node in a digest, with a heartbeat; it says to have versions up to 9.
pub(crate) fn entry(name: &str, generation: u64, address: SocketAddr, heartbeat: u64) -> Vec<u8> {
    let numbers = [heartbeat, 0, 9].map(u64::to_le_bytes).concat();
    [node(name, generation, address), numbers].concat()
}

pub(crate) fn digest(entries: Vec<Vec<u8>>) -> Vec<u8> {
    [&(entries.len() as u16).to_le_bytes()[..], &entries.concat()].concat()
}

/// A gossip frame that says hello with a digest.
pub(crate) fn syn(digest: &[u8]) -> Vec<u8> {
    [&[1, 0x53, 0xb0, 0, 0], digest, &text("fleet")].concat()
}

/// A gossip frame that states keys of one node.
pub(crate) struct Delta(Vec<u8>);

impl Delta {
    /// Begins a delta after which the node's state is what follows.
    pub(crate) fn of(name: &str, generation: u64, address: SocketAddr) -> Self {
        Self([&[0], node(name, generation, address).as_slice(), &[0; 16]].concat())
    }

    pub(crate) fn key(mut self, key: &str, value: &str, version: u64) -> Self {
        let pair = [vec![1], text(key), text(value), version.to_le_bytes().to_vec(), vec![0]];
        self.0.extend(pair.concat());
        self
    }

    pub(crate) fn greatest_version(mut self, version: u64) -> Self {
        self.0.extend([&[2], &version.to_le_bytes()[..]].concat());
        self
    }

    /// The frame, its delta unpacked.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let count = (self.0.len() as u16).to_le_bytes();
        [&[1, 0x53, 0xb0, 0, 2, 2], &count[..], &self.0, &[0]].concat()
    }
}

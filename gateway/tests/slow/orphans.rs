//! Who is let go is let go by the kernel as well: nothing is kept for a client that does not read.

use std::net::{SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};

use crate::process::{Gateway, chat_body, endpoint_rows, until};
use crate::raw::{Act, ROLE, Raw, event, json, open_stream};

/// How many come of each kind.
const READERS: usize = 20;
/// More than the client's side of the kernel takes, and less than the gateway's does.
const FITS: usize = 180 * 1024;
/// What `/proc/net/tcp` calls a listener, and two kinds of what is over and only remembered.
const NO_ONES: [&str; 3] = ["0A", "06", "05"];

/// A client that asks and reads nothing of the answer.
fn reader(gateway: SocketAddr, is_stream: bool) -> TcpStream {
    use std::io::Write;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 * 1024).unwrap();
    socket.connect(&gateway.into()).unwrap();
    let (mut stream, body) = (TcpStream::from(socket), chat_body(is_stream));
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length";
    write!(stream, "{head}: {}\r\n\r\n{body}", body.len()).unwrap();
    stream
}

/// The connections of a port that the kernel has something for, by their states.
fn kept(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let own = rows.filter(|row| row[1].ends_with(&format!(":{port:04X}")));
    own.map(|row| row[3].to_owned()).filter(|state| !NO_ONES.contains(&state.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_kept_for_readers_that_were_let_go() {
    let _alone = crate::ALONE.lock().await;
    let long = event(&"y".repeat(60_000));
    let mut parts = vec![ROLE.to_owned()];
    parts.extend(std::iter::repeat_n(long, 12));
    let stream = [open_stream(&parts), vec![Act::Hang]].concat();
    let whole = json(200, &format!("{{\"choices\":[],\"x\":\"{}\"}}", "y".repeat(FITS)));
    let raw = Raw::start(move |_, seen| {
        let is_stream = seen.text().contains("\"stream\":true");
        if is_stream { stream.clone() } else { vec![Act::Say(whole.clone())] }
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let timeouts = "{ write_stall: 1s, keep_alive: 500ms }";
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1, timeouts: {timeouts} }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: info }}
models:
  - name: m
    endpoints:
{}",
        endpoint_rows(&[("a", raw.address)])
    );
    let gateway = Gateway::serve(directory.path(), "gw", &yaml);
    for is_stream in [true, false] {
        let readers: Vec<_> = (0..READERS).map(|_| reader(gateway.clients, is_stream)).collect();
        let port = gateway.clients.port();
        until("all have come", async || kept(port).len() == READERS).await;
        until("nothing is kept for them", async || kept(port).is_empty()).await;
        drop(readers);
    }
}

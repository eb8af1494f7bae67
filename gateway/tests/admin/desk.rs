//! A gateway with both tokens, and requests to its operators' listener from chosen addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use gateway::config::Secret;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::local::{self, House, Plan, soon};

pub(crate) const FULL: &str = "sk-of-the-operators-0123456789-full";
pub(crate) const READ: &str = "sk-of-the-operators-0123456789-read";

/// A gateway with two endpoints, `demo/a` and `demo/b`, that asks operators for tokens.
pub(crate) async fn house() -> House {
    plan().await.start_as(|config| locked(&mut config.admin)).await
}

/// The plan of it.
pub(crate) async fn plan() -> Plan {
    let (a, _) = local::mock("a").await;
    let (b, _) = local::mock("b").await;
    Plan::of(&[("a", a), ("b", b)])
}

/// Sets both tokens.
pub(crate) fn locked(admin: &mut gateway::config::Admin) {
    admin.token = Some(Secret::new(FULL));
    admin.read_token = Some(Secret::new(READ));
}

/// A request of an operator's.
#[derive(Clone)]
pub(crate) struct Ask {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
    from: IpAddr,
}

/// An answer, read whole.
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Ask {
    /// A request without a token, from 127.0.0.1.
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self { method, path, headers: Vec::new(), body: Bytes::new(), from }
    }

    /// A look with the read-only token.
    pub(crate) fn look(path: &str) -> Self {
        Self::new("GET", &format!("/admin/v1/{path}")).token(READ)
    }

    /// An order with the full token.
    pub(crate) fn act(path: &str, body: &str) -> Self {
        Self::new("POST", &format!("/admin/v1/{path}")).token(FULL).body(body)
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: &str) -> Self {
        self.body = Bytes::from(body.to_owned());
        self
    }

    /// From another address of this machine.
    pub(crate) fn from(mut self, host: u8) -> Self {
        self.from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, host));
        self
    }

    /// Sends it and reads the head of the answer.
    pub(crate) async fn open(&self, to: SocketAddr) -> Response<Incoming> {
        let stream = dial(self.from, to).await;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(self.method.as_str()).uri(&self.path);
        if !self.headers.iter().any(|(name, _)| name == "host") {
            request = request.header("host", to.to_string());
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(self.body.clone())).unwrap();
        let sent = soon("an answer", sender.send_request(request)).await;
        sent.unwrap_or_else(|error| panic!("{} {}: {error}", self.method, self.path))
    }

    /// Sends it and reads the answer.
    pub(crate) async fn send(&self, house: &House) -> Told {
        self.send_to(house.app.admin_address).await
    }

    /// Sends it there and reads the answer.
    pub(crate) async fn send_to(&self, to: SocketAddr) -> Told {
        let (head, body) = self.open(to).await.into_parts();
        let body = soon("the whole answer", body.collect()).await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        Told { status: head.status.as_u16(), headers: head.headers, text }
    }
}

impl Told {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The code of a refusal, whose shape is checked.
    pub(crate) fn code(&self) -> String {
        let body = self.json();
        assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
        let error = body["error"].as_object().unwrap();
        assert_eq!(error.keys().map(String::as_str).collect::<Vec<_>>(), ["code", "message"]);
        assert!(error["message"].as_str().unwrap().len() > 10, "{body}");
        error["code"].as_str().unwrap().to_owned()
    }

    /// A header's value; empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The status and the code of a refusal.
    pub(crate) fn refused(&self) -> (u16, String) {
        (self.status, self.code())
    }
}

/// A connection from an address of this machine.
pub(crate) async fn dial(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    soon("a connection", socket.connect(to)).await.unwrap()
}

/// Writes these bytes and reads until the connection ends; what is reset has ended.
pub(crate) async fn raw(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = soon("the end of the connection", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

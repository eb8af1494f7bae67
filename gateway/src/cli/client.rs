//! The way to a gateway's admin API: where it is, what is shown to it, and what its refusals mean.
//!
//! Invariants: every wait has its end and every answer its bound; the token is sent to the address
//! that was named and shown nowhere; a redirection is not followed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use gateway::config::Secret;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::failure::Failure;
use super::text::plain;

/// The port of the admin API where none is named, as in the configuration.
const PORT: u16 = 9090;
/// How long a connection may take to stand.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take, to its last byte.
const ANSWER: Duration = Duration::from_secs(30);
/// Largest answer, in bytes: ten thousand endpoints with all their votes take some twenty million.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest token file, in bytes; a configuration takes no longer value.
const TOKEN_BYTES_MAX: u64 = 4_096;

/// Where the admin API is and how it is asked.
#[derive(clap::Args)]
pub(super) struct Where {
    /// The admin address of any gateway of the fleet.
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "QUORUMGATE_ADMIN",
        default_value = "127.0.0.1:9090",
        help_heading = "Which gateway"
    )]
    admin: String,
    /// A file that holds the token; without it the token is taken from QUORUMGATE_TOKEN.
    #[arg(long, value_name = "FILE", help_heading = "Which gateway")]
    token_file: Option<PathBuf>,
}

/// One gateway's admin API.
pub(super) struct Client {
    /// `host:port`.
    authority: String,
    bearer: Option<HeaderValue>,
}

/// What was answered: as it came, and as a document.
pub(super) struct Answer {
    /// The bytes, for programs.
    pub(super) raw: Bytes,
    /// The document.
    pub(super) value: Value,
}

/// An answer that goes on.
pub(super) struct Following {
    /// What arrives.
    pub(super) body: Incoming,
}

impl Client {
    /// A client of the gateway that the arguments and the environment name.
    ///
    /// # Errors
    /// The address is none, or the token cannot be read or sent.
    pub(super) fn new(at: &Where) -> Result<Self, Failure> {
        let token = match &at.token_file {
            Some(file) => Some(token_from(file)?),
            None => std::env::var("QUORUMGATE_TOKEN").ok().filter(|token| !token.is_empty()),
        };
        let bearer = token.map(|token| bearer(&Secret::new(token))).transpose()?;
        Ok(Self { authority: authority(&at.admin)?, bearer })
    }

    /// A client that shows no token, for what wants none: whatever the environment holds is no reason not to
    /// ask.
    ///
    /// # Errors
    /// The address is none.
    pub(super) fn nameless(at: &Where) -> Result<Self, Failure> {
        Ok(Self { authority: authority(&at.admin)?, bearer: None })
    }

    /// Where it asks, for people.
    pub(super) fn address(&self) -> &str {
        &self.authority
    }

    /// Looks at `path`, which begins behind `/admin/v1/`.
    ///
    /// # Errors
    /// There is no answer, or a refusal.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Orders `path` with a document.
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub(super) async fn post(&self, path: &str, document: &Value) -> Result<Answer, Failure> {
        self.ask(Method::POST, path, Bytes::from(document.to_string())).await
    }

    /// Looks at `path`, one that answers 503 where something is not as it should be; whether it is.
    ///
    /// # Errors
    /// There is no answer, or a refusal.
    pub(super) async fn condition(&self, path: &str) -> Result<(bool, Answer), Failure> {
        let (status, raw) = self.exchange(Method::GET, format!("/{path}"), Bytes::new()).await?;
        let is_condition = status.is_success() || status == StatusCode::SERVICE_UNAVAILABLE;
        let value: Value = serde_json::from_slice(&raw).map_err(|_| self.stranger())?;
        // A refusal is a document as well.
        if !is_condition || value.get("error").is_some() {
            return Err(self.refusal(status, &raw));
        }
        Ok((status.is_success(), Answer { raw, value }))
    }

    /// Begins to follow `path`; `last` is the id of the last event that is known.
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub(super) async fn follow(
        &self,
        path: &str,
        last: Option<&str>,
    ) -> Result<Following, Failure> {
        let mut request = self.request(Method::GET, &below_api(path), Bytes::new())?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            headers.insert("last-event-id", last);
        }
        let response = match timeout(ANSWER, self.send(request)).await {
            Ok(response) => response?,
            Err(_) => return Err(self.late(&Method::GET)),
        };
        if response.status().is_success() {
            return Ok(Following { body: response.into_body() });
        }
        let status = response.status();
        let raw = match timeout(ANSWER, self.whole(response, &Method::GET)).await {
            Ok(raw) => raw?,
            Err(_) => return Err(self.late(&Method::GET)),
        };
        Err(self.refusal(status, &raw))
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, Failure> {
        let (status, raw) = self.exchange(method, below_api(path), body).await?;
        if !status.is_success() {
            return Err(self.refusal(status, &raw));
        }
        let value = serde_json::from_slice(&raw).map_err(|_| self.stranger())?;
        Ok(Answer { raw, value })
    }

    async fn exchange(
        &self,
        method: Method,
        path: String,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let request = self.request(method.clone(), &path, body)?;
        let exchange = async {
            let response = self.send(request).await?;
            let status = response.status();
            Ok((status, self.whole(response, &method).await?))
        };
        match timeout(ANSWER, exchange).await {
            Ok(exchanged) => exchanged,
            Err(_) => Err(self.late(&method)),
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json");
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        request
            .body(Full::new(body))
            .map_err(|_| Failure::usage(format!("{path} cannot be asked for; check the names")))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        let stream = match timeout(CONNECT, TcpStream::connect(&self.authority)).await {
            Ok(connected) => connected.map_err(|error| self.unreachable(&error))?,
            Err(_) => return Err(self.unreachable(&io::ErrorKind::TimedOut.into())),
        };
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|_| self.stranger())?;
        // It ends with the answer's body, or when the process does.
        tokio::spawn(connection);
        let method = request.method().clone();
        sender
            .send_request(request)
            .await
            .map_err(|error| if error.is_parse() { self.stranger() } else { self.closed(&method) })
    }

    async fn whole(&self, response: Response<Incoming>, method: &Method) -> Result<Bytes, Failure> {
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                let why = "the answer is longer than 64 MiB; ask for less";
                return Failure::unavailable(format!("{}: {why}", self.authority));
            }
            self.unheard(method, "the answer was cut off", "try again")
        })
    }

    fn unreachable(&self, error: &io::Error) -> Failure {
        let why = match error.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            io::ErrorKind::TimedOut => "no answer in 5 s".to_owned(),
            _ => error.to_string(),
        };
        Failure::unavailable(format!(
            "{}: cannot connect ({why}); is a gateway running there? name its admin address with \
             --admin or QUORUMGATE_ADMIN",
            self.authority
        ))
    }

    fn late(&self, method: &Method) -> Failure {
        let why = format!("no answer in {} s", ANSWER.as_secs());
        self.unheard(method, &why, "try another gateway")
    }

    /// The connection has ended before an answer began: the gateway stops, it has had too many
    /// connections, or something stands there that does not answer HTTP at all.
    fn closed(&self, method: &Method) -> Failure {
        let why = "the connection was closed before an answer came";
        self.unheard(method, why, "try again, and see that this is the address in admin.listen")
    }

    /// What was asked has been sent, and no whole answer came. An order may have been taken all the
    /// same, so that whoever gave it is to look first.
    fn unheard(&self, method: &Method, why: &str, cure: &str) -> Failure {
        let cure = match *method {
            Method::POST => "the order may have been taken all the same, look before you repeat it",
            _ => cure,
        };
        Failure::unavailable(format!("{}: {why}; {cure}", self.authority))
    }

    /// Whoever answers is no admin API.
    fn stranger(&self) -> Failure {
        Failure::unavailable(format!(
            "{}: this is no admin API; name the address in admin.listen with --admin",
            self.authority
        ))
    }

    /// What a refusal means to whoever typed the command.
    fn refusal(&self, status: StatusCode, raw: &[u8]) -> Failure {
        let document: Value = serde_json::from_slice(raw).unwrap_or(Value::Null);
        let part = |path: &str| document.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (code, message) = (part("/error/code"), plain(part("/error/message")));
        let address = &self.authority;
        if code == "path_not_allowed" {
            let port = "its clients' listener; name the address in admin.listen with --admin";
            return Failure::unavailable(format!("{address}: this is {port}"));
        }
        // Errors to clients have a type, those to operators have none.
        let is_for_clients = document.pointer("/error/type").is_some();
        if message.is_empty() || is_for_clients {
            return self.stranger();
        }
        let refused = format!("{address}: {message}");
        let failure = match status {
            StatusCode::UNAUTHORIZED if self.bearer.is_none() => Failure::not_allowed(format!(
                "{address}: a token is wanted; set QUORUMGATE_TOKEN or use --token-file"
            )),
            StatusCode::UNAUTHORIZED => Failure::not_allowed(format!(
                "{address}: the token is not the right one; check QUORUMGATE_TOKEN or --token-file"
            )),
            StatusCode::FORBIDDEN => Failure::not_allowed(refused),
            status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                Failure::refused(refused)
            }
            _ => Failure::unavailable(refused),
        };
        failure.word(code)
    }
}

/// The whole path of what begins behind `/admin/v1/`.
fn below_api(path: &str) -> String {
    format!("/admin/v1/{path}")
}

/// The token in `file`, without the line break at its end.
fn token_from(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let mut text = String::new();
    let read =
        File::open(file).and_then(|file| file.take(TOKEN_BYTES_MAX + 1).read_to_string(&mut text));
    let length = read.map_err(|error| {
        Failure::usage(format!("{shown}: {error}; name a file that holds the token"))
    })?;
    if length as u64 > TOKEN_BYTES_MAX {
        let cure = "keep the token alone in the file";
        return Err(Failure::usage(format!(
            "{shown}: longer than {TOKEN_BYTES_MAX} bytes; {cure}"
        )));
    }
    let token = text.trim_end_matches(['\r', '\n']);
    if token.is_empty() {
        return Err(Failure::usage(format!("{shown}: is empty; put the token into it")));
    }
    Ok(token.to_owned())
}

fn bearer(token: &Secret) -> Result<HeaderValue, Failure> {
    let visible = token.expose().bytes().all(|byte| byte.is_ascii_graphic());
    let value = HeaderValue::from_str(&format!("Bearer {}", token.expose())).ok();
    let mut value = value.filter(|_| visible).ok_or_else(|| {
        Failure::usage("the token holds a space or a line break; check how it was copied")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// `host:port` of what was named: with or without `http://`, a slash at the end, or the port.
fn authority(text: &str) -> Result<String, Failure> {
    let refuse = |why: &str| {
        let shown = text.rsplit_once('@').map_or(text, |(_, after)| after);
        Err(Failure::usage(format!(
            "--admin {shown}: {why}; write HOST:PORT, for example 127.0.0.1:9090"
        )))
    };
    if text.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://")) {
        return refuse("the admin API is served without TLS, reach it through a tunnel (ssh -L)");
    }
    let bare = match text.get(..7) {
        Some(start) if start.eq_ignore_ascii_case("http://") => text.get(7..).unwrap_or_default(),
        _ => text,
    };
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    let is_plain = |one: char| one.is_ascii_alphanumeric() || ".-_:[]".contains(one);
    if bare.is_empty() || !bare.chars().all(is_plain) {
        return refuse("is no address");
    }
    let (host, port) = match (bare.strip_prefix('['), bare.rsplit_once(':')) {
        (Some(rest), _) => match rest.split_once(']') {
            Some((inside, "")) => (format!("[{inside}]"), None),
            Some((inside, rest)) if rest.starts_with(':') => {
                (format!("[{inside}]"), rest.strip_prefix(':'))
            }
            Some(_) | None => return refuse("has brackets around no IPv6 address"),
        },
        (None, Some((host, _))) if host.contains(':') => {
            return refuse("an IPv6 address stands in brackets, [::1]:9090");
        }
        (None, Some((host, port))) => (host.to_owned(), Some(port)),
        (None, None) => (bare.to_owned(), None),
    };
    match port.map(str::parse::<u16>) {
        _ if host.is_empty() => refuse("has no host"),
        None => Ok(format!("{host}:{PORT}")),
        Some(Ok(port)) if port > 0 => Ok(format!("{host}:{port}")),
        Some(_) => refuse("has no valid port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_in_every_usual_spelling() {
        for (text, wanted) in [
            ("127.0.0.1:9090", "127.0.0.1:9090"),
            ("http://gw-1:19090/", "gw-1:19090"),
            ("HTTP://gw-1", "gw-1:9090"),
            ("gw-1.example", "gw-1.example:9090"),
            ("[::1]", "[::1]:9090"),
            ("http://[::1]:1", "[::1]:1"),
        ] {
            assert_eq!(authority(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        let texts = [
            "",
            "http://",
            ":9090",
            "a:0",
            "a:65536",
            "a:b",
            "a/b",
            "::1",
            "[::1",
            "[::1]x",
            "https://a",
            "http://user:secret@a",
            "a b",
            "ä",
        ];
        for text in texts {
            let failure = authority(text).unwrap_err();
            assert_eq!(failure.code, 64, "{text}");
            assert!(failure.message.contains("write HOST:PORT"), "{failure}");
            assert!(!failure.message.contains("secret"), "{failure}");
        }
    }

    #[test]
    fn a_token_that_cannot_be_sent_is_refused_without_being_shown() {
        let failure = bearer(&Secret::new("sk-CANARY with a space")).unwrap_err();
        assert!(!failure.message.contains("CANARY"), "{failure}");
        assert!(!format!("{:?}", bearer(&Secret::new("sk-CANARY")).unwrap()).contains("CANARY"));
    }
}

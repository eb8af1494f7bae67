//! Brings spans to the collector, apart from whoever serves.
//!
//! A collector that is slow, gone or against it costs spans, which are counted, and nothing else: the
//! queue before this task is bounded, a call has its time, and nothing is tried again.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header;
use hyper_util::rt::TokioIo;
use metrics::Counter;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;

use super::span::Span;
use super::wire;
use crate::config::Otlp;
use crate::upstream::TlsError;

/// Most spans that go in one call.
const BATCH_MAX: usize = 512;
/// The first span of a batch waits at most this long for others.
const GATHER: Duration = Duration::from_secs(1);
/// At the end, what is on its way and what still waits get this long each.
const LAST_WORD: Duration = Duration::from_millis(900);
/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Why spans did not arrive.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("nobody answers: {0}")]
    Connect(#[from] std::io::Error),
    #[error("the call broke off: {0}")]
    Http(#[from] hyper::Error),
    #[error("the collector answers {0}")]
    Status(u16),
    #[error("the collector's answer cannot be read")]
    Answer,
    #[error("it took too long")]
    Timeout,
}

/// The task that calls the collector.
pub struct Exporter {
    queue: mpsc::Receiver<Vec<Span>>,
    batch: Vec<Span>,
    config: Otlp,
    resource: Vec<(&'static str, String)>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    sender: Option<SendRequest<Full<Bytes>>>,
    exported: Counter,
    lost: Counter,
    is_failing: bool,
}

impl Exporter {
    /// A task that takes from `queue`, as the node `node`. Counts what arrives and what does not.
    ///
    /// # Errors
    /// The collector cannot be known over TLS.
    pub(super) fn new(
        queue: mpsc::Receiver<Vec<Span>>,
        config: &Otlp,
        node: &str,
        (exported, lost): (Counter, Counter),
    ) -> Result<Self, TlsError> {
        let host = config.authority.rsplit_once(':').map_or("", |(host, _)| host);
        let tls = config.is_tls.then(|| crate::upstream::tls_by_system(host)).transpose()?;
        let resource = vec![
            ("service.name", config.service_name.clone()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", node.to_owned()),
        ];
        Ok(Self {
            queue,
            batch: Vec::new(),
            config: config.clone(),
            resource,
            tls: tls.map(|(config, name)| (TlsConnector::from(config), name)),
            sender: None,
            exported,
            lost,
            is_failing: false,
        })
    }

    /// Brings spans until `stopped`, then those that still wait, within two seconds.
    pub async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        while self.gather(&mut stopped).await {
            let late = async {
                let _ = stopped.wait_for(|stop| *stop).await;
                tokio::time::sleep(LAST_WORD).await;
            };
            tokio::select! {
                () = self.deliver() => {}
                () = late => {}
            }
            // What was not delivered by then never will be.
            self.lose();
        }
        self.queue.close();
        let _ = tokio::time::timeout(LAST_WORD, async {
            loop {
                while self.batch.len() < BATCH_MAX
                    && let Ok(spans) = self.queue.try_recv()
                {
                    self.batch.extend(spans);
                }
                if self.batch.is_empty() {
                    return;
                }
                self.deliver().await;
            }
        })
        .await;
        while let Ok(spans) = self.queue.try_recv() {
            self.batch.extend(spans);
        }
        self.lose();
    }

    /// Waits for spans and gathers some. Returns whether it goes on.
    async fn gather(&mut self, stopped: &mut watch::Receiver<bool>) -> bool {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => return false,
            spans = self.queue.recv() => match spans {
                Some(spans) => self.batch.extend(spans),
                None => return false,
            },
        }
        let until = crate::clock::instant() + GATHER;
        while self.batch.len() < BATCH_MAX {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => break,
                spans = tokio::time::timeout_at(until, self.queue.recv()) => match spans {
                    Ok(Some(spans)) => self.batch.extend(spans),
                    Ok(None) | Err(_) => break,
                },
            }
        }
        true
    }

    fn lose(&mut self) {
        self.lost.increment(self.batch.len() as u64);
        self.batch.clear();
    }

    /// Delivers the batch, or loses it.
    async fn deliver(&mut self) {
        let body = Bytes::from(wire::request(&self.batch, &self.resource));
        let sent = tokio::time::timeout(self.config.timeout, self.send(body)).await;
        match sent.unwrap_or(Err(ExportError::Timeout)) {
            Ok(()) => {
                self.exported.increment(self.batch.len() as u64);
                self.batch.clear();
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(collector = %self.config.endpoint, "spans arrive again");
                }
            }
            Err(error) => {
                self.sender = None;
                self.lose();
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(collector = %self.config.endpoint, %error, "spans are lost");
                }
            }
        }
    }

    async fn send(&mut self, body: Bytes) -> Result<(), ExportError> {
        // A connection that was at rest may be over: then there is a new one.
        let mut sender = match self.sender.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        sender.ready().await?;
        let request = Request::post(self.config.path.as_str())
            .header(header::HOST, self.config.authority.as_str())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::USER_AGENT, concat!("quorumgate/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))
            .map_err(|_| ExportError::Answer)?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        body.map_err(|_| ExportError::Answer)?;
        if !status.is_success() {
            return Err(ExportError::Status(status.as_u16()));
        }
        self.sender = Some(sender);
        Ok(())
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ExportError> {
        let stream = TcpStream::connect(self.config.authority.as_str()).await?;
        match &self.tls {
            None => shake(stream).await,
            Some((tls, name)) => shake(tls.connect(name.clone(), stream).await?).await,
        }
    }
}

async fn shake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, ExportError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with its sender.
    tokio::spawn(connection);
    Ok(sender)
}

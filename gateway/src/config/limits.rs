//! What is asked of requests and of those who send them: limits, keys, retries; and by what means
//! clients and endpoints are known.

/// Most entries of `api_keys`.
pub const API_KEYS_MAX: usize = 10_000;
/// Most models that one key is confined to.
pub const KEY_MODELS_MAX: usize = 256;
/// Most origins in `server.cors`.
pub const CORS_ORIGINS_MAX: usize = 64;

/// Upper bounds on what is admitted; `None` sets none. They hold for the whole fleet: each node holds
/// its part of every figure, at least 1, by the number of members that serve, and refuses and tells by
/// that part. While the members stay the same the fleet admits no more than the figure, or one for each
/// node if there are more nodes. In a minute in which a member joins, restarts or drains it may be more,
/// by at most that member's part; and in a split that lasts longer than `member_grace`, by less than
/// half. With `cluster.backend: redis` the figures hold for the fleet as they are, wherever the requests
/// fall, and each node goes by its part while Redis is away or slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests in any sliding minute, 1 to 10⁹.
    pub rpm: Option<u64>,
    /// Tokens, prompt and answer together, in any sliding minute, 1 to 10¹².
    pub tpm: Option<u64>,
    /// Requests in flight, 1 to 10⁶.
    pub concurrency: Option<u32>,
}

impl Limits {
    /// Whether anything is limited by the minute.
    pub fn has_minute(&self) -> bool {
        self.rpm.is_some() || self.tpm.is_some()
    }
}

/// A key by which a caller proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// What the caller is called in logs and metrics; 1 to 64 of `[A-Za-z0-9._-]`, unique.
    pub name: String,
    /// SHA-256 of the key. The key itself stands nowhere.
    pub sha256: [u8; 32],
    /// The models it may ask for, by name or alias as the file has them; 1 to [`KEY_MODELS_MAX`],
    /// `None`: all.
    pub models: Option<Vec<String>>,
    /// How much it may ask for.
    pub limits: Limits,
}

/// What a request must satisfy before anything else is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailClosed {
    /// A header each request must carry, in lower case.
    pub require_header: Option<String>,
    /// The only paths that are served, if given; 1 to [`super::ALLOWED_PATHS_MAX`].
    pub allowed_paths: Option<Vec<String>>,
    /// Most messages in one request, at least 1.
    pub max_messages: Option<usize>,
    /// Most prompt tokens in one request, estimated, at least 1.
    pub max_input_tokens: Option<u64>,
    /// By what prompts are counted exactly where the estimate is near the limit; `None`: not at all.
    pub tokenizer: Option<Tokenizer>,
    /// The largest `n` and `best_of`; 1 to 128, 16 by default.
    pub max_n: u32,
}

impl Default for FailClosed {
    fn default() -> Self {
        Self {
            require_header: None,
            allowed_paths: None,
            max_messages: None,
            max_input_tokens: None,
            tokenizer: None,
            max_n: 16,
        }
    }
}

/// How often a request is tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Attempts of one request, the first included, over all pools; 1 to 10, 3 by default.
    pub max_attempts: u32,
    /// Further attempts of a pool as a share of its requests; 0 to 1, 0.2 by default.
    pub budget: f64,
    /// Further attempts a second that a pool has in any case; 0 to 1,000, 3 by default.
    pub budget_floor: u32,
    /// After which failures the same endpoint is asked again, once, if no other is left.
    pub on: RetryOn,
    /// After which failures another endpoint or pool is asked.
    pub failover_on: FailoverOn,
}

/// After which failures the same endpoint may be asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryOn {
    /// No connection could be made; yes by default.
    pub refused: bool,
    /// These statuses; 502, 503 and 529 by default.
    pub codes: Vec<u16>,
}

/// After which failures of an endpoint another one, or another pool, is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverOn {
    /// No connection could be made; yes by default.
    pub refused: bool,
    /// The connection broke before the answer was complete enough to be passed on; yes by default.
    pub cut: bool,
    /// A limit of time has passed; yes by default.
    pub timeout: bool,
    /// The answer was not one; yes by default.
    pub malformed: bool,
    /// The endpoint refuses the gateway's credential; yes by default.
    pub auth: bool,
    /// Statuses that let another be asked; `None`: every status that is a fault or means that the
    /// endpoint is at a limit.
    pub codes: Option<Vec<u16>>,
}

impl Default for FailoverOn {
    fn default() -> Self {
        Self { refused: true, cut: true, timeout: true, malformed: true, auth: true, codes: None }
    }
}

/// A vocabulary by which prompts are counted exactly when the estimate is near the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// OpenAI's of GPT-4 and GPT-3.5.
    Cl100kBase,
    /// OpenAI's of GPT-4o and later.
    O200kBase,
}

/// Who may call from a page in a browser; without it no such header is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// The origins that may, each as `scheme://host[:port]`, as a browser writes it; `*` alone lets
    /// all. 1 to [`CORS_ORIGINS_MAX`].
    pub origins: Vec<String>,
    /// How long a browser may remember the permission, in seconds; 0 to 86,400, 600 by default.
    pub max_age_seconds: u32,
}

/// The certificate that the gateway shows its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// Certificate chain (PEM).
    pub cert: std::path::PathBuf,
    /// Private key (PEM).
    pub key: std::path::PathBuf,
}

/// How an `https` endpoint is known, and how the gateway makes itself known to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UpstreamTls {
    /// Certificates of the authority that signs it (PEM); `None`: the system's.
    pub ca: Option<std::path::PathBuf>,
    /// The gateway's own certificate chain (PEM), given only together with `key`.
    pub cert: Option<std::path::PathBuf>,
    /// The key of `cert` (PEM).
    pub key: Option<std::path::PathBuf>,
    /// The name its certificate must carry, if not the host of the address.
    pub server_name: Option<String>,
}

/// Which version of HTTP is spoken to an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: over TLS by ALPN, in the clear by prior knowledge.
    Http2,
}

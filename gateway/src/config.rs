//! What this gateway was told to do: the configuration, read once, checked once, taken apart once.
//!
//! A setting that could never work must stop a start or a reload, not a request at night. So every
//! value is checked here, in one pass, and the rest of the process gets plain types that need no
//! second look. `file` alone knows YAML; `check` turns what it read into the types of this module.
//!
//! Invariants: a `Config` holds at least one pool, every pool at least one endpoint; names are
//! unique where they must be; every duration, size and count lies within its bound; a secret is
//! never printed, and an error shows nothing from the environment but a number or duration that
//! clashes with another.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod address;
mod check;
mod cluster;
mod codes;
mod error;
mod file;
mod form;
pub(crate) mod given;
mod limits;
mod overrides;
mod probe;
#[cfg(any(test, feature = "fuzzing"))]
mod promise;
mod scalar;
mod schema;
mod secret;
mod section;
mod telemetry;
#[cfg(test)]
mod tests;

use self::given::{Look, Missing};
use self::overrides::Overrides;
use crate::fnv;

pub use address::is_metadata_address;
pub use cluster::{
    Backend, Cluster, ClusterTls, OnUnavailable, QuorumConfig, Redis, RedisMode, RedisTls, Wire,
};
pub use codes::{STATUS_CODES_MAX, StatusClass, StatusCodes};
pub use error::{ConfigError, nearest};
pub use limits::{
    API_KEYS_MAX, ApiKey, CORS_ORIGINS_MAX, Cors, FailClosed, FailoverOn, KEY_MODELS_MAX, Limits,
    Protocol, Retry, RetryOn, ServerTls, Tokenizer, UpstreamTls,
};
pub use probe::{Kind, Probe, ProbeRoute, TenantScope};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use promise::{values as values_promise, whole as config_promise};
pub use schema::schema;
pub use secret::Secret;
pub use telemetry::Otlp;

/// Longest configuration file that is read, in bytes: 8 MiB hold 10,000 endpoints with ease.
pub const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Most models in one configuration.
pub const MODELS_MAX: usize = 1_000;
/// Most endpoints in one configuration, all models together.
pub const ENDPOINTS_MAX: usize = 10_000;
/// Most aliases of one model.
pub const ALIASES_MAX: usize = 64;
/// Most seeds a node is given.
pub const SEEDS_MAX: usize = 64;
/// Most addresses of a Redis.
pub const REDIS_URLS_MAX: usize = 16;
/// Most pools in one `fallback`.
pub const FALLBACK_MAX: usize = 8;
/// Most entries of `retry.on`.
pub const RETRY_ON_MAX: usize = 32;
/// Most entries of `failover.on`.
pub const FAILOVER_ON_MAX: usize = 32;
/// Most paths in `fail_closed.allowed_paths`.
pub const ALLOWED_PATHS_MAX: usize = 64;

/// The sections that are the same on every node of a fleet.
const SHARED: [&str; 6] = ["redis", "fail_closed", "api_keys", "retry", "failover", "models"];

/// What stands in place of a secret wherever the configuration is shown.
const MASK: &str = "***";

/// Reads, checks and takes apart the configuration file at `path`, with variables and overrides taken
/// from the environment of the process.
///
/// # Errors
/// The file cannot be read, is longer than [`FILE_BYTES_MAX`], is not UTF-8, or says something
/// that is refused; nothing is kept in any of these cases.
pub fn read(path: &Path) -> Result<Config, ConfigError> {
    let text = read_text(path)?;
    parse_overridden(&text, &file_name(path), &given::variable)
}

/// What errors call the file at `path`: one line, whatever its name is.
#[must_use]
pub fn file_name(path: &Path) -> String {
    scalar::one_line(&path.display().to_string())
}

/// Reads the configuration file at `path` and no more of it than may be.
///
/// # Errors
/// The file cannot be read, is longer than [`FILE_BYTES_MAX`], or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, ConfigError> {
    let name = file_name(path);
    let unreadable =
        |source: std::io::Error| ConfigError::ReadFile { file: name.clone(), kind: source.kind() };
    let opened = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // One byte more than allowed tells a file that fits from one that does not, whatever its
    // metadata claim.
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let refuse = |problem: &str, cure: &str| ConfigError::RefuseFile {
        file: name.clone(),
        problem: problem.to_owned(),
        cure: cure.to_owned(),
    };
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(refuse("the file is longer than 8MiB", "make it shorter"));
    }
    String::from_utf8(bytes).map_err(|_| refuse("the file is not UTF-8 text", "save it as UTF-8"))
}

/// Checks and takes apart the configuration in `text` with what the environment of the process
/// overrides; `source_name` is what errors call the file, `env` answers for `${VARIABLE}`.
///
/// # Errors
/// The text or an override says something that is refused; the error is one line with the place and
/// the cure.
pub(crate) fn parse_overridden(
    text: &str,
    source_name: &str,
    env: &Look<'_>,
) -> Result<Config, ConfigError> {
    let overrides = Overrides::of(std::env::vars_os())?;
    parse_over(text, source_name, env, &overrides)
}

/// The same where nothing is overridden and `env` knows all variables that are set.
///
/// # Errors
/// The text says something that is refused; the error is one line with the place and the cure.
pub fn parse(
    text: &str,
    source_name: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, ConfigError> {
    let look = |name: &str| env(name).ok_or(Missing::Unset);
    parse_over(text, source_name, &look, &Overrides::default())
}

fn parse_over(
    text: &str,
    source_name: &str,
    env: &Look<'_>,
    overrides: &Overrides,
) -> Result<Config, ConfigError> {
    let mut file = file::read(text, source_name)?;
    overrides.apply(&mut file)?;
    check::check(&file, source_name, env, overrides)
}

/// Reads a duration as the file writes it: `45s`, `250ms`, `10m`, `1h`, `1m30s`; so that whoever
/// gives orders to a running gateway writes it the same way.
///
/// # Errors
/// The text is anything else; the error says what to write and does not repeat the text.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    scalar::duration(text, Duration::ZERO..=Duration::MAX)
        .map_err(|refusal| format!("{}; {}", refusal.problem, refusal.cure))
}

/// Reads the address of a seed: `host:port`.
///
/// # Errors
/// The text is anything else; the error says what to write and does not repeat the text.
pub fn parse_seed(text: &str) -> Result<String, String> {
    address::host_and_port(text).map_err(|refusal| format!("{}; {}", refusal.problem, refusal.cure))
}

/// Everything this gateway was told to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The listener for clients.
    pub server: Server,
    /// The listener for operators.
    pub admin: Admin,
    /// The fleet this node belongs to; `None` is a single node.
    pub cluster: Option<Cluster>,
    /// What of the circuits outlives the process; `None` keeps nothing.
    pub state: Option<StateFile>,
    /// What a request must satisfy before anything else is looked at.
    pub fail_closed: FailClosed,
    /// The callers' keys; empty: nobody has to show one.
    pub api_keys: Vec<ApiKey>,
    /// How often a request is tried.
    pub retry: Retry,
    /// The models and where they are served, in the order of the file; 1 to [`MODELS_MAX`].
    pub pools: Vec<Pool>,
    /// What is logged and how.
    pub log: Log,
    /// Who is told of requests, by traces; `None`: nobody.
    pub telemetry: Option<Otlp>,
}

impl Config {
    /// Writes every setting with its effective value as YAML that can be read again; secrets are
    /// masked, settings that were inherited stand where they apply.
    #[must_use]
    pub fn effective_yaml(&self) -> String {
        file::effective(self)
    }

    /// Sixteen hexadecimal digits that are equal on two nodes when the settings that a fleet shares
    /// are: models, limits and retries, not names and addresses of the node. A changed secret does
    /// not change them.
    #[must_use]
    pub fn hash(&self) -> String {
        let text = self.effective_yaml();
        let mut is_shared = false;
        let shared = text.lines().filter(|line| {
            if line.starts_with(|first: char| first.is_ascii_lowercase()) {
                is_shared = SHARED.iter().any(|section| line.starts_with(section));
            }
            is_shared
        });
        format!("{:016x}", fnv::digest(shared.flat_map(str::bytes)))
    }

    /// The certificates and keys that are shown to clients and endpoints, and the authorities that
    /// endpoints are checked by; each once. What they hold counts like a setting.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let endpoints = self.pools.iter().flat_map(|pool| &pool.endpoints);
        let shown = self.server.tls.iter().flat_map(|tls| [&tls.cert, &tls.key]);
        let known = endpoints.filter_map(|endpoint| endpoint.tls.as_ref());
        let known = known.flat_map(|tls| [&tls.ca, &tls.cert, &tls.key].into_iter().flatten());
        let files: BTreeSet<PathBuf> = shown.chain(known).cloned().collect();
        files.into_iter().collect()
    }
}

/// The listener for clients and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where clients connect; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Longest request body, in bytes; 1 KiB to 1 GiB, 10 MiB by default.
    pub max_body_bytes: usize,
    /// What all bodies together may take that are held, in bytes; at least two of the longest, at most
    /// 1 TiB. By default a quarter of the memory that the process may have, 32 MiB to 1 GiB.
    pub max_body_memory_bytes: usize,
    /// Worker threads, at most 1,024; 0 is one for each core.
    pub workers: usize,
    /// Client connections of one worker, 1 to 1,000,000, 10,000 by default; more wait to be accepted.
    pub max_connections: usize,
    /// The certificate shown to clients; `None`: they connect in the clear.
    pub tls: Option<ServerTls>,
    /// Who may call from a page in a browser; nobody by default.
    pub cors: Option<Cors>,
    /// After this long without an event for the client a stream gets a comment, so that no one between
    /// takes it for dead; 1 s to 1 h, 15 s by default, `None` sends none.
    pub heartbeat: Option<Duration>,
    /// How long a client may take none of what is written to it; 60 s by default.
    pub write_stall: Duration,
    /// How long a client may take to say anything; 10 s by default.
    pub first_byte_timeout: Duration,
    /// How long a request head may take to arrive; 10 s by default.
    pub header_timeout: Duration,
    /// How long an idle client connection stays open; 60 s by default.
    pub keep_alive: Duration,
    /// How long a request body may pause; 10 s by default.
    pub body_idle: Duration,
    /// How long new connections are still served after a drain began; 5 s by default.
    pub drain_delay: Duration,
    /// How long running streams may take to finish in a drain; 600 s by default.
    pub drain_timeout: Duration,
}

/// The listener for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where operators connect; `127.0.0.1:9090` by default, beyond loopback only with a token.
    pub listen: SocketAddr,
    /// What allows everything.
    pub token: Option<Secret>,
    /// What allows looking only; given only together with `token`.
    pub read_token: Option<Secret>,
    /// Whether the page of metrics wants a token as well; given only together with `token`.
    pub protect_metrics: bool,
}

/// Where the state of the circuits is kept, so that a restart does not forget what is sick. It is
/// this node's own and differs between the nodes of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    /// The file; its directory must be writable.
    pub path: PathBuf,
    /// Time between two writes; 1 s to 1 h, 5 s by default.
    pub every: Duration,
}

/// How long an attempt may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands; 5 s by default.
    pub connect: Duration,
    /// Until the first byte of the answer; 30 s by default.
    pub first_byte: Duration,
    /// Until the first token of the answer; `None` sets no limit.
    pub first_token: Option<Duration>,
    /// Between two pieces of content; 60 s by default.
    pub idle: Duration,
    /// Until the end of the answer; 600 s by default.
    pub total: Duration,
}

/// One model and where it is served.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// The name clients ask for; 1 to 128 of `[A-Za-z0-9._:/-]`.
    pub name: String,
    /// Further names clients may ask for; at most [`ALIASES_MAX`], of the same alphabet.
    pub aliases: Vec<String>,
    /// Where the model is served, in the order of the file; at least one.
    pub endpoints: Vec<Endpoint>,
    /// What happens when every circuit of the pool is open.
    pub on_all_open: OnAllOpen,
    /// How long an attempt may take.
    pub timeouts: Timeouts,
    /// How an endpoint is chosen.
    pub policy: Policy,
    /// The pools that are asked in this order when nothing is left in this one; names of others, at
    /// most [`FALLBACK_MAX`].
    pub fallback: Vec<String>,
    /// How much may be asked of the model.
    pub limits: Limits,
    /// Whether streams are asked to report their usage where the client did not say; not by default.
    pub include_usage: bool,
}

/// What happens when every circuit of a pool is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAllOpen {
    /// The endpoints are tried all the same: presumed dead is better than surely refused.
    #[default]
    PassThrough,
    /// The request is refused at once.
    Reject,
}

/// How an endpoint is chosen among those that may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The less busy of two taken by chance.
    #[default]
    LeastRequest,
    /// In turn, as often as their weights say.
    Weighted,
    /// The one with the least product of first-token time and requests in flight, of two taken by
    /// chance.
    Ewma,
    /// The one that had the same beginning of a prompt before, unless it is much busier than others.
    PrefixHash,
}

/// One place that serves a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its name, unique in the pool; 1 to 64 of `[A-Za-z0-9._-]`.
    pub name: String,
    /// `http://host:port` or `https://host:port`, in lower case, without base path or trailing slash.
    pub address: String,
    /// `host:port`, as in `address`.
    pub authority: String,
    /// What stands before the path of each request: empty, or `/prefix` without a trailing slash.
    pub base_path: String,
    /// What the endpoint calls the model, if not by the pool's name.
    pub upstream_model: Option<String>,
    /// Its share among its siblings; 1 to 1,000, 1 by default.
    pub weight: u32,
    /// Its group: one is used only when all of lower numbers are out or full; 0 to 15, 0 by default.
    pub priority: u8,
    /// Endpoints of one name share a quota of the provider's: what asks one of them to pause pauses
    /// all. 1 to 64 of `[A-Za-z0-9._-]`.
    pub quota_group: Option<String>,
    /// How much may be asked of it.
    pub limits: Limits,
    /// How it is known by TLS; `None`: its address is `http`.
    pub tls: Option<UpstreamTls>,
    /// Which HTTP it is spoken to in.
    pub protocol: Protocol,
    /// The version of Azure's interface, sent as `api-version`; given only for `kind: azure`. With it
    /// the path names the deployment (`upstream_model`).
    pub api_version: Option<String>,
    /// What the gateway shows the endpoint as its own credential.
    pub api_key: Option<Secret>,
    /// When its circuit opens and how it comes back.
    pub rule: breaker::Rule,
    /// What kind of server it is.
    pub kind: Kind,
    /// The synthetic request that tries it first.
    pub probe: Probe,
    /// Whether each tenant has a breaker of its own there; `None`: one for all.
    pub tenants: Option<TenantScope>,
    /// What its statuses say about its health.
    pub codes: StatusCodes,
    /// Where it is asked whether it is up; `None` does not ask.
    pub health: Option<Health>,
}

/// How an endpoint is asked, beside all requests, whether it is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The path that answers, in full: the base path is not put before it, since an engine's
    /// own health often stands beside what its base path serves.
    pub path: String,
    /// Time from one question to the next; 1 s to 1 h, 5 s by default.
    pub interval: Duration,
    /// How long the answer may take; 1 ms to less than `interval`, by default 2 s, or 500 ms
    /// if the interval is not longer than 2 s.
    pub timeout: Duration,
}

/// What is logged and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The shape of a line.
    pub format: LogFormat,
    /// From which level on, as `level` or a comma-separated list of `level` and `target=level`;
    /// `info` by default.
    pub level: String,
}

/// The shape of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

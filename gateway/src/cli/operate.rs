//! The operator's verbs: which there are, and who does them.
//!
//! Each is one exchange with one gateway of the fleet, whichever is named: what is ordered holds on
//! every node.

use tokio::runtime::{Builder, Runtime};

use super::client::{Client, Where};
use super::failure::Failure;
use super::{Output, act, events, health, help, look, top};

/// What all of these verbs take.
#[derive(clap::Args)]
pub(super) struct Common {
    #[command(flatten)]
    at: Where,
    /// How the answer is printed: text, or json, exactly what the admin API answered.
    #[arg(short, long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    output: Output,
}

/// What an override says.
#[derive(clap::Args)]
pub(super) struct Forced {
    /// The endpoint: pool/name, or the name alone where only one pool has it.
    endpoint: String,
    /// How long the order holds, up to 168h: 10m, 1h30m.
    #[arg(long = "for", value_name = "PERIOD")]
    period: String,
    /// Why; everybody who looks reads it.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Do it even if no endpoint of the pool is left.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

/// A member that is ordered to do something.
#[derive(clap::Args)]
pub(super) struct Member {
    /// The member's id, as quorumgate members lists it.
    node: String,
    /// Why; everybody who looks reads it.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    common: Common,
}

/// What can be asked of a gateway that runs.
#[derive(clap::Subcommand)]
pub(super) enum Verb {
    /// List the endpoints: which are in, which are out, and why.
    #[command(after_help = help::CODES)]
    Endpoints {
        #[command(flatten)]
        common: Common,
    },
    /// Tell why an endpoint is in or out, who says so, and what happens next.
    #[command(after_help = help::CODES)]
    Explain {
        /// The endpoint: pool/name, or the name alone where only one pool has it.
        endpoint: String,
        #[command(flatten)]
        common: Common,
    },
    /// List the gateways of the fleet.
    #[command(after_help = help::CODES)]
    Members {
        #[command(flatten)]
        common: Common,
    },
    /// Show whether the fleet can decide, and how it hears of itself.
    #[command(after_help = help::CODES)]
    Cluster {
        #[command(flatten)]
        common: Common,
    },
    /// Print the configuration that holds, secrets masked.
    #[command(after_help = help::CODES)]
    Config {
        #[command(flatten)]
        common: Common,
    },
    /// Tell by exit code whether the gateway is alive, or should get clients.
    #[command(after_help = help::HEALTH)]
    Health {
        /// Ask whether it should get clients: a gateway that drains is alive and should not.
        #[arg(long)]
        ready: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Follow what happens, until Ctrl-C.
    #[command(after_help = help::EVENTS)]
    Events {
        /// Begin after the event of this id; 0: with all that is kept.
        #[arg(long, value_name = "ID")]
        since: Option<String>,
        /// Print what is kept and end.
        #[arg(long)]
        no_follow: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Watch members and endpoints in a table that renews itself; q quits.
    #[command(after_help = help::TOP)]
    Top {
        /// Time between two looks, 200ms to 60s.
        #[arg(long, value_name = "PERIOD", default_value = "1s")]
        every: String,
        #[command(flatten)]
        common: Common,
    },
    /// Take an endpoint out on every node: no request is sent to it.
    #[command(after_help = help::CODES)]
    Open(Forced),
    /// Put an endpoint back in on every node, whatever its circuit says.
    #[command(after_help = help::CODES)]
    Close(Forced),
    /// Give an endpoint back to the automatic rule.
    #[command(after_help = help::CODES)]
    Auto {
        /// The endpoint: pool/name, or the name alone where only one pool has it.
        endpoint: String,
        /// Why; everybody who looks reads it.
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
        #[command(flatten)]
        common: Common,
    },
    /// Let a member take no new clients and finish its streams.
    #[command(after_help = help::CODES)]
    Drain(Member),
    /// The same, and out of the electorate at once.
    #[command(after_help = help::CODES)]
    Leave(Member),
    /// Count a lost member no more; for one that will not come back.
    #[command(after_help = help::CODES)]
    Forget(Member),
    /// Tell a gateway of further nodes to ask for the fleet.
    #[command(after_help = help::CODES)]
    Join {
        /// Their gossip addresses: host:port.
        #[arg(required = true, value_name = "SEED")]
        seeds: Vec<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Read the configuration file again, on the gateway that is asked.
    #[command(after_help = help::CODES)]
    Reload {
        #[command(flatten)]
        common: Common,
    },
}

/// Does what `verb` says.
///
/// # Errors
/// It could not be done; the line says why.
pub(super) fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Endpoints { common } => ask(&common, look::endpoints),
        Verb::Explain { endpoint, common } => ask(&common, async |client: &Client, output| {
            look::explain(client, &endpoint, output).await
        }),
        Verb::Members { common } => ask(&common, look::members),
        Verb::Cluster { common } => ask(&common, look::cluster),
        Verb::Config { common } => ask(&common, look::config),
        Verb::Health { ready, common } => {
            let client = Client::nameless(&common.at)?;
            runtime()?.block_on(health::ask(&client, ready, common.output))
        }
        Verb::Events { since, no_follow, common } => {
            ask(&common, async |client: &Client, output| {
                events::follow(client, since.as_deref(), no_follow, output).await
            })
        }
        Verb::Top { every, common } => {
            let every = top::interval(&every)?;
            ask(&common, async |client: &Client, output| top::run(client, every, output).await)
        }
        Verb::Open(forced) => force(&forced, "force_open"),
        Verb::Close(forced) => force(&forced, "force_closed"),
        Verb::Auto { endpoint, reason, common } => ask(&common, async |client: &Client, output| {
            act::force(client, &endpoint, &act::auto(&reason), output).await
        }),
        Verb::Drain(member) => order(&member, "drain"),
        Verb::Leave(member) => order(&member, "leave"),
        Verb::Forget(member) => order(&member, "forget"),
        Verb::Join { seeds, common } => {
            ask(&common, async |client: &Client, output| act::join(client, &seeds, output).await)
        }
        Verb::Reload { common } => ask(&common, act::reload),
    }
}

fn force(forced: &Forced, state: &str) -> Result<(), Failure> {
    let Forced { endpoint, period, reason, yes, common } = forced;
    let order = act::forced(state, period, reason, *yes)?;
    ask(common, async |client: &Client, output| act::force(client, endpoint, &order, output).await)
}

fn order(member: &Member, order: &str) -> Result<(), Failure> {
    let Member { node, reason, common } = member;
    ask(common, async |client: &Client, output| {
        act::order(client, node, order, reason, output).await
    })
}

fn ask(
    common: &Common,
    what: impl AsyncFnOnce(&Client, Output) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let client = Client::new(&common.at)?;
    runtime()?.block_on(what(&client, common.output))
}

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::unavailable(format!("no runtime: {error}")))
}

//! The command line: one binary, one verb a task, one line an error.
//!
//! Some verbs run something (`run`), the others ask or order a gateway that runs, over its admin
//! API: `look` shows, `act` changes, `events` and `top` follow. Whoever types them was woken up, so
//! that each answer fits eighty columns, and each error says what, where, and what to do.
//!
//! Invariants: an error is one line on stderr and an exit code of `failure`; nothing that came from
//! elsewhere reaches the terminal with control characters; a token is never shown and never an
//! argument, which other users of the machine could read.

#![expect(clippy::print_stderr, reason = "a command speaks on its streams")]

mod act;
mod client;
mod events;
mod failure;
mod health;
mod help;
mod look;
mod name;
mod operate;
mod run;
mod table;
mod text;
mod tools;
mod top;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use self::failure::{Failure, WRONG_USAGE};

#[derive(Parser)]
#[command(
    name = "quorumgate",
    version,
    about = "An LLM gateway fleet that decides by quorum",
    override_help = help::OVERVIEW
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a gateway.
    #[command(after_help = help::SERVE)]
    Serve {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Watch three gateways take a slow endpoint out and bring it back; needs nothing installed.
    Demo {
        /// End after the story with a verdict, instead of staying up.
        #[arg(long)]
        exit: bool,
    },
    /// Validate a configuration and print what it amounts to, secrets masked.
    #[command(after_help = help::LOCAL_CODES)]
    Check {
        /// The configuration file.
        file: PathBuf,
        /// How it is printed: text, or json with ok, hash and yaml.
        #[arg(
            short,
            long,
            value_name = "FORMAT",
            default_value = "text",
            hide_possible_values = true
        )]
        output: Output,
    },
    /// Print the JSON Schema of the configuration, for editors.
    Schema {
        /// Accepted as everywhere; a schema is JSON in any case.
        #[arg(short, long, value_name = "FORMAT", default_value = "json", hide = true)]
        output: Output,
    },
    /// Turn another gateway's configuration into one of ours.
    Import {
        #[command(subcommand)]
        from: ImportFrom,
    },
    /// Run a recorded access log through the breakers and tell when each would have tripped.
    Replay {
        /// The access log: one JSON object a line.
        log: PathBuf,
        /// The configuration whose thresholds are tried.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// How the report is printed: text or json.
        #[arg(
            short,
            long,
            value_name = "FORMAT",
            default_value = "text",
            hide_possible_values = true
        )]
        output: Output,
    },
    /// Run a model server that fails on demand.
    Mock {
        /// Where it listens.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9000")]
        listen: SocketAddr,
        /// What it calls itself.
        #[arg(long, default_value = "mock")]
        name: String,
    },
    /// Make the certificates of a cluster.
    Certs {
        #[command(subcommand)]
        verb: CertsVerb,
    },
    /// Print the completions of a shell, to be sourced by it.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    #[command(flatten)]
    Operate(operate::Verb),
}

/// How an answer is printed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For programs; of the admin API exactly what it answered.
    Json,
}

#[derive(Subcommand)]
enum ImportFrom {
    /// The config.yaml of a LiteLLM proxy; ours goes to stdout, what to know about it to stderr.
    #[command(after_help = help::LOCAL_CODES)]
    Litellm {
        /// The file; - reads standard input.
        file: PathBuf,
        /// How it is printed: text, or json with yaml, notes and warnings.
        #[arg(
            short,
            long,
            value_name = "FORMAT",
            default_value = "text",
            hide_possible_values = true
        )]
        output: Output,
    },
}

#[derive(Subcommand)]
enum CertsVerb {
    /// Make a certificate authority: ca.crt and ca.key.
    Init {
        /// Where its files are.
        #[arg(long, value_name = "DIRECTORY", default_value = ".")]
        dir: PathBuf,
    },
    /// Make a node's certificate: NODE.crt and NODE.key.
    Issue {
        /// The node's id.
        node: String,
        /// Where the authority's files are and the node's go.
        #[arg(long, value_name = "DIRECTORY", default_value = ".")]
        dir: PathBuf,
    },
    /// Make what is missing: the authority, and the certificate of each node; what is there stays.
    Ensure {
        /// The nodes' ids.
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
        /// Where all files are.
        #[arg(long, value_name = "DIRECTORY", default_value = ".")]
        dir: PathBuf,
    },
}

/// Reads the arguments of the process, does what they say, and tells how it went.
pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            let is_wrong = error.use_stderr();
            return if is_wrong { ExitCode::from(WRONG_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match dispatch(arguments.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message, word: _ }) => {
            eprintln!("quorumgate: {}", text::plain(&message));
            ExitCode::from(code)
        }
    }
}

fn dispatch(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Serve { config } => run::serve(&config),
        Verb::Demo { exit } => run::demo(exit),
        Verb::Check { file, output } => tools::check(&file, output),
        Verb::Schema { output: _ } => tools::schema(),
        Verb::Import { from: ImportFrom::Litellm { file, output } } => {
            tools::import_litellm(&file, output)
        }
        Verb::Replay { log, config, output } => tools::replay(&log, &config, output),
        Verb::Mock { listen, name } => run::mock(listen, &name),
        Verb::Certs { verb: CertsVerb::Init { dir } } => tools::certs_init(&dir),
        Verb::Certs { verb: CertsVerb::Issue { node, dir } } => tools::certs_issue(&dir, &node),
        Verb::Certs { verb: CertsVerb::Ensure { nodes, dir } } => tools::certs_ensure(&dir, &nodes),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            let mut command = Arguments::command();
            clap_complete::generate(shell, &mut command, "quorumgate", &mut script);
            say(&String::from_utf8_lossy(&script))
        }
        Verb::Operate(verb) => operate::run(verb),
    }
}

/// Writes `text` to stdout. A reader that has read enough, as `head` does, is no failure.
fn say(text: &str) -> Result<(), Failure> {
    is_read(text).map(drop)
}

/// Writes `text` to stdout; whether anybody still reads it.
fn is_read(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::unavailable(format!("stdout: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_overview_names_every_verb_and_fits_eighty_columns() {
        let mut command = Arguments::command();
        command.build();
        for verb in command.get_subcommands() {
            let name = verb.get_name();
            let is_named = |line: &str| line.split_whitespace().next() == Some(name);
            assert!(help::OVERVIEW.lines().any(is_named), "{name} is not in the overview");
        }
        for line in help::OVERVIEW.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

//! The command line: one binary, one verb a task, one line an error.
//!
//! Exit codes: 0 done, 64 the command or the configuration is wrong, 69 something needed is not
//! there, 70 a story did not go as told.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command speaks on its streams")]

use std::fs::File;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gateway::app::{App, Origin, Relevel};
use gateway::config::{self, Config, LogFormat};
use gateway::demo;
use gateway::handles;
use gateway::lines::Lines;
use gateway::mock::{self, Mock};
use gateway::replay;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The command or the configuration is wrong (EX_USAGE).
const WRONG_USAGE: u8 = 64;
/// Something needed is not there, a port for example (EX_UNAVAILABLE).
const UNAVAILABLE: u8 = 69;
/// The story did not go as told (EX_SOFTWARE).
const STORY_FAILED: u8 = 70;

/// Threads for the cluster and the operators; the data plane has its own.
const CONTROL_THREADS: usize = 2;

#[derive(Parser)]
#[command(name = "quorumgate", version, about = "An LLM gateway fleet that decides by quorum")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a gateway.
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
    Check {
        /// The configuration file.
        file: PathBuf,
    },
    /// Run a recorded access log through the breakers and tell when each would have tripped.
    Replay {
        /// The access log: one JSON object a line.
        log: PathBuf,
        /// The configuration whose thresholds are tried.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Print JSON.
        #[arg(short, long, value_name = "FORMAT")]
        output: Option<Output>,
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
}

/// How a report is printed.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Output {
    /// One JSON document.
    Json,
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
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            let is_wrong = error.use_stderr();
            return if is_wrong { ExitCode::from(WRONG_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match run(arguments.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, message)) => {
            eprintln!("quorumgate: {message}");
            ExitCode::from(code)
        }
    }
}

fn run(verb: Verb) -> Result<(), (u8, String)> {
    match verb {
        Verb::Serve { config: file } => {
            let config = read(&file)?;
            let (lines, relevel) = log_as(config.log.format, &config.log.level)?;
            handles::raise();
            let origin = Origin { file: Some(file), relevel: Some(relevel) };
            control()?.block_on(serve(&config, origin, &lines))
        }
        Verb::Demo { exit } => {
            control()?.block_on(demo::run(exit)).map_err(|error| (STORY_FAILED, error))
        }
        Verb::Check { file } => {
            print!("{}", read(&file)?.effective_yaml());
            Ok(())
        }
        Verb::Replay { log, config, output } => {
            let config = read(&config)?;
            let failed = |error: &dyn std::error::Error| (UNAVAILABLE, chain(error));
            let file = std::fs::File::open(&log)
                .map_err(|error| (UNAVAILABLE, format!("{}: {error}", log.display())))?;
            let report = replay::run(std::io::BufReader::new(file), &config)
                .map_err(|error| failed(&error))?;
            match output {
                Some(Output::Json) => println!("{}", report.json()),
                None => print!("{}", report.text()),
            }
            Ok(())
        }
        Verb::Mock { listen, name } => {
            let (_lines, _) = log_as(LogFormat::Text, "info")?;
            control()?.block_on(serve_mock(listen, &name))
        }
        Verb::Certs { verb } => {
            let made = match verb {
                CertsVerb::Init { dir } => gossip::certs::init(&dir),
                CertsVerb::Issue { node, dir } => gossip::certs::issue(&dir, &node),
            };
            made.map_err(|error| (UNAVAILABLE, chain(&error)))
        }
    }
}

fn read(path: &std::path::Path) -> Result<Config, (u8, String)> {
    config::read(path).map_err(|error| (WRONG_USAGE, error.to_string()))
}

/// The runtime for everything but the data plane.
fn control() -> Result<tokio::runtime::Runtime, (u8, String)> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .enable_all()
        .build()
        .map_err(|error| (UNAVAILABLE, format!("no threads: {error}")))
}

/// Logs to stderr by a thread of its own, panics too: whoever serves must not wait for a reader. What
/// is returned beside it sets the level anew.
fn log_as(format: LogFormat, level: &str) -> Result<(Lines, Relevel), (u8, String)> {
    let lines = stderr().and_then(Lines::start);
    let lines = lines.map_err(|error| (UNAVAILABLE, format!("no log: {error}")))?;
    let writer = lines.writer();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter(level))
        .with_writer(move || writer.clone())
        // They would be told on stderr, by whoever serves.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    let relevel: Relevel = match format {
        LogFormat::Text => {
            let log = log.with_filter_reloading();
            let handle = log.reload_handle();
            log.init();
            Box::new(move |level| drop(handle.reload(filter(level))))
        }
        LogFormat::Json => {
            let log = log.json().flatten_event(true).with_filter_reloading();
            let handle = log.reload_handle();
            log.init();
            Box::new(move |level| drop(handle.reload(filter(level))))
        }
    };
    std::panic::set_hook(Box::new(|info| tracing::error!(panic = %info, "a fault of our own")));
    Ok((lines, relevel))
}

fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"))
}

/// A handle of stderr for one thread alone: the library's is locked while it writes, and others have
/// a last word to say there.
fn stderr() -> io::Result<File> {
    Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?))
}

async fn serve(config: &Config, origin: Origin, lines: &Lines) -> Result<(), (u8, String)> {
    let unavailable = |error: String| (UNAVAILABLE, error);
    // Signals are heard from the start, so that one during start-up is not lost.
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|error| unavailable(error.to_string()))?;
    let mut hang_up =
        signal(SignalKind::hangup()).map_err(|error| unavailable(error.to_string()))?;
    let app = App::start_from(config, origin).await.map_err(|error| unavailable(chain(&error)))?;
    lines.count(app.meters.counter("log_lines_lost_total", &[]));
    tracing::info!(clients = %app.address, operators = %app.admin_address,
        gossip = ?app.gossip_address, node = %app.seat.me, "serving");
    let hear_reloads = async {
        while hang_up.recv().await.is_some() {
            // What became of it is in the log.
            let _ = app.reload.reload().await;
        }
        std::future::pending().await
    };
    tokio::select! {
        () = hear_reloads => {}
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    tracing::info!("draining");
    app.shutdown().await;
    Ok(())
}

async fn serve_mock(listen: SocketAddr, name: &str) -> Result<(), (u8, String)> {
    let failed = |error: std::io::Error| (UNAVAILABLE, format!("{listen}: {error}"));
    let listener = tokio::net::TcpListener::bind(listen).await.map_err(failed)?;
    tracing::info!(address = %listener.local_addr().map_err(failed)?, name, "mock model server");
    tokio::select! {
        served = mock::serve(listener, Mock::new(name)) => served.map_err(failed),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line = format!("{line}: {cause}");
        source = cause.source();
    }
    line
}

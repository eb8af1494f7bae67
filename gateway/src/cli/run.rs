//! The verbs that run something until they are told to stop: a gateway, the demo, a mock.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use gateway::app::{App, Origin, Relevel};
use gateway::config::{self, Config, LogFormat};
use gateway::demo;
use gateway::handles;
use gateway::lines::Lines;
use gateway::mock::{self, Mock};
use gateway::supervisor::{Stage, Supervisor};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::failure::{Failure, INTERRUPTED, TERMINATED};

/// Threads for the cluster and the operators; the data plane has its own.
const CONTROL_THREADS: usize = 2;
/// When everything has ended, calls into the system that still run get this long.
const LEFTOVERS_MAX: Duration = Duration::from_millis(500);
/// What an end takes beside the drain that is configured: the last word to the fleet, the state file, and
/// a machine under load.
const END: Duration = Duration::from_secs(15);

/// Runs a gateway until it is told to stop.
pub(super) fn serve(file: &Path) -> Result<(), Failure> {
    let config = read(file)?;
    let (lines, relevel) = log_as(config.log.format, &config.log.level)?;
    handles::raise();
    let origin = Origin { file: Some(file.to_owned()), relevel: Some(relevel) };
    under_control(run(&config, origin, &lines))
}

/// Tells the demo's story.
pub(super) fn demo(exit: bool) -> Result<(), Failure> {
    under_control(async { demo::run(exit).await.map_err(Failure::story) })
}

/// Runs a model server that fails on demand.
pub(super) fn mock(listen: SocketAddr, name: &str) -> Result<(), Failure> {
    let (_lines, _) = log_as(LogFormat::Text, "info")?;
    under_control(serve_mock(listen, name))
}

/// Reads a configuration file.
pub(super) fn read(path: &Path) -> Result<Config, Failure> {
    config::read(path).map_err(|error| Failure::usage(error.to_string()))
}

/// Runs `deed` on the runtime for everything but the data plane. What it leaves behind, a name that no
/// resolver answers or a worker that does not end, is waited for no longer than [`LEFTOVERS_MAX`].
fn under_control(deed: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .enable_all()
        .build()
        .map_err(|error| Failure::unavailable(format!("no threads: {error}")))?;
    let done = runtime.block_on(deed);
    runtime.shutdown_timeout(LEFTOVERS_MAX);
    done
}

/// Logs to stderr by a thread of its own, panics too: whoever serves must not wait for a reader. What
/// is returned beside it sets the level anew.
fn log_as(format: LogFormat, level: &str) -> Result<(Lines, Relevel), Failure> {
    let lines = stderr().and_then(Lines::start);
    let lines = lines.map_err(|error| Failure::unavailable(format!("no log: {error}")))?;
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

/// What is logged. Who ordered what is, whatever the level: the last directive for a target counts. What
/// h2 warns of is what others send, a line for each frame: whoever wants to see it asks for it.
fn filter(level: &str) -> EnvFilter {
    let with_audit =
        |level: &str| EnvFilter::try_new(format!("h2=error,hyper=error,{level},audit=warn"));
    with_audit(level).or_else(|_| with_audit("info")).unwrap_or_default()
}

/// A handle of stderr for one thread alone: the library's is locked while it writes, and others have
/// a last word to say there.
fn stderr() -> io::Result<File> {
    Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?))
}

async fn run(config: &Config, origin: Origin, lines: &Lines) -> Result<(), Failure> {
    // Signals are heard from the start, so that one during start-up is not lost.
    let deaf = |error: io::Error| Failure::unavailable(error.to_string());
    let mut terminate = signal(SignalKind::terminate()).map_err(deaf)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(deaf)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(deaf)?;
    let app = App::start_from(config, origin).await;
    let app = app.map_err(|error| Failure::cured(&error, error.cure()))?;
    lines.count(app.meters.counter("log_lines_lost_total", &[]));
    tracing::info!(clients = %app.address, operators = %app.admin_address,
        gossip = ?app.gossip_address, node = %app.seat.me, "serving");
    let supervisor = Supervisor::from_environment();
    supervisor.tell(Stage::Ready);
    let mut refused = app.reload.refused();
    let hear_reloads = async {
        loop {
            tokio::select! {
                heard = hang_up.recv() => match heard {
                    Some(()) => {
                        supervisor.tell(Stage::Reloading);
                        // What became of it is in the log, and told below.
                        let _ = app.reload.reload().await;
                    }
                    None => std::future::pending().await,
                },
                // Whoever else has asked for a reload: an operator, or the file itself.
                followed = refused.changed() => if followed.is_err() {
                    std::future::pending().await
                },
            }
            match refused.borrow_and_update().as_deref() {
                None => supervisor.tell(Stage::Ready),
                Some(why) => supervisor.tell(Stage::Refused(why)),
            }
        }
    };
    tokio::select! {
        () = hear_reloads => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    let drain = &app.reload.config().server;
    supervisor.tell(Stage::Stopping(drain.drain_delay + drain.drain_timeout + END));
    let hurry = app.hurry();
    let mut leaving = pin!(app.shutdown());
    let code = tokio::select! {
        () = leaving.as_mut() => return Ok(()),
        _ = terminate.recv() => TERMINATED,
        _ = interrupt.recv() => INTERRUPTED,
    };
    hurry.up();
    leaving.await;
    Err(Failure::hurried(code))
}

async fn serve_mock(listen: SocketAddr, name: &str) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::unavailable(format!("{listen}: {error}; choose another with --listen"))
    };
    let listener = tokio::net::TcpListener::bind(listen).await.map_err(failed)?;
    tracing::info!(address = %listener.local_addr().map_err(failed)?, name, "mock model server");
    // The first process of a container has no signal that ends it but those it hears.
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    tokio::select! {
        served = mock::serve(listener, Mock::new(name)) => served.map_err(failed),
        _ = tokio::signal::ctrl_c() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn no_level_silences_the_audit() {
        for level in
            ["error", "off", "warn", "audit=off", "info,audit=error", "audit=error,off", "=="]
        {
            let log = tracing_subscriber::registry().with(filter(level));
            tracing::subscriber::with_default(log, || {
                assert!(tracing::enabled!(target: "audit", tracing::Level::WARN), "{level}");
            });
        }
        let log = tracing_subscriber::registry().with(filter("error"));
        tracing::subscriber::with_default(log, || {
            assert!(!tracing::enabled!(target: "gateway", tracing::Level::WARN));
        });
    }
}

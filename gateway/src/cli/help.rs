//! What the command line says about itself.
//!
//! The overview is read by somebody who has never seen it, at night: the verbs by what one wants,
//! each with a line that can be typed as it stands. A test holds it against the verbs there are.

/// `quorumgate --help`.
pub(super) const OVERVIEW: &str = "\
An LLM gateway fleet that decides by quorum

Usage: quorumgate VERB [OPTIONS]

Look (which endpoint is out, and why?)
  endpoints   in or out, one line each    quorumgate endpoints
  explain     the whole why of one        quorumgate explain llama-70b/gpu-a
  members     the gateways of the fleet   quorumgate members
  cluster     can it decide?              quorumgate cluster
  config      the configuration in force  quorumgate config
  health      alive? or ready for clients quorumgate health --ready
  events      what happens, followed      quorumgate events
  top         all of it, live             quorumgate top

Act (on every node; whatever is ordered is written down with its reason)
  close       force an endpoint back in   quorumgate close gpu-a --for 10m
  open        force an endpoint out       quorumgate open gpu-a --for 1h \\
                                              --reason maintenance
  auto        back to the automatic rule  quorumgate auto gpu-a
  drain       no new clients for a node   quorumgate drain gw-2
  leave       drain, and vote no more     quorumgate leave gw-2
  forget      drop a lost node            quorumgate forget gw-2
  join        further nodes to ask        quorumgate join gw-4.gw:7946
  reload      read the file again         quorumgate reload

Run
  serve       a gateway                   quorumgate serve --config gw.yaml
  demo        three of them, one story    quorumgate demo
  mock        a model server that fails   quorumgate mock --name gpu-a

Tools
  check       validate a configuration    quorumgate check gw.yaml
  schema      its JSON Schema             quorumgate schema > quorumgate.json
  import      from another gateway        quorumgate import litellm config.yaml
  replay      try thresholds on a log     quorumgate help replay
  certs       certificates of a fleet     quorumgate certs init
  completions for your shell              quorumgate completions bash
  help        of one verb                 quorumgate help open

Which gateway is asked: --admin HOST:PORT or QUORUMGATE_ADMIN, 127.0.0.1:9090 if
neither is given. The token: QUORUMGATE_TOKEN or --token-file FILE.
-o json prints what the admin API answered, for programs.

Exit codes: 0 done, 64 the command or configuration is wrong, 65 refused (no
such endpoint or member, or not as things stand), 69 something is not there (a
gateway, a port, a file), 70 the demo's story failed, 77 the token does not
allow it.
";

/// Below the help of every verb that asks a gateway.
pub(super) const CODES: &str = "\
The token is taken from QUORUMGATE_TOKEN or from --token-file.
Exit codes: 0 done, 64 the command is wrong, 65 refused (no such endpoint or
member, or not as things stand), 69 no answer, 77 the token does not allow it.";

/// Below the help of `health`.
pub(super) const HEALTH: &str = "\
No token is needed. It is what HEALTHCHECK of an image and an exec probe run.
Exit codes: 0 it is, 64 the command is wrong, 69 it is not, or no answer.";

/// Below the help of every verb that asks nobody.
pub(super) const LOCAL_CODES: &str = "Exit codes: 0 done, 64 the command or the file is wrong.";

/// Below the help of `serve`.
pub(super) const SERVE: &str = "\
SIGHUP reads the configuration again; SIGTERM and SIGINT drain, and a second one
ends the drain at once.
Exit codes: 0 drained, 64 the configuration is wrong, 69 something is not there
(a port, a file), 130 and 143 a second SIGINT or SIGTERM cut what was running.";

/// Below the help of `events`.
pub(super) const EVENTS: &str = "\
One line an event: when (UTC), kind, endpoint, node, what. With -o json one JSON
object a line. A connection that breaks is made again, and goes on where it broke.
Kinds: breaker, vote, flip, probe, canary, member, override, config, drain, gap.

  quorumgate events --since 0 --no-follow      # what is kept
  quorumgate events -o json | jq 'select(.kind == \"flip\")'

The token is taken from QUORUMGATE_TOKEN or from --token-file.
Exit codes: 0 ended, 64 the command is wrong, 65 refused, 69 no answer, 77 the
token does not allow it.";

/// Below the help of `top`.
pub(super) const TOP: &str = "\
Keys: q quits, j and k (or the arrows) scroll. What is out comes first. Where the
output is no terminal, it is printed once. NO_COLOR is obeyed.

The token is taken from QUORUMGATE_TOKEN or from --token-file.
Exit codes: 0 ended, 64 the command is wrong, 69 no answer, 77 the token does not
allow it.";

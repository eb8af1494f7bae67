//! Every name on the page, and what it means: the text that stands in `# HELP`.
//!
//! Units are in the names, as Prometheus has it: seconds, bytes, and whole counts elsewhere.

use metrics::{KeyName, Recorder};

/// Names without the prefix of ours, with what they mean.
const OURS: [(&str, &str); 87] = [
    ("accept_errors_total", "Connections that could not be accepted, by listener and why."),
    (
        "admission_rejects_total",
        "Requests refused before a pool was asked, by the code of the error.",
    ),
    ("attempts_total", "Requests sent to an endpoint, probes included, by how they went."),
    ("body_memory_bytes", "Memory that is taken by bodies that are held."),
    (
        "body_memory_full_total",
        "How often there was no memory for a body: a request was refused, or an answer passed on unseen.",
    ),
    ("body_memory_max_bytes", "Most memory that bodies may take that are held."),
    (
        "breaker_state",
        "0 closed, 1 open, 2 half-open: this node's breaker (local), or the fleet's word (cluster).",
    ),
    (
        "breaker_transitions_total",
        "Changes of this node's breaker, by state before and after and why.",
    ),
    ("build_info", "1, with the version of the program."),
    ("canary_in_flight", "Clients' requests that try an endpoint on its way back."),
    (
        "client_connections_cut_total",
        "Connections of clients that were ended because nothing moved, by where.",
    ),
    (
        "client_connections_full_total",
        "How often a worker had all the connections of clients that it may have.",
    ),
    ("client_connections_max", "Connections that clients may have, all workers together."),
    (
        "cluster_flips_total",
        "Endpoints that the fleet took out (open) or let in again (close), as this node saw it.",
    ),
    ("config_info", "1, with the hash of the settings that all nodes are to share."),
    (
        "config_last_reload_success",
        "1 unless the last attempt to load the configuration has failed.",
    ),
    (
        "config_loaded_timestamp_seconds",
        "When the configuration that holds was loaded, since 1970.",
    ),
    ("config_reloads_total", "Attempts to load the configuration anew, by result."),
    ("connections_failed_total", "Connections to an endpoint that did not come about, by reason."),
    ("electorate", "Members that count for a majority."),
    (
        "endpoint_open_seconds_total",
        "Seconds in which this node sent nothing to an endpoint (local), or the fleet had it out (cluster); its rate is the share of time.",
    ),
    (
        "evidence_total",
        "What spoke against an endpoint, by kind; deduped if it was more of what was known.",
    ),
    ("fallbacks_total", "Requests for a model that another model has answered."),
    (
        "flip_latency_seconds",
        "Time from this node's first knowledge of an opening to the fleet's verdict.",
    ),
    ("gossip_bytes_in_total", "Bytes of frames of gossip taken in."),
    ("gossip_bytes_out_total", "Bytes of frames of gossip sent."),
    (
        "gossip_certificate_end_timestamp_seconds",
        "Until when this node's certificate for gossip is good, in seconds since 1970.",
    ),
    ("gossip_connections", "Open connections to members."),
    ("gossip_digest_bytes", "Size of the digest of all lives of nodes."),
    ("gossip_duplicates_total", "How often another process was found under this node's name."),
    ("gossip_frames_in_total", "Frames of gossip taken in."),
    ("gossip_frames_out_total", "Frames of gossip sent."),
    ("gossip_handshakes_refused_total", "Handshakes between nodes that failed."),
    ("gossip_lives", "Lives of nodes that are told on, past ones included."),
    ("gossip_pushes_in_total", "News taken from members directly."),
    ("gossip_pushes_out_total", "News sent to members directly."),
    ("gossip_rejects_total", "Frames and records thrown away, by reason."),
    ("gossip_restarts_total", "How often the task of gossip ended and was started again."),
    ("gossip_rounds_total", "Rounds of gossip begun."),
    (
        "gossip_send_queue_drops_total",
        "Frames that were not sent since a queue was full or a peer out of reach.",
    ),
    (
        "gossip_unstated_total",
        "Statements of this node that are beyond the bounds and were not carried.",
    ),
    ("guard_refusals_total", "Requests that were refused before they were understood, by why."),
    ("has_quorum", "1 while more than half of the electorate is live in this node's eyes."),
    ("in_flight", "Requests that an endpoint is busy with for this node."),
    (
        "ledger_conflicts_total",
        "Calls that met something newer in Redis than this node knew, and began again from it.",
    ),
    (
        "limit_asks_total",
        "Requests for which the fleet's ledger was asked about a limit, by what it said in time.",
    ),
    (
        "limit_corrections_lost_total",
        "Corrections of limits that did not reach the fleet's ledger: estimates stand instead.",
    ),
    ("limit_share", "The part of every limit that this node holds, 0 to 1."),
    ("log_lines_lost_total", "Lines of the log that nobody took."),
    ("members", "Members of the fleet by state, this node included."),
    ("name_used_twice", "1 while another process uses this node's name."),
    ("node_suspect", "1 for a member that accuses nearly everything alone."),
    (
        "overhead_seconds",
        "Time that a request spent in the gateway up to its first content, waits for client and upstream left out.",
    ),
    ("panics_total", "Faults of our own, each of which ended one stream."),
    (
        "passed_through_total",
        "Requests sent to an endpoint that is presumed dead, since all of its model are.",
    ),
    ("pool_all_open", "1 while every endpoint of a model is out."),
    ("pool_all_open_seconds_total", "Seconds in which every endpoint of a model was out."),
    ("probe_cache_readings_total", "Looks at how full an engine's cache is, by result."),
    ("probes_total", "Synthetic requests of this node, by result."),
    ("quorum_required", "Votes that make a majority."),
    ("redis_errors_total", "Calls to Redis that failed, by what was wrong."),
    (
        "redis_fallback_seconds_total",
        "Seconds in which something else decided since Redis was away.",
    ),
    ("redis_operation_seconds", "Seconds that calls to Redis took, by script."),
    ("redis_reconnects_total", "Connections to Redis that were made anew."),
    ("redis_up", "1 while the fleet decides through Redis, as this node sees it."),
    ("requests_total", "Requests of a model by the status of the answer; 499: the client left."),
    ("retries_total", "Further attempts, by what the one before failed of."),
    (
        "retry_budget_exhausted_total",
        "Further attempts that were not made since the budget was spent.",
    ),
    ("roll_beats_total", "Signs of life written to Redis by a node that does not gossip."),
    ("roll_duplicates_total", "Times another process was found in Redis under this node's name."),
    (
        "roll_failures_total",
        "Calls about the roll of members in Redis that were not answered well.",
    ),
    ("roll_readings_total", "Readings of the roll of members in Redis."),
    (
        "roll_rows_ignored_total",
        "Rows of the roll in Redis that could not be read, at each reading.",
    ),
    ("self_lag_seconds", "How late this process was when it last looked."),
    ("slow_crossings_total", "Requests that crossed a slow limit."),
    ("spans_exported_total", "Spans of traces that the collector took."),
    ("spans_lost_total", "Spans of traces that it did not, by reason."),
    (
        "stale_connections_total",
        "Requests sent once more because their connection was just ending.",
    ),
    ("state_writes_total", "Writes of the state file, by result."),
    ("stream_aborts_total", "Streams that ended before their time, by the side that ended them."),
    (
        "stream_events_unreadable_total",
        "Events of streams that could not be read and were passed on.",
    ),
    (
        "tenant_breaker_transitions_total",
        "Changes of tenants' breakers, by state before and after and why.",
    ),
    ("tenant_breakers", "Tenants that an endpoint remembers."),
    ("tenant_breakers_out", "Tenants that an endpoint does not serve."),
    ("upstream_errors_total", "What endpoints did wrong or asked for, by kind."),
    ("upstream_misconfigured", "1 while an endpoint refuses the gateway's credential."),
    ("votes", "Votes against an endpoint that count."),
];

/// OpenTelemetry's names, which carry no prefix of ours.
const GEN_AI: [(&str, &str); 4] = [
    (super::REQUEST_DURATION, "Seconds from a request to the end of its answer."),
    (super::FIRST_TOKEN, "Seconds from a request to the first content of its answer."),
    (
        super::PER_OUTPUT_TOKEN,
        "Seconds from one token of a stream to the next, the mean of an answer.",
    ),
    (super::TOKEN_USAGE, "Tokens of one prompt or answer, as reported."),
];

/// Tells the recorder what each name means.
pub(super) fn describe(recorder: &impl Recorder) {
    let ours = OURS.iter().map(|(name, help)| (format!("quorumgate_{name}"), *help));
    let gen_ai = GEN_AI.iter().map(|(name, help)| ((*name).to_owned(), *help));
    for (name, help) in ours.chain(gen_ai) {
        // The recorder keeps one list of texts, whatever it is that they describe.
        recorder.describe_gauge(KeyName::from(name), None, help.into());
    }
}

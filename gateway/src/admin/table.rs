//! Every route of the operators' listener but the page: the one list that answers, and that documents.

use schemars::JsonSchema;
use serde_json::Value;

use super::members::{Asked, Join, Joined, Why};
use super::orders::{Muted, Order, Ordered};
use super::route::{
    Access, BODY_BYTES_MAX, BodyOf, Deed, Extra, Parameter, Route, Values, schema_of,
};
use super::view::cluster::Cluster;
use super::view::endpoint::EndpointRow;
use super::view::explain::Explained;
use super::view::health::{Health, Readiness};
use super::view::list::{Endpoints, LIMIT_MAX};
use super::view::member::Members;
use super::{deeds, documents, feed, members};
use crate::events::Kind;

/// Where events are followed from.
const FOLLOW: &[Parameter] = &[
    Parameter {
        name: "since",
        about: "The id of the last event that is known, or 0 for all that is kept; from now on if left \
            out. The header Last-Event-ID says the same.",
        values: Values::Text("^(0|[0-9]{1,18}-[0-9]{1,18})$"),
    },
    Parameter {
        name: "until",
        about: "now: the answer ends after what is kept.",
        values: Values::OneOf(&["now"]),
    },
];

/// Which endpoints are wanted.
const WANTED: &[Parameter] = &[
    Parameter {
        name: "pool",
        about: "Those of this pool only.",
        values: Values::Text("^.{1,256}$"),
    },
    Parameter {
        name: "state",
        about: "Those that requests are sent to, or those that they are not.",
        values: Values::OneOf(&["in", "out"]),
    },
    Parameter {
        name: "limit",
        about: "At most so many; `after` in the answer tells where the next page begins.",
        values: Values::Whole(1, LIMIT_MAX as u64),
    },
    Parameter {
        name: "after",
        about: "Those behind this one, as the last page said.",
        values: Values::Text("^.{1,512}$"),
    },
];

const fn json_body<T: JsonSchema>() -> BodyOf {
    BodyOf {
        kind: "application/json",
        schema: schema_of::<T>,
        is_optional: false,
        bytes_max: BODY_BYTES_MAX,
    }
}

const fn optional_body<T: JsonSchema>() -> BodyOf {
    BodyOf { is_optional: true, ..json_body::<T>() }
}

/// A configuration, which is larger than other bodies.
const YAML: BodyOf = BodyOf {
    kind: "application/yaml",
    schema: schema_of::<String>,
    is_optional: false,
    bytes_max: 4 * 1024 * 1024,
};

const NOT_RELOADED: &[Extra] =
    &[Extra { status: 409, about: "The file cannot be taken on; the old configuration holds." }];
const STUCK: &[Extra] =
    &[Extra { status: 503, about: "The loop that follows the fleet stands still: restart it." }];
const NOT_READY: &[Extra] =
    &[Extra { status: 503, about: "No clients should be sent here; the reasons say why." }];
const TOO_MANY_FOLLOWERS: &[Extra] =
    &[Extra { status: 503, about: "As many as may follow the events do so already." }];
const UNCONFIRMED: &[Extra] = &[Extra {
    status: 409,
    about: "It would take the last endpoint of its pool out; `confirm: true` does it all the same.",
}];
const NOT_LOST: &[Extra] = &[Extra { status: 409, about: "The member is not lost." }];
const NOT_ASKED: &[Extra] =
    &[Extra { status: 409, about: "The member is lost, or this node has left the fleet." }];
const NOT_JOINED: &[Extra] = &[
    Extra { status: 409, about: "This node belongs to no fleet, or has left it." },
    Extra { status: 503, about: "The last seeds are still being taken." },
];

/// The routes. No two have the same method and fit the same path.
pub(super) static ROUTES: &[Route] = &[
    Route::look("healthz", "health", Deed::Now(deeds::health))
        .summary("Whether the process is alive.")
        .access(Access::Anyone)
        .json::<Health>()
        .extras(STUCK),
    Route::look("readyz", "readiness", Deed::Now(deeds::readiness))
        .summary("Whether clients should be sent here; the sentences are for who shows a token.")
        .access(Access::Guest)
        .json::<Readiness>()
        .extras(NOT_READY),
    Route::look("metrics", "metrics", Deed::Later(deeds::metrics))
        .summary("What is counted, as Prometheus reads it.")
        .access(Access::Scraper)
        .text("text/plain"),
    Route::look("admin/v1/openapi.json", "describe", Deed::Now(deeds::describe))
        .summary("This document.")
        .json::<Value>(),
    Route::look("admin/v1/whoami", "whoami", Deed::Now(deeds::whoami))
        .summary("What the token that is shown allows, and which node answers.")
        .json::<deeds::Whoami<'_>>(),
    Route::look("admin/v1/members", "members", Deed::Now(deeds::members))
        .summary("Who belongs to the fleet, as this node counts it.")
        .json::<Members>(),
    Route::look("admin/v1/cluster", "cluster", Deed::Now(deeds::cluster))
        .summary("How large the fleet is, whether it can decide, how its talk goes.")
        .json::<Cluster>(),
    Route::look("admin/v1/events", "events", Deed::Now(feed::events))
        .summary("What happens, as server-sent events.")
        .query(FOLLOW)
        .text("text/event-stream")
        .extras(TOO_MANY_FOLLOWERS),
    Route::look("admin/v1/endpoints", "endpoints", Deed::Later(deeds::endpoints))
        .summary("Every endpoint: this node's breaker, the fleet's verdict, the votes.")
        .query(WANTED)
        .json::<Endpoints>(),
    Route::look("admin/v1/endpoints/{pool}/{name}", "endpoint", Deed::Now(deeds::endpoint))
        .summary("One endpoint, as the list shows it.")
        .json::<EndpointRow>(),
    Route::look("admin/v1/endpoints/{pool}/{name}/explain", "explain", Deed::Now(deeds::explain))
        .summary("Why an endpoint is in or out, what happens next and when, what happened lately.")
        .json::<Explained>(),
    Route::act(
        "admin/v1/endpoints/{pool}/{name}/override",
        "override",
        Kind::Override,
        Deed::Now(deeds::force),
    )
    .summary("Forces an endpoint out or in, or back to the automatic rule, on every node.")
    .body(json_body::<Order>())
    .json::<Ordered>()
    .extras(UNCONFIRMED),
    Route::look("admin/v1/config", "config", Deed::Now(deeds::config))
        .summary("The configuration as it holds, and what became of the last other one.")
        .schema(documents::config),
    Route::act("admin/v1/config/check", "check", Kind::Config, Deed::Later(deeds::check))
        .summary("Looks whether a configuration could be taken on; nothing changes.")
        .body(YAML)
        .schema(documents::checked)
        .changes_nothing(),
    Route::act("admin/v1/config/reload", "reload", Kind::Config, Deed::Later(deeds::reload))
        .summary(
            "Reads the configuration file again and takes on what it says, all of it or nothing.",
        )
        .schema(documents::reloaded)
        .extras(NOT_RELOADED),
    Route::act("admin/v1/members/{id}/drain", "drain", Kind::Drain, Deed::Now(members::drain))
        .summary("Asks a member to finish what it has and take no more; it stays a member.")
        .body(optional_body::<Why>())
        .json::<Asked>()
        .extras(NOT_ASKED),
    Route::act("admin/v1/members/{id}/leave", "leave", Kind::Drain, Deed::Now(members::leave))
        .summary("Asks for the same, and that it is out of the electorate at once.")
        .body(optional_body::<Why>())
        .json::<Asked>()
        .extras(NOT_ASKED),
    Route::act("admin/v1/members/{id}/forget", "forget", Kind::Member, Deed::Now(members::forget))
        .summary("Drops a lost member from the electorate, on every node.")
        .body(optional_body::<Why>())
        .json::<Asked>()
        .extras(NOT_LOST),
    Route::act("admin/v1/join", "join", Kind::Member, Deed::Now(members::join))
        .summary("Gossips with further seeds.")
        .body(json_body::<Join>())
        .json::<Joined>()
        .extras(NOT_JOINED),
    Route::act("admin/v1/members/{id}/mute", "mute", Kind::Member, Deed::Now(deeds::mute))
        .summary("Lets a member's votes and windows count no more on this node.")
        .json::<Muted>(),
    Route::act("admin/v1/members/{id}/unmute", "unmute", Kind::Member, Deed::Now(deeds::unmute))
        .summary("Lets them count again.")
        .json::<Muted>(),
];

//! What the routes do: each takes what was asked to the part that knows, and hands its answer back.

use std::future::ready;
use std::sync::Arc;

use hyper::StatusCode;
use quorum::EndpointKey;
use schemars::JsonSchema;
use serde::Serialize;

use super::route::{Asked, Later};
use super::table::ROUTES;
use super::view::list::Wanted;
use super::{Admin, Reply, openapi, orders};
use crate::clock;

pub(super) fn health(admin: &Admin, _: &Asked<'_>) -> Reply {
    admin.health()
}

pub(super) fn readiness(admin: &Admin, asked: &Asked<'_>) -> Reply {
    admin.readiness(asked.is_known)
}

pub(super) fn metrics(admin: Arc<Admin>, _: &Asked<'_>) -> Later {
    match admin.scrape.last(clock::now()) {
        Some(page) => Box::pin(ready(Reply::Text(StatusCode::OK, page))),
        None => aside(admin, |admin| {
            Reply::Text(StatusCode::OK, admin.scrape.page(clock::now, || admin.metrics()))
        }),
    }
}

pub(super) fn describe(admin: &Admin, _: &Asked<'_>) -> Reply {
    let fleet = admin.seat.fleet();
    let first = fleet.endpoints().next();
    let (pool, name) =
        first.map_or(("", ""), |(pool, one)| (pool.name.as_str(), one.config.name.as_str()));
    let examples = openapi::Examples { node: admin.seat.me.as_str(), pool, name };
    Reply::Json(StatusCode::OK, openapi::document(ROUTES, &examples))
}

/// What the token that is shown allows.
#[derive(Serialize, JsonSchema)]
pub(super) struct Whoami<'a> {
    /// `full`, or `read` for looking only.
    role: &'a str,
    /// The node that answers.
    node: &'a str,
}

pub(super) fn whoami(admin: &Admin, asked: &Asked<'_>) -> Reply {
    Reply::ok(&Whoami { role: asked.role.as_str(), node: admin.seat.me.as_str() })
}

pub(super) fn members(admin: &Admin, _: &Asked<'_>) -> Reply {
    Reply::ok(&admin.members())
}

pub(super) fn cluster(admin: &Admin, _: &Asked<'_>) -> Reply {
    Reply::ok(&admin.cluster())
}

pub(super) fn endpoints(admin: Arc<Admin>, asked: &Asked<'_>) -> Later {
    let wanted = match Wanted::new(asked.query.pairs()) {
        Ok(wanted) => wanted,
        Err(message) => return Box::pin(ready(Reply::invalid_query(message))),
    };
    aside(admin, move |admin| match admin.endpoints(&wanted) {
        Ok(endpoints) => Reply::ok(&endpoints),
        Err(message) => Reply::invalid_query(message),
    })
}

pub(super) fn endpoint(admin: &Admin, asked: &Asked<'_>) -> Reply {
    admin.endpoint(&key(asked)).map_or_else(orders::unknown_endpoint, |row| Reply::ok(&row))
}

pub(super) fn explain(admin: &Admin, asked: &Asked<'_>) -> Reply {
    admin.explain(&key(asked)).map_or_else(orders::unknown_endpoint, |found| Reply::ok(&found))
}

pub(super) fn config(admin: &Admin, _: &Asked<'_>) -> Reply {
    Reply::Json(StatusCode::OK, admin.reload.status().json())
}

pub(super) fn check(admin: Arc<Admin>, asked: &Asked<'_>) -> Later {
    let text = String::from_utf8(asked.body.to_vec());
    Box::pin(async move {
        let checked = match text {
            Ok(text) => admin.reload.check(text).await,
            Err(_) => Err("the text is not UTF-8; save it as UTF-8".to_owned()),
        };
        match checked {
            Ok(checked) => Reply::Json(StatusCode::OK, checked.json()),
            Err(message) => Reply::error(StatusCode::BAD_REQUEST, "invalid_config", message),
        }
    })
}

pub(super) fn reload(admin: Arc<Admin>, _: &Asked<'_>) -> Later {
    Box::pin(async move {
        match admin.reload.reload().await {
            Ok(reloaded) => Reply::Json(StatusCode::OK, reloaded.json()),
            Err(message) => Reply::error(StatusCode::CONFLICT, "invalid_config", message),
        }
    })
}

pub(super) fn force(admin: &Admin, asked: &Asked<'_>) -> Reply {
    orders::force(&admin.seat, &key(asked), &asked.body)
}

pub(super) fn mute(admin: &Admin, asked: &Asked<'_>) -> Reply {
    orders::mute(&admin.seat, asked.named("id"), true)
}

pub(super) fn unmute(admin: &Admin, asked: &Asked<'_>) -> Reply {
    orders::mute(&admin.seat, asked.named("id"), false)
}

/// Does what takes its time where nobody else waits for it.
fn aside(admin: Arc<Admin>, deed: impl FnOnce(&Admin) -> Reply + Send + 'static) -> Later {
    Box::pin(async move {
        let within = Arc::clone(&admin);
        let done = admin.aside.take(move || deed(&within)).await;
        done.unwrap_or_else(|| {
            let message = "The answer broke off half-way; see this node's log.";
            Reply::error(StatusCode::INTERNAL_SERVER_ERROR, "unwritable", message)
        })
    })
}

fn key(asked: &Asked<'_>) -> EndpointKey {
    EndpointKey::new(&format!("{}/{}", asked.named("pool"), asked.named("name")))
}

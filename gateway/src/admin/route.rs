//! What a route is: its path, who may ask, what goes in, what comes out, and what does it.
//!
//! Dispatch and the document that describes the API are both made of these, so that neither can say
//! what the other does not.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use hyper::header::HeaderMap;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::path::{Bound, query};
use super::{Admin, Reply};
use crate::events::Kind;

/// Where all of the API but health and metrics lies.
pub(super) const ROOT: &str = "/admin/v1/";

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Anyone: whoever watches a process need not hold its keys.
    Anyone,
    /// Anyone; who shows a token is told more.
    Guest,
    /// Anyone, unless the configuration protects the page of metrics.
    Scraper,
    /// Whoever holds a token.
    Reader,
    /// Whoever holds the full token.
    Operator,
}

/// A request on its way to what does it.
pub(super) struct Asked<'a> {
    /// What the names of the pattern stand for.
    pub(super) path: Bound,
    /// The query.
    pub(super) query: Bound,
    /// The headers.
    pub(super) headers: &'a HeaderMap,
    /// The body, empty for one that only looks.
    pub(super) body: Bytes,
    /// What the caller may do.
    pub(super) role: super::auth::Role,
    /// Whether the caller has shown a token, or none is asked for.
    pub(super) is_known: bool,
}

impl Asked<'_> {
    /// What a name of the pattern stands for.
    pub(super) fn named(&self, name: &str) -> &str {
        self.path.get(name).unwrap_or_default()
    }
}

/// An answer that takes its time.
pub(super) type Later = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// What does it.
#[derive(Clone, Copy)]
pub(super) enum Deed {
    /// At once.
    Now(fn(&Admin, &Asked<'_>) -> Reply),
    /// When it has done what takes time.
    Later(fn(Arc<Admin>, &Asked<'_>) -> Later),
}

/// How a schema is made.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What the body of an answer is.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// A document.
    Json(SchemaOf),
    /// A text of this media type.
    Text(&'static str),
}

/// What a body may be.
#[derive(Clone, Copy)]
pub(super) struct BodyOf {
    /// The media type it is described by; what the caller calls it is no matter.
    pub(super) kind: &'static str,
    /// How it is made.
    pub(super) schema: SchemaOf,
    /// Whether it may be left out.
    pub(super) is_optional: bool,
    /// Largest body.
    pub(super) bytes_max: usize,
}

/// Largest body, where nothing else is said.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;

/// What a parameter of a query may be.
#[derive(Clone, Copy)]
pub(super) enum Values {
    /// Any text that fits the pattern, which is for the document: the deed itself refuses what does not.
    Text(&'static str),
    /// One of these.
    OneOf(&'static [&'static str]),
    /// A whole number from the first to the second.
    Whole(u64, u64),
}

/// A parameter of a query.
#[derive(Clone, Copy)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) values: Values,
}

impl Parameter {
    fn check(&self, value: &str) -> Result<(), String> {
        let name = self.name;
        match self.values {
            Values::Text(_) => Ok(()),
            Values::OneOf(words) if words.contains(&value) => Ok(()),
            Values::OneOf(words) => Err(format!("{name} must be one of: {}.", words.join(", "))),
            Values::Whole(least, most) => {
                let is_plain = value.bytes().all(|byte| byte.is_ascii_digit());
                let number = value.parse().ok().filter(|_| is_plain);
                match number {
                    Some(number) if (least..=most).contains(&number) => Ok(()),
                    Some(_) | None => {
                        Err(format!("{name} must be a whole number from {least} to {most}."))
                    }
                }
            }
        }
    }
}

/// A refusal that does not follow from the rest of a route.
#[derive(Clone, Copy)]
pub(super) struct Extra {
    pub(super) status: u16,
    pub(super) about: &'static str,
}

/// One thing that can be asked.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) method: &'static Method,
    /// The path without its first slash; names stand in braces.
    pub(super) pattern: &'static str,
    /// The name of the operation.
    pub(super) id: &'static str,
    /// What it does, in one sentence.
    pub(super) summary: &'static str,
    pub(super) access: Access,
    pub(super) query: &'static [Parameter],
    pub(super) body: Option<BodyOf>,
    pub(super) answer: Answer,
    pub(super) extras: &'static [Extra],
    pub(super) deed: Deed,
    /// As what an order is told to those who follow, and that it is audited; `None`: it is no order.
    pub(super) news: Option<Kind>,
    /// Whether an order is told to those who follow.
    pub(super) is_told: bool,
}

impl Route {
    /// A route that only looks.
    pub(super) const fn look(pattern: &'static str, id: &'static str, deed: Deed) -> Self {
        Self {
            method: &Method::GET,
            pattern,
            id,
            summary: "",
            access: Access::Reader,
            query: &[],
            body: None,
            answer: Answer::Text("text/plain"),
            extras: &[],
            deed,
            news: None,
            is_told: true,
        }
    }

    /// A route that changes something, which is told as `news`.
    pub(super) const fn act(
        pattern: &'static str,
        id: &'static str,
        news: Kind,
        deed: Deed,
    ) -> Self {
        Self {
            method: &Method::POST,
            access: Access::Operator,
            news: Some(news),
            ..Self::look(pattern, id, deed)
        }
    }

    pub(super) const fn summary(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    pub(super) const fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    pub(super) const fn query(self, query: &'static [Parameter]) -> Self {
        Self { query, ..self }
    }

    pub(super) const fn body(self, body: BodyOf) -> Self {
        Self { body: Some(body), ..self }
    }

    pub(super) const fn json<T: JsonSchema>(self) -> Self {
        self.schema(schema_of::<T>)
    }

    pub(super) const fn schema(self, schema: SchemaOf) -> Self {
        Self { answer: Answer::Json(schema), ..self }
    }

    /// An order that only looks: it is written down, but nobody needs to hear of it.
    pub(super) const fn changes_nothing(self) -> Self {
        Self { is_told: false, ..self }
    }

    pub(super) const fn text(self, kind: &'static str) -> Self {
        Self { answer: Answer::Text(kind), ..self }
    }

    pub(super) const fn extras(self, extras: &'static [Extra]) -> Self {
        Self { extras, ..self }
    }

    /// Reads a query by what this route knows.
    ///
    /// # Errors
    /// What is wrong and what to give instead.
    pub(super) fn read_query(&self, text: &str) -> Result<Bound, String> {
        let names: Vec<&'static str> = self.query.iter().map(|one| one.name).collect();
        let bound = query(text, &names)?;
        for parameter in self.query {
            bound.get(parameter.name).map_or(Ok(()), |value| parameter.check(value))?;
        }
        Ok(bound)
    }

    /// Largest body that is read.
    pub(super) fn body_bytes_max(&self) -> usize {
        self.body.map_or(BODY_BYTES_MAX, |body| body.bytes_max)
    }
}

/// The schema of what is written as `T`.
pub(super) fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_takes_what_its_document_says() {
        let parameter = |values| Parameter { name: "x", about: "", values };
        let whole = parameter(Values::Whole(1, 10));
        for value in ["1", "10", "01"] {
            assert_eq!(whole.check(value), Ok(()), "{value}");
        }
        for value in ["", "0", "11", "+1", "-1", "1.0", "99999999999999999999", "one"] {
            assert!(whole.check(value).is_err(), "{value}");
        }
        let word = parameter(Values::OneOf(&["in", "out"]));
        assert_eq!(word.check("out"), Ok(()));
        assert!(word.check("Out").unwrap_err().contains("in, out"));
    }
}

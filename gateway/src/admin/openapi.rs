//! The document that describes the API, OpenAPI 3.1, made of the same routes that answer.
//!
//! What follows from how requests are met is said once here: which refusals a route can give by who may
//! ask and what goes in. Schemas are derived from the types that are written.

use std::collections::BTreeMap;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::answer::ErrorBody;
use super::path::name_of;
use super::route::{Access, Answer, Parameter, Route, Values, schema_of};

/// Names that exist, for whoever tries the document out.
pub(super) struct Examples<'a> {
    /// The node that answers.
    pub(super) node: &'a str,
    /// A pool.
    pub(super) pool: &'a str,
    /// An endpoint in it.
    pub(super) name: &'a str,
}

/// The document.
pub(super) fn document(routes: &[Route], examples: &Examples<'_>) -> Value {
    // What is left out of a body has a default, and what is written always stands in an answer.
    let mut generators = Generators {
        answers: generator(SchemaSettings::for_serialize),
        bodies: generator(SchemaSettings::for_deserialize),
    };
    let error = schema_of::<ErrorBody<'_>>(&mut generators.answers).to_value();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        let method = route.method.as_str().to_ascii_lowercase();
        let described = operation(route, examples, &mut generators, &error);
        paths.entry(format!("/{}", route.pattern)).or_default().insert(method, described);
    }
    let mut schemas = generators.answers.take_definitions(true);
    schemas.extend(generators.bodies.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "quorumgate admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": format!("What operators may ask of a gateway and order; here of node {}.", examples.node),
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "admin.token allows everything, admin.read_token looking only. \
                        Without any token configured nothing is asked for.",
                },
            },
        },
    })
}

/// What makes the schemas. No type is both an answer and a body, so that their names do not meet.
struct Generators {
    answers: SchemaGenerator,
    bodies: SchemaGenerator,
}

fn generator(contract: fn(SchemaSettings) -> SchemaSettings) -> SchemaGenerator {
    let mut settings = contract(SchemaSettings::draft2020_12());
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    settings.into_generator()
}

fn operation(
    route: &Route,
    examples: &Examples<'_>,
    generators: &mut Generators,
    error: &Value,
) -> Value {
    let names = route.pattern.split('/').filter_map(name_of);
    let parameters: Vec<Value> =
        names.map(|name| in_path(name, examples)).chain(route.query.iter().map(in_query)).collect();
    let mut described = json!({
        "operationId": route.id,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses(route, &mut generators.answers, error),
        "security": match route.access {
            Access::Anyone => json!([]),
            Access::Guest | Access::Scraper => json!([{}, { "token": [] }]),
            Access::Reader | Access::Operator => json!([{ "token": [] }]),
        },
    });
    if let (Some(body), Some(described)) = (route.body, described.as_object_mut()) {
        let schema = (body.schema)(&mut generators.bodies);
        let content = json!({ body.kind: { "schema": schema } });
        let body = json!({ "required": !body.is_optional, "content": content });
        described.insert("requestBody".to_owned(), body);
    }
    described
}

fn in_path(name: &str, examples: &Examples<'_>) -> Value {
    let (about, example) = match name {
        "pool" => ("The name of a model; a slash in it may be encoded or not.", examples.pool),
        "name" => ("The name of an endpoint within its pool.", examples.name),
        _ => ("The name of a member.", examples.node),
    };
    json!({
        "name": name, "in": "path", "required": true, "description": about,
        "schema": { "type": "string", "minLength": 1 }, "example": example,
    })
}

fn in_query(parameter: &Parameter) -> Value {
    let schema = match parameter.values {
        Values::Text(pattern) => json!({ "type": "string", "pattern": pattern }),
        Values::OneOf(words) => json!({ "type": "string", "enum": words }),
        Values::Whole(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
    };
    json!({
        "name": parameter.name, "in": "query", "required": false,
        "description": parameter.about, "schema": schema,
    })
}

fn responses(route: &Route, generator: &mut SchemaGenerator, error: &Value) -> Value {
    let mut responses = Map::new();
    let content = match route.answer {
        Answer::Json(schema) => json!({ "application/json": { "schema": schema(generator) } }),
        Answer::Text(kind) => json!({ kind: { "schema": { "type": "string" } } }),
    };
    let ok = json!({ "description": route.summary, "content": content.clone() });
    responses.insert("200".to_owned(), ok);
    for (status, about) in refusals(route) {
        let content = json!({ "application/json": { "schema": error } });
        responses.insert(status.to_string(), json!({ "description": about, "content": content }));
    }
    for extra in route.extras {
        // A document that says "not well" is the same document as the one that says "well".
        let content = match (route.access, route.answer) {
            (Access::Anyone | Access::Guest, Answer::Json(_)) => content.clone(),
            _ => json!({ "application/json": { "schema": error } }),
        };
        let described = json!({ "description": extra.about, "content": content });
        responses.insert(extra.status.to_string(), described);
    }
    Value::Object(responses)
}

/// The refusals that follow from how requests are met.
fn refusals(route: &Route) -> Vec<(u16, &'static str)> {
    let mut refusals = vec![(400, "The query, or the body, cannot be understood.")];
    let wants_token = match route.access {
        Access::Anyone | Access::Guest => false,
        Access::Scraper | Access::Reader | Access::Operator => true,
    };
    if wants_token {
        refusals.extend([
            (401, "No token, or none that is known."),
            (403, "The token may only look, or a page of another origin asks."),
            (429, "Too many wrong tokens came from this address; `retry-after` says when to come back."),
        ]);
    }
    if route.pattern.contains('{') {
        refusals.push((404, "No such endpoint or member."));
    }
    if route.access == Access::Operator {
        refusals.push((408, "The body stopped arriving."));
        refusals.push((413, "The body is too large."));
    }
    refusals
}

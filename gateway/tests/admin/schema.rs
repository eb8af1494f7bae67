//! Whether a value is what a schema says, for as much of JSON Schema as our document uses.
//!
//! It is stricter than the standard: a keyword that it does not know is a complaint, and so is a property
//! that the schema does not name, for then the document would not tell the whole.

use serde_json::{Map, Value};

/// Keywords that say nothing of whether a value fits.
const REMARKS: [&str; 6] = ["title", "description", "format", "default", "examples", "$defs"];

/// What is wrong with `value` by `schema`; schemas that it refers to are looked up in `document`.
pub(crate) fn complaints(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    Judge { document, found: &mut found }.judge(schema, value, "$");
    found
}

struct Judge<'a> {
    document: &'a Value,
    found: &'a mut Vec<String>,
}

impl Judge<'_> {
    fn complain(&mut self, place: &str, what: &str) {
        self.found.push(format!("{place}: {what}"));
    }

    fn judge(&mut self, schema: &Value, value: &Value, place: &str) {
        let Some(rules) = schema.as_object() else {
            if schema != &Value::Bool(true) {
                self.complain(place, "nothing may be here");
            }
            return;
        };
        for (word, rule) in rules {
            match word.as_str() {
                word if REMARKS.contains(&word) => {}
                "$ref" => self.refer(rule, value, place),
                "type" => self.kind(rule, value, place),
                "const" if rule != value => self.complain(place, &format!("{value} is not {rule}")),
                "enum" if !rule.as_array().unwrap().contains(value) => {
                    self.complain(place, &format!("{value} is none of {rule}"));
                }
                "anyOf" | "oneOf" => self.any(rule, value, place),
                "required" => self.required(rule, value, place),
                "properties" => self.properties(rules, value, place),
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.judge(rule, item, &format!("{place}[{index}]"));
                    }
                }
                "minimum" if value.is_number() && value.as_f64() < rule.as_f64() => {
                    self.complain(place, &format!("{value} is less than {rule}"));
                }
                "maximum" if value.is_number() && value.as_f64() > rule.as_f64() => {
                    self.complain(place, &format!("{value} is more than {rule}"));
                }
                "const" | "enum" | "minimum" | "maximum" => {}
                // Looked at with the properties, or alone for a map.
                "additionalProperties" => {
                    if !rules.contains_key("properties") {
                        self.properties(rules, value, place);
                    }
                }
                unknown => {
                    self.complain(place, &format!("the keyword {unknown} is not known here"))
                }
            }
        }
    }

    fn refer(&mut self, target: &Value, value: &Value, place: &str) {
        let pointer = target.as_str().unwrap().strip_prefix('#').unwrap();
        match self.document.pointer(pointer) {
            Some(schema) => self.judge(schema, value, place),
            None => self.complain(place, &format!("{target} leads nowhere")),
        }
    }

    fn kind(&mut self, kinds: &Value, value: &Value, place: &str) {
        let is = |kind: &Value| match kind.as_str().unwrap() {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64() || value.is_i64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            _ => false,
        };
        let fits = match kinds {
            Value::Array(kinds) => kinds.iter().any(is),
            kind => is(kind),
        };
        if !fits {
            self.complain(place, &format!("{value} is no {kinds}"));
        }
    }

    fn any(&mut self, schemas: &Value, value: &Value, place: &str) {
        let document = self.document;
        let fits = |schema| complaints(document, schema, value).is_empty();
        if !schemas.as_array().unwrap().iter().any(fits) {
            self.complain(place, &format!("{value} fits none of {schemas}"));
        }
    }

    fn required(&mut self, names: &Value, value: &Value, place: &str) {
        let Some(object) = value.as_object() else { return };
        for name in names.as_array().unwrap() {
            if !object.contains_key(name.as_str().unwrap()) {
                self.complain(place, &format!("{name} is missing"));
            }
        }
    }

    fn properties(&mut self, rules: &Map<String, Value>, value: &Value, place: &str) {
        let Some(object) = value.as_object() else { return };
        for (name, value) in object {
            let place = format!("{place}.{name}");
            let named = rules.get("properties").and_then(|properties| properties.get(name));
            match named.or_else(|| rules.get("additionalProperties")) {
                Some(schema) => self.judge(schema, value, &place),
                None => self.complain(&place, "the schema does not name it"),
            }
        }
    }
}

#[test]
fn the_judge_sees_what_does_not_fit() {
    let document: Value = serde_json::from_str(
        r##"{"whole": {"type": "integer", "minimum": 1},
            "row": {"type": "object", "required": ["id"], "properties": {
                "id": {"$ref": "#/whole"}, "name": {"type": ["string", "null"]}}}}"##,
    )
    .unwrap();
    let row = &document["row"];
    let count = |text: &str| complaints(&document, row, &serde_json::from_str(text).unwrap()).len();
    assert_eq!(count(r#"{"id": 1, "name": null}"#), 0);
    for wrong in
        [r#"{"id": 0}"#, r#"{"id": 1.5}"#, r#"{"name": "x"}"#, r#"{"id": 1, "x": 1}"#, "[]"]
    {
        assert_eq!(count(wrong), 1, "{wrong}");
    }
    let odd = serde_json::json!({"minLength": 1});
    assert_eq!(complaints(&document, &odd, &Value::Null).len(), 1);
}

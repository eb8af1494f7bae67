//! Which key stands at a place: the way from line and column back to `models[0].endpoints[2]`.
//!
//! The reader knows where it stopped but not under which keys. Only a refusal needs them, so the
//! events of the file are walked once more, up to the place, instead of keeping a path for every
//! value of every good file.
//!
//! Invariants: the walk ends at the place or at the first thing that is no YAML, and never fails;
//! its memory is the depth of the nesting, which the parser bounds.

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle};

use super::Place;
use crate::config::scalar;

/// Longest key that is repeated in a path, in characters.
const KEY_CHARACTERS_MAX: usize = 40;

/// What stands at a place.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Path of the mapping or list around it; empty for the file itself.
    pub(super) around: String,
    /// Path of the thing itself.
    pub(super) path: String,
    /// Whether it is a key without a value.
    pub(super) is_empty: bool,
}

/// One mapping or list that is not finished yet.
enum Level {
    Mapping { key: Option<String> },
    List { index: usize },
}

/// Finds what stands at `wanted` in `text`; for a place between two things, what is around it.
///
/// Several things may start at one place, a mapping and its first key for example: `innermost`
/// takes the last of them.
pub(super) fn find(text: &str, wanted: Place, innermost: bool) -> Found {
    let mut levels: Vec<Level> = Vec::new();
    let mut found: Option<Found> = None;
    for next in Parser::new_from_str(text) {
        let Ok((event, span)) = next else { break };
        let (line, column) = (span.start.line(), span.start.col() + 1);
        let here = (line as u64, column as u64);
        let there = (u64::from(wanted.line), u64::from(wanted.column));
        if here > there || (found.is_some() && !innermost) {
            break;
        }
        // The end of a mapping may stand at the place of what comes after it.
        if here == there && event.is_node() {
            found = Some(describe(&levels, &event));
        }
        step(&mut levels, &event);
    }
    found.unwrap_or_else(|| {
        let around = path_of(&levels);
        Found { path: around.clone(), around, is_empty: false }
    })
}

fn describe(levels: &[Level], event: &Event<'_>) -> Found {
    let (around, path) = match levels.split_last() {
        None => (String::new(), String::new()),
        Some((_, outer)) => (path_of(outer), path_of(levels)),
    };
    let is_key = matches!(levels.last(), Some(Level::Mapping { key: None }));
    let is_empty = match event {
        Event::Scalar(value, ScalarStyle::Plain, ..) => {
            !is_key && matches!(value.as_ref(), "" | "~" | "null" | "Null" | "NULL")
        }
        _ => false,
    };
    Found { around, path, is_empty }
}

/// Follows one event down, up or along.
fn step(levels: &mut Vec<Level>, event: &Event<'_>) {
    match event {
        Event::MappingStart(..) => levels.push(Level::Mapping { key: None }),
        Event::SequenceStart(..) => levels.push(Level::List { index: 0 }),
        Event::MappingEnd | Event::SequenceEnd => {
            levels.pop();
            advance(levels, "");
        }
        Event::Scalar(value, ..) => advance(levels, value),
        Event::Alias(..) => advance(levels, "*"),
        _ => {}
    }
}

/// Goes on behind a finished node: after a key comes its value, after a value the next key.
fn advance(levels: &mut [Level], text: &str) {
    match levels.last_mut() {
        None => {}
        Some(Level::List { index }) => *index += 1,
        Some(Level::Mapping { key: key @ Some(_) }) => *key = None,
        Some(Level::Mapping { key }) => {
            let short: String = text.chars().take(KEY_CHARACTERS_MAX).collect();
            *key = Some(scalar::one_line(&short));
        }
    }
}

fn path_of(levels: &[Level]) -> String {
    let mut path = String::new();
    for level in levels {
        match level {
            Level::List { index } => path.push_str(&format!("[{index}]")),
            Level::Mapping { key: None } => {}
            Level::Mapping { key: Some(key) } => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "server:\n  listen: a\nmodels:\n  - {name: b, endpoints: [{x: 1}, {y: }]}\n";

    fn at(line: u32, column: u32, innermost: bool) -> (String, String, bool) {
        let found = find(TEXT, Place::at(line, column), innermost);
        (found.around, found.path, found.is_empty)
    }

    #[test]
    fn a_place_leads_back_to_its_keys() {
        let row = |around: &str, path: &str, is_empty| (around.into(), path.into(), is_empty);
        assert_eq!(at(2, 11, true), row("server", "server.listen", false));
        assert_eq!(at(4, 12, false), row("models[0]", "models[0].name", false));
        let second = "models[0].endpoints[1]";
        let key = "models[0].endpoints[1].y";
        assert_eq!(at(4, 35, false), row("models[0].endpoints", second, false));
        assert_eq!(at(4, 36, true).0, second);
        assert_eq!(at(4, 37, false), row(second, key, true));
        assert_eq!(at(1, 1, false), row("", "", false));
        assert_eq!(at(9, 9, false), row("", "", false));
    }

    #[test]
    fn a_text_that_is_no_yaml_still_has_places() {
        for text in ["", "a: [", "]", "\t", "a: \"b", "a: *b", "? [a]\n: b"] {
            for column in 1..10 {
                let _ = find(text, Place::at(1, column), column % 2 == 0);
            }
        }
    }
}

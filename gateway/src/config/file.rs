//! The configuration as it stands in the file: the only room that knows YAML.
//!
//! Each section is a table of its keys, all optional, all still text, each with its place. What a
//! key means is not known here. The same tables write the effective configuration, so that a key
//! can never be read under one name and written under another.
//!
//! Invariants: a key that is not in its table is refused; a key without a value is refused, because
//! an empty `cluster:` or `fail_closed:` would otherwise switch a protection off unseen; no list
//! grows beyond its bound, whatever the text holds.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_saphyr::{Location, Options, Spanned};

use super::error::ConfigError;
use super::scalar;

mod effective;
mod overlay;
mod place;
mod refusal;
mod shape;
mod tables;

pub(super) use effective::effective;
pub(super) use overlay::{Overlay, Way};
pub(super) use shape::{Shape, Shaped};
pub(super) use tables::{
    AdminSection, ApiKeySection, CircuitSection, ClusterSection, ClusterTlsSection, CodeList,
    CorsSection, EndpointSection, FailClosedSection, FailoverSection, File, HalfOpenSection,
    LimitsSection, LogSection, ModelSection, OpenSection, OtlpSection, P95Section, ProbeSection,
    QuorumSection, RampSection, RedisSection, RedisTlsSection, RetrySection, ServerSection,
    ServerTimeoutsSection, ServerTlsSection, SlowSection, StateSection, TelemetrySection,
    TenantSection, TimeoutsSection, UpstreamTlsSection,
};

/// Most YAML nodes in one file: some eighty for each of 10,000 endpoints if each has a rule of its
/// own, some fifteen for each of 10,000 keys, and room to spare.
const NODES_MAX: usize = 1_000_000;
/// Most nodes that aliases may repeat, so that a few anchors cannot grow into a huge file.
const REPEATED_NODES_MAX: usize = 100_000;

/// Reads `text` into its sections.
///
/// # Errors
/// The text is empty or no YAML, or has a key that is not known, stands twice or has no value.
pub(super) fn read(text: &str, source_name: &str) -> Result<File, ConfigError> {
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Err(ConfigError::RefuseFile {
            file: source_name.to_owned(),
            problem: "the file is empty".to_owned(),
            cure: "describe at least one model with one endpoint".to_owned(),
        });
    }
    serde_saphyr::from_str_with_options(text, options())
        .map_err(|error| refusal::refuse(text, source_name, &error))
}

fn options() -> Options {
    let mut options = Options::default();
    // Errors are one line; a snippet of the file would also show its secrets.
    options.with_snippet = false;
    options.emit_comments = false;
    if let Some(budget) = options.budget.as_mut() {
        budget.max_nodes = NODES_MAX;
        budget.max_events = NODES_MAX * 2;
    }
    options.alias_limits.max_total_replayed_events = REPEATED_NODES_MAX;
    options
}

/// Where something stands: in the file, or in a variable that speaks instead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Line, from 1.
    pub(super) line: u32,
    /// Column in characters, from 1.
    pub(super) column: u32,
    /// Which override says it; line and column then mean nothing.
    pub(super) variable: Option<usize>,
}

impl Place {
    /// The first character of the file.
    pub(super) const START: Self = Self::at(1, 1);

    /// A place in the file.
    const fn at(line: u32, column: u32) -> Self {
        Self { line, column, variable: None }
    }

    /// The override with this index.
    pub(super) const fn variable(index: usize) -> Self {
        Self { variable: Some(index), ..Self::START }
    }
}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        let from_one = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).max(1);
        Self::at(from_one(location.line()), from_one(location.column()))
    }
}

/// A value and its place.
#[derive(Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

impl At<Scalar> {
    /// Quotes the value for an error; one from an override is only called so.
    pub(super) fn shown(&self) -> String {
        match self.place.variable {
            Some(_) => "the value".to_owned(),
            None => scalar::shown(&self.value.0),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        Ok(Self { value: spanned.value, place: spanned.referenced.into() })
    }
}

impl<T: Serialize> Serialize for At<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

/// What stands under a key, if the key is there. Unlike `Option` it takes a key without a value for
/// a mistake, not for a key that is left out.
#[derive(Debug)]
pub(super) struct Given<T>(Option<At<T>>);

impl<T> Given<T> {
    /// Gives the value, if the key is there.
    pub(super) fn get(&self) -> Option<&T> {
        self.0.as_ref().map(|at| &at.value)
    }

    /// Gives the value with its place, if the key is there.
    pub(super) fn at(&self) -> Option<&At<T>> {
        self.0.as_ref()
    }

    /// Gives the place of the value, if the key is there.
    pub(super) fn place(&self) -> Option<Place> {
        self.0.as_ref().map(|at| at.place)
    }

    fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    fn written(value: T) -> Self {
        let place = Place::START;
        Self(Some(At { value, place }))
    }
}

impl<T> Default for Given<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        At::deserialize(deserializer).map(|at| Self(Some(at)))
    }
}

impl<T: Serialize> Serialize for Given<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// One value as text, variables not yet put in place: what a variable holds can thus never be taken
/// for YAML, and a comment never needs one.
#[derive(Debug)]
pub(super) struct Scalar(pub(super) String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Numbers and truths are written without quotes, as people write them.
        let text = self.0.as_str();
        if let Some(number) = text.parse::<u64>().ok().filter(|it| it.to_string() == text) {
            return serializer.serialize_u64(number);
        }
        match text {
            "true" => serializer.serialize_bool(true),
            "false" => serializer.serialize_bool(false),
            _ => serializer.serialize_str(text),
        }
    }
}

/// A list of at most `MAX` entries; the entry after that ends the reading.
#[derive(Debug)]
pub(super) struct List<T, const MAX: usize>(Vec<At<T>>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

impl<T: Serialize, const MAX: usize> Serialize for List<T, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<T, const MAX: usize> Given<List<T, MAX>> {
    /// Gives the entries; none if the key is left out.
    pub(super) fn entries(&self) -> &[At<T>] {
        self.get().map_or(&[], |list| &list.0)
    }
}

struct ListVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
    type Value = List<T, MAX>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list of at most {MAX} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = sequence.next_element()? {
            if entries.len() == MAX {
                return Err(A::Error::custom(format_args!("has more than {MAX} entries")));
            }
            entries.push(entry);
        }
        Ok(List(entries))
    }
}

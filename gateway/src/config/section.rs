//! One mapping of the file while it is being checked: it knows its place and its path, so that
//! every refusal names both.
//!
//! Reading a setting is always the same four steps: take the text, put variables in place, parse
//! and bound it, name the key if that fails. They stand here once.
//!
//! Invariants: a refusal shows what stands in the file, never what a variable or an override held,
//! and nothing at all of a secret.

use std::cell::RefCell;

use super::Secret;
use super::error::ConfigError;
use super::file::{At, Given, Place, Scalar};
use super::form::{Forms, Known};
use super::given::Look;
use super::overrides::Overrides;
use super::scalar::{self, Refusal};

/// What all sections of one file have in common.
pub(super) struct Source<'a> {
    /// What errors call the file.
    pub(super) file: &'a str,
    /// The answer for `${VARIABLE}`.
    pub(super) env: &'a Look<'a>,
    /// What the environment says instead of the file.
    pub(super) overrides: &'a Overrides,
    /// Where it is written down what each setting takes, if anybody wants to know.
    pub(super) forms: Option<&'a RefCell<Forms>>,
}

/// One mapping of the file.
pub(super) struct Section<'a> {
    source: &'a Source<'a>,
    path: String,
    place: Place,
}

impl<'a> Section<'a> {
    /// Gives the file itself as a section.
    pub(super) fn root(source: &'a Source<'a>) -> Self {
        Self { source, path: String::new(), place: Place::START }
    }

    /// Gives the section under `key`; one that is left out stands where this one stands.
    pub(super) fn child<T>(&self, key: &str, given: &Given<T>) -> Self {
        Self {
            source: self.source,
            path: self.path_of(key),
            place: given.place().unwrap_or(self.place),
        }
    }

    /// Gives the section at `index` of the list under `key`, called by its name if it has a plain
    /// one: `models[0](llama)`.
    pub(super) fn item(&self, key: &str, index: usize, place: Place, name: &Given<Scalar>) -> Self {
        let label = name
            .get()
            .map(|text| text.0.as_str())
            .filter(|text| scalar::name(text, 128, "._:/-").is_ok())
            .map_or_else(String::new, |text| format!("({text})"));
        Self { source: self.source, path: self.path_of(&format!("{key}[{index}]{label}")), place }
    }

    /// Names a key of this section from the root on.
    fn path_of(&self, key: &str) -> String {
        match (self.path.is_empty(), key.is_empty()) {
            (true, _) => key.to_owned(),
            (false, true) => self.path.clone(),
            (false, false) => format!("{}.{key}", self.path),
        }
    }

    /// Refuses what stands under `key` (empty: the section itself) at `place`, by default the
    /// section's own.
    pub(super) fn refuse(
        &self,
        key: &str,
        place: Option<Place>,
        problem: &str,
        cure: &str,
    ) -> ConfigError {
        let place = place.unwrap_or(self.place);
        let path = self.path_of(key);
        let colon = if path.is_empty() { "" } else { ": " };
        let problem = format!("{path}{colon}{problem}");
        if let Some(variable) = place.variable {
            return self.source.overrides.refuse(variable, &problem, cure);
        }
        ConfigError::RefuseLine {
            file: self.source.file.to_owned(),
            line: place.line,
            column: place.column,
            problem,
            cure: cure.to_owned(),
        }
    }

    /// Reads a setting with `parse`; `None` if it is left out.
    ///
    /// # Errors
    /// A variable cannot be put in place, or `parse` refuses the value.
    pub(super) fn optional<T>(
        &self,
        key: &str,
        given: &Given<Scalar>,
        parse: impl Fn(&str) -> Result<T, Refusal>,
    ) -> Result<Option<T>, ConfigError> {
        self.note(key, &parse);
        let Some(at) = given.at() else {
            return Ok(None);
        };
        self.parsed(key, at, parse).map(Some)
    }

    /// Writes down what is taken under `key`, if anybody wants to know: `parse` itself is asked, so
    /// that nothing else can be said than what holds.
    fn note<T>(&self, key: &str, parse: impl Fn(&str) -> Result<T, Refusal>) {
        let Some(forms) = self.source.forms else { return };
        let known = Known::of(|text| parse(text).map(drop));
        forms.borrow_mut().note(&self.path_of(key), known);
    }

    /// Reads the entry at `index` of the list under `key` with `parse`.
    ///
    /// # Errors
    /// A variable cannot be put in place, or `parse` refuses the value.
    pub(super) fn entry<T>(
        &self,
        key: &str,
        index: usize,
        entry: &At<Scalar>,
        parse: impl Fn(&str) -> Result<T, Refusal>,
    ) -> Result<T, ConfigError> {
        let key = format!("{key}[{index}]");
        self.note(&key, &parse);
        self.parsed(&key, entry, parse)
    }

    fn parsed<T>(
        &self,
        key: &str,
        at: &At<Scalar>,
        parse: impl Fn(&str) -> Result<T, Refusal>,
    ) -> Result<T, ConfigError> {
        let raw = at.value.0.as_str();
        // A refused reference is named by its variable; the text around it adds nothing.
        let (shown, refusal) = match scalar::expand(raw, self.source.env) {
            Err(refusal) => ("the value".to_owned(), refusal),
            Ok(value) => match parse(&value) {
                Ok(parsed) => return Ok(parsed),
                Err(refusal) => (at.shown(), refusal),
            },
        };
        let problem = format!("{shown} {}", refusal.problem);
        Err(self.refuse(key, Some(at.place), &problem, &refusal.cure))
    }

    /// Reads a setting with `parse`; `default` if it is left out.
    ///
    /// # Errors
    /// A variable cannot be put in place, or `parse` refuses the value.
    pub(super) fn or<T>(
        &self,
        key: &str,
        given: &Given<Scalar>,
        default: T,
        parse: impl Fn(&str) -> Result<T, Refusal>,
    ) -> Result<T, ConfigError> {
        Ok(self.optional(key, given, parse)?.unwrap_or(default))
    }

    /// Reads a setting that must be there with `parse`.
    ///
    /// # Errors
    /// It is left out (`cure` says what to write), or as for the others.
    pub(super) fn required<T>(
        &self,
        key: &str,
        given: &Given<Scalar>,
        cure: &str,
        parse: impl Fn(&str) -> Result<T, Refusal>,
    ) -> Result<T, ConfigError> {
        if let Some(forms) = self.source.forms {
            forms.borrow_mut().require(&self.path_of(key));
        }
        self.optional(key, given, parse)?.ok_or_else(|| self.refuse(key, None, "is missing", cure))
    }

    /// Reads a secret; what is wrong with it is said without showing it.
    ///
    /// # Errors
    /// A variable cannot be put in place, or the value cannot be sent in a header.
    pub(super) fn secret(
        &self,
        key: &str,
        given: &Given<Scalar>,
    ) -> Result<Option<Secret>, ConfigError> {
        self.hidden(key, given, |value| scalar::credential(value).map(Secret::new))
    }

    /// Reads a setting with `parse`, in whose place somebody may have written a secret: what is wrong
    /// with it is said without showing it.
    ///
    /// # Errors
    /// A variable cannot be put in place, or `parse` refuses the value.
    pub(super) fn hidden<T>(
        &self,
        key: &str,
        given: &Given<Scalar>,
        parse: impl Fn(&str) -> Result<T, Refusal>,
    ) -> Result<Option<T>, ConfigError> {
        self.note(key, &parse);
        let Some(raw) = given.get() else {
            return Ok(None);
        };
        scalar::expand(&raw.0, self.source.env).and_then(|value| parse(&value)).map(Some).map_err(
            |refusal| {
                let problem = format!("the value {}", refusal.problem);
                self.refuse(key, given.place(), &problem, &refusal.cure)
            },
        )
    }
}

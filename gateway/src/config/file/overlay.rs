//! Puts one value on what was read from the file, at the end of a path of keys.
//!
//! It goes down the same tables as the reader, so that a key can be overridden exactly if it can be
//! written.
//!
//! Invariants: a value is taken as it stands, a `${` in it too; its place is that of its variable; no
//! refusal repeats it.

use super::{At, Given, List, Place, Scalar, Shape, Shaped, options, refusal};
use crate::config::scalar::{Refusal, escape};

/// The part of a path that is still to go, and the value that waits at its end.
#[derive(Clone, Copy)]
pub(in crate::config) struct Way<'a> {
    path: &'a [String],
    gone: usize,
    value: &'a str,
    place: Place,
}

impl<'a> Way<'a> {
    /// The whole way along `path` to `value`, which stands at `place`.
    pub(in crate::config) fn new(path: &'a [String], value: &'a str, place: Place) -> Self {
        Self { path, gone: 0, value, place }
    }

    /// Gives the next key, and the way behind it.
    ///
    /// # Errors
    /// The path ends here, at a section with these keys.
    pub(super) fn step(self, keys: &[&str]) -> Result<(&'a str, Self), Refusal> {
        let on = Self { gone: self.gone + 1, ..self };
        self.path.get(self.gone).map(|key| (key.as_str(), on)).ok_or_else(|| {
            let problem = format!("{} is a section", self.so_far());
            Refusal::new(problem, format!("name one of its keys: {}", keys.join(", ")))
        })
    }

    /// Refuses `key`, which is none of `keys`.
    pub(super) fn unknown(self, key: &str, keys: &[&str]) -> Refusal {
        let (problem, cure) = refusal::describe_unknown(key, keys, &self.so_far());
        Refusal::new(problem, cure)
    }

    fn so_far(self) -> String {
        self.path.get(..self.gone).unwrap_or_default().join(".")
    }

    fn is_over(self) -> bool {
        self.gone >= self.path.len()
    }

    /// Gives the value, if this is the end of the path.
    fn end(self, what: &str) -> Result<&'a str, Refusal> {
        if !self.is_over() {
            let problem = format!("{} is {what} and has no keys", self.so_far());
            return Err(Refusal::new(problem, "end the variable's name there"));
        }
        if self.value.is_empty() {
            let problem = format!("{}: there is no value", self.so_far());
            return Err(Refusal::new(problem, "give it one or unset the variable"));
        }
        Ok(self.value)
    }
}

/// What a value can be put on.
pub(in crate::config) trait Overlay: Sized {
    /// Gives what there is once the value at the end of `way` is put on `before`, which stood here.
    ///
    /// # Errors
    /// The way leads nowhere, or its value has not the shape of what stands at its end.
    fn over(before: Option<Self>, way: Way<'_>) -> Result<Self, Refusal>;

    /// Gives an entry of a list; `None`: an override writes none like it.
    fn entry(_text: Scalar) -> Option<Self> {
        None
    }
}

impl Overlay for Scalar {
    fn over(_before: Option<Self>, way: Way<'_>) -> Result<Self, Refusal> {
        way.end("a single value").map(|value| Self(escape(value)))
    }

    fn entry(text: Scalar) -> Option<Self> {
        Some(Self(escape(&text.0)))
    }
}

impl<T: Overlay> Overlay for Box<T> {
    fn over(before: Option<Self>, way: Way<'_>) -> Result<Self, Refusal> {
        T::over(before.map(|before| *before), way).map(Self::new)
    }
}

impl<T: Overlay + Shaped, const MAX: usize> Overlay for List<T, MAX> {
    fn over(_before: Option<Self>, way: Way<'_>) -> Result<Self, Refusal> {
        if matches!(T::shape(), Shape::Section(..)) {
            let problem = format!("{} is a list of sections, which no variable says", way.so_far());
            return Err(Refusal::new(problem, "write it in the file, with ${NAME} for a value"));
        }
        let text = way.end("a list")?;
        let read: List<Scalar, MAX> = serde_saphyr::from_str_with_options(text, options())
            .map_err(|_| {
                let problem = format!("{}: this is no list of at most {MAX} values", way.so_far());
                Refusal::new(
                    problem,
                    "write it as [first, second], with quotes where YAML wants them",
                )
            })?;
        let entries = read.0.into_iter().filter_map(|at| T::entry(at.value));
        Ok(Self(entries.map(|value| At { value, place: way.place }).collect()))
    }
}

impl<T: Overlay> Given<T> {
    /// Puts the value at the end of `way` on what stands here.
    ///
    /// # Errors
    /// As for `over`; nothing stands here then.
    pub(super) fn put(&mut self, way: Way<'_>) -> Result<(), Refusal> {
        let before = self.0.take();
        // A section of the file goes on standing where it stood.
        let place = before.as_ref().map(|at| at.place).filter(|_| !way.is_over());
        let value = T::over(before.map(|at| at.value), way)?;
        self.0 = Some(At { value, place: place.unwrap_or(way.place) });
        Ok(())
    }
}

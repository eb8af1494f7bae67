//! Reads of a JSON value what is wanted of it, and never fails because it is of another kind.
//!
//! An endpoint that writes a number where a text is usual has still answered; what it meant is the
//! client's to decide. Nothing is allocated, unless a text that is wanted carries an escape.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Whether a value says anything: not absent, `null`, or empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said(pub(super) bool);

/// A text; empty if the value is absent or something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

/// A whole number that is not negative; `None` if the value is absent or something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::proxy) struct Count(pub(in crate::proxy) Option<u64>);

/// Writes the visits in which every kind of value but the wanted one ends alike.
macro_rules! otherwise {
    ($value:expr; $($visit:ident($kind:ty)),*) => {
        $(fn $visit<E>(self, _: $kind) -> Result<Self::Value, E> {
            Ok($value)
        })*

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
}

/// Reads over the elements of an array. Returns whether there were any.
fn pass_over_all<'de, A: SeqAccess<'de>>(mut elements: A) -> Result<bool, A::Error> {
    let mut has_any = false;
    while elements.next_element::<IgnoredAny>()?.is_some() {
        has_any = true;
    }
    Ok(has_any)
}

/// Reads over the members of an object. Returns whether there were any.
fn pass_over_members<'de, A: MapAccess<'de>>(mut members: A) -> Result<bool, A::Error> {
    let mut has_any = false;
    while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
        has_any = true;
    }
    Ok(has_any)
}

impl<'de> Deserialize<'de> for Said {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Look;
        impl<'de> Visitor<'de> for Look {
            type Value = Said;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("anything")
            }

            otherwise!(Said(true);
                visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64));

            fn visit_str<E>(self, text: &str) -> Result<Said, E> {
                Ok(Said(!text.is_empty()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<Said, A::Error> {
                pass_over_all(elements).map(Said)
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Said, A::Error> {
                pass_over_members(members).map(Said)
            }
        }
        deserializer.deserialize_any(Look)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Look;
        impl<'de> Visitor<'de> for Look {
            type Value = Text<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("anything")
            }

            otherwise!(Text::default();
                visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64));

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<Text<'de>, A::Error> {
                pass_over_all(elements).map(|_| Text::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Text<'de>, A::Error> {
                pass_over_members(members).map(|_| Text::default())
            }
        }
        deserializer.deserialize_any(Look)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Look;
        impl<'de> Visitor<'de> for Look {
            type Value = Count;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("anything")
            }

            otherwise!(Count(None);
                visit_bool(bool), visit_i64(i64), visit_f64(f64), visit_str(&str));

            fn visit_u64<E>(self, count: u64) -> Result<Count, E> {
                Ok(Count(Some(count)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<Count, A::Error> {
                pass_over_all(elements).map(|_| Count(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Count, A::Error> {
                pass_over_members(members).map(|_| Count(None))
            }
        }
        deserializer.deserialize_any(Look)
    }
}

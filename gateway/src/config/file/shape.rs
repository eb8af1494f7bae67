//! The shape of the tables, for whoever wants to write down which keys there are.

use super::{List, Scalar};

/// What stands under a key.
pub(in crate::config) enum Shape {
    /// One value.
    Scalar,
    /// A list of at most so many entries.
    List(Box<Shape>, usize),
    /// A section: the name of its table, and its keys in the order in which they are written.
    Section(&'static str, fn() -> Vec<(&'static str, Shape)>),
}

/// What has a shape.
pub(in crate::config) trait Shaped {
    /// Gives it.
    fn shape() -> Shape;
}

impl Shaped for Scalar {
    fn shape() -> Shape {
        Shape::Scalar
    }
}

impl<T: Shaped> Shaped for Box<T> {
    fn shape() -> Shape {
        T::shape()
    }
}

impl<T: Shaped, const MAX: usize> Shaped for List<T, MAX> {
    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()), MAX)
    }
}

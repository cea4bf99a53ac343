//! A leaf of λ as plain numbers.

use bilevel::{Array, Named};

/// A leaf of λ.
#[derive(Clone, Debug, PartialEq)]
pub struct LambdaLeaf {
    /// Its name; empty where λ is one leaf without a name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub values: Vec<f64>,
}

impl LambdaLeaf {
    /// Of an array.
    pub fn new(name: &str, array: &Array) -> Self {
        LambdaLeaf { name: name.into(), shape: array.shape().to_vec(), values: array.to_f64() }
    }

    /// All leaves of λ.
    pub fn all(lambda: &Named<Array>) -> Vec<Self> {
        lambda.iter().map(|(name, array)| Self::new(name, array)).collect()
    }

    /// What it is called.
    pub fn title(&self) -> String {
        if self.name.is_empty() { "λ".into() } else { format!("λ.{}", self.name) }
    }
}

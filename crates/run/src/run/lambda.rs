//! A leaf of λ as plain numbers, and the file of λ.

use bilevel::files::{load_arrays, save_tree};
use bilevel::{Array, Named, Result};
use std::path::Path;

/// A leaf of λ.
#[derive(Clone, Debug, PartialEq)]
pub struct LambdaLeaf {
    /// Its name; empty if λ is one leaf without a name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub values: Vec<f64>,
}

impl LambdaLeaf {
    /// The leaf of this name with the numbers of an array.
    pub fn new(name: &str, array: &Array) -> Self {
        LambdaLeaf { name: name.into(), shape: array.shape().to_vec(), values: array.to_f64() }
    }

    /// All leaves of λ.
    pub fn all(lambda: &Named<Array>) -> Vec<Self> {
        lambda.iter().map(|(name, array)| Self::new(name, array)).collect()
    }

    /// Its title on pages.
    pub fn title(&self) -> String {
        if self.name.is_empty() { "λ".into() } else { format!("λ.{}", self.name) }
    }
}

/// The name of a λ that is one leaf without a name, in its file.
const NAMELESS: &str = "lambda";

/// Writes λ into a safetensors file, each leaf under its name.
pub fn save_lambda(lambda: &Named<Array>, path: &Path) -> Result<()> {
    let named = |(name, array): (&str, &Array)| {
        let name = if name.is_empty() { NAMELESS } else { name };
        (name.to_string(), array.clone())
    };
    save_tree(&lambda.iter().map(named).collect::<Named<Array>>(), path)
}

/// Reads a file of [`save_lambda`]: the leaves of these names, and `None` for one that is missing.
pub fn read_lambda(path: &Path, names: &[&str]) -> Result<Vec<Option<LambdaLeaf>>> {
    let arrays = load_arrays(path)?;
    let leaf = |name: &&str| {
        let stored = if name.is_empty() { NAMELESS } else { name };
        arrays.get(stored).map(|array| LambdaLeaf::new(name, array))
    };
    Ok(names.iter().map(leaf).collect())
}

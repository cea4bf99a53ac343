//! Weights in safetensors files, under the names other libraries give them.
//!
//! Two things differ between a model here and in PyTorch: names, which a function of the leaf's name translates, and
//! matrices, which are `[in, out]` here and `[out, in]` there. A leaf that is a matrix and is called `weight` is
//! transposed on the way in and on the way out; everything else is stored as it is.

use bilevel::files::{TreeFileError, load_arrays_where, save_tree};
use bilevel::{Array, DType, Named, Result, Variable};
use bilevel_graph::{Data, Tree, TreeOf};
use std::path::Path;

/// PyTorch's counter of batches, which is not needed here.
const BATCHES_SEEN: &str = "num_batches_tracked";

/// How the leaves of a model are stored in a file.
///
/// ```
/// use bilevel_graph::{Array, Tree};
/// use bilevel_models::{VitConfig, Weights};
/// let config = VitConfig { image: [4, 4], width: 4, heads: 1, hidden: 4, depth: 1, ..VitConfig::small(4, 3) };
/// let model = config.build()?;
/// let path = std::env::temp_dir().join(format!("bilevel-weights-{}.safetensors", std::process::id()));
///
/// // Written with timm's names, which are the model's own; read for other classes, whose head starts from scratch.
/// let values = model.map(|leaf| Array::zeros(leaf.shape(), bilevel::DType::F32));
/// Weights::of(&model).save(&values, &path)?;
/// let other = VitConfig { classes: 7, ..config }.build()?;
/// let error = Weights::of(&other).load(&path).unwrap_err().to_string();
/// assert!(error.contains("'head.weight' has the shape [3, 4] and must have [7, 4]"), "{error}");
/// let pretrained = Weights::of(&other).except("head").load(&path)?;
/// assert_eq!(pretrained.head.weight.shape(), [4, 7]);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Weights<'a, S> {
    model: &'a S,
    name: Box<dyn Fn(&str) -> String + 'a>,
    except: Vec<String>,
}

impl<'a, S: TreeOf<Variable>> Weights<'a, S> {
    /// Every leaf under its own name.
    pub fn of(model: &'a S) -> Self {
        Weights { model, name: Box::new(str::to_string), except: vec![] }
    }

    /// Reads every leaf under the name given by this function, such as
    /// [`EfficientNet::timm_name`](crate::EfficientNet::timm_name).
    pub fn named(mut self, name: impl Fn(&str) -> String + 'a) -> Self {
        self.name = Box::new(name);
        self
    }

    /// Leaves whose own name begins with this part (whole words between dots) are left as they are, and a file need not
    /// have them: a head for other classes.
    pub fn except(mut self, part: impl Into<String>) -> Self {
        self.except.push(part.into());
        self
    }

    /// The model with every leaf starting at the values of the file; bounds, rates and roles stay.
    ///
    /// # Errors
    ///
    /// [`TreeFileError`], which lists missing and unknown leaves, and those of another shape.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<S> {
        let path = path.as_ref();
        let found = load_arrays_where(path, |name| !name.ends_with(BATCHES_SEEN))?;
        let (mut missing, mut misshapen, mut known) = (vec![], vec![], vec![]);
        let loaded = self.model.try_map_named(|leaf, variable| {
            let name = (self.name)(leaf);
            let array = found.get(&name);
            known.push(name.clone());
            if self.is_excepted(leaf) {
                return Ok(variable.clone());
            }
            let Some(array) = array else {
                missing.push(name);
                return Ok(variable.clone());
            };
            let asked = in_file(leaf, variable.shape());
            if array.dtype() == DType::I32 {
                misshapen.push((name, "holds integers and must hold floats".into()));
                return Ok(variable.clone());
            }
            if array.shape() != asked {
                misshapen.push((name, format!("has the shape {:?} and must have {asked:?}", array.shape())));
                return Ok(variable.clone());
            }
            variable.clone().starting_at(stored(leaf, array)?)
        });
        let extra = found.names().into_iter().filter(|name| !known.contains(name));
        let extra: Vec<String> = extra.collect();
        if !(missing.is_empty() && extra.is_empty() && misshapen.is_empty()) {
            return Err(TreeFileError::Unlike { path: path.into(), missing, extra, misshapen }.into());
        }
        loaded
    }

    /// Writes the values of the model, all but the excepted ones. At any moment the file is the old one or the new one,
    /// whole.
    ///
    /// # Errors
    ///
    /// [`TreeFileError`] if the file cannot be written.
    pub fn save(&self, values: &S::With<Array>, path: impl AsRef<Path>) -> Result<()> {
        let mut arrays = vec![];
        for (leaf, array) in values.names().into_iter().zip(values.leaves()) {
            if !self.is_excepted(&leaf) {
                arrays.push(((self.name)(&leaf), stored(&leaf, array)?));
            }
        }
        save_tree(&arrays.into_iter().collect::<Named<Array>>(), path)
    }

    fn is_excepted(&self, leaf: &str) -> bool {
        let below = |part: &String| {
            leaf.strip_prefix(part.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.except.iter().any(below)
    }
}

/// Returns true for the weight of an affine map.
fn is_matrix(leaf: &str, shape: &[usize]) -> bool {
    shape.len() == 2 && leaf.rsplit('.').next() == Some("weight")
}

/// The shape a leaf of this shape has in a file.
fn in_file(leaf: &str, shape: &[usize]) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if is_matrix(leaf, &shape) {
        shape.reverse();
    }
    shape
}

/// From the model to the file, or back: matrices transposed.
fn stored(leaf: &str, array: &Array) -> Result<Array> {
    if !is_matrix(leaf, array.shape()) {
        return Ok(array.clone());
    }
    let [rows, columns] = [array.shape()[0], array.shape()[1]];
    let data = match array.data() {
        Data::F32(values) => Data::F32(transposed(values, rows, columns).into()),
        Data::F64(values) => Data::F64(transposed(values, rows, columns).into()),
        Data::I32(values) => Data::I32(transposed(values, rows, columns).into()),
    };
    Ok(Array::new([columns, rows], data)?)
}

/// In squares, so that both sides stay in cache.
fn transposed<N: Copy + Default>(values: &[N], rows: usize, columns: usize) -> Vec<N> {
    const SIDE: usize = 32;
    let mut out = vec![N::default(); values.len()];
    for top in (0..rows).step_by(SIDE) {
        for left in (0..columns).step_by(SIDE) {
            for row in top..rows.min(top + SIDE) {
                for column in left..columns.min(left + SIDE) {
                    out[column * rows + row] = values[row * columns + column];
                }
            }
        }
    }
    out
}

//! λ and θ in files: safetensors, each array under the name of its leaf, so that other programs read and write them too.

use crate::checkpoint::whole_file::{read_regular, write_whole};
use crate::problem::tree_file_error::TreeFileError;
use crate::problem::typed::Problem;
use crate::problem::variable::Variable;
use crate::{Named, Result};
use bilevel_graph::{Array, DType, Data, Tree};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::Path;

/// Writes a tree of arrays into a safetensors file, each under the name of its leaf. At any moment the file is the old one or
/// the new one, whole.
///
/// ```
/// use bilevel::files::{load_arrays, save_tree};
/// use bilevel::{Array, Leaf, Problem, Tree, Variable};
/// #[derive(Clone, Tree)]
/// struct Line<T> { slope: T, offset: T }
/// let line = Line { slope: Variable::constant([2], 1.0), offset: Variable::constant([], 0.0) };
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), line)
///     .inner(|_, l, t| (t.slope - l.0).square().sum_all() + t.offset.square())
///     .outer(|_, _, t| t.offset.square())
///     .build()?;
/// let theta = problem.train(&Leaf(Array::from_f64([], vec![3.0])?)).run()?.theta;
///
/// let path = std::env::temp_dir().join(format!("bilevel-doc-{}.safetensors", std::process::id()));
/// save_tree(&theta, &path)?;
/// assert_eq!(problem.load_theta(&path)?.slope, theta.slope);
/// assert_eq!(load_arrays(&path)?.names(), ["offset", "slope"]);
/// let error = problem.load_lambda(&path).unwrap_err().to_string();
/// assert!(error.ends_with("; it is missing its one array; it has 'offset', 'slope', which the problem does not have"), "{error}");
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn save_tree<S: Tree<Leaf = Array>>(tree: &S, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let failed = |error: std::io::Error| TreeFileError::Io { path: path.into(), doing: "write", source: error.into() };
    let bytes: Vec<Vec<u8>> = tree.leaves().into_iter().map(little_endian).collect();
    let mut views = vec![];
    for ((name, array), bytes) in tree.names().into_iter().zip(tree.leaves()).zip(&bytes) {
        let dtype = match array.dtype() {
            DType::F32 => Dtype::F32,
            DType::F64 => Dtype::F64,
            DType::I32 => Dtype::I32,
        };
        let view =
            TensorView::new(dtype, array.shape().to_vec(), bytes).map_err(|e| failed(std::io::Error::other(e)))?;
        views.push((name, view));
    }
    let file = safetensors::serialize(views, None).map_err(|e| failed(std::io::Error::other(e)))?;
    write_whole(path, &file).map_err(failed)?;
    Ok(())
}

/// All arrays of a safetensors file by name, in the order of the names, to inspect it or to start a leaf with one of
/// them by [`Variable::fixed`].
pub fn load_arrays(path: impl AsRef<Path>) -> Result<Named<Array>> {
    load_arrays_where(path, |_| true)
}

/// As [`load_arrays`], for the arrays with names for which this is true. Others may have any type.
pub fn load_arrays_where(path: impl AsRef<Path>, wanted: impl Fn(&str) -> bool) -> Result<Named<Array>> {
    let path = path.as_ref();
    let failed = |error: std::io::Error| TreeFileError::Io { path: path.into(), doing: "read", source: error.into() };
    let unreadable = |reason: String| TreeFileError::Unreadable { path: path.into(), reason };
    let bytes = read_regular(path).map_err(failed)?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| unreadable(format!("it is not a safetensors file ({e})")))?;
    let mut all = vec![];
    for (name, view) in file.iter().filter(|(name, _)| wanted(name)) {
        // A chunk has the requested length, so the copy is whole.
        let four = view.data().chunks_exact(4).map(|c| <[u8; 4]>::try_from(c).unwrap_or_default());
        let eight = view.data().chunks_exact(8).map(|c| <[u8; 8]>::try_from(c).unwrap_or_default());
        let data = match view.dtype() {
            Dtype::F32 => Data::F32(four.map(f32::from_le_bytes).collect()),
            Dtype::F64 => Data::F64(eight.map(f64::from_le_bytes).collect()),
            Dtype::I32 => Data::I32(four.map(i32::from_le_bytes).collect()),
            other => {
                let reason = format!("'{name}' has the type {other:?}; convert it to F32, F64 or I32 first");
                return Err(unreadable(reason).into());
            }
        };
        all.push((name.to_string(), Array::new(view.shape(), data)?));
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(all.into_iter().collect())
}

impl<L: Tree<Leaf = Variable>, T: Tree<Leaf = Variable>> Problem<L, T> {
    /// λ from a safetensors file with an array for each of its leaves, in the problem's type. The error lists all that is
    /// missing, that is too much, or that has another shape. A λ that is one nameless leaf is the one array of the file.
    ///
    /// See [`save_tree`] for an example.
    pub fn load_lambda(&self, path: impl AsRef<Path>) -> Result<L::With<Array>> {
        load(self.trees().0, self.dtype(), path.as_ref())
    }

    /// θ from such a file, including arrays for the frozen leaves.
    pub fn load_theta(&self, path: impl AsRef<Path>) -> Result<T::With<Array>> {
        load(self.trees().1, self.dtype(), path.as_ref())
    }
}

fn load<S: Tree<Leaf = Variable>>(tree: &S, dtype: DType, path: &Path) -> Result<S::With<Array>> {
    let mut found = load_arrays(path)?;
    if tree.names() == [""] && found.leaf_count() == 1 {
        // A single leaf has no name; then it is the only array, under any name.
        found = found.into_leaves().into_iter().map(|array| (String::new(), array)).collect();
    }
    let (mut missing, mut misshapen, names) = (vec![], vec![], tree.names());
    tree.visit(|name, variable| match found.get(name) {
        None => missing.push(name.to_string()),
        Some(array) if array.dtype() == DType::I32 => {
            misshapen.push((name.to_string(), format!("holds integers and must hold {dtype}")));
        }
        Some(array) if array.shape() != variable.shape => {
            let how = format!("has the shape {:?} and must have {:?}", array.shape(), variable.shape);
            misshapen.push((name.to_string(), how));
        }
        Some(_) => {}
    });
    let extra = found.iter().map(|(name, _)| name.to_string()).filter(|name| !names.contains(name));
    let extra: Vec<String> = extra.collect();
    if !(missing.is_empty() && extra.is_empty() && misshapen.is_empty()) {
        return Err(TreeFileError::Unlike { path: path.into(), missing, extra, misshapen }.into());
    }
    tree.try_map_named(|name, variable| {
        let values = found.get(name).map(Array::to_f64).unwrap_or_default();
        Ok(Array::from_values(&variable.shape, &values, dtype)?)
    })
}

fn little_endian(array: &Array) -> Vec<u8> {
    match array.data() {
        Data::F32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::F64(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Data::I32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

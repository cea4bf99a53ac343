//! Trees: ordinary structs, generic over the type of their leaves.
//!
//! Parameters, hyper-parameters and batches are structs of the user's own, written once with the
//! type of a leaf left open. The same struct then holds symbolic tensors while a loss is traced,
//! arrays while it runs, shapes or names in between.
//!
//! ```
//! use bilevel_graph::Tree;
//!
//! #[derive(Tree)]
//! struct Linear<T> {
//!     weight: T,
//!     bias: T,
//! }
//!
//! #[derive(Tree)]
//! struct Net<T> {
//!     layers: Vec<Linear<T>>,
//!     scale: Option<T>,
//!     pair: (T, T),
//!     label: &'static str,
//! }
//!
//! let net = Net {
//!     layers: vec![Linear { weight: 1.0, bias: 2.0 }],
//!     scale: None,
//!     pair: (3.0, 4.0),
//!     label: "a small one",
//! };
//! assert_eq!(net.names(), ["layers.0.weight", "layers.0.bias", "pair.0", "pair.1"]);
//!
//! let text: Net<String> = net.map(|x| format!("{x:.1}"));
//! assert_eq!(text.layers[0].bias, "2.0");
//! assert_eq!(text.label, "a small one");
//!
//! let twice: Net<f64> = net.rebuild([2.0, 4.0, 6.0, 8.0])?;
//! let sum: Net<f64> = net.zip_map(&twice, |a, b| a + b)?;
//! assert_eq!(sum.leaves(), [&3.0, &6.0, &9.0, &12.0]);
//! # Ok::<(), bilevel_graph::TreeError>(())
//! ```
//!
//! # Leaves
//!
//! A blanket `impl<T> Tree for T`, every type being its own leaf, would leave no room for any other
//! implementation. So the *position* makes a leaf, and `#[derive(Tree)]` reads it from the written type of the field:
//! `T` alone is a leaf; `Vec`, `Option`, `Box`, `BTreeMap<K, _>`, arrays and tuples which mention `T` are walked; any
//! other type which mentions `T` is a tree nested in this one; a type which does not mention `T` is *static data*.
//! Static data must be `Clone`; mapping carries it along, and zipping takes it from the tree on the left without
//! comparing it. Without a derive, a leaf is written [`Leaf<T>`](Leaf): `Leaf<T>` is a tree,
//! and so are `Vec<Leaf<T>>`, `(Leaf<T>, Net<T>)` and so on.
//!
//! # Names
//!
//! Leaves come in the order of declaration. The name of a leaf is how it is reached, joined by dots:
//! fields by name, elements of tuples, arrays and vectors by number, entries of maps by key (in the
//! order of the keys). `Option`, `Box`, [`Leaf`] and the variants of an enum add nothing. A tree
//! that is one single leaf has the empty name.
//!
//! # How it works
//!
//! An implementation has three traversals, [`walk`](Tree::walk), [`try_map_at`](Tree::try_map_at)
//! and [`try_into_map_at`](Tree::try_into_map_at); everything else is provided on top of them.
//! `walk` reports more than the leaves: wherever two trees of one type may differ (the length of a
//! vector, `Some` or `None`, the variant of an enum, the keys of a map) it reports a [`Node`]. Two
//! trees have the same structure when they report the same nodes at the same paths, so zipping needs no separate
//! traversal, and works across types: a struct of gradients zips with a struct of parameters in code which is generic
//! over both.
//!
//! # Generic code
//!
//! `S::With<U>` is the struct `S` with leaves `U`. In code which is generic over `S`, the compiler
//! does not know that `S::With<S::Leaf>` is `S` again; the bound [`TreeOf`] says it.
//!
//! # Compile errors
//!
//! The leaves are the one type parameter:
//!
//! ```compile_fail
//! # use bilevel_graph::Tree;
//! #[derive(Tree)]
//! struct Fixed {
//!     weight: f64,
//! }
//! ```
//!
//! ```compile_fail
//! # use bilevel_graph::Tree;
//! #[derive(Tree)]
//! struct Two<A, B> {
//!     weight: A,
//!     bias: B,
//! }
//! ```
//!
//! It has no bounds, because mapping puts any other type in its place:
//!
//! ```compile_fail
//! # use bilevel_graph::Tree;
//! #[derive(Tree)]
//! struct Bounded<T: Clone> {
//!     weight: T,
//! }
//! ```
//!
//! Leaves are owned:
//!
//! ```compile_fail
//! # use bilevel_graph::Tree;
//! #[derive(Tree)]
//! struct Borrowed<'a, T> {
//!     weight: &'a T,
//! }
//! ```
//!
//! A union cannot be traversed, since its active field is unknown:
//!
//! ```compile_fail
//! # use bilevel_graph::Tree;
//! #[derive(Tree)]
//! union Either<T: Copy> {
//!     weight: T,
//!     bias: T,
//! }
//! ```
//!
//! Static data is `Clone`:
//!
//! ```compile_fail
//! # use bilevel_graph::Tree;
//! struct NotClone;
//!
//! #[derive(Tree)]
//! struct Labelled<T> {
//!     weight: T,
//!     label: NotClone,
//! }
//! ```
//!
//! And it needs no attribute:
//!
//! ```compile_fail
//! # use bilevel_graph::Tree;
//! #[derive(Tree)]
//! struct Labelled<T> {
//!     weight: T,
//!     #[tree(skip)]
//!     label: String,
//! }
//! ```

mod containers;
mod error;
mod path;
#[doc(hidden)]
pub mod plan;

pub use error::TreeError;
pub use path::{Node, Path};

use std::convert::Infallible;

/// Implements the trait [`Tree`](trait@Tree) for a struct or an enum with one type parameter.
///
/// ```
/// use bilevel_graph::Tree;
///
/// #[derive(Tree)]
/// enum Activation<T> {
///     Relu,
///     Leaky { slope: T },
/// }
///
/// assert!(Activation::<f64>::Relu.names().is_empty());
/// assert_eq!(Activation::Leaky { slope: 0.1 }.names(), ["slope"]);
/// ```
///
/// If this crate is reached by another path, give it:
///
/// ```
/// mod facade {
///     pub mod graph {
///         pub use bilevel_graph::*;
///     }
/// }
///
/// #[derive(facade::graph::Tree)]
/// #[tree(crate = "facade::graph")]
/// struct Linear<T> {
///     weight: T,
/// }
///
/// use facade::graph::Tree;
/// assert_eq!(Linear { weight: 1.0 }.names(), ["weight"]);
/// ```
pub use bilevel_derive::Tree;

/// A structure with leaves of one type, which can be visited, replaced and counted.
///
/// Implemented by `#[derive(Tree)]`, by [`Leaf`], and by `Vec`, `Option`, `Box`, `BTreeMap`,
/// arrays and tuples of trees; the [module](self) explains how these fit together.
///
/// `Option` and arrays have their own `map`, over their elements, which hides the one over their leaves: write
/// `Tree::map(&option, f)` there.
///
/// ```
/// use bilevel_graph::{Leaf, Tree};
///
/// fn count_parameters<S: Tree<Leaf = Vec<f64>>>(tree: &S) -> usize {
///     tree.leaves().iter().map(|leaf| leaf.len()).sum()
/// }
///
/// let tree = (Leaf(vec![0.0; 3]), vec![Leaf(vec![1.0]), Leaf(vec![2.0])]);
/// assert_eq!(count_parameters(&tree), 5);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tree",
    label = "not a tree",
    note = "a struct or an enum becomes a tree by `#[derive(Tree)]`",
    note = "a tree that is one single leaf is written `Leaf<T>`"
)]
#[allow(clippy::type_complexity)] // One closure, written out where it is used.
pub trait Tree: Sized {
    /// The type of the leaves.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let leaf: <Vec<Leaf<f64>> as Tree>::Leaf = 1.0_f64;
    /// # let _ = leaf;
    /// ```
    type Leaf;

    /// The same structure, with leaves of another type.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let strings: <Vec<Leaf<f64>> as Tree>::With<String> = vec![Leaf("a".to_string())];
    /// # let _ = strings;
    /// ```
    type With<U>: Tree<Leaf = U, With<U> = Self::With<U>> + Tree<With<Self::Leaf> = Self>;

    /// Reports the leaves in order, and every place at which two trees of this type may differ.
    ///
    /// Called through [`visit`](Tree::visit), [`leaves`](Tree::leaves) and others; written by
    /// `#[derive(Tree)]`.
    ///
    /// ```
    /// use bilevel_graph::tree::{Node, Path};
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let tree = vec![Leaf('a')];
    /// let mut seen = Vec::new();
    /// tree.walk(&mut Path::new(), &mut |path, node| {
    ///     seen.push((path.to_string(), node));
    /// });
    /// assert_eq!(
    ///     seen,
    ///     [(String::new(), Node::Items(1)), ("0".to_string(), Node::Leaf(&'a'))]
    /// );
    /// ```
    fn walk<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&str, Node<'a, Self::Leaf>));

    /// Replaces the leaves in order, stopping at the first error; `path` is the position of this tree.
    ///
    /// Called through [`map`](Tree::map) and others; written by `#[derive(Tree)]`.
    ///
    /// ```
    /// use bilevel_graph::tree::Path;
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let tree = vec![Leaf(1), Leaf(2)];
    /// let mut path = Path::new();
    /// let names = path.within("layer", |path| {
    ///     tree.try_map_at(path, &mut |name, _| Ok::<_, ()>(name.to_string()))
    /// });
    /// assert_eq!(names, Ok(vec![Leaf("layer.0".to_string()), Leaf("layer.1".to_string())]));
    /// ```
    fn try_map_at<'a, U, E>(
        &'a self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, &'a Self::Leaf) -> Result<U, E>,
    ) -> Result<Self::With<U>, E>;

    /// Like [`try_map_at`](Tree::try_map_at), for a tree which is given away.
    ///
    /// Called through [`into_map`](Tree::into_map) and others; written by `#[derive(Tree)]`.
    ///
    /// ```
    /// use bilevel_graph::tree::Path;
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let tree = vec![Leaf("1".to_string())];
    /// let parsed = tree.try_into_map_at(&mut Path::new(), &mut |_, leaf| leaf.parse::<u8>());
    /// assert_eq!(parsed, Ok(vec![Leaf(1)]));
    /// ```
    fn try_into_map_at<U, E>(
        self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, Self::Leaf) -> Result<U, E>,
    ) -> Result<Self::With<U>, E>;

    /// Calls `f` with the name of each leaf and the leaf, in order.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let mut seen = Vec::new();
    /// (Leaf(1), vec![Leaf(2)]).visit(|name, leaf| seen.push(format!("{name} = {leaf}")));
    /// assert_eq!(seen, ["0 = 1", "1.0 = 2"]);
    /// ```
    fn visit<'a>(&'a self, mut f: impl FnMut(&str, &'a Self::Leaf)) {
        self.walk(&mut Path::new(), &mut |path, node| {
            if let Node::Leaf(leaf) = node {
                f(path, leaf);
            }
        });
    }

    /// The leaves, in order.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// assert_eq!(vec![Leaf('a'), Leaf('b')].leaves(), [&'a', &'b']);
    /// ```
    fn leaves(&self) -> Vec<&Self::Leaf> {
        let mut leaves = Vec::new();
        self.visit(|_, leaf| leaves.push(leaf));
        leaves
    }

    /// The leaves, in order, taken out of the tree.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// assert_eq!(vec![Leaf('a'), Leaf('b')].into_leaves(), ['a', 'b']);
    /// ```
    fn into_leaves(self) -> Vec<Self::Leaf> {
        let mut leaves = Vec::new();
        self.into_map(|leaf| leaves.push(leaf));
        leaves
    }

    /// The names of the leaves, in order.
    ///
    /// ```
    /// use bilevel_graph::Tree;
    ///
    /// #[derive(Tree)]
    /// struct Linear<T> {
    ///     weight: T,
    ///     bias: Option<T>,
    /// }
    ///
    /// let layers = vec![Linear { weight: 1, bias: None }, Linear { weight: 2, bias: Some(3) }];
    /// assert_eq!(layers.names(), ["0.weight", "1.weight", "1.bias"]);
    /// ```
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.visit(|name, _| names.push(name.to_string()));
        names
    }

    /// How many leaves there are.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// assert_eq!((Leaf(1), Some(Leaf(2)), None::<Leaf<i32>>).leaf_count(), 2);
    /// ```
    fn leaf_count(&self) -> usize {
        let mut count = 0;
        self.visit(|_, _| count += 1);
        count
    }

    /// The tree of the results of `f` for each leaf.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let tree = vec![Leaf(1.5), Leaf(2.0)];
    /// assert_eq!(tree.map(|x| x.to_string()), [Leaf("1.5".to_string()), Leaf("2".to_string())]);
    /// ```
    fn map<'a, U>(&'a self, mut f: impl FnMut(&'a Self::Leaf) -> U) -> Self::With<U> {
        self.map_named(|_, leaf| f(leaf))
    }

    /// The tree of the results of `f` for each leaf and its name.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let tree = vec![Leaf('a'), Leaf('b')];
    /// let named = tree.map_named(|name, leaf| format!("{name}: {leaf}"));
    /// assert_eq!(named.leaves(), ["0: a", "1: b"]);
    /// ```
    fn map_named<'a, U>(&'a self, mut f: impl FnMut(&str, &'a Self::Leaf) -> U) -> Self::With<U> {
        infallible(self.try_map_named(|name, leaf| Ok(f(name, leaf))))
    }

    /// The tree of the results of `f` for each leaf, or its first error; later leaves are not visited.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let tree = vec![Leaf("1"), Leaf("two"), Leaf("3")];
    /// assert!(tree.try_map(|text| text.parse::<u8>()).is_err());
    /// ```
    fn try_map<'a, U, E>(&'a self, mut f: impl FnMut(&'a Self::Leaf) -> Result<U, E>) -> Result<Self::With<U>, E> {
        self.try_map_named(|_, leaf| f(leaf))
    }

    /// Like [`try_map`](Tree::try_map), with the name of each leaf.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let tree = vec![Leaf("1"), Leaf("two")];
    /// let parsed = tree.try_map_named(|name, text| {
    ///     text.parse::<u8>().map_err(|error| format!("{name}: {error}"))
    /// });
    /// assert_eq!(parsed, Err("1: invalid digit found in string".to_string()));
    /// ```
    fn try_map_named<'a, U, E>(
        &'a self,
        mut f: impl FnMut(&str, &'a Self::Leaf) -> Result<U, E>,
    ) -> Result<Self::With<U>, E> {
        self.try_map_at(&mut Path::new(), &mut f)
    }

    /// Like [`map`](Tree::map), giving the leaves away.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let tree = vec![Leaf(vec![1, 2])];
    /// assert_eq!(tree.into_map(Vec::into_boxed_slice), [Leaf([1, 2].into())]);
    /// ```
    fn into_map<U>(self, mut f: impl FnMut(Self::Leaf) -> U) -> Self::With<U> {
        infallible(self.try_into_map_named(|_, leaf| Ok(f(leaf))))
    }

    /// Like [`try_map_named`](Tree::try_map_named), giving the leaves away.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let tree = vec![Leaf(vec![1]), Leaf(vec![])];
    /// let first = tree.try_into_map_named(|name, mut leaf| leaf.pop().ok_or(name.to_string()));
    /// assert_eq!(first, Err("1".to_string()));
    /// ```
    fn try_into_map_named<U, E>(self, mut f: impl FnMut(&str, Self::Leaf) -> Result<U, E>) -> Result<Self::With<U>, E> {
        self.try_into_map_at(&mut Path::new(), &mut f)
    }

    /// The tree of the results of `f` for the leaves of two trees, pair by pair.
    ///
    /// The other tree may be of another type, as long as it has the
    /// [same structure](Tree::same_structure). Static data is taken from this one.
    ///
    /// # Errors
    ///
    /// [`TreeError::Structure`] at the first difference of the two.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let (a, b) = (vec![Leaf(1), Leaf(2)], vec![Leaf(0.5), Leaf(0.25)]);
    /// let scaled = a.zip_map(&b, |&a, &b| f64::from(a) * b)?;
    /// assert_eq!(scaled, [Leaf(0.5), Leaf(0.5)]);
    ///
    /// let error = a.zip_map(&vec![Leaf(0.5)], |_, _| ()).unwrap_err();
    /// assert!(error.to_string().contains("2 items"));
    /// # Ok::<(), bilevel_graph::TreeError>(())
    /// ```
    fn zip_map<'a, 'b, B: Tree, U>(
        &'a self,
        other: &'b B,
        mut f: impl FnMut(&'a Self::Leaf, &'b B::Leaf) -> U,
    ) -> Result<Self::With<U>, TreeError> {
        self.try_zip_map_named(other, |_, a, b| Ok(f(a, b)))
    }

    /// Like [`zip_map`](Tree::zip_map), with names, stopping at the first error of `f`.
    ///
    /// # Errors
    ///
    /// [`TreeError::Structure`] at the first difference of the two, before `f` is called at all; otherwise the first
    /// error of `f`.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree};
    ///
    /// let (a, b) = (vec![Leaf(1), Leaf(2)], vec![Leaf(1), Leaf(3)]);
    /// let checked = a.try_zip_map_named(&b, |name, a, b| -> Result<(), Box<dyn std::error::Error>> {
    ///     if a == b { Ok(()) } else { Err(format!("{name}: {a} is not {b}").into()) }
    /// });
    /// assert_eq!(checked.unwrap_err().to_string(), "1: 2 is not 3");
    /// ```
    fn try_zip_map_named<'a, 'b, B: Tree, U, E: From<TreeError>>(
        &'a self,
        other: &'b B,
        mut f: impl FnMut(&str, &'a Self::Leaf, &'b B::Leaf) -> Result<U, E>,
    ) -> Result<Self::With<U>, E> {
        self.same_structure(other)?;
        let others = other.leaves();
        let found = others.len();
        let mut others = others.into_iter();
        self.try_map_named(|name, leaf| match others.next() {
            Some(other) => f(name, leaf, other),
            None => Err(TreeError::missing(self, found).into()),
        })
    }

    /// Whether another tree has its leaves at the same places.
    ///
    /// That is: the same names, vectors of the same lengths, `Some` and `None` at the same places,
    /// the same variants and the same keys. Static data is not compared.
    ///
    /// # Errors
    ///
    /// [`TreeError::Structure`] at the first difference of the two.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree, TreeError};
    ///
    /// let (a, b) = ((Leaf(1), Some(Leaf(2))), (Leaf('x'), None::<Leaf<char>>));
    /// a.same_structure(&a.map(|x| x.to_string()))?;
    /// let error = a.same_structure(&b).unwrap_err();
    /// assert!(matches!(error, TreeError::Structure { path, .. } if path == "1"));
    /// # Ok::<(), TreeError>(())
    /// ```
    fn same_structure<B: Tree>(&self, other: &B) -> Result<(), TreeError> {
        let (left, right) = (structure(self), structure(other));
        let mut right = right.into_iter();
        for left in left {
            let right = right.next();
            if right.as_ref() != Some(&left) {
                return Err(TreeError::structure(Some(left), right));
            }
        }
        match right.next() {
            Some(right) => Err(TreeError::structure(None, Some(right))),
            None => Ok(()),
        }
    }

    /// The tree with this structure and these leaves, in order.
    ///
    /// This tree is only the pattern: its static data is cloned, its leaves are ignored.
    ///
    /// # Errors
    ///
    /// [`TreeError::LeafCount`] when there are more or fewer values than leaves.
    ///
    /// ```
    /// use bilevel_graph::{Leaf, Tree, TreeError};
    ///
    /// let pattern = (Leaf(()), vec![Leaf(()), Leaf(())]);
    /// let tree = pattern.rebuild(["a", "b", "c"])?;
    /// assert_eq!(tree, (Leaf("a"), vec![Leaf("b"), Leaf("c")]));
    ///
    /// let error = pattern.rebuild(["a", "b"]).unwrap_err();
    /// assert!(matches!(error, TreeError::LeafCount { expected: 3, found: 2, .. }));
    /// # Ok::<(), TreeError>(())
    /// ```
    fn rebuild<U>(&self, leaves: impl IntoIterator<Item = U>) -> Result<Self::With<U>, TreeError> {
        let leaves: Vec<U> = leaves.into_iter().collect();
        let found = leaves.len();
        if self.leaf_count() != found {
            return Err(TreeError::missing(self, found));
        }
        let mut leaves = leaves.into_iter();
        self.try_map(|_| leaves.next().ok_or_else(|| TreeError::missing(self, found)))
    }
}

/// A tree with leaves `T` which stays the same type when `T` is replaced by `T`.
///
/// Every tree does, and so every tree implements this; the bound is how generic code says it, and
/// gets back the type it was given.
///
/// ```
/// use bilevel_graph::tree::TreeOf;
/// use bilevel_graph::{Leaf, Tree, TreeError};
///
/// fn descend<S: TreeOf<f64>>(at: &S, gradient: &S, rate: f64) -> Result<S, TreeError> {
///     at.zip_map(gradient, |x, g| x - rate * g)
/// }
///
/// let at = vec![Leaf(1.0), Leaf(2.0)];
/// assert_eq!(descend(&at, &at, 0.5)?, [Leaf(0.5), Leaf(1.0)]);
/// # Ok::<(), TreeError>(())
/// ```
pub trait TreeOf<T>: Tree<Leaf = T, With<T> = Self> {}

impl<T, S: Tree<Leaf = T, With<T> = S>> TreeOf<T> for S {}

/// The tree that is one single leaf.
///
/// ```
/// use bilevel_graph::{Leaf, Tree};
///
/// let tree = Leaf(3);
/// assert_eq!(tree.map(|x| x * 2), Leaf(6));
/// assert_eq!(tree.names(), [""]);
/// assert_eq!(vec![tree].names(), ["0"]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leaf<T>(pub T);

impl<T> Tree for Leaf<T> {
    type Leaf = T;
    type With<U> = Leaf<U>;

    fn walk<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&str, Node<'a, T>)) {
        f(path.as_str(), Node::Leaf(&self.0));
    }

    fn try_map_at<'a, U, E>(
        &'a self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, &'a T) -> Result<U, E>,
    ) -> Result<Leaf<U>, E> {
        f(path.as_str(), &self.0).map(Leaf)
    }

    fn try_into_map_at<U, E>(self, path: &mut Path, f: &mut dyn FnMut(&str, T) -> Result<U, E>) -> Result<Leaf<U>, E> {
        f(path.as_str(), self.0).map(Leaf)
    }
}

/// A node and its position.
type Placed = (String, Node<'static, ()>);

/// All that two trees of the same structure share.
fn structure<S: Tree>(tree: &S) -> Vec<Placed> {
    let mut nodes = Vec::new();
    tree.walk(&mut Path::new(), &mut |path, node| {
        nodes.push((path.to_string(), node.shape()));
    });
    nodes
}

fn infallible<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[derive(Tree)]
    struct Linear<T> {
        weight: T,
    }

    #[test]
    fn derive_works_in_this_crate() {
        assert_eq!(Linear { weight: 1 }.names(), ["weight"]);
    }
}

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
//! # What is a leaf
//!
//! A blanket `impl<T> Tree for T`, every type being its own leaf, would leave no room for any other
//! implementation. So it is the *position* that makes a leaf, and `#[derive(Tree)]` reads it from
//! the type of the field as it is written: `T` alone is a leaf; `Vec`, `Option`, `Box`,
//! `BTreeMap<K, _>`, arrays and tuples which mention `T` are walked; any other type which mentions
//! `T` is a tree nested in this one; a type which does not mention `T` is *static data*. Static data
//! must be `Clone`; mapping carries it along, and zipping takes it from the tree on the left without
//! comparing it. Where there is no derive to read a field, a leaf is written [`Leaf<T>`](Leaf):
//! `Leaf<T>` is a tree, and so are `Vec<Leaf<T>>`, `(Leaf<T>, Net<T>)` and so on.
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
//! trees have the same structure when they report the same nodes at the same paths, so zipping needs
//! no traversal of its own, and works across types: a struct of gradients zips with a struct of
//! parameters in code which is generic over both.
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
//! A union does not know what it holds:
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

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::fmt::{self, Display, Write};
use std::marker::PhantomData;

use plan::Plan;

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
/// Where this crate is reached by another path, say which:
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
/// arrays and tuples of trees; the [module](self) says how these fit together.
///
/// `Option` and arrays have a `map` of their own, over their elements, which hides the one over
/// their leaves: write `Tree::map(&option, f)` there.
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

    /// Reports the leaves in order, and every place where two trees of this type may differ.
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

    /// Replaces the leaves in order, stopping at the first error; `path` is where this tree is.
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

    /// The tree of what `f` makes of each leaf.
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

    /// The tree of what `f` makes of each leaf and its name.
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

    /// The tree of what `f` makes of each leaf, or its first error; later leaves are not reached.
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

    /// The tree of what `f` makes of the leaves of two trees, pair by pair.
    ///
    /// The other tree may be of another type, as long as it has the
    /// [same structure](Tree::same_structure). Static data is taken from this one.
    ///
    /// # Errors
    ///
    /// [`TreeError::Structure`] at the first place where the two differ.
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
    /// [`TreeError::Structure`] at the first place where the two differ, before `f` is called at
    /// all; otherwise the first error of `f`.
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
    /// [`TreeError::Structure`] at the first place where the two differ.
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
    /// This tree is only the pattern: its static data is cloned, its leaves are not looked at.
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

/// What [`Tree::walk`] reports at a path: a leaf, or how the tree goes on from there.
///
/// ```
/// use bilevel_graph::tree::Node;
///
/// assert_eq!(Node::<f64>::Items(2).to_string(), "2 items");
/// assert_eq!(Node::Leaf(&1.0).to_string(), "a leaf");
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Node<'a, L> {
    /// A leaf.
    Leaf(&'a L),
    /// A vector or an array of so many items.
    Items(usize),
    /// An option: `true` for `Some`.
    Present(bool),
    /// An enum, in the variant of this name.
    Variant(&'static str),
    /// A map with these keys.
    Keys(Vec<String>),
}

impl<L> Node<'_, L> {
    /// The node without its leaf.
    fn shape(self) -> Node<'static, ()> {
        match self {
            Node::Leaf(_) => Node::Leaf(&()),
            Node::Items(count) => Node::Items(count),
            Node::Present(present) => Node::Present(present),
            Node::Variant(name) => Node::Variant(name),
            Node::Keys(keys) => Node::Keys(keys),
        }
    }
}

impl<L> Display for Node<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Leaf(_) => f.write_str("a leaf"),
            Node::Items(1) => f.write_str("1 item"),
            Node::Items(count) => write!(f, "{count} items"),
            Node::Present(true) => f.write_str("Some"),
            Node::Present(false) => f.write_str("None"),
            Node::Variant(name) => write!(f, "the variant {name}"),
            Node::Keys(keys) => write!(f, "the keys {keys:?}"),
        }
    }
}

/// Where a traversal is: the names of the way there, joined by dots.
///
/// ```
/// use bilevel_graph::tree::Path;
///
/// let mut path = Path::new();
/// path.within("layers", |path| {
///     path.within(0, |path| assert_eq!(path.as_str(), "layers.0"));
///     path.within(1, |path| assert_eq!(path.as_str(), "layers.1"));
/// });
/// assert_eq!(path.as_str(), "");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    text: String,
    depth: usize,
}

impl Path {
    /// The root.
    ///
    /// ```
    /// assert_eq!(bilevel_graph::tree::Path::new().as_str(), "");
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// The path as text.
    ///
    /// ```
    /// let mut path = bilevel_graph::tree::Path::new();
    /// let text = path.within("weight", |path| path.as_str().to_string());
    /// assert_eq!(text, "weight");
    /// ```
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Calls `f` one step further down.
    ///
    /// ```
    /// let mut path = bilevel_graph::tree::Path::new();
    /// path.within("weight", |path| assert_eq!(path.as_str(), "weight"));
    /// ```
    pub fn within<R>(&mut self, segment: impl Display, f: impl FnOnce(&mut Path) -> R) -> R {
        let len = self.text.len();
        if self.depth > 0 {
            self.text.push('.');
        }
        // Writing to a string fails only if the segment's own `Display` does; the name is then
        // cut short.
        let _ = write!(self.text, "{segment}");
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        self.text.truncate(len);
        result
    }
}

/// Why leaves and a structure do not fit each other.
///
/// ```
/// use bilevel_graph::{Leaf, Tree};
///
/// let error = vec![Leaf(1), Leaf(2)].rebuild([1.0]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the tree has 2 leaves but 1 value was given: give one more, starting with the one for `1`"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeError {
    /// The number of values is not the number of leaves.
    LeafCount {
        /// How many leaves the tree has.
        expected: usize,
        /// How many values there were.
        found: usize,
        /// The name of the first leaf without a value, when there were too few.
        missing: Option<String>,
    },
    /// Two trees have their leaves at different places.
    Structure {
        /// The first place where they differ.
        path: String,
        /// What the first tree has.
        left: String,
        /// What the second tree has.
        right: String,
    },
}

impl TreeError {
    /// The error for `found` values in the place of the leaves of `pattern`.
    fn missing<S: Tree>(pattern: &S, found: usize) -> Self {
        let mut names = pattern.names();
        let expected = names.len();
        TreeError::LeafCount { expected, found, missing: (found < expected).then(|| names.swap_remove(found)) }
    }

    /// The error for two different nodes, at least one of which is there.
    fn structure(left: Option<Placed>, right: Option<Placed>) -> Self {
        let same_path = match (&left, &right) {
            (Some((left, _)), Some((right, _))) => left == right,
            _ => false,
        };
        let describe = |placed: &Option<Placed>| match placed {
            None => "nothing more".to_string(),
            Some((_, node)) if same_path => node.to_string(),
            Some((path, node)) => format!("{node} at {}", Quoted(path)),
        };
        let (left_text, right_text) = (describe(&left), describe(&right));
        let path = left.or(right).map(|(path, _)| path);
        TreeError::Structure { path: path.unwrap_or_default(), left: left_text, right: right_text }
    }
}

impl Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize, one: &'static str, many| if count == 1 { one } else { many };
        match self {
            TreeError::LeafCount { expected, found, missing } => {
                write!(
                    f,
                    "the tree has {expected} {} but {found} {} given: ",
                    plural(*expected, "leaf", "leaves"),
                    plural(*found, "value was", "values were"),
                )?;
                match missing {
                    Some(name) => {
                        match expected.saturating_sub(*found) {
                            1 => f.write_str("give one more")?,
                            more => write!(f, "give {more} more")?,
                        }
                        write!(f, ", starting with the one for {}", Quoted(name))
                    }
                    None => write!(
                        f,
                        "remove the last {}, or use the tree the values come from",
                        found.saturating_sub(*expected)
                    ),
                }
            }
            TreeError::Structure { path, left, right } => write!(
                f,
                "the two trees differ at {}: the first has {left}, the second has {right}; give \
                 both the same structure there",
                Quoted(path)
            ),
        }
    }
}

impl Error for TreeError {}

/// A path as it reads in a message.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => f.write_str("the root"),
            path => write!(f, "`{path}`"),
        }
    }
}

/// A node and where it is.
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

/// A tree by a plan for it.
macro_rules! tree_by_plan {
    ([$($generics:tt)*] $tree:ty, $leaf:ty, $plan:ty, $u:ident => $with:ty) => {
        impl<$($generics)*> Tree for $tree {
            type Leaf = $leaf;
            type With<$u> = $with;

            fn walk<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&str, Node<'a, $leaf>)) {
                <$plan as Plan<$tree, $leaf>>::walk(self, path, f);
            }

            fn try_map_at<'a, $u, Er>(
                &'a self,
                path: &mut Path,
                f: &mut dyn FnMut(&str, &'a $leaf) -> Result<$u, Er>,
            ) -> Result<$with, Er> {
                <$plan as Plan<$tree, $leaf>>::try_map(self, path, f)
            }

            fn try_into_map_at<$u, Er>(
                self,
                path: &mut Path,
                f: &mut dyn FnMut(&str, $leaf) -> Result<$u, Er>,
            ) -> Result<$with, Er> {
                <$plan as Plan<$tree, $leaf>>::try_into_map(self, path, f)
            }
        }
    };
}

tree_by_plan!([S: Tree] Vec<S>, S::Leaf, Vec<plan::Nested>, U => Vec<S::With<U>>);
tree_by_plan!([S: Tree] Option<S>, S::Leaf, Option<plan::Nested>, U => Option<S::With<U>>);
tree_by_plan!([S: Tree] Box<S>, S::Leaf, Box<plan::Nested>, U => Box<S::With<U>>);
tree_by_plan!(
    [S: Tree, const N: usize] [S; N], S::Leaf, [plan::Nested; N], U => [S::With<U>; N]
);
tree_by_plan!(
    [K: Ord + Clone + Display, S: Tree] BTreeMap<K, S>, S::Leaf, BTreeMap<K, plan::Nested>,
    U => BTreeMap<K, S::With<U>>
);
tree_by_plan!([T] PhantomData<T>, T, plan::Absent, U => PhantomData<U>);

/// Tuples of trees with leaves of one type.
macro_rules! tuple_trees {
    ($($first:ident $($rest:ident)*;)*) => {$(
        tree_by_plan!(
            [$first: Tree, $($rest: Tree<Leaf = $first::Leaf>,)*] ($first, $($rest,)*),
            $first::Leaf,
            (plan::Nested, $(tuple_trees!(@nested $rest),)*),
            U => ($first::With<U>, $($rest::With<U>,)*)
        );
    )*};
    (@nested $tree:ident) => { plan::Nested };
}

tuple_trees! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

/// How a type is traversed: what `#[derive(Tree)]` generates calls to.
///
/// A plan of a type is the same type with markers in the place of what it holds: [`Here`](plan::Here)
/// for a leaf, [`Nested`](plan::Nested) for a tree, [`Static`](plan::Static) for static data. So
/// `Vec<(T, String)>` is traversed by `Vec<(Here, Static)>`, where `(T, String)` itself is no tree.
#[doc(hidden)]
pub mod plan {
    use super::{BTreeMap, Display, Node, Path, PhantomData, Tree};

    /// The traversal of an `X` with leaves `L`; see [`Tree`] for the methods.
    #[diagnostic::on_unimplemented(
        message = "`#[derive(Tree)]` cannot walk a field of type `{X}`",
        note = "a type which mentions the leaf parameter must implement `Tree`, one which does not \
                must implement `Clone`"
    )]
    #[allow(clippy::type_complexity)] // As for `Tree`.
    pub trait Plan<X, L> {
        /// An `X` with leaves `U`.
        type With<U>;

        /// [`Tree::walk`].
        fn walk<'a>(x: &'a X, path: &mut Path, f: &mut dyn FnMut(&str, Node<'a, L>));

        /// [`Tree::try_map_at`].
        fn try_map<'a, U, E>(
            x: &'a X,
            path: &mut Path,
            f: &mut dyn FnMut(&str, &'a L) -> Result<U, E>,
        ) -> Result<Self::With<U>, E>;

        /// [`Tree::try_into_map_at`].
        fn try_into_map<U, E>(
            x: X,
            path: &mut Path,
            f: &mut dyn FnMut(&str, L) -> Result<U, E>,
        ) -> Result<Self::With<U>, E>;
    }

    /// A leaf.
    pub enum Here {}

    impl<L> Plan<L, L> for Here {
        type With<U> = U;

        fn walk<'a>(x: &'a L, path: &mut Path, f: &mut dyn FnMut(&str, Node<'a, L>)) {
            f(path.as_str(), Node::Leaf(x));
        }

        fn try_map<'a, U, E>(
            x: &'a L,
            path: &mut Path,
            f: &mut dyn FnMut(&str, &'a L) -> Result<U, E>,
        ) -> Result<U, E> {
            f(path.as_str(), x)
        }

        fn try_into_map<U, E>(x: L, path: &mut Path, f: &mut dyn FnMut(&str, L) -> Result<U, E>) -> Result<U, E> {
            f(path.as_str(), x)
        }
    }

    /// A tree.
    pub enum Nested {}

    impl<S: Tree<Leaf = L>, L> Plan<S, L> for Nested {
        type With<U> = S::With<U>;

        fn walk<'a>(x: &'a S, path: &mut Path, f: &mut dyn FnMut(&str, Node<'a, L>)) {
            x.walk(path, f);
        }

        fn try_map<'a, U, E>(
            x: &'a S,
            path: &mut Path,
            f: &mut dyn FnMut(&str, &'a L) -> Result<U, E>,
        ) -> Result<S::With<U>, E> {
            x.try_map_at(path, f)
        }

        fn try_into_map<U, E>(
            x: S,
            path: &mut Path,
            f: &mut dyn FnMut(&str, L) -> Result<U, E>,
        ) -> Result<S::With<U>, E> {
            x.try_into_map_at(path, f)
        }
    }

    /// Static data.
    pub enum Static {}

    impl<X: Clone, L> Plan<X, L> for Static {
        type With<U> = X;

        fn walk<'a>(_: &'a X, _: &mut Path, _: &mut dyn FnMut(&str, Node<'a, L>)) {}

        fn try_map<'a, U, E>(x: &'a X, _: &mut Path, _: &mut dyn FnMut(&str, &'a L) -> Result<U, E>) -> Result<X, E> {
            Ok(x.clone())
        }

        fn try_into_map<U, E>(x: X, _: &mut Path, _: &mut dyn FnMut(&str, L) -> Result<U, E>) -> Result<X, E> {
            Ok(x)
        }
    }

    /// No leaf, for all that the type mentions it.
    pub enum Absent {}

    impl<L> Plan<PhantomData<L>, L> for Absent {
        type With<U> = PhantomData<U>;

        fn walk<'a>(_: &'a PhantomData<L>, _: &mut Path, _: &mut dyn FnMut(&str, Node<'a, L>)) {}

        fn try_map<'a, U, E>(
            _: &'a PhantomData<L>,
            _: &mut Path,
            _: &mut dyn FnMut(&str, &'a L) -> Result<U, E>,
        ) -> Result<PhantomData<U>, E> {
            Ok(PhantomData)
        }

        fn try_into_map<U, E>(
            _: PhantomData<L>,
            _: &mut Path,
            _: &mut dyn FnMut(&str, L) -> Result<U, E>,
        ) -> Result<PhantomData<U>, E> {
            Ok(PhantomData)
        }
    }

    impl<X, L, P: Plan<X, L>> Plan<Vec<X>, L> for Vec<P> {
        type With<U> = Vec<P::With<U>>;

        fn walk<'a>(x: &'a Vec<X>, path: &mut Path, f: &mut dyn FnMut(&str, Node<'a, L>)) {
            f(path.as_str(), Node::Items(x.len()));
            for (index, item) in x.iter().enumerate() {
                path.within(index, |path| P::walk(item, path, f));
            }
        }

        fn try_map<'a, U, E>(
            x: &'a Vec<X>,
            path: &mut Path,
            f: &mut dyn FnMut(&str, &'a L) -> Result<U, E>,
        ) -> Result<Vec<P::With<U>>, E> {
            (x.iter().enumerate()).map(|(index, item)| path.within(index, |path| P::try_map(item, path, f))).collect()
        }

        fn try_into_map<U, E>(
            x: Vec<X>,
            path: &mut Path,
            f: &mut dyn FnMut(&str, L) -> Result<U, E>,
        ) -> Result<Vec<P::With<U>>, E> {
            (x.into_iter().enumerate())
                .map(|(index, item)| path.within(index, |path| P::try_into_map(item, path, f)))
                .collect()
        }
    }

    impl<X, L, P: Plan<X, L>, const N: usize> Plan<[X; N], L> for [P; N] {
        type With<U> = [P::With<U>; N];

        fn walk<'a>(x: &'a [X; N], path: &mut Path, f: &mut dyn FnMut(&str, Node<'a, L>)) {
            f(path.as_str(), Node::Items(N));
            for (index, item) in x.iter().enumerate() {
                path.within(index, |path| P::walk(item, path, f));
            }
        }

        fn try_map<'a, U, E>(
            x: &'a [X; N],
            path: &mut Path,
            f: &mut dyn FnMut(&str, &'a L) -> Result<U, E>,
        ) -> Result<[P::With<U>; N], E> {
            try_array(x.each_ref(), |index, item| path.within(index, |path| P::try_map(item, path, f)))
        }

        fn try_into_map<U, E>(
            x: [X; N],
            path: &mut Path,
            f: &mut dyn FnMut(&str, L) -> Result<U, E>,
        ) -> Result<[P::With<U>; N], E> {
            try_array(x, |index, item| path.within(index, |path| P::try_into_map(item, path, f)))
        }
    }

    /// `array.map`, stopping at the first error.
    fn try_array<X, Y, E, const N: usize>(
        array: [X; N],
        mut f: impl FnMut(usize, X) -> Result<Y, E>,
    ) -> Result<[Y; N], E> {
        let items =
            (array.into_iter().enumerate()).map(|(index, item)| f(index, item)).collect::<Result<Vec<Y>, E>>()?;
        match <[Y; N]>::try_from(items) {
            Ok(array) => Ok(array),
            Err(_) => unreachable!("N items come from N items"),
        }
    }

    impl<X, L, P: Plan<X, L>> Plan<Option<X>, L> for Option<P> {
        type With<U> = Option<P::With<U>>;

        fn walk<'a>(x: &'a Option<X>, path: &mut Path, f: &mut dyn FnMut(&str, Node<'a, L>)) {
            f(path.as_str(), Node::Present(x.is_some()));
            if let Some(x) = x {
                P::walk(x, path, f);
            }
        }

        fn try_map<'a, U, E>(
            x: &'a Option<X>,
            path: &mut Path,
            f: &mut dyn FnMut(&str, &'a L) -> Result<U, E>,
        ) -> Result<Option<P::With<U>>, E> {
            x.as_ref().map(|x| P::try_map(x, path, f)).transpose()
        }

        fn try_into_map<U, E>(
            x: Option<X>,
            path: &mut Path,
            f: &mut dyn FnMut(&str, L) -> Result<U, E>,
        ) -> Result<Option<P::With<U>>, E> {
            x.map(|x| P::try_into_map(x, path, f)).transpose()
        }
    }

    impl<X, L, P: Plan<X, L>> Plan<Box<X>, L> for Box<P> {
        type With<U> = Box<P::With<U>>;

        fn walk<'a>(x: &'a Box<X>, path: &mut Path, f: &mut dyn FnMut(&str, Node<'a, L>)) {
            P::walk(x, path, f);
        }

        fn try_map<'a, U, E>(
            x: &'a Box<X>,
            path: &mut Path,
            f: &mut dyn FnMut(&str, &'a L) -> Result<U, E>,
        ) -> Result<Box<P::With<U>>, E> {
            P::try_map(x, path, f).map(Box::new)
        }

        fn try_into_map<U, E>(
            x: Box<X>,
            path: &mut Path,
            f: &mut dyn FnMut(&str, L) -> Result<U, E>,
        ) -> Result<Box<P::With<U>>, E> {
            P::try_into_map(*x, path, f).map(Box::new)
        }
    }

    impl<K, X, L, P> Plan<BTreeMap<K, X>, L> for BTreeMap<K, P>
    where
        K: Ord + Clone + Display,
        P: Plan<X, L>,
    {
        type With<U> = BTreeMap<K, P::With<U>>;

        fn walk<'a>(x: &'a BTreeMap<K, X>, path: &mut Path, f: &mut dyn FnMut(&str, Node<'a, L>)) {
            let keys = x.keys().map(K::to_string).collect();
            f(path.as_str(), Node::Keys(keys));
            for (key, value) in x {
                path.within(key, |path| P::walk(value, path, f));
            }
        }

        fn try_map<'a, U, E>(
            x: &'a BTreeMap<K, X>,
            path: &mut Path,
            f: &mut dyn FnMut(&str, &'a L) -> Result<U, E>,
        ) -> Result<BTreeMap<K, P::With<U>>, E> {
            (x.iter())
                .map(|(key, value)| {
                    let value = path.within(key, |path| P::try_map(value, path, f))?;
                    Ok((key.clone(), value))
                })
                .collect()
        }

        fn try_into_map<U, E>(
            x: BTreeMap<K, X>,
            path: &mut Path,
            f: &mut dyn FnMut(&str, L) -> Result<U, E>,
        ) -> Result<BTreeMap<K, P::With<U>>, E> {
            (x.into_iter())
                .map(|(key, value)| {
                    let value = path.within(&key, |path| P::try_into_map(value, path, f))?;
                    Ok((key, value))
                })
                .collect()
        }
    }

    macro_rules! tuple_plans {
        ($($($plan:ident $item:ident $index:tt),+;)*) => {$(
            impl<L, $($item, $plan: Plan<$item, L>),+> Plan<($($item,)+), L> for ($($plan,)+) {
                type With<U> = ($($plan::With<U>,)+);

                fn walk<'a>(
                    x: &'a ($($item,)+),
                    path: &mut Path,
                    f: &mut dyn FnMut(&str, Node<'a, L>),
                ) {
                    $(path.within($index, |path| $plan::walk(&x.$index, path, f));)+
                }

                fn try_map<'a, U, Er>(
                    x: &'a ($($item,)+),
                    path: &mut Path,
                    f: &mut dyn FnMut(&str, &'a L) -> Result<U, Er>,
                ) -> Result<($($plan::With<U>,)+), Er> {
                    Ok(($(path.within($index, |path| $plan::try_map(&x.$index, path, f))?,)+))
                }

                fn try_into_map<U, Er>(
                    x: ($($item,)+),
                    path: &mut Path,
                    f: &mut dyn FnMut(&str, L) -> Result<U, Er>,
                ) -> Result<($($plan::With<U>,)+), Er> {
                    Ok(($(path.within($index, |path| $plan::try_into_map(x.$index, path, f))?,)+))
                }
            }
        )*};
    }

    tuple_plans! {
        PA A 0;
        PA A 0, PB B 1;
        PA A 0, PB B 1, PC C 2;
        PA A 0, PB B 1, PC C 2, PD D 3;
        PA A 0, PB B 1, PC C 2, PD D 3, PE E 4;
        PA A 0, PB B 1, PC C 2, PD D 3, PE E 4, PF F 5;
        PA A 0, PB B 1, PC C 2, PD D 3, PE E 4, PF F 5, PG G 6;
        PA A 0, PB B 1, PC C 2, PD D 3, PE E 4, PF F 5, PG G 6, PH H 7;
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

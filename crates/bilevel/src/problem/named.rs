//! Leaves by name: λ and θ of a problem whose structs are unknown.

use bilevel_graph::Tree;
use bilevel_graph::tree::{Node, Path};

/// The leaves of a tree with their names, in its order: a tree itself, and the structs of an
/// [erased](crate::Problem::erase) problem.
///
/// ```
/// use bilevel::{Named, Tree};
/// #[derive(Tree)]
/// struct Line<T> { weights: T, bias: T }
/// let named = Named::of(&Line { weights: 2.0, bias: 0.5 });
/// assert_eq!(named.get("bias"), Some(&0.5));
/// assert_eq!(named.names(), ["weights", "bias"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Named<T>(Vec<(String, T)>);

impl<T> Named<T> {
    /// The leaves of a tree.
    pub fn of<S: Tree<Leaf = T>>(tree: &S) -> Self
    where
        T: Clone,
    {
        let mut all = vec![];
        tree.visit(|name, leaf| all.push((name.to_string(), leaf.clone())));
        Named(all)
    }

    /// The leaf of this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.iter().find(|(other, _)| *other == name).map(|(_, leaf)| leaf)
    }

    /// Names and leaves, in the order of the tree.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, leaf)| (name.as_str(), leaf))
    }
}

impl<T> FromIterator<(String, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(leaves: I) -> Self {
        Named(leaves.into_iter().collect())
    }
}

impl<T> Tree for Named<T> {
    type Leaf = T;
    type With<U> = Named<U>;

    fn walk<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&str, Node<'a, T>)) {
        f(path.as_str(), Node::Keys(self.0.iter().map(|(name, _)| name.clone()).collect()));
        for (name, leaf) in &self.0 {
            path.within(name, |path| f(path.as_str(), Node::Leaf(leaf)));
        }
    }

    fn try_map_at<'a, U, E>(
        &'a self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, &'a T) -> Result<U, E>,
    ) -> Result<Named<U>, E> {
        let one = |(name, leaf): &'a (String, T)| Ok((name.clone(), path.within(name, |path| f(path.as_str(), leaf))?));
        self.0.iter().map(one).collect()
    }

    fn try_into_map_at<U, E>(self, path: &mut Path, f: &mut dyn FnMut(&str, T) -> Result<U, E>) -> Result<Named<U>, E> {
        let one = |(name, leaf): (String, T)| {
            let leaf = path.within(&name, |path| f(path.as_str(), leaf))?;
            Ok((name, leaf))
        };
        self.0.into_iter().map(one).collect()
    }
}

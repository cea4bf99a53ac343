//! The path of a leaf in its tree, and the nodes along it.

use std::fmt::{self, Display, Write};

/// The report of [`Tree::walk`](super::Tree::walk) at a path: a leaf, or how the tree continues from there.
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
    /// A vector or an array of this many items.
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
    pub(super) fn shape(self) -> Node<'static, ()> {
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

/// The position of a traversal: the names along its path, joined by dots.
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

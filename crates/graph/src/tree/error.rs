//! Errors of leaves that do not fit a structure, each with the difference.

use super::{Placed, Tree};
use std::error::Error;
use std::fmt::{self, Display};

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
        /// The first difference, as a path.
        path: String,
        /// The node of the first tree.
        left: String,
        /// The node of the second tree.
        right: String,
    },
}

impl TreeError {
    /// The error for `found` values in the place of the leaves of `pattern`.
    pub(super) fn missing<S: Tree>(pattern: &S, found: usize) -> Self {
        let mut names = pattern.names();
        let expected = names.len();
        TreeError::LeafCount { expected, found, missing: (found < expected).then(|| names.swap_remove(found)) }
    }

    /// The error for two different nodes, at least one of which exists.
    pub(super) fn structure(left: Option<Placed>, right: Option<Placed>) -> Self {
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

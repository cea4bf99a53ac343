//! Vectors, options, boxes, maps, arrays and tuples of trees are trees.

use super::plan::{self, Plan};
use super::{Node, Path, Tree};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::marker::PhantomData;

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

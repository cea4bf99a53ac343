//! The traversal of a type, to which `#[derive(Tree)]` generates calls.
//!
//! A plan of a type is the same type with markers in place of its contents: [`Here`](Here)
//! for a leaf, [`Nested`](Nested) for a tree, [`Static`](Static) for static data. So
//! `Vec<(T, String)>` is traversed by `Vec<(Here, Static)>`, where `(T, String)` itself is not a tree.

use super::{Node, Path, Tree};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::marker::PhantomData;

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

    fn try_map<'a, U, E>(x: &'a L, path: &mut Path, f: &mut dyn FnMut(&str, &'a L) -> Result<U, E>) -> Result<U, E> {
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

    fn try_into_map<U, E>(x: S, path: &mut Path, f: &mut dyn FnMut(&str, L) -> Result<U, E>) -> Result<S::With<U>, E> {
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
fn try_array<X, Y, E, const N: usize>(array: [X; N], mut f: impl FnMut(usize, X) -> Result<Y, E>) -> Result<[Y; N], E> {
    let items = (array.into_iter().enumerate()).map(|(index, item)| f(index, item)).collect::<Result<Vec<Y>, E>>()?;
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

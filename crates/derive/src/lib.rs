//! `#[derive(Tree)]`, for users who write λ and θ as structs.
//!
//! Use it through `bilevel_graph::Tree`, which names both the trait and this macro; the trait's module explains trees.

#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

mod dependency;
mod tree;

use proc_macro::TokenStream;
use syn::{DeriveInput, Error, parse_macro_input};

/// Implements `Tree` for a struct or an enum which is generic over the type of its leaves.
///
/// The item has exactly one type parameter, without bounds; lifetimes and const parameters are allowed in addition.
/// With `T` that parameter, each field is read by its type as written:
///
/// | type of the field | meaning |
/// |---|---|
/// | `T` | a leaf |
/// | `Vec`, `Option`, `Box`, `BTreeMap<K, _>`, array or tuple which mentions `T` | walked, its elements read by this same table |
/// | any other type which mentions `T` (or `Self`) | a nested tree: must implement `Tree<Leaf = T>` |
/// | a type which does not mention `T` | static data: must be `Clone`, carried along unchanged |
///
/// The generated code names `::bilevel_graph`, or `::bilevel::graph` in a crate that depends only on `bilevel`. If the
/// crate is reached by another path, give it with `#[tree(crate = "path::to::graph")]` on the item.
///
/// ```text
/// #[derive(Tree)]
/// struct Linear<T> {
///     weight: T,
///     bias: Option<T>,
///     label: String,
/// }
/// ```
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    tree::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

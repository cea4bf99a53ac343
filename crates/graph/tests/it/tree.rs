//! `#[derive(Tree)]` and the trees of the standard library's containers.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use bilevel_graph::{Leaf, Tree, TreeError, TreeOf};
use proptest::prelude::*;

#[derive(Tree, Clone, Debug, PartialEq)]
struct Linear<T> {
    weight: T,
    bias: T,
}

#[derive(Tree, Clone, Debug, PartialEq)]
struct Net<T> {
    layers: Vec<Linear<T>>,
    head: Linear<T>,
    scale: Option<T>,
    pair: (T, T),
    taps: [T; 3],
    label: String,
}

fn linear(start: i32) -> Linear<f64> {
    Linear { weight: f64::from(start), bias: f64::from(start + 1) }
}

fn net() -> Net<f64> {
    Net {
        layers: vec![linear(0), linear(2)],
        head: linear(4),
        scale: Some(6.0),
        pair: (7.0, 8.0),
        taps: [9.0, 10.0, 11.0],
        label: "net".to_string(),
    }
}

/// The path of a `TreeError::Structure`, and what the two sides have there.
fn difference(error: &TreeError) -> (&str, &str, &str) {
    match error {
        TreeError::Structure { path, left, right } => (path, left, right),
        other => panic!("not a difference of structure: {other}"),
    }
}

#[test]
fn names_follow_declaration() {
    assert_eq!(
        net().names(),
        [
            "layers.0.weight",
            "layers.0.bias",
            "layers.1.weight",
            "layers.1.bias",
            "head.weight",
            "head.bias",
            "scale",
            "pair.0",
            "pair.1",
            "taps.0",
            "taps.1",
            "taps.2",
        ]
    );
}

#[test]
fn leaves_follow_declaration() {
    let expected: Vec<f64> = (0..12).map(f64::from).collect();
    let net = net();
    assert_eq!(net.leaves(), expected.iter().collect::<Vec<_>>());
    assert_eq!(net.leaf_count(), 12);
    let mut visited = Vec::new();
    net.visit(|name, leaf| visited.push((name.to_string(), *leaf)));
    let zipped: Vec<_> = net.names().into_iter().zip(expected.clone()).collect();
    assert_eq!(visited, zipped);
    assert_eq!(net.into_leaves(), expected);
}

#[test]
fn flatten_then_rebuild() {
    let net = net();
    let leaves = net.clone().into_leaves();
    assert_eq!(net.rebuild(leaves), Ok(net.clone()));
    // The pattern's own leaves do not matter.
    let pattern: Net<()> = net.map(|_| ());
    assert_eq!(pattern.rebuild(net.leaves()), Ok(net.map(|x| x)));
}

#[test]
fn rebuild_counts_the_leaves() {
    let error = net().rebuild(vec!['x'; 7]).unwrap_err();
    assert_eq!(error, TreeError::LeafCount { expected: 12, found: 7, missing: Some("pair.0".to_string()) });
    assert_eq!(
        error.to_string(),
        "the tree has 12 leaves but 7 values were given: give 5 more, starting with the one for \
         `pair.0`"
    );
    let error = Leaf(0).rebuild([1, 2]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the tree has 1 leaf but 2 values were given: remove the last 1, or use the tree the \
         values come from"
    );
    let error = Leaf(0).rebuild(Vec::<u8>::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the tree has 1 leaf but 0 values were given: give one more, starting with the one for \
         the root"
    );
}

#[test]
fn map_changes_the_type() {
    let text: Net<String> = net().map(|x| format!("{x}"));
    assert_eq!(text.layers[1].bias, "3");
    assert_eq!(text.scale.as_deref(), Some("6"));
    assert_eq!(text.taps, ["9", "10", "11"]);
    assert_eq!(text.label, "net");
    let named: Net<String> = net().map_named(|name, x| format!("{name}={x}"));
    assert_eq!(named.pair.1, "pair.1=8");
    let moved: Net<Box<f64>> = net().into_map(Box::new);
    assert_eq!(*moved.head.weight, 4.0);
    assert_eq!(moved.label, "net");
}

#[test]
fn leaves_need_not_be_clone() {
    struct Buffer(u8);
    let tree = (Leaf(Buffer(1)), [Leaf(Buffer(2))]);
    assert_eq!(tree.into_map(|buffer| buffer.0), (Leaf(1_u8), [Leaf(2_u8)]));
}

#[test]
fn try_map_stops_at_the_first_error() {
    let mut seen = Vec::new();
    let result = net().try_map_named(|name, &x| {
        seen.push(x);
        if x < 5.0 { Ok(x) } else { Err(name.to_string()) }
    });
    assert_eq!(result, Err("head.bias".to_string()));
    assert_eq!(seen, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);

    // Inside an array too.
    let mut calls = 0;
    let result = net().try_into_map_named(|name, x| {
        calls += 1;
        if x == 10.0 { Err(name.to_string()) } else { Ok(x) }
    });
    assert_eq!((result, calls), (Err("taps.1".to_string()), 11));
    assert_eq!(net().try_map(|&x| Ok::<_, ()>(x)), Ok(net()));
}

#[test]
fn zip_map_pairs_the_leaves() {
    let (a, b) = (net(), net().map(|x| *x as i64));
    let sum: Net<f64> = a.zip_map(&b, |x, &y| x + y as f64).unwrap();
    assert_eq!(sum, a.map(|x| 2.0 * x));
}

#[test]
fn zip_map_says_where_lengths_differ() {
    let mut other = net();
    other.layers.pop();
    let error = net().zip_map(&other, |_, _| ()).unwrap_err();
    assert_eq!(difference(&error), ("layers", "2 items", "1 item"));
    assert_eq!(
        error.to_string(),
        "the two trees differ at `layers`: the first has 2 items, the second has 1 item; give \
         both the same structure there"
    );
}

#[test]
fn zip_map_says_where_options_differ() {
    let other = Net { scale: None, ..net() };
    let error = net().zip_map(&other, |_, _| ()).unwrap_err();
    assert_eq!(difference(&error), ("scale", "Some", "None"));
    let error = other.zip_map(&net(), |_, _| ()).unwrap_err();
    assert_eq!(difference(&error), ("scale", "None", "Some"));
}

#[test]
fn zip_map_says_where_types_differ() {
    let error = linear(0).zip_map(&Leaf(1), |_, _| ()).unwrap_err();
    assert_eq!(difference(&error), ("weight", "a leaf at `weight`", "a leaf at the root"));
    let error = (Leaf(1), Leaf(2)).same_structure(&(Leaf(1),)).unwrap_err();
    assert_eq!(difference(&error), ("1", "a leaf at `1`", "nothing more"));
    let error = (Leaf(1),).same_structure(&(Leaf(1), Leaf(2))).unwrap_err();
    assert_eq!(difference(&error), ("1", "nothing more", "a leaf at `1`"));
}

#[test]
fn failed_zip_calls_nothing() {
    let other = Net { scale: None, ..net() };
    let mut calls = 0;
    let result = net().zip_map(&other, |_, _| calls += 1);
    assert!(result.is_err());
    assert_eq!(calls, 0);
}

#[test]
fn zip_errors_name_the_leaf() {
    let result =
        net().try_zip_map_named(
            &net(),
            |name, a, _| {
                if *a < 8.0 { Ok(()) } else { Err(Box::<dyn std::error::Error>::from(name)) }
            },
        );
    assert_eq!(result.unwrap_err().to_string(), "pair.1");
}

#[test]
fn empty_vec_and_none() {
    let empty = Net { layers: Vec::new(), scale: None, ..net() };
    assert_eq!(empty.leaf_count(), 7);
    assert_eq!(empty.names()[0], "head.weight");
    assert_eq!(empty.rebuild(empty.clone().into_leaves()), Ok(empty.clone()));

    let nothing: Vec<Leaf<f64>> = Vec::new();
    assert!(nothing.leaves().is_empty());
    assert_eq!(nothing.rebuild(Vec::<char>::new()), Ok(Vec::new()));
    // An empty vector is not the absence of one.
    let error = Some(nothing).same_structure(&None::<Vec<Leaf<f64>>>);
    assert_eq!(difference(&error.unwrap_err()), ("", "Some", "None"));
}

#[derive(Tree, Clone, Debug, PartialEq)]
enum Activation<T> {
    Relu,
    Leaky { slope: T },
    Spline(Vec<(T, T)>, usize),
}

#[derive(Tree, Clone, Debug, PartialEq)]
struct Layer<T> {
    linear: Linear<T>,
    activation: Activation<T>,
}

#[test]
fn enums() {
    let spline = Activation::Spline(vec![(1, 2), (3, 4)], 7);
    assert_eq!(spline.names(), ["0.0.0", "0.0.1", "0.1.0", "0.1.1"]);
    assert_eq!(spline.map(|x| x * 10), Activation::Spline(vec![(10, 20), (30, 40)], 7));
    let leaky = Activation::Leaky { slope: 1 }.into_map(|x| x + 1);
    assert_eq!(leaky, Activation::Leaky { slope: 2 });
    assert_eq!(Activation::<u8>::Relu.rebuild(Vec::<u8>::new()), Ok(Activation::Relu));

    let layer = |activation| Layer { linear: linear(0), activation };
    let leaky = layer(Activation::Leaky { slope: 0.1 });
    assert_eq!(leaky.names()[2], "activation.slope");
    let error = leaky.zip_map(&layer(Activation::Relu), |_, _| ()).unwrap_err();
    assert_eq!(difference(&error), ("activation", "the variant Leaky", "the variant Relu"));
}

#[derive(Tree, Clone, Debug, PartialEq)]
enum List<T> {
    Nil,
    Cons(T, Box<List<T>>),
}

#[derive(Tree, Clone, Debug, PartialEq)]
struct Branch<T> {
    value: T,
    children: Vec<Self>,
}

#[test]
fn recursive_types() {
    let list = List::Cons(1, Box::new(List::Cons(2, Box::new(List::Nil))));
    assert_eq!(list.names(), ["0", "1.0"]);
    assert_eq!(list.map(|x| x.to_string()).leaves(), ["1", "2"]);
    let error = list.same_structure(&List::Cons(1, Box::new(List::Nil)));
    assert_eq!(difference(&error.unwrap_err()), ("1", "the variant Cons", "the variant Nil"));

    let leaf = |value| Branch { value, children: vec![] };
    let tree = Branch { value: 1, children: vec![leaf(2), leaf(3)] };
    assert_eq!(tree.names(), ["value", "children.0.value", "children.1.value"]);
    assert_eq!(tree.map(|x| x * 2).into_leaves(), [2, 4, 6]);
}

#[derive(Tree, Clone, Debug, PartialEq)]
struct Deep<'a, T, const N: usize> {
    grid: Vec<[(T, Option<T>); N]>,
    named: BTreeMap<String, Vec<T>>,
    mixed: (&'a str, T, Box<T>),
    nested: Option<Box<(Linear<T>, usize)>>,
    full_path: std::vec::Vec<std::option::Option<T>>,
    r#type: T,
    marker: PhantomData<T>,
    note: &'a str,
}

#[derive(Tree, Clone, Debug, PartialEq)]
struct Outer<T>(Deep<'static, T, 2>, Vec<Net<T>>, T);

fn deep() -> Deep<'static, i32, 2> {
    Deep {
        grid: vec![[(1, None), (2, Some(3))]],
        named: BTreeMap::from([("b".to_string(), vec![5]), ("a".to_string(), vec![4])]),
        mixed: ("x", 6, Box::new(7)),
        nested: Some(Box::new((Linear { weight: 8, bias: 9 }, 3))),
        full_path: vec![None, Some(10)],
        r#type: 11,
        marker: PhantomData,
        note: "deep",
    }
}

#[test]
fn nested_generics() {
    let deep = deep();
    assert_eq!(
        deep.names(),
        [
            "grid.0.0.0",
            "grid.0.1.0",
            "grid.0.1.1",
            "named.a.0",
            "named.b.0",
            "mixed.1",
            "mixed.2",
            "nested.0.weight",
            "nested.0.bias",
            "full_path.1",
            "type",
        ]
    );
    assert_eq!(deep.clone().into_leaves(), (1..=11).collect::<Vec<_>>());
    let text: Deep<'static, String, 2> = deep.map(|x| x.to_string());
    assert_eq!(text.named["b"], ["5"]);
    assert_eq!((text.mixed.0, text.note), ("x", "deep"));

    let outer = Outer(deep, vec![net().map(|x| *x as i32)], -1);
    assert_eq!(outer.names()[11], "1.0.layers.0.weight");
    assert_eq!(outer.names().last().map(String::as_str), Some("2"));
    assert_eq!(outer.rebuild(outer.clone().into_leaves()), Ok(outer));
}

#[test]
fn maps_differ_by_keys() {
    let map = |key: &str| BTreeMap::from([(key.to_string(), Leaf(1))]);
    let error = map("a").zip_map(&map("b"), |_, _| ()).unwrap_err();
    assert_eq!(difference(&error), ("", r#"the keys ["a"]"#, r#"the keys ["b"]"#));
    assert!(error.to_string().contains("differ at the root"));
}

#[derive(Tree, Clone, Debug, PartialEq)]
struct Empty<T>(PhantomData<T>);

#[test]
fn static_data_comes_from_the_left() {
    let other = Net { label: "other".to_string(), ..net() };
    assert_eq!(net().zip_map(&other, |x, _| *x).unwrap().label, "net");
    assert_eq!(other.zip_map(&net(), |x, _| *x).unwrap().label, "other");
    assert!(Empty::<f64>(PhantomData).leaves().is_empty());
}

#[test]
fn containers_of_trees() {
    let tree = (
        vec![linear(0)],
        Some(linear(2)),
        [linear(4), linear(6)],
        Box::new(linear(8)),
        BTreeMap::from([(3_u8, linear(10))]),
        Leaf(12.0),
        (Leaf(13.0),),
        None::<Leaf<f64>>,
    );
    let expected: Vec<f64> = (0..14).map(f64::from).collect();
    assert_eq!(tree.clone().into_leaves(), expected);
    assert_eq!(tree.names()[10], "4.3.weight");
    assert_eq!(tree.rebuild(expected), Ok(tree));
}

/// Generic code: the type comes back by one mapping, by two, and by a zip.
fn through_text<S: TreeOf<f64>>(tree: &S) -> Result<S, TreeError> {
    let text: S::With<String> = tree.map(|x| x.to_string());
    let back: S = text.map(|text| text.parse().unwrap_or(f64::NAN));
    let names = text.names();
    let names: S::With<String> = text.rebuild(names)?;
    let both: S = tree.zip_map(&back, |a, b| a.max(*b))?;
    both.zip_map(&names, |a, _| *a)
}

#[test]
fn generic_code_gets_its_type_back() {
    assert_eq!(through_text(&net()), Ok(net()));
    assert_eq!(through_text(&vec![Leaf(1.0)]), Ok(vec![Leaf(1.0)]));
}

mod renamed {
    pub mod facade {
        pub use bilevel_graph as graph;
    }

    #[derive(facade::graph::Tree)]
    #[tree(crate = "facade::graph")]
    pub struct Scale<T = f64> {
        pub by: T,
    }
}

#[test]
fn another_path_to_the_crate() {
    assert_eq!(renamed::Scale { by: 1.0 }.names(), ["by"]);
}

macro_rules! through_a_macro {
    ($name:ident, $leaf:ident, $field:ty) => {
        #[derive(Tree)]
        struct $name<$leaf> {
            field: $field,
        }
    };
}

through_a_macro!(FromMacro, X, Vec<X>);

#[test]
fn types_from_macros() {
    let tree = FromMacro { field: vec![1, 2] };
    assert_eq!(tree.names(), ["field.0", "field.1"]);
}

proptest! {
    #[test]
    fn any_structure_round_trips(
        lists in prop::collection::vec(prop::collection::vec(any::<i16>(), 0..4), 0..5),
        option in any::<Option<i16>>(),
    ) {
        let lists: Vec<Vec<Leaf<i16>>> = (lists.into_iter())
            .map(|list| list.into_iter().map(Leaf).collect())
            .collect();
        let tree = (lists, option.map(Leaf));
        let leaves = tree.clone().into_leaves();
        prop_assert_eq!(tree.leaf_count(), leaves.len());
        prop_assert_eq!(tree.names().len(), leaves.len());
        prop_assert_eq!(tree.rebuild(leaves.clone()), Ok(tree.clone()));
        prop_assert_eq!(tree.zip_map(&tree, |a, _| *a), Ok(tree.clone()));
        let mut more = leaves;
        more.push(0);
        prop_assert!(tree.rebuild(more).is_err());
    }
}

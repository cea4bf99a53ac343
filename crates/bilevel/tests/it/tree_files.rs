//! λ and θ in safetensors files.

use crate::with::With;
use bilevel::files::{TreeFileError, load_arrays, save_tree};
use bilevel::methods::Rmd;
use bilevel::{Array, DType, Driver, Error, InnerLoop, Leaf, Problem, Tree, Variable};
use std::path::PathBuf;

#[derive(Clone, Tree)]
struct Layer<T> {
    weight: T,
    bias: Option<T>,
}

#[derive(Clone, Tree)]
struct Net<T> {
    base: T,
    layers: Vec<Layer<T>>,
}

fn problem(dtype: DType) -> Problem<Leaf<Variable>, Net<Variable>> {
    let layer = |n, bias: Option<Variable>| Layer { weight: Variable::normal([n, 2], 1.0), bias };
    let net = Net {
        base: Variable::constant([2], 1.5).frozen(),
        layers: vec![layer(3, Some(Variable::constant([2], 0.0))), layer(1, None)],
    };
    Problem::builder(Leaf(Variable::constant([], 0.5).at_least(0.0)), net)
        .dtype(dtype)
        .inner(|_, l, t| {
            let bias = t.layers[0].bias.map_or(t.base, |bias| bias);
            ((t.layers[0].weight + bias - t.base).square().sum_all() + t.layers[1].weight.square().sum_all()) * l.0
        })
        .outer(|_, _, t| t.layers[0].weight.square().sum_all())
        .build()
        .unwrap()
}

/// A file of its own, taken away at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Scratch(std::env::temp_dir().join(format!("bilevel-tree-{}-{name}.safetensors", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_run_goes_on_from_files_with_other_settings() {
    let problem = problem(DType::F64);
    let (lambda, theta) = (Scratch::new("lambda"), Scratch::new("theta"));
    let first = Driver::new(&problem, With(Rmd::default(), InnerLoop::new(0.01, 10))).iterations(3).run().unwrap();
    save_tree(&first.lambda, &lambda.0).unwrap();
    save_tree(&first.theta, &theta.0).unwrap();
    let (l, t) = (problem.load_lambda(&lambda.0).unwrap(), problem.load_theta(&theta.0).unwrap());
    assert_eq!((l.leaves(), t.leaves()), (first.lambda.leaves(), first.theta.leaves()));
    let next = Driver::new(&problem, With(Rmd::default(), InnerLoop::new(0.01, 20))).start_from(&l).theta(&t).rate(0.1);
    let next = next.iterations(1).run().unwrap();
    assert!(next.last.unwrap().outer_loss < first.last.unwrap().outer_loss);
}

#[test]
fn files_are_read_in_the_problems_type_and_by_name() {
    let file = Scratch::new("named");
    let theta = problem(DType::F64).train(&Leaf(Array::scalar(1.0, DType::F64))).run().unwrap().theta;
    save_tree(&theta, &file.0).unwrap();
    let names = ["base", "layers.0.bias", "layers.0.weight", "layers.1.weight"];
    assert_eq!(load_arrays(&file.0).unwrap().names(), names);
    let single = problem(DType::F32).load_theta(&file.0).unwrap();
    let weight = |net: &Net<Array>| net.layers[0].weight.to_f64();
    assert_eq!(single.layers[0].weight.dtype(), DType::F32);
    assert!(weight(&single).iter().zip(weight(&theta)).all(|(a, b)| *a == f64::from(b as f32)));
    // Leaves by name are a tree as well.
    let erased = problem(DType::F64).erase().load_theta(&file.0).unwrap();
    assert_eq!(erased.get("base"), Some(&theta.base));
}

#[test]
fn a_single_leaf_without_a_name_is_the_one_array_of_a_file() {
    let file = Scratch::new("single");
    let named: bilevel::Named<Array> = [("lambda".to_string(), Array::scalar(2.5, DType::F64))].into_iter().collect();
    save_tree(&named, &file.0).unwrap();
    assert_eq!(problem(DType::F64).load_lambda(&file.0).unwrap().0.item(), Some(2.5));
}

#[test]
fn all_that_is_missing_extra_or_misshapen_is_listed_at_once() {
    let file = Scratch::new("unlike");
    let array = |shape: &[usize]| Array::zeros(shape, DType::F64);
    let labels = Array::from_i32([1, 2], vec![1, 2]).unwrap();
    let others = [("base", array(&[3])), ("layers.0.weight", array(&[3, 2])), ("head", array(&[1]))];
    let others = others.into_iter().chain([("layers.1.weight", labels)]);
    let tree: bilevel::Named<Array> = others.map(|(name, array)| (name.to_string(), array)).collect();
    save_tree(&tree, &file.0).unwrap();
    let error = problem(DType::F64).load_theta(&file.0).err().unwrap();
    let expected = format!(
        "{} does not match the problem; it is missing 'layers.0.bias'; it has 'head', which the problem does not have; \
         'base' has the shape [3] and must have [2]; 'layers.1.weight' holds integers and must hold f64",
        file.0.display()
    );
    assert_eq!(error.to_string(), expected);
    assert!(matches!(error, Error::TreeFile(TreeFileError::Unlike { missing, .. }) if missing == ["layers.0.bias"]));
}

#[test]
fn what_is_no_such_file_is_refused_with_a_reason() {
    let problem = problem(DType::F64);
    let said = |path: &std::path::Path| problem.load_lambda(path).err().unwrap().to_string();
    assert!(said("no/such/file".as_ref()).starts_with("cannot read no/such/file: "));
    assert!(said(&std::env::temp_dir()).ends_with(": it is a folder, not a regular file, so it was not touched"));
    let file = Scratch::new("damaged");
    for bytes in [&b""[..], b"what?", &[0xff; 40]] {
        std::fs::write(&file.0, bytes).unwrap();
        assert!(said(&file.0).contains("it is not a safetensors file"), "{}", said(&file.0));
    }
    let half = "{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]}}";
    let bytes = [&(half.len() as u64).to_le_bytes()[..], half.as_bytes(), &[0, 0]].concat();
    std::fs::write(&file.0, bytes).unwrap();
    assert!(said(&file.0).ends_with("'a' has the type F16; convert it to F32, F64 or I32 first"), "{}", said(&file.0));
    let unwritable = save_tree(&Leaf(Array::scalar(1.0, DType::F64)), "no/such/folder/x").unwrap_err();
    assert!(unwritable.to_string().starts_with("cannot write no/such/folder/x: "), "{unwritable}");
}

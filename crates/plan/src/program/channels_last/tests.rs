//! The rewritten program computes the same values, and copies nothing between convolutions.

use crate::ir::node::{Elementwise, Kind};
use crate::pipeline::Pipeline;
use crate::program::channels_last::*;
use crate::schedule::Schedule;
use crate::target::Target;
use bilevel_graph::conformance::{Dice, Inputs, Size, agree, outputs, random_program, varied_program};
use bilevel_graph::{Graph, Reference, Tensor, gradient_or_zeros, hessian_vector, nn};

fn machine() -> Target {
    Target::PLAIN.with(|target| {
        (target.can.members, target.can.alignment, target.can.rounds_operands) = (64, 256, true);
        (target.costs.tiny_loop, target.costs.horizontal_fusion_max) = (64, 64);
    })
}

fn kernel(g: &Graph, name: &str, shape: [usize; 4], inputs: &mut Vec<(Tensor, String)>) -> Tensor {
    let kernel = g.input(name, shape, inputs[0].0.dtype());
    inputs.push((kernel, name.into()));
    kernel
}

fn convolved(x: Tensor, w: Tensor, stride: usize) -> Tensor {
    let padding = [w.dim(2) / 2, w.dim(3) / 2];
    nn::conv2d(x, w, None, nn::Conv2d { stride: [stride; 2], padding, ..Default::default() })
}

fn normed(x: Tensor) -> Tensor {
    let channels = x.dim(1);
    let (gain, bias) = (x.constant_like(1.5, [channels]), x.constant_like(0.25, [channels]).iota_like(0) * 0.1);
    nn::batch_norm(x, gain, bias, 1e-2).y
}

/// A loss of a random chain of convolutions, norms, pools and residuals, with its gradient and a Hessian product.
fn network(seed: u64) -> (Program, Inputs) {
    let mut dice = Dice::new(seed);
    let g = Graph::new();
    let (n, c, side) = (1 + dice.below(3), 1 + dice.below(4), 6 + dice.below(4));
    let image = g.input("image", [n, c, side, side], DType::F64);
    let mut inputs = vec![(image, "image".to_string())];
    let mut x = image;
    for layer in 0..1 + dice.below(4) {
        let (channels, taps) = (2 + dice.below(3), [1, 3][dice.below(2)]);
        let w = kernel(&g, &format!("w{layer}"), [channels, x.dim(1), taps, taps], &mut inputs);
        let y = convolved(x, w, 1 + dice.below(2));
        let y = if dice.below(3) > 0 { normed(y) } else { y };
        let y = [nn::relu(y), y.tanh(), y][dice.below(3)];
        x = match dice.below(6) {
            0 if y.dim(2) > 1 => nn::max_pool2d(y, nn::Pool2d::of([2, 2])),
            1 if y.dim(2) > 1 => nn::avg_pool2d(y, nn::Pool2d::of([2, 2])),
            2 => {
                let w = kernel(&g, &format!("inner{layer}"), [channels, channels, 3, 3], &mut inputs);
                y + convolved(nn::relu(normed(y)), w, 1)
            }
            3 => y.concat(&[y.sin() * 0.5], 1),
            4 => y.pad(3, 1, 0).slice(2, 0, y.dim(2)).reverse([3]),
            _ => y,
        };
        if x.is_empty() {
            x = y;
        }
    }
    let flat = if dice.below(2) == 0 { x.mean([2, 3]) } else { x.reshape([x.dim(0), x.len() / x.dim(0)]) };
    let loss = flat.square().mean([0, 1]) + flat.sin().sum_all() * 0.1;
    let variables: Vec<Tensor> = inputs.iter().map(|(tensor, _)| *tensor).collect();
    let along: Vec<Tensor> = variables.iter().map(|v| v.cos() * 0.3).collect();
    let mut results = vec![loss, x];
    results.extend(gradient_or_zeros(loss, &variables).unwrap());
    let products = hessian_vector(loss, &variables, &along).unwrap();
    results.extend(products.into_iter().flatten());
    let builder = Program::builder(&g).outputs("", results);
    let step = gradient_or_zeros(loss, &variables[1..2]).unwrap()[0];
    let program = builder.carry(variables[1], variables[1] - step * 0.1).build().unwrap();
    let values = inputs.iter().map(|(t, name)| (name.clone(), dice.array(&t.shape(), DType::F64).unwrap())).collect();
    (program, values)
}

fn transposes(program: &Program) -> usize {
    program.nodes.iter().filter(|node| matches!(node.op, Op::Transpose(_))).count()
}

/// Checks that a rewritten program gives the same outputs, with and without decomposed pools. Returns whether it was
/// rewritten.
fn same(program: &Program, inputs: &Inputs, steps: u32, tolerance: f64, name: &str) -> bool {
    let Some(new) = rewritten(program, |_, _| true, 1) else { return false };
    let expected = outputs(&Reference, program, inputs, steps).unwrap();
    let check = |new: &Program, tolerance: f64| {
        new.validate().unwrap();
        let found = outputs(&Reference, new, inputs, steps).unwrap();
        let tolerances = vec![tolerance; expected.len()];
        agree(&found, &expected, &tolerances).unwrap_or_else(|mismatch| panic!("{name}: {mismatch}"));
    };
    check(&new, tolerance);
    if let Some(pooled) = elementwise_pools(program) {
        check(&pooled, 0.0);
        check(&rewritten(&pooled, |_, _| true, 1).unwrap(), tolerance);
    }
    true
}

#[test]
fn rewritten_networks_and_their_derivatives_compute_the_same() {
    let mut pooled = 0;
    for seed in 0..150 {
        let (program, inputs) = network(seed);
        assert!(same(&program, &inputs, 2, 1e-9, &format!("network {seed}")), "every network has a convolution");
        let pools = program.nodes.iter().any(|node| matches!(node.op, Op::WindowArgMax(_)));
        pooled += usize::from(pools && elementwise_pools(&program).is_some());
    }
    assert!(pooled > 20, "{pooled} networks with pools that can be had in any order");
}

#[test]
fn any_rewritten_program_computes_the_same() {
    let mut changed = 0;
    for seed in 0..600 {
        let g = Graph::new();
        let case = match seed % 2 {
            0 => random_program(seed, &g, DType::F64, Size::small),
            _ => varied_program(seed, &g, DType::F64, Size::small),
        };
        let case = case.unwrap();
        changed += usize::from(same(&case.program, &case.inputs, case.steps, 1e-7, &case.name));
    }
    assert!(changed > 20, "{changed}");
}

/// Three layers of eight channels after one that reads RGB images.
fn chain(dtype: DType) -> Program {
    let g = Graph::new();
    let image = g.input("image", [4, 3, 8, 8], dtype);
    let mut inputs = vec![(image, "image".to_string())];
    let first = kernel(&g, "first", [8, 3, 3, 3], &mut inputs);
    let mut x = convolved(image, first, 1);
    for layer in 0..3 {
        let w = kernel(&g, &format!("w{layer}"), [8, 8, 3, 3], &mut inputs);
        x = x + convolved(nn::relu(normed(x)), w, 1);
    }
    let loss = nn::relu(normed(x)).mean([2, 3]).square().sum_all();
    let kernels: Vec<Tensor> = inputs[1..].iter().map(|(kernel, _)| *kernel).collect();
    let builder = Program::builder(&g).output("loss", loss).outputs("", gradient_or_zeros(loss, &kernels).unwrap());
    builder.build().unwrap().with_precision(Precision::Tf32)
}

#[test]
fn nothing_is_copied_between_convolutions() {
    let program = chain(DType::F32);
    let target = machine().with(|target| target.can.channels_last = true);
    let new = Pipeline::new().rewrite(&program, &target).unwrap();
    let schedule = Schedule::new(&program, &target).unwrap();
    let (mut images, mut kernels) = (0, 0);
    for node in &schedule.nodes {
        let moved = |view: &crate::View| view.transpose(&[0, 2, 3, 1]);
        match &node.kind {
            Kind::Conv(..) => {
                // Images of eight channels, and such results, have channels last and need no copies.
                for (_, view) in node.reads().filter(|(_, view)| view.count() == 4 * 8 * 64) {
                    let batch = if view.shape[0] == 4 { 0 } else { 1 };
                    let view = if batch == 0 { view.clone() } else { view.transpose(&[1, 0, 2, 3]) };
                    assert!(moved(&view).is_contiguous(), "{view:?}");
                    images += 1;
                }
                if node.count() == 4 * 8 * 64 {
                    assert!(moved(&node.layout).is_contiguous(), "{node:?}");
                    images += 1;
                }
            }
            Kind::Elementwise(Elementwise::Copy) => panic!("{node:?}"),
            Kind::Elementwise(Elementwise::Convert(_)) => {
                assert_eq!(node.shape, [8, 3, 3, 8]);
                kernels += 1;
            }
            // Loops and reductions read memory in order, except for broadcasts.
            Kind::Elementwise(_) | Kind::Reduce(..) => {
                for (_, view) in node.reads().filter(|(_, view)| view.count() == 4 * 8 * 64) {
                    let whole = view.is_contiguous();
                    assert!(whole || view.strides.contains(&0), "{node:?}");
                }
            }
            _ => {}
        }
    }
    // Four results; for each of three layers an image, the gradient's cotangent and result, and two images of the
    // kernel's gradient; the cotangent of the first.
    assert_eq!((images, kernels), (4 + 3 * 5 + 1, 3));
    assert!(transposes(&new) > 0);
}

#[test]
fn programs_in_full_precision_or_without_convolutions_are_unchanged() {
    assert!(channels_last(&chain(DType::F64), 4).is_none());
    assert!(channels_last(&chain(DType::F32).with_precision(Precision::Full), 4).is_none());
    let g = Graph::new();
    let x = g.input("x", [2, 3], DType::F32);
    let program = Program::builder(&g).output("y", x.matmul(x.t())).build().unwrap();
    assert!(channels_last(&program.with_precision(Precision::Bf16), 4).is_none());
    // A grouped convolution beside an ungrouped one.
    let image = g.input("image", [2, 8, 6, 6], DType::F32);
    let [each, all] = [("each", 1), ("all", 8)].map(|(name, inner)| g.input(name, [8, inner, 3, 3], DType::F32));
    let grouped = nn::conv2d(image, each, None, nn::Conv2d { groups: 8, ..Default::default() });
    for (y, changed) in [(grouped, false), (image, true)] {
        let y = nn::relu(convolved(y, all, 1));
        let program = Program::builder(&g).output("y", y).build().unwrap().with_precision(Precision::Tf32);
        assert_eq!(channels_last(&program, 4).is_some(), changed);
    }
}

#[test]
fn a_kernel_as_large_as_its_image_and_a_single_result_are_images_like_any_other() {
    for (side, taps, padding) in [(5, 5, 0), (3, 3, 0), (1, 3, 1)] {
        let g = Graph::new();
        let mut inputs = vec![(g.input("image", [2, 4, side, side], DType::F64), "image".to_string())];
        let (image, first) = (inputs[0].0, kernel(&g, "first", [8, 4, taps, taps], &mut inputs));
        let last = kernel(&g, "last", [4, 8, 1, 1], &mut inputs);
        let seen = nn::conv2d(image, first, None, nn::Conv2d { padding: [padding; 2], ..Default::default() });
        let loss = convolved(nn::relu(seen), last, 1).square().sum_all();
        let variables: Vec<Tensor> = inputs.iter().map(|(tensor, _)| *tensor).collect();
        let along: Vec<Tensor> = variables.iter().map(|v| v.cos()).collect();
        let mut results = gradient_or_zeros(loss, &variables).unwrap();
        results.extend(hessian_vector(loss, &variables, &along).unwrap().into_iter().flatten());
        let builder = Program::builder(&g).outputs("", results);
        let program = builder.build().unwrap();
        let mut dice = Dice::new(side as u64);
        let values =
            inputs.iter().map(|(t, name)| (name.clone(), dice.array(&t.shape(), DType::F64).unwrap())).collect();
        assert!(same(&program, &values, 1, 1e-9, &format!("{taps} taps on {side}")));
        // The result of the large kernel is an image: the layer after it reads it with channels last.
        let new = rewritten(&program, |_, _| true, 1).unwrap();
        let is_first = |node: &&ProgramNode| node.meta.shape[..2] == [2, 8] && matches!(node.op, Op::Conv(..));
        let is_seen = |node: &ProgramNode| matches!(&node.op, Op::Transpose(perm) if *perm == NHWC);
        let turned = new.nodes.iter().filter(|node| is_seen(node)).map(|node| &new.nodes[node.inputs[0]]);
        assert!(turned.filter(is_first).count() > 0, "{taps} taps on {side}");
    }
}

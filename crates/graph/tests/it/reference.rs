//! The reference executor against values worked out by hand, and the rules of loops.

use crate::common::*;
use bilevel_graph::{
    Array, ConvDims, DType, ErrorKind, Executor, Graph, Program, RandomKind, Reference, Tensor, UnaryOp, WindowDims,
    random,
};

/// The value of a function of one array.
fn of(x: &Array, build: impl Fn(Tensor) -> Tensor) -> Array {
    let g = Graph::without_simplification();
    let t = g.input("x", x.shape(), x.dtype());
    value(&g, &[(t, x.clone())], build(t))
}

fn counting(shape: &[usize]) -> Array {
    f64s(shape, &(0..shape.iter().product()).map(|i: usize| i as f64).collect::<Vec<_>>())
}

#[test]
fn elements_move_as_described() {
    let x = counting(&[2, 3]);
    assert_eq!(of(&x, |x| x.t()).to_f64(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!(of(&counting(&[2, 1, 3]), |x| x.transpose([2, 0, 1])).shape(), [3, 2, 1]);
    assert_eq!(of(&x, |x| x.reverse([1])).to_f64(), [2.0, 1.0, 0.0, 5.0, 4.0, 3.0]);
    assert_eq!(of(&x, |x| x.slice_step(1, 0, 3, 2)).to_f64(), [0.0, 2.0, 3.0, 5.0]);
    let padded = of(&x, |x| x.pad_all(vec![0, 1], vec![0, 0], vec![0, 1])).to_f64();
    assert_eq!(padded, [0.0, 0.0, 0.0, 1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0, 5.0]);
    let joined = of(&x, |x| x.concat(&[x.slice(1, 0, 1)], 1)).to_f64();
    assert_eq!(joined, [0.0, 1.0, 2.0, 0.0, 3.0, 4.0, 5.0, 3.0]);
    let spread = of(&counting(&[2]), |x| x.broadcast([1], [2, 2, 2])).to_f64();
    assert_eq!(spread, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
    assert_eq!(of(&x, |x| x.iota_like(1)).to_f64(), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
}

#[test]
fn elements_combine_as_described() {
    let x = counting(&[2, 3]);
    assert_eq!(of(&x, |x| x.sum([0])).to_f64(), [3.0, 5.0, 7.0]);
    assert_eq!(of(&x, |x| x.mean([1])).to_f64(), [1.0, 4.0]);
    assert_eq!(of(&x, |x| x.min([1])).to_f64(), [0.0, 3.0]);
    assert_eq!(of(&x, |x| x.cumsum(1)).to_f64(), [0.0, 1.0, 3.0, 3.0, 7.0, 12.0]);
    assert_eq!(of(&x, |x| x.cumsum_from(1, true)).to_f64(), [3.0, 3.0, 2.0, 12.0, 9.0, 5.0]);
    assert_eq!(of(&x, |x| x.matmul(x.t())).to_f64(), [5.0, 14.0, 14.0, 50.0]);
    assert_eq!(integers(&of(&x, |x| (x - 2.0).abs().argmax(1))), [0, 2]);
    assert_eq!(of(&x, |x| x.greater(2.0).select(x, -1.0)).to_f64(), [-1.0, -1.0, -1.0, 3.0, 4.0, 5.0]);
}

#[test]
fn a_convolution_worked_out_by_hand() {
    // Image 1 2 3 spread by 2 is 1 0 2 0 3; with one zero before it, or two and the last cut off, under the kernel 1 0 10 at
    // every second place.
    let dims = ConvDims {
        stride: [1, 2],
        padding: [(0, 0), (1, 0)],
        image_dilation: [1, 2],
        kernel_dilation: [1, 2],
        groups: 1,
    };
    let g = Graph::new();
    let (x, k) = (g.input("x", [1, 1, 1, 3], DType::F64), g.input("k", [1, 1, 1, 2], DType::F64));
    let at = [(x, f64s(&[1, 1, 1, 3], &[1.0, 2.0, 3.0])), (k, f64s(&[1, 1, 1, 2], &[1.0, 10.0]))];
    assert_eq!(value(&g, &at, x.conv(k, dims.clone())).to_f64(), [0.0, 0.0]);
    let dims = ConvDims { padding: [(0, 0), (2, -1)], ..dims };
    assert_eq!(value(&g, &at, x.conv(k, dims)).to_f64(), [10.0, 21.0]);
}

#[test]
fn groups_see_only_their_channels() {
    let g = Graph::new();
    let (x, k) = (g.input("x", [1, 2, 1, 1], DType::F64), g.input("k", [4, 1, 1, 1], DType::F64));
    let dims = ConvDims { groups: 2, ..Default::default() };
    let at = [(x, f64s(&[1, 2, 1, 1], &[1.0, 100.0])), (k, f64s(&[4, 1, 1, 1], &[1.0, 2.0, 3.0, 4.0]))];
    assert_eq!(value(&g, &at, x.conv(k, dims)).to_f64(), [1.0, 2.0, 300.0, 400.0]);
}

#[test]
fn single_precision_is_rounded_after_each_operation() {
    let x = Array::from_f32([2], vec![0.1, 1e30]).unwrap();
    assert_eq!(of(&x, |x| x * x).to_f64(), [(0.1f32 * 0.1f32) as f64, f64::INFINITY]);
    assert_eq!(of(&x, |x| x.convert(DType::F64)).to_f64()[0], 0.1f32 as f64);
    let y = f64s(&[4], &[2.9, -2.9, f64::NAN, 1e20]);
    assert_eq!(integers(&of(&y, |y| y.convert(DType::I32))), [2, -2, 0, i32::MAX]);
}

#[test]
fn integers_wrap() {
    let x = i32s(&[3], &[i32::MAX, i32::MIN, 5]);
    assert_eq!(integers(&of(&x, |x| x + 1.0)), [i32::MIN, i32::MIN + 1, 6]);
    assert_eq!(integers(&of(&x, |x| x * 2.0)), [-2, 0, 10]);
    assert_eq!(integers(&of(&x, |x| -x)), [-i32::MAX, i32::MIN, -5]);
    assert_eq!(integers(&of(&x, |x| x.sum([0]))), [4]);
    assert_eq!(integers(&of(&x, |x| x.max([0]))), [i32::MAX]);
    assert_eq!(integers(&of(&x, |x| x.less(0.0))), [0, 1, 0]);
}

#[test]
fn a_nan_is_not_lost() {
    let x = f64s(&[3], &[1.0, f64::NAN, 7.0]);
    assert!(of(&x, |x| x.max([0])).item().unwrap().is_nan());
    assert!(of(&x, |x| x.maximum(0.0)).to_f64()[1].is_nan());
    assert!(of(&x, |x| x.unary(UnaryOp::Sign)).to_f64()[1].is_nan());
    assert_eq!(integers(&of(&x, |x| x.argmax(0))), [1], "as the maximum is the NaN");
    let dims = WindowDims { size: [1, 3], stride: [1, 1], padding: [(0, 0), (0, 0)] };
    assert_eq!(integers(&of(&x, |x| x.reshape([1, 3]).window_argmax(dims.clone()))), [1]);
    assert_eq!(of(&x, |x| x.equal(x)).to_f64(), [1.0, 0.0, 1.0]);
}

#[test]
fn carried_inputs_change_together_after_each_step() {
    // The Fibonacci numbers: (a, b) <- (b, a + b).
    let g = Graph::new();
    let (a, b) = (g.input("a", [], DType::I32), g.input("b", [], DType::I32));
    let program = Program::builder(&g).output("sum", a + b).carry(a, b).carry(b, a + b).build().unwrap();
    let mut run = Reference.compile(&program).unwrap();
    let [a, b] = ["a", "b"].map(|name| program.input(name).unwrap());
    run.set(a, &i32s(&[], &[0])).unwrap();
    run.set(b, &i32s(&[], &[1])).unwrap();
    run.run(0..10).unwrap();
    assert_eq!(run.output(0).unwrap().item(), Some(89.0));
    assert_eq!([run.input(a).unwrap().item(), run.input(b).unwrap().item()], [Some(55.0), Some(89.0)]);
    run.run(10..10).unwrap();
    assert_eq!(run.output(0).unwrap().item(), Some(89.0), "an empty range changes nothing");
    run.run(10..11).unwrap();
    assert_eq!(run.output(0).unwrap().item(), Some(144.0), "a run goes on where the last one stopped");
    run.set(a, &i32s(&[], &[0])).unwrap();
    run.set(b, &i32s(&[], &[0])).unwrap();
    run.run(0..5).unwrap();
    assert_eq!(run.output(0).unwrap().item(), Some(0.0), "until it is set again");
}

#[test]
fn the_step_number_is_supplied() {
    let g = Graph::new();
    let total = g.input("total", [], DType::I32);
    let program = Program::builder(&g).output("step", g.step()).carry(total, total + g.step()).build().unwrap();
    let mut run = Reference.compile(&program).unwrap();
    run.set(program.input("total").unwrap(), &i32s(&[], &[0])).unwrap();
    run.run(3..7).unwrap();
    assert_eq!(run.output(0).unwrap().item(), Some(6.0));
    assert_eq!(run.input(program.input("total").unwrap()).unwrap().item(), Some(18.0));
}

#[test]
fn a_failed_step_leaves_carried_inputs_as_they_were_and_no_output() {
    let g = Graph::new();
    let x = g.input("x", [], DType::I32);
    let program = Program::builder(&g).output("x", x.check_index(3)).carry(x, x + 1.0).build().unwrap();
    let mut run = Reference.compile(&program).unwrap();
    run.set(0, &i32s(&[], &[0])).unwrap();
    assert!(run.run(0..9).is_err());
    assert!(run.output(0).is_err());
    assert_eq!(run.input(0).unwrap().item(), Some(3.0));
}

#[test]
fn random_draws_depend_on_key_counter_and_stream_alone() {
    let g = Graph::new();
    let (key, counter) = (g.input("key", [2], DType::I32), g.input("counter", [], DType::I32));
    let (s, t) = (g.fresh_stream(), g.fresh_stream());
    let draws = [
        key.random(counter, RandomKind::Normal, s, [5], DType::F64),
        key.random(counter, RandomKind::Normal, t, [5], DType::F64),
        key.random(counter, RandomKind::Uniform, s, [5], DType::F32),
        key.random(counter, RandomKind::Bits, s, [5], DType::I32),
        key.random(counter, RandomKind::Normal, s, [5], DType::F32),
        key.random(counter, RandomKind::Uniform, s, [5], DType::F64),
    ];
    let seed = random::seed_key(3);
    let at = |c: i32| [(key, i32s(&[2], &seed)), (counter, i32s(&[], &[c]))];
    let (first, again) = (Reference::evaluate(&g, &at(1), &draws), Reference::evaluate(&g, &at(1), &draws));
    let other = Reference::evaluate(&g, &at(2), &draws).unwrap();
    let first = first.unwrap();
    assert_eq!(first, again.unwrap());
    assert!(first.iter().zip(&other).all(|(a, b)| a != b));
    assert_ne!(first[0], first[1]);
    let mut expected = vec![0.0; 5];
    random::fill_normal_f64(seed.map(|k| k as u32), 1, s, 0, &mut expected);
    assert_eq!(first[0].to_f64(), expected);
    assert!(first[2].to_f64().iter().all(|u| (0.0..1.0).contains(u)));
}

#[test]
fn a_step_number_that_is_no_i32_is_refused_where_the_program_reads_it() {
    let g = Graph::new();
    let x = g.input("x", [], DType::F64);
    let counting = Program::builder(&g).output("y", g.step().convert(DType::F64) + x).build().unwrap();
    let plain = Program::builder(&g).output("y", x + 1.0).build().unwrap();
    let mut run = Reference.compile(&counting).unwrap();
    run.set(counting.input("x").unwrap(), &Array::scalar(0.0, DType::F64)).unwrap();
    run.run(i32::MAX as u32..1 << 31).unwrap();
    assert_eq!(run.output(0).unwrap().item(), Some(i32::MAX as f64));
    for steps in [1 << 31..(1 << 31) + 1, i32::MAX as u32..(1 << 31) + 1, u32::MAX - 1..u32::MAX] {
        let step = steps.end - 1;
        assert_eq!(run.run(steps).unwrap_err().kind, ErrorKind::StepTooLarge { step });
    }
    run.run(u32::MAX..u32::MAX).unwrap();
    let mut run = Reference.compile(&plain).unwrap();
    run.set(0, &Array::scalar(0.0, DType::F64)).unwrap();
    run.run(u32::MAX - 1..u32::MAX).unwrap();
}

#[test]
fn an_array_too_large_for_any_memory_is_an_error() {
    for shape in [vec![usize::MAX], vec![usize::MAX, 2], vec![1 << 59], vec![1 << 40, 1 << 10]] {
        for dtype in [DType::F32, DType::F64, DType::I32] {
            let error = Array::try_full(&shape, 1.0, dtype).unwrap_err();
            assert_eq!(error.kind, ErrorKind::NoMemory { shape: shape.clone(), dtype });
        }
    }
    assert_eq!(Array::try_full([usize::MAX, 0], 1.0, DType::F32).unwrap().len(), 0);
}

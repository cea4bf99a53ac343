//! Is the GPU right? The conformance suite, draws to the bit, and every estimator beside the CPU.

use crate::error::{BenchError, Result};
use bilevel::graph::nn;
use bilevel::{AnyMethod, Array, Cpu, DType, Driver, Leaf, Method, Problem, Variable, methods};
use bilevel_cuda::Cuda;
use bilevel_graph::conformance::{
    Case, Failure, Size, buffers, carries, convolutions, networks, outputs, primitives, random_program, refusals,
    rounded_products, varied_program,
};
use bilevel_graph::{Executor, Graph, Port, Precision, Program, RandomKind, random};
use std::time::Instant;

/// Counts what was tried and what failed, and says so.
#[derive(Default)]
struct Tally {
    failures: usize,
}

impl Tally {
    fn part(&mut self, name: &str, start: Instant, tried: usize, failures: &[String]) {
        say!("{name}: {tried} tried, {} failed, {:.1} s", failures.len(), start.elapsed().as_secs_f64());
        failures.iter().take(12).for_each(|failure| say!("  FAILED {failure}"));
        self.failures += failures.len();
    }

    fn cases(&mut self, name: &str, cuda: &Cuda, cases: impl IntoIterator<Item = Case>) {
        let (start, cases): (_, Vec<Case>) = (Instant::now(), cases.into_iter().collect());
        // What does not compile is said by the case it belongs to.
        let _ = cuda.load_kernels(cases.iter().map(|case| &case.program));
        let failed = |case: &Case| case.check(cuda).err().map(|failure: Failure| failure.to_string());
        let failures: Vec<String> = cases.iter().filter_map(failed).collect();
        self.part(name, start, cases.len(), &failures);
        if let Some(case) = cases.iter().find(|case| case.check(cuda).is_err()) {
            blame(case, cuda).into_iter().for_each(|line| say!("  {line}"));
        }
    }
}

/// The first operations of a case whose values are not those of the reference, each computed by itself in one step.
fn blame(case: &Case, cuda: &Cuda) -> Vec<String> {
    let mut found = vec![];
    for (id, node) in case.program.nodes.iter().enumerate() {
        let mut alone = case.clone();
        alone.program.carries.clear();
        alone.program.outputs = vec![Port { name: "value".into(), node: Some(id), meta: node.meta.clone() }];
        (alone.steps, alone.tolerances) = (1, vec![case.tolerances[0]]);
        if let Err(failure) = alone.check(cuda) {
            let shapes: Vec<_> = node.inputs.iter().map(|&i| &case.program.nodes[i].meta.shape).collect();
            found.push(format!("operation {id}, {:?} of {shapes:?}: {}", node.op, failure.mismatch));
        }
        if found.len() == 3 {
            break;
        }
    }
    found
}

/// Runs everything, random programs from this many seeds; false where something is wrong.
pub fn run(cuda: &Cuda, seeds: u64) -> Result<bool> {
    let mut tally = Tally::default();
    let start = Instant::now();
    let refused: Vec<String> = refusals(cuda)?.iter().map(|failure| failure.to_string()).collect();
    tally.part("refusals", start, 1, &refused);
    let start = Instant::now();
    let wrong: Vec<String> = buffers(cuda)?.iter().map(|failure| failure.to_string()).collect();
    tally.part("buffers", start, 1, &wrong);
    for dtype in [DType::F64, DType::F32] {
        tally.cases(&format!("primitives in {dtype}"), cuda, primitives(dtype)?);
        for (rows, columns) in [(2, 3), (5, 13), (40, 70)] {
            tally.cases(&format!("carries {rows}x{columns} in {dtype}"), cuda, carries(rows, columns, dtype)?);
        }
    }
    let without = cuda.without_cudnn();
    for dtype in [DType::F64, DType::F32] {
        tally.cases(&format!("convolutions in {dtype}"), cuda, convolutions(dtype)?);
        tally.cases(&format!("convolutions without cuDNN in {dtype}"), &without, convolutions(dtype)?);
        tally.cases(&format!("parts of networks in {dtype}"), cuda, networks(dtype)?);
    }
    for precision in [Precision::Tf32, Precision::Bf16] {
        let cases: bilevel_graph::Result<Vec<Case>> =
            convolutions(DType::F32)?.into_iter().map(|case| case.in_precision(precision)).collect();
        tally.cases(&format!("convolutions in {precision}"), cuda, cases?);
        let rounded: bilevel_graph::Result<Vec<Case>> = (0..seeds.div_ceil(2))
            .map(|seed| {
                let size = if seed % 4 == 0 { Size::large } else { Size::small };
                random_program(seed, &Graph::new(), DType::F32, size)?.in_precision(precision)
            })
            .collect();
        tally.cases(&format!("random programs in {precision}"), cuda, rounded?);
        tally.cases(&format!("products in {precision}"), cuda, rounded_products(precision)?);
    }
    tally_draws(&mut tally, cuda)?;
    tally_estimators(&mut tally, cuda)?;
    for dtype in [DType::F64, DType::F32] {
        let programs = |make: &dyn Fn(u64, &Graph) -> bilevel_graph::Result<Case>| -> Result<Vec<Case>> {
            let both = |seed| [make(seed, &Graph::new()), make(seed, &Graph::without_simplification())];
            Ok((0..seeds).flat_map(both).collect::<bilevel_graph::Result<_>>()?)
        };
        let random = programs(&|seed, graph| random_program(seed, graph, dtype, Size::small))?;
        tally.cases(&format!("random programs in {dtype}"), cuda, random);
        let varied = programs(&|seed, graph| varied_program(seed, graph, dtype, Size::small))?;
        tally.cases(&format!("varied programs in {dtype}"), cuda, varied);
        let large: bilevel_graph::Result<Vec<Case>> =
            (0..seeds.div_ceil(16)).map(|seed| random_program(seed, &Graph::new(), dtype, Size::large)).collect();
        tally.cases(&format!("large programs in {dtype}"), cuda, large?);
    }
    say!("{}", if tally.failures == 0 { "all right".to_string() } else { format!("{} failures", tally.failures) });
    Ok(tally.failures == 0)
}

/// Draws of every kind and type, in loops of all shapes, with the bits of the CPU.
fn tally_draws(tally: &mut Tally, cuda: &Cuda) -> Result<()> {
    let (start, mut tried, mut failures) = (Instant::now(), 0, vec![]);
    let kinds = [
        (RandomKind::Normal, DType::F32),
        (RandomKind::Normal, DType::F64),
        (RandomKind::Uniform, DType::F32),
        (RandomKind::Uniform, DType::F64),
        (RandomKind::Bits, DType::I32),
    ];
    for (kind, dtype) in kinds {
        for shape in [vec![1], vec![5], vec![64, 33], vec![1000, 100], vec![1 << 20]] {
            let g = Graph::new();
            let key = g.input("key", [2], DType::I32);
            let draw = key.random(g.step(), kind, 3, &shape, dtype);
            let program = Program::builder(&g).output("draw", draw).build()?;
            let inputs = vec![("key".to_string(), Array::from_i32([2], random::seed_key(7).to_vec())?)];
            let bits = |executor: &dyn Executor| -> Result<Vec<u8>> {
                Ok(outputs(executor, &program, &inputs, 3)?[0].bytes().to_vec())
            };
            tried += 1;
            if bits(cuda)? != bits(&Cpu::new())? {
                failures.push(format!("{kind:?} {dtype}{shape:?} has other bits than on the CPU"));
            }
        }
    }
    tally.part("draws, bit for bit", start, tried, &failures);
    Ok(())
}

/// Problems on which estimators are compared: elementwise, logistic regression, a small network.
fn problems() -> Result<Vec<(&'static str, Problem)>> {
    const SIZE: usize = 50;
    let elementwise = || {
        Problem::new(Leaf(Variable::constant([SIZE], 0.4)), Leaf(Variable::normal([SIZE], 0.3)))
            .inner(|s, l, t| ((t.0 - l.0).square() + s.normal([SIZE]) * t.0 * 0.1).sum_all())
            .outer(|_, l, t| (t.0 - 1.0).square().sum_all() + l.0.square().sum_all() * 0.1)
    };
    let data = |rows: usize, columns: usize| {
        let values = (0..rows * columns).map(|i| (i as f64 * 0.7).sin()).collect();
        Array::from_f64([rows, columns], values)
    };
    let labels = |rows: usize| Array::from_i32([rows], (0..rows as i32).map(|i| i % 3).collect());
    let network =
        Problem::new(Leaf(Variable::constant([8 * 16 + 16 * 3], -3.0)), Leaf(Variable::normal([8 * 16 + 16 * 3], 0.3)))
            .data("x", data(40, 8)?)
            .data("y", labels(40)?)
            .inner(|s, l, w| {
                let (a, b) = (w.0.slice(0, 0, 128).reshape([8, 16]), w.0.slice(0, 128, 176).reshape([16, 3]));
                nn::cross_entropy(s.data("x").matmul(a).tanh().matmul(b), s.data("y"))
                    + (l.0.exp() * w.0.square()).sum_all()
            })
            .outer(|s, _, w| {
                let (a, b) = (w.0.slice(0, 0, 128).reshape([8, 16]), w.0.slice(0, 128, 176).reshape([16, 3]));
                nn::cross_entropy(s.data("x").matmul(a).tanh().matmul(b) * 0.9, s.data("y"))
            });
    Ok(vec![
        ("elementwise", elementwise().build()?.erase()),
        ("learned start", elementwise().start(|_, l| *l).build()?.erase()),
        ("network", network.build()?.erase()),
    ])
}

/// Two outer iterations of every method that applies, on the GPU and on the CPU, in f64.
fn tally_estimators(tally: &mut Tally, cuda: &Cuda) -> Result<()> {
    let (start, mut tried, mut failures) = (Instant::now(), 0, vec![]);
    for (name, problem) in problems()? {
        for info in methods() {
            let known = |e: serde_json::Error| BenchError::Wrong { case: info.name.into(), what: e.to_string() };
            let mut written = serde_json::to_value(AnyMethod::named(info.name)?).map_err(known)?;
            for count in ["burn_in", "samples", "steps"] {
                if written.get(count).is_some() {
                    written[count] = 4.into();
                }
            }
            let method: AnyMethod = serde_json::from_value(written).map_err(known)?;
            if method.applies(&problem).is_err() {
                continue;
            }
            tried += 1;
            let run = |driver: Driver| driver.rate(0.01).iterations(2).seed(3).run();
            let (ours, theirs) = (
                run(Driver::new(&problem, method.clone()).executor(cuda.clone())),
                run(Driver::new(&problem, method.clone()).executor(Cpu::new())),
            );
            let values = |outcome: bilevel::Outcome| -> Result<Vec<f64>> { Ok(outcome.state.lambda.numbers()?) };
            match (ours, theirs) {
                (Ok(a), Ok(b)) => {
                    let (a, b) = (values(a)?, values(b)?);
                    let largest = b.iter().fold(0f64, |m, v| m.max(v.abs()));
                    let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0f64, f64::max) / largest;
                    if apart.is_nan() || apart > 1e-10 {
                        failures.push(format!("{} on {name}: λ is {apart:e} from the CPU's", info.name));
                    }
                }
                (Err(a), Err(b)) if a.to_string() == b.to_string() => {}
                (a, b) => failures.push(format!("{} on {name}: {:?} and {:?}", info.name, a.err(), b.err())),
            }
        }
    }
    tally.part("estimators beside the CPU", start, tried, &failures);
    Ok(())
}

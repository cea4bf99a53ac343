//! Correctness of the GPU: the conformance suite, draws to the bit, and every estimator compared with the CPU.

use crate::error::{BenchError, Result};
use bilevel::graph::nn;
use bilevel::methods::AnyMethod;
use bilevel::{Array, Cpu, DType, Driver, InnerLoop, Leaf, Method, Problem, Variable, methods};
use bilevel_cuda::Cuda;
use bilevel_graph::conformance::{
    Case, Failure, Size, buffers, carries, convolutions, long_products, networks, outputs, primitives, random_program,
    refusals, rounded_products, varied_program,
};
use bilevel_graph::{Executor, Graph, Port, Precision, Program, RandomKind, random};
use std::time::Instant;

/// Counts and reports attempts and failures.
struct Tally<'a> {
    failures: usize,
    /// Parts that were tried.
    parts: usize,
    /// A word that the name of a part must contain.
    only: &'a str,
}

impl Tally<'_> {
    fn wants(&self, name: &str) -> bool {
        name.contains(self.only)
    }

    fn part(&mut self, name: &str, start: Instant, tried: usize, failures: &[String]) {
        say!("{name}: {tried} tried, {} failed, {:.1} s", failures.len(), start.elapsed().as_secs_f64());
        failures.iter().take(12).for_each(|failure| say!("  FAILED {failure}"));
        self.failures += failures.len();
        self.parts += 1;
    }

    fn cases(
        &mut self,
        name: &str,
        cuda: &Cuda,
        make: impl FnOnce() -> bilevel_graph::Result<Vec<Case>>,
    ) -> bilevel_graph::Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        let (start, cases) = (Instant::now(), make()?);
        // Compile errors are reported by their case.
        let _ = cuda.load_kernels(cases.iter().map(|case| &case.program));
        let failed = |case| Case::check(case, cuda).err().map(|failure: Failure| (case, failure.to_string()));
        let (wrong, failures): (Vec<&Case>, Vec<String>) = cases.iter().filter_map(failed).unzip();
        self.part(name, start, cases.len(), &failures);
        if let Some(case) = wrong.first() {
            blame(case, cuda).into_iter().for_each(|line| say!("  {line}"));
        }
        Ok(())
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

/// Runs all parts whose names have this word in them, random programs from this many seeds; false if something is
/// wrong.
pub fn run(cuda: &Cuda, seeds: u64, only: &str) -> Result<bool> {
    let mut tally = Tally { failures: 0, parts: 0, only };
    for (name, check) in [("refusals", refusals as fn(&dyn Executor) -> _), ("buffers", buffers)] {
        let start = Instant::now();
        if tally.wants(name) {
            let wrong: Vec<String> = check(cuda)?.iter().map(|failure| failure.to_string()).collect();
            tally.part(name, start, 1, &wrong);
        }
    }
    for dtype in [DType::F64, DType::F32] {
        tally.cases(&format!("primitives in {dtype}"), cuda, || primitives(dtype))?;
        for (rows, columns) in [(2, 3), (5, 13), (40, 70)] {
            let name = format!("carries {rows}x{columns} in {dtype}");
            tally.cases(&name, cuda, || carries(rows, columns, dtype))?;
        }
    }
    let without = cuda.without_cudnn();
    for dtype in [DType::F64, DType::F32] {
        tally.cases(&format!("convolutions in {dtype}"), cuda, || convolutions(dtype))?;
        tally.cases(&format!("convolutions without cuDNN in {dtype}"), &without, || convolutions(dtype))?;
        tally.cases(&format!("parts of networks in {dtype}"), cuda, || networks(dtype))?;
    }
    for precision in [Precision::Tf32, Precision::Bf16] {
        tally.cases(&format!("convolutions in {precision}"), cuda, || {
            convolutions(DType::F32)?.into_iter().map(|case| case.in_precision(precision)).collect()
        })?;
        tally.cases(&format!("random programs in {precision}"), cuda, || {
            let rounded = |seed: u64| {
                let size = if seed.is_multiple_of(4) { Size::large } else { Size::small };
                random_program(seed, &Graph::new(), DType::F32, size)?.in_precision(precision)
            };
            (0..seeds.div_ceil(2)).map(rounded).collect()
        })?;
        tally.cases(&format!("products in {precision}"), cuda, || rounded_products(precision))?;
    }
    tally.cases("long products in tf32", cuda, long_products)?;
    tally_draws(&mut tally, cuda)?;
    tally_estimators(&mut tally, cuda)?;
    for dtype in [DType::F64, DType::F32] {
        let programs = |make: &dyn Fn(u64, &Graph) -> bilevel_graph::Result<Case>| {
            let both = |seed| [make(seed, &Graph::new()), make(seed, &Graph::without_simplification())];
            (0..seeds).flat_map(both).collect::<bilevel_graph::Result<Vec<Case>>>()
        };
        tally.cases(&format!("random programs in {dtype}"), cuda, || {
            programs(&|seed, graph| random_program(seed, graph, dtype, Size::small))
        })?;
        tally.cases(&format!("varied programs in {dtype}"), cuda, || {
            programs(&|seed, graph| varied_program(seed, graph, dtype, Size::small))
        })?;
        tally.cases(&format!("large programs in {dtype}"), cuda, || {
            (0..seeds.div_ceil(16)).map(|seed| random_program(seed, &Graph::new(), dtype, Size::large)).collect()
        })?;
    }
    if tally.parts == 0 {
        let what =
            format!("no part of the check has {only:?} in its name; without `--only`, all are named as they run");
        return Err(BenchError::Wrong { case: "cuda-check".into(), what });
    }
    say!("{}", if tally.failures == 0 { "all right".to_string() } else { format!("{} failures", tally.failures) });
    Ok(tally.failures == 0)
}

/// Draws of every kind and type, in loops of all shapes, with the bits of the CPU.
fn tally_draws(tally: &mut Tally, cuda: &Cuda) -> Result<()> {
    const NAME: &str = "draws, bit for bit";
    if !tally.wants(NAME) {
        return Ok(());
    }
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
    tally.part(NAME, start, tried, &failures);
    Ok(())
}

/// Problems on which estimators are compared: elementwise, logistic regression, a small network.
fn problems() -> Result<Vec<(&'static str, Problem)>> {
    const SIZE: usize = 50;
    let elementwise = || {
        Problem::builder(Leaf(Variable::constant([SIZE], 0.4)), Leaf(Variable::normal([SIZE], 0.3)))
            .inner(|s, l, t| ((t.0 - l.0).square() + s.normal([SIZE]) * t.0 * 0.1).sum_all())
            .outer(|_, l, t| (t.0 - 1.0).square().sum_all() + l.0.square().sum_all() * 0.1)
    };
    let data = |rows: usize, columns: usize| {
        let values = (0..rows * columns).map(|i| (i as f64 * 0.7).sin()).collect();
        Array::from_f64([rows, columns], values)
    };
    let labels = |rows: usize| Array::from_i32([rows], (0..rows as i32).map(|i| i % 3).collect());
    let network = Problem::builder(
        Leaf(Variable::constant([8 * 16 + 16 * 3], -3.0)),
        Leaf(Variable::normal([8 * 16 + 16 * 3], 0.3)),
    )
    .data("x", data(40, 8)?)
    .data("y", labels(40)?)
    .inner(|s, l, w| {
        let (a, b) = (w.0.slice(0, 0, 128).reshape([8, 16]), w.0.slice(0, 128, 176).reshape([16, 3]));
        nn::cross_entropy(s.data("x").matmul(a).tanh().matmul(b), s.data("y")) + (l.0.exp() * w.0.square()).sum_all()
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
    const NAME: &str = "estimators, against the CPU";
    if !tally.wants(NAME) {
        return Ok(());
    }
    let (start, mut tried, mut failures) = (Instant::now(), 0, vec![]);
    for (name, problem) in problems()? {
        for info in methods::all() {
            let mut method = AnyMethod::named(info.name)?;
            let inner = method.tune(InnerLoop::new(0.01, 4), 10.0);
            if method.applies(&problem).is_err() {
                continue;
            }
            tried += 1;
            let run = |driver: Driver| driver.rate(0.01).iterations(2).seed(3).run();
            let (ours, theirs) = (
                run(Driver::new(&problem, method.clone()).inner(inner).executor(cuda.clone())),
                run(Driver::new(&problem, method.clone()).inner(inner).executor(Cpu::new())),
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
    tally.part(NAME, start, tried, &failures);
    Ok(())
}

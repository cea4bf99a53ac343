//! The purposes of random numbers, and the stream of each.
//!
//! A draw is addressed by key, counter and stream (`bilevel_graph::random`). All purposes of a hypergradient share its key and most of
//! them its counter, so two purposes are independent only if their streams differ. The stream is the purpose itself, packed:
//!
//!   stream = kind·2²⁸ + index,   index = measure·2¹⁴ + draw for the draws of a metric

use crate::{Error, Result};

/// Bits of a stream below those of the kind.
const INDEX_BITS: u32 = 28;
/// Bits of the index of a metric's draw below those of the metric's number.
const DRAW_BITS: u32 = 14;
/// Streams of a set of classes: one for the classes of an episode, one for their rows.
const STREAMS_OF_CLASSES: u32 = 2;

/// The function that a [`Scope`](crate::Scope) is given to, whose draws are numbered in the order in which it makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    /// The inner loss.
    Inner,
    /// The outer loss.
    Outer,
    /// θ⁰(λ).
    Start,
    /// The metric of this number.
    Measure(u32),
    /// Any of them, for draws that are made once for a whole hypergradient.
    Episode,
}

impl Caller {
    /// The number of draws that have separate streams.
    pub fn max_draws(self) -> u32 {
        match self {
            Caller::Measure(_) => 1 << DRAW_BITS,
            _ => 1 << INDEX_BITS,
        }
    }
}

/// The purpose of a random draw. No two purposes share a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// First values of λ and θ, which have separate keys.
    Initial,
    /// The draw of this number of a loss, a start or a metric.
    Draw(Caller, u32),
    /// The classes of an episode, from the set of classes of this number.
    Ways(u32),
    /// The rows of an episode, from the set of classes of this number.
    Rows(u32),
    /// Langevin noise of the leaf of θ of this number.
    Noise(u32),
    /// The tangent along which growth is measured, for the leaf of θ of this number.
    Growth(u32),
    /// A random direction of the leaf of λ of this number.
    Direction(u32),
    /// Coordinates of λ.
    Coordinates,
    /// Columns of the Hessian.
    Columns,
    /// The numbers of minibatches.
    Minibatches,
}

impl Purpose {
    /// The number of its stream. The index must be in range, as [`check`] makes sure when a problem is built.
    pub fn stream(self) -> u32 {
        let (kind, index) = match self {
            Purpose::Initial => (0, 0),
            Purpose::Draw(Caller::Inner, draw) => (1, draw),
            Purpose::Draw(Caller::Outer, draw) => (2, draw),
            Purpose::Draw(Caller::Start, draw) => (3, draw),
            Purpose::Draw(Caller::Episode, draw) => (4, draw),
            Purpose::Draw(caller @ Caller::Measure(measure), draw) => {
                assert!(measure < 1 << (INDEX_BITS - DRAW_BITS) && draw < caller.max_draws(), "{self:?}");
                (5, (measure << DRAW_BITS) + draw)
            }
            Purpose::Ways(classes) => (6, STREAMS_OF_CLASSES * classes),
            Purpose::Rows(classes) => (6, STREAMS_OF_CLASSES * classes + 1),
            Purpose::Noise(leaf) => (7, leaf),
            Purpose::Growth(leaf) => (8, leaf),
            Purpose::Direction(leaf) => (9, leaf),
            Purpose::Coordinates => (10, 0),
            Purpose::Columns => (11, 0),
            Purpose::Minibatches => (12, 0),
        };
        assert!(index < 1 << INDEX_BITS, "{self:?} has no stream");
        (kind << INDEX_BITS) + index
    }
}

/// Refuses a problem with more leaves, metrics or sets of classes than there are streams for.
pub(crate) fn check(leaves: usize, measures: usize, classes: usize) -> Result<()> {
    let limits = [
        ("leaves", leaves, 1u32 << INDEX_BITS),
        ("metrics", measures, 1 << (INDEX_BITS - DRAW_BITS)),
        ("sets of classes", classes, (1 << INDEX_BITS) / STREAMS_OF_CLASSES),
    ];
    for (what, count, most) in limits {
        if count > most as usize {
            return Err(Error::TooMany { what, found: count, most: most as usize });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiled::trace::Trace;
    use crate::{Array, Key, Leaf, Problem, Variable};
    use bilevel_graph::{DType, Executor, Graph, Program, Reference};
    use std::collections::HashSet;

    /// The next kind after one of these indices, until all have been named: a new kind must be added, or this does not compile.
    fn next(purpose: Purpose) -> Option<fn(u32) -> Purpose> {
        Some(match purpose {
            Purpose::Initial => |i| Purpose::Draw(Caller::Inner, i),
            Purpose::Draw(Caller::Inner, _) => |i| Purpose::Draw(Caller::Outer, i),
            Purpose::Draw(Caller::Outer, _) => |i| Purpose::Draw(Caller::Start, i),
            Purpose::Draw(Caller::Start, _) => |i| Purpose::Draw(Caller::Episode, i),
            Purpose::Draw(Caller::Episode, _) => |i| Purpose::Draw(Caller::Measure(i), 0),
            Purpose::Draw(Caller::Measure(_), _) => Purpose::Ways,
            Purpose::Ways(_) => Purpose::Rows,
            Purpose::Rows(_) => Purpose::Noise,
            Purpose::Noise(_) => Purpose::Growth,
            Purpose::Growth(_) => Purpose::Direction,
            Purpose::Direction(_) => |_| Purpose::Coordinates,
            Purpose::Coordinates => |_| Purpose::Columns,
            Purpose::Columns => |_| Purpose::Minibatches,
            Purpose::Minibatches => return None,
        })
    }

    #[test]
    fn no_two_purposes_share_a_stream() {
        let mut all = HashSet::from([Purpose::Initial]);
        let mut last = Purpose::Initial;
        while let Some(kind) = next(last) {
            // Leaves, draws and metrics of a large problem, and the last index that fits into the bits of a metric.
            all.extend((0..1500).chain([(1 << DRAW_BITS) - 1]).map(kind));
            last = kind(0);
        }
        for measure in (0..30).chain([(1 << (INDEX_BITS - DRAW_BITS)) - 1]) {
            let caller = Caller::Measure(measure);
            all.extend((0..1500).chain([caller.max_draws() - 1]).map(|draw| Purpose::Draw(caller, draw)));
        }
        let last = (1 << INDEX_BITS) - 1;
        all.extend([Purpose::Noise(last), Purpose::Draw(Caller::Inner, last), Purpose::Rows(last / 2)]);
        let streams: HashSet<u32> = all.iter().map(|purpose| purpose.stream()).collect();
        assert_eq!(streams.len(), all.len());
    }

    #[test]
    fn every_draw_of_a_problem_with_1500_leaves_and_30_metrics_is_another_number() {
        let theta = vec![Leaf(Variable::constant([], 0.0)); 1500];
        let mut builder = Problem::builder(Leaf(Variable::constant([], 0.5)), theta)
            .inner(|s, l, t| t.iter().fold(s.normal([]), |sum, t| sum + (t.0 - l.0).square()))
            .outer(|s, _, t| t[0].0.square() + s.normal([]));
        for measure in 0..30 {
            builder = builder.measure(format!("metric {measure}"), |s, _, _| s.normal([]));
        }
        let problem = builder.build().unwrap();
        let graph = Graph::new();
        let trace = Trace::new(&graph, &problem).unwrap();
        let counter = graph.scalar(0.0, DType::I32);
        let mut draws = trace.noise(counter);
        draws.extend(trace.measures(counter).unwrap());
        // The losses at θ = 0 and λ = 0, which consist only of their draws.
        draws.push(trace.inner(&trace.theta, counter).unwrap());
        draws.push(trace.outer(&trace.theta, counter).unwrap());
        let mut program = Program::builder(&graph);
        for (i, draw) in draws.iter().enumerate() {
            program = program.output(format!("draw.{i}"), draw.convert(DType::F64));
        }
        let program = program.build().unwrap();
        let mut run = Reference.compile(&program).unwrap();
        let key = Array::from_i32([2], Key::from_seed(1).values().to_vec()).unwrap();
        run.set(program.input("key").unwrap(), &key).unwrap();
        let variables = [("lambda", &problem.lambda), ("theta", &problem.theta)];
        for (prefix, (name, _)) in variables.iter().flat_map(|(prefix, all)| all.iter().map(move |one| (prefix, one))) {
            let zero = Array::from_f64([], vec![0.0]).unwrap();
            run.set(program.input(&format!("{prefix}.{name}")).unwrap(), &zero).unwrap();
        }
        run.run(0..1).unwrap();
        let number = |i: usize| run.output(program.output(&format!("draw.{i}")).unwrap()).unwrap().item().unwrap();
        let different: HashSet<u64> = (0..draws.len()).map(|i| number(i).to_bits()).collect();
        assert_eq!(different.len(), draws.len());
    }

    #[test]
    fn a_problem_with_too_many_metrics_is_refused_in_words() {
        let error = check(3, 1 << 15, 0).unwrap_err().to_string();
        assert!(error.contains("32768 metrics") && error.contains("at most 16384"), "{error}");
        assert!(check(1 << INDEX_BITS, 1 << 14, 10).is_ok());
    }
}

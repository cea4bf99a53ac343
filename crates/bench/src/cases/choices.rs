//! Choices a program makes: which element of a window is the largest, which side of a kink a number lies on.
//!
//! If two numbers are equal except for rounding, f32 and f64 may choose differently, and every derivative is then that
//! of another smooth piece: right, but not close. So results are compared under the same choices, and choices that
//! differ are shown to be near ties.

use bilevel_graph::{Array, DType, Op, Port, Program, UnaryOp};

/// Numbers of the nodes that choose by comparing floats.
fn nodes(program: &Program) -> Vec<usize> {
    let float = |node: usize| program.nodes[node].meta.dtype.is_float();
    let chooses = |op: &Op| match op {
        Op::Binary(op) => op.is_comparison(),
        Op::WindowArgMax(_) | Op::ArgMax(_) | Op::Unary(UnaryOp::Floor | UnaryOp::Sign) => true,
        _ => false,
    };
    (0..program.nodes.len())
        .filter(|&i| chooses(&program.nodes[i].op) && program.nodes[i].inputs.iter().all(|&input| float(input)))
        .collect()
}

/// The program with an output for each choice, and for the compared numbers.
pub fn revealed(program: &Program) -> Program {
    let mut all = program.clone();
    for (number, node) in nodes(program).into_iter().enumerate() {
        let operands = program.nodes[node].inputs.iter().enumerate();
        let operands = operands.map(|(k, &operand)| (format!("choice{number} of {k}"), operand));
        for (name, node) in std::iter::once((format!("choice{number}"), node)).chain(operands) {
            all.outputs.push(Port { name, node: Some(node), meta: program.nodes[node].meta.clone() });
        }
    }
    all
}

/// The program with an input choice0, choice1, … in place of each choice.
pub fn imposed(program: &Program) -> Program {
    let mut all = program.clone();
    for (number, node) in nodes(program).into_iter().enumerate() {
        let name = format!("choice{number}");
        all.nodes[node].op = Op::Input(all.inputs.len() as u32);
        all.nodes[node].inputs = vec![];
        all.inputs.push(Port { name, node: Some(node), meta: all.nodes[node].meta.clone() });
    }
    all
}

/// One choice node: its choices and the compared numbers.
pub struct Choice {
    /// Its result.
    pub chosen: Array,
    /// Its operands.
    pub compared: Vec<Array>,
    op: Op,
}

/// All choices of a program from [`revealed`], its outputs read by `read`.
pub fn made<E>(program: &Program, read: impl Fn(&str) -> Result<Array, E>) -> Result<Vec<Choice>, E> {
    let each = nodes(program).into_iter().enumerate().map(|(number, node)| {
        let node = &program.nodes[node];
        let operands = 0..node.inputs.len();
        Ok(Choice {
            chosen: read(&format!("choice{number}"))?,
            compared: operands.map(|k| read(&format!("choice{number} of {k}"))).collect::<Result<_, E>>()?,
            op: node.op.clone(),
        })
    });
    each.collect()
}

/// Choices that differ between two runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flips {
    /// How many differ.
    pub count: usize,
    /// The total number of choices.
    pub total: usize,
    /// How far from a tie the clearest of them was, relative to the largest number compared there.
    pub margin: f64,
}

/// Counts the choices that `other` makes differently, and measures their distance from a tie by the numbers of `exact`.
pub fn flips(exact: &[Choice], other: &[Choice]) -> Flips {
    let mut found = Flips::default();
    for (exact, other) in exact.iter().zip(other) {
        let (a, b) = (exact.chosen.to_f64(), other.chosen.to_f64());
        found.total += a.len();
        let differing: Vec<usize> = (0..a.len()).filter(|&i| a[i] != b[i]).collect();
        if differing.is_empty() {
            continue;
        }
        found.count += differing.len();
        let values: Vec<Vec<f64>> = exact.compared.iter().map(Array::to_f64).collect();
        let size = values.iter().flatten().fold(f64::MIN_POSITIVE, |most, v| v.abs().max(most));
        for i in differing {
            let gap = match (&exact.op, values.as_slice()) {
                (Op::Unary(UnaryOp::Floor), [x]) => x[i] - x[i].round(),
                (Op::Unary(_), [x]) => x[i],
                (_, [x]) => x[exact.place(i, a[i] as usize)] - x[exact.place(i, b[i] as usize)],
                (_, [left, right]) => left[i] - right[i],
                _ => f64::INFINITY,
            };
            found.margin = found.margin.max(gap.abs() / size);
        }
    }
    found
}

impl Choice {
    /// Position in the operand of the element that result `i` names by `index`.
    fn place(&self, i: usize, index: usize) -> usize {
        let shape = self.compared[0].shape();
        match self.op {
            // Result [outer.., inner..], operand [outer.., axis, inner..].
            Op::ArgMax(axis) => {
                let inner: usize = shape[axis + 1..].iter().product();
                (i / inner * shape[axis] + index) * inner + i % inner
            }
            // Windows count the elements of their plane.
            _ => {
                let rank = shape.len();
                let windows: usize = self.chosen.shape()[rank - 2..].iter().product();
                i / windows * shape[rank - 2] * shape[rank - 1] + index
            }
        }
    }
}

/// The choices of one run as values for the inputs of an [`imposed`] program of another type.
pub fn converted(choices: &[Choice], dtype: DType) -> bilevel_graph::Result<Vec<(String, Array)>> {
    let each = choices.iter().enumerate().map(|(number, choice)| {
        let kept = if choice.chosen.dtype() == DType::I32 { DType::I32 } else { dtype };
        let value = Array::from_values(choice.chosen.shape(), &choice.chosen.to_f64(), kept)?;
        Ok((format!("choice{number}"), value))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::{Executor, Graph, Reference, WindowDims, gradient, nn};

    fn run(program: &Program, inputs: &[(String, Array)]) -> Box<dyn bilevel_graph::Runnable> {
        let mut run = Reference.compile(program).unwrap();
        for (name, value) in inputs {
            run.set(program.input(name).unwrap(), value).unwrap();
        }
        run.run(0..1).unwrap();
        run
    }

    #[test]
    fn a_near_tie_is_found_and_its_choice_can_be_imposed() {
        let g = Graph::new();
        let x = g.input("x", [1, 1, 2, 4], DType::F64);
        let y = nn::max_pool2d(x, nn::Pool2d::of([2, 2]));
        let d = gradient(y.square().sum_all(), &[x]).unwrap()[0].unwrap();
        let program = Program::builder(&g).output("d", d).build().unwrap();
        let at = |a: f64| {
            let value = Array::from_f64([1, 1, 2, 4], vec![1.0, a, 0.0, 8.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
            vec![("x".to_string(), value)]
        };
        let program = revealed(&program);
        let choices = |a: f64| {
            let run = run(&program, &at(a));
            made(&program, |name| run.output(program.output(name)?)).unwrap()
        };
        let (exact, other) = (choices(1.0 - 1e-9), choices(1.0 + 1e-9));
        let found = flips(&exact, &other);
        assert_eq!((found.count, found.total), (1, 2));
        assert!((found.margin - 1e-9 / 8.0).abs() < 1e-15, "{found:?}");
        assert_eq!(flips(&exact, &exact).count, 0);

        let forced = imposed(&program);
        let inputs = [at(1.0 - 1e-9), converted(&other, DType::F64).unwrap()].concat();
        let d = run(&forced, &inputs).output(0).unwrap().to_f64();
        assert!(d[0] == 0.0 && (d[1] - 2.0).abs() < 1e-8, "{d:?}");
    }

    #[test]
    fn places_of_window_and_axis_choices() {
        let g = Graph::new();
        let x = g.input("x", [2, 3, 4], DType::F64);
        let dims = WindowDims { size: [3, 2], stride: [1, 2], padding: [(0, 0); 2] };
        let windows = x.window_argmax(dims);
        let program = Program::builder(&g).output("w", windows).output("a", x.argmax(1)).build().unwrap();
        let program = revealed(&program);
        let values: Vec<f64> = (0..24).map(|i| ((i * 7) % 24) as f64).collect();
        let run = run(&program, &[("x".into(), Array::from_f64([2, 3, 4], values.clone()).unwrap())]);
        for choice in made(&program, |name| run.output(program.output(name)?)).unwrap() {
            for (i, index) in choice.chosen.to_f64().into_iter().enumerate() {
                let value = values[choice.place(i, index as usize)];
                let expected = match choice.op {
                    Op::ArgMax(_) => (0..3).map(|k| values[i / 4 * 12 + k * 4 + i % 4]).fold(0.0, f64::max),
                    _ => (0..12).filter(|k| k % 4 / 2 == i % 2).map(|k| values[i / 2 * 12 + k]).fold(0.0, f64::max),
                };
                assert_eq!(value, expected);
            }
        }
    }
}

//! Programs on single numbers take a path of their own: every operation on it, in every type, against the reference.

use bilevel_cpu::Cpu;
use bilevel_graph::{Array, BinaryOp, DType, Executor, Graph, Program, Reference, UnaryOp};

const NUMBERS: [f64; 13] =
    [0.0, -0.0, 1.0, -1.0, 0.3, -2.25, 7.0, 1e-12, -40.0, 90.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];

/// All results of the program for these operands.
fn results(executor: &dyn Executor, program: &Program, values: &[(&str, f64)], dtype: DType) -> Vec<f64> {
    let mut run = executor.compile(program).unwrap();
    for &(name, value) in values {
        run.set(program.input(name).unwrap(), &Array::scalar(value, dtype)).unwrap();
    }
    run.run(0..1).unwrap();
    (0..program.outputs.len()).map(|i| run.output(i).unwrap().item().unwrap()).collect()
}

#[test]
fn every_operation_on_one_number_agrees_with_the_reference() {
    for dtype in [DType::F64, DType::F32, DType::I32] {
        let g = Graph::new();
        let (a, b) = (g.input("a", [], dtype), g.input("b", [], dtype));
        let mut builder = Program::builder(&g);
        let unary = UnaryOp::ALL.iter().map(|&op| (format!("{op:?}"), a.unary(op)));
        let binary = BinaryOp::ALL.iter().map(|&op| (format!("{op:?}"), a.binary(op, b)));
        let other = [DType::F32, DType::F64, DType::I32].map(|to| (format!("to {to}"), a.convert(to)));
        let select = [("select".to_string(), a.less(b).select(a, b))];
        let all = unary.chain(binary).chain(other).chain(select);
        let names: Vec<String> = all
            .filter(|(_, tensor)| tensor.check().is_ok())
            .map(|(name, tensor)| {
                builder = std::mem::replace(&mut builder, Program::builder(&g)).output(&name, tensor);
                name
            })
            .collect();
        let program = std::mem::replace(&mut builder, Program::builder(&g)).build().unwrap();
        let cpu = Cpu::with_threads(1);
        let described = cpu.plan(&program).unwrap().describe();
        assert!(described.contains("scalar operations"), "{described}");
        for x in NUMBERS {
            for y in NUMBERS {
                let values = [("a", x), ("b", y)];
                let found = results(&cpu, &program, &values, dtype);
                let expected = results(&Reference, &program, &values, dtype);
                for ((name, f), e) in names.iter().zip(found).zip(expected) {
                    // One formula for both, so that the bits are the same; a NaN may be any.
                    let close = f.to_bits() == e.to_bits() || (f.is_nan() && e.is_nan());
                    assert!(close, "{dtype} {name}({x}, {y}): {f} but the reference says {e}");
                }
            }
        }
    }
}

//! Parameters as your own structs: `cargo run --release -p bilevel-cpu --example custom_tree`
//!
//! A struct with its leaves left open holds shapes, then symbolic tensors, then arrays. Names and order come from the
//! fields, so that inputs, gradients and checkpoints agree on them.

use bilevel_cpu::Cpu;
use bilevel_graph::{Array, DType, Executor, Graph, Program, Tensor, Tree, gradient_or_zeros, nn};
use std::error::Error;

#[derive(Tree)]
struct Layer<T> {
    weight: T,
    bias: Option<T>,
}

#[derive(Tree)]
struct Net<T> {
    layers: Vec<Layer<T>>,
    scale: T,
    /// Does not mention `T`: carried along unchanged.
    activation: Activation,
}

#[derive(Clone, Copy, Debug)]
enum Activation {
    Silu,
    Tanh,
}

impl Net<Tensor> {
    /// The forward pass: only a network of symbolic tensors has one.
    fn forward(&self, x: Tensor) -> Tensor {
        let mut h = x;
        for (i, layer) in self.layers.iter().enumerate() {
            h = nn::linear(h, layer.weight, layer.bias);
            if i + 1 < self.layers.len() {
                h = match self.activation {
                    Activation::Silu => nn::silu(h),
                    Activation::Tanh => h.tanh(),
                };
            }
        }
        h * self.scale
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Shapes.
    let shapes = |activation| Net {
        layers: vec![Layer { weight: vec![3, 8], bias: Some(vec![8]) }, Layer { weight: vec![8, 1], bias: None }],
        scale: vec![],
        activation,
    };

    for activation in [Activation::Silu, Activation::Tanh] {
        // Symbolic tensors: each leaf an input that bears its name.
        let g = Graph::new();
        let net = shapes(activation).map_named(|name, shape: &Vec<usize>| g.input(name, shape, DType::F64));
        let (x, y) = (g.input("x", [5, 3], DType::F64), g.input("y", [5, 1], DType::F64));
        let loss = nn::mse(net.forward(x), y);

        // Gradients come as a flat list in the order of the leaves, and go back into a struct of the same form.
        let parameters: Vec<Tensor> = net.leaves().into_iter().copied().collect();
        let slopes: Net<Tensor> = net.rebuild(gradient_or_zeros(loss, &parameters)?)?;
        let named = slopes.names().into_iter().zip(slopes.leaves());
        let program = named
            .fold(Program::builder(&g).output("loss", loss), |b, (name, &slope)| b.output(format!("d.{name}"), slope))
            .build()?;

        // Arrays: the same struct again.
        let values = shapes(activation).map(|shape: &Vec<usize>| Array::full(shape, 0.1, DType::F64));
        let mut run = Cpu::new().compile(&program)?;
        for (name, value) in values.names().iter().zip(values.leaves()) {
            run.set(program.input(name)?, value)?;
        }
        run.set(program.input("x")?, &Array::full([5, 3], 0.5, DType::F64))?;
        run.set(program.input("y")?, &Array::full([5, 1], 1.0, DType::F64))?;
        run.run(0..1)?;
        let found: Net<Array> = slopes.try_map_named(|name, _| run.output(program.output(&format!("d.{name}"))?))?;

        println!("{activation:?}: loss {:.6}", run.output(0)?.item().unwrap_or(f64::NAN));
        found.visit(|name, slope| println!("  d loss/d {name:<16} {:?} {:+.6} …", slope.shape(), slope.to_f64()[0]));
    }
    Ok(())
}

//! Symbolic tensors as Python sees them: one method for each primitive, and a few composites that the engine
//! recognises.

use crate::error::{self, of_graph};
use crate::function::Function;
use bilevel::graph::{BinaryOp, ConvDims, CustomRule, DotDims, Graph, Program, RandomKind, UnaryOp, WindowDims, nn};
use bilevel::{DType, Tensor as Core};
use pyo3::prelude::*;
use std::cell::RefCell;

/// A tensor of a graph that is being traced.
#[pyclass(unsendable, frozen, module = "bilevel._bilevel")]
#[derive(Clone, Copy)]
pub struct Tensor(pub Core);

/// The element type of this name.
pub fn dtype(name: &str) -> PyResult<DType> {
    match name {
        "f32" => Ok(DType::F32),
        "f64" => Ok(DType::F64),
        "i32" => Ok(DType::I32),
        _ => Err(error::setting(format!("there is no type '{name}'; the types are f32, f64 and i32"))),
    }
}

/// A tensor or a number.
#[derive(FromPyObject)]
enum Operand<'py> {
    Tensor(PyRef<'py, Tensor>),
    Number(f64),
}

impl Operand<'_> {
    fn like(&self, x: Core) -> Core {
        match self {
            Operand::Tensor(tensor) => tensor.0,
            Operand::Number(number) => x.constant_like(*number, []),
        }
    }
}

fn binary_op(name: &str) -> PyResult<BinaryOp> {
    let found = BinaryOp::ALL.into_iter().find(|known| known.name() == name);
    found.ok_or_else(|| error::setting(format!("there is no function '{name}'")))
}

fn ok(tensor: Core) -> PyResult<Tensor> {
    tensor.check().map(Tensor).map_err(of_graph)
}

fn plain(tensors: &[PyRef<'_, Tensor>]) -> Vec<Core> {
    tensors.iter().map(|tensor| tensor.0).collect()
}

#[pymethods]
impl Tensor {
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.0.shape()
    }

    #[getter]
    fn dtype(&self) -> String {
        self.0.dtype().to_string()
    }

    /// The value of all elements, if it is known.
    #[getter]
    fn constant_value(&self) -> Option<f64> {
        self.0.constant_value()
    }

    fn is_same(&self, other: &Tensor) -> bool {
        self.0.is_same_node(other.0)
    }

    fn unary(&self, op: &str) -> PyResult<Tensor> {
        let found = UnaryOp::ALL.iter().find(|known| known.name() == op);
        ok(self.0.unary(*found.ok_or_else(|| error::setting(format!("there is no function '{op}'")))?))
    }

    /// A function of this and another tensor, or a number, stretched to one shape.
    fn binary(&self, op: &str, other: Operand<'_>) -> PyResult<Tensor> {
        ok(self.0.binary(binary_op(op)?, other.like(self.0)))
    }

    /// The same with the operands exchanged.
    fn rbinary(&self, op: &str, other: Operand<'_>) -> PyResult<Tensor> {
        ok(other.like(self.0).binary(binary_op(op)?, self.0))
    }

    /// `then` where this is not 0, else `otherwise`.
    fn select(&self, then: &Tensor, otherwise: &Tensor) -> PyResult<Tensor> {
        ok(self.0.select(then.0, otherwise.0))
    }

    /// A constant of this type; of this shape unless another is given.
    #[pyo3(signature = (value, shape=None))]
    fn full_like(&self, value: f64, shape: Option<Vec<usize>>) -> PyResult<Tensor> {
        ok(self.0.constant_like(value, shape.unwrap_or_else(|| self.0.shape())))
    }

    fn convert(&self, to: &str) -> PyResult<Tensor> {
        ok(self.0.convert(dtype(to)?))
    }

    fn stop_gradient(&self) -> PyResult<Tensor> {
        ok(self.0.stop_gradient())
    }

    fn check_index(&self, limit: usize) -> PyResult<Tensor> {
        ok(self.0.check_index(limit))
    }

    fn reshape(&self, shape: Vec<usize>) -> PyResult<Tensor> {
        ok(self.0.reshape(shape))
    }

    fn transpose(&self, perm: Vec<usize>) -> PyResult<Tensor> {
        ok(self.0.transpose(perm))
    }

    fn broadcast(&self, axes: Vec<usize>, shape: Vec<usize>) -> PyResult<Tensor> {
        ok(self.0.broadcast(axes, shape))
    }

    fn slice(&self, start: Vec<usize>, stop: Vec<usize>, step: Vec<usize>) -> PyResult<Tensor> {
        ok(self.0.slice_all(start, stop, step))
    }

    fn pad(&self, low: Vec<usize>, high: Vec<usize>, interior: Vec<usize>) -> PyResult<Tensor> {
        ok(self.0.pad_all(low, high, interior))
    }

    fn concat(&self, others: Vec<PyRef<'_, Tensor>>, axis: usize) -> PyResult<Tensor> {
        ok(self.0.concat(&plain(&others), axis))
    }

    fn reverse(&self, axes: Vec<usize>) -> PyResult<Tensor> {
        ok(self.0.reverse(axes))
    }

    fn sum(&self, axes: Vec<usize>) -> PyResult<Tensor> {
        ok(self.0.sum(axes))
    }

    fn max(&self, axes: Vec<usize>) -> PyResult<Tensor> {
        ok(self.0.max(axes))
    }

    fn argmax(&self, axis: usize) -> PyResult<Tensor> {
        ok(self.0.argmax(axis))
    }

    fn cumsum(&self, axis: usize, reverse: bool) -> PyResult<Tensor> {
        ok(self.0.cumsum_from(axis, reverse))
    }

    fn dot(
        &self,
        other: &Tensor,
        lhs_contract: Vec<usize>,
        rhs_contract: Vec<usize>,
        lhs_batch: Vec<usize>,
        rhs_batch: Vec<usize>,
    ) -> PyResult<Tensor> {
        ok(self.0.dot(other.0, DotDims { lhs_contract, rhs_contract, lhs_batch, rhs_batch }))
    }

    fn conv(
        &self,
        kernel: &Tensor,
        stride: [usize; 2],
        padding: [(i64, i64); 2],
        image_dilation: [usize; 2],
        kernel_dilation: [usize; 2],
        groups: usize,
    ) -> PyResult<Tensor> {
        ok(self.0.conv(kernel.0, ConvDims { stride, padding, image_dilation, kernel_dilation, groups }))
    }

    fn gather(&self, indices: &Tensor, batch: usize) -> PyResult<Tensor> {
        ok(self.0.gather(indices.0, batch))
    }

    fn scatter_add(&self, indices: &Tensor, batch: usize, size: usize) -> PyResult<Tensor> {
        ok(self.0.scatter_add(indices.0, batch, size))
    }

    fn scatter_max(&self, indices: &Tensor, batch: usize, size: usize) -> PyResult<Tensor> {
        ok(self.0.scatter_max(indices.0, batch, size))
    }

    fn window_argmax(&self, size: [usize; 2], stride: [usize; 2], padding: [(usize, usize); 2]) -> PyResult<Tensor> {
        ok(self.0.window_argmax(WindowDims { size, stride, padding }))
    }

    fn argsort(&self, axis: usize) -> PyResult<Tensor> {
        ok(self.0.argsort(axis))
    }

    fn cholesky(&self) -> PyResult<Tensor> {
        ok(self.0.cholesky())
    }

    fn triangular_solve(&self, b: &Tensor, lower: bool, transposed: bool) -> PyResult<Tensor> {
        ok(self.0.triangular_solve(b.0, lower, transposed))
    }

    /// This tensor as a value of these operands, with this derivative rule.
    fn with_rule(&self, operands: Vec<PyRef<'_, Tensor>>, rule: &Function) -> PyResult<Tensor> {
        ok(CustomRule::from_function(rule.core.clone()).of(&plain(&operands), |_| self.0))
    }

    /// This tensor, marked as a convex function of these: Gauss-Newton products end there.
    fn convex_in(&self, outputs: Vec<PyRef<'_, Tensor>>) -> PyResult<Tensor> {
        ok(nn::convex_in(self.0, &plain(&outputs)))
    }

    /// A composite of these operands, by name.
    #[staticmethod]
    #[pyo3(signature = (name, operands, number=0.0))]
    fn composite(name: &str, operands: Vec<PyRef<'_, Tensor>>, number: f64) -> PyResult<Tensor> {
        let made = match (name, &plain(&operands)[..]) {
            ("cross_entropy", [logits, labels]) => nn::cross_entropy(*logits, *labels),
            ("cross_entropy_rows", [logits, labels]) => nn::cross_entropy_rows(*logits, *labels),
            ("softmax", [x]) => nn::softmax(*x, number as usize),
            ("log_softmax", [x]) => nn::log_softmax(*x, number as usize),
            ("layer_norm", [x, gain, bias]) => nn::layer_norm(*x, *gain, *bias, number),
            ("attention", [q, k, v]) => nn::scaled_dot_product_attention(*q, *k, *v, None),
            ("masked_attention", [q, k, v, mask]) => nn::scaled_dot_product_attention(*q, *k, *v, *mask),
            ("asin", [x]) => nn::asin(*x),
            ("acos", [x]) => nn::acos(*x),
            ("atan2", [y, x]) => nn::atan2(*y, *x),
            ("matrix_exponential", [a]) => nn::matrix_exponential(*a),
            ("gelu", [x]) => nn::gelu(*x),
            ("softplus", [x]) => nn::softplus(*x),
            ("mse", [x, y]) => nn::mse(*x, *y),
            _ => return Err(error::setting(format!("there is no composite '{name}' of {} operands", operands.len()))),
        };
        ok(made)
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// A graph that grows while a loss is traced.
#[pyclass(unsendable, frozen, module = "bilevel._bilevel")]
pub struct Tracer {
    graph: Graph,
    key: RefCell<Option<Core>>,
}

#[pymethods]
impl Tracer {
    #[new]
    fn new() -> Self {
        Tracer { graph: Graph::new(), key: RefCell::new(None) }
    }

    fn input(&self, name: String, shape: Vec<usize>, of: &str) -> PyResult<Tensor> {
        ok(self.graph.input(name, shape, dtype(of)?))
    }

    fn constant(&self, value: f64, shape: Vec<usize>, of: &str) -> PyResult<Tensor> {
        ok(self.graph.constant(value, shape, dtype(of)?))
    }

    fn iota(&self, shape: Vec<usize>, axis: usize, of: &str) -> PyResult<Tensor> {
        ok(self.graph.iota(shape, axis, dtype(of)?))
    }

    /// A draw from this stream: `normal`, `uniform` or `bits`.
    fn random(&self, kind: &str, stream: u32, shape: Vec<usize>, of: &str) -> PyResult<Tensor> {
        let key = *self.key.borrow_mut().get_or_insert_with(|| self.graph.input("key", [2], DType::I32));
        let kind = match kind {
            "normal" => RandomKind::Normal,
            "uniform" => RandomKind::Uniform,
            "bits" => RandomKind::Bits,
            _ => return Err(error::setting(format!("there is no distribution '{kind}'"))),
        };
        ok(key.random(self.graph.step(), kind, stream, shape, dtype(of)?))
    }

    /// Names the line of user code of all later operations.
    #[pyo3(signature = (text=None))]
    fn set_line(&self, text: Option<&str>) {
        self.graph.set_line(text.filter(|text| !text.is_empty()));
    }

    /// The traced function with these outputs.
    fn function(&self, outputs: Vec<(String, PyRef<'_, Tensor>)>) -> PyResult<Function> {
        let mut builder = Program::builder(&self.graph);
        for (name, tensor) in outputs {
            builder = builder.output(name, tensor.0);
        }
        builder.function().map(Function::of).map_err(of_graph)
    }

    fn __len__(&self) -> usize {
        self.graph.len()
    }
}

//! The symbolic tensor: a `Copy` handle with the primitives as methods. Operators are in `operators.rs`.

mod block_ops;
pub(crate) mod operators;

use crate::ir::conv_role::ConvRole;
use crate::ir::graph::{GraphNode, NodeId, make, make_constant, not_in_type, refuse, with_graph};
use crate::ir::infer::Meta;
use crate::ir::op::{BinaryOp, ConvDims, DotDims, Op, RandomKind, ReduceOp, UnaryOp, WindowDims};
use crate::shape::{broadcast_shapes, element_count, no_common_shape};
use crate::{DType, Error, ErrorKind, Precision, Result};
use std::fmt;
use std::marker::PhantomData;

/// Numbers from here on are errors, not nodes.
const FIRST_ERROR: u32 = 1 << 31;
const FOREIGN: u32 = u32::MAX;

/// A symbolic tensor: a node of a [`Graph`](crate::Graph).
///
/// Shapes and types are checked when it is made. Operators cannot return a `Result`, so a tensor that could not be made
/// carries its error, as does everything computed from it. [`check`](Tensor::check), [`gradient`](crate::gradient) and
/// [`ProgramBuilder::build`](crate::ProgramBuilder::build) return it. Nothing panics.
///
/// ```
/// use bilevel_graph::{DType, Graph};
/// let g = Graph::new();
/// let w = g.input("w", [4, 3], DType::F32);
/// let x = g.input("x", [8, 4], DType::F32);
/// let y = x.matmul(w).tanh() * 2.0 + 1.0;
/// assert_eq!(y.check().unwrap().shape(), [8, 3]);
/// assert!((w + x).check().is_err());
/// ```
///
/// Tensors have no `==` and no `<`: those would compare handles, not numbers. [`equal`](Tensor::equal) and
/// [`less`](Tensor::less) compare numbers, [`is_same_node`](Tensor::is_same_node) compares handles.
///
/// ```compile_fail,E0369
/// let g = bilevel_graph::Graph::new();
/// let (a, b) = (g.scalar(1.0, bilevel_graph::DType::F64), g.scalar(2.0, bilevel_graph::DType::F64));
/// let smaller = if a < b { a } else { b }; // a.less(b).select(a, b)
/// ```
///
/// ```compile_fail,E0369
/// let g = bilevel_graph::Graph::new();
/// let (a, b) = (g.scalar(1.0, bilevel_graph::DType::F64), g.scalar(2.0, bilevel_graph::DType::F64));
/// let same = a == b; // a.equal(b)
/// ```
#[derive(Clone, Copy)]
pub struct Tensor {
    graph: u32,
    node: u32,
    not_send: PhantomData<*const ()>,
}

impl Tensor {
    pub(crate) fn new(graph: u32, node: NodeId) -> Self {
        Tensor { graph, node, not_send: PhantomData }
    }

    pub(crate) fn broken(graph: u32, error: u32) -> Self {
        Self::new(graph, FIRST_ERROR + error)
    }

    pub(crate) fn foreign(graph: u32) -> Self {
        Self::new(graph, FOREIGN)
    }

    pub(crate) fn graph_id(self) -> u32 {
        self.graph
    }

    pub(crate) fn node_id(self) -> NodeId {
        self.node
    }

    pub(crate) fn error_index(self) -> Option<u32> {
        (self.node >= FIRST_ERROR).then(|| self.node - FIRST_ERROR)
    }

    pub(crate) fn node(self) -> Option<GraphNode> {
        with_graph(self.graph, |data| data.nodes.get(self.node as usize).cloned()).flatten()
    }

    /// Returns true if both are one node of one graph. Equal expressions of equal operands are one node; whether two
    /// different nodes hold equal numbers is not known before a run. For numbers see [`equal`](Tensor::equal) and
    /// [`less`](Tensor::less).
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph};
    /// let g = Graph::new();
    /// let (x, y) = (g.input("x", [3], DType::F64), g.input("y", [3], DType::F64));
    /// assert!((x + y).is_same_node(x + y));
    /// assert!(!x.is_same_node(y));
    /// ```
    pub fn is_same_node(self, other: Tensor) -> bool {
        (self.graph, self.node) == (other.graph, other.node)
    }

    /// The tensor itself, or the error that kept it from being made.
    pub fn check(self) -> Result<Self> {
        let foreign = || Error::new(ErrorKind::ForeignTensor { operation: "check".into() });
        match self.error_index() {
            _ if self.node == FOREIGN => Err(foreign()),
            Some(index) => {
                Err(with_graph(self.graph, |data| data.errors[index as usize].clone()).unwrap_or_else(foreign))
            }
            None => with_graph(self.graph, |_| self).ok_or_else(foreign),
        }
    }

    fn meta(self) -> Meta {
        with_graph(self.graph, |data| data.nodes.get(self.node as usize).map(|node| node.meta.clone()))
            .flatten()
            .unwrap_or(Meta { dtype: DType::F32, shape: vec![] })
    }

    /// The shape; empty for a tensor that carries an error.
    pub fn shape(self) -> Vec<usize> {
        self.meta().shape
    }

    /// Number of axes.
    pub fn rank(self) -> usize {
        self.meta().shape.len()
    }

    /// Length of one axis; 1 if there is no such axis, so that arithmetic on it is safe.
    pub fn dim(self, axis: usize) -> usize {
        self.meta().shape.get(axis).copied().unwrap_or(1)
    }

    /// Number of elements.
    pub fn len(self) -> usize {
        element_count(&self.meta().shape)
    }

    /// Returns true when it has no elements.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The element type.
    pub fn dtype(self) -> DType {
        self.meta().dtype
    }

    /// The value of a constant tensor, such as a derivative that was simplified away.
    pub fn constant_value(self) -> Option<f64> {
        with_graph(self.graph, |data| match data.nodes.get(self.node as usize)?.op {
            Op::Constant(bits) => Some(f64::from_bits(bits)),
            _ => None,
        })
        .flatten()
    }

    /// A constant of this tensor's type, on its graph.
    #[track_caller]
    pub fn constant_like(self, value: f64, shape: impl AsRef<[usize]>) -> Tensor {
        match self.error_index() {
            Some(_) => self,
            None => make_constant(self.graph, value, Meta { dtype: self.dtype(), shape: shape.as_ref().to_vec() }),
        }
    }

    /// Zeros of this tensor's shape and type.
    #[track_caller]
    pub fn zeros_like(self) -> Tensor {
        self.constant_like(0.0, self.shape())
    }

    /// Ones of this tensor's shape and type.
    #[track_caller]
    pub fn ones_like(self) -> Tensor {
        self.constant_like(1.0, self.shape())
    }

    /// The index along `axis`, in this tensor's shape and type.
    #[track_caller]
    pub fn iota_like(self, axis: usize) -> Tensor {
        match self.error_index() {
            Some(_) => self,
            None => make(self.graph, "iota", Op::Iota(axis), &[], Some(self.meta())),
        }
    }

    #[track_caller]
    fn apply(self, operation: &str, op: Op) -> Tensor {
        make(self.graph, operation, op, &[self], None)
    }

    #[track_caller]
    fn apply_to_shape(self, operation: &str, op: Op, shape: Vec<usize>) -> Tensor {
        make(self.graph, operation, op, &[self], Some(Meta { dtype: self.dtype(), shape }))
    }

    /// An elementwise function of two tensors, each stretched to their
    /// [common shape](crate::shape::broadcast_shapes).
    #[track_caller]
    pub fn binary(self, op: BinaryOp, other: Tensor) -> Tensor {
        let name = op.name();
        let (a, b) = (self.shape(), other.shape());
        if a == b {
            return make(self.graph, name, Op::Binary(op), &[self, other], None);
        }
        match broadcast_shapes(&a, &b) {
            Some(shape) => {
                let (a, b) = (self.broadcast_to(&shape), other.broadcast_to(&shape));
                make(self.graph, name, Op::Binary(op), &[a, b], None)
            }
            None => refuse(name, &[self, other], no_common_shape(&a, &b)),
        }
    }

    /// A number as an operand, in the shape and type of this tensor.
    #[track_caller]
    pub(crate) fn number(self, operation: &str, value: f64) -> Tensor {
        match not_in_type(value, self.dtype()) {
            Some(reason) => refuse(operation, &[self], reason),
            None => self.constant_like(value, self.shape()),
        }
    }

    /// Elementwise function of one tensor.
    #[track_caller]
    pub fn unary(self, op: UnaryOp) -> Tensor {
        self.apply(op.name(), Op::Unary(op))
    }
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Tensor {
            $($(#[$doc])* #[track_caller] pub fn $name(self) -> Tensor { self.unary(UnaryOp::$op) })*
        }
    };
}

unary_methods! {
    /// |x|. Its derivative at 0 is 0.
    abs => Abs;
    /// −1 below 0, 1 above 0; ±0 and NaN are themselves. Its derivative is structurally zero.
    sign => Sign;
    /// Largest whole number not above x. Its derivative is structurally zero.
    floor => Floor;
    /// 1/x.
    recip => Recip;
    /// √x. For one that can be differentiated at 0, see [`nn::safe_sqrt`](crate::nn::safe_sqrt).
    sqrt => Sqrt;
    /// eˣ.
    exp => Exp;
    /// eˣ − 1, accurate near 0.
    expm1 => Expm1;
    /// ln x.
    log => Log;
    /// ln(1 + x), accurate near 0.
    log1p => Log1p;
    /// sin x.
    sin => Sin;
    /// cos x.
    cos => Cos;
    /// The angle between −π/2 and π/2 whose tangent is x. See [`nn::atan2`](crate::nn::atan2) for one in all four quadrants.
    atan => Atan;
    /// tanh x.
    tanh => Tanh;
    /// 1/(1 + e⁻ˣ).
    sigmoid => Sigmoid;
    /// The error function.
    erf => Erf;
    /// 1 − erf x, accurate for large x.
    erfc => Erfc;
    /// ln |Γ(x)|; ∞ at 0 and at negative whole numbers.
    ln_gamma => LnGamma;
    /// ψ(x) = d ln Γ(x)/dx; NaN at negative whole numbers.
    digamma => Digamma;
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Tensor {
            $($(#[$doc])* #[track_caller] pub fn $name(self, other: impl Into<Operand>) -> Tensor {
                self.binary(BinaryOp::$op, self.operand(stringify!($name), other.into()))
            })*
        }
    };
}

/// A tensor or a number, as the second operand of a method.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// A tensor, stretched to the common shape.
    Tensor(Tensor),
    /// A number, taken in the other operand's type.
    Number(f64),
}

impl From<Tensor> for Operand {
    fn from(tensor: Tensor) -> Self {
        Operand::Tensor(tensor)
    }
}

impl From<f64> for Operand {
    fn from(value: f64) -> Self {
        Operand::Number(value)
    }
}

binary_methods! {
    /// The larger. If both are equal, the derivative goes to `self`.
    maximum => Max;
    /// The smaller. If both are equal, the derivative goes to `self`.
    minimum => Min;
    /// `self` to the power `other`.
    pow => Pow;
    /// 1 where equal, else 0.
    equal => Eq;
    /// 1 where different, else 0.
    not_equal => Ne;
    /// 1 where less, else 0.
    less => Lt;
    /// 1 where less or equal, else 0.
    less_equal => Le;
}

impl Tensor {
    /// 1 where greater, else 0.
    #[track_caller]
    pub fn greater(self, other: impl Into<Operand>) -> Tensor {
        let other = self.operand("greater", other.into());
        other.binary(BinaryOp::Lt, self)
    }

    /// 1 where greater or equal, else 0.
    #[track_caller]
    pub fn greater_equal(self, other: impl Into<Operand>) -> Tensor {
        let other = self.operand("greater_equal", other.into());
        other.binary(BinaryOp::Le, self)
    }

    #[track_caller]
    fn operand(self, operation: &str, other: Operand) -> Tensor {
        match other {
            Operand::Tensor(tensor) => tensor,
            Operand::Number(value) => self.number(operation, value),
        }
    }

    /// ψ⁽ⁿ⁾(x), the derivative of order n of [`digamma`](Tensor::digamma), for n up to 170.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph, Reference};
    /// let g = Graph::new();
    /// let trigamma = g.scalar(1.0, DType::F64).polygamma(1);
    /// let found = Reference::evaluate(&g, &[], &[trigamma])?[0].item().unwrap();
    /// assert!((found - std::f64::consts::PI.powi(2) / 6.0).abs() < 1e-15);
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    #[track_caller]
    pub fn polygamma(self, order: u32) -> Tensor {
        self.number("polygamma", order.into()).binary(BinaryOp::Polygamma, self)
    }

    /// x².
    #[track_caller]
    pub fn square(self) -> Tensor {
        self * self
    }

    /// Between `low` and `high`. The derivative is 1 on the closed interval, 0 outside.
    #[track_caller]
    pub fn clamp(self, low: f64, high: f64) -> Tensor {
        self.maximum(low).minimum(high)
    }

    /// `then` where this mask is not 0, else `otherwise`. All three are stretched to one shape; the mask is taken in
    /// the values' type.
    #[track_caller]
    pub fn select(self, then: impl Into<Operand>, otherwise: impl Into<Operand>) -> Tensor {
        let (then, otherwise) = match (then.into(), otherwise.into()) {
            (Operand::Tensor(a), b) => (a, a.operand("select", b)),
            (a, Operand::Tensor(b)) => (b.operand("select", a), b),
            (a, b) => (self.operand("select", a), self.operand("select", b)),
        };
        let common = |a: &[usize], b: &[usize]| broadcast_shapes(a, b).ok_or_else(|| no_common_shape(a, b));
        match common(&then.shape(), &otherwise.shape()).and_then(|values| common(&values, &self.shape())) {
            Ok(shape) => {
                let mask = self.convert(then.dtype()).broadcast_to(&shape);
                let operands = [mask, then.broadcast_to(&shape), otherwise.broadcast_to(&shape)];
                make(self.graph, "select", Op::Select, &operands, None)
            }
            Err(reason) => refuse("select", &[self, then, otherwise], reason),
        }
    }

    /// The same numbers in another type.
    #[track_caller]
    pub fn convert(self, dtype: DType) -> Tensor {
        if self.dtype() == dtype { self } else { self.apply("convert", Op::Convert(dtype)) }
    }

    /// The same values without a derivative: the result counts as a constant.
    #[track_caller]
    pub fn stop_gradient(self) -> Tensor {
        self.apply("stop_gradient", Op::StopGradient)
    }

    /// The same tensor, with a hint: ranks that compute a program together split it, and values computed from it,
    /// along this axis. It changes no result and no derivative, and has no effect on a single rank. An axis shorter
    /// than the number of ranks is not shared out.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph, Program};
    /// let g = Graph::new();
    /// let x = g.input("x", [8, 3], DType::F64).over_ranks(0);
    /// let program = Program::builder(&g).output("mean", x.mean_all()).build()?;
    /// assert_eq!((program.shards[0].node, program.shards[0].axis), (0, 0));
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    #[track_caller]
    pub fn over_ranks(self, axis: usize) -> Tensor {
        if self.error_index().is_none() && axis >= self.rank() {
            return refuse("over_ranks", &[self], format!("there is no axis {axis}"));
        }
        if self.error_index().is_none() {
            with_graph(self.graph_id(), |data| data.shards.insert(self.node_id(), axis));
        }
        self
    }

    /// The identity on integers, which makes a run fail with a clear error if an element is not in `0..limit`.
    #[track_caller]
    pub fn check_index(self, limit: usize) -> Tensor {
        self.apply("check_index", Op::CheckIndex(limit))
    }

    /// The same elements in row-major order under another shape.
    #[track_caller]
    pub fn reshape(self, shape: impl AsRef<[usize]>) -> Tensor {
        self.apply_to_shape("reshape", Op::Reshape, shape.as_ref().to_vec())
    }

    /// Output axis i is this tensor's axis `perm[i]`.
    #[track_caller]
    pub fn transpose(self, perm: impl AsRef<[usize]>) -> Tensor {
        self.apply("transpose", Op::Transpose(perm.as_ref().to_vec()))
    }

    /// The last two axes swapped.
    #[track_caller]
    pub fn t(self) -> Tensor {
        let rank = self.rank();
        if rank < 2 {
            return refuse("t", &[self], "needs at least two axes".into());
        }
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank - 2, rank - 1);
        self.transpose(perm)
    }

    /// Axis i becomes axis `axes[i]` of `shape`; the other axes repeat.
    #[track_caller]
    pub fn broadcast(self, axes: impl AsRef<[usize]>, shape: impl AsRef<[usize]>) -> Tensor {
        self.apply_to_shape("broadcast", Op::Broadcast(axes.as_ref().to_vec()), shape.as_ref().to_vec())
    }

    /// Stretched to `shape`: aligned at the last axis, axes of 1 repeat.
    #[track_caller]
    pub fn broadcast_to(self, shape: impl AsRef<[usize]>) -> Tensor {
        let (from, to) = (self.shape(), shape.as_ref());
        if from == to || self.error_index().is_some() {
            return self;
        }
        let Some(lead) = to.len().checked_sub(from.len()) else {
            return refuse("broadcast_to", &[self], format!("cannot be stretched to {to:?}"));
        };
        let kept: Vec<usize> = (0..from.len()).filter(|&i| from[i] != 1 || to[lead + i] == 1).collect();
        if kept.iter().any(|&i| from[i] != to[lead + i]) {
            return refuse("broadcast_to", &[self], format!("cannot be stretched to {to:?}"));
        }
        let squeezed = self.reshape(kept.iter().map(|&i| from[i]).collect::<Vec<_>>());
        squeezed.broadcast(kept.iter().map(|i| lead + i).collect::<Vec<_>>(), to)
    }

    /// Elements `start..stop` along one axis.
    #[track_caller]
    pub fn slice(self, axis: usize, start: usize, stop: usize) -> Tensor {
        self.slice_step(axis, start, stop, 1)
    }

    /// Elements start, start + step, … below stop along one axis.
    #[track_caller]
    pub fn slice_step(self, axis: usize, start: usize, stop: usize, step: usize) -> Tensor {
        let shape = self.shape();
        if axis >= shape.len() {
            return refuse("slice", &[self], format!("there is no axis {axis}"));
        }
        let (mut starts, mut stops, mut steps) = (vec![0; shape.len()], shape.clone(), vec![1; shape.len()]);
        (starts[axis], stops[axis], steps[axis]) = (start, stop, step);
        self.slice_all(starts, stops, steps)
    }

    /// Elements start, start + step, … below stop, by axis.
    #[track_caller]
    pub fn slice_all(self, start: Vec<usize>, stop: Vec<usize>, step: Vec<usize>) -> Tensor {
        self.apply("slice", Op::Slice { start, stop, step })
    }

    /// One index along an axis, which disappears.
    #[track_caller]
    pub fn index(self, axis: usize, index: usize) -> Tensor {
        let mut shape = self.shape();
        let one = self.slice(axis, index, index.saturating_add(1));
        if one.error_index().is_some() {
            return one;
        }
        shape.remove(axis);
        one.reshape(shape)
    }

    /// Zeros before and after along one axis.
    #[track_caller]
    pub fn pad(self, axis: usize, low: usize, high: usize) -> Tensor {
        let rank = self.rank();
        if axis >= rank {
            return refuse("pad", &[self], format!("there is no axis {axis}"));
        }
        let place = |n: usize| (0..rank).map(|i| if i == axis { n } else { 0 }).collect();
        self.pad_all(place(low), place(high), vec![0; rank])
    }

    /// Zeros before, after and between elements, by axis.
    #[track_caller]
    pub fn pad_all(self, low: Vec<usize>, high: Vec<usize>, interior: Vec<usize>) -> Tensor {
        self.apply("pad", Op::Pad { low, high, interior })
    }

    /// This and the others one after another along an axis.
    #[track_caller]
    pub fn concat(self, others: &[Tensor], axis: usize) -> Tensor {
        let all: Vec<Tensor> = std::iter::once(self).chain(others.iter().copied()).collect();
        make(self.graph, "concat", Op::Concat(axis), &all, None)
    }

    /// Elements in opposite order along these axes (increasing).
    #[track_caller]
    pub fn reverse(self, axes: impl AsRef<[usize]>) -> Tensor {
        self.apply("reverse", Op::Reverse(axes.as_ref().to_vec()))
    }

    #[track_caller]
    fn reduce(self, name: &str, op: ReduceOp, axes: &[usize]) -> Tensor {
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        self.apply(name, Op::Reduce(op, axes))
    }

    /// Sum over these axes, which disappear.
    #[track_caller]
    pub fn sum(self, axes: impl AsRef<[usize]>) -> Tensor {
        self.reduce("sum", ReduceOp::Sum, axes.as_ref())
    }

    /// Sum of all elements.
    #[track_caller]
    pub fn sum_all(self) -> Tensor {
        self.sum((0..self.rank()).collect::<Vec<_>>())
    }

    /// Mean over these axes, which disappear. The mean of integers is a float of the
    /// [graph's float type](crate::Graph::set_float_type).
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph, Reference};
    /// let g = Graph::new();
    /// let even = g.iota([3, 2], 1, DType::I32).equal(0.0);
    /// assert_eq!(Reference::evaluate(&g, &[], &[even.mean([1])]).unwrap()[0].to_f64(), [0.5, 0.5, 0.5]);
    /// ```
    #[track_caller]
    pub fn mean(self, axes: impl AsRef<[usize]>) -> Tensor {
        let count = element_count(&axes.as_ref().iter().map(|&a| self.dim(a)).collect::<Vec<_>>());
        if count == 0 && self.error_index().is_none() {
            return refuse("mean", &[self], "the mean of no elements is undefined".into());
        }
        if !self.dtype().is_float() {
            // Converted before the sum, which would wrap; divided, so that the mean of n ones is 1 for every n.
            return self.convert(self.graph_float_type()).sum(axes) / count as f64;
        }
        self.sum(axes) * (1.0 / count as f64)
    }

    /// The type of floats that are computed from integers alone.
    fn graph_float_type(self) -> DType {
        with_graph(self.graph, |data| data.float_type).flatten().unwrap_or(DType::F32)
    }

    /// Mean of all elements; see [`mean`](Tensor::mean).
    #[track_caller]
    pub fn mean_all(self) -> Tensor {
        self.mean((0..self.rank()).collect::<Vec<_>>())
    }

    /// Largest over these axes, which disappear. If several are equal, the derivative goes to the first.
    #[track_caller]
    pub fn max(self, axes: impl AsRef<[usize]>) -> Tensor {
        self.reduce("max", ReduceOp::Max, axes.as_ref())
    }

    /// Smallest over these axes, which disappear.
    #[track_caller]
    pub fn min(self, axes: impl AsRef<[usize]>) -> Tensor {
        -(-self).max(axes)
    }

    /// A reduced tensor with the reduced axes (increasing) back as axes of 1, ready to broadcast against the original.
    #[track_caller]
    pub fn unsqueeze(self, axes: impl AsRef<[usize]>) -> Tensor {
        let mut shape = self.shape();
        for &axis in axes.as_ref() {
            if axis > shape.len() {
                return refuse("unsqueeze", &[self], format!("there is no place {axis} for a new axis"));
            }
            shape.insert(axis, 1);
        }
        self.reshape(shape)
    }

    /// Index (i32) of the first largest element along an axis, which disappears. It has no derivative.
    #[track_caller]
    pub fn argmax(self, axis: usize) -> Tensor {
        self.apply("argmax", Op::ArgMax(axis))
    }

    /// Running sum along an axis.
    #[track_caller]
    pub fn cumsum(self, axis: usize) -> Tensor {
        self.cumsum_from(axis, false)
    }

    /// Running sum along an axis, from its end if `reverse`.
    #[track_caller]
    pub fn cumsum_from(self, axis: usize, reverse: bool) -> Tensor {
        self.apply("cumsum", Op::CumSum { axis, reverse })
    }

    /// Product over matched axes; see [`DotDims`].
    #[track_caller]
    pub fn dot(self, other: Tensor, dims: DotDims) -> Tensor {
        make(self.graph, "dot", Op::Dot(dims, Precision::Full), &[self, other], None)
    }

    /// Matrix product over the last axis of `self` and the second last of `other`. Leading axes are batches: they must
    /// be equal, or `other` may have none.
    #[track_caller]
    pub fn matmul(self, other: Tensor) -> Tensor {
        let (a, b) = (self.shape(), other.shape());
        let fits = a.len() >= 2 && b.len() >= 2 && a[a.len() - 1] == b[b.len() - 2];
        let batch = b.len().saturating_sub(2);
        if !fits || (batch > 0 && (a.len() != b.len() || a[..batch] != b[..batch])) {
            let reason = "the left's last axis must equal the right's second last, and batch axes must agree";
            return refuse("matmul", &[self, other], reason.into());
        }
        let dims = DotDims {
            lhs_contract: vec![a.len() - 1],
            rhs_contract: vec![b.len() - 2],
            lhs_batch: (0..batch).collect(),
            rhs_batch: (0..batch).collect(),
        };
        make(self.graph, "matmul", Op::Dot(dims, Precision::Full), &[self, other], None)
    }

    /// 2-D convolution of this image `[n, c, h, w]` with a kernel; see [`ConvDims`] and [`nn::conv2d`](crate::nn::conv2d).
    #[track_caller]
    pub fn conv(self, kernel: Tensor, dims: ConvDims) -> Tensor {
        let role = ConvRole::written(&dims);
        self.conv_in_role(kernel, dims, role)
    }

    /// A convolution in this role.
    #[track_caller]
    pub(crate) fn conv_in_role(self, kernel: Tensor, dims: ConvDims, role: ConvRole) -> Tensor {
        make(self.graph, "conv", Op::Conv(dims, role, Precision::Full), &[self, kernel], None)
    }

    /// Rows `[b.., n, inner..]` at `indices` `[b.., k..]`: `[b.., k.., inner..]`.
    #[track_caller]
    pub fn gather(self, indices: Tensor, batch: usize) -> Tensor {
        make(self.graph, "gather", Op::Gather { batch }, &[self, indices], None)
    }

    /// Rows of this tensor (its first axis) at these indices: a minibatch, an embedding.
    #[track_caller]
    pub fn take(self, indices: Tensor) -> Tensor {
        self.gather(indices, 0)
    }

    /// These updates added into zeros at `indices`; the adjoint of [`gather`](Tensor::gather).
    #[track_caller]
    pub fn scatter_add(self, indices: Tensor, batch: usize, size: usize) -> Tensor {
        make(self.graph, "scatter_add", Op::ScatterAdd { batch, size }, &[indices, self], None)
    }

    /// For every 2-D window over the last two axes, the flat index (i32) of its first largest element.
    #[track_caller]
    pub fn window_argmax(self, dims: WindowDims) -> Tensor {
        self.apply("window_argmax", Op::WindowArgMax(dims))
    }

    /// A random draw from this key (`i32[2]`) at this counter (an i32 scalar, such as [`Graph::step`](crate::Graph::step)).
    /// One key, counter, stream and shape is one draw.
    #[track_caller]
    pub fn random(
        self,
        counter: Tensor,
        kind: RandomKind,
        stream: u32,
        shape: impl AsRef<[usize]>,
        dtype: DType,
    ) -> Tensor {
        let meta = Meta { dtype, shape: shape.as_ref().to_vec() };
        make(self.graph, "random", Op::Random(kind, stream), &[self, counter], Some(meta))
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.check() {
            Ok(_) => write!(f, "%{} {}{:?}", self.node, self.dtype(), self.shape()),
            Err(error) => write!(f, "error: {error}"),
        }
    }
}

"""NumPy-like tensors for losses without a framework: a loss is called once on them, and what it does is traced.

`bilevel.problem` gives the losses an object with the data as attributes and two dictionaries of tensors, λ and the parameters.
"""

import operator

import numpy as np

from . import _build
from ._bilevel import Tensor as Native
from .errors import ProblemError, ShapeError, UnsupportedError


class Tensor:
    """A symbolic array with NumPy's operators and methods; comparisons are masks of 0 and 1.

    Losses of `bilevel.problem` are given tensors and return one. A tensor has a type and a shape but no values: use `bilevel.where` in place
    of `if`, and functions such as `bilevel.exp` in place of NumPy's.

    >>> seen = []
    >>> def inner(s, lam, params):
    ...     seen.append(params["w"][:2] @ s.x)
    ...     return ((params["w"] - lam["w"]) ** 2).sum()
    >>> made = bl.problem({"w": np.zeros(3)}, {"w": np.zeros(3)}, data={"x": np.ones((2, 5))}, inner=inner, outer=lambda s, lam, params: params["w"].max())
    >>> seen[0]
    <bilevel tensor f64[5]>
    """

    def __init__(self, native, builder):
        self._native, self._builder = native, builder

    # What it is.

    @property
    def shape(self):
        """The lengths of the axes, as a tuple."""
        return tuple(self._native.shape)

    @property
    def dtype(self):
        """The type of the elements: f32, f64 or i32."""
        return self._native.dtype

    @property
    def ndim(self):
        """The number of axes."""
        return len(self._native.shape)

    @property
    def size(self):
        """The number of elements."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def T(self):
        """The tensor with its axes in opposite order."""
        return self.transpose()

    def __len__(self):
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def __repr__(self):
        return f"<bilevel tensor {self.dtype}{list(self.shape)}>"

    def __bool__(self):
        raise UnsupportedError("the value of a tensor is not known while a loss is traced; use bilevel.where in place of if")

    def __float__(self):
        raise UnsupportedError("the value of a tensor is not known while a loss is traced; keep it a tensor")

    __int__ = __index__ = __float__

    def __array_ufunc__(self, ufunc, method, *operands, **options):
        function = _UFUNCS.get(ufunc.__name__)
        if function is None or method != "__call__" or options:
            raise UnsupportedError(f"NumPy's {ufunc.__name__} cannot be traced; write it with the functions of bilevel, such as bilevel.exp")
        like = _tensor(*operands)
        return function(*(x if isinstance(x, Tensor) else like._new(_native(like, x)) for x in operands))

    def __array__(self, *_, **__):
        raise UnsupportedError("NumPy cannot compute with a traced tensor; use the functions of bilevel, such as bilevel.exp")

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    # Arithmetic.

    def _other(self, value):
        if isinstance(value, Tensor):
            return value._native
        if isinstance(value, (bool, int, float, np.number)) or np.ndim(value) == 0:
            return float(value)
        array = np.asarray(value)
        return self._builder.array(array, self.dtype if self.dtype != "i32" and array.dtype.kind == "f" else None)

    def _new(self, native):
        return Tensor(native, self._builder)

    def _binary(self, op, other, swapped=False):
        own, other = self._native, self._other(other)
        if isinstance(other, float):
            own = own.convert("f64") if own.dtype == "i32" and not other.is_integer() else own
            return self._new(own.rbinary(op, other) if swapped else own.binary(op, other))
        a, b = _build.same(own, other)
        if op == "div" and a.dtype == "i32":
            a, b = a.convert("f64"), b.convert("f64")
        return self._new(b.binary(op, a) if swapped else a.binary(op, b))

    def __add__(self, other):
        return self._binary("add", other)

    def __sub__(self, other):
        return self._binary("sub", other)

    def __mul__(self, other):
        return self._binary("mul", other)

    def __truediv__(self, other):
        return self._binary("div", other)

    def __radd__(self, other):
        return self._binary("add", other, True)

    def __rsub__(self, other):
        return self._binary("sub", other, True)

    def __rmul__(self, other):
        return self._binary("mul", other, True)

    def __rtruediv__(self, other):
        return self._binary("div", other, True)

    def __neg__(self):
        return self._new(self._native.unary("neg"))

    def __abs__(self):
        return self._new(self._native.unary("abs"))

    def __pow__(self, power):
        if isinstance(power, (int, float)) and float(power).is_integer() and abs(power) <= 64:
            return self._new(_build.integer_power(self._native, int(power)))
        return self._binary("pow", power)

    def __rpow__(self, base):
        return self._binary("pow", base, True)

    def __lt__(self, other):
        return self._binary("lt", other)

    def __le__(self, other):
        return self._binary("le", other)

    def __gt__(self, other):
        return self._binary("lt", other, True)

    def __ge__(self, other):
        return self._binary("le", other, True)

    def __eq__(self, other):
        return self._binary("eq", other)

    def __ne__(self, other):
        return self._binary("ne", other)

    __hash__ = object.__hash__

    def __matmul__(self, other):
        return matmul(self, other)

    def __rmatmul__(self, other):
        return matmul(self._new(self._builder.array(other, self.dtype)), self)

    # Shapes.

    def reshape(self, *shape):
        """The same elements in another shape, of which one length may be −1."""
        shape = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else list(shape)
        if shape.count(-1) == 1:
            rest = int(np.prod([n for n in shape if n != -1], dtype=int))
            shape[shape.index(-1)] = self.size // max(rest, 1)
        return self._new(self._native.reshape(shape))

    def transpose(self, *axes):
        """The axes in this order; in opposite order if none is given."""
        axes = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        return self._new(self._native.transpose(list(axes) or list(reversed(range(self.ndim)))))

    def __getitem__(self, index):
        return _indexed(self, index if isinstance(index, tuple) else (index,))

    # Reductions.

    def _axes(self, axis):
        if axis is None:
            return list(range(self.ndim))
        axes = sorted({a % self.ndim for a in ([axis] if isinstance(axis, int) else axis)})
        return axes

    def _reduced(self, axis, keepdims, reduce):
        axes = self._axes(axis)
        y = self._new(reduce(self._native, axes))
        return y.reshape([1 if i in axes else n for i, n in enumerate(self.shape)]) if keepdims else y

    def sum(self, axis=None, keepdims=False):
        """The sum over an axis, several or all."""
        return self._reduced(axis, keepdims, lambda x, axes: x.sum(axes))

    def max(self, axis=None, keepdims=False):
        """The largest element along an axis, several or all; its derivative goes to the first if several are largest."""
        return self._reduced(axis, keepdims, lambda x, axes: x.max(axes))

    def min(self, axis=None, keepdims=False):
        """The smallest element along an axis, several or all."""
        return self._reduced(axis, keepdims, lambda x, axes: x.unary("neg").max(axes).unary("neg"))

    def mean(self, axis=None, keepdims=False):
        """The mean over an axis, several or all."""
        count = int(np.prod([self.shape[i] for i in self._axes(axis)], dtype=int))
        return self.sum(axis, keepdims) * (1.0 / count)

    def var(self, axis=None, keepdims=False):
        """The variance over an axis, several or all: the mean square of the deviations from the mean."""
        return ((self - self.mean(axis, True)) ** 2).mean(axis, keepdims)

    def argmax(self, axis):
        """The index of the largest element along an axis, as integers without a derivative."""
        return self._new(self._native.argmax(axis % self.ndim))

    def stop_gradient(self):
        """The same numbers, whose derivative is zero."""
        return self._new(self._native.stop_gradient())


def _indexed(x, index):
    """Basic indexing, and one array of whole numbers along the first axis."""
    if len(index) == 1 and (isinstance(index[0], Tensor) or (isinstance(index[0], np.ndarray) and index[0].ndim)):
        places = index[0]._native if isinstance(index[0], Tensor) else x._builder.array(index[0])
        return x._new(x._native.gather(places.convert("i32"), 0))
    if any(isinstance(i, (Tensor, np.ndarray, list)) for i in index):
        raise UnsupportedError("an array can index only the first axis; transpose first")
    if Ellipsis in index:
        at = index.index(Ellipsis)
        missing = x.ndim - (len(index) - 1 - sum(i is None for i in index))
        index = index[:at] + (slice(None),) * missing + index[at + 1 :]
    start, stop, step, shape, axis = [], [], [], [], 0
    for i in index:
        if i is None:
            shape.append(1)
            continue
        if axis >= x.ndim:
            raise ShapeError(f"{len(index)} indices are too many for the shape {list(x.shape)}")
        n = x.shape[axis]
        if isinstance(i, slice):
            low, high, by = i.indices(n)
            if by < 1:
                raise UnsupportedError("a slice that runs backwards; use bilevel.flip")
            high = max(low, high)
            shape.append(-(-(high - low) // by))
        else:
            i = int(i)
            if not -n <= i < n:
                raise ShapeError(f"the index {i} is outside the axis of length {n}")
            low, high, by = i % n, i % n + 1, 1
        start.append(low)
        stop.append(high)
        step.append(by)
        axis += 1
    rest = list(x.shape[axis:])
    native = x._native.slice(start + [0] * len(rest), stop + rest, step + [1] * len(rest))
    return x._new(native.reshape(shape + rest))


def _unary(name, meaning):
    def function(x):
        return x._new(x._native.unary(name)) if isinstance(x, Tensor) else getattr(np, meaning)(x)

    function.__name__ = function.__qualname__ = meaning
    function.__doc__ = f"{meaning} of every element."
    return function


exp, log, sqrt = _unary("exp", "exp"), _unary("log", "log"), _unary("sqrt", "sqrt")
sin, cos, tanh = _unary("sin", "sin"), _unary("cos", "cos"), _unary("tanh", "tanh")
arctan, log1p, expm1 = _unary("atan", "arctan"), _unary("log1p", "log1p"), _unary("expm1", "expm1")
floor, sign = _unary("floor", "floor"), _unary("sign", "sign")


def sigmoid(x):
    """1/(1 + e⁻ˣ), element by element."""
    return x._new(x._native.unary("sigmoid"))


def _tensor(*values):
    for value in values:
        if isinstance(value, Tensor):
            return value
    raise ProblemError("at least one operand must be a tensor of the problem")


def _native(like, value):
    if isinstance(value, Tensor):
        return value._native
    return like._builder.array(np.asarray(value, None if np.ndim(value) else np.float64), like.dtype if np.ndim(value) == 0 else None)


def where(condition, then, otherwise):
    """`then` for elements whose condition is not 0, else `otherwise`: the `if` of a loss.

    As in NumPy, both are computed, and so are their derivatives.
    """
    like = _tensor(then, otherwise, condition)
    return like._new(_build.select(_native(like, condition), _native(like, then), _native(like, otherwise)))


def maximum(a, b):
    """The larger of both, element by element; the first if they are equal."""
    like = _tensor(a, b)
    return like._new(_build.binary("max", _native(like, a), _native(like, b)))


def minimum(a, b):
    """The smaller of both, element by element; the first if they are equal."""
    like = _tensor(a, b)
    return like._new(_build.binary("min", _native(like, a), _native(like, b)))


def concatenate(tensors, axis=0):
    """Tensors one after the other along an axis."""
    like = _tensor(*tensors)
    natives = [_native(like, t) for t in tensors]
    return like._new(natives[0].concat(natives[1:], axis % len(natives[0].shape)))


def stack(tensors, axis=0):
    """Tensors side by side along a new axis."""
    expanded = [t.reshape([*t.shape[:axis], 1, *t.shape[axis:]]) for t in tensors]
    return concatenate(expanded, axis)


def flip(x, axis=0):
    """The elements along an axis in opposite order."""
    return x._new(x._native.reverse([axis % x.ndim]))


def matmul(a, b):
    """The matrix product, as `@`: of vectors, matrices, and batches of matrices with equal leading axes."""
    like = _tensor(a, b)
    a, b = _build.same(_native(like, a), _native(like, b))
    if len(a.shape) == 0 or len(b.shape) == 0:
        raise ShapeError("a matrix product needs at least one axis on either side")
    if len(a.shape) <= 2 and len(b.shape) <= 2:
        return like._new(a.dot(b, [len(a.shape) - 1], [max(len(b.shape) - 2, 0)], [], []))
    if len(b.shape) == 2:
        return like._new(a.dot(b, [len(a.shape) - 1], [0], [], []))
    if a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(f"the batches of {a.shape} and {b.shape} differ")
    batch = list(range(len(a.shape) - 2))
    return like._new(a.dot(b, [len(a.shape) - 1], [len(b.shape) - 2], batch, batch))


#: NumPy's functions that a tensor computes itself.
_UFUNCS = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv, "power": operator.pow,
    "negative": operator.neg, "absolute": operator.abs, "matmul": matmul, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne, "maximum": maximum,
    "minimum": minimum, "exp": exp, "log": log, "sqrt": sqrt, "sin": sin, "cos": cos, "tanh": tanh, "arctan": arctan, "log1p": log1p,
    "expm1": expm1, "floor": floor, "sign": sign,
}

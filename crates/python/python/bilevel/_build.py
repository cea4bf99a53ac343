"""Small composites on the tensors of a traced graph, shared by all front ends.

A tensor has a shape, one of three types (f32, f64, i32), and the engine's primitives as methods. Masks are 0 or 1 in any type.
"""

import math

import numpy as np

from ._bilevel import Tracer
from ._memory import aligned, host, shared
from .errors import UnsupportedError

#: The engine's type for an array's.
DTYPES = {
    "float32": "f32", "float64": "f64", "bfloat16": "f32", "float16": "f32",
    "bool": "i32", "int8": "i32", "uint8": "i32", "int16": "i32", "uint16": "i32", "int32": "i32", "uint32": "i32", "int64": "i32", "uint64": "i32",
}
NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32}


def engine_array(value, dtype=None, copy=True):
    """A contiguous read-only array of one of the engine's types, or an error if a number does not fit.

    Floats of such a type that are read-only stay where they are, and the engine reads them there; with `copy=False` others do, too. The rest
    is copied once.
    """
    array = host(value)
    name = str(array.dtype)
    if dtype is None:
        if name not in DTYPES:
            raise UnsupportedError(f"arrays of type {name} are not supported; use floats, integers or booleans")
        dtype = DTYPES[name]
    if dtype == "i32" and array.size and (array.max() > 2**31 - 1 or array.min() < -(2**31)):
        raise UnsupportedError(f"an integer of an array of type {name} does not fit into 32 bits")
    stays = array.dtype == NUMPY[dtype] and dtype != "i32" and array.flags.c_contiguous
    if stays and not (copy and array.flags.writeable):
        return shared(array)
    return aligned(array, NUMPY[dtype])


def is_uniform(array):
    """Whether all elements are the same number, or all are NaN."""
    return bool((array == array.flat[0]).all() or (array.dtype.kind == "f" and np.isnan(array).all()))


def counting(array):
    """Axis, start and step of integers that count along one axis and are the same along the others."""
    if array.dtype.kind != "i" or array.size < 2:
        return None
    # In 64 bits no difference overflows.
    wide = array.astype(np.int64)
    axes = [axis for axis in range(array.ndim) if array.shape[axis] > 1 and (np.diff(wide, axis=axis) != 0).any()]
    if len(axes) != 1:
        return None
    steps = np.diff(wide, axis=axes[0])
    uniform = steps.size > 0 and (steps == steps.flat[0]).all()
    return (axes[0], int(wide.flat[0]), int(steps.flat[0])) if uniform else None


class Builder:
    """A graph under construction, with its lifted constants."""

    def __init__(self, prefix="const"):
        self.graph = Tracer()
        self.prefix = prefix
        self.constants = {}
        self._lifted = {}

    def constant(self, value, shape, dtype):
        return self.graph.constant(float(value), [int(n) for n in shape], dtype)

    def like(self, x, value, shape=None):
        return self.constant(value, x.shape if shape is None else shape, x.dtype)

    def iota(self, shape, axis, dtype="i32"):
        return self.graph.iota([int(n) for n in shape], axis, dtype)

    def array(self, value, dtype=None):
        """A constant: in the graph if all elements are equal or count up along an axis, else an input of its own."""
        array = engine_array(value, dtype)
        dtype = {"float32": "f32", "float64": "f64", "int32": "i32"}[str(array.dtype)]
        if array.size == 0:
            return self.constant(0, array.shape, dtype)
        if is_uniform(array):
            return self.constant(array.flat[0], array.shape, dtype)
        if (counted := counting(array)) is not None:
            axis, start, step = counted
            return self.iota(array.shape, axis).binary("mul", float(step)).binary("add", float(start))
        known = (dtype, array.shape, array.tobytes())
        if known not in self._lifted:
            self._lifted[known] = self._lift(array, dtype)
        return self._lifted[known]

    def _lift(self, array, dtype):
        if dtype != "i32" and not np.isfinite(array).all():
            # Data must be finite, so infinities become constants of the graph.
            base = self.array(np.where(np.isfinite(array), array, 0).astype(array.dtype))
            for value in (math.inf, -math.inf, math.nan):
                found = np.isnan(array) if math.isnan(value) else array == value
                if found.any():
                    base = select(self.array(found), self.constant(value, array.shape, dtype), base)
            return base
        name = self.named(len(self.constants))
        self.constants[name] = array
        return self.graph.input(f"data/{name}", list(array.shape), dtype)

    def named(self, number):
        """The name of a lifted constant."""
        return f"{self.prefix}.{number}"


class RuleBuilder(Builder):
    """Of a derivative rule, whose constants are further operands."""

    def __init__(self, operands):
        super().__init__()
        self.operands = operands

    def _lift(self, array, dtype):
        if dtype != "i32" and not np.isfinite(array).all():
            return super()._lift(array, dtype)
        name = str(self.operands + len(self.constants))
        self.constants[name] = array
        return self.graph.input(name, list(array.shape), dtype)


def same(a, b):
    """Both in the wider of their types."""
    if a.dtype == b.dtype:
        return a, b
    wide = "f64" if "f64" in (a.dtype, b.dtype) else "f32"
    return a.convert(wide), b.convert(wide)


def binary(op, a, b):
    a, b = same(a, b)
    return a.binary(op, b)


def mask(x):
    """0 or 1 as integers."""
    return x.convert("i32")


def select(condition, then, otherwise):
    then, otherwise = same(then, otherwise)
    return condition.select(then, otherwise)


def move_last(x, axis):
    """The axis as the last one, and the permutation back."""
    perm = [i for i in range(len(x.shape)) if i != axis] + [axis]
    return x.transpose(perm), [perm.index(i) for i in range(len(perm))]


def take_slice(x, axis, start, stop, step=1):
    rank = len(x.shape)
    starts, stops, steps = [0] * rank, list(x.shape), [1] * rank
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return x.slice(starts, stops, steps)


def integer_power(x, n):
    """xⁿ by squaring, for any whole n."""
    out, base, left = None, x, abs(n)
    while left:
        if left & 1:
            out = base if out is None else out.binary("mul", base)
        left >>= 1
        if left:
            base = base.binary("mul", base)
    out = x.full_like(1.0) if out is None else out
    return out.unary("recip") if n < 0 else out


def padded(x, low, high, interior, value):
    """Padding with any number, and cropping where it is negative."""
    rank = len(x.shape)
    grow = [max(n, 0) for n in low], [max(n, 0) for n in high]
    if any(grow[0]) or any(grow[1]) or any(interior):
        if value == 0.0:
            x = x.pad(*grow, interior)
        else:
            inside = x.full_like(1.0).pad(*grow, interior)
            y = x.pad(*grow, interior)
            x = inside.select(y, y.full_like(value))
    if any(n < 0 for n in [*low, *high]):
        stop = [n - max(-h, 0) for n, h in zip(x.shape, high)]
        x = x.slice([max(-n, 0) for n in low], stop, [1] * rank)
    return x


def conv(x, kernel, stride, padding, image_dilation, kernel_dilation, groups):
    """A convolution over one, two or three axes of [n, c, …] with [o, c, …]."""
    n = len(x.shape) - 2
    if n == 1:
        x = x.reshape(x.shape[:2] + [1] + x.shape[2:])
        kernel = kernel.reshape(kernel.shape[:2] + [1] + kernel.shape[2:])
        y = x.conv(kernel, [1, *stride], [(0, 0), *padding], [1, *image_dilation], [1, *kernel_dilation], groups)
        return y.reshape(y.shape[:2] + y.shape[3:])
    if n == 2:
        return x.conv(kernel, list(stride), list(padding), list(image_dilation), list(kernel_dilation), groups)
    if n != 3:
        raise UnsupportedError(f"a convolution over {n} axes")
    if image_dilation[0] != 1:
        raise UnsupportedError("a three-dimensional convolution whose depth is spread")
    # A sum over the depth of the kernel of two-dimensional convolutions.
    low, high = padding[0]
    x = padded(x, [0, 0, low, 0, 0], [0, 0, high, 0, 0], [0] * 5, 0.0)
    rows, depth, total = x.shape[0], kernel.shape[2], None
    out = (x.shape[2] - (depth - 1) * kernel_dilation[0] - 1) // stride[0] + 1
    for i in range(depth):
        start = i * kernel_dilation[0]
        part = take_slice(x, 2, start, start + (out - 1) * stride[0] + 1, stride[0]).transpose([0, 2, 1, 3, 4])
        plane = take_slice(kernel, 2, i, i + 1)
        plane = plane.reshape(plane.shape[:2] + plane.shape[3:])
        y = part.reshape([rows * out] + part.shape[2:])
        y = y.conv(plane, stride[1:], padding[1:], image_dilation[1:], kernel_dilation[1:], groups)
        total = y if total is None else total.binary("add", y)
    return total.reshape([rows, out] + total.shape[1:]).transpose([0, 2, 1, 3, 4])


def max_pool(x, size, stride, padding):
    """The largest element of every window over the last two axes."""
    places, lead = x.window_argmax(size, stride, padding), x.shape[:-2]
    return x.reshape(lead + [x.shape[-2] * x.shape[-1]]).gather(places, len(lead)), places


def sum_pool(x, size, stride, padding):
    """The sum of every window over the last two axes."""
    rank = len(x.shape)
    x = padded(x, [0] * (rank - 2) + [p[0] for p in padding], [0] * (rank - 2) + [p[1] for p in padding], [0] * rank, 0.0)
    out = [(x.shape[rank - 2 + k] - size[k]) // stride[k] + 1 for k in range(2)]
    total = None
    for i in range(size[0]):
        for j in range(size[1]):
            y = take_slice(x, rank - 2, i, i + (out[0] - 1) * stride[0] + 1, stride[0])
            y = take_slice(y, rank - 1, j, j + (out[1] - 1) * stride[1] + 1, stride[1])
            total = y if total is None else total.binary("add", y)
    return total


def erf_inv(x):
    """The inverse of the error function, by Giles's polynomial and three Newton steps.

    Each Newton step doubles the order of the derivatives that are exact, so those up to the seventh are.
    """
    y = x.stop_gradient()
    one = y.full_like(1.0)
    w = one.binary("sub", y).binary("mul", one.binary("add", y)).unary("log").unary("neg")

    def polynomial(z, coefficients):
        r = z.full_like(coefficients[0])
        for c in coefficients[1:]:
            r = r.binary("mul", z).binary("add", c)
        return r

    near = polynomial(w.binary("sub", 2.5), [
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
        0.246640727, 1.50140941])
    far = polynomial(w.unary("sqrt").binary("sub", 3.0), [
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
        1.00167406, 2.83297682])
    y = w.binary("lt", 5.0).select(near, far).binary("mul", y)
    for _ in range(4):
        # By erfc on the side of the nearer tail, so that little is cancelled.
        sign = x.stop_gradient().binary("lt", 0.0).select(y.full_like(-1.0), y.full_like(1.0))
        tail = x.binary("mul", sign).rbinary("sub", 1.0)
        error = y.binary("mul", sign).unary("erfc").binary("sub", tail).binary("mul", sign)
        slope = y.binary("mul", y).unary("exp").binary("mul", math.sqrt(math.pi) / 2)
        y = y.binary("add", error.binary("mul", slope))
    return y


def round_even(x):
    """To the nearest whole number, halves to the even one."""
    up = x.binary("add", 0.5).unary("floor")
    tie = up.binary("sub", x).binary("eq", 0.5)
    half = up.binary("mul", 0.5)
    odd = half.unary("floor").binary("ne", half)
    return up.binary("sub", tie.binary("mul", odd))


def truncated(x):
    """Without what is behind the point."""
    return x.unary("sign").binary("mul", x.unary("abs").unary("floor"))


def strides(shape):
    out = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        out[i] = out[i + 1] * shape[i + 1]
    return out


def clipped(x, low, high):
    return x.binary("max", low).binary("min", high)

"""Rules of ATen operators, after PyTorch's own decomposition: one primitive of the engine, or a few.

A rule gets the lowering, the type of the result, and the operator's arguments; tensors among them are tensors of the graph.
"""

import math

import numpy as np
import torch

from .. import _build as build
from .._build import integer_power, mask, select, take_slice, truncated
from .._bilevel import Tensor
from ..errors import UnsupportedError

RULES = {}
DTYPES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f32", torch.bfloat16: "f32",
    torch.int64: "i32", torch.int32: "i32", torch.int16: "i32", torch.int8: "i32", torch.uint8: "i32", torch.bool: "i32",
}


def array_of(tensor, copy=True):
    """A tensor as an array of the engine's types."""
    tensor = tensor.detach().cpu()
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return build.engine_array(tensor.numpy(), copy=copy)


def rule(*names):
    def register(function):
        for name in names:
            RULES[name if name.count(".") == 2 else f"{name}.default"] = function
        return function

    return register


class Lowering:
    """A graph under construction."""

    def __init__(self, builder):
        self.builder, self.streams = builder, 0

    def tensor(self, value, like=None, dtype=None):
        """A tensor, or a known one or a number as one."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, torch.Tensor):
            return self.builder.array(array_of(value))
        return self.builder.constant(value, [], dtype or like.dtype)

    def pair(self, a, b, dtype=None):
        """Both of one type, which is the result's unless it is an integer's and they are floats."""
        floats = [x.dtype for x in (a, b) if isinstance(x, Tensor) and x.dtype != "i32"]
        common = "f64" if "f64" in floats else "f32" if floats else None
        numbers = [x for x in (a, b) if not isinstance(x, Tensor)]
        if common is None:
            fractional = any(isinstance(x, float) and not x.is_integer() for x in numbers)
            common = dtype if dtype in ("f32", "f64") else "f64" if fractional else "i32"
        a, b = (self.tensor(x, dtype=common).convert(common) for x in (a, b))
        # Shapes are aligned at their last axes.
        rank = max(len(a.shape), len(b.shape))
        return tuple(x if len(x.shape) in (0, rank) else x.reshape([1] * (rank - len(x.shape)) + x.shape) for x in (a, b))

    def binary(self, op, a, b, dtype=None):
        a, b = self.pair(a, b, dtype)
        y = a.binary(op, b)
        return y.convert(dtype) if dtype in ("f32", "f64") and y.dtype != dtype else y

    def draw(self, kind, shape, dtype):
        self.streams += 1
        return self.builder.graph.random(kind, self.streams, [int(n) for n in shape], dtype)


def axes_of(x, dims):
    rank = len(x.shape)
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(rank))
    return sorted(d % rank for d in ([dims] if isinstance(dims, int) else dims))


def kept(x, y, axes):
    """A reduction with its axes kept at length 1."""
    return y.reshape([1 if i in axes else n for i, n in enumerate(x.shape)])


def pairs(value):
    return [value, value] if isinstance(value, int) else (list(value) * 2)[:2]


# Elementwise.

for _name in (
    "neg abs sign floor sqrt exp expm1 log log1p sin cos tanh sigmoid erf erfc atan digamma reciprocal:recip lgamma:ln_gamma"
).split():
    _aten, _, _op = _name.partition(":")
    RULES[f"aten.{_aten}.default"] = lambda s, o, x, op=_op or _aten: (x if op in ("neg", "abs", "sign") else x.convert(o)).unary(op)

for _aten, _op in {"add": "add", "sub": "sub", "mul": "mul"}.items():

    def _arithmetic(s, o, a, b, alpha=1, op=_op):
        return s.binary(op, a, b if alpha == 1 else s.binary("mul", b, alpha, o), o)

    RULES[f"aten.{_aten}.Tensor"] = RULES[f"aten.{_aten}.Scalar"] = _arithmetic

for _aten, _op in {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le"}.items():
    RULES[f"aten.{_aten}.Tensor"] = RULES[f"aten.{_aten}.Scalar"] = lambda s, o, a, b, op=_op: s.binary(op, a, b).convert("i32")
for _aten, _op in {"gt": "lt", "ge": "le"}.items():
    RULES[f"aten.{_aten}.Tensor"] = RULES[f"aten.{_aten}.Scalar"] = lambda s, o, a, b, op=_op: s.binary(op, b, a).convert("i32")

rule("aten.rsqrt")(lambda s, o, x: x.unary("sqrt").unary("recip"))
rule("aten.relu")(lambda s, o, x: x.full_like(0.0).binary("max", x))
rule("aten.square")(lambda s, o, x: x.binary("mul", x))
rule("aten.ceil")(lambda s, o, x: x.unary("neg").unary("floor").unary("neg"))
rule("aten.trunc")(lambda s, o, x: truncated(x))
rule("aten.round")(lambda s, o, x: build.round_even(x))
rule("aten.asin")(lambda s, o, x: Tensor.composite("asin", [x]))
rule("aten.acos")(lambda s, o, x: Tensor.composite("acos", [x]))
rule("aten.atan2")(lambda s, o, y, x: Tensor.composite("atan2", [y, x]))
rule("aten.erfinv")(lambda s, o, x: build.erf_inv(x))
rule("aten.maximum")(lambda s, o, a, b: s.binary("max", a, b, o))
rule("aten.minimum")(lambda s, o, a, b: s.binary("min", a, b, o))
rule("aten.isinf")(lambda s, o, x: x.unary("abs").binary("eq", math.inf).convert("i32"))
rule("aten.isnan")(lambda s, o, x: x.binary("ne", x).convert("i32"))
rule("aten.bitwise_and.Tensor", "aten.logical_and")(lambda s, o, a, b: truth(a).binary("mul", truth(b)))
rule("aten.bitwise_or.Tensor", "aten.logical_or")(lambda s, o, a, b: truth(a).binary("max", truth(b)))
rule("aten.bitwise_xor.Tensor", "aten.logical_xor")(lambda s, o, a, b: truth(a).binary("ne", truth(b)))
rule("aten.logical_not", "aten.bitwise_not")(lambda s, o, a: truth(a).binary("eq", 0.0))
rule("aten.clone", "aten.alias", "aten.lift_fresh_copy", "aten.contiguous", "aten.detach_")(lambda s, o, x, **_: x)
rule("aten.detach")(lambda s, o, x: x.stop_gradient())
rule("aten._assert_tensor_metadata", "aten._assert_async.msg", "aten._assert_scalar")(lambda s, o, *a, **k: None)


def truth(x):
    return x.binary("ne", 0.0).convert("i32")


@rule("aten.div.Tensor", "aten.div.Scalar")
def _(s, o, a, b):
    a, b = s.pair(a, b, o)
    return a.convert(o).binary("div", b.convert(o))


@rule("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _(s, o, a, b, rounding_mode=None):
    a, b = (x.convert("f64" if x.dtype == "i32" else x.dtype) for x in s.pair(a, b))
    y = a.binary("div", b)
    return (y.unary("floor") if rounding_mode == "floor" else truncated(y) if rounding_mode == "trunc" else y).convert(o)


def _remainder(whole):
    """a − whole(a/b)·b: rounded down it has the sign of the divisor, and cut off that of the dividend."""

    def lowered(s, o, a, b):
        a, b = (x.convert("f64" if x.dtype == "i32" else x.dtype) for x in s.pair(a, b))
        return a.binary("sub", whole(a.binary("div", b)).binary("mul", b)).convert(o)

    return lowered


for _kind in ("Scalar", "Tensor"):
    RULES[f"aten.remainder.{_kind}"] = _remainder(lambda x: x.unary("floor"))
    RULES[f"aten.fmod.{_kind}"] = _remainder(truncated)


@rule("aten.pow.Tensor_Scalar")
def _(s, o, x, power):
    x = x.convert(o)
    if float(power).is_integer() and abs(power) <= 64:
        return integer_power(x, int(power))
    return x.unary("sqrt") if power == 0.5 else x.binary("pow", float(power))


@rule("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def _(s, o, a, b):
    a, b = s.pair(a, b, o)
    return a.convert(o).binary("pow", b.convert(o))


@rule("aten.clamp", "aten.clamp.Tensor", "aten.hardtanh")
def _(s, o, x, low=None, high=None):
    x = x if low is None else s.binary("max", x, low, o)
    return x if high is None else s.binary("min", x, high, o)


rule("aten.clamp_min")(lambda s, o, x, low: s.binary("max", x, low, o))


@rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf")
def _(s, o, condition, a, b):
    return select(condition, *s.pair(a, b, o))


rule("aten.masked_fill.Scalar")(lambda s, o, x, m, v: select(m, s.tensor(v, x), x))


@rule("aten._to_copy", "aten.to.dtype")
def _(s, o, x, *_, dtype=None, **__):
    return truth(x) if dtype == torch.bool else x.convert(o)


@rule("aten.gelu")
def _(s, o, x, approximate="none"):
    half = x.binary("mul", 0.5)
    if approximate == "tanh":
        cube = integer_power(x, 3).binary("mul", 0.044715).binary("add", x).binary("mul", math.sqrt(2 / math.pi))
        return half.binary("mul", cube.unary("tanh").binary("add", 1.0))
    return half.binary("mul", x.binary("mul", math.sqrt(0.5)).unary("erf").binary("add", 1.0))


rule("aten.silu")(lambda s, o, x: x.binary("mul", x.unary("sigmoid")))


@rule("aten.leaky_relu")
def _(s, o, x, slope=0.01):
    return select(x.rbinary("lt", 0.0), x, x.binary("mul", float(slope)))


@rule("aten.elu")
def _(s, o, x, alpha=1.0, scale=1.0, input_scale=1.0):
    low = x.binary("min", 0.0).binary("mul", float(input_scale)).unary("expm1").binary("mul", float(alpha))
    return select(x.rbinary("lt", 0.0), x, low).binary("mul", float(scale))


@rule("aten.softplus")
def _(s, o, x, beta=1.0, threshold=20.0):
    z = x.binary("mul", float(beta))
    soft = z.unary("abs").unary("neg").unary("exp").unary("log1p").binary("add", z.binary("max", 0.0)).binary("mul", 1.0 / beta)
    return select(z.rbinary("lt", float(threshold)), x, soft)


# Shapes.


@rule("aten.view", "aten.reshape", "aten._unsafe_view")
def _(s, o, x, shape):
    shape, n = list(shape), math.prod(x.shape)
    if -1 in shape:
        shape[shape.index(-1)] = n // max(1, -math.prod(shape))
    return x.reshape(shape)


rule("aten.permute")(lambda s, o, x, perm: x.transpose([i % len(perm) for i in perm]))
rule("aten.t")(lambda s, o, x: x.transpose([1, 0]))


@rule("aten.unsqueeze")
def _(s, o, x, d):
    d %= len(x.shape) + 1
    return x.reshape([*x.shape[:d], 1, *x.shape[d:]])


@rule("aten.squeeze.dims", "aten.squeeze.dim")
def _(s, o, x, dims):
    gone = axes_of(x, dims)
    return x.reshape([n for i, n in enumerate(x.shape) if i not in gone or n != 1])


@rule("aten.expand")
def _(s, o, x, shape):
    lead = len(shape) - len(x.shape)
    shape = [x.shape[i - lead] if n == -1 else int(n) for i, n in enumerate(shape)]
    keep = [i for i in range(len(x.shape)) if x.shape[i] == shape[lead + i]]
    return x.reshape([x.shape[i] for i in keep]).broadcast([lead + i for i in keep], shape)


@rule("aten.repeat")
def _(s, o, x, reps):
    x = x.reshape([1] * (len(reps) - len(x.shape)) + x.shape)
    shape = [n for pair in zip(reps, x.shape) for n in pair]
    y = x.broadcast([2 * i + 1 for i in range(len(x.shape))], [int(n) for n in shape])
    return y.reshape([int(r) * n for r, n in zip(reps, x.shape)])


@rule("aten.cat")
def _(s, o, tensors, d=0):
    tensors = [x.convert(o) for x in tensors if list(x.shape) != [0]]
    return tensors[0].concat(tensors[1:], d % len(tensors[0].shape)) if len(tensors) > 1 else tensors[0]


def clipped_range(n, low, high):
    low = 0 if low is None else min(max(low + n if low < 0 else low, 0), n)
    high = n if high is None else min(max(high + n if high < 0 else high, low), n)
    return low, high


@rule("aten.slice.Tensor")
def _(s, o, x, d=0, low=None, high=None, step=1):
    d %= len(x.shape)
    return take_slice(x, d, *clipped_range(x.shape[d], low, high), step)


@rule("aten.select.int")
def _(s, o, x, d, i):
    d %= len(x.shape)
    y = take_slice(x, d, i % x.shape[d], i % x.shape[d] + 1)
    return y.reshape([n for j, n in enumerate(x.shape) if j != d])


@rule("aten.split_with_sizes")
def _(s, o, x, sizes, d=0):
    out, at = [], 0
    for n in sizes:
        out.append(take_slice(x, d % len(x.shape), at, at + n))
        at += n
    return out


@rule("aten.unbind.int")
def _(s, o, x, d=0):
    return [RULES["aten.select.int"](s, o, x, d, i) for i in range(x.shape[d % len(x.shape)])]


@rule("aten.slice_scatter")
def _(s, o, x, update, d=0, low=None, high=None, step=1):
    d %= len(x.shape)
    low, high = clipped_range(x.shape[d], low, high)
    if step != 1:
        raise UnsupportedError("a slice that is assigned with a step")
    parts = [take_slice(x, d, 0, low), update.convert(x.dtype), take_slice(x, d, high, x.shape[d])]
    parts = [p for p in parts if 0 not in p.shape]
    return parts[0].concat(parts[1:], d) if len(parts) > 1 else parts[0]


@rule("aten.select_scatter")
def _(s, o, x, update, d, i):
    d %= len(x.shape)
    i %= x.shape[d]
    update = update.reshape([1 if j == d else n for j, n in enumerate(x.shape)])
    return RULES["aten.slice_scatter.default"](s, o, x, update, d, i, i + 1)


rule("aten.flip")(lambda s, o, x, dims: x.reverse(axes_of(x, dims)))


@rule("aten.constant_pad_nd")
def _(s, o, x, pad, value=0.0):
    rank = len(x.shape)
    low, high = [0] * rank, [0] * rank
    for k in range(len(pad) // 2):
        low[rank - 1 - k], high[rank - 1 - k] = pad[2 * k], pad[2 * k + 1]
    return build.padded(x, low, high, [0] * rank, float(value))


@rule("aten.as_strided")
def _(s, o, x, size, stride, offset=0):
    # The stride of an axis of length 1 says nothing.
    same = all(n == 1 or a == b for n, a, b in zip(size, stride, build.strides(list(size))))
    if math.prod(size) != math.prod(x.shape) or not same or offset:
        raise UnsupportedError("a view with strides of its own")
    return x.reshape(list(size))


# Reductions.


def _reduction(kind):
    def lowered(s, o, x, dims=None, keepdim=False, **_):
        axes = axes_of(x, dims)
        x = mask(truth(x)) if kind in ("any", "all") else x.convert(o)
        if kind in ("sum", "mean"):
            y = x.sum(axes) if x.dtype != "i32" else x.convert("f64").sum(axes).convert("i32")
        else:
            y = x.unary("neg").max(axes).unary("neg") if kind in ("min", "all") else x.max(axes)
        if kind == "mean":
            y = y.binary("mul", 1.0 / math.prod(x.shape[i] for i in axes))
        return kept(x, y, axes) if keepdim else y

    return lowered


for _names, _kind in {
    "sum.dim_IntList sum.default": "sum", "mean.dim mean.default": "mean", "amax.default max.default": "max",
    "amin.default min.default": "min", "any.dim any.dims any.default": "any", "all.dim all.dims all.default": "all",
}.items():
    for _name in _names.split():
        RULES[f"aten.{_name}"] = _reduction(_kind)


@rule("aten.max.dim")
def _(s, o, x, d, keepdim=False):
    d %= len(x.shape)
    places, y = x.argmax(d), x.max([d])
    return [kept(x, y, [d]), kept(x, places, [d])] if keepdim else [y, places]


@rule("aten.var.correction")
def _(s, o, x, dims=None, correction=1, keepdim=False):
    axes = axes_of(x, dims)
    n = math.prod(x.shape[i] for i in axes)
    centred = x.binary("sub", kept(x, x.sum(axes).binary("mul", 1.0 / n), axes))
    y = centred.binary("mul", centred).sum(axes).binary("mul", 1.0 / (n - (1 if correction is None else correction)))
    return kept(x, y, axes) if keepdim else y


@rule("aten.argmax")
def _(s, o, x, d=None, keepdim=False):
    x, axis = (x.reshape([math.prod(x.shape)]), 0) if d is None else (x, d % len(x.shape))
    y = x.argmax(axis)
    return kept(x, y, [axis]) if keepdim else y


@rule("aten.cumsum")
def _(s, o, x, d, **_):
    return (x.convert("f64") if x.dtype == "i32" else x).cumsum(d % len(x.shape), False).convert(o)


def ordered(x, places, d):
    """The elements along an axis at these places."""
    rows, back = build.move_last(x, d)
    return rows.gather(places, len(x.shape) - 1).transpose(back)


def order(x, d, descending):
    rows, back = build.move_last(x.unary("neg") if descending else x, d)
    return rows.stop_gradient().argsort(len(x.shape) - 1), back


@rule("aten.sort", "aten.sort.stable")
def _(s, o, x, *more, stable=None, dim=-1, descending=False):
    if more:
        dim, descending = (more[0], more[1] if len(more) > 1 else descending) if not isinstance(more[0], bool) else (dim, descending)
    d = dim % len(x.shape)
    places, back = order(x, d, descending)
    return [ordered(x, places, d), places.transpose(back)]


@rule("aten.topk")
def _(s, o, x, k, dim=-1, largest=True, sorted=True):
    d = dim % len(x.shape)
    places, back = order(x, d, largest)
    places = take_slice(places, len(x.shape) - 1, 0, k)
    return [ordered(x, places, d), places.transpose(back)]


# Products and networks.


def matrix_product(a, b):
    rank = len(a.shape)
    return a.dot(b, [rank - 1], [rank - 2], list(range(rank - 2)), list(range(rank - 2)))


rule("aten.mm", "aten.bmm")(lambda s, o, a, b: matrix_product(a, b))
rule("aten.mv")(lambda s, o, a, b: a.dot(b, [1], [0], [], []))
rule("aten.dot")(lambda s, o, a, b: a.dot(b, [0], [0], [], []))


@rule("aten.addmm", "aten.baddbmm")
def _(s, o, c, a, b, beta=1, alpha=1):
    y = matrix_product(a, b)
    y = y if alpha == 1 else y.binary("mul", float(alpha))
    return s.binary("add", y, c if beta == 1 else c.binary("mul", float(beta)), o)


@rule("aten._softmax")
def _(s, o, x, d, half=False):
    d %= len(x.shape)
    e = x.binary("sub", kept(x, x.max([d]).stop_gradient(), [d])).unary("exp")
    return e.binary("div", kept(x, e.sum([d]), [d]))


@rule("aten._safe_softmax")
def _(s, o, x, d, *_):
    y, low = RULES["aten._softmax.default"](s, o, x, d), x.binary("eq", -math.inf)
    d %= len(x.shape)
    empty = kept(x, low.unary("neg").max([d]).unary("neg"), [d])
    return select(empty, x.full_like(0.0), y)


@rule("aten._log_softmax")
def _(s, o, x, d, half=False):
    d %= len(x.shape)
    z = x.binary("sub", kept(x, x.max([d]).stop_gradient(), [d]))
    return z.binary("sub", kept(x, z.unary("exp").sum([d]).unary("log"), [d]))


def normalised(x, axes, eps):
    """The normalised tensor, mean, variance and the inverse root."""
    n = math.prod(x.shape[i] for i in axes)
    mean = x.sum(axes).binary("mul", 1.0 / n)
    centred = x.binary("sub", kept(x, mean, axes))
    variance = centred.binary("mul", centred).sum(axes).binary("mul", 1.0 / n)
    root = variance.binary("add", float(eps)).unary("sqrt").unary("recip")
    return centred.binary("mul", kept(x, root, axes)), mean, variance, root


def affine(s, o, y, weight, bias):
    y = y if weight is None else s.binary("mul", y, weight, o)
    return y if bias is None else s.binary("add", y, bias, o)


@rule("aten.native_layer_norm")
def _(s, o, x, shape, weight, bias, eps):
    axes = list(range(len(x.shape) - len(shape), len(x.shape)))
    y, mean, _, root = normalised(x, axes, eps)
    return [affine(s, o, y, weight, bias), kept(x, mean, axes), kept(x, root, axes)]


@rule("aten.native_group_norm")
def _(s, o, x, weight, bias, n, c, size, groups, eps):
    y, mean, _, root = normalised(x.reshape([n, groups, -(-c * size // groups)]), [2], eps)
    y = y.reshape(x.shape)
    weight, bias = (None if v is None else channels(x, v) for v in (weight, bias))
    return [affine(s, o, y, weight, bias), mean, root]


def channels(x, v):
    """A vector of channels, to be combined with x."""
    return v.reshape([1, v.shape[0]] + [1] * (len(x.shape) - 2))


@rule("aten._native_batch_norm_legit_functional", "aten._native_batch_norm_legit.no_stats")
def _(s, o, x, weight, bias, *more):
    axes = [i for i in range(len(x.shape)) if i != 1]
    running, momentum, eps = (more[:2], more[-2], more[-1]) if len(more) == 5 else (None, more[-2], more[-1])
    y, mean, variance, root = normalised(x, axes, eps)
    weight, bias = (None if v is None else channels(x, v) for v in (weight, bias))
    out = [affine(s, o, y, weight, bias), mean, root]
    if running is None:
        return out
    n = math.prod(x.shape[i] for i in axes)

    def moved(old, new):
        return old.binary("mul", 1.0 - momentum).binary("add", new.stop_gradient().binary("mul", float(momentum)))

    return [*out, moved(running[0], mean), moved(running[1], variance.binary("mul", n / (n - 1)))]


@rule("aten._native_batch_norm_legit_no_training")
def _(s, o, x, weight, bias, mean, variance, momentum, eps):
    root = variance.binary("add", float(eps)).unary("sqrt").unary("recip")
    y = x.binary("sub", channels(x, mean)).binary("mul", channels(x, root))
    weight, bias = (None if v is None else channels(x, v) for v in (weight, bias))
    return [affine(s, o, y, weight, bias), mean, variance]


@rule("aten.convolution")
def _(s, o, x, kernel, bias, stride, padding, dilation, transposed, output_padding, groups):
    n = len(x.shape) - 2
    stride, padding, dilation = ((list(v) * n)[:n] for v in (stride, padding, dilation))
    if transposed:
        if groups != 1:
            raise UnsupportedError("a transposed convolution in groups")
        output_padding = (list(output_padding) * n)[:n]
        flipped = kernel.transpose([1, 0, *range(2, n + 2)]).reverse(list(range(2, n + 2)))
        grown = [d * (k - 1) for d, k in zip(dilation, kernel.shape[2:])]
        around = [(g - p, g - p + extra) for g, p, extra in zip(grown, padding, output_padding)]
        y = build.conv(x, flipped, [1] * n, around, stride, dilation, 1)
    else:
        y = build.conv(x, kernel, stride, [(p, p) for p in padding], [1] * n, dilation, groups)
    return y if bias is None else s.binary("add", y, channels(y, bias), o)


@rule("aten.max_pool2d_with_indices")
def _(s, o, x, size, stride=None, padding=0, dilation=1, ceil_mode=False):
    if ceil_mode or pairs(dilation) != [1, 1]:
        raise UnsupportedError("max pooling that is dilated or rounds its size up")
    size = pairs(size)
    return build.max_pool(x, size, pairs(stride) if stride else size, [(p, p) for p in pairs(padding)])


@rule("aten.avg_pool2d")
def _(s, o, x, size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor=None):
    size, around = pairs(size), pairs(padding)
    if ceil_mode or (any(around) and not count_include_pad):
        raise UnsupportedError("mean pooling that rounds its size up, or does not count the padding")
    y = build.sum_pool(x, size, pairs(stride) if stride else size, [(p, p) for p in around])
    return y.binary("mul", 1.0 / (divisor or math.prod(size)))


@rule("aten._adaptive_avg_pool2d")
def _(s, o, x, size):
    *lead, h, w = x.shape
    if h % size[0] or w % size[1]:
        raise UnsupportedError("adaptive pooling to a size that does not divide the image's")
    y = x.reshape([*lead, size[0], h // size[0], size[1], w // size[1]])
    n = len(lead)
    return y.sum([n + 1, n + 3]).binary("mul", 1.0 / ((h // size[0]) * (w // size[1])))


# Indices.

@rule("aten.embedding")
def _(s, o, weight, indices, padding=-1, *_):
    rows = weight.gather(indices, 0)
    if padding < 0:
        return rows
    # The row of the padding is not trained.
    is_padding = indices.binary("eq", float(padding)).reshape([*indices.shape, 1])
    return select(spread(is_padding, rows.shape), rows.stop_gradient(), rows)


def spread(x, shape):
    """A tensor of the same rank, stretched along axes of length 1."""
    keep = [i for i, n in enumerate(shape) if x.shape[i] == n]
    return x.reshape([x.shape[i] for i in keep]).broadcast(keep, shape)


@rule("aten.index_select")
def _(s, o, x, d, indices):
    d %= len(x.shape)
    perm = [d] + [k for k in range(len(x.shape)) if k != d]
    return x.transpose(perm).gather(indices, 0).transpose([perm.index(k) for k in range(len(perm))])


@rule("aten.index.Tensor")
def _(s, o, x, indices):
    at = [i for i, v in enumerate(indices) if v is not None]
    if at != list(range(at[0], at[-1] + 1)):
        raise UnsupportedError("an index with a gap between its arrays")
    shape = list(np.broadcast_shapes(*(tuple(indices[i].shape) for i in at)))
    flat = None
    for i in at:
        j, n = indices[i].convert("i32"), x.shape[i]
        j = select(j.binary("lt", 0.0), j.binary("add", float(n)), j)
        j = j.binary("mul", float(math.prod(x.shape[k] for k in at if k > i)))
        j = j.binary("add", s.builder.constant(0, shape, "i32"))
        flat = j if flat is None else flat.binary("add", j)
    perm = at + [k for k in range(len(x.shape)) if k not in at]
    rows = x.transpose(perm).reshape([math.prod(x.shape[i] for i in at)] + [x.shape[k] for k in perm[len(at) :]])
    y, r = rows.gather(flat, 0), len(shape)
    return y.transpose([*range(r, r + at[0]), *range(r), *range(r + at[0], len(y.shape))])


def last_axis(x, d, indices):
    """Both with the axis last; x cut to the indices along the others."""
    perm = [k for k in range(len(x.shape)) if k != d] + [d]
    rows, places = x.transpose(perm), indices.convert("i32").transpose(perm)
    if rows.shape[:-1] != places.shape[:-1]:
        rows = rows.slice([0] * len(perm), [*places.shape[:-1], rows.shape[-1]], [1] * len(perm))
    return rows, places, [perm.index(k) for k in range(len(perm))]


@rule("aten.gather")
def _(s, o, x, d, indices, **_):
    rows, places, back = last_axis(x, d % len(x.shape), indices)
    return rows.gather(places, len(x.shape) - 1).transpose(back)


@rule("aten.scatter_add")
def _(s, o, x, d, indices, updates):
    d %= len(x.shape)
    if [n for i, n in enumerate(x.shape) if i != d] != [n for i, n in enumerate(indices.shape) if i != d]:
        raise UnsupportedError("a scatter into a part of a tensor")
    rows, places, back = last_axis(updates, d, indices)
    rank = len(x.shape)
    return x.binary("add", rows.scatter_add(places, rank - 1, x.shape[d]).transpose(back))


# New tensors.

rule("aten.full")(lambda s, o, shape, value, **_: s.builder.constant(value, shape, o))
rule("aten.scalar_tensor")(lambda s, o, value, **_: s.builder.constant(value, [], o))
rule("aten.full_like")(lambda s, o, x, value, **_: s.builder.constant(value, x.shape, o))
rule("aten.zeros_like")(lambda s, o, x, **_: s.builder.constant(0, x.shape, o))
rule("aten.ones_like")(lambda s, o, x, **_: s.builder.constant(1, x.shape, o))
rule("aten.zeros", "aten.empty.memory_format")(lambda s, o, shape, **_: s.builder.constant(0, shape, o))
rule("aten.ones")(lambda s, o, shape, **_: s.builder.constant(1, shape, o))
rule("aten.eye")(lambda s, o, n, **_: s.builder.iota([n, n], 0, o).binary("eq", s.builder.iota([n, n], 1, o)))


@rule("aten.arange.start_step")
def _(s, o, start, stop, step=1, **_):
    return s.builder.iota([max(0, math.ceil((stop - start) / step))], 0, o).binary("mul", float(step)).binary("add", float(start))


def _triangle(lower):
    def lowered(s, o, x, k=0):
        rank = len(x.shape)
        rows, columns = (s.builder.iota(x.shape, rank - 2), s.builder.iota(x.shape, rank - 1))
        moved = rows.binary("add", float(k))
        inside = columns.binary("le", moved) if lower else moved.binary("le", columns)
        return select(inside, x, x.full_like(0.0))

    return lowered


RULES["aten.tril.default"], RULES["aten.triu.default"] = _triangle(True), _triangle(False)


@rule("aten.native_dropout")
def _(s, o, x, rate, train):
    if not train or rate == 0:
        return [x, None]
    drawn = s.draw("uniform", x.shape, x.dtype).rbinary("le", float(rate))
    return [x.binary("mul", drawn).binary("mul", 1.0 / (1.0 - rate)), drawn]


rule("aten.rand")(lambda s, o, shape, **_: s.draw("uniform", shape, o))
rule("aten.randn")(lambda s, o, shape, **_: s.draw("normal", shape, o))
rule("aten.rand_like")(lambda s, o, x, **_: s.draw("uniform", x.shape, o))
rule("aten.randn_like")(lambda s, o, x, **_: s.draw("normal", x.shape, o))


@rule("aten.bernoulli.p")
def _(s, o, x, p=0.5, **_):
    return s.draw("uniform", x.shape, "f32").binary("lt", float(p)).convert(o)

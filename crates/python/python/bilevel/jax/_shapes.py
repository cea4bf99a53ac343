"""Rules of primitives that move or combine elements: shapes, reductions, products, convolutions and windows."""

import math

import numpy as np

from .. import _build as build
from .._build import mask, same, take_slice
from ..errors import UnsupportedError
from ._walk import RULES, Bits, Keys, key_rule, out_dtype, out_shape, rule


@rule("reshape", "squeeze", "expand_dims")
def _(lowering, equation, x, *_):
    if isinstance(x, Bits):
        return Bits(x.stream, out_shape(equation))
    return lowering.tensor(x).reshape(out_shape(equation))


@key_rule("reshape", "squeeze", "expand_dims", "copy")
def _(lowering, equation, keys):
    return Keys(keys.paths.reshape(equation.outvars[0].aval.shape))


@key_rule("slice")
def _(lowering, equation, keys):
    p = equation.params
    steps = p["strides"] or [1] * keys.paths.ndim
    return Keys(keys.paths[tuple(map(slice, p["start_indices"], p["limit_indices"], steps))])


@key_rule("broadcast_in_dim")
def _(lowering, equation, keys):
    shape, axes = equation.params["shape"], equation.params["broadcast_dimensions"]
    placed = [1] * len(shape)
    for axis, n in zip(axes, keys.paths.shape):
        placed[axis] = n
    return Keys(np.broadcast_to(keys.paths.reshape(placed), shape).copy())


@key_rule("concatenate")
def _(lowering, equation, *keys):
    return Keys(np.concatenate([k.paths for k in keys], equation.params["dimension"]))


@rule("transpose")
def _(lowering, equation, x):
    return lowering.tensor(x).transpose(list(equation.params["permutation"]))


@rule("broadcast_in_dim")
def _(lowering, equation, x, *_):
    axes, shape = list(equation.params["broadcast_dimensions"]), out_shape(equation)
    x = lowering.tensor(x)
    keep = [i for i, axis in enumerate(axes) if x.shape[i] == shape[axis]]
    return x.reshape([x.shape[i] for i in keep]).broadcast([int(axes[i]) for i in keep], shape)


@rule("tile")
def _(lowering, equation, x):
    x, reps = lowering.tensor(x), list(equation.params["reps"])
    shape = [n for pair in zip(reps, x.shape) for n in pair]
    return x.broadcast([2 * i + 1 for i in range(len(x.shape))], shape).reshape(out_shape(equation))


@rule("slice")
def _(lowering, equation, x):
    p = equation.params
    x = lowering.tensor(x)
    return x.slice(list(p["start_indices"]), list(p["limit_indices"]), list(p["strides"] or [1] * len(x.shape)))


@rule("pad")
def _(lowering, equation, x, value):
    low, high, interior = ([int(c[k]) for c in equation.params["padding_config"]] for k in range(3))
    x, value = lowering.tensor(x), lowering.tensor(value)
    if value.constant_value is not None:
        return build.padded(x, low, high, interior, value.constant_value)
    moved = build.padded(x.binary("sub", value), low, high, interior, 0.0)
    return moved.binary("add", value)


@rule("concatenate")
def _(lowering, equation, *xs):
    xs = [lowering.tensor(x).convert(out_dtype(equation)) for x in xs]
    return xs[0].concat(xs[1:], equation.params["dimension"]) if len(xs) > 1 else xs[0]


@rule("stack")
def _(lowering, equation, *xs):
    axis, xs = equation.params["axis"], [lowering.tensor(x).convert(out_dtype(equation)) for x in xs]
    xs = [x.reshape([*x.shape[:axis], 1, *x.shape[axis:]]) for x in xs]
    return xs[0].concat(xs[1:], axis) if len(xs) > 1 else xs[0]


@key_rule("stack")
def _(lowering, equation, *keys):
    return Keys(np.stack([k.paths for k in keys], equation.params["axis"]))


@rule("unstack")
def _(lowering, equation, x):
    x, axis = lowering.tensor(x), equation.params["axis"]
    parts = [take_slice(x, axis, i, i + 1) for i in range(x.shape[axis])]
    return [part.reshape([n for k, n in enumerate(x.shape) if k != axis]) for part in parts]


@key_rule("unstack")
def _(lowering, equation, keys):
    return [Keys(row) for row in np.moveaxis(keys.paths, equation.params["axis"], 0)]


@rule("split")
def _(lowering, equation, x):
    x, axis, at, parts = lowering.tensor(x), equation.params["axis"], 0, []
    for size in equation.params["sizes"]:
        parts.append(take_slice(x, axis, at, at + size))
        at += size
    return parts


@rule("rev")
def _(lowering, equation, x):
    return lowering.tensor(x).reverse(sorted(equation.params["dimensions"]))


@rule("iota")
def _(lowering, equation, *_):
    return lowering.builder.iota(out_shape(equation), equation.params["dimension"], out_dtype(equation))


def axes_of(equation):
    return sorted(int(axis) for axis in equation.params["axes"])


def negated_max(x, axes):
    return x.unary("neg").max(axes).unary("neg")


def reduction(name, reduce):
    RULES[name] = lambda lowering, equation, x: reduce(lowering.tensor(x), axes_of(equation))


reduction("reduce_sum", lambda x, axes: x.sum(axes))
reduction("reduce_max", lambda x, axes: x.max(axes))
reduction("reduce_min", negated_max)
reduction("reduce_or", lambda x, axes: mask(x).max(axes))
reduction("reduce_and", lambda x, axes: negated_max(mask(x), axes))
rule("argmax")(lambda lowering, equation, x: lowering.tensor(x).argmax(equation.params["axes"][0]))
rule("argmin")(lambda lowering, equation, x: lowering.tensor(x).unary("neg").argmax(equation.params["axes"][0]))


@rule("reduce_prod")
def _(lowering, equation, x):
    x = lowering.tensor(x)
    for axis in reversed(axes_of(equation)):
        while x.shape[axis] > 1:
            n, half = x.shape[axis], x.shape[axis] // 2
            pairs = take_slice(x, axis, 0, half).binary("mul", take_slice(x, axis, half, 2 * half))
            x = pairs.concat([take_slice(x, axis, 2 * half, n)], axis) if n % 2 else pairs
        x = x.full_like(1.0) if x.shape[axis] == 0 else x
        x = x.reshape([n for i, n in enumerate(x.shape) if i != axis])
    return x


@rule("cumsum")
def _(lowering, equation, x):
    x, dtype = lowering.tensor(x), out_dtype(equation)
    # The engine adds floats; whole numbers below 2⁵³ are exact among them.
    wide = x.convert("f64") if x.dtype == "i32" else x
    return wide.cumsum(equation.params["axis"], equation.params["reverse"]).convert(dtype)


def running(op, unit):
    """A running combination in ⌈log₂ n⌉ passes."""

    def lowered(lowering, equation, x):
        x, axis, reverse = lowering.tensor(x), equation.params["axis"], equation.params["reverse"]
        n, by = x.shape[axis], 1
        y = x.reverse([axis]) if reverse else x
        while by < n:
            shape = list(x.shape)
            shape[axis] = by
            shifted = x.full_like(unit, shape).concat([take_slice(y, axis, 0, n - by)], axis)
            y = op(y, shifted)
            by *= 2
        return y.reverse([axis]) if reverse else y

    return lowered


def logaddexp(a, b):
    largest = a.binary("max", b).stop_gradient()
    safe = largest.unary("abs").binary("lt", math.inf).select(largest, largest.full_like(0.0))
    total = a.binary("sub", safe).unary("exp").binary("add", b.binary("sub", safe).unary("exp"))
    return total.unary("log").binary("add", safe)


RULES["cumprod"] = running(lambda a, b: a.binary("mul", b), 1.0)
RULES["cummax"] = running(lambda a, b: a.binary("max", b), -math.inf)
RULES["cummin"] = running(lambda a, b: a.binary("min", b), math.inf)
RULES["cumlogsumexp"] = running(logaddexp, -math.inf)


@rule("dot_general")
def _(lowering, equation, a, b):
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = equation.params["dimension_numbers"]
    a, b = same(lowering.tensor(a), lowering.tensor(b))
    if a.dtype == "i32":
        a, b = a.convert("f64"), b.convert("f64")
    axes = [[int(i) for i in group] for group in (lhs_contract, rhs_contract, lhs_batch, rhs_batch)]
    return a.dot(b, *axes).convert(out_dtype(equation))


@rule("conv_general_dilated")
def _(lowering, equation, x, kernel):
    p = equation.params
    d = p["dimension_numbers"]
    x, kernel = same(lowering.tensor(x), lowering.tensor(kernel))
    rank = len(x.shape)
    if p["batch_group_count"] != 1:
        raise UnsupportedError("a convolution with groups of examples")
    x, kernel = x.transpose(list(d.lhs_spec)), kernel.transpose(list(d.rhs_spec))
    padding = [tuple(int(n) for n in pair) for pair in p["padding"]]
    groups = p["feature_group_count"]
    y = build.conv(x, kernel, list(p["window_strides"]), padding, list(p["lhs_dilation"]), list(p["rhs_dilation"]), groups)
    return y.transpose([list(d.out_spec).index(i) for i in range(rank)]).convert(out_dtype(equation))


def windowed(lowering, equation, x):
    """The two axes that windows move over as the last ones, with their geometry and the permutation back."""
    p = equation.params
    if any(n != 1 for n in (*p["base_dilation"], *p["window_dilation"])):
        raise UnsupportedError("dilated windows")
    size, stride = list(p["window_dimensions"]), list(p["window_strides"])
    padding = [tuple(int(n) for n in pair) for pair in p["padding"]]
    moving = [i for i in range(len(size)) if (size[i], stride[i], padding[i]) != (1, 1, (0, 0))]
    for i in reversed(range(len(size))):
        if len(moving) < 2 and i not in moving:
            moving = sorted([*moving, i])
    x = lowering.tensor(x)
    if len(size) == 1:
        x, size, stride, padding, moving = x.reshape([1, *x.shape]), [1, *size], [1, *stride], [(0, 0), *padding], [0, 1]
    if len(moving) != 2:
        raise UnsupportedError("windows over more than two axes")
    perm = [i for i in range(len(size)) if i not in moving] + moving
    geometry = [[values[i] for i in moving] for values in (size, stride, padding)]
    return x.transpose(perm), geometry, [perm.index(i) for i in range(len(perm))]


@rule("reduce_window_max")
def _(lowering, equation, x):
    x, geometry, back = windowed(lowering, equation, x)
    return build.max_pool(x, *geometry)[0].transpose(back).reshape(out_shape(equation))


@rule("reduce_window_min")
def _(lowering, equation, x):
    x, geometry, back = windowed(lowering, equation, x)
    return build.max_pool(x.unary("neg"), *geometry)[0].unary("neg").transpose(back).reshape(out_shape(equation))


@rule("reduce_window_sum")
def _(lowering, equation, x):
    x, geometry, back = windowed(lowering, equation, x)
    return build.sum_pool(x, *geometry).transpose(back).reshape(out_shape(equation))


@rule("cholesky")
def _(lowering, equation, x):
    return lowering.tensor(x).cholesky()


@rule("triangular_solve")
def _(lowering, equation, a, b):
    p = equation.params
    a, b = lowering.tensor(a), lowering.tensor(b)
    rank = len(a.shape)
    swap = [*range(rank - 2), rank - 1, rank - 2]
    if p["unit_diagonal"]:
        n = a.shape[-1]
        diagonal = lowering.builder.iota(a.shape, rank - 2).binary("eq", lowering.builder.iota(a.shape, rank - 1))
        a = diagonal.select(a.full_like(1.0), a) if n else a
    if p["left_side"]:
        return a.triangular_solve(b, p["lower"], p["transpose_a"])
    # X·A = B is Aᵀ·Xᵀ = Bᵀ.
    return a.triangular_solve(b.transpose(swap), p["lower"], not p["transpose_a"]).transpose(swap)



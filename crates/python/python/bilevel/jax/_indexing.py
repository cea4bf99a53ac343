"""Rules of gathers, scatters and slices at places that are computed, sorting, and what follows from it."""

import math

import numpy as np

from .._build import clipped, same, select, strides
from .._bilevel import Tensor
from ..errors import UnsupportedError
from ._walk import Bits, Keys, key_rule, out_shape, rule


def component(indices, k):
    """The k-th of the indices along the last axis."""
    rank = len(indices.shape)
    start, stop = [0] * (rank - 1) + [k], indices.shape[:-1] + [k + 1]
    return indices.slice(start, stop, [1] * rank).reshape(indices.shape[:-1])


def scaled(x, by):
    return x if by == 1 else x.binary("mul", float(by))


def total(terms, shape, lowering):
    """The sum of integers, 0 for none."""
    out = None
    for term in terms:
        out = term if out is None else out.binary("add", term)
    return out if out is not None else lowering.builder.constant(0, shape, "i32")


def gather_mode(equation):
    mode = str(equation.params["mode"])
    return "clip" if "CLIP" in mode or mode == "1" else "fill" if "FILL" in mode or mode == "0" else "promised"


@key_rule("gather")
def _(lowering, equation, keys, indices):
    if isinstance(indices, Tensor):
        raise UnsupportedError("a random key chosen by an index that depends on an input")
    places = np.arange(keys.paths.size).reshape(keys.paths.shape)
    from ._walk import folded_like

    return Keys(keys.paths.reshape(-1)[folded_like(equation, places, indices)])


@rule("gather")
def _(lowering, equation, x, indices):
    d, sizes = equation.params["dimension_numbers"], [int(n) for n in equation.params["slice_sizes"]]
    offsets, collapsed = [int(i) for i in d.offset_dims], [int(i) for i in d.collapsed_slice_dims]
    mapped = [int(i) for i in d.start_index_map]
    batched, index_batched = [int(i) for i in d.operand_batching_dims], [int(i) for i in d.start_indices_batching_dims]
    x, indices = lowering.tensor(x), lowering.tensor(indices).convert("i32")
    rest = [i for i in range(len(x.shape)) if i not in mapped and i not in batched]
    mode = gather_mode(equation)
    valid = within(indices, x.shape, sizes, mapped) if mode == "fill" and not in_range(indices, x.shape, sizes, mapped) else None
    if set(collapsed) == set(mapped) and all(sizes[i] == x.shape[i] for i in rest):
        y, names = whole_rows(lowering, x, indices, mapped, batched, index_batched, rest)
    else:
        y, names = any_slices(lowering, x, indices, sizes, mapped, batched, index_batched, collapsed)
    kept = iter(range(len(offsets)))
    looped = iter(sorted(i for kind, i in names if kind == "index"))
    order = [("rest", next(kept)) if i in offsets else ("index", next(looped)) for i in range(len(out_shape(equation)))]
    y = y.transpose([names.index(name) for name in order])
    if valid is None:
        return y
    # A place that does not exist gives NaN, or the least integer.
    axes = [i for i in range(len(y.shape)) if i not in offsets]
    fill = math.nan if y.dtype != "i32" else -(2.0**31)
    return select(valid.broadcast(axes, y.shape), y, y.full_like(fill))


def in_range(indices, shape, sizes, mapped):
    """Whether a constant index is known to be inside."""
    value = indices.constant_value
    return value is not None and all(0 <= value <= shape[i] - sizes[i] for i in mapped)


def within(indices, shape, sizes, mapped):
    """1 where an index is inside."""
    valid = None
    for k, i in enumerate(mapped):
        place = component(indices, k)
        inside = place.rbinary("le", 0.0).binary("mul", place.binary("le", float(shape[i] - sizes[i])))
        valid = inside if valid is None else valid.binary("mul", inside)
    return valid


def whole_rows(lowering, x, indices, mapped, batched, index_batched, rest):
    """Single elements of some axes, all of the others: one gather."""
    flat = []
    for k, step in enumerate(strides([x.shape[i] for i in mapped])):
        flat.append(scaled(clipped(component(indices, k), 0.0, float(x.shape[mapped[k]] - 1)), step))
    flat = total(flat, indices.shape[:-1], lowering)
    others = [i for i in range(len(flat.shape)) if i not in index_batched]
    flat = flat.transpose(index_batched + others)
    rows = x.transpose(batched + mapped + rest)
    count = math.prod(x.shape[i] for i in mapped)
    rows = rows.reshape([x.shape[i] for i in batched] + [count] + [x.shape[i] for i in rest])
    names = [("index", i) for i in index_batched + others] + [("rest", i) for i in range(len(rest))]
    return rows.gather(flat, len(batched)), names


def any_slices(lowering, x, indices, sizes, mapped, batched, index_batched, collapsed):
    """Any slices, by the place of every element."""
    outer = indices.shape[:-1]
    kept = [i for i in range(len(x.shape)) if i not in collapsed and i not in batched]
    shape, step, axes = outer + [sizes[i] for i in kept], strides(x.shape), list(range(len(outer)))
    terms = []
    for k, i in enumerate(mapped):
        start = clipped(component(indices, k), 0.0, float(x.shape[i] - sizes[i]))
        terms.append(scaled(start, step[i]).broadcast(axes, shape))
    for j, i in enumerate(kept):
        if sizes[i] > 1:
            terms.append(scaled(lowering.builder.iota(shape, len(outer) + j), step[i]))
    for i, axis in zip(batched, index_batched):
        terms.append(scaled(lowering.builder.iota(shape, axis), step[i]))
    flat = total(terms, shape, lowering)
    names = [("index", i) for i in range(len(outer))] + [("rest", i) for i in range(len(kept))]
    return x.reshape([math.prod(x.shape)]).gather(flat, 0), names


class Scatter:
    """The place of every update in the flattened operand; one more place at its end takes those that are dropped."""

    def __init__(self, lowering, equation, x, indices, updates):
        d = equation.params["dimension_numbers"]
        window, inserted = [int(i) for i in d.update_window_dims], [int(i) for i in d.inserted_window_dims]
        mapped = [int(i) for i in d.scatter_dims_to_operand_dims]
        batched, index_batched = [int(i) for i in d.operand_batching_dims], [int(i) for i in d.scatter_indices_batching_dims]
        known = None if isinstance(indices, Tensor) else np.asarray(indices)
        self.unique = equation.params["unique_indices"] or all_different(known)
        self.x, self.updates = same(lowering.tensor(x), lowering.tensor(updates))
        indices = lowering.tensor(indices).convert("i32")
        x, updates = self.x, self.updates
        outer = [i for i in range(len(updates.shape)) if i not in window]
        kept = [i for i in range(len(x.shape)) if i not in inserted and i not in batched]
        step, shape, terms, valid = strides(x.shape), list(updates.shape), [], None
        sizes = [1] * len(x.shape)
        for axis, i in zip(window, kept):
            sizes[i] = updates.shape[axis]
        for k, i in enumerate(mapped):
            place, last = component(indices, k), x.shape[i] - sizes[i]
            terms.append(scaled(clipped(place, 0.0, float(last)), step[i]).broadcast(outer, shape))
            if known is None or not ((known[..., k] >= 0) & (known[..., k] <= last)).all():
                inside = place.rbinary("le", 0.0).binary("mul", place.binary("le", float(last)))
                valid = inside if valid is None else valid.binary("mul", inside)
        for axis, i in zip(window, kept):
            if x.shape[i] > 1:
                terms.append(scaled(lowering.builder.iota(shape, axis), step[i]))
        for i, axis in zip(batched, index_batched):
            terms.append(scaled(lowering.builder.iota(shape, outer[axis]), step[i]))
        self.size = math.prod(x.shape)
        self.flat = total(terms, shape, lowering)
        self.dropping = valid is not None and "CLIP" not in str(equation.params["mode"])
        if self.dropping:
            dropped = self.flat.full_like(float(self.size))
            self.flat = select(valid.broadcast(outer, shape), self.flat, dropped)

    def into(self, updates, scatter):
        """A scatter of updates in the shape of the operand."""
        out = scatter(updates)(self.flat, 0, self.size + self.dropping)
        out = out.slice([0], [self.size], [1]) if self.dropping else out
        return out.reshape(self.x.shape)

    def sum(self, updates):
        return self.into(updates, lambda u: u.scatter_add)

    def hit(self):
        """How often each place is hit."""
        return self.sum(self.updates.full_like(1.0))


def all_different(indices):
    return indices is not None and len(np.unique(indices.reshape(-1, indices.shape[-1]), axis=0)) == indices[..., 0].size


@rule("scatter-add", "scatter_add")
def _(lowering, equation, x, indices, updates):
    scatter = Scatter(lowering, equation, x, indices, updates)
    return scatter.x.binary("add", scatter.sum(scatter.updates))


@rule("scatter-sub", "scatter_sub")
def _(lowering, equation, x, indices, updates):
    scatter = Scatter(lowering, equation, x, indices, updates)
    return scatter.x.binary("sub", scatter.sum(scatter.updates))


@rule("scatter")
def _(lowering, equation, x, indices, updates):
    scatter = Scatter(lowering, equation, x, indices, updates)
    if scatter.unique or scatter.updates.constant_value is not None:
        hit = scatter.hit()
        value = scatter.sum(scatter.updates)
        if scatter.updates.constant_value is not None:
            value = value.full_like(scatter.updates.constant_value)
        return select(hit, value, scatter.x)
    # The last of several updates of one place stays: the one with the largest number.
    number = lowering.builder.iota([math.prod(scatter.updates.shape)], 0).reshape(scatter.updates.shape)
    last = scatter.into(number, lambda u: u.scatter_max)
    hit = last.binary("lt", 0.0)
    flat = scatter.updates.reshape([math.prod(scatter.updates.shape)])
    return select(hit, scatter.x, flat.gather(last.binary("max", 0.0), 0))


@rule("scatter-mul", "scatter_mul")
def _(lowering, equation, x, indices, updates):
    scatter = Scatter(lowering, equation, x, indices, updates)
    if not scatter.unique:
        raise UnsupportedError("updates by multiplication at places that may be equal; set unique_indices=True if they are not")
    value = scatter.sum(scatter.updates).binary("mul", scatter.x)
    return select(scatter.hit(), value, scatter.x)


def extreme(name, op, sign):
    @rule(f"scatter-{name}", f"scatter_{name}")
    def _(lowering, equation, x, indices, updates):
        scatter = Scatter(lowering, equation, x, indices, updates)
        updates = scatter.updates if sign > 0 else scatter.updates.unary("neg")
        found = scatter.into(updates, lambda u: u.scatter_max)
        found = found if sign > 0 else found.unary("neg")
        # Where nothing comes, its own element: the other is infinite, and would be a constant of the derivative.
        return select(scatter.hit(), scatter.x.binary(op, found), scatter.x)


extreme("max", "max", 1)
extreme("min", "min", -1)


@key_rule("dynamic_slice")
def _(lowering, equation, keys, *starts):
    if any(isinstance(s, Tensor) for s in starts):
        raise UnsupportedError("a random key chosen by an index that depends on an input")
    sizes = equation.params["slice_sizes"]
    first = [int(np.clip(s, 0, n - size)) for s, n, size in zip(starts, keys.paths.shape, sizes)]
    return Keys(keys.paths[tuple(slice(s, s + size) for s, size in zip(first, sizes))])


@rule("dynamic_slice")
def _(lowering, equation, x, *starts):
    x = lowering.tensor(x)
    for axis, (start, size) in enumerate(zip(starts, equation.params["slice_sizes"])):
        if size == x.shape[axis]:
            continue
        start = clipped(lowering.tensor(start).convert("i32"), 0.0, float(x.shape[axis] - size))
        places = lowering.builder.iota([size], 0).binary("add", start)
        perm = [axis] + [k for k in range(len(x.shape)) if k != axis]
        x = x.transpose(perm).gather(places, 0).transpose([perm.index(k) for k in range(len(perm))])
    return x


@rule("dynamic_update_slice")
def _(lowering, equation, x, update, *starts):
    x, y = same(lowering.tensor(x), lowering.tensor(update))
    inside = None
    for axis, start in enumerate(starts):
        size, whole = y.shape[axis], x.shape[axis]
        if size == whole:
            continue
        start = clipped(lowering.tensor(start).convert("i32"), 0.0, float(whole - size))
        place = lowering.builder.iota([whole], 0).binary("sub", start)
        hit = place.rbinary("le", 0.0).binary("mul", place.binary("lt", float(size)))
        perm = [axis] + [k for k in range(len(x.shape)) if k != axis]
        y = y.transpose(perm).gather(clipped(place, 0.0, float(size - 1)), 0)
        y = y.transpose([perm.index(k) for k in range(len(perm))])
        hit = hit.broadcast([axis], x.shape)
        inside = hit if inside is None else inside.binary("mul", hit)
    return y if inside is None else select(inside, y, x)


@rule("top_k")
def _(lowering, equation, x):
    x, k, rank = lowering.tensor(x), equation.params["k"], len(x.shape)
    # Stable for the negated values, so that the first of equal ones comes first.
    places = x.unary("neg").argsort(rank - 1)
    places = places.slice([0] * rank, [*x.shape[:-1], k], [1] * rank)
    return x.gather(places, rank - 1), places


@rule("sort")
def _(lowering, equation, *operands):
    axis, keys = equation.params["dimension"], equation.params["num_keys"]
    first = operands[0]
    if isinstance(first, Bits):
        # Random bits that are only compared: uniform numbers have the same order.
        operands = (lowering.random("uniform", first.stream, first.shape, "f64"), *operands[1:])
        results = sorted_by(lowering, operands, 1, axis)
        return [first, *results[1:]]
    if not any(isinstance(x, Tensor) for x in operands[:keys]):
        # The order is known.
        places = np.lexsort([np.asarray(x) for x in reversed(operands[:keys])], axis=axis)
        known = [np.take_along_axis(np.asarray(x), places, axis) for x in operands[:keys]]
        return known + [ordered(lowering, x, places, axis) for x in operands[keys:]]
    return sorted_by(lowering, operands, keys, axis)


def ordered(lowering, x, places, axis):
    """The elements along an axis at known places."""
    if not isinstance(x, Tensor):
        return np.take_along_axis(np.asarray(x), places, axis)
    rank = len(x.shape)
    swap = list(range(rank))
    swap[axis], swap[-1] = swap[-1], swap[axis]
    rows = x.transpose(swap).gather(lowering.builder.array(np.swapaxes(places, axis, -1)), rank - 1)
    return rows.transpose(swap)


def sorted_by(lowering, operands, keys, axis):
    """All operands in the order of the first few, of which the first counts most."""
    tensors = [lowering.tensor(x) for x in operands]
    rank = len(tensors[0].shape)
    swap = list(range(rank))
    swap[axis], swap[-1] = swap[-1], swap[axis]
    rows = [x.transpose(swap) for x in tensors]
    for number in reversed(range(keys)):
        places = rows[number].stop_gradient().argsort(rank - 1)
        rows = [row.gather(places, rank - 1) for row in rows]
    return [row.transpose(swap) for row in rows]

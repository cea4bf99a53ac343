"""`bilevel.problem`: a problem without a framework."""

import numpy as np

from ._build import Builder, engine_array
from ._judged import trace_for
from ._lines import line_of
from ._problem import Leaves, Parts, Problem, bounds_of
from ._rows import Divided, row_count
from ._tensor import Tensor
from .errors import CheckError, DataError, ProblemError


class Variable:
    """The start and the bounds of a leaf of λ or of the parameters."""

    def __init__(self, start, low=None, high=None):
        self.start, self.low, self.high = np.asarray(start, float), low, high


def full(shape, value=0.0, low=None, high=None):
    """A variable of `bilevel.problem` that starts at one number, with bounds.

    >>> made = bl.problem(
    ...     {"l": bl.full((), 0.5, low=0.0)}, {"t": bl.full((2,))},
    ...     inner=lambda s, lam, params: ((params["t"] - 1) ** 2).sum() + lam["l"] * (params["t"] ** 2).sum(),
    ...     outer=lambda s, lam, params: ((params["t"] - 0.5) ** 2).sum())
    >>> made
    <bilevel.Problem: 1 hyperparameters, 2 parameters, f64>
    """
    return Variable(np.full(shape, float(value)), low, high)


def normal(shape, deviation=1.0, seed=0, low=None, high=None):
    """A variable of `bilevel.problem` that starts at normal random numbers with this standard deviation and seed."""
    return Variable(np.random.default_rng(seed).normal(size=shape) * deviation, low, high)


class Scope:
    """The first argument of a loss: the data as attributes, minibatches and noise."""

    def __init__(self, builder, ports, dtype):
        self._builder, self._ports, self._dtype = builder, ports, dtype
        self._known, self._draws = {}, 0

    def __getattr__(self, name):
        if name.startswith("_") or name not in self._ports:
            raise AttributeError(f"there is no data set '{name}'; the data sets are {', '.join(self._ports)}")
        if name not in self._known:
            port, shape, floats = self._ports[name]
            self._known[name] = Tensor(self._builder.graph.input(port, shape, self._dtype if floats else "i32"), self._builder)
        return self._known[name]

    def _draw(self, kind, shape):
        self._draws += 1
        return Tensor(self._builder.graph.random(kind, self._draws, list(shape), self._dtype), self._builder)

    def normal(self, shape=()):
        """New standard normal numbers in every step."""
        return self._draw("normal", shape)

    def uniform(self, shape=()):
        """New numbers in every step, uniform between 0 and 1."""
        return self._draw("uniform", shape)


def _variables(tree, what):
    if not isinstance(tree, dict) or not tree:
        raise ProblemError(f"{what} must be a dictionary with at least one entry")
    return {name: v if isinstance(v, Variable) else Variable(v) for name, v in tree.items()}


def problem(lam, params, *, inner, outer=None, data=None, batch_size=None, metrics=None, dtype="f64", precision="full", table=None, split=None, copy=True):
    """A bilevel problem from two functions on NumPy-like tensors.

    `lam` and `params` are dictionaries of arrays, `bilevel.full(…)` or `bilevel.normal(…)`. `inner(s, lam, params)` and
    `outer(s, lam, params)` return a tensor with one element; `s` has the data as attributes. `batch_size` is a number of rows for each
    data set that the inner loss sees in minibatches: a number for all, or a dictionary.

    Without `outer`, λ is judged by the evidence, the marginal likelihood of the training rows, and the method is `evidence`: the inner loss has a
    normalised prior, and its temperature is 1 for a sum over rows, 1/n for a mean over n rows.

    The arrays of `table` have rows that `split=bilevel.Split(…)` divides: the inner loss sees the rows to train on, and the outer one the
    validation rows. If the outer loss returns one number for each row, its mean is the loss, and standard errors are over rows.

    Arrays that are read-only are used in place. With `copy=False`, so are all others: do not change them while the problem lives.

    >>> x, y = np.arange(8.0).reshape(4, 2), np.ones(4)
    >>> made = bl.problem(
    ...     {"decay": np.zeros(2)}, {"w": np.zeros(2)}, data={"x": x, "y": y},
    ...     inner=lambda s, lam, params: ((s.x @ params["w"] - s.y) ** 2).mean() + (bl.exp(lam["decay"]) * params["w"] ** 2).sum(),
    ...     outer=lambda s, lam, params: ((s.x @ params["w"] - s.y) ** 2).mean())
    >>> made.hypergradient("rmd", step=0.01, steps=10).value["decay"].shape
    (2,)
    """
    lam, params = _variables(lam, "lam"), _variables(params, "params")
    arrays, divided = _arrays(data, copy), _arrays(table, copy)
    if (table is None) != (split is None):
        raise ProblemError("table=… has the arrays whose rows split=… divides; give both, or neither")
    if both := sorted(set(arrays) & set(divided)):
        raise ProblemError(f"'{both[0]}' is in data and in the table; give it once")
    if isinstance(batch_size, dict):
        if unknown := sorted(set(batch_size) - set(arrays) - set(divided)):
            raise ProblemError(f"batch_size names '{unknown[0]}', which is no data set")
        batch = batch_size
    else:
        batch = {} if batch_size is None else {n: batch_size for n, a in {**arrays, **divided}.items() if a.ndim}
    rows = Divided(divided, split.rows(row_count(list(divided.values()), "table"))) if divided else None
    if outer is None and divided:
        raise ProblemError("the evidence needs no rows to choose λ by; give all rows as data=…, without table and split")
    tracing = _Tracing(lam, params, arrays, divided, dtype)
    counts = [len(part) for part in rows.rows] if rows else [0, 0, 0, 0]
    inner_traced = tracing.traced(inner, "inner", batch, counts[0])
    outer_traced = [] if outer is None else [tracing.traced(outer, "outer", {}, counts[1])]
    extra = [(name, tracing.traced(loss, f"metric {name}", {}, counts[1])) for name, loss in (metrics or {}).items()]
    pairs = bounds_of({n: (v.low, v.high) for n, v in lam.items()}, list(lam))
    starts = [{n: np.require(v.start, dtype=tracing.wide, requirements="C") for n, v in tree.items()} for tree in (lam, params)]
    parts = Parts(
        [(n, v, *pairs[n]) for n, v in starts[0].items()], [(n, v, "trained") for n, v in starts[1].items()],
        {**arrays, **tracing.constants}, [inner_traced], outer_traced, dtype, metrics=extra, precision=precision,
        tables=divided, rows=rows.rows if rows else None, traced={"inner": {counts[0]}, "outer": {counts[1]}},
    )

    def retrace(level, count):
        tracing.constants.clear()
        function = tracing.traced(inner if level == "inner" else outer, level, batch if level == "inner" else {}, count)
        return function, dict(tracing.constants)

    if rows:
        trace_for(parts, retrace, set(), set(counts[1:]))
    return Problem(parts, *(Leaves(list(tree), list(tree.values())) for tree in starts), retrace=retrace)


def _arrays(data, copy):
    arrays = {name: engine_array(value, copy=copy) for name, value in (data or {}).items()}
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError(f"the data set '{name}' has numbers that are not finite; remove such rows or replace them")
    return arrays


class _Tracing:
    """Losses as traced functions of the same λ, parameters and data."""

    def __init__(self, lam, params, data, table, dtype):
        self.lam, self.params, self.data, self.table, self.dtype = lam, params, data, table, dtype
        self.wide = np.float64 if dtype == "f64" else np.float32
        self.constants = {}

    def traced(self, loss, name, batch, count):
        """The loss for so many rows of the table; `batch` has the numbers of rows in minibatches."""
        found = self._once(loss, name, batch, count)
        if self._once(loss, name, batch, count).dumps() != found.dumps():
            raise CheckError(
                f"the {name} loss at {line_of(loss)} is another one when it is called again; let it depend on its arguments alone, and on "
                "nothing that it changes")
        return found

    def _once(self, loss, name, batch, count):
        builder = Builder(f"{name} {count} const" if self.table else f"{name} const")
        builder.graph.set_line(line_of(loss))
        ports = {}
        for known, array in {**self.data, **self.table}.items():
            shape = list(array.shape) if known in self.data else [count, *array.shape[1:]]
            shape = [batch[known], *shape[1:]] if known in batch else shape
            ports[known] = (f"{'batch' if known in batch else 'data'}/{known}", shape, array.dtype.kind == "f")
        trees = []
        for prefix, tree in (("lambda", self.lam), ("theta", self.params)):
            made = {n: builder.graph.input(f"{prefix}/{n}", list(v.start.shape), self.dtype) for n, v in tree.items()}
            trees.append({n: Tensor(t, builder) for n, t in made.items()})
        result = loss(Scope(builder, ports, self.dtype), *trees)
        shape = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
        by_row = name == "outer" and self.table and shape == [count]
        if not isinstance(result, Tensor) or (result.size != 1 and not by_row):
            raise ProblemError(f"the {name} loss must return a tensor with one element, but returned {shape}")
        self.constants.update(builder.constants)
        return builder.graph.function([("rows" if by_row else "loss", result._native)])

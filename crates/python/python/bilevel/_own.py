"""`bilevel.problem`: a problem without a framework."""

import numpy as np

from ._build import Builder, engine_array
from ._problem import Leaves, Parts, Problem, bounds_of
from ._tensor import Tensor
from .errors import DataError, ProblemError


class Variable:
    """How a leaf of λ or of the parameters starts, and its bounds."""

    def __init__(self, start, low=None, high=None):
        self.start, self.low, self.high = np.asarray(start, float), low, high


def full(shape, value=0.0, low=None, high=None):
    """A variable that starts at one number."""
    return Variable(np.full(shape, float(value)), low, high)


def normal(shape, deviation=1.0, seed=0, low=None, high=None):
    """A variable that starts at normal random numbers of this seed."""
    return Variable(np.random.default_rng(seed).normal(size=shape) * deviation, low, high)


class Scope:
    """What a loss is given besides λ and the parameters: the data as attributes, minibatches and noise."""

    def __init__(self, builder, data, dtype, batch):
        self._builder, self._data, self._dtype, self._batch = builder, data, dtype, batch
        self._known, self._draws = {}, 0

    def __getattr__(self, name):
        if name.startswith("_") or name not in self._data:
            raise AttributeError(f"there is no data set '{name}'; the data sets are {', '.join(self._data)}")
        if name not in self._known:
            array = self._data[name]
            floats = array.dtype.kind == "f"
            rows = self._batch.get(name)
            shape = list(array.shape) if rows is None else [rows, *array.shape[1:]]
            prefix = "data" if rows is None else "batch"
            native = self._builder.graph.input(f"{prefix}/{name}", shape, self._dtype if floats else "i32")
            self._known[name] = Tensor(native, self._builder)
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


def problem(lam, params, *, inner, outer, data=None, batch_size=None, metrics=None, dtype="f64", precision="full"):
    """A bilevel problem from two functions on NumPy-like tensors.

    `lam` and `params` are dictionaries of arrays, `bilevel.full(…)` or `bilevel.normal(…)`. `inner(s, lam, params)` and
    `outer(s, lam, params)` return a tensor with one element; `s` has the data as attributes. `batch_size` is a number of rows for each
    data set that the inner loss sees in minibatches: a number for all, or a dictionary.
    """
    lam, params = _variables(lam, "lam"), _variables(params, "params")
    arrays = {name: engine_array(value) for name, value in (data or {}).items()}
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError(f"the data set '{name}' has numbers that are not finite; remove such rows or replace them")
    if isinstance(batch_size, dict):
        unknown = sorted(set(batch_size) - set(arrays))
        if unknown:
            raise ProblemError(f"batch_size names '{unknown[0]}', which is no data set")
    wide = np.float64 if dtype == "f64" else np.float32
    constants = {}

    def traced(loss, name, batch):
        builder = Builder(f"{name} const")
        scope = Scope(builder, arrays, dtype, batch)
        trees = []
        for prefix, tree in (("lambda", lam), ("theta", params)):
            made = {n: builder.graph.input(f"{prefix}/{n}", list(v.start.shape), dtype) for n, v in tree.items()}
            trees.append({n: Tensor(t, builder) for n, t in made.items()})
        result = loss(scope, *trees)
        if not isinstance(result, Tensor) or result.size != 1:
            shape = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise ProblemError(f"the {name} loss must return a tensor with one element, but returned {shape}")
        constants.update(builder.constants)
        return builder.graph.function([("loss", result._native)])

    if batch_size is None:
        batch = {}
    elif isinstance(batch_size, dict):
        batch = batch_size
    else:
        batch = {n: batch_size for n, a in arrays.items() if a.ndim}
    functions = [traced(inner, "inner", batch), traced(outer, "outer", {})]
    extra = [(name, traced(loss, f"metric {name}", {})) for name, loss in (metrics or {}).items()]
    pairs = bounds_of({n: (v.low, v.high) for n, v in lam.items()}, list(lam))
    start = lambda v: np.require(v.start, dtype=wide, requirements="C")  # noqa: E731
    parts = Parts(
        [(n, start(v), *pairs[n]) for n, v in lam.items()], [(n, start(v), "trained") for n, v in params.items()],
        {**arrays, **constants}, *functions, dtype, metrics=extra, precision=precision,
    )
    leaves = [Leaves(list(tree), [start(v) for v in tree.values()]) for tree in (lam, params)]
    return Problem(parts, *leaves)

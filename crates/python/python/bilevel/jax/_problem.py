"""`bilevel.jax.problem`: two JAX functions on pytrees become a problem."""

import jax
import jax.numpy as jnp
import numpy as np

from .._build import engine_array
from .._check import Reference
from .._judged import trace_for
from .._memory import host
from .._problem import Leaves, Parts, Problem, bounds_of, takes, without_rows_to_judge_by
from .._rows import divided
from .._stream import Stream, is_stream
from ..errors import DataError, ProblemError, ShapeError
from ._lower import leaf_names, lower, scalar


class JaxLeaves(Leaves):
    """The leaves of a pytree."""

    def __init__(self, tree):
        names, values, self.structure = leaf_names(tree)
        super().__init__(names, values)

    def flatten(self, tree):
        leaves, structure = jax.tree_util.tree_flatten(tree)
        if structure != self.structure:
            raise ShapeError(f"the structure is {structure}, but must be {self.structure}")
        return leaves

    def tree(self, arrays):
        return jax.tree_util.tree_unflatten(self.structure, [np.asarray(a) for a in arrays])


class JaxState(JaxLeaves):
    """Parameters and state side by side: only the parameters are shown."""

    def flatten(self, tree):
        return super().flatten({"params": tree, "state": self._state} if not _is_both(tree) else tree)

    @property
    def _state(self):
        return jax.tree_util.tree_unflatten(self.structure, self.values)["state"]


def _is_both(tree):
    return isinstance(tree, dict) and set(tree) == {"params", "state"}


def floats_only(tree, what):
    names, leaves, _ = leaf_names(tree)
    if not leaves:
        raise ProblemError(f"{what} has no leaves; give at least one array")
    for name, leaf in zip(names, leaves):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise ProblemError(
                f"the leaf '{name}' of {what} has the type {jnp.result_type(leaf)}; only floats are learned. "
                "Keep it in the function that closes over it, or partition the tree first"
            )


def tables(tree, what):
    """The arrays of data by name, and their structure."""
    names, leaves, structure = leaf_names(tree)
    arrays = [host(leaf) for leaf in leaves]
    for name, array in zip(names, arrays):
        if array.dtype.kind not in "fiub" and str(array.dtype) not in ("bfloat16",):
            raise DataError(f"{what}/{name} has the type {array.dtype}; use numbers")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise DataError(f"{what}/{name} has the value {array[place]} at {place}; remove such rows or replace them")
    return names, arrays, structure


class _Level:
    """One of the two losses: its data, arguments and names."""

    def __init__(self, name, function, data, size, table=None, copy=True):
        self.name, self.function, self.size, self.table = name, function, size, table
        self.level = {"train": "inner", "valid": "outer"}.get(name, name)
        self.has_data = data is not None or table is not None
        self.stream = None
        if is_stream(data):
            if size is not None:
                raise ProblemError(f"the batches of {name} come from an iterator, so their size is its own; leave out batch_size")
            self.stream = Stream(data, lambda batch: tables(batch, name)[:2], name)
            data = self.stream.first
        self.names, self.arrays, self.structure = [], [], None
        if table is not None:
            self.names, self.structure = table.names, table.structure
            self.arrays = table.of("train" if name == "train" else "validation")
        elif self.has_data:
            self.names, self.arrays, self.structure = tables(data, name)
        if size is not None:
            for n, a in zip(self.names, self.arrays):
                if a.ndim == 0 or a.shape[0] < size:
                    raise DataError(f"{name}/{n} has the shape {a.shape}, which has no minibatch of {size} rows")
        self.prefix = f"{'data' if size is None else 'batch'}/{name if table is None else 'rows'}"
        self.data = {} if table is not None or self.stream else {f"{name}/{n}": engine_array(a, copy=copy) for n, a in zip(self.names, self.arrays)}
        self.show([a[:size] if size is not None else a for a in self.arrays])

    def show(self, arrays):
        """Takes these rows to be traced with."""
        self.batch = jax.tree_util.tree_unflatten(self.structure, arrays) if self.has_data else None
        self.shown = {f"{self.prefix}/{n}": engine_array(a) for n, a in zip(self.names, arrays)}
        counts = {a.shape[0] if a.ndim else 0 for a in arrays}
        #: How many rows the loss sees, if all arrays have as many.
        self.count = counts.pop() if len(counts) == 1 else 0
        return self

    def arguments(self, *trees):
        return [*trees, *([self.batch] if self.has_data else [])]

    def is_row_by_row(self, leaf):
        """Whether a result has one number for each row."""
        return self.level == "outer" and self.size is None and self.count > 0 and list(leaf.shape) == [self.count]


def table_of(train, valid, held_out, test, split):
    """The rows of all parts as one table, with the structure of a batch."""
    names, arrays, structure = tables(train, "train")
    others = []
    for part, given in (("valid", valid), ("held_out", held_out), ("test", test)):
        if given is None or isinstance(given, (int, float)):
            others.append(given)
            continue
        _, own, its = tables(given, part)
        if its != structure:
            raise ShapeError(f"{part} has the structure {its}, but must have that of train, {structure}")
        others.append(own)
    made = divided(names, arrays, *others, split)
    made.names, made.structure = names, structure
    return made


def problem(
    inner, outer, lam, params, *, train=None, valid=None, batch_size=None, valid_batch_size=None, state=None, start=None, metrics=None,
    bounds=None, precision="full", key=None, check=True, split=None, held_out=None, test=None, copy=True,
):
    """A bilevel problem from two JAX functions.

    `inner(lam, params, train)` is the training loss and `outer(lam, params, valid)` the loss that λ is judged by; without data they are
    called without. With `outer=None`, λ is judged by the evidence, the marginal likelihood of the training rows, and the method is `evidence`:
    the inner loss has a normalised prior, and its temperature is 1 for a sum over rows, 1/n for a mean over n rows.

    Either loss may have one more argument, a random key: its draws are new in every step. With `batch_size`, the inner loss is
    called with so many rows of the data, in epochs; likewise `valid_batch_size`. With `state`, such as batch statistics, the losses are called
    as `inner(lam, params, state, train)` and the inner one returns a pair of the loss and the new state.

    `bounds` is a pair for all of λ, or a dictionary by leaf. `start(lam)` gives the parameters that training starts from, if they depend on λ.
    `train` and `valid` may be iterators or loaders of batches: one batch is read for each step, ahead of the run.
    `metrics` are functions like `outer`, by name. `check=False` leaves out the comparison with JAX.

    With `split=bilevel.Split(…)`, the rows of `train` are divided, and `outer` sees the validation rows; or `held_out`, as a fraction of the
    rows of `valid` or as data, and `test` are given beside `valid`. Held-out rows guard runs, and test rows are for `baselines`. If `outer`
    returns one number for each row, its mean is the loss, and standard errors are over rows.

    Arrays that are read-only, such as JAX's, are used in place. With `copy=False`, so are all others: do not change them while the
    problem lives.

    A weight decay for each of five weights::

        problem = bilevel.jax.problem(
            lambda lam, params, train: ((train["x"] @ params - train["y"]) ** 2).mean() + (jnp.exp(lam) * params**2).sum(),
            lambda lam, params, valid: ((valid["x"] @ params - valid["y"]) ** 2).mean(),
            np.full(5, -2.0), np.zeros(5), train={"x": x, "y": y}, valid={"x": x_new, "y": y_new})
    """
    floats_only(lam, "lam")
    floats_only(params, "params")
    if valid_batch_size is not None and (split is not None or held_out is not None or test is not None):
        raise ProblemError("valid_batch_size does not go with divided rows, which are judged as a whole; leave it out")
    if batch_size is not None and train is None:
        raise ProblemError("batch_size is given without train=…")
    if outer is None:
        only_metrics = None if metrics else valid
        without_rows_to_judge_by(valid=only_metrics, valid_batch_size=valid_batch_size, split=split, held_out=held_out, test=test)
    whole = params if state is None else {"params": params, "state": state}
    lam_leaves = JaxLeaves(lam)
    theta_leaves = JaxLeaves(whole) if state is None else JaxState(whole)
    f64 = any(str(jnp.result_type(leaf)) == "float64" for leaf in jax.tree_util.tree_leaves((lam, params)))
    dtype = "f64" if f64 else "f32"
    table = None
    if split is not None or held_out is not None or test is not None:
        table = table_of(train, valid, held_out, test, split)
    levels = {"train": _Level("train", inner, train, batch_size, table, copy)}
    if outer is not None:
        levels["valid"] = _Level("valid", outer, valid, valid_batch_size, table, copy)
    data, lowered, references = {}, {}, {}
    for name, level in levels.items():
        one = _traced(level, lam, params, state, key, name)
        lowered[name] = one
        data.update(level.data)
        data.update(one.constants)
        if check:
            references["inner" if name == "train" else "outer"] = _reference(level, one, lam, params, state, dtype)
    extra = []
    for name, function in (metrics or {}).items():
        if is_stream(valid):
            raise ProblemError("metrics need valid as arrays, not as an iterator")
        level = _Level(f"metric {name}", function, valid, None, table)
        level.prefix = f"data/{'valid' if table is None else 'rows'}"
        if table is None:
            data.update({f"valid/{n}": engine_array(a, copy=copy) for n, a in zip(level.names, level.arrays)})
        one = _traced(level, lam, params, state, key, f"metric {name}")
        data.update(one.constants)
        extra.append((name, one.function))
    begun = None
    if start is not None:
        traced = lower(start, [lam], ["lambda"], lambda tree: _named(tree, theta_leaves, "theta"), "start")
        begun = traced.function
        data.update(traced.constants)
    pairs = bounds_of(bounds, lam_leaves.names)
    wide = np.float64 if dtype == "f64" else np.float32
    arrays = lambda leaves: [np.require(v, dtype=wide, requirements="C") for v in leaves.values]  # noqa: E731
    roles = ["statistic" if state is not None and n.startswith("state/") else "trained" for n in theta_leaves.names]
    parts = Parts(
        [(n, v, *pairs[n]) for n, v in zip(lam_leaves.names, arrays(lam_leaves))],
        list(zip(theta_leaves.names, arrays(theta_leaves), roles)),
        data, [lowered["train"].function], [lowered["valid"].function] if outer is not None else [], dtype, begun, extra, precision,
        streams=[level.stream.declared(name) for name, level in levels.items() if level.stream],
        **({} if table is None else {
            "tables": {f"rows/{n}": engine_array(a, copy=copy) for n, a in table.arrays.items()}, "rows": table.rows,
            "traced": {level.level: {level.count} for level in levels.values()},
        }),
    )

    def retrace(level, count):
        name = "train" if level == "inner" else "valid"
        shown = _Level(name, levels[name].function, None, None, table).show(table.first(count))
        if levels[name].size is not None:
            shown = levels[name]
        one = _traced(shown, lam, params, state, key, f"{name} {count}")
        return one.function, one.constants

    if table is not None:
        trace_for(parts, retrace, set(), {len(rows) for rows in table.rows[1:]})
    made = Problem(parts, lam_leaves, theta_leaves, references, retrace)
    if check:
        made.check()
    return made


def _named(tree, leaves, prefix):
    names, values, structure = leaf_names(tree)
    if names != leaves.names:
        raise ShapeError(f"the start has the structure {structure}, but must have that of the parameters")
    return [(f"{prefix}/{n}", v) for n, v in zip(names, values)]


def _traced(level, lam, params, state, key, name):
    """The loss of a level as a traced function."""
    trees, prefixes = [lam, params], ["lambda", "theta" if state is None else "theta/params"]
    if state is not None:
        trees.append(state)
        prefixes.append("theta/state")
    if level.has_data:
        trees.append(level.batch)
        prefixes.append(level.prefix)
    if takes(level.function, len(trees) + 1) and not takes(level.function, len(trees)) or key is not None and takes(level.function, len(trees) + 1):
        trees.append(jax.random.key(0) if key is None else key)
        prefixes.append(None)
    elif not takes(level.function, len(trees)):
        raise ProblemError(f"the {'inner' if level.name == 'train' else 'outer'} loss cannot be called with {len(trees)} arguments: "
                           + ", ".join(["lam", "params", *(["state"] if state is not None else []), *(["data"] if level.has_data else [])]))
    updates = state is not None and level.name == "train"

    def outputs(result):
        leaves = jax.tree_util.tree_leaves(result)
        if len(leaves) == 1 and level.is_row_by_row(leaves[0]):
            return [("rows", leaves[0])]
        if not updates:
            return scalar(result)
        if not isinstance(result, tuple) or len(result) != 2:
            raise ProblemError("with state=…, the inner loss must return a pair: the loss and the new state")
        loss, new = result
        names, values, structure = leaf_names(new)
        if structure != jax.tree_util.tree_structure(state):
            raise ProblemError(f"the new state has the structure {structure}, but must have that of the old")
        return scalar(loss) + [(f"update/state/{n}", v) for n, v in zip(names, values)]

    return lower(level.function, trees, prefixes, outputs, f"{name} const")


def _reference(level, lowered, lam, params, state, dtype):
    """The loss as JAX computes it, for the check."""
    trees = level.arguments(lam, params, *([state] if state is not None else []))
    inputs = dict(level.shown)
    inputs.update({f"data/{n}": a for n, a in lowered.constants.items()})
    variables, flat, places = [], [], []
    for number, (tree, prefix) in enumerate(((lam, "lambda"), (params, "theta" if state is None else "theta/params"))):
        names, leaves, structure = leaf_names(tree)
        variables += [f"{prefix}/{n}" for n in names]
        flat += [jnp.asarray(leaf) for leaf in leaves]
        places.append((number, structure, len(leaves)))
    inputs.update({v: engine_array(x) for v, x in zip(variables, flat)})
    if state is not None:
        names, leaves, _ = leaf_names(state)
        inputs.update({f"theta/state/{n}": engine_array(x) for n, x in zip(names, leaves)})
    expected = {n: t for n, _, t in lowered.function.inputs}
    inputs = {n: engine_array(x, expected[n]) if n in expected else x for n, x in inputs.items()}

    def value(*leaves):
        filled, at = list(trees), 0
        for number, structure, count in places:
            filled[number] = jax.tree_util.tree_unflatten(structure, leaves[at : at + count])
            at += count
        result = jax.tree_util.tree_leaves(level.function(*filled))[0]
        return result if level.is_row_by_row(result) else jnp.reshape(result, ())

    everything = tuple(range(len(flat)))

    def original(vectors):
        slope = jax.grad(lambda *x: jnp.mean(value(*x)), argnums=everything)
        along = tuple(jnp.asarray(vectors[v], x.dtype) for v, x in zip(variables, flat))
        first = attempt(lambda: [np.asarray(g) for g in jax.jit(slope)(*flat)])
        # By reverse mode twice, because a custom_vjp has no forward mode.
        dot = lambda *x: sum(jnp.vdot(g, v) for g, v in zip(slope(*x), along))  # noqa: E731
        second = attempt(lambda: [np.asarray(h) for h in jax.jit(jax.grad(dot, argnums=everything))(*flat)])
        return [[np.asarray(jax.jit(value)(*flat))], first, second]

    return Reference(lowered.function, inputs, variables, original)


def attempt(compute):
    """What JAX has no derivative for cannot be compared."""
    try:
        return compute()
    except (NotImplementedError, ValueError, TypeError):
        return None

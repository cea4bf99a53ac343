"""A bilevel problem in Python, whatever framework its losses were written in."""

import inspect
import json
import os
import time

import numpy as np

from . import _bilevel
from ._check import CheckReport, compared
from ._judged import Judged
from ._results import Advice, Comparison, Hypergradient, Trained
from ._run import Run
from ._settings import method_tables, optimizer_table, outer_table
from ._stream import loaders
from .errors import Error, ProblemError, SettingError, ShapeError


class Leaves:
    """The named leaves of λ or θ: a dictionary here, and another structure in a framework's own class."""

    def __init__(self, names, values):
        self.names, self.values = list(names), [np.asarray(v) for v in values]

    def flatten(self, tree):
        """The leaves of a tree of this structure."""
        if sorted(tree) != sorted(self.names):
            raise ShapeError(f"the leaves are {', '.join(self.names)}, but {', '.join(tree)} were given")
        return [tree[name] for name in self.names]

    def tree(self, arrays):
        """The user's structure, with these arrays as leaves."""
        return dict(zip(self.names, (np.asarray(a) for a in arrays), strict=True))

    def arrays(self, tree, what):
        """The leaves of a tree of this structure, as arrays of the problem."""
        found = [np.asarray(v) for v in self.flatten(tree)]
        shapes = [v.shape for v in found]
        if shapes != [v.shape for v in self.values]:
            own = [v.shape for v in self.values]
            raise ShapeError(f"{what} has leaves of shapes {shapes}, but the problem's have {own}")
        return [np.require(v, dtype=own.dtype, requirements="C") for v, own in zip(found, self.values)]


class Parts:
    """Everything a problem is made of, as plain data.

    `inner` and `outer` are traced functions: one, or one for each number of rows in `traced`. Tables are divided into parts by `rows`.
    """

    def __init__(
        self, hyperparameters, parameters, data, inner, outer, dtype, start=None, metrics=(), precision="full", tables=None, rows=None,
        streams=(), traced=None,
    ):
        self.hyperparameters, self.parameters, self.data = hyperparameters, parameters, data
        self.inner, self.outer, self.dtype, self.start = inner, outer, dtype, start
        self.metrics, self.precision, self.tables, self.rows = list(metrics), precision, tables or {}, rows
        self.streams, self.traced = list(streams), traced or {"inner": set(), "outer": set()}

    def add(self, level, count, function, constants):
        """Adds a loss as it was traced for this many rows."""
        getattr(self, level).append(function)
        self.data.update(constants)
        self.traced[level].add(count)

    def native(self):
        return _bilevel.Problem(
            self.hyperparameters, self.parameters, list(self.data.items()), self.inner, self.outer, self.dtype, start=self.start,
            metrics=self.metrics, precision=self.precision, tables=list(self.tables.items()), rows=self.rows, streams=self.streams,
        )


class Problem(Judged):
    """Two losses: the inner one trains the parameters, the outer one judges them, and λ is what is learned.

    Make one with `bilevel.jax.problem`, `bilevel.torch.problem` or `bilevel.problem`.
    """

    def __init__(self, parts, hyperparameters, parameters, references=None, retrace=None, core=None):
        self._parts, self._lambda, self._theta = parts, hyperparameters, parameters
        self._references, self._retrace = references or {}, retrace
        self._core, self._pid, self._prepared = core or parts.native(), os.getpid(), {}
        self._frozen = [role == "frozen" for _, _, role in parts.parameters] if parts else [False] * len(parameters.names)
        #: The last run that was started, also if it was interrupted.
        self.last_run = None

    def __getstate__(self):
        if self._parts is None:
            raise Error("a problem that was derived from another cannot be pickled; pickle the other, and derive it again")
        if self._parts.streams:
            raise Error("a problem that reads a stream cannot be pickled; make it anew in the other process")
        return {"parts": self._parts, "lambda": self._lambda, "theta": self._theta}

    def __setstate__(self, state):
        self.__init__(state["parts"], state["lambda"], state["theta"])

    def _native(self):
        if os.getpid() != self._pid:
            raise Error("this problem was made before a fork, and its threads are not here; start processes by 'spawn', or make it anew")
        return self._core

    @property
    def sizes(self):
        """Numbers in λ and in the parameters."""
        return self._core.sizes

    @property
    def dtype(self):
        """The type everything is computed in: f32 or f64."""
        return self._core.dtype

    @property
    def lam(self):
        """The start of λ, in the structure it was given."""
        return self._lambda.tree(self._lambda.values)

    @property
    def params(self):
        """The start of the parameters, in the structure they were given."""
        return self._theta.tree(self._theta.values)

    def methods(self):
        """The names of the methods that apply to this problem.

        >>> "rmd" in problem.methods()
        True
        """
        return self._native().methods()[0]

    def check(self, tolerance=None):
        """Compares both losses with the user's framework: value, gradient, and a product with the Hessian.

        Returns a report, and raises `CheckError` if they differ by more than rounding. A problem of `bilevel.problem` has no other framework,
        and its report is empty.

        >>> problem.check()
        nothing was compared
        """
        rows = []
        for name, reference in self._references.items():
            rows.extend(compared(name, reference, self.dtype, tolerance))
        report = CheckReport(rows)
        report.raise_if_failed()
        return report

    @loaders()
    def losses(self, lam=None, params=None, *, seed=0, device="cpu", threads=0):
        """The inner and the outer loss and the metrics, by name; at the start, unless λ or the parameters are given.

        >>> sorted(problem.losses())
        ['inner', 'outer']
        """
        return dict(self._native().losses(
            self._given(self._lambda, lam, "lam"), self._given_theta(params), seed, device, threads))

    @loaders()
    def hypergradient(self, method="langevin-adjoint", *, lam=None, params=None, seed=0, warm=False, device="cpu", threads=0, **settings):
        """The derivative of the outer loss by λ through training, by this method.

        Settings are those of the method and of the inner loop: `step`, `steps`, `temperature`, … With `warm=True` training continues from the
        parameters of the last call. The result is a `Hypergradient`.

        >>> problem.hypergradient("rmd", step=0.1, steps=20).value["decay"].shape
        (3,)
        """
        table, inner = method_tables(method, settings)
        key = (json.dumps(table), json.dumps(inner), device, threads)
        core, since = self._native(), time.perf_counter()
        if key not in self._prepared:
            self._prepared[key] = core.prepare(key[0], key[1], device, threads)
        try:
            value, error, theta, report = self._prepared[key].estimate(
                seed, warm, self._given(self._lambda, lam, "lam"), self._given_theta(params))
        except KeyboardInterrupt:
            # What is compiled has been told to stop, and does not go on.
            del self._prepared[key]
            raise
        return Hypergradient(
            method=table["name"],
            value=self._lambda.tree(value),
            standard_error=None if error is None else self._lambda.tree(error),
            params=self._theta.tree(self._whole_theta(theta)),
            seconds=time.perf_counter() - since,
            **json.loads(report),
        )

    def run(
        self, method="langevin-adjoint", *, optimizer="adam", rate=0.01, iterations=100, seed=0, device="cpu", threads=0,
        callback=None, progress=None, blocking=True, folder=None, resume=False, checkpoint_every=10, lam=None, params=None,
        title=None, **settings,
    ):
        """Learns λ: the outer loop with this method and optimizer.

        `callback` is called with a dictionary after each iteration; if it returns True, the run ends. With `blocking=False` the run goes on in
        the background: see `pause`, `resume`, `wait` and `abort` of the result. After Ctrl-C, `last_run` of the problem has the last good state.
        With `folder`, checkpoints, metrics and a report are written there, and `resume=True` continues from the last checkpoint. Further
        settings are those of the method, of the inner loop and of the outer loop.

        >>> run = problem.run("ift-cg", step=0.1, steps=20, optimizer=bl.adam(), rate=0.1, iterations=5)
        >>> run.outer_loss < problem.losses()["outer"]
        True
        """
        settings, outer = outer_table(settings, rate=rate, iterations=iterations, seed=seed)
        table, inner = method_tables(method, settings)
        native = _bilevel.Run(
            self._native(), json.dumps(table), json.dumps(outer), json.dumps(inner), json.dumps(optimizer_table(optimizer)),
            device, threads, None if callback is None else (lambda text: callback(json.loads(text))),
            None if folder is None else os.fspath(folder), resume, checkpoint_every,
            self._given(self._lambda, lam, "lam"), self._given_theta(params),
        )
        self.last_run = Run(native, self, table["name"], iterations, title or f"bilevel: {table['name']}")
        if blocking:
            self.last_run.wait(progress=progress)
        elif progress:
            raise SettingError("progress is drawn by wait(progress=True) where a run is not blocking")
        return self.last_run

    @loaders()
    def train(self, lam=None, *, seed=0, record_every=0, device="cpu", threads=0, **settings):
        """Trains the parameters alone, at this λ. The result is a `Trained`.

        >>> problem.train(step=0.1, steps=20).inner_loss < problem.losses()["inner"]
        True
        """
        _, inner = method_tables("rmd", settings)
        lam = self._lambda.arrays(self.lam if lam is None else lam, "lam")
        complete = _bilevel.inner_loop(json.dumps(inner or {}))
        theta, inner_loss, outer_loss, metrics, losses = self._native().train(lam, complete, seed, record_every, device, threads)
        return Trained(self._theta.tree(theta), inner_loss, outer_loss, dict(metrics), losses)

    def compare(self, methods=None, *, seeds=1, progress=None, **options):
        """Runs several methods with the same settings, each with the same number of seeds, or with the given ones. The result is a `Comparison`."""
        chosen = methods or ["langevin-adjoint", "rmd", "ift-cg"]
        runs = {}
        for method in chosen:
            name, own = (method, {}) if isinstance(method, str) else (method["name"], {k: v for k, v in method.items() if k != "name"})
            for seed in range(seeds) if isinstance(seeds, int) else seeds:
                runs.setdefault(name, []).append(self.run(name, seed=seed, progress=progress, **{**options, **own}))
        return Comparison(runs)

    def advise(self, *, temperature=0.0, device="cpu", threads=0, **settings):
        """Measures the problem, and ranks the applicable methods by their results on similar problems. The result is an `Advice`.

        With a temperature, the target is the Gibbs measure at it instead of the minimum.
        """
        _, inner = method_tables("rmd", settings)
        complete = _bilevel.inner_loop(json.dumps(inner or {}))
        return Advice(json.loads(self._native().advise(complete, temperature, device, threads)))

    def _given(self, leaves, tree, what):
        return None if tree is None else leaves.arrays(tree, what)

    def _given_theta(self, tree):
        """The parameters that are not frozen, of a tree of all."""
        if tree is None:
            return None
        return [leaf for leaf, is_frozen in zip(self._theta.arrays(tree, "params"), self._frozen) if not is_frozen]

    def _whole_theta(self, trained):
        """The parameters with the frozen ones in their places."""
        trained = iter(trained)
        return [own if is_frozen else next(trained) for own, is_frozen in zip(self._theta.values, self._frozen)]

    def _derived(self, core, theta=None, lam=True):
        """A problem made from this one by the engine; its leaves are those of this one where they are given, else dictionaries."""
        starts = _bilevel.starts(core)
        named = [Leaves([n for n, _ in part], [v for _, v in part]) for part in starts]
        made = Problem(None, self._lambda if lam else named[0], theta or named[1], core=core)
        if theta is not None:
            made._frozen = self._frozen
        return made

    def __repr__(self):
        lam, theta = self.sizes
        return f"<bilevel.Problem: {lam} hyperparameters, {theta} parameters, {self.dtype}>"

    def _repr_html_(self):
        lam, theta = self.sizes
        return f"<b>bilevel problem</b>: {lam} hyperparameters, {theta} parameters, {self.dtype}"


def takes(function, count):
    """Whether a function can be called with this many positional arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # No signature is known.
        return False
    return True


def bounds_of(bounds, names):
    """A lower and an upper bound for each leaf: one pair for all, or a dictionary by name."""
    if bounds is None:
        return {name: (-np.inf, np.inf) for name in names}
    if isinstance(bounds, dict):
        unknown = sorted(set(bounds) - set(names))
        if unknown:
            raise ProblemError(f"bounds are given for '{unknown[0]}', but the leaves of λ are {', '.join(names)}")
        return {name: _pair(bounds.get(name)) for name in names}
    return {name: _pair(bounds) for name in names}


def _pair(bounds):
    if bounds is None:
        return (-np.inf, np.inf)
    low, high = bounds
    return (-np.inf if low is None else float(low), np.inf if high is None else float(high))


def without_rows_to_judge_by(**given):
    """Refuses what only an outer loss needs, where λ is judged by the evidence of the training rows."""
    for name, value in given.items():
        if value is not None:
            raise ProblemError(f"{name}=… is for an outer loss, but with outer=None λ is judged by the evidence of all training rows; leave it out")


__all__ = ["Leaves", "Parts", "Problem", "bounds_of", "takes", "without_rows_to_judge_by"]

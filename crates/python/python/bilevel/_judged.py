"""The value of a learned λ on rows that no method has seen: losses row by row, baselines, folds and shrinkage."""

import json

import numpy as np

from . import _bilevel
from ._results import Baselines
from ._rows import PARTS, block_counts, fold_counts
from ._settings import method_tables
from .errors import Error, ProblemError


class Judged:
    """The methods of a problem whose rows are divided: with `split=…`, or with `held_out=…` or `test=…` beside `valid`."""

    def rows(self):
        """The numbers of the rows to train on, to choose λ by, held out and to test with, by part.

        >>> {part: len(rows) for part, rows in divided.rows().items()}
        {'train': 20, 'validation': 12, 'held-out': 4, 'test': 4}
        """
        return dict(zip(PARTS, _bilevel.rows(self._native())))

    def row_losses(self, part="test", lam=None, params=None, *, seed=0, device="cpu", threads=0):
        """The outer loss on the rows of a part: one number for each row, or for each block of rows if the loss is one number.

        >>> divided.row_losses("test").shape
        (4,)
        """
        return np.array(_bilevel.row_losses(
            self._native(), part, self._given(self._lambda, lam, "lam"), self._given_theta(params), seed, device, threads))

    def baselines(self, lam, *, seed=0, device="cpu", threads=0, **settings):
        """Compares λ with one tuned value for each leaf, and with none, on test rows; on held-out rows, if there are no others.

        Each is trained from scratch with the given inner loop; with test rows, on all other rows too.

        >>> run = divided.run("rmd", step=0.1, steps=20, rate=0.1, iterations=3)
        >>> divided.baselines(run, step=0.1, steps=20).part
        'test'
        """
        lam = getattr(lam, "lam", lam)
        rows = self._divided("compare with baselines")
        whole = sum(len(part) for part in rows[:3])
        self._trace_for({whole} if rows[3] else set(), {len(part) for part in rows[1:]} | ({whole} if rows[3] else set()))
        _, inner = method_tables("rmd", settings)
        found, wins, sentence = _bilevel.baselines(
            self._native(), self._lambda.arrays(lam, "lam"), _bilevel.inner_loop(json.dumps(inner or {})), seed, device, threads)
        return Baselines(json.loads(found), wins, sentence)

    def folded(self, count, *, held_out=0.0, seed=0):
        """The problem on this many folds at once: one training for each, and λ judged by all. A share of each fold may be held out.

        >>> divided.folded(4).sizes
        (3, 12)
        """
        rows = self._divided("divide into folds")
        self._trace_for(*fold_counts(rows, count, held_out))
        return self._derived(_bilevel.folded(self._native(), count, held_out, seed))

    def on_all_rows(self):
        """The problem with all rows that have labels for training: for the last training, with the λ that was found.

        Its outer loss is that of the training rows. Reduce a penalty beside a mean over rows by the ratio of their numbers.
        """
        rows = self._divided("train on all rows")
        whole = sum(len(part) for part in rows[:3])
        self._trace_for({whole}, {whole} | ({len(rows[3])} if rows[3] else set()))
        return self._derived(_bilevel.on_all_rows(self._native()), self._theta)

    def shrunk(self, deviation):
        """The problem with each leaf of λ as a mean and offsets from it, normal with this standard deviation.

        `.lam_of(run)` of the result is λ of this problem.
        """
        found = _bilevel.shrunk(self._native(), deviation)
        made = self._derived(found.problem, lam=None)
        made._shrunk = (found, self._lambda)
        return made

    def lam_of(self, run_or_lam):
        """λ of the problem that this one was shrunk from."""
        if self._shrunk is None:
            raise ProblemError("this problem is not a shrunk one; its runs have λ as lam")
        lam = getattr(run_or_lam, "lam", run_or_lam)
        found, leaves = self._shrunk
        return leaves.tree(found.lambda_(self._lambda.arrays(lam, "lam")))

    _shrunk = None

    def _divided(self, aim):
        rows = _bilevel.rows(self._native())
        if not any(rows):
            raise ProblemError(f"the problem has no divided rows to {aim}; make it with split=…, held_out=… or test=…")
        return rows

    def _trace_for(self, inner, outer):
        """Traces the losses for these numbers of rows too."""
        if trace_for(self._parts, self._retrace, inner, outer):
            self._core = self._parts.native()
            self._prepared.clear()


def trace_for(parts, retrace, inner, outer):
    """Adds the losses as traced for these numbers of rows; an outer loss that is one number also for the blocks it is judged by.

    `retrace(level, count)` returns a function and its constants. Returns whether anything was added.
    """
    if "rows" not in [name for name, _, _ in parts.outer[0].outputs]:
        outer = outer | block_counts(outer)
    changed = False
    for level, counts in (("inner", inner), ("outer", outer)):
        for count in sorted(counts - parts.traced[level] - {0}):
            if retrace is None:
                raise Error("the loss must be traced for other numbers of rows, which a problem that was pickled or derived cannot; make it anew")
            parts.add(level, count, *retrace(level, count))
            changed = True
    return changed

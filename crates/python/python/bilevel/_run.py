"""A run of the outer loop: in progress or ended."""

import atexit
import json
import os
import sys
import time
import weakref

from ._display import Plot, short, table
from ._ranks import follows
from ._stream import loaders
from .errors import DivergenceError, Error

#: Runs in progress, ended before the interpreter is.
_RUNNING = weakref.WeakSet()
#: The progress line is redrawn at most this often, in seconds.
_REDRAW = 0.1


@atexit.register
def _end_all():
    for run in list(_RUNNING):
        run._native.abort()
        run._native.wait(1 << 62, 10.0)


class Run:
    """A run of the outer loop, made by `Problem.run`: in progress, or with its results.

    >>> run = problem.run("rmd", step=0.1, steps=20, rate=0.1, iterations=5, blocking=False)
    >>> run.wait()
    True
    >>> len(run.iterations), sorted(run.lam)
    (5, ['decay'])
    """

    def __init__(self, native, problem, method, planned, title):
        self._native, self._problem, self.method, self._planned, self.title = native, problem, method, planned, title
        self._rows, self._ended = [], None
        _RUNNING.add(self)

    def __getstate__(self):
        self._outcome()
        return {"problem": self._problem, "method": self.method, "planned": self._planned, "title": self.title, "rows": self._rows,
                "ended": self._ended, "page": self._native.page(self.title)}

    def __setstate__(self, state):
        self._native = _Kept(state["page"])
        self._problem, self.method, self._planned, self.title = (state[k] for k in ("problem", "method", "planned", "title"))
        self._rows, self._ended = state["rows"], state["ended"]

    # While it goes on.

    @property
    def is_running(self):
        """Whether the run is still going on, or paused."""
        return self._ended is None and not self._native.wait(0, 0.0)

    def pause(self):
        """Holds the run after the iteration it is in."""
        self._native.pause()

    def resume(self):
        """Continues after a pause."""
        self._native.resume()

    def abort(self, wait=True):
        """Ends the run within a fraction of a second, and keeps its last good state.

        With `wait=False` it returns at once, before the run has ended.
        """
        self._native.abort()
        if wait:
            self.wait()
        return self

    @loaders()
    def wait(self, timeout=None, progress=None):
        """Waits for the end, or for so many seconds; returns whether the run has ended.

        Ctrl-C ends the run and raises `KeyboardInterrupt`; the run keeps its last good state.
        """
        line = _ProgressLine(self._planned) if not follows() and (progress or (progress is None and sys.stderr.isatty())) else None
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._native.wait(len(self._rows), 0.05):
                self._read()
                if line:
                    line.draw(self._rows)
                if until is not None and time.monotonic() >= until:
                    return False
        except KeyboardInterrupt:
            self._native.abort()
            while not self._native.wait(1 << 62, 0.05):
                pass
            self._finish(strict=False)
            raise
        finally:
            if line:
                line.close(self._rows)
        self._read()
        self._finish(strict=True)
        return True

    def _read(self):
        self._rows.extend(json.loads(self._native.iterations(len(self._rows))))

    def _finish(self, strict):
        self._read()
        _RUNNING.discard(self)
        outcome = self._native.outcome(False)
        if outcome is not None:
            lam, theta, report = outcome
            self._ended = (lam, theta, json.loads(report))
            self._write_page()
        if strict:
            self._native.outcome(True)

    def _write_page(self):
        folder = self._native.folder
        if folder is not None:
            self.report(os.path.join(folder, "report.html"))

    # Afterwards.

    def _outcome(self):
        if self._ended is None:
            if not self._native.wait(1 << 62, 0.0):
                raise Error("the run has not ended; call wait() first")
            self._finish(strict=True)
        return self._ended

    @property
    def iterations(self):
        """The numbers of every iteration so far, as dictionaries: `iteration`, `outer_loss`, `inner_loss`, norms, diagnostics and metrics."""
        self._read()
        return list(self._rows)

    @property
    def lam(self):
        """The learned λ, in the structure it was given."""
        return self._problem._lambda.tree(self._outcome()[0])

    @property
    def params(self):
        """The parameters that go with λ, in the structure they were given."""
        return self._problem._theta.tree(self._outcome()[1])

    @property
    def reason(self):
        """The reason why the run ended, in words."""
        return self._outcome()[2]["reason"]

    @property
    def outer_loss(self):
        """The outer loss in the last iteration."""
        return self._outcome()[2]["outer_loss"]

    @property
    def metrics(self):
        """The metrics of the problem at the returned λ and parameters, by name."""
        return self._outcome()[2]["metrics"]

    @property
    def guard(self):
        """What the guard found on the held-out rows: a dictionary with its `sentence`, or None without such rows."""
        report = self._outcome()[2]
        return None if report["guard"] is None else {**report["guard"], "sentence": report["guard_sentence"]}

    @property
    def seconds(self):
        """The time the run took, that before a resumption included."""
        return self._outcome()[2]["seconds"]

    @property
    def summary(self):
        """All numbers of the result, as a dictionary."""
        return dict(self._outcome()[2])

    def state_dict(self):
        """The parameters and buffers of a PyTorch model, to be loaded by `load_state_dict(…, strict=False)`; tied weights included."""
        if not hasattr(self._problem, "state_dict"):
            raise Error("only a problem from bilevel.torch.problem has a state_dict; the parameters of this run are its params")
        return self._problem.state_dict(self)

    def raise_if_failed(self):
        """Raises `DivergenceError` if the run diverged; returns the run otherwise."""
        if self._outcome()[2]["failed"]:
            raise DivergenceError(self.reason)
        return self

    def plot(self):
        """A picture of the losses of every iteration."""
        curves = [(name, [(r["iteration"], r[key]) for r in self.iterations]) for name, key in (("outer loss", "outer_loss"), ("inner loss", "inner_loss"))]
        return Plot(self.title, "outer iteration", "loss", curves)

    def report(self, path=None):
        """The report of the run as an HTML page; also written to `path`, if it is given."""
        self._outcome()
        page = self._native.page(self.title)
        if path is not None:
            with open(os.fspath(path), "w", encoding="utf-8") as file:
                file.write(page)
        return page

    def __repr__(self):
        if self._ended is None and not self._native.wait(1 << 62, 0.0):
            return f"<bilevel.Run by {self.method}: in progress>"
        return f"<bilevel.Run by {self.method}: outer loss {short(self.outer_loss)}, {self.reason}>"

    def _repr_html_(self):
        if self.is_running:
            return repr(self)
        rows = [(k.replace("_", " "), v) for k, v in self.summary.items() if not isinstance(v, (dict, list))]
        return self.plot().svg + table(["run", self.method], rows)


class _Kept:
    """What stays of a run that has been pickled."""

    folder = None

    def __init__(self, page):
        self._page = page

    def wait(self, seen, seconds):
        return True

    def iterations(self, since):
        return "[]"

    def outcome(self, strict=True):
        return None

    def page(self, title):
        return self._page

    def abort(self):
        pass

    pause = resume = abort


class _ProgressLine:
    """One line on standard error, redrawn at most ten times a second."""

    def __init__(self, planned):
        self.planned, self.drawn = planned, 0.0

    def draw(self, rows, last=False):
        now = time.monotonic()
        if rows and (last or now - self.drawn >= _REDRAW):
            self.drawn = now
            row = rows[-1]
            text = f"{row['iteration']}/{self.planned}  outer loss {short(row['outer_loss'])}  inner loss {short(row['inner_loss'])}"
            print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)

    def close(self, rows):
        self.draw(rows, last=True)
        if rows:
            print(file=sys.stderr)

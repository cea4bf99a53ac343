"""The results of calls: immutable values with a one-line form, and a table or picture for notebooks."""

import html
from dataclasses import dataclass
from typing import Any

from ._display import Plot, short, table, text_table


@dataclass(frozen=True, repr=False)
class Hypergradient:
    """The derivative of the outer loss by λ, as one method estimates it: the result of `Problem.hypergradient`.

    >>> found = problem.hypergradient("rmd", step=0.1, steps=20)
    >>> found.value["decay"].shape, found.standard_error, found.oracles["inner_gradients"]
    ((3,), None, 20)
    """

    method: str
    #: In the structure of λ.
    value: Any
    #: Of each number, if the method knows it.
    standard_error: Any
    #: Where training ended.
    params: Any
    inner_loss: float
    outer_loss: float
    #: How often each derivative was computed.
    oracles: dict
    diagnostics: dict
    #: Leaves of λ that cannot influence the outer loss.
    idle: list
    seconds: float

    def __repr__(self):
        return f"<bilevel.Hypergradient by {self.method}: outer loss {short(self.outer_loss)}, {self.seconds:.3g} s>"

    def _repr_html_(self):
        rows = [("inner loss", short(self.inner_loss)), ("outer loss", short(self.outer_loss))]
        rows += [(k.replace("_", " "), v) for k, v in self.oracles.items() if v]
        rows += [(k.replace("_", " "), v) for k, v in self.diagnostics.items() if v is not None]
        return table(["hypergradient", self.method], rows)


@dataclass(frozen=True, repr=False)
class Trained:
    """The result of training alone, by `Problem.train`.

    >>> [step for step, loss in problem.train(step=0.1, steps=20, record_every=10).losses]
    [10, 20]
    """

    params: Any
    inner_loss: float
    outer_loss: float
    metrics: dict
    #: Pairs of a step and the inner loss there, if they were recorded.
    losses: list

    def __repr__(self):
        return f"<bilevel.Trained: inner loss {short(self.inner_loss)}, outer loss {short(self.outer_loss)}>"

    def plot(self):
        """A picture of the recorded losses."""
        return Plot("Training", "step", "inner loss", [("", self.losses)])


class Baselines:
    """A learned λ beside one tuned value and none, by the loss on rows that no method has seen: the result of `Problem.baselines`."""

    def __init__(self, found, wins, sentence):
        #: Of the rows: test, held-out or validation.
        self.part = found["part"]
        #: Dictionaries of a name, rows trained on, the loss, and its paired difference from one tuned value with a standard error.
        self.rows = [{**row, "difference": row["difference"]["mean"], "standard_error": row["difference"]["standard_error"]} for row in found["rows"]]
        #: The one tuned value of each leaf.
        self.tuned = dict(found["tuned"])
        #: Whether the learned λ is better than one tuned value by more than two standard errors.
        self.wins = wins
        self.sentence = sentence

    HEADER = ("", "rows", "loss", "against one tuned", "±")

    def _cells(self):
        return [(r["name"], r["rows"], short(r["loss"]), short(r["difference"]), short(r["standard_error"])) for r in self.rows]

    def __repr__(self):
        return f"{text_table(self.HEADER, self._cells())}\n{self.sentence}"

    def _repr_html_(self):
        return table(self.HEADER, self._cells()) + f"<p>{html.escape(self.sentence)}</p>"


class Comparison:
    """Runs of several methods, by name: the result of `Problem.compare`.

    >>> compared = problem.compare(["rmd", "ift-cg"], seeds=2, step=0.1, steps=20, rate=0.1, iterations=3)
    >>> sorted((name, len(runs)) for name, runs in compared.runs.items())
    [('ift-cg', 2), ('rmd', 2)]
    """

    def __init__(self, runs):
        self.runs = runs

    def rows(self):
        """For each method, the best first: its name, mean and standard deviation of the last outer loss, mean seconds, and the reason of its end."""
        found = []
        for name, runs in self.runs.items():
            losses = [run.outer_loss for run in runs if run.outer_loss is not None]
            mean = sum(losses) / len(losses) if losses else None
            spread = (sum((x - mean) ** 2 for x in losses) / (len(losses) - 1)) ** 0.5 if len(losses) > 1 else None
            found.append((name, mean, spread, sum(run.seconds for run in runs) / len(runs), runs[0].reason))
        return sorted(found, key=lambda row: (row[1] is None, row[1]))

    HEADER = ("method", "outer loss", "± sd", "seconds", "ended because")

    def _cells(self):
        return [(name, short(mean), short(spread), f"{seconds:.3g}", reason) for name, mean, spread, seconds, reason in self.rows()]

    def __repr__(self):
        return text_table(self.HEADER, self._cells())

    def _repr_html_(self):
        return table(self.HEADER, self._cells())

    def plot(self):
        """A picture of the outer losses of all runs."""
        curves = []
        for name, runs in self.runs.items():
            for i, run in enumerate(runs):
                curves.append((name if i == 0 else "", [(r["iteration"], r["outer_loss"]) for r in run.iterations]))
        return Plot("Comparison of methods", "outer iteration", "outer loss", curves)


class Advice:
    """The applicable methods, ranked by their expected error and price: the result of `Problem.advise`.

    >>> run = problem.run(**{**problem.advise(step=0.1, steps=20).best, "iterations": 2})
    """

    def __init__(self, found):
        self.situation, self.ranked, self.refused = found["situation"], found["ranked"], dict(found["refused"])

    @property
    def best(self):
        """The first method with its settings and inner loop, to be given to `run(**…)`."""
        recipe = self.ranked[0]["recipe"]
        inner = dict(recipe["inner"])
        optimizer, schedule = inner.pop("optimizer", None), inner.pop("schedule", None)
        settings = {k: v for k, v in recipe["method"].items() if k != "name"}
        return {"method": recipe["method"]["name"], **settings, **inner, "inner_optimizer": optimizer, "inner_schedule": schedule}

    HEADER = ("method", "error", "price", "claimed")

    def _cells(self):
        return [(c["method"], f"{c['error']:.1e}", f"{c['price']:.0f}", "yes" if c["claimed"] else "") for c in self.ranked]

    def __repr__(self):
        return text_table(self.HEADER, self._cells())

    def _repr_html_(self):
        return table(self.HEADER, self._cells())

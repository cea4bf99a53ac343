"""Settings by keyword: which belong to the method, which to the inner loop, and which to the outer loop."""

import difflib
import json

from . import _bilevel
from .errors import SettingError

INNER = ("step", "steps", "samples", "burn_in", "temperature", "noise_scale", "shrink", "inner_optimizer", "inner_schedule")
OUTER = (
    "rate", "schedule", "iterations", "seed", "cold", "diagnose_every", "metrics_every", "clip_norm", "tolerance", "patience",
    "improvement", "time_limit", "guard", "shard_from",
)


def optimizer(name, **settings):
    """The table of an optimizer with these settings."""
    return {"name": name, **settings}


def sgd():
    """Plain descent: λ ← λ − rate·gradient.

    >>> bl.sgd()
    {'name': 'sgd'}
    """
    return optimizer("sgd")


def momentum(decay=0.9, nesterov=False):
    """Descent with momentum: the step is a decaying sum of gradients; with `nesterov`, one step ahead.

    >>> bl.momentum(0.8)
    {'name': 'momentum', 'decay': 0.8, 'nesterov': False}
    """
    return optimizer("momentum", decay=decay, nesterov=nesterov)


def rmsprop(decay=0.99, epsilon=1e-8):
    """RMSprop: gradients divided by the root of their decaying mean square."""
    return optimizer("rmsprop", decay=decay, epsilon=epsilon)


def adam(beta1=0.9, beta2=0.999, epsilon=1e-8):
    """Adam: the decaying mean of gradients, divided by the root of their decaying mean square.

    >>> run = problem.run("rmd", step=0.1, steps=20, optimizer=bl.adam(beta1=0.5), rate=0.1, iterations=3)
    """
    return optimizer("adam", beta1=beta1, beta2=beta2, epsilon=epsilon)


def adamw(weight_decay=0.01, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """Adam with decoupled weight decay, which is added to the step and not to the gradient."""
    return optimizer("adamw", weight_decay=weight_decay, beta1=beta1, beta2=beta2, epsilon=epsilon)


def constant(warm_up=0):
    """A schedule: a linear warm-up of `warm_up` iterations, and then a constant rate."""
    return {"shape": "constant", "warm_up": warm_up}


def cosine(over, last=0.0, warm_up=0):
    """A schedule: a rate that falls along a cosine over `over` iterations, to the fraction `last` of its start.

    >>> run = problem.run("rmd", step=0.1, steps=20, rate=0.1, schedule=bl.cosine(4), iterations=4)
    >>> run.iterations[0]["rate"] > run.iterations[3]["rate"]
    True
    """
    return {"shape": "cosine", "over": over, "last": last, "warm_up": warm_up}


def step_decay(every, factor, warm_up=0):
    """A schedule: a rate that is multiplied by `factor` after every `every` iterations."""
    return {"shape": "step", "every": every, "factor": factor, "warm_up": warm_up}


def optimizer_table(given):
    """The table of an optimizer, given as one or by its name."""
    table = {"name": given} if isinstance(given, str) else dict(given)
    if table.get("name") not in (known := [o["name"] for o in json.loads(_bilevel.optimizers())]):
        raise SettingError(unknown("optimizer", table.get("name"), known))
    return table


def unknown(kind, name, known):
    """The sentence about an unknown name, with the nearest known one."""
    near = difflib.get_close_matches(str(name), known, 1, 0.5)
    rest = f"did you mean {near[0]}?" if near else f"the {kind}s are {', '.join(known)}"
    return f"there is no {kind} '{name}'; {rest}"


def split(settings, names):
    """The settings with these names, and the others."""
    own = {k: v for k, v in settings.items() if k in names}
    return own, {k: v for k, v in settings.items() if k not in names}


def method_tables(method, settings):
    """The table of a method and of its inner loop, complete and checked."""
    table = {"name": method} if isinstance(method, str) else dict(method)
    inner, own = split(settings, INNER)
    table.update(own)
    known = {m["name"]: [s["name"] for s in m["settings"]] for m in json.loads(_bilevel.methods())}
    name = table.get("name")
    if name not in known:
        raise SettingError(unknown("method", name, list(known)))
    for setting in table:
        if setting != "name" and setting not in known[name]:
            all_known = [*known[name], *INNER, *OUTER]
            raise SettingError(f"{name}: {unknown('setting', setting, all_known)}")
    if "inner_optimizer" in inner:
        inner["optimizer"] = optimizer_table(inner.pop("inner_optimizer"))
    if "inner_schedule" in inner:
        inner["schedule"] = inner.pop("inner_schedule")
    given = json.dumps(inner) if inner else None
    complete, usual = _bilevel.check_method(json.dumps(table), given)
    # A loop that was given is used as it is; a method that is given none has its usual one.
    return json.loads(complete), json.loads(_bilevel.inner_loop(given)) if inner else json.loads(usual)


def outer_table(settings, **outer):
    """The rest of the settings, and the table of the outer loop."""
    own, rest = split(settings, OUTER)
    if own.get("schedule") is not None and not isinstance(own["schedule"], dict):
        raise SettingError("a schedule is made by bilevel.cosine(…), bilevel.step_decay(…) or bilevel.constant(…)")
    return rest, {**outer, **own}

"""Times on the processor beside plain JAX and PyTorch: imports, a first hypergradient, and each one after that.

    python crates/python/benches/times.py [--rounds 9] [--json]

Every case is the derivative of a validation loss through all steps of training. The programs take turns, round by round, and the medians of
their times are printed with the ratio to the best of the others. Each is first held to the same hypergradient.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import numpy as np


def digits():
    """The digits that come with the library: rows to train on and to choose λ by."""
    import bilevel

    x, y = bilevel.digits()
    order = np.random.default_rng(0).permutation(len(x))
    return [(np.asarray(x)[rows], np.asarray(y)[rows]) for rows in (order[:200], order[200:800])]


def start(dtype):
    """The parameters of a network and a penalty for each of its weights."""
    rng = np.random.default_rng(1)
    params = {"w": 0.1 * rng.normal(size=(64, 32)), "b": np.zeros(32), "v": 0.1 * rng.normal(size=(32, 10)), "c": np.zeros(10)}
    lam = {"w": np.full((64, 32), -5.0), "v": np.full((32, 10), -5.0)}
    return [{k: v.astype(dtype) for k, v in tree.items()} for tree in (params, lam)]


def mlp(steps, dtype):
    """A network on digits with a penalty for each weight: one hypergradient by each program, as functions of nothing."""
    import bilevel as bl
    import jax
    import jax.numpy as jnp
    import torch
    from torch.nn import functional as F

    params, lam = start(dtype)
    (x, y), (x_new, y_new) = ((a.astype(dtype), b.astype(np.int32)) for a, b in digits())

    def loss(p, x, y):
        logits = jnp.tanh(x @ p["w"] + p["b"]) @ p["v"] + p["c"]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    def inner(lam, p, batch):
        return loss(p, batch["x"], batch["y"]) + sum((jnp.exp(lam[k]) * p[k] ** 2).sum() for k in lam)

    def outer(lam, p, batch):
        return loss(p, batch["x"], batch["y"])

    train, valid = {"x": x, "y": y}, {"x": x_new, "y": y_new}

    def ours():
        problem = bl.jax.problem(inner, outer, lam, params, train=train, valid=valid, check=False)
        return lambda: problem.hypergradient("rmd", step=0.5, steps=steps).value

    def theirs_jax():
        def judged(lam):
            one = lambda p, _: (jax.tree.map(lambda a, g: a - 0.5 * g, p, jax.grad(inner, 1)(lam, p, train)), None)  # noqa: E731
            return outer(lam, jax.lax.scan(one, jax.tree.map(jnp.asarray, params), None, length=steps)[0], valid)

        slope = jax.jit(jax.grad(judged))
        return lambda: jax.block_until_ready(slope(lam))

    def theirs_torch():
        tx, ty, tx_new, ty_new = (torch.from_numpy(np.array(a)) for a in (x, y.astype(np.int64), x_new, y_new.astype(np.int64)))
        start = {k: torch.from_numpy(v.copy()).requires_grad_() for k, v in params.items()}
        own = {k: torch.from_numpy(v.copy()).requires_grad_() for k, v in lam.items()}
        apply = lambda p, x: torch.tanh(x @ p["w"] + p["b"]) @ p["v"] + p["c"]  # noqa: E731

        def hypergradient():
            p = start
            for _ in range(steps):
                value = F.cross_entropy(apply(p, tx), ty) + sum((own[k].exp() * p[k] ** 2).sum() for k in own)
                p = {k: a - 0.5 * g for (k, a), g in zip(p.items(), torch.autograd.grad(value, list(p.values()), create_graph=True))}
            return dict(zip(own, torch.autograd.grad(F.cross_entropy(apply(p, tx_new), ty_new), list(own.values()))))

        return hypergradient

    return {"bilevel": ours, "JAX, jit": theirs_jax, "PyTorch, eager": theirs_torch}


def resnet18(steps):
    """torchvision's resnet18 in evaluation mode on pictures of 32×32, with a penalty for each tensor of parameters."""
    import bilevel as bl
    import torch
    import torchvision
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=10).eval()
    x, y, x_new, y_new = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,)), torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
    hyper = nn.ParameterList([torch.tensor(-8.0) for _ in model.parameters()])
    penalty = lambda hyper, params: sum(log.exp() * p.square().sum() for log, p in zip(hyper, params))  # noqa: E731

    def ours():
        problem = bl.torch.problem(
            model, hyper, train=(x, y), valid=(x_new, y_new), train_mode=False, check=False,
            inner=lambda out, batch, hyper, params: F.cross_entropy(out, batch[1]) + penalty(hyper, params.values()),
            outer=lambda out, batch: F.cross_entropy(out, batch[1]))
        return lambda: problem.hypergradient("rmd", step=0.01, steps=steps).value

    def theirs():
        buffers = dict(model.named_buffers())
        first = {k: p.detach().requires_grad_() for k, p in model.named_parameters()}

        def hypergradient():
            p = first
            for _ in range(steps):
                value = F.cross_entropy(torch.func.functional_call(model, {**p, **buffers}, (x,)), y) + penalty(hyper, p.values())
                p = {k: a - 0.01 * g for (k, a), g in zip(p.items(), torch.autograd.grad(value, list(p.values()), create_graph=True))}
            judged = F.cross_entropy(torch.func.functional_call(model, {**p, **buffers}, (x_new,)), y_new)
            return {str(i): g for i, g in enumerate(torch.autograd.grad(judged, list(hyper.parameters())))}

        return hypergradient

    return {"bilevel": ours, "PyTorch, eager": theirs}


def leaves(found):
    return np.concatenate([np.ravel(np.asarray(found[name])) for name in sorted(found)]).astype(float)


def measured(case, rounds, tolerance):
    """For each program: its first time, with all that is traced and compiled, and the median of the rounds after that."""
    programs, first, times, reference = {}, {}, {}, None
    for name, make in case.items():
        since = time.perf_counter()
        programs[name] = make()
        found = leaves(programs[name]())
        first[name], times[name] = time.perf_counter() - since, []
        reference = found if reference is None else reference
        apart = np.abs(found - reference).max() / np.abs(reference).max()
        if not apart <= tolerance:
            raise SystemExit(f"{name} has another hypergradient: {apart:.1e} apart")
    for _ in range(rounds):
        for name, program in programs.items():
            since = time.perf_counter()
            program()
            times[name].append(time.perf_counter() - since)
    return {name: {"first": first[name], "median": statistics.median(times[name])} for name in case}


def imported(module, rounds):
    program = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in range(rounds)]
    return statistics.median(float(run.stdout) for run in runs)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--json", action="store_true", help="one JSON line in place of the table")
    chosen = arguments.parse_args()
    imports = {module: imported(module, min(chosen.rounds, 5)) for module in ("numpy", "bilevel", "jax", "torch")}
    import jax

    jax.config.update("jax_enable_x64", True)
    cases = {
        "MLP on digits, T = 50, f64": (mlp(50, np.float64), 1e-9), "MLP on digits, T = 50, f32": (mlp(50, np.float32), 1e-3),
        "resnet18, T = 3, f32": (resnet18(3), 1e-2),
    }
    found = {title: measured(case, chosen.rounds, tolerance) for title, (case, tolerance) in cases.items()}
    if chosen.json:
        print(json.dumps({"import": imports, "cases": found}))
        return
    print("import: " + ", ".join(f"{module} {seconds:.3f} s" for module, seconds in imports.items()))
    for title, rows in found.items():
        print(title)
        for name, row in rows.items():
            others = min(other["median"] for key, other in rows.items() if key != "bilevel")
            ratio = f", {row['median'] / others:.2f} of the best of the others" if name == "bilevel" else ""
            print(f"  {name:<16} first {row['first']:.2f} s, then {1e3 * row['median']:.1f} ms{ratio}")


if __name__ == "__main__":
    main()

"""Hypergradients of other libraries on problems whose hypergradients are known.

    python truth.py < problems.json

Standard input is a list of problems: name, inner step, inner steps, λ, θ⁰, and the arrays of the losses in the order of their
names. One JSON line per problem and library is printed: the hypergradient, and the seconds it took after the first call, or a
sentence that says why there is none. A library that is not installed is passed over.

Each library is used as its documentation shows it: a solver of the inner problem whose result is differentiated implicitly, or
through its steps.
"""
import json
import os
import sys
import time

os.environ["JAX_PLATFORMS"] = "cpu"
import numpy as np

# Losses in the functions of either array library: np is jax.numpy or torch.


def bowl(direct):
    def losses(np, data):
        (h,) = data
        inner = lambda t, l: 0.5 * (h * (t - l) ** 2).sum()
        outer = lambda t, l: 0.5 * ((t - 1) ** 2).sum() / len(h) + (0.25 * (l**2).sum() / len(h) if direct else 0.0)
        return inner, outer

    return losses


def ridge(np, data):
    x, x_outside, y, y_outside = data
    inner = lambda t, l: 0.5 * ((x @ t - y) ** 2).mean() + 0.5 * (np.exp(l) * t**2).sum()
    outer = lambda t, l: 0.5 * ((x_outside @ t - y_outside) ** 2).mean()
    return inner, outer


def overparametrised(np, data):
    point, x, y = data
    inner = lambda t, l: 0.5 * ((x @ t - y - l) ** 2).sum()
    outer = lambda t, l: 0.5 * ((t - point) ** 2).sum()
    return inner, outer


def logistic(np, data):
    softplus = lambda v: np.log1p(np.exp(v))
    inner = lambda t, l: softplus(-t).sum() + 0.5 * (np.exp(l) * t**2).sum()
    outer = lambda t, l: softplus(-2 * t).sum()
    return inner, outer


def cubic(np, data):
    inner = lambda t, l: (t**3 / 3 - (1 - l * l) * t).sum()
    outer = lambda t, l: ((l - t) ** 2 + (t - 0.5) ** 2).sum()
    return inner, outer


def start(np, data):
    (h,) = data
    inner = lambda t, l: 0.5 * (h * (t - 1) ** 2).sum()
    outer = lambda t, l: 0.5 * ((t - 0.5) ** 2).sum()
    return inner, outer


LOSSES = {
    "quadratic": bowl(False),
    "quadratic, direct": bowl(True),
    "ten quadratics": bowl(False),
    "ten quadratics, badly conditioned": bowl(True),
    "a thousand quadratics": bowl(False),
    "ridge, one penalty": ridge,
    "ridge, a penalty per weight": ridge,
    "overparametrised": overparametrised,
    "overparametrised, f beyond the rows": overparametrised,
    "logistic": logistic,
    "cubic": cubic,
    "start": start,
    "start, four dimensions": start,
}


def jax_peers():
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    def arrays(problem):
        return [jnp.asarray(np.array(problem[k]["values"]).reshape(problem[k]["shape"])) for k in ("lambda", "theta")] + [
            [jnp.asarray(np.array(a["values"]).reshape(a["shape"])) for a in problem["data"]]
        ]

    def by(solve):
        """dF/dλ, where solve(inner, θ⁰, λ, problem) trains; θ⁰ is λ where a problem starts there."""

        def hypergradient(problem):
            lam, theta, data = arrays(problem)
            inner, outer = LOSSES[problem["name"]](jnp, data)

            def value(l):
                t = solve(inner, l if problem["starts_from_lambda"] else theta, l, problem)
                return outer(t, l)

            run = jax.jit(jax.grad(value))
            run(lam).block_until_ready()
            began = time.perf_counter()
            found = run(lam).block_until_ready()
            return np.asarray(found).ravel().tolist(), time.perf_counter() - began

        return hypergradient

    peers = {}
    try:
        import jaxopt

        def descend(implicit):
            def solve(inner, theta, l, problem):
                solver = jaxopt.GradientDescent(
                    inner, stepsize=problem["step"], maxiter=problem["steps"], tol=1e-12, acceleration=False,
                    implicit_diff=implicit, unroll=not implicit,
                )
                return solver.run(theta, l).params

            return solve

        peers["jaxopt, implicit"] = by(descend(True))
        peers["jaxopt, unrolled"] = by(descend(False))
    except ImportError:
        pass
    try:
        import optimistix as optx

        def minimise(adjoint, quasi_newton):
            def solve(inner, theta, l, problem):
                if quasi_newton:
                    solver = optx.BFGS(rtol=1e-10, atol=1e-10)
                else:
                    solver = optx.GradientDescent(problem["step"], rtol=1e-12, atol=1e-12)
                # Its first step evaluates and does not move.
                steps = problem["steps"] + 1
                found = optx.minimise(inner, solver, theta, args=l, adjoint=adjoint, max_steps=steps, throw=False)
                return found.value

            return solve

        peers["optimistix, implicit"] = by(minimise(optx.ImplicitAdjoint(), False))
        peers["optimistix, BFGS and implicit"] = by(minimise(optx.ImplicitAdjoint(), True))
        peers["optimistix, unrolled"] = by(minimise(optx.RecursiveCheckpointAdjoint(), False))
    except ImportError:
        pass
    return peers


def torch_peers():
    import torch

    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)

    def tensor(array):
        return torch.tensor(np.array(array["values"]).reshape(array["shape"]))

    def timed(problem, once):
        once()
        began = time.perf_counter()
        found = once()
        return found.detach().numpy().ravel().tolist(), time.perf_counter() - began

    def parts(problem):
        inner, outer = LOSSES[problem["name"]](torch, [tensor(a) for a in problem["data"]])
        return inner, outer, tensor(problem["lambda"]), tensor(problem["theta"])

    peers = {}
    try:
        import torchopt

        def implicit(problem):
            if problem["starts_from_lambda"]:
                raise ValueError("an implicit derivative does not see where training starts")
            inner, outer, lam, theta = parts(problem)

            @torchopt.diff.implicit.custom_root(
                torch.func.grad(inner, argnums=0), argnums=1, solve=torchopt.linear_solve.solve_normal_cg(maxiter=400)
            )
            def solve(t, l):
                t, l = t.clone(), l.detach()
                for _ in range(problem["steps"]):
                    t = t - problem["step"] * torch.func.grad(inner)(t, l)
                return t

            def once():
                l = lam.clone().requires_grad_()
                t = solve(theta.clone().requires_grad_(), l)
                return torch.autograd.grad(outer(t, l), l)[0]

            return timed(problem, once)

        def unrolled(problem):
            inner, outer, lam, theta = parts(problem)

            class Net(torch.nn.Module):
                def __init__(self, t):
                    super().__init__()
                    self.t = torch.nn.Parameter(t)

            def once():
                l = lam.clone().requires_grad_()
                net = Net(theta.clone())
                optimizer = torchopt.MetaSGD(net, lr=problem["step"])
                if problem["starts_from_lambda"]:
                    net.t = torch.nn.Parameter(torch.zeros_like(l))
                    t = l
                    for _ in range(problem["steps"]):
                        (slope,) = torch.autograd.grad(inner(t, l), t, create_graph=True)
                        t = t - problem["step"] * slope
                else:
                    for _ in range(problem["steps"]):
                        optimizer.step(inner(net.t, l))
                    t = net.t
                return torch.autograd.grad(outer(t, l), l)[0]

            return timed(problem, once)

        peers["torchopt, implicit"] = implicit
        peers["torchopt, unrolled"] = unrolled
    except ImportError:
        pass
    try:
        import logging

        logging.disable(logging.CRITICAL)
        from betty.configs import Config, EngineConfig
        from betty.engine import Engine
        from betty.problems import ImplicitProblem

        def betty(kind):
            def hypergradient(problem):
                if problem["starts_from_lambda"]:
                    raise ValueError("an implicit derivative does not see where training starts")
                inner, outer, lam, theta = parts(problem)

                class Leaf(torch.nn.Module):
                    def __init__(self, value):
                        super().__init__()
                        self.value = torch.nn.Parameter(value.clone())

                    def forward(self):
                        return self.value

                class Outer(ImplicitProblem):
                    def training_step(self, batch):
                        return outer(self.inner(), self())

                class Inner(ImplicitProblem):
                    def training_step(self, batch):
                        return inner(self(), self.outer())

                def once():
                    upper, lower = Leaf(lam), Leaf(theta)
                    data = [(torch.zeros(1), torch.zeros(1))]
                    # A rate of 1 for one step of plain descent leaves λ less its hypergradient.
                    one = Outer(
                        name="outer", module=upper, optimizer=torch.optim.SGD(upper.parameters(), lr=1.0),
                        train_data_loader=data, config=Config(type=kind, retain_graph=True),
                    )
                    two = Inner(
                        name="inner", module=lower, optimizer=torch.optim.SGD(lower.parameters(), lr=problem["step"]),
                        train_data_loader=data,
                        config=Config(
                            type=kind, unroll_steps=problem["steps"], cg_iterations=theta.numel(), cg_alpha=1.0,
                            neumann_iterations=problem["steps"], neumann_alpha=problem["step"],
                        ),
                    )
                    engine = Engine(
                        config=EngineConfig(train_iters=problem["steps"], valid_step=10**9, logger_type="none"),
                        problems=[one, two], dependencies={"u2l": {one: [two]}, "l2u": {two: [one]}},
                    )
                    engine.run()
                    return lam - one.module.value

                return timed(problem, once)

            return hypergradient

        peers["betty, cg"] = betty("cg")
        peers["betty, neumann"] = betty("neumann")
    except ImportError:
        pass
    return peers


def main():
    problems = json.load(sys.stdin)
    peers = {}
    for family in (jax_peers, torch_peers):
        try:
            peers.update(family())
        except ImportError:
            pass
    for problem in problems:
        if problem["name"] not in LOSSES:
            continue
        for name, hypergradient in peers.items():
            line = {"problem": problem["name"], "peer": name}
            try:
                found, seconds = hypergradient(problem)
                if not np.isfinite(found).all():
                    raise ValueError("its hypergradient has numbers that are not finite")
                line.update(hypergradient=found, seconds=seconds)
            except Exception as error:  # What a library refuses is an answer.
                line["refused"] = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

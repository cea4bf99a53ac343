"""The cases of `bilevel-bench cpu` that are worth timing in PyTorch, on two threads; cpu_jax.py describes them.

    python cpu_torch.py [CASE ...]
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

torch.set_num_threads(2)
torch.manual_seed(0)


def uniform(*shape, k=0.05):
    return (torch.rand(*shape) * 2 - 1).mul(k).requires_grad_()


def timed(f, reps=9):
    """Median and best seconds per call, after one call that warms up."""
    f()
    seconds = []
    for _ in range(reps):
        start = time.perf_counter()
        f()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), min(seconds)


def say(case, seconds, unit="ms"):
    median, best = (round(s * {"ms": 1e3, "us": 1e6}[unit], 3) for s in seconds)
    print(json.dumps({"peer": "torch", "case": case, unit: median, "min_" + unit: best}), flush=True)


def derivatives(case, loss, p):
    say(case + "_grad", timed(lambda: torch.autograd.grad(loss(p), p)))
    v = [torch.randn_like(leaf) for leaf in p]

    def gradient_and_product():
        gradient = torch.autograd.grad(loss(p), p, create_graph=True)
        return torch.autograd.grad(gradient, p, grad_outputs=v)

    say(case + "_grad_hvp", timed(gradient_and_product))


def synth1d():
    scalar = dict(dtype=torch.float64)

    def iteration(lam, theta):
        g = h = torch.zeros((), **scalar)
        for m in range(100):
            theta = theta.detach().requires_grad_()
            inner = theta**3 / 3 - (1 - lam * lam) * theta
            (gradient,) = torch.autograd.grad(inner, theta, create_graph=True)
            new = theta - 0.005 * gradient + (2e-6 * 0.005) ** 0.5 * torch.randn((), **scalar)
            new = new.detach().requires_grad_()
            outer = (lam - new) ** 2 + (new - 0.5) ** 2
            f_lam, f_theta = torch.autograd.grad(outer, (lam, new))
            (mixed,) = torch.autograd.grad(gradient, lam, grad_outputs=f_theta)
            g = g - 0.005 * mixed
            if m >= 50:
                h = h + (f_lam + g) / 50
            theta = new
        return (lam - 0.005 * h).detach().requires_grad_(), theta

    def run():
        lam, theta = torch.tensor(0.1, requires_grad=True, **scalar), torch.tensor(0.1, **scalar)
        for _ in range(5):
            lam, theta = iteration(lam, theta)

    say("synth1d", [s / 5 for s in timed(run, reps=3)], "us")


def mlp():
    p = [uniform(784, 1000), uniform(1000), uniform(1000, 10), uniform(10)]
    x = torch.rand(1000, 784)
    y = torch.arange(1000) % 10
    derivatives("mlp", lambda p: F.cross_entropy(torch.tanh(x @ p[0] + p[1]) @ p[2] + p[3], y), p)


def conv64():
    c = 64
    p = [uniform(c, 3, 3, 3, k=0.2), *(uniform(c, c, 3, 3, k=0.06) for _ in range(3)), uniform(c * 25, 5)]
    x = torch.rand(25, 3, 84, 84)
    y = torch.arange(25) % 5

    def loss(p):
        h = x
        for w in p[:4]:
            h = F.max_pool2d(F.relu(F.conv2d(h, w, padding=1)), 2)
        return F.cross_entropy(h.flatten(1) @ p[4], y)

    derivatives("conv64", loss, p)


def vit_block():
    d, hidden, batch = 768, 3072, 8
    ones = lambda: torch.ones(d).requires_grad_()
    zeros = lambda: torch.zeros(d).requires_grad_()
    p = [ones(), zeros(), uniform(d, 3 * d, k=0.03), uniform(3 * d), uniform(d, d, k=0.03), uniform(d)]
    p += [ones(), zeros(), uniform(d, hidden, k=0.03), uniform(hidden), uniform(hidden, d, k=0.03), uniform(d)]
    x = torch.rand(batch, 197, d)

    def loss(p):
        a = F.layer_norm(x, (d,), p[0], p[1])
        q, k, v = (a @ p[2] + p[3]).view(batch, 197, 3, 12, 64).permute(2, 0, 3, 1, 4)
        a = (torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v).transpose(1, 2).reshape(batch, 197, d)
        h = x + a @ p[4] + p[5]
        o = h + F.gelu(F.layer_norm(h, (d,), p[6], p[7]) @ p[8] + p[9]) @ p[10] + p[11]
        return (o * o).sum() * 1e-6

    derivatives("vit_block", loss, p)


CASES = dict(synth1d=synth1d, mlp=mlp, conv64=conv64, vit_block=vit_block)
for name in sys.argv[1:] or CASES:
    CASES[name]()

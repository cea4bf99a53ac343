"""The cases of `bilevel-bench cpu` in JAX, on two threads.

    python cpu_jax.py [CASE ...]

Prints one JSON line per timed program: the median and the best of its repetitions.
"""
import json
import os
import statistics
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads=2"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
F32 = jnp.float32
key = jax.random.PRNGKey(0)


def uniform(*shape, k=0.05):
    global key
    key, sub = jax.random.split(key)
    return jax.random.uniform(sub, shape, minval=-k, maxval=k, dtype=F32)


def timed(f, *args, reps=9, calls=1):
    """Median and best seconds per call, after one call that compiles."""
    jax.block_until_ready(f(*args))
    seconds = []
    for _ in range(reps):
        start = time.perf_counter()
        for _ in range(calls):
            result = f(*args)
        jax.block_until_ready(result)
        seconds.append((time.perf_counter() - start) / calls)
    return statistics.median(seconds), min(seconds)


def say(case, seconds, unit="ms"):
    median, best = (round(s * {"ms": 1e3, "us": 1e6}[unit], 3) for s in seconds)
    print(json.dumps({"peer": "jax", "case": case, unit: median, "min_" + unit: best}), flush=True)


def derivatives(case, loss, p):
    """The gradient, and the gradient with a Hessian-vector product: the faster of two ways to compute it."""
    v = [uniform(*leaf.shape, k=1.0) for leaf in p]
    say(case + "_grad", timed(jax.jit(jax.grad(loss)), p))

    def reverse_over_reverse(p, v):
        gradient, vjp = jax.vjp(jax.grad(loss), p)
        return gradient, vjp(v)[0]

    def forward_over_reverse(p, v):
        return jax.jvp(jax.grad(loss), (p,), (v,))

    ways = [jax.jit(forward_over_reverse), jax.jit(reverse_over_reverse)]
    say(case + "_grad_hvp", min(timed(way, p, v) for way in ways))


def cross_entropy(logits, y):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))


def hpo_sgld(inner, outer, gamma, tau, burn_in, samples):
    """The hypergradient of HPO-SGLD, its whole chain in one compiled loop."""
    noise = (2 * tau * gamma) ** 0.5

    def hypergradient(lam, theta, key):
        def step(m, carried):
            theta, g, h, key = carried
            key, sub = jax.random.split(key)
            gradient, mixed = jax.vjp(lambda l: jax.grad(inner, 1)(l, theta), lam)
            theta = theta - gamma * gradient + noise * jax.random.normal(sub, theta.shape, theta.dtype)
            f_lam, f_theta = jax.grad(outer, (0, 1))(lam, theta)
            g = g - gamma * mixed(f_theta)[0]
            h = h + jnp.where(m >= burn_in, 1.0 / samples, 0.0).astype(h.dtype) * (f_lam + g)
            return theta, g, h, key

        zero = jnp.zeros_like(lam)
        theta, _, h, key = jax.lax.fori_loop(0, burn_in + samples, step, (theta, zero, zero, key))
        return h, theta, key

    return hypergradient


def synth1d():
    """One outer iteration of HPO-SGLD on the synthetic 1-D problem, B = M = 50, in f64; a run has 200 of them."""
    inner = lambda l, t: t**3 / 3 - (1 - l * l) * t
    outer = lambda l, t: (l - t) ** 2 + (t - 0.5) ** 2
    hypergradient = hpo_sgld(inner, outer, 0.005, 1e-6, 50, 50)

    @jax.jit
    def iteration(lam, theta, key):
        h, theta, key = hypergradient(lam, theta, key)
        return lam - 0.005 * h, theta, key

    def run(key):
        lam = theta = jnp.float64(0.1)
        for _ in range(200):
            lam, theta, key = iteration(lam, theta, key)
        return lam

    say("synth1d", [s / 200 for s in timed(run, jax.random.PRNGKey(1), reps=5)], "us")


def scalar():
    """The gradient of a cubic in one parameter, and the gradient with the second derivative, per call."""
    cubic = lambda x: x * x * x
    first = jax.grad(cubic)
    second = jax.grad(first)
    say("scalar_grad", timed(jax.jit(first), 1.5, calls=2000), "us")
    say("scalar_second", timed(jax.jit(lambda x: (first(x), second(x))), 1.5, calls=2000), "us")


def mlp():
    """784-1000-10 with tanh, cross entropy, batch 1000."""
    p = [uniform(784, 1000), uniform(1000), uniform(1000, 10), uniform(10)]
    x = uniform(1000, 784, k=1.0)
    y = jnp.arange(1000) % 10
    derivatives("mlp", lambda p: cross_entropy(jnp.tanh(x @ p[0] + p[1]) @ p[2] + p[3], y), p)


def conv64():
    """Four times 3x3 convolution with 64 channels, ReLU and 2x2 max pooling on 84x84x3, a head of 5 classes, batch 25."""
    c = 64
    p = [uniform(c, 3, 3, 3, k=0.2), *(uniform(c, c, 3, 3, k=0.06) for _ in range(3)), uniform(c * 25, 5)]
    x = uniform(25, 3, 84, 84, k=1.0)
    y = jnp.arange(25) % 5

    def loss(p):
        h = x
        for w in p[:4]:
            h = jax.lax.conv_general_dilated(h, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
            n, k, a, b = h.shape
            h = jax.nn.relu(h)[:, :, : a // 2 * 2, : b // 2 * 2].reshape(n, k, a // 2, 2, b // 2, 2).max((3, 5))
        return cross_entropy(h.reshape(25, -1) @ p[4], y)

    derivatives("conv64", loss, p)


def vit_block():
    """One block of ViT-B (width 768, 12 heads, MLP 3072) on 197 tokens, batch 8."""
    d, hidden, batch = 768, 3072, 8
    ones, zeros = jnp.ones(d, F32), jnp.zeros(d, F32)
    p = [ones, zeros, uniform(d, 3 * d, k=0.03), uniform(3 * d), uniform(d, d, k=0.03), uniform(d)]
    p += [ones, zeros, uniform(d, hidden, k=0.03), uniform(hidden), uniform(hidden, d, k=0.03), uniform(d)]
    x = uniform(batch, 197, d, k=1.0)

    def norm(x, gain, bias):
        c = x - x.mean(-1, keepdims=True)
        return c / jnp.sqrt((c * c).mean(-1, keepdims=True) + 1e-6) * gain + bias

    def loss(p):
        a = norm(x, p[0], p[1])
        q, k, v = (a @ p[2] + p[3]).reshape(batch, 197, 3, 12, 64).transpose(2, 0, 3, 1, 4)
        a = (jax.nn.softmax(q @ k.swapaxes(-1, -2) * 0.125) @ v).swapaxes(1, 2).reshape(batch, 197, d)
        h = x + a @ p[4] + p[5]
        o = h + jax.nn.gelu(norm(h, p[6], p[7]) @ p[8] + p[9], approximate=False) @ p[10] + p[11]
        return (o * o).sum() * 1e-6

    derivatives("vit_block", loss, p)


def digits():
    """One outer iteration of HPO-SGLD, B = M = 5: logistic regression on 898 digits, one L2 weight per parameter."""
    x, y = uniform(898, 64, k=1.0), jnp.arange(898) % 10
    xv, yv = uniform(899, 64, k=1.0), jnp.arange(899) % 10
    inner = lambda l, w: cross_entropy(x @ w.reshape(64, 10), y) + (jnp.exp(l) * w * w).sum()
    outer = lambda l, w: cross_entropy(xv @ w.reshape(64, 10), yv)
    hypergradient = jax.jit(hpo_sgld(inner, outer, 0.1, 1e-4, 5, 5))
    start = jnp.full(640, -5.0, F32), jnp.zeros(640, F32), jax.random.PRNGKey(2)
    say("digits", timed(hypergradient, *start), "us")


def wide():
    """Ten million hyperparameters, one L1 weight per parameter, elementwise losses: one outer iteration of HPO-SGLD with
    B = M = 5, its SGD step and the norm of the hypergradient."""
    n = 10_000_000
    inner = lambda l, t: 0.5 * jnp.square(t - 1).sum() + (l * jnp.abs(t)).sum()
    outer = lambda l, t: jnp.square(t - 0.8).sum()
    hypergradient = hpo_sgld(inner, outer, 0.1, 1e-6, 5, 5)

    def iteration(lam, theta, key):
        h, theta, key = hypergradient(lam, theta, key)
        return lam - 0.01 * h, theta, key, jnp.sqrt((h * h).sum())

    start = jnp.full(n, 0.01, F32), jnp.full(n, 0.5, F32), jax.random.key(2, impl="rbg")
    say("wide", timed(jax.jit(iteration), *start, reps=5))


CASES = dict(synth1d=synth1d, scalar=scalar, mlp=mlp, conv64=conv64, vit_block=vit_block, digits=digits, wide=wide)
for name in sys.argv[1:] or CASES:
    CASES[name]()

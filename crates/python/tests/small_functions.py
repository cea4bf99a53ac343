"""112 small functions of JAX, each with arguments: what losses are made of."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

a = jnp.linspace(0.1, 0.8, 4)
b = jnp.array([0.3, 0.5, 0.2, 0.9])
t = jnp.asarray(np.random.default_rng(0).normal(size=(8, 4)))
i = jnp.array([1, 2, 3])
u = jnp.ones((3, 4))
k = random.key(0)


@jax.custom_vjp
def straight_through(x):
    return jnp.round(x)


straight_through.defvjp(lambda x: (jnp.round(x), None), lambda kept, g: (g,))


def of(name):
    """jax.nn by name, weighted so that its derivative is not constant."""

    def function(x):
        y = getattr(jax.nn, name)(x)
        return (y * b[: y.size] if np.ndim(y) else y).sum()

    return function


FUNCTIONS = {}
for _name in "exp2 log2 log10 tan arctan arcsin arccos sinh cosh arcsinh arccosh arctanh cbrt square round ceil trunc".split():
    FUNCTIONS["jnp." + _name] = (lambda x, f=getattr(jnp, _name), up=_name == "arccosh": f(x + (1 if up else 0)).sum(), a)
for _name in (
    "softplus elu leaky_relu silu mish hard_swish gelu relu6 celu selu glu log_sigmoid soft_sign hard_tanh logsumexp softmax log_softmax "
    "standardize squareplus"
).split():
    FUNCTIONS["jax.nn." + _name] = (of(_name), a)

FUNCTIONS |= {
    "erfinv": (lambda x: jax.scipy.special.erfinv(x).sum(), a),
    "lgamma": (lambda x: lax.lgamma(x).sum(), a),
    "digamma": (lambda x: lax.digamma(x).sum(), a),
    "rsqrt": (lambda x: lax.rsqrt(x).sum(), a),
    "erf": (lambda x: lax.erf(x).sum(), a),
    "erfc": (lambda x: lax.erfc(x).sum(), a),
    "var": (lambda x: jnp.var(x), a),
    "std": (lambda x: jnp.std(x), a),
    "prod": (lambda x: jnp.prod(x), a),
    "min": (lambda x: jnp.min(x), a),
    "nan_to_num": (lambda x: jnp.nan_to_num(x).sum(), a),
    "arctan2": (lambda x, y: jnp.arctan2(x, y).sum(), a, b),
    "mod": (lambda x, y: jnp.mod(x, y).sum(), a, b),
    "hypot": (lambda x, y: jnp.hypot(x, y).sum(), a, b),
    "logaddexp": (lambda x, y: jnp.logaddexp(x, y).sum(), a, b),
    "floor_divide": (lambda x, y: (x // y).sum() + x.sum(), a, b),
    "where/and/or/not": (lambda x, y: jnp.where((x > 0.3) & ~(y > 0.4) | (x != y), x, y).sum(), a, b),
    "clip": (lambda x: jnp.clip(x, 0.2, 0.51).sum(), a),
    "power": (lambda x, y: jnp.power(x, y).sum(), a, b),
    "einsum": (lambda x, y: jnp.einsum("i,j->ij", x, y).var(), a, b),
    "roll": (lambda x: (jnp.roll(x, 1) * b).sum(), a),
    "flip": (lambda x: (jnp.flip(x) * b).sum(), a),
    "pad reflect": (lambda x: jnp.pad(x, 2, mode="reflect").var(), a),
    "tril": (lambda x, y: jnp.tril(jnp.outer(x, y)).sum(), a, b),
    "interp": (lambda x: jnp.interp(x, a, b).sum(), a + 0.01),
    "rfft": (lambda x: jnp.abs(jnp.fft.rfft(x)).sum(), a),
    "index": (lambda t: t[i].var(), t),
    "at.add": (lambda t: t.at[i].add(u).var(), t),
    "at.set": (lambda t: t.at[i].set(u).var(), t),
    "at.max": (lambda t: t.at[i].max(u).var(), t),
    "at.mul": (lambda t: t.at[i].multiply(2 * u).var(), t),
    "take_along_axis": (lambda t: jnp.take_along_axis(t, jnp.argmax(t, 1)[:, None], 1).var(), t),
    "segment_sum": (lambda u: jax.ops.segment_sum(u * t[:3], i, 8).var(), u),
    "segment_max": (lambda u: jax.ops.segment_max(u * t[:3], i, 8)[1:4].var(), u),
    "strided slice": (lambda t: t[2:5, ::2].var(), t),
    "neg index": (lambda t: t[-1].var(), t),
    "dynamic_slice": (lambda t: lax.dynamic_slice(t, (jnp.argmax(t[:, 0]), 0), (2, 2)).var(), t),
    "dynamic_update_slice": (lambda t: lax.dynamic_update_slice(t, u[:2], (jnp.argmax(t[:, 0]) * 0 + 2, 0)).var(), t),
    "cond": (lambda x: lax.cond(x[0] > 0, lambda x: (x**2).sum(), lambda x: -x.sum(), x), a),
    "switch": (lambda x: lax.switch(jnp.argmax(x) - 2, [lambda x: x.sum(), lambda x: (x**3).sum(), lambda x: x.max()], x), a),
    "fori static": (lambda x: lax.fori_loop(0, 5, lambda i, c: c * 1.1, x).var(), a),
    "while static": (lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1].var(), a),
    "while dynamic": (lambda x: lax.while_loop(lambda c: c.sum() < 5, lambda c: c * 2, x).var(), a),
    "map": (lambda t: lax.map(lambda r: r.var(), t).sum(), t),
    "assoc scan": (lambda x: lax.associative_scan(jnp.multiply, x).sum(), a),
    "solve": (lambda t: jnp.linalg.solve(t[:4] + 4 * jnp.eye(4), b).sum(), t),
    "cholesky": (lambda t: jnp.linalg.cholesky(t.T @ t + jnp.eye(4)).sum(), t),
    "slogdet": (lambda t: jnp.linalg.slogdet(t[:4] + 4 * jnp.eye(4))[1], t),
    "inv": (lambda t: jnp.linalg.inv(t[:4] + 4 * jnp.eye(4)).sum(), t),
    "eigh": (lambda t: jnp.linalg.eigh(t.T @ t)[0][0], t),
    "svd": (lambda t: jnp.linalg.svd(t)[1][0], t),
    "norm": (lambda t: jnp.linalg.norm(t), t),
    "expm": (lambda t: jax.scipy.linalg.expm(t[:4]).sum(), t),
    "sort": (lambda x: (jnp.sort(x) * b).sum(), b),
    "argsort": (lambda x: (x[jnp.argsort(x)] * b).sum(), b),
    "median": (jnp.median, b),
    "quantile": (lambda x: jnp.quantile(x, 0.3), b),
    "top_k": (lambda x: lax.top_k(x, 2)[0].var(), b),
    "searchsorted": (lambda x: jnp.searchsorted(a, x).sum() + x.sum(), b),
    "bincount/hist": (lambda x: (jnp.histogram(x, 4, (0, 1))[0] * a).sum() + x.sum(), b),
    "unique": (lambda x: jnp.unique(x, size=4).sum(), b),
    "r.normal": (lambda x: (random.normal(k, x.shape) * x).sum(), a),
    "r.permutation": (lambda x: random.permutation(k, x)[0], a),
    "r.randint": (lambda x: random.randint(k, (3,), 0, 9).sum() + x.sum(), a),
    "r.categorical": (lambda x: random.categorical(k, x) + x.sum(), a),
    "r.choice": (lambda x: random.choice(k, x, (2,)).sum(), a),
    "r.gamma": (lambda x: random.gamma(k, x).sum(), a),
    "r.truncated": (lambda x: random.truncated_normal(k, -1, 1, x.shape) @ x, a),
    "r.gumbel": (lambda x: random.gumbel(k, x.shape) @ x, a),
    "r.vmap keys": (lambda x: jax.vmap(lambda q, v: random.normal(q) * v)(random.split(k, 4), x).sum(), a),
    "complex": (lambda x: jnp.abs(x + 1j * x).sum(), a),
    "custom_vjp STE": (lambda x: (straight_through(3 * x) ** 2 * x).sum(), a),
    "pure_callback": (lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((4,), x.dtype), x).sum(), a),
    "maximum tie": (lambda x: jnp.maximum(x, 2 * x - x).sum(), a),
    "relu at 0": (lambda x: jax.nn.relu(x - x).sum(), a),
    "max tie": (lambda x: jnp.max(x * 0), a),
}

#: What the engine has no primitives for; refused with the user's line.
REFUSED = {
    "rfft", "complex", "while dynamic", "solve", "slogdet", "inv", "eigh", "svd", "pure_callback", "r.gamma",
}
#: Points at which there is no derivative, and each side has chosen one of the slopes on either side: JAX splits between equal elements.
TIES = {"max tie", "maximum tie"}

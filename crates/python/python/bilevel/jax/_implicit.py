"""`bilevel.jax.implicit`: the derivative of a minimum, for an outer loop of your own."""

import jax
import jax.numpy as jnp
import numpy as np

from ._problem import problem


def implicit(inner, params, *, train=None, method="ift-cg", **settings):
    """A function from λ to trained parameters that JAX can differentiate.

    `solve = implicit(inner, params0, train=…, step=0.1, steps=1000)` trains by the inner loss; `jax.grad(lambda lam: f(solve(lam)))(lam)` is the
    derivative of f at the end of training, by this method. `train` is given to `inner` as its last argument::

        solve = bilevel.jax.implicit(inner, {"w": np.zeros(5)}, train=data, step=0.1, steps=1000)
        slope = jax.grad(lambda lam: jnp.sum((solve(lam)["w"] - target) ** 2))(lam)
    """
    made = {}

    def built(lam, weights):
        """A problem whose outer loss is Σ weights·params: its hypergradient is the weights' product with dθ/dλ."""
        if "problem" not in made:
            zeros = jax.tree_util.tree_map(jnp.zeros_like, params)
            both = {"lam": lam, "weights": zeros}
            loss = (lambda both, p: inner(both["lam"], p)) if train is None else (lambda both, p, b: inner(both["lam"], p, b))
            outer = lambda both, p: sum(  # noqa: E731
                jnp.vdot(w, x) for w, x in zip(jax.tree_util.tree_leaves(both["weights"]), jax.tree_util.tree_leaves(p)))
            made["problem"] = problem(loss, outer, both, params, train=train)
        return made["problem"], {"lam": lam, "weights": weights}

    def trained(lam):
        one, both = built(lam, jax.tree_util.tree_map(jnp.zeros_like, params))
        step = {k: v for k, v in settings.items() if k in ("step", "steps", "inner_optimizer", "inner_schedule", "temperature", "burn_in")}
        return one.train(both, **step).params

    def pulled(lam, at, weights):
        one, both = built(lam, weights)
        return one.hypergradient(method, lam=both, params=params, **settings).value["lam"]

    shapes = jax.tree_util.tree_map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), params)

    @jax.custom_vjp
    def solve(lam):
        return jax.pure_callback(lambda v: _host(trained(v), shapes), shapes, lam)

    def forward(lam):
        at = solve(lam)
        return at, (lam, at)

    def backward(kept, weights):
        lam, at = kept
        like = jax.tree_util.tree_map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), lam)
        return (jax.pure_callback(lambda *a: _host(pulled(*a), like), like, lam, at, weights),)

    solve.defvjp(forward, backward)
    return solve


def _host(tree, like):
    return jax.tree_util.tree_map(lambda x, s: np.asarray(x, s.dtype), tree, like)



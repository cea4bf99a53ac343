"""Every small function has the value, the gradient and the Hessian product that JAX computes, or is refused with its line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bilevel._check import difference
from bilevel.errors import UnsupportedError
from bilevel.jax._lower import lower
from small_functions import FUNCTIONS, REFUSED, TIES

TOLERANCE = 1e-10


def lowered(function, arguments):
    return lower(function, list(arguments), [f"data/{n}" for n in range(len(arguments))], lambda y: [("loss", jax.tree_util.tree_leaves(y)[0])])


def evaluated(one, arguments, along):
    inputs = {f"data/{n}/value": np.asarray(x) for n, x in enumerate(arguments)}
    names = list(inputs)
    inputs |= {f"data/{n}": x for n, x in one.constants.items()}
    known = [n for n, _, _ in one.function.inputs]
    wrt = [n for n in names if n in known]
    found = one.function.evaluate([(n, inputs[n]) for n in known], wrt, [along[names.index(n)] for n in wrt])

    def full(part):
        values = dict(zip(wrt, part))
        return [values.get(n, np.zeros_like(x)) for n, x in zip(names, map(np.asarray, arguments))]

    return found[0], full(found[1 : 1 + len(wrt)]), full(found[1 + len(wrt) :])


def test_the_list_is_complete():
    assert len(FUNCTIONS) == 112
    assert len(REFUSED) <= 15


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in REFUSED])
def test_value_gradient_and_product_are_those_of_jax(name):
    function, *arguments = FUNCTIONS[name]
    arguments = tuple(arguments)
    everything = tuple(range(len(arguments)))
    rng = np.random.default_rng(1)
    along = [rng.normal(size=np.shape(x)) for x in arguments]
    one = lowered(function, arguments)
    value, gradient, product = evaluated(one, arguments, along)
    assert difference([value], [np.asarray(function(*arguments), float)]) <= TOLERANCE
    try:
        slope = jax.grad(lambda *x: jnp.asarray(function(*x), float), argnums=everything)
        expected = slope(*arguments)
        # By reverse mode twice, because a custom_vjp has no forward mode.
        bent = jax.grad(lambda *x: sum(jnp.vdot(g, v) for g, v in zip(slope(*x), along)), argnums=everything)(*arguments)
    except (NotImplementedError, ValueError):
        return  # JAX itself has no derivative here.
    if name in TIES:
        return
    assert difference(gradient, expected) <= TOLERANCE
    assert difference(product, bent) <= TOLERANCE


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_has_no_primitive_is_refused_with_the_line(name):
    function, *arguments = FUNCTIONS[name]
    with pytest.raises(UnsupportedError, match=r"small_functions\.py:\d+ "):
        lowered(function, arguments)


@jax.custom_jvp
def odd_slope(x):
    return jnp.sin(x)


@odd_slope.defjvp
def _(primals, tangents):
    # Not the derivative of the sine, and made of the function itself: its own derivative goes by this rule again.
    return odd_slope(*primals), (odd_slope(*primals) + 2.0) * tangents[0]


@jax.custom_vjp
def two_results(x, y):
    return x * y, jnp.sin(x)


def _two_forward(x, y):
    return two_results(x, y), (x, y)


def _two_backward(kept, g):
    x, y = kept
    return g[0] * y * 2.0 + g[1] * jnp.cos(x) ** 2, g[0] * x - g[1] * y


two_results.defvjp(_two_forward, _two_backward)


def reversal(x):
    @jax.custom_vjp
    def flip(x):
        return x

    flip.defvjp(lambda x: (x, None), lambda kept, g: (-0.5 * g,))
    return flip(x)


CUSTOM = {
    "jvp of itself": lambda x: (odd_slope(x) ** 2 * x).sum(),
    "vjp of two results": lambda x: (two_results(x, x * x)[0] * two_results(jnp.sin(x), x)[1]).sum(),
    "gradient reversal": lambda x: (jnp.tanh(reversal(x * x)) * x).sum(),
    "nested": lambda x: (odd_slope(reversal(odd_slope(x)) * x)).sum(),
    # In a scan, JAX forgets that a rule calls its own function, so this one does not.
    "under vmap and scan": lambda x: jax.lax.scan(lambda c, r: (jnp.sin(reversal(c * r)) + r, None), 0.7, x)[0]
    + jax.vmap(lambda r: two_results(r, r)[0])(x).sum(),
    "relu in a network": lambda x: (jax.nn.relu(x - 0.5) ** 2 * x + jax.nn.relu6(7 * x)).sum(),
    "a constant matrix": lambda x: (_with_matrix(x) * x).sum(),
}


@jax.custom_vjp
def _with_matrix(x):
    return x


_MATRIX = np.arange(16.0).reshape(4, 4) / 7
_with_matrix.defvjp(lambda x: (x, x), lambda kept, g: (_MATRIX @ (g * kept),))


@pytest.mark.parametrize("name", list(CUSTOM))
def test_custom_derivatives_hold_to_second_order(name):
    x = jnp.linspace(0.1, 0.9, 4)
    along = np.array([1.0, -0.5, 0.3, 0.8])
    function = CUSTOM[name]
    _, gradient, product = evaluated(lowered(function, [x]), [x], [along])
    slope = jax.grad(function)
    assert difference(gradient, [slope(x)]) <= TOLERANCE
    assert difference(product, [jax.grad(lambda x: slope(x) @ along)(x)]) <= TOLERANCE


def test_a_function_is_the_same_after_pickling():
    import pickle

    x = jnp.linspace(0.1, 0.9, 4)
    one = lowered(CUSTOM["nested"], [x])
    again = pickle.loads(pickle.dumps(one.function))
    inputs = [("data/0/value", np.asarray(x))]
    first, second = (f.evaluate(inputs, ["data/0/value"], [np.ones(4)]) for f in (one.function, again))
    assert all((p == q).all() for p, q in zip(first, second))

"""Models of flax and equinox have the value, the gradient and the Hessian product that JAX computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bilevel._check import difference
from bilevel.jax._lower import lower
from bilevel.jax._walk import Keys

linen = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")
equinox = pytest.importorskip("equinox")

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
IMAGES, LABELS = jnp.asarray(RNG.normal(size=(4, 16, 16, 3))), jnp.array([1, 3, 0, 9])
ROWS = jnp.asarray(RNG.normal(size=(8, 16)))
ROW_LABELS = jnp.asarray(RNG.integers(0, 10, 8))
TOKENS = jnp.asarray(RNG.integers(0, 64, (2, 12)))


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()


def perturbed(tree, dtype=jnp.float64):
    """Parameters away from their start, where nothing is trivially zero."""
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x) + 0.1 * rng.normal(size=np.shape(x)), dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def mlp(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


MLP = perturbed([(jnp.zeros((16, 32)), jnp.zeros(32)), (jnp.zeros((32, 10)), jnp.zeros(10))])


class Convolutional(linen.Module):
    @linen.compact
    def __call__(self, x, train):
        x = linen.Conv(8, (3, 3))(x)
        x = linen.relu(linen.BatchNorm(use_running_average=not train)(x))
        x = linen.max_pool(x, (2, 2), (2, 2))
        x = linen.gelu(linen.Conv(16, (3, 3), strides=2, feature_group_count=2)(x))
        x = linen.avg_pool(x, (2, 2), (2, 2))
        return linen.Dense(10)(x.reshape(x.shape[0], -1))


class Block(linen.Module):
    heads: int

    @linen.compact
    def __call__(self, x, mask=None):
        a = linen.LayerNorm()(x)
        x = x + linen.MultiHeadDotProductAttention(self.heads)(a, a, mask=mask)
        b = linen.LayerNorm()(x)
        return x + linen.Dense(x.shape[-1])(linen.gelu(linen.Dense(4 * x.shape[-1])(b)))


class VisionTransformer(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.Conv(16, (4, 4), strides=4, padding="VALID")(x)
        x = x.reshape(x.shape[0], -1, 16)
        first = self.param("class", linen.initializers.zeros, (1, 1, 16))
        x = jnp.concatenate([jnp.tile(first, (x.shape[0], 1, 1)), x], 1)
        x = x + self.param("place", linen.initializers.normal(), (1, x.shape[1], 16))
        for _ in range(2):
            x = Block(4)(x)
        return linen.Dense(10)(linen.LayerNorm()(x)[:, 0])


class LanguageModel(linen.Module):
    @linen.compact
    def __call__(self, tokens):
        embedding = linen.Embed(64, 16)
        x = embedding(tokens) + linen.Embed(12, 16)(jnp.arange(tokens.shape[1]))[None]
        for _ in range(2):
            x = Block(4)(x, linen.make_causal_mask(tokens))
        return embedding.attend(linen.LayerNorm()(x))


class EquinoxConvolutional(equinox.Module):
    convolution: equinox.nn.Conv2d
    pool: equinox.nn.MaxPool2d
    norm: equinox.nn.GroupNorm
    last: equinox.nn.Linear

    def __call__(self, x):
        return self.last(self.pool(jax.nn.silu(self.norm(self.convolution(x)))).ravel())


def linen_convolutional(train):
    model = Convolutional()
    variables = model.init(KEY, IMAGES, True)
    params, statistics = perturbed(variables["params"]), jax.tree.map(lambda x: jnp.abs(x) + 0.5, perturbed(variables["batch_stats"]))

    def loss(params):
        if train:
            return cross_entropy(model.apply({"params": params, "batch_stats": statistics}, IMAGES, True, mutable=["batch_stats"])[0], LABELS)
        return cross_entropy(model.apply({"params": params, "batch_stats": statistics}, IMAGES, False), LABELS)

    return loss, params


def nnx_convolutional():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.convolution = nnx.Conv(3, 4, (3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(4, rngs=rngs)
            self.last = nnx.Linear(4 * 256, 10, rngs=rngs)

        def __call__(self, x):
            return self.last(nnx.relu(self.norm(self.convolution(x))).reshape(x.shape[0], -1))

    graph, params, rest = nnx.split(Model(nnx.Rngs(0)), nnx.Param, ...)
    # The running statistics are traced with the parameters, because the model changes them.
    both = {"params": perturbed(params), "rest": perturbed(rest)}
    return (lambda both: cross_entropy(nnx.merge(graph, both["params"], both["rest"])(IMAGES), LABELS)), both


def applied(model, *inputs):
    params = perturbed(model.init(KEY, *inputs))
    return lambda params: model.apply(params, *inputs), params


def vision_transformer():
    apply, params = applied(VisionTransformer(), IMAGES)
    return (lambda p: cross_entropy(apply(p), LABELS)), params


def language_model():
    apply, params = applied(LanguageModel(), TOKENS)
    return (lambda p: cross_entropy(apply(p)[:, :-1], TOKENS[:, 1:])), params


def equinox_mlp():
    params, rest = equinox.partition(equinox.nn.MLP(16, 10, 32, 2, key=KEY), equinox.is_inexact_array)
    return (lambda p: cross_entropy(jax.vmap(equinox.combine(p, rest))(ROWS), ROW_LABELS)), perturbed(params)


def equinox_convolutional():
    model = EquinoxConvolutional(
        equinox.nn.Conv2d(3, 8, 3, padding=1, key=KEY), equinox.nn.MaxPool2d(2, 2), equinox.nn.GroupNorm(2, 8),
        equinox.nn.Linear(8 * 64, 10, key=KEY))
    params, rest = equinox.partition(model, equinox.is_inexact_array)
    images = IMAGES.transpose(0, 3, 1, 2)
    return (lambda p: cross_entropy(jax.vmap(equinox.combine(p, rest))(images), LABELS)), perturbed(params)


def lora():
    adapters = perturbed([(jnp.zeros((16, 2)), jnp.zeros((2, 32))), (jnp.zeros((32, 2)), jnp.zeros((2, 10)))])
    return (lambda a: cross_entropy(mlp([(w + u @ v * 0.5, b) for (w, b), (u, v) in zip(MLP, a)], ROWS), ROW_LABELS)), adapters


def recurrent():
    params = perturbed({"w": jnp.zeros((16, 12)), "u": jnp.zeros((12, 12)), "b": jnp.zeros(12), "o": jnp.zeros((12, 10))})
    sequence = jnp.asarray(RNG.normal(size=(5, 8, 16)))

    def loss(p):
        step = lambda h, x: (jnp.tanh(x @ p["w"] + h @ p["u"] + p["b"]),) * 2  # noqa: E731
        return cross_entropy(jax.lax.scan(step, jnp.zeros((8, 12)), sequence)[0] @ p["o"], ROW_LABELS)

    return loss, params


def ensemble():
    params = perturbed(jax.tree.map(lambda a: jnp.stack([a] * 3), MLP))
    return (lambda ps: jax.vmap(lambda p: cross_entropy(mlp(p, ROWS), ROW_LABELS))(ps).mean()), params


def rematerialised():
    weights = perturbed(jnp.zeros((4, 16, 16)))
    layer = jax.checkpoint(lambda h, w: (jnp.tanh(h @ w), None))
    return (lambda ws: (jax.lax.scan(layer, ROWS, ws)[0] ** 3).mean()), weights


def learned_in_the_loss():
    loss = lambda p: cross_entropy(mlp(p, ROWS), ROW_LABELS)  # noqa: E731
    return (lambda p: loss(jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(loss)(p)))), MLP


def attention():
    q = perturbed(jnp.zeros((2, 8, 4, 8)))
    return (lambda q: (jax.nn.dot_product_attention(q, q * 0.5, q + 1, is_causal=True) ** 2).sum()), q


def convolutions():
    params = perturbed({"line": jnp.zeros((3, 3, 4)), "space": jnp.zeros((2, 2, 3, 3, 3)), "back": jnp.zeros((3, 3, 2, 3))})
    a, b, c = (jnp.asarray(RNG.normal(size=s)) for s in ((2, 8, 3), (1, 2, 4, 4, 4), (1, 4, 4, 2)))

    def loss(p):
        line = jax.lax.conv_general_dilated(a, p["line"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
        return (line**2).sum() + (jax.lax.conv_general_dilated(b, p["space"], (1, 1, 1), "SAME") ** 2).sum() + (
            jax.lax.conv_transpose(c, p["back"], (2, 2), "SAME") ** 2).sum()

    return loss, params


MODELS = {
    "MLP with penalties": lambda: (lambda p: cross_entropy(mlp(p, ROWS), ROW_LABELS) + sum((jnp.exp(-w) * w**2).sum() for w, _ in p), MLP),
    "linen CNN with batch norm, training": lambda: linen_convolutional(True),
    "linen CNN with batch norm, evaluation": lambda: linen_convolutional(False),
    "nnx CNN with batch norm": nnx_convolutional,
    "linen ViT": vision_transformer,
    "linen GPT-2-like": language_model,
    "equinox MLP": equinox_mlp,
    "equinox CNN": equinox_convolutional,
    "LoRA": lora,
    "scan RNN": recurrent,
    "vmapped ensemble": ensemble,
    "remat and scan over layers": rematerialised,
    "a gradient inside the loss": learned_in_the_loss,
    "attention": attention,
    "convolutions over one, two and three axes": convolutions,
}
#: Computed in 32 bits by the framework whatever the parameters are.
IN_F32 = {"attention": 1e-5}


@pytest.mark.parametrize("name", list(MODELS))
def test_a_model_has_the_derivatives_of_jax(name):
    loss, params = MODELS[name]()
    one = lower(loss, [params], ["theta"], lambda y: [("loss", y)])
    flat = {f"theta/{k}": np.asarray(v) for k, v in zip(_names(params), jax.tree.leaves(params))}
    rng = np.random.default_rng(2)
    along = {k: rng.normal(size=v.shape) for k, v in flat.items()}
    inputs = {**flat, **{f"data/{k}": v for k, v in one.constants.items()}}
    known = [n for n, _, _ in one.function.inputs]
    wrt = [n for n in flat if n in known]
    found = one.function.evaluate([(n, inputs[n]) for n in known], wrt, [along[n] for n in wrt])
    slope = jax.grad(loss)
    structure = jax.tree.structure(params)
    vector = jax.tree.unflatten(structure, [jnp.asarray(along[n], flat[n].dtype) for n in flat])
    value, gradient, product = jax.jit(lambda p: (loss(p), slope(p), jax.jvp(slope, (p,), (vector,))[1]))(params)
    full = lambda part: [dict(zip(wrt, part)).get(n, np.zeros_like(flat[n])) for n in flat]  # noqa: E731
    tolerance = IN_F32.get(name, 1e-10)
    assert difference([found[0]], [value]) <= tolerance
    assert difference(full(found[1 : 1 + len(wrt)]), jax.tree.leaves(gradient)) <= tolerance
    assert difference(full(found[1 + len(wrt) :]), jax.tree.leaves(product)) <= tolerance


def _names(tree):
    from bilevel.jax._lower import leaf_names

    return leaf_names(tree)[0]


def test_dropout_of_a_model_draws_from_streams():
    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.Dropout(0.4, deterministic=False)(linen.Dense(32)(x))
            return linen.Dense(10)(linen.Dropout(0.2, deterministic=False)(x))

    model = Net()
    params = model.init({"params": KEY, "dropout": KEY}, ROWS)
    one = lower(lambda p, k: model.apply(p, ROWS, rngs={"dropout": k}).mean(), [params, KEY], ["theta", None], lambda y: [("loss", y)])
    assert one.function.is_random and len(one.streams) == 2
    assert isinstance(Keys.root("key", ()), Keys)

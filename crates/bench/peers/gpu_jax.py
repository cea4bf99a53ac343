"""The cases of `bilevel-bench cuda` in JAX, on one GPU.

    python gpu_jax.py [CASE ...] [tf32] [bf16]

Each case is compiled as a whole. Prints one JSON line per case and precision: the median and the best of its repetitions,
the seconds of the first call, which compiles, and the peak memory of the process so far.
"""
import json
import math
import sys
import time

import jax
import jax.numpy as jnp
from jax import lax

tree_map, leaves = jax.tree.map, jax.tree.leaves
NHWC = ("NHWC", "HWIO", "NHWC")


def timed(case, precision, f, args, reps=7, keep=False):
    """Times f(*args); with keep, the first results of one call replace the first arguments of the next."""
    seconds = []
    for _ in range(reps + 2):
        start = time.perf_counter()
        out = f(*args)
        jax.block_until_ready(out)
        seconds.append(time.perf_counter() - start)
        if keep:
            args = (*out, *args[len(out) :])
    first, sorted_ = seconds[0], sorted(seconds[2:])
    peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    line = dict(peer="jax", case=case, ms=round(1e3 * sorted_[len(sorted_) // 2], 2), min_ms=round(1e3 * sorted_[0], 2))
    line.update(prec=precision, peak_gb=round(peak / 2**30, 2), first_s=round(first, 1))
    print(json.dumps(line), flush=True)


def cross_entropy(logits, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1).mean()


def normal(keys, *shape, scale):
    return jax.random.normal(next(keys), shape) * scale


def keys(count):
    return iter(jax.random.split(jax.random.PRNGKey(0), count))


def inner_product(a, b):
    return sum(jnp.vdot(u, v) for u, v in zip(leaves(a), leaves(b)))


def float_type(precision):
    return jnp.bfloat16 if precision == "bf16" else jnp.float32


# ViT-B/16 with one L1 weight per parameter: 86 million of each, batch 8.

WIDTH, HEADS, LAYERS, HIDDEN, CLASSES, TOKENS = 768, 12, 12, 3072, 37, 197
GAMMA, NOISE, STEPS = 0.01, 1e-6 * (2 * 0.001 * 0.01) ** 0.5, 10


def vit():
    k = keys(200)
    n = lambda *shape: normal(k, *shape, scale=0.02)
    # Arrays of their own for all leaves: a buffer can be donated only once.
    layer = lambda inputs, outputs: (n(inputs, outputs), jnp.zeros(outputs))
    norm = lambda: (jnp.ones(WIDTH), jnp.zeros(WIDTH))
    block = lambda: dict(norm1=norm(), qkv=layer(WIDTH, 3 * WIDTH), proj=layer(WIDTH, WIDTH),
                         norm2=norm(), fc1=layer(WIDTH, HIDDEN), fc2=layer(HIDDEN, WIDTH))
    return dict(patch=layer(768, WIDTH), cls=n(1, 1, WIDTH), pos=n(1, TOKENS, WIDTH), norm=norm(),
                head=layer(WIDTH, CLASSES), blocks=[block() for _ in range(LAYERS)])


def layer_norm(x, p):
    c = x - x.mean(-1, keepdims=True)
    return c * lax.rsqrt((c**2).mean(-1, keepdims=True) + 1e-6) * p[0] + p[1]


def dense(x, p):
    return x @ p[0] + p[1]


def vit_loss(precision):
    dtype = float_type(precision)

    def loss(p, x, y):
        p = tree_map(lambda a: a.astype(dtype), p)
        b = x.shape[0]
        x = x.astype(dtype).reshape(b, 3, 14, 16, 14, 16).transpose(0, 2, 4, 1, 3, 5).reshape(b, 196, 768)
        x = jnp.concatenate([jnp.broadcast_to(p["cls"], (b, 1, WIDTH)), dense(x, p["patch"])], 1) + p["pos"]
        for block in p["blocks"]:
            h = dense(layer_norm(x, block["norm1"]), block["qkv"])
            q, k, v = h.reshape(b, TOKENS, 3, HEADS, WIDTH // HEADS).transpose(2, 0, 3, 1, 4)
            a = jax.nn.softmax(q @ k.swapaxes(-1, -2) * (WIDTH // HEADS) ** -0.5) @ v
            x = x + dense(a.transpose(0, 2, 1, 3).reshape(b, TOKENS, WIDTH), block["proj"])
            h = jax.nn.gelu(dense(layer_norm(x, block["norm2"]), block["fc1"]), approximate=False)
            x = x + dense(h, block["fc2"])
        return cross_entropy(dense(layer_norm(x[:, 0], p["norm"]), p["head"]).astype(jnp.float32), y)

    return loss


def vit_start():
    k = jax.random.PRNGKey(0)
    theta = vit()
    x, y = jax.random.normal(k, (8, 3, 224, 224)), jnp.arange(8) % CLASSES
    return tree_map(lambda t: jnp.full_like(t, 1e-4), theta), theta, (x, y), (x + 1, y)


def langevin(theta, gradient, lam, key):
    """One step of the chain, the L1 penalty's gradient added by hand."""
    t, tree = jax.tree.flatten(theta)
    each = zip(t, leaves(gradient), leaves(lam), jax.random.split(key, len(t)))
    step = lambda t, g, l, k: t - GAMMA * (g + l * jnp.sign(t)) + NOISE * jax.random.normal(k, t.shape)
    return tree.unflatten([step(*one) for one in each])


def sgd(lam, h):
    return tree_map(lambda l, d: jnp.maximum(l - 0.01 * d, 0), lam, h)


def l1reg(precision):
    """One outer iteration of HPO-SGLD, B = M = 5. The mixed product of the L1 penalty is written by hand: v·sign θ."""
    loss = vit_loss(precision)

    def outer(lam, theta, key, train, valid):
        def body(m, carried):
            theta, g, h, key = carried
            key, sub = jax.random.split(key)
            new = langevin(theta, jax.grad(loss)(theta, *train), lam, sub)
            f = jax.grad(loss)(new, *valid)
            g = tree_map(lambda a, t, v: a - GAMMA * jnp.sign(t) * v, g, theta, f)
            h = tree_map(lambda a, v: a + jnp.where(m >= STEPS // 2, 2 / STEPS, 0.0) * v, h, g)
            return new, g, h, key

        zero = tree_map(jnp.zeros_like, theta)
        theta, _, h, key = lax.fori_loop(0, STEPS, body, (theta, zero, zero, key))
        return sgd(lam, h), theta, key

    lam, theta, train, valid = vit_start()
    args = lam, theta, jax.random.key(0, impl="rbg"), train, valid
    timed("l1reg", precision, jax.jit(outer, donate_argnums=(0, 1)), args, reps=5, keep=True)


def vit_adjoint(precision):
    """One outer iteration of the Langevin adjoint over ten steps, the mixed product by hand as well."""
    loss = vit_loss(precision)

    def outer(lam, theta, adjoint, key, train, valid):
        def body(_, carried):
            theta, z, h, key = carried
            key, sub = jax.random.split(key)
            gradient, product = jax.jvp(lambda t: jax.grad(loss)(t, *train), (theta,), (z,))
            f = jax.grad(loss)(theta, *valid)
            h = tree_map(lambda a, v, t: a - v * jnp.sign(t) / STEPS, h, z, theta)
            z = tree_map(lambda a, b, c: a + GAMMA * (b - c), z, f, product)
            return langevin(theta, gradient, lam, sub), z, h, key

        zero = tree_map(jnp.zeros_like, lam)
        theta, adjoint, h, key = lax.fori_loop(0, STEPS, body, (theta, adjoint, zero, key))
        return sgd(lam, h), theta, adjoint

    lam, theta, train, valid = vit_start()
    args = lam, theta, tree_map(jnp.zeros_like, theta), jax.random.key(0, impl="rbg"), train, valid
    timed("vit_adjoint", precision, jax.jit(outer), args, reps=5)


# Convolutional networks.


def conv(x, w, stride=1):
    return lax.conv_general_dilated(x, w.astype(x.dtype), (stride, stride), "SAME", dimension_numbers=NHWC)


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def batch_norm(x, p):
    c = x - x.mean((0, 1, 2))
    return c * lax.rsqrt((c**2).mean((0, 1, 2)) + 1e-5) * p[0] + p[1]


def maml(precision):
    """The exact MAML gradient of Conv4-64: 32 tasks of 5 classes, 1 example and 15 queries per class, 28x28x1, 5 steps."""
    k = keys(5)
    blocks = [(normal(k, 3, 3, c, 64, scale=0.05), (jnp.ones(64), jnp.zeros(64))) for c in (1, 64, 64, 64)]
    p = dict(blocks=blocks, head=(normal(k, 64, 5, scale=0.05), jnp.zeros(5)))

    def net(p, x):
        for w, n in p["blocks"]:
            x = max_pool(jax.nn.relu(batch_norm(conv(x, w), n)))
        return dense(x.reshape(x.shape[0], -1), p["head"])

    def task(p, xs, ys, xq, yq):
        for _ in range(5):
            p = tree_map(lambda a, g: a - 0.4 * g, p, jax.grad(lambda p: cross_entropy(net(p, xs), ys))(p))
        return cross_entropy(net(p, xq), yq)

    f = jax.jit(jax.value_and_grad(lambda p, *data: jax.vmap(lambda *one: task(p, *one))(*data).mean()))
    k = jax.random.PRNGKey(0)
    y = jnp.tile(jnp.arange(5), (32, 1))
    support, queries = jax.random.normal(k, (32, 5, 28, 28, 1)), jax.random.normal(k, (32, 75, 28, 28, 1))
    timed("maml", precision, f, (p, support, y, queries, jnp.tile(y, (1, 15))))


def invariance(precision):
    """One outer iteration of HPO-SGLD, B = 4 and M = 1, on learned invariances: 1000 images of 28x28, each through 31 affine
    maps, and an MLP 784-1000-10 with tanh."""
    generators = jnp.array(
        [[[0, 0, 1], [0, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 1], [0, 0, 0]], [[0, -1, 0], [1, 0, 0], [0, 0, 0]],
         [[1, 0, 0], [0, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 1, 0], [0, 0, 0]], [[0, 1, 0], [1, 0, 0], [0, 0, 0]]],
        jnp.float32)
    line = (jnp.arange(28) * 2 + 1) / 28 - 1
    grid = jnp.stack([*jnp.meshgrid(line, line, indexing="xy"), jnp.ones((28, 28))], -1).reshape(-1, 3)

    def expm(a):
        """exp a as (exp a/8)⁸, the series to the sixth power."""
        a = a / 8
        total, term = jnp.eye(3) + a, a
        for k in range(2, 7):
            term = term @ a / k
            total = total + term
        for _ in range(3):
            total = total @ total
        return total

    def warp(image, a):
        """Bilinear, zero outside."""
        place = ((grid @ a.T)[:, :2] + 1) * 14 - 0.5
        corner = jnp.floor(place)
        w, i = place - corner, corner.astype(jnp.int32)
        out = 0.0
        for dx in (0, 1):
            for dy in (0, 1):
                x, y = i[:, 0] + dx, i[:, 1] + dy
                inside = (x >= 0) & (x < 28) & (y >= 0) & (y < 28)
                v = image[jnp.clip(y, 0, 27), jnp.clip(x, 0, 27)] * inside
                out = out + v * (w[:, 0] if dx else 1 - w[:, 0]) * (w[:, 1] if dy else 1 - w[:, 1])
        return out

    def loss(lam, theta, x, y, key):
        draws = jax.random.uniform(key, (1000, 31, 6), minval=-1, maxval=1)
        maps = jax.vmap(jax.vmap(lambda e: expm(jnp.tensordot(e * lam, generators, 1))))(draws)
        views = jax.vmap(lambda image, each: jax.vmap(lambda a: warp(image, a))(each))(x, maps)
        return cross_entropy(dense(jnp.tanh(dense(views, theta[0])), theta[1]).mean(1), y)

    def outer(lam, theta, x, y, xv, yv, key):
        g = jnp.zeros(6)
        for m in range(5):
            k1, k2 = jax.random.split(jax.random.fold_in(key, m))
            gradient = lambda l: jax.grad(loss, 1)(l, theta, x, y, k1)
            new = tree_map(lambda t, d: t - 0.05 * d, theta, gradient(lam))
            reward = lambda l, t: loss(l, t, xv, yv, k2) - 0.01 * (l**2).sum()
            f_lam, f_theta = jax.grad(reward, (0, 1))(lam, new)
            g = g - 0.05 * jax.grad(lambda l: inner_product(gradient(l), f_theta))(lam)
            theta = new
        return lam - 0.01 * (f_lam + g), theta

    k = keys(2)
    theta = [(normal(k, 784, 1000, scale=0.03), jnp.zeros(1000)), (normal(k, 1000, 10, scale=0.03), jnp.zeros(10))]
    key = jax.random.PRNGKey(0)
    x, y = jax.random.uniform(key, (1000, 28, 28)), jnp.arange(1000) % 10
    timed("invariance", precision, jax.jit(outer), (jnp.full(6, 0.05), theta, x, y, x[::-1], y[::-1], key), reps=5)


def alexnet_loss(precision):
    """One outer iteration of HPO-SGLD, B = 8 and M = 2, on the 8 coefficients of a learned loss: AlexNet for 32x32, batch 32."""
    layers = [(3, 64, True), (64, 192, True), (192, 384, False), (384, 256, False), (256, 256, True)]
    k = keys(9)
    he = lambda *shape: normal(k, *shape, scale=math.sqrt(2 / math.prod(shape[:-1])))
    p = dict(conv=[(he(3, 3, i, o), jnp.zeros(o)) for i, o, _ in layers],
             dense=[(he(i, o), jnp.zeros(o)) for i, o in ((4096, 1024), (1024, 512), (512, 10))])

    def net(p, x):
        for (w, b), (_, _, pooled) in zip(p["conv"], layers):
            x = jax.nn.relu(conv(x, w) + b)
            x = max_pool(x) if pooled else x
        x = x.reshape(x.shape[0], -1)
        for layer in p["dense"][:2]:
            x = jax.nn.relu(dense(x, layer))
        return dense(x, p["dense"][2])

    def inner(l, p, x, y):
        q, o = jax.nn.softmax(net(p, x)) - l[1], jax.nn.one_hot(y, 10) - l[0]
        terms = l[2] * q + l[3] / 2 * q**2 + l[4] / 6 * q**3 + l[5] * q * o + l[6] / 2 * q**2 * o + l[7] / 2 * q * o**2
        return -terms.mean(1).mean()

    def outer(l, p, x, y, xv, yv):
        def body(m, carried):
            p, g, h = carried
            gradient = lambda l: jax.grad(inner, 1)(l, p, x[m], y[m])
            new = tree_map(lambda t, d: t - 0.01 * d, p, gradient(l))
            f = jax.grad(lambda t: cross_entropy(net(t, xv[m]), yv[m]))(new)
            g = g - 0.01 * jax.grad(lambda a: inner_product(gradient(a), f))(l)
            return new, g, h + jnp.where(m >= 8, 0.5, 0.0) * g

        p, _, h = lax.fori_loop(0, 10, body, (p, jnp.zeros(8), jnp.zeros(8)))
        return l - 0.01 * h, p

    x = jax.random.normal(jax.random.PRNGKey(0), (10, 32, 32, 32, 3))
    y = jnp.tile(jnp.arange(32) % 10, (10, 1))
    timed("alexnet_loss", precision, jax.jit(outer), (jnp.full(8, 0.5), p, x, y, x[::-1], y))


def wide_resnet(precision):
    """WRN-28-10 on 100 classes, batch 128: its loss, parameters and batch."""
    dtype = float_type(precision)
    k = keys(64)
    he = lambda *shape: normal(k, *shape, scale=math.sqrt(2 / math.prod(shape[:-1])))
    norm = lambda c: (jnp.ones(c), jnp.zeros(c))
    blocks, inputs = [], 16
    first = he(3, 3, 3, 16)
    for outputs in (160, 320, 640):
        for _ in range(4):
            block = dict(norm1=norm(inputs), conv1=he(3, 3, inputs, outputs), norm2=norm(outputs),
                         conv2=he(3, 3, outputs, outputs))
            if inputs != outputs:
                block["shortcut"] = he(1, 1, inputs, outputs)
            blocks.append(block)
            inputs = outputs
    p = dict(first=first, blocks=blocks, norm=norm(640), head=(jnp.zeros((640, 100)), jnp.zeros(100)))

    def activated(x, n):
        return jax.nn.relu(batch_norm(x.astype(jnp.float32), n))

    def loss(p, x, y):
        x = conv(x.astype(dtype), p["first"])
        for j, block in enumerate(p["blocks"]):
            stride = 2 if j in (4, 8) else 1
            h = activated(x, block["norm1"]).astype(dtype)
            x = conv(h, block["shortcut"], stride) if "shortcut" in block else x
            h = activated(conv(h, block["conv1"], stride), block["norm2"]).astype(dtype)
            x = x + conv(h, block["conv2"])
        return cross_entropy(dense(activated(x, p["norm"]).mean((1, 2)), p["head"]), y)

    x = jax.random.normal(jax.random.PRNGKey(0), (128, 32, 32, 3))
    return loss, p, (x, jnp.arange(128) % 100)


def wrn_grad(precision):
    """The gradient of WRN-28-10."""
    loss, p, batch = wide_resnet(precision)
    timed("wrn_grad", precision, jax.jit(jax.grad(loss)), (p, *batch))


def wrn_hvp(precision):
    """The gradient of WRN-28-10 and a Hessian-vector product."""
    loss, p, batch = wide_resnet(precision)
    product = jax.jit(lambda p, v, *batch: jax.jvp(lambda q: jax.grad(loss)(q, *batch), (p,), (v,)))
    timed("wrn_hvp", precision, product, (p, tree_map(lambda a: a * 0.01 + 0.001, p), *batch), reps=5)


CASES = dict(l1reg=l1reg, vit_adjoint=vit_adjoint, maml=maml, invariance=invariance, alexnet_loss=alexnet_loss,
             wrn_grad=wrn_grad, wrn_hvp=wrn_hvp)
# Cases that compute in f32 whatever is asked for.
F32_ONLY = ("maml", "invariance", "alexnet_loss")
PRECISIONS = dict(tf32="tensorfloat32", bf16="default")

for precision in [word for word in sys.argv[1:] if word in PRECISIONS] or PRECISIONS:
    jax.config.update("jax_default_matmul_precision", PRECISIONS[precision])
    for name in [word for word in sys.argv[1:] if word not in PRECISIONS] or CASES:
        if precision == "tf32" or name not in F32_ONLY:
            CASES[name](precision)

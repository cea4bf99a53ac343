"""PyTorch models have the value, the gradient and the Hessian product that PyTorch computes, and problems of them run."""

import bilevel as bl
import numpy as np
import pytest
import torch
from bilevel._check import difference
from bilevel.errors import DataError, ProblemError, UnsupportedError
from bilevel.torch._lower import array_of, export, lower
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)


class Supervised(nn.Module):
    """A model with its cross entropy, or the sum of its squared outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y=None):
        out = self.model(x)
        return out.square().mean() if y is None else F.cross_entropy(out, y)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(6, 8, batch_first=True)

    def forward(self, x):
        return self.cell(x)[0]


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Linear(6 * 16, 10)

    def forward(self, x):
        return self.last(F.max_pool2d(torch.relu(self.norm(self.first(x))), 2).flatten(1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.embedding(tokens))).flatten(0, 1)


def images(size=8, count=4):
    return torch.randn(count, 3, size, size, dtype=torch.float64)


def torchvision(name, **options):
    vision = pytest.importorskip("torchvision")
    return getattr(vision.models, name)(**options)


rows = lambda: torch.randn(8, 16, dtype=torch.float64)  # noqa: E731
labels = lambda n: torch.randint(0, 10, (n,))  # noqa: E731
sequence = lambda: torch.randn(2, 5, 6, dtype=torch.float64)  # noqa: E731

MODELS = {
    "MLP": lambda: (nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 10)), (rows(), labels(8)), False),
    "activations": lambda: (
        nn.Sequential(nn.Linear(16, 12), nn.GELU(), nn.Linear(12, 12), nn.SiLU(), nn.Linear(12, 12), nn.ELU(), nn.LayerNorm(12), nn.Softplus(),
                      nn.LeakyReLU(), nn.Linear(12, 10), nn.Tanh()), (rows(), labels(8)), False),
    "CNN, training": lambda: (Convolutional(), (images(), labels(4)), True),
    "CNN, evaluation": lambda: (Convolutional(), (images(), labels(4)), False),
    "group norm and transposed convolution": lambda: (
        nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1), nn.AvgPool2d(2)),
        (images(),), False),
    "LSTM": lambda: (Recurrent(nn.LSTM), (sequence(),), False),
    "GRU": lambda: (Recurrent(nn.GRU), (sequence(),), False),
    "TransformerEncoder": lambda: (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, dropout=0.0), 2, enable_nested_tensor=False),
        (torch.randn(2, 4, 8, dtype=torch.float64),), True),
    "resnet18, evaluation": lambda: (torchvision("resnet18", num_classes=10), (images(32, 2), labels(2)), False),
    "resnet18, training": lambda: (torchvision("resnet18", num_classes=10), (images(32, 4), labels(4)), True),
    "ViT": lambda: (
        torchvision("VisionTransformer", image_size=16, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=10),
        (images(16, 2), labels(2)), False),
}
#: Many layers of batch statistics of few examples lose digits on either side.
LOOSER = {"resnet18, training": 1e-8}


@pytest.mark.parametrize("name", list(MODELS))
def test_a_model_has_the_derivatives_of_pytorch(name):
    torch.manual_seed(0)
    model, inputs, training = MODELS[name]()
    module = Supervised(model).double().train(training)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.05 * torch.randn_like(p))
    program = export(module, inputs)
    names = {n: f"theta/{n}" for n, _ in module.named_parameters()}
    found = lower(program, names, [f"data/{i}" for i in range(len(inputs))], "const")
    function = found.builder.graph.function([("loss", found.outputs[0])])
    parameters = dict(module.named_parameters())
    arrays = {f"theta/{n}": array_of(p) for n, p in parameters.items()} | {f"data/{i}": array_of(x) for i, x in enumerate(inputs)}
    arrays |= {f"data/{n}": v for n, v in found.builder.constants.items()}
    known = [n for n, _, _ in function.inputs]
    wrt = [n for n in names.values() if n in known]
    along = {f"theta/{n}": torch.randn_like(p) for n, p in parameters.items()}
    got = function.evaluate([(n, arrays[n]) for n in known], wrt, [along[n].numpy() for n in wrt])
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        torch.backends.mha.set_fastpath_enabled(False)
        loss = module(*inputs)
        leaves = list(parameters.values())
        slope = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
        product = torch.autograd.grad(
            sum((g * along[f"theta/{n}"]).sum() for n, g in zip(parameters, slope) if g is not None), leaves, allow_unused=True)
    zeros = lambda found: [np.zeros(tuple(p.shape)) if g is None else g.detach().numpy() for g, p in zip(found, leaves)]  # noqa: E731
    full = lambda part: [dict(zip(wrt, part)).get(f"theta/{n}", np.zeros(tuple(p.shape))) for n, p in parameters.items()]  # noqa: E731
    tolerance = LOOSER.get(name, 1e-10)
    assert difference(got[:1], [loss.detach().numpy()]) <= tolerance
    assert difference(full(got[1 : 1 + len(wrt)]), zeros(slope)) <= tolerance
    assert difference(full(got[1 + len(wrt) :]), zeros(product)) <= tolerance


class Decay(nn.Module):
    """One penalty for each weight."""

    def __init__(self, model, value=-3.0):
        super().__init__()
        self.log = nn.ParameterList([torch.full_like(p, value) for p in model.parameters()])

    def forward(self, params):
        return sum((log.exp() * p.square()).sum() for log, p in zip(self.log, params.values()))


def made(model, x, y, **options):
    return bl.torch.problem(
        model, Decay(model), train=(x[: len(x) // 2], y[: len(y) // 2]), valid=(x[len(x) // 2 :], y[len(y) // 2 :]),
        inner=lambda out, batch, hyper, params: F.cross_entropy(out, batch[1]) + hyper(params),
        outer=lambda out, batch: F.cross_entropy(out, batch[1]), **options)


def test_reverse_mode_is_the_gradient_of_the_unrolled_training():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 4)).double()
    x, y = torch.randn(20, 16, dtype=torch.float64), torch.randint(0, 4, (20,))
    problem = made(model, x, y)
    found = problem.hypergradient("rmd", step=0.3, steps=15)
    decay = Decay(model)
    params = {n: p.detach().clone() for n, p in model.named_parameters()}
    for _ in range(15):
        params = {n: p.requires_grad_() if p.is_leaf else p for n, p in params.items()}
        loss = F.cross_entropy(torch.func.functional_call(model, params, x[:10]), y[:10]) + decay(params)
        slope = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        params = {n: p - 0.3 * g for (n, p), g in zip(params.items(), slope)}
    outer = F.cross_entropy(torch.func.functional_call(model, params, x[10:]), y[10:])
    expected = torch.autograd.grad(outer, list(decay.parameters()))
    assert difference([v.numpy() for v in found.value.values()], [g.numpy() for g in expected]) <= 1e-10


def test_an_outer_loop_of_ones_own_takes_the_same_steps():
    torch.manual_seed(0)
    model = nn.Linear(16, 4).double()
    x, y = torch.randn(20, 16, dtype=torch.float64), torch.randint(0, 4, (20,))
    problem, decay = made(model, x, y), Decay(model)
    optimizer = torch.optim.SGD(decay.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (2.0 * bl.torch.Hypergradient.of(problem, decay, "rmd", step=0.3, steps=5)).backward()
        optimizer.step()
    run = problem.run("rmd", step=0.3, steps=5, cold=True, optimizer="sgd", rate=0.2, iterations=3)
    assert difference([p.detach().numpy() for p in decay.parameters()], [v.numpy() for v in run.lam.values()]) <= 1e-12


def test_running_statistics_are_carried_and_loaded_back():
    torch.manual_seed(0)
    model = Convolutional().double()
    x, y = images(8, 8), torch.randint(0, 10, (8,))
    problem = made(model, x, y)
    trained = problem.train(step=0.0001, steps=3)
    model.load_state_dict(problem.state_dict(trained), strict=False)
    fresh = Convolutional().double()
    torch.manual_seed(0)
    fresh = Convolutional().double()
    optimizer, decay = torch.optim.SGD(fresh.parameters(), 0.0001), Decay(fresh)
    for _ in range(3):
        optimizer.zero_grad()
        (F.cross_entropy(fresh(x[:4]), y[:4]) + decay(dict(fresh.named_parameters()))).backward()
        optimizer.step()
    for name, value in fresh.state_dict().items():
        if value.is_floating_point():
            assert difference([model.state_dict()[name].numpy()], [value.numpy()]) <= 1e-10, name


def test_tied_weights_stay_tied():
    torch.manual_seed(0)
    model = Tied().double()
    tokens = torch.randint(0, 20, (6, 4))
    loss = lambda out, batch, hyper, params: F.cross_entropy(out, batch[1].flatten()) + hyper(params)  # noqa: E731
    problem = bl.torch.problem(
        model, Decay(model), train=(tokens, tokens.roll(1, 1)), valid=(tokens, tokens.roll(1, 1)), inner=loss,
        outer=lambda out, batch: F.cross_entropy(out, batch[1].flatten()))
    assert problem.sizes == (160, 160)
    state = problem.state_dict(problem.train(step=0.1, steps=2))
    assert torch.equal(state["embedding.weight"], state["head.weight"])


def test_dropout_draws_and_a_run_improves():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 4))
    x, y = torch.randn(40, 16), torch.randint(0, 4, (40,))
    problem = made(model, x, y, batch_size=10)
    a, b = (problem.losses(seed=s)["inner"] for s in (1, 2))
    assert a != b
    run = problem.run("rmd", step=0.1, steps=5, iterations=3)
    model.load_state_dict(problem.state_dict(run), strict=False)
    assert len(run.iterations) == 3


def test_what_cannot_be_traced_is_refused_with_the_line():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(16))

        def forward(self, x):
            return x * self.w if self.w.sum() > 0 else x

    class Transformed(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(16))

        def forward(self, x):
            return torch.fft.fft(x * self.w).abs()

    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
    with pytest.raises(UnsupportedError, match="depends on the values"):
        made(Branching(), x, y)
    with pytest.raises(UnsupportedError, match=r"test_torch\.py:\d+ \(forward\)"):
        made(Transformed(), x, y)
    with pytest.raises(DataError, match="not finite"):
        made(nn.Linear(16, 4), x * float("nan"), y)
    with pytest.raises(ProblemError, match="one number"):
        bl.torch.problem(
            nn.Linear(16, 4), nn.Linear(1, 1), train=(x, y), valid=(x, y), inner=lambda out, batch: out, outer=lambda out, batch: out.sum())

"""PyTorch models have the value, the gradient and the Hessian product that PyTorch computes, and problems of them run."""

import subprocess
import sys

import bilevel as bl
import numpy as np
import pytest
import torch
from bilevel._check import difference
from bilevel.errors import CheckError, DataError, ProblemError, UnsupportedError
from torch import nn
from torch.nn import functional as F
from torch_reference import Applied, Supervised, differences, perturbed, traced


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
    found = differences(perturbed(Supervised(model).double().train(training)), inputs)
    assert max(found) <= LOOSER.get(name, 1e-10), found


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


def test_frozen_parameters_stay_and_are_not_counted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 4)).double()
    for p in model[0].parameters():
        p.requires_grad_(False)
    x, y = torch.randn(20, 16, dtype=torch.float64), torch.randint(0, 4, (20,))
    problem = made(model, x, y)
    assert problem.sizes == (28 + 102, 28)
    trained = problem.train(step=0.3, steps=5)
    state = problem.state_dict(trained)
    assert torch.equal(state["0.weight"], model[0].weight) and not torch.equal(state["2.weight"], model[2].weight)
    assert {r.quantity for r in problem.check().rows if r.passed} == {"value", "gradient", "Hessian product"}
    optimizer, decay = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.3), Decay(model)
    for _ in range(5):
        optimizer.zero_grad()
        (F.cross_entropy(model(x[:10]), y[:10]) + decay(dict(model.named_parameters()))).backward()
        optimizer.step()
    assert difference([state["2.weight"].numpy()], [model[2].weight.detach().numpy()]) <= 1e-12


class TiedDecay(nn.Module):
    """One number under two names, and one that is not learned."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(-3.0, dtype=torch.float64))
        self.b = self.a
        self.fixed = nn.Parameter(torch.tensor(-1.0, dtype=torch.float64), requires_grad=False)

    def forward(self, params):
        first, second = params.values()
        return self.a.exp() * first.square().sum() + (self.b + self.fixed).exp() * second.square().sum()


def test_tied_and_fixed_hyperparameters():
    torch.manual_seed(0)
    model, x, y = nn.Linear(16, 4).double(), torch.randn(20, 16, dtype=torch.float64), torch.randint(0, 4, (20,))
    problem = bl.torch.problem(
        model, TiedDecay(), train=(x, y), valid=(x, y), inner=lambda out, batch, hyper, params: F.cross_entropy(out, batch[1]) + hyper(params),
        outer=lambda out, batch: F.cross_entropy(out, batch[1]))
    assert problem.sizes[0] == 1 and list(problem.lam) == ["a"]
    shared = nn.Module()
    shared.w = model.weight
    with pytest.raises(ProblemError, match="'w' of the hyperparameters is also the parameter 'weight'"):
        bl.torch.problem(
            model, shared, train=(x, y), valid=(x, y), inner=lambda out, batch: F.cross_entropy(out, batch[1]),
            outer=lambda out, batch: F.cross_entropy(out, batch[1]))


def test_remainders_have_the_signs_of_pytorch():
    class Remainders(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([-3.3, -0.4, 0.7, 5.9], dtype=torch.float64))

        def forward(self, x):
            return (torch.fmod(self.w * x, 1.5) + 2 * torch.remainder(self.w, -x.abs() - 0.5) + torch.fmod(x, 0.7)).square().sum()

    assert max(differences(Remainders(), (torch.tensor([1.1, -1.2, 2.3, -0.6], dtype=torch.float64),))) <= 1e-12


def attended(**options):
    """Attention by PyTorch's function, with these options, as a loss of its three operands."""
    def loss(model, mask=None):
        q, k, v = model
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, **options).square().mean()

    return loss


def operands(heads=2, keys=5):
    shapes = [(2, 2, 4, 3), (2, heads, keys, 3), (2, heads, keys, 3)]
    return nn.ParameterList([torch.randn(shape, dtype=torch.float64) for shape in shapes])


ATTENTION = {
    "plain": (attended(), operands, ()),
    "causal": (attended(is_causal=True), operands, ()),
    "scaled": (attended(scale=0.3), operands, ()),
    "grouped": (attended(enable_gqa=True), lambda: operands(heads=1), ()),
    "boolean mask with an empty row": (attended(), operands, (torch.arange(20).reshape(4, 5) > 6,)),
    "additive mask": (attended(), operands, (torch.where(torch.arange(20).reshape(4, 5) % 3 == 0, -torch.inf, 0.7).double(),)),
    "mask for each head": (attended(), operands, (torch.randn(2, 2, 4, 5, dtype=torch.float64),)),
    "a causal mask that is known": (
        lambda m: F.scaled_dot_product_attention(*m, torch.ones(4, 5, dtype=torch.bool).tril()).square().mean(), operands, ()),
    "a mask with an empty row that is known": (
        lambda m: F.scaled_dot_product_attention(*m, torch.arange(20).reshape(4, 5) > 6).square().mean(), operands, ()),
}


@pytest.mark.parametrize("name", list(ATTENTION))
def test_attention_is_recognised_with_its_options(name):
    torch.manual_seed(0)
    loss, made_of, inputs = ATTENTION[name]
    assert max(differences(Applied(made_of(), loss), inputs)) <= 1e-12


def test_attention_is_the_function_that_the_engine_fuses():
    torch.manual_seed(0)
    from bilevel._bilevel import Tensor, Tracer

    function, _, _ = traced(Applied(operands(), attended()), ())
    tracer = Tracer()
    q, k, v = (tracer.input(n, shape, "f64") for n, shape, _ in function.inputs)
    y = Tensor.composite("attention", [q, k, v])
    own = tracer.function([("loss", y.binary("mul", y).sum([0, 1, 2, 3]).binary("mul", 1 / 48))])
    assert own.dumps() == function.dumps()


logits = lambda m, x: m(x)  # noqa: E731
LOSSES = {
    "labels": lambda z, y: F.cross_entropy(z, y),
    "ignored labels": lambda z, y: F.cross_entropy(z, torch.where(y == 1, -100, y)),
    "another ignored label": lambda z, y: F.cross_entropy(z, y, ignore_index=2),
    "sum": lambda z, y: F.cross_entropy(z, y, reduction="sum"),
    "smoothed": lambda z, y: F.cross_entropy(z, torch.where(y == 1, -100, y), label_smoothing=0.2),
    "probabilities": lambda z, y: F.cross_entropy(z, F.one_hot(y, 4) * 0.7 + 0.075),
    "smoothed probabilities": lambda z, y: F.cross_entropy(z, F.one_hot(y, 4) * 0.7 + 0.075, label_smoothing=0.1),
    "places": lambda z, y: F.cross_entropy(z.reshape(2, 4, 4).transpose(1, 2), y.reshape(2, 4)),
    "one row": lambda z, y: F.cross_entropy(z[0], y[0]),
    "log softmax": lambda z, y: F.nll_loss(F.log_softmax(z, -1), y),
    "by hand": lambda z, y: (z.logsumexp(1) - z[torch.arange(8), y]).mean(),
    "binary": lambda z, y: F.binary_cross_entropy_with_logits(z, F.one_hot(y, 4).double()),
    "squares": lambda z, y: F.mse_loss(z, F.one_hot(y, 4).double()),
}
UNMARKED = {
    "rows": lambda z, y: (torch.arange(8.0) * F.cross_entropy(z, y, reduction="none")).sum(),
    "weights of classes": lambda z, y: F.cross_entropy(z, torch.where(y == 1, -100, y), weight=torch.tensor([1.0, 2.0, 0.5, 3.0]).double()),
    "weights and smoothing": lambda z, y: F.cross_entropy(z, y, weight=torch.tensor([1.0, 2.0, 0.5, 3.0]).double(), label_smoothing=0.1),
    "weights and probabilities": lambda z, y: F.cross_entropy(z, F.one_hot(y, 4) * 0.7 + 0.075, weight=torch.tensor([1.0, 2.0, 0.5, 3.0]).double()),
    "weight of positives": lambda z, y: F.binary_cross_entropy_with_logits(
        z, F.one_hot(y, 4).double(), weight=y[:, None].double(), pos_weight=torch.tensor([1.0, 2.0, 0.5, 3.0]).double()),
}


@pytest.mark.parametrize("name", [*LOSSES, *UNMARKED])
def test_losses_are_recognised_with_their_options(name):
    torch.manual_seed(0)
    x, y = torch.randn(8, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    loss = {**LOSSES, **UNMARKED}[name]
    module = Applied(nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4)).double(), lambda m, x, y: loss(m(x), y))
    assert max(differences(module, (x, y))) <= 1e-12
    if name in LOSSES:
        function, _, wrt = traced(module, (x, y))
        assert function.is_convex_in_outputs(wrt)


def test_a_loader_with_workers_gives_a_batch_for_each_step():
    torch.manual_seed(0)
    model = nn.Linear(16, 4).double()
    x, y = torch.randn(24, 16, dtype=torch.float64), torch.randint(0, 4, (24,))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=6, num_workers=1)
    problem = bl.torch.problem(
        model, Decay(model), train=loader, valid=(x, y), inner=lambda out, batch, hyper, params: F.cross_entropy(out, batch[1]) + hyper(params),
        outer=lambda out, batch: F.cross_entropy(out, batch[1]))
    trained, optimizer, decay = problem.train(step=0.2, steps=6), torch.optim.SGD(model.parameters(), 0.2), Decay(model)
    run = problem.run("rmd", step=0.2, steps=5, iterations=2)
    assert set(run.state_dict()) == {"weight", "bias"}
    for i in (0, 1, 2, 3, 0, 1):
        optimizer.zero_grad()
        (F.cross_entropy(model(x[6 * i : 6 * i + 6]), y[6 * i : 6 * i + 6]) + decay(dict(model.named_parameters()))).backward()
        optimizer.step()
    assert difference([trained.params["weight"].numpy()], [model.weight.detach().numpy()]) <= 1e-12


DYING = """
import os
import bilevel as bl
import torch
from torch import nn
from torch.nn import functional as F

class Dying(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        if i == 18:
            os._exit(3)
        return torch.ones(16), 0

hyper = nn.ParameterList([torch.zeros(())])
problem = bl.torch.problem(
    nn.Linear(16, 4), hyper, train=torch.utils.data.DataLoader(Dying(), batch_size=4, num_workers=1),
    valid=(torch.ones(2, 16), torch.zeros(2, dtype=torch.int64)),
    inner=lambda out, batch, hyper: F.cross_entropy(out, batch[1]) * hyper[0].exp(),
    outer=lambda out, batch: F.cross_entropy(out, batch[1]))
try:
    problem.train(step=0.1, steps=6)
except bl.errors.DataError as error:
    print("refused:", error, flush=True)
os._exit(0)
"""


def test_a_dead_worker_is_a_data_error():
    # In a process of its own: PyTorch raises in the main thread whenever it notices.
    found = subprocess.run([sys.executable, "-c", DYING], capture_output=True, text=True, timeout=300)
    assert found.stdout.startswith("refused:") and "exited unexpectedly" in found.stdout, found


def test_an_index_out_of_range_names_the_line():
    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.last = nn.Embedding(20, 8), nn.Linear(8, 4)

        def forward(self, tokens):
            return self.last(self.table(tokens).mean(1))

    tokens = torch.randint(0, 20, (8, 3))
    tokens[2, 1] = 25
    problem = made(Embedded(), tokens, torch.randint(0, 4, (8,)), check=False)
    with pytest.raises(DataError, match=r"25.*0\.\.20.*test_torch\.py:\d+ \(forward\)"):
        problem.train(step=0.1, steps=2)
    with pytest.raises(DataError, match=r"test_torch\.py:\d+ \(forward\)"):
        problem.hypergradient("rmd", step=0.1, steps=2)


def test_a_side_effect_that_changes_the_loss_is_found_by_the_check():
    calls = []

    def counting(out, batch, hyper, params):
        calls.append(None)
        return F.mse_loss(out, batch[1]) * len(calls) + hyper(params)

    x, y, model = torch.randn(6, 3), torch.randn(6, 2), nn.Linear(3, 2)
    with pytest.raises(CheckError, match="the inner loss as traced differs from the original: its value"):
        bl.torch.problem(model, Decay(model), counting, lambda out, batch: F.mse_loss(out, batch[1]), train=(x, y), valid=(x, y))


def test_an_if_on_values_names_the_line():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(16))

        def forward(self, x):
            if self.w.sum() > 0:
                return x * self.w
            return x

    with pytest.raises(UnsupportedError, match=r"test_torch\.py:\d+ \(forward\)"):
        made(Branching(), torch.randn(8, 16), torch.randint(0, 4, (8,)))

"""The case l1reg of `bilevel-bench cuda` in PyTorch, on one GPU; needs torchvision.

    python gpu_torch.py [l1reg] [tf32] [bf16]

One outer iteration of HPO-SGLD, B = M = 5, batch 8, on ViT-B/16 with one L1 weight per parameter: the fastest way found.
Parameters are one flat vector, the losses and the update are compiled, a whole inner step is one CUDA graph, and the mixed
product of the L1 penalty is written by hand. Prints one JSON line per precision.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
import torchvision
from torch.func import functional_call

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
GAMMA, NOISE, BURN_IN, SAMPLES = 0.01, 1e-6 * (2 * 0.001 * 0.01) ** 0.5, 5, 5

device = dict(device="cuda")
model = torchvision.models.vit_b_16(num_classes=37).to("cuda").eval()
shapes = {name: p.shape for name, p in model.named_parameters()}
x, y = torch.randn(8, 3, 224, 224, **device), torch.randint(0, 37, (8,), **device)
xv, yv = torch.randn_like(x), y.clone()


def parameters(flat):
    pieces = flat.split([shape.numel() for shape in shapes.values()])
    return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces)}


def l1reg(precision):
    theta = torch.cat([p.detach().flatten() for p in model.parameters()])
    lam = torch.full_like(theta, 1e-4)
    g, h = torch.zeros_like(theta), torch.zeros_like(theta)

    @torch.compile
    def loss(flat, x, y):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
            out = functional_call(model, parameters(flat), (x,))
        return F.cross_entropy(out.float(), y)

    @torch.compile
    def update(theta, lam, gradient):
        sign = theta.sign()
        return theta - GAMMA * (gradient + lam * sign) + NOISE * torch.randn_like(theta), sign

    def gradient(flat, x, y):
        flat = flat.detach().requires_grad_(True)
        return torch.autograd.grad(loss(flat, x, y), flat)[0]

    def step(kept):
        inner = gradient(theta, x, y)
        with torch.no_grad():
            new, sign = update(theta, lam, inner)
        outer = gradient(new, xv, yv)
        with torch.no_grad():
            g.addcmul_(sign, outer, value=-GAMMA)
            theta.copy_(new)
            if kept:
                h.add_(g, alpha=1 / SAMPLES)

    started = time.perf_counter()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(True)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graphs = {}
    for kept in (False, True):
        graphs[kept] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[kept]):
            step(kept)
    first = time.perf_counter() - started
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(7):
        torch.cuda.synchronize()
        start = time.perf_counter()
        g.zero_()
        h.zero_()
        for m in range(BURN_IN + SAMPLES):
            graphs[m >= BURN_IN].replay()
        lam.sub_(h, alpha=0.01).clamp_(min=0)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    seconds.sort()
    peak = torch.cuda.max_memory_allocated() / 2**30
    line = dict(peer="torch", case="l1reg", ms=round(1e3 * seconds[3], 2), min_ms=round(1e3 * seconds[0], 2))
    line.update(prec=precision, peak_gb=round(peak, 2), first_s=round(first, 1))
    print(json.dumps(line), flush=True)


for precision in [word for word in sys.argv[1:] if word in ("tf32", "bf16")] or ("tf32", "bf16"):
    l1reg(precision)

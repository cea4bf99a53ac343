"""Labels of which some are wrong, in PyTorch: a weight for each example is learned from a few clean ones.

    python crates/python/examples/label_cleaning.py [PICTURE.svg]
"""

import sys

import bilevel as bl
import torch
from torch import nn
from torch.nn import functional as F

ROWS, CLASSES, WRONG = 200, 4, 0.4


class Weights(nn.Module):
    """One number for each example, through a sigmoid."""

    def __init__(self):
        super().__init__()
        self.logit = nn.Parameter(torch.zeros(ROWS))

    def forward(self):
        return torch.sigmoid(self.logit)


def main(picture=None):
    torch.manual_seed(0)
    centres = 2.0 * torch.randn(CLASSES, 10)
    labels = torch.randint(0, CLASSES, (ROWS + 80,))
    x = centres[labels] + torch.randn(len(labels), 10)
    wrong = torch.rand(ROWS) < WRONG
    seen = torch.where(wrong, (labels[:ROWS] + torch.randint(1, CLASSES, (ROWS,))) % CLASSES, labels[:ROWS])
    model, weights = nn.Linear(10, CLASSES), Weights()
    problem = bl.torch.problem(
        model, weights, train=(x[:ROWS], seen), valid=(x[ROWS:], labels[ROWS:]),
        inner=lambda out, batch, hyper, params: (hyper() * F.cross_entropy(out, batch[1], reduction="none")).mean(),
        outer=lambda out, batch: F.cross_entropy(out, batch[1]))
    run = problem.run("rmd", step=0.5, steps=30, rate=0.2, iterations=60, cold=True, progress=False)
    learned = torch.sigmoid(run.lam["logit"])
    clean, dirty = learned[~wrong].mean().item(), learned[wrong].mean().item()
    found = ((learned < 0.5) == wrong).float().mean().item()
    print(f"mean weight of right labels {clean:.2f}, of wrong ones {dirty:.2f}; {found:.0%} are told apart at 0.5")
    if picture:
        run.plot().save(picture)
    return clean, dirty, found


if __name__ == "__main__":
    main(*sys.argv[1:])

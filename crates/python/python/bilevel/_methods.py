"""A function for each method, with its settings: `bilevel.methods.rmd(storage="checkpoints")` is given to `run` in place of a name.

Written by `generate.py` from the settings of the library; do not edit.
"""

import json
from typing import Any, Literal

from . import _bilevel


class Methods:
    """All methods: called, a table of them; by name, a method with settings."""

    def __call__(self) -> list[dict[str, Any]]:
        """All methods, as a list of dictionaries: name, summary, cost, memory, when to choose it, and its settings.

        Each setting has its type, default, meaning, choices if it is a word, and range if it is a number.
        """
        return json.loads(_bilevel.methods(True))

    def __repr__(self) -> str:
        return "<bilevel.methods: " + ", ".join(m["name"] for m in json.loads(_bilevel.methods())) + ">"

    @staticmethod
    def hpo_sgld() -> dict[str, Any]:
        """Langevin chain with the paper's forward recursion (Kim and Hospedales)."""
        return {"name": "hpo-sgld"}

    @staticmethod
    def langevin_adjoint(*, warm: bool = True, outer_every_step: bool = True, trust: bool = True, horizon: int = 0) -> dict[str, Any]:
        """Langevin chain with an adjoint that is correct at finite temperature.

        warm: keep the adjoint from one hypergradient to the next.
        outer_every_step: compute the outer gradient at every inner step, or once.
        trust: reset the adjoint if it grows beyond the bound that holds under contraction.
        horizon: inner steps after which the adjoint decays, 0 for never, 0, for none, or at least 2 steps.
        """
        return {"name": "langevin-adjoint", "warm": warm, "outer_every_step": outer_every_step, "trust": trust, "horizon": horizon}

    @staticmethod
    def amigo_cg(
        *,
        regularisation: float = 0.0,
        iterations: int = 10,
        curvature: Literal["hessian", "gauss-newton"] = "hessian",
    ) -> dict[str, Any]:
        """Warm-started conjugate gradients on the inner Hessian.

        regularisation: added to the curvature in the linear solve, at least 0.
        iterations: iterations of the linear solve, at least 1 and below 2³¹.
        curvature: the curvature in the linear solve: hessian or gauss-newton.
        """
        return {"name": "amigo-cg", "regularisation": regularisation, "iterations": iterations, "curvature": curvature}

    @staticmethod
    def amigo_sgd(
        *,
        beta: float = 0.01,
        iterations: int = 10,
        curvature: Literal["hessian", "gauss-newton"] = "hessian",
    ) -> dict[str, Any]:
        """Warm-started gradient steps on the linear system.

        beta: step of the linear solve, above 0.
        iterations: iterations of the linear solve, at least 1 and below 2³¹.
        curvature: the curvature in the linear solve: hessian or gauss-newton.
        """
        return {"name": "amigo-sgd", "beta": beta, "iterations": iterations, "curvature": curvature}

    @staticmethod
    def ift_cg(
        *,
        regularisation: float = 0.0,
        iterations: int = 10,
        curvature: Literal["hessian", "gauss-newton"] = "hessian",
    ) -> dict[str, Any]:
        """Implicit differentiation by conjugate gradients from zero.

        regularisation: added to the curvature in the linear solve, at least 0.
        iterations: iterations of the linear solve, at least 1 and below 2³¹.
        curvature: the curvature in the linear solve: hessian or gauss-newton.
        """
        return {"name": "ift-cg", "regularisation": regularisation, "iterations": iterations, "curvature": curvature}

    @staticmethod
    def ift_neumann(
        *,
        alpha: float = 0.1,
        terms: int = 10,
        final_alpha: bool = True,
        curvature: Literal["hessian", "gauss-newton"] = "hessian",
    ) -> dict[str, Any]:
        """Implicit differentiation by a Neumann series.

        alpha: step of the Neumann series, above 0.
        terms: terms of the Neumann series after the first.
        final_alpha: multiply the Neumann series by alpha, as the inverse needs.
        curvature: the curvature in the linear solve: hessian or gauss-newton.
        """
        return {"name": "ift-neumann", "alpha": alpha, "terms": terms, "final_alpha": final_alpha, "curvature": curvature}

    @staticmethod
    def imaml(
        *,
        rho: float = 1.0,
        iterations: int = 5,
        curvature: Literal["hessian", "gauss-newton"] = "hessian",
    ) -> dict[str, Any]:
        """Implicit MAML: a proximal term keeps θ near λ.

        rho: strength of the pull towards the start, above 0.
        iterations: iterations of the linear solve, at least 1 and below 2³¹.
        curvature: the curvature in the linear solve: hessian or gauss-newton.
        """
        return {"name": "imaml", "rho": rho, "iterations": iterations, "curvature": curvature}

    @staticmethod
    def rmd(*, storage: Literal["all", "checkpoints", "truncated"] | dict[str, Any] = "all") -> dict[str, Any]:
        """Reverse mode through the unrolled inner loop; MAML if θ⁰ = λ.

        storage: storage of the inner loop: all, checkpoints or { truncated = STEPS }.
        """
        return {"name": "rmd", "storage": storage}

    @staticmethod
    def rmd_fo() -> dict[str, Any]:
        """Reverse mode without second derivatives; first-order MAML if θ⁰ = λ."""
        return {"name": "rmd-fo"}

    @staticmethod
    def fmd() -> dict[str, Any]:
        """Forward mode through the unrolled inner loop."""
        return {"name": "fmd"}

    @staticmethod
    def es(*, sigma: float = 0.001, directions: int = 100, antithetic: bool = True) -> dict[str, Any]:
        """Evolutionary search: differences along random directions.

        sigma: size of a perturbation, above 0.
        directions: number of random directions, at least 1 and below 2³².
        antithetic: use both signs of every direction.
        """
        return {"name": "es", "sigma": sigma, "directions": directions, "antithetic": antithetic}

    @staticmethod
    def covariance() -> dict[str, Any]:
        """The score-function identity from chain samples."""
        return {"name": "covariance"}

    @staticmethod
    def evidence() -> dict[str, Any]:
        """The marginal likelihood of the training rows, by first derivatives along a Langevin chain."""
        return {"name": "evidence"}

    @staticmethod
    def reptile() -> dict[str, Any]:
        """Λ moves towards the end of training."""
        return {"name": "reptile"}

    @staticmethod
    def soba() -> dict[str, Any]:
        """One step each for θ, the linear system and λ."""
        return {"name": "soba"}

    @staticmethod
    def ma_soba(*, weight: float = 0.1) -> dict[str, Any]:
        """Soba with a moving average of its directions.

        weight: weight of the newest direction in the moving average, above 0 and at most 1.
        """
        return {"name": "ma-soba", "weight": weight}

    @staticmethod
    def saba() -> dict[str, Any]:
        """Soba with a table of the last result of every minibatch."""
        return {"name": "saba"}

    @staticmethod
    def srba(*, period: int = 0) -> dict[str, Any]:
        """Soba with its directions corrected by differences.

        period: steps between passes over all minibatches, 0 for as many as there are minibatches.
        """
        return {"name": "srba", "period": period}

    @staticmethod
    def stocbio(*, alpha: float = 0.1, terms: int = 10) -> dict[str, Any]:
        """A Neumann series with a separate minibatch for every factor.

        alpha: step of the Neumann series, above 0.
        terms: terms of the Neumann series after the first.
        """
        return {"name": "stocbio", "alpha": alpha, "terms": terms}

    @staticmethod
    def f2sa(*, penalty: float = 10.0, growth: float = 0.1) -> dict[str, Any]:
        """Gradients only: a second θ under a growing penalty.

        penalty: weight of the inner loss relative to the outer one; the bias is proportional to its inverse, above 0.
        growth: added to the penalty after each hypergradient, at least 0.
        """
        return {"name": "f2sa", "penalty": penalty, "growth": growth}

    @staticmethod
    def v_pbgd(*, penalty: float = 10.0) -> dict[str, Any]:
        """Gradients only: a fixed penalty on the gap between the inner loss and its minimum.

        penalty: weight of the inner loss relative to the outer one; the bias is proportional to its inverse, above 0.
        """
        return {"name": "v-pbgd", "penalty": penalty}

    @staticmethod
    def g_pbgd(*, penalty: float = 10.0) -> dict[str, Any]:
        """A fixed penalty on the slope of the inner loss.

        penalty: weight of the inner loss relative to the outer one; the bias is proportional to its inverse, above 0.
        """
        return {"name": "g-pbgd", "penalty": penalty}

    @staticmethod
    def bome(*, barrier: float = 0.5) -> dict[str, Any]:
        """Gradients only: f decreases as fast as a barrier on the inner loss allows.

        barrier: required rate of decrease of the inner loss, relative to its squared gradient, above 0.
        """
        return {"name": "bome", "barrier": barrier}

    @staticmethod
    def meha(*, rho: float = 0.1, penalty: float = 10.0, power: float = 0.25) -> dict[str, Any]:
        """Gradients only: a penalty on the gap between the inner loss and its Moreau envelope.

        rho: strength of the pull towards the start, above 0.
        penalty: weight of the inner loss relative to the outer one; the bias is proportional to its inverse, above 0.
        power: growth of the penalty, as a power of the number of hypergradients, at least 0.
        """
        return {"name": "meha", "rho": rho, "penalty": penalty, "power": power}

    @staticmethod
    def nystrom(*, columns: int = 10, regularisation: float = 0.01) -> dict[str, Any]:
        """Implicit differentiation with a few columns of the Hessian.

        columns: columns of the Hessian, at least 1.
        regularisation: added to the curvature in the linear solve, above 0.
        """
        return {"name": "nystrom", "columns": columns, "regularisation": regularisation}

    @staticmethod
    def sama(*, radius: float = 0.01) -> dict[str, Any]:
        """Gradients only: the derivative through one more step of the inner optimizer.

        radius: step of the finite difference in the parameters, above 0.
        """
        return {"name": "sama", "radius": radius}

    @staticmethod
    def hoag(
        *,
        iterations: int = 100,
        tolerance: float = 0.1,
        fall: Literal["quadratic", "cubic", "exponential"] = "quadratic",
        regularisation: float = 0.0,
    ) -> dict[str, Any]:
        """Training and the linear solve to a decreasing tolerance.

        iterations: iterations of the linear solve, at least 1 and below 2³¹.
        tolerance: tolerance of training and of the solve, as the norm of the residual, above 0.
        fall: how the tolerance decreases: quadratic, cubic or exponential.
        regularisation: added to the curvature in the linear solve, at least 0.
        """
        return {"name": "hoag", "iterations": iterations, "tolerance": tolerance, "fall": fall, "regularisation": regularisation}

    @staticmethod
    def d_tfbo(*, iterations: int = 1000, tolerance: float = 0.01) -> dict[str, Any]:
        """Training, the linear solve and λ with step sizes derived from past gradients.

        iterations: iterations of the linear solve, at least 1 and below 2³¹.
        tolerance: tolerance of training and of the solve, as the norm of the residual, above 0.
        """
        return {"name": "d-tfbo", "iterations": iterations, "tolerance": tolerance}

    @staticmethod
    def fg2u(*, directions: int = 10, draw: Literal["signs", "coordinates"] = "signs") -> dict[str, Any]:
        """Forward mode along random directions.

        directions: number of random directions, at least 1 and below 2³².
        draw: distribution of the directions: signs or coordinates.
        """
        return {"name": "fg2u", "directions": directions, "draw": draw}

    @staticmethod
    def pes(*, sigma: float = 0.001, directions: int = 20, windows: int = 5) -> dict[str, Any]:
        """Evolutionary search window by window, without the bias of truncation.

        sigma: size of a perturbation, above 0.
        directions: number of random directions, at least 1 and below 2³².
        windows: windows of inner steps in a whole training, at least 1 and below 2³¹.
        """
        return {"name": "pes", "sigma": sigma, "directions": directions, "windows": windows}


methods = Methods()

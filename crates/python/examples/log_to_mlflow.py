"""A run that logs to MLflow: settings as parameters, every iteration as metrics, λ and the page as artifacts.

    pip install mlflow
    python crates/python/examples/log_to_mlflow.py        # then: mlflow ui
"""

import pathlib
import tempfile

import bilevel as bl
import numpy as np

SETTINGS = {"step": 0.1, "steps": 50, "rate": 0.1, "iterations": 20}


def problem():
    """Which decay of each weight makes a line, fitted to a few noisy points, best on new ones?"""
    rng = np.random.default_rng(0)
    x, new = rng.normal(size=(12, 2)), rng.normal(size=(50, 2))
    data = {"x": x, "y": x[:, :1] + 0.3 * rng.normal(size=(12, 1)), "x_new": new, "y_new": new[:, :1]}
    return bl.problem(
        {"decay": np.full((2, 1), -2.0)}, {"w": np.zeros((2, 1))}, data=data,
        inner=lambda s, lam, t: ((s.x @ t["w"] - s.y) ** 2).mean() + (bl.exp(lam["decay"]) * t["w"] ** 2).sum(),
        outer=lambda s, lam, t: ((s.x_new @ t["w"] - s.y_new) ** 2).mean(),
        metrics={"size of w": lambda s, lam, t: (t["w"] ** 2).sum()})


def numbers(iteration):
    """The numbers of an iteration under one name each: losses, norms, diagnostics and metrics, without its own number."""
    flat = {**iteration, **iteration.get("diagnostics", {}), **iteration.get("measures", {})}
    return {name: float(value) for name, value in flat.items() if isinstance(value, (int, float)) and name != "iteration"}


def main(mlflow):
    def log(iteration):
        # MLflow allows letters, digits, spaces and a few signs in names.
        mlflow.log_metrics(numbers(iteration), step=iteration["iteration"])

    with mlflow.start_run(run_name="decay of a line"):
        mlflow.log_params({"method": "ift-cg", **SETTINGS})
        run = problem().run("ift-cg", callback=log, metrics_every=5, progress=False, **SETTINGS)
        with tempfile.TemporaryDirectory() as folder:
            page, found = pathlib.Path(folder, "report.html"), pathlib.Path(folder, "lambda.npz")
            run.report(page)
            np.savez(found, **run.lam)
            mlflow.log_artifact(str(page))
            mlflow.log_artifact(str(found))
    return run


if __name__ == "__main__":
    import mlflow

    main(mlflow)

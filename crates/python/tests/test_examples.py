"""The example programs do what they say."""

import importlib.util
import pathlib

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"


def loaded(name, framework):
    pytest.importorskip(framework)
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_penalties_fall_on_the_features_that_say_nothing(tmp_path):
    picture = tmp_path / "losses.svg"
    before, after, useful, useless = loaded("penalties", "jax").main(picture)
    assert after < before and useful < useless
    assert picture.read_text().startswith("<svg")


def test_wrong_labels_get_small_weights(tmp_path):
    clean, dirty, found = loaded("label_cleaning", "torch").main(tmp_path / "losses.svg")
    assert clean > dirty + 0.2 and found > 0.8


def test_programs_that_are_timed_have_the_same_hypergradient():
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("times", EXAMPLES.parent / "benches/times.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.measured(module.mlp(3, "float64"), 1, 1e-10)
    assert set(found) == {"bilevel", "JAX, jit", "PyTorch, eager"} and all(row["median"] > 0 for row in found.values())
    with pytest.raises(SystemExit, match="another hypergradient"):
        module.measured({"one": lambda: lambda: {"a": 1.0}, "other": lambda: lambda: {"a": 1.1}}, 1, 1e-3)


def test_actors_do_all_runs_and_the_best_is_kept():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        found, best = loaded("ray_actors", "ray").main()
    finally:
        ray.shutdown()
    assert len(found) == 6 and best["outer_loss"] == min(run["outer_loss"] for run in found)
    # The first two features say something, the others do not.
    assert best["penalty"][:2].max() < best["penalty"][2:].mean()


class Log:
    """Stands for MLflow and for a run of Weights & Biases, and remembers what it is told."""

    def __init__(self):
        self.told, self.files, self.summary = [], [], {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended = True

    def start_run(self, run_name):
        self.name = run_name
        return self

    def log_params(self, params):
        self.params = params

    def log_metrics(self, metrics, step):
        self.told.append((step, metrics))

    def log_artifact(self, path):
        self.files.append((pathlib.Path(path).name, pathlib.Path(path).stat().st_size))

    def init(self, project, name, config):
        self.params = config
        return self

    def log(self, metrics, step=None):
        self.told.append((step, metrics))

    Histogram = list


def check_log(log, run):
    steps = [(step, numbers) for step, numbers in log.told if step is not None]
    assert [step for step, _ in steps] == list(range(1, 21)) and log.ended
    assert steps[-1][1]["outer_loss"] == run.outer_loss and "size of w" in steps[4][1]
    assert all(isinstance(value, float) for _, numbers in steps for value in numbers.values())
    assert log.params["method"] == "ift-cg" and log.params["iterations"] == 20


def test_a_run_logs_to_mlflow():
    log = Log()
    run = loaded("log_to_mlflow", "numpy").main(log)
    check_log(log, run)
    assert [name for name, size in log.files if size > 100] == ["report.html", "lambda.npz"]


def test_a_run_logs_to_weights_and_biases():
    log = Log()
    run = loaded("log_to_wandb", "numpy").main(log)
    check_log(log, run)
    assert log.summary["outer loss"] == run.outer_loss and len(log.told[-1][1]["λ.decay"]) == 2


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_the_real_packages_take_what_is_logged(name, tmp_path, monkeypatch):
    package = pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    assert len(loaded(f"log_to_{name}", name).main(package).iterations) == 20


def test_methods_agree_with_the_closed_form_of_a_ridge_regression(tmp_path):
    errors = loaded("ridge", "jax").main(tmp_path / "ridge.svg")
    assert errors["ift-cg"] < 1e-9 and errors["rmd"] < 1e-6 and errors["hpo-sgld"] > 1e-3


def test_a_learned_loss_finds_the_line_among_outliers(tmp_path):
    squares, learned = loaded("learned_loss", "numpy").main(tmp_path / "cost.svg")
    assert abs(learned["offset"] + 1) < 0.2 < abs(squares["offset"] + 1) and abs(learned["slope"] - 2) < 0.2


def test_a_learned_initialisation_learns_new_waves_in_five_steps(tmp_path):
    before, after = loaded("initialisation", "jax").main(tmp_path / "losses.svg")
    assert after < 0.5 * before


def test_a_rate_for_each_layer_is_better_than_one(tmp_path):
    single, own = loaded("layer_rates", "jax").main(tmp_path / "losses.svg")
    assert own < single


def test_the_evidence_chooses_the_prior_of_the_closed_form(tmp_path):
    best, learned = loaded("evidence", "numpy").main(tmp_path / "curves.svg")
    assert abs(best - learned) < 0.3


def test_the_adjoint_follows_the_quadrature_of_a_double_well(tmp_path):
    rows = loaded("finite_temperature", "numpy").main(tmp_path / "slopes.svg")
    adjoint, paper = ([abs(row[k] - row[1]) / abs(row[1]) for row in rows] for k in (2, 3))
    assert max(adjoint) < 0.3 and sum(adjoint) < 0.3 * sum(paper)


def test_held_out_rows_stop_penalties_that_overfit(tmp_path):
    run, found = loaded("held_out_rows", "numpy").main(tmp_path / "losses.svg")
    assert "held-out rows" in run.guard["sentence"] and len(found.rows) >= 3


def test_learned_augmentation_is_near_that_of_the_data(tmp_path):
    before, after, learned = loaded("augmentation", "jax").main(tmp_path / "losses.svg")
    assert after > before and 0.3 < learned["pixels"] < 1.6 and 0.1 < learned["radians"] < 0.8

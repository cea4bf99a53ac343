"""Names, settings and errors, without any framework."""

import pickle
import subprocess
import sys

import bilevel as bl
import numpy as np
import pytest
from bilevel.errors import CheckError, DataError, ProblemError, SettingError, ShapeError, UnsupportedError


def ridge(dtype="f64", **more):
    """Which weight decay e^λ makes the fit on three points best on two others?"""
    data = dict(
        x=np.array([[1.0, 0], [1, 1], [1, 2]]), y=np.array([[0.2], [1.3], [1.7]]),
        x_new=np.array([[1.0, 3], [1, 4]]), y_new=np.array([[2.3], [3.1]]),
    )
    return bl.problem(
        {"decay": np.zeros(())}, {"w": np.zeros((2, 1))}, data=data, dtype=dtype,
        inner=lambda s, l, t: ((s.x @ t["w"] - s.y) ** 2).sum() + bl.exp(l["decay"]) * (t["w"] ** 2).sum(),
        outer=lambda s, l, t: ((s.x_new @ t["w"] - s.y_new) ** 2).sum(), **more,
    )


def test_a_run_finds_the_decay_that_the_rust_example_finds():
    run = ridge().run("ift-cg", optimizer=bl.adam(), rate=0.1, iterations=100)
    assert abs(float(np.exp(run.lam["decay"])) - 0.436) < 0.01
    assert len(run.iterations) == 100 and run.reason == "all iterations are done"
    assert run.plot().svg.startswith("<svg") and "ift-cg" in repr(run)


def test_a_hypergradient_is_the_difference_of_outer_losses():
    problem = ridge()
    settings = dict(step=0.05, steps=40)
    found = problem.hypergradient("rmd", **settings)
    loss = lambda d: problem.train({"decay": np.array(d)}, **settings).outer_loss  # noqa: E731
    h = 1e-4
    slope = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)
    assert abs(float(found.value["decay"]) - slope) < 1e-9 * abs(slope) + 1e-10
    assert found.oracles["inner_gradients"] == 40 and "rmd" in repr(found)


def test_every_method_that_applies_gives_a_finite_hypergradient():
    problem = ridge()
    names = problem.methods()
    assert len(names) >= 24
    for name in names:
        found = problem.hypergradient(name)
        assert np.isfinite(found.value["decay"]).all(), name


def test_unknown_names_are_met_with_the_nearest():
    problem = ridge()
    with pytest.raises(SettingError, match="did you mean rmd"):
        problem.run("rdm")
    with pytest.raises(SettingError, match="did you mean steps"):
        problem.run("rmd", stps=3)
    with pytest.raises(SettingError, match="did you mean adam"):
        problem.run("rmd", optimizer="adma")
    with pytest.raises(SettingError, match="step is -1"):
        problem.run("rmd", step=-1.0)
    with pytest.raises(SettingError, match="gpu"):
        problem.run("rmd", device="gpu")
    with pytest.raises(SettingError):
        problem.run("rmd", iterations=2.5)
    with pytest.raises(SettingError):
        problem.run("rmd", schedule="cosine")


def test_methods_are_data():
    table = {m["name"]: m for m in bl.methods()}
    assert len(table) >= 29 and table["rmd"]["when"]
    columns = [s for s in table["nystrom"]["settings"] if s["name"] == "columns"][0]
    assert columns["default"] > 0 and "columns" in columns["meaning"]


def test_bad_data_and_losses_are_refused():
    one = {"l": np.zeros(())}
    loss = lambda s, l, t: (t["w"] * s.x).sum() + l["l"] * 0  # noqa: E731
    with pytest.raises(DataError, match="'x'"):
        bl.problem(one, {"w": np.zeros(3)}, data={"x": np.array([1.0, np.nan, 2.0])}, inner=loss, outer=loss)
    with pytest.raises(ShapeError, match=r"\[3\]"):
        bl.problem(one, {"w": np.zeros(3)}, data={"x": np.ones(4)}, inner=loss, outer=loss)
    with pytest.raises(ProblemError, match="one element"):
        bl.problem(one, {"w": np.zeros(3)}, inner=lambda s, l, t: t["w"], outer=loss, data={"x": np.ones(3)})
    with pytest.raises(UnsupportedError, match="in place of if"):
        bl.problem(one, {"w": np.zeros(3)}, inner=lambda s, l, t: t["w"].sum() if t["w"][0] > 0 else l["l"], outer=loss)
    with pytest.raises(UnsupportedError, match="bilevel.exp"):
        bl.problem(one, {"w": np.zeros(3)}, inner=lambda s, l, t: np.hypot(t["w"], 1.0).sum(), outer=loss)
    with pytest.raises(UnsupportedError, match="complex"):
        bl.problem(one, {"w": np.zeros(3)}, data={"x": np.ones(3, complex)}, inner=loss, outer=loss)
    with pytest.raises(UnsupportedError, match="32 bits"):
        bl.problem(one, {"w": np.zeros(3)}, data={"x": np.array([1 << 40])}, inner=loss, outer=loss)
    with pytest.raises(ProblemError, match="nothing to train"):
        bl.problem(one, {"w": np.zeros(3)}, inner=lambda s, l, t: l["l"] * 2, outer=lambda s, l, t: t["w"].sum())


def test_mistakes_in_a_loss_name_its_line():
    one, w = {"l": np.zeros(())}, {"w": np.zeros(3)}
    with pytest.raises(ShapeError, match=r"test_settings\.py:\d+"):
        bl.problem(one, w, data={"x": np.ones(4)}, inner=lambda s, l, t: (t["w"] * s.x).sum(), outer=lambda s, l, t: t["w"].sum())
    calls = []

    def counting(s, l, t):
        calls.append(None)
        return ((t["w"] - l["l"]) ** 2).sum() * len(calls)

    with pytest.raises(CheckError, match=r"inner loss at .*test_settings\.py:\d+.* another one when it is called again"):
        bl.problem(one, w, inner=counting, outer=lambda s, l, t: t["w"].sum())


def test_functions_and_arrays_of_numpy_meet_tensors():
    w = np.linspace(0.2, 0.9, 3)
    formula = lambda w, xp: (np.exp(w) * np.arange(3.0) + np.array([1.0, 2, 3]) @ w - 2 / w + w**3 + xp.maximum(w, 0.5)[::-1 if xp is np else 1].sum()).sum()  # noqa: E731
    problem = bl.problem({"l": np.zeros(())}, {"w": w}, inner=lambda s, l, t: formula(t["w"], bl), outer=lambda s, l, t: (t["w"] * l["l"]).sum())
    assert abs(problem.losses()["inner"] - formula(w, np)) < 1e-12


def test_λ_and_parameters_of_another_structure_are_refused():
    problem = ridge()
    with pytest.raises(ShapeError):
        problem.hypergradient("rmd", lam={"other": np.zeros(())})
    with pytest.raises(ShapeError):
        problem.hypergradient("rmd", lam={"decay": np.zeros(3)})


def test_a_callback_sees_every_iteration_and_what_it_raises_arrives():
    problem, seen = ridge(), []
    problem.run("rmd", iterations=5, callback=lambda row: seen.append(row["outer_loss"]))
    assert len(seen) == 5

    class Mine(Exception):
        pass

    def raising(row):
        if row["iteration"] == 3:
            raise Mine("enough")

    with pytest.raises(Mine, match="enough"):
        problem.run("rmd", iterations=50, callback=raising)
    run = problem.run("rmd", iterations=50, callback=lambda row: row["iteration"] == 4)
    assert len(run.iterations) == 4 and "callback returned True" in run.reason


def test_a_callback_changes_nothing():
    with_one = ridge().run("rmd", iterations=10, callback=lambda row: None)
    without = ridge().run("rmd", iterations=10)
    assert with_one.lam["decay"].tobytes() == without.lam["decay"].tobytes()


def test_a_run_in_the_background_is_paused_resumed_and_ended():
    problem = ridge()
    run = problem.run("rmd", iterations=1_000_000, blocking=False)
    assert run.is_running
    while len(run.iterations) < 3:
        run.wait(timeout=0.05)
    run.pause()
    run.wait(timeout=0.2)
    before = len(run.iterations)
    run.wait(timeout=0.3)
    assert len(run.iterations) <= before + 1
    run.resume()
    while len(run.iterations) <= before + 1:
        run.wait(timeout=0.05)
    run.abort()
    assert not run.is_running and run.reason == "stopped from outside"
    assert np.isfinite(run.lam["decay"])


def has_command():
    """Whether this build has the command, and with it the pages of runs."""
    done = subprocess.run([sys.executable, "-m", "bilevel", "--version"], capture_output=True, text=True, timeout=120)
    return "without the command" not in done.stderr


def test_a_folder_has_metrics_checkpoints_and_a_page_and_resumes_to_the_same_bits(tmp_path):
    if not has_command():
        pytest.skip("this build is without the command")
    problem = ridge()
    first = problem.run("rmd", iterations=20, folder=tmp_path / "run", checkpoint_every=5)
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 20
    assert "<svg" in (tmp_path / "run" / "report.html").read_text()
    half = problem.run("rmd", iterations=10, folder=tmp_path / "other", checkpoint_every=5)
    again = problem.run("rmd", iterations=20, folder=tmp_path / "other", checkpoint_every=5, resume=True)
    assert half.lam["decay"] != again.lam["decay"]
    assert first.lam["decay"].tobytes() == again.lam["decay"].tobytes()


def test_a_problem_survives_pickling():
    problem = ridge()
    again = pickle.loads(pickle.dumps(problem))
    a, b = (p.hypergradient("rmd", steps=10).value["decay"] for p in (problem, again))
    assert a.tobytes() == b.tobytes()


def test_numbers_are_32_bit_where_asked():
    problem = ridge(dtype="f32")
    assert problem.dtype == "f32"
    assert problem.hypergradient("rmd").value["decay"].dtype == np.float32


def test_a_run_that_diverges_says_so_and_keeps_the_last_good_state():
    run = ridge().run("rmd", step=50.0, iterations=20)
    assert run.summary["failed"] and np.isfinite(run.lam["decay"])
    with pytest.raises(bl.errors.DivergenceError):
        run.raise_if_failed()


def test_compare_and_advise_have_tables():
    problem = ridge()
    found = problem.compare(["rmd", "ift-cg"], seeds=2, iterations=5)
    assert len(found.runs["rmd"]) == 2 and "ift-cg" in repr(found) and "<table" in found._repr_html_()
    assert found.plot().svg.startswith("<svg")
    advice = problem.advise()
    assert advice.ranked and advice.best["method"] in problem.methods()


def test_minibatches_noise_and_metrics():
    rng = np.random.default_rng(0)
    problem = bl.problem(
        {"l": np.zeros(())}, {"w": bl.normal(3, 0.1)}, data={"x": rng.normal(size=(40, 3)), "y": rng.integers(0, 2, 40)}, batch_size=8,
        inner=lambda s, l, t: ((s.x @ t["w"] - s.y + 0.1 * s.normal((8,))) ** 2).mean() + bl.exp(l["l"]) * (t["w"] ** 2).sum(),
        outer=lambda s, l, t: ((s.x @ t["w"] - s.y) ** 2).mean(), metrics={"size": lambda s, l, t: (t["w"] ** 2).sum()},
    )
    a, b, c = (problem.hypergradient("rmd", seed=s, steps=20).value["l"] for s in (1, 1, 2))
    assert a == b != c
    assert set(problem.losses()) == {"inner", "outer", "size"}
    assert problem.run("rmd", iterations=3, steps=5, metrics_every=1).metrics["size"] > 0


INTERRUPTED = """
import os, signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
import numpy as np, bilevel as bl
problem = bl.problem({"l": np.zeros(())}, {"w": np.zeros(400)}, inner=lambda s, l, t: ((t["w"] - l["l"]) ** 2).sum(),
                     outer=lambda s, l, t: ((t["w"] - 1) ** 2).sum())
def interrupt(row):  # in an iteration after the third, whatever the speed of the machine
    if row["iteration"] == 3:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    problem.run("rmd", iterations=10**9, step=0.001, steps=100, callback=interrupt)
except KeyboardInterrupt:
    run = problem.last_run
    assert run.iterations and np.isfinite(run.lam["l"]), run
    print("kept", run.reason)
"""


def test_ctrl_c_keeps_the_last_good_state():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "kept stopped from outside", done.stderr


ABANDONED = """
import numpy as np, bilevel as bl
problem = bl.problem({"l": np.zeros(())}, {"w": np.zeros(4)}, inner=lambda s, l, t: ((t["w"] - l["l"]) ** 2).sum(),
                     outer=lambda s, l, t: ((t["w"] - 1) ** 2).sum())
run = problem.run("rmd", iterations=10**9, blocking=False, callback=lambda row: None)
print("leaving")
"""


def test_the_interpreter_ends_with_a_run_in_the_background():
    done = subprocess.run([sys.executable, "-c", ABANDONED], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "leaving"), done.stderr


FORKED = """
import os
import numpy as np, bilevel as bl
make = lambda: bl.problem({"l": np.zeros(())}, {"w": np.zeros(4)}, inner=lambda s, l, t: ((t["w"] - l["l"]) ** 2).sum(),
                          outer=lambda s, l, t: ((t["w"] - 1) ** 2).sum())
problem = make()
before = problem.hypergradient("rmd").value["l"]
child = os.fork()
if child == 0:
    try:
        problem.hypergradient("rmd")
    except bl.Error as error:
        ok = "before a fork" in str(error)
    ok = ok and make().hypergradient("rmd").value["l"] == before
    os._exit(0 if ok else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_problem_is_refused_after_a_fork_and_a_new_one_works():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "0", done.stderr


def test_the_command_is_there():
    if not has_command():
        pytest.skip("this build is without the command")
    done = subprocess.run([sys.executable, "-m", "bilevel", "--version"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("bilevel ")
    refused = subprocess.run([sys.executable, "-m", "bilevel", "run", "no-such-task"], capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2


def test_a_method_is_a_function_with_typed_settings():
    assert bl.methods.rmd(storage="checkpoints") == {"name": "rmd", "storage": "checkpoints"}
    problem = ridge()
    by_name = problem.hypergradient("nystrom", columns=1, step=0.05, steps=20)
    by_function = problem.hypergradient(bl.methods.nystrom(columns=1), step=0.05, steps=20)
    assert by_name.value["decay"] == by_function.value["decay"]
    assert problem.run(bl.methods.rmd(), iterations=1, step=0.01, steps=2).method == "rmd"
    with pytest.raises(TypeError):
        bl.methods.nystrom(colums=1)
    settings = {s["name"]: s for m in bl.methods() if m["name"] == "nystrom" for s in m["settings"]}
    assert settings["columns"]["type"] == "int" and "at least 1" in settings["columns"]["range"]
    # Every range is the one that is enforced.
    for method in bl.methods():
        for setting in method["settings"]:
            assert setting["type"] in ("bool", "int", "float", "str", "dict"), setting

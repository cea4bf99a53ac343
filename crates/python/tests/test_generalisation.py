"""Splits, held-out rows, baselines, folds and shrinkage from Python: each against what it must be by hand."""

import pickle

import bilevel as bl
import numpy as np
import pytest
from bilevel.errors import DataError, Error, ProblemError, SettingError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 6))
Y = X @ np.array([2.0, -1.0, 0, 0, 0, 0]) + 0.5 * RNG.normal(size=80)
SPLIT = bl.Split(0.3, 0.3, 0.2, 0.2, seed=1)
SETTINGS = dict(step=0.1, steps=60)


def inner(s, lam, params):
    return ((s.x @ params["w"] - s.y) ** 2).mean() + (bl.exp(lam["decay"]) * params["w"] ** 2).sum()


def rows(s, lam, params):
    return (s.x @ params["w"] - s.y) ** 2


def ridge(outer=rows, split=SPLIT, **more):
    return bl.problem(
        {"decay": bl.full(6, -3.0, low=-8, high=1)}, {"w": np.zeros(6)}, table={"x": X, "y": Y}, split=split, inner=inner, outer=outer, **more)


def test_each_loss_sees_its_rows():
    problem = ridge()
    parts = {name: np.array(part) for name, part in problem.rows().items()}
    assert [len(part) for part in parts.values()] == [24, 24, 16, 16] and len(np.unique(np.concatenate(list(parts.values())))) == 80
    w = np.linspace(-1, 1, 6)
    error = (X @ w - Y) ** 2
    found = problem.losses(params={"w": w})
    assert abs(found["outer"] - error[parts["validation"]].mean()) < 1e-12
    assert abs(found["inner"] - error[parts["train"]].mean() - np.exp(-3.0) * (w**2).sum()) < 1e-12
    for part in ("held-out", "test"):
        assert np.abs(problem.row_losses(part, params={"w": w}) - error[parts[part]]).max() < 1e-12
    with pytest.raises(SettingError, match="held-out"):
        problem.row_losses("tset")


def test_a_loss_that_is_one_number_is_judged_in_blocks():
    one = ridge(outer=lambda s, lam, params: rows(s, lam, params).mean())
    w = {"w": np.linspace(-1, 1, 6)}
    blocks, each = one.row_losses("test", params=w), ridge().row_losses("test", params=w)
    assert len(blocks) == 16 and np.abs(blocks - each).max() < 1e-12
    blocks, each = one.row_losses("validation", params=w), ridge().row_losses("validation", params=w)
    assert len(blocks) == 16 and len(each) == 24
    assert abs(one.losses(params=w)["outer"] - each.mean()) < 1e-12


def test_labels_and_groups_are_divided_evenly():
    labels = np.repeat([0, 1], [72, 8])
    parts = bl.Split(0.5, 0.25, 0.25, labels=labels).rows(80)
    assert [int(labels[part].sum()) for part in parts] == [4, 2, 2, 0]
    groups = np.arange(80) // 8
    parts = bl.Split(groups=groups).rows(80)
    assert not set(groups[parts[0]]) & set(groups[parts[1]])
    with pytest.raises(DataError, match="7 labels for 80 rows"):
        bl.Split(labels=np.zeros(7)).rows(80)
    with pytest.raises(DataError, match="needs 160 of 80 rows"):
        bl.Split(train=100, validation=60, held_out=0).rows(80)


def test_the_guard_returns_the_best_on_held_out_rows():
    problem = ridge()
    run = problem.run("rmd", rate=0.3, iterations=40, guard={"every": 1, "patience": 3}, **SETTINGS)
    assert run.guard["rows"] == 16 and "held-out rows" in run.guard["sentence"]
    held_out = problem.row_losses("held-out", lam=run.lam, params=run.params).mean()
    if run.guard["kept_best"]:
        assert abs(held_out - run.guard["held_out_loss"]) < 1e-9
    assert ridge(split=bl.Split(0.5, 0.5, 0, 0)).run("rmd", iterations=2, **SETTINGS).guard is None
    with pytest.raises(SettingError, match="every"):
        problem.run("rmd", guard={"evry": 1}, **SETTINGS)


def test_baselines_say_whether_the_learned_penalties_win():
    problem = ridge()
    run = problem.run("rmd", rate=0.3, iterations=30, **SETTINGS)
    found = problem.baselines(run, **SETTINGS)
    assert found.part == "test" and len(found.rows) >= 4 and found.rows[1]["difference"] == 0
    by_hand = problem.row_losses("test", lam=run.lam, params=problem.train(run.lam, **SETTINGS).params).mean()
    assert abs(found.rows[0]["loss"] - by_hand) < 1e-9
    assert str(round(found.rows[0]["loss"], 4))[:5] in repr(found) and found.sentence in found._repr_html_().replace("&#x27;", "'")
    whole = problem.on_all_rows()
    assert [len(part) for part in whole.rows().values()] == [64, 0, 0, 16]
    assert abs(found.rows[-2]["rows"] - 64) == 0


def test_folds_train_once_for_each():
    problem = ridge(split=bl.Split(0.4, 0.3, 0.1, 0.2))
    folded = problem.folded(4, held_out=0.25)
    assert folded.sizes == (6, 24)
    run = folded.run("rmd", rate=0.1, iterations=3, guard={"every": 1}, **SETTINGS)
    assert run.lam["decay"].shape == (6,) and run.guard["rows"] == 16
    loss = lambda lam: folded.train({"decay": lam}, **SETTINGS).outer_loss  # noqa: E731
    at, h = np.full(6, -3.0), 1e-4 * np.eye(6)[0]
    slope = (8 * (loss(at + h) - loss(at - h)) - (loss(at + 2 * h) - loss(at - 2 * h))) / 12e-4
    found = folded.hypergradient("rmd", lam={"decay": at}, **SETTINGS).value["decay"][0]
    assert abs(found - slope) < 1e-8 * max(1, abs(slope))
    with pytest.raises(Error, match="derived"):
        pickle.dumps(folded)


def test_offsets_are_shrunk_towards_their_mean():
    problem = ridge()
    shrunk = problem.shrunk(0.5)
    assert {n: v.shape for n, v in shrunk.lam.items()} == {"decay.mean": (), "decay.offset": (6,)}
    run = shrunk.run("rmd", rate=0.1, iterations=3, **SETTINGS)
    expected = np.clip(run.lam["decay.mean"] + run.lam["decay.offset"], -8, 1)
    assert np.abs(shrunk.lam_of(run)["decay"] - expected).max() < 1e-12
    with pytest.raises(ProblemError):
        problem.lam_of(run)


def test_a_pickled_problem_keeps_its_rows():
    problem = ridge()
    again = pickle.loads(pickle.dumps(problem))
    assert again.rows() == problem.rows() and again.losses() == problem.losses()
    with pytest.raises(Error, match="make it anew"):
        again.folded(3)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ProblemError, match="give both"):
        ridge(split=None)
    with pytest.raises(ProblemError, match="no divided rows"):
        bl.problem({"l": np.zeros(())}, {"w": np.zeros(2)}, inner=lambda s, l, t: ((t["w"] - l["l"]) ** 2).sum(),
                   outer=lambda s, l, t: t["w"].sum()).folded(3)
    with pytest.raises(DataError, match="same number"):
        bl.problem({"l": np.zeros(())}, {"w": np.zeros(2)}, table={"x": np.ones((4, 2)), "y": np.ones(3)}, split=bl.Split(),
                   inner=lambda s, l, t: (t["w"] * l["l"]).sum(), outer=lambda s, l, t: t["w"].sum())

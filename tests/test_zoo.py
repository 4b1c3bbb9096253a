"""The labels of the zoo are computed here, not trusted: all symmetries of every clean target."""

from __future__ import annotations

import doctest
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.identify import identify
from lieaugmenter.lie.brackets import closure_residual
from lieaugmenter.lie.elements import Elements
from lieaugmenter.runs import read_json

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
try:
    from benchmarks.zoo import blobs, methods, page, run, score
    from benchmarks.zoo.functions import stream
    from benchmarks.zoo.tasks import KINDS, NULL_KINDS, ZooTask, tasks
finally:
    sys.path.pop(0)

SAMPLES = 400
# Relative to the root mean square over all directions: what counts as zero, and what surely not.
ZERO, SURELY_NOT = 1e-12, 0.04
# Where there is no symmetry the best direction must be no near miss either: tests of equivalence
# commonly let 0.1 pass.
NO_NEAR_MISS = 0.15
EVERY = list(tasks().values())
EXACT = [task for task in EVERY if task.kind != "approximate"]
APPROXIMATE = [task for task in EVERY if task.kind == "approximate"]
CONTINUOUS = [task for task in EVERY if task.dimension]
CLASSES = [task for task in EVERY if task.classes]
IMAGES = [task for task in EVERY if task.action == "image"]


def each(chosen: list[ZooTask]) -> Any:
    return pytest.mark.parametrize("task", chosen, ids=lambda task: task.name)


@dataclass(frozen=True)
class Spectrum:
    """Singular values of the Lie derivative, ascending, and the directions they belong to.

    Directions are compared at one mean square displacement of the samples; values are relative
    to their root mean square.
    """

    values: Tensor
    directions: Tensor
    displacement: Tensor

    def span(self, n: int) -> Tensor:
        return self.directions[:n]


def velocity(task: ZooTask, generator: Tensor, z: Tensor) -> Tensor:
    """How a generator moves the coordinates of the target; written down once more."""
    if task.flow is not None:
        return task.flow(generator, z)
    if task.action == "affine":
        return torch.einsum("ij,...j->...i", generator[:-1, :-1], z) + generator[:-1, -1]
    return torch.einsum("ij,...j->...i", generator, z)


def elementary(task: ZooTask) -> Tensor:
    """All matrices with a single one that the action allows."""
    rows = task.dim
    size = task.truth.shape[-1]
    every = torch.eye(size * size, dtype=torch.float64).view(-1, size, size)
    return every[: rows * size]


def lie_derivatives(task: ZooTask, z: Tensor) -> Tensor:
    """(entries, samples × outputs): J f(x)·(E x) - E f(x) for every elementary matrix E."""
    rows = []
    for generator in elementary(task):
        value, pushed = torch.func.jvp(task.target, (z,), (velocity(task, generator, z),))
        if task.output == "same":
            pushed = pushed - velocity(task, generator, value)
        rows.append(pushed.flatten())
    return torch.stack(rows)


def spectrum(task: ZooTask, z: Tensor, derivatives: Tensor) -> Spectrum:
    moved = torch.stack([velocity(task, e, z).flatten() for e in elementary(task)])
    sizes, axes = torch.linalg.eigh(moved @ moved.mT)
    whitening = axes / sizes.sqrt()
    _, values, turned = torch.linalg.svd(derivatives.mT @ whitening, full_matrices=False)
    found = (whitening @ turned.mT).flip(1).mT
    size = task.truth.shape[-1]
    entries = torch.zeros(len(found), size * size, dtype=torch.float64)
    entries[:, : found.shape[1]] = found
    relative = values.flip(0) / values.square().mean().sqrt()
    return Spectrum(relative, entries.view(-1, size, size), sizes)


def spectrum_of_target(task: ZooTask) -> Spectrum:
    z = task.sample(SAMPLES, stream(1))
    return spectrum(task, z, lie_derivatives(task, z))


def assert_is_truth(found: Spectrum, task: ZooTask, zero: float = ZERO) -> None:
    c = task.dimension
    assert (found.values[:c] < zero).all(), found.values[:c]
    assert found.values[c] > (SURELY_NOT if c else NO_NEAR_MISS), found.values[c]
    if c:
        assert principal_cosines(found.span(c), task.truth).min() > 1 - 1e-6


# -- labels ----------------------------------------------------------------------------------------


@each(EXACT)
def test_the_truth_is_the_whole_algebra_of_the_clean_target(task: ZooTask) -> None:
    assert_is_truth(spectrum_of_target(task), task)


@each(APPROXIMATE)
def test_an_approximate_symmetry_is_near_the_algebra_that_was_broken(task: ZooTask) -> None:
    found, c = spectrum_of_target(task), len(task.nearest)
    assert found.values[0] > 1e-3, "it must not be exact"
    assert found.values[c - 1] < 0.15
    assert found.values[c] > 2.5 * found.values[c - 1]
    assert principal_cosines(found.span(c), task.nearest).min() > 0.98


@each([task for task in EVERY if task.kind == "broken"])
def test_what_was_broken_is_named(task: ZooTask) -> None:
    assert len(task.nearest)
    assert "nearest algebra" in task.note


def on_boundaries(task: ZooTask) -> tuple[Tensor, Tensor]:
    """Points where the two best classes tie, and the unit normals of the boundary there."""
    z = task.sample(4 * SAMPLES, stream(2))
    best = task.target(z).topk(2, dim=-1).indices

    def gap(at: Tensor) -> Tensor:
        chosen = task.target(at).gather(-1, best)
        return chosen[:, 0] - chosen[:, 1]

    def slope(at: Tensor) -> Tensor:
        return torch.func.grad(lambda t: gap(t).sum())(at)

    start = z
    for _ in range(30):
        steep = slope(z)
        size = steep.flatten(1).square().sum(1).clamp_min(1e-12)
        step = (gap(z) / size).clamp(-0.5, 0.5)
        z = z - step.view(-1, *[1] * (z.ndim - 1)) * steep
    still = task.target(z).topk(2, dim=-1).indices.sort(-1).values == best.sort(-1).values
    near = (z - start).flatten(1).norm(dim=1) < 1.0
    kept = (gap(z).abs() < 1e-12) & still.all(-1) & near
    normals = slope(z)[kept]
    return z[kept], normals / normals.flatten(1).norm(dim=1).view(-1, *[1] * (z.ndim - 1))


@each(CLASSES)
def test_boundaries_between_classes_have_the_symmetry_and_no_other(task: ZooTask) -> None:
    # Clean labels tell where scores tie and nothing else, which could have more symmetry.
    z, normals = on_boundaries(task)
    assert len(z) > 100
    moved = [(normals * velocity(task, e, z)).flatten(1).sum(1) for e in elementary(task)]
    assert_is_truth(spectrum(task, z, torch.stack(moved)), task, zero=1e-9)


@each(CONTINUOUS)
def test_the_truth_is_an_algebra_with_its_name(task: ZooTask) -> None:
    action = task.input_action()
    assert torch.linalg.matrix_rank(task.truth.flatten(1)) == task.dimension
    assert closure_residual(task.truth) < 1e-6
    found = identify(task.truth, rows=action.rows, space_dim=action.space_dim)
    assert found.name == task.algebra


@each(EVERY)
def test_inputs_move_along_every_direction(task: ZooTask) -> None:
    sizes = spectrum_of_target(task).displacement
    assert (sizes[0] / sizes[-1]).sqrt() > 0.03


def test_the_zoo_is_large_and_mixed() -> None:
    kinds = Counter(task.kind for task in EVERY)
    assert len(EVERY) >= 45
    assert set(kinds) == set(KINDS)
    assert kinds["none"] >= 12
    assert {task.action for task in EVERY} == {"vector", "points", "affine", "fourvector", "image"}
    same = Counter(task.kind for task in EVERY if task.output == "same")
    assert set(same) == set(KINDS)
    assert all(task.note for task in EVERY)


# -- images ----------------------------------------------------------------------------------------


def test_blobs_move_as_their_field_does() -> None:
    # (g·x)(p) = x(g⁻¹p): the field changes in time by -∇x·(A p + b), for every generator.
    z = blobs.blobs()(20, stream(0))
    at = 0.5 * torch.randn(30, 2, generator=stream(1), dtype=torch.float64)
    for generator in elementary(IMAGES[0]):
        moving = velocity(IMAGES[0], generator, z)
        _, change = torch.func.jvp(lambda t: blobs.field(t, at), (z,), (moving,))
        stream_at = at @ generator[:2, :2].mT + generator[:2, 2]
        _, along = torch.func.jvp(lambda p: blobs.field(z, p), (at,), (stream_at,))
        torch.testing.assert_close(change, -along)


def test_pixels_move_as_blobs_do_up_to_sampling() -> None:
    action, z = IMAGES[0].input_action(), blobs.blobs()(50, stream(0))
    image = blobs.render(z)
    for generator in elementary(IMAGES[0]):
        coefficients = torch.full((len(z), 1, 1), 0.1, dtype=torch.float64)
        warped = action.act(Elements(coefficients, generator[None]), image).squeeze(1)
        moved = z
        for _ in range(20):
            moved = moved + 0.005 * velocity(IMAGES[0], generator, moved)
        error = (warped - blobs.render(moved)).norm() / image.norm()
        # Interpolation blurs, and takes away what lies beyond the frame.
        assert error < 0.12, error
        assert error < 0.6 * (image - blobs.render(moved)).norm() / image.norm()


# -- data ------------------------------------------------------------------------------------------


@each(EVERY)
def test_draws_are_plain_and_repeatable(task: ZooTask) -> None:
    x, y = task.draw(600, 0.1, 3)
    again_x, again_y = task.draw(600, 0.1, 3)
    assert torch.equal(x, again_x)
    assert torch.equal(y, again_y)
    assert not torch.equal(x, task.draw(600, 0.1, 4)[0])
    assert x.dtype == torch.float32
    assert x.isfinite().all()
    task.input_action().check(x)
    if task.classes:
        assert y.dtype == torch.int64
        assert y.bincount(minlength=task.classes).min() > 0.1 * len(y)
    else:
        assert y.dtype == torch.float32
        assert y.shape == (x.shape if task.output == "same" else x.shape[:1])
        noise = y - task.draw(600, 0.0, 3)[1]
        assert noise.std().item() == pytest.approx(0.1 * task.deviation(), rel=0.15)


# -- measures --------------------------------------------------------------------------------------


def record(**changes: Any) -> dict[str, Any]:
    usual = {
        "task": "t",
        "family": "rotation",
        "kind": "continuous",
        "true_dimension": 3,
        "algebra": "so(3)",
        "method": "m",
        "certifies": True,
        "told": False,
        "certified": True,
        "dimension": 3,
        "name": "so(3)",
        "cosine": 0.99,
        "seconds": 2.0,
    }
    return usual | changes


NOTHING = {"kind": "none", "family": "none", "true_dimension": 0, "algebra": "", "cosine": None}


def test_doctests_of_the_benchmark() -> None:
    for module in (score, methods):
        tried = doctest.testmod(module, extraglobs={"torch": torch})
        assert tried.attempted
        assert not tried.failed


def test_wilson_interval_is_the_published_one() -> None:
    # Newcombe (1998), 81 of 263 and 0 of 20.
    assert score.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert score.wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert score.wilson(0, 0) == (0.0, 1.0)


def test_false_certifications_are_counted_where_there_is_nothing_to_certify() -> None:
    records = [record(**NOTHING, certified=k == 0) for k in range(4)]
    records += [record(), record(**NOTHING | {"kind": "approximate"})]
    records += [record(**NOTHING, certifies=False)]
    found = score.false_certifications(records)
    assert (found["count"], found["of"]) == (1, 4)
    assert score.approximate_certifications(records)["rate"] == 1.0
    assert score.false_certifications([record()]) is None
    assert set(NULL_KINDS) == {"none", "discrete-only", "broken"}


def test_detection_and_dimension() -> None:
    records = [
        record(),
        record(dimension=4),
        record(certified=False),
        record(**NOTHING, certified=False),
        record(told=True, certified=True),
    ]
    assert score.detections(records)["count"] == 3
    assert score.overclaims(records)["count"] == 1
    right = score.right_dimensions(records)
    assert (right["count"], right["of"]) == (2, 4), "told runs do not count, silence on none does"


def test_names_and_cosines_are_judged_at_the_right_dimension() -> None:
    records = [record(), record(name="sl(2)", cosine=0.5), record(dimension=2, cosine=0.1)]
    named = score.right_names(records)
    assert (named["count"], named["of"]) == (1, 2)
    assert score.cosines(records)["least"] == 0.5
    assert score.cosines([record(**NOTHING)]) is None


def test_span_cosine() -> None:
    truth = tasks()["so3-r3"].truth
    mixture = torch.linalg.qr(torch.randn(3, 3)).Q.double()
    mixed = torch.einsum("ij,jab->iab", mixture, truth)
    assert score.span_cosine(mixed, truth) == pytest.approx(1.0)
    assert score.span_cosine(torch.eye(3)[None], truth) == pytest.approx(0.0, abs=1e-6)
    assert score.span_cosine(truth, truth[:0]) is None


def test_table_by_family_and_overall() -> None:
    records = [record(), record(**NOTHING), record(method="other", error="it broke")]
    rows = score.table(records)
    assert [(row["method"], row["family"]) for row in rows] == [
        ("m", "all"),
        ("m", "rotation"),
        ("m", "none"),
        ("other", "all"),
        ("other", "rotation"),
    ]
    assert rows[0]["false_certification"]["rate"] == 1.0
    assert rows[3]["failed"] == 1
    text = score.markdown(rows)
    assert len(text.splitlines()) == 2 + len(rows)
    assert "1/1 [0.21, 1.00]" in text


# -- runner ----------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A method that returns the truth, and fails when the list says so."""
    calls: list[str] = []

    def oracle(task: ZooTask, x: Tensor, y: Tensor, seed: int) -> dict[str, Any]:
        calls.append(task.name)
        if "fail" in calls:
            raise RuntimeError("as asked")
        truth = task.truth
        return {
            "certified": bool(len(truth)),
            "dimension": len(truth),
            "generators": truth.tolist(),
            "name": task.algebra,
            "seconds": 0.1,
            "extra": {},
        }

    method = methods.Method(oracle, certifies=True, told=False)
    monkeypatch.setitem(methods.METHODS, "oracle", method)
    return calls


def run_oracle(folder: Path, *more: str) -> None:
    chosen = ["--tasks", "so2-r2", "none-network-r2", "--sizes", "50", "--seeds", "2"]
    run.main([*chosen, "--methods", "oracle", "--output", str(folder), *more])


def test_runner_skips_what_is_finished(tmp_path: Path, counted: list[str]) -> None:
    run_oracle(tmp_path)
    assert len(counted) == 4
    run_oracle(tmp_path)
    assert len(counted) == 4
    assert len(list(tmp_path.glob("*.json"))) == 4
    text = (tmp_path / "tables" / "table.md").read_text()
    assert "| oracle | all | 4 | 0/2 [0.00, 0.66] |" in text


def test_runner_records_failures_and_tries_again(tmp_path: Path, counted: list[str]) -> None:
    counted.append("fail")
    run_oracle(tmp_path)
    assert "| 4 |" in (tmp_path / "tables" / "table.md").read_text()
    counted.clear()
    run_oracle(tmp_path)
    assert len(counted) == 4


def test_runner_begins_nothing_after_its_limit(tmp_path: Path, counted: list[str]) -> None:
    run_oracle(tmp_path, "--limit", "-1")
    assert not counted


@pytest.mark.parametrize("method", list(methods.METHODS))
@pytest.mark.parametrize("name", ["so2-r3-classes", "se2-swarm", "so13-momenta"])
def test_methods_return_records(
    method: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epochs in ("_EPOCHS", "_TEAM_EPOCHS", "_LIEGAN_EPOCHS"):
        monkeypatch.setattr(methods, epochs, 1)
    found = run.execute(run.Plan(name, method, 300, 0.01, 0))
    assert "error" not in found, found.get("traceback")
    assert found["dimension"] == len(found["generators"])
    assert found["cosine"] is None or 0 <= found["cosine"] <= 1


def test_liegg_finds_the_rotation_of_the_plane() -> None:
    found = run.execute(run.Plan("so2-r2", "liegg-known", 1500, 0.01, 0))
    assert found["cosine"] > 0.98
    assert found["name"] == "so(2)"


def test_the_page_comes_from_the_published_runs() -> None:
    content = read_json(page.RESULTS)
    expected = page.PAGE.read_text(encoding="utf-8")
    assert page.page(content) == expected, "run: python -m benchmarks.zoo.page"


def test_published_runs_keep_what_scores_need(tmp_path: Path) -> None:
    plan = run.Plan("so2-r2", "liegg-gap", 200, 0.01, 0)
    record = run.execute_and_write(plan, tmp_path)
    (kept,) = page.published(page.collected([tmp_path]))
    record |= {name: round(record[name], 6) for name in ("cosine", "seconds")}
    assert score.table([record]) == score.table([kept])


def test_new_runs_take_the_place_of_all_seeds_of_their_tasks_alone() -> None:
    columns = ("so2-r2", "ours", 4000, 0.01)

    def content(*runs: tuple[object, ...], day: str) -> dict[str, Any]:
        full = [[*run, True, 1, "so(2)", 1.0, 1.0, "certified", False] for run in runs]
        own = {"columns": page._COLUMNS, "runs": full, "environments": {"ours": {"day": day}}}
        return own | {"timed": {"so2-r2": 1.0}, "timed_environment": {"day": day}}

    other = ("so3-r3", "ours", 4000, 0.01)
    old = content((*columns, 0), (*columns, 1), (*other, 0), day="old")
    found = page.added(old, content((*columns, 5), day="new"))
    assert [(run[0], run[4]) for run in found["runs"]] == [("so3-r3", 0), ("so2-r2", 5)]
    assert found["environment"] == found["timed_environment"] == {"day": "new"}
    untimed = content((*columns, 5), day="new") | {"timed": {}, "timed_environment": None}
    assert page.added(old, untimed)["timed_environment"] == {"day": "old"}

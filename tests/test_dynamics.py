"""Two-body orbits: generated, read from the reference file, and split by quadrant."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from lieaugmenter.data.dynamics import (
    FEATURES,
    TwoBody,
    orbits,
    out_of_distribution,
    true_generator,
    two_body,
    two_body_from_file,
    windows,
)
from lieaugmenter.data.files import DataError
from lieaugmenter.data.task import Task

# The reference file's columns, in its order.
COLUMNS = ["q1x", "q2x", "q1y", "q2y", "p1x", "p2x", "p1y", "p2y"]


@pytest.fixture
def reference() -> Path:
    folder = os.environ.get("LIEAUGMENTER_DATA")
    path = Path(folder or ".") / "two_body" / "two_body_orbits.npz"
    if not folder or not path.is_file():
        pytest.skip("LIEAUGMENTER_DATA does not lead to two_body/two_body_orbits.npz")
    return path


def as_reference(trajectories: np.ndarray) -> np.ndarray:
    return trajectories[..., [FEATURES.index(name) for name in COLUMNS]]


def some_orbits(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return orbits(rng.uniform(-np.pi, np.pi, n), rng)


def test_two_body_is_a_task() -> None:
    task = two_body(4, 4)
    assert isinstance(task, Task)
    assert task.name == "two-body"
    assert task.output == "same"
    assert task.feature_names == FEATURES
    assert task.x_validation is None
    assert two_body(4, 4, steps=3).name == "two-body-3"


@pytest.mark.parametrize(("steps", "train", "test"), [(1, 14_652, 14_220), (3, 11_396, 11_060)])
def test_default_sizes_are_the_papers(steps: int, train: int, test: int) -> None:
    task = two_body(steps=steps)
    assert (len(task.x_train), len(task.x_test)) == (train, test)


def test_turned_start_gives_the_turned_orbit() -> None:
    angle = 0.7
    starts = np.linspace(-3, 3, 5)
    still = orbits(starts, np.random.default_rng(0))
    turned = orbits(starts + angle, np.random.default_rng(0))
    turn = torch.linalg.matrix_exp(angle * true_generator()[0].double()).numpy()
    assert np.allclose(turned, still @ turn.T, atol=1e-6)


def test_file_is_read_in_our_order_of_columns(tmp_path: Path) -> None:
    train, test = some_orbits(3), some_orbits(2, seed=1)
    path = tmp_path / "orbits.npz"
    np.savez(path, coords=as_reference(train), test_coords=as_reference(test))
    for steps in (1, 3):
        task = two_body_from_file(path, steps=steps)
        assert isinstance(task, TwoBody)
        x, y = windows(train, steps)
        assert torch.equal(task.x_train, x)
        assert torch.equal(task.y_train, y)
        assert torch.equal(task.x_test, windows(test, steps)[0])
    assert torch.equal(task.generator, true_generator())


def test_missing_file_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such file. The reference orbits are .*LieGAN"):
        two_body_from_file(tmp_path / "none.npz")


GOOD = as_reference(some_orbits(2))


def damaged(value: float) -> np.ndarray:
    array = GOOD.copy()
    array[1, 3, 2] = value
    return array


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"coords": GOOD}, r"no array 'test_coords'; the file has coords$"),
        ({"test_coords": GOOD}, "no array 'coords'"),
        ({"coords": GOOD, "test_coords": GOOD[0]}, r"test_coords has shape \(20, 8\); expected"),
        ({"coords": GOOD[..., :7], "test_coords": GOOD}, r"coords has shape \(2, 20, 7\)"),
        ({"coords": GOOD[:0], "test_coords": GOOD}, r"coords has shape \(0, 20, 8\)"),
        ({"coords": GOOD.astype("U9"), "test_coords": GOOD}, "coords has dtype <U9; floats"),
        ({"coords": GOOD.astype(object), "test_coords": GOOD}, "pickled Python objects"),
        ({"coords": GOOD, "test_coords": damaged(np.nan)}, "test_coords has 1 non-finite value"),
        ({"coords": damaged(np.inf), "test_coords": GOOD}, "coords has 1 non-finite .* row 1"),
    ],
)
def test_each_damaged_file_gets_its_message(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    path = tmp_path / "orbits.npz"
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match=message):
        two_body_from_file(path)


def test_truncated_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "orbits.npz"
    np.savez(path, coords=GOOD, test_coords=GOOD)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"not a readable \.npz"):
        two_body_from_file(path)
    path.write_text("coords")
    with pytest.raises(DataError, match=r"not a readable \.npz"):
        two_body_from_file(path)


@pytest.mark.parametrize("steps", [0, 10])
def test_steps_that_do_not_fit_are_refused(tmp_path: Path, steps: int) -> None:
    np.savez(tmp_path / "orbits.npz", coords=GOOD, test_coords=GOOD)
    with pytest.raises(ValueError, match=f"steps={steps}: windows of that length do not fit"):
        two_body_from_file(tmp_path / "orbits.npz", steps=steps)


@pytest.mark.parametrize("steps", [1, 3])
def test_out_of_distribution_splits_by_quadrant_and_loses_nothing(steps: int) -> None:
    task = two_body(30, 30, steps=steps)
    shifted = out_of_distribution(task)
    q1x, q1y = FEATURES.index("q1x"), FEATURES.index("q1y")

    def sides(x: torch.Tensor) -> torch.Tensor:
        first = x.view(len(x), steps, 8)[:, 0]
        return first[:, q1x] * first[:, q1y]

    assert isinstance(shifted, TwoBody)
    assert shifted.name == f"{task.name}-ood"
    assert (sides(shifted.x_train) < 0).all()
    assert (sides(shifted.x_test) >= 0).all()
    assert min(len(shifted.x_train), len(shifted.x_test)) > 0

    def pairs(some: TwoBody) -> torch.Tensor:
        x, y = torch.cat([some.x_train, some.x_test]), torch.cat([some.y_train, some.y_test])
        return torch.unique(torch.cat([x, y], dim=1).flatten(1), dim=0)

    assert torch.equal(pairs(shifted), pairs(task))


@pytest.mark.parametrize(("steps", "train", "test"), [(1, 14_652, 14_220), (3, 11_396, 11_060)])
def test_reference_file_has_the_papers_sizes(
    reference: Path, steps: int, train: int, test: int
) -> None:
    task = two_body_from_file(reference, steps=steps)
    assert (len(task.x_train), len(task.x_test)) == (train, test)
    shifted = out_of_distribution(task)
    assert len(shifted.x_train) + len(shifted.x_test) == train + test


def test_reference_file_holds_two_opposite_bodies_that_turn_left(reference: Path) -> None:
    """Right only if the columns are where we think they are."""
    task = two_body_from_file(reference)
    x = torch.cat([task.x_train, task.x_test])
    assert torch.allclose(x[:, :4], -x[:, 4:], atol=1e-6)
    q, p = x[:, 0:2], x[:, 2:4]
    assert (q[:, 0] * p[:, 1] - q[:, 1] * p[:, 0] > 0).all()
    circular = 1 / (2 * q.norm(dim=1).sqrt())
    assert torch.allclose(p.norm(dim=1), circular, rtol=0.02)
    no_motion = float((task.x_test - task.y_test).square().mean())
    assert no_motion == pytest.approx(4.72e-3, rel=0.01)

"""What the report tries on held-out samples: the slider's sweep, the departure, the losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from report_cases import cloud_predictor, image_predictor, orbit_predictor, orbits_findings
from torch import Tensor, nn

from lieaugmenter import SymmetryClassifier, SymmetryRegressor
from lieaugmenter.actions import DirectSumAction, InvariantAction, VectorAction
from lieaugmenter.data.dynamics import FEATURES, true_generator
from lieaugmenter.learning import LieAugmenter
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.lie.catalogue import lift, scaling, se, so, translations
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.html import render
from lieaugmenter.report.sweep import Sweep, moving_planes, reach, sweep
from lieaugmenter.report.trials import departure, ways_to_predict
from lieaugmenter.runs import RunFolder

Trial = tuple[Predictor, Tensor, Tensor]


class First(nn.Module):
    """The first feature: no rotation leaves it alone."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :1]


class Without(Predictor):
    """A predictor for which no generator was found."""

    def generators(self) -> Tensor:
        return super().generators()[:0]


def swept(predictor: Predictor, x: Tensor, y: Tensor, **options: object) -> Sweep:
    names = [f"x{i + 1}" for i in range(x.shape[-1])]
    ranges = [2.0] * len(predictor.generators())
    found = sweep(predictor, x, y, ranges, **({"names": names} | options))
    assert found is not None
    return found


class TestSweep:
    def test_moves_samples_by_the_exponential(self) -> None:
        predictor, x, y = orbit_predictor()
        found = swept(predictor, x, y)
        assert found.weights[0, 0] == -2.0
        assert found.weights[0, found.weights.shape[1] // 2] == 0.0
        for step in (0, 30, -1):
            matrix = torch.linalg.matrix_exp(found.weights[0, step] * true_generator()[0])
            torch.testing.assert_close(
                found.inputs[0, :, step, 0], x[:4] @ matrix.mT, atol=1e-5, rtol=1e-5
            )

    @pytest.mark.parametrize("made", [orbit_predictor, cloud_predictor])
    def test_predictions_of_a_symmetric_predictor_are_as_expected(
        self, made: Callable[[], Trial]
    ) -> None:
        found = swept(*made())
        for way in (found.direct, found.averaged):
            torch.testing.assert_close(way, found.expected, atol=2e-3, rtol=2e-3)

    def test_predictions_of_another_predictor_are_not(self) -> None:
        predictor, x, y = cloud_predictor()
        found = swept(Predictor(First(), predictor.augmenter), x, y)
        assert (found.direct - found.expected).abs().max() > 0.5

    def test_expected_outputs_move_with_the_inputs(self) -> None:
        found = swept(*orbit_predictor(), names=FEATURES)
        assert found.alike
        assert found.outputs == list(FEATURES)
        assert (found.expected - found.expected[:, :, :1]).abs().max() > 0.1

    def test_images_are_bytes_that_fit_the_page(self) -> None:
        predictor, x, y = image_predictor()
        large = torch.nn.functional.interpolate(x, (200, 150)).expand(-1, 3, -1, -1)
        for images in (x, large):
            found = swept(predictor, images, y, labels=["in", "between", "out"])
            assert found.inputs.dtype == torch.uint8
            assert found.inputs.numel() <= 1_200_000
            assert int(found.inputs.max()) > 200

    def test_samples_of_different_classes_are_chosen(self) -> None:
        predictor, x, y = image_predictor()
        assert len(y.unique()) == 3
        found = swept(predictor, x, y, labels=["in", "between", "out"])
        assert set(found.targets) == {"in", "between", "out"}
        torch.testing.assert_close(found.direct.sum(-1), torch.ones(found.direct.shape[:-1]))

    def test_many_outputs_are_told_by_their_error(self) -> None:
        augmenter = LieAugmenter("points", 3, output="same", basis=so(3))
        x = torch.randn(6, 20, 3)
        found = swept(Predictor(nn.Identity(), augmenter), x, x)
        assert found.quantity == "relative error"
        assert found.direct.shape[-1] == 1
        assert found.direct.max() < 1e-4

    def test_forces_are_no_points_among_the_positions(self) -> None:
        x = torch.randn(6, 2, 3)
        for output, is_point in (("same", True), ("vector", False)):
            augmenter = LieAugmenter("affine", 3, output=output, basis=se(3))
            assert swept(Predictor(nn.Identity(), augmenter), x, x).alike == is_point

    @pytest.mark.parametrize(
        ("features", "panels"), [(1, [[0]]), (2, [[0, 1]]), (3, [[0, 1, 2]]), (4, [[0, 1]])]
    )
    def test_a_small_space_is_shown_whole(self, features: int, panels: list[list[int]]) -> None:
        generator = torch.zeros(1, features, features)
        generator[0, 0, -1 if features < 4 else 1] = 1.0
        augmenter = LieAugmenter("vector", features, output="invariant", basis=generator)
        x = torch.randn(5, features)
        assert swept(Predictor(First(), augmenter), x, x[:, :1]).panels == [panels]

    def test_of_many_features_those_that_move_are_kept(self) -> None:
        generator = torch.zeros(1, 40, 40)
        generator[0, 30, 35], generator[0, 35, 30] = 1.0, -1.0
        augmenter = LieAugmenter("vector", 40, output="invariant", basis=generator)
        x = torch.randn(5, 40)
        found = swept(Predictor(First(), augmenter), x, x[:, :1])
        assert (found.features, found.panels) == ([30, 35], [[[0, 1]]])

    def test_features_that_no_matrix_moves_are_drawn_against_w(self) -> None:
        action = DirectSumAction([(VectorAction(3), 3), (InvariantAction(), 2)])
        augmenter = LieAugmenter(action, output="invariant", basis=so(3)[2:])
        x = torch.randn(5, 5)
        found = swept(Predictor(First(), augmenter), x, x[:, :1])
        moved = so(3)[2].abs().sum(1).nonzero().flatten().tolist()
        assert found.panels == [[[i] for i in moved]]

    def test_without_generators_there_is_nothing_to_sweep(self) -> None:
        predictor, x, y = orbit_predictor()
        without = Without(predictor.network, predictor.augmenter)
        assert sweep(without, x, y, [], names=FEATURES) is None
        assert departure(without, x, y, []) is None

    def test_survives_a_run_folder(self, tmp_path: Path) -> None:
        findings = orbits_findings()
        run = RunFolder.create(tmp_path / "run", {"parameters": {}})
        findings.save(run)
        loaded, kept = Findings.load(run), findings.sweep
        assert kept is not None
        assert loaded.sweep is not None
        assert loaded.sweep.words() == kept.words()
        for name, tensor in kept.tensors().items():
            assert torch.equal(getattr(loaded.sweep, name), tensor)
        assert loaded.departure == findings.departure

    def test_findings_without_one_survive_too(self, tmp_path: Path) -> None:
        run = RunFolder.create(tmp_path / "run", {"parameters": {}})
        replace(orbits_findings(), sweep=None, departure=None).save(run)
        assert Findings.load(run).sweep is None
        assert Findings.load(run).departure is None


class TestDeparture:
    def test_is_small_along_a_symmetry_and_grows_elsewhere(self) -> None:
        predictor, x, y = cloud_predictor()
        found = departure(predictor, x, y, [2.0] * 3)
        assert found is not None
        learned, random = torch.tensor(found.learned), torch.tensor(found.random)
        assert learned.max() < 1e-4
        assert random[:, -1].min() > 0.1
        assert bool((random[:, 3] > 2 * random[:, 0]).all())

    def test_is_as_large_along_what_is_no_symmetry(self) -> None:
        predictor, x, y = cloud_predictor()
        found = departure(Predictor(First(), predictor.augmenter), x, y, [2.0] * 3)
        assert found is not None
        learned, random = torch.tensor(found.learned), torch.tensor(found.random)
        assert learned[:, 0].max() > 0.5 * random[:, 0].median()

    def test_band_of_random_directions_holds_the_arbitrary_one(self) -> None:
        found = departure(*orbit_predictor(), [2.0])
        assert found is not None
        assert found.null[0] < 1 < found.null[1]

    def test_floor_is_the_predictors_own_error(self) -> None:
        predictor, x, y = cloud_predictor()
        exact = departure(predictor, x, y, [2.0] * 3)
        off = departure(predictor, x, y + y.std(correction=0), [2.0] * 3)
        assert exact is not None
        assert off is not None
        assert exact.floor == pytest.approx(0.0, abs=1e-5)
        assert off.floor == pytest.approx(1.0, rel=1e-4)


class TestWaysToPredict:
    @pytest.mark.parametrize("made", [orbit_predictor, cloud_predictor])
    def test_moved_samples_cost_nothing_under_a_symmetry(self, made: Callable[[], Trial]) -> None:
        direct, averaged = ways_to_predict(*made())
        assert direct["loss"] < 1e-6
        assert direct["moved"] < 1e-6
        assert averaged["moved"] < 1e-6

    def test_moved_samples_cost_dearly_without_one(self) -> None:
        predictor, x, _ = cloud_predictor()
        first = Predictor(First(), predictor.augmenter)
        direct, _ = ways_to_predict(first, x, First()(x))
        assert direct["loss"] < 1e-6
        assert direct["moved"] > 0.1


def test_planes_are_those_that_a_generator_moves() -> None:
    noise = 0.02 * torch.randn(8, 8)
    expected = [(0, 1), (2, 3), (4, 5)]
    assert moving_planes(true_generator()[0]) == expected
    assert moving_planes(true_generator()[0] + noise) == expected
    assert moving_planes(true_generator()[0], most=4) == [*expected, (6, 7)]
    assert moving_planes(scaling(2)[0]) == [(0,), (1,)]
    assert moving_planes(lift(so(3))[1], affine=True) == [(0, 2)]
    assert moving_planes(translations(2)[0], affine=True) == [(0, 1)]
    assert moving_planes(translations(1)[0], affine=True) == [(0,)]
    assert moving_planes(torch.zeros(3, 3)) == []


def test_reach_is_the_range_unless_a_picture_cannot_hold_it() -> None:
    turn = so(2)[0]
    assert reach(turn, 1.5) == 1.5
    assert reach(turn, 1e3) == pytest.approx(4 * math.pi)
    assert reach(1e6 * turn, 1.0) < 1e-2
    assert reach(torch.full((2, 2), torch.nan), 3.0) == 3.0
    assert reach(turn, math.nan) == 1.0


def test_an_estimator_tries_its_predictor_once_for_each_fit() -> None:
    x = np.random.default_rng(0).normal(size=(200, 3))
    model = SymmetryRegressor(
        n_generators=2, hidden=(16,), epochs=1, n_seeds=2, random_state=0, feature_names=list("abc")
    ).fit(x, np.square(x).sum(1))
    found = model.findings()
    assert found.sweep is model.findings(title="another").sweep
    assert found.sweep is not None
    assert found.sweep.inputs.shape[:2] == (2, 4)
    assert found.departure is not None
    assert [row["predictor"] for row in found.predictors] == ["direct", "averaged over 10 elements"]
    assert [row["dimension"] for row in found.table]
    assert len(found.seeds) == 2
    assert found.algebra is not None
    page = render(found)
    assert found.algebra["name"] in page
    assert found.algebra["invariants"]["kind"] in page
    assert model.fit(x, np.square(x).sum(1)).findings().sweep is not found.sweep


def test_a_classifier_names_its_classes() -> None:
    x = np.random.default_rng(0).normal(size=(200, 2))
    labels = np.where(np.hypot(*x.T) > 1, "out", "in")
    model = SymmetryClassifier(hidden=(16,), epochs=1, random_state=0).fit(x, labels)
    found = model.findings().sweep
    assert found is not None
    assert (found.outputs, found.quantity) == (["in", "out"], "probability")
    assert set(found.targets) == {"in", "out"}

"""The scikit-learn estimators: their contract, their findings, their runs on disk."""

from __future__ import annotations

import inspect
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from lieaugmenter import Objective, SymmetryClassifier, SymmetryRegressor, catalogue
from lieaugmenter.analysis.compare import absolute_cosine, principal_cosines
from lieaugmenter.analysis.identify import identify
from lieaugmenter.estimators.task import _split, task_of_arrays
from lieaugmenter.runs import RunError, RunFolder

QUICK: dict[str, Any] = {"hidden": (32, 32), "n_views": 2, "random_state": 0, "device": "cpu"}


@parametrize_with_checks(
    [
        SymmetryRegressor(epochs=40, batch_size=32, lr=5e-3, **QUICK),
        SymmetryClassifier(epochs=40, batch_size=32, lr=5e-3, **QUICK),
    ]
)
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks pass odd data on purpose
        check(estimator)


def radial(n: int = 600, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(n, d))
    return x, np.linalg.norm(x, axis=1)


@pytest.fixture(scope="module")
def fitted() -> SymmetryRegressor:
    x, y = radial(1500)
    return SymmetryRegressor(epochs=30, **(QUICK | {"n_views": 5, "lr": 3e-3})).fit(x, y)


def test_a_column_of_words_is_named() -> None:
    x, y = radial(100)
    frame = pd.DataFrame(x, columns=["px", "py"])
    for words in (["a"] * 100, pd.Categorical(["a", "b"] * 50)):
        with pytest.raises(ValueError, match="column 'gas' of X does not hold numbers"):
            SymmetryRegressor(epochs=1, **QUICK).fit(frame.assign(gas=words), y)


def test_a_table_that_may_not_be_written_to_gives_no_warning() -> None:
    x, y = radial(100)
    frame = pd.DataFrame(x, columns=["px", "py"])
    x.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Of torch itself, where this is the first to compile something.
        warnings.filterwarnings("ignore", ".*torch.jit", DeprecationWarning)
        for table in (frame, x, x[::-1]):
            model = SymmetryRegressor(epochs=1, **QUICK).fit(table, y)
            assert model.augment(table).shape == (100, 2, 2)
            assert model.predict(table).shape == (100,)


def test_a_misspelt_parameter_is_answered_with_the_right_ones() -> None:
    wrong: dict[str, Any] = {"n_generator": 2}
    with pytest.raises(
        TypeError, match=r"'n_generator' of SymmetryClassifier; choose from .* n_generators,"
    ):
        SymmetryClassifier(**wrong)
    assert "n_generators" in inspect.signature(SymmetryRegressor).parameters


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="it is there")
def test_a_device_that_is_not_there_is_refused() -> None:
    x, y = radial(100)
    with pytest.raises(ValueError, match="device='mps', but this machine has no usable one"):
        SymmetryRegressor(epochs=1, **(QUICK | {"device": "mps"})).fit(x, y)


def test_a_verdict_speaks_of_columns_by_their_names() -> None:
    x = np.random.default_rng(0).normal(size=(1500, 3))
    y = np.hypot(x[:, 0], x[:, 2]) + 0.3 * x[:, 1] ** 3
    frame = pd.DataFrame(x, columns=["px", "height", "pz"])
    model = SymmetryRegressor(n_generators="auto", epochs=5, **QUICK).fit(frame, y)
    assert model.verdict_.outcome == "certified"
    words = f"{model} {model.verdict_.components} {model.sentence()}"
    assert not re.search(r"\bax[ei]s \d", words)
    assert "(px, pz)" in words


@pytest.mark.parametrize(("wide", "share"), [(None, 0.1), (0.5, 0.1), (4.0, 0.2), (40.0, 0.6)])
def test_a_wide_range_grows_for_longer(wide: float | None, share: float) -> None:
    x, y = radial(100)
    model = SymmetryRegressor(n_generators=1, range=wide, epochs=20, batch_size=10, **QUICK)
    steps = 20 * 8  # of the hundred samples twenty are held out
    assert model.fit(x, y).predictor_.augmenter.sampler.warmup_steps == share * steps


@pytest.mark.parametrize("n", [400, 700])  # by a Gaussian process, by networks
def test_several_generators_are_found_that_a_constant_start_misses(n: int) -> None:
    x = np.random.default_rng(0).normal(size=(n, 3))
    turn = catalogue.lift(catalogue.so(2))
    # Nothing that happens to the third feature matters.
    truth = torch.cat([turn, torch.eye(3)[:, None] * torch.eye(3)[2][:, None]])
    model = SymmetryRegressor(n_generators=4, epochs=30, lr=3e-3, **QUICK)
    found = torch.from_numpy(model.fit(x, np.hypot(x[:, 0], x[:, 1])).generators_)
    # From the constant one it is 0.23 and 0.77.
    assert float(principal_cosines(found, truth).min()) > 0.99


def test_a_generator_does_not_begin_where_it_would_move_nothing() -> None:
    x, y = radial(300)
    flat = np.column_stack([x, np.zeros(len(x))])
    found = SymmetryRegressor(epochs=20, lr=3e-3, **QUICK).fit(flat, y).generators_
    assert np.abs(flat @ found[0].T).mean() > 0.5


def test_copies_of_one_input_are_no_samples_to_learn_from() -> None:
    with pytest.raises(ValueError, match="there is 1 different input: at least 4"):
        SymmetryRegressor(epochs=2, **QUICK).fit(np.zeros((50, 3)), np.arange(50.0))


def test_the_range_grows_for_longer_on_images() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((50, 1, 8, 8)), rng.integers(2, size=50)
    model = SymmetryClassifier(action="image", epochs=5, batch_size=8, **QUICK).fit(x, y)
    assert model.predictor_.augmenter.sampler.warmup_steps == 0.6 * 5 * 5


def test_every_seed_begins_at_its_own_networks() -> None:
    x, y = radial(700, 3)
    model = SymmetryRegressor(n_generators=2, n_seeds=2, epochs=2, **QUICK).fit(x, y)
    assert model.seed_agreement_ is not None
    assert model.seed_agreement_ < 1 - 1e-6


def test_a_hundred_samples_are_trained_on_for_long_enough_unless_told() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    y = np.linalg.norm(x, axis=1) + 0.05 * rng.normal(size=100)
    model = SymmetryRegressor(random_state=0, device="cpu").fit(x, y)
    rotation = catalogue.so(2)
    assert float(absolute_cosine(torch.tensor(model.generators_), rotation).min()) > 0.99
    with pytest.raises(ValueError, match="epochs=0: at least one"):
        SymmetryRegressor(epochs=0).fit(x, y)


def test_regressor_finds_the_rotation_and_predicts(fitted: SymmetryRegressor) -> None:
    x, y = radial(1500)
    learned = torch.from_numpy(fitted.generators_)
    assert float(absolute_cosine(learned, catalogue.so(2))) > 0.99
    assert fitted.score(x, y) > 0.95


def test_verdict_says_what_it_is_based_on(fitted: SymmetryRegressor) -> None:
    verdict = fitted.verdict_
    assert verdict.outcome == "inconclusive"
    assert verdict.dimension == 1
    assert 0 < verdict.defect < verdict.upper < 0.3
    assert "is not certified" in verdict.reasons[0]
    assert any("held-out samples" in reason for reason in verdict.reasons)
    assert any("1 training run" in reason for reason in verdict.reasons)


def test_print_shows_the_table_and_the_reasons(fitted: SymmetryRegressor) -> None:
    text = str(fitted)
    assert "verdict: inconclusive: 1 generator" in text
    assert "held-out loss" in text
    assert "averaged or direct predictions, chosen on these samples" in text
    assert "is not certified" in text


def test_unlearned_task_is_inconclusive_whatever_its_defect() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    model = SymmetryRegressor(epochs=2, **QUICK).fit(x, y)
    assert model.verdict_.outcome == "inconclusive"
    assert "has not been learned" in model.verdict_.reasons[0]


def test_wrong_direction_is_refuted() -> None:
    """The only direction allowed moves a feature on which the target depends."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 2))
    mask = np.array([[1, 0], [0, 0]])
    model = SymmetryRegressor(
        epochs=30, mask=mask, objective=Objective(equivariance=0.01), **(QUICK | {"lr": 5e-3})
    ).fit(x, np.sin(2 * x[:, 0]) + 0.1 * x[:, 1])
    assert model.verdict_.quality > 0.5
    assert model.verdict_.outcome == "refuted"


def test_true_translation_is_not_refuted_when_nothing_else_was_allowed() -> None:
    """The mask leaves one entry, which is a symmetry: the comparison must look beyond the mask."""
    x = np.random.default_rng(0).normal(size=(1000, 2))
    mask = np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0]])
    model = SymmetryRegressor(action="affine", mask=mask, epochs=25, **(QUICK | {"lr": 5e-3})).fit(
        x, np.sin(2 * x[:, 0])
    )
    assert model.verdict_.outcome == "inconclusive"
    assert model.verdict_.upper < 0.5


def test_generators_that_fill_everything_have_nothing_to_be_compared_with() -> None:
    x = np.random.default_rng(0).normal(size=(400, 1))
    model = SymmetryRegressor(epochs=20, **(QUICK | {"lr": 5e-3})).fit(x, np.sign(x[:, 0]))
    assert "no other direction to compare" in model.verdict_.reasons[0]


def test_output_same_predicts_vectors_that_move() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 2))
    y = 0.5 * x * np.linalg.norm(x, axis=1, keepdims=True)
    model = SymmetryRegressor(output="same", epochs=30, **(QUICK | {"n_views": 5, "lr": 3e-3}))
    model.fit(x, y)
    assert float(absolute_cosine(torch.from_numpy(model.generators_), catalogue.so(2))) > 0.99
    assert model.predict(x).shape == y.shape


def of_atoms(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions of three atoms far from the origin, forces between them, and a dipole."""
    x = np.random.default_rng(1).normal(size=(n, 3, 3))
    apart = x[:, :, None] - x[:, None]
    forces = (apart * np.exp(-np.square(apart).sum(-1) / 4)[..., None]).sum(2)
    dipole = np.einsum("i,nid->nd", np.array([1.0, -0.5, -0.5]), x)
    return 30 * x + np.array([50.0, 0.0, -20.0]), 1e-3 * forces, dipole


def test_forces_show_translations_because_these_do_not_move_them(tmp_path: Path) -> None:
    """`output="same"` would translate the forces too, and find rotations alone."""
    x, forces, _ = of_atoms(3000)
    model = SymmetryRegressor(
        action="affine", output="vector", n_generators="auto", epochs=5, **QUICK
    ).fit(x, forces)
    assert model.verdict_.outcome == "certified"
    assert model.predict(x[:2]).shape == (2, 3, 3)
    # Forces are in units of their own.
    assert float(model.predictor_.y_scale) == pytest.approx(np.sqrt(np.square(forces).mean()))
    exact = torch.from_numpy(model.generators_)
    assert float(exact[:, :3, 3].abs().max()) > 10
    assert model.report(tmp_path / "forces.html").exists()


def test_forces_that_would_be_translated_are_remarked() -> None:
    x, forces, _ = of_atoms(100)
    model = SymmetryRegressor(action="affine", epochs=1, verbose=1, **QUICK)
    for output, y, remarked in (
        ("same", forces, True),
        ("same", x + forces, False),
        ("vector", forces, False),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.set_params(output=output).fit(x, y)
        assert any("use output='vector'" in str(w.message) for w in caught) == remarked


def test_a_dipole_of_points_is_one_vector_for_each_sample() -> None:
    x, _, dipole = of_atoms(1500)
    model = SymmetryRegressor(
        action="points", output="vector", n_generators=3, epochs=2, **QUICK
    ).fit(x, dipole)
    assert model.predict(x[:4]).shape == (4, 3)
    assert model.augment(x[:4]).shape == (4, QUICK["n_views"], 3, 3)
    manifest = model.manifest()
    assert (manifest.action, manifest.output) == ("points", "vector")
    assert (manifest.in_shape, manifest.out_shape) == ((3, 3), (3,))


def test_outputs_of_several_axes_are_scored_by_all_of_their_numbers() -> None:
    x = np.random.default_rng(0).normal(size=(200, 3, 2))
    model = SymmetryRegressor(action="points", output="same", epochs=2, **QUICK).fit(x, 2 * x)
    weights = np.linspace(0, 1, len(x))
    predicted, expected = model.predict(x).reshape(-1, 6), 2 * x.reshape(-1, 6)
    assert model.score(x, 2 * x) == pytest.approx(r2_score(expected, predicted))
    weighted = r2_score(expected, predicted, sample_weight=weights)
    assert model.score(x, 2 * x, weights) == pytest.approx(weighted)


def test_scaling_symmetry_can_be_found_with_the_defaults() -> None:
    x = np.random.default_rng(0).normal(size=(2000, 2))
    y = np.sin(3 * np.arctan2(x[:, 1], x[:, 0]))
    model = SymmetryRegressor(epochs=25, **(QUICK | {"hidden": (64, 64), "n_views": 6, "lr": 3e-3}))
    model.fit(x, y)
    learned = torch.from_numpy(model.generators_)
    assert float(absolute_cosine(learned, catalogue.scaling(2))) > 0.98


def test_three_generators_span_the_rotations_of_space() -> None:
    x, y = radial(3000, 3)
    model = SymmetryRegressor(
        n_generators=3, epochs=25, **(QUICK | {"hidden": (64, 64), "n_views": 5, "lr": 3e-3})
    ).fit(x, y)
    cosines = principal_cosines(torch.from_numpy(model.generators_), catalogue.so(3))
    assert float(cosines.min()) > 0.97


def test_affine_generators_come_back_in_the_units_of_the_data() -> None:
    """A target that ignores the second coordinate: symmetric under its translations."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 2)) * 50.0
    mask = np.array([[0, 0, 1], [0, 0, 1], [0, 0, 0]])  # translations alone
    model = SymmetryRegressor(
        action="affine", mask=mask, epochs=20, **(QUICK | {"n_views": 4, "lr": 3e-3})
    ).fit(x, np.sin(x[:, 0] / 25))
    generator = model.generators_[0]
    assert abs(generator[1, 2]) > 10 * abs(generator[0, 2])
    # Trained at scale 1 with norm √2: 50 times that in the units of x.
    assert np.linalg.norm(generator) == pytest.approx(
        np.sqrt(2) * model.predictor_.x_scale, rel=1e-4
    )


@pytest.mark.parametrize("n", [4, 5, 30])
def test_a_handful_of_images_decides_nothing(n: int) -> None:
    x = np.random.default_rng(0).random((n, 1, 8, 8), dtype=np.float32)
    options: dict[str, Any] = {"n_views": 2, "random_state": 0, "device": "cpu"}
    model = SymmetryRegressor(action="image", n_generators="auto", epochs=1, **options)
    assert model.fit(x, x.mean((1, 2, 3))).verdict_.outcome == "inconclusive"


def test_images_of_any_channels_and_size_classify() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=60)
    x = rng.normal(size=(60, 3, 9, 12)) + y[:, None, None, None]
    model = SymmetryClassifier(
        action="image", epochs=3, n_views=2, random_state=0, device="cpu"
    ).fit(x, np.where(y, "bright", "dark"))
    assert model.generators_.shape == (1, 3, 3)
    assert set(model.predict(x)) <= {"bright", "dark"}
    assert np.allclose(model.predict_proba(x).sum(1), 1, atol=1e-5)
    assert model.augment(x[:4]).shape == (4, 2, 3, 9, 12)


def test_bytes_are_scaled_as_their_fractions_of_255_are() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=60)
    x = (rng.integers(90, 160, size=(60, 1, 8, 8)) + 80 * y[:, None, None, None]).astype(np.uint8)
    bytes_, fractions = (
        SymmetryClassifier(action="image", epochs=2, n_views=2, random_state=0, device="cpu").fit(
            values, y
        )
        for values in (x, x / 255)
    )
    assert np.allclose(bytes_.generators_, fractions.generators_, atol=1e-3)
    assert np.allclose(bytes_.predict_proba(x), fractions.predict_proba(x / 255), atol=1e-3)


def test_seeds_are_compared_by_their_spans() -> None:
    x, y = radial(400)
    model = SymmetryRegressor(epochs=4, n_seeds=2, **QUICK).fit(x, y)
    assert 0 <= model.seed_agreement_ <= 1
    assert "2 training runs" in " ".join(model.verdict_.reasons)
    numbers = model.findings().numbers
    assert numbers["chosen on these samples"].endswith("the best of 2 seeds")


def test_predictions_are_direct_where_averaging_would_hurt() -> None:
    """The only direction allowed is no symmetry: averaging over it destroys the prediction."""
    x = np.random.default_rng(0).normal(size=(600, 2))
    y = np.sin(2 * x[:, 0])
    model = SymmetryRegressor(
        epochs=20,
        mask=np.diag([1, 0]),
        objective=Objective(equivariance=0.01),
        **(QUICK | {"lr": 5e-3}),
    ).fit(x, y)
    assert model.predictor_.views == 0
    assert model.score(x, y) > 0.8
    assert np.array_equal(model.predict(x), model.predict(x, views=0))


def test_own_network_instance_is_copied_and_a_function_is_called() -> None:
    x, y = radial(200)
    own = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    before = own[0].weight.detach().clone()
    model = SymmetryRegressor(own, epochs=2, **QUICK).fit(x, y)
    assert torch.equal(own[0].weight, before)
    assert not torch.equal(model.network_[0].weight.cpu(), before)

    def make(in_shape: tuple[int, ...], out_shape: tuple[int, ...]) -> nn.Module:
        assert (in_shape, out_shape) == ((2,), (1,))
        return nn.Linear(2, 1)

    SymmetryRegressor(make, epochs=1, **QUICK).fit(x, y)


class Recurrent(nn.Module):
    """A network whose layers have no forward-mode derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 8, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x.unsqueeze(-1))[0][:, -1])


def test_network_without_forward_derivatives_gets_a_verdict() -> None:
    x, y = radial(100)
    model = SymmetryRegressor(Recurrent(), epochs=1, **QUICK).fit(x, y)
    assert model.verdict_.defect > 0


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.again = nn.Linear(2, 2)
        self.again.weight = self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.again(torch.tanh(self.inner(x))).sum(1, keepdim=True)


def make_tied(in_shape: tuple[int, ...], out_shape: tuple[int, ...]) -> nn.Module:
    return Tied()


def test_tied_weights_and_functions_can_be_saved_and_resumed(tmp_path: Path) -> None:
    x, y = radial(100)
    model = SymmetryRegressor(
        make_tied, epochs=2, run_directory=tmp_path / "run", **(QUICK | {"random_state": None})
    ).fit(x, y)
    # Without a seed of its own: the run remembers the one that was drawn.
    again = clone(model).fit(x, y, resume=True)
    assert np.array_equal(again.predict(x), model.predict(x))
    assert again.symmetries_ == model.symmetries_


def test_exported_module_gives_the_same_predictions(fitted: SymmetryRegressor) -> None:
    x, _ = radial(20)
    module = fitted.export("torch")
    with torch.no_grad():
        values: Tensor = module(torch.from_numpy(x).float())
    assert np.allclose(values.numpy().reshape(-1), fitted.predict(x), atol=1e-6)
    assert np.asarray(fitted.export("json")["generators"]).shape == (1, 2, 2)


def test_cross_validation_and_clone_work() -> None:
    x, y = radial(300)
    model = SymmetryRegressor(epochs=2, **QUICK)
    assert clone(model).get_params()["hidden"] == (32, 32)
    assert len(cross_val_score(model, x, y, cv=2)) == 2


def counted(*shape: int) -> np.ndarray:
    return np.arange(float(np.prod(shape))).reshape(shape)


@pytest.mark.parametrize(
    ("parameters", "x", "y", "message"),
    [
        ({}, counted(5, 2), np.ones(4), "X has 5 rows, y has 4"),
        (
            {"output": "same"},
            np.ones((5, 8)),
            np.ones(5),
            r"of the shape of X, \(5, 8\), .* y has shape \(5,\). .* use output='invariant'",
        ),
        (
            {"output": "same", "action": "points"},
            np.ones((5, 4, 3)),
            np.ones((5, 3)),
            "such as a dipole, output='vector'",
        ),
        (
            {"output": "vector", "action": "points"},
            np.ones((5, 4, 3)),
            np.ones((5, 2)),
            r"y has shape \(5, 2\).* expects \(N, 3\)",
        ),
        (
            {"output": "vector", "action": "affine"},
            np.ones((5, 4, 3)),
            np.ones(5),
            r"y has shape \(5,\).*use output='invariant'",
        ),
        (
            {"action": "image"},
            np.ones((5, 28, 28, 1)),
            np.ones(5),
            r"channels first \(N, C, H, W\). Pass X.transpose\(0, 3, 1, 2\)",
        ),
        (
            {"action": "image"},
            np.ones((5, 28, 28), np.uint8),
            np.ones(5),
            r"for grey images without a channel axis pass X\[:, None\]",
        ),
        ({}, counted(5, 784), np.ones(5), "784 features: .* 614,656 entries"),
        ({"blocks": [2, 2, 3]}, counted(5, 8), np.ones(5), "blocks sum to 7 but dim is 8"),
        ({"mask": np.ones((8, 4))}, counted(5, 8), np.ones(5), r"the mask must be \(8, 8\)"),
        ({"n_generators": 0}, counted(5, 2), np.ones(5), "at least 1, or 'auto'"),
        ({"network": "gnn"}, counted(5, 2), np.ones(5), "choose from auto, cnn, mlp"),
        ({"action": "rotation"}, counted(5, 2), np.ones(5), "choose from affine, fourvector"),
        ({"sampler": "unifrom"}, counted(5, 2), np.ones(5), "integer-grid, learnable, normal"),
        ({"validation": 1.5}, counted(5, 2), np.ones(5), "a fraction between 0 and 1"),
        (
            {"validation": (counted(5, 2), np.ones(5))},
            counted(5, 2),
            np.ones(5),
            "^validation=.{,60}: give a fraction between 0 and 1, the share of the samples of X",
        ),
        ({"batch_size": 0}, counted(5, 2), np.ones(5), "batch_size=0: a step needs at least one"),
        ({"batch_size": -5}, counted(5, 2), np.ones(5), "batch_size=-5: a step needs at least one"),
        ({"hidden": 16}, counted(5, 2), np.ones(5), r"hidden=16: .* such as hidden=\(128, 128\)"),
        ({"hidden": (16, 0)}, counted(5, 2), np.ones(5), "whole numbers of at least 1"),
        ({"lr": "fast"}, counted(5, 2), np.ones(5), "lr='fast': give a number above 0"),
        ({"lr": float("nan")}, counted(5, 2), np.ones(5), "lr=nan: give a number above 0"),
        (
            {"output": "vector", "action": "points"},
            counted(5, 10),
            np.ones((5, 2)),
            "A row of a table is one point or vector of all its 10 columns; several points need X",
        ),
        ({}, np.full((5, 2), np.nan), np.ones(5), r"10 non-finite values \(NaN or inf\)"),
        ({}, counted(5, 2), np.full(5, np.inf), "y has 5 non-finite"),
        ({}, 1e39 * counted(5, 2), np.ones(5), "X has 9 non-finite values .* beyond 3.4e38"),
        ({}, counted(5, 2), np.full(5, 1e39), "y has 5 non-finite values .* beyond 3.4e38"),
        ({}, counted(5, 2), np.array(list("abcde")), "for labels use SymmetryClassifier"),
    ],
)
def test_each_mistake_gets_its_message(
    parameters: dict[str, Any], x: np.ndarray, y: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SymmetryRegressor(epochs=1, random_state=0, **parameters).fit(x, y)


def test_one_column_that_moves_stays_a_column() -> None:
    x = np.random.default_rng(0).normal(size=(200, 1))
    line = SymmetryRegressor(output="same", epochs=1, **QUICK).fit(x, 2 * x)
    assert line.predict(x).shape == (200, 1)
    points = np.random.default_rng(0).normal(size=(200, 3, 1))
    spring = SymmetryRegressor(action="affine", output="vector", epochs=1, **QUICK)
    spring.fit(points, points[:, 0] - points[:, 1])
    assert spring.predict(points).shape == (200, 1)


def test_settings_are_checked_before_a_stream_is_divided() -> None:
    x, y = radial(60)
    pairs = TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y).float())
    wrong: Any = (x, y)
    with pytest.raises(ValueError, match="give a fraction between 0 and 1"):
        SymmetryRegressor(epochs=1, validation=wrong, **QUICK).fit(pairs)


def test_a_number_of_views_below_zero_is_refused(fitted: SymmetryRegressor) -> None:
    with pytest.raises(ValueError, match="views=-1: give how many elements to average over"):
        fitted.predict(radial(5)[0], views=-1)


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["a", "b", None, "a"] * 5, dtype=object),
        np.array(["a", "b", np.nan, "a"] * 5, dtype=object),
        pd.Series(["a", "b", pd.NA, "a"] * 5, dtype="string"),
        np.array([0.0, 1.0, np.nan, 0.0] * 5),
    ],
    ids=["none", "nan among words", "pandas", "nan among numbers"],
)
def test_labels_that_are_missing_are_counted(labels: Any) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match=r"y lacks 5 of 20 labels \(None or NaN\), .* in row 2,"):
        SymmetryClassifier(epochs=1, **QUICK).fit(x, labels)


def test_logarithms_of_probabilities_are_those_of_the_probabilities() -> None:
    x, y = radial(100)
    model = SymmetryClassifier(epochs=1, **QUICK).fit(x, y > 1)
    logarithms = model.predict_log_proba(x)
    assert np.allclose(np.exp(logarithms), model.predict_proba(x))
    assert np.allclose(model.predict_log_proba(x, views=0), np.log(model.predict_proba(x, views=0)))


def test_classifier_refuses_numbers_and_moving_labels() -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match="labels do not move"):
        SymmetryClassifier(output="same").fit(x, np.arange(20) % 2)
    with pytest.raises(ValueError, match="continuous"):
        SymmetryClassifier().fit(x, x[:, 0])
    with pytest.raises(ValueError, match="one class"):
        SymmetryClassifier().fit(x, np.zeros(20, int))


def test_run_directory_holds_the_run_and_is_never_overwritten(tmp_path: Path) -> None:
    x, y = radial(200)
    model = SymmetryRegressor(epochs=2, run_directory=tmp_path / "run", **QUICK).fit(x, y)
    run = RunFolder.open(tmp_path / "run")
    assert run.finished
    names = {path.name for path in run.path.iterdir()}
    assert names >= {
        "config.json",
        "metrics.jsonl",
        "basis.safetensors",
        "network.safetensors",
        "checkpoint",
        "verdict.json",
        "environment.json",
    }
    with pytest.raises(RunError, match="holds a finished run, which is never overwritten"):
        clone(model).fit(x, y)


def test_several_seeds_that_find_nothing_have_nothing_to_agree_on() -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = SymmetryRegressor(
        n_generators="auto", n_seeds=2, epochs=1, hidden=(8,), device="cpu", random_state=0
    ).fit(x, np.random.default_rng(1).normal(size=60))
    assert len(model.generators_) == 0
    assert model.seed_agreement_ is None


def test_resume_refuses_other_data_and_other_settings(tmp_path: Path) -> None:
    x, y = radial(200)
    model = SymmetryRegressor(epochs=2, run_directory=tmp_path / "run", **QUICK).fit(x, y)
    with pytest.raises(RunError, match=r"was fitted on data .* Use a new run directory"):
        clone(model).fit(x + 1, y, resume=True)
    with pytest.raises(RunError, match="epochs: 2 then, 3 now"):
        clone(model).set_params(epochs=3).fit(x, y, resume=True)
    resumed = clone(model).fit(x, y, resume=True)
    assert np.array_equal(resumed.generators_, model.generators_)
    assert np.array_equal(resumed.predict(x), model.predict(x))


def test_report_is_one_page(fitted: SymmetryRegressor, tmp_path: Path) -> None:
    page = fitted.report(tmp_path / "report.html")
    assert "inconclusive" in page.read_text(encoding="utf-8")


def ring_of(n: int, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(n, d))
    return x, np.hypot(x[:, 0], x[:, 1]) + 0.1 * x[:, 2] ** 3


def test_the_algebra_that_was_found_has_a_name_and_exact_generators() -> None:
    model = SymmetryRegressor(output="invariant", epochs=25, random_state=0).fit(*ring_of(1000))
    assert model.identity_.name == model.verdict_.group == "so(2)"
    assert "so(2)" in model.sentence()
    exact = model.identity_.exact.numpy()
    assert not exact[0, 2].any()
    assert exact[0, 0, 1] == pytest.approx(-exact[0, 1, 0])


def test_what_is_refuted_has_no_name() -> None:
    model = SymmetryRegressor(output="invariant", epochs=1, random_state=0).fit(*ring_of(60))
    refuted = replace(model.verdict_, outcome="refuted", group=None)
    named = identify(torch.tensor([[[0.0, -1.0], [1.0, 0.0]]]))
    assert named.named
    assert refuted.naming(named).group is None
    assert replace(refuted, outcome="inconclusive").naming(named).group == "so(2)"


def test_matrices_that_are_too_large_are_not_named() -> None:
    x, y = ring_of(60, 20)
    model = SymmetryRegressor(output="invariant", epochs=1, random_state=0).fit(x, y)
    assert model.identity_ is None
    assert model.verdict_.group is None


def test_the_name_does_not_depend_on_the_units_of_the_data() -> None:
    points = np.random.default_rng(0).normal(size=(300, 4, 2))
    y = np.linalg.norm(points[:, 0] - points[:, 1], axis=1)
    names = set()
    for scale in (1.0, 1000.0):
        model = SymmetryRegressor(
            action="affine", output="invariant", epochs=2, random_state=0
        ).fit(scale * points, y)
        names.add(model.identity_.name)
        assert np.abs(model.generators_[:, :2, :2]).max() < 10
    assert len(names) == 1


def test_an_algebra_that_cannot_be_named_does_not_lose_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("lieaugmenter.estimators.judging.identify", refuse)
    with pytest.warns(UserWarning, match="could not be named"):
        model = SymmetryRegressor(output="invariant", epochs=1, random_state=0).fit(*ring_of(60))
    assert model.identity_ is None
    assert model.predict(ring_of(60)[0]).shape == (60,)


@pytest.mark.parametrize(("n", "fraction"), [(4, 0.2), (7, 0.2), (1000, 0.001), (300, 0.999)])
def test_no_sample_is_both_learned_from_and_held_out(n: int, fraction: float) -> None:
    train, held_out = _split(torch.randn(n, 2), fraction, seed=0)
    assert sorted([*train.tolist(), *held_out.tolist()]) == list(range(n))
    assert min(len(train), len(held_out)) >= 2


def test_without_copies_the_parts_follow_from_the_seed_alone() -> None:
    order = torch.randperm(50, generator=torch.Generator().manual_seed(3))
    train, held_out = _split(torch.randn(50, 2), 0.2, seed=3)
    assert torch.equal(torch.cat([held_out, train]), order)


def test_large_targets_have_a_finite_spread() -> None:
    x = np.random.default_rng(0).normal(size=(100, 2))
    task = task_of_arrays(SymmetryRegressor(), x, 1e30 * x[:, 0], classes=0, seed=0)
    assert float(task.scales["y_scale"]) == pytest.approx(1e30 * x[:, 0].std(), rel=1e-5)


def test_copies_of_an_input_are_on_one_side_and_judged_once() -> None:
    inputs = torch.randn(60, 2).repeat(20, 1)
    inputs[0, 0], inputs[60, 0] = 0.0, -0.0
    inputs[0, 1] = inputs[60, 1]
    train, held_out = _split(inputs, 0.2, seed=0)
    assert len(train) == 20 * 48
    assert len(held_out) == 12
    apart = torch.cdist(
        inputs[train], inputs[held_out], compute_mode="donot_use_mm_for_euclid_dist"
    )
    assert apart.min() > 0


def test_copies_of_noisy_samples_are_no_proof() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = np.hypot(*x.T) + 0.7 * rng.normal(size=60)
    rows = np.repeat(np.arange(60), 20)
    model = SymmetryRegressor(n_generators="auto", epochs=20, random_state=0).fit(x[rows], y[rows])
    assert model.verdict_.outcome == "inconclusive"
    # 0.99 where copies of what was learned by heart are held out.
    assert model.verdict_.quality is not None
    assert model.verdict_.quality < 0.5


def test_too_few_samples_to_hold_some_out_are_refused() -> None:
    x, y = np.random.default_rng(0).normal(size=(3, 2)), np.ones(3)
    with pytest.raises(ValueError, match="there are 3 samples: at least 4 are needed"):
        SymmetryRegressor(epochs=1).fit(x, y)


@pytest.mark.parametrize("n_generators", ["auto", 1])
def test_a_handful_of_held_out_samples_decides_nothing(n_generators: str | int) -> None:
    x = np.random.default_rng(0).normal(size=(1000, 2))
    model = SymmetryRegressor(
        n_generators=n_generators, validation=0.001, epochs=20, random_state=0
    ).fit(x, np.hypot(*x.T))
    assert model.verdict_.outcome == "inconclusive"
    assert any(
        "2 held-out samples are too few to tell" in reason for reason in model.verdict_.reasons
    )


def test_a_constant_target_is_refused() -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(ValueError, match="y is constant"):
        SymmetryRegressor(epochs=1).fit(x, np.full(50, 0.1))


def test_a_dataset_of_pairs_is_data() -> None:
    x, y = radial(300)
    pairs = TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y).float())
    model = SymmetryRegressor(epochs=1, **QUICK).fit(pairs)
    assert model.n_samples_ == 300
    assert model.predict(x[:3]).shape == (3,)


def test_data_that_are_not_the_same_when_read_again_are_refused() -> None:
    """What is held out is known by its values; with random transforms it would be trained on."""

    class Jittered(TensorDataset):
        def __getitem__(self, index: int) -> tuple[Tensor, ...]:
            x, y = super().__getitem__(index)
            return x + 0.01 * torch.randn_like(x), y

    x, y = radial(300)
    pairs = Jittered(torch.from_numpy(x).float(), torch.from_numpy(y).float())
    with pytest.raises(ValueError, match="has to give the same samples each time"):
        SymmetryRegressor(epochs=1, **QUICK).fit(pairs)


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    x, y = radial(60)
    quick = QUICK | {"batch_size": np.int64(16), "n_views": np.int32(2)}
    model = SymmetryRegressor(epochs=np.int64(1), **quick).fit(x, y)
    assert len(model.history_.records) == 1


def test_a_column_called_1_does_not_make_a_table_affine() -> None:
    x, y = radial(300)
    names = [str(i) for i in range(x.shape[1])]
    model = SymmetryRegressor(epochs=1, feature_names=names, **QUICK).fit(x, y)
    assert "about (" not in model.sentence()


def test_inputs_of_several_fields_are_sent_elsewhere() -> None:
    with pytest.raises(TypeError, match="StructuredAction, LieAugmenter and fit"):
        SymmetryRegressor().fit({"positions": np.ones((30, 3))}, np.ones(30))


def test_images_of_several_sizes_are_named() -> None:
    x = [np.ones((1, 8 + i % 2, 8)) for i in range(30)]
    with pytest.raises(ValueError, match=r"shapes: \(1, 8, 8\), \(1, 9, 8\). Resize or pad"):
        SymmetryClassifier(action="image").fit(x, np.arange(30) % 2)

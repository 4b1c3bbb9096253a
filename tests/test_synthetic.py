"""Tasks given by a formula: their laws, their symmetries, and that a seed fixes them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lieaugmenter.data.synthetic import (
    discrete_rotation,
    discrete_rotation_target,
    no_symmetry,
    partial_permutation,
    partial_permutation_target,
)
from lieaugmenter.data.task import Task

TASKS: list[Callable[..., Task]] = [discrete_rotation, partial_permutation, no_symmetry]


def spread_of_network(reading: str, seed: int) -> tuple[float, float]:
    """Standard deviation of f*, and the share of its variance that a linear map explains."""
    task = no_symmetry(4000, 1, 1, reading=reading, noise=0.0, seed=seed)  # pyright: ignore[reportArgumentType]
    x, f = task.x_train.double(), task.y_train.double()
    design = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    rest = f - design @ torch.linalg.lstsq(design, f).solution
    return float(f.std()), float(1 - rest.var() / f.var())


@pytest.mark.parametrize("make", TASKS)
def test_seed_fixes_a_task_and_sizes_do_not_change_its_other_parts(
    make: Callable[..., Task],
) -> None:
    task, again, other = make(50, 20, 30), make(50, 20, 30), make(50, 20, 30, seed=1)
    smaller = make(10, 5, 30)
    assert torch.equal(task.x_train, again.x_train)
    assert torch.equal(task.y_train, again.y_train)
    assert not torch.equal(task.x_train, other.x_train)
    assert torch.equal(task.x_test, smaller.x_test)
    assert torch.equal(task.y_test, smaller.y_test)
    assert not torch.equal(task.x_train[:30], task.x_test)


@pytest.mark.parametrize("make", TASKS)
def test_shapes_and_types(make: Callable[..., Task]) -> None:
    task = make(50, 20, 30)
    assert task.x_validation is not None
    assert task.y_validation is not None
    for n, x, y in (
        (50, task.x_train, task.y_train),
        (20, task.x_validation, task.y_validation),
        (30, task.x_test, task.y_test),
    ):
        assert x.shape == (n, len(task.feature_names))
        assert y.shape == (n, 1)
        assert x.dtype == y.dtype == torch.float32


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (discrete_rotation, (54_000, 6_000, 10_000)),
        (partial_permutation, (54_000, 6_000, 10_000)),
        (no_symmetry, (50_000, 10_000, 10_000)),
    ],
)
def test_sizes_are_the_papers(make: Callable[..., Task], sizes: tuple[int, int, int]) -> None:
    task = make()
    assert task.x_validation is not None
    assert (len(task.x_train), len(task.x_validation), len(task.x_test)) == sizes


def test_empty_part_is_refused() -> None:
    with pytest.raises(ValueError, match="n_validation=0: at least one sample"):
        discrete_rotation(10, 0, 10)


def test_discrete_rotation_has_the_variance_of_its_formula() -> None:
    """E z² E (1 + u)⁻² with u uniform on [0, π/3]: 1 / (1 + π/3) = 0.488."""
    y = discrete_rotation().y_train
    assert float(y.var()) == pytest.approx(1 / (1 + math.pi / 3), rel=0.02)


@pytest.mark.parametrize("k", [6, 7])
def test_discrete_rotation_is_invariant_under_its_turns_and_no_others(k: int) -> None:
    task = discrete_rotation(1000, 1, 1, k=k)
    assert task.generator is not None
    x = task.x_train.double()
    f = discrete_rotation_target(x.numpy(), k)

    def change(angle: float) -> np.ndarray:
        assert task.generator is not None
        turn = torch.linalg.matrix_exp(angle * task.generator[0].double())
        return np.abs(discrete_rotation_target((x @ turn.T).numpy(), k) - f)

    assert change(2 * math.pi / k).max() < 1e-9
    assert change(math.pi / k).mean() > 0.05


def test_discrete_rotation_is_invariant_under_radial_scaling() -> None:
    x = np.random.default_rng(0).standard_normal((1000, 3))
    scaled = x * np.array([2.5, 2.5, 1.0])
    assert np.allclose(discrete_rotation_target(scaled), discrete_rotation_target(x), rtol=1e-12)


def test_arctan_of_the_quotient_agrees_for_even_k() -> None:
    x = np.random.default_rng(0).standard_normal((1000, 3))
    papers = x[:, 2] / (1 + np.arctan(x[:, 1] / x[:, 0]) % (math.pi / 3))
    assert np.allclose(discrete_rotation_target(x), papers, atol=1e-9)


def test_partial_permutation_turns_into_the_cyclic_permutation() -> None:
    generator = partial_permutation(1, 1, 1).generator
    assert generator is not None
    turn = torch.linalg.matrix_exp(2 * math.pi / 3 * generator[0].double())
    cycle = torch.eye(5, dtype=torch.float64)[[2, 0, 1, 3, 4]]
    assert torch.allclose(turn, cycle, atol=1e-6)


def test_partial_permutation_is_invariant_along_its_whole_circle() -> None:
    task = partial_permutation(1000, 1, 1)
    assert task.generator is not None
    x = task.x_train.double()
    f = partial_permutation_target(x.numpy())
    for angle in (0.3, 2 * math.pi / 3, -2.0):
        turn = torch.linalg.matrix_exp(angle * task.generator[0].double())
        assert np.abs(partial_permutation_target((x @ turn.T).numpy()) - f).max() < 1e-4
    last_two = x[:, [0, 1, 2, 4, 3]].numpy()
    assert np.abs(partial_permutation_target(last_two) - f).mean() > 1000


def test_partial_permutation_has_the_spread_of_its_formula() -> None:
    """Var = 3 · 100²/3 + 2 · 100⁴ · 4/45: a deviation of 4.2e3."""
    task = partial_permutation()
    expected = math.sqrt(100**2 + 2 * 100**4 * 4 / 45)
    assert expected == pytest.approx(4.2e3, rel=0.01)
    assert float(task.y_train.std()) == pytest.approx(expected, rel=0.02)
    assert float(task.x_train.abs().max()) <= 100


def test_no_symmetry_inputs_follow_the_papers_law() -> None:
    x = no_symmetry().x_train
    deviations = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]).sqrt()
    assert torch.allclose(x.std(0), deviations, rtol=0.02)
    mean = torch.tensor([0.2, -0.1, 0.3, -0.2, 0.15])
    assert ((x.mean(0) - mean).abs() < 5 * deviations / len(x) ** 0.5).all()


def test_no_symmetry_as_variance_is_learnable_and_curved() -> None:
    spreads, linear = zip(*(spread_of_network("variance", seed) for seed in range(10)), strict=True)
    assert np.mean(spreads) == pytest.approx(0.22, abs=0.05)
    assert max(linear) < 0.99


def test_no_symmetry_as_deviation_is_linear_and_buried_in_noise() -> None:
    spreads, linear = zip(
        *(spread_of_network("deviation", seed) for seed in range(10)), strict=True
    )
    assert np.mean(spreads) == pytest.approx(3.3e-4, abs=1e-4)
    assert min(linear) > 0.9999


def test_no_symmetry_noise_has_the_papers_deviation() -> None:
    noisy, clean = no_symmetry(5000, 1, 1), no_symmetry(5000, 1, 1, noise=0.0)
    assert torch.equal(noisy.x_train, clean.x_train)
    assert float((noisy.y_train - clean.y_train).std()) == pytest.approx(0.01, rel=0.05)


def test_unknown_reading_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="unknown reading 'sigma'; choose from deviation, variance"
    ):
        no_symmetry(1, 1, 1, reading="sigma")  # pyright: ignore[reportArgumentType]

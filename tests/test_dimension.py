"""How many generators a task has, from two predictors of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lieaugmenter import fit
from lieaugmenter.actions import AffineAction, InvariantAction, VectorAction
from lieaugmenter.analysis.bench import Dimensions, Row
from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.coverage import coverage
from lieaugmenter.analysis.dimension import dimensions
from lieaugmenter.lie import catalogue
from lieaugmenter.lie.brackets import orthonormal
from lieaugmenter.lie.units import in_spreads
from lieaugmenter.nets import MLP

VECTOR, INVARIANT = VectorAction(3), InvariantAction()


def radius(x: Tensor) -> Tensor:
    return x[:, :2].norm(dim=1, keepdim=True) + 0.1 * x[:, 2:] ** 3


def without_symmetry(x: Tensor) -> Tensor:
    return x[:, :1] ** 3 + x[:, 1:2] ** 2 * x[:, 2:] + x[:, :1] * x[:, 1:2] + x[:, 2:]


def trained(target: Tensor, x: Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = MLP((3,), (1,), hidden=(64, 64), smooth=True)
    fit(model, None, (x, target), epochs=40, lr=3e-3, seed=seed, device="cpu", progress=False)
    return model.requires_grad_(False)


def found_in(
    function: Callable[[Tensor], Tensor], n: int = 3000, noise: float = 0.01
) -> Dimensions:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, generator=rng)
    y = function(x)
    y = (y - y.mean()) / y.std() + noise * torch.randn(y.shape, generator=rng)
    half = 2 * n // 5
    pair = [trained(y[i * half : (i + 1) * half], x[i * half : (i + 1) * half], i) for i in (0, 1)]
    return dimensions(*pair, x[: 2 * half], x[2 * half :], action=VECTOR, output=INVARIANT)


def test_two_trained_predictors_count_the_one_rotation() -> None:
    found = found_in(radius)
    assert found.count() == 1
    truth = catalogue.lift(catalogue.so(2))
    assert float(principal_cosines(found.span(), truth).min()) > 0.999
    assert found.rows[0].upper < 0.1 < 0.3 < found.rows[1].lower


def test_a_task_without_symmetry_has_none() -> None:
    found = found_in(without_symmetry)
    assert found.count() == 0
    assert found.span().shape == (0, 3, 3)
    assert found.rows[0].lower > 0.1


def test_exact_predictors_give_the_whole_algebra() -> None:
    x = torch.randn(300, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def length(x: Tensor) -> Tensor:
        return x.norm(dim=1, keepdim=True).sin()

    found = dimensions(length, length, x[:150], x[150:], action=VECTOR, output=INVARIANT)
    assert found.count() == 3
    assert found.rows[2].closure == pytest.approx(0, abs=1e-6)
    assert found.rows[3].defect > 0.5


def test_the_largest_dimension_can_be_limited() -> None:
    x = torch.randn(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = dimensions(radius, radius, x, x, action=VECTOR, output=INVARIANT, most=2)
    assert [row.dimension for row in found.rows] == [1, 2]
    # A span of two is surely broken, and so is every larger one: nothing was left out.
    assert (len(found.generators), found.left_out) == (9, 0)
    found = dimensions(radius, radius, x, x, action=VECTOR, output=INVARIANT, most=1)
    assert found.count() == 1
    assert (len(found.generators), found.left_out) == (1, 8)


def test_a_long_table_ends_where_spans_are_surely_broken() -> None:
    x = torch.randn(400, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def uneven(x: Tensor) -> Tensor:
        return (x * torch.arange(1.0, 6.0)).sin().sum(1, keepdim=True)

    found = dimensions(uneven, uneven, x[:200], x[200:], action=VectorAction(5), output=INVARIANT)
    # There are rows to look at, and nothing counts as left out: a larger span is worse.
    assert 16 <= len(found.rows) < 25
    assert (len(found.generators), found.left_out) == (25, 0)


def test_what_moves_nothing_is_set_aside() -> None:
    x = torch.randn(80, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[:, 2] = 0.0
    found = dimensions(radius, radius, x, x, action=VECTOR, output=INVARIANT)
    assert len(found.idle) == 3
    assert len(found.generators) == 6


@pytest.mark.parametrize(
    ("uppers", "count"), [([0.05, 0.08, 0.5], 2), ([0.5, 0.05], 0), ([], 0), ([0.1], 1)]
)
def test_counting_stops_at_the_first_span_above_the_bound(uppers: list[float], count: int) -> None:
    rows = [Row(i + 1, upper, 0.0, upper, 0.0, upper) for i, upper in enumerate(uppers)]
    assert Dimensions(rows, torch.zeros(5, 2, 2), torch.zeros(0, 2, 2)).count() == count


def test_predictors_that_have_learned_nothing_count_nothing() -> None:
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    for seed in range(6):
        torch.manual_seed(seed)
        pair = [MLP((3,), (1,), hidden=(32, 32)).requires_grad_(False) for _ in range(2)]
        found = dimensions(*pair, x[:150], x[150:], action=VECTOR, output=INVARIANT)
        assert found.count() == 0


def test_opposite_derivatives_are_no_symmetry() -> None:
    rows = [Row(1, -0.6, -0.7, -0.5, 0.0, 0.0)]
    assert Dimensions(rows, torch.zeros(1, 2, 2), torch.zeros(0, 2, 2)).count() == 0


def test_of_points_about_their_centre_no_translation_can_be_judged() -> None:
    x = torch.randn(200, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    action = AffineAction(2)
    found = coverage(x - x.mean(1, keepdim=True), action=action)
    assert (found.equations, len(found.generators), found.n_leaving) == (2, 4, 2)
    assert not bool(found.generators[:, :, 2].abs().max() > 1e-9)
    free = coverage(x, action=action)
    assert (free.equations, len(free.generators), free.n_leaving) == (0, 6, 0)


def test_what_stands_for_a_class_cannot_be_moved() -> None:
    rng = torch.Generator().manual_seed(0)
    classes = torch.eye(3)[torch.randint(0, 3, (300,), generator=rng)]
    x = torch.cat([torch.randn(300, 2, generator=rng), classes], dim=1)
    found = coverage(x, action=VectorAction(5), tolerance=1e-4)
    # Of 25 entries those that move the first two, which any of the five may do.
    assert (len(found.generators), len(found.idle), found.n_leaving) == (10, 0, 15)


def test_a_defect_is_surely_small_on_both_sides_of_zero() -> None:
    assert Row(1, -0.02, -0.06, 0.03, 0.0, 0.05).holds()
    assert not Row(1, 0.02, -0.03, 0.13, 0.0, 0.05).holds()
    assert not Row(1, -0.02, -0.13, 0.03, 0.0, 0.05).holds()
    assert not Row(1, -0.05, -0.06, -0.04, 0.0, 0.05).holds(visible=0.03)


def test_errors_that_happen_to_cancel_make_no_symmetry() -> None:
    assert not Row(1, 0.01, -0.02, 0.03, 0.0, 0.2).holds()


def quadratic(x: Tensor) -> Tensor:
    return (x[:, :1] * x[:, 1:2]).sin() + x[:, 2:] ** 2


def test_the_table_does_not_depend_on_the_units_of_columns() -> None:
    x = torch.randn(400, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    units = torch.tensor([1.0, 1e-3, 50.0], dtype=torch.float64)

    def other(x: Tensor) -> Tensor:
        return quadratic(x) + 0.1 * x[:, :1]

    def table(units: Tensor) -> Dimensions:
        first, second = ((lambda z, f=f: f(z / units)) for f in (quadratic, other))
        y = x * units
        return dimensions(first, second, y[:200], y[200:], action=VECTOR, output=INVARIANT)

    plain, scaled = table(torch.ones_like(units)), table(units)
    for one, two in zip(plain.rows, scaled.rows, strict=True):
        assert two.defect == pytest.approx(one.defect, rel=1e-6)
        assert (two.lower, two.upper) == pytest.approx((one.lower, one.upper), rel=1e-6)
        assert two.together == pytest.approx(one.together, rel=1e-6)
        assert two.closure == pytest.approx(one.closure, rel=1e-6, abs=1e-9)
    found = in_spreads(scaled.generators, units)
    assert torch.allclose(orthonormal(found[:3]).abs(), orthonormal(plain.generators[:3]).abs())


def test_a_column_of_large_numbers_is_no_symmetry() -> None:
    """Along it a function changes little for each unit, and much over the samples."""
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    x[:, 2] *= 30

    def wave(x: Tensor) -> Tensor:
        return (2 * x[:, :1]).sin() + x[:, 1:2] ** 3 / 3 + (x[:, 2:] / 15).cos()

    found = dimensions(wave, wave, x[:200], x[200:], action=VECTOR, output=INVARIANT)
    assert found.count() == 0

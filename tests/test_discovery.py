"""How many generators there are, whether any, and how sure that is: from data alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lieaugmenter import SymmetryClassifier, SymmetryRegressor, catalogue
from lieaugmenter.actions import AffineAction, InvariantAction, StructuredAction, VectorAction
from lieaugmenter.analysis.bench import MOST_ROWS, Dimensions, Row, visible_defect
from lieaugmenter.analysis.compare import absolute_cosine, principal_cosines
from lieaugmenter.analysis.verdict import Trial, Verdict, decide
from lieaugmenter.discovery import (
    Discovery,
    Evidence,
    Team,
    discover,
    gather,
    given_number,
    known,
    likeliest,
    team_network,
    weigh,
)
from lieaugmenter.discovery.deciding import words_on_columns
from lieaugmenter.discovery.evidence import Extent
from lieaugmenter.discovery.gathering import _imposing, _share_of_loss
from lieaugmenter.estimators.building import untrained
from lieaugmenter.estimators.words import sentence_of_teams
from lieaugmenter.nets import MLP, LieConv

VECTOR, INVARIANT = VectorAction(3), InvariantAction()
EPOCHS = 60


def radius(x: Tensor) -> Tensor:
    return x[:, :2].norm(dim=1, keepdim=True) + 0.3 * x[:, 2:] ** 3


def sphere(x: Tensor) -> Tensor:
    return x.norm(dim=1, keepdim=True)


def without_symmetry(x: Tensor) -> Tensor:
    a, b, c = x[:, :1], x[:, 1:2], x[:, 2:]
    return torch.sin(2 * a) + (b - 0.5).square() + torch.cos(2 * c) + a * b


def drawn(function: Callable[[Tensor], Tensor], n: int = 2500) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, generator=rng)
    y = function(x)
    return x, (y - y.mean()) / y.std() + 0.01 * torch.randn(y.shape, generator=rng)


def evidence_of(x: Tensor, y: Tensor, seed: int = 0, members: int = 1) -> Evidence:
    return gather(
        lambda: MLP((3,), (1,), hidden=(48, 48), smooth=True),
        (x[500:], y[500:]),
        (x[:500], y[:500]),
        action=VECTOR,
        output=INVARIANT,
        members=members,
        epochs=EPOCHS,
        device="cpu",
        seed=seed,
    )


def discovered(function: Callable[[Tensor], Tensor]) -> Discovery:
    return discover(evidence_of(*drawn(function)), largest=2.0, labels=False)


@pytest.fixture(scope="module")
def of_sphere() -> Discovery:
    return discovered(sphere)


def test_a_sphere_is_certified_with_all_its_rotations(of_sphere: Discovery) -> None:
    verdict = of_sphere.verdict
    assert (verdict.outcome, verdict.dimension, verdict.group) == ("certified", 3, "so(3)")
    assert verdict.upper is not None
    assert verdict.upper < 0.1
    assert float(principal_cosines(of_sphere.span, catalogue.so(3)).min()) > 0.9999
    assert verdict.components == "O(3)"


def test_a_certified_generator_holds_over_the_whole_range(of_sphere: Discovery) -> None:
    assert of_sphere.verdict.holds_until == [2.0, 2.0, 2.0]
    assert of_sphere.reach() == 2.0


def jagged(seed: int) -> Callable[[Tensor], Tensor]:
    """The sphere with errors of its own on a scale below that of a step."""
    waves = 8 * torch.randn(3, 40, generator=torch.Generator().manual_seed(seed))

    def values(x: Tensor) -> Tensor:
        return sphere(x) + 0.3 * torch.sin(x @ waves + seed).mean(1, keepdim=True) * 40**0.5

    return values


def test_noise_is_not_taken_for_a_lack_of_data(of_sphere: Discovery) -> None:
    """Turned samples lie among the samples, whether or not the teams can judge them."""
    noisy = replace(of_sphere.evidence, first=jagged(1), second=jagged(2))
    turned = noisy.extent(of_sphere.span[0], 2.0)
    assert (turned.holds_until, turned.beyond) == (None, "unclear")
    assert turned.open_until == 2.0
    stretched = of_sphere.evidence.extent(torch.eye(3), 2.0)
    assert stretched.beyond != "unclear"
    assert stretched.open_until < 1.0


def test_a_certified_generator_is_trained_with_as_far_as_nothing_speaks_against_it(
    of_sphere: Discovery,
) -> None:
    whole, undecided = Extent(2.0, 2.0, None), Extent(None, 1.5, "unclear")
    broken, leaving = Extent(0.5, 0.75, "unclear"), Extent(None, 0.0, "cannot be judged")
    for extents, reach in (
        ((whole, undecided), 1.5),
        ((whole, broken), 0.75),
        ((undecided, leaving), 2.0 / 8),
        ((), None),
    ):
        assert replace(of_sphere, extents=extents).reach() == reach


@pytest.mark.parametrize(
    ("extents", "words"),
    [
        ([(2.0, None), (2.0, None)], "up to 2, the largest that were asked for."),
        ([(2.0, None), (0.5, "absent")], "up to 0.5; beyond, it is surely broken."),
        ([(0.5, "unclear"), (2.0, None)], "up to 0.5; beyond, the held-out samples do not decide."),
        ([(0.5, "cannot be judged")], "0.5; beyond, samples are moved to where there are no data"),
        ([(None, "unclear"), (2.0, None)], "How far it holds, the held-out samples do not decide."),
        ([(None, "unclear"), (None, "cannot be judged")], "to where there are no data, and were"),
        ([(None, "absent")], "It holds near the identity only"),
    ],
)
def test_how_far_a_symmetry_holds_is_told_with_its_reason(
    extents: list[tuple[float | None, str | None]], words: str
) -> None:
    until, beyond = (list(values) for values in zip(*extents, strict=True))
    verdict = decide(table(SURE, NONE), 0.99, labels=False, samples=100)
    told = sentence(replace(verdict, holds_until=until, beyond=beyond))
    assert words in told
    assert told.count("no data") == words.count("no data")


def sentence(verdict: Verdict) -> str:
    return sentence_of_teams(
        verdict, None, generators=verdict.dimension, samples=500, names=["x", "y"], affine=False
    )


def test_generators_have_the_norm_of_learned_ones(of_sphere: Discovery) -> None:
    norms = of_sphere.span.flatten(1).norm(dim=1)
    assert norms.tolist() == pytest.approx([3**0.5] * 3)


def test_one_rotation_is_not_taken_for_three() -> None:
    found = discovered(radius)
    assert (found.verdict.outcome, found.verdict.dimension) == ("certified", 1)
    assert found.evidence.dimensions.rows[1].lower > 0.2


def test_no_symmetry_is_an_answer() -> None:
    found = discovered(without_symmetry)
    assert (found.verdict.outcome, found.verdict.dimension) == ("refuted", 0)
    assert found.span.shape == (0, 3, 3)
    assert found.verdict.group is None


@pytest.mark.parametrize("seed", range(3))
def test_permuted_labels_are_never_certified(seed: int) -> None:
    """Nothing of the task is left, and a predictor of noise has derivatives all the same."""
    x, y = drawn(sphere, 1200)
    shuffled = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))]
    found = discover(evidence_of(x, shuffled, seed), largest=2.0, labels=False)
    assert found.verdict.outcome == "inconclusive"
    assert found.verdict.dimension == 0


def test_features_far_from_zero_show_their_scalings() -> None:
    """Some entries hardly move such samples, and hide the algebra of the others."""
    x = 1 + 2 * torch.rand(1500, 3, generator=torch.Generator().manual_seed(0))
    y = x[:, :1] * x[:, 1:2] / x[:, 2:]
    y = (y - y.mean()) / y.std()
    evidence = gather(
        lambda: team_network((3,), (1,), 0), (x[300:], y[300:]), (x[:300], y[:300]),
        action=VECTOR, output=INVARIANT, members=1, device="cpu",
    )  # fmt: skip
    verdict = discover(evidence, largest=2.0, labels=False).verdict
    assert (verdict.outcome, verdict.group) == ("certified", "weighted scalings(2)")


def test_redundant_and_constant_features_do_not_hide_a_symmetry() -> None:
    """Networks say whatever they like where features differ that never did."""
    x, y = drawn(sphere)
    redundant = torch.stack([x[:, 0] + x[:, 1], x[:, 2] - x[:, 0], torch.ones(len(x))], dim=1)
    x = torch.cat([x, redundant], dim=1)
    evidence = gather(
        lambda: MLP((6,), (1,), hidden=(48, 48), smooth=True),
        (x[500:], y[500:]),
        (x[:500], y[:500]),
        action=VectorAction(6),
        output=INVARIANT,
        members=1,
        epochs=EPOCHS,
        device="cpu",
    )
    verdict = discover(evidence, largest=2.0, labels=False).verdict
    assert (verdict.outcome, verdict.dimension) == ("certified", 3)
    assert "of 36 directions break them" in " ".join(verdict.reasons)


def test_equations_that_nothing_keeps_are_taken_for_chance() -> None:
    """Five points lie on a curve of the second degree, which no motion of the plane keeps."""
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(1)).repeat(20, 1)
    found = known(
        lambda: MLP((2,), (1,), hidden=(16,), smooth=True), (x, sphere(x)), 1,
        action=VectorAction(2), output=INVARIANT, members=1, epochs=1, device="cpu",
    )  # fmt: skip
    assert found.shape == (1, 2, 2)


def test_a_verdict_tells_the_noise_of_training_from_that_of_the_samples() -> None:
    x, y = drawn(sphere)
    two = evidence_of(x, y, members=2)
    defects = two.by_single_networks(two.dimensions.generators[:3])
    assert len(defects) == 4
    reasons = discover(two, largest=2.0, labels=False).verdict.reasons
    assert f"defects are {min(defects):.3g} to {max(defects):.3g}" in reasons[1]
    one = evidence_of(x, y)
    assert one.by_single_networks(one.dimensions.generators[:3]) == []
    alone = discover(one, largest=2.0, labels=False).verdict
    assert "starts of training" not in " ".join(alone.reasons)


# ---------------------------------------------------------------------------------- the decision


def table(*rows: tuple[float, float, float, float], agree: bool = True) -> Dimensions:
    """Of (defect, lower, upper, closure); the mean of both teams has the same upper bound."""
    listed = [Row(k, *row, together=row[2]) for k, row in enumerate(rows, 1)]
    return Dimensions(listed, torch.zeros(len(rows), 2, 2), torch.zeros(0, 2, 2), agree)


SURE, NOT_SURE, NONE = (0.01, 0.0, 0.03, 0.0), (0.09, 0.05, 0.13, 0.0), (0.6, 0.5, 0.7, 0.0)


@pytest.mark.parametrize(
    ("rows", "quality", "outcome", "dimension"),
    [
        ([SURE, NONE], 0.99, "certified", 1),
        ([SURE, SURE, NONE], 0.99, "certified", 2),
        ([NONE, NONE], 0.99, "refuted", 0),
        ([NOT_SURE, NONE], 0.99, "inconclusive", 0),
        ([(0.19, 0.15, 0.22, 0.0), NONE], 0.99, "inconclusive", 0),
        ([SURE, NONE], 0.8, "inconclusive", 0),
    ],
)
def test_a_verdict_needs_bounds_and_a_learned_task(
    rows: list[tuple[float, float, float, float]], quality: float, outcome: str, dimension: int
) -> None:
    verdict = decide(table(*rows), quality, labels=False, samples=100)
    assert (verdict.outcome, verdict.dimension) == (outcome, dimension)


def test_a_span_that_brackets_leave_is_not_counted() -> None:
    open_span = (0.01, 0.0, 0.03, 0.7)
    assert table(SURE, open_span, NONE).count() == 1
    assert table(SURE, open_span, SURE, NONE).count() == 3


def test_predictors_that_share_nothing_decide_nothing() -> None:
    verdict = decide(table(SURE, agree=False), 0.99, labels=False, samples=100)
    assert verdict.outcome == "inconclusive"


def test_a_larger_algebra_that_is_not_excluded_is_mentioned() -> None:
    verdict = decide(table(SURE, NOT_SURE), 0.99, labels=False, samples=100)
    assert verdict.outcome == "certified"
    assert any("not excluded" in reason for reason in verdict.reasons)
    assert verdict.more
    assert str(verdict).startswith("certified: at least 1 generator")
    assert not decide(table(SURE, NONE), 0.99, labels=False, samples=100).more


def test_a_certified_defect_that_is_surely_not_zero_is_mentioned() -> None:
    broken = (0.055, 0.046, 0.067, 0.0)
    verdict = decide(table(broken, NONE), 0.975, labels=False, samples=400)
    assert (verdict.outcome, verdict.lower) == ("certified", 0.046)
    assert any("or the symmetry is an approximate one" in r for r in verdict.reasons)
    exact = decide(table(SURE, NONE), 0.975, labels=False, samples=400)
    assert not any("approximate" in reason for reason in exact.reasons)


def test_too_few_held_out_samples_decide_nothing() -> None:
    for rows in (table(SURE, NONE), table(NONE, NONE)):
        assert decide(rows, 0.99, labels=False, samples=19).outcome == "inconclusive"


def test_teams_that_say_the_opposite_are_told_apart_from_a_small_defect() -> None:
    opposite = (-0.36, -0.39, -0.33, 0.0)
    verdict = decide(table(opposite, NONE), 0.99, labels=False, samples=100)
    assert verdict.outcome == "inconclusive"
    assert "the opposite of each other" in verdict.reasons[-1]
    assert not any("neither surely below" in reason for reason in verdict.reasons)
    assert str(verdict) == "inconclusive: 0 generators, the teams say the opposite of each other"
    assert "say the opposite of each other along the best direction" in sentence(verdict)


@pytest.mark.parametrize(("quality", "outcome"), [(0.99, "refuted"), (0.93, "inconclusive")])
def test_what_may_not_have_been_learned_is_not_refuted(quality: float, outcome: str) -> None:
    rows = replace(table(NONE, NONE), visible=visible_defect(quality))
    assert decide(rows, quality, labels=False, samples=100).outcome == outcome


def test_a_small_defect_that_well_taught_predictors_surely_see_is_no_symmetry() -> None:
    seen = (0.067, 0.065, 0.069, 0.0)
    for quality, dimension in ((0.9999, 1), (0.99, 2)):
        rows = replace(table(SURE, seen, NONE), visible=visible_defect(quality))
        verdict = decide(rows, quality, labels=False, samples=100)
        assert (verdict.outcome, verdict.dimension) == ("certified", dimension)
        assert any("approximate symmetry" in r for r in verdict.reasons) == (dimension == 1)
    alone = replace(table(seen, NONE), visible=visible_defect(0.9999))
    verdict = decide(alone, 0.9999, labels=False, samples=100)
    assert verdict.outcome == "inconclusive"
    assert any("approximate symmetry at most" in reason for reason in verdict.reasons)


TRIED = Row(2, 0.15, 0.1, 0.2, 0.0, 0.2)


@pytest.mark.parametrize(
    ("rows", "quality", "loss_upper", "named", "passed"),
    [
        ([SURE, SURE, NONE], 0.99, 0.2, True, True),
        ([SURE, SURE, NONE], 0.99, 0.6, True, False),
        ([SURE, SURE, NONE], 0.95, 0.2, True, False),
        ([SURE, NOT_SURE, NONE], 0.99, 0.2, True, False),
        ([SURE, SURE, NONE], 0.99, 0.2, False, False),
    ],
)
def test_a_trial_needs_a_fall_of_the_loss_a_learned_task_and_an_algebra_that_holds(
    rows: list[tuple[float, float, float, float]],
    quality: float,
    loss_upper: float,
    named: bool,
    passed: bool,
) -> None:
    trial = Trial(TRIED, loss_upper / 2, loss_upper)
    assert trial.passed(table(*rows), quality, named=named, labels=False) == passed


def test_a_verdict_by_trial_says_so_and_keeps_the_defect_from_before() -> None:
    trial = Trial(TRIED, 0.05, 0.08)
    verdict = decide(table(SURE, SURE, NONE), 0.99, labels=False, samples=100, trial=trial)
    assert (verdict.outcome, verdict.dimension) == ("certified", 2)
    assert (verdict.defect, verdict.upper) == (TRIED.defect, TRIED.upper)
    assert any("imposed" in reason and "0.05" in reason for reason in verdict.reasons)
    assert str(verdict) == (
        "certified by imposing it: 2 generators, defect before 0.150 (95 % upper bound 0.200)"
    )
    told = sentence(verdict)
    assert "is certified by imposing it: when it was, the held-out loss" in told
    assert "before, the defect of the span was 0.15" in told


def test_a_defect_below_zero_is_told_as_none() -> None:
    verdict = decide(table((-0.062, -0.081, 0.03, 0.0), NONE), 0.99, labels=False, samples=100)
    assert verdict.outcome == "certified"
    assert str(verdict) == "certified: 1 generator, defect 0.000 (95 % upper bound 0.030)"
    assert "the defect of the span is 0 (95 % bounds 0 to 0.03;" in sentence(verdict)
    assert "changes by 0 of how much" in verdict.reasons[0]
    assert "it is -0.062" in verdict.reasons[0]
    assert verdict.to_json()["defect"] == -0.062


def area(x: Tensor) -> Tensor:
    """Of the triangle of two points and the origin: kept by sl(2)."""
    return x[:, 0, :1] * x[:, 1, 1:] - x[:, 0, 1:] * x[:, 1, :1]


def of_few_pairs(function: Callable[[Tensor], Tensor]) -> Evidence:
    """From so few samples that teams alone cannot show a symmetry."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(600, 2, 2, generator=rng)
    # A number for each sample, without an axis of its own, as users have it.
    y = function(x).squeeze(1)
    y = (y - y.mean()) / y.std()
    return gather(
        lambda: MLP((2, 2), (1,), hidden=(48, 48), smooth=True),
        (x[400:], y[400:]),
        (x[:400], y[:400]),
        action=VectorAction(2),
        output=INVARIANT,
        members=1,
        epochs=600,
        device="cpu",
    )


def test_a_symmetry_that_teams_alone_cannot_show_is_certified_by_imposing_it() -> None:
    evidence = of_few_pairs(area)
    assert evidence.before is not None
    assert evidence.before.dimensions.count() < 3
    found = discover(evidence, largest=1.0, labels=False)
    assert (found.verdict.outcome, found.verdict.group) == ("certified", "sl(2)")
    assert found.verdict.upper == evidence.before.bench.judge(found.span).upper


class Losing:
    """Evidence of which only the losses are asked."""

    def __init__(self, *losses: float) -> None:
        self.each = torch.tensor(losses, dtype=torch.float64)

    def losses(self, _: Tensor) -> Tensor:
        return self.each


def test_a_trial_is_compared_with_learning_on_without_it() -> None:
    tried, before, control = Losing(1.0, 1.0), Losing(4.0, 4.0), Losing(2.0, 2.0)
    share, upper = _share_of_loss(tried, (before, control), torch.zeros(2))  # pyright: ignore[reportArgumentType]
    assert (share, upper) == (0.5, 0.5)
    share, _ = _share_of_loss(tried, (before, Losing(8.0, 8.0)), torch.zeros(2))  # pyright: ignore[reportArgumentType]
    assert share == 0.25


# -- teams that have learned everything ------------------------------------------------------------


class Exactly(nn.Module):
    """A function as a network that has learned it."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def of_function(function: Callable[[Tensor], Tensor], x: Tensor) -> Evidence:
    first, second = (Team([Exactly(function)], 0) for _ in range(2))
    action = VectorAction(x.shape[1])
    held = (x[:500], function(x[:500]))
    return weigh(first, second, x[500:], held, action=action, output=INVARIANT, device="cpu")


def of_columns(n: int, function: Callable[[Tensor], Tensor]) -> Evidence:
    """What two exact teams say about samples of so many columns, of unlike units."""
    x = torch.randn(700, n, generator=torch.Generator().manual_seed(0))
    return of_function(function, x * torch.linspace(1, 9, n))


def uneven(x: Tensor) -> Tensor:
    """Of the columns 0, 2 and 5 in twelve."""
    return (x[:, :1] / 2).sin() + (x[:, 2:3] / 3).cos() * x[:, 5:6] / 4


def test_columns_on_which_nothing_depends_are_named_where_there_are_too_many() -> None:
    evidence = of_columns(12, uneven)
    others = [i for i in range(12) if i not in (0, 2, 5)]
    assert evidence.hardly_matter() == others
    # Along each of nine columns anything may be added, more than a table has rows for.
    assert (evidence.dimensions.count(), evidence.dimensions.left_out) == (MOST_ROWS, 44)
    (told,) = words_on_columns(evidence)
    assert told.startswith(f"Along axes {', '.join(map(str, others))} what both teams predict")
    unsure = discover(replace(evidence, quality=0.0), largest=2.0, labels=False)
    assert unsure.verdict.outcome == "inconclusive"
    assert told in unsure.verdict.reasons


def test_of_a_table_that_was_looked_at_as_a_whole_no_column_is_to_be_left_out() -> None:
    evidence = of_columns(6, uneven)
    assert evidence.hardly_matter() == [1, 3, 4]
    assert words_on_columns(evidence) == []
    assert of_columns(5, lambda x: x.sin().sum(1, keepdim=True)).hardly_matter() == []


@pytest.mark.parametrize("unit", [1.0, 30.0, 1000.0])
def test_how_far_a_symmetry_holds_does_not_depend_on_units(unit: float) -> None:
    def ring(x: Tensor) -> Tensor:
        x = x / torch.tensor([1.0, unit, 1.0])
        return (x[:, :1].square() + x[:, 1:2].square()) + torch.sin(x[:, 2:])

    x, _ = drawn(sphere)
    evidence = of_function(ring, x * torch.tensor([1.0, unit, 1.0]))
    found = discover(evidence, largest=2.0, labels=False)
    assert (found.verdict.outcome, found.verdict.group) == ("certified", "so(2)")
    assert found.verdict.holds_until == [2.0]
    turn = found.span[0].double()
    # The columns have one spread but for a few per cent, in units of which a turn is of norm √D.
    rate = (-turn[0, 1] * turn[1, 0]).sqrt()
    assert abs(float(rate) - (3 / 2) ** 0.5) < 0.05
    # Exact means exact: the unit is what the generator says, not the spread of the samples.
    assert abs(float(-turn[1, 0] / turn[0, 1]) / unit**2 - 1) < 1e-3


def test_what_is_surely_worse_on_held_out_samples_is_not_made_exact() -> None:
    """An ellipse is nearly a circle, and its turn is nearly a rotation."""

    def ellipse(x: Tensor) -> Tensor:
        return x[:, :1].square() + 1.07 * x[:, 1:2].square() + torch.sin(x[:, 2:])

    found = discover(of_function(ellipse, drawn(sphere)[0]), largest=2.0, labels=False)
    assert found.verdict.outcome == "certified"
    assert found.verdict.upper is not None
    assert found.verdict.upper < 0.01
    assert abs(float(-found.span[0, 0, 1] / found.span[0, 1, 0]) - 1.07) < 0.01


def test_more_generators_without_a_name_do_not_take_the_place_of_fewer_with_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evidence = of_function(sphere, drawn(sphere)[0])
    better, worse = (0.001, 0.0, 0.002, 0.0), (0.03, 0.02, 0.04, 0.0)
    both = replace(evidence, dimensions=table(better, worse, NONE))
    assert both.dimensions.count() == 2
    monkeypatch.setattr(Evidence, "_is_named", lambda _, dimension: dimension == 1)
    fewer = both.preferring_a_name().dimensions
    assert fewer.count() == 1
    verdict = decide(fewer, 0.99, labels=False, samples=500)
    assert not verdict.more
    assert any("no algebra with a name" in reason for reason in verdict.reasons)
    # Not where it holds as well: then nothing speaks for fewer but the lack of a name.
    alike = replace(evidence, dimensions=table(better, (0.002, 0.0, 0.004, 0.0), NONE))
    assert alike.preferring_a_name() is alike
    monkeypatch.setattr(Evidence, "_is_named", lambda *_: True)
    assert both.preferring_a_name() is both


def test_directions_that_were_not_looked_at_are_told() -> None:
    some = replace(table(SURE, NONE), left_out=5)
    verdict = decide(some, 0.99, labels=False, samples=500)
    assert str(verdict).startswith("certified: at least 1 generator")
    assert any("5 of 7 directions were left out" in reason for reason in verdict.reasons)


def test_more_directions_than_are_looked_at_are_told() -> None:
    full = replace(table(*[SURE] * MOST_ROWS), left_out=44)
    verdict = decide(full, 0.99, labels=False, samples=500)
    assert str(verdict).startswith(f"certified: at least {MOST_ROWS} generators")
    free = 44 + len(full.generators)
    words = f"Only the likeliest {MOST_ROWS} of {free} directions were looked at"
    assert any(words in reason for reason in verdict.reasons)


def test_a_verdict_says_which_bound_failed_before_the_trial() -> None:
    opposite = Row(3, -0.05, -0.167, 0.0589, 0.0, together=0.08)
    noisy = replace(opposite, lower=-0.05, together=0.2)
    for row, words in ((opposite, "far below zero"), (noisy, "By the mean of both")):
        trial = Trial(row, 0.2, 0.3)
        three = table(SURE, SURE, SURE, NONE)
        reasons = decide(three, 0.99, labels=False, samples=500, trial=trial).reasons
        assert words in reasons[0]
        assert "too much to certify it by itself" not in reasons[0] or row is noisy


def test_nothing_is_measured_where_nothing_was_learned() -> None:
    verdict = decide(table(NONE, agree=False), -0.2, labels=False, samples=500)
    assert "explain none of the held-out variation" in " ".join(verdict.reasons)
    little = decide(table(NONE), 0.8, labels=False, samples=500)
    assert "To certify anything 0.9 of the variation must be explained" in " ".join(little.reasons)


# ---------------------------------------------------------------------------------- estimators


@pytest.fixture(scope="module")
def regressor() -> SymmetryRegressor:
    x, y = drawn(sphere)
    model = SymmetryRegressor(
        n_generators="auto", hidden=(32, 32), epochs=15, n_views=2, random_state=0, device="cpu"
    )
    return model.fit(x.numpy(), y[:, 0].numpy())


def test_what_was_learned_is_kept_beside_what_was_made_exact(regressor: SymmetryRegressor) -> None:
    assert regressor.identity_ is not None
    assert regressor.identity_.exact is not None
    learned, used = (torch.from_numpy(g) for g in (regressor.learned_, regressor.generators_))
    assert not torch.allclose(learned, used)
    assert float(principal_cosines(learned, used).min()) > 0.99
    torch.testing.assert_close(regressor.manifest().generators, learned)
    assert any("Made exact, its defect" in reason for reason in regressor.verdict_.reasons)


def test_findings_tell_which_dimensions_count(regressor: SymmetryRegressor) -> None:
    table = regressor.dimensions_
    assert table is not None
    counts = [row["holds"] for row in regressor.findings().spectrum]
    assert counts == [row.holds(visible=table.visible) for row in table.rows]
    assert any(counts)
    assert not all(counts)


def test_teams_and_predictor_are_told_apart_in_the_numbers(regressor: SymmetryRegressor) -> None:
    numbers = regressor.findings().numbers
    teams, own = (
        numbers[f"held-out variation explained by the {whose}"] for whose in ("teams", "predictor")
    )
    assert teams == regressor.verdict_.quality
    assert own != teams
    assert (
        numbers["time of everything since it was last begun (s)"]
        >= numbers["training time of the predictor (s)"]
    )


def test_the_estimator_prints_a_table_over_dimensions(regressor: SymmetryRegressor) -> None:
    assert regressor.verdict_.outcome == "certified"
    assert regressor.generators_.shape == (3, 3, 3)
    rows = regressor.symmetries_
    assert [row["dimension"] for row in rows] == [0, 1, 2, 3, 4, 5, 6]
    assert [row["chosen"] for row in rows].index(True) == 3
    assert rows[0]["validation_loss"] is not None
    assert rows[3]["validation_loss"] is not None
    printed = str(regressor)
    assert "certified: 3 generators, so(3)" in printed
    assert ">>    3" in printed
    assert "is certified" in regressor.sentence()


def test_without_a_symmetry_the_estimator_is_a_plain_predictor(
    tmp_path: object,
) -> None:
    x, y = drawn(without_symmetry)
    model = SymmetryRegressor(
        n_generators="auto", hidden=(32, 32), epochs=15, random_state=0, device="cpu"
    ).fit(x.numpy(), y[:, 0].numpy())
    assert model.verdict_.outcome == "refuted"
    assert model.generators_.shape == (0, 3, 3)
    assert model.predictor_.views == 0
    assert np.array_equal(model.augment(x[:4].numpy()), x[:4, None].expand(-1, 10, -1).numpy())
    assert "no continuous symmetry" in model.sentence()
    assert model.export("json")["generators"] == []
    assert "no generator" in str(model.report(f"{tmp_path}/report.html").read_text()).lower()


def overlap_when_known(n: int, noise: float, members: int, seed: int) -> float:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=rng)
    y = sphere(x) / sphere(x).std() + noise * torch.randn(n, 1, generator=rng)
    found = known(
        lambda: MLP((3,), (1,), hidden=(64, 64, 64), smooth=True), (x, y), 3,
        action=VECTOR, output=INVARIANT, members=members, device="cpu", seed=seed,
    )  # fmt: skip
    return float(principal_cosines(found, catalogue.so(3)).min())


def test_the_mean_of_many_networks_knows_more_about_noisy_samples_than_one() -> None:
    together, alone = (
        [overlap_when_known(600, 1.0, members, seed) for seed in range(3)] for members in (8, 1)
    )
    assert np.mean(together) > np.mean(alone)
    assert min(together) > 0.95


def test_few_noisy_samples_are_enough_where_it_is_known_how_many_there_are() -> None:
    assert min(overlap_when_known(100, 0.3, 8, seed) for seed in range(4)) > 0.95


def test_a_process_knows_more_about_few_samples_than_networks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn = torch.zeros(1, 4, 4)
    turn[0, 0, 1], turn[0, 1, 0] = -1.0, 1.0

    def overlap(seed: int) -> float:
        x = torch.randn(100, 4, generator=torch.Generator().manual_seed(seed))
        y = (x[:, :2].square().sum(1) * x[:, 2] + x[:, 3]).unsqueeze(1)
        found = known(
            lambda: MLP((4,), (1,), hidden=(64, 64, 64), smooth=True), (x, y / y.std()), 1,
            action=VectorAction(4), output=INVARIANT, device="cpu", seed=seed,
        )  # fmt: skip
        return float(principal_cosines(found, turn).min())

    by_process = [overlap(seed) for seed in range(4)]
    monkeypatch.setattr(given_number, "_FEW", 0)
    by_networks = [overlap(seed) for seed in range(4)]
    assert np.mean(by_process) > np.mean(by_networks) + 0.2


@pytest.mark.parametrize("dimension", [0, 10])
def test_a_number_of_generators_that_cannot_be_is_refused(dimension: int) -> None:
    with pytest.raises(ValueError, match="between 1 and 9"):
        known(torch.nn.Identity, (torch.zeros(1, 3), torch.zeros(1, 1)), dimension,
              action=VECTOR, output=INVARIANT)  # fmt: skip


def test_labels_are_judged_by_probabilities() -> None:
    x, y = drawn(radius)
    model = SymmetryClassifier(
        n_generators="auto", hidden=(32, 32), epochs=15, n_views=2, random_state=0, device="cpu"
    ).fit(x.numpy(), (y[:, 0] > 0).numpy())
    assert model.verdict_.dimension <= 1
    assert model.verdict_.outcome in ("certified", "inconclusive")


def test_a_wrong_number_of_generators_is_named() -> None:
    with pytest.raises(ValueError, match="or 'auto'"):
        SymmetryRegressor(n_generators="many").fit(np.zeros((9, 2)), np.arange(9.0))


def test_teams_share_nothing_that_a_given_network_has_learned() -> None:
    """What it knew before, both teams would agree on."""
    network = MLP((2,), (1,), hidden=(8,))
    before = [parameter.detach().clone() for parameter in network.parameters()]
    fresh = untrained(copy.deepcopy(network))
    pairs = zip(fresh.parameters(), before, strict=True)
    assert not any(torch.equal(new, old) for new, old in pairs)


def test_what_leads_off_the_data_comes_last_among_the_likeliest(rng: torch.Generator) -> None:
    angle = 2 * math.pi * torch.rand(200, generator=rng, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()], -1)
    # Growing changes the prediction least, but there are no samples of another radius.
    found = likeliest(
        lambda x: x[:, :1] / sphere(x), circle, 4, action=VectorAction(2), output=INVARIANT
    )
    assert len(found) == 4
    assert float(absolute_cosine(found[0], catalogue.so(2)[0].double())) > 0.999
    assert float(absolute_cosine(found[1], torch.eye(2).double())) > 0.999


def test_fewer_are_likely_where_no_more_move_the_samples(rng: torch.Generator) -> None:
    flat = torch.randn(200, 3, generator=rng) * torch.tensor([1.0, 1.0, 0.0])
    assert len(likeliest(sphere, flat, 9, action=VECTOR, output=INVARIANT)) == 6


# ---------------------------------------------------------------------------- units of columns


def test_unlike_columns_have_the_symmetry_that_they_have_in_any_unit() -> None:
    """A force of drag, ½ ρ v² A c: three scalings of four quantities keep it."""
    rng = np.random.default_rng(0)
    limits = np.array([[0.5, 1.5], [1.5, 30.0], [0.1, 2.0], [0.2, 1.2]])
    x = rng.uniform(limits[:, 0], limits[:, 1], (3000, 4))
    y = x[:, 0] * x[:, 1] ** 2 * x[:, 2] * x[:, 3] / 2
    powers = torch.tensor([1.0, 2.0, 1.0, 1.0])
    for units in (np.ones(4), np.array([1e3, 3.6, 1e4, 1.0])):
        model = SymmetryRegressor(n_generators="auto", epochs=20, random_state=0)
        model.fit(x * units, y)
        assert model.verdict_.outcome == "certified"
        assert model.verdict_.group == "weighted scalings(3)"
        scalings = torch.from_numpy(model.generators_).float()
        weights = scalings.diagonal(dim1=1, dim2=2)
        assert torch.allclose(scalings, torch.diag_embed(weights))
        assert torch.allclose(weights @ powers, torch.zeros(3), atol=1e-5)
        assert model.score(x * units, y) > 0.99


def test_a_large_insensitive_column_is_not_certified() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2000, 3)) * [1.0, 1.0, 30.0]
    y = np.sin(2 * x[:, 0]) + x[:, 1] ** 3 / 3 + np.cos(x[:, 2] / 15) + x[:, 0] * x[:, 1]
    model = SymmetryRegressor(n_generators="auto", epochs=20, random_state=0).fit(x, y)
    assert model.verdict_.outcome != "certified"


def test_an_algebra_that_held_out_samples_reject_gives_no_name() -> None:
    """A spiral that is nearly a turn, and learned too well to be taken for one."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 2, generator=rng)
    pitch = 0.05

    def kept(x: Tensor) -> Tensor:
        radius, angle = x.norm(dim=1), torch.atan2(x[:, 1], x[:, 0])
        # Along J + pitch·I the logarithm of the radius grows by pitch times the angle.
        return (2 * (radius.log() - pitch * angle)).sin().unsqueeze(1)

    inside = x[:, 0] > 0
    samples = x[inside]
    half = len(samples) // 2
    evidence = weigh(
        Team([_Function(kept)], 0), Team([_Function(kept)], 0), samples[:half],
        (samples[half:], kept(samples[half:])),
        action=VectorAction(2), output=InvariantAction(), device="cpu",
    )  # fmt: skip
    span, identity = evidence.named(1)
    assert identity is not None
    assert not identity.named or identity.name == "spiral"
    spiral = torch.tensor([[[pitch, -1.0], [1.0, pitch]]])
    assert absolute_cosine(span[0], spiral[0]) > 0.9999


class _Function(torch.nn.Module):
    """A function as a trained network."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def test_fields_of_whole_numbers_stay_where_they_are() -> None:
    rng = torch.Generator().manual_seed(0)
    real = torch.arange(4) < torch.randint(2, 5, (120, 1), generator=rng)
    x = {
        "positions": torch.randn(120, 4, 3, generator=rng) * real.unsqueeze(-1),
        "charges": (torch.randint(1, 3, (120, 4), generator=rng) * real).to(torch.uint8),
        "mask": real,
    }
    y = x["positions"].square().sum((1, 2)).unsqueeze(1)
    action = StructuredAction({"positions": AffineAction(3)}, masks={"positions": "mask"})
    parts = [({name: f[s] for name, f in x.items()}, y[s]) for s in (slice(80), slice(80, None))]
    evidence = gather(
        lambda: LieConv(width=8, n_blocks=1, elements=(1, 2)), *parts,
        action=action, output=INVARIANT, members=1, epochs=1, device="cpu",
    )  # fmt: skip
    # How many of the directions hold is not asked of networks that were trained for one epoch.
    assert len(evidence.dimensions.rows) > 6


def test_columns_of_very_unlike_units_do_not_lose_what_was_found() -> None:
    """A turn that mixes grams with light years has entries that no exponential is taken of."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 3))
    y = np.hypot(x[:, 0], x[:, 1]) + 0.2 * x[:, 2]
    units = np.array([1e-4, 1e4, 1.0])
    model = SymmetryRegressor(n_generators="auto", hidden=(64, 64), epochs=15, random_state=0)
    with pytest.warns(UserWarning, match=r"norm of 1\.2e\+08, .* Divide columns of unlike units"):
        model.fit(x * units, y)
    assert (model.verdict_.outcome, model.verdict_.group) == ("certified", "so(2)")
    turn = model.generators_[0] / units[:, None] * units
    # The spreads of 1,000 samples, in units of which it is a turn, differ by a third of a per cent.
    assert turn / turn[1, 0] == pytest.approx(np.array([[0, -1, 0], [1, 0, 0], [0] * 3]), abs=0.01)
    assert model.score(x * units, y) > 0.9


def test_a_trial_of_generators_with_large_entries_can_be_made() -> None:
    turn = torch.zeros(1, 3, 3)
    turn[0, 0, 1], turn[0, 1, 0] = -1e-6, 1e6
    augmenter = _imposing(turn, VECTOR, INVARIANT)
    assert 0 < augmenter.sampler.range < 1e-3
    assert torch.equal(augmenter.generators, turn)


@pytest.mark.parametrize(("many", "said"), [(8, True), (9, False)])
def test_what_has_no_steps_to_count_is_told(
    many: int, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lieaugmenter.discovery.gathering._MANY", many)
    x, y = drawn(radius, 70)
    gather(
        lambda: MLP((3,), (1,), hidden=(8,), smooth=True), (x[:60], y[:60]), (x[60:], y[60:]),
        action=VECTOR, output=INVARIANT, members=1, epochs=1, device="cpu", progress=True,
    )  # fmt: skip
    assert ("measuring 9 directions, and naming" in capsys.readouterr().err) == said


@pytest.mark.parametrize(("held_out", "trials"), [(19, 0), (20, 1)])
def test_nothing_is_tried_out_on_samples_that_decide_nothing(
    held_out: int, trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(
        "lieaugmenter.discovery.gathering._tried_out",
        lambda evidence, *_, **__: seen.append(evidence) or evidence,
    )
    x, y = drawn(radius, 60 + held_out)
    gather(
        lambda: MLP((3,), (1,), hidden=(8,), smooth=True), (x[:60], y[:60]), (x[60:], y[60:]),
        action=VECTOR, output=INVARIANT, members=1, epochs=1, device="cpu",
    )  # fmt: skip
    assert len(seen) == trials

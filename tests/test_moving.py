"""Symmetries judged by labels of samples that were moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, one_hot

from lieaugmenter.actions import Action, ImageAction, InvariantAction, VectorAction
from lieaugmenter.analysis.bench import Row
from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.components import ABSENT, PRESENT, UNJUDGED
from lieaugmenter.analysis.dimension import DerivativeBench
from lieaugmenter.analysis.moving import MovingBench, Witness
from lieaugmenter.analysis.verdict import decide
from lieaugmenter.lie import catalogue

INVARIANT = InvariantAction()
TURN = catalogue.so(2)
STRETCH = torch.tensor([[1.0, 0.0], [0.0, -1.0]])

Function = Callable[[Tensor], Tensor]


def radius(x: Tensor) -> Tensor:
    return x.norm(dim=1, keepdim=True)


def hilly(x: Tensor) -> Tensor:
    return (2 * x).sin().sum(1, keepdim=True) + x[:, :1] * x[:, 1:2]


def rough(function: Function, phase: float) -> Function:
    """A predictor that is a little wrong everywhere, with slopes that say nothing."""
    return lambda x: function(x) + 0.04 * torch.sin(60 * x.flatten(1)[:, :1] + phase)


def bench_of(
    truth: Function, *models: Function, x: Tensor, action: Action, output: Action = INVARIANT
) -> MovingBench:
    return bench_with(truth(x), *models, x=x, action=action, output=output)


def bench_with(
    y: Tensor, *models: Function, x: Tensor, action: Action, output: Action = INVARIANT
) -> MovingBench:
    one, two = models

    def both(part: Tensor) -> Tensor:
        return (one(part) + two(part)) / 2

    parts = zip((both, one, one, two), x.tensor_split(4), y.tensor_split(4), strict=True)
    first, second, *searching = (Witness(*part) for part in parts)
    return MovingBench([first, second], (searching[0], searching[1]), action=action, output=output)


def plane(truth: Function) -> MovingBench:
    x = torch.randn(3200, 2, generator=torch.Generator().manual_seed(0))
    models = rough(truth, 0.0), rough(truth, 1.0)
    return bench_of(truth, *models, x=x, action=VectorAction(2))


def test_slopes_that_say_nothing_hide_no_symmetry_from_moved_samples() -> None:
    bench = plane(radius)
    found = bench.dimensions()
    assert found.count() == 1
    assert float(principal_cosines(found.span(), TURN).min()) > 0.99
    assert found.rows[1].lower > 0.3
    assert found.agreement[0] > 0.95
    one, two = (witness.model for witness in bench.searching)
    slopes = DerivativeBench(one, two, bench.samples, action=bench.action, output=bench.output)
    assert slopes.dimensions().count() == 0


def test_where_no_direction_keeps_the_truth_none_is_counted() -> None:
    found = plane(hilly).dimensions()
    assert found.agree
    assert found.count() == found.possible() == 0
    assert decide(found, 0.99, labels=False, samples=400).outcome == "refuted"


def test_what_has_learned_nothing_is_no_judge() -> None:
    x = torch.randn(1600, 2, generator=torch.Generator().manual_seed(0))
    constant = bench_of(radius, *[lambda x: x[:, :1] * 0 + 1.2] * 2, x=x, action=VectorAction(2))
    assert not constant.agree
    assert constant.dimensions().count() == 0


def test_labels_that_turning_keeps_are_counted() -> None:
    def ring(x: Tensor) -> Tensor:
        return one_hot((2 * x.norm(dim=1)).long().clamp(max=3), 4).float()

    def guess(x: Tensor) -> Tensor:
        distances = (2 * x.norm(dim=1, keepdim=True) - torch.arange(4) - 0.5).abs()
        return (-8 * distances + torch.sin(60 * x[:, :1])).softmax(1)

    x = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
    found = bench_of(ring, guess, guess, x=x, action=VectorAction(2)).dimensions()
    assert found.count() == 1
    assert float(principal_cosines(found.span(), TURN).min()) > 0.99


def test_finite_elements_are_told_apart() -> None:
    bench = plane(radius)
    assert bench.outcome(TURN[0], 2.0) == PRESENT
    assert bench.outcome(STRETCH, 0.5) == ABSENT
    # Nothing is known of where there are no samples.
    assert bench.outcome(torch.eye(2), 4.0) == UNJUDGED


def test_elements_nearer_than_those_that_were_certified_hold_as_well() -> None:
    bench = plane(radius)
    assert bench.outcome(TURN[0], 1e-4) == PRESENT
    assert bench.outcome(STRETCH, 1e-4) == ABSENT


def frame(side: int) -> tuple[Tensor, Tensor]:
    along = torch.linspace(-1, 1, side)
    v, u = torch.meshgrid(-along, along, indexing="ij")
    return u, v


def spots(n: int, each: int, side: int, width: float, rng: torch.Generator) -> Tensor:
    """Bright spots that are anywhere in a disc, equally likely."""
    angle = 2 * torch.pi * torch.rand(n, each, generator=rng)
    distance = 0.75 * torch.rand(n, each, generator=rng).sqrt()
    cx, cy = ((distance * f()).view(n, each, 1, 1) for f in (angle.cos, angle.sin))
    u, v = frame(side)
    return torch.exp(-((u - cx) ** 2 + (v - cy) ** 2) / width).sum(1, keepdim=True)


def off_centre(x: Tensor) -> Tensor:
    """How far what is bright is from the centre, on average."""
    u, v = frame(x.shape[-1])
    mean = (x[:, 0] * torch.hypot(u, v)).sum((1, 2)) / x.sum((1, 2, 3))
    return 10 * mean.unsqueeze(1)


@pytest.mark.parametrize("each", [1, 3, 8])
def test_a_turn_of_images_is_found_by_predictors_that_are_rough(each: int) -> None:
    x = spots(1200, each, 16, 0.03, torch.Generator().manual_seed(0))
    size = off_centre(x).std()

    def guess(phase: float) -> Function:
        return lambda x: off_centre(x) / size + 0.1 * (400 * x[:, 0, 5, 5:6] + phase).sin()

    models = guess(0.0), guess(1.0)
    bench = bench_with(off_centre(x) / size, *models, x=x, action=ImageAction())
    found = bench.dimensions()
    assert found.count() == 1
    assert float(principal_cosines(found.span(), catalogue.lift(TURN)).min()) > 0.99


def test_a_shift_of_a_few_pixels_of_noise_is_no_proof_of_a_symmetry() -> None:
    rng = torch.Generator().manual_seed(0)
    centre = 1.2 * torch.rand(160, 2, generator=rng) - 0.6
    (u, v), (cx, cy) = frame(192), (c.view(-1, 1, 1) for c in centre.unbind(1))
    bright = 6 * torch.exp(-((u - cx) ** 2 + (v - cy) ** 2) / 0.05)
    x = (bright + torch.randn(bright.shape, generator=rng)).unsqueeze(1)

    def place(x: Tensor) -> Tensor:
        coarse = (avg_pool2d(x, 12)[:, 0] - 1).clamp_min(0) + 1e-6
        return (coarse * frame(16)[0]).sum((1, 2)).div(coarse.sum((1, 2))).unsqueeze(1)

    bench = bench_with(centre[:, :1], place, place, x=x, action=ImageAction())
    shift = catalogue.translations(2)[:1].float()
    assert bench.judge(shift).lower > 0.2


def test_targets_that_are_images_are_blurred_as_inputs_are() -> None:
    rng = torch.Generator().manual_seed(0)
    x = spots(800, 1, 12, 0.1, rng)
    slope = 1 + 0.8 * frame(12)[0]

    def judged(model: Function) -> Row:
        y = model(x) + 0.05 * torch.randn(x.shape, generator=rng)
        options = {"x": x, "action": ImageAction(), "output": ImageAction()}
        return bench_with(y, model, model, **options).judge(catalogue.lift(TURN))

    assert abs(judged(lambda x: 2 * x).defect) < 0.05
    assert judged(lambda x: 2 * x * slope).lower > 0.1


def test_one_that_is_predicted_better_hides_none_that_is_predicted_worse() -> None:
    bench = plane(radius)
    n = bench.weights.shape[1]
    bench.weigh_by(torch.ones(n, dtype=torch.float64), seed=0)
    mixed = torch.diag(torch.tensor([-0.034, 0.030], dtype=torch.float64)).expand(n, 2, 2)
    bench.forms = lambda units: iter([(mixed, mixed)])
    row = bench.judge(torch.stack([TURN[0], STRETCH]))
    assert row.upper < 0
    assert not row.holds()


def test_images_with_nothing_on_them_are_said_to_have_nothing_to_move() -> None:
    x = torch.zeros(80, 1, 8, 8)
    with pytest.raises(ValueError, match="no candidate moves any sample"):
        bench_of(off_centre, off_centre, off_centre, x=x, action=ImageAction())


def test_a_verdict_says_that_samples_were_moved() -> None:
    verdict = decide(plane(radius).dimensions(), 0.99, labels=False, samples=400)
    assert verdict.outcome == "certified"
    assert "miss the moved targets" in verdict.reasons[0]
    assert "random direction" not in verdict.reasons[0]


def test_where_moved_samples_are_unlike_all_others_nothing_is_refuted() -> None:
    found = plane(hilly).dimensions()
    assert found.among
    verdict = decide(replace(found, among=False), 0.99, labels=False, samples=400)
    assert verdict.outcome == "inconclusive"
    assert "unlike all others" in verdict.reasons[-1]


def test_a_surplus_below_zero_is_no_contradiction_of_the_teams() -> None:
    better = Row(1, -0.4, -0.5, -0.3, closure=0.0, together=-0.3, least=MovingBench.least)
    table = replace(plane(radius).dimensions(), rows=[better])
    verdict = decide(table, 0.99, labels=False, samples=400)
    assert verdict.outcome == "inconclusive"
    assert verdict.moved
    assert not verdict.opposite
    assert "opposite" not in f"{verdict} {verdict.reasons}"


def test_errors_that_are_smaller_by_chance_speak_against_no_symmetry() -> None:
    assert MovingBench.least < DerivativeBench.least
    row = Row(1, -0.08, -0.13, 0.05, closure=0.0, together=0.05, least=MovingBench.least)
    assert row.holds()
    assert not replace(row, lower=-0.25).holds()
    assert not replace(row, least=DerivativeBench.least).holds()

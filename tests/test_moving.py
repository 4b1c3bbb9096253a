"""Symmetries judged by labels of samples that were moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lieaugmenter.actions import Action, ImageAction, InvariantAction, VectorAction
from lieaugmenter.analysis.bench import Row
from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.components import ABSENT, PRESENT
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


def bench_of(truth: Function, *models: Function, x: Tensor, action: Action) -> MovingBench:
    one, two = models
    parts = x.tensor_split(4)

    def witness(model: Function, part: Tensor) -> Witness:
        return Witness(model, part, truth(part))

    def both(part: Tensor) -> Tensor:
        return (one(part) + two(part)) / 2

    judging = [witness(both, parts[0]), witness(one, parts[1])]
    searching = (witness(one, parts[2]), witness(two, parts[3]))
    return MovingBench(judging, searching, action=action, output=INVARIANT)


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


def test_a_turn_of_images_is_found_by_predictors_that_are_rough() -> None:
    side = torch.linspace(-1, 1, 12)
    v, u = torch.meshgrid(-side, side, indexing="ij")
    rng = torch.Generator().manual_seed(0)
    angle = 2 * torch.pi * torch.rand(800, generator=rng)
    distance = 0.7 * torch.rand(800, generator=rng).sqrt()
    cx, cy = ((distance * f()).view(-1, 1, 1) for f in (angle.cos, angle.sin))
    images = torch.exp(-((u - cx) ** 2 + (v - cy) ** 2) / 0.08).unsqueeze(1)

    def off_centre(x: Tensor) -> Tensor:
        mass = x.sum((1, 2, 3))
        return torch.hypot((x[:, 0] * u).sum((1, 2)) / mass, (x[:, 0] * v).sum((1, 2)) / mass)[
            :, None
        ]

    def of_images(phase: float) -> Function:
        return lambda x: off_centre(x) + 0.02 * torch.sin(200 * x[:, 0, 5, 5:6] + phase)

    bench = bench_of(off_centre, of_images(0.0), of_images(1.0), x=images, action=ImageAction())
    found = bench.dimensions()
    assert found.count() == 1
    assert float(principal_cosines(found.span(), catalogue.lift(TURN)).min()) > 0.99


def test_a_verdict_says_that_samples_were_moved() -> None:
    verdict = decide(plane(radius).dimensions(), 0.99, labels=False, samples=400)
    assert verdict.outcome == "certified"
    assert "about moved samples" in verdict.reasons[0]
    assert "random direction" not in verdict.reasons[0]


def test_errors_that_are_smaller_by_chance_speak_against_no_symmetry() -> None:
    assert MovingBench.least < DerivativeBench.least
    row = Row(1, -0.08, -0.13, 0.05, closure=0.0, together=0.05, least=MovingBench.least)
    assert row.holds()
    assert not replace(row, lower=-0.25).holds()
    assert not replace(row, least=DerivativeBench.least).holds()

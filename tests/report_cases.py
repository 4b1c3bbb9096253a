"""Findings of every kind of sample, from predictors whose symmetry is known."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from lieaugmenter.analysis.verdict import Verdict
from lieaugmenter.data.dynamics import FEATURES, true_generator, two_body
from lieaugmenter.learning import LieAugmenter
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.lie.catalogue import lift, so
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.sweep import sweep
from lieaugmenter.report.trials import departure, ways_to_predict


class Turn(nn.Module):
    """A linear map that commutes with the rotation of all planes: equivariant under it."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.8 * x + 0.3 * x @ true_generator()[0].mT


class Distances(nn.Module):
    """The sum of distances between points: unchanged by rotations."""

    def forward(self, x: Tensor) -> Tensor:
        gaps = x.unsqueeze(1) - x.unsqueeze(2)
        return (gaps.square().sum(-1) + 1e-9).sqrt().sum((1, 2)).unsqueeze(-1)


class Rings(nn.Module):
    """Logits that are the mean brightness of three rings: nearly unchanged by rotations."""

    def forward(self, x: Tensor) -> Tensor:
        steps = [torch.linspace(-1, 1, side) for side in x.shape[-2:]]
        radius = (steps[0].square().unsqueeze(1) + steps[1].square()).sqrt()
        rings = [(radius - centre).abs() < 0.25 for centre in (0.25, 0.6, 0.9)]
        return 5 * torch.stack([x.mean(1)[:, ring].mean(1) for ring in rings], dim=1)


def verdict(outcome: str = "inconclusive", dimension: int = 1) -> Verdict:
    return Verdict(outcome, None, dimension, 0.0231234, 0.0291, 0.998, ["A reason.", "Another."])


def history(epochs: int) -> list[dict[str, Any]]:
    return [
        {
            "epoch": epoch,
            "prediction": math.exp(-epoch),
            "equivariance": 3 * math.exp(-epoch / 2),
            "sparsity": 9.0,
            "validation": math.exp(-epoch / 2) if epoch % 2 else None,
            "lr": 1e-3,
            "range": min(2.0, 0.5 * epoch),
            "seconds": 0.1,
        }
        for epoch in range(1, epochs + 1)
    ]


def noisy(basis: Tensor) -> Tensor:
    noise = torch.randn(basis.shape, generator=torch.Generator().manual_seed(0))
    return basis + 0.02 * noise


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def table(chosen: int, defects: list[float]) -> list[dict[str, Any]]:
    rows = [{"dimension": 0, "validation_loss": 0.1, "defect": None, "upper": None}]
    rows += [
        {"dimension": i, "validation_loss": 0.1 / i, "defect": d, "upper": 1.2 * d, "closure": 0.01}
        for i, d in enumerate(defects, start=1)
    ]
    return [row | {"chosen": row["dimension"] == chosen, "seed_agreement": None} for row in rows]


def spectrum(defects: list[float]) -> list[dict[str, Any]]:
    return [
        {"dimension": i, "defect": d, "lower": 0.8 * d, "upper": 1.2 * d}
        for i, d in enumerate(defects, start=1)
    ]


def tried(predictor: Predictor, x: Tensor, y: Tensor, **options: Any) -> dict[str, Any]:
    """The fields that an estimator fills by trying its predictor on held-out samples."""
    ranges = [2.0] * len(predictor.generators())
    return {
        "samples": x[:8],
        "ranges": ranges,
        "sweep": sweep(predictor, x, y, ranges, **options),
        "departure": departure(predictor, x, y, ranges),
        "predictors": ways_to_predict(predictor, x, y),
    }


def orbit_predictor() -> tuple[Predictor, Tensor, Tensor]:
    augmenter = LieAugmenter(
        "vector", 8, output="same", basis=true_generator(), n_views=5, warmup_steps=0
    )
    x = two_body(6, 4).x_train[:24]
    return Predictor(Turn(), augmenter), x, Turn()(x)


def cloud_predictor() -> tuple[Predictor, Tensor, Tensor]:
    augmenter = LieAugmenter(
        "points", 3, output="invariant", basis=so(3), n_views=5, warmup_steps=0
    )
    x = random(24, 4, 3)
    return Predictor(Distances(), augmenter), x, Distances()(x)


def image_predictor() -> tuple[Predictor, Tensor, Tensor]:
    augmenter = LieAugmenter(
        "image", output="invariant", basis=lift(so(2)), n_views=5, warmup_steps=0
    )
    steps = torch.linspace(-1, 1, 12)
    centres = random(24, 2)[:, :, None, None] / 2
    across, up = steps.expand(12, 12), steps.unsqueeze(1).expand(12, 12)
    gaps = (across - centres[:, 0]).square() + (up - centres[:, 1]).square()
    x = (-8 * gaps).exp().unsqueeze(1)
    return Predictor(Rings(), augmenter, classes=3), x, Rings()(x).argmax(1)


@cache
def orbits_findings() -> Findings:
    predictor, x, y = orbit_predictor()
    found = {
        "title": "Two bodies",
        "sentence": "One rotation was found.",
        "verdict": verdict(),
        "generators": -noisy(true_generator()),
        "action": "vector",
        "feature_names": list(FEATURES),
        "truth": true_generator(),
        "table": table(1, [0.02, 0.8]),
        "spectrum": spectrum([0.02, 0.8, 1.1]),
        "seeds": [{"loss": 0.1, "cosines": [1.0, 0.9]}, {"loss": 0.2, "cosines": [0.9, 1.0]}],
        "history": history(20),
        "numbers": {"test loss": 1.23456e-5, "samples": 72},
        "settings": {"action": "vector", "objective": {"prediction": 1.0}, "widths": [64, 64]},
        "environment": {"torch": "2.13"},
        "command": "lieaugmenter demo --seed 0",
    }
    return Findings(**found, **tried(predictor, x, y, names=FEATURES))


@cache
def points_findings() -> Findings:
    predictor, x, y = cloud_predictor()
    return replace(
        orbits_findings(),
        title="Clouds",
        verdict=verdict("refuted", 3),
        generators=noisy(so(3)),
        action="points",
        feature_names=["x", "y", "z"],
        truth=None,
        exact=so(3),
        algebra=None,
        table=[],
        spectrum=[],
        **tried(predictor, x, y, names=["x", "y", "z"]),
    )


@cache
def image_findings() -> Findings:
    predictor, x, y = image_predictor()
    return replace(
        orbits_findings(),
        title="Blobs",
        verdict=Verdict("certified", "so(2)", 1, 0.01, 0.02, 0.97, []),
        generators=noisy(lift(so(2))),
        action="image",
        feature_names=["x", "y", "1"],
        truth=None,
        history=[],
        command=None,
        **tried(predictor, x, y, names=["x", "y", "1"], labels=["in", "between", "out"]),
    )


@cache
def nothing_findings() -> Findings:
    return replace(
        orbits_findings(),
        title="Nothing",
        verdict=Verdict("refuted", None, 0, None, None, 0.9, ["No direction passed."]),
        generators=torch.zeros(0, 8, 8),
        ranges=[],
        truth=None,
        table=table(0, [0.6, 0.8]),
        spectrum=spectrum([0.6, 0.8, 1.1]),
        sweep=None,
        departure=None,
        seeds=[],
    )


KINDS = {
    "vector": orbits_findings,
    "points": points_findings,
    "image": image_findings,
    "nothing": nothing_findings,
}

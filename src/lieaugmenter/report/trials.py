"""What a predictor does when held-out samples move: how far it departs, and what it loses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.lie.elements import Elements
from lieaugmenter.report.sweep import MOST_GENERATORS, reach

_RANDOM_DIRECTIONS = 12
_SIZES = 10
# The smallest element, as a share of the largest.
_SMALLEST = 1e-2


@dataclass(frozen=True)
class Departure:
    """How far f(gx) is from ρ(g) f(x) for g = exp(εL), as ε grows.

    The root mean square over samples, relative to the spread of the predictions.

    Attributes
    ----------
    sizes
        ε.
    learned
        One curve for each learned generator.
    random
        One for each of some random generators of the same norm.
    floor
        The error of the predictor itself in the same units; None for classes.
    null
        Smallest and largest defect of the random directions: their departure for the distance that
        they move the samples, relative to the root mean square of all of them.
    """

    sizes: list[float]
    learned: list[list[float]]
    random: list[list[float]]
    floor: float | None
    null: list[float]


@torch.no_grad()
def departure(
    predictor: Predictor, x: Tensor, y: Tensor, ranges: Sequence[float], *, seed: int = 0
) -> Departure | None:
    """Compare learned generators with random ones by how far direct predictions depart.

    Parameters
    ----------
    predictor
        Trained, with its generators.
    x, y
        Samples that were not trained on, in the units of the data.
    ranges
        The largest coefficient of each generator.
    seed
        Of the random generators.

    Returns
    -------
    Departure or None
        None where there is no generator, or one with entries that are not finite.
    """
    learned = predictor.generators()[:MOST_GENERATORS].float()
    if not len(learned) or not len(x) or not bool(learned.isfinite().all()):
        return None
    largest = min(reach(g, given) for g, given in zip(learned, ranges, strict=False))
    sizes = largest * torch.logspace(math.log10(_SMALLEST), 0, _SIZES)
    start = predictor.predict(x, views=0)
    spread = float(_size(start - start.mean(0))) or 1.0
    random = _random_like(predictor, learned, seed)
    curves = [_curve(predictor, x, start, g, sizes) for g in torch.cat([learned, random])]
    departures = torch.stack([curve for curve, _ in curves]) / spread
    slopes = torch.stack([curve[0] / moved for curve, moved in curves[len(learned) :]])
    null = slopes / slopes.square().mean().sqrt().clamp_min(1e-30)
    floor = None if predictor.classes else float(_size(start - y.reshape(start.shape))) / spread
    return Departure(
        sizes.tolist(),
        departures[: len(learned)].tolist(),
        departures[len(learned) :].tolist(),
        floor,
        [float(null.min()), float(null.max())],
    )


def _random_like(
    predictor: Predictor, learned: Float[Tensor, "c d d"], seed: int
) -> Float[Tensor, "r d d"]:
    """Random generators with every entry that the action allows, as large as the learned ones."""
    rng = torch.Generator().manual_seed(seed)
    drawn = torch.randn((_RANDOM_DIRECTIONS, *learned.shape[1:]), generator=rng)
    drawn = predictor.in_units_of_data(drawn * predictor.augmenter.action.mask)
    norm = learned.flatten(1).norm(dim=1).mean()
    return drawn * (norm / drawn.flatten(1).norm(dim=1).clamp_min(1e-30))[:, None, None]


def _curve(
    predictor: Predictor,
    x: Tensor,
    start: Tensor,
    generator: Float[Tensor, "d d"],
    sizes: Float[Tensor, " k"],
) -> tuple[Float[Tensor, " k"], Float[Tensor, ""]]:
    """Root mean square departure at each size, and how far the smallest element moves samples."""
    augmenter = predictor.augmenter
    coefficients = sizes.view(1, -1, 1).expand(len(x), -1, -1)
    elements = Elements(coefficients, generator.unsqueeze(0), rows=augmenter.action.rows)
    moved = augmenter.action.act(elements, x)
    predicted = predictor.predict(moved.flatten(0, 1), views=0).unflatten(0, moved.shape[:2])
    off = predicted - augmenter.output.act(elements, start)
    departures = torch.stack([_size(off[:, k]) for k in range(len(sizes))])
    return departures, _size(moved[:, 0] - x).clamp_min(1e-30)


def _size(values: Float[Tensor, "n *shape"]) -> Float[Tensor, ""]:
    """Root mean square over samples of the norm."""
    return values.reshape(len(values), -1).square().sum(1).mean().sqrt()


@torch.no_grad()
def ways_to_predict(
    predictor: Predictor, x: Tensor, y: Tensor, *, seed: int = 0
) -> list[dict[str, Any]]:
    """Held-out losses of the direct and the averaged prediction, also where samples were moved.

    Parameters
    ----------
    predictor
        Trained, with its generators.
    x, y
        Samples that were not trained on, in the units of the data.
    seed
        Of the elements that move them, drawn as in training.

    Returns
    -------
    list of dict
        A row for each way to predict: ``predictor``, ``loss``, and ``moved``, the loss on the same
        samples and targets moved along the learned symmetry.
    """
    augmenter = predictor.augmenter
    views = predictor.views or augmenter.n_views
    ways = {"direct": 0}
    moved = None
    if len(augmenter.generators):
        ways[f"averaged over {views} elements"] = views
        moved = _moved(predictor, x, y, seed)
    return [
        {
            "predictor": name,
            "loss": predictor.loss(x, y, views=count),
            "moved": None if moved is None else predictor.loss(*moved, views=count),
        }
        for name, count in ways.items()
    ]


def _moved(predictor: Predictor, x: Tensor, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Each sample and its target, moved by an element drawn as in training."""
    augmenter, device = predictor.augmenter, predictor.y_scale.device
    rng = torch.Generator(device=device).manual_seed(seed)
    elements = augmenter.sample(len(x), 1, rng)
    inputs = augmenter.action.act(elements, predictor.scale_x(x.to(device)))[:, 0]
    inputs = inputs * predictor.x_scale
    if predictor.classes:
        return inputs.cpu(), y
    targets = augmenter.output.act(elements, predictor.scale_y(y.to(device)))[:, 0]
    return inputs.cpu(), (targets * predictor.y_scale + predictor.y_shift).cpu()

"""A few samples carried along exp(wL), with what is predicted on the way: what the slider shows."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions import Action, ImageAction
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.lie.elements import Elements

MOST_GENERATORS = 6
_MOST_SAMPLES = 4
_MOST_PLANES = 4
# With more outputs, or more features, a list of them is not read.
_MOST_OUTPUTS = 24
_MOST_FEATURES = 16
_MOST_POINTS = 60
# Odd, so that one of them is w = 0; a page may hold so many numbers, and so many bytes of pixels.
_STEPS = 121
_FEWEST_STEPS = 31
_MOST_NUMBERS = 150_000
# The same for images, which are rather shrunk to this side than shown at fewer steps.
_IMAGE_STEPS = 41
_FEWEST_IMAGE_STEPS = 21
_MOST_BYTES = 1_200_000
_LEAST_SIDE = 32
# A coordinate or plane that moves less than this share of the fastest is not drawn.
_LEAST_COUPLING = 0.2
# exp(2) is a factor of 7: beyond it an orbit dwarfs the samples it starts from.
_LARGEST_GROWTH = 2.0
# Two turns each way; more lie on one another.
_LARGEST_ANGLE = 4 * math.pi
# The time of the series that moves the samples grows with the norm of wL.
_LARGEST_NORM = 1e4


@dataclass(frozen=True, eq=False)
class Sweep:
    """Samples at k coefficients w along each of c generators.

    Attributes
    ----------
    weights
        w, (c, k), ascending, with 0 in the middle.
    inputs
        The moved samples: points (c, n, k, points, features), or images of bytes
        (c, n, k, channels, height, width).
    direct, averaged
        What the predictor says about them without and with averaging, (c, n, k, outputs).
    expected
        What it says about the sample itself, moved by the output's action, (c, n, k, outputs).
    outputs
        Their names.
    quantity
        What they are: ``"probability"``, ``"value"``, or ``"relative error"`` where they are too
        many to be listed.
    targets
        The true label or number of each sample, empty where it is more than one number.
    features
        Which features of a sample `inputs` holds.
    panels
        For each generator the pictures to draw: lists of one (against w), two or three of these
        features.
    alike
        Whether an output is a point among the inputs.
    views
        How many elements were averaged over.
    """

    weights: Tensor
    inputs: Tensor
    direct: Tensor
    averaged: Tensor
    expected: Tensor
    outputs: list[str]
    quantity: str
    targets: list[str]
    features: list[int]
    panels: list[list[list[int]]]
    alike: bool
    views: int

    def tensors(self) -> dict[str, Tensor]:
        """The fields that are tensors, by name."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}

    def words(self) -> dict[str, Any]:
        """The other fields, as JSON can hold them."""
        tensors = self.tensors()
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in tensors}

    def payload(self, names: Sequence[str]) -> dict[str, Any]:
        """All of it for the page's script: tensors as base64 of little-endian numbers.

        Parameters
        ----------
        names
            Of all features of a sample.
        """
        packed = {name: _packed(tensor) for name, tensor in self.tensors().items()}
        shown = [names[i] if i < len(names) else f"x{i + 1}" for i in self.features]
        return packed | self.words() | {"names": shown}


def _packed(tensor: Tensor) -> dict[str, Any]:
    numbers = tensor.detach().cpu().contiguous().numpy()
    little = numbers.astype("u1" if numbers.dtype.kind == "u" else "<f4")
    data = base64.b64encode(little.tobytes()).decode()
    return {"shape": list(tensor.shape), "bytes": little.dtype.kind == "u", "data": data}


@torch.no_grad()
def sweep(
    predictor: Predictor,
    x: Tensor,
    y: Tensor,
    ranges: Sequence[float],
    *,
    names: Sequence[str],
    labels: Sequence[Any] | None = None,
) -> Sweep | None:
    """Carry a few samples along each generator, and ask the predictor on the way.

    Parameters
    ----------
    predictor
        Trained, with its generators.
    x, y
        Samples that were not trained on, in the units of the data.
    ranges
        The largest coefficient of each generator.
    names
        Of the features.
    labels
        Of the classes; None for a regressor.

    Returns
    -------
    Sweep or None
        None where there is no generator, or one with entries that are not finite.
    """
    generators = predictor.generators()[:MOST_GENERATORS].float()
    if not len(generators) or not len(x) or not bool(generators.isfinite().all()):
        return None
    chosen = _various(y) if labels is not None else torch.arange(min(_MOST_SAMPLES, len(x)))
    x, y = x[chosen], y[chosen]
    action, output = predictor.augmenter.action, predictor.augmenter.output
    views = predictor.views or predictor.augmenter.n_views
    start = predictor.predict(x, views=0)
    steps = _steps(len(generators), x, 0 if start[0].numel() > _MOST_OUTPUTS else start[0].numel())
    weights, inputs, predictions = [], [], []
    for generator, given in zip(generators, ranges, strict=False):
        furthest = reach(generator, given)
        along = torch.linspace(-furthest, furthest, steps)
        along[steps // 2] = 0.0
        elements = _along(generator, along, len(x), action)
        moved = action.act(elements, x).float()
        flat = moved.flatten(0, 1)
        answers = [predictor.predict(flat, views=k).reshape(len(x), steps, -1) for k in (0, views)]
        answers.append(output.act(elements, start).reshape(len(x), steps, -1))
        weights.append(along)
        inputs.append(moved)
        predictions.append(torch.stack(answers))
    answers = torch.stack(predictions, dim=1).float()  # (3, c, n, k, outputs)
    # Forces have the shape of positions, but are no points among them.
    alike = start.shape == x.shape and output is action
    answers, listed, quantity = _listed(answers, labels, names, alike=alike)
    pictures, features, panels = _pictured(torch.stack(inputs), generators, action)
    return Sweep(
        torch.stack(weights),
        pictures,
        *answers,
        outputs=listed,
        quantity=quantity,
        targets=_targets(y, labels),
        features=features,
        panels=panels,
        alike=alike and quantity == "value" and len(features) == x.shape[-1],
        views=views,
    )


def _various(y: Tensor) -> Tensor:
    """A few samples, of different classes where there are enough."""
    first = {int(label): i for i, label in reversed(list(enumerate(y.tolist())))}
    others = [i for i in range(len(y)) if i not in first.values()]
    return torch.tensor([*sorted(first.values()), *others][:_MOST_SAMPLES], dtype=torch.long)


def _steps(c: int, x: Tensor, outputs: int) -> int:
    """As many coefficients as the page can hold, an odd number."""
    if x.ndim == 4:
        pixels = 3 * min(x.shape[-2], _LEAST_SIDE) * min(x.shape[-1], _LEAST_SIDE)
        most = min(_IMAGE_STEPS, max(_FEWEST_IMAGE_STEPS, _MOST_BYTES // (c * len(x) * pixels)))
    else:
        numbers = c * len(x) * (min(x[0].numel(), 3 * _MOST_POINTS) + 3 * outputs)
        most = min(_STEPS, max(_FEWEST_STEPS, _MOST_NUMBERS // max(numbers, 1)))
    return most - 1 + most % 2


def _along(
    generator: Float[Tensor, "d d"], weights: Float[Tensor, " k"], n: int, action: Action
) -> Elements:
    """exp(wL) for every w, the same for all of n samples."""
    coefficients = weights.view(1, -1, 1).expand(n, -1, -1)
    return Elements(coefficients, generator.unsqueeze(0), rows=action.rows)


def reach(generator: Float[Tensor, "d d"], given: float) -> float:
    """The largest w to show: the learned range, or what a picture can hold.

    >>> reach(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), 2.0)
    2.0
    >>> reach(torch.eye(2), 100.0)
    2.0
    """
    furthest = float(given) if math.isfinite(given) and given > 0 else 1.0
    generator = generator.detach().double().cpu()
    if not bool(generator.isfinite().all()):
        return furthest
    rates = torch.linalg.eigvals(generator)
    speeds = [rates.real.abs().max(), rates.imag.abs().max(), generator.norm()]
    limits = (_LARGEST_GROWTH, _LARGEST_ANGLE, _LARGEST_NORM)
    for speed, limit in zip(map(float, speeds), limits, strict=True):
        furthest = limit / speed if speed * furthest > limit else furthest
    return furthest


def _listed(
    answers: Float[Tensor, "ways c n k m"],
    labels: Sequence[Any] | None,
    names: Sequence[str],
    *,
    alike: bool,
) -> tuple[Float[Tensor, "ways c n k listed"], list[str], str]:
    """The outputs that are shown, their names, and what they are."""
    m = answers.shape[-1]
    if labels is not None:
        likely = answers[0].flatten(0, 2).amax(0).argsort(descending=True)[:_MOST_OUTPUTS]
        kept = likely.sort().values.tolist()
        return answers[..., kept], [str(labels[i]) for i in kept], "probability"
    if m > _MOST_OUTPUTS:
        size = answers[2].norm(dim=-1, keepdim=True).clamp_min(1e-12)
        off = (answers - answers[2]).norm(dim=-1, keepdim=True) / size
        return off, ["‖prediction - expected‖ / ‖expected‖"], "relative error"
    if m == 1:
        return answers, ["prediction"], "value"
    own = [names[i % len(names)] for i in range(m)] if alike else []
    return answers, own or [f"y{i + 1}" for i in range(m)], "value"


def _targets(y: Tensor, labels: Sequence[Any] | None) -> list[str]:
    if labels is not None:
        return [str(labels[i]) for i in y.tolist()]
    return [f"{float(v):.4g}" if v.numel() == 1 else "" for v in y]


def _pictured(
    moved: Float[Tensor, "c n k *shape"], generators: Float[Tensor, "c d d"], action: Action
) -> tuple[Tensor, list[int], list[list[list[int]]]]:
    """Moved samples as they are stored, which features they hold, and the panels to draw."""
    if isinstance(action, ImageAction):
        return _as_bytes(moved), [], [[] for _ in generators]
    points = moved.reshape(*moved.shape[:3], -1, moved.shape[-1])[..., :_MOST_POINTS, :]
    d = points.shape[-1]
    panels = [
        _panels(generator, d, path) for generator, path in zip(generators, points, strict=True)
    ]
    features = list(range(d))
    if d > _MOST_FEATURES:
        features = sorted({i for some in panels for panel in some for i in panel})
    places = {feature: place for place, feature in enumerate(features)}
    stored = [[[places[i] for i in panel] for panel in some] for some in panels]
    return points[..., features].contiguous(), features, stored


def _panels(
    generator: Float[Tensor, "d d"], features: int, path: Float[Tensor, "n k points f"]
) -> list[tuple[int, ...]]:
    """All of a small space, or the planes that a generator moves in a larger one."""
    if features <= 3:
        return [tuple(range(features))]
    offset = len(generator) - features
    if offset in (0, 1):
        return moving_planes(generator, affine=offset == 1, most=_MOST_PLANES)
    # The action is not a matrix on the features: those that move most, against w.
    spread = (path - path[:, path.shape[1] // 2, None]).abs().amax((0, 1, 2))
    busiest = spread.argsort(descending=True)[:_MOST_PLANES].sort().values
    return [(int(i),) for i in busiest if spread[i] > 0]


def moving_planes(
    generator: Float[Tensor, "d d"], *, affine: bool = False, most: int = 3
) -> list[tuple[int, ...]]:
    """The coordinates to draw: planes that a generator couples, or single ones that it scales.

    A plane (i, j) counts |L_ij| + |L_ji|, and its translation where the generator is affine; a
    coordinate counts |L_ii|. The strongest come first, each coordinate once, earlier ones first
    among those of about equal strength.

    >>> from lieaugmenter.data.dynamics import true_generator
    >>> moving_planes(true_generator()[0])
    [(0, 1), (2, 3), (4, 5)]
    """
    n = len(generator) - affine
    size = generator.abs()
    pair = size[:n, :n] + size[:n, :n].mT
    alone = size.diagonal()[:n]
    if affine:
        shift = size[:n, n]
        pair = pair + shift + shift.unsqueeze(1)
        alone = alone + shift if n == 1 else alone
    strengths: dict[tuple[int, ...], float] = {(i,): float(alone[i]) for i in range(n)}
    for i in range(n):
        for j, strength in enumerate(pair[i, i + 1 :].tolist(), start=i + 1):
            strengths[i, j] = strength
    largest = max(strengths.values(), default=0.0)
    if largest <= 0:
        return []
    candidates = [key for key, value in strengths.items() if value > _LEAST_COUPLING * largest]
    # Tenths of the strongest: the noise of a learned generator should not decide the order.
    candidates.sort(key=lambda key: (-round(strengths[key] / largest, 1), -len(key), key))
    chosen: list[tuple[int, ...]] = []
    for key in candidates:
        if len(chosen) < most and not any(set(key) & set(other) for other in chosen):
            chosen.append(key)
    return sorted(chosen)


def _as_bytes(images: Float[Tensor, "c n k channels height width"]) -> Tensor:
    """Grey or colour images as bytes, small enough for all of them to fit into a page."""
    shape = images.shape
    flat = images.flatten(0, 2)
    if shape[3] not in (1, 3):
        flat = flat.mean(1, keepdim=True)
    shrink = math.sqrt(_MOST_BYTES / flat.numel())
    if shrink < 1:
        height, width = (max(1, int(shrink * side)) for side in shape[-2:])
        flat = torch.nn.functional.interpolate(flat, (height, width), mode="area")
    low, high = float(images.min()), float(images.max())
    scaled = 255 * (flat - low) / (high - low if high > low else 1.0)
    return scaled.round().clamp(0, 255).to(torch.uint8).unflatten(0, shape[:3])

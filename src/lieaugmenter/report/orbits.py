"""How samples move under the generators: orbits of vectors and points, strips of images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions import AffineAction, ImageAction, VectorAction
from lieaugmenter.lie.elements import Elements
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.plots import (
    FAINT,
    INK,
    PALETTE,
    Axes,
    Figure,
    MaxNLocator,
    coordinate_names,
    grid,
    note,
    styled,
)
from lieaugmenter.report.sweep import MOST_GENERATORS, moving_planes, reach

_MOST_PANELS = 3
_MOST_ORBITS = 6
_MOST_IMAGES = 4
_IMAGE_STEPS = 7
_ORBIT_STEPS = 241
# Larger images are shrunk, all the more if there are many: a page should stay small.
_LARGEST_IMAGE = 96
_MOST_BYTES = 500_000


@styled
def orbits(findings: Findings) -> Figure:
    """How samples move under exp(wL), one row for each of the first few generators.

    Vectors and points: curves through a few samples in the planes that the generator couples most,
    or a coordinate against w where it only scales it. The dot is the sample, the arrow points to
    growing w. Images: each sample at several values of w.
    """
    generators = findings.generators.detach().double().cpu()[:MOST_GENERATORS]
    samples = findings.samples.detach().double().cpu()
    reaches = [reach(g, given) for g, given in zip(generators, _ranges(findings), strict=False)]
    if not len(generators) or not samples.numel():
        return note("There is nothing to move.")
    if not bool(generators.isfinite().all()):
        return note("A generator has entries that are not finite; it moves nothing.")
    if findings.action == "image":
        return _image_strips(generators, samples, reaches)
    offset = generators.shape[-1] - samples.shape[-1]
    if offset not in (0, 1):
        return note(f"No picture is known for samples of shape {tuple(samples.shape[1:])}.")
    return _curves(generators, samples, reaches, coordinate_names(findings), affine=offset == 1)


def _ranges(findings: Findings) -> list[float]:
    """A range for every generator, 1 where none is known."""
    unknown = len(findings.generators) - len(findings.ranges)
    return [*findings.ranges, *[1.0] * unknown]


def _elements(generator: Float[Tensor, "d d"], weights: Float[Tensor, " k"], n: int) -> Elements:
    return Elements(weights.view(1, -1, 1, 1).expand(n, -1, -1, -1), generator.unsqueeze(0))


def _curves(
    generators: Float[Tensor, "c d d"],
    samples: Tensor,
    reaches: Sequence[float],
    names: list[str],
    *,
    affine: bool,
) -> Figure:
    points = samples.reshape(-1, samples.shape[-1])
    panels = [moving_planes(generator, affine=affine) for generator in generators]
    figure, axes = _curvegrid([len(row) for row in panels])
    action = AffineAction(points.shape[-1]) if affine else VectorAction(points.shape[-1])
    starts = _of_all_sizes(points, _MOST_ORBITS)
    for i, (row, generator, furthest) in enumerate(zip(axes, generators, reaches, strict=True)):
        weights = torch.linspace(-furthest, furthest, _ORBIT_STEPS, dtype=torch.float64)
        paths = action.act(_elements(generator, weights, len(starts)), starts)
        for ax, panel in zip(row, panels[i], strict=False):
            if len(panel) == 1:
                _against_weight(ax, weights, paths[..., panel[0]], names[panel[0]])
            else:
                x, y = panel
                ax.plot(points[:200, x], points[:200, y], ".", color=FAINT, ms=3, zorder=0)
                _in_plane(ax, paths[..., [x, y]], names[x], names[y])
        for ax in row[len(panels[i]) :]:
            ax.set_axis_off()
        what = f" · w from −{furthest:.3g} to {furthest:.3g}" if panels[i] else " moves nothing"
        row[0].set_title(f"L{i + 1}{what}")
    return figure


def _curvegrid(counts: list[int]) -> tuple[Figure, list[Sequence[Axes]]]:
    """A row of axes for each generator; generators of one panel each share a row."""
    most = max(1, *counts)
    columns = most if most > 1 else min(len(counts), _MOST_PANELS)
    rows = len(counts) if most > 1 else math.ceil(len(counts) / columns)
    figure, axes = grid((2.9 * columns + 0.3, 2.8 * rows), rows, columns)
    if most > 1:
        return figure, list(axes)
    single = list(axes.flat)
    for ax in single[len(counts) :]:
        ax.set_axis_off()
    return figure, [[ax] for ax in single[: len(counts)]]


def _spread(points: Float[Tensor, "n d"], count: int) -> Float[Tensor, "m d"]:
    """A few rows, evenly over all."""
    chosen = torch.linspace(0, len(points) - 1, min(count, len(points))).round().long()
    return points[chosen]


def _of_all_sizes(points: Float[Tensor, "n d"], count: int) -> Float[Tensor, "m d"]:
    """A few points from near the origin to far out, so that orbits seldom lie on one another."""
    by_size = points[points.norm(dim=-1).argsort(stable=True)]
    # The farthest tenth would set the scale of the picture.
    return _spread(by_size[: max(count, math.ceil(0.9 * len(points)))], count)


def _in_plane(ax: Axes, paths: Float[Tensor, "n k 2"], x: str, y: str) -> None:
    middle = paths.shape[1] // 2
    for path, colour in zip(paths.numpy(), PALETTE, strict=False):
        ax.plot(path[:, 0], path[:, 1], color=colour, lw=1.2, solid_capstyle="round")
        ax.plot(*path[middle], "o", color=colour, ms=5, mec="white", mew=0.8, zorder=4)
        _arrow_head(ax, path, colour)
    _name_axes(ax, x, y)
    spans = np.ptp(paths.reshape(-1, 2).numpy(), axis=0)
    if spans.min() > 0 and spans.max() / spans.min() < 2.5:
        ax.set_aspect("equal", adjustable="datalim")


def _arrow_head(ax: Axes, path: np.ndarray, colour: str) -> None:
    if np.allclose(path[-1], path[-4]):
        return
    arrow = {"arrowstyle": "-|>", "color": colour, "lw": 0, "mutation_scale": 9, "shrinkB": 0}
    ax.annotate("", path[-1], path[-4], arrowprops=arrow)


def _against_weight(
    ax: Axes, weights: Float[Tensor, " k"], curves: Float[Tensor, "n k"], name: str
) -> None:
    middle = len(weights) // 2
    for curve, colour in zip(curves.numpy(), PALETTE, strict=False):
        ax.plot(weights, curve, color=colour, lw=1.2)
        ax.plot(0.0, curve[middle], "o", color=colour, ms=5, mec="white", mew=0.8, zorder=4)
    _name_axes(ax, "w", name)


def _name_axes(ax: Axes, x: str, y: str) -> None:
    ax.set_xlabel(x)
    if len(y) <= 4:
        ax.set_ylabel(y, rotation=0, ha="right", va="center")
    else:
        ax.set_ylabel(y)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.yaxis.set_major_locator(MaxNLocator(5))


def _image_strips(
    generators: Float[Tensor, "c 3 3"],
    samples: Float[Tensor, "n channels height width"],
    reaches: Sequence[float],
) -> Figure:
    images = _thumbnails(_spread(samples, _MOST_IMAGES), len(generators) * _IMAGE_STEPS)
    n, _, height, width = images.shape
    # One mosaic for each generator: many small axes are slow to lay out.
    tall = 8.2 / _IMAGE_STEPS * n * height / width
    figure, axes = grid((8.2, len(generators) * (tall + 0.55)), len(generators), 1)
    for i, (ax, generator, furthest) in enumerate(
        zip(axes[:, 0], generators, reaches, strict=True)
    ):
        weights = torch.linspace(-furthest, furthest, _IMAGE_STEPS, dtype=torch.float64)
        views = ImageAction().act(_elements(generator, weights, n), images)
        ax.imshow(_mosaic(views), cmap="gray", vmin=0.0, vmax=1.0, interpolation="none")
        gap = _gap(width)
        centres = [(width + gap) * k + (width - 1) / 2 for k in range(_IMAGE_STEPS)]
        marks = [f"{weight:.3g}".replace("-", "−") for weight in weights.tolist()]
        marks[_IMAGE_STEPS // 2] = "w = 0"
        ax.set_xticks(centres, marks)
        ax.get_xticklabels()[_IMAGE_STEPS // 2].set_color(INK)
        ax.set_yticks([])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_title(f"L{i + 1} · w from −{furthest:.3g} to {furthest:.3g}")
    return figure


def _thumbnails(
    images: Float[Tensor, "n channels height width"], views: int
) -> Float[Tensor, "n shown small_height small_width"]:
    """Grey or colour images of a modest size, for that many views of each."""
    if images.shape[1] not in (1, 3):
        images = images.mean(1, keepdim=True)
    shrink = _LARGEST_IMAGE / max(images.shape[-2:])
    shrink = min(shrink, math.sqrt(_MOST_BYTES / (views * max(images.numel(), 1))))
    if shrink >= 1:
        return images
    height, width = (max(1, round(shrink * side)) for side in images.shape[-2:])
    return torch.nn.functional.interpolate(images, (height, width), mode="area")


def _gap(width: int) -> int:
    return max(1, round(width / 16))


def _mosaic(views: Float[Tensor, "n k channels height width"]) -> np.ndarray:
    """All views in one picture scaled to [0, 1], samples downwards, white between them."""
    n, k, channels, height, width = views.shape
    low, high = float(views.min()), float(views.max())
    scaled = (views - low) / (high - low if high > low else 1.0)
    gap = _gap(width)
    canvas = np.ones((n * (height + gap) - gap, k * (width + gap) - gap, channels))
    for i in range(n):
        for j in range(k):
            top, left = i * (height + gap), j * (width + gap)
            picture = scaled[i, j].movedim(0, -1).numpy()
            canvas[top : top + height, left : left + width] = picture
    return canvas.squeeze(-1) if channels == 1 else canvas

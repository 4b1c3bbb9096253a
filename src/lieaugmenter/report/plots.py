"""Pictures of what was found; the only door to matplotlib.

Figures are built through matplotlib's object-oriented interface, with matplotlib's own defaults and
a style on top: neither a user's settings nor the choice of a backend reach in or out. No text is
parsed as mathematics, for a feature may be called ``a_$b$``.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeGuard

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions import AffineAction, ImageAction, VectorAction
from lieaugmenter.analysis.compare import match
from lieaugmenter.lie.elements import Elements
from lieaugmenter.report.findings import Findings

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator
except ImportError as error:
    raise ImportError("reports need matplotlib: pip install 'lieaugmenter[report]'") from error

# Okabe and Ito's palette, told apart by colour-blind readers; the pale yellow is left out.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
INK, QUIET, FAINT = "#1f2430", "#6b7280", "#d5d9e0"

MOST_GENERATORS = 6
_MOST_HEATMAPS = 12
_MOST_PANELS = 3
_MOST_ORBITS = 6
_MOST_IMAGES = 4
_IMAGE_STEPS = 7
_ORBIT_STEPS = 241
# Larger images are shrunk: a page of thumbnails should stay small.
_LARGEST_IMAGE = 96
# Above these sizes the numbers, or the lines between the cells of a heat-map, are too small.
_LARGEST_WITH_NUMBERS = 10
_LARGEST_WITH_LINES = 24
# A coordinate or plane that moves less than this share of the fastest is not drawn.
_LEAST_COUPLING = 0.2
# exp(2) is a factor of 7: beyond it an orbit dwarfs the samples it starts from.
_LARGEST_GROWTH = 2.0
# Two turns each way; more lie on one another.
_LARGEST_ANGLE = 4 * math.pi
# The time of the series that moves the samples grows with the norm of wL.
_LARGEST_NORM = 1e4
_NOT_TERMS = frozenset({"epoch", "lr", "range", "seconds", "step"})
# Up to here single epochs are marked.
_FEW_EPOCHS = 12
_LOSSES = ("prediction", "equivariance", "validation")
_REGULARISERS = ("similarity", "proximity", "sparsity", "alignment")

_STYLE: dict[str, Any] = {
    "axes.edgecolor": "#9aa1ad",
    "axes.labelcolor": QUIET,
    "axes.labelsize": 8.5,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 7.0,
    "axes.titlesize": 9.0,
    "figure.facecolor": "white",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "lieaugmenter",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": "#9aa1ad",
    "xtick.labelcolor": QUIET,
    "xtick.labelsize": 8.0,
    "xtick.major.size": 3.0,
    "xtick.major.width": 0.7,
    "ytick.color": "#9aa1ad",
    "ytick.labelcolor": QUIET,
    "ytick.labelsize": 8.0,
    "ytick.major.size": 3.0,
    "ytick.major.width": 0.7,
}


@contextmanager
def _look() -> Iterator[None]:
    """Matplotlib's defaults with our style; what the user had set is put back afterwards."""
    with warnings.catch_warnings(), matplotlib.rc_context():
        # The reader's browser has glyphs that the font used for measuring lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        settings: Any = {k: v for k, v in matplotlib.rcParamsDefault.items() if "backend" not in k}
        matplotlib.rcParams.update(settings | _STYLE)
        yield


def _styled(draw: Callable[[Findings], Figure]) -> Callable[[Findings], Figure]:
    @wraps(draw)
    def styled(findings: Findings) -> Figure:
        with _look():
            return draw(findings)

    return styled


def svg(figure: Figure) -> str:
    """A figure as SVG text to put into a page: the same figure always gives the same text.

    The ids inside begin with a digest of the picture, so that several fit into one page.
    """
    buffer = io.StringIO()
    with _look():
        figure.savefig(buffer, format="svg", dpi=150)
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)
    prefix = f"f{hashlib.sha256(text.encode()).hexdigest()[:8]}-"

    def with_prefix(tag: re.Match[str]) -> str:
        named = re.sub(r'(\bid=")', rf"\g<1>{prefix}", tag[0])
        return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", named)

    # Only inside tags: a feature may well be called id="x", and matplotlib escapes its brackets.
    return re.sub(r"<[^>]+>", with_prefix, text).strip()


@_styled
def generator_heatmaps(findings: Findings) -> Figure:
    """Each learned generator as a heat-map, beside the true one and the difference if it is known.

    Learned generators are put in the order and sign of the true ones, their size is left alone.
    All maps share one scale of colours, so that a small difference looks pale.
    """
    rows = _heatmap_rows(findings)
    if not rows:
        return _note("There are no generators to show.")
    d = findings.generators.shape[-1]
    limit = _largest(torch.stack([matrix for row in rows for _, matrix in row]))
    columns = max(len(row) for row in rows)
    names = coordinate_names(findings)
    side = min(2.0 + 0.11 * d, 2.85 if columns > 1 else 4.2)
    margin = 0.075 * max(len(name) for name in names)
    below = margin if _upright(names) else 0.15
    size = (columns * side + 0.3 + margin, len(rows) * (side + 0.35 + below))
    figure, axes = _grid(size, len(rows), columns)
    mesh = None
    for row, cells in zip(axes, rows, strict=True):
        for ax, (title, matrix) in zip(row, cells, strict=False):
            mesh = _heatmap(ax, matrix, names, limit)
            ax.set_title(title)
            ax.tick_params(labelleft=ax is row[0])
        for ax in row[len(cells) :]:
            ax.set_axis_off()
    if d > _LARGEST_WITH_NUMBERS and mesh is not None:
        bar = figure.colorbar(mesh, ax=axes, shrink=0.6, aspect=30)
        bar.outline.set_visible(False)
    return figure


def _grid(size: tuple[float, float], rows: int, columns: int) -> tuple[Figure, Any]:
    """An empty figure of that many inches, and its axes (rows, columns)."""
    engine = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.08)
    figure = Figure(figsize=size, layout=engine)
    return figure, figure.subplots(rows, columns, squeeze=False)


def _largest(values: Tensor) -> float:
    finite = values[values.isfinite()].abs()
    return float(finite.max()) if finite.numel() and finite.max() > 0 else 1.0


def _heatmap_rows(findings: Findings) -> list[list[tuple[str, Tensor]]]:
    """Titles and matrices, a list for each row of the figure; at most three in a row."""
    learned = findings.generators.detach().double().cpu()
    alone = [(f"L{i + 1}, learned", matrix) for i, matrix in enumerate(learned)]
    if findings.truth is None:
        return _in_threes(alone[:_MOST_HEATMAPS])
    truth = findings.truth.detach().double().cpu()
    if len(learned) < len(truth):
        known = [(f"true {i + 1} of {len(truth)}", matrix) for i, matrix in enumerate(truth)]
        return _in_threes(alone) + _in_threes(known[:_MOST_HEATMAPS])
    matching = match(learned, truth)
    pairs = zip(
        matching.order, matching.signs, matching.cosines, matching.generators, truth, strict=True
    )
    rows = [
        [
            (f"{'−' if sign < 0 else ''}L{index + 1}, learned", matrix),
            ("true", known),
            (f"difference · cosine similarity {cosine:.4f}", matrix - known),
        ]
        for index, sign, cosine, matrix, known in pairs
    ]
    others = [cell for i, cell in enumerate(alone) if i not in matching.order]
    return rows[:_MOST_HEATMAPS] + _in_threes(others)


def _in_threes(cells: list[tuple[str, Tensor]]) -> list[list[tuple[str, Tensor]]]:
    return [cells[i : i + 3] for i in range(0, len(cells), 3)]


def _heatmap(ax: Axes, matrix: Float[Tensor, "d d"], names: list[str], limit: float) -> Any:
    d = len(matrix)
    lines = d <= _LARGEST_WITH_LINES
    mesh = ax.pcolormesh(
        np.ma.masked_invalid(matrix.numpy()),
        cmap="RdBu_r",
        # Short of the map's ends, which are nearly black.
        vmin=-1.2 * limit,
        vmax=1.2 * limit,
        edgecolors="white" if lines else "none",
        linewidth=0.6 if lines else 0.0,
        rasterized=not lines,
    )
    ax.set_aspect("equal")
    ax.invert_yaxis()
    ax.spines[:].set_visible(False)
    step = math.ceil(d / _LARGEST_WITH_LINES)
    places = np.arange(0, d, step)
    labels = [names[i] for i in places]
    ax.set_xticks(places + 0.5, labels, rotation=90 if _upright(names) else 0)
    ax.set_yticks(places + 0.5, labels)
    ax.tick_params(length=0, labelsize=8.0 if d <= 12 else 6.0)
    if d <= _LARGEST_WITH_NUMBERS:
        _write_values(ax, matrix, limit)
    return mesh


def _upright(names: list[str]) -> bool:
    """Whether the names would run into each other below the columns of a heat-map."""
    return max(len(name) for name in names) * len(names) > 30


def _write_values(ax: Axes, matrix: Float[Tensor, "d d"], limit: float) -> None:
    size = (
        8.5 if len(matrix) <= 4 else 7.5 if len(matrix) <= 6 else 6.6 if len(matrix) <= 8 else 5.4
    )
    for i, row in enumerate(matrix.tolist()):
        for j, value in enumerate(row):
            text = _cell(value, limit)
            strong = abs(value) > 0.6 * limit
            colour = "white" if strong else "#b9bec8" if text == "0" else INK
            ax.text(j + 0.5, i + 0.5, text, color=colour, fontsize=size, ha="center", va="center")


def _cell(value: float, limit: float) -> str:
    if abs(value) < 0.005 * min(limit, 1.0):
        return "0"
    usual = 0.1 <= limit < 100
    return (f"{value:.2f}" if usual else f"{value:.1e}").replace("-", "−")


@_styled
def orbits(findings: Findings) -> Figure:
    """How samples move under exp(wL), one row for each of the first few generators.

    Vectors and points: curves through a few samples in the planes that the generator couples most,
    or a coordinate against w where it only scales it. The dot is the sample, the arrow points to
    growing w. Images: each sample at several values of w.
    """
    generators = findings.generators.detach().double().cpu()[:MOST_GENERATORS]
    samples = findings.samples.detach().double().cpu()
    reaches = [_reach(findings, i) for i in range(len(generators))]
    if not len(generators) or not samples.numel():
        return _note("There is nothing to move.")
    if not bool(generators.isfinite().all()):
        return _note("A generator has entries that are not finite; it moves nothing.")
    if findings.action == "image":
        return _image_strips(generators, samples, reaches)
    offset = generators.shape[-1] - samples.shape[-1]
    if offset not in (0, 1):
        return _note(f"No picture is known for samples of shape {tuple(samples.shape[1:])}.")
    return _curves(generators, samples, reaches, coordinate_names(findings), affine=offset == 1)


def _reach(findings: Findings, index: int) -> float:
    """The largest w to draw: the learned range, or what a picture can hold."""
    given = findings.ranges[index] if index < len(findings.ranges) else 1.0
    reach = float(given) if math.isfinite(given) and given > 0 else 1.0
    generator = findings.generators[index].detach().double().cpu()
    if not bool(generator.isfinite().all()):
        return reach
    rates = torch.linalg.eigvals(generator)
    speeds = [rates.real.abs().max(), rates.imag.abs().max(), generator.norm()]
    limits = (_LARGEST_GROWTH, _LARGEST_ANGLE, _LARGEST_NORM)
    for speed, limit in zip(map(float, speeds), limits, strict=True):
        reach = limit / speed if speed * reach > limit else reach
    return reach


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
    figure, axes = _curve_grid([len(row) for row in panels])
    action = AffineAction(points.shape[-1]) if affine else VectorAction(points.shape[-1])
    starts = _of_all_sizes(points, _MOST_ORBITS)
    for i, (row, generator, reach) in enumerate(zip(axes, generators, reaches, strict=True)):
        weights = torch.linspace(-reach, reach, _ORBIT_STEPS, dtype=torch.float64)
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
        what = f" · w from −{reach:.3g} to {reach:.3g}" if panels[i] else " moves nothing"
        row[0].set_title(f"L{i + 1}{what}")
    return figure


def _curve_grid(counts: list[int]) -> tuple[Figure, list[Sequence[Axes]]]:
    """A row of axes for each generator; generators of one panel each share a row."""
    most = max(1, *counts)
    columns = most if most > 1 else min(len(counts), _MOST_PANELS)
    rows = len(counts) if most > 1 else math.ceil(len(counts) / columns)
    figure, axes = _grid((2.9 * columns + 0.3, 2.8 * rows), rows, columns)
    if most > 1:
        return figure, list(axes)
    single = list(axes.flat)
    for ax in single[len(counts) :]:
        ax.set_axis_off()
    return figure, [[ax] for ax in single[: len(counts)]]


def moving_planes(
    generator: Float[Tensor, "d d"], *, affine: bool = False
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
    most = max(strengths.values(), default=0.0)
    if most <= 0:
        return []
    candidates = [key for key, value in strengths.items() if value > _LEAST_COUPLING * most]
    # Tenths of the strongest: the noise of a learned generator should not decide the order.
    candidates.sort(key=lambda key: (-round(strengths[key] / most, 1), -len(key), key))
    chosen: list[tuple[int, ...]] = []
    for key in candidates:
        if len(chosen) < _MOST_PANELS and not any(set(key) & set(other) for other in chosen):
            chosen.append(key)
    return sorted(chosen)


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
    images = _thumbnails(_spread(samples, _MOST_IMAGES))
    n, _, height, width = images.shape
    # One mosaic for each generator: many small axes are slow to lay out.
    tall = 8.2 / _IMAGE_STEPS * n * height / width
    figure, axes = _grid((8.2, len(generators) * (tall + 0.55)), len(generators), 1)
    for i, (ax, generator, reach) in enumerate(zip(axes[:, 0], generators, reaches, strict=True)):
        weights = torch.linspace(-reach, reach, _IMAGE_STEPS, dtype=torch.float64)
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
        ax.set_title(f"L{i + 1} · w from −{reach:.3g} to {reach:.3g}")
    return figure


def _thumbnails(
    images: Float[Tensor, "n channels height width"],
) -> Float[Tensor, "n shown small_height small_width"]:
    """Grey or colour images of a modest size."""
    if images.shape[1] not in (1, 3):
        images = images.mean(1, keepdim=True)
    shrink = _LARGEST_IMAGE / max(images.shape[-2:])
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


@_styled
def loss_curves(findings: Findings) -> Figure:
    """The terms of the objective after every epoch, and the range of the coefficients below."""
    terms = {name: _series(findings.history, name) for name in _terms_of(findings.history)}
    positive = {name: _positive(*curve) for name, curve in terms.items()}
    drawn = {name: curve for name, curve in positive.items() if len(curve[0])}
    reach = _series(findings.history, "range")
    if not drawn and not len(reach[0]):
        return _note("No training history was kept.")
    figure = Figure(figsize=(8.6, 4.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    _draw_terms(above, drawn)
    _draw_range(below, *reach)
    epochs = np.concatenate([reach[0], *(epochs for epochs, _ in drawn.values())])
    if np.ptp(epochs) == 0:
        below.set_xlim(epochs[0] - 1, epochs[0] + 1)
    below.set_xlabel("epoch")
    below.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    figure.align_ylabels()
    return figure


def _draw_range(ax: Axes, epochs: Float[np.ndarray, " k"], values: Float[np.ndarray, " k"]) -> None:
    marker = "o" if len(epochs) <= _FEW_EPOCHS else ""
    ax.plot(epochs, values, color=QUIET, lw=1.0, marker=marker, ms=2.5)
    top = _largest(torch.from_numpy(values))
    ax.set_ylim(0.0, 1.2 * top)
    ax.set_yticks([0.0, top], ["0", f"{top:.3g}"])
    ax.set_ylabel("range of w")


def _draw_terms(
    ax: Axes, terms: Mapping[str, tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]]
) -> None:
    colours: dict[str, str] = dict(
        zip(("prediction", "equivariance", *_REGULARISERS), PALETTE, strict=True)
    )
    for name, (epochs, values) in terms.items():
        ax.plot(
            epochs,
            values,
            color=colours.get(name, INK),
            lw=1.7 if name in _LOSSES else 1.1,
            ls="--" if name == "validation" else "-" if name in colours else ":",
            marker="o" if len(epochs) <= _FEW_EPOCHS else "",
            ms=3,
            label=clean(name),
        )
    ax.set_ylabel("value, log scale")
    ax.tick_params(labelbottom=False)
    if terms:
        _log_axis(ax, np.concatenate([values for _, values in terms.values()]))
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.6)


def _log_axis(ax: Axes, values: Float[np.ndarray, " k"]) -> None:
    """Decades, or 1, 2 and 5 where there are few; wide enough to hold a tick in any case."""
    low, high = float(values.min()), float(values.max())
    widen = max(1.2, math.sqrt(3 * low / high))
    ax.set_yscale("log")
    ax.set_ylim(low / widen, high * widen)
    few = high / low < 30
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=7))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, few)))
    ax.yaxis.set_minor_locator(LogLocator(subs=tuple(range(2, 10)), numticks=7))
    ax.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    ax.grid(axis="y", color="#eceef2", lw=0.7)
    ax.set_axisbelow(True)


def _tick(value: float, plain: bool) -> str:
    if plain and 1e-3 <= value < 1e4:
        return f"{value:g}"
    power = math.floor(math.log10(value) + 1e-9)
    lead = round(value / 10**power)
    raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{'' if lead == 1 else f'{lead}·'}10{raised}"


def _terms_of(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the records' numbers that are losses: known ones first, in a fixed order."""
    found = {
        name
        for record in history
        for name, value in record.items()
        if name not in _NOT_TERMS and _is_number(value)
    }
    order = ["prediction", "equivariance", "validation", *_REGULARISERS]
    return [name for name in order if name in found] + sorted(found - set(order))


def _series(
    history: Sequence[Mapping[str, Any]], name: str
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Epochs and finite values of one name; epochs that lack it are left out."""
    epochs, values = [], []
    for number, record in enumerate(history, start=1):
        value, epoch = record.get(name), record.get("epoch")
        if _is_number(value) and math.isfinite(value):
            epochs.append(float(epoch) if _is_number(epoch) else float(number))
            values.append(float(value))
    return np.array(epochs), np.array(values)


def _positive(
    epochs: Float[np.ndarray, " k"], values: Float[np.ndarray, " k"]
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    return epochs[values > 0], values[values > 0]


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def coordinate_names(findings: Findings) -> list[str]:
    """A short label for each row of a generator; the last of homogeneous coordinates is "1"."""
    d = findings.generators.shape[-1]
    names = [clean(name) for name in findings.feature_names[:d]]
    if len(names) == d - 1 and findings.action in ("affine", "image"):
        names.append("1")
    return names + [f"x{i}" for i in range(len(names), d)]


def clean(name: str, longest: int = 14) -> str:
    """One printable line of at most `longest` characters, less in the middle where it is longer.

    >>> clean("temperature sensor 12")
    'tempera…sor 12'
    """
    line = "".join(c if c.isprintable() else " " for c in str(name))
    line = " ".join(line.split())
    if len(line) <= longest:
        return line
    tail = (longest - 1) // 2
    return f"{line[: longest - 1 - tail]}…{line[-tail:]}"


def _note(text: str) -> Figure:
    """A line of text where a picture cannot be drawn."""
    figure = Figure(figsize=(8.6, 0.4))
    figure.text(0.0, 0.5, text, va="center", color=QUIET, fontsize=10)
    return figure

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

from lieaugmenter.analysis.compare import match
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

_MOST_HEATMAPS = 12
# Above these sizes the numbers, or the lines between the cells of a heat-map, are too small.
_LARGEST_WITH_NUMBERS = 10
_LARGEST_WITH_LINES = 24
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
def look() -> Iterator[None]:
    """Matplotlib's defaults with our style; what the user had set is put back afterwards."""
    with warnings.catch_warnings(), matplotlib.rc_context():
        # The reader's browser has glyphs that the font used for measuring lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        settings: Any = {k: v for k, v in matplotlib.rcParamsDefault.items() if "backend" not in k}
        matplotlib.rcParams.update(settings | _STYLE)
        yield


def styled(draw: Callable[[Findings], Figure]) -> Callable[[Findings], Figure]:
    """Draw in our style, whatever the user has set."""

    @wraps(draw)
    def drawn(findings: Findings) -> Figure:
        with look():
            return draw(findings)

    return drawn


def svg(figure: Figure) -> str:
    """A figure as SVG text to put into a page: the same figure always gives the same text.

    The ids inside begin with a digest of the picture, so that several fit into one page.
    """
    buffer = io.StringIO()
    with look():
        figure.savefig(buffer, format="svg", dpi=150)
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)
    prefix = f"f{hashlib.sha256(text.encode()).hexdigest()[:8]}-"

    def with_prefix(tag: re.Match[str]) -> str:
        named = re.sub(r'(\bid=")', rf"\g<1>{prefix}", tag[0])
        return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", named)

    # Only inside tags: a feature may well be called id="x", and matplotlib escapes its brackets.
    return re.sub(r"<[^>]+>", with_prefix, text).strip()


@styled
def generator_heatmaps(findings: Findings) -> Figure:
    """Each learned generator as a heat-map, beside the true one and the difference if it is known.

    Learned generators are put in the order and sign of the true ones, their size is left alone.
    All maps share one scale of colours, so that a small difference looks pale.
    """
    rows = _heatmap_rows(findings)
    if not rows:
        return note("There are no generators to show.")
    d = findings.generators.shape[-1]
    limit = _largest(torch.stack([matrix for row in rows for _, matrix in row]))
    columns = max(len(row) for row in rows)
    names = coordinate_names(findings)
    side = min(2.0 + 0.11 * d, 2.85 if columns > 1 else 4.2)
    margin = 0.075 * max(len(name) for name in names)
    below = margin if _upright(names) else 0.15
    size = (columns * side + 0.3 + margin, len(rows) * (side + 0.35 + below))
    figure, axes = grid(size, len(rows), columns)
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


def grid(size: tuple[float, float], rows: int, columns: int) -> tuple[Figure, Any]:
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


@styled
def loss_curves(findings: Findings) -> Figure:
    """The terms of the objective after every epoch, and the range of the coefficients below."""
    terms = {name: _series(findings.history, name) for name in _terms_of(findings.history)}
    positive = {name: _positive(*curve) for name, curve in terms.items()}
    drawn = {name: curve for name, curve in positive.items() if len(curve[0])}
    reach = _series(findings.history, "range")
    if not drawn and not len(reach[0]):
        return note("No training history was kept.")
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


def note(text: str) -> Figure:
    """A line of text where a picture cannot be drawn."""
    figure = Figure(figsize=(8.6, 0.4))
    figure.text(0.0, 0.5, text, va="center", color=QUIET, fontsize=10)
    return figure

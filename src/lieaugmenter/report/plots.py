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
from typing import Any, Literal, TypeGuard

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.analysis.bench import DEFECT_BOUND, Row
from lieaugmenter.report.findings import Findings

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import imsave
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator
except ImportError as error:
    raise ImportError("reports need matplotlib: pip install 'lieaugmenter[report]'") from error

# Okabe and Ito's palette, told apart by colour-blind readers; the pale yellow is left out.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
INK, QUIET, FAINT = "#1f2430", "#6b7280", "#d5d9e0"
_AXIS, _LINE = "#9aa1ad", "#eceef2"
# A page gives these colours its own shades, which differ between light and dark.
_SHADES = {INK: "ink", QUIET: "quiet", FAINT: "faint", _AXIS: "axis", _LINE: "line"}
_SHADES |= {colour.lower(): f"hue{i}" for i, colour in enumerate(PALETTE)} | {"#ffffff": "card"}

# Two of these stand beside one another on a desk, and one fills a phone.
_WIDTH = 4.7
_NOT_TERMS = frozenset({"epoch", "lr", "range", "seconds", "step"})
# Up to here single epochs are marked.
_FEW_EPOCHS = 12
_LOSSES = ("prediction", "equivariance", "validation")
_REGULARISERS = ("similarity", "proximity", "sparsity", "alignment")

_STYLE: dict[str, Any] = {
    "axes.edgecolor": _AXIS,
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
    "xtick.color": _AXIS,
    "xtick.labelcolor": QUIET,
    "xtick.labelsize": 8.0,
    "xtick.major.size": 3.0,
    "xtick.major.width": 0.7,
    "ytick.color": _AXIS,
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

    The ids inside begin with a digest of the picture, so that several fit into one page, and
    colours may be set by the page: ``--ink``, ``--quiet``, ``--faint``, ``--axis``, ``--line``,
    ``--card``, ``--hue0`` to ``--hue5``.
    """
    buffer = io.StringIO()
    with look():
        # The page behind it is white or dark.
        figure.savefig(buffer, format="svg", dpi=150, transparent=True)
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)
    prefix = f"f{hashlib.sha256(text.encode()).hexdigest()[:8]}-"

    def shade(colour: re.Match[str]) -> str:
        name = _SHADES.get(colour[0])
        return f"var(--{name}, {colour[0]})" if name else colour[0]

    def at_home(tag: re.Match[str]) -> str:
        named = re.sub(r'(\bid=")', rf"\g<1>{prefix}", tag[0])
        named = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", named)
        return re.sub(r"(?<=[:] )#[0-9a-f]{6}\b", shade, named)

    # Only inside tags: a feature may well be called id="x", and matplotlib escapes its brackets.
    return re.sub(r"<[^>]+>", at_home, text).strip()


def grid(size: tuple[float, float], rows: int, columns: int) -> tuple[Figure, Any]:
    """An empty figure of that many inches, and its axes (rows, columns)."""
    engine = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.08)
    figure = Figure(figsize=size, layout=engine)
    return figure, figure.subplots(rows, columns, squeeze=False)


def _largest(values: Tensor) -> float:
    finite = values[values.isfinite()].abs()
    return float(finite.max()) if finite.numel() and finite.max() > 0 else 1.0


def matrix_png(matrix: Float[Tensor, "d d"], limit: float) -> bytes:
    """A matrix as a picture of one pixel an entry: blue below zero, red above, white at zero."""
    buffer = io.BytesIO()
    # Short of the map's ends, which are nearly black.
    shown = np.nan_to_num(matrix.numpy())
    imsave(buffer, shown, cmap="RdBu_r", vmin=-1.2 * limit, vmax=1.2 * limit, format="png")
    return buffer.getvalue()


@styled
def spectrum(findings: Findings) -> Figure:
    """The defect of the best span of each dimension, between exact and arbitrary.

    Whiskers are 95 % bounds. Spans that surely are symmetries are filled; the band is where random
    directions lie.
    """
    rows = [row for row in findings.spectrum or findings.table if _is_number(row.get("defect"))]
    if not rows:
        return note("No defect was measured.")
    dimensions = np.array([row["dimension"] for row in rows])
    defects = np.array([row["defect"] for row in rows], dtype=float)
    bounds = np.array([_bounds(row) for row in rows], dtype=float)
    figure = Figure(figsize=(_WIDTH, 3.1), layout="constrained")
    ax = figure.subplots()
    top = max(1.35, 1.08 * float(np.nanmax(bounds)))
    _draw_null(ax, findings)
    ax.axhline(DEFECT_BOUND, color=PALETTE[2], lw=1.0, ls="--")
    label = f"bound {DEFECT_BOUND:g}"
    ax.annotate(
        label,
        (1.0, DEFECT_BOUND),
        (0, 3),
        xycoords=ax.get_yaxis_transform(),
        textcoords="offset points",
        ha="right",
        color=PALETTE[2],
    )
    ax.vlines(dimensions, bounds[:, 0], bounds[:, 1], color=QUIET, lw=1.1)
    holding = np.array([_holds(row) for row in rows])
    for which, face in ((holding, PALETTE[0]), (~holding, "white")):
        ax.plot(
            dimensions[which],
            defects[which],
            "o",
            ms=6,
            color=PALETTE[0],
            mfc=face,
            zorder=3,
        )
    ax.set_ylim(min(-0.06, 1.1 * float(np.nanmin(bounds))), top)
    ax.set_xlim(dimensions.min() - 0.6, dimensions.max() + 0.6)
    ax.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    ax.set_xlabel("number of generators")
    ax.set_ylabel("defect of the worst direction")
    return figure


def _bounds(row: Mapping[str, Any]) -> tuple[float, float]:
    """Lower and upper bound of a defect; itself where a bound was not measured."""
    lower, upper = row.get("lower"), row.get("upper")
    return (
        lower if _is_number(lower) else row["defect"],
        upper if _is_number(upper) else row["defect"],
    )


def _holds(row: Mapping[str, Any]) -> bool:
    """Whether a span surely is a symmetry; by its bounds alone where that was not written down."""
    if "holds" in row:
        return bool(row["holds"])
    lower, upper = _bounds(row)
    return Row(row["dimension"], row["defect"], lower, upper, closure=0.0, together=upper).holds()


def _draw_null(ax: Axes, findings: Findings) -> None:
    """A line at 1, an arbitrary direction, and a band where single random directions lie."""
    if findings.departure is not None:
        low, high = findings.departure.null
        ax.axhspan(low, high, color=FAINT, alpha=0.45, lw=0)
    ax.axhline(1.0, color=QUIET, lw=0.8)
    ax.annotate(
        "arbitrary direction",
        (0.0, 1.0),
        (4, 3),
        xycoords=ax.get_yaxis_transform(),
        textcoords="offset points",
        color=QUIET,
    )


@styled
def departure_curves(findings: Findings) -> Figure:
    """How far predictions depart from the symmetry as elements grow: learned against random."""
    measured = findings.departure
    if measured is None:
        return note("There is no generator to move samples along.")
    figure = Figure(figsize=(_WIDTH, 3.1), layout="constrained")
    ax = figure.subplots()
    sizes = np.array(measured.sizes)
    random = np.array(measured.random)
    ax.fill_between(sizes, random.min(0), random.max(0), color=FAINT, alpha=0.45, lw=0)
    ax.plot(sizes, np.median(random, 0), color=QUIET, lw=1.2, label="random generators")
    if measured.floor is not None:
        ax.axhline(measured.floor, color=PALETTE[2], lw=1.0, ls="--", label="prediction error")
    several = len(measured.learned) > 1
    for i, curve in enumerate(measured.learned):
        label = "learned" if i == 0 and not several else f"L{i + 1}"
        ax.plot(sizes, curve, color=PALETTE[i], lw=1.7, marker="o", ms=3, label=label)
    ax.set_xscale("log")
    values = np.concatenate([random.ravel(), np.ravel(measured.learned)])
    log_axis(ax, values)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, True)))
    ax.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    ax.set_xlabel("ε, the size of the element exp(εL)")
    ax.set_ylabel("departure, share of the spread")
    figure.legend(loc="outside upper left", ncols=3, handlelength=1.6)
    return figure


@styled
def loss_curves(findings: Findings) -> Figure:
    """The terms of the objective after every epoch, and the range of the coefficients below."""
    terms = {name: _series(findings.history, name) for name in _terms_of(findings.history)}
    positive = {name: _positive(*curve) for name, curve in terms.items()}
    drawn = {name: curve for name, curve in positive.items() if len(curve[0])}
    reach = _series(findings.history, "range")
    if not drawn and not len(reach[0]):
        return note("No training history was kept.")
    figure = Figure(figsize=(_WIDTH, 3.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    draw_terms(above, drawn)
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


def draw_terms(
    ax: Axes, terms: Mapping[str, tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]]
) -> None:
    """Terms of the objective over epochs, with their key above, on a logarithmic axis.

    Parameters
    ----------
    ax
        To draw on.
    terms
        Epochs and positive values by the name of the term.
    """
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
        log_axis(ax, np.concatenate([values for _, values in terms.values()]))
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, handlelength=1.6)


def log_axis(ax: Axes, values: Float[np.ndarray, " k"], which: Literal["x", "y"] = "y") -> None:
    """Decades, or 1, 2 and 5 where there are few; wide enough to hold a tick in any case.

    Matplotlib's own labels of such an axis are mathematics, which is not parsed here.

    Parameters
    ----------
    ax
        Of which an axis becomes logarithmic.
    values
        All that is drawn along it. Without a positive number among them it stays as it is.
    which
        The axis.
    """
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return
    low, high = float(values.min()), float(values.max())
    widen = max(1.2, math.sqrt(3 * low / high))
    ax.set(**{f"{which}scale": "log", f"{which}lim": (low / widen, high * widen)})
    axis = ax.yaxis if which == "y" else ax.xaxis
    few = high / low < 30
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, few)))
    axis.set_minor_locator(LogLocator(subs=tuple(range(2, 10)), numticks=7))
    axis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    ax.grid(axis=which, color=_LINE, lw=0.7)
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

"""Pictures of the paper's experiments: generators, how close they are, orbits that they move."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions import VectorAction
from lieaugmenter.analysis.compare import absolute_cosine, match, nearest_in_span
from lieaugmenter.data.dynamics import two_body
from lieaugmenter.experiments.results import generators_of
from lieaugmenter.experiments.spec import Method
from lieaugmenter.experiments.vectors import MASKS
from lieaugmenter.lie.elements import Elements
from lieaugmenter.report.comparison import DISCOVERY, finders
from lieaugmenter.report.finished import Finished, has_diverged
from lieaugmenter.report.plots import (
    FAINT,
    INK,
    PALETTE,
    QUIET,
    Axes,
    Figure,
    MaxNLocator,
    grid,
    look,
)
from lieaugmenter.report.words import KINDS, VARIANTS

# The same colour for a method in every picture.
COLOURS = {
    "augerino": PALETTE[4],
    "liegan": PALETTE[2],
    "liegg": PALETTE[3],
    "lieaugmenter-paper": PALETTE[5],
    "lieaugmenter": PALETTE[0],
}
# Entries larger than this many times the truth's largest have the map's last colour.
_LIMIT = 1.25
# Shares of the range at which an orbit is drawn: with the true rotation and the paper's range the
# images of both bodies stay apart.
_SHARES = (-0.6, -0.3, 0.3, 0.6)
# The order of the rows of a picture.
_MASKS = ("mask2", "mask4", "mask0")
# How far a picture of orbits reaches, in radii of the orbit.
_REACH = 1.45
# Between groups of bars, in bars.
_GAP = 0.9
_DPI = 130


@dataclass(frozen=True)
class Panel:
    """A matrix with a title; without a matrix, the words that stand in its place."""

    title: str
    matrix: Float[Tensor, "d d"] | None
    words: str = ""
    below: str = ""
    # Grey where an entry may differ from zero, instead of a map of values.
    is_mask: bool = False


@dataclass(frozen=True)
class Bar:
    """One method's values, one for each seed, by measure."""

    label: str
    colour: str
    values: dict[str, list[float]]


def png(figure: Figure) -> bytes:
    """A figure as a PNG file."""
    buffer = io.BytesIO()
    with look():
        figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


# ---------------------------------------------------------------------------------- generators


def aligned(learned: Float[Tensor, "d d"], truth: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """A generator with the sign and the norm of the true one.

    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> aligned(-3 * turn, turn)
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    """
    sign = -1.0 if float((learned * truth).sum()) < 0 else 1.0
    # Adding 0 turns -0 into 0.
    return sign * learned * (truth.norm() / learned.norm().clamp(min=1e-30)) + 0.0


def learned_rows(
    learned: Float[Tensor, "c d d"], truth: Float[Tensor, "m d d"], settings: str
) -> list[tuple[str, list[Panel]]]:
    """Two rows for several generators: the nearest to each true one in their span, and themselves,
    matched to the true ones.

    Parameters
    ----------
    learned, truth
        At least as many learned generators as true ones.
    settings
        Whose the settings of the run are.
    """
    shown = {
        "nearest in span": nearest_in_span(truth, learned),
        "learned": match(learned, truth).generators,
    }
    return [
        (f"{words},\n{settings} settings", _beside_truth(found, truth))
        for words, found in shown.items()
    ]


def _beside_truth(found: Float[Tensor, "m d d"], truth: Float[Tensor, "m d d"]) -> list[Panel]:
    cosines = absolute_cosine(found, truth).tolist()
    return [
        Panel("", aligned(one, known), below=f"cosine {cosine:.4f}")
        for one, known, cosine in zip(found, truth, cosines, strict=True)
    ]


def generator_grid(
    title: str,
    rows: Sequence[tuple[str, Sequence[Panel]]],
    truth: Float[Tensor, "d d"],
    names: Sequence[str],
) -> Figure:
    """Heat-maps of generators, a row for each mask; all share one scale of colours.

    Parameters
    ----------
    title
        Of the whole figure.
    rows
        A label and the panels of each row, all of the same number.
    truth
        Sets the limits of the colours.
    names
        Of the coordinates.
    """
    columns, d = len(rows[0][1]), len(names)
    limit = _LIMIT * float(truth.abs().max())
    with look():
        size = (1.7 * columns + 1.3, 1.95 * len(rows) + 1.2)
        figure, axes = grid(size, len(rows), columns)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        mesh = None
        for number, ((label, panels), line) in enumerate(zip(rows, axes, strict=True)):
            for ax, panel in zip(line, panels, strict=True):
                drawn = _matrix(ax, panel, d, limit)
                mesh = mesh if panel.is_mask or drawn is None else drawn
                # The columns have the same method in every row: said once, at the top.
                if number == 0:
                    ax.set_title(panel.title, fontsize=8.5, loc="center", color=INK)
            line[0].set_yticks(np.arange(d) + 0.5, names)
            line[0].set_ylabel(label, fontsize=10, color=INK, labelpad=6)
        for ax in axes[-1]:
            ax.set_xticks(np.arange(d) + 0.5, names, rotation=90 if d > 5 else 0)
        if mesh is not None:
            bar = figure.colorbar(
                mesh, ax=axes, extend="both", shrink=0.85, aspect=10 * len(rows), pad=0.015
            )
            bar.outline.set_visible(False)
            bar.ax.yaxis.set_major_locator(MaxNLocator(5, symmetric=True))
            bar.set_label("entry")
        return figure


def _matrix(ax: Axes, panel: Panel, d: int, limit: float) -> Any:
    ax.set_aspect("equal")
    ax.set_xlim(0, d)
    ax.set_ylim(d, 0)
    ax.spines[:].set_visible(False)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.tick_params(length=0, labelsize=6.5 if d > 5 else 7.5, pad=2)
    ax.set_xlabel(panel.below, fontsize=8)
    if panel.matrix is None:
        ax.set_facecolor("#f4f5f7")
        ax.text(d / 2, d / 2, panel.words, ha="center", va="center", color=QUIET, fontsize=8)
        return None
    return ax.pcolormesh(
        panel.matrix.numpy(),
        cmap="Greys" if panel.is_mask else "RdBu_r",
        vmin=0.0 if panel.is_mask else -limit,
        vmax=1.6 if panel.is_mask else limit,
        edgecolors=FAINT,
        linewidth=0.5,
    )


# ------------------------------------------------------------------------------------ closeness


def closeness_bars(
    title: str, groups: Sequence[tuple[str, Sequence[Bar]]], measures: Sequence[tuple[str, str]]
) -> Figure:
    """Bars of mean and standard deviation over seeds, with a dot for each seed.

    Parameters
    ----------
    title
        Of the whole figure.
    groups
        A label and the bars of each group.
    measures
        The key of a measure and its words, one panel each; 1 is marked.
    """
    count = sum(len(bars) for _, bars in groups)
    gaps = _GAP * (len(groups) - 1)
    with look():
        size = (2.9 * len(measures) + 2.0, 0.24 * (count + gaps) + 1.4)
        figure, axes = grid(size, 1, len(measures))
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        for ax, (measure, words) in zip(axes[0], measures, strict=True):
            _bars(ax, groups, measure, labelled=ax is axes[0][0])
            ax.set_title(words, color=INK)
        return figure


def _bars(
    ax: Axes, groups: Sequence[tuple[str, Sequence[Bar]]], measure: str, *, labelled: bool
) -> None:
    places, labels, place, starts = [], [], 0.0, []
    ax.axvline(1.0, color=QUIET, lw=0.8, ls=(0, (4, 3)), zorder=1)
    ax.set_xlim(0, 1.08)
    for _, bars in groups:
        starts.append(place)
        for bar in bars:
            values = bar.values.get(measure, [])
            if values:
                mean, std = float(np.mean(values)), float(np.std(values))
                ax.barh(place, mean, height=0.78, color=bar.colour, alpha=0.85, zorder=2)
                ax.errorbar(mean, place, xerr=std, color=INK, lw=1.0, capsize=2.5, zorder=3)
                ax.plot(values, [place] * len(values), "o", ms=2.6, mfc="white", mec=INK, mew=0.6)
                ax.set_xlim(0, max(ax.get_xlim()[1], 1.08 * max([*values, mean + std])))
            else:
                ax.text(0.01, place, "no value", va="center", color=QUIET, fontsize=7.5)
            places.append(place)
            labels.append(bar.label)
            place += 1.0
        place += _GAP
    ax.set_ylim(place - _GAP - 0.4, -1.3 if groups[0][0] else -0.6)
    ax.set_yticks(places, labels if labelled else [""] * len(labels))
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x", color="#eceef2", lw=0.7)
    ax.set_axisbelow(True)
    if not labelled:
        return
    for (label, _), start in zip(groups, starts, strict=True):
        # Above the labels of the group's bars.
        ax.annotate(
            label,
            (0, start - 0.8),
            xycoords=("axes fraction", "data"),
            xytext=(-4, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8.5,
            fontweight="bold",
        )


# --------------------------------------------------------------------------------- moved orbits


def moved_orbits(
    title: str,
    states: Float[Tensor, "n 8"],
    generators: Sequence[tuple[str, Float[Tensor, "8 8"] | None, str]],
    range: float,
) -> Figure:
    """A two-body trajectory and its images under exp(wL), a panel for each generator.

    Parameters
    ----------
    title
        Of the whole figure.
    states
        Of the trajectory: (q1, p1, q2, p2).
    generators
        A title, the generator or None, and words for where there is none.
    range
        The largest coefficient in training; the images are at some shares of it.
    """
    weights = [share * range for share in _SHARES]
    reach = _REACH * float(states[:, :2].norm(dim=-1).max())
    with look():
        figure, axes = grid((2.55 * len(generators) + 0.9, 3.45), 1, len(generators))
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        for ax, (name, generator, words) in zip(axes[0], generators, strict=True):
            ax.set_title(name, color=INK)
            ax.plot(0, 0, "+", color=QUIET, ms=5, mew=0.8)
            if generator is None:
                ax.text(0, 0.3 * reach, words, ha="center", color=QUIET)
            else:
                _images(ax, states, generator, weights)
            _body_paths(ax, states, INK)
            ax.set_xlim(-reach, reach)
            ax.set_ylim(-reach, reach)
            ax.set_aspect("equal")
            ax.set_xticks([-2, 0, 2])
            ax.set_yticks([-2, 0, 2])
            ax.set_xlabel("x")
            ax.tick_params(labelleft=ax is axes[0][0])
        axes[0][0].set_ylabel("y")
        _key(figure, weights)
        return figure


def _weight_colours(weights: Sequence[float]) -> list[str]:
    """Orange for negative, blue for positive, darker farther out."""
    dark = {True: (PALETTE[5], PALETTE[0]), False: (PALETTE[4], PALETTE[1])}
    middle = max(abs(w) for w in weights) * 0.75
    return [dark[w > 0][int(abs(w) > middle)] for w in weights]


def _images(
    ax: Axes, states: Float[Tensor, "n 8"], generator: Tensor, weights: Sequence[float]
) -> None:
    action = VectorAction(states.shape[-1])
    for weight, colour in zip(weights, _weight_colours(weights), strict=True):
        coefficients = torch.full((len(states), 1, 1), weight, dtype=torch.float64)
        elements = Elements(coefficients, generator.double().unsqueeze(0))
        moved = action.act(elements, states.double()).squeeze(1)
        _body_paths(ax, moved, colour)


def _body_paths(ax: Axes, states: Tensor, colour: str) -> None:
    """Both bodies' positions: body 1 full, body 2 dashed and hollow; a mark at the start."""
    for first, line, fill, marker in ((0, "-", colour, "o"), (4, (0, (3, 1.5)), "white", "s")):
        path = states[:, first : first + 2].numpy()
        ax.plot(path[:, 0], path[:, 1], color=colour, lw=1.8, ls=line)
        ax.plot(*path[0], marker=marker, ms=5, mfc=fill, mec=colour, mew=1.2, ls="")


def _key(figure: Figure, weights: Sequence[float]) -> None:
    ax = figure.axes[-1]
    entries = [*zip(weights, _weight_colours(weights), strict=True), (0.0, INK)]
    handles, labels = [], []
    for weight, colour in sorted(entries):
        (handle,) = ax.plot([], [], color=colour, lw=2.2)
        handles.append(handle)
        sign = "−" if weight < 0 else ""
        labels.append(f"w = {sign}{abs(weight):.2g}" if weight else "w = 0, the sample")
    for name, fill, marker, line in (
        ("body 1", QUIET, "o", "-"),
        ("body 2", "white", "s", (0, (3, 1.5))),
    ):
        (handle,) = ax.plot([], [], color=QUIET, ls=line, marker=marker, mfc=fill, mec=QUIET, ms=5)
        handles.append(handle)
        labels.append(name)
    figure.legend(handles, labels, loc="outside right center", handlelength=2.2)


# --------------------------------------------------------------------------- from the results


def figures(finished: Finished) -> list[tuple[str, Figure]]:
    """The pictures of an experiment with their file names; none without a true generator."""
    experiment, files = finished.experiment, [name for name, _ in captions(finished)]
    task = experiment.task(None, True)
    if task.generator is None or not files:
        return []
    two_bodies = experiment.name.startswith("two-body")
    truth, names = task.generator[0], task.feature_names
    mark = " (quick run: means nothing)" if finished.quick else ""
    drawn: list[Figure] = [
        generator_grid(
            f"{experiment.title}: generators, seed {first_seed(finished)}{mark}",
            generator_rows(finished, truth),
            truth,
            names,
        ),
        closeness_bars(
            f"{experiment.title}{mark}",
            closeness_groups(finished),
            # Where the data fill the space, both cosines are the same.
            [m for m in DISCOVERY if m[0] != "cosine-on-data" or two_bodies],
        ),
    ]
    if two_bodies:
        drawn.append(_moved(finished, truth, mark))
    return list(zip(files, drawn, strict=True))


def captions(finished: Finished) -> list[tuple[str, str]]:
    """File names of an experiment's pictures, and what they show; none without a true generator."""
    if not any("cosine" in result for result in finished.results):
        return []
    experiment = finished.experiment
    two_bodies = experiment.name.startswith("two-body")
    shown = {
        "generators": (
            "Generators of the first seed by method, with the sign and the norm of the true one, "
            "and their absolute cosines"
        ),
        "closeness": "Closeness to the true generator: mean, standard deviation and every seed",
    }
    if two_bodies:
        shown["orbits"] = (
            "A trajectory of both bodies and its images under exp(wL), L of LieAugmenter with own "
            "settings, first seed"
        )
    return [(f"reproduction-{experiment.name}-{key}.png", words) for key, words in shown.items()]


def first_seed(finished: Finished) -> int:
    """The seed that pictures of single runs show."""
    return finished.seeds[0]


def first_generator(finished: Finished, method: Method) -> tuple[Tensor | None, str]:
    """The first seed's generator, or why there is none."""
    for run in finished.of(method):
        if run["seed"] == first_seed(finished):
            generators = generators_of(run)
            return (None, "diverged") if generators is None else (generators[0], "")
    return None, "not run"


def generator_rows(finished: Finished, truth: Tensor) -> list[tuple[str, list[Panel]]]:
    """What `generator_grid` draws: the true generator and the methods', by mask."""
    experiment = finished.experiment
    variants = [mask for mask in _MASKS if any(m.variant == mask for m in experiment.methods)]
    rows = []
    for variant in variants or [""]:
        panels = [Panel("true", truth)]
        if variant:
            panels.append(Panel("mask", MASKS[variant], is_mask=True))
        for method in finders(experiment):
            if not variant or method.variant == variant:
                panels.append(_panel(finished, method, truth, with_variant=not variant))
        rows.append((VARIANTS.get(variant, ""), panels))
    return rows


def _panel(finished: Finished, method: Method, truth: Tensor, *, with_variant: bool) -> Panel:
    learned, words = first_generator(finished, method)
    title = _short(method, with_variant=with_variant)
    if learned is None:
        return Panel(title, None, words)
    cosine = float(absolute_cosine(learned, truth))
    return Panel(title, aligned(learned, truth), below=f"cosine {cosine:.3f}")


def _short(method: Method, *, with_variant: bool) -> str:
    kind = method.kind.removesuffix("-paper")
    lines = [KINDS[kind]]
    if kind == "lieaugmenter":
        lines.append("own settings" if method.ours else "paper's settings")
        if with_variant and method.variant:
            lines.append(VARIANTS[method.variant])
    return "\n".join(lines)


def closeness_groups(finished: Finished) -> list[tuple[str, list[Bar]]]:
    """What `closeness_bars` draws, by mask."""
    experiment = finished.experiment
    variants = [mask for mask in _MASKS if any(m.variant == mask for m in experiment.methods)]
    groups = []
    for variant in variants or [""]:
        bars = []
        for method in finders(experiment):
            if variant and method.variant != variant:
                continue
            label = _short(method, with_variant=not variant).replace("\n", ", ")
            runs = [run for run in finished.of(method) if not has_diverged(run)]
            values = {
                key: [float(run[key]) for run in runs if run.get(key) is not None]
                for key, _ in DISCOVERY
            }
            bars.append(Bar(label, COLOURS[method.kind], values))
        groups.append((VARIANTS.get(variant, ""), bars))
    return groups


def _moved(finished: Finished, truth: Tensor, mark: str) -> Figure:
    states = two_body(1, 1).x_train[:7]
    panels: list[tuple[str, Tensor | None, str]] = [("true rotation", truth, "")]
    for mask in _MASKS:
        generator, words = first_generator(finished, Method("lieaugmenter", mask))
        if generator is not None and float((generator * truth).sum()) < 0:
            generator = -generator
        panels.append((VARIANTS[mask], generator, words))
    title = (
        f"{finished.experiment.title}:\na trajectory moved by exp(wL), LieAugmenter, own settings, "
        f"seed {first_seed(finished)}{mark}"
    )
    return moved_orbits(title, states, panels, float(finished.settings["range"]))

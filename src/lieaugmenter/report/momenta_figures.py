"""Pictures of the experiments on four-momenta: errors over training, boosts and turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lieaugmenter.data.amplitudes import FEATURES
from lieaugmenter.experiments.momenta import NAMES
from lieaugmenter.experiments.results import generators_of
from lieaugmenter.experiments.spec import Method
from lieaugmenter.lie.catalogue import so_pq
from lieaugmenter.report.comparison import finders
from lieaugmenter.report.finished import Finished, has_diverged
from lieaugmenter.report.paper_figures import Panel, first_seed, generator_grid, learned_rows
from lieaugmenter.report.plots import INK, PALETTE, QUIET, Figure, grid, log_axis, look
from lieaugmenter.report.words import KINDS, VARIANTS, whose

_COLOURS = {
    "trivial-paper": QUIET,
    "trivial": PALETTE[1],
    "oracle": PALETTE[3],
    "oracle-whole": PALETTE[4],
    "lieaugmenter-paper": PALETTE[5],
    "lieaugmenter": PALETTE[0],
    "lieaugmenter-constant": INK,
    "lgatr": PALETTE[2],
}
_WORDS = {
    "curves": (
        "Test error of direct predictions over training, on the first of the test events: mean "
        "over seeds, and between the least and the largest. L-GATr has fewer steps than the others"
    ),
    "generators": (
        "The true boosts and turns, the nearest to each in the span of the six learned generators, "
        "and the learned ones matched to them, all with the sign and norm of the true ones; first "
        "seed, with absolute cosines"
    ),
}


def momenta_captions(finished: Finished) -> list[tuple[str, str]]:
    """File names of an experiment's pictures, and what they show."""
    name = finished.experiment.name
    return [(f"reproduction-{name}-{key}.png", _WORDS[key]) for key in _shown(finished)]


def _shown(finished: Finished) -> Iterator[str]:
    if any(run.get("test-curve") for run in finished.results):
        yield "curves"
    if any("matched" in run for run in finished.results):
        yield "generators"


def momenta_figures(finished: Finished) -> Iterator[tuple[str, Figure]]:
    """The pictures of an experiment with their file names."""
    draw = {"curves": _curves, "generators": _generators}
    for (file, _), key in zip(momenta_captions(finished), _shown(finished), strict=True):
        yield file, draw[key](finished)


def _title(finished: Finished) -> str:
    mark = " (quick run: means nothing)" if finished.quick else ""
    return f"{finished.experiment.title}{mark}"


def _name(method: Method) -> str:
    """As in a picture's key."""
    kind = KINDS[method.kind.removesuffix("-paper")]
    variant = f", {VARIANTS[method.variant]}" if method.variant else ""
    both = method.kind.removesuffix("-paper") in ("trivial", "lieaugmenter")
    return f"{kind}{variant}" + (f", {whose(method)} settings" if both else "")


# -------------------------------------------------------------------------------------- curves


def _curves(finished: Finished) -> Figure:
    with look():
        figure, axes = grid((6.4, 4.2), 1, 1)
        ax, shown = axes[0][0], [np.zeros(0)]
        for method in finished.experiment.methods:
            runs = [r for r in finished.of(method) if r.get("test-curve") and not has_diverged(r)]
            if not runs:
                continue
            errors = np.array([run["test-curve"] for run in runs], dtype=float)
            # L-GATr has fewer epochs: all curves span their whole training.
            share = 100 * np.arange(1, errors.shape[1] + 1) / errors.shape[1]
            colour = _COLOURS[method.name]
            ax.plot(share, errors.mean(0), color=colour, lw=1.6, label=_name(method))
            ax.fill_between(share, errors.min(0), errors.max(0), color=colour, alpha=0.18, lw=0)
            shown.append(errors.ravel())
        log_axis(ax, np.concatenate(shown))
        ax.set_xlabel("share of training (%)")
        ax.set_ylabel("test error (MSE)")
        ax.set_title(_title(finished), color=INK)
        figure.legend(loc="outside lower center", ncols=2)
        return figure


# ---------------------------------------------------------------------------------- generators


def _generators(finished: Finished) -> Figure:
    truth = so_pq(1, 3)
    true_row = [Panel(name, matrix) for name, matrix in zip(NAMES, truth, strict=True)]
    rows: list[tuple[str, Sequence[Panel]]] = [("true", true_row)]
    for method in finders(finished.experiment):
        found = [r for r in finished.of(method) if r["seed"] == first_seed(finished)]
        generators = generators_of(found[0]) if found and "matched" in found[0] else None
        if generators is not None:
            rows += learned_rows(generators, truth, whose(method))
    title = f"{_title(finished)}: generators, seed {first_seed(finished)}"
    return generator_grid(title, rows, truth[0], FEATURES)

"""Pictures of the experiments on molecules: six generators beside se(3), and how errors fall."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.data.molecules import AXES
from lieaugmenter.experiments.results import generators_of, of_method
from lieaugmenter.experiments.spec import Method
from lieaugmenter.lie.catalogue import se
from lieaugmenter.report.finished import Finished
from lieaugmenter.report.loss_figures import CAPTION, loss_figure, losses_of
from lieaugmenter.report.measures import MAE, paper_value
from lieaugmenter.report.paper_figures import (
    COLOURS,
    Panel,
    first_seed,
    generator_grid,
    learned_rows,
)
from lieaugmenter.report.plots import INK, PALETTE, QUIET, Figure, grid, log_axis, look
from lieaugmenter.report.words import label, whose

# The generators of se(3), in the catalogue's order.
_NAMES = ("turn x, y", "turn x, z", "turn y, z", "shift x", "shift y", "shift z")
_COLOURS = {
    **COLOURS,
    "trivial-paper": PALETTE[1],
    "trivial": PALETTE[1],
    "oracle-paper": PALETTE[3],
    "oracle": PALETTE[3],
    "augerino-widths-paper": PALETTE[4],
    "augerino-widths": PALETTE[4],
}
_WORDS = {
    "generators": (
        "The generators of se(3), the nearest to each in the span of the six learned ones, and the "
        "learned ones matched to them, all with the sign and the norm of the true ones; first "
        "seed, with absolute cosines"
    ),
    "curves": (
        "Test error of direct predictions, not averaged over elements, by epochs, and by seconds "
        "where a training had the device for itself. The dashed line is the paper's LieAugmenter"
    ),
    "losses": CAPTION,
}


def molecule_captions(finished: Finished) -> list[tuple[str, str]]:
    """File names of an experiment's pictures, and what they show."""
    name = finished.experiment.name
    return [(f"reproduction-{name}-{key}.png", _WORDS[key]) for key in _shown(finished)]


def molecule_figures(finished: Finished) -> Iterator[tuple[str, Figure]]:
    """The pictures of an experiment with their file names."""
    draw = {"generators": _generators, "curves": _curves, "losses": _losses}
    for (file, _), key in zip(molecule_captions(finished), _shown(finished), strict=True):
        yield file, draw[key](finished)


def _shown(finished: Finished) -> Iterator[str]:
    if _learned(finished):
        yield "generators"
    if any(run.get("test-curve") for run in finished.results):
        yield "curves"
    if losses_of(finished):
        yield "losses"


def _learned(finished: Finished) -> dict[str, Float[Tensor, "c d d"]]:
    """The generators of LieAugmenter's first seed, by settings."""
    found = {}
    for method in (Method("lieaugmenter"), Method("lieaugmenter-paper")):
        for run in finished.of(method):
            generators = generators_of(run)
            if run["seed"] == first_seed(finished) and generators is not None:
                found[whose(method)] = generators
    return found


def _generators(finished: Finished) -> Figure:
    truth = se(3)
    rows = [("se(3)", [Panel(name, known) for name, known in zip(_NAMES, truth, strict=True)])]
    for settings, learned in _learned(finished).items():
        rows += learned_rows(learned, truth, settings)
    title = f"{_title(finished)}: generators, seed {first_seed(finished)}{_mark(finished)}"
    return generator_grid(title, rows, truth[0], AXES)


def _curves(finished: Finished) -> Figure:
    """One line a method, by epochs and by seconds; the paper's error of LieAugmenter is marked."""
    reported = paper_value(finished.experiment, "lieaugmenter", MAE.key)
    with look():
        figure, ((by_epoch, by_second),) = grid((9.6, 3.8), 1, 2)
        figure.suptitle(f"{_title(finished)}{_mark(finished)}", x=0.01, ha="left", fontsize=11)
        for method in finished.experiment.methods:
            runs = [run for run in finished.of(method) if run.get("test-curve")]
            for run in [*runs, *of_method(finished.unfinished, method.name)][:1]:
                words = f"{label(method.row)}, {whose(method)} settings"
                words += "" if runs else f", stopped after {run['epochs']} of {run['of']}"
                style = {
                    "color": _COLOURS[method.kind],
                    "ls": "-" if method.ours else (0, (3, 1.5)),
                    "lw": 1.5,
                }
                curve = run["test-curve"]
                by_epoch.plot(range(1, len(curve) + 1), curve, label=words, **style)
                if runs and run.get("environment", {}).get("workers", 1) == 1:
                    by_second.plot(run["curve-seconds"], curve, **style)
        drawn = [np.asarray(line.get_ydata(), dtype=float) for line in by_epoch.lines]
        for ax in (by_epoch, by_second):
            if reported is not None:
                ax.axhline(reported.mean, color=QUIET, lw=0.8, ls=(0, (4, 3)))
            log_axis(ax, np.concatenate([*drawn, np.array([reported.mean] if reported else [])]))
        by_epoch.set_xlabel("epochs")
        by_epoch.set_ylabel("test MAE, meV", color=INK)
        by_epoch.legend(fontsize=7.5)
        by_second.set_xlabel("seconds of training")
        return figure


def _losses(finished: Finished) -> Figure:
    title = f"{_title(finished)}: losses over training, seed {first_seed(finished)}"
    return loss_figure(finished, title + _mark(finished))


def _title(finished: Finished) -> str:
    return finished.experiment.name.partition("-")[2].upper()


def _mark(finished: Finished) -> str:
    return " (quick run: means nothing)" if finished.quick else ""

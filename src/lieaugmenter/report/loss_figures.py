"""Losses over training, and when the generators are found: the paper's curves of convergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lieaugmenter.experiments.spec import Method
from lieaugmenter.report.finished import Finished
from lieaugmenter.report.paper_figures import first_seed
from lieaugmenter.report.plots import INK, QUIET, Axes, Figure, draw_terms, grid, look
from lieaugmenter.report.words import whose

CAPTION = (
    "Losses of LieAugmenter after every epoch, first seed: of training the two that the paper "
    "shows, and of direct predictions for validation data. Below, the cosine of what is learned "
    "with the true generators, and the range of the coefficients as a share of its largest"
)
_TERMS = ("prediction", "equivariance", "validation")


def losses_of(finished: Finished) -> dict[str, Mapping[str, Sequence[float]]]:
    """Every epoch of LieAugmenter's first seed, by whose settings it had; where it was kept."""
    return {
        whose(method): run["losses"]
        for method in (Method("lieaugmenter-paper"), Method("lieaugmenter"))
        for run in finished.of(method)
        if run["seed"] == first_seed(finished) and run.get("losses")
    }


def loss_figure(finished: Finished, title: str) -> Figure:
    """A column for the paper's settings and one for own ones, as far as they were run."""
    found = losses_of(finished)
    with look():
        figure, axes = grid((max(6.4, 3.9 * len(found) + 0.4), 4.6), 2, len(found))
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        for column, (settings, losses) in enumerate(found.items()):
            above, below = axes[0][column], axes[1][column]
            terms = {name: losses[name] for name in _TERMS if losses.get(name)}
            draw_terms(
                above,
                {name: (_epochs(values), np.array(values)) for name, values in terms.items()},
            )
            above.set_title(f"{settings} settings", color=INK, pad=24)
            above.set_ylabel("loss, log scale" if column == 0 else "")
            _draw_cosine(below, losses)
        _share_limits(axes[0])
        axes[1][0].set_ylabel("share")
        return figure


def _draw_cosine(ax: Axes, losses: Mapping[str, Sequence[float]]) -> None:
    reach = np.array(losses["range"])
    ax.plot(_epochs(reach), reach / reach.max(), color=QUIET, lw=1.0, ls="--", label="range")
    cosines = losses["cosine"]
    ax.plot(_epochs(cosines), cosines, color=INK, lw=1.7, marker="o", ms=3, label="cosine")
    ax.set_ylim(-0.03, 1.06)
    ax.set_xlabel("epoch")
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)


def _epochs(values: Sequence[float] | np.ndarray) -> np.ndarray:
    return np.arange(1, len(values) + 1)


def _share_limits(row: Sequence[Axes]) -> None:
    """The same axis for all, so that heights compare."""
    limits = [ax.get_ylim() for ax in row]
    low, high = min(low for low, _ in limits), max(high for _, high in limits)
    for ax in row:
        ax.set_ylim(low, high)

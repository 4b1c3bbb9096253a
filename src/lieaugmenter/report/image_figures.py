"""Pictures of the experiments on images: generators, confusions, views, what the ablations give."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions import ImageAction
from lieaugmenter.data.files import DataError
from lieaugmenter.data.images import AXES, rotated_mnist, rotation
from lieaugmenter.experiments.results import Statistic
from lieaugmenter.experiments.spec import Method
from lieaugmenter.experiments.targets import PAPER_ONLY, TARGETS, Reported
from lieaugmenter.lie.elements import Elements
from lieaugmenter.report.ablations import (
    ABLATIONS,
    SAMPLES,
    TITLES,
    WAYS,
    closeness,
    kind_label,
    method_at,
    sample_kinds,
    values_of,
    ways_of,
)
from lieaugmenter.report.comparison import IMAGE_DISCOVERY
from lieaugmenter.report.finished import Finished
from lieaugmenter.report.loss_figures import CAPTION, loss_figure, losses_of
from lieaugmenter.report.measures import ACCURACY
from lieaugmenter.report.paper_figures import (
    COLOURS,
    closeness_bars,
    closeness_groups,
    first_generator,
    first_seed,
    generator_grid,
    generator_rows,
)
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
from lieaugmenter.report.words import SYMBOLS, seed_count

_OURS = Method("lieaugmenter")
_GALLERY_OF, _CONFUSION_OF = "rotated-mnist", "rotated-mnist-ood"
_DIGITS, _VIEWS = 5, 8
_KIND_COLOURS = {
    **COLOURS,
    "gcnn": QUIET,
    "gcnn-pooled": INK,
    "trivial": PALETTE[1],
    "oracle": PALETTE[3],
}
_MARKERS = {"gcnn": "v", "gcnn-pooled": "^", "trivial": "x", "oracle": "D", "lieaugmenter": "s"}
# The settings of an ablation that share a picture.
_WEIGHTS = ("prediction", "equivariance", "similarity", "sparsity")
_SIZES = ("views", "range", "generators")
# The axis of cosines is the same in all panels, with room for the spread about 1.
_COSINES = (-0.05, 1.12)
# Over how much of the distance between two places the curves are set apart.
_ASIDE = 0.16
# What the pictures show.
_WORDS = {
    "generators": (
        "Generators of the first seed by method, with the sign and the norm of the true one, and "
        "their absolute cosines; x to the right, y up, 1 for the shift"
    ),
    "closeness": "Closeness to the true generator: mean, standard deviation and every seed",
    "confusion": (
        "Test images of each digit by what LieAugmenter with own settings takes them for, all "
        "seeds together"
    ),
    "views": (
        "Test images and their views under exp(wL), L of LieAugmenter with own settings, first seed"
    ),
    "weights": "Accuracy and cosine by the weights of the objective",
    "sizes": "Accuracy and cosine by views, range and number of generators",
    "accuracy": "Test accuracy by the share of the training data",
    "losses": CAPTION,
}


@dataclass(frozen=True)
class Curve:
    """Means with standard deviations over what is varied, of one method."""

    label: str
    colour: str
    points: Sequence[tuple[float, Statistic | Reported]]
    marker: str = "o"
    line: str = "-"


def image_captions(finished: Finished) -> list[tuple[str, str]]:
    """File names of an experiment's pictures, and what they show."""
    name = finished.experiment.name
    return [(f"reproduction-{name}-{key}.png", _WORDS[key]) for key in _shown(finished)]


def _shown(finished: Finished) -> Iterator[str]:
    """The pictures that an experiment has."""
    name = finished.experiment.name
    if name == ABLATIONS:
        yield from ("weights", "sizes")
        return
    if name == SAMPLES:
        yield "accuracy"
        return
    if losses_of(finished):
        yield "losses"
        return
    if any("cosine" in result for result in finished.results):
        yield from ("generators", "closeness")
    if name == _CONFUSION_OF and _confusion(finished) is not None:
        yield "confusion"
    if name == _GALLERY_OF and first_generator(finished, _OURS)[0] is not None:
        yield "views"


def image_figures(finished: Finished) -> Iterator[tuple[str, Figure]]:
    """The pictures of an experiment with their file names.

    That of views needs MNIST, and is left out where MNIST cannot be had.
    """
    draw = {
        "generators": _generators,
        "closeness": _closeness,
        "confusion": _confusion_map,
        "views": _gallery,
        "weights": _weights,
        "sizes": _sizes,
        "accuracy": _samples,
        "losses": _losses,
    }
    for (file, _), key in zip(image_captions(finished), _shown(finished), strict=True):
        figure = draw[key](finished)
        if figure is not None:
            yield file, figure


def _mark(finished: Finished) -> str:
    return " (quick run: means nothing)" if finished.quick else ""


# ---------------------------------------------------------------------------------- generators


def _generators(finished: Finished) -> Figure:
    truth = rotation()[0]
    title = f"{_short_title(finished)}: generators, seed {first_seed(finished)}{_mark(finished)}"
    return generator_grid(title, generator_rows(finished, truth), truth, AXES)


def _closeness(finished: Finished) -> Figure:
    title = f"{_short_title(finished)}{_mark(finished)}"
    return closeness_bars(title, closeness_groups(finished), IMAGE_DISCOVERY)


def _losses(finished: Finished) -> Figure:
    title = f"Rotated digits, losses over training: seed {first_seed(finished)}{_mark(finished)}"
    return loss_figure(finished, title)


def _short_title(finished: Finished) -> str:
    """Without what follows the comma, which is too long for a small picture."""
    name = finished.experiment.name
    if name.startswith("histology"):
        return f"Colorectal tissue, {name.partition('-')[2]}"
    return finished.experiment.title


# ----------------------------------------------------------------------------------- confusion


def _confusion(finished: Finished) -> Float[Tensor, "classes classes"] | None:
    """Counts of all seeds together."""
    found = [run["confusion"] for run in finished.of(_OURS) if run.get("confusion")]
    return torch.tensor(found, dtype=torch.float64).sum(0) if found else None


def confusion_words(finished: Finished) -> str:
    """What the picture of confusions has to say about 6 and 9; empty where there is none."""
    counts = _confusion(finished)
    if counts is None or finished.experiment.name != _CONFUSION_OF or finished.quick:
        return ""
    errors = int(counts.sum() - counts.trace())
    nines = int(counts[6, 9] + counts[9, 6])
    seeds = seed_count(sum("confusion" in run for run in finished.of(_OURS)))
    return (
        f"Of the {int(counts.sum()):,} predictions of LieAugmenter with own settings ({seeds}) "
        f"{errors:,} are wrong, and {nines:,} of these take a 6 for a 9 or a 9 for a 6."
    )


def _confusion_map(finished: Finished) -> Figure | None:
    counts = _confusion(finished)
    if counts is None:
        return None
    classes = len(counts)
    wrong = counts.clone().fill_diagonal_(0)
    with look():
        figure, axes = grid((5.6, 5.2), 1, 1)
        ax = axes[0][0]
        figure.suptitle(
            f"LieAugmenter, own settings, tested beyond\n90 degrees: all seeds{_mark(finished)}",
            x=0.01, ha="left", fontsize=11,
        )  # fmt: skip
        # Right ones are so many more that the colours are of the wrong ones only.
        mesh = ax.pcolormesh(
            wrong.numpy(), cmap="Oranges", vmin=0, vmax=max(1.0, float(wrong.max())),
            edgecolors=FAINT, linewidth=0.5,
        )  # fmt: skip
        for true in range(classes):
            for taken in range(classes):
                count = int(counts[true, taken])
                if count:
                    dark = float(wrong[true, taken]) > 0.6 * float(wrong.max())
                    ax.text(
                        taken + 0.5, true + 0.5, f"{count}", ha="center", va="center", fontsize=7.5,
                        color="white" if dark and true != taken else INK,
                        fontweight="bold" if true == taken else "normal",
                    )  # fmt: skip
        ax.set_ylim(classes, 0)
        ax.set_aspect("equal")
        ax.set_xticks(np.arange(classes) + 0.5, [str(i) for i in range(classes)])
        ax.set_yticks(np.arange(classes) + 0.5, [str(i) for i in range(classes)])
        ax.tick_params(length=0, labelcolor=INK)
        ax.spines[:].set_visible(False)
        ax.set_xlabel("taken for")
        ax.set_ylabel("digit")
        bar = figure.colorbar(mesh, ax=ax, shrink=0.8, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        bar.set_label("wrong predictions")
        return figure


# -------------------------------------------------------------------------------------- views


def _gallery(finished: Finished) -> Figure | None:
    generator = first_generator(finished, _OURS)[0]
    try:
        images = rotated_mnist(n_train=1, n_validation=1, n_test=_DIGITS).x_test
    except DataError:
        return None
    if generator is None:
        return None
    # With the sign of the true one, so that a positive w turns the same way in every picture.
    sign = -1.0 if float((generator * rotation()[0]).sum()) < 0 else 1.0
    reach = float(finished.settings["range"])
    weights = torch.linspace(-reach, reach, _VIEWS)
    coefficients = weights.view(1, _VIEWS, 1).expand(_DIGITS, _VIEWS, 1)
    elements = Elements(coefficients, sign * generator.unsqueeze(0), rows=ImageAction().rows)
    views = ImageAction().act(elements, images)
    with look():
        figure, axes = grid((0.95 * (_VIEWS + 1) + 0.4, 0.95 * _DIGITS + 0.9), _DIGITS, _VIEWS + 1)
        figure.suptitle(
            f"Test digits moved by exp(wL), LieAugmenter, own settings, "
            f"seed {first_seed(finished)}{_mark(finished)}",
            x=0.01, ha="left", fontsize=11,
        )  # fmt: skip
        for line, image, moved in zip(axes, images, views, strict=True):
            for ax, pixels in zip(line, [image, *moved], strict=True):
                ax.imshow(pixels[0].numpy(), cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
                ax.set_xticks([])
                ax.set_yticks([])
                ax.spines[:].set(visible=True, color=FAINT)
            line[0].spines[:].set(color=INK, linewidth=1.4)
        titles = ["sample", *(f"w = {_signed(float(w))}" for w in weights)]
        for ax, title in zip(axes[0], titles, strict=True):
            ax.set_title(title, loc="center", fontsize=8.5, color=INK)
        return figure


def _signed(value: float) -> str:
    """With a real minus.

    >>> _signed(-0.43)
    '−0.43'
    """
    return f"{value:.2f}".replace("-", "−")


# ------------------------------------------------------------------------------------- curves


def _weights(finished: Finished) -> Figure:
    return _ablation_grid(finished, _WEIGHTS)


def _sizes(finished: Finished) -> Figure:
    return _ablation_grid(finished, _SIZES)


def _ablation_grid(finished: Finished, names: Sequence[str]) -> Figure:
    """Accuracy above, cosine below, a column for each setting."""
    values = values_of(finished.experiment)
    with look():
        figure, axes = grid((2.75 * len(names) + 0.6, 5.2), 2, len(names))
        figure.suptitle(
            f"Rotated digits, one setting at a time{_mark(finished)}",
            x=0.01, ha="left", fontsize=11,
        )  # fmt: skip
        for column, name in enumerate(names):
            for ax, cosine in ((axes[0][column], False), (axes[1][column], True)):
                curves = _ablation_curves(finished, name, values[name], cosine=cosine)
                # The paper has values of the range that ours lacks, so the axis is a real one.
                _draw(ax, curves, None if name == "range" else values[name])
                ax.set_xlabel(f"{TITLES[name]}, {SYMBOLS[name]}")
            axes[1][column].set_ylim(*_COSINES)
            if name == "generators":
                axes[1][column].set_title("of the span where several", fontsize=8, color=QUIET)
        axes[0][0].set_ylabel("test accuracy (%)")
        axes[1][0].set_ylabel("absolute cosine")
        _legend(figure, axes)
        return figure


def _ablation_curves(
    finished: Finished, name: str, values: Sequence[float], *, cosine: bool
) -> list[Curve]:
    curves = []
    for kind in ways_of(finished.experiment, name):
        points = []
        for value in values:
            measure = closeness(name, value) if cosine else ACCURACY
            found = finished.statistic(method_at(kind, name, value), measure.key)
            points += [] if found is None else [(value, found)]
        marker = _MARKERS.get(kind, "o")
        curves.append(Curve(f"ours, {WAYS[kind]}", COLOURS[kind], points, marker))
    if name == "range":
        curves.append(Curve("paper", INK, _ranges_of_paper(cosine=cosine), "D", ":"))
    return curves


def _ranges_of_paper(*, cosine: bool) -> list[tuple[float, Reported]]:
    """All values of the paper's table, those that are not run here as well."""
    measure = "cosine" if cosine else "accuracy"
    start = "lieaugmenter-range-"
    found = [
        (float(row.removeprefix(start)), reported)
        for (_, row, key), reported in {**TARGETS, **PAPER_ONLY}.items()
        if row.startswith(start) and key == measure
    ]
    return sorted(found, key=lambda point: point[0])


def _samples(finished: Finished) -> Figure:
    shares = values_of(finished.experiment)["data"]
    curves = []
    for kind in sample_kinds(finished.experiment):
        found = [
            (share, finished.statistic(method_at(kind, "data", share), ACCURACY.key))
            for share in shares
        ]
        points = [(share, value) for share, value in found if value is not None]
        marker = _MARKERS.get(kind, "o")
        curves.append(Curve(kind_label(kind), _KIND_COLOURS[kind], points, marker))
    with look():
        figure, axes = grid((7.6, 4.2), 1, 1)
        figure.suptitle(
            f"Rotated digits with a share of the training data{_mark(finished)}",
            x=0.01, ha="left", fontsize=11,
        )  # fmt: skip
        ax = axes[0][0]
        _draw(ax, curves, shares)
        ax.set_xticks(range(len(shares)), [f"{100 * share:g} %" for share in shares])
        ax.set_xlabel("share of the training data")
        ax.set_ylabel("test accuracy (%)")
        _legend(figure, axes)
        return figure


def _draw(ax: Axes, curves: Sequence[Curve], places: Sequence[float] | None) -> None:
    """Curves over a real axis, or over places at equal distances, which may include 0."""
    for number, curve in enumerate(curves):
        # Side by side, so that no curve hides another's spread.
        several = places is not None and len(curves) > 1
        aside = _ASIDE * (number / (len(curves) - 1) - 0.5) if several else 0.0
        where = [x if places is None else places.index(x) + aside for x, _ in curve.points]
        ax.errorbar(
            where,
            [value.mean for _, value in curve.points],
            yerr=[value.std or 0.0 for _, value in curve.points],
            color=curve.colour,
            marker=curve.marker,
            ls=curve.line,
            label=curve.label,
            ms=4.5,
            capsize=2.5,
            elinewidth=0.9,
        )
    if places is not None:
        ax.set_xticks(range(len(places)), [f"{place:g}" for place in places])
        ax.set_xlim(-0.4, len(places) - 0.6)
    if not any(curve.points for curve in curves):
        ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color=QUIET)
        ax.set_yticks([])
    ax.grid(axis="y", color="#eceef2", lw=0.7)
    ax.set_axisbelow(True)


def _legend(figure: Figure, axes: Sequence[Sequence[Axes]]) -> None:
    """One entry for each label of all panels."""
    entries = {}
    for line in axes:
        for ax in line:
            handles, labels = ax.get_legend_handles_labels()
            entries.update(zip(labels, handles, strict=True))
    columns = math.ceil(len(entries) / 2) if len(entries) > 4 else max(1, len(entries))
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns)

"""The reproduction document: the paper's numbers, ours beside them, and what was missed.

``python -m lieaugmenter.report.reproduction RESULTS DOCUMENT`` writes it from the files of
``lieaugmenter reproduce`` and from `TARGETS`. No number is typed in by hand.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from lieaugmenter.experiments.catalogue import VECTORS
from lieaugmenter.experiments.spec import Experiment
from lieaugmenter.report.comparison import (
    MEASURES,
    Finished,
    device_of,
    discovery,
    label,
    measure_table,
    rows_of,
    seed_count,
    small,
)
from lieaugmenter.report.paper_figures import captions, figures, png
from lieaugmenter.report.requirements import requirements_table
from lieaugmenter.report.sensitivity import sensitivity
from lieaugmenter.runs import write_atomically


def _best_invariant_error(sectors: int = 6) -> float:
    """The MSE of the best rotation-invariant predictor of z / (1 + u), u uniform on a sector.

    It is the variance of 1 / (1 + u), because E[z²] = 1.

    >>> round(_best_invariant_error(), 4)
    0.0204
    """
    width = 2 * math.pi / sectors
    mean = math.log1p(width) / width
    return (1 - 1 / (1 + width)) / width - mean**2


_ANGULAR = (
    "The test that the paper calls in-distribution is one of other angles: training orbits start "
    "in the lower half plane, test orbits in the upper. A network that knows no rotation has to "
    "extrapolate here, too."
)
_QUADRANTS = (
    "The paper names the quadrants of training and test and no more. Here all windows are pooled "
    "and split by the quadrant of body 1 at the first step of the input."
)
_OTHER_FORMS = (
    "In the data the bodies are opposite (q2 = -q1, p2 = -p1). Where the mask lets the bodies "
    "interact, other matrices act on these data exactly as the rotation does. Their cosine with "
    "the rotation is below 1, their cosine on the data is not. The data cannot tell them apart."
)
_IDLE_START = (
    f"{_OTHER_FORMS} For the same reason some matrices do nothing to these data, and the constant "
    "initialisation is one of them. With the paper's settings training ends with one that hardly "
    "moves a sample (`displacement` in the results), and the error is that of no augmentation. Why "
    "the paper's own runs did not stay there, its text does not tell. With own settings the term "
    "against doing nothing is weighed by the range, which grows."
)
_AUGERINO = (
    "Augerino+ hangs on the size of its initial entries, on which the paper is silent. Ours are "
    "those that LieGAN's code has for the same mask; see [initial entries]"
    "(#deviation-of-the-initial-entries)."
)
_WIDTH = (
    "The paper does not give the width of its network, and this error depends on it: see [width]"
    "(#width-of-the-three-hidden-layers)."
)
_LIEGAN_NO_MASK = (
    "Ours finds matrices that act on the data almost as the rotation does (see Discovery). Of the "
    f"paper's there is only a picture. {_WIDTH}"
)
_LARGE_INPUTS = (
    "No code was published for LieGAN on this task, and the paper did not get it to work either. "
    "The inputs reach 100 and are not scaled, and the generators have no fixed norm. The error is "
    "that of averaging: directly the same networks predict as well as those without augmentation "
    "(`mse-direct` in the results). It depends on the [initial entries]"
    "(#deviation-of-the-initial-entries)."
)
_SILENT_DISCRETE = (
    "The paper gives neither epochs nor batch size for this task; those above are this project's."
)

# Why ours and the paper's differ, or should not be compared, by experiment and row; the row is
# empty for what concerns a whole experiment. Written by hand, so without any number measured here.
EXPLANATIONS: Mapping[tuple[str, str], str] = {
    **{(name, ""): _ANGULAR for name in ("two-body", "two-body-3")},
    **{(name, ""): _QUADRANTS for name in ("two-body-ood", "two-body-3-ood")},
    **{
        (name, f"lieaugmenter-{mask}"): _OTHER_FORMS if name == "two-body" else _IDLE_START
        for name in ("two-body", "two-body-ood", "two-body-3", "two-body-3-ood")
        for mask in ("mask0", "mask4")
    },
    **{
        (name, f"augerino-{mask}"): _AUGERINO
        for name in ("two-body", "two-body-ood", "two-body-3", "two-body-3-ood")
        for mask in ("mask0", "mask4")
    },
    **{(name, "trivial"): _WIDTH for name in ("two-body", "two-body-ood")},
    ("two-body", "liegan-mask0"): _LIEGAN_NO_MASK,
    ("two-body", "lieaugmenter-mask4"): (
        f"{_OTHER_FORMS} With the paper's settings and hidden layers of 32 the error is within the "
        "paper's spread: see [width](#width-of-the-three-hidden-layers)."
    ),
    ("partial-permutation", "liegan"): _LARGE_INPUTS,
    ("discrete-rotation", "trivial"): _WIDTH,
    ("discrete-rotation", "augerino"): (
        "The elements reach all angles, so that the error is that of the best invariant predictor, "
        "as for the oracle."
    ),
    **{
        (name, "augerino"): (
            "Augerino+ knows only how far its elements reach and how well they are predicted. The "
            "paper does not say how it weighs the two here; ours has the weight of the two-body "
            "task. See [weight](#weight-of-augerinos-cosine)."
        )
        for name in ("no-symmetry", "no-symmetry-deviation")
    },
    **{
        (name, f"liegan-{mask}"): _WIDTH
        for name, mask in (
            ("two-body-ood", "mask4"),
            ("two-body-3", "mask0"),
            ("two-body-3", "mask2"),
            ("two-body-3-ood", "mask2"),
        )
    },
    ("discrete-rotation", ""): _SILENT_DISCRETE,
    ("discrete-rotation", "oracle"): (
        "The oracle has all rotations, not only those by multiples of 60 degrees, in the paper's "
        "table as well, to judge by its error. The target is not invariant under all of them: the "
        f"best possible error of an invariant predictor is {small(_best_invariant_error())} "
        "(the variance of 1 / (1 + u), u uniform on [0, π/3])."
    ),
    ("discrete-rotation", "lieaugmenter-continuous"): (
        "The target has one exact continuous linear symmetry, and it is not the rotation: scaling "
        "x and y together. A method that finds this scaling has found a symmetry of the task, "
        "with a cosine of 0."
    ),
    ("discrete-rotation", "lieaugmenter-discrete"): (
        "The equivariance errors of this row are taken with integer coefficients, as the paper's "
        "seem to be. They are not comparable with those of the other rows. At the norm √3 a pure "
        "rotation steps by more than 60 degrees; the exact solution is a rotation together with "
        "a scaling of x and y, so a cosine below 1 is right."
    ),
    ("partial-permutation", ""): (
        f"{_SILENT_DISCRETE} The linear symmetries of the target have dimension 11. One generator "
        "is therefore not identified by the data: a low cosine with the rotation about (1, 1, 1), "
        "which stands for the permutations here, does not mean that no symmetry was found."
    ),
    ("no-symmetry", ""): (
        "The paper draws the target's weights from N(0, σ) with σ = 0.01. This is the reading as "
        "a variance, in which the target is well above the label noise. The other reading is the "
        "next section."
    ),
    ("no-symmetry-deviation", ""): (
        "The same task with σ = 0.01 read as a standard deviation: the target is far below the "
        "label noise and all but linear, so that hardly anything can be learned. The paper's "
        "numbers are those of the section before."
    ),
    **{
        (name, "oracle"): (
            "The oracle is the identity here. It sees the same data as no augmentation; only the "
            "loss differs. With a constant learning rate the error depends on the step at which "
            "training stops, and on the [draw](#draw-of-the-random-target) of the target."
        )
        for name in ("no-symmetry", "no-symmetry-deviation")
    },
    **{
        (name, "lieaugmenter"): (
            "The generator has a fixed norm, so its elements cannot all come close to the "
            "identity. What the method can do is to choose one that harms least."
        )
        for name in ("no-symmetry", "no-symmetry-deviation")
    },
}


def write_reproduction(results: Path, document: Path) -> None:
    """Write the document, and its figures into ``images`` beside it.

    Parameters
    ----------
    results
        The folder with a file of results for each experiment; some may be missing.
    document
        The Markdown file.
    """
    for experiment in VECTORS.values():
        finished = Finished.read(results, experiment)
        if finished is not None:
            for name, figure in figures(finished):
                write_atomically(document.parent / "images" / name, png(figure))
    write_atomically(document, reproduction(results))


def reproduction(results: Path) -> str:
    """The text of the document."""
    read = {name: Finished.read(results, e) for name, e in VECTORS.items()}
    parts = [_opening(list(read.values())), requirements_table(read)]
    for name, finished in read.items():
        experiment = VECTORS[name]
        heading = f"## {experiment.title}"
        if finished is None:
            missing = f"Not run: there is no `{name}.json` among the results."
            parts.append(f"{heading}\n\n{missing} To run it: `lieaugmenter reproduce {name}`.")
        else:
            parts.append(f"{heading}\n\n{_section(finished)}")
    varied = sensitivity(results)
    parts += [varied] if varied else []
    return "\n\n".join(parts) + "\n"


def _opening(read: Sequence[Finished | None]) -> str:
    quick = [f"`{f.experiment.name}`" for f in read if f is not None and f.quick]
    warning = (
        f"\n\n**Quick runs, whose numbers mean nothing: {', '.join(quick)}.** They only show that "
        "the commands work."
        if quick
        else ""
    )
    return f"""# Reproduction

The paper's experiments on vectors, with the paper's numbers beside ours. This file is generated
from the results of `lieaugmenter reproduce NAME`; `make reproduction` writes it anew. Every number
is from those results, from the paper's tables, or follows from a formula that stands beside it.

How to read the tables:

- **paper**: what the paper reports.
- **ours, the paper's settings**: our code with the settings that the paper gives. Baselines have
  the settings that were published for them.
- **ours, own settings**: our code with this project's settings. The learning rate falls as a
  cosine, the range of the coefficients grows at first, the data are scaled. This column exists for
  no augmentation, the oracle and LieAugmenter.
- A value is the mean ± the standard deviation over seeds. The lowest mean of a row is bold.
- Seeds that diverged are counted in the cell. The mean is over the others and is never bold.
- Two values differ by more than both spreads when their means are farther apart than the sum of
  their standard deviations.

The paper does not give the widths of its networks, nor the law from which elements are drawn for
the equivariance errors. There the paper's settings are this project's guess.{warning}"""


def _section(finished: Finished) -> str:
    parts = [_settings(finished)]
    if finished.experiment.name.startswith("two-body"):
        parts.append(
            "Mask 2 has four planes that do not interact, mask 4 keeps positions and momenta "
            "apart, and without a mask every entry is learned."
        )
    whole = EXPLANATIONS.get((finished.experiment.name, ""))
    if whole:
        parts.append(whole)
    for measure in MEASURES:
        table = measure_table(finished, measure)
        if table:
            parts.append(f"### {measure.title}\n\n{table}")
            if measure.key == "mse":
                parts += _explanations(finished.experiment)
    parts.append("### Discovery\n\n" + discovery(finished))
    parts += [f"![{words}](images/{name})\n\n*{words}.*" for name, words in captions(finished)]
    return "\n\n".join(parts)


def _settings(finished: Finished) -> str:
    settings, environment = finished.settings, finished.environment
    seeds = ", ".join(map(str, finished.seeds))
    widths = " × ".join(map(str, settings["hidden"]))
    source = settings["source"]
    data = "generated" if source == "generated" else f"from `{source}`"
    line = (
        f"`lieaugmenter reproduce {finished.experiment.name}`: {seed_count(len(finished.seeds))} "
        f"({seeds}), {settings['epochs']} epochs, batches of {settings['batch_size']}, learning "
        f"rate {settings['lr']:g}, hidden widths {widths}, {settings['n_views']} views, "
        f"γ = {settings['range']:g}; data {data}. {device_of(finished)}, "
        f"torch {environment.get('torch', 'unknown')}, "
        f"lieaugmenter {environment.get('lieaugmenter', 'unknown')}, "
        f"{str(environment.get('time', 'date unknown'))[:10]}."
    )
    if finished.quick:
        line = (
            "**Quick run: few samples and few epochs. Its numbers mean nothing and are not "
            f"compared.**\n\n{line}"
        )
    return line


def _explanations(experiment: Experiment) -> list[str]:
    """A paragraph for each text, naming all rows that it is for."""
    told: dict[str, list[str]] = {}
    for row in rows_of(experiment):
        text = EXPLANATIONS.get((experiment.name, row))
        if text:
            told.setdefault(text, []).append(label(row))
    headed = {"; ".join(rows): text for text, rows in told.items()}
    return [f"*{rows[0].upper()}{rows[1:]}.* {text}" for rows, text in headed.items()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the document from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m lieaugmenter.report.reproduction",
        description=(__doc__ or "").split("\n")[0],
    )
    parser.add_argument("results", type=Path, help="folder with a .json for each experiment")
    parser.add_argument("document", type=Path, help="Markdown file to write")
    parsed = parser.parse_args(arguments)
    write_reproduction(parsed.results, parsed.document)


if __name__ == "__main__":
    main()

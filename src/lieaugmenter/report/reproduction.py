"""The reproduction document: the paper's numbers, ours beside them, and what was missed.

``python -m lieaugmenter.report.reproduction RESULTS DOCUMENT`` writes it from the files of
``lieaugmenter reproduce`` and from `TARGETS`. No number is typed in by hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from lieaugmenter.experiments.catalogue import (
    AMPLITUDES,
    EXPERIMENTS,
    IMAGES,
    MOLECULES,
    VECTORS,
)
from lieaugmenter.report.ablations import ABLATIONS, SAMPLES
from lieaugmenter.report.event_starts import event_starts
from lieaugmenter.report.finished import Finished
from lieaugmenter.report.image_figures import image_figures
from lieaugmenter.report.image_requirements import image_requirements, read_speed
from lieaugmenter.report.image_sections import (
    ablations_section,
    about_images,
    losses_section,
    samples_section,
)
from lieaugmenter.report.measures import of_images, of_momenta
from lieaugmenter.report.molecule_figures import molecule_figures
from lieaugmenter.report.molecule_requirements import molecule_requirements, read_step
from lieaugmenter.report.molecule_sections import about_molecules, molecule_section
from lieaugmenter.report.momenta_figures import momenta_figures
from lieaugmenter.report.momenta_sections import (
    about_momenta,
    momenta_requirements,
    momenta_section,
)
from lieaugmenter.report.paper_figures import figures, png
from lieaugmenter.report.plots import Figure
from lieaugmenter.report.requirements import requirements, requirements_table
from lieaugmenter.report.sections import section
from lieaugmenter.report.sensitivity import sensitivity
from lieaugmenter.runs import RunError, write_atomically

_SECTIONS = {
    ABLATIONS: ablations_section,
    SAMPLES: samples_section,
    "rotated-mnist-losses": losses_section,
    **dict.fromkeys(AMPLITUDES, momenta_section),
    **dict.fromkeys(MOLECULES, molecule_section),
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
    for experiment in EXPERIMENTS.values():
        finished = Finished.read(results, experiment)
        if finished is not None:
            for name, figure in _figures(finished):
                write_atomically(document.parent / "images" / name, png(figure))
    write_atomically(document, reproduction(results))


def _figures(finished: Finished) -> Iterator[tuple[str, Figure]]:
    if of_momenta(finished.experiment):
        yield from momenta_figures(finished)
    elif finished.experiment.name in MOLECULES:
        yield from molecule_figures(finished)
    else:
        yield from image_figures(finished) if of_images(finished.experiment) else figures(finished)


def reproduction(results: Path) -> str:
    """The text of the document."""
    read = {name: Finished.read(results, e) for name, e in EXPERIMENTS.items()}
    of_digits = image_requirements(read, read_speed(results))
    parts = [
        _opening(list(read.values())),
        "## Requirements\n\n" + requirements_table(requirements(read)),
        "## Requirements on images\n\n" + requirements_table(of_digits),
        "## Requirements on four-momenta\n\n" + requirements_table(momenta_requirements(read)),
        "## Requirements on molecules\n\n"
        + requirements_table(molecule_requirements(read, read_step(results))),
        *(_section(name, read[name]) for name in VECTORS),
    ]
    varied = sensitivity(results)
    parts += [varied] if varied else []
    parts += [about_images(), *(_section(name, read[name]) for name in IMAGES)]
    parts += [about_momenta(), *(_section(name, read[name]) for name in AMPLITUDES)]
    started = event_starts(results)
    parts += [started] if started else []
    parts += [about_molecules(), *(_section(name, read[name]) for name in MOLECULES)]
    return "\n\n".join(parts) + "\n"


def _section(name: str, finished: Finished | None) -> str:
    heading = f"## {EXPERIMENTS[name].title}"
    if finished is None:
        missing = f"Not run: there is no `{name}.json` among the results."
        return f"{heading}\n\n{missing} To run it: `lieaugmenter reproduce {name}`."
    return f"{heading}\n\n{_SECTIONS.get(name, section)(finished)}"


def _opening(read: Sequence[Finished | None]) -> str:
    quick = [f"`{f.experiment.name}`" for f in read if f is not None and f.quick]
    warning = (
        f"\n\n**Quick runs, whose numbers mean nothing: {', '.join(quick)}.** They only show that "
        "the commands work."
        if quick
        else ""
    )
    return f"""# Reproduction

The paper's experiments, with the paper's numbers beside ours. This file is generated from
the results of `lieaugmenter reproduce NAME`; `make reproduction` writes it anew. Every number is
from those results, from the paper's tables, or follows from a formula that stands beside it.

How to read the tables:

- **paper**: what the paper reports.
- **ours, the paper's settings**: our code with the settings that the paper gives. Baselines have
  the settings that were published for them.
- **ours, own settings**: our code with this project's settings. The learning rate falls as a
  cosine, the range of the coefficients grows at first, the data are scaled. This column exists for
  no augmentation, the oracle and LieAugmenter, and for Augerino on molecules. What they are for
  images and molecules stands in [Images](#images) and [Molecules](#molecules).
- A value is the mean ± the standard deviation over seeds. The best mean of a row is bold: the
  lowest, of accuracies the highest.
- Seeds that diverged are counted in the cell. The mean is over the others and is never bold.
- Two values differ by more than both spreads when their means are farther apart than the sum of
  their standard deviations.

The paper does not give the widths of its networks, nor the law from which elements are drawn for
the equivariance errors. There the paper's settings are this project's guess.{warning}"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the document from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m lieaugmenter.report.reproduction",
        description=(__doc__ or "").split("\n")[0],
    )
    parser.add_argument("results", type=Path, help="folder with a .json for each experiment")
    parser.add_argument("document", type=Path, help="Markdown file to write")
    parsed = parser.parse_args(arguments)
    try:
        write_reproduction(parsed.results, parsed.document)
    except (RunError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()

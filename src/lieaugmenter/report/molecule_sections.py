"""The section of an experiment on molecules in the reproduction document."""

from __future__ import annotations

from collections.abc import Sequence

from lieaugmenter.experiments.catalogue import MOLECULES
from lieaugmenter.experiments.results import of_method
from lieaugmenter.experiments.spec import Method
from lieaugmenter.report.comparison import each_seed, finders, measure_table
from lieaugmenter.report.finished import Finished
from lieaugmenter.report.measures import MAE, NO_VALUE, measures_of
from lieaugmenter.report.molecule_figures import molecule_captions
from lieaugmenter.report.sections import pictures, settings_line
from lieaugmenter.report.words import label, whose

_DISCOVERY = (
    ("span-cosine", "smallest principal cosine with se(3)"),
    ("span-overlap", "mean square of the six"),
    ("closure", "closure residual"),
)


def about_molecules() -> str:
    """The section before the experiments on molecules."""
    experiment = next(iter(MOLECULES.values()))
    own = experiment.run_as(Method("lieaugmenter"), quick=False)
    width, blocks = experiment.hidden
    return "\n\n".join(
        [
            "## Molecules",
            f"LieConv of the trivial group, {width} channels and {blocks} blocks, on QM9's "
            "100,000 / 17,748 / 13,083 molecules; positions in Å as published, labels with mean 0 "
            "and deviation 1 for every method. Generators are 4 × 4 in homogeneous coordinates, "
            f"{experiment.n_generators} of them with twelve entries each, of norm √3.",
            "The paper's numbers of no augmentation, the oracle and Augerino are those of "
            "Augerino's authors, LieGAN's those of its authors: batches of 75, a rate of 3e-3 that "
            "falls as a cosine, translations of half an Å and rotations drawn evenly. Here every "
            "method has the paper's batch, views and range. Absolute errors are trained "
            "throughout: the paper names squared ones for regression in general and says nothing "
            "of molecules.",
            f"Own settings: {own.epochs} epochs by Muon, where the paper has {experiment.epochs} "
            f"by Adam; a rate of {experiment.own_lr:g} that rises over the first twentieth of "
            "training and falls as a cosine; the range grows over the first "
            f"{100 * experiment.warmup:g} % of training from a tenth of γ; a running "
            f"average of the weights over {100 * experiment.own_average:g} % of training; "
            f"predictions are averages over {experiment.own_views} views (with the paper's "
            f"settings over {experiment.n_views}). No other network is trained beside. Muon and "
            "its rate were chosen with a network of 256 channels on 6,000 small molecules, by "
            "validation errors ([decisions](decisions.md)); the number of epochs is what fitted "
            "into seven minutes. On a GPU networks are trained, and predict, in bfloat16 with "
            "float32 statistics.",
            "Augerino learns the widths of twelve affine generators, from [0, 1], with the reward "
            "that was published for molecules; otherwise it has own settings. Of LieGAN on "
            "molecules neither code nor the basis that it found is known to be published: it is "
            "played here, for as many epochs as the networks are trained, with the published "
            "discriminator on the flattened molecule, six generators, and a cosine that weighs 1, "
            "as for trajectories and jets; its coefficients are normal.",
        ]
    )


def molecule_section(finished: Finished) -> str:
    """What there is to say of an experiment, without its heading."""
    parts = [settings_line(finished)]
    for measure in measures_of(finished.experiment):
        table = measure_table(finished, measure)
        if table:
            parts.append(f"### {measure.title}\n\n{table}")
    if finished.unfinished:
        parts.append("### Not finished\n\n" + _not_finished(finished))
    parts.append("### Discovery\n\n" + _discovery(finished))
    return "\n\n".join(parts + pictures(molecule_captions(finished)))


def _not_finished(finished: Finished) -> str:
    """How far trainings came that were stopped, beside LieAugmenter after as many epochs."""
    lines = ["| | settings | epochs | error then | LieAugmenter's then |", "|---|---|---|---|---|"]
    ours = [run.get("test-curve", []) for run in finished.of(Method("lieaugmenter"))[:1]]
    whole = [run.get("test-curve", []) for run in finished.results]
    changes: list[float] = []
    for method in finished.experiment.methods:
        for run in of_method(finished.unfinished, method.name):
            done, of = run["epochs"], run["of"]
            beside = [_error_after(done, curve) for curve in ours] or ["not run"]
            cells = [label(method.row), whose(method), f"{done} of {of}"]
            cells += [_error_after(done, run["test-curve"]), *beside]
            lines.append(f"| {' | '.join(cells)} |")
            ends = [(c[-1], c[done - 1]) for c in whole if len(c) == of > done]
            changes += [last / then for last, then in ends if last and then]
    later = (
        f" At the end of a finished training the error is {min(changes):.3f} to {max(changes):.3f} "
        "times what it is after as many epochs."
    )
    return (
        "Stopped by a limit of time: these numbers are no results. The errors are of direct "
        f"predictions on {finished.experiment.curve:,} molecules of the test set, as in the "
        f"curves.{later if changes else ''}\n\n" + "\n".join(lines)
    )


def _error_after(epochs: int, curve: Sequence[float | None]) -> str:
    error = curve[epochs - 1] if epochs <= len(curve) else None
    return NO_VALUE if error is None else MAE.write(error)


def _discovery(finished: Finished) -> str:
    lines = [
        f"| | settings | {' | '.join(words for _, words in _DISCOVERY)} |",
        "|---|---|" + "---|" * len(_DISCOVERY),
    ]
    for method in finders(finished.experiment):
        runs = finished.of(method)
        cells = [each_seed(runs, finished.statistic(method, key), key) for key, _ in _DISCOVERY]
        lines.append(f"| {label(method.row)} | {whose(method)} | {' | '.join(cells)} |")
    return "\n".join(lines) + (
        "\n\nMean ± standard deviation, and after the colon the value of every seed "
        f"({', '.join(map(str, finished.seeds))}). All six principal cosines are 1 where the spans "
        "agree, whatever generators span them. The closure residual is the part of the brackets "
        "that leaves the span, 0 for a Lie algebra." + _widths(finished)
    )


def _widths(finished: Finished) -> str:
    """What Augerino found: the first three of its generators are turns, the last translations."""
    said = []
    for method in finished.experiment.methods:
        for run in finished.of(method):
            if len(widths := run.get("widths", [])) == 12:
                turns, others, shifts = widths[:3], widths[3:9], widths[9:]
                said.append(
                    f"Augerino's widths, {whose(method)} settings, seed {run['seed']}: turns "
                    f"{_each(turns)}; translations {_each(shifts)}; the six that are no rigid "
                    f"motions at most {max(others):.2g}."
                )
    return "\n\n" + " ".join(said) if said else ""


def _each(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)

"""What the document says of four-momenta: requirements, which boosts and turns were found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lieaugmenter.experiments.amplitudes import FRAMES, SIZES
from lieaugmenter.experiments.catalogue import AMPLITUDES
from lieaugmenter.experiments.momenta import NAMES
from lieaugmenter.experiments.spec import Method
from lieaugmenter.report.comparison import each_seed, finders, measure_table
from lieaugmenter.report.finished import Finished, has_diverged
from lieaugmenter.report.measures import MSE, NO_VALUE, SECONDS, measures_of, small
from lieaugmenter.report.momenta_figures import momenta_captions
from lieaugmenter.report.requirements import Requirement, mean_of, on_every_seed, on_the_mean
from lieaugmenter.report.sections import pictures, settings_line
from lieaugmenter.report.words import label, listed, seed_count, whose

_LABORATORY, _FRAMES, _TOY = "amplitudes", "amplitudes-boosted", "pair-mass"
_KNOWN_BEFORE = "but known from the inputs before training"
_OURS, _PLAIN, _WHOLE = Method("lieaugmenter"), Method("trivial"), Method("oracle", "whole")
_PLAIN_FACTOR = 1.2
_BEAM_COSINE, _LORENTZ_COSINE = 0.99, 0.95
# A generator that breaks the events' equations by less leads from events to events: rounding.
_STAYS = 1e-5
_ALSO_PLAIN = (
    "With own settings LieAugmenter's generators begin where a plain network changes least: that "
    "network's training, as long as the one of no augmentation, comes before and is not in its "
    "seconds."
)
# How both predict where validation data do not choose.
_WAYS = {"mse-direct": "of direct predictions", "mse-averaged": "of averages"}


def momenta_requirements(read: Mapping[str, Finished | None]) -> list[Requirement]:
    """What LieAugmenter with this project's settings should reach on four-momenta."""
    laboratory, frames = read[_LABORATORY], read[_FRAMES]
    experiment = AMPLITUDES[_LABORATORY]
    below = _against(laboratory, _WHOLE, 1.0, "MSE below that of augmentation by the whole group")
    beam = on_every_seed(experiment, laboratory, _OURS, "beam-cosine", _BEAM_COSINE)
    fifth = on_every_seed(AMPLITUDES[_FRAMES], frames, _OURS, "fifth-cosine", _LORENTZ_COSINE)
    return [
        _with(below, _otherwise(laboratory)),
        _against(laboratory, _PLAIN, _PLAIN_FACTOR, "MSE near that of no augmentation"),
        _with(beam, _KNOWN_BEFORE),
        _with(fifth, _KNOWN_BEFORE),
        on_every_seed(AMPLITUDES[_TOY], read[_TOY], _OURS, "span-cosine", _LORENTZ_COSINE),
    ]


def _with(requirement: Requirement, words: str) -> Requirement:
    """A requirement that is reached, with what a reader has to know of that."""
    if requirement.outcome != "reached" or not words:
        return requirement
    return replace(requirement, outcome=f"reached, {words}")


def _otherwise(laboratory: Finished | None) -> str:
    """How both methods compare when validation data do not choose how they predict."""
    said = []
    for key, words in _WAYS.items():
        measure = replace(MSE, key=key)
        ours, theirs = mean_of(laboratory, _OURS, measure), mean_of(laboratory, _WHOLE, measure)
        if ours is not None and theirs is not None:
            said.append(f"{words} {small(ours.mean)} against {small(theirs.mean)}")
    ours, theirs = mean_of(laboratory, _OURS, MSE), mean_of(laboratory, _WHOLE, MSE)
    if not said or ours is None or theirs is None:
        return ""
    close = abs(ours.mean - theirs.mean) < ours.std + theirs.std
    near = ", by less than the sum of both spreads" if close else ""
    return f"as validation data chose to predict{near}; {'; '.join(said)}"


def _against(finished: Finished | None, other: Method, factor: float, what: str) -> Requirement:
    theirs = mean_of(finished, other, MSE)
    bar = factor * theirs.mean if theirs else None
    times = "" if factor == 1 else f"{factor:g} × "
    return on_the_mean(
        AMPLITUDES[_LABORATORY],
        finished,
        _OURS,
        MSE,
        what=what,
        bar=bar,
        bar_text=NO_VALUE if bar is None else f"{times}ours: {small(bar)}",
    )


def about_momenta() -> str:
    """The section before the experiments on four-momenta."""
    experiment = AMPLITUDES[_LABORATORY]
    train, validation, test = SIZES
    return "\n\n".join(
        [
            "## Four-momenta",
            "The paper predicts the squared amplitude of q q̄ → Z g g from published events and "
            "shows two pictures, without numbers and without the settings of its own method. "
            "Here the events are computed: tree-level Feynman rules, gluons with pT > 20 GeV and "
            "ΔR > 0.4, final states uniform in phase space (not as likely as they are in a "
            "collider), centre-of-mass energies of 200 to 2000 GeV with a uniform logarithm, and a "
            "rapidity of up to 1.5 along the beam. The target is the standardised logarithm. There "
            "are "
            f"{train:,} events for training, {validation:,} for validation and {test:,} for "
            f"testing; {experiment.epochs} epochs are "
            f"{experiment.epochs * train // experiment.batch_size:,} steps, where the reference "
            "has a million.",
            "Generators act on momenta in one unit, before each component is standardised, which "
            "is the network's first layer. In the laboratory the beam is along z. In random frames "
            "every event is turned uniformly and boosted with a rapidity of up to "
            f"{FRAMES:g}. The oracle draws coefficients of the true generators up to γ; with the "
            "whole group it draws uniform turns and boosts whose rapidities have a deviation of "
            "0.1 in each direction. "
            f"L-GATr has {experiment.epochs_of['lgatr']} epochs, because its steps take longer: "
            "a quarter of the transformer's steps, as in the reference.",
            "With own settings LieAugmenter's generators begin at those of all linear ones that "
            "keep what all events have in common, which takes no label, and beside these where a "
            "plain network changes least. So the cosines with what leads from events to events are "
            "1, or nearly, before training: they say that joint training keeps these generators, "
            "not that it finds them. What it comes to from the paper's constant start, a small "
            "transformer tells at the end of this part. Of the toy no equation is known, and its "
            "generators begin at the constant: there the algebra is found from labels.",
            "The paper's weights for this task are not known: they are those of its other task "
            f"with six generators. γ = {experiment.range:g} is ours: with that task's γ = 3 a "
            f"boost would multiply a gluon's energy by up to {math.exp(3 * math.sqrt(2)):.0f}.",
        ]
    )


def momenta_section(finished: Finished) -> str:
    """What there is to say of an experiment on four-momenta, without its heading."""
    parts = [settings_line(finished), identifiable(finished)]
    for measure in measures_of(finished.experiment):
        table = measure_table(finished, measure)
        if table:
            parts.append(f"### {measure.title}\n\n{table}")
        if measure is MSE:
            parts += [_about_order(finished), _about_lgatr(finished)]
        if table and measure is SECONDS and finished.experiment.own_start:
            parts.append(_ALSO_PLAIN)
    parts.append("### Discovery\n\n" + _spans(finished))
    parts.append(_generators(finished))
    return "\n\n".join([part for part in parts if part] + pictures(momenta_captions(finished)))


def _about_order(finished: Finished) -> str:
    """The paper's picture has the whole group far above the others: whether that is seen here."""
    direct = replace(MSE, key="mse-direct")
    plain, whole = mean_of(finished, _PLAIN, direct), mean_of(finished, _WHOLE, direct)
    if plain is None or whole is None:
        return ""
    seen = "" if whole.mean > plain.mean + plain.std + whole.std else "not "
    return (
        "In the paper's picture L-GATr, the plain transformer and LieAugmenter are close together, "
        "and augmentation by the whole group is clearly worse. The latter is "
        f"{seen}seen here: of direct predictions the whole group has {small(whole.mean)}, the "
        f"plain transformer {small(plain.mean)}. Here boosts have a deviation of 0.1 and training "
        "is short."
    )


def _about_lgatr(finished: Finished) -> str:
    """L-GATr ends far above the others, where the paper's picture has it among the lowest."""
    method = Method("lgatr")
    ours, theirs = mean_of(finished, method, MSE), mean_of(finished, _PLAIN, MSE)
    if ours is None or theirs is None or ours.mean < theirs.mean:
        return ""
    steps = finished.experiment.epochs_of["lgatr"] * SIZES[0] // finished.experiment.batch_size
    seeds = ", ".join(small(run["mse"]) for run in finished.of(method) if not has_diverged(run))
    return (
        f"*L-GATr* (seeds: {seeds}) is above the plain transformer here; in the paper's picture "
        f"both are close. It had {steps:,} steps, where its authors give it 250,000 (all methods "
        "here have a small part of the reference's steps), and the transformer's learning rate, "
        "which was not chosen for it: read its row as a network that was not trained long enough, "
        "not as what it can do."
    )


def identifiable(finished: Finished) -> str:
    """What the events can say about the Lorentz group, from the equations that they fulfil."""
    run = next((r for r in finished.results if "leaving" in r), None)
    if run is None:
        return ""
    inside = [name for name, off in zip(NAMES, run["leaving"], strict=True) if off <= _STAYS]
    outside = [name for name in NAMES if name not in inside]
    if not run["equations"]:
        return (
            "What the data can tell: no equation of up to the second degree in a momentum holds "
            "for all samples, so every linear motion leads to where samples may be."
        )
    said = (
        f"What the data can tell: all events fulfil {run['equations']} linearly independent "
        "equations of up to the second degree in a momentum, or of the first degree in all, "
        "products of others among them (mass shells, conservation of momentum, in the laboratory "
        "a beam along z). Of all linear generators "
        f"{run['covered']} keep them and lead from events to events; of the Lorentz algebra these "
        f"are: {listed(inside) if inside else 'none'}."
    )
    if run.get("covered-cosines"):
        cosines = run["covered-cosines"]
        said += (
            f" These {run['covered']} are known from the events alone, without a label: the least "
            f"of their cosines with the algebra is {min(cosines):.6f}."
        )
    if outside:
        said += (
            f" The others ({listed(outside)}) lead to where there are no events. No label speaks "
            "for or against them there: whether a method finds them says something about the "
            "method and its network, not about the data. Where the fifth and sixth cosine are "
            "small, the rest of the learned span is not of the Lorentz algebra."
        )
    return said


def _spans(finished: Finished) -> str:
    """Cosines of the learned span, for every seed."""
    columns = {
        "fifth-cosine": "fifth of six principal cosines with so(1,3)",
        "span-cosine": "least of them",
        "beam-cosine": "turn about the beam in the span",
        "covered-cosine": "least with what leads from events to events",
    }
    lines = [
        f"| | settings | {' | '.join(columns.values())} |",
        "|---|---|" + "---|" * len(columns),
    ]
    for method in finders(finished.experiment):
        runs, name = finished.of(method), label(method.row)
        ends = {name: "", f"{name}, before training": "start-"}
        for words, prefix in ends.items():
            if prefix and not any("start-span-cosine" in run for run in runs):
                continue
            keys = [f"{prefix}{key}" for key in columns]
            cells = [each_seed(runs, finished.statistic(method, key), key) for key in keys]
            lines.append(f"| {words} | {whose(method)} | {' | '.join(cells)} |")
    return "\n".join(lines) + (
        "\n\nMean ± standard deviation, and after the colon the value of every seed "
        f"({', '.join(map(str, finished.seeds))}). Principal cosines compare the span of the six "
        "learned generators with the six boosts and turns, whatever basis is chosen in either."
    )


def _generators(finished: Finished) -> str:
    """Each boost and turn: whether events, spans and networks know it."""
    columns: list[tuple[str, Method, str]] = [
        ("in the span", method, "generator-cosines") for method in finders(finished.experiment)
    ]
    columns += [
        ("defect", method, "defects")
        for method in finished.experiment.methods
        if not method.kind.endswith("-paper")
    ]
    columns = [column for column in columns if _rows(finished, *column[1:])]
    first = next((r["leaving"] for r in finished.results if "leaving" in r), None)
    if not columns or first is None:
        return ""
    heads = [f"{words}: {label(method.row)}, {whose(method)}" for words, method, _ in columns]
    lines = [
        f"| generator | leads off the events | {' | '.join(heads)} |",
        "|---|---|" + "---|" * len(heads),
    ]
    for i, name in enumerate(NAMES):
        cells = [f"{_mean([row[i] for row in _rows(finished, *c[1:])]):.3f}" for c in columns]
        off = "no" if first[i] <= _STAYS else f"{first[i]:.2g}"
        lines.append(f"| {name} | {off} | {' | '.join(cells)} |")
    return "\n".join(lines) + (
        f"\n\nMeans over {seed_count(len(finished.seeds))}. *Leads off the events*: by how much "
        "the motion breaks their equations, relative to how far it moves them. *In the span*: the "
        "cosine with its nearest direction in the learned span." + _about_defects(columns)
    )


def _about_defects(columns: Sequence[tuple[str, Method, str]]) -> str:
    if not any(key == "defects" for _, _, key in columns):
        return ""
    return (
        " *Defect*: the root mean square by which the network that predicts changes along the "
        "motion, relative to random directions; 0 for a symmetry of the network."
    )


def _rows(finished: Finished, method: Method, key: str) -> list[Sequence[float]]:
    runs: list[Mapping[str, Any]] = [r for r in finished.of(method) if not has_diverged(r)]
    return [run[key] for run in runs if run.get(key)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

"""Rotated digits with one setting changed at a time, and with less data, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.report.comparison import cell
from lieaugmenter.report.finished import Finished
from lieaugmenter.report.measures import ACCURACY, Measure, as_text, paper_value
from lieaugmenter.report.words import KINDS, SYMBOLS, whose

ABLATIONS, SAMPLES = "rotated-mnist-ablations", "rotated-mnist-samples"
# What is varied, in words.
TITLES = {
    "prediction": "weight of the prediction",
    "equivariance": "weight of the equivariance",
    "similarity": "weight of the similarity",
    "sparsity": "weight of the sparsity",
    "views": "views of a sample",
    "range": "range of the coefficients",
    "generators": "number of generators",
}
# The two ways of running LieAugmenter, with their columns.
WAYS = {"lieaugmenter-paper": "the paper's settings", "lieaugmenter": "own settings"}
COSINE = Measure("cosine", "Absolute cosine", lambda value: f"{value:.4f}", higher=True)
SPAN_COSINE = Measure("span-cosine", "Cosine of the span", COSINE.write, higher=True)

_WRAP = (
    "The paper's text has the elements of a rotation wrap around from γ = 5 on, and fill [-2π, 2π] "
    "at γ = 13. No generator does both: with the entry a its angles reach ±aγ, so that the first "
    f"needs an a above π/5 = {math.pi / 5:.2f}, the second 2π/13 = {2 * math.pi / 13:.2f}. Here a "
    f"is 1, as of a rotation by one radian, and wrapping begins at γ = π = {math.pi:.2f}. With own "
    "settings the range grows, for longer the wider it is."
)
_SEVERAL = (
    "The true algebra has one generator. With more than one to learn, the cosine is that of the "
    "true generator with the space that the learned ones span: 1 where some combination of them "
    "is the true one."
)


def values_of(experiment: Experiment) -> dict[str, list[float]]:
    """What an experiment varies, and the values of it, in order."""
    found: dict[str, set[float]] = {}
    for method in experiment.methods:
        if method.setting is not None:
            name, value = method.setting
            found.setdefault(name, {experiment.unchanged[name]}).add(value)
    return {name: sorted(values) for name, values in found.items()}


def ways_of(experiment: Experiment, name: str) -> list[str]:
    """The ways in which a setting is varied."""
    found = {method.kind for method in experiment.methods if (method.setting or ("",))[0] == name}
    return [kind for kind in WAYS if kind in found]


def method_at(kind: str, name: str, value: float) -> Method:
    """The method of a kind that has a setting at a value."""
    return Method(kind, f"{name}-{value:g}")


def closeness(name: str, value: float) -> Measure:
    """How generators are compared with the true one: several by what they span."""
    return SPAN_COSINE if name == "generators" and value > 1 else COSINE


def ablation_tables(finished: Finished) -> list[str]:
    """A part of the section for each setting."""
    return [
        f"### {TITLES[name][0].upper()}{TITLES[name][1:]}, {SYMBOLS[name]}\n\n"
        + _ablation_table(finished, name, values)
        for name, values in values_of(finished.experiment).items()
    ]


def _ablation_table(finished: Finished, name: str, values: Sequence[float]) -> str:
    with_paper = name == "range"
    ways = ways_of(finished.experiment, name)
    columns = (["paper"] if with_paper else []) + [WAYS[kind] for kind in ways]
    heads = [f"{measure}: {column}" for measure in ("accuracy", "cosine") for column in columns]
    lines = [f"| {SYMBOLS[name]} | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for value in values:
        cells = []
        for measure in (ACCURACY, closeness(name, value)):
            if with_paper:
                row = method_at("lieaugmenter", name, value).row
                cells.append(as_text(paper_value(finished.experiment, row, measure.key), measure))
            cells += [cell(finished, method_at(kind, name, value), measure) for kind in ways]
        lines.append(f"| {value:g} | {' | '.join(cells)} |")
    said = {"range": [_WRAP], "generators": [_SEVERAL, *_redundant(finished, values)]}.get(name, [])
    return "\n\n".join(["\n".join(lines), *said])


def _redundant(finished: Finished, values: Sequence[float]) -> list[str]:
    """How many of the learned generators are copies of others."""
    said = []
    for value in values:
        runs = finished.of(method_at("lieaugmenter", "generators", value))
        found = [run["directions"] for run in runs if run.get("directions") is not None]
        if found:
            counts = ", ".join(map(str, found))
            said.append(f"{value:g} generators: {counts}")
    if not said:
        return []
    return [
        "Independent directions among the learned generators, by seed: "
        f"{'; '.join(said)}. The others are copies, up to sign, and redundant."
    ]


def sample_kinds(experiment: Experiment) -> list[str]:
    """The kinds of methods that an experiment has, in order."""
    return list(dict.fromkeys(method.kind for method in experiment.methods))


def kind_label(kind: str) -> str:
    """A kind of method for readers, with its settings where it has two.

    >>> kind_label("liegan"), kind_label("lieaugmenter")
    ('LieGAN', 'LieAugmenter, own settings')
    """
    name = KINDS[kind.removesuffix("-paper")]
    return f"{name}, {whose(Method(kind))} settings" if kind in WAYS else name


def sample_table(finished: Finished) -> str:
    """Accuracies by method and share of the training data."""
    shares = values_of(finished.experiment)["data"]
    lines = [
        f"| test accuracy (%) | {' | '.join(f'{100 * share:g} %' for share in shares)} |",
        "|---|" + "---|" * len(shares),
    ]
    for kind in sample_kinds(finished.experiment):
        cells = [cell(finished, method_at(kind, "data", share), ACCURACY) for share in shares]
        lines.append(f"| {kind_label(kind)} | {' | '.join(cells)} |")
    return "\n".join(lines)

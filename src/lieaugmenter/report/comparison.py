"""The paper's numbers and ours, row by row, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lieaugmenter.experiments.results import Statistic, of_method, statistic
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.experiments.targets import TARGETS, Reported
from lieaugmenter.runs import read_json

KINDS = {
    "emlp": "EMLP",
    "trivial": "no augmentation",
    "oracle": "oracle",
    "augerino": "Augerino+",
    "liegan": "LieGAN",
    "liegg": "LieGG",
    "lieaugmenter": "LieAugmenter",
}
VARIANTS = {
    "mask0": "no mask",
    "mask2": "mask 2",
    "mask4": "mask 4",
    "continuous": "continuous",
    "discrete": "discrete",
}
DISCOVERY = (
    ("cosine", "absolute cosine"),
    ("cosine-on-data", "absolute cosine on the data"),
    ("cosine-on-span", "on the span of the data"),
    ("projection", "Frobenius projection"),
)
NO_VALUE = "–"
# How a predictor can predict, as results name it.
_WAYS = ("averaged", "direct", "plain")
# Methods that find a generator.
_FINDERS = ("augerino", "liegan", "liegg", "lieaugmenter-paper", "lieaugmenter")
# The paper has one task without symmetry, of which there are two readings.
_SAME_TASK = {"no-symmetry-deviation": "no-symmetry"}


@dataclass(frozen=True)
class Measure:
    """A table of an experiment's section.

    Attributes
    ----------
    key, title
        In a result, and for readers.
    write
        One number as text.
    note
        How to read it.
    """

    key: str
    title: str
    write: Callable[[float], str]
    note: str = ""


def small(value: float) -> str:
    """As the paper's tables have it."""
    return f"{value:.2e}"


def _plain(value: float) -> str:
    """Three digits, and no power of ten where there need be none.

    >>> _plain(508.0), _plain(0.04631)
    ('508', '0.0463')
    """
    return f"{value:.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


def _four_digits(value: float) -> str:
    return f"{value:#.4g}"


MSE = Measure("mse", "Test error (MSE)", small)
SECONDS = Measure("train-seconds", "Training time (seconds)", _plain)
MEASURES = (
    MSE,
    Measure(
        "equivariance",
        "Equivariance error, averages over elements compared",
        small,
        "The errors of single elements can cancel in it. Mean over output dimensions.",
    ),
    Measure(
        "equivariance-2",
        "Equivariance error, average over elements of the error",
        small,
        "Nothing cancels in it. Mean over output dimensions.",
    ),
    SECONDS,
    Measure(
        "displacement",
        "Distance from doing nothing: E‖gx - x‖₂",
        _four_digits,
        "Smaller is closer to the identity.",
    ),
    Measure(
        "distance",
        "Distance from doing nothing: E‖g - I‖_F",
        _four_digits,
        "Smaller is closer to the identity.",
    ),
)


@dataclass(frozen=True)
class Finished:
    """An experiment and the file of its results."""

    experiment: Experiment
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    results: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, folder: Path, experiment: Experiment) -> Finished | None:
        """The results of an experiment, or None where there are none."""
        path = folder / f"{experiment.name}.json"
        if not path.is_file():
            return None
        content = read_json(path)
        return cls(
            experiment, content["settings"], content["environment"] or {}, content["results"]
        )

    @property
    def quick(self) -> bool:
        """Whether it only shows that the commands work."""
        return bool(self.settings["quick"])

    @property
    def seeds(self) -> list[int]:
        """Of all methods together."""
        return sorted({result["seed"] for result in self.results})

    def of(self, method: Method) -> list[Mapping[str, Any]]:
        """The results of a method, by seed."""
        return sorted(of_method(self.results, method.name), key=lambda result: result["seed"])

    def statistic(self, method: Method | None, measure: str) -> Statistic | None:
        """Over the seeds that did not diverge."""
        if method is None:
            return None
        return statistic([r for r in self.of(method) if not has_diverged(r)], measure)

    def diverged(self, method: Method) -> int:
        """How many seeds did."""
        return sum(has_diverged(result) for result in self.of(method))


def has_diverged(result: Mapping[str, Any]) -> bool:
    """Whether training did, or ended in a network whose test error is not finite."""
    # A test error that is not finite is kept as null.
    return "diverged" in result or ("mse" in result and result["mse"] is None)


def device_of(finished: Finished) -> str:
    """What the methods ran on."""
    used = {str(result.get("device", "unknown")) for result in finished.results}
    threads = finished.environment.get("threads")
    names = []
    for device in sorted(used):
        if device == "cpu":
            names.append("CPU" + (f" ({threads} threads)" if threads and threads > 1 else ""))
        else:
            known = finished.environment.get("device", "cpu")
            names.append(device if known == "cpu" else str(known))
    return " and ".join(names)


def seed_count(count: int) -> str:
    """That many seeds, in words."""
    return "1 seed" if count == 1 else f"{count} seeds"


def label(row: str) -> str:
    """A row of the paper, for readers.

    >>> label("lieaugmenter-mask2"), label("trivial")
    ('LieAugmenter, mask 2', 'no augmentation')
    """
    kind, _, variant = row.partition("-")
    return f"{KINDS[kind]}, {VARIANTS[variant]}" if variant else KINDS[kind]


# ----------------------------------------------------------------------------------------- a table


def rows_of(experiment: Experiment) -> list[str]:
    """The paper's rows; LieGG has none, because it predicts nothing."""
    rows = [method.row for method in experiment.methods if method.kind != "liegg"]
    return list(dict.fromkeys(rows))


def _method(experiment: Experiment, row: str, *, own: bool) -> Method | None:
    found = [m for m in experiment.methods if m.row == row and m.ours == own]
    return found[0] if found else None


def paper_value(experiment: Experiment, row: str, measure: str) -> Reported | None:
    """What the paper reports, if it does."""
    name = _SAME_TASK.get(experiment.name, experiment.name)
    return TARGETS.get((name, row, measure))


def measure_table(finished: Finished, measure: Measure) -> str:
    """The rows of one measure with what is to be said about them; empty where it was not taken."""
    experiment = finished.experiment
    proximity = measure.key in ("displacement", "distance")
    if proximity and not experiment.name.startswith("no-symmetry"):
        return ""
    lines, any_value = [], False
    for row in rows_of(experiment):
        reported = paper_value(experiment, row, measure.key)
        methods = [_method(experiment, row, own=own) for own in (False, True)]
        ours = [finished.statistic(method, measure.key) for method in methods]
        any_value |= any(value is not None for value in ours)
        if proximity and reported is None:
            continue
        values = [reported, *ours]
        texts = [as_text(reported, measure)] + [
            _cell(finished, method, value, measure)
            for method, value in zip(methods, ours, strict=True)
        ]
        # A mean that leaves out seeds which diverged is no best.
        whole = [reported is not None] + [
            value is not None and method is not None and not finished.diverged(method)
            for method, value in zip(methods, ours, strict=True)
        ]
        means = [
            value.mean if value and w else math.inf for value, w in zip(values, whole, strict=True)
        ]
        if sum(value is not None for value in values) > 1 and not finished.quick:
            best = min(means)
            texts = [
                f"**{text}**" if mean == best < math.inf else text
                for text, mean in zip(texts, means, strict=True)
            ]
        lines.append(f"| {label(row)} | {' | '.join(texts)} |")
    if not any_value and measure is not MSE:
        return ""
    head = ["| | paper | ours, the paper's settings | ours, own settings |", "|---|---|---|---|"]
    said = [measure.note] if measure.note else []
    said += _about_time(finished) if measure.key == "train-seconds" else []
    said += _differences(finished, measure)
    said += [*_divergence(finished), *_fallbacks(finished)] if measure.key == "mse" else []
    return "\n".join(head + lines) + "".join(f"\n\n{text}" for text in said)


def as_text(value: Reported | Statistic | None, measure: Measure) -> str:
    """Mean ± standard deviation."""
    if value is None:
        return NO_VALUE
    # Durations of the paper have no spread, and those of a stack are all the same.
    if value.std is None or (value.std == 0 and measure.key == "train-seconds"):
        return measure.write(value.mean)
    return f"{measure.write(value.mean)} ± {measure.write(value.std)}"


def _cell(
    finished: Finished, method: Method | None, value: Statistic | None, measure: Measure
) -> str:
    if method is None:
        return NO_VALUE
    runs = finished.of(method)
    if not runs:
        return "not run"
    diverged = finished.diverged(method)
    if diverged == len(runs):
        return f"diverged ({diverged} of {len(runs)})"
    text = as_text(value, measure)
    if value is None:
        return text
    if diverged:
        return f"{text} ({diverged} of {len(runs)} diverged)"
    return text if value.n == len(finished.seeds) else f"{text} ({seed_count(value.n)})"


def _differences(finished: Finished, measure: Measure) -> list[str]:
    """A sentence for each of our columns: where it differs from the paper's, and by how much."""
    sentences = []
    if finished.quick:
        return sentences
    for own, column in ((False, "the paper's settings"), (True, "own settings")):
        lower, higher = [], []
        for row in rows_of(finished.experiment):
            reported = paper_value(finished.experiment, row, measure.key)
            method = _method(finished.experiment, row, own=own)
            ours = finished.statistic(method, measure.key)
            if method is None or reported is None or ours is None or reported.std is None:
                continue
            if abs(ours.mean - reported.mean) > ours.std + reported.std:
                is_lower = ours.mean < reported.mean
                lost = ", seeds diverged" if finished.diverged(method) else ""
                (lower if is_lower else higher).append(
                    f"{label(row).replace(', ', ' ')} ({factor(ours.mean, reported.mean)}{lost})"
                )
        found = [
            f"**{word}** than the paper's for {_listed(rows)}"
            for word, rows in (("lower", lower), ("higher", higher))
            if rows
        ]
        if found:
            sentences.append(
                f"With {column} ours is, by more than both spreads and by the factor in brackets, "
                f"{'; '.join(found)}."
            )
    return sentences


def factor(a: float, b: float) -> str:
    """How many times the smaller the larger is.

    >>> factor(2e-5, 1e-4), factor(0.0, 1.0)
    ('× 5.0', '× ∞')
    """
    low, high = sorted((a, b))
    if low <= 0:
        return "× ∞"
    ratio = high / low
    if ratio >= 100:
        return f"× {_plain(ratio)}"
    return f"× {ratio:.2f}" if ratio < 2 else f"× {ratio:.1f}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _divergence(finished: Finished) -> list[str]:
    said = []
    for method in finished.experiment.methods:
        count = finished.diverged(method)
        if count:
            said.append(f"`{method.name}` ({count} of {len(finished.of(method))} seeds)")
    return [f"Training diverged for {_listed(said)}."] if said else []


def _fallbacks(finished: Finished) -> list[str]:
    """Where validation data decided how a method predicts, and what averaging would have given."""
    said = []
    for method in finished.experiment.methods:
        ways = [str(run["inference"]) for run in finished.of(method) if "inference" in run]
        if method.kind == "lieaugmenter" and ways:
            counts = [f"{ways.count(way)} × {way}" for way in _WAYS if way in ways]
            averaged = as_text(finished.statistic(method, "mse-averaged"), MSE)
            said.append(f"{label(method.row)}: {', '.join(counts)}; all averaged {averaged}")
    if not said:
        return []
    return [
        "With own settings LieAugmenter predicts in the way that does best on the validation data: "
        "averaged over elements, directly, or by a plain network that was trained without "
        "augmentation beside it (its training is not in the seconds). The seeds chose, and "
        f"averaging would have given: {'; '.join(said)}."
    ]


def _about_time(finished: Finished) -> list[str]:
    said = [
        f"The machines differ: ours is {device_of(finished)}, the paper's are A100 and others, so "
        "the factors are not those of the code alone."
    ]
    if any(result.get("stacked") for result in finished.results):
        said[0] += (
            " The seeds of a method were trained as one stacked model; the seconds are those of "
            "the stack, divided by its members."
        )
    workers = finished.settings.get("workers", 1)
    if workers > 1:
        said[0] += (
            f" Up to {workers} methods shared the device, so that each was slower than alone."
        )
    own = [
        f"{label(method.row)}: {as_text(seconds, SECONDS)}"
        for method in finished.experiment.methods
        if method.kind == "liegan"
        and (seconds := finished.statistic(method, "discovery-seconds")) is not None
    ]
    if own:
        said.append(
            "LieGAN's own training comes before the training in the table and is not in it, "
            f"neither in the paper's seconds nor in ours. Ours, each seed by itself, in seconds: "
            f"{'; '.join(own)}."
        )
    return said


# --------------------------------------------------------------------------------------- discovery


def discovery(finished: Finished) -> str:
    """Every seed's generator against the true one."""
    if not any("cosine" in result for result in finished.results):
        return "There is no true generator to compare with."
    lines = [
        f"| | settings | {' | '.join(words for _, words in DISCOVERY)} |",
        "|---|---|" + "---|" * len(DISCOVERY),
    ]
    for method in finders(finished.experiment):
        runs = finished.of(method)
        cells = [_each_seed(runs, finished.statistic(method, key), key) for key, _ in DISCOVERY]
        lines.append(f"| {label(method.row)} | {_whose(method)} | {' | '.join(cells)} |")
    said = (
        "Mean ± standard deviation, and after the colon the value of every seed "
        f"({', '.join(map(str, finished.seeds))}). The cosine on the data compares what the "
        "generators do to the training samples, the one on the span what they do to the space that "
        "the samples span: matrices that differ only off it move every sample alike. The "
        "projection is 1 where a generator is the true one with its size. LieGG's generators have "
        "norm 1, so their projection cannot reach 1."
    )
    return "\n".join(lines) + f"\n\n{said}"


def finders(experiment: Experiment) -> list[Method]:
    """The methods that leave a generator behind."""
    return [method for method in experiment.methods if method.kind in _FINDERS]


def _whose(method: Method) -> str:
    if method.ours:
        return "own"
    return "the paper's" if method.kind.endswith("-paper") else "published"


def _each_seed(runs: Iterable[Mapping[str, Any]], whole: Statistic | None, key: str) -> str:
    values = [
        "diverged" if has_diverged(run) else NO_VALUE if run.get(key) is None else f"{run[key]:.4f}"
        for run in runs
    ]
    if not values:
        return "not run"
    listed = ", ".join(values)
    return listed if whole is None else f"{whole.mean:.4f} ± {whole.std:.4f}: {listed}"

"""The paper's numbers and ours, row by row, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lieaugmenter.experiments.catalogue import AMPLITUDES, IMAGES, MOLECULES
from lieaugmenter.experiments.results import Statistic, of_method, read_results, statistic
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.experiments.targets import OTHER_DATA, TARGETS, Reported

KINDS = {
    "emlp": "EMLP",
    "lgatr": "L-GATr",
    "gcnn": "p4 CNN, flattened head",
    "gcnn-pooled": "p4 CNN, invariant head",
    "trivial": "no augmentation",
    "oracle": "oracle",
    "augerino": "Augerino+",
    "augerino-widths": "Augerino",
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
    "whole": "the whole group",
    "constant": "from the constant start",
}
# What an ablation sets, as the paper writes it.
SYMBOLS = {
    "prediction": "α",
    "equivariance": "β",
    "similarity": "λ",
    "sparsity": "ν",
    "views": "K",
    "range": "γ",
    "generators": "C",
    "data": "share of the training data",
}
DISCOVERY = (
    ("cosine", "absolute cosine"),
    ("cosine-on-data", "absolute cosine on the data"),
    ("cosine-on-span", "on the span of the data"),
    ("projection", "Frobenius projection"),
)
# What a generator does to an image is not compared.
IMAGE_DISCOVERY = tuple(one for one in DISCOVERY if one[0] in ("cosine", "projection"))
NO_VALUE = "–"
PRECISIONS = {"bf16": "bfloat16", "float32": "float32"}
# How a predictor can predict, as results name it.
_WAYS = ("averaged", "further", "direct", "plain")
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
    higher
        Whether more of it is better. It is then compared by differences, not by factors.
    of_paper
        Whether only rows are shown that the paper has.
    same_unit
        Whether ours and the paper's are known to be of one unit; if not, they are not compared.
    """

    key: str
    title: str
    write: Callable[[float], str]
    note: str = ""
    higher: bool = False
    of_paper: bool = False
    same_unit: bool = True

    def is_better(self, a: float, b: float) -> bool:
        """Whether a is better than b."""
        return a > b if self.higher else a < b

    def difference(self, a: float, b: float) -> str:
        """How far a and b are apart, for readers.

        >>> ACCURACY.difference(98.5, 99.0), MSE.difference(1.0, 4.0)
        ('0.50 points', '× 4.0')
        """
        return f"{abs(a - b):.2f} points" if self.higher else factor(a, b)


def small(value: float) -> str:
    """As the paper's tables have it."""
    return f"{value:.2e}"


def _plain(value: float) -> str:
    """Three digits, and no power of ten where there need be none.

    >>> _plain(508.0), _plain(0.04631)
    ('508', '0.0463')
    """
    return f"{value:.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


def _three_digits(value: float) -> str:
    return f"{value:#.3g}"


def _four_digits(value: float) -> str:
    return f"{value:#.4g}"


def per_cent(value: float) -> str:
    """As the paper's tables have accuracies."""
    return f"{value:.2f}"


MSE = Measure("mse", "Test error (MSE)", small)
SECONDS = Measure("train-seconds", "Training time (seconds)", _plain)
ACCURACY = Measure("accuracy", "Test accuracy (%)", per_cent, higher=True)
DIRECT = Measure(
    "accuracy-direct",
    "Alternative inference: test accuracy without averaging (%)",
    per_cent,
    "The network sees every test image once, as it is.",
    higher=True,
    of_paper=True,
)
EQUIVARIANCE = Measure(
    "equivariance",
    "Equivariance error of the logits, averages over elements compared",
    _three_digits,
    "The errors of single elements can cancel in it. Mean over the logits.",
    same_unit=False,
)
EQUIVARIANCE_2 = Measure(
    "equivariance-2",
    "Equivariance error of the logits, average over elements of the error",
    _three_digits,
    "Nothing cancels in it. Mean over the logits.",
    same_unit=False,
)
MAE = Measure("mae", "Test error (MAE in meV)", _three_digits)
MOLECULE_MEASURES = (
    MAE,
    Measure(
        "equivariance",
        "Equivariance error in eV, averages over elements compared",
        small,
        "The errors of single elements can cancel in it. Of what predicts, averages included.",
    ),
    Measure(
        "equivariance-2",
        "Equivariance error in eV, average over elements of the error",
        small,
        "Nothing cancels in it. The paper gives no unit; eV is this project's guess.",
        same_unit=False,
    ),
    SECONDS,
)
IMAGE_MEASURES = (ACCURACY, DIRECT, EQUIVARIANCE, EQUIVARIANCE_2, SECONDS)
_EACH_ELEMENT = Measure(
    "equivariance-2",
    "Equivariance error, average over elements of the error",
    small,
    "Nothing cancels in it. Mean over output dimensions.",
)
VECTOR_MEASURES = (
    MSE,
    Measure(
        "equivariance",
        "Equivariance error, averages over elements compared",
        small,
        "The errors of single elements can cancel in it. Mean over output dimensions.",
    ),
    _EACH_ELEMENT,
    SECONDS,
    Measure(
        "displacement",
        "Distance from doing nothing: E‖gx - x‖₂",
        _four_digits,
        "Smaller is closer to the identity.",
        of_paper=True,
    ),
    Measure(
        "distance",
        "Distance from doing nothing: E‖g - I‖_F",
        _four_digits,
        "Smaller is closer to the identity.",
        of_paper=True,
    ),
)
MOMENTA_MEASURES = (
    MSE,
    Measure(
        "mse-direct",
        "Test error (MSE) of direct predictions",
        small,
        "The network sees every event once, as it is; validation data have no say in it.",
    ),
    replace(
        _EACH_ELEMENT,
        title="Equivariance error under the Lorentz group",
        note="Of what predicts, averages included; elements are drawn up to γ along all six.",
    ),
    SECONDS,
)


def of_images(experiment: Experiment) -> bool:
    """Whether an experiment classifies images."""
    return experiment.name in IMAGES


def of_momenta(experiment: Experiment) -> bool:
    """Whether an experiment is one on four-momenta."""
    return experiment.name in AMPLITUDES


def measures_of(experiment: Experiment) -> tuple[Measure, ...]:
    """The tables of an experiment's section; the first one is always there."""
    if experiment.name in MOLECULES:
        return MOLECULE_MEASURES
    if of_momenta(experiment):
        return MOMENTA_MEASURES
    return IMAGE_MEASURES if of_images(experiment) else VECTOR_MEASURES


def _unchanged(folder: Path, experiment: Experiment) -> list[dict[str, Any]]:
    """Runs of the experiment that an ablation varies, under the names they would have in it."""
    path = folder / f"{experiment.base}.json"
    if not experiment.base or not path.is_file():
        return []
    varied = {(method.kind, method.setting[0]) for method in experiment.methods if method.setting}
    return [
        {**result, "method": Method(kind, f"{name}-{experiment.unchanged[name]:g}").name}
        for kind, name in sorted(varied)
        for result in of_method(read_results(path)["results"], kind)
    ]


@dataclass(frozen=True)
class Finished:
    """An experiment and the file of its results; trainings that were stopped are none."""

    experiment: Experiment
    settings: Mapping[str, Any]
    results: Sequence[Mapping[str, Any]]
    unfinished: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def read(cls, folder: Path, experiment: Experiment) -> Finished | None:
        """The results of an experiment, or None where there are none."""
        path = folder / f"{experiment.name}.json"
        if not path.is_file():
            return None
        content = read_results(path)
        results = content["results"] + _unchanged(folder, experiment)
        return cls(experiment, content["settings"], results, content.get("unfinished", []))

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
        """Over the seeds that did not diverge; no seconds of a CPU beside those of a GPU."""
        if method is None or (measure == SECONDS.key and method.name in self.timed_elsewhere):
            return None
        return statistic([r for r in self.of(method) if not has_diverged(r)], measure)

    @property
    def timed_elsewhere(self) -> set[str]:
        """Methods with a run on a CPU, where other runs had a GPU: their seconds do not compare."""
        devices = {result.get("device") for result in self.results}
        if devices <= {"cpu"}:
            return set()
        return {result["method"] for result in self.results if result.get("device") == "cpu"}

    def diverged(self, method: Method) -> int:
        """How many seeds did."""
        return sum(has_diverged(result) for result in self.of(method))


def has_diverged(result: Mapping[str, Any]) -> bool:
    """Whether training did, or ended in a network whose test error is not finite."""
    # A test error that is not finite is kept as null.
    return "diverged" in result or any(
        key in result and result[key] is None for key in ("mse", "mae", "accuracy")
    )


def ran_on(finished: Finished) -> str:
    """Devices, versions and days of the runs; which methods, where not all ran alike."""
    places: dict[str, list[Mapping[str, Any]]] = {}
    for result in finished.results:
        places.setdefault(_place(result), []).append(result)
    if not places:
        return "no runs"
    most, *others = sorted(places, key=lambda place: -len(places[place]))
    said = [f"{most}, {_days(places[most])}"]
    for place in others:
        names = {result["method"] for result in places[place]}
        methods = [method for method in finished.experiment.methods if method.name in names]
        rows = listed(list(dict.fromkeys(label(method.row) for method in methods)))
        said.append(f"{rows}: {place}, {_days(places[place])}")
    on_a_cpu = [result for result in finished.results if result.get("device") == "cpu"]
    if finished.experiment.precision == "bf16" and on_a_cpu:
        # Older runs did not say: a CPU had float32 then.
        chosen = {r.get("environment", {}).get("precision", "float32") for r in on_a_cpu}
        there = " or ".join(PRECISIONS[name] for name in sorted(chosen))
        on_a_gpu = len(on_a_cpu) < len(finished.results)
        elsewhere = "bfloat16 on a GPU, in " if on_a_gpu else ""
        said.append(f"networks run in {elsewhere}{there} on a CPU")
    return "; ".join(said)


def _place(result: Mapping[str, Any]) -> str:
    ran = result.get("environment", {})
    versions = (f"{name} {ran.get(name, 'unknown')}" for name in ("torch", "lieaugmenter"))
    return ", ".join((_device(result), *versions))


def _device(result: Mapping[str, Any]) -> str:
    """What one run ran on: a machine with a GPU may have left it alone."""
    ran, device = result.get("environment", {}), str(result.get("device", "unknown device"))
    if device != "cpu":
        return str(ran.get("device", device))
    threads = ran.get("threads", 1)
    return f"CPU ({threads} threads)" if threads > 1 else "CPU"


def _days(results: Iterable[Mapping[str, Any]]) -> str:
    times = (result.get("environment", {}).get("time", "date unknown") for result in results)
    days = sorted({time[:10] if time[:1].isdigit() else time for time in times})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _devices(finished: Finished) -> str:
    return " and ".join(sorted({_device(result) for result in finished.results}))


def seed_count(count: int) -> str:
    """That many seeds, in words."""
    return "1 seed" if count == 1 else f"{count} seeds"


def label(row: str) -> str:
    """A row of the paper, for readers.

    >>> label("lieaugmenter-mask2"), label("trivial")
    ('LieAugmenter, mask 2', 'no augmentation')
    """
    # The longest, for one kind's name may begin with another's.
    kind = max((kind for kind in KINDS if f"{row}-".startswith(f"{kind}-")), key=len)
    variant = row[len(kind) + 1 :]
    return f"{KINDS[kind]}, {variant_words(variant)}" if variant else KINDS[kind]


def variant_words(variant: str) -> str:
    """A mask, a law of the coefficients or a setting, for readers.

    >>> variant_words("mask2"), variant_words("range-5")
    ('mask 2', 'γ = 5')
    """
    if variant in VARIANTS:
        return VARIANTS[variant]
    name, _, value = variant.partition("-")
    return f"{SYMBOLS[name]} = {value}"


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


def comparable_value(experiment: Experiment, row: str, measure: Measure) -> Reported | None:
    """What the paper reports, if it does, of the same data and in the same unit."""
    if experiment.name in OTHER_DATA or not measure.same_unit:
        return None
    return paper_value(experiment, row, measure.key)


def measure_table(finished: Finished, measure: Measure) -> str:
    """The rows of one measure with what is to be said about them; empty where it was not taken."""
    experiment, main = finished.experiment, measures_of(finished.experiment)[0]
    proximity = measure.key in ("displacement", "distance")
    if proximity and not experiment.name.startswith("no-symmetry"):
        return ""
    rows = rows_of(experiment)
    taken = any(
        finished.statistic(method, measure.key) is not None
        for row in rows
        for method in _methods_of(experiment, row)
    )
    if measure.of_paper:
        rows = [row for row in rows if paper_value(experiment, row, measure.key) is not None]
    if not rows or (not taken and measure is not main):
        return ""
    paper = f"paper, on {other}" if (other := OTHER_DATA.get(experiment.name)) else "paper"
    ours = [f" ours, {column} " for column in _columns(experiment).values()]
    titles = [" ", f" {paper} ", *ours]
    lines = [
        f"|{'|'.join(titles)}|",
        "|---" * len(titles) + "|",
        *(_table_row(finished, row, measure) for row in rows),
    ]
    return "\n\n".join(["\n".join(lines), *_said(finished, measure)])


def _columns(experiment: Experiment) -> dict[bool, str]:
    """What our columns are called, by whether their settings are own ones; only those there are."""
    columns = {False: "the paper's settings", True: "own settings"}
    return {own: columns[own] for own in sorted({method.ours for method in experiment.methods})}


def _methods_of(experiment: Experiment, row: str) -> list[Method | None]:
    """The methods of a row, one for each of our columns."""
    return [_method(experiment, row, own=own) for own in _columns(experiment)]


def _table_row(finished: Finished, row: str, measure: Measure) -> str:
    """The paper's value and ours; the best is bold where there are several to compare."""
    experiment, methods = finished.experiment, _methods_of(finished.experiment, row)
    texts = [as_text(paper_value(experiment, row, measure.key), measure)]
    texts += [cell(finished, method, measure) for method in methods]
    reported = comparable_value(experiment, row, measure)
    ours = [finished.statistic(method, measure.key) for method in methods]
    if sum(value is not None for value in (reported, *ours)) > 1 and not finished.quick:
        # A mean that leaves out seeds which diverged is no best.
        whole = [
            value if method is not None and not finished.diverged(method) else None
            for method, value in zip(methods, ours, strict=True)
        ]
        texts = _best_bold(texts, [reported, *whole], measure)
    return f"| {label(row)} | {' | '.join(texts)} |"


def _said(finished: Finished, measure: Measure) -> list[str]:
    """The paragraphs below a table."""
    said = [measure.note] if measure.note else []
    said += _about_time(finished) if measure is SECONDS else []
    said += _differences(finished, measure)
    said += _reduction(finished, measure) if measure in (EQUIVARIANCE, EQUIVARIANCE_2) else []
    said += _gains(finished) if measure is DIRECT else []
    if measure is measures_of(finished.experiment)[0]:
        said += [*_divergence(finished), *_fallbacks(finished, measure)]
    return said


def _best_bold(
    texts: Sequence[str], values: Sequence[Reported | Statistic | None], measure: Measure
) -> list[str]:
    means = [value.mean for value in values if value is not None]
    if not means:
        return list(texts)
    best = max(means) if measure.higher else min(means)
    return [
        f"**{text}**" if value is not None and value.mean == best else text
        for text, value in zip(texts, values, strict=True)
    ]


def as_text(value: Reported | Statistic | None, measure: Measure) -> str:
    """Mean ± standard deviation; of one run the value alone."""
    if value is None:
        return NO_VALUE
    if isinstance(value, Statistic) and value.n == 1:
        return measure.write(value.mean)
    # Durations of the paper have no spread, and those of a stack are all the same.
    if value.std is None or (value.std == 0 and measure.key == "train-seconds"):
        return measure.write(value.mean)
    return f"{measure.write(value.mean)} ± {measure.write(value.std)}"


def cell(finished: Finished, method: Method | None, measure: Measure) -> str:
    """A method's mean and standard deviation, or why there is none."""
    if method is None:
        return NO_VALUE
    runs = finished.of(method)
    if not runs:
        return "not run"
    diverged = finished.diverged(method)
    if diverged == len(runs):
        return f"diverged ({diverged} of {len(runs)})"
    value = finished.statistic(method, measure.key)
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
    for own, column in _columns(finished.experiment).items():
        lower, higher = [], []
        for row in rows_of(finished.experiment):
            reported = comparable_value(finished.experiment, row, measure)
            method = _method(finished.experiment, row, own=own)
            ours = finished.statistic(method, measure.key)
            if method is None or reported is None or ours is None or reported.std is None:
                continue
            if abs(ours.mean - reported.mean) > ours.std + reported.std:
                is_lower = ours.mean < reported.mean
                lost = ", seeds diverged" if finished.diverged(method) else ""
                apart = measure.difference(ours.mean, reported.mean)
                (lower if is_lower else higher).append(
                    f"{label(row).replace(', ', ' ')} ({apart}{lost})"
                )
        found = [
            f"**{word}** than the paper's for {listed(rows)}"
            for word, rows in (("lower", lower), ("higher", higher))
            if rows
        ]
        if found:
            how = "points" if measure.higher else "factor"
            sentences.append(
                f"With {column} ours is, by more than both spreads and by the {how} in brackets, "
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


def listed(words: Sequence[str]) -> str:
    """Words with commas and a last "and"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def logit_count(finished: Finished) -> int | None:
    """How many classes the task of an experiment on images has, where a result tells."""
    return next((len(r["confusion"]) for r in finished.results if r.get("confusion")), None)


def _reduction(finished: Finished, measure: Measure) -> list[str]:
    """How the paper's numbers compare with means and sums over the logits.

    Other data have logits of another size, so that nothing can be told from them.
    """
    logits = logit_count(finished)
    if finished.quick or logits is None or finished.experiment.name in OTHER_DATA:
        return []
    found = []
    for own, column in _columns(finished.experiment).items():
        times = []
        for row in rows_of(finished.experiment):
            reported = paper_value(finished.experiment, row, measure.key)
            ours = finished.statistic(_method(finished.experiment, row, own=own), measure.key)
            if reported is not None and ours is not None and ours.mean > 0:
                times.append(f"{label(row).replace(', ', ' ')} {reported.mean / ours.mean:.1f}")
        if times:
            found.append(f"with {column} {listed(times)}")
    if not found:
        return []
    return [
        f"The paper's formula has the norm ‖·‖₁, a sum over the {logits} logits, which would be "
        f"{logits} times our means; its numbers without augmentation are as large as our means. "
        f"Divided by our mean the paper's number is, {'; '.join(found)}. Where such a quotient is "
        f"near 1 it speaks for means, near {logits} for sums; but the error also grows with the "
        "logits, whose size is nobody's aim. So the paper's numbers are not compared with ours in "
        "this table, and bold is the better of ours."
    ]


def _gains(finished: Finished) -> list[str]:
    """What averaging over elements adds to the accuracy."""
    found = []
    for method in finished.experiment.methods:
        direct = finished.statistic(method, "accuracy-direct")
        # Before validation data had a say in it.
        averaged = finished.statistic(method, "accuracy-averaged" if method.ours else "accuracy")
        reported = paper_value(finished.experiment, method.row, "accuracy-direct")
        if direct is not None and averaged is not None and reported is not None:
            points = averaged.mean - direct.mean
            found.append(f"{label(method.row)} ({whose(method)} settings) {points:+.2f}")
    if not found or finished.quick:
        return []
    return [f"Averaging adds to the mean accuracy of ours, in points: {listed(found)}."]


def _divergence(finished: Finished) -> list[str]:
    said = []
    for method in finished.experiment.methods:
        count = finished.diverged(method)
        if count:
            said.append(f"`{method.name}` ({count} of {len(finished.of(method))} seeds)")
    return [f"Training diverged for {listed(said)}."] if said else []


def _fallbacks(finished: Finished, measure: Measure) -> list[str]:
    """Where validation data decided how a method predicts, and what averaging would have given."""
    said = []
    for method in finished.experiment.methods:
        ways = [str(run["inference"]) for run in finished.of(method) if "inference" in run]
        # The oracle chooses as well, and is named where that makes a difference.
        if (method.kind == "lieaugmenter" and ways) or set(ways) - {"averaged"}:
            counts = [f"{ways.count(way)} × {way}" for way in _WAYS if way in ways]
            averaged = as_text(finished.statistic(method, f"{measure.key}-averaged"), measure)
            said.append(f"{label(method.row)}: {', '.join(counts)}; all averaged {averaged}")
    if not said:
        return []
    experiment = finished.experiment
    ways = ["averaged over elements"]
    ways += ["averaged along part of the span and further"] * experiment.own_further
    plain = (
        "by a plain network that was trained without augmentation beside it (its training is not "
        "in the seconds)"
    )
    ways += ["directly", plain] if experiment.fallback else ["directly"]
    without = ["without a plain network"] * experiment.fallback
    if experiment.own_further and Method("oracle", "whole") in experiment.methods:
        without.append("that of the whole group without going further")
    others = "do the oracle and Augerino" if experiment.name in MOLECULES else "does the oracle"
    oracle = ", ".join([f"So {others}", *without])
    return [
        "With own settings LieAugmenter predicts in the way that does best on the validation data: "
        f"{', '.join(ways[:-1])}, or {ways[-1]}. {oracle}. The seeds "
        f"chose, and averaging would have given: {'; '.join(said)}."
    ]


def _about_time(finished: Finished) -> list[str]:
    experiment = finished.experiment
    rows = rows_of(experiment)
    said = [f"Ours on {_devices(finished)}; the paper gives no times here."]
    if any(paper_value(experiment, row, "train-seconds") is not None for row in rows):
        said = [
            f"The machines differ: ours is {_devices(finished)}, the paper's are A100 and others, "
            "so the factors are not those of the code alone."
        ]
    if any(result.get("stacked") for result in finished.results):
        said[0] += (
            " The seeds of a method were trained as one stacked model; the seconds are those of "
            "the stack, divided by its members."
        )
    shared = (result.get("environment", {}).get("workers", 1) for result in finished.results)
    workers = max(shared, default=1)
    if workers > 1:
        said[0] += (
            f" Up to {workers} trainings shared the device, not always the same number, so that "
            "each was slower than alone and rows do not compare."
        )
    elsewhere = [m for m in experiment.methods if m.name in finished.timed_elsewhere]
    if elsewhere:
        rows = listed(list(dict.fromkeys(label(method.row) for method in elsewhere)))
        said[0] += f" The seconds of what ran on a CPU are left out: {rows}."
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
    compared = any("cosine" in result for result in finished.results)
    # Images always have a true one: without a cosine, no method that learns one has run.
    if not compared and not of_images(finished.experiment):
        return "There is no true generator to compare with."
    measures = discovery_measures(finished.experiment)
    lines = [
        f"| | settings | {' | '.join(words for _, words in measures)} |",
        "|---|---|" + "---|" * len(measures),
    ]
    for method in finders(finished.experiment):
        runs = finished.of(method)
        cells = [each_seed(runs, finished.statistic(method, key), key) for key, _ in measures]
        lines.append(f"| {label(method.row)} | {whose(method)} | {' | '.join(cells)} |")
    said = (
        "Mean ± standard deviation, and after the colon the value of every seed "
        f"({', '.join(map(str, finished.seeds))}). "
    )
    if not of_images(finished.experiment):
        said += (
            "The cosine on the data compares what the generators do to the training samples, the "
            "one on the span what they do to the space that the samples span: matrices that differ "
            "only off it move every sample alike. "
        )
    said += "The projection is 1 where a generator is the true one with its size."
    if not of_images(finished.experiment):
        said += " LieGG's generators have norm 1, so their projection cannot reach 1."
    return "\n".join(lines) + f"\n\n{said}"


def discovery_measures(experiment: Experiment) -> tuple[tuple[str, str], ...]:
    """How generators of an experiment are compared with the true one: keys and words."""
    return IMAGE_DISCOVERY if of_images(experiment) else DISCOVERY


def finders(experiment: Experiment) -> list[Method]:
    """The methods that leave a generator behind."""
    return [method for method in experiment.methods if method.kind in _FINDERS]


def whose(method: Method) -> str:
    """Whose settings a method has."""
    if method.ours:
        return "own"
    return "the paper's" if method.kind.endswith("-paper") else "published"


def each_seed(runs: Iterable[Mapping[str, Any]], whole: Statistic | None, key: str) -> str:
    """Mean, standard deviation, and the value of every seed; of one run the value alone."""
    values = [
        "diverged" if has_diverged(run) else NO_VALUE if run.get(key) is None else f"{run[key]:.4f}"
        for run in runs
    ]
    if not values:
        return "not run"
    listed = ", ".join(values)
    return (
        listed
        if whole is None or len(values) == 1
        else f"{whole.mean:.4f} ± {whole.std:.4f}: {listed}"
    )

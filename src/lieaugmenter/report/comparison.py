"""The paper's numbers and ours, row by row, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lieaugmenter.experiments.results import Statistic
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.experiments.targets import OTHER_DATA, Reported
from lieaugmenter.report.finished import Finished, devices_of, has_diverged, logit_count
from lieaugmenter.report.measures import (
    DIRECT,
    EQUIVARIANCE,
    EQUIVARIANCE_2,
    NO_VALUE,
    SECONDS,
    Measure,
    as_text,
    comparable_value,
    measures_of,
    of_images,
    paper_value,
)
from lieaugmenter.report.words import label, listed, seed_count, whose

DISCOVERY = (
    ("cosine", "absolute cosine"),
    ("cosine-on-data", "absolute cosine on the data"),
    ("cosine-on-span", "on the span of the data"),
    ("projection", "Frobenius projection"),
)
# What a generator does to an image is not compared.
IMAGE_DISCOVERY = tuple(one for one in DISCOVERY if one[0] in ("cosine", "projection"))
# How a predictor can predict, as results name it.
_WAYS = ("averaged", "further", "direct", "plain")
# Methods that find a generator.
_FINDERS = ("augerino", "liegan", "liegg", "lieaugmenter-paper", "lieaugmenter")


def rows_of(experiment: Experiment) -> list[str]:
    """The paper's rows; LieGG has none, because it predicts nothing."""
    rows = [method.row for method in experiment.methods if method.kind != "liegg"]
    return list(dict.fromkeys(rows))


def _method(experiment: Experiment, row: str, *, own: bool) -> Method | None:
    found = [m for m in experiment.methods if m.row == row and m.ours == own]
    return found[0] if found else None


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
    augerino = Method("augerino-widths") in experiment.methods
    others = "do the oracle and Augerino" if augerino else "does the oracle"
    oracle = ", ".join([f"So {others}", *without])
    return [
        "With own settings LieAugmenter predicts in the way that does best on the validation data: "
        f"{', '.join(ways[:-1])}, or {ways[-1]}. {oracle}. The seeds "
        f"chose, and averaging would have given: {'; '.join(said)}."
    ]


def _about_time(finished: Finished) -> list[str]:
    experiment = finished.experiment
    rows = rows_of(experiment)
    said = [f"Ours on {devices_of(finished)}; the paper gives no times here."]
    if any(paper_value(experiment, row, "train-seconds") is not None for row in rows):
        said = [
            f"The machines differ: ours is {devices_of(finished)}, the paper's are A100 and "
            "others, so the factors are not those of the code alone."
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
            "those were slower than alone and rows do not compare."
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

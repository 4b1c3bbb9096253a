"""What LieAugmenter with this project's settings should reach on vectors, and whether it does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lieaugmenter.experiments.catalogue import VECTORS
from lieaugmenter.experiments.results import Statistic
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.report.finished import Finished
from lieaugmenter.report.measures import MSE, NO_VALUE, Measure, as_text, paper_value, small
from lieaugmenter.report.words import seed_count, variant_words

_COSINE = 0.999
_COSINE_AT = ("two-body", "two-body-ood")
# Here other matrices do to the data what the rotation does.
_OTHER_FORMS = ("mask4", "mask0")
_ORACLE_FACTOR = 1.5
_ORACLE_AT = ("two-body", "two-body-ood")


@dataclass(frozen=True)
class Requirement:
    """A line of the table at the top."""

    what: str
    ours: str
    bar: str
    outcome: str

    def line(self) -> str:
        """As a row of Markdown."""
        outcome = self.outcome
        if outcome.startswith("missed"):
            outcome = outcome.replace("missed", "**missed**", 1)
        return f"| {self.what} | {self.ours} | {self.bar} | {outcome} |"


def requirements_table(found: Sequence[Requirement]) -> str:
    """How many requirements are reached, and all of them as a table."""
    heads = [requirement.outcome.partition(",")[0] for requirement in found]
    counts = {head: heads.count(head) for head in ("reached", "missed", "not judged", "not run")}
    remarks = sum(requirement.outcome.startswith("reached,") for requirement in found)
    words = {"reached": f"reached ({remarks} of them with a remark)"} if remarks else {}
    summary = ", ".join(
        f"{count} {words.get(head, head)}" for head, count in counts.items() if count
    )
    lines = [
        "| LieAugmenter, own settings | ours | required | outcome |",
        "|---|---|---|---|",
        *(requirement.line() for requirement in found),
    ]
    return (
        f"Of {len(found)} requirements: {summary}. A mean counts as reached only if no seed "
        "diverged. Spreads are not taken into account where the paper's mean is the bar. "
        "Quick runs are not judged.\n\n" + "\n".join(lines)
    )


def requirements(read: Mapping[str, Finished | None]) -> list[Requirement]:
    """What LieAugmenter with this project's settings should reach on vectors."""
    found = []
    for name, experiment in VECTORS.items():
        for method in experiment.methods:
            if method.kind == "lieaugmenter":
                found.append(_against_paper(experiment, read[name], method))
    mask2 = Method("lieaugmenter", "mask2")
    for name in _COSINE_AT:
        experiment = VECTORS[name]
        found.append(on_every_seed(experiment, read[name], mask2, "cosine"))
        for variant in _OTHER_FORMS:
            method = Method("lieaugmenter", variant)
            found.append(on_every_seed(experiment, read[name], method, "cosine-on-data"))
    found += [_against_oracle(VECTORS[name], read[name], mask2) for name in _ORACLE_AT]
    found += [
        _against_trivial(experiment, read[name], Method("lieaugmenter"))
        for name, experiment in VECTORS.items()
        if name.startswith("no-symmetry")
    ]
    return found


def outcome(finished: Finished | None, method: Method, miss: str | None) -> str:
    """Whether a requirement is reached.

    Parameters
    ----------
    finished, method
        Whose results are judged.
    miss
        By how much it is missed: empty where it is reached, None where nothing can be compared.
    """
    if finished is None or not finished.of(method):
        return "not run"
    if finished.quick:
        return "not judged, quick run"
    diverged = finished.diverged(method)
    if diverged:
        return f"missed, {diverged} of {len(finished.of(method))} seeds diverged"
    if miss is None:
        return "not judged, nothing to compare with"
    return f"missed, {miss}" if miss else "reached"


def missed_by(ours: float | None, bar: float | None, measure: Measure) -> str | None:
    """By how much a value falls short of a bar, as `outcome` wants it."""
    if ours is None or bar is None:
        return None
    # The mean of numbers like 99.08 may be off by a rounding.
    falls_short = measure.is_better(bar, ours) and not math.isclose(ours, bar, rel_tol=1e-12)
    return measure.difference(ours, bar) if falls_short else ""


def subject(experiment: Experiment, method: Method, rest: str) -> str:
    """What a requirement is about."""
    variant = f", {variant_words(method.variant)}" if method.variant else ""
    return f"`{experiment.name}`{variant}: {rest}"


def mean_of(finished: Finished | None, method: Method, measure: Measure) -> Statistic | None:
    """Of a method's seeds, where there are any."""
    return None if finished is None else finished.statistic(method, measure.key)


def with_seeds(finished: Finished | None, method: Method, measure: Measure) -> str:
    """Our value, over how many seeds, and for how many of them the augmentation was dropped."""
    value = mean_of(finished, method, measure)
    if finished is None or value is None:
        return NO_VALUE
    dropped = sum(run.get("inference") == "plain" for run in finished.of(method))
    plain = f", {dropped} of them by the plain network" if dropped else ""
    return f"{as_text(value, measure)} ({seed_count(value.n)}{plain})"


def on_the_mean(
    experiment: Experiment,
    finished: Finished | None,
    method: Method,
    measure: Measure,
    *,
    what: str,
    bar: float | None,
    bar_text: str,
) -> Requirement:
    """That the mean over seeds is as good as a bar.

    Parameters
    ----------
    experiment, finished, method
        Whose results are judged.
    measure
        Of which.
    what, bar_text
        The requirement and the bar, for readers.
    bar
        None where there is none to compare with.
    """
    ours = mean_of(finished, method, measure)
    return Requirement(
        subject(experiment, method, what),
        with_seeds(finished, method, measure),
        bar_text,
        outcome(finished, method, missed_by(ours and ours.mean, bar, measure)),
    )


def on_every_seed(
    experiment: Experiment,
    finished: Finished | None,
    method: Method,
    measure: str,
    least: float = _COSINE,
) -> Requirement:
    """That a cosine is as large as a bar on every seed."""
    runs = [] if finished is None else finished.of(method)
    cosines = [float(run[measure]) for run in runs if run.get(measure) is not None]
    short = sum(cosine < least for cosine in cosines)
    miss = (f"on {short} of {len(cosines)} seeds" if short else "") if cosines else None
    return Requirement(
        subject(experiment, method, f"{measure.replace('-', ' ')} on every seed"),
        f"least {min(cosines):.6f} ({seed_count(len(cosines))})" if cosines else NO_VALUE,
        f"≥ {least:g}",
        outcome(finished, method, miss),
    )


def _against_paper(
    experiment: Experiment, finished: Finished | None, method: Method
) -> Requirement:
    reported = paper_value(experiment, method.row, "mse")
    return on_the_mean(
        experiment,
        finished,
        method,
        MSE,
        what="MSE at most the paper's",
        bar=reported and reported.mean,
        bar_text=as_text(reported, MSE),
    )


def _against_oracle(
    experiment: Experiment, finished: Finished | None, method: Method
) -> Requirement:
    oracle = mean_of(finished, Method("oracle"), MSE)
    bar = _ORACLE_FACTOR * oracle.mean if oracle else None
    return on_the_mean(
        experiment,
        finished,
        method,
        MSE,
        what=f"MSE at most {_ORACLE_FACTOR:g} × our oracle's",
        bar=bar,
        bar_text=NO_VALUE if bar is None else small(bar),
    )


def _against_trivial(
    experiment: Experiment, finished: Finished | None, method: Method
) -> Requirement:
    trivial = mean_of(finished, Method("trivial"), MSE)
    bar = trivial.mean + trivial.std if trivial else None
    return on_the_mean(
        experiment,
        finished,
        method,
        MSE,
        what="MSE at most that of no augmentation, ours, mean + one std",
        bar=bar,
        bar_text=NO_VALUE if bar is None else small(bar),
    )

"""What LieAugmenter with this project's settings should reach, and whether it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lieaugmenter.experiments.catalogue import VECTORS
from lieaugmenter.experiments.results import Statistic
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.report.comparison import (
    MSE,
    NO_VALUE,
    VARIANTS,
    Finished,
    as_text,
    factor,
    paper_value,
    seed_count,
    small,
)

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


def requirements_table(read: Mapping[str, Finished | None]) -> str:
    """The section at the top of the document."""
    found = requirements(read)
    heads = [requirement.outcome.partition(",")[0] for requirement in found]
    counts = {head: heads.count(head) for head in ("reached", "missed", "not judged", "not run")}
    summary = ", ".join(f"{count} {head}" for head, count in counts.items() if count)
    lines = [
        "| LieAugmenter, own settings | ours | required | outcome |",
        "|---|---|---|---|",
        *(requirement.line() for requirement in found),
    ]
    return (
        "## Requirements\n\n"
        f"Of {len(found)} requirements: {summary}. A mean counts as reached only if no seed "
        "diverged. Spreads are not taken into account where the paper's mean is the bar. "
        "Quick runs are not judged.\n\n" + "\n".join(lines)
    )


def requirements(read: Mapping[str, Finished | None]) -> list[Requirement]:
    """What LieAugmenter with this project's settings should reach, and whether it does."""
    found = []
    for name, experiment in VECTORS.items():
        for method in experiment.methods:
            if method.kind == "lieaugmenter":
                found.append(_against_paper(experiment, read[name], method))
    mask2 = Method("lieaugmenter", "mask2")
    for name in _COSINE_AT:
        experiment = VECTORS[name]
        found.append(_every_cosine(experiment, read[name], mask2, "cosine"))
        for variant in _OTHER_FORMS:
            method = Method("lieaugmenter", variant)
            found.append(_every_cosine(experiment, read[name], method, "cosine-on-data"))
    found += [_against_oracle(VECTORS[name], read[name], mask2) for name in _ORACLE_AT]
    found += [
        _against_trivial(experiment, read[name], Method("lieaugmenter"))
        for name, experiment in VECTORS.items()
        if name.startswith("no-symmetry")
    ]
    return found


def _outcome(
    finished: Finished | None, method: Method, ours: float | None, bar: float | None
) -> str:
    """Reached where ours is at most the bar on all seeds."""
    if finished is None or not finished.of(method):
        return "not run"
    if finished.quick:
        return "not judged, quick run"
    diverged = finished.diverged(method)
    if diverged:
        return f"missed, {diverged} of {len(finished.of(method))} seeds diverged"
    if ours is None or bar is None:
        return "not judged, nothing to compare with"
    return "reached" if ours <= bar else f"missed, {factor(ours, bar)}"


def _what(experiment: Experiment, method: Method, rest: str) -> str:
    variant = f", {VARIANTS[method.variant]}" if method.variant else ""
    return f"`{experiment.name}`{variant}: {rest}"


def _mse(finished: Finished | None, method: Method) -> Statistic | None:
    return None if finished is None else finished.statistic(method, "mse")


def _with_seeds(finished: Finished | None, method: Method) -> str:
    """Our error, over how many seeds, and for how many of them the augmentation was dropped."""
    value = _mse(finished, method)
    if finished is None or value is None:
        return NO_VALUE
    dropped = sum(run.get("inference") == "plain" for run in finished.of(method))
    plain = f", {dropped} of them by the plain network" if dropped else ""
    return f"{as_text(value, MSE)} ({seed_count(value.n)}{plain})"


def _against_paper(
    experiment: Experiment, finished: Finished | None, method: Method
) -> Requirement:
    reported, ours = paper_value(experiment, method.row, "mse"), _mse(finished, method)
    return Requirement(
        _what(experiment, method, "MSE at most the paper's"),
        _with_seeds(finished, method),
        as_text(reported, MSE),
        _outcome(finished, method, ours and ours.mean, reported and reported.mean),
    )


def _against_oracle(
    experiment: Experiment, finished: Finished | None, method: Method
) -> Requirement:
    oracle, ours = _mse(finished, Method("oracle")), _mse(finished, method)
    bar = _ORACLE_FACTOR * oracle.mean if oracle else None
    return Requirement(
        _what(experiment, method, f"MSE at most {_ORACLE_FACTOR:g} × our oracle's"),
        _with_seeds(finished, method),
        NO_VALUE if bar is None else small(bar),
        _outcome(finished, method, ours and ours.mean, bar),
    )


def _against_trivial(
    experiment: Experiment, finished: Finished | None, method: Method
) -> Requirement:
    trivial, ours = _mse(finished, Method("trivial")), _mse(finished, method)
    bar = trivial.mean + trivial.std if trivial else None
    return Requirement(
        _what(experiment, method, "MSE at most that of no augmentation, ours, mean + one std"),
        _with_seeds(finished, method),
        NO_VALUE if bar is None else small(bar),
        _outcome(finished, method, ours and ours.mean, bar),
    )


def _every_cosine(
    experiment: Experiment, finished: Finished | None, method: Method, measure: str
) -> Requirement:
    runs = [] if finished is None else finished.of(method)
    cosines = [float(run[measure]) for run in runs if run.get(measure) is not None]
    least = min(cosines, default=None)
    short = sum(cosine < _COSINE for cosine in cosines)
    # Reached where no seed falls short.
    outcome = _outcome(finished, method, short if cosines else None, 0)
    if outcome.startswith("missed, ×"):
        outcome = f"missed, on {short} of {len(cosines)} seeds"
    return Requirement(
        _what(experiment, method, f"{measure.replace('-', ' ')} on every seed"),
        NO_VALUE if least is None else f"least {least:.6f} ({seed_count(len(cosines))})",
        f"≥ {_COSINE:g}",
        outcome,
    )

"""What LieAugmenter with this project's settings should reach on molecules, and whether it does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from lieaugmenter.experiments.catalogue import MOLECULES
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.report.finished import Finished
from lieaugmenter.report.measures import MAE, NO_VALUE, SECONDS, as_text, paper_value
from lieaugmenter.report.requirements import (
    Requirement,
    mean_of,
    missed_by,
    on_every_seed,
    on_the_mean,
    outcome,
    subject,
)
from lieaugmenter.runs import fields_of, read_json

_OURS = Method("lieaugmenter")
# What has to be measured under the same protocol.
_BESIDE = (Method("trivial"), Method("oracle"), Method("augerino-widths"))
_COSINE = 0.999
_MOST_MILLISECONDS = 8.0
_MOST_SECONDS = 30 * 60.0
# Memory may grow by this part after the first epoch, for it to count as flat.
_GROWTH = 0.01


def read_step(results: Path) -> Mapping[str, Any] | None:
    """What `benchmarks/qm9_step.py` measured; its results lie beside those of the experiments."""
    path = results.resolve().parent / "benchmarks" / "results" / "qm9_step.json"
    return fields_of(_Step, read_json(path), path) if path.is_file() else None


class _Milliseconds(TypedDict):
    augmented: float


class _Step(TypedDict):
    ms: _Milliseconds
    environment: dict[str, Any]


def molecule_requirements(
    read: Mapping[str, Finished | None], step: Mapping[str, Any] | None
) -> list[Requirement]:
    """What LieAugmenter with this project's settings should reach on molecules.

    Parameters
    ----------
    read
        The results of every experiment on molecules.
    step
        As `read_step` gives it.
    """
    found = []
    for name, experiment in MOLECULES.items():
        finished = read[name]
        found.append(_error_of_paper(experiment, finished))
        found.append(_others_beside(experiment, finished))
        found.append(on_every_seed(experiment, finished, _OURS, "span-cosine", _COSINE))
        found.append(_memory(experiment, finished))
    homo = "qm9-homo"
    return [*found, _wall_time(MOLECULES[homo], read[homo]), _step_time(step)]


def _error_of_paper(experiment: Experiment, finished: Finished | None) -> Requirement:
    reported = paper_value(experiment, _OURS.row, MAE.key)
    return on_the_mean(
        experiment,
        finished,
        _OURS,
        MAE,
        what="MAE in meV at most the paper's",
        bar=reported and reported.mean,
        bar_text=as_text(reported, MAE),
    )


def _others_beside(experiment: Experiment, finished: Finished | None) -> Requirement:
    """That no augmentation, the oracle and Augerino were trained as long."""
    measured = [method for method in _BESIDE if mean_of(finished, method, MAE) is not None]
    missing = [method.name for method in _BESIDE if method not in measured]
    words = "; ".join(f"{m.name} {as_text(mean_of(finished, m, MAE), MAE)}" for m in measured)
    return Requirement(
        subject(experiment, _OURS, "no augmentation, oracle and Augerino under the same protocol"),
        words or NO_VALUE,
        "measured",
        outcome(finished, _OURS, f"without {', '.join(missing)}" if missing else ""),
    )


def _memory(experiment: Experiment, finished: Finished | None) -> Requirement:
    runs = [] if finished is None else finished.of(_OURS)
    peaks = [(run["peak-gb"][0], run["peak-gb"][-1]) for run in runs if run.get("peak-gb")]
    grown = [f"{most / first - 1:.1%}" for first, most in peaks if most > first * (1 + _GROWTH)]
    most = max((peak[1] for peak in peaks), default=None)
    miss = (f"grew by {', '.join(grown)}" if grown else "") if peaks else None
    return Requirement(
        subject(experiment, _OURS, "peak memory of the GPU is flat after the first epoch"),
        NO_VALUE if most is None else f"{most:.2f} GB",
        f"within {_GROWTH:.0%}",
        outcome(finished, _OURS, miss),
    )


def _wall_time(experiment: Experiment, finished: Finished | None) -> Requirement:
    """The length of a training that ends with the paper's error: earlier is not claimed."""
    reported = paper_value(experiment, _OURS.row, MAE.key)
    error, seconds = (mean_of(finished, _OURS, measure) for measure in (MAE, SECONDS))
    miss = missed_by(error and error.mean, reported and reported.mean, MAE)
    if miss:
        miss = f"the paper's error was not reached, {miss}"
    elif miss is not None and seconds is not None and seconds.mean > _MOST_SECONDS:
        miss = f"by {seconds.mean - _MOST_SECONDS:.0f} s"
    return Requirement(
        subject(experiment, _OURS, "seconds of a training that reaches the paper's MAE"),
        as_text(seconds, SECONDS),
        f"≤ {_MOST_SECONDS:g}",
        outcome(finished, _OURS, miss),
    )


def _step_time(step: Mapping[str, Any] | None) -> Requirement:
    what = "speed: milliseconds of a step, 125 molecules and 3 views of each, 1536 channels"
    bar = f"≤ {_MOST_MILLISECONDS:g}"
    if step is None:
        return Requirement(what, NO_VALUE, bar, "not run")
    ms = float(step["ms"]["augmented"])
    device = step["environment"].get("device", "unknown device")
    over = ms - _MOST_MILLISECONDS
    judged = "reached" if over <= 0 else f"missed, by {over:.2f}"
    return Requirement(what, f"{ms:.2f} ({device})", bar, judged)

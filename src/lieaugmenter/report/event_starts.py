"""From where generators of four-momenta began, and where they ended: one study, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from lieaugmenter.experiments.results import statistic
from lieaugmenter.experiments.spec import Method
from lieaugmenter.report.comparison import each_seed
from lieaugmenter.report.finished import has_diverged
from lieaugmenter.report.measures import small
from lieaugmenter.runs import fields_of, read_json

_FRAMES = {"amplitudes": "laboratory", "amplitudes-boosted": "random frames"}
_BEGINNINGS = {
    Method("lieaugmenter").name: "own start",
    Method("lieaugmenter", "constant").name: "constant",
}
_COSINES = {
    "beam-cosine": "turn about the beam",
    "fifth-cosine": "fifth of six with so(1,3)",
    "span-cosine": "least of six",
}


class _Study(TypedDict):
    """What `benchmarks/event_starts.py` writes."""

    settings: dict[str, Any]
    environment: dict[str, Any]
    results: list[dict[str, Any]]


def event_starts(results: Path) -> str:
    """The section on the study; empty where it was not run.

    Parameters
    ----------
    results
        The folder with the results of the experiments; those of the benchmarks lie beside it.
    """
    path = results.resolve().parent / "benchmarks" / "results" / "event_starts.json"
    if not path.is_file():
        return ""
    study = fields_of(_Study, read_json(path), path)
    settings, ran = study["settings"], study["environment"]
    channels, blocks = settings["hidden"]
    lines = [
        f"| events | start | {' | '.join(_COSINES.values())} | test error (MSE) |",
        "|---|---|" + "---|" * len(_COSINES) + "---|",
        *(_row(study["results"], name, method) for name in _FRAMES for method in _BEGINNINGS),
    ]
    return "\n\n".join(
        [
            "## Where generators on four-momenta begin",
            f"The same trainings with and without the own start, by a transformer of {channels} "
            f"channels and {blocks} blocks, with {settings['events'][0]:,} events and "
            f"{settings['epochs']} epochs; averages do not go further than training. CPU, torch "
            f"{ran['torch']}, {ran['time'][:10]}; `benchmarks/event_starts.py`.",
            "\n".join(lines),
            "Principal cosines at the end of training: mean ± standard deviation, and after the "
            "colon every seed.",
        ]
    )


def _row(results: Sequence[dict[str, Any]], name: str, method: str) -> str:
    runs = [r for r in results if (r["experiment"], r["method"]) == (name, method)]
    runs = [{**r, "span-cosine": r["principal-cosines"][-1]} for r in runs if not has_diverged(r)]
    cells = [each_seed(runs, statistic(runs, key), key) for key in _COSINES]
    error = statistic(runs, "mse")
    cells.append(f"{small(error.mean)} ± {small(error.std)}" if error else "not run")
    return f"| {_FRAMES[name]} | {_BEGINNINGS[method]} | {' | '.join(cells)} |"

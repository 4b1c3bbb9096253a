"""What the rows of the reproduction depend on that the paper does not say, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from lieaugmenter.experiments.catalogue import VECTORS
from lieaugmenter.experiments.results import Statistic, statistic
from lieaugmenter.experiments.spec import Method
from lieaugmenter.experiments.targets import Reported
from lieaugmenter.report.finished import Finished, has_diverged
from lieaugmenter.report.measures import MSE, NO_VALUE, as_text, paper_value
from lieaugmenter.report.words import label
from lieaugmenter.runs import RunError, fields_of, fits, in_short, read_json

# The studies by their file, with what is varied.
STUDIES = {
    "width": "width of the three hidden layers",
    "epochs": "epochs",
    "start": "deviation of the initial entries",
    "similarity": "weight of Augerino+'s cosine",
    "draw": "draw of the random target",
}


def sensitivity(results: Path) -> str:
    """The section on all studies whose files are there; empty where none is.

    Parameters
    ----------
    results
        The folder with the results of the experiments; the studies are in ``sensitivity``.
    """
    tables = [
        _table(name, _read_study(path, name), results)
        for name in STUDIES
        if (path := results / "sensitivity" / f"{name}.json").is_file()
    ]
    if not tables:
        return ""
    return (
        "## What the paper does not say, varied\n\n"
        "Rows whose error differs from the paper's, with one thing changed that the paper leaves "
        "open; everything else is as in the sections above. Test errors (MSE), mean ± standard "
        "deviation over seeds. The last column says where the paper's mean lies: within the sum "
        "of both spreads of the named values, between the means, or outside of all of them. "
        "`benchmarks/sensitivity.py` runs the studies.\n\n" + "\n\n".join(tables)
    )


class _Result(TypedDict):
    """Of one run of a study; the value that was varied stands beside it."""

    experiment: str
    method: str
    seed: int
    mse: float | None


class _Study(TypedDict):
    environment: dict[str, Any]
    results: list[_Result]


def _read_study(path: Path, study: str) -> dict[str, Any]:
    content = fields_of(_Study, read_json(path), path)
    for result in content["results"]:
        methods = [m.name for m in getattr(VECTORS.get(result["experiment"]), "methods", ())]
        if result["method"] not in methods or not fits(result.get(study), float):
            raise RunError(f"{path} is damaged: {in_short(result)} is no run of the study {study}")
    return content


def _table(study: str, content: Mapping[str, Any], results: Path) -> str:
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in content["results"]:
        rows.setdefault((result["experiment"], result["method"]), []).append(result)
    lines = [_line(study, *row, found, results) for row, found in rows.items()]
    head = [
        f"| experiment | row | by {STUDIES[study]} | recorded above | paper | the paper's lies |",
        "|---|---|---|---|---|---|",
    ]
    device = content["environment"].get("device", "unknown device")
    when = str(content["environment"].get("time", "date unknown"))[:10]
    title = f"### {STUDIES[study][0].upper()}{STUDIES[study][1:]}"
    return f"{title}\n\n" + "\n".join(head + lines) + f"\n\n{device}, {when}."


def _line(
    study: str, name: str, method: str, found: Sequence[Mapping[str, Any]], results: Path
) -> str:
    experiment = VECTORS[name]
    row = experiment.method(method)
    values = {
        f"{value:g}": statistic(
            [r for r in found if r[study] == value and not has_diverged(r)], "mse"
        )
        for value in dict.fromkeys(result[study] for result in found)
    }
    recorded = _recorded(results, name, row)
    reported = paper_value(experiment, row.row, "mse")
    cells = "; ".join(f"{value}: {as_text(error, MSE)}" for value, error in values.items())
    where = _place(reported, {**values, "the recorded value": recorded})
    return (
        f"| `{name}` | {label(row.row)} | {cells} | {as_text(recorded, MSE)} | "
        f"{as_text(reported, MSE)} | {where} |"
    )


def _recorded(results: Path, name: str, method: Method) -> Statistic | None:
    finished = Finished.read(results, VECTORS[name])
    return None if finished is None else finished.statistic(method, "mse")


def _place(reported: Reported | None, values: Mapping[str, Statistic | None]) -> str:
    """Where the paper's mean lies among the measured ones.

    >>> paper = Reported(2.0, 0.1)
    >>> _place(paper, {"16": Statistic(3.0, 0.1, 3), "32": Statistic(1.0, 0.1, 3)})
    'between'
    >>> _place(paper, {"16": Statistic(3.0, 0.1, 3), "32": Statistic(2.1, 0.1, 3)})
    'within the spreads at 32'
    """
    if reported is None:
        return NO_VALUE
    known = {name: value for name, value in values.items() if value is not None}
    spread = reported.std or 0.0
    near = [n for n, v in known.items() if abs(v.mean - reported.mean) <= v.std + spread]
    if near:
        return f"within the spreads at {', '.join(near)}"
    means = [value.mean for value in known.values()]
    return "between" if means and min(means) <= reported.mean <= max(means) else "outside"

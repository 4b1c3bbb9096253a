"""The measures of the zoo: pure functions of per-run records.

A record is a dict. From the task: task, family, kind, true_dimension, algebra. From the method:
method, certifies (whether it can say that it is sure), told (whether it was given the true
dimension), certified, dimension, name, cosine, seconds. What a method claims is `dimension` if it
certified, and 0 otherwise.

`error` instead of the latter marks a run that failed: it claims nothing, and is counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.zoo.task import NULL_KINDS
from lieaugmenter.analysis.compare import principal_cosines

Record = dict[str, Any]
OVERALL = "all"
# Quantile of the normal law for intervals of 95 %.
_QUANTILE = 1.959963984540054


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a rate; (0, 1) without trials.

    >>> [round(bound, 3) for bound in wilson(0, 20)]
    [0.0, 0.161]
    """
    if not trials:
        return 0.0, 1.0
    rate, z2 = successes / trials, _QUANTILE**2
    centre = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    spread = math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    half = _QUANTILE * spread / (1 + z2 / trials)
    return max(0.0, centre - half), min(1.0, centre + half)


def span_cosine(found: Tensor, truth: Tensor) -> float | None:
    """The smallest principal cosine between two spans; None if one of them is {0}.

    With different dimensions it tells whether the smaller lies in the larger. Read it together
    with the dimension.
    """
    if not len(found) or not len(truth) or not bool(found.any()):
        return None
    return float(principal_cosines(found.double(), truth.double()).min())


def claimed(record: Record) -> int:
    """The dimension that a run stands by."""
    return int(record["dimension"]) if record.get("certified") else 0


def rate(records: Iterable[Record], holds: Callable[[Record], bool]) -> dict[str, Any] | None:
    """How often something holds, with its interval; None without records."""
    outcomes = [holds(record) for record in records]
    if not outcomes:
        return None
    low, high = wilson(sum(outcomes), len(outcomes))
    return {
        "rate": sum(outcomes) / len(outcomes),
        "low": low,
        "high": high,
        "count": sum(outcomes),
        "of": len(outcomes),
    }


def false_certifications(records: Sequence[Record]) -> dict[str, Any] | None:
    """How often a symmetry is certified where there is none."""
    null = [r for r in records if r["certifies"] and r["kind"] in NULL_KINDS]
    return rate(null, lambda r: claimed(r) > 0)


def approximate_certifications(records: Sequence[Record]) -> dict[str, Any] | None:
    """How often an approximate symmetry is certified: no error, but to be known."""
    chosen = [r for r in records if r["certifies"] and r["kind"] == "approximate"]
    return rate(chosen, lambda r: claimed(r) > 0)


def detections(records: Sequence[Record]) -> dict[str, Any] | None:
    """How often anything is certified where there is a symmetry."""
    chosen = [r for r in records if r["certifies"] and r["kind"] == "continuous"]
    return rate(chosen, lambda r: claimed(r) > 0)


def overclaims(records: Sequence[Record]) -> dict[str, Any] | None:
    """How often more generators are certified than there are, where there are some."""
    chosen = [r for r in records if _counts(r) and r["kind"] == "continuous"]
    return rate(chosen, lambda r: claimed(r) > r["true_dimension"])


def right_dimensions(records: Sequence[Record]) -> dict[str, Any] | None:
    """How often the claimed dimension is the true one, 0 included.

    Approximate symmetries are left out: there 0 and the dimension that was broken are both fair.
    """
    chosen = [r for r in records if _counts(r) and r["kind"] != "approximate"]
    return rate(chosen, lambda r: claimed(r) == r["true_dimension"])


def right_names(records: Sequence[Record]) -> dict[str, Any] | None:
    """How often the algebra has its right name, among runs with the right dimension above 0."""
    chosen = [r for r in _symmetric(records) if r.get("dimension") == r["true_dimension"]]
    return rate(chosen, lambda r: r.get("name") == r["algebra"])


def cosines(records: Sequence[Record]) -> dict[str, float] | None:
    """Median, tenth percentile and least of the span cosine, over runs of the right dimension."""
    values = [
        float(r["cosine"])
        for r in _symmetric(records)
        if r.get("cosine") is not None and r.get("dimension") == r["true_dimension"]
    ]
    if not values:
        return None
    low, middle = torch.tensor(values).double().quantile(torch.tensor([0.1, 0.5]).double())
    return {"median": float(middle), "low": float(low), "least": min(values), "of": len(values)}


def seconds(records: Sequence[Record]) -> float | None:
    """Median time of a run."""
    values = [float(r["seconds"]) for r in records if "seconds" in r]
    return float(torch.tensor(values).median()) if values else None


def _counts(record: Record) -> bool:
    """Whether the dimension is the method's own claim."""
    return bool(record["certifies"]) and not record["told"]


def _symmetric(records: Sequence[Record]) -> list[Record]:
    return [r for r in records if r["kind"] == "continuous"]


MEASURES: dict[str, Callable[[Sequence[Record]], Any]] = {
    "false_certification": false_certifications,
    "approximate_certified": approximate_certifications,
    "detection": detections,
    "dimension_right": right_dimensions,
    "overclaimed": overclaims,
    "cosine": cosines,
    "name_right": right_names,
    "seconds": seconds,
    "runs": len,
    "failed": lambda records: sum("error" in r for r in records),
}


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """All measures of some records."""
    return {name: measure(records) for name, measure in MEASURES.items()}


def table(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each method and family, and one for each method over all families."""
    rows = []
    for method in _in_order(r["method"] for r in records):
        mine = [r for r in records if r["method"] == method]
        rows.append({"method": method, "family": OVERALL, **summary(mine)})
        for family in _in_order(r["family"] for r in mine):
            some = [r for r in mine if r["family"] == family]
            rows.append({"method": method, "family": family, **summary(some)})
    return rows


def _in_order(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


_COLUMNS = {
    "method": "method",
    "family": "family",
    "runs": "runs",
    "false_certification": "false cert. [95 %]",
    "approximate_certified": "approx. cert.",
    "detection": "detected",
    "dimension_right": "dim. right",
    "overclaimed": "too many",
    "cosine": "cosine: median (least)",
    "name_right": "name right",
    "seconds": "s",
    "failed": "failed",
}


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of `table` as a Markdown table."""
    lines = [list(_COLUMNS.values()), ["---"] * len(_COLUMNS)]
    lines += [[_cell(name, row[name]) for name in _COLUMNS] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name == "cosine":
        return f"{value['median']:.4f} ({value['least']:.3f})"
    if name == "seconds":
        return f"{value:.1f}"
    if isinstance(value, dict):
        bounds = f" [{value['low']:.2f}, {value['high']:.2f}]"
        counted = f"{value['count']}/{value['of']}"
        return counted + (bounds if name == "false_certification" else "")
    return str(value)

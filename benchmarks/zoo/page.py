"""Publish runs of the zoo: benchmarks/results/zoo.json, docs/zoo.md and its picture.

    python -m benchmarks.zoo.page runs/zoo --timed runs/zoo-timed

The runs of the given folders take the place of all that was published, and those that were timed,
one at a time on a machine that did nothing else, of those that were; with --keep runs take the
place of the same tasks by the same method, samples and noise alone. Without a folder the page is
written anew from what there is.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.zoo.methods import METHODS
from benchmarks.zoo.score import OVERALL, Record, claimed, markdown, summary, table
from benchmarks.zoo.task import NULL_KINDS
from benchmarks.zoo.tasks import tasks
from lieaugmenter.report.plots import INK, PALETTE, QUIET, Figure, grid, look
from lieaugmenter.runs import read_json, write_atomically, write_json

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "zoo.json"
PAGE = ROOT / "docs" / "zoo.md"
PICTURE = ROOT / "docs" / "images" / "zoo.png"
# What is kept of a run; what it has of its task and method is looked up again.
_COLUMNS = (
    "task", "method", "n", "noise", "seed", "certified", "dimension", "name", "cosine", "seconds",
    "outcome", "trial",
)  # fmt: skip
_DIGITS = 6
# The samples and noise of the bars, and those of the hard comparison.
USUAL, HARD = (4000, 0.01), (100, 0.3)
_TOLERANCE = 0.002
# Seeds at which the rule was looked at while it was made; others are news to it.
_LOOKED_AT = (0, 1)
_MOST_SECONDS = 60


# ---------------------------------------------------------------------------------------- results


def collected(folders: Sequence[Path], timed: Path | None = None) -> dict[str, Any]:
    """The runs of folders as one JSON-ready value, and times of runs that had a machine alone."""
    read = [record for folder in folders for record in _records(folder)]
    if not read:
        raise SystemExit(f"{', '.join(map(str, folders))}: no runs there")
    alone = [] if timed is None else _records(timed)
    environments = {r["method"]: r["environment"] for r in reversed(read)}
    content = {
        "environment": environments.get("ours", read[0]["environment"]),
        "environments": environments,
        "columns": list(_COLUMNS),
        "runs": [_compact(record) for record in sorted(read, key=_order)],
        "timed": {r["task"]: round(r["seconds"], 1) for r in alone},
        "timed_environment": alone[0]["environment"] if alone else None,
    }
    return content | {"summary": summary(_at(published(content), "ours", USUAL))}


def added(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What was published, with new runs in the place of all seeds of their tasks and settings."""
    again = {_setting(run) for run in new["runs"]}
    runs = [run for run in old["runs"] if _setting(run) not in again] + new["runs"]
    named = [dict(zip(_COLUMNS, run, strict=True)) for run in runs]
    content = old | {
        "environments": old["environments"] | new["environments"],
        "runs": [list(record.values()) for record in sorted(named, key=_order)],
    }
    content["environment"] = content["environments"]["ours"]
    if new["timed"]:
        # Times of other code or another machine say nothing beside them.
        content |= {name: new[name] for name in ("timed", "timed_environment")}
    return content | {"summary": summary(_at(published(content), "ours", USUAL))}


def _setting(run: Sequence[Any]) -> tuple[Any, ...]:
    """Task, method, samples and noise of a published run."""
    return tuple(run[: _COLUMNS.index("seed")])


def _records(folder: Path) -> list[Record]:
    return [read_json(path) for path in sorted(folder.glob("*.json"))]


def _order(record: Record) -> tuple[Any, ...]:
    names = list(tasks())
    place = (list(METHODS).index(record["method"]), record["n"], record["noise"], record["seed"])
    return *place, names.index(record["task"])


def _compact(record: Record) -> list[Any]:
    if "error" in record:
        raise SystemExit(f"{record['task']} {record['method']}: {record['error']}")
    extra = record["extra"]
    seen = record | {"outcome": extra.get("outcome"), "trial": bool(extra.get("trial"))}
    rounded = (seen[name] for name in _COLUMNS)
    return [round(v, _DIGITS) if isinstance(v, float) else v for v in rounded]


def published(content: dict[str, Any]) -> list[Record]:
    """The records of a published file, with what their tasks and methods say."""
    found = []
    for values in content["runs"]:
        record = dict(zip(content["columns"], values, strict=True))
        task, method = tasks()[record["task"]], METHODS[record["method"]]
        found.append(
            record
            | {"family": task.family, "kind": task.kind, "action": task.action}
            | {"true_dimension": task.dimension, "algebra": task.algebra}
            | {"certifies": method.certifies, "told": method.told}
        )
    return found


def _at(records: Iterable[Record], method: str, setting: tuple[int, float]) -> list[Record]:
    return [r for r in records if r["method"] == method and (r["n"], r["noise"]) == setting]


# ------------------------------------------------------------------------------------------- page


@dataclass(frozen=True)
class Bar:
    """What must be reached, of the measures of `score`."""

    words: str
    measure: str
    bound: float
    at_most: bool = False

    def row(self, *measured: dict[str, Any]) -> str:
        """A line of the table, with the outcome of the first of several summaries."""
        found = measured[0][self.measure]["rate"]
        held = found <= self.bound if self.at_most else found >= self.bound
        cells = [
            f"{self.words}",
            f"{'≤' if self.at_most else '≥'} {100 * self.bound:.0f} %",
            *(_rate_words(one[self.measure]) for one in measured),
            "reached" if held else "**missed**",
        ]
        return f"| {' | '.join(cells)} |"


def _rate_words(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    bounds = f"[{100 * found['low']:.1f}, {100 * found['high']:.1f}]"
    return f"{100 * found['rate']:.1f} % ({found['count']} of {found['of']}) {bounds}"


BARS = (
    Bar("certified where there is no symmetry", "false_certification", 0.05, at_most=True),
    Bar("found where there is one", "detection", 0.9),
    Bar("dimension exactly right, none included", "dimension_right", 0.9),
    Bar("name right, given the dimension", "name_right", 0.9),
)


def page(content: dict[str, Any]) -> str:
    """The document."""
    records = published(content)
    ours = _at(records, "ours", USUAL)
    parts = [
        _introduction(records, content["environments"]),
        "## What must be reached\n\n" + _bars(ours, content["timed"]),
        f"![Every task and seed](images/{PICTURE.name})",
        "## Other samples, other noise\n\n" + _settings(records),
        "## Methods side by side\n\n" + _side_by_side(records),
        "## Where it is wrong\n\n" + _mistakes(ours),
        "## By the certificate that was given\n\n" + _ways(ours),
        "## When it is known how many there are\n\n" + _known(records),
        "## By family\n\n" + markdown([r for r in table(ours) if r["family"] != OVERALL]).strip(),
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(records: Sequence[Record], environments: dict[str, dict[str, Any]]) -> str:
    kinds = [task.kind for task in tasks().values()]
    null = sum(kind in NULL_KINDS for kind in kinds)
    runs = {
        method: len({r["seed"] for r in _at(records, method, USUAL)})
        for method in METHODS
        if _at(records, method, USUAL)
    }
    seeds = ", ".join(f"{method} {count}" for method, count in runs.items())
    versions = ", ".join(sorted({e["torch"] for e in environments.values()}))
    return f"""# The zoo: how often is it right?

{len(kinds)} supervised tasks whose algebra is known, and checked by a test:
{kinds.count("continuous")} with a continuous symmetry, {null} without (arbitrary functions, only
a few discrete elements, or a symmetry that is broken by half), and {kinds.count("approximate")}
whose symmetry is broken by 1 to 5 %, where both answers are fair. Vectors, points, images and
four-momenta; targets that stay and targets that move; numbers and labels.

    python -m benchmarks.zoo.run --methods ours liegg-gap --seeds 5

makes the runs, each a file of its own; interrupt it at any time. Unless something else is said
there are {USUAL[0]} samples, of which a fifth is held out, and {100 * USUAL[1]:.0f} % noise. Seeds
of each method: {seeds}, of images fewer. Times in seconds are of one core of a CPU whose others
were busy too (torch {versions}).

**What these numbers are not.** The bounds of a verdict, the networks of the teams and how long
they learn were chosen while looking at seeds 0 and 1 of this same zoo. The other seeds are new
samples of the same tasks, and have a column of their own below. One rule was made looking at all
seeds, of kepler-orbits: fewer generators with a name before more without one. Tasks of your own
may be harder."""


def _bars(ours: Sequence[Record], timed: dict[str, float]) -> str:
    new = [r for r in ours if r["seed"] not in _LOOKED_AT]
    lines = ["| measure | bar | ours [95 %] | at new seeds [95 %] | |", "|" + " --- |" * 5]
    lines += [bar.row(summary(ours), summary(new)) for bar in BARS]
    if timed:
        slowest = max(timed, key=lambda task: timed[task])
        held = "reached" if timed[slowest] <= _MOST_SECONDS else "**missed**"
        lines.append(
            f"| seconds of a task on vectors, slowest ({slowest}) | ≤ {_MOST_SECONDS} | "
            f"{timed[slowest]:.0f} | | {held} |"
        )
    return "\n".join(lines) + _once_each(ours) + (_about_times(timed) if timed else "")


def _once_each(ours: Sequence[Record]) -> str:
    """The same where tasks with fewer seeds count as much as others."""
    by_task: dict[str, list[Record]] = {}
    for record in ours:
        by_task.setdefault(record["task"], []).append(record)
    each = [summary(own) for own in by_task.values()]
    found = {
        measure: statistics.mean(one[measure]["rate"] for one in each if one[measure])
        for measure in ("false_certification", "detection", "dimension_right")
    }
    return (
        f"\n\nWith every task counted once, whatever its number of seeds: "
        f"{100 * found['false_certification']:.1f} % certified where there is none, "
        f"{100 * found['detection']:.1f} % found, {100 * found['dimension_right']:.1f} % with the "
        f"right dimension."
    )


def _about_times(timed: dict[str, float]) -> str:
    listed = ", ".join(f"{task} {value:.0f}" for task, value in timed.items())
    return (
        f"\n\nTimed one at a time on a machine of two cores that did nothing else, on one of them, "
        f"in seconds: {listed}. They are among the slowest runs, which shared their machine."
    )


def _settings(records: Sequence[Record]) -> str:
    """Ours by number of samples and noise, as far as it was run."""
    own = [r for r in records if r["method"] == "ours"]
    measures = {
        "seeds": None,
        "certified where there is none": "false_certification",
        "found where there is one": "detection",
        "dimension right": "dimension_right",
        "name right": "name_right",
    }
    lines = [f"| samples, noise | {' | '.join(measures)} |", "|" + " --- |" * (len(measures) + 1)]
    for n, noise in sorted({(r["n"], r["noise"]) for r in own}, key=lambda s: (-s[0], s[1])):
        here = _at(own, "ours", (n, noise))
        found, seeds = summary(here), len({r["seed"] for r in here})
        cells = [_counted(found[m]) if m else str(seeds) for m in measures.values()]
        lines.append(f"| {n}, {100 * noise:g} % | {' | '.join(cells)} |")
    return "\n".join(lines)


def _counted(found: dict[str, Any] | None) -> str:
    return "–" if found is None else f"{found['count']} of {found['of']}"


def _side_by_side(records: Sequence[Record]) -> str:
    usual = [r for r in records if (r["n"], r["noise"]) == USUAL]
    rows = markdown([row for row in table(usual) if row["family"] == OVERALL]).strip()
    return f"""{rows}

`liegg-gap` is LieGG with the largest gap of its spectrum as the dimension: it has no way to say
that there is none. `-known`, Augerino+ and LieGAN are told the dimension and certify nothing.
Cosines are of runs with the right dimension: the smallest principal cosine with the true
algebra."""


def _mistakes(ours: Sequence[Record]) -> str:
    counted = [r for r in ours if r["kind"] != "approximate"]
    lines = ["| task | truth | right | otherwise it said |", "| --- | --- | --- | --- |"]
    for name in dict.fromkeys(r["task"] for r in counted):
        own = [r for r in counted if r["task"] == name]
        wrong = [r for r in own if not _is_right(r)]
        if wrong:
            said = ", ".join(dict.fromkeys(_said(r) for r in wrong))
            truth = tasks()[name].algebra or "none"
            right = len(own) - len(wrong)
            lines.append(f"| {name} | {truth} | {right} of {len(own)} | {said} |")
    if len(lines) == 2:
        return "Nowhere in these runs."
    return "\n".join(lines)


def _is_right(record: Record) -> bool:
    right = claimed(record) == record["true_dimension"]
    return right and (not record["true_dimension"] or record["name"] == record["algebra"])


def _said(record: Record) -> str:
    if not record["certified"]:
        return f"{record['outcome']}"
    return f"{record['name'] or 'unnamed'} of dimension {record['dimension']}"


def _ways(ours: Sequence[Record]) -> str:
    """How often teams were sure by themselves, and how often only once it was imposed on them."""
    lines = ["| | right | wrong |", "| --- | --- | --- |"]
    for words, trial in (("two teams alone", False), ("by imposing it on them", True)):
        own = [r for r in ours if r["certified"] and r["trial"] is trial]
        own = [r for r in own if r["kind"] != "approximate"]
        right = sum(_is_right(r) for r in own)
        lines.append(f"| {words} | {right} | {len(own) - right} |")
    approximate = [r for r in ours if r["kind"] == "approximate"]
    certified = sum(r["certified"] for r in approximate)
    return "\n".join(lines) + (
        f"\n\nOf {len(approximate)} runs with a symmetry that is broken by 1 to 5 %, {certified} "
        f"were certified."
    )


def _known(records: Sequence[Record]) -> str:
    lines = [
        "| samples, noise | method | runs | mean, median | LieGG: mean, median | "
        f"tasks below LieGG by more than {_TOLERANCE} | worst of them |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for setting in (USUAL, HARD):
        for method in ("ours-known", "ours-joint"):
            pairs = _pairs(records, method, setting)
            if pairs:
                lines.append(_compared(setting, method, pairs))
    return "\n".join(lines) + (
        "\n\nCosines of tasks with a continuous symmetry, all methods told the dimension, on the "
        "same data; a task counts with its mean over seeds. `ours-known` is `discovery.known`: "
        "networks, and a Gaussian process in their place where there are few samples, which was "
        "chosen on these tasks at seeds 10 to 12. `ours-joint` is an estimator with "
        "`n_generators=k`: it begins there and learns the generators together with its predictor. "
        "It holds out a fifth of the samples; the others learn from all."
    )


def _pairs(
    records: Sequence[Record], method: str, setting: tuple[int, float]
) -> dict[str, list[tuple[float, float]]]:
    """Cosines of a method and LieGG's on the same data, by task."""
    found: dict[str, list[tuple[float, float]]] = {}
    theirs = {(r["task"], r["seed"]): r for r in _at(records, "liegg-known", setting)}
    for record in _at(records, method, setting):
        other = theirs.get((record["task"], record["seed"]))
        if other is not None and record["kind"] == "continuous":
            found.setdefault(record["task"], []).append((record["cosine"], other["cosine"]))
    return found


def _compared(
    setting: tuple[int, float], method: str, pairs: dict[str, list[tuple[float, float]]]
) -> str:
    n, noise = setting
    both = [pair for own in pairs.values() for pair in own]
    means = {
        task: tuple(map(statistics.mean, zip(*own, strict=True))) for task, own in pairs.items()
    }
    below = {task: mean for task, mean in means.items() if mean[0] < mean[1] - _TOLERANCE}
    worst = min(below, key=lambda task: below[task][0] - below[task][1], default=None)
    words = (
        "–" if worst is None else f"{worst}: {below[worst][0]:.3f} against {below[worst][1]:.3f}"
    )
    columns = zip(*both, strict=True)
    ours, liegg = (f"{statistics.mean(c):.3f}, {statistics.median(c):.3f}" for c in columns)
    return (
        f"| {n}, {100 * noise:.0f} % | `{method}` | {len(both)} | {ours} | {liegg} | "
        f"{len(below)} of {len(means)} | {words} |"
    )


# ---------------------------------------------------------------------------------------- picture

_RIGHT, _FEWER, _OTHER, _WRONG = PALETTE[2], "#D9D9D9", PALETTE[4], PALETTE[1]
_LEGEND = {
    "right": _RIGHT,
    "nothing found": _FEWER,
    "another dimension or name": _OTHER,
    "certified, and there is nothing": _WRONG,
}
_SHOWN = ("ours", "liegg-gap")
_PER_COLUMN = 32


def _colour(record: Record) -> str:
    if _is_right(record):
        return _RIGHT
    if not claimed(record):
        return _FEWER
    return _WRONG if record["kind"] in NULL_KINDS else _OTHER


def picture(records: Sequence[Record]) -> Figure:
    """A square for every run: of the tasks the rows, of two methods the seeds."""
    usual = [r for r in records if (r["n"], r["noise"]) == USUAL and r["kind"] != "approximate"]
    names = [name for name in tasks() if any(r["task"] == name for r in usual)]
    shown = [method for method in _SHOWN if any(r["method"] == method for r in usual)]
    columns = [names[i : i + _PER_COLUMN] for i in range(0, len(names), _PER_COLUMN)]
    with look():
        figure, axes = grid((3.3 * len(columns), 0.19 * _PER_COLUMN + 0.9), 1, len(columns))
        for ax, own in zip(axes[0], columns, strict=True):
            _draw_column(ax, own, shown, usual)
        handles = [
            figure.axes[0].scatter([], [], marker="s", s=40, color=colour, label=words)
            for words, colour in _LEGEND.items()
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=4)
    return figure


def _draw_column(
    ax: Any, names: Sequence[str], methods: Sequence[str], records: Sequence[Record]
) -> None:
    step = 1 + max((r["seed"] for r in records), default=0)
    for place, method in enumerate(methods):
        offset = place * (step + 1)
        ax.text(offset - 0.4, -1.0, method, color=INK, fontsize=8, ha="left")
        own = [r for r in records if r["method"] == method and r["task"] in names]
        ax.scatter(
            [offset + r["seed"] for r in own],
            [names.index(r["task"]) for r in own],
            marker="s", s=30, color=[_colour(r) for r in own],
        )  # fmt: skip
    ax.set_yticks(range(len(names)), names, color=QUIET, fontsize=7)
    ax.set_xlim(-0.8, len(methods) * (step + 1) - 0.8)
    ax.set_ylim(_PER_COLUMN - 0.4, -1.8)
    ax.set_xticks([])
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, help="with runs of benchmarks.zoo.run")
    parser.add_argument("--timed", type=Path, help="with runs that had a machine alone")
    parser.add_argument("--keep", action="store_true", help="runs of other tasks and settings")
    chosen = parser.parse_args(arguments)
    if chosen.folders:
        new = collected(chosen.folders, chosen.timed)
        write_json(RESULTS, added(read_json(RESULTS), new) if chosen.keep else new)
    content = read_json(RESULTS)
    write_atomically(PAGE, page(content))
    picture(published(content)).savefig(PICTURE, dpi=130)


if __name__ == "__main__":
    main()

"""What an experiment came to: the results of its run folders in one file, and their statistics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Required, TypedDict, get_type_hints

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.experiments.measuring import curve_of
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.experiments.targets import OTHER_DATA, TARGETS, Reported
from lieaugmenter.experiments.training import training_folder
from lieaugmenter.learning.trainer import History
from lieaugmenter.runs import (
    RunError,
    RunFolder,
    check_same,
    fields_of,
    fits,
    in_short,
    read_json,
    read_tensors,
    write_json,
)

# Digits of a generator's entries that are kept.
_DIGITS = 5


@dataclass(frozen=True)
class Statistic:
    """Mean and standard deviation (of the population, as the paper's) over seeds."""

    mean: float
    std: float
    n: int


class Settings(TypedDict, total=False):
    """What the runs of a file of results had in common."""

    quick: Required[bool]
    epochs: Required[int]
    batch_size: Required[int]
    lr: Required[float]
    hidden: Required[list[int]]
    n_views: Required[int]
    range: Required[float]
    source: Required[str]
    own_lr: float | None


# Measures of one run that are lists, and that figures and requirements take apart.
_Lists = TypedDict(
    "_Lists",
    {
        "test-curve": list[float | None],
        "curve-seconds": list[float],
        "peak-gb": list[float],
    },
    total=False,
)


class Ran(TypedDict, total=False):
    """Where and when one run was made, and with how many others beside it."""

    lieaugmenter: str
    torch: str
    device: str
    threads: int
    time: str
    workers: int
    precision: str


class Result(_Lists, total=False):
    """Of one run: which it was, and where; everything else is a measure of it."""

    method: Required[str]
    seed: Required[int]
    environment: Ran
    generators: list[list[list[float | None]]]
    confusion: list[list[int]]
    widths: list[float]
    losses: dict[str, list[float]]


# A training that was stopped after so many of its epochs: how far it came, which is no result.
Unfinished = TypedDict(
    "Unfinished",
    {
        "method": str,
        "seed": int,
        "epochs": int,
        "of": int,
        "test-curve": list[float],
        "curve-seconds": list[float],
    },
)


class _Epoch(TypedDict):
    """What of a record of training a curve needs."""

    test: float
    seconds: float


class Content(TypedDict, total=False):
    """A file of results."""

    settings: Required[Settings]
    results: Required[list[Result]]
    unfinished: list[Unfinished]


def read_results(path: Path) -> dict[str, Any]:
    """What `write_results` wrote, or a `RunError` that names the file."""
    content = fields_of(Content, read_json(path), path)
    for result in content["results"]:
        for name, value in result.items():
            if name not in get_type_hints(Result) and not fits(value, _MEASURE):
                raise RunError(f"{path} is damaged: {name} is {in_short(value)}")
        _check_curve(result, path)
        if len({len(column) for column in result.get("losses", {}).values()}) > 1:
            raise RunError(f"{path} is damaged: there are losses of different lengths")
        if not _square(result.get("generators", [])):
            raise RunError(f"{path} is damaged: the generators are not square, or of several sizes")
    for stopped in content.get("unfinished", []):
        _check_curve(stopped, path)
        if not 0 < stopped["epochs"] == len(stopped["test-curve"]):
            raise RunError(f"{path} is damaged: a curve does not have an error for every epoch")
    return content


def _check_curve(run: Mapping[str, Any], path: Path) -> None:
    curve = run.get("test-curve", [])
    if len(run.get("curve-seconds", curve)) != len(curve):
        raise RunError(f"{path} is damaged: a curve does not have a time for every error")


def _square(generators: Sequence[Sequence[Sequence[float | None]]]) -> bool:
    """Whether all are matrices with as many rows and columns as the first has rows."""
    size = len(generators[0]) if generators else 0
    return all(len(g) == size and all(len(row) == size for row in g) for g in generators)


def generators_of(result: Mapping[str, Any]) -> Float[Tensor, "c d d"] | None:
    """What one run learned; None where it learned no generators, or they are not finite.

    >>> generators_of({"method": "trivial", "seed": 0})
    >>> generators_of({"generators": [[[0.0, None], [1.0, 0.0]]]})
    >>> generators_of({"generators": [[[0.0, -1.0], [1.0, 0.0]]]}).shape
    torch.Size([1, 2, 2])
    """
    generators = result.get("generators", [])
    if not generators or None in (v for g in generators for row in g for v in row):
        return None
    return torch.tensor(generators)


def read_result(path: Path) -> dict[str, Any]:
    """The ``result.json`` of one run, or a `RunError` that names the file."""
    return fields_of(Result, read_json(path), path)


def read_settings(path: Path) -> dict[str, Any]:
    """The ``config.json`` of one run, or a `RunError` that names the file."""
    return fields_of(Settings, read_json(path), path)


_MEASURE = bool | float | str | list[Any] | None


def collect(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """All finished runs of an experiment, and how far others came, as one JSON-ready value.

    Parameters
    ----------
    experiment
        Whose methods to look for.
    folder
        The folder that `run_method` wrote to.
    """
    results, configurations = [], {}
    for method in experiment.methods:
        for path in sorted((folder / method.name).glob("seed-*/result.json")):
            result = read_result(path)
            basis = path.parent / "basis.safetensors"
            if basis.exists():
                generators = read_tensors(basis)[0]["generators"]
                rounded = [
                    [[round(v, _DIGITS) for v in row] for row in g] for g in generators.tolist()
                ]
                result["generators"] = rounded
            ran = path.parent / "environment.json"
            result["environment"] = fields_of(Ran, read_json(ran), ran)
            results.append(result)
            if method not in configurations:
                configurations[method] = read_settings(path.parent / "config.json")
    if not results:
        raise RunError(f"{folder} holds no finished run of {experiment.name}")
    # What own settings are, runs with the paper's do not tell: they may be older.
    own = [method for method in configurations if method.ours]
    settings = configurations[(own or list(configurations))[0]]
    shared = (
        "quick", "epochs", "batch_size", "lr", "own_lr", "hidden", "n_views", "range", "source",
    )  # fmt: skip
    stopped = list(_unfinished(experiment, folder, quick=settings["quick"]))
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "settings": {key: settings.get(key) for key in shared},
        "results": results,
        **({"unfinished": stopped} if stopped else {}),
    }


def _unfinished(experiment: Experiment, folder: Path, *, quick: bool) -> Iterator[dict[str, Any]]:
    """How far trainings came that were stopped, and whose test error is followed."""
    for method in experiment.methods:
        for path in sorted((folder / method.name).glob("seed-*")):
            seed = int(path.name.removeprefix("seed-"))
            epochs = _epochs(training_folder(RunFolder(path.parent), seed))
            if epochs and not (path / "result.json").exists():
                of = experiment.run_as(method, quick=quick).epochs
                progress = {"seed": seed, "epochs": len(epochs), "of": of}
                yield {"method": method.name, **progress, **curve_of(History(epochs))}


def _epochs(run: RunFolder) -> list[dict[str, Any]]:
    """The epochs of a training, if its test error was followed, and finite, in all of them."""
    records = run.metrics()
    return records if all(fits(record, _Epoch) for record in records) else []


def write_results(experiment: Experiment, folder: Path, path: Path) -> dict[str, Any]:
    """`collect`, kept as a file, with what the file holds of other methods and seeds."""
    content = merged(collect(experiment, folder), experiment, path)
    write_json(path, content)
    return content


def merged(content: dict[str, Any], experiment: Experiment, path: Path) -> dict[str, Any]:
    """Results, and those of a file that are of other methods and seeds.

    Parameters
    ----------
    content
        As `collect` gives it.
    experiment
        Whose settings both have to have, as far as a file of results tells.
    path
        The file; it need not exist.

    Raises
    ------
    RunError
        If the file is of other settings.
    """
    kind, source = content["settings"]["quick"], content["settings"]["source"]
    content = {**content, "settings": _settings(experiment, quick=kind, source=source)}
    if not path.exists():
        return content
    check_addable(experiment, path, quick=kind, source=source)
    before = read_results(path)
    runs = _by_seed([*before["results"], *content["results"]])
    stopped = _by_seed([*before.get("unfinished", []), *content.get("unfinished", [])])
    left = {key: run for key, run in stopped.items() if key not in runs}
    order = [method.name for method in experiment.methods]

    def in_order(runs: Mapping[tuple[str, int], Any]) -> list[Any]:
        def place(key: tuple[str, int]) -> tuple[int, int]:
            return order.index(key[0]) if key[0] in order else len(order), key[1]

        return [runs[key] for key in sorted(runs, key=place)]

    together = {**content, "results": in_order(runs), "unfinished": in_order(left)}
    return {key: value for key, value in together.items() if key != "unfinished" or value}


def _by_seed(runs: Iterable[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """The last of each method and seed."""
    return {(run["method"], run["seed"]): run for run in runs}


def check_addable(experiment: Experiment, path: Path, *, quick: bool, source: str) -> None:
    """Raise a `RunError` if a file of results is there and of other settings.

    Parameters
    ----------
    experiment, quick, source
        What is to be run, whether in its quick form, and on which data.
    path
        The file.
    """
    if path.exists():
        now = _settings(experiment, quick=quick, source=source)
        check_same(path, read_results(path)["settings"], now)


def _settings(experiment: Experiment, *, quick: bool, source: str) -> dict[str, Any]:
    """Of all methods together: L-GATr alone has fewer epochs, an ablation other views."""
    common = experiment.run_as(Method("lieaugmenter"), quick=quick)
    names = ("epochs", "batch_size", "lr", "own_lr", "n_views", "range")
    present = {name: getattr(common, name) for name in names}
    return {"quick": quick, **present, "hidden": list(common.hidden), "source": source}


def statistic(results: Iterable[Mapping[str, Any]], measure: str) -> Statistic | None:
    """Mean and spread of one measure over the results that have it."""
    values = [float(r[measure]) for r in results if isinstance(r.get(measure), int | float)]
    if not values:
        return None
    mean = sum(values) / len(values)
    # A product, which is inf where a power would raise.
    variance = sum((value - mean) * (value - mean) for value in values) / len(values)
    return Statistic(mean, math.sqrt(variance), len(values))


def of_method(results: Sequence[Mapping[str, Any]], method: str) -> list[Mapping[str, Any]]:
    """The results of one method."""
    return [result for result in results if result["method"] == method]


def summary(experiment: Experiment, results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines that show each method's error beside the paper's, and how well it knows the symmetry.

    Of classifications it is the accuracy.

    Parameters
    ----------
    experiment
        Whose methods to list.
    results
        As `run_method` returns them.
    """
    named = {"accuracy": ("accuracy", "{:.2f}"), "mae": ("MAE", "{:.1f}")}
    measure = next((key for key in named if any(key in result for result in results)), "mse")
    title, form = named.get(measure, ("MSE", "{:.2e}"))
    columns = ["method", title, "paper", "cosine"]
    # What a generator does to an image is not compared.
    columns += ["on the data"] if measure == "mse" else []
    rows = [columns]
    for method in experiment.methods:
        own = of_method(results, method.name)
        if not own:
            continue
        diverged = sum("diverged" in result for result in own)
        found = _shown(statistic(own, measure), form)
        # Of other data, the paper's number says nothing about ours.
        reported = TARGETS.get((experiment.name, method.row, measure))
        cells = [
            method.name,
            f"{found} ({diverged} diverged)" if diverged else found,
            _shown(None if experiment.name in OTHER_DATA else reported, form),
            # Of several generators, the least of the cosines of their span.
            _shown(statistic(own, "cosine") or statistic(own, "span-cosine"), "{:.4f}"),
            _shown(statistic(own, "cosine-on-data"), "{:.4f}"),
        ]
        rows.append(cells[: len(columns)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return ["  ".join(row).rstrip() for row in padded]


def _shown(value: Statistic | Reported | None, form: str) -> str:
    if value is None:
        return "-"
    mean = form.format(value.mean)
    # One seed has no spread.
    alone = isinstance(value, Statistic) and value.n == 1
    return mean if alone or value.std is None else f"{mean} ± {form.format(value.std)}"

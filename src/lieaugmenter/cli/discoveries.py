"""The preparation of a discovery: its data, its estimator, and the command that repeats it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np

import lieaugmenter
from lieaugmenter.cli.reading import chosen_columns, stream_of, task_of, task_of_stream
from lieaugmenter.cli.requests import Prepared
from lieaugmenter.data.checkup import examine
from lieaugmenter.data.files import DataError, Table, read_data
from lieaugmenter.data.streaming import FileStream
from lieaugmenter.report.findings import Findings
from lieaugmenter.runs import RunFolder

# Options of `discover` that the estimators call something else.
_OPTION_NAMES = {
    "batch_size": "--batch-size",
    "n_generators": "--generators",
    "n_views": "--views",
    "n_seeds": "--seeds",
    "random_state": "--seed",
}


def prepare_discovery(folder: RunFolder, request: dict[str, Any]) -> Prepared:
    """Read the data, and make the estimator for them.

    Raises
    ------
    DataError
        If the data cannot be read or learned from.
    """
    path, target, size = Path(request["data"]), request["target"], request.get("size")
    columns = chosen_columns(request.get("features"), request.get("drop"))
    stream = stream_of(path, target, request.get("stream"), size, columns)
    if stream is not None:
        task = request["task"] if request["task"] != "auto" else task_of_stream(stream)
        return _with_data(folder, request, stream, None, task, _names_of(stream))
    table = read_data(path, target, size=size, **columns)
    errors = [
        note.text
        for note in examine(table.x, table.y, table.feature_names)
        if note.level == "error"
    ]
    if errors:
        raise DataError(f"{request['data']}: {errors[0]}")
    if (
        table.x.ndim == 4
        and table.x.dtype == np.uint8
        and request["parameters"]["action"] != "image"
    ):
        raise DataError(f"{request['data']}: holds images; say so with --action image")
    task = task_of(table.y, request["task"])
    return _with_data(folder, request, table.x, table.y, task, _names_of(table))


def _names_of(data: Table | FileStream) -> list[str] | None:
    """Names that the file has; others are made up where it is known how samples move."""
    return data.feature_names if data.named else None


def _with_data(
    folder: RunFolder,
    request: dict[str, Any],
    x: np.ndarray | FileStream,
    y: np.ndarray | None,
    task: str,
    names: list[str] | None,
) -> Prepared:
    kinds = {
        "regression": lieaugmenter.SymmetryRegressor,
        "classification": lieaugmenter.SymmetryClassifier,
    }
    estimator = kinds[task](
        run_directory=folder.path, feature_names=names, verbose=1, **request["parameters"]
    )

    def finish(fitted: Any) -> Findings:
        options = {key: v for key, v in request["parameters"].items() if v is not None}
        command = ["lieaugmenter", "discover", request["data"], "--target", request["target"]]
        command += ["--task", request["task"]]
        for name in ("size", "features", "drop"):
            if request.get(name) is not None:
                command += [f"--{name}", str(request[name])]
        if request.get("stream") is not None:
            command += ["--stream" if request["stream"] else "--no-stream"]
        for name, value in options.items():
            words = [str(word) for word in (value if isinstance(value, list) else [value])]
            command += [_OPTION_NAMES.get(name, f"--{name}"), *words]
        return fitted.findings(title=Path(request["data"]).name, command=shlex.join(command))

    return estimator, x, y, finish

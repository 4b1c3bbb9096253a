"""How a data set is read, whole or in pieces, and which task its target sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict, get_args

import numpy as np

from lieaugmenter.cli.options import Action, Output
from lieaugmenter.data.checkup import non_finite_message
from lieaugmenter.data.files import DataError, Table, holds_images, read_data
from lieaugmenter.data.streaming import STREAMED, FileStream, is_large, stream_data
from lieaugmenter.runs import RunError, RunFolder, fits, in_short, read_json

# More whole numbers than this may be quantities as well as labels: the user is asked.
_MOST_CLASSES = 30
# And more than this are taken for labels, but may be counts: the user is told.
_FEW_CLASSES = 10
# Files whose columns have names.
_TABLES = (".csv", ".parquet", ".tsv")


class ChosenColumns(TypedDict):
    """Columns of a table, as the readers of data take them."""

    features: list[str] | None
    drop: list[str] | None


def chosen_columns(features: str | None, drop: str | None) -> ChosenColumns:
    """The columns that --features and --drop name.

    >>> chosen_columns(None, "id, name")
    {'features': None, 'drop': ['id', 'name']}
    """

    def names(text: str | None) -> list[str] | None:
        return None if text is None else [name.strip() for name in text.split(",")]

    return {"features": names(features), "drop": names(drop)}


def stream_of(
    path: Path, target: str, asked: bool | None, size: int | None, columns: ChosenColumns
) -> FileStream | None:
    """The file as a stream, if it is to be read piece by piece.

    Parameters
    ----------
    path, target
        The data and their target, as the commands take them.
    asked
        Whether to read it so; if nothing was asked, its kind and size decide.
    size
        Of images, of which no stream is made.
    columns
        Of a table.
    """
    if asked is None:
        asked = path.is_file() and path.suffix.lower() in STREAMED and is_large(path)
    if not asked:
        return None
    if size is not None:
        raise DataError(f"{path}: a size is for folders and archives of images, not for arrays")
    return stream_data(path, target, **columns)


def read_samples(
    path: Path, target: str | None, columns: ChosenColumns, *, run: Path | None, size: int | None
) -> Table:
    """Samples for a trained model.

    Parameters
    ----------
    path, target, columns, size
        The data, as the commands take them.
    run
        The folder of the model, if it is one of ours: unless told otherwise, its inputs are the
        columns that it was fitted on, whatever else a table has, and images are of the size that
        it was told.

    Raises
    ------
    DataError
        Also if samples are not finite, or not of the shape that the run was fitted on.
    """
    config = {} if run is None else RunFolder.open(run).config()
    names = _entry(config, "parameters", "feature_names")
    if not any(columns.values()) and path.suffix.lower() in _TABLES and fits(names, list[str]):
        columns = {"features": names, "drop": None}
    if size is None and run is not None and holds_images(path):
        size = _size_told(run)
    table = read_data(path, target, size=size, **columns)
    shape = _entry(config, "data", "x_shape")
    if table.x.ndim == 2 and fits(shape, list[int]) and shape[1:] != [table.x.shape[1]]:
        raise DataError(
            f"{path}: {table.x.shape[1]} columns are left for X, but {run} was fitted on samples "
            f"of shape {tuple(shape[1:])}. Name the target with --target, or the inputs with "
            f"--features"
        )
    trouble = non_finite_message(table.x, table.feature_names if table.x.ndim == 2 else None)
    if trouble:
        raise DataError(f"{path}: {trouble}")
    return table


def _size_told(run: Path) -> int | None:
    """The --size of the command that made a run, if there was one."""
    command = run / "command.json"
    told = read_json(command) if command.is_file() else {}
    size = told.get("size") if isinstance(told, dict) else None
    return size if fits(size, int) else None


def movements(run: Path | None, action: str | None, output: str | None) -> tuple[str, str]:
    """How elements move the inputs and outputs of a model, in words: as told, or as its run was.

    Parameters
    ----------
    run
        The folder of the model, if it is one of ours; of another, vectors move and outputs do not.
    action, output
        What was told.

    Raises
    ------
    RunError
        If it was not told, and the run has an action of the user's own.
    """
    if run is None:
        return action or "vector", output or "invariant"
    config = RunFolder.open(run).config()
    return (
        action or _word_of_run(run, config, "action", get_args(Action)),
        output or _word_of_run(run, config, "output", get_args(Output)),
    )


def _word_of_run(run: Path, config: dict[str, Any], name: str, known: Sequence[str]) -> str:
    word = _entry(config, "parameters", name)
    if word not in known:
        raise RunError(
            f"{run}: its {name} is one of your own ({in_short(word, 60)}), which a run folder does "
            f"not hold. If it moves these samples like {', '.join(known)}, say which: --{name}"
        )
    return word


def _entry(config: dict[str, Any], part: str, name: str) -> Any:
    """A value of a run's settings, None where there is none: the run's own reader complains."""
    found = config.get(part)
    return found.get(name) if isinstance(found, dict) else None


def task_of(y: np.ndarray, asked: str) -> str:
    """Regression or classification: as asked, or if that is "auto" by the target's type.

    Raises
    ------
    DataError
        If its whole numbers may be labels as well as quantities.
    """
    if asked != "auto":
        return asked
    if y.ndim != 1 or y.dtype.kind not in "biuUS":
        return "regression"
    distinct = len(np.unique(y))
    if y.dtype.kind in "iu" and distinct > _MOST_CLASSES:
        raise DataError(
            f"the target holds {distinct} different whole numbers: labels or quantities? Say "
            f"--task classification or --task regression"
        )
    return "classification"


def doubt_about_classes(targets: np.ndarray | FileStream) -> str | None:
    """What to say when whole numbers that are taken for labels may be counts.

    >>> str(doubt_about_classes(np.arange(24)))[:43]
    'the target holds 24 different whole numbers'
    >>> doubt_about_classes(np.array([0, 1, 1]))
    """
    if isinstance(targets, FileStream):
        distinct = targets.distinct(_MOST_CLASSES)
    else:
        distinct = np.unique(targets) if targets.ndim == 1 else None
    if distinct is None or distinct.dtype.kind not in "iu":
        return None
    if not _FEW_CLASSES < len(distinct) <= _MOST_CLASSES:
        return None
    return (
        f"the target holds {len(distinct)} different whole numbers, which are taken as classes. If "
        f"they are counts or other quantities: --task regression"
    )


def task_of_stream(stream: FileStream) -> str:
    """Regression or classification, by the type of a stream's target.

    Raises
    ------
    DataError
        If its whole numbers may be labels as well as quantities.
    """
    if stream.labels is not None:
        return "classification"
    if stream.targets_of(0).dtype.kind not in "biu":
        return "regression"
    labels = stream.distinct(_MOST_CLASSES)
    if labels is None and stream.targets_of(0).ndim == 1:
        raise DataError(
            f"the target holds more than {_MOST_CLASSES} different whole numbers: labels or "
            f"quantities? Say --task classification or --task regression"
        )
    return "regression" if labels is None else "classification"

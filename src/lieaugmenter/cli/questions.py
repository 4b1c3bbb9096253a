"""Commands that ask without training: doctor of data, check of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from cyclopts import Parameter

from lieaugmenter.actions.words import make_action, make_output
from lieaugmenter.analysis.audit import audit
from lieaugmenter.analysis.bench import MOST_ROWS
from lieaugmenter.analysis.models import load_model
from lieaugmenter.cli.answers import answer
from lieaugmenter.cli.options import Action, Drop, Features, Json, Output, Size, Stream
from lieaugmenter.cli.program import ABOVE_LIMIT, BAD_INPUT, app
from lieaugmenter.cli.reading import (
    chosen_columns,
    doubt_about_classes,
    movements,
    read_samples,
    stream_of,
    task_of,
    task_of_stream,
)
from lieaugmenter.data.checkup import Note, Survey, examine
from lieaugmenter.data.files import DataError, enumerated, read_data
from lieaugmenter.data.streaming import FileStream
from lieaugmenter.runs import in_short


@app.command
def doctor(
    data: Path,
    *,
    target: str = "y",
    features: Features = None,
    drop: Drop = None,
    size: Size = None,
    stream: Stream = None,
    json: Json = False,
) -> int:
    """Look at a data set before learning from it: shapes, rank, scaling, what fits.

    Parameters
    ----------
    data
        An .npz with X and the target, a .csv, .tsv or .parquet table, an .npy with X, or a folder,
        .zip or .tar of class folders of images.
    target
        Name of the target array or column; for an .npy the other .npy, with the targets.
    """
    columns = chosen_columns(features, drop)
    pieces = stream_of(data, target, stream, size, columns)
    if pieces is not None:
        x_shape, y_shape, types, task, notes = _look_through(pieces)
    else:
        table = read_data(data, target, size=size, **columns)
        x_shape, y_shape = table.x.shape, table.y.shape
        types = (str(table.x.dtype), str(table.y.dtype))
        task = _task_or_question(table.y)
        notes = examine(table.x, table.y, table.feature_names) + _task_notes(table.y)
    actions = _fitting_actions(x_shape)
    notes += _width_notes(x_shape)
    facts = {
        "X": {"shape": list(x_shape), "dtype": types[0]},
        "y": {"name": target, "shape": list(y_shape), "dtype": types[1]},
        "task": task,
        "actions": actions,
        "notes": [asdict(note) for note in notes],
    }
    lines = [
        f"X: {x_shape} {types[0]}   {target}: {y_shape} {types[1]}",
        f"task: {facts['task']}   actions that fit: {', '.join(actions)}",
        *(f"{note.level}: {note.text}" for note in notes),
    ]
    if not notes:
        lines.append("nothing to remark")
    answer(facts, as_json=json, text="\n".join(lines))
    return BAD_INPUT if any(note.level == "error" for note in notes) else 0


def _look_through(
    stream: FileStream,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, str], str, list[Note]]:
    """Shapes, types, the task and the remarks of a stream, from one reading of it."""
    survey = Survey()
    types = ("", "")
    for x, y in stream.pieces():
        survey.add(x.numpy(), y.numpy())
        types = (str(x.numpy().dtype), str(y.numpy().dtype))
    try:
        task = task_of_stream(stream)
    except DataError as question:
        task = str(question)
    shapes = ((survey.count, *survey.sample_shape), (survey.count, *survey.y_shape))
    names = stream.feature_names if len(survey.sample_shape) == 1 else None
    return *shapes, types, task, survey.notes(names) + _task_notes(stream)


def _task_notes(targets: np.ndarray | FileStream) -> list[Note]:
    doubt = doubt_about_classes(targets)
    return [] if doubt is None else [Note("info", f"{doubt[:1].upper()}{doubt[1:]}.")]


def _width_notes(shape: tuple[int, ...]) -> list[Note]:
    """What a wide table costs."""
    columns = shape[-1]
    if len(shape) != 2 or columns**2 <= MOST_ROWS:
        return []
    text = (
        f"{columns} columns have {columns**2} directions, of which discover judges the likeliest "
        f"{MOST_ROWS}; that takes minutes. Without columns that cannot matter (--drop, --features) "
        f"it is quicker, and surer."
    )
    return [Note("info", text)]


def _task_or_question(y: np.ndarray) -> str:
    try:
        return task_of(y, "auto")
    except DataError as question:
        return str(question)


def _fitting_actions(shape: tuple[int, ...]) -> list[str]:
    if len(shape) == 4:
        first = "image, once X.transpose(0, 3, 1, 2) has put channels first"
        return [first if shape[3] <= 4 < shape[1] else "image"]
    fitting = ["vector"] if len(shape) == 2 else ["points"]
    fitting.append("affine")
    return [*fitting, "fourvector"] if shape[-1] == 4 else fitting


@app.command
def check(
    model: str,
    data: Path,
    *,
    group: str,
    axes: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    target: str | None = None,
    features: Features = None,
    drop: Drop = None,
    action: Action | None = None,
    output: Output | None = None,
    worst: int = 5,
    fail_above: float | None = None,
    seed: int = 0,
    size: Size = None,
    json: Json = False,
) -> int:
    """Measure how equivariant a trained model is under a group.

    Parameters
    ----------
    model
        A TorchScript file, a run folder, or file.py:name, which runs that file.
    data
        Samples: an .npz or .npy with X, a .csv, .tsv or .parquet table, or class folders of images.
    group
        Such as "so(3)", "se(3)" or "so(1,3)"; or a run folder, or a .json with generators.
    axes
        The coordinates that it moves, by number from 0 on or by the name of the column, all unless
        given; several times as many as it needs for vectors that move alike.
    target
        Columns to leave out. Without it all columns are inputs; of a run, those that it was fitted
        on.
    action
        How elements move X. Unless given, as a run was told; as vectors for any other model.
    output
        How the model's outputs move: not at all, the same as X, or as vectors of the space. Unless
        given, as a run was told; not at all for any other model.
    worst
        How many of the worst samples to list.
    fail_above
        Exit with 1 when the largest defect is above this.
    seed
        Of the random generators that it is compared with, and of the bootstrap.
    """
    run = Path(model) if Path(model).is_dir() else None
    loaded = load_model(model)
    table = read_samples(data, target, chosen_columns(features, drop), run=run, size=size)
    inputs, outputs = movements(run, action, output)
    moves = make_action(inputs, table.x.shape[-1])
    found = audit(
        loaded,
        torch.from_numpy(np.ascontiguousarray(table.x)).float(),
        group=group,
        action=moves,
        output=make_output(outputs, moves),
        axes=None if axes is None else [_axis(word, table.feature_names) for word in axes],
        worst=worst,
        seed=seed,
    )
    answer({"model": model, **found.to_json()}, as_json=json, text=str(found))
    # A defect that is not a number is not below any limit.
    passed = fail_above is None or (found.defect is not None and found.defect <= fail_above)
    return 0 if passed else ABOVE_LIMIT


def _axis(word: str, names: Sequence[str]) -> int:
    """The number of a coordinate that is given by the name of its column, or by its number.

    >>> _axis("py", ["px", "py"]), _axis("1", ["px", "py"])
    (1, 1)
    """
    if word in names:
        return names.index(word)
    try:
        return int(word)
    except ValueError:
        raise ValueError(
            f"--axes {in_short(word)}: no such column; choose from {enumerated(names)}, or give "
            f"numbers from 0 on"
        ) from None

"""Commands that ask without training: doctor of data, check of a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from cyclopts import Parameter

from lieaugmenter.analysis.audit import audit
from lieaugmenter.analysis.models import load_model
from lieaugmenter.cli.answers import answer
from lieaugmenter.cli.options import Action, Json, Size, Stream
from lieaugmenter.cli.program import ABOVE_LIMIT, BAD_INPUT, app
from lieaugmenter.cli.reading import stream_of, task_of, task_of_stream
from lieaugmenter.data.checkup import Note, Survey, examine, non_finite_message
from lieaugmenter.data.files import DataError, read_data
from lieaugmenter.data.streaming import FileStream
from lieaugmenter.learning.augmenter import make_action, make_output


@app.command
def doctor(
    data: Path,
    *,
    target: str = "y",
    size: Size = None,
    stream: Stream = None,
    json: Json = False,
) -> int:
    """Look at a data set before learning from it: shapes, rank, scaling, what fits.

    Parameters
    ----------
    data
        An .npz with X and the target, a .csv or .parquet table, an .npy with X, or a folder, .zip
        or .tar of class folders of images.
    target
        Name of the target array or column; for an .npy the other .npy, with the targets.
    """
    pieces = stream_of(data, target, stream, size)
    if pieces is not None:
        x_shape, y_shape, types, task, notes = _look_through(pieces)
    else:
        table = read_data(data, target, size=size)
        x_shape, y_shape = table.x.shape, table.y.shape
        types = (str(table.x.dtype), str(table.y.dtype))
        task = _task_or_question(table.y)
        notes = examine(table.x, table.y, table.feature_names)
    actions = _fitting_actions(x_shape)
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
    return *shapes, types, task, survey.notes(names)


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
    axes: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    target: str | None = None,
    action: Action = "vector",
    output: Literal["invariant", "same"] = "invariant",
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
        Samples: an .npz with X, a .csv or .parquet table, or class folders of images.
    group
        Such as "so(3)", "se(3)" or "so(1,3)"; or a run folder, or a .json with generators.
    axes
        The coordinates that it moves, all unless given; several times as many as it needs for
        vectors that move alike.
    target
        Columns to leave out; all columns are inputs without it.
    action
        How elements move X.
    output
        Whether the model's outputs stay or move with X.
    worst
        How many of the worst samples to list.
    fail_above
        Exit with 1 when the largest defect is above this.
    seed
        Of the random generators that it is compared with, and of the bootstrap.
    """
    table = read_data(data, target, size=size)
    trouble = non_finite_message(table.x, table.feature_names if table.x.ndim == 2 else None)
    if trouble:
        raise DataError(f"{data}: {trouble}")
    moves = make_action(action, table.x.shape[-1])
    found = audit(
        load_model(model),
        torch.from_numpy(np.ascontiguousarray(table.x)).float(),
        group=group,
        action=moves,
        output=make_output(output, moves),
        axes=axes,
        worst=worst,
        seed=seed,
    )
    answer({"model": model, **found.to_json()}, as_json=json, text=str(found))
    # A defect that is not a number is not below any limit.
    passed = fail_above is None or (found.defect is not None and found.defect <= fail_above)
    return 0 if passed else ABOVE_LIMIT

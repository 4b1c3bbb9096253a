"""The command that predicts with a finished run."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from cyclopts import Parameter
from sklearn.metrics import accuracy_score, r2_score

from lieaugmenter.cli.answers import answer, remark
from lieaugmenter.cli.finished import finished_run
from lieaugmenter.cli.options import Drop, Features, Json, Size
from lieaugmenter.cli.program import app
from lieaugmenter.cli.reading import chosen_columns, read_samples
from lieaugmenter.data.files import DataError
from lieaugmenter.export.predictor import load_predictor
from lieaugmenter.runs import write_atomically

_FORMATS = (".csv", ".npz", ".tsv")


@dataclass(frozen=True)
class Predictions:
    """What a run predicts.

    Attributes
    ----------
    values
        (n, …), or labels (n,).
    probabilities
        (n, classes); None of a regression.
    labels
        The classes, in the order of their probabilities.
    """

    values: np.ndarray
    probabilities: np.ndarray | None = None
    labels: Sequence[Any] = ()

    def arrays(self) -> dict[str, np.ndarray]:
        """For an .npz or JSON."""
        if self.probabilities is None:
            return {"prediction": self.values}
        labels = np.asarray(self.labels)
        return {"prediction": self.values, "probabilities": self.probabilities, "classes": labels}

    def rows(self) -> list[list[Any]]:
        """For a table: names of the columns, then a row for each sample."""
        values = self.values.reshape(len(self.values), -1)
        names = [
            "_".join(["prediction", *map(str, place)])
            for place in product(*map(range, self.values.shape[1:]))
        ]
        if self.probabilities is None:
            return [names, *([f"{value:.8g}" for value in row] for row in values)]
        names += [f"p({label})" for label in self.labels]
        return [
            names,
            *(
                [*labels, *(f"{share:.6g}" for share in shares)]
                for labels, shares in zip(values, self.probabilities, strict=True)
            ),
        ]

    def score(self, y: np.ndarray) -> dict[str, float]:
        """The share of right labels, or R² as the estimators tell it."""
        if self.probabilities is not None:
            # A file may hold as words what was learned as numbers, and the other way round.
            return {"accuracy": float(accuracy_score(y.astype(str), self.values.astype(str)))}
        expected, found = (a.reshape(len(a), -1) for a in (y, self.values))
        return {"R2": float(r2_score(expected, found))}


@app.command
def predict(
    run: Path,
    data: Path,
    *,
    target: str | None = None,
    features: Features = None,
    drop: Drop = None,
    size: Size = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    json: Json = False,
) -> int:
    """Predict with a finished run: values, or labels and their probabilities.

    Parameters
    ----------
    run
        The run folder.
    data
        Samples: an .npz or .npy with X, a .csv, .tsv or .parquet table, or class folders of images.
        Of a table, the columns that the run was fitted on are used, whatever else it has.
    target
        Where the data hold what is to be predicted: how good the predictions are is told, too.
    out
        A .csv, .tsv or .npz to write; without it the table is printed.
    """
    if out is not None and out.suffix.lower() not in _FORMATS:
        raise DataError(f"{out}: predictions are written as {', '.join(_FORMATS)}")
    found = load_predictor(finished_run(run).path)
    table = read_samples(data, target, chosen_columns(features, drop), run=run, size=size)
    if table.x.shape[1:] != found.sample_shape:
        raise DataError(
            f"{data}: samples of shape {table.x.shape[1:]}, but {run} was fitted on samples of "
            f"shape {found.sample_shape}"
        )
    x = torch.from_numpy(np.ascontiguousarray(table.x)).float()
    predictions = _labelled(found.module.predict(x).numpy(), found.labels)
    score = predictions.score(table.y) if table.y.size else {}
    for name, value in score.items():
        remark(f"{name} {value:.4g} on {len(x)} samples")
    if out is not None:
        _write(out, predictions)
        result = {"predictions": str(out), "samples": len(x), **score}
        answer(result, as_json=json, text=f"predictions: {out}")
    elif json:
        arrays = {name: array.tolist() for name, array in predictions.arrays().items()}
        answer({**arrays, **score}, as_json=True, text="")
    else:
        # Not on the console, which would break lines.
        print(_as_table(predictions, ","), end="")
    return 0


def _labelled(values: np.ndarray, labels: Sequence[Any] | None) -> Predictions:
    """Predictions of a regression as they are, of classes with the likeliest label."""
    if labels is None:
        # Targets (n,) were learned with an axis for the one number that they are.
        return Predictions(values.squeeze(1) if values.shape[1:] == (1,) else values)
    return Predictions(np.asarray(labels)[values.argmax(1)], values, labels)


def _as_table(predictions: Predictions, separator: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows(predictions.rows())
    return text.getvalue()


def _write(path: Path, predictions: Predictions) -> None:
    if path.suffix.lower() == ".npz":
        content = io.BytesIO()
        np.savez(content, **predictions.arrays())  # pyright: ignore[reportArgumentType]  # none is called allow_pickle
        write_atomically(path, content.getvalue())
        return
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    write_atomically(path, _as_table(predictions, separator))

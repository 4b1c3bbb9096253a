"""How a data set is read, whole or in pieces, and which task its target sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lieaugmenter.data.files import DataError
from lieaugmenter.data.streaming import STREAMED, FileStream, is_large, stream_data

# More whole numbers than this may be quantities as well as labels: the user is asked.
_MOST_CLASSES = 30


def stream_of(path: Path, target: str, asked: bool | None, size: int | None) -> FileStream | None:
    """The file as a stream, if it is to be read piece by piece.

    Parameters
    ----------
    path, target
        The data and their target, as the commands take them.
    asked
        Whether to read it so; if nothing was asked, its kind and size decide.
    size
        Of images, of which no stream is made.
    """
    if asked is None:
        asked = path.is_file() and path.suffix.lower() in STREAMED and is_large(path)
    if not asked:
        return None
    if size is not None:
        raise DataError(f"{path}: a size is for folders and archives of images, not for arrays")
    return stream_data(path, target)


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

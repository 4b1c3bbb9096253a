"""Files that are read piece by piece: Parquet by row groups, .npy through memory maps.

What is in memory at any time is a piece, never the file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lieaugmenter.data.files import (
    Columns,
    DataError,
    kind_of_column,
    names_in_parquet,
    npy_of_targets,
    plain_column,
)
from lieaugmenter.learning.streams import Piece, Stream

# Rows of an .npy that are read at once, in number and in memory.
_ROWS = 4096
_BYTES = 2**20
# A row group is read whole; a larger one is refused.
_LARGEST_GROUP = 2**30
_MOST_WORDS = 10_000
# Tables that hold more than this are read piece by piece unless told otherwise.
_LARGE = 2**30
STREAMED = (".npy", ".parquet")


class FileStream(Stream):
    """A file that is read piece by piece.

    Subclasses give `piece`.

    Attributes
    ----------
    sizes
        Samples of each piece.
    feature_names
        Names of the inputs.
    named
        Whether the file has them; they are numbers otherwise.
    labels
        The words that the numbers in y stand for; None where targets are numbers.
    """

    sizes: Sequence[int]
    feature_names: list[str]
    named = False
    labels: np.ndarray | None = None

    @cached_property
    def count(self) -> int:
        return sum(self.sizes)

    @abstractmethod
    def piece(self, number: int) -> Piece:
        """Read one piece."""

    @abstractmethod
    def targets_of(self, number: int) -> np.ndarray:
        """The targets of one piece as they are in the file."""

    def distinct(self, most: int) -> np.ndarray | None:
        """The different targets, sorted; None if there are more than `most`, or no single column.

        Reads the targets alone.
        """
        found: np.ndarray | None = None
        for number in range(len(self.sizes)):
            targets = self.targets_of(number)
            if targets.ndim > 1:
                return None
            found = np.unique(targets) if found is None else np.union1d(found, targets)
            if len(found) > most:
                return None
        return found

    def pieces(self, rng: torch.Generator | None = None) -> Iterator[Piece]:
        n = len(self.sizes)
        order = torch.arange(n) if rng is None else torch.randperm(n, generator=rng)
        for number in order.tolist():
            yield self.piece(number)


def stream_data(
    path: str | Path,
    target: str = "y",
    *,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
) -> FileStream:
    """Open a file to be read piece by piece.

    Parameters
    ----------
    path
        A .parquet table with one row a sample, or an .npy array of inputs, (N, features) or more
        axes.
    target
        For a table the name of the target column, or several, separated by commas; for an .npy the
        path of another one, the targets.
    features, drop
        Of a table, the columns to use as inputs, in this order, or those to leave out.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "x.npy", np.ones((10, 3))); np.save(folder / "y.npy", np.zeros(10))
    >>> stream = stream_data(folder / "x.npy", str(folder / "y.npy"))
    >>> x, y = next(stream.pieces())
    >>> stream.count, tuple(x.shape), tuple(y.shape)
    (10, (10, 3), (10,))

    Raises
    ------
    DataError
        For anything that is not such a file.
    """
    path = Path(path)
    if path.suffix.lower() not in STREAMED:
        raise DataError(
            f"{path}: only {' and '.join(STREAMED)} files are read piece by piece; convert it, or "
            f"read it whole"
        )
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    columns = Columns(target, features, drop)
    if path.suffix.lower() == ".parquet":
        stream = ParquetStream(path, columns)
    else:
        columns.refuse(path)
        stream = NpyStream(path, Path(target))
    if stream.count == 0:
        raise DataError(f"{path}: the file has no rows")
    return stream


def is_large(path: Path) -> bool:
    """Whether a file is to be read piece by piece unless told otherwise: more than 1 GiB unpacked.

    An .npy always is: it costs nothing, for any row of it can be read without the others.
    """
    if path.suffix.lower() == ".npy":
        return True
    with _readable_parquet(path) as file:
        groups = range(file.metadata.num_row_groups)
        return sum(file.metadata.row_group(i).total_byte_size for i in groups) > _LARGE


class ParquetStream(FileStream):
    """A Parquet table, one row group after the other.

    Parameters
    ----------
    path
        The file.
    columns
        Which of its columns are targets, and which are inputs.
    """

    named = True

    def __init__(self, path: Path, columns: Columns) -> None:
        self.path = path
        with _readable_parquet(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
            groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        self.sizes = [group.num_rows for group in groups]
        largest = max((group.total_byte_size for group in groups), default=0)
        if largest > _LARGEST_GROUP:
            raise DataError(
                f"{path}: a row group unpacks to {largest / 2**30:.1f} GiB, and a row group is "
                f"read whole. Write the file with smaller ones (row_group_size=10_000, say)"
            )
        self.stored = names_in_parquet(path, schema)
        self.targets, self.feature_names = columns.split(path, list(self.stored))
        used = (*self.feature_names, *self.targets)
        types = {name: schema.field(self.stored[name]).type for name in used}
        kinds = {name: kind_of_column(arrow_type) for name, arrow_type in types.items()}
        words = kinds[self.targets[0]] == "words" and len(self.targets) == 1
        self.whole = kinds[self.targets[0]] == "whole" and len(self.targets) == 1
        for name in used:
            if kinds[name] not in ("whole", "real") and not (words and name == self.targets[0]):
                raise DataError(
                    f"{path}: column {name!r} holds {types[name]}, which are no "
                    f"numbers. Encode words as numbers, or leave the column out: --drop {name!r}"
                )
        if words:
            self.labels = _words(self, path)

    def piece(self, number: int) -> Piece:
        columns = self._read(number, [*self.feature_names, *self.targets])
        x = np.empty((self.sizes[number], len(self.feature_names)), dtype=np.float32)
        for place, name in enumerate(self.feature_names):
            x[:, place] = columns[name]
        first = columns[self.targets[0]]
        if self.labels is not None:
            y = torch.from_numpy(np.searchsorted(self.labels, first.astype(str)))
        elif len(self.targets) > 1:
            stacked = np.stack([columns[name] for name in self.targets], axis=1)
            y = torch.from_numpy(stacked.astype(np.float32))
        else:
            y = torch.from_numpy(first.astype(np.int64 if self.whole else np.float32))
        return torch.from_numpy(x), y

    def _read(self, number: int, names: list[str]) -> dict[str, np.ndarray]:
        with _readable_parquet(self.path) as file:
            inside = {name: self.stored[name] for name in names}
            table = file.read_row_group(number, columns=list(inside.values()), use_threads=False)
            for name in self.targets:
                empty = table[inside[name]].null_count
                if empty:
                    raise DataError(
                        f"{self.path}: the target {name!r} is empty in {empty} rows of row group "
                        f"{number + 1}. Drop the rows or fill them in; lieaugmenter never fills "
                        f"values silently"
                    )
            return {name: plain_column(table[inside[name]]) for name in names}

    def targets_of(self, number: int) -> np.ndarray:
        columns = self._read(number, self.targets)
        if len(self.targets) == 1:
            column = columns[self.targets[0]]
            return column.astype(str) if column.dtype == object else column
        return np.stack([columns[name] for name in self.targets], axis=1)


class NpyStream(FileStream):
    """Two .npy files, read through a memory map that is opened for each piece.

    A map that stays open would count every page of the file that was ever read as memory in use.

    Parameters
    ----------
    path
        Inputs, (N, …).
    target
        Targets, (N,) or (N, …).
    """

    def __init__(self, path: Path, target: Path) -> None:
        self.x, self.y = _Npy(path), _Npy(npy_of_targets(target))
        if len(self.x.shape) < 2:
            raise DataError(
                f"{path}: X has shape {self.x.shape}; expected one row a sample, (N, features) or "
                f"more axes"
            )
        if not self.y.shape or self.x.shape[0] != self.y.shape[0]:
            raise DataError(
                f"{path} has {self.x.shape[0]} rows, {target} has shape {self.y.shape}: one target "
                f"a row is needed"
            )
        if self.x.dtype.kind in "US":
            raise DataError(f"{path}: X has dtype {self.x.dtype}; numbers are needed")
        rows = max(1, min(_ROWS, _BYTES // max(self.x.row_bytes, 1)))
        n = self.x.shape[0]
        self.starts = range(0, n, rows)
        self.sizes = [min(rows, n - start) for start in self.starts]
        self.feature_names = [f"x{i + 1}" for i in range(self.x.shape[-1])]
        if self.y.dtype.kind in "US":
            if len(self.y.shape) > 1:
                raise DataError(f"{target}: words of shape {self.y.shape}; labels must be (N,)")
            self.labels = _words(self, target)

    def piece(self, number: int) -> Piece:
        start, count = self.starts[number], self.sizes[number]
        x = torch.from_numpy(self.x.rows(start, count).astype(np.float32))
        return x, self._targets(self.targets_of(number))

    def targets_of(self, number: int) -> np.ndarray:
        return self.y.rows(self.starts[number], self.sizes[number])

    def _targets(self, y: np.ndarray) -> Tensor:
        if self.labels is not None:
            return torch.from_numpy(np.searchsorted(self.labels, y))
        return torch.from_numpy(y.astype(np.float32 if y.dtype.kind == "f" else np.int64))


class _Npy:
    """Shape and place of the array in an .npy file."""

    def __init__(self, path: Path) -> None:
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError, SyntaxError) as error:
            raise DataError(f"{path}: not a readable .npy file ({error})") from None
        if not isinstance(found, np.memmap) or found.dtype.kind not in "biufUS":
            raise DataError(f"{path}: holds no numbers that can be mapped into memory")
        if not found.flags.c_contiguous:
            raise DataError(
                f"{path}: is stored column by column, so that a row is all over the file; save "
                f"np.ascontiguousarray(x)"
            )
        self.path, self.shape, self.dtype = path, found.shape, found.dtype
        self.offset = found.offset

    @property
    def row_bytes(self) -> int:
        """Memory of one row."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    def rows(self, start: int, count: int) -> np.ndarray:
        """Some rows, copied out of the map."""
        shape = (count, *self.shape[1:])
        place = self.offset + start * self.row_bytes
        return np.array(np.memmap(self.path, self.dtype, "r", offset=place, shape=shape))


def _words(stream: FileStream, path: Path) -> np.ndarray:
    """The different words of the targets, sorted."""
    found = stream.distinct(_MOST_WORDS)
    if found is None:
        raise DataError(
            f"{path}: the target has more than {_MOST_WORDS} different words, which are no classes"
        )
    return found


@contextmanager
def _readable_parquet(path: Path) -> Iterator[Any]:
    """The open file; whatever is wrong with it becomes one sentence."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            "reading .parquet needs pyarrow: pip install 'lieaugmenter[parquet]'"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a readable .parquet file ({first})") from None

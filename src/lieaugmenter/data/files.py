"""Reading a user's own data: tables, arrays and images, with one clear message for what is wrong.

Nothing is ever unpickled: an .npz with Python objects in it is refused.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# Files that would unpack to more than this are refused before anything is read.
LARGEST_BYTES = 32 * 2**30
_IMAGE_ARCHIVES = (".tar", ".zip")


class DataError(ValueError):
    """A data file that cannot be used, with a message for users."""


@dataclass(frozen=True)
class Table:
    """Inputs, targets, and the names of the input columns."""

    x: np.ndarray
    y: np.ndarray
    feature_names: list[str]


def read_data(path: str | Path, target: str | None = "y", *, size: int | None = None) -> Table:
    """Read inputs and targets from a file, or images from class folders.

    Parameters
    ----------
    path
        An .npz with an array `X` and one named by `target`; a .csv or .parquet table with one row
        a sample, in which `target` names the target column or several, separated by commas; or a
        folder, .zip or .tar of class folders of images, which are read as bytes (N, C, H, W) with
        the names of the folders as targets.
    target
        Name of the target; class folders need none. None reads inputs alone: all columns of a
        table, the X of an .npz; the targets are then without columns, (N, 0).
    size
        Side in pixels to resize images to; without it they must be of one size.

    Raises
    ------
    DataError
        For anything that is not such a file or folder.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in _IMAGE_ARCHIVES:
        return _read_class_folders(path, size)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if size is not None:
        raise DataError(f"{path}: a size is for folders and archives of images, not for arrays")
    readers = {".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}
    if suffix not in readers:
        raise DataError(
            f"{path}: unknown kind of file {path.suffix!r}; choose from .csv, .npz, .parquet, and "
            f"for class folders of images .tar, .zip or a folder"
        )
    table = readers[suffix](path, target)
    if len(table.x) != len(table.y):
        raise DataError(f"{path}: X has {len(table.x)} rows, {target} has {len(table.y)}")
    if len(table.x) == 0:
        raise DataError(f"{path}: the file has no rows")
    return table


def read_arrays(path: Path, names: Sequence[str], hint: str = "") -> dict[str, np.ndarray]:
    """The named arrays of an .npz.

    Parameters
    ----------
    path
        The file.
    names
        The arrays to read.
    hint
        What to do if one is missing: the end of that message.

    Raises
    ------
    DataError
        For a file that is damaged, too large, or without one of the arrays, and for pickled
        objects.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > LARGEST_BYTES:
            raise DataError(
                f"{path}: unpacks to {size / 2**30:.0f} GiB; at most {LARGEST_BYTES // 2**30} "
                f"GiB are read"
            )
        with np.load(path, allow_pickle=False) as arrays:
            for name in names:
                if name not in arrays.files:
                    found = ", ".join(arrays.files) or "none"
                    raise DataError(f"{path}: no array {name!r}; the file has {found}{hint}")
            return {name: arrays[name] for name in names}
    except DataError:
        raise
    except ValueError as error:
        if "pickle" in str(error).lower():
            plain = ", ".join(f"{name}={name}" for name in names)
            raise DataError(
                f"{path}: holds pickled Python objects, which are never loaded because they can "
                f"run code. Save plain numeric arrays: np.savez(path, {plain})"
            ) from None
        raise DataError(f"{path}: damaged .npz file ({error})") from None
    except (
        zipfile.BadZipFile,
        zlib.error,
        OSError,
        EOFError,
        KeyError,
        MemoryError,
        NotImplementedError,
    ) as error:
        raise DataError(f"{path}: not a readable .npz file ({error})") from None


def _read_npz(path: Path, target: str | None) -> Table:
    hint = ". An .npz needs X and the target (name it with --target)"
    arrays = read_arrays(path, ("X",) if target is None else ("X", target), hint)
    x = arrays["X"]
    y = _no_targets(x) if target is None else arrays[target]
    for name, array in (("X", x), (target, y)):
        if array.dtype.kind not in "biufUS" or (name == "X" and array.dtype.kind in "US"):
            raise DataError(f"{path}: {name} has dtype {array.dtype}; numbers are needed")
    if x.ndim < 2:
        raise DataError(
            f"{path}: X has shape {x.shape}; expected one row a sample, (N, features) or more axes"
        )
    if y.ndim == 0:
        raise DataError(f"{path}: {target} is a single number; expected one value a sample")
    return Table(x, y, _default_names(x.shape[-1]))


def _read_class_folders(path: Path, size: int | None) -> Table:
    # Here, because that module raises this one's DataError.
    from lieaugmenter.data.histology import read_class_folders

    found = read_class_folders(path, size=size)
    names = np.array(found.class_names)
    return Table(found.images, names[found.labels], _default_names(found.images.shape[-1]))


def _read_csv(path: Path, target: str | None) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file, strict=True)
            header = [name.strip() for name in next(rows, [])]
            _check_header(path, header)
            cells = [row for row in rows if row]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except csv.Error as error:
        raise DataError(f"{path}: not a readable .csv file ({error})") from None
    for number, row in enumerate(cells, start=2):
        if len(row) != len(header):
            raise DataError(
                f"{path}: line {number} has {len(row)} cells, the header has {len(header)}"
            )
    columns = {name: [row[i] for row in cells] for i, name in enumerate(header)}
    return _split_columns(path, columns, target)


def _read_parquet(path: Path, target: str | None) -> Table:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            "reading .parquet needs pyarrow: pip install 'lieaugmenter[parquet]'"
        ) from None
    try:
        table = parquet.read_table(path)
        columns = {
            str(name): table[name].to_numpy(zero_copy_only=False) for name in table.column_names
        }
    except (pa.ArrowException, OSError, ValueError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a readable .parquet file ({first})") from None
    _check_header(path, list(columns))
    return _split_columns(path, columns, target)


def _check_header(path: Path, header: list[str]) -> None:
    if not header or all(not name for name in header):
        raise DataError(f"{path}: no header line with column names")
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise DataError(f"{path}: column {repeated[0]!r} appears more than once")


def _split_columns(
    path: Path, columns: Mapping[str, list[str] | np.ndarray], target: str | None
) -> Table:
    targets = [name.strip() for name in (target or "").split(",") if name.strip()]
    missing = [name for name in targets if name not in columns]
    if missing or (not targets and target is not None):
        raise DataError(
            f"{path}: no column {missing[0] if missing else target!r}; the file has "
            f"{', '.join(columns)}. Name the target with --target"
        )
    features = [name for name in columns if name not in targets]
    if not features:
        raise DataError(f"{path}: no column is left for X besides the target")
    x = np.stack([_numbers(path, name, columns[name]) for name in features], axis=1)
    if not targets:
        y = _no_targets(x)
    elif len(targets) > 1:
        y = np.stack([_numbers(path, name, columns[name]) for name in targets], axis=1)
    else:
        y = _target(path, targets[0], columns[targets[0]])
    return Table(x, y, features)


def _numbers(path: Path, name: str, column: list[str] | np.ndarray) -> np.ndarray:
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return column.astype(np.float64)
    try:
        return np.array([float(cell) for cell in column], dtype=np.float64)
    except (TypeError, ValueError):
        for row, cell in enumerate(column):
            if not _is_number(cell):
                raise DataError(
                    f"{path}: column {name!r}, row {row + 1} holds {str(cell)[:40]!r}, which is "
                    f"no number. Encode words as numbers or leave the column out"
                ) from None
        raise


def _target(path: Path, name: str, column: list[str] | np.ndarray) -> np.ndarray:
    """Numbers if all are numbers (whole ones as integers: labels), else words."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return column
    for row, cell in enumerate(column):
        if cell is None or not str(cell).strip():
            raise DataError(
                f"{path}: the target {name!r} is empty in row {row + 1}. Drop the row or fill it "
                f"in; lieaugmenter never fills values silently"
            )
    if not all(_is_number(cell) for cell in column):
        return np.array([str(cell) for cell in column])
    looks_whole = all(str(cell).strip().lstrip("+-").isdigit() for cell in column)
    numbers = np.array([float(cell) for cell in column])
    return numbers.astype(np.int64) if looks_whole else numbers


def _is_number(cell: object) -> bool:
    try:
        float(cell)  # pyright: ignore[reportArgumentType]  # that is the question
    except (TypeError, ValueError):
        return False
    return True


def _no_targets(x: np.ndarray) -> np.ndarray:
    return np.empty((len(x) if x.ndim else 0, 0))


def _default_names(count: int) -> list[str]:
    return [f"x{i + 1}" for i in range(count)]

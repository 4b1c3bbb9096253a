"""Reading a user's own data: tables, arrays and images, with one clear message for what is wrong.

Nothing is ever unpickled: an .npz with Python objects in it is refused. What a file says about its
own size is compared with what it holds before memory is taken for it.
"""

from __future__ import annotations

import csv
import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from lieaugmenter.runs import in_short

# Files that would unpack to more than this are refused before anything is read.
LARGEST_BYTES = 32 * 2**30
# And so are those that unpack to more than this, and to so many times their size: bombs. Plain
# numbers seldom shrink to a tenth.
_SUSPICIOUS_BYTES = 2**28
_LARGEST_RATIO = 200
# Of an archive; the largest set of images that is known here has a tenth of it.
MOST_MEMBERS = 2**20
# Of a table. A generator has the square of as many entries.
_MOST_COLUMNS = 100_000
_LONGEST_LINE = 2**24
# What may stand between the cells of a .csv; of those that are as frequent, the first.
_SEPARATORS = (",", ";", "\t")
# What else some write between them, and how to call it in a message.
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "'|'", " ": "spaces"}
_IMAGE_ARCHIVES = (".tar", ".zip")


class DataError(ValueError):
    """A data file that cannot be used, with a message for users."""


@dataclass(frozen=True)
class Table:
    """Inputs, targets, and the names of the input columns.

    Attributes
    ----------
    x, y, feature_names
        As they are.
    named
        Whether the file has the names; they are numbers otherwise.
    """

    x: np.ndarray
    y: np.ndarray
    feature_names: list[str]
    named: bool = False


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are targets, and which are inputs.

    Attributes
    ----------
    target
        Name of the target column, or several, separated by commas; None for inputs alone.
    features
        Names of the inputs, in this order; all columns but the targets unless given.
    drop
        Names of columns that are neither.
    """

    target: str | None
    features: Sequence[str] | None = None
    drop: Sequence[str] | None = None

    def split(self, path: Path, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Names of the targets and of the inputs, of the columns that a table has.

        >>> Columns("y", drop=["id"]).split(Path("d.csv"), ["id", "a", "b", "y"])
        (['y'], ['a', 'b'])
        >>> Columns("y", features=["b", "a"]).split(Path("d.csv"), ["id", "a", "b", "y"])
        (['y'], ['b', 'a'])
        """
        targets = self._targets()
        known = set(names)
        for wanted, advice in (
            (targets, ". Name the target with --target"),
            (self.features or [], ". Name the inputs with --features"),
            (self.drop or [], ""),
        ):
            missing = next((name for name in wanted if name not in known), None)
            if missing is not None:
                raise DataError(
                    f"{path}: no column {_cut(missing)!r}; the file has {enumerated(names)}{advice}"
                )
            if len(set(wanted)) < len(wanted):
                raise DataError(f"{path}: {enumerated(wanted)}: name every column once")
        if self.features is not None and self.drop is not None:
            raise DataError(f"{path}: give the features to use, or the columns to drop, not both")
        both = next((name for name in self.features or [] if name in targets), None)
        if both is not None:
            raise DataError(
                f"{path}: {_cut(both)!r} is the target and among the features, from which it could "
                f"be read off. Leave it out of --features"
            )
        others = {*targets, *(self.drop or [])}
        chosen = names if self.features is None else self.features
        features = [name for name in chosen if name not in others]
        if not features:
            raise DataError(f"{path}: no column is left for X besides the target")
        return targets, features

    def _targets(self) -> list[str]:
        if self.target is None:
            return []
        return [name.strip() for name in self.target.split(",") if name.strip()] or [self.target]

    def refuse(self, path: Path) -> None:
        """Raise a `DataError` if columns are chosen of what has none with names."""
        if self.features is not None or self.drop is not None:
            raise DataError(
                f"{path}: features and columns to drop are chosen by name, which only tables have"
            )


def holds_images(path: Path) -> bool:
    """Whether a path is read as class folders of images: a folder, or an archive of one."""
    return path.is_dir() or path.suffix.lower() in _IMAGE_ARCHIVES


def read_data(
    path: str | Path,
    target: str | None = "y",
    *,
    size: int | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
) -> Table:
    """Read inputs and targets from a file, or images from class folders.

    Parameters
    ----------
    path
        An .npz with an array `X` and one named by `target`; an .npy with `X`, for which `target` is
        the path of another, with the targets; a .csv, .tsv or .parquet table with one row a sample,
        in which `target` names the target column or several, separated by commas; or a folder, .zip
        or .tar of class folders of images, which are read as bytes (N, C, H, W) with the names of
        the folders as targets. The cells of a .csv are separated by commas, semicolons or tabs,
        whichever its header has most of; lines before the header that begin with # are comments.
        A column without a name is called by its place, ``"column 0"``.
    target
        Name of the target; class folders need none. None reads inputs alone: all columns of a
        table, the X of an .npz or .npy; the targets are then without columns, (N, 0).
    size
        Side in pixels to resize images to; without it they must be of one size.
    features, drop
        Of a table, the columns to use as inputs, in this order, or those to leave out.

    Raises
    ------
    DataError
        For anything that is not such a file or folder.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    columns = Columns(target, features, drop)
    if holds_images(path):
        columns.refuse(path)
        return _read_class_folders(path, size)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if size is not None:
        raise DataError(f"{path}: a size is for folders and archives of images, not for arrays")
    readers = {
        ".csv": _read_csv,
        ".npy": _read_npy,
        ".npz": _read_npz,
        ".parquet": _read_parquet,
        ".tsv": _read_csv,
    }
    if suffix not in readers:
        raise DataError(
            f"{path}: unknown kind of file {path.suffix!r}; choose from {', '.join(readers)}, and "
            f"for class folders of images {', '.join(_IMAGE_ARCHIVES)} or a folder"
        )
    table = readers[suffix](path, columns)
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
            check_archive(path, archive)
            members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            for name in names:
                if name not in members:
                    found = enumerated(members) or "none"
                    raise DataError(f"{path}: no array {name!r}; the file has {found}{hint}")
            return {name: _read_member(archive, members[name]) for name in names}
    except DataError:
        raise
    except _PickledError:
        plain = ", ".join(f"{name}={name}" for name in names)
        raise DataError(
            f"{path}: holds pickled Python objects, which are never loaded because they can "
            f"run code. Save plain numeric arrays: np.savez(path, {plain})"
        ) from None
    except Exception as error:
        # Damaged archives and headers raise anything, from struct.error to tokenize.TokenError.
        raise DataError(f"{path}: not a readable .npz file ({in_short(error)})") from None


def check_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise a `DataError` if there are too many members, or would be too many bytes."""
    entries = archive.infolist()
    if len(entries) > MOST_MEMBERS:
        raise DataError(f"{path}: has {len(entries)} members; at most {MOST_MEMBERS} are read")
    check_unpacked(path, sum(entry.file_size for entry in entries), path.stat().st_size)


def check_unpacked(path: Path, unpacked: int, packed: int) -> None:
    """Raise a `DataError` for what would fill the memory: too large, or a bomb.

    Parameters
    ----------
    path
        The file.
    unpacked
        Bytes that it says it holds.
    packed
        Bytes that it takes.
    """
    if unpacked > LARGEST_BYTES:
        raise DataError(
            f"{path}: unpacks to {unpacked / 2**30:.0f} GiB; at most {LARGEST_BYTES // 2**30} GiB "
            f"are read"
        )
    if unpacked > max(_SUSPICIOUS_BYTES, _LARGEST_RATIO * packed):
        raise DataError(
            f"{path}: unpacks to {unpacked / 2**20:.0f} MiB from {packed / 2**20:.2f}, which only "
            f"a file made to fill the memory does. If it is yours, save it without compression"
        )


def enumerated(names: Iterable[object]) -> str:
    """The first names of a file, for a message: they may be many, and long."""
    shown = [_cut(str(name)) for name in names]
    return ", ".join(shown[:10] + ["…"] * (len(shown) > 10))


def _cut(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:40]}…"


class _PickledError(ValueError):
    """An array of Python objects."""


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(entry) as file:
        check_npy(file, entry.file_size)
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)


def check_npy(file: IO[bytes], size: int) -> None:
    """Raise a ValueError unless an .npy holds as many bytes as its header says.

    Parameters
    ----------
    file
        At its start.
    size
        Of the whole file, in bytes.
    """
    # Version 3 is for arrays with named fields, which are not read.
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(file)
    if version not in readers:
        raise ValueError(f"version {version} of the format is not read")
    shape, _, dtype = readers[version](file)
    if dtype.hasobject:
        raise _PickledError("an array of Python objects")
    said, held = math.prod(shape) * dtype.itemsize, size - file.tell()
    if said != held or any(length < 0 for length in shape):
        raise ValueError(f"an array of {said} bytes by its header, {held} are there")


def _read_npz(path: Path, columns: Columns) -> Table:
    columns.refuse(path)
    target = columns.target
    hint = ". An .npz needs X and the target (name it with --target)"
    arrays = read_arrays(path, ("X",) if target is None else ("X", target), hint)
    x = arrays["X"]
    return _table_of_arrays(path, x, None if target is None else arrays[target], target)


def _read_npy(path: Path, columns: Columns) -> Table:
    columns.refuse(path)
    target = columns.target
    y = None if target is None else _array_of_npy(npy_of_targets(target))
    return _table_of_arrays(path, _array_of_npy(path), y, target)


def npy_of_targets(target: str | Path) -> Path:
    """The .npy with the targets of one with inputs.

    Parameters
    ----------
    target
        Its path, as a user gives it.

    Raises
    ------
    DataError
        If that is no .npy, or is not there.
    """
    path = Path(target)
    if path.suffix.lower() != ".npy":
        raise DataError(
            f"{path}: the inputs are an .npy, so the targets must be another one: --target y.npy"
        )
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    return path


def _array_of_npy(path: Path) -> np.ndarray:
    size = path.stat().st_size
    check_unpacked(path, size, size)
    try:
        with path.open("rb") as file:
            check_npy(file, size)
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:
        # Damaged headers raise anything, from OverflowError to tokenize.TokenError.
        raise DataError(f"{path}: not a readable .npy file ({in_short(error)})") from None


def _table_of_arrays(path: Path, x: np.ndarray, y: np.ndarray | None, target: str | None) -> Table:
    """Arrays of numbers as a table, or a `DataError`; targets may be words."""
    y = _no_targets(x) if y is None else y
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


def _read_csv(path: Path, columns: Columns) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, cells = _cells(path, _lines(path, file))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except csv.Error as error:
        raise DataError(f"{path}: not a readable {path.suffix} file ({in_short(error)})") from None
    targets, features = columns.split(path, header)
    places = {name: i for i, name in enumerate(header)}
    used = {name: [row[places[name]] for row in cells] for name in (*features, *targets)}
    return _table(path, used, targets, features)


def _cells(path: Path, lines: Iterator[str]) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the rows."""
    first, before = "", 0
    for line in lines:
        if line.strip() and not line.startswith("#"):
            first = line
            break
        before += 1
    separator = "\t" if path.suffix.lower() == ".tsv" else _separator_of(first)
    rows = csv.reader(chain([first], lines), delimiter=separator, strict=True)
    header = _checked_names(path, [name.strip() for name in next(rows, [])])
    _check_that_it_names_columns(path, header)
    cells: list[list[str]] = []
    for row in rows:
        if row and not cells:
            _check_separator(path, header, row, separator)
        if row and len(row) != len(header):
            raise DataError(
                f"{path}: line {before + rows.line_num} has {len(row)} cells, the header has "
                f"{len(header)}"
            )
        cells += [row] if row else []
    return header, cells


def _separator_of(header: str) -> str:
    """What stands between the names of columns.

    >>> _separator_of("x;y;t"), _separator_of('"a; b",c'), _separator_of("alone")
    (';', ',', ',')
    """
    unquoted = re.sub(r'"[^"]*"', "", header)
    return max(_SEPARATORS, key=unquoted.count)


def _check_separator(path: Path, header: list[str], row: list[str], separator: str) -> None:
    """Raise a `DataError` if the only column there is would be several with another separator."""
    if len(header) > 1 or len(row) > 1:
        return
    for mark, word in _MARKS.items():
        parts = [len(line.split(None if mark == " " else mark)) for line in (header[0], row[0])]
        if mark != separator and parts[0] == parts[1] > 1:
            wanted = "tabs" if path.suffix.lower() == ".tsv" else "commas, semicolons or tabs"
            raise DataError(
                f"{path}: has one column, whose cells seem to be separated by {word}; write "
                f"{wanted}"
            )


def _check_that_it_names_columns(path: Path, header: list[str]) -> None:
    """Raise a `DataError` for a header of numbers, which is a sample."""
    # pandas writes 0, 1, 2, … where columns have no names.
    counted = header == [str(i) for i in range(len(header))]
    if all(_is_number(name) for name in header) and not counted:
        raise DataError(
            f"{path}: the first line has to name the columns; this one holds numbers "
            f"({enumerated(header[:4])}{', …' * (len(header) > 4)}). Write a line of names above "
            f"it, without # at its beginning"
        )


def _read_parquet(path: Path, columns: Columns) -> Table:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            "reading .parquet needs pyarrow: pip install 'lieaugmenter[parquet]'"
        ) from None
    try:
        stored = names_in_parquet(path, parquet.read_schema(path))
        targets, features = columns.split(path, list(stored))
        wanted = {name: stored[name] for name in (*features, *targets)}
        found = _parquet_columns(path, list(wanted.values()), pa, parquet)
        used = {name: found[inside] for name, inside in wanted.items()}
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: not a readable .parquet file ({in_short(error)})") from None
    return _table(path, used, targets, features)


def _parquet_columns(path: Path, names: list[str], pa: Any, parquet: Any) -> dict[str, np.ndarray]:
    schema, used = parquet.read_schema(path), set(names)
    fields = [f for f in schema if f.name in used]
    words = [f.name for f in fields if kind_of_column(f.type) == "words"]
    # A word that is repeated takes no more room in the file, but would in memory: first it is read
    # as a number and a list of words.
    with parquet.ParquetFile(path, read_dictionary=words) as file:
        for f in fields:
            if kind_of_column(f.type) == "other":
                raise DataError(
                    f"{path}: column {_cut(f.name)!r} holds {_cut(str(f.type))}; numbers "
                    f"or words are needed"
                )
        packed = path.stat().st_size
        check_unpacked(path, 8 * file.metadata.num_rows * len(names), packed)
        table = file.read(columns=names)
    check_unpacked(path, sum(_decoded_size(table[name], pa) for name in words), packed)
    return {name: plain_column(table[name]) for name in names}


def _decoded_size(column: Any, pa: Any) -> int:
    """Bytes of a column of words that is kept as numbers and a list, at most."""
    chunks = [chunk for chunk in column.chunks if isinstance(chunk, pa.DictionaryArray)]
    return sum(
        len(chunk)
        * max((len(word.as_buffer()) for word in chunk.dictionary if word.is_valid), default=0)
        for chunk in chunks
    )


def kind_of_column(arrow_type: Any) -> Literal["whole", "real", "words", "other"]:
    """What a column of a Parquet table holds; decimals are real numbers, categories what they name.

    Parameters
    ----------
    arrow_type
        Its type in Arrow.
    """
    from pyarrow import types

    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if types.is_boolean(arrow_type) or types.is_integer(arrow_type):
        return "whole"
    if types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "real"
    words = (types.is_string, types.is_large_string, types.is_string_view)
    return "words" if any(is_kind(arrow_type) for is_kind in words) else "other"


def plain_column(column: Any) -> np.ndarray:
    """The values of a column of a Parquet table: categories spelled out, decimals as floats.

    Parameters
    ----------
    column
        A chunked array of Arrow.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return column.to_numpy(zero_copy_only=False)


def names_in_parquet(path: Path, schema: Any) -> dict[str, str]:
    """What the columns of a Parquet table are called here, and in the file, in their order.

    Parameters
    ----------
    path
        The file.
    schema
        Of Arrow.

    Raises
    ------
    DataError
        If there are no columns, too many, or two of one name.
    """
    inside = [str(name) for name in schema.names]
    # By such names they are read, so that two without one cannot be told apart.
    _refuse_repeated(path, inside)
    return dict(zip(_checked_names(path, inside), inside, strict=True))


def _checked_names(path: Path, header: list[str]) -> list[str]:
    """The names of a table's columns, by its place for one that has none, as pandas' index."""
    if not header or all(not name for name in header):
        raise DataError(f"{path}: no header line with column names")
    if len(header) > _MOST_COLUMNS:
        raise DataError(f"{path}: has {len(header)} columns; at most {_MOST_COLUMNS} are read")
    names = [name or f"column {place}" for place, name in enumerate(header)]
    _refuse_repeated(path, names)
    return names


def _refuse_repeated(path: Path, names: list[str]) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise DataError(f"{path}: column {_cut(repeated[0])!r} appears more than once")


def _lines(path: Path, file: IO[str]) -> Iterator[str]:
    """The lines of a text, none of which may fill the memory."""
    while line := file.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise DataError(f"{path}: has a line of more than {_LONGEST_LINE} characters")
        yield line


def _table(
    path: Path,
    columns: Mapping[str, list[str] | np.ndarray],
    targets: list[str],
    features: list[str],
) -> Table:
    x = np.stack([_numbers(path, name, columns[name]) for name in features], axis=1)
    if not targets:
        y = _no_targets(x)
    elif len(targets) > 1:
        y = np.stack([_numbers(path, name, columns[name]) for name in targets], axis=1)
    else:
        y = _target(path, targets[0], columns[targets[0]])
    return Table(x, y, features, named=True)


def _numbers(path: Path, name: str, column: list[str] | np.ndarray) -> np.ndarray:
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return column.astype(np.float64)
    try:
        return np.array([float(cell) for cell in column], dtype=np.float64)
    except (TypeError, ValueError):
        for row, cell in enumerate(column):
            if cell is None or not str(cell).strip():
                raise DataError(
                    f"{path}: column {_cut(name)!r}, row {row + 1} is empty. Drop the row or fill "
                    f"it in; lieaugmenter never fills values silently"
                ) from None
            if not _is_number(cell):
                raise DataError(
                    f"{path}: column {_cut(name)!r}, row {row + 1} holds {_cut(str(cell))!r}, "
                    f"which is no number. {_advice_on(name, str(cell))}"
                ) from None
        raise


def _advice_on(name: str, cell: str) -> str:
    """What to do about a column with a cell that is no number.

    >>> _advice_on("x", "1,5")
    'Write decimals with a point'
    >>> _advice_on("gas", "Ar")
    "Encode words as numbers, or leave the column out: --drop 'gas'"
    """
    if _is_number(cell.replace(",", ".")):
        return "Write decimals with a point"
    return f"Encode words as numbers, or leave the column out: --drop {_cut(name)!r}"


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
    return numbers.astype(np.int64) if looks_whole and _are_exact(numbers) else numbers


def _are_exact(whole: np.ndarray) -> bool:
    """Whether all whole numbers are so small that a float tells them from their neighbours."""
    return bool((np.abs(whole) < 2**53).all())


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

"""A look at data before it is learned from: what would go wrong, and what it can tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lieaugmenter.learning.copies import input_hashes

# Singular values below this fraction of the largest count as zero.
_RANK_TOLERANCE = 1e-5
_STANDARDISED = 0.02
# Columns whose spreads differ as much are told, and warned of when the small ones hardly count.
_APART, _FAR_APART = 10.0, 1e4
# Wider samples have no rank computed.
_LARGEST_RANK = 512
# A larger share of rows that repeat the input of another is worth a remark.
_MANY_COPIES = 0.01
# Different inputs by which that share is told.
_MOST_INPUTS = 2**17
# Different targets beyond this number are not counted.
_MOST_DISTINCT = 10_000
# Values that are looked at together.
_AT_ONCE = 2**22


@dataclass(frozen=True)
class Note:
    """One remark: how serious it is, and what to do."""

    level: str
    """``"error"``, ``"warning"`` or ``"info"``."""
    text: str


def non_finite_message(
    x: np.ndarray, names: Sequence[str] | None = None, what: str = "X"
) -> str | None:
    """Where the NaN and infinities of single precision are, or None if there are none."""
    found = _NonFinite()
    found.add(x)
    return found.message(names, what)


class _NonFinite:
    """Counts what is not finite, and where."""

    def __init__(self) -> None:
        self.count = self.rows = 0
        self.first: int | None = None
        self.too_large = False
        self.columns: set[int] = set()

    def add(self, values: np.ndarray) -> None:
        # As networks see them: 1e39 is too large for single precision.
        with np.errstate(over="ignore", invalid="ignore"):
            bad = ~np.isfinite(values.astype(np.float32))
        self.too_large |= bool(np.isfinite(values[bad]).any())
        if bad.any():
            self.count += int(bad.sum())
            if self.first is None:
                self.first = self.rows + int(bad.reshape(len(values), -1).any(1).argmax())
            if values.ndim == 2:
                self.columns |= set(np.flatnonzero(bad.any(0)).tolist())
        self.rows += len(values)

    def message(self, names: Sequence[str] | None, what: str) -> str | None:
        if not self.count:
            return None
        where = ""
        if self.columns:
            columns = sorted(self.columns)[:5]
            shown = [f'{c} ("{names[c]}")' if names is not None else str(c) for c in columns]
            where = f" in column{'s' if len(shown) > 1 else ''} {', '.join(shown)}"
        kinds = "NaN, inf or beyond 3.4e38" if self.too_large else "NaN or inf"
        return (
            f"{what} has {self.count} non-finite value{'s' if self.count > 1 else ''} ({kinds})"
            f"{where}; first row {self.first}, counted from 0. Drop or impute them; lieaugmenter "
            f"never fills values silently"
        )


class Moments:
    """Mean and spread of each column, from pieces.

    Attributes
    ----------
    count, mean, squares
        Samples so far, their mean, and their squared distances from it, summed.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.squares = np.zeros(0)

    def add(self, values: np.ndarray) -> None:
        values = values.astype(np.float64)
        n, mean = len(values), values.mean(0)
        squares = np.square(values - mean).sum(0)
        if self.count:
            # Chan, Golub and LeVeque: no small difference of large sums.
            apart, total = mean - self.mean, self.count + n
            squares = self.squares + squares + apart**2 * (self.count * n / total)
            mean = self.mean + apart * (n / total)
        self.count, self.mean, self.squares = self.count + n, mean, squares

    @property
    def spread(self) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(self.squares / max(self.count, 1))

    @property
    def size(self) -> float:
        """Root mean square over all columns."""
        return float(np.sqrt((self.squares / max(self.count, 1) + self.mean**2).mean()))


def _rank_of(products: np.ndarray) -> int:
    """Rank of samples by their products (not centred: linear actions have an origin)."""
    # Whatever the units of a column are, it is no combination of others.
    sizes = np.sqrt(np.diag(products))
    units = np.where(sizes > 0, sizes, 1.0)
    values = np.linalg.eigvalsh(products / np.outer(units, units))
    largest = values.max(initial=0.0)
    return int((values > _RANK_TOLERANCE**2 * largest).sum()) if largest > 0 else 0


class _Copies:
    """Which share of rows repeats the input of another, by those of the smallest hashes."""

    def __init__(self) -> None:
        self._keys, self._counts = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
        self._largest = np.uint64(2**64 - 1)
        self._new: list[np.ndarray] = []
        self._waiting = 0

    def add(self, x: np.ndarray) -> None:
        # As networks see them.
        keys = input_hashes(torch.from_numpy(x.astype(np.float32)))
        self._new.append(keys[keys <= self._largest])
        self._waiting += len(self._new[-1])
        if self._waiting > _MOST_INPUTS:
            self._settle()

    def _settle(self) -> None:
        keys, counts = np.unique(np.concatenate([*self._new, self._keys]), return_counts=True)
        # Those known before were counted once.
        counts[np.searchsorted(keys, self._keys)] += self._counts - 1
        self._keys, self._counts = keys[:_MOST_INPUTS], counts[:_MOST_INPUTS]
        if len(keys) >= _MOST_INPUTS:
            self._largest = self._keys[-1]
        self._new, self._waiting = [], 0

    @property
    def share(self) -> float:
        self._settle()
        return 1 - len(self._keys) / max(int(self._counts.sum()), 1)


class Survey:
    """What there is to know about data before learning from them, from one reading of its pieces.

    Attributes
    ----------
    count
        Samples so far.
    x_moments, y_moments
        Means, spreads and sizes of columns; the latter only of targets that are numbers.
    labels
        The different targets, sorted, while there are not too many; None beyond that.
    y_is_constant
        Whether all targets are the same.

    Examples
    --------
    >>> survey = Survey()
    >>> for piece in np.split(np.arange(300.0).reshape(100, 3), 4):
    ...     survey.add(piece, piece[:, 0])
    >>> survey.count, [note.level for note in survey.notes()]
    (100, ['warning', 'warning'])
    """

    def __init__(self) -> None:
        self.count = 0
        self.x_moments, self.y_moments = Moments(), Moments()
        self.labels: np.ndarray | None = np.empty(0)
        self.sample_shape: tuple[int, ...] = ()
        self.y_shape: tuple[int, ...] = ()
        self._y_kind = "f"
        self._not_finite = {"X": _NonFinite(), "y": _NonFinite()}
        self._lowest = self._highest = self._first = np.zeros(0)
        self.y_is_constant = True
        self._first_y = np.zeros(0)
        self._products, self._vectors = np.zeros((0, 0)), 0
        # Columns that count the samples, as far as they were read.
        self._counting = np.zeros(0, dtype=bool)
        self._copies = _Copies()

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        """Look at some more samples."""
        for what, values in (("X", x), ("y", y)):
            if values.dtype.kind == "f":
                self._not_finite[what].add(values)
        if not self.count:
            self.sample_shape, self.y_shape, self._y_kind = x.shape[1:], y.shape[1:], y.dtype.kind
            self._lowest = self._highest = self._first = x[0]
            self._products = np.zeros((x.shape[-1],) * 2) if self._has_rank else self._products
            self.labels = y[:0] if y.ndim == 1 else None
            self._first_y = y[0]
            self._counting = np.ones(x.shape[-1], dtype=bool)
        if x.ndim == 2:
            numbers = np.arange(self.count, self.count + len(x))[:, None]
            self._counting &= (x == self._first + numbers).all(0)
        self.y_is_constant &= bool((y == self._first_y).all())
        self.count += len(x)
        if any(found.count for found in self._not_finite.values()):
            return
        self.x_moments.add(x)
        self._copies.add(x)
        if y.dtype.kind in "biuf":
            self.y_moments.add(y)
        if self.labels is not None:
            self.labels = np.union1d(self.labels, y)
            if len(self.labels) > _MOST_DISTINCT:
                self.labels = None
        if x.ndim == 2:
            self._lowest = np.minimum(self._lowest, x.min(0))
            self._highest = np.maximum(self._highest, x.max(0))
        if self._has_rank:
            flat = x.reshape(-1, x.shape[-1]).astype(np.float64)
            self._products += flat.T @ flat
            self._vectors += len(flat)

    @property
    def _has_rank(self) -> bool:
        return len(self.sample_shape) in (1, 2) and self.sample_shape[-1] <= _LARGEST_RANK

    @property
    def looks_standardised(self) -> bool:
        """Whether every column has mean 0 and standard deviation 1."""
        if len(self.sample_shape) != 1 or self.sample_shape[0] < 2 or self.count < 10:
            return False
        moments = self.x_moments
        return bool(
            (np.abs(moments.mean) < _STANDARDISED).all()
            and (np.abs(moments.spread - 1) < _STANDARDISED).all()
        )

    def errors(self, names: Sequence[str] | None = None) -> list[Note]:
        """What makes the data unusable."""
        found = [
            self._not_finite["X"].message(names, "X"),
            self._not_finite["y"].message(None, "y"),
        ]
        return [Note("error", message + ".") for message in found if message]

    def notes(self, names: Sequence[str] | None = None, *, look_at_rank: bool = True) -> list[Note]:
        """Remarks, most serious first; the parameters are those of `examine`."""
        notes = self.errors(names)
        if notes:
            return notes
        if self.count < 200:
            notes.append(Note("warning", f"Only {self.count} samples: they will certify little."))
        notes += _copy_notes(self._copies.share)
        if self.looks_standardised:
            notes.append(
                Note(
                    "warning",
                    "Columns look standardised (mean 0, sd 1 each), typical of StandardScaler. "
                    "Coordinates of one space (x, y, z) need one common unit, else a rotation "
                    "becomes a skewed one; unlike quantities may be in any. Subtracting means "
                    "moves the origin, which linear symmetries leave where it is.",
                )
            )
        if len(self.sample_shape) == 1:
            for column in np.flatnonzero(self._highest == self._lowest)[:5]:
                label = names[column] if names is not None else f"column {column}"
                notes.append(Note("info", f"{label} is constant ({self._first[column]:g})."))
            notes += self._notes_on_columns(names)
        if look_at_rank and self._has_rank:
            d = self.sample_shape[-1]
            notes += _rank_notes(d, _rank_of(self._products / max(self._vectors, 1)))
        return notes + _target_notes(self.labels, self._y_kind, self.count)

    def _notes_on_columns(self, names: Sequence[str] | None) -> list[Note]:
        """Columns of a table that count its rows, or are far apart in spread."""
        d = self.sample_shape[0]
        labels = [f"column {i}" if names is None or not names[i] else names[i] for i in range(d)]
        index = [labels[i] for i in np.flatnonzero(self._counting)] if self.count > 9 else []
        notes = [
            Note("warning", f"{label} counts the rows, as an index does: leave it out (--drop).")
            for label in index
        ]
        varied = self._highest > self._lowest
        named = [label for label, varies in zip(labels, varied, strict=True) if varies]
        return notes + (_spread_notes(self.x_moments.spread[varied], named) if named else [])


def _spread_notes(spreads: np.ndarray, names: Sequence[str]) -> list[Note]:
    """Columns in units so different that it matters whether they are of one kind."""
    least, most = (int(at) for at in (spreads.argmin(), spreads.argmax()))
    if spreads[most] < _APART * spreads[least]:
        return []
    return [
        Note(
            "warning" if spreads[most] > _FAR_APART * spreads[least] else "info",
            f"Columns differ in spread ({names[least]} about {spreads[least]:.2g}, {names[most]} "
            f"about {spreads[most]:.2g}). If they are unlike quantities, dividing each by its "
            f"spread makes generators easier to learn and to read; coordinates of one space, which "
            f"rotate into each other (x, y, z), must keep one common unit.",
        )
    ]


def examine(
    x: np.ndarray,
    y: np.ndarray,
    names: Sequence[str] | None = None,
    *,
    look_at_rank: bool = True,
) -> list[Note]:
    """Remarks on a data set, most serious first.

    Parameters
    ----------
    x, y
        Inputs and targets.
    names
        Names of the columns of x.
    look_at_rank
        Whether directions that cannot be identified are worth a remark; not when the generators'
        structure is given.
    """
    mismatch = [Note("error", f"X has {len(x)} rows, y has {len(y)}.")] if len(x) != len(y) else []
    survey = Survey()
    for rows in _slices(x):
        survey.add(x[rows], y[rows])
    return mismatch + (
        survey.errors(names) if mismatch else survey.notes(names, look_at_rank=look_at_rank)
    )


def _slices(x: np.ndarray) -> Iterator[slice]:
    """Rows that are looked at together."""
    rows = max(1, _AT_ONCE // max(x[:1].size, 1))
    return (slice(start, start + rows) for start in range(0, len(x), rows))


def _copy_notes(share: float) -> list[Note]:
    if share <= _MANY_COPIES:
        return []
    return [
        Note(
            "warning",
            f"{share:.0%} of the rows repeat the input of another (in single precision): they are "
            f"no more evidence than it. Copies are held out, or learned from, together.",
        )
    ]


def _rank_notes(d: int, r: int) -> list[Note]:
    if r == d:
        return []
    return [
        Note(
            "warning",
            f"Data has rank {r} of {d}: {d * (d - r)} of {d * d} generator directions act as zero "
            f"on it and cannot be identified. Use blocks= or mask= to say which features mix.",
        )
    ]


def _target_notes(labels: np.ndarray | None, kind: str, count: int) -> list[Note]:
    if kind in "US":
        shown = f"more than {_MOST_DISTINCT}" if labels is None else str(len(labels))
        return [Note("info", f"y holds {shown} words: a classification task.")]
    if labels is None:
        return []
    if len(labels) == 1:
        return [Note("warning", "y is constant: every transformation is a symmetry of it.")]
    if kind == "f" and len(labels) <= 10 and count > 50:
        shown = ", ".join(f"{value:g}" for value in labels[:4])
        return [
            Note(
                "warning",
                f"y is float with {len(labels)} distinct values {{{shown}, …}}: classifier or "
                f"regressor? Cast y to int to classify.",
            )
        ]
    return []

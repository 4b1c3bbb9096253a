"""A look at data before it is learned from: what would go wrong, and what it can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Singular values below this fraction of the largest count as zero.
_RANK_TOLERANCE = 1e-5
_STANDARDISED = 0.02


@dataclass(frozen=True)
class Note:
    """One remark: how serious it is, and what to do."""

    level: str
    """``"error"``, ``"warning"`` or ``"info"``."""
    text: str


def non_finite_message(
    x: np.ndarray, names: Sequence[str] | None = None, what: str = "X"
) -> str | None:
    """Where the NaN and infinities are, or None if there are none."""
    bad = ~np.isfinite(x)
    count = int(bad.sum())
    if not count:
        return None
    rows = np.flatnonzero(bad.reshape(len(x), -1).any(1))
    where = ""
    if x.ndim == 2:
        columns = np.flatnonzero(bad.any(0))[:5]
        shown = [f'{c} ("{names[c]}")' if names is not None else str(c) for c in columns]
        where = f" in column{'s' if len(shown) > 1 else ''} {', '.join(shown)}"
    return (
        f"{what} has {count} non-finite value{'s' if count > 1 else ''} (NaN or inf){where}; first "
        f"row {rows[0]}. Drop or impute them; lieaugmenter never fills values silently"
    )


def rank(x: np.ndarray) -> int:
    """Numerical rank of the samples as vectors (not centred: linear actions have an origin)."""
    flat = x.reshape(-1, x.shape[-1]).astype(np.float64)
    values = np.linalg.eigvalsh(flat.T @ flat / max(len(flat), 1))
    largest = values.max(initial=0.0)
    return int((values > _RANK_TOLERANCE**2 * largest).sum()) if largest > 0 else 0


def looks_standardised(x: np.ndarray) -> bool:
    """Whether every column has mean 0 and standard deviation 1."""
    if x.ndim != 2 or x.shape[1] < 2 or len(x) < 10:
        return False
    means, spreads = x.mean(0), x.std(0)
    return bool(
        (np.abs(means) < _STANDARDISED).all() and (np.abs(spreads - 1) < _STANDARDISED).all()
    )


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
    notes: list[Note] = []
    if len(x) != len(y):
        notes.append(Note("error", f"X has {len(x)} rows, y has {len(y)}."))
    for what, array in (("X", x), ("y", y)):
        if array.dtype.kind == "f":
            message = non_finite_message(array, names if what == "X" else None, what)
            if message:
                notes.append(Note("error", message + "."))
    if any(note.level == "error" for note in notes):
        return notes
    if len(x) < 200:
        notes.append(Note("warning", f"Only {len(x)} samples: expect an inconclusive verdict."))
    if looks_standardised(x):
        notes.append(
            Note(
                "warning",
                "Columns look standardised (mean 0, sd 1 each), typical of StandardScaler. Scaling "
                "columns differently turns a rotation into a skewed one: use one scale for all "
                "columns that may mix.",
            )
        )
    if x.ndim == 2:
        constant = np.flatnonzero(x.max(0) == x.min(0))
        for column in constant[:5]:
            label = names[column] if names is not None else f"column {column}"
            notes.append(Note("info", f"{label} is constant ({x[0, column]:g})."))
    if look_at_rank and x.ndim in (2, 3) and x.shape[-1] <= 512:
        notes += _rank_notes(x)
    notes += _target_notes(y)
    return notes


def _rank_notes(x: np.ndarray) -> list[Note]:
    d, r = x.shape[-1], rank(x)
    if r == d:
        return []
    return [
        Note(
            "warning",
            f"Data has rank {r} of {d}: {d * (d - r)} of {d * d} generator directions act as zero "
            f"on it and cannot be identified. Use blocks= or mask= to say which features mix.",
        )
    ]


def _target_notes(y: np.ndarray) -> list[Note]:
    if y.dtype.kind in "US":
        return [Note("info", f"y holds {len(np.unique(y))} words: a classification task.")]
    distinct = np.unique(y) if y.ndim == 1 else None
    if distinct is not None and len(distinct) == 1:
        return [Note("warning", "y is constant: every transformation is a symmetry of it.")]
    if distinct is not None and y.dtype.kind == "f" and len(distinct) <= 10 and len(y) > 50:
        shown = ", ".join(f"{value:g}" for value in distinct[:4])
        return [
            Note(
                "warning",
                f"y is float with {len(distinct)} distinct values {{{shown}, …}}: classifier or "
                f"regressor? Cast y to int to classify.",
            )
        ]
    return []

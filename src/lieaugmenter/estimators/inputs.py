"""X and y as they are given: what is refused, what is warned of, and the names of columns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import validate_data

from lieaugmenter.actions import Action, AffineAction, ImageAction
from lieaugmenter.data.checkup import Note, non_finite_message
from lieaugmenter.estimators.settings import Settings, labels_move
from lieaugmenter.lie.basis import LARGEST_DIM, is_closed

# Points that are translated with others go as far as they do, vectors nowhere.
_FOLLOWS = 0.5


def validated_x(settings: Settings, x: Any, *, reset: bool) -> np.ndarray:
    """X as an array of finite numbers; `reset` lets scikit-learn note its columns."""
    image = settings.action == "image" or isinstance(settings.action, ImageAction)
    if _has_fields(x):
        raise TypeError(
            "X is a dict, samples of several fields; the estimators take one array. For such "
            "inputs there are StructuredAction, LieAugmenter and fit, and the discovery module"
        )
    try:
        checked = validate_data(
            settings,
            x,
            reset=reset,
            allow_nd=True,
            ensure_all_finite=False,
            dtype=[np.float32, np.float64],
        )
    except (TypeError, ValueError) as error:
        column, shapes = _column_without_numbers(x), _shapes_of_samples(x)
        if len(shapes) > 1:
            raise ValueError(
                f"the samples of X have several shapes: {', '.join(map(str, shapes))}. Resize or "
                f"pad them to one"
            ) from None
        if column is None:
            raise
        raise ValueError(
            f"column {column!r} of X does not hold numbers ({error}). Encode them as numbers, or "
            f"leave the column out"
        ) from None
    # The values of a DataFrame may not be written to, which torch warns of.
    checked = np.require(np.asarray(checked), requirements=["C", "W"])
    message = non_finite_message(checked, names_of_columns(settings, checked.shape))
    if message:
        raise ValueError(message)
    if not image and checked.shape[-1] > LARGEST_DIM and not isinstance(settings.action, Action):
        raise ValueError(
            f"X has {checked.shape[-1]} features: action='vector' would learn "
            f"{checked.shape[-1] ** 2:,} entries per generator (at most {LARGEST_DIM} features "
            f"are supported). Use action='image' for pixels, or points of a small dimension"
        )
    return checked


def _has_fields(x: Any) -> bool:
    """Whether samples are a dict of fields; some sparse matrices are dicts as well."""
    return isinstance(x, Mapping) and not hasattr(x, "shape")


def _column_without_numbers(x: Any) -> str | None:
    """The first column of a DataFrame that is no numbers."""
    for name in getattr(x, "columns", ()):
        try:
            np.asarray(x[name], dtype=np.float64)
        except (TypeError, ValueError):
            return str(name)
    return None


def _shapes_of_samples(x: Any) -> list[tuple[int, ...]]:
    """Of a list of arrays; the first three that occur."""
    if not isinstance(x, list | tuple):
        return []
    return list(dict.fromkeys(np.shape(sample) for sample in x if hasattr(sample, "shape")))[:3]


def have_names(settings: Settings) -> bool:
    """Whether the columns of X have names that were not made up here."""
    return settings.feature_names is not None or hasattr(settings, "feature_names_in_")


def names_of_columns(settings: Settings, shape: tuple[int, ...]) -> list[str] | None:
    """Names of the columns of a table X; None for samples of more axes."""
    return names_of_axes(settings, shape[-1]) if len(shape) == 2 else None


def names_of_axes(settings: Settings, count: int) -> list[str]:
    """Names of the numbers on the last axis of X: given, those of the table, or made up."""
    given = settings.feature_names
    if given is None:
        given = getattr(settings, "feature_names_in_", None)
    if given is not None:
        if len(given) != count:
            raise ValueError(f"feature_names has {len(given)} names, X has {count} columns")
        return [str(name) for name in given]
    return [f"x{i + 1}" for i in range(count)]


def numeric_target(settings: Settings, y: Any) -> np.ndarray:
    """The targets of a regression, as numbers; one column that does not move is (N,)."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    target = np.asarray(y)
    if target.dtype.kind in "OUS":
        try:
            target = target.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"y holds {target.dtype} values that are no numbers; for labels use "
                f"SymmetryClassifier"
            ) from None
    if target.dtype.kind == "c":
        raise ValueError("Complex data not supported: y is complex")
    # Elements move a column as they move vectors of one number.
    return (target if labels_move(settings) else without_column(target)).astype(np.float64)


def without_column(y: np.ndarray) -> np.ndarray:
    """(N, 1) as (N,), with the warning that scikit-learn's users know."""
    if y.ndim != 2 or y.shape[1] != 1:
        return y
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected",
        DataConversionWarning,
        stacklevel=4,
    )
    return y.ravel()


def refuse_missing_labels(labels: np.ndarray) -> None:
    """Refuse labels that say nothing, which may stand among words as well as numbers."""
    if labels.ndim != 1 or labels.dtype.kind not in "Of":
        return
    missing = [row for row, label in enumerate(labels) if _is_missing(label)]
    if missing:
        raise ValueError(
            f"y lacks {len(missing)} of {len(labels)} labels (None or NaN), the first in row "
            f"{missing[0]}, counted from 0. What is missing is no class: leave those samples out"
        )


def _is_missing(label: Any) -> bool:
    """Whether it is None, or like NaN not equal to itself, or like pandas' NA will not say.

    >>> [_is_missing(label) for label in (None, float("nan"), "nan", 0)]
    [True, True, False, False]
    """
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def check_same_length(x: np.ndarray, y: np.ndarray) -> None:
    """Refuse targets that are more or fewer than the samples."""
    if len(x) != len(y):
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {len(x)} rows, "
            f"y has {len(y)}"
        )


def may_mix_freely(settings: Settings) -> bool:
    """Whether every feature may mix with every other."""
    return settings.blocks is None and settings.mask is None


def warn_of_vectors_as_points(settings: Settings, x: np.ndarray, y: np.ndarray) -> None:
    """Say so where targets are to be translated along with X, and do not look like it."""
    affine = settings.action == "affine" or isinstance(settings.action, AffineAction)
    if not affine or settings.output != "same" or follows(x, y):
        return
    warnings.warn(
        "output='same' translates y together with X, but y does not follow X from place to place. "
        "If it holds forces, velocities or other vectors rather than points, use output='vector'.",
        stacklevel=4,
    )


def follows(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether the centre of y goes about as far as that of x does, from sample to sample.

    >>> x = np.random.default_rng(0).normal(size=(100, 4, 3))
    >>> follows(x, x + 1.0), follows(x, x.mean(1, keepdims=True) - x), follows(x, -x)
    (True, False, False)
    """
    axes = tuple(range(1, x.ndim - 1))
    centres = [values.mean(axes) - values.mean((0, *axes)) for values in (x, y)]
    spread = np.square(centres[0]).sum()
    # What never goes anywhere, but for rounding, cannot be followed.
    still = np.square(centres[0]).mean() <= 1e-8 * np.square(x).mean()
    return bool(still or (centres[0] * centres[1]).sum() >= _FOLLOWS * spread)


def warn_of_oddities(settings: Settings, notes: list[Note]) -> None:
    """Say what looks odd in the data, and in the mask."""
    for note in notes:
        if note.level == "warning":
            warnings.warn(note.text, stacklevel=4)
    mask = None if settings.mask is None else torch.as_tensor(np.asarray(settings.mask)).float()
    square = mask is not None and mask.ndim == 2 and mask.shape[0] == mask.shape[1]
    if mask is not None and square and not is_closed(mask):
        warnings.warn(
            "Brackets of generators that the mask allows leave the mask: the group may be "
            "larger than the mask lets you see.",
            stacklevel=4,
        )

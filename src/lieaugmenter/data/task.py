"""A supervised task that carries its true symmetry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """Inputs and targets, and what a perfect discovery would find in them.

    Attributes
    ----------
    name
        As experiments and run folders call it.
    x_train, y_train, x_test, y_test
        float32, one sample a row; a scalar target has shape (n, 1).
    x_validation, y_validation
        None where the task has no validation set.
    generator
        The true generators, one radian a unit of the coefficient, or None where there is no
        continuous symmetry.
    output
        How the symmetry moves the target: as it moves the input, or not at all.
    feature_names
        One for each entry of the last axis of x.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_validation: Tensor | None = None
    y_validation: Tensor | None = None
    x_test: Tensor
    y_test: Tensor
    generator: Float[Tensor, "c d d"] | None
    output: Literal["invariant", "same"]
    feature_names: tuple[str, ...]

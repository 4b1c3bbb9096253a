"""A supervised task that carries its true symmetry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions import Action, ImageAction, InvariantAction, VectorAction
from lieaugmenter.actions.base import Batch


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """Inputs and targets, and what a perfect discovery would find in them.

    Attributes
    ----------
    name
        As experiments and run folders call it.
    x_train, y_train, x_test, y_test
        float32, one sample a row; a scalar target has shape (n, 1). Images are (n, c, h, w).
        Classes are int64 (n,). Inputs of several fields are a dict of tensors, in a subclass
        that says how elements move them.
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
    x_train: Batch
    y_train: Tensor
    x_validation: Batch | None = None
    y_validation: Tensor | None = None
    x_test: Batch
    y_test: Tensor
    generator: Float[Tensor, "c d d"] | None
    output: Literal["invariant", "same"]
    feature_names: tuple[str, ...]

    @property
    def action(self) -> Action:
        """How elements move inputs: images by their grid, everything else as vectors."""
        return ImageAction() if self.x_train.ndim == 4 else VectorAction(self.x_train.shape[-1])

    @property
    def output_action(self) -> Action:
        """How elements move targets."""
        return self.action if self.output == "same" else InvariantAction()

    @property
    def classes(self) -> int:
        """Number of classes, 0 where the target is a number or a vector."""
        if self.y_train.is_floating_point():
            return 0
        # A small part of the training data may lack the last class.
        return 1 + int(max(self.y_train.max(), self.y_test.max()))

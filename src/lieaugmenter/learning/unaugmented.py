"""Plain supervised training, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from lieaugmenter.actions.base import Batch, batch_size, map_tensors
from lieaugmenter.learning.augmenter import as_loss
from lieaugmenter.learning.averaging import call
from lieaugmenter.learning.labels import check_all_count, matched
from lieaugmenter.learning.objective import Loss, Objective, prediction_loss
from lieaugmenter.lie.samplers import Uniform


class Unaugmented(nn.Module):
    """Plain supervised training with the face of an augmenter: the prediction loss, nothing else.

    Parameters
    ----------
    objective
        Only its form of the prediction loss counts.
    """

    mixes_views = False
    separable = True
    term_weights: Tensor
    generators: Tensor

    def __init__(self, objective: Objective | None = None) -> None:
        super().__init__()
        self.objective = Objective() if objective is None else objective
        # Nothing is drawn from it: it stands where the engine looks for a warm-up.
        self.sampler = Uniform(1.0)
        self.terms = ["prediction"]
        self.optimizer_options: dict[str, Any] = {}
        self.register_buffer("generators", torch.zeros(0, 0, 0), persistent=False)
        self.register_buffer("term_weights", torch.ones(1), persistent=False)

    @property
    def construction(self) -> dict[str, Any]:
        """What a run is to go on with, as `LieAugmenter.construction`."""
        return {"augmenter": None, "objective.absolute": self.objective.absolute}

    def loss(
        self,
        model: Callable[[Batch], Tensor],
        x: Batch,
        y: Tensor,
        generator: torch.Generator | None = None,
    ) -> Loss:
        """L_emp, Eq. (3)."""
        joined, finish = self.prepare(x, y, generator)
        return finish(call(model, joined))

    def loss_in_chunks(
        self,
        model: Callable[[Batch], Tensor],
        x: Batch,
        y: Tensor,
        size: int,
        generator: torch.Generator | None = None,
    ) -> Iterator[Loss]:
        """Shares of the loss that add up to it, of `size` samples each."""
        check_all_count(y)
        n = batch_size(x)
        for first in range(0, n, size):
            rows = slice(first, min(first + size, n))
            part = map_tensors(lambda t, rows=rows: t[rows], x)
            total = self.loss(model, part, y[rows]) * ((rows.stop - first) / n)
            yield as_loss(total, self.terms, total.unsqueeze(0))

    def prepare(
        self, x: Batch, y: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Batch, Callable[[Tensor], Loss]]:
        """The samples as they are, and the function from predictions to the loss."""
        if not len(y):
            raise ValueError("the batch is empty: a loss is a mean over samples")

        def finish(predictions: Tensor) -> Loss:
            total = prediction_loss(*matched(predictions, y), absolute=self.objective.absolute)
            return as_loss(total, self.terms, total.unsqueeze(0))

        return x, finish

    def part_of(self, start: int, total: int) -> AbstractContextManager[None]:
        """Nothing is drawn, so that parts of a batch are like any other."""
        return nullcontext()

    def advance(self) -> None:
        """There is no warm-up to count."""

    def recount(self) -> None:
        """There is none to take from anywhere."""

"""Whether another convention explains why a model seems not to be equivariant."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors
from lieaugmenter.actions.linear import InvariantAction
from lieaugmenter.actions.spatial import AffineAction, DisplacementAction
from lieaugmenter.analysis.bench import DEFECT_BOUND
from lieaugmenter.analysis.residuals import (
    FEW_SAMPLES,
    Residuals,
    as_it_is,
    residuals_of,
    squares_of,
)

# Another convention explains a defect if under it no more than this share is left.
_EXPLAINED = 1 / 3


def hint_of(
    model: Callable[[Batch], Tensor],
    x: Batch,
    measured: Residuals,
    action: Action,
    output: Action,
    defect: float,
    seed: int,
) -> str | None:
    """Words for the convention under which most of the defect goes away, if there is one."""
    if not (defect > DEFECT_BOUND and measured.reference > 0):
        return None
    rng = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(batch_size(x), generator=rng)[:FEW_SAMPLES]
    few = map_tensors(lambda t: t[chosen.to(t.device)], x)
    found = [
        (convention.left(few, action, measured), convention)
        for convention in _conventions(model, few, measured, action, output)
    ]
    left, best = min(found, key=lambda pair: pair[0], default=(math.inf, None))
    if best is None or left > _EXPLAINED * defect:
        return None
    then = best.defect(x, action, seed)
    if then > _EXPLAINED * defect:
        return None
    return f"{best.words}: the largest defect is then {then:.2g} instead of {defect:.2g}."


@dataclass(frozen=True, eq=False)
class _Convention:
    """Another convention: words for it, and what is to be measured where it holds.

    `moves_output` makes of a generator the one that moves outputs, `of_samples` of samples those
    that the model takes.
    """

    words: str
    model: Callable[[Batch], Tensor]
    generators: Float[Tensor, "c d d"]
    output: Action
    moves_output: Callable[[Tensor], Tensor] = as_it_is
    of_samples: Callable[[Batch], Batch] = as_it_is

    def left(self, x: Batch, action: Action, measured: Residuals) -> float:
        """What is left of the largest defect, in units of what was measured: to choose by."""
        residuals, paths = squares_of(
            self.model,
            self.of_samples(x),
            [*self.generators],
            action,
            self.output,
            self.moves_output,
        )
        return _largest(residuals, paths, measured.active, measured.reference)

    def defect(self, x: Batch, action: Action, seed: int) -> float:
        """What an audit that follows the hint will say.

        It compares with random generators that move outputs in the other way, too.
        """
        found = residuals_of(
            self.model,
            self.of_samples(x),
            self.generators,
            action,
            self.output,
            seed,
            self.moves_output,
        )
        return _largest(found.residuals, found.paths, found.active, found.reference)


def _largest(residuals: Tensor, paths: Tensor, active: list[bool], reference: float) -> float:
    """The largest defect of the generators that move samples; infinite where it is no number.

    Where the inputs are turned round, the model may give anything.
    """
    squares = (residuals.mean(0) / paths.mean(0).clamp_min(1e-30))[torch.tensor(active)]
    if not reference > 0:
        # What is equivariant under everything is so under these.
        return math.inf if bool(squares.any()) else 0.0
    largest = math.sqrt(float(squares.max()) / reference)
    return math.inf if math.isnan(largest) else largest


def _conventions(
    model: Callable[[Batch], Tensor],
    x: Batch,
    measured: Residuals,
    action: Action,
    output: Action,
) -> Iterator[_Convention]:
    """The usual other conventions that apply; of two that explain as much the first is told."""
    generators, mask = measured.generators, action.mask.to(measured.generators)
    tried = [generators]

    def is_new(changed: Tensor) -> bool:
        fits = not bool((changed * (1 - mask)).any())
        new = fits and not any(torch.allclose(changed, other) for other in tried)
        if new:
            tried.append(changed)
        return new

    if not isinstance(output, InvariantAction):
        for words, change in _OUTPUT_CONVENTIONS:
            if is_new(torch.stack([change(generator) for generator in generators])):
                yield _Convention(words, model, generators, output, moves_output=change)
    transposed = generators.mT
    mirrored = any(torch.allclose(transposed, sign * generators) for sign in (1, -1))
    if not mirrored and not bool((transposed * (1 - mask)).any()):
        words = (
            "the model respects the transposed generators: matrices act on columns here, g x, and "
            "the generators seem to be written for rows, x g"
        )
        yield _Convention(words, model, transposed, output)
    few = map_tensors(lambda t: t[:2], x)
    shape = model(few).shape
    points = isinstance(action, AffineAction) and shape[-1] == action.space_dim
    if points and not isinstance(output, DisplacementAction):
        words = "the model's outputs turn with its inputs but are not translated: they are 'vector'"
        yield _Convention(words, model, generators, DisplacementAction(action.space_dim))
    if isinstance(output, InvariantAction):
        if isinstance(x, Tensor) and shape == few.shape:
            words = "the model's outputs move with its inputs: they are not invariant but 'same'"
            yield _Convention(words, model, generators, action)
    elif len(shape) == 3 and shape[1] == shape[2]:
        words = (
            "the model's outputs move along their other axis: they are (N, d, n) instead of "
            "(N, n, d)"
        )
        yield _Convention(words, lambda z: model(z).mT, generators, output)
    if isinstance(x, Tensor) and x.ndim == 3 and x.shape[1] == x.shape[2]:
        words = (
            "the model takes the other axis of its inputs for coordinates: (N, d, n) instead of "
            "(N, n, d)"
        )
        yield _Convention(
            words, lambda z: model(z.mT), generators, output, of_samples=lambda x: x.mT
        )


_OUTPUT_CONVENTIONS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("the model's outputs do not move: they are invariant", torch.zeros_like),
    (
        "the model's outputs move by the transposed element gᵀ where its inputs move by g, as "
        "when one of them is multiplied as x @ R and the other as x @ R.T",
        lambda generator: generator.mT,
    ),
    (
        "the model's outputs move by g⁻ᵀ instead of g, as gradients and covectors do (lower "
        "instead of upper indices)",
        lambda generator: -generator.mT,
    ),
    (
        "the model's outputs move by the inverse element g⁻¹ where its inputs move by g",
        lambda generator: -generator,
    ),
)

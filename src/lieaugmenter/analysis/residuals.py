"""What is left of a model's equivariance, sample by sample and generator by generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors
from lieaugmenter.actions.linear import InvariantAction
from lieaugmenter.analysis.equivariance import lie_derivatives
from lieaugmenter.analysis.polarization import displacement
from lieaugmenter.lie.units import in_spreads

_RANDOM_DIRECTIONS = 16
_AT_ONCE = 256
# Sums of a few numbers are known to so many units of their last digit.
_ROUNDED = 16.0
FEW_SAMPLES = 1000
# A generator that moves samples less than this share of the one that moves them most is idle.
_IDLE = 1e-6


@dataclass(frozen=True, eq=False)
class Residuals:
    """Squares of each sample: of residuals, and of how far it is moved; along random ones too."""

    generators: Float[Tensor, "c d d"]
    random: Float[Tensor, "m d d"]
    residuals: Float[Tensor, "n c"]
    paths: Float[Tensor, "n c"]
    random_residuals: Float[Tensor, "n m"]
    random_paths: Float[Tensor, "n m"]

    @property
    def active(self) -> list[bool]:
        """Which generators move the samples at all."""
        paths = self.paths.mean(0).sqrt()
        largest = max(float(paths.max()), float(self.random_paths.mean().sqrt()))
        return (paths > _IDLE * largest).tolist()

    @property
    def reference(self) -> float:
        """Mean square residual of random generators at a mean square displacement of 1."""
        moved = self.random_paths.mean(0).clamp_min(1e-30)
        return float((self.random_residuals.mean(0) / moved).mean())


def as_it_is(batch: Batch) -> Batch:
    """What moves outputs, or samples, where no other convention is tried."""
    return batch


def residuals_of(
    model: Callable[[Batch], Tensor],
    x: Batch,
    generators: Float[Tensor, "c d d"],
    action: Action,
    output: Action,
    seed: int,
    moves_output: Callable[[Tensor], Tensor] = as_it_is,
) -> Residuals:
    """Along the generators, and along random ones; the other parameters are those of `squares_of`.

    Random ones are what a residual is compared with.
    """
    rng = torch.Generator().manual_seed(seed)
    random = torch.randn(_RANDOM_DIRECTIONS, *generators.shape[1:], generator=rng)
    # As likely along every coordinate, in units of its spread.
    random = in_spreads((random * action.mask).to(generators), 1 / action.spread(x))
    along = [*generators, *random]
    residuals, paths = squares_of(model, x, along, action, output, moves_output)
    c = len(generators)
    return Residuals(
        generators, random, residuals[:, :c], paths[:, :c], residuals[:, c:], paths[:, c:]
    )


def squares_of(
    model: Callable[[Batch], Tensor],
    x: Batch,
    generators: Sequence[Tensor],
    action: Action,
    output: Action,
    moves_output: Callable[[Tensor], Tensor] = as_it_is,
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
    """‖J_f(x)·(Lx) - L'f(x)‖² and ‖Lx‖² of each sample and L, with L' = L unless told.

    ‖Lx‖ is in units of the spread of each coordinate.
    """
    spread = action.spread(x)
    residuals, paths = [], []
    for piece in in_pieces(x):
        with torch.no_grad():
            values = model(piece)
        along, still = [], InvariantAction()
        changes = lie_derivatives(model, piece, generators, action=action, output=still)
        for generator, pushed in zip(generators, changes, strict=True):
            turned = output.differential(moves_output(generator), values).flatten(1)
            along.append(_unlike(pushed, turned))
        residuals.append(torch.stack(along, dim=1))
        moved = [displacement(generator, piece, action, spread) for generator in generators]
        paths.append(torch.stack([m.double().square().sum(1) for m in moved], dim=1))
    return torch.cat(residuals).cpu(), torch.cat(paths).cpu()


def _unlike(a: Float[Tensor, "n k"], b: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """Squared distances of rows; 0 where they are no farther apart than rounding leaves them."""
    apart = (a - b).double().square().sum(1)
    size = a.double().square().sum(1) + b.double().square().sum(1)
    return torch.where(apart <= (_ROUNDED * torch.finfo(a.dtype).eps) ** 2 * size, 0.0, apart)


def in_pieces(x: Batch) -> Iterator[Batch]:
    """A few samples at a time: a derivative doubles what a network keeps in memory."""
    for start in range(0, batch_size(x), _AT_ONCE):
        yield map_tensors(lambda t, at=start: t[at : at + _AT_ONCE], x)

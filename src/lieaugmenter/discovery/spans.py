"""Spans of generators: which to look at, what they are, and in which size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch
from lieaugmenter.analysis.conjugation import descend
from lieaugmenter.analysis.coverage import coverage
from lieaugmenter.analysis.identify import LARGEST_NAMED, Identity, identify
from lieaugmenter.analysis.polarization import entries
from lieaugmenter.lie.brackets import conjugate, orthonormal
from lieaugmenter.lie.units import in_spreads

# Norms that differ by less, in units of the columns and of their spread, are the same.
_ALIKE = 0.1


def on_the_data(
    x: Batch, candidates: Float[Tensor, "n d d"] | None, action: Action
) -> tuple[Float[Tensor, "n d d"], int, int]:
    """The candidates that do not lead off the data, how many equations these fulfil, and how many
    directions break one.
    """
    candidates = entries(action.mask) if candidates is None else candidates
    covered = coverage(x, action=action, candidates=candidates)
    if not len(covered.generators):
        # A few samples may nearly fulfil equations by chance, which nothing keeps.
        return candidates, 0, 0
    kept = torch.cat([covered.generators, covered.idle])
    return kept, covered.equations, covered.n_leaving


def identities_of(
    generators: Float[Tensor, "c d d"], action: Action, spread: Float[Tensor, " space"]
) -> Iterator[Identity]:
    """What generators may be; none where they are too large, or act on parts, to be named.

    As they are, and with each coordinate in units of its spread: where columns have unlike units
    the noise of some entries is larger than all the others. The spread of samples is only about
    the unit that belongs to the algebra, which the generators themselves tell better.
    """
    if action.dim > LARGEST_NAMED or action.rows not in (action.dim, action.dim - 1):
        return
    generators, spread = generators.cpu(), spread.cpu()
    yield _identity(generators, action)
    relative = _identity(in_spreads(generators, spread), action)
    if relative.exact is not None:
        exact = _rescaled(relative.exact, in_spreads(generators, spread), action.rows)
        yield relative.in_units(in_spreads(exact, 1 / spread.to(exact)))


def _identity(generators: Float[Tensor, "c d d"], action: Action) -> Identity:
    matrices = generators.numpy().tobytes(), generators.dtype, tuple(generators.shape)
    return _identity_of(*matrices, action.rows, action.space_dim)


@lru_cache(maxsize=16)
def _identity_of(
    matrices: bytes, dtype: torch.dtype, shape: tuple[int, ...], rows: int, space_dim: int
) -> Identity:
    """On the way to a verdict the same span is asked about several times."""
    generators = torch.frombuffer(bytearray(matrices), dtype=dtype).view(shape)
    return identify(generators, rows=rows, space_dim=space_dim)


def _rescaled(
    exact: Float[Tensor, "c d d"], found: Float[Tensor, "c d d"], rows: int
) -> Float[Tensor, "c d d"]:
    """An exact algebra in the units of the coordinates in which it is nearest to what was found."""
    units = torch.diag_embed(torch.eye(exact.shape[-1], dtype=torch.float64)[:rows])
    start = torch.eye(exact.shape[-1], dtype=torch.float64).unsqueeze(0)
    change, _ = descend(exact.double(), orthonormal(found), start, units)
    return conjugate(exact.double(), change).to(exact)


def normalised(
    generators: Float[Tensor, "c d d"], action: Action, spread: Float[Tensor, " space"]
) -> Float[Tensor, "c d d"]:
    """Each of norm √D, as learned ones are, where all coordinates have about one spread.

    Of unlike columns the norm is that in units of the spread of each: in others a coefficient of 1
    would be next to nothing, or much too far.
    """
    norms = generators.flatten(1).norm(dim=1)
    if action.rows == action.dim:
        relative = in_spreads(generators, spread).flatten(1).norm(dim=1)
        # A spread is known to a few per cent only: of columns that are alike the plain norm.
        norms = torch.where((relative / norms - 1).abs() < _ALIKE, norms, relative)
    return generators * (math.sqrt(action.space_dim) / norms)[:, None, None]

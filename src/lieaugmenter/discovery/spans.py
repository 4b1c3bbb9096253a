"""Spans of generators: which to look at, what they are, and in which size."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch
from lieaugmenter.analysis.coverage import coverage
from lieaugmenter.analysis.identify import LARGEST_NAMED, Identity, identify
from lieaugmenter.analysis.polarization import entries
from lieaugmenter.lie.units import in_spreads


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
) -> list[Identity]:
    """What generators may be; none where they are too large, or act on parts, to be named.

    As they are, and with each coordinate in units of its spread: where columns have unlike units
    the noise of some entries is larger than all the others.
    """
    if action.dim > LARGEST_NAMED or action.rows not in (action.dim, action.dim - 1):
        return []
    generators, spread = generators.cpu(), spread.cpu()
    options = {"rows": action.rows, "space_dim": action.space_dim}
    found = [identify(generators, **options)]
    relative = identify(in_spreads(generators, spread), **options)
    if relative.exact is not None:
        found.append(relative.in_units(in_spreads(relative.exact, 1 / spread)))
    return found


def normalised(generators: Float[Tensor, "c d d"], action: Action) -> Float[Tensor, "c d d"]:
    """Each of norm √D, as learned ones are."""
    norms = generators.flatten(1).norm(dim=1)[:, None, None]
    return generators * (math.sqrt(action.space_dim) / norms)

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


def identity_of(generators: Float[Tensor, "c d d"], action: Action) -> Identity | None:
    """What generators are; None where they are too large, or act on parts, to be named."""
    if action.dim > LARGEST_NAMED or action.rows not in (action.dim, action.dim - 1):
        return None
    return identify(generators.cpu(), rows=action.rows, space_dim=action.space_dim)


def normalised(generators: Float[Tensor, "c d d"], action: Action) -> Float[Tensor, "c d d"]:
    """Each of norm √D, as learned ones are."""
    norms = generators.flatten(1).norm(dim=1)[:, None, None]
    return generators * (math.sqrt(action.space_dim) / norms)

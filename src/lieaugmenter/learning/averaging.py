"""Inference: the direct prediction, and the one averaged over sampled elements."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors
from lieaugmenter.lie.elements import Elements

# A product with fewer rows than this is summed in another order.
_FEWEST_ROWS = 32
AVERAGES = ("logits", "probabilities", "values")


def call(model: Callable[[Batch], Tensor], x: Batch) -> Tensor:
    """model(x), or an error that says how to adapt a model that returns something else."""
    prediction = model(x)
    if not isinstance(prediction, Tensor):
        kind = type(prediction).__name__
        size = f" of {len(prediction)}" if isinstance(prediction, tuple | list | dict) else ""
        raise TypeError(
            f"model(x) returned a {kind}{size}, not a tensor. Pass a function that picks the "
            f"output, for example lambda x: model(x)[0]; where a module is needed, a small "
            f"nn.Module whose forward does that"
        )
    n = batch_size(x)
    if prediction.ndim == 0 or prediction.shape[0] != n:
        raise ValueError(
            f"model(x) returned shape {tuple(prediction.shape)} for {n} samples; the first axis "
            f"must be the batch"
        )
    return prediction


def shaped_like(prediction: Tensor, y: Tensor) -> Tensor:
    """The prediction in y's shape: (n, 1) against (n,) must not broadcast to (n, n)."""
    if prediction.shape == y.shape:
        return prediction

    def without_ones(shape: torch.Size) -> list[int]:
        return [size for size in shape if size != 1]

    if without_ones(prediction.shape) != without_ones(y.shape):
        raise ValueError(
            f"the model returns {tuple(prediction.shape)} for targets of shape {tuple(y.shape)}"
        )
    return prediction.reshape(y.shape)


def check_average(average: str) -> None:
    """Raise ValueError for a name that is not in `AVERAGES`."""
    if average not in AVERAGES:
        raise ValueError(f"unknown average {average!r}; choose from {', '.join(AVERAGES)}")


def averaged(
    model: Callable[[Batch], Tensor],
    x: Batch,
    elements: Elements | None,
    *,
    action: Action,
    output: Action,
    average: str,
) -> Float[Tensor, "batch *out"]:
    """(Ψ(x) + Σ_j ρ_Y(g_j⁻¹) Ψ(g_j x)) / (K + 1), Eq. (39); Ψ(x) without elements.

    Parameters
    ----------
    model
        Ψ.
    x
        A batch.
    elements
        g_j, (batch, views), or those of a single sample, which all then share; None for the
        direct prediction.
    action, output
        ρ_X and ρ_Y.
    average
        What is averaged: ``"values"`` and ``"logits"``, the model's outputs as they are;
        ``"probabilities"``, their softmax over the last axis.

    Returns
    -------
    Tensor
        (batch, …): averaged values, logits or probabilities.
    """
    check_average(average)

    def asked(batch: Batch) -> Tensor:
        prediction = call(model, batch)
        return prediction.softmax(-1) if average == "probabilities" else prediction

    direct = asked(x)
    if elements is None:
        return direct
    if elements.batch == 1:
        elements = elements.for_each(batch_size(x))
    moved = asked(map_tensors(lambda t: t.flatten(0, 1), action.act(elements, x)))
    back = output.act(elements.per_view().inverse(), moved)
    back = back.reshape(elements.batch, elements.views, *direct.shape[1:])
    return (direct + back.sum(1)) / (elements.views + 1)


def in_chunks(function: Callable[[Batch], Tensor], x: Batch, size: int) -> Tensor:
    """Apply a function to a batch piece by piece, so that memory stays flat.

    What is left over of vectors and points, if it is little, is asked for together with copies of
    the first: then a sample has the same result, to the bit, whatever else is asked with it.
    """
    n = batch_size(x)
    fewest = min(size, _FEWEST_ROWS) if isinstance(x, Tensor) and 1 < x.ndim < 4 else 0

    def asked(piece: Batch) -> Tensor:
        rows = batch_size(piece)
        if 0 < rows < fewest:
            padding = piece[:1].expand(fewest - rows, *piece.shape[1:])
            return function(torch.cat([piece, padding]))[:rows]
        return function(piece)

    pieces = [
        asked(map_tensors(lambda t, at=start: t[at : at + size], x))
        for start in range(0, max(n, 1), size)
    ]
    return torch.cat(pieces)

"""Inference: the direct prediction, and the one averaged over sampled elements."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors
from lieaugmenter.lie.elements import Elements

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
    if prediction.ndim == 0 or len(prediction) != n:
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
    elements: Elements,
    *,
    action: Action,
    output: Action,
    average: str,
) -> Float[Tensor, "batch *out"]:
    """(Ψ(x) + Σ_j ρ_Y(g_j⁻¹) Ψ(g_j x)) / (K + 1), Eq. (39).

    Parameters
    ----------
    model
        Ψ.
    x
        A batch.
    elements
        g_j, (batch, views).
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
    views = map_tensors(lambda t: t.flatten(0, 1), action.act(elements, x))
    direct, moved = call(model, x), call(model, views)
    if average == "probabilities":
        direct, moved = direct.softmax(-1), moved.softmax(-1)
    back = output.act(elements.per_view().inverse(), moved)
    back = back.reshape(elements.batch, elements.views, *direct.shape[1:])
    return (direct + back.sum(1)) / (elements.views + 1)


def in_chunks(function: Callable[[Batch], Tensor], x: Batch, size: int) -> Tensor:
    """Apply a function to a batch piece by piece, so that memory stays flat."""
    n = batch_size(x)
    pieces = [
        function(map_tensors(lambda t, at=start: t[at : at + size], x))
        for start in range(0, max(n, 1), size)
    ]
    return torch.cat(pieces)

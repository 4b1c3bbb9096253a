"""The objective for vectors under one generator, with gradients by hand: the same numbers, faster.

A step on small vectors is dozens of operations of a few microseconds; autograd's bookkeeping for
each costs more than the operation. Here everything before the network is one node of the graph and
everything after it another. `LieAugmenter.loss` takes this way when it applies; a test holds it
equal to the general one. Where there is a C compiler both nodes are compiled loops,
`vector_native`.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from lieaugmenter.learning import vector_native
from lieaugmenter.learning.objective import mean_abs_cosine, mean_abs_cosine_backward
from lieaugmenter.lie.basis import normalise, normalise_backward
from lieaugmenter.lie.exponential import (
    may_measure,
    series_length,
    share_powers,
    share_powers_backward,
    spectral_bound,
)


class _Augment(torch.autograd.Function):
    """Raw generator to network input, moved labels, and the two regularisers."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any,
        raw: Tensor,
        mask: Tensor,
        norm: float,
        weights: Tensor,
        vectors: Tensor,
        n_inputs: int,
        bound: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, _, d = vectors.shape
        views = weights.shape[1]
        generators, factor = normalise(raw, mask, norm)
        if may_measure(vectors):
            measured = spectral_bound(generators[0]) * float(weights.abs().max())
            # Non-finite numbers keep the bound that is known; their result is non-finite too.
            bound = measured if measured < bound else bound
        length = series_length(bound, vectors.dtype)
        moved, *ctx.series = share_powers(generators[0], weights, vectors, length)
        moved = moved.view(batch, -1, views, d)
        x_views = moved[:, :n_inputs].transpose(1, 2).reshape(batch * views, n_inputs * d)
        originals = vectors[:, :n_inputs].reshape(batch, n_inputs * d)
        cosine, ctx.cosine = mean_abs_cosine(originals, x_views.view(batch, views, -1))
        ctx.generators, ctx.factor, ctx.norm = generators, factor, norm
        ctx.n_inputs, ctx.shape = n_inputs, moved.shape
        regularisers = torch.stack([cosine, generators.abs().sum()])
        y_views = moved[:, n_inputs:].transpose(1, 2).reshape(batch, views, -1)
        return torch.cat([originals, x_views]), y_views, regularisers

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, of_joined: Tensor, of_labels: Tensor, of_regularisers: Tensor
    ) -> Any:
        batch, n, views, d = ctx.shape
        of_cosine, of_size = of_regularisers.unbind()
        of_views = mean_abs_cosine_backward(of_cosine, *ctx.cosine).view(batch * views, -1)
        of_views += of_joined[batch:]
        of_moved = of_views.view(batch, views, ctx.n_inputs, d).transpose(1, 2)
        if n > ctx.n_inputs:
            of_labels = of_labels.reshape(batch, views, n - ctx.n_inputs, d)
            of_moved = torch.cat([of_moved, of_labels.transpose(1, 2)], dim=1)
        of_moved = of_moved.reshape(batch * n, views, d)
        gradient, _ = share_powers_backward(of_moved, *ctx.series)
        gradient = torch.addcmul(gradient, ctx.generators[0].sgn(), of_size).unsqueeze(0)
        of_raw = normalise_backward(gradient, ctx.generators, ctx.factor, ctx.norm)
        return of_raw, None, None, None, None, None, None


class _Total(torch.autograd.Function):
    """Predictions and regularisers to the weighted sum of the four terms, and the terms."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any,
        prediction: Tensor,
        y: Tensor,
        y_views: Tensor,
        regularisers: Tensor,
        weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        batch, views = y_views.shape[:2]
        direct = prediction[:batch] - y
        moved = prediction[batch:].reshape(batch, views, -1) - y_views
        flat = direct.reshape(-1)
        squares = torch.dot(flat, flat) / batch
        absolutes = moved.abs().sum() / (batch * views)
        terms = torch.cat([torch.stack([squares, absolutes]), regularisers])
        ctx.save_for_backward(direct, moved, weights)
        ctx.mark_non_differentiable(terms)
        return torch.dot(terms, weights), terms

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, of_total: Tensor, _: Tensor
    ) -> Any:
        direct, moved, weights = ctx.saved_tensors
        batch, views = moved.shape[:2]
        of_terms = weights * of_total
        of_moved = moved.sgn().mul_(of_terms[1] / (batch * views))
        of_direct = direct * (of_terms[0] * (2.0 / batch))
        of_prediction = torch.cat([of_direct, of_moved.view(batch * views, -1)])
        of_y_views = of_moved.neg_() if ctx.needs_input_grad[2] else None
        return of_prediction, None, of_y_views, of_terms[2:], None


def augment(
    raw: Float[Tensor, "1 d d"],
    mask: Float[Tensor, "d d"],
    norm: float,
    weights: Float[Tensor, "batch views"],
    vectors: Float[Tensor, "batch n d"],
    n_inputs: int,
    bound: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Views of inputs and labels under one learned generator, and its two regularisers.

    Parameters
    ----------
    raw, mask, norm
        The basis before normalisation, and what normalises it.
    weights
        Coefficients, without gradient.
    vectors
        The vectors of the inputs, then those of the labels that move with them.
    n_inputs
        How many of the n belong to the input.
    bound
        On the norm of w L, at most `LARGEST_SERIES`: one series is enough.

    Returns
    -------
    tuple
        Originals and views, (batch · (views + 1), n_inputs · d); labels of the views,
        (batch, views, (n - n_inputs) · d); ℓ_areg and ℓ_bsreg, (2,).
    """
    if vector_native.augments(raw, mask, weights, vectors, n_inputs, bound):
        return vector_native.Augment.apply(raw, mask, norm, weights, vectors, n_inputs, bound)
    with torch.autocast(raw.device.type, enabled=False):
        return _Augment.apply(raw, mask, norm, weights, vectors, n_inputs, bound)


def total(
    prediction: Float[Tensor, "m out"],
    y: Float[Tensor, "batch out"],
    y_views: Float[Tensor, "batch views out"],
    regularisers: Float[Tensor, "2"],
    weights: Float[Tensor, "4"],
) -> tuple[Float[Tensor, ""], Float[Tensor, "4"]]:
    """The objective, and its terms without gradient.

    Parameters
    ----------
    prediction
        Of originals and views in one batch.
    y, y_views
        Targets of both.
    regularisers
        From `augment`.
    weights
        Of prediction, equivariance, similarity and sparsity; 0 for a term that does not count.
    """
    prediction = prediction.to(y.dtype)
    if vector_native.totals(prediction, y, y_views, regularisers, weights):
        return vector_native.Total.apply(prediction, y, y_views, regularisers, weights)
    with torch.autocast(y.device.type, enabled=False):
        return _Total.apply(prediction, y, y_views, regularisers, weights)

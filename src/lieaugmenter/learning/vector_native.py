"""The two nodes of `vector_step` as single calls of compiled loops, where there is a compiler.

The same numbers: a test holds them equal. `vector_step` chooses.
"""

from __future__ import annotations

from ctypes import CDLL
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lieaugmenter.lie import native
from lieaugmenter.lie.exponential import LARGEST_SERIES


def augments(
    raw: Tensor, mask: Tensor, weights: Tensor, vectors: Tensor, n_inputs: int, bound: float
) -> bool:
    """Whether `Augment` is there and takes these tensors."""
    return (
        native.suits(raw, mask, weights, vectors)
        and vectors.shape[-1] <= native.LARGEST_VECTOR
        and raw.numel() == mask.numel() == vectors.shape[-1] ** 2
        and len(weights) == len(vectors)
        and 0 < n_inputs <= vectors.shape[1]
        and bound <= LARGEST_SERIES
        and native.loops() is not None
    )


def totals(
    prediction: Tensor, y: Tensor, y_views: Tensor, regularisers: Tensor, weights: Tensor
) -> bool:
    """Whether `Total` is there and takes these tensors."""
    batch, views, out = y_views.shape
    return (
        prediction.shape == (batch * (views + 1), out)
        and y.shape == (batch, out)
        and regularisers.shape == (2,)
        and weights.shape == (4,)
        and native.suits(prediction, y, regularisers, weights)
        and native.suits(y_views[:, 0] if _shares_labels(y_views) else y_views)
        and native.loops() is not None
    )


def _shares_labels(y_views: Tensor) -> bool:
    """Whether the views of a sample are one label, expanded."""
    return y_views.stride(1) == 0


def _pointer(gradient: Tensor | None) -> tuple[Tensor | None, int | None]:
    """A gradient in a row, and where it lies; the tensor is returned to stay alive."""
    if gradient is None:
        return None, None
    gradient = gradient.contiguous()
    return gradient, gradient.data_ptr()


class Augment(torch.autograd.Function):
    """`vector_step._Augment`."""

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
        batch, n, d = vectors.shape
        views = weights.shape[1]
        ctx.loops = cast(CDLL, native.loops())
        joined = raw.new_empty(batch * (views + 1), n_inputs * d)
        y_views = raw.new_empty(batch, views, (n - n_inputs) * d)
        regularisers = raw.new_empty(2)
        saved = raw.new_empty(ctx.loops.vectors_saved(batch, views, n_inputs, d))
        length = ctx.loops.vectors_forward(
            raw.data_ptr(), mask.data_ptr(), norm, weights.data_ptr(), vectors.data_ptr(),
            batch, views, n, n_inputs, d, bound,
            joined.data_ptr(), y_views.data_ptr(), regularisers.data_ptr(), saved.data_ptr(),
        )  # fmt: skip
        ctx.save_for_backward(saved, weights, vectors)
        ctx.sizes = (batch, views, n, n_inputs, d, length, norm)
        ctx.set_materialize_grads(False)
        return joined, y_views, regularisers

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, of_joined: Tensor | None, of_labels: Tensor | None, of_regularisers: Tensor | None
    ) -> Any:
        saved, weights, vectors = ctx.saved_tensors
        d = vectors.shape[-1]
        of_raw = saved.new_empty(1, d, d)
        of_joined, p_joined = _pointer(of_joined)
        of_labels, p_labels = _pointer(of_labels)
        of_regularisers, p_regularisers = _pointer(of_regularisers)
        ctx.loops.vectors_backward(
            p_joined, p_labels, p_regularisers,
            saved.data_ptr(), weights.data_ptr(), vectors.data_ptr(), *ctx.sizes, of_raw.data_ptr(),
        )  # fmt: skip
        return of_raw, None, None, None, None, None, None


class Total(torch.autograd.Function):
    """`vector_step._Total`."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any,
        prediction: Tensor,
        y: Tensor,
        y_views: Tensor,
        regularisers: Tensor,
        weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        batch, views, out = y_views.shape
        ctx.loops = cast(CDLL, native.loops())
        apart = torch.empty_like(prediction)
        total, terms = prediction.new_empty(()), prediction.new_empty(4)
        ctx.loops.total_forward(
            prediction.data_ptr(), y.data_ptr(), y_views.data_ptr(), _shares_labels(y_views),
            regularisers.data_ptr(), weights.data_ptr(), batch, views, out,
            apart.data_ptr(), terms.data_ptr(), total.data_ptr(),
        )  # fmt: skip
        ctx.save_for_backward(apart, weights)
        ctx.sizes = (batch, views, out)
        ctx.mark_non_differentiable(terms)
        ctx.set_materialize_grads(False)
        return total, terms

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, of_total: Tensor, _: Tensor
    ) -> Any:
        apart, weights = ctx.saved_tensors
        of_prediction = torch.empty_like(apart)
        of_y_views = apart.new_empty(ctx.sizes) if ctx.needs_input_grad[2] else None
        of_regularisers = apart.new_empty(2)
        ctx.loops.total_backward(
            of_total.data_ptr(), weights.data_ptr(), apart.data_ptr(), *ctx.sizes,
            of_prediction.data_ptr(), None if of_y_views is None else of_y_views.data_ptr(),
            of_regularisers.data_ptr(),
        )  # fmt: skip
        return of_prediction, None, of_y_views, of_regularisers, None

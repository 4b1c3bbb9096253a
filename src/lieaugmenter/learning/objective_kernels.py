"""Terms of the objective for a GPU: mean |cos| and cross-entropy in one or two kernels each way.

A step on images computes them from little data, so that torch spends the time on launching some
thirty kernels. Means go through a buffer of parts and a second kernel, not through atomics, so that
two runs agree to the bit. Nothing waits for the device, so a step can be captured in a CUDA graph.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from lieaugmenter.lie.kernels import available, jit, tl, transforming

# Numbers of a vector that one program holds at once.
_VECTOR_TILE = 1024
# Logits that one program holds at once, and the most classes there may be of them.
_LOGITS_TILE = 16384
_MOST_CLASSES = 1024
# Parts that one step of a sum reads.
_SUM_TILE = 1024


def usable(*tensors: Tensor) -> bool:
    """Whether tensors are plain ones on a GPU, float32 where they hold fractions."""
    return (
        all(t.is_cuda and t.numel() > 0 for t in tensors)
        and all(t.dtype == torch.float32 for t in tensors if t.is_floating_point())
        and available()
        and not torch.compiler.is_compiling()
        # Under vmap, jvp and the like a tensor is not what its address holds.
        and not transforming()
    )


def fits(logits: Tensor, labels: Tensor) -> bool:
    """Whether `cross_entropy` can take these: a label for each row of not too many logits."""
    return (
        usable(logits, labels)
        and labels.dtype == torch.int64
        and labels.ndim <= 2
        and logits.shape[:-1] == labels.shape
        and logits.shape[-1] <= _MOST_CLASSES
    )


# Kernels.


@jit
def _mean_kernel(numbers, mean, count, TILE: tl.constexpr, TILES: tl.constexpr):
    """The mean of |numbers|."""
    sums = tl.zeros((TILE,), tl.float32)
    for tile in range(TILES):
        i = tile * TILE + tl.arange(0, TILE)
        sums += tl.abs(tl.load(numbers + i, mask=i < count, other=0.0))
    tl.store(mean, tl.sum(sums, axis=0) / count)


@jit
def _cosine_kernel(
    x,
    views,
    cosines,
    lengths,
    view_lengths,
    shortest,
    VIEWS: tl.constexpr,
    N: tl.constexpr,
    TILE: tl.constexpr,
):
    """The cosine of one sample with one of its views, and the lengths of both."""
    pair = tl.program_id(0).to(tl.int64)
    sample = x + pair // VIEWS * N
    view = views + pair * N
    zero = tl.zeros((TILE,), tl.float32)
    xx, vv, xv = zero, zero, zero
    for first in range(0, N, TILE):
        i = first + tl.arange(0, TILE)
        a = tl.load(sample + i, mask=i < N, other=0.0)
        b = tl.load(view + i, mask=i < N, other=0.0)
        xx, vv, xv = xx + a * a, vv + b * b, xv + a * b
    length = tl.maximum(tl.sqrt_rn(tl.sum(xx, axis=0)), shortest)
    view_length = tl.maximum(tl.sqrt_rn(tl.sum(vv, axis=0)), shortest)
    tl.store(cosines + pair, tl.sum(xv, axis=0) / length / view_length)
    tl.store(lengths + pair, length)
    tl.store(view_lengths + pair, view_length)


@jit
def _cosine_backward_kernel(
    x,
    views,
    cosines,
    lengths,
    view_lengths,
    gradient,
    of_views,
    count,
    VIEWS: tl.constexpr,
    N: tl.constexpr,
    TILE: tl.constexpr,
):
    """As `mean_abs_cosine_backward`, for a tile of one view."""
    pair = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    a = tl.load(x + pair // VIEWS * N + i, mask=i < N, other=0.0)
    b = tl.load(views + pair * N + i, mask=i < N, other=0.0)
    cosine = tl.load(cosines + pair)
    length, view_length = tl.load(lengths + pair), tl.load(view_lengths + pair)
    sign = tl.where(cosine > 0, 1.0, 0.0) - tl.where(cosine < 0, 1.0, 0.0)
    across = a / length - b * (cosine / view_length)
    scale = sign / view_length * (tl.load(gradient) / count)
    tl.store(of_views + pair * N + i, across * scale, mask=i < N)


@jit
def _logits_and_labels(
    logits,
    labels,
    rows,
    outer,
    inner,
    VIEWS: tl.constexpr,
    CLASSES: tl.constexpr,
    CLASSES_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A tile of rows: offsets, which are there, logits, labels, and which of the rows count."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, CLASSES_PAD)
    there = (row < rows)[:, None] & (column < CLASSES)[None, :]
    at = row.to(tl.int64)[:, None] * CLASSES + column[None, :]
    # A row that is not there has finite logits, so that nothing in it is NaN.
    missing = tl.where((row < rows)[:, None] & (column >= CLASSES)[None, :], -float("inf"), 0.0)
    values = tl.load(logits + at, mask=there, other=0.0) + missing
    # Labels may be expanded over the views. -100 is left out, as by torch.
    place = row // VIEWS * outer + row % VIEWS * inner
    label = tl.load(labels + place, mask=row < rows, other=-100)
    return at, there, values, label, label != -100


@jit
def _cross_entropy_kernel(
    logits,
    labels,
    sums,
    counts,
    rows,
    outer,
    inner,
    VIEWS: tl.constexpr,
    CLASSES: tl.constexpr,
    CLASSES_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    ALONE: tl.constexpr,
):
    """The sum of the cross-entropies of a tile of rows, and how many they are; ALONE, the mean."""
    _, _, values, label, counted = _logits_and_labels(
        logits, labels, rows, outer, inner, VIEWS, CLASSES, CLASSES_PAD, BLOCK
    )
    column = tl.arange(0, CLASSES_PAD)
    largest = tl.max(values, axis=1)
    total = tl.sum(tl.exp(values - largest[:, None]), axis=1)
    chosen = tl.sum(tl.where(column[None, :] == label[:, None], values, 0.0), axis=1)
    loss = largest + tl.log(total) - chosen
    # torch stops the program at a label that is no class; here the loss is not a number.
    loss = tl.where((label < 0) | (label >= CLASSES), float("nan"), loss)
    loss = tl.sum(tl.where(counted, loss, 0.0), axis=0)
    count = tl.sum(tl.where(counted, 1.0, 0.0), axis=0)
    tl.store(sums + tl.program_id(0), loss / count if ALONE else loss)
    tl.store(counts + tl.program_id(0), count)


@jit
def _quotient_kernel(sums, counts, mean, count, n, TILE: tl.constexpr, TILES: tl.constexpr):
    """The mean from n parts of its sum and its count."""
    total, number = tl.zeros((TILE,), tl.float32), tl.zeros((TILE,), tl.float32)
    for tile in range(TILES):
        i = tile * TILE + tl.arange(0, TILE)
        total += tl.load(sums + i, mask=i < n, other=0.0)
        number += tl.load(counts + i, mask=i < n, other=0.0)
    tl.store(mean, tl.sum(total, axis=0) / tl.sum(number, axis=0))
    tl.store(count, tl.sum(number, axis=0))


@jit
def _cross_entropy_backward_kernel(
    logits,
    labels,
    count,
    gradient,
    of_logits,
    rows,
    outer,
    inner,
    VIEWS: tl.constexpr,
    CLASSES: tl.constexpr,
    CLASSES_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Softmax minus the label's one, for a tile of rows."""
    at, there, values, label, counted = _logits_and_labels(
        logits, labels, rows, outer, inner, VIEWS, CLASSES, CLASSES_PAD, BLOCK
    )
    column = tl.arange(0, CLASSES_PAD)
    powers = tl.exp(values - tl.max(values, axis=1)[:, None])
    softmax = powers / tl.sum(powers, axis=1)[:, None]
    difference = softmax - tl.where(column[None, :] == label[:, None], 1.0, 0.0)
    scaled = difference * (tl.load(gradient) / tl.load(count))
    tl.store(of_logits + at, tl.where(counted[:, None], scaled, 0.0), mask=there)


# Nodes of the graph.


def _power_of_two(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


class _MeanAbsCosine(torch.autograd.Function):
    """mean |cos(x, v)|, with its gradient in v."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, x: Tensor, views: Tensor, shortest: float
    ) -> Tensor:
        pairs, n = views.shape[0] * views.shape[1], views.shape[2]
        ctx.sizes = {
            "VIEWS": views.shape[1], "N": n, "TILE": min(_VECTOR_TILE, _power_of_two(n)),
            "num_warps": 4,
        }  # fmt: skip
        cosines, lengths, view_lengths = views.new_empty(3, pairs).unbind()
        mean = views.new_empty(())
        with torch.cuda.device_of(x):
            _cosine_kernel[(pairs,)](
                x, views, cosines, lengths, view_lengths, shortest, **ctx.sizes
            )
            _mean_kernel[(1,)](
                cosines, mean, pairs, TILE=_SUM_TILE, TILES=-(-pairs // _SUM_TILE), num_warps=4
            )
        ctx.save_for_backward(x, views, cosines, lengths, view_lengths)
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, views, cosines, lengths, view_lengths = ctx.saved_tensors
        pairs, n = len(cosines), views.shape[2]
        of_views = torch.empty_like(views)
        _cosine_backward_kernel[(pairs, -(-n // ctx.sizes["TILE"]))](
            x, views, cosines, lengths, view_lengths, gradient, of_views, pairs, **ctx.sizes
        )
        return None, of_views, None


class _CrossEntropy(torch.autograd.Function):
    """The mean over rows that have a label."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, logits: Tensor, labels: Tensor
    ) -> Tensor:
        rows, classes = labels.numel(), logits.shape[-1]
        padded = _power_of_two(classes)
        block = min(_power_of_two(rows), _LOGITS_TILE // padded)
        programs = -(-rows // block)
        ctx.grid = (programs,)
        # One axis is as many rows with one view each.
        strides = (*labels.stride(), 0)[:2]
        views = labels.shape[1] if labels.ndim == 2 else 1
        ctx.numbers = (rows, *strides)
        ctx.sizes = {
            "VIEWS": views, "CLASSES": classes, "CLASSES_PAD": padded, "BLOCK": block,
            "num_warps": min(16, max(1, block * padded // 512)),
        }  # fmt: skip
        sums, counts = logits.new_empty(programs), logits.new_empty(programs)
        with torch.cuda.device_of(logits):
            _cross_entropy_kernel[ctx.grid](
                logits, labels, sums, counts, *ctx.numbers, **ctx.sizes, ALONE=programs == 1
            )
            if programs > 1:
                mean, count = logits.new_empty(1), logits.new_empty(1)
                _quotient_kernel[(1,)](
                    sums, counts, mean, count, programs,
                    TILE=_SUM_TILE, TILES=-(-programs // _SUM_TILE), num_warps=4,
                )  # fmt: skip
                sums, counts = mean, count
        ctx.save_for_backward(logits, labels, counts)
        return sums.view(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        logits, labels, count = ctx.saved_tensors
        of_logits = torch.empty_like(logits)
        _cross_entropy_backward_kernel[ctx.grid](
            logits, labels, count, gradient, of_logits, *ctx.numbers, **ctx.sizes
        )
        return of_logits, None


def mean_abs_cosine(
    x: Float[Tensor, "batch n"], views: Float[Tensor, "batch views n"], shortest: float
) -> Float[Tensor, ""]:
    """Mean |cos(x, v)|, differentiable in the views, once.

    Parameters
    ----------
    x, views
        Samples and their views, float32.
    shortest
        Vectors that are shorter count as this long.
    """
    return _MeanAbsCosine.apply(x.contiguous(), views.contiguous(), shortest)


def cross_entropy(
    logits: Float[Tensor, "*batch classes"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, ""]:
    """Mean cross-entropy over samples, or over samples and views; differentiable once.

    As torch's, but a label that is no class makes the loss NaN instead of stopping the device.

    Parameters
    ----------
    logits
        float32; (batch, classes) or (batch, views, classes).
    labels
        int64; may be expanded from fewer numbers.
    """
    return _CrossEntropy.apply(logits.contiguous(), labels)

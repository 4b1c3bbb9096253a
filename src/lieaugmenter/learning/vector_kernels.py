"""`vector_step` for a GPU: the same numbers in six kernels, for all members of an ensemble at once.

At a few dozen samples of eight numbers, a kernel's launch costs more than its arithmetic, and
`vector_step` makes about a hundred of them. Here one program follows one sample through the whole
series in registers. Sums over samples go through a buffer of partial sums and a second kernel, not
through atomics, so that two runs agree to the bit.

Nothing in it waits for the device, so a step can be captured in a CUDA graph
(after one step outside, which compiles the kernels).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from lieaugmenter.learning.objective import _SHORTEST
from lieaugmenter.lie.exponential import series_length
from lieaugmenter.lie.kernels import jit, tl

# Sizes up to which a sample's tiles stay in registers.
_LARGEST_DIM = 32
_MOST_VECTORS = 16
_MOST_VIEWS = 64
# Elements (views, n, d) of one program: more views go to more programs.
_LARGEST_TILE = 4096
# Elements of one step of a sum, of one over few numbers, and of one program that sums nothing.
_SUM_TILE = 4096
_FEW = 256
_MAP_TILE = 512


def fits(d: int, n: int, views: int) -> bool:
    """Whether n vectors of size d and their views are small enough for these kernels.

    >>> fits(8, 2, 10), fits(64, 2, 10)
    (True, False)
    """
    return d <= _LARGEST_DIM and n <= _MOST_VECTORS and views <= _MOST_VIEWS


# Kernels. Tiles are padded to powers of two, as Triton wants; what is outside reads as zero.


@jit
def _sign(x):
    return tl.where(x > 0, 1.0, 0.0) - tl.where(x < 0, 1.0, 0.0)


@jit
def _generator(raw, mask, norm, member, D: tl.constexpr, D_PAD: tl.constexpr):
    """As `normalise`: a member's generator, and the factor applied."""
    i = tl.arange(0, D_PAD)
    inside = (i < D)[:, None] & (i < D)[None, :]
    at = i[:, None] * D + i[None, :]
    entries = tl.load(raw + member * D * D + at, mask=inside, other=0.0)
    allowed = tl.load(mask + at, mask=inside, other=0.0)
    kept = entries * allowed
    length = tl.sqrt_rn(tl.sum(tl.sum(kept * kept, axis=1), axis=0))
    factor = allowed * tl.div_rn(norm, length)
    return entries * factor, factor


@jit
def _cosines(x, views, shortest):
    """Of x (n, d) and its views (k, n, d): the unit vector, lengths (k,) and cosines (k,)."""
    unit = x / tl.maximum(tl.sqrt_rn(tl.sum(tl.sum(x * x, axis=1), axis=0)), shortest)
    squares = tl.sum(tl.sum(views * views, axis=2), axis=1)
    lengths = tl.maximum(tl.sqrt_rn(squares), shortest)
    cosines = tl.sum(tl.sum(views * unit[None, :, :], axis=2), axis=1) / lengths
    return unit, lengths, cosines


@jit
def _places(
    member,
    row,
    batch,
    D: tl.constexpr,
    N: tl.constexpr,
    N_INPUTS: tl.constexpr,
    VIEWS: tl.constexpr,
    D_PAD: tl.constexpr,
    N_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Where a program's tiles lie: offsets, and which of them are real.

    Returns the number of each view (k,); offset of, and whether there is, each entry of a sample
    (n, d), and whether it is an input's; and the offsets of the views (k, n, d) in the joined batch
    and among the labels.
    """
    n = tl.arange(0, N_PAD)[:, None]
    i = tl.arange(0, D_PAD)[None, :]
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = n * D + i
    real = (n < N) & (i < D)
    is_input = (n < N_INPUTS) & (i < D)
    # `row` counts the samples of all members; each member's views come after its originals.
    joined_row = (member + 1) * batch + row * VIEWS + k
    in_joined = joined_row[:, None, None] * (N_INPUTS * D) + at[None, :, :]
    label_row = row * VIEWS + k
    in_labels = label_row[:, None, None] * ((N - N_INPUTS) * D) + (at - N_INPUTS * D)[None, :, :]
    return k, at, real, is_input, in_joined, in_labels


@jit
def _augment_kernel(
    raw,
    mask,
    norm,
    weights,
    vectors,
    joined,
    labels,
    images,
    taylor,
    cosine_sums,
    batch,
    shortest,
    LENGTH: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    N_INPUTS: tl.constexpr,
    VIEWS: tl.constexpr,
    D_PAD: tl.constexpr,
    N_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The series for one sample and a block of its views: sum_t w^t/t! L^t x."""
    member = tl.program_id(2).to(tl.int64)
    row = member * batch + tl.program_id(0)
    k, at, real, is_input, in_joined, in_labels = _places(
        member, row, batch, D, N, N_INPUTS, VIEWS, D_PAD, N_PAD, BLOCK
    )
    is_view = k < VIEWS
    # What does not depend on the views is written by the program of the first.
    first = tl.program_id(1) == 0
    generator, _ = _generator(raw, mask, norm, member, D, D_PAD)
    x = tl.load(vectors + row * (N * D) + at, mask=real, other=0.0)
    w = tl.load(weights + row * VIEWS + k, mask=is_view, other=0.0)
    # Row `row` of the originals: those of earlier members are followed by their views.
    original = (member * VIEWS * batch + row) * (N_INPUTS * D)
    tl.store(joined + original + at, x, mask=is_input & first)

    image = x
    term = tl.full((BLOCK,), 1.0, tl.float32)
    moved = tl.zeros((BLOCK, N_PAD, D_PAD), tl.float32) + x[None, :, :]
    for t in range(LENGTH):
        # Kept for the backward pass: L^t x and w^(t+1)/(t+1)!, which meet there.
        step = row * LENGTH + t
        tl.store(images + step * (N * D) + at, image, mask=real & first)
        image = tl.sum(image[:, None, :] * generator[None, :, :], axis=2)
        term *= w * (1.0 / (t + 1))
        tl.store(taylor + step * VIEWS + k, term, mask=is_view)
        moved += term[:, None, None] * image[None, :, :]

    of_inputs = is_view[:, None, None] & is_input[None, :, :]
    tl.store(joined + in_joined, moved, mask=of_inputs)
    if N > N_INPUTS:
        of_labels = is_view[:, None, None] & (real & (at >= N_INPUTS * D))[None, :, :]
        tl.store(labels + in_labels, moved, mask=of_labels)
    _, _, cosines = _cosines(tl.where(is_input, x, 0.0), tl.where(of_inputs, moved, 0.0), shortest)
    cosine_sum = tl.sum(tl.abs(cosines), axis=0)
    tl.store(cosine_sums + row * tl.num_programs(1) + tl.program_id(1), cosine_sum)


@jit
def _regularisers_kernel(
    raw,
    mask,
    norm,
    cosine_sums,
    regularisers,
    count,
    n_cosines,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
):
    """One member's mean |cos| from its `count` partial sums, and the size of its generator."""
    member = tl.program_id(0).to(tl.int64)
    generator, _ = _generator(raw, mask, norm, member, D, D_PAD)
    sums = tl.zeros((TILE,), tl.float32)
    for tile in range(TILES):
        i = tile * TILE + tl.arange(0, TILE)
        sums += tl.load(cosine_sums + member * count + i, mask=i < count, other=0.0)
    tl.store(regularisers + member * 2, tl.sum(sums, axis=0) / n_cosines)
    size = tl.sum(tl.sum(tl.abs(generator), axis=1), axis=0)
    tl.store(regularisers + member * 2 + 1, size)


@jit
def _augment_backward_kernel(
    raw,
    mask,
    norm,
    vectors,
    joined,
    images,
    taylor,
    of_joined,
    of_labels,
    of_regularisers,
    of_generators,
    batch,
    shortest,
    LENGTH: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    N_INPUTS: tl.constexpr,
    VIEWS: tl.constexpr,
    D_PAD: tl.constexpr,
    N_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """What one sample and a block of its views add to the gradient of the generator.

    With h_t = sum_k w_k^t/t! g_k and a_t = h_t + Lᵀ a_(t+1), it is sum_t a_t (L^(t-1) x)ᵀ.
    """
    member = tl.program_id(2).to(tl.int64)
    row = member * batch + tl.program_id(0)
    k, at, real, is_input, in_joined, in_labels = _places(
        member, row, batch, D, N, N_INPUTS, VIEWS, D_PAD, N_PAD, BLOCK
    )
    is_view = k < VIEWS
    generator, _ = _generator(raw, mask, norm, member, D, D_PAD)

    # The cosines have a part in the gradient of the inputs' views.
    of_inputs = is_view[:, None, None] & is_input[None, :, :]
    x = tl.load(vectors + row * (N * D) + at, mask=is_input, other=0.0)
    views = tl.load(joined + in_joined, mask=of_inputs, other=0.0)
    gradient = tl.load(of_joined + in_joined, mask=of_inputs, other=0.0)
    unit, lengths, cosines = _cosines(x, views, shortest)
    scale = _sign(cosines) / lengths * (tl.load(of_regularisers + member * 2) / (batch * VIEWS))
    across = unit[None, :, :] - views * (cosines / lengths)[:, None, None]
    gradient += across * scale[:, None, None]
    if N > N_INPUTS:
        of_moving = is_view[:, None, None] & (real & (at >= N_INPUTS * D))[None, :, :]
        gradient += tl.load(of_labels + in_labels, mask=of_moving, other=0.0)

    last = row * LENGTH + LENGTH - 1
    image = tl.load(images + last * (N * D) + at, mask=real, other=0.0)
    term = tl.load(taylor + last * VIEWS + k, mask=is_view, other=0.0)
    # Transposed, so that the sum below runs over the last axis: a sum over a middle one would be
    # turned into a product on tensor cores, which round to ten bits.
    turned = tl.trans(generator)
    of_image = tl.zeros((N_PAD, D_PAD), tl.float32)
    outer = tl.zeros((N_PAD, D_PAD, D_PAD), tl.float32)
    for t in range(LENGTH):
        # Read one round ahead: memory takes longer to answer than a round takes.
        earlier = last - tl.minimum(t + 1, LENGTH - 1)
        next_image = tl.load(images + earlier * (N * D) + at, mask=real, other=0.0)
        next_term = tl.load(taylor + earlier * VIEWS + k, mask=is_view, other=0.0)
        of_term = tl.sum(gradient * term[:, None, None], axis=0)
        of_image = of_term + tl.sum(of_image[:, None, :] * turned[None, :, :], axis=2)
        outer += of_image[:, :, None] * image[:, None, :]
        image = next_image
        term = next_term

    i = tl.arange(0, D_PAD)
    inside = (i < D)[:, None] & (i < D)[None, :]
    part = (row * tl.num_programs(1) + tl.program_id(1)) * (D * D)
    entries = part + i[:, None] * D + i[None, :]
    tl.store(of_generators + entries, tl.sum(outer, axis=0), mask=inside)


@jit
def _raw_backward_kernel(
    raw,
    mask,
    norm,
    of_generators,
    of_regularisers,
    of_raw,
    count,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Gradient of one member's raw generator from the `count` parts of that of the generator."""
    member = tl.program_id(0).to(tl.int64)
    generator, factor = _generator(raw, mask, norm, member, D, D_PAD)
    i = tl.arange(0, D_PAD)
    inside = (i < D)[:, None] & (i < D)[None, :]
    at = i[:, None] * D + i[None, :]
    sums = tl.zeros((ROWS, D_PAD, D_PAD), tl.float32)
    for tile in range(TILES):
        part = tile * ROWS + tl.arange(0, ROWS)
        place = (member * count + part)[:, None, None] * (D * D) + at[None, :, :]
        there = (part < count)[:, None, None] & inside[None, :, :]
        sums += tl.load(of_generators + place, mask=there, other=0.0)
    gradient = tl.sum(sums, axis=0)
    gradient += tl.load(of_regularisers + member * 2 + 1) * _sign(generator)
    # As `normalise_backward`.
    along = tl.sum(tl.sum(gradient * generator, axis=1), axis=0)
    gradient = (gradient - generator * (along / (norm * norm))) * factor
    tl.store(of_raw + member * D * D + at, gradient, mask=inside)


@jit
def _errors(
    prediction,
    y,
    y_views,
    member,
    i,
    batch,
    OUT: tl.constexpr,
    VIEWS: tl.constexpr,
    MOVING: tl.constexpr,
):
    """Prediction minus target at places i of a member's joined batch, zero beyond its end."""
    n_direct = batch * OUT
    n_moved = n_direct * VIEWS
    is_direct = i < n_direct
    is_moved = (i >= n_direct) & (i < n_direct + n_moved)
    predicted = tl.load(
        prediction + member * (n_direct + n_moved) + i, mask=is_direct | is_moved, other=0.0
    )
    target = tl.load(y + member * n_direct + i, mask=is_direct, other=0.0)
    j = i - n_direct
    if MOVING:
        place = member * n_moved + j
    else:
        place = member * n_direct + j // (VIEWS * OUT) * OUT + j % OUT
    target += tl.load(y_views + place, mask=is_moved, other=0.0)
    return predicted - target


@jit
def _total_kernel(
    prediction,
    y,
    y_views,
    regularisers,
    weights,
    totals,
    terms,
    batch,
    OUT: tl.constexpr,
    VIEWS: tl.constexpr,
    MOVING: tl.constexpr,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
):
    """The four terms of one member, and their weighted sum."""
    member = tl.program_id(0).to(tl.int64)
    n_direct = batch * OUT
    squares = tl.zeros((TILE,), tl.float32)
    absolutes = tl.zeros((TILE,), tl.float32)
    for tile in range(TILES):
        i = tile * TILE + tl.arange(0, TILE)
        error = _errors(prediction, y, y_views, member, i, batch, OUT, VIEWS, MOVING)
        squares += tl.where(i < n_direct, error * error, 0.0)
        absolutes += tl.where(i < n_direct, 0.0, tl.abs(error))
    direct = tl.sum(squares, axis=0) / batch
    moved = tl.sum(absolutes, axis=0) / (batch * VIEWS)
    similarity = tl.load(regularisers + member * 2)
    sparsity = tl.load(regularisers + member * 2 + 1)
    tl.store(terms + member * 4, direct)
    tl.store(terms + member * 4 + 1, moved)
    tl.store(terms + member * 4 + 2, similarity)
    tl.store(terms + member * 4 + 3, sparsity)
    total = direct * tl.load(weights) + moved * tl.load(weights + 1)
    total += similarity * tl.load(weights + 2) + sparsity * tl.load(weights + 3)
    tl.store(totals + member, total)


@jit
def _total_backward_kernel(
    prediction,
    y,
    y_views,
    weights,
    of_totals,
    of_prediction,
    of_y_views,
    of_regularisers,
    stride,
    batch,
    OUT: tl.constexpr,
    VIEWS: tl.constexpr,
    MOVING: tl.constexpr,
    OF_LABELS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Gradients of a member's total, element by element."""
    member = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    n_direct = batch * OUT
    count = n_direct * (VIEWS + 1)
    of_total = tl.load(of_totals + member * stride)
    error = _errors(prediction, y, y_views, member, i, batch, OUT, VIEWS, MOVING)
    of_direct = error * (tl.load(weights) * of_total * (2.0 / batch))
    of_moved = _sign(error) * (tl.load(weights + 1) * of_total / (batch * VIEWS))
    gradient = tl.where(i < n_direct, of_direct, of_moved)
    tl.store(of_prediction + member * count + i, gradient, mask=i < count)
    if OF_LABELS:
        place = member * (n_direct * VIEWS) + i - n_direct
        tl.store(of_y_views + place, -of_moved, mask=(i >= n_direct) & (i < count))
    if tl.program_id(0) == 0:
        which = tl.arange(0, 2)
        of_terms = tl.load(weights + 2 + which) * of_total
        tl.store(of_regularisers + member * 2 + which, of_terms)


# Nodes of the graph.


def _padded(size: int) -> int:
    """The power of two that holds `size`; at least 2, as axes of length 1 are a rare path."""
    return max(2, 1 << (size - 1).bit_length())


class _Augment(torch.autograd.Function):
    """Raw generators to network input, moved labels, and the two regularisers."""

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
        members, batch, n, d = vectors.shape
        views = weights.shape[-1]
        length = series_length(bound, torch.float32)
        n_pad, d_pad = _padded(n), _padded(d)
        block = min(_padded(views), max(2, _LARGEST_TILE // (n_pad * d_pad)))
        grid = (batch, -(-views // block), members)
        sizes = {
            "LENGTH": length,
            "D": d,
            "N": n,
            "N_INPUTS": n_inputs,
            "VIEWS": views,
            "D_PAD": d_pad,
            "N_PAD": n_pad,
            "BLOCK": block,
            # One warp as long as it has the registers: warps talk through shared memory.
            "num_warps": min(16, max(1, max(block, d_pad) * n_pad * d_pad // 1024)),
        }
        joined = raw.new_empty(members, batch * (views + 1), n_inputs * d)
        labels = raw.new_empty(members, batch, views, (n - n_inputs) * d)
        images = raw.new_empty(members, batch, length, n, d)
        taylor = raw.new_empty(members, batch, length, views)
        cosine_sums = raw.new_empty(members, batch, grid[1])
        regularisers = raw.new_empty(members, 2)
        with torch.cuda.device_of(raw):
            _augment_kernel[grid](
                raw, mask, norm, weights, vectors, joined, labels, images, taylor, cosine_sums,
                batch, _SHORTEST, **sizes,
            )  # fmt: skip
            _regularisers_kernel[(members,)](
                raw, mask, norm, cosine_sums, regularisers, batch * grid[1], batch * views,
                D=d, D_PAD=d_pad, TILE=_FEW, TILES=-(-batch * grid[1] // _FEW), num_warps=2,
            )  # fmt: skip
        ctx.save_for_backward(raw, mask, vectors, joined, images, taylor)
        ctx.norm, ctx.grid, ctx.sizes = norm, grid, sizes
        ctx.set_materialize_grads(False)
        return joined, labels, regularisers

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, of_joined: Tensor | None, of_labels: Tensor | None, of_regularisers: Tensor | None
    ) -> Any:
        raw, mask, vectors, joined, images, taylor = ctx.saved_tensors
        members, batch, n, d = vectors.shape
        views, d_pad, blocks = ctx.sizes["VIEWS"], ctx.sizes["D_PAD"], ctx.grid[1]
        of_joined = _dense(of_joined, joined)
        of_regularisers = _dense(of_regularisers, raw.new_empty(members, 2))
        n_labels = n - ctx.sizes["N_INPUTS"]
        if n_labels:
            of_labels = _dense(of_labels, raw.new_empty(members, batch, views, n_labels * d))
        else:
            of_labels = of_joined  # never read
        of_generators = raw.new_empty(members, batch, blocks, d, d)
        of_raw = torch.empty_like(raw)
        _augment_backward_kernel[ctx.grid](
            raw, mask, ctx.norm, vectors, joined, images, taylor, of_joined, of_labels,
            of_regularisers, of_generators, batch, _SHORTEST, **ctx.sizes,
        )  # fmt: skip
        rows = _SUM_TILE // d_pad**2
        _raw_backward_kernel[(members,)](
            raw, mask, ctx.norm, of_generators, of_regularisers, of_raw, batch * blocks,
            D=d, D_PAD=d_pad, ROWS=rows, TILES=-(-batch * blocks // rows), num_warps=4,
        )  # fmt: skip
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
        members, batch, out = y.shape
        views = prediction.shape[1] // batch - 1
        ctx.sizes = {"OUT": out, "VIEWS": views, "MOVING": y_views.shape[2] == views}
        tiles = -(-prediction[0].numel() // _SUM_TILE)
        totals, terms = y.new_empty(members), y.new_empty(members, 4)
        with torch.cuda.device_of(y):
            _total_kernel[(members,)](
                prediction, y, y_views, regularisers, weights, totals, terms, batch,
                **ctx.sizes, TILE=_SUM_TILE, TILES=tiles, num_warps=8,
            )  # fmt: skip
        ctx.save_for_backward(prediction, y, y_views, weights)
        ctx.mark_non_differentiable(terms)
        ctx.set_materialize_grads(False)
        return totals, terms

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, of_totals: Tensor, of_terms: None
    ) -> Any:
        prediction, y, y_views, weights = ctx.saved_tensors
        members, batch, _ = y.shape
        of_prediction = torch.empty_like(prediction)
        of_labels = ctx.needs_input_grad[2] and ctx.sizes["MOVING"]
        of_y_views = torch.empty_like(y_views) if of_labels else None
        of_regularisers = y.new_empty(members, 2)
        _total_backward_kernel[(-(-prediction[0].numel() // _MAP_TILE), members)](
            prediction, y, y_views, weights, of_totals, of_prediction,
            of_prediction if of_y_views is None else of_y_views, of_regularisers,
            # The gradient of a sum over members is one number, expanded.
            of_totals.stride(0), batch,
            **ctx.sizes, OF_LABELS=of_labels, TILE=_MAP_TILE, num_warps=4,
        )  # fmt: skip
        return of_prediction, None, of_y_views, of_regularisers, None


def _dense(gradient: Tensor | None, like: Tensor) -> Tensor:
    """A gradient as the kernels read it: autograd hands over None where there is none."""
    return torch.zeros_like(like) if gradient is None else gradient.contiguous()


def augment(
    raw: Float[Tensor, "members d d"],
    mask: Float[Tensor, "d d"],
    norm: float,
    weights: Float[Tensor, "members batch views"],
    vectors: Float[Tensor, "members batch n d"],
    n_inputs: int,
    bound: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Views of inputs and labels under one learned generator a member, and its two regularisers.

    As `vector_step.augment` for every member. float32 on one GPU; see `fits`.

    Parameters
    ----------
    raw, mask, norm
        The generators before normalisation, and what normalises them.
    weights
        Coefficients, without gradient.
    vectors
        The vectors of the inputs, then those of the labels that move with them, without gradient.
    n_inputs
        How many of the n belong to the input.
    bound
        On the norm of w L, at most `LARGEST_SERIES`: one series is enough.

    Returns
    -------
    tuple
        Originals and views, (members, batch · (views + 1), n_inputs · d); labels of the views,
        (members, batch, views, (n - n_inputs) · d); ℓ_areg and ℓ_bsreg, (members, 2).
    """
    raw, mask, weights, vectors = (t.contiguous() for t in (raw, mask, weights, vectors))
    return _Augment.apply(raw, mask, norm, weights, vectors, n_inputs, bound)


def total(
    prediction: Float[Tensor, "members m out"],
    y: Float[Tensor, "members batch out"],
    y_views: Float[Tensor, "members batch views out"] | Float[Tensor, "members batch 1 out"],
    regularisers: Float[Tensor, "members 2"],
    weights: Float[Tensor, "4"],
) -> tuple[Float[Tensor, " members"], Float[Tensor, "members 4"]]:
    """The objective of every member, and its terms without gradient.

    Parameters
    ----------
    prediction
        Of originals and views in one batch, as `augment` joins them.
    y, y_views
        Targets of both; those of the views are (members, batch, 1, out), and get no gradient, when
        labels do not move.
    regularisers
        From `augment`.
    weights
        Of prediction, equivariance, similarity and sparsity; 0 for a term that does not count.
    """
    prediction = prediction.to(y.dtype)  # under autocast it may be shorter
    tensors = (t.contiguous() for t in (prediction, y, y_views, regularisers, weights))
    return _Total.apply(*tensors)

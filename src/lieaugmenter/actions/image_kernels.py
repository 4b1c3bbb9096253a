"""`ImageAction.act` for a GPU: exponential and warp in two kernels, their gradient in two more.

The torch code takes about eighty launches for it, most of them on 3 × 3 matrices. Here one lane
follows one element through its exponential, and one program one transformed image. Nothing waits
for the device, so a step can be captured in a CUDA graph.

An element acts by exp(-A) on the grid, with A = sum_i w_i L_i in homogeneous coordinates. Products
of such matrices have a last row of zeros, so that A is kept as its 2 × 2 block and its column, and
N = exp(A) - I likewise: doubling A makes 2N + N² of N.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from lieaugmenter.lie.kernels import jit, tl, triton

# Terms of the series for a matrix of norm at most `_SMALL`: the next one is below 1e-8.
_SMALL = 0.5
_TERMS = 8
# Elements of one program of the exponentials, and the most pixels of one program's tile.
_ELEMENTS = 64
_LARGEST_TILE = 1024


@jit
def _load_affine(matrices, at, real, SIZE: tl.constexpr):
    """Entries of the first two rows of matrices that take up SIZE numbers each.

    The block row by row, then the column.
    """
    base = matrices + at * SIZE
    a = tl.load(base, mask=real, other=0.0)
    b = tl.load(base + 1, mask=real, other=0.0)
    x = tl.load(base + 2, mask=real, other=0.0)
    c = tl.load(base + 3, mask=real, other=0.0)
    d = tl.load(base + 4, mask=real, other=0.0)
    y = tl.load(base + 5, mask=real, other=0.0)
    return a, b, c, d, x, y


@jit
def _store_affine(matrices, at, real, a, b, c, d, x, y, SIZE: tl.constexpr):
    base = matrices + at * SIZE
    tl.store(base, a, mask=real)
    tl.store(base + 1, b, mask=real)
    tl.store(base + 2, x, mask=real)
    tl.store(base + 3, c, mask=real)
    tl.store(base + 4, d, mask=real)
    tl.store(base + 5, y, mask=real)


@jit
def _times(a, b, c, d, e, f, g, h, u, v):
    """The block (a b; c d) times the block (e f; g h) and times the column (u, v)."""
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h, a * u + b * v, c * u + d * v


@jit
def _exponential_kernel(
    algebra, matrices, n, TERMS: tl.constexpr, HALVINGS: tl.constexpr, BLOCK: tl.constexpr
):
    """The first two rows of exp(-A), for a block of elements."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < n
    a, b, c, d, x, y = _load_affine(algebra, at, real, 9)
    scale = -1.0 / (1 << HALVINGS)
    a, b, c, d, x, y = a * scale, b * scale, c * scale, d * scale, x * scale, y * scale
    pa, pb, pc, pd, px, py = a, b, c, d, x, y
    na, nb, nc, nd, nx, ny = a, b, c, d, x, y
    for k in tl.static_range(2, TERMS + 1):
        pa, pb, pc, pd, px, py = _times(a, b, c, d, pa, pb, pc, pd, px, py)
        pa, pb, pc, pd, px, py = pa / k, pb / k, pc / k, pd / k, px / k, py / k
        na, nb, nc, nd, nx, ny = na + pa, nb + pb, nc + pc, nd + pd, nx + px, ny + py
    for _ in tl.static_range(HALVINGS):
        sa, sb, sc, sd, sx, sy = _times(na, nb, nc, nd, na, nb, nc, nd, nx, ny)
        na, nb, nc = 2 * na + sa, 2 * nb + sb, 2 * nc + sc
        nd, nx, ny = 2 * nd + sd, 2 * nx + sx, 2 * ny + sy
    _store_affine(matrices, at, real, 1.0 + na, nb, nc, 1.0 + nd, nx, ny, 6)


@jit
def _exponential_backward_kernel(
    algebra, gradient, result, n, TERMS: tl.constexpr, HALVINGS: tl.constexpr, BLOCK: tl.constexpr
):
    """The gradient in A of a function of exp(-A), from its gradient G in the first two rows.

    It is minus the integral of exp((1-t)S)ᵀ G exp(tS)ᵀ over t in [0, 1], S = -A: by its series for
    a small S, then by doubling: the integral D to twice the time is EᵀD + DEᵀ.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < n
    a, b, c, d, x, y = _load_affine(algebra, at, real, 9)
    ga, gb, gc, gd, gx, gy = _load_affine(gradient, at, real, 6)
    scale = -1.0 / (1 << HALVINGS)
    a, b, c, d, x, y = a * scale, b * scale, c * scale, d * scale, x * scale, y * scale
    # S^k / k! and its sum N; the k-th term U of the integral and its sum D.
    pa, pb, pc, pd, px, py = a, b, c, d, x, y
    na, nb, nc, nd, nx, ny = a, b, c, d, x, y
    ua, ub, uc, ud, ux, uy = ga, gb, gc, gd, gx, gy
    da, db, dc, dd, dx, dy = ga, gb, gc, gd, gx, gy
    for k in tl.static_range(2, TERMS + 1):
        # U ← (Sᵀ U + G (S^(k-1) / (k-1)!)ᵀ) / k
        ua, ub, uc, ud, ux, uy = _times(a, c, b, d, ua, ub, uc, ud, ux, uy)
        ua += ga * pa + gb * pb + gx * px
        ub += ga * pc + gb * pd + gx * py
        uc += gc * pa + gd * pb + gy * px
        ud += gc * pc + gd * pd + gy * py
        ua, ub, uc, ud, ux, uy = ua / k, ub / k, uc / k, ud / k, ux / k, uy / k
        da, db, dc, dd, dx, dy = da + ua, db + ub, dc + uc, dd + ud, dx + ux, dy + uy
        pa, pb, pc, pd, px, py = _times(a, b, c, d, pa, pb, pc, pd, px, py)
        pa, pb, pc, pd, px, py = pa / k, pb / k, pc / k, pd / k, px / k, py / k
        na, nb, nc, nd, nx, ny = na + pa, nb + pb, nc + pc, nd + pd, nx + px, ny + py
    for _ in tl.static_range(HALVINGS):
        # With E = I + N: EᵀD + DEᵀ = 2D + NᵀD + DNᵀ, the column of N meeting D's column.
        la, lb, lc, ld, lx, ly = _times(na, nc, nb, nd, da, db, dc, dd, dx, dy)
        ra, rb = da * na + db * nb + dx * nx, da * nc + db * nd + dx * ny
        rc, rd = dc * na + dd * nb + dy * nx, dc * nc + dd * nd + dy * ny
        da, db, dc, dd = 2 * da + la + ra, 2 * db + lb + rb, 2 * dc + lc + rc, 2 * dd + ld + rd
        dx, dy = 2 * dx + lx, 2 * dy + ly
        sa, sb, sc, sd, sx, sy = _times(na, nb, nc, nd, na, nb, nc, nd, nx, ny)
        na, nb, nc = 2 * na + sa, 2 * nb + sb, 2 * nc + sc
        nd, nx, ny = 2 * nd + sd, 2 * nx + sx, 2 * ny + sy
    # The same factor stands for d(-A / 2^HALVINGS) / dA.
    _store_affine(
        result, at, real, da * scale, db * scale, dc * scale, dd * scale, dx * scale, dy * scale, 9
    )
    for column in tl.static_range(3):
        tl.store(result + at * 9 + 6 + column, tl.zeros((BLOCK,), tl.float32), mask=real)


@jit
def _source(matrices, element, pixel, H: tl.constexpr, W: tl.constexpr):
    """A pixel's coordinates in the frame, and the row and column that its value comes from."""
    unit = (H if H > W else W) / 2
    right = (pixel % W - (W - 1) / 2) / unit
    up = ((H - 1) / 2 - pixel // W) / unit
    base = matrices + element * 6
    from_right = tl.load(base) * right + tl.load(base + 1) * up + tl.load(base + 2)
    from_up = tl.load(base + 3) * right + tl.load(base + 4) * up + tl.load(base + 5)
    return right, up, (H - 1) / 2 - from_up * unit, from_right * unit + (W - 1) / 2


@jit
def _pixel(image, row, column, real, H: tl.constexpr, W: tl.constexpr):
    """Values of an image; outside of it, zero."""
    inside = real & (row >= 0) & (row < H) & (column >= 0) & (column < W)
    return tl.load(image + row * W + column, mask=inside, other=0.0)


@jit
def _warp_kernel(
    matrices,
    x,
    views,
    CHANNELS: tl.constexpr,
    VIEWS: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A tile of one transformed image, all channels, by bilinear interpolation."""
    element = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = pixel < H * W
    _, _, row, column = _source(matrices, element, pixel, H, W)
    top, left = tl.floor(row), tl.floor(column)
    down, along = row - top, column - left
    # Far outside, a float has no whole number of 32 bits; the edge is far enough.
    top = tl.minimum(tl.maximum(top, -2.0), H + 1.0).to(tl.int32)
    left = tl.minimum(tl.maximum(left, -2.0), W + 1.0).to(tl.int32)
    image = x + (element // VIEWS) * CHANNELS * (H * W)
    view = views + element * CHANNELS * (H * W)
    for channel in range(CHANNELS):
        plane = image + channel * (H * W)
        upper = (1 - along) * _pixel(plane, top, left, real, H, W)
        upper += along * _pixel(plane, top, left + 1, real, H, W)
        lower = (1 - along) * _pixel(plane, top + 1, left, real, H, W)
        lower += along * _pixel(plane, top + 1, left + 1, real, H, W)
        value = (1 - down) * upper + down * lower
        tl.store(view + channel * (H * W) + pixel, value, mask=real)


@jit
def _warp_backward_kernel(
    matrices,
    x,
    gradient,
    result,
    CHANNELS: tl.constexpr,
    VIEWS: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient in the six entries of one element's matrix, summed over pixels and channels."""
    element = tl.program_id(0).to(tl.int64)
    unit = (H if H > W else W) / 2
    image = x + (element // VIEWS) * CHANNELS * (H * W)
    arriving = gradient + element * CHANNELS * (H * W)
    zero = tl.zeros((BLOCK,), tl.float32)
    ga, gb, gc, gd, gx, gy = zero, zero, zero, zero, zero, zero
    for first in range(0, H * W, BLOCK):
        pixel = first + tl.arange(0, BLOCK)
        real = pixel < H * W
        right, up, row, column = _source(matrices, element, pixel, H, W)
        top, left = tl.floor(row), tl.floor(column)
        down, along = row - top, column - left
        top = tl.minimum(tl.maximum(top, -2.0), H + 1.0).to(tl.int32)
        left = tl.minimum(tl.maximum(left, -2.0), W + 1.0).to(tl.int32)
        to_right, to_up = zero, zero
        for channel in range(CHANNELS):
            plane = image + channel * (H * W)
            north_west = _pixel(plane, top, left, real, H, W)
            north_east = _pixel(plane, top, left + 1, real, H, W)
            south_west = _pixel(plane, top + 1, left, real, H, W)
            south_east = _pixel(plane, top + 1, left + 1, real, H, W)
            weight = tl.load(arriving + channel * (H * W) + pixel, mask=real, other=0.0)
            by_column = (1 - down) * (north_east - north_west) + down * (south_east - south_west)
            by_row = (1 - along) * (south_west - north_west) + along * (south_east - north_east)
            to_right += weight * by_column
            # Row numbers grow downwards, y grows upwards.
            to_up -= weight * by_row
        to_right *= unit
        to_up *= unit
        ga, gb, gx = ga + to_right * right, gb + to_right * up, gx + to_right
        gc, gd, gy = gc + to_up * right, gd + to_up * up, gy + to_up
    base = result + element * 6
    tl.store(base, tl.sum(ga, axis=0))
    tl.store(base + 1, tl.sum(gb, axis=0))
    tl.store(base + 2, tl.sum(gx, axis=0))
    tl.store(base + 3, tl.sum(gc, axis=0))
    tl.store(base + 4, tl.sum(gd, axis=0))
    tl.store(base + 5, tl.sum(gy, axis=0))


class _Warp(torch.autograd.Function):
    """Images moved by exp(A), with the gradient in A."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, algebra: Tensor, x: Tensor, halvings: int
    ) -> Tensor:
        n, views = algebra.shape[:2]
        channels, height, width = x.shape[1:]
        matrices = algebra.new_empty(n, views, 2, 3)
        elements = (triton.cdiv(n * views, _ELEMENTS),)
        moved = x.new_empty(n, views, channels, height, width)
        block = _tile(height * width)
        tiles = (n * views, triton.cdiv(height * width, block))
        with torch.cuda.device_of(x):
            _exponential_kernel[elements](algebra, matrices, n * views, _TERMS, halvings, _ELEMENTS)
            _warp_kernel[tiles](matrices, x, moved, channels, views, height, width, block)
        ctx.save_for_backward(algebra, matrices, x)
        ctx.halvings = halvings
        return moved

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        algebra, matrices, x = ctx.saved_tensors
        n, views = algebra.shape[:2]
        channels, height, width = x.shape[1:]
        in_matrices, in_algebra = torch.empty_like(matrices), torch.empty_like(algebra)
        _warp_backward_kernel[(n * views,)](
            matrices, x, gradient.contiguous(), in_matrices,
            channels, views, height, width, _tile(height * width),
        )  # fmt: skip
        elements = (triton.cdiv(n * views, _ELEMENTS),)
        _exponential_backward_kernel[elements](
            algebra, in_matrices, in_algebra, n * views, _TERMS, ctx.halvings, _ELEMENTS
        )
        return in_algebra, None, None


def warp(
    algebra: Float[Tensor, "batch views 3 3"],
    x: Float[Tensor, "batch channels height width"],
    bound: float,
) -> Float[Tensor, "batch views channels height width"]:
    """Images moved by exp(A) as `ImageAction` moves them; differentiable in A, once.

    Parameters
    ----------
    algebra
        A for every view of every image, its last row zero; float32, on a GPU.
    x
        Images, float32.
    bound
        An upper bound on the norm of every A.
    """
    halvings = max(0, math.ceil(math.log2(max(bound, _SMALL) / _SMALL)))
    return _Warp.apply(algebra.contiguous(), x.contiguous(), halvings)


def _tile(pixels: int) -> int:
    return min(_LARGEST_TILE, triton.next_power_of_2(pixels))

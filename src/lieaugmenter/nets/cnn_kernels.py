"""The layers of `CNN` around its convolutions for a GPU, each as one kernel forward and backward.

At these sizes a convolution on tensor cores takes less time than what torch does around it: adding
the bias, the ReLU, the max-pool and the sum of the bias gradient each read and write all
activations. Here bias, ReLU and pool are one pass, and so are their gradients. A convolution of few
channels, for which cuDNN would change the layout of all images, is written out.

Activations lie channels last. Sums over pixels go through a buffer of partial sums and a second
kernel, not through atomics, so that two runs agree to the bit. Nothing waits for the device, so a
step can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from lieaugmenter.lie.kernels import jit, tl

# Elements of one tile of activations, for passes that hold one tile of them and for the pool.
_TILE = 4096
_POOL_TILE = 2048
# Pixels of a tile of the first convolution, and of its gradient in the images.
_STEM_PIXELS = 128
_SMALLEST_STEM_TILE = 64
_MAP_PIXELS = 1024
# Tensor cores multiply matrices whose sides are at least this.
_SMALLEST_SIDE = 16
# A pass that sums is split into at most this many programs, so that few parts are left to add.
_MOST_PARTS = 1024
# Parts and columns of one step of the sum of parts; 8 floats are what memory reads at once.
_SUM_ROWS = 512
_SUM_COLUMNS = 8
# Places are counted in 32 bits.
_MOST_ELEMENTS = 2**31
# Taps of a 3 × 3 convolution.
_NINE = 9


def fits(pixels: int, channels: int, width: int) -> bool:
    """Whether the largest tensor of these kernels can be counted in 32 bits.

    Parameters
    ----------
    pixels
        Of all images together.
    channels, width
        Of an image, and of the widest activations at that size.

    Examples
    --------
    >>> fits(704 * 28 * 28, 1, 32), fits(2**27, 1, 32)
    (True, False)
    """
    return pixels * max(width, _NINE * channels) < _MOST_ELEMENTS


# Kernels. Tiles are padded to powers of two, as Triton wants; what is outside reads as zero.


@jit
def _sum_kernel(
    parts,
    result,
    count,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILES: tl.constexpr,
):
    """A few columns of the sum over `count` rows of parts."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for tile in range(TILES):
        row = tile * ROWS + tl.arange(0, ROWS)
        there = (row < count)[:, None] & (column < WIDTH)[None, :]
        at = row[:, None] * WIDTH + column[None, :]
        sums += tl.load(parts + at, mask=there, other=0.0)
    tl.store(result + column, tl.sum(sums, axis=0), mask=column < WIDTH)


@jit
def _bias_relu_kernel(x, bias, y, rows, C: tl.constexpr, C_PAD: tl.constexpr, ROWS: tl.constexpr):
    """A tile of pixels, all channels."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.arange(0, C_PAD)
    there = (row < rows)[:, None] & (channel < C)[None, :]
    at = row[:, None] * C + channel[None, :]
    shift = tl.load(bias + channel, mask=channel < C, other=0.0)
    value = tl.load(x + at, mask=there, other=0.0).to(tl.float32) + shift[None, :]
    # Not a maximum, which would turn NaN into 0 and hide that training diverged.
    value = tl.where(value <= 0, 0.0, value)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=there)


@jit
def _bias_relu_backward_kernel(
    y,
    gradient,
    of_x,
    parts,
    rows,
    C: tl.constexpr,
    C_PAD: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
):
    """The gradient before the ReLU for some tiles, and its sum over their pixels."""
    channel = tl.arange(0, C_PAD)
    sums = tl.zeros((ROWS, C_PAD), tl.float32)
    for tile in range(TILES):
        row = (tl.program_id(0) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        there = (row < rows)[:, None] & (channel < C)[None, :]
        at = row[:, None] * C + channel[None, :]
        value = tl.load(y + at, mask=there, other=0.0).to(tl.float32)
        arriving = tl.load(gradient + at, mask=there, other=0.0).to(tl.float32)
        passed = tl.where(value <= 0, 0.0, arriving)
        tl.store(of_x + at, passed.to(of_x.dtype.element_ty), mask=there)
        sums += passed
    tl.store(parts + tl.program_id(0) * C + channel, tl.sum(sums, axis=0), mask=channel < C)


@jit
def _pool_places(
    tile,
    tiles,
    C: tl.constexpr,
    W: tl.constexpr,
    POOLED_H: tl.constexpr,
    POOLED_W: tl.constexpr,
    HEIGHT_TIMES_WIDTH: tl.constexpr,
    PLANAR: tl.constexpr,
    C_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Where a tile of one image's pooled pixels (BLOCK, C_PAD) lies.

    Returns which places there are; their offsets among the pooled pixels channels last, and in the
    layout that the pooled values have; and the offset of each window's first corner in the image.
    """
    channel = tl.arange(0, C_PAD)
    blocks: tl.constexpr = (POOLED_H * POOLED_W + BLOCK - 1) // BLOCK
    image = tile // blocks
    pixel = tile % blocks * BLOCK + tl.arange(0, BLOCK)
    there = ((pixel < POOLED_H * POOLED_W) & (tile < tiles))[:, None] & (channel < C)[None, :]
    first = image * (POOLED_H * POOLED_W * C)
    last = first + pixel[:, None] * C + channel[None, :]
    planar = first + channel[None, :] * (POOLED_H * POOLED_W) + pixel[:, None]
    pooled = planar if PLANAR else last
    corner = pixel // POOLED_W * (2 * W) + pixel % POOLED_W * 2
    window = image * (HEIGHT_TIMES_WIDTH * C) + corner[:, None] * C + channel[None, :]
    return there, last, pooled, window


@jit
def _pool_kernel(
    x,
    bias,
    y,
    codes,
    tiles,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    PLANAR: tl.constexpr,
    C_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The largest of each 2 × 2 window and which one it was; 4 where the ReLU stops the gradient.

    As torch does it: values are rounded before they are compared, the first of equal ones counts,
    and NaN is larger than all.
    """
    there, last, pooled, window = _pool_places(
        tl.program_id(0), tiles, C, W, H // 2, W // 2, H * W, PLANAR, C_PAD, BLOCK
    )
    channel = tl.arange(0, C_PAD)
    shift = tl.load(bias + channel, mask=channel < C, other=0.0)[None, :]
    best = tl.load(x + window, mask=there, other=0.0).to(tl.float32) + shift
    best = best.to(y.dtype.element_ty).to(tl.float32)
    code = tl.zeros((BLOCK, C_PAD), tl.int32)
    for which in tl.static_range(1, 4):
        place = window + (which // 2 * W + which % 2) * C
        value = tl.load(x + place, mask=there, other=0.0).to(tl.float32) + shift
        value = value.to(y.dtype.element_ty).to(tl.float32)
        better = (value > best) | (value != value)
        best = tl.where(better, value, best)
        code = tl.where(better, which, code)
    code = tl.where(best <= 0, 4, code)
    best = tl.where(best <= 0, 0.0, best)
    tl.store(y + pooled, best.to(y.dtype.element_ty), mask=there)
    tl.store(codes + last, code.to(tl.uint8), mask=there)


@jit
def _pool_backward_kernel(
    codes,
    gradient,
    of_x,
    parts,
    tiles,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    PLANAR: tl.constexpr,
    C_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
):
    """The gradient of all four pixels of the windows of some tiles, and its sum over them."""
    channel = tl.arange(0, C_PAD)
    sums = tl.zeros((BLOCK, C_PAD), tl.float32)
    for step in range(TILES):
        there, last, pooled, window = _pool_places(
            tl.program_id(0) * TILES + step,
            tiles, C, W, H // 2, W // 2, H * W, PLANAR, C_PAD, BLOCK,
        )  # fmt: skip
        code = tl.load(codes + last, mask=there, other=4).to(tl.int32)
        arriving = tl.load(gradient + pooled, mask=there, other=0.0).to(tl.float32)
        for which in tl.static_range(4):
            place = window + (which // 2 * W + which % 2) * C
            passed = tl.where(code == which, arriving, 0.0)
            tl.store(of_x + place, passed.to(of_x.dtype.element_ty), mask=there)
        sums += tl.where(code < 4, arriving, 0.0)
    tl.store(parts + tl.program_id(0) * C + channel, tl.sum(sums, axis=0), mask=channel < C)


@jit
def _patches(
    x,
    pixel,
    real,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    TAPS_PAD: tl.constexpr,
):
    """What a 3 × 3 convolution sees at pixels of NCHW images, (pixels, taps)."""
    tap = tl.arange(0, TAPS_PAD)
    image, place = pixel // (H * W), pixel % (H * W)
    row = (place // W)[:, None] + (tap % 9 // 3 - 1)[None, :]
    column = (place % W)[:, None] + (tap % 3 - 1)[None, :]
    inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
    inside = inside & real[:, None] & (tap < 9 * C)[None, :]
    plane = (image * C)[:, None] + (tap // 9)[None, :]
    return tl.load(x + plane * (H * W) + row * W + column, mask=inside, other=0.0)


@jit
def _product(a, b, sums, WIDE: tl.constexpr):
    """A product added to sums; Triton's interpreter, on a CPU, cannot multiply bfloat16."""
    if WIDE:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, sums, input_precision="ieee")


@jit
def _stem_kernel(
    x,
    weight,
    bias,
    y,
    pixels,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    K: tl.constexpr,
    K_PAD: tl.constexpr,
    TAPS_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
    TILES: tl.constexpr,
):
    """Convolution, bias and ReLU for some tiles of pixels, all K channels."""
    k = tl.arange(0, K_PAD)
    tap = tl.arange(0, TAPS_PAD)
    known = (tap < 9 * C)[:, None] & (k < K)[None, :]
    taps = tl.load(weight + k[None, :] * (9 * C) + tap[:, None], mask=known, other=0.0)
    taps = taps.to(y.dtype.element_ty)
    shift = tl.load(bias + k, mask=k < K, other=0.0)
    for tile in range(TILES):
        pixel = (tl.program_id(0) * TILES + tile) * BLOCK + tl.arange(0, BLOCK)
        real = pixel < pixels
        seen = _patches(x, pixel, real, C, H, W, TAPS_PAD).to(y.dtype.element_ty)
        value = tl.zeros((BLOCK, K_PAD), tl.float32) + shift[None, :]
        value = _product(seen, taps, value, WIDE)
        value = tl.where(value <= 0, 0.0, value).to(y.dtype.element_ty)
        tl.store(y + pixel[:, None] * K + k[None, :], value, mask=real[:, None] & (k < K)[None, :])


@jit
def _stem_backward_kernel(
    x,
    weight,
    y,
    gradient,
    spread,
    parts,
    pixels,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    K: tl.constexpr,
    K_PAD: tl.constexpr,
    TAPS_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
    OF_X: tl.constexpr,
    TILES: tl.constexpr,
):
    """Parts of the gradients of weight and bias; and what each pixel sends to its nine neighbours.

    A tap more, which sees 1 everywhere, has the bias for its weight: one product gives both
    gradients. What is sent, (taps, pixels), is collected by `_collect_kernel`.
    """
    k = tl.arange(0, K_PAD)
    tap = tl.arange(0, TAPS_PAD)
    known = (k < K)[:, None] & (tap < 9 * C)[None, :]
    taps = tl.load(weight + k[:, None] * (9 * C) + tap[None, :], mask=known, other=0.0)
    taps = taps.to(y.dtype.element_ty)
    of_taps = tl.zeros((K_PAD, TAPS_PAD), tl.float32)
    for tile in range(TILES):
        pixel = (tl.program_id(0) * TILES + tile) * BLOCK + tl.arange(0, BLOCK)
        real = pixel < pixels
        there = real[:, None] & (k < K)[None, :]
        at = pixel[:, None] * K + k[None, :]
        value = tl.load(y + at, mask=there, other=0.0).to(tl.float32)
        arriving = tl.load(gradient + at, mask=there, other=0.0).to(tl.float32)
        passed = tl.where(value <= 0, 0.0, arriving).to(y.dtype.element_ty)
        seen = _patches(x, pixel, real, C, H, W, TAPS_PAD).to(tl.float32)
        seen = tl.where((tap == 9 * C)[None, :], 1.0, seen).to(y.dtype.element_ty)
        of_taps = _product(tl.trans(passed), seen, of_taps, WIDE)
        if OF_X:
            sent = _product(passed, taps, tl.zeros((BLOCK, TAPS_PAD), tl.float32), WIDE)
            sent = sent.to(spread.dtype.element_ty)
            sending = real[:, None] & (tap < 9 * C)[None, :]
            tl.store(spread + tap[None, :] * pixels + pixel[:, None], sent, mask=sending)
    # Laid out as weight (K, C, 3, 3) and then bias (K,).
    size: tl.constexpr = K * 9 * C
    at = tl.where((tap == 9 * C)[None, :], size + k[:, None], k[:, None] * (9 * C) + tap[None, :])
    there = (k < K)[:, None] & (tap <= 9 * C)[None, :]
    tl.store(parts + tl.program_id(0) * (size + K) + at, of_taps, mask=there)


@jit
def _collect_kernel(
    spread, of_x, pixels, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr
):
    """The gradient of one channel of some pixels: what their neighbours sent."""
    channel = tl.program_id(1)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = pixel < pixels
    image, place = pixel // (H * W), pixel % (H * W)
    row, column = place // W, place % W
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(9):
        # The neighbour for which this pixel was under that tap.
        down, right = 1 - tap // 3, 1 - tap % 3
        inside = (row + down >= 0) & (row + down < H)
        inside = inside & (column + right >= 0) & (column + right < W) & real
        sender = (channel * 9 + tap) * pixels + pixel + down * W + right
        total += tl.load(spread + sender, mask=inside, other=0.0).to(tl.float32)
    at = (image * C + channel) * (H * W) + place
    tl.store(of_x + at, total.to(of_x.dtype.element_ty), mask=real)


# Nodes of the graph.


def _power_of_two(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


def _split(tiles: int) -> tuple[int, int]:
    """Number of programs for a pass that sums, and tiles of each: a power of two.

    So that batches of nearly the same size share a compiled kernel.

    >>> _split(10), _split(5000)
    ((10, 1), (625, 8))
    """
    each = _power_of_two(-(-tiles // _MOST_PARTS))
    return -(-tiles // each), each


def _stem_tile(pixels: int) -> int:
    """Pixels of a tile of the first convolution of images with that many.

    Of 4 × 4 images, tiles of 128 pixels gave wrong gradients of the weight on an H200 (Triton 3.6),
    tiles of 64 right ones; images of 8 × 8 and more are right with both.
    """
    return min(_STEM_PIXELS, max(_SMALLEST_STEM_TILE, _power_of_two(pixels)))


def _sum_parts(parts: Float[Tensor, "parts width"]) -> Float[Tensor, " width"]:
    count, width = parts.shape
    result = parts.new_empty(width)
    _sum_kernel[(-(-width // _SUM_COLUMNS),)](
        parts, result, count,
        WIDTH=width, ROWS=_SUM_ROWS, COLUMNS=_SUM_COLUMNS, TILES=-(-count // _SUM_ROWS),
        num_warps=4,
    )  # fmt: skip
    return result


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _empty(shape: Sequence[int], like: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty(
        tuple(shape), dtype=dtype, device=like.device, memory_format=torch.channels_last
    )


class _BiasReLU(torch.autograd.Function):
    """Bias and ReLU."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, x: Tensor, bias: Tensor
    ) -> Tensor:
        channels = x.shape[1]
        rows = x.numel() // channels
        sizes = _channel_sizes(channels, _TILE)
        y = torch.empty_like(x)
        with torch.cuda.device_of(x):
            _bias_relu_kernel[(-(-rows // sizes["ROWS"]),)](x, bias, y, rows, **sizes, num_warps=4)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (y,) = ctx.saved_tensors
        channels = y.shape[1]
        rows = y.numel() // channels
        sizes = _channel_sizes(channels, _TILE)
        programs, each = _split(-(-rows // sizes["ROWS"]))
        of_x = torch.empty_like(y)
        parts = y.new_empty(programs, channels, dtype=torch.float32)
        _bias_relu_backward_kernel[(programs,)](
            y, _last(gradient), of_x, parts, rows, **sizes, TILES=each, num_warps=4
        )
        return of_x, _sum_parts(parts)


def _channel_sizes(channels: int, tile: int) -> dict[str, int]:
    padded = _power_of_two(channels)
    return {"C": channels, "C_PAD": padded, "ROWS": max(1, tile // padded)}


class _BiasReLUPool(torch.autograd.Function):
    """Bias, ReLU and 2 × 2 max-pool."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, x: Tensor, bias: Tensor, planar: bool
    ) -> Tensor:
        n, channels, height, width = x.shape
        pooled = (n, channels, height // 2, width // 2)
        padded = _power_of_two(channels)
        block = min(_power_of_two(pooled[2] * pooled[3]), max(1, _POOL_TILE // padded))
        ctx.tiles = n * -(-pooled[2] * pooled[3] // block)
        ctx.sizes = {
            "C": channels, "H": height, "W": width, "PLANAR": planar, "C_PAD": padded,
            "BLOCK": block, "num_warps": 4,
        }  # fmt: skip
        y = x.new_empty(pooled) if planar else _empty(pooled, x, x.dtype)
        codes = torch.empty(pooled, dtype=torch.uint8, device=x.device)
        with torch.cuda.device_of(x):
            _pool_kernel[(ctx.tiles,)](x, bias, y, codes, ctx.tiles, **ctx.sizes)
        ctx.save_for_backward(codes)
        ctx.shape = x.shape
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (codes,) = ctx.saved_tensors
        gradient = gradient.contiguous() if ctx.sizes["PLANAR"] else _last(gradient)
        of_x = _empty(ctx.shape, gradient, gradient.dtype)
        if ctx.shape[2] % 2 or ctx.shape[3] % 2:
            of_x.zero_()  # no window reaches the last row or column
        programs, each = _split(ctx.tiles)
        parts = gradient.new_empty(programs, ctx.shape[1], dtype=torch.float32)
        _pool_backward_kernel[(programs,)](
            codes, gradient, of_x, parts, ctx.tiles, **ctx.sizes, TILES=each
        )
        return of_x, _sum_parts(parts), None


class _Stem(torch.autograd.Function):
    """The first convolution, of few channels, with bias and ReLU."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype
    ) -> Tensor:
        n, channels, height, width = x.shape
        k = len(weight)
        pixels = n * height * width
        ctx.sizes = {
            "C": channels, "H": height, "W": width, "K": k,
            "K_PAD": max(_SMALLEST_SIDE, _power_of_two(k)),
            # One more than there are, for the bias.
            "TAPS_PAD": max(_SMALLEST_SIDE, _power_of_two(_NINE * channels + 1)),
            "BLOCK": _stem_tile(height * width), "WIDE": not x.is_cuda, "num_warps": 4,
        }  # fmt: skip
        programs, each = _split(-(-pixels // ctx.sizes["BLOCK"]))
        y = _empty((n, k, height, width), x, dtype)
        with torch.cuda.device_of(x):
            _stem_kernel[(programs,)](x, weight, bias, y, pixels, **ctx.sizes, TILES=each)
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, y = ctx.saved_tensors
        n, channels, height, width = x.shape
        pixels = n * height * width
        programs, each = _split(-(-pixels // ctx.sizes["BLOCK"]))
        parts = weight.new_empty(programs, weight.numel() + len(weight))
        of_images = ctx.needs_input_grad[0]
        # Nothing is read from it or written to it where the images need no gradient.
        spread = y.new_empty(_NINE * channels, pixels) if of_images else y
        _stem_backward_kernel[(programs,)](
            x, weight, y, _last(gradient), spread, parts, pixels,
            **ctx.sizes, OF_X=of_images, TILES=each,
        )  # fmt: skip
        of_weight, of_bias = _sum_parts(parts).split([weight.numel(), len(weight)])
        of_x = None
        if of_images:
            of_x = torch.empty_like(x)
            _collect_kernel[(-(-pixels // _MAP_PIXELS), channels)](
                spread, of_x, pixels, channels, height, width, _MAP_PIXELS
            )
        return of_x, of_weight.view_as(weight), of_bias, None


class _Shorten(torch.autograd.Function):
    """Several tensors to a shorter type in one launch, and their gradients back in another."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, dtype: torch.dtype, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.dtype = tensors[0].dtype
        return _all_to(dtype, tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, *_all_to(ctx.dtype, gradients)


def _all_to(dtype: torch.dtype, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, list(tensors))  # pyright: ignore[reportPrivateImportUsage]
    return tuple(copies)


def shorten(dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors of one type in another one, as autocast would turn them one by one."""
    return _Shorten.apply(dtype, *tensors)


def bias_relu(
    x: Float[Tensor, "batch channels height width"], bias: Float[Tensor, " channels"]
) -> Float[Tensor, "batch channels height width"]:
    """relu(x + bias), channels last; differentiable once.

    Parameters
    ----------
    x
        What a convolution without bias gave, in any floating type.
    bias
        float32, and so is its gradient.
    """
    return _BiasReLU.apply(_last(x), bias)


def bias_relu_pool(
    x: Float[Tensor, "batch channels height width"],
    bias: Float[Tensor, " channels"],
    *,
    planar: bool = False,
) -> Float[Tensor, "batch channels pooled_height pooled_width"]:
    """max_pool2d(relu(x + bias), 2); differentiable once.

    Parameters
    ----------
    x
        What a convolution without bias gave, in any floating type; both sides at least 2.
    bias
        float32, and so is its gradient.
    planar
        Write the result in torch's usual layout, so that flattening it costs nothing, and not
        channels last.
    """
    return _BiasReLUPool.apply(_last(x), bias, planar)


def stem(
    x: Float[Tensor, "batch channels height width"],
    weight: Float[Tensor, "k channels 3 3"],
    bias: Float[Tensor, " k"],
    dtype: torch.dtype = torch.bfloat16,
) -> Float[Tensor, "batch k height width"]:
    """relu(conv2d(x, weight, bias, padding=1)), channels last; differentiable once, also in x.

    Pays for few channels: every program holds all taps at once.

    Parameters
    ----------
    x
        Images.
    weight, bias
        float32, and so are their gradients.
    dtype
        Of the result; images and weights are rounded to it, products are summed in float32.
    """
    return _Stem.apply(x.contiguous(), weight.contiguous(), bias, dtype)

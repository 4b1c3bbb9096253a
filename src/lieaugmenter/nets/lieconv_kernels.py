"""The parts of `LieConv` around its large matrix products for a GPU, in few kernels each.

The real atoms of a batch lie one after the other in the rows of a matrix (`Packing`), so that no
large product multiplies padding. Rows after the last atom are zero wherever a product would sum
over them. What torch would do in many passes over all activations is one here:

* `add_norm_swish`: residual sum and statistics in one pass, batch norm and swish in another;
  backward the sums in one pass, and the gradient, with what the residual sum passes on, in another.
* `pair_weights`: the small networks on all pairs, one pass for each batch norm, whose statistics
  the next one needs. The first layer is never stored: six coordinates make it anew.
* `convolve`: for every molecule one product (16 n × n) · (n × channels).

Sums go through buffers of parts, one for each program, and not through atomics, so that two runs
agree to the bit; variances are put together from parts that were centred first. Nothing waits for
the device, so a step can be captured in a CUDA graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from lieaugmenter.lie.kernels import jit, tl

# Rows and columns of a tile of activations.
_ROWS = 8
_COLUMNS = 128
# Programs of a pass over all activations: as many as are on an H200 at a time, 16 on each of its
# 132 multiprocessors, whose registers are full then.
_PROGRAMS = 2112
# Parts of a sum over all rows, so that one tile of the last sum takes them all.
_MOST_PARTS = 384
# Parts and columns of a tile of the last sum: eight numbers are the least that memory gives.
_PARTS = 512
_FEW_COLUMNS = 8
# Atoms of a molecule: a program holds as many columns of its pair weights.
_MOST_ATOMS = 32
# Pairs of a tile, and rows (16 for each atom) of a tile of a convolution.
_PAIRS = 64
_GATHERED_ROWS = 64
# Columns of a tile that has one for each coordinate of a pair: tensor cores want 16.
_AXES = 16
# Programs that fill up the rows after the last atom.
_FILLERS = 64
# Rows are a multiple of this, for tensor cores.
_ROW_MULTIPLE = 128
# Places are counted in 32 bits.
_MOST_ELEMENTS = 2**31


def fits(molecules: int, atoms: int, width: int, n_blocks: int) -> bool:
    """Whether molecules are small enough for a program, and places can be counted in 32 bits.

    Parameters
    ----------
    molecules, atoms
        Of a batch, with padding.
    width, n_blocks
        Channels of an atom, and blocks of the network.

    Examples
    --------
    >>> fits(500, 29, 1536, 6), fits(500, 40, 1536, 6), fits(100_000, 29, 1536, 6)
    (True, False, False)
    """
    of_rows = (molecules * atoms + _ROW_MULTIPLE) * 4 * width
    # Of each pair there are 32 hidden numbers, or 16 weights in rows of twice the length.
    of_pairs = n_blocks * molecules * atoms * _MOST_ATOMS * 32
    return atoms <= _MOST_ATOMS and width % 64 == 0 and max(of_rows, of_pairs) < _MOST_ELEMENTS


class Packing(NamedTuple):
    """Where the real atoms of a batch lie.

    Attributes
    ----------
    slots
        (rows,): which atom of the padded batch a row is; 0 for rows after the last atom.
    there
        (rows, 1): 1.0 for atoms, 0.0 after the last one.
    inverse
        (rows,): one over the number of atoms of a row's molecule; 0.0 after the last atom.
    starts
        (molecules + 1,): first row of each molecule, and the number of atoms.
    in_pairs
        Pairs of every molecule, as floating-point numbers.
    fits
        (molecules, 1): whether there was room for all of a molecule; others have no atoms.
    atoms
        Of a molecule of the padded batch.
    """

    slots: Int[Tensor, " rows"]
    there: Float[Tensor, "rows 1"]
    inverse: Float[Tensor, " rows"]
    starts: Int[Tensor, " ends"]
    in_pairs: Float[Tensor, " molecules"]
    fits: Bool[Tensor, "molecules 1"]
    atoms: int

    @property
    def rows(self) -> int:
        """Rows, with those after the last atom."""
        return len(self.slots)

    @property
    def molecules(self) -> int:
        """Molecules of the batch."""
        return len(self.fits)

    @property
    def n_atoms(self) -> Int[Tensor, "1"]:
        """The number of atoms, on the device."""
        return self.starts[-1:]


def pack(real: Bool[Tensor, "molecules atoms"], rows: int) -> Packing:
    """Rows for the real atoms of a batch, in order.

    Parameters
    ----------
    real
        Which atoms are not padding.
    rows
        For how many atoms there is to be room; a few more for a round number.

    Examples
    --------
    >>> packing = pack(torch.tensor([[True, False, True], [True, True, False]]), 4)
    >>> packing.slots[:4].tolist(), packing.starts.tolist(), packing.rows
    ([0, 2, 3, 4], [0, 2, 4], 128)
    """
    rows = max(1, -(-rows // _ROW_MULTIPLE)) * _ROW_MULTIPLE
    atoms = real.shape[1]
    counts = real.sum(1)
    ends = counts.cumsum(0)
    there_is_room = ends <= rows
    # Molecules without room are empty: they begin and end where the last other one ends.
    ends = torch.where(there_is_room, ends, (ends * there_is_room).amax())
    flat = real.flatten()
    row = flat.cumsum(0) - 1
    row = torch.where(flat & (row < ends[-1]), row, rows)
    every = torch.arange(max(rows, len(flat)), device=real.device)
    slots = every.new_zeros(rows + 1).scatter_(0, row, every[: len(flat)])[:rows]
    there = (every[:rows] < ends[-1]).float()
    starts = torch.nn.functional.pad(ends, (1, 0))
    slots = slots * there.long()
    return Packing(
        slots=slots,
        there=there.unsqueeze(1),
        inverse=there / counts[slots // atoms].clamp(min=1),
        starts=starts.int(),
        in_pairs=starts.diff().float().square(),
        fits=there_is_room.unsqueeze(1),
        atoms=atoms,
    )


class Running(NamedTuple):
    """The running statistics of a batch norm, and whether they are to be used or to be learned."""

    mean: Tensor
    variance: Tensor
    momentum: float
    eps: float
    training: bool


# Kernels. Tiles are powers of two, as Triton wants; what is outside reads as zero.


@jit
def _sigmoid(x):
    # Five instructions; Triton's exp and division take care of cases that do not occur, in twenty.
    root = tl.rsqrt(1.0 + tl.exp2(-1.4426950408889634 * x))
    return root * root


@jit
def _swish(x):
    return x * _sigmoid(x)


@jit
def _swish_slope(x):
    gate = _sigmoid(x)
    return gate * (1.0 + x * (1.0 - gate))


@jit
def _product(a, b, sums, WIDE: tl.constexpr):
    """A product added to sums; Triton's interpreter, on a CPU, cannot multiply bfloat16."""
    if WIDE:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, sums)


# Passes over all activations. A program has some columns, and every so-manieth tile of rows: all
# programs together go through the matrix from its beginning to its end. It is a single warp: Triton
# sums the rows of more of them in shared memory, where the columns of a thread lie in one bank.


@jit
def _own_columns(channels, COLUMNS: tl.constexpr):
    """The columns of a program, and which of them there are."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    return column, column < channels


@jit
def _tile_at(first, column, channels, ROWS: tl.constexpr):
    """The rows of a tile, and where its entries are."""
    row = (first + tl.arange(0, ROWS))[:, None]
    return row, row * channels + column[None, :]


@jit
def _residual(x, change, at, known, ADD: tl.constexpr):
    """x, or the residual sum, rounded as it is stored."""
    value = tl.load(x + at, mask=known, other=0.0)
    if ADD:
        value = value.to(tl.float32) + tl.load(change + at, mask=known, other=0.0).to(tl.float32)
        value = value.to(x.dtype.element_ty)
    return value


@jit
def _moments_kernel(
    x,
    change,
    y,
    sums,
    spreads,
    counts,
    n_atoms,
    rows,
    channels,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The residual sum, if asked to; the sum of a part's atoms, and of squares about their mean."""
    column, known = _own_columns(channels, COLUMNS)
    part, step = tl.program_id(1), tl.num_programs(1) * ROWS
    n = tl.load(n_atoms)
    end = n
    if ADD:
        end = rows
    # Centred at one of its own rows: even if that is as far from the mean of all k of them as it
    # can be, their variance loses no more than a factor of k in precision.
    near = _residual(x, change, part * ROWS * channels + column, known, ADD).to(tl.float32)
    total, squares = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    count = n * 0
    for first in range(part * ROWS, end, step):
        row, at = _tile_at(first, column, channels, ROWS)
        value = _residual(x, change, at, known[None, :], ADD)
        if ADD:
            tl.store(y + at, value, mask=known[None, :])
        away = tl.where(row < n, value.to(tl.float32) - near[None, :], 0.0)
        total += away
        squares += away * away
        count += tl.minimum(tl.maximum(n - first, 0), ROWS)
    of_count = count.to(tl.float32)
    away = tl.sum(total, axis=0)
    spread = tl.sum(squares, axis=0) - away * away / tl.maximum(of_count, 1.0)
    tl.store(sums + part * channels + column, away + of_count * near, mask=known)
    tl.store(spreads + part * channels + column, tl.maximum(spread, 0.0), mask=known)
    tl.store(counts + part, of_count)


# Last sums. A program has few columns, and a tile for the parts of all of them.


@jit
def _parts_at(pointer, first, parts, column, columns, PARTS: tl.constexpr):
    """A tile of parts; zero where there are none."""
    part = (first + tl.arange(0, PARTS))[:, None]
    there = (part < parts) & (column < columns)[None, :]
    return tl.load(pointer + part * columns + column[None, :], mask=there, other=0.0)


@jit
def _counts_at(counts, first, parts, PARTS: tl.constexpr):
    """The counts of a tile of parts."""
    part = first + tl.arange(0, PARTS)
    return tl.load(counts + part, mask=part < parts, other=0.0)


@jit
def _total_kernel(x, y, parts, columns, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum of all parts, for a few columns."""
    column, known = _own_columns(columns, COLUMNS)
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, parts, PARTS):
        total += _parts_at(x, first, parts, column, columns, PARTS)
    tl.store(y + column, tl.sum(total, axis=0), mask=known)


@jit
def _statistics_kernel(
    sums,
    spreads,
    counts,
    mean,
    variance,
    running_mean,
    running_variance,
    momentum,
    parts,
    channels,
    PARTS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Mean and variance of a few columns from all parts; the running ones go towards them."""
    column, known = _own_columns(channels, COLUMNS)
    mean_before = tl.load(running_mean + column, mask=known, other=0.0)
    variance_before = tl.load(running_variance + column, mask=known, other=0.0)
    total, everything = tl.zeros((PARTS, COLUMNS), tl.float32), tl.zeros((PARTS,), tl.float32)
    for first in range(0, parts, PARTS):
        total += _parts_at(sums, first, parts, column, channels, PARTS)
        everything += _counts_at(counts, first, parts, PARTS)
    count = tl.maximum(tl.sum(everything, axis=0), 1.0)
    centre = tl.sum(total, axis=0) / count
    spread = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, parts, PARTS):
        of_count = _counts_at(counts, first, parts, PARTS)[:, None]
        of_part = _parts_at(sums, first, parts, column, channels, PARTS)
        away = of_part / tl.maximum(of_count, 1.0) - centre[None, :]
        within = _parts_at(spreads, first, parts, column, channels, PARTS)
        spread += within + of_count * away * away
    squares = tl.sum(spread, axis=0)
    tl.store(mean + column, centre, mask=known)
    tl.store(variance + column, squares / count, mask=known)
    mean_after = mean_before + momentum * (centre - mean_before)
    tl.store(running_mean + column, mean_after, mask=known)
    unbiased = squares / tl.maximum(count - 1.0, 1.0)
    variance_after = variance_before + momentum * (unbiased - variance_before)
    tl.store(running_variance + column, variance_after, mask=known)


@jit
def _scale(variance, eps):
    return tl.rsqrt(tl.maximum(variance, eps))


@jit
def _norm_swish_kernel(
    x,
    y,
    mean,
    variance,
    weight,
    bias,
    n_atoms,
    rows,
    eps,
    channels,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Tiles of the result; zero after the last atom."""
    column, known = _own_columns(channels, COLUMNS)
    n = tl.load(n_atoms)
    factor = _scale(tl.load(variance + column, mask=known, other=1.0), eps)
    factor *= tl.load(weight + column, mask=known, other=0.0)
    shift = tl.load(bias + column, mask=known, other=0.0)
    centre = tl.load(mean + column, mask=known, other=0.0)
    for first in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        row, at = _tile_at(first, column, channels, ROWS)
        value = tl.load(x + at, mask=known[None, :], other=0.0).to(tl.float32)
        value = _swish((value - centre[None, :]) * factor[None, :] + shift[None, :])
        value = tl.where(row < n, value, 0.0).to(y.dtype.element_ty)
        tl.store(y + at, value, mask=known[None, :])


@jit
def _norm_swish_sums_kernel(
    x,
    gradient,
    mean,
    variance,
    weight,
    bias,
    parts,
    n_atoms,
    eps,
    channels,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Parts of the gradients of weight and bias: the sums that the gradient of x needs."""
    column, known = _own_columns(channels, COLUMNS)
    n = tl.load(n_atoms)
    scale = _scale(tl.load(variance + column, mask=known, other=1.0), eps)
    factor = scale * tl.load(weight + column, mask=known, other=0.0)
    shift = tl.load(bias + column, mask=known, other=0.0)
    centre = tl.load(mean + column, mask=known, other=0.0)
    weighed, plain = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(tl.program_id(1) * ROWS, n, tl.num_programs(1) * ROWS):
        row, at = _tile_at(first, column, channels, ROWS)
        atom = (row < n) & known[None, :]
        value = tl.load(x + at, mask=atom, other=0.0).to(tl.float32) - centre[None, :]
        arriving = tl.load(gradient + at, mask=atom, other=0.0).to(tl.float32)
        arriving *= _swish_slope(value * factor[None, :] + shift[None, :])
        weighed += arriving * value
        plain += arriving
    part = tl.program_id(1) * (2 * channels) + column
    tl.store(parts + part, tl.sum(weighed, axis=0) * scale, mask=known)
    tl.store(parts + part + channels, tl.sum(plain, axis=0), mask=known)


@jit
def _norm_swish_backward_kernel(
    x,
    gradient,
    passed_on,
    of_x,
    mean,
    variance,
    weight,
    bias,
    sums,
    n_atoms,
    rows,
    eps,
    channels,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Tiles of the gradient of x, with what came past the norm; zero after the last atom."""
    column, known = _own_columns(channels, COLUMNS)
    n = tl.load(n_atoms)
    spread = tl.load(variance + column, mask=known, other=1.0)
    scale = _scale(spread, eps)
    factor = scale * tl.load(weight + column, mask=known, other=0.0)
    shift = tl.load(bias + column, mask=known, other=0.0)
    centre = tl.load(mean + column, mask=known, other=0.0)
    share = factor / tl.maximum(n, 1).to(tl.float32)
    offset = tl.load(sums + channels + column, mask=known, other=0.0) * share
    slope = tl.load(sums + column, mask=known, other=0.0) * share * scale
    # A variance that counts as eps does not move with x.
    slope = tl.where(spread < eps, 0.0, slope)
    for first in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        row, at = _tile_at(first, column, channels, ROWS)
        atom = (row < n) & known[None, :]
        value = tl.load(x + at, mask=atom, other=0.0).to(tl.float32) - centre[None, :]
        found = tl.load(gradient + at, mask=atom, other=0.0).to(tl.float32)
        found *= _swish_slope(value * factor[None, :] + shift[None, :])
        found = found * factor[None, :] - offset[None, :] - value * slope[None, :]
        if ADD:
            found += tl.load(passed_on + at, mask=atom, other=0.0).to(tl.float32)
        found = tl.where(atom, found, 0.0).to(of_x.dtype.element_ty)
        tl.store(of_x + at, found, mask=known[None, :])


@jit
def _convolve_kernel(
    weights,
    x,
    y,
    starts,
    molecules,
    rows,
    channels,
    M: tl.constexpr,
    atoms,
    J: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    FILLERS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Some columns of one molecule's product; the last programs fill up with zeros."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    known = column < channels
    which = tl.program_id(1)
    if which < molecules:
        start = tl.load(starts + which)
        n = tl.load(starts + which + 1) - start
        j = tl.arange(0, J)
        real = (j < n)[:, None] & known[None, :]
        values = tl.load(
            x + (start + j)[:, None] * channels + column[None, :], mask=real, other=0.0
        )
        for first in range(0, n * M, ROWS):
            row = first + tl.arange(0, ROWS)
            place = (which * (atoms * M) + row)[:, None] * J + j[None, :]
            own = tl.load(weights + place, mask=(row < n * M)[:, None], other=0.0)
            found = _product(own, values, tl.zeros((ROWS, COLUMNS), tl.float32), WIDE)
            at = (start * M + row)[:, None] * channels + column[None, :]
            there = (row < n * M)[:, None] & known[None, :]
            tl.store(y + at, found.to(y.dtype.element_ty), mask=there)
    else:
        end = tl.load(starts + molecules)
        nothing = tl.zeros((ROWS, COLUMNS), tl.float32).to(y.dtype.element_ty)
        for first in range(end * M + (which - molecules) * ROWS, rows * M, FILLERS * ROWS):
            row = first + tl.arange(0, ROWS)
            there = (row < rows * M)[:, None] & known[None, :]
            tl.store(y + row[:, None] * channels + column[None, :], nothing, mask=there)


@jit
def _convolve_backward_kernel(
    weights,
    x,
    gradient,
    of_weights,
    of_x,
    starts,
    channels,
    M: tl.constexpr,
    atoms,
    J: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    column_tiles,
    WIDE: tl.constexpr,
):
    """For one molecule: some columns of the gradient of x, or some rows of that of the weights.

    Both read all gradients of the molecule, at the same time, so that one of them finds them in the
    cache.
    """
    which, role = tl.program_id(1), tl.program_id(0)
    start = tl.load(starts + which)
    n = tl.load(starts + which + 1) - start
    j = tl.arange(0, J)
    if role < column_tiles:
        column = role * COLUMNS + tl.arange(0, COLUMNS)
        known = column < channels
        total = tl.zeros((COLUMNS, J), tl.float32)
        for first in range(0, n * M, ROWS):
            row = first + tl.arange(0, ROWS)
            place = (which * (atoms * M) + row)[:, None] * J + j[None, :]
            own = tl.load(weights + place, mask=(row < n * M)[:, None], other=0.0)
            at = (start * M + row)[:, None] * channels + column[None, :]
            there = (row < n * M)[:, None] & known[None, :]
            arriving = tl.load(gradient + at, mask=there, other=0.0)
            total = _product(tl.trans(arriving), own, total, WIDE)
        at = (start + j)[None, :] * channels + column[:, None]
        there = (j < n)[None, :] & known[:, None]
        tl.store(of_x + at, total.to(of_x.dtype.element_ty), mask=there)
    else:
        row = (role - column_tiles) * ROWS + tl.arange(0, ROWS)
        if (role - column_tiles) * ROWS < n * M:
            sums = tl.zeros((ROWS, J), tl.float32)
            for tile in range(column_tiles):
                column = tile * COLUMNS + tl.arange(0, COLUMNS)
                known = column < channels
                at = (start * M + row)[:, None] * channels + column[None, :]
                there = (row < n * M)[:, None] & known[None, :]
                arriving = tl.load(gradient + at, mask=there, other=0.0)
                real = (j < n)[None, :] & known[:, None]
                place = (start + j)[None, :] * channels + column[:, None]
                values = tl.load(x + place, mask=real, other=0.0)
                sums = _product(arriving, values, sums, WIDE)
            place = (which * (atoms * M) + row)[:, None] * J + j[None, :]
            found = sums.to(of_weights.dtype.element_ty)
            tl.store(of_weights + place, found, mask=(row < n * M)[:, None])


@jit
def _pool_kernel(x, y, starts, channels, J: tl.constexpr, COLUMNS: tl.constexpr):
    """The mean over the atoms of one molecule, for some columns."""
    which = tl.program_id(1)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    start = tl.load(starts + which)
    n = tl.load(starts + which + 1) - start
    j = tl.arange(0, J)
    there = (j < n)[:, None] & (column < channels)[None, :]
    values = tl.load(x + (start + j)[:, None] * channels + column[None, :], mask=there, other=0.0)
    mean = tl.sum(values.to(tl.float32), axis=0) / tl.maximum(n, 1).to(tl.float32)
    tl.store(y + which * channels + column, mean, mask=column < channels)


# Kernels on pairs. A program has one molecule and one network; p = i n + j counts the pairs. What
# all pairs share is loaded before the loop over them, because Triton moves no load out of a loop.


@jit
def _start(starts):
    """First row of this program's molecule."""
    return tl.load(starts + tl.program_id(0))


@jit
def _size(starts):
    """Number of atoms of this program's molecule."""
    return tl.load(starts + tl.program_id(0) + 1) - _start(starts)


@jit
def _vector(pointer, SIZE: tl.constexpr):
    """A vector of this program's network."""
    return tl.load(pointer + tl.program_id(1) * SIZE + tl.arange(0, SIZE))[None, :]


@jit
def _factor(variance, weight, eps, SIZE: tl.constexpr):
    """What centred entries are multiplied by in a batch norm."""
    return _scale(_vector(variance, SIZE), eps) * _vector(weight, SIZE)


@jit
def _matrix(pointer, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A matrix of this program's network."""
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    return tl.load(pointer + tl.program_id(1) * (ROWS * COLUMNS) + row * COLUMNS + column)


@jit
def _first_matrix(pointer, A: tl.constexpr, H: tl.constexpr):
    """The affine map of the first layer, (A, H): a row for each coordinate, one for the shift."""
    row, column = tl.arange(0, A)[:, None], tl.arange(0, H)[None, :]
    at = pointer + tl.program_id(1) * (7 * H) + row * H + column
    return tl.load(at, mask=(row < 7) & (column < H), other=0.0)


@jit
def _towards_atom(pointer, FIRST: tl.constexpr, H: tl.constexpr, A: tl.constexpr):
    """What takes a gradient of the first layer to one atom's coordinates, (H, A)."""
    row, column = tl.arange(0, H)[:, None], tl.arange(0, A)[None, :]
    at = pointer + tl.program_id(1) * (7 * H) + (FIRST + column) * H + row
    return tl.load(at, mask=(column < 3) & (row < H), other=0.0)


@jit
def _pairs(tile, n, PAIRS: tl.constexpr):
    """Both atoms of the pairs of a tile."""
    p = tile + tl.arange(0, PAIRS)
    return p // n, p % n


@jit
def _are_pairs(tile, n, PAIRS: tl.constexpr):
    """Which pairs of a tile there are."""
    return tile + tl.arange(0, PAIRS) < n * n


@jit
def _places(weights, i, j, atoms, M: tl.constexpr, J: tl.constexpr):
    """Where the weights of pairs are stored, at [network, molecule, i, m, j]."""
    block = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    m = tl.arange(0, M)[None, :]
    return weights + (block * atoms + i)[:, None] * (M * J) + m * J + j[:, None]


@jit
def _kept_places(kept, tile, atoms, SIZE: tl.constexpr, PAIRS: tl.constexpr):
    """Where a layer of a tile of pairs is kept, at [network, molecule, p, channel]."""
    block = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    p = block * (atoms * atoms) + tile + tl.arange(0, PAIRS)
    return kept + p[:, None] * SIZE + tl.arange(0, SIZE)[None, :]


@jit
def _seen(positions, start, i, j, real, A: tl.constexpr):
    """What the first layer sees of pairs: six coordinates, and 1 for the shift."""
    axis = tl.arange(0, A)[None, :]
    end = start + tl.where(axis < 3, i[:, None], j[:, None])
    known = (axis < 6) & real[:, None]
    found = tl.load(positions + end * 3 + axis % 3, mask=known, other=0.0)
    return tl.where(axis == 6, 1.0, found)


@jit
def _first_layer(seen, matrix):
    """What the first swish sees."""
    # In float32: tf32 would move atoms by thousandths of an Ångström.
    return tl.dot(seen, matrix, input_precision="tf32x3")


@jit
def _store_moments(sums, spreads, total, squares, n, SIZE: tl.constexpr):
    """Of a molecule's pairs: the sum, and the sum of squares about their mean."""
    found = tl.sum(total, axis=0)
    count = tl.maximum(n * n, 1).to(tl.float32)
    spread = tl.sum(squares, axis=0) - found * found / count
    part = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * SIZE + tl.arange(0, SIZE)
    tl.store(sums + part, found)
    tl.store(spreads + part, tl.maximum(spread, 0.0))


@jit
def _pair_second_kernel(
    positions,
    starts,
    first,
    second,
    kept2,
    sums,
    spreads,
    H: tl.constexpr,
    A: tl.constexpr,
    atoms,
    PAIRS: tl.constexpr,
):
    """The second layer before its norm, which is kept, and its moments."""
    start, n = _start(starts), _size(starts)
    first_matrix, across = _first_matrix(first, A, H), tl.trans(_matrix(second, H, H))
    total, squares = tl.zeros((PAIRS, H), tl.float32), tl.zeros((PAIRS, H), tl.float32)
    for tile in range(0, n * n, PAIRS):
        i, j = _pairs(tile, n, PAIRS)
        real = _are_pairs(tile, n, PAIRS)
        hidden = _swish(_first_layer(_seen(positions, start, i, j, real, A), first_matrix))
        z = tl.where(real[:, None], tl.dot(hidden, across), 0.0)
        place = _kept_places(kept2, tile, atoms, H, PAIRS)
        tl.store(place, z.to(kept2.dtype.element_ty), mask=real[:, None])
        total += z
        squares += z * z
    _store_moments(sums, spreads, total, squares, n, H)


@jit
def _pair_third_kernel(
    starts,
    kept2,
    mean2,
    variance2,
    weight2,
    bias2,
    third,
    kept3,
    sums,
    spreads,
    eps2,
    H: tl.constexpr,
    M: tl.constexpr,
    atoms,
    PAIRS: tl.constexpr,
):
    """The third layer before its norm, which is kept, and its moments."""
    n = _size(starts)
    across = tl.trans(_matrix(third, M, H))
    factor = _factor(variance2, weight2, eps2, H)
    shift = _vector(bias2, H) - _vector(mean2, H) * factor
    total, squares = tl.zeros((PAIRS, M), tl.float32), tl.zeros((PAIRS, M), tl.float32)
    for tile in range(0, n * n, PAIRS):
        real = _are_pairs(tile, n, PAIRS)
        place = _kept_places(kept2, tile, atoms, H, PAIRS)
        z = tl.load(place, mask=real[:, None], other=0.0).to(tl.float32)
        z = tl.where(real[:, None], tl.dot(_swish(z * factor + shift), across), 0.0)
        place = _kept_places(kept3, tile, atoms, M, PAIRS)
        tl.store(place, z.to(kept3.dtype.element_ty), mask=real[:, None])
        total += z
        squares += z * z
    _store_moments(sums, spreads, total, squares, n, M)


@jit
def _pair_last_kernel(
    starts,
    kept3,
    mean3,
    variance3,
    weight3,
    bias3,
    weights,
    eps3,
    M: tl.constexpr,
    atoms,
    J: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Norm, swish and the share of a neighbour; zero for neighbours after the last atom.

    So that whoever reads a row of weights need not look which of them there are.
    """
    n = _size(starts)
    factor = _factor(variance3, weight3, eps3, M)
    shift = _vector(bias3, M) - _vector(mean3, M) * factor
    share = 1.0 / tl.maximum(n, 1).to(tl.float32)
    block = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    m = tl.arange(0, M)[None, :]
    for tile in range(0, n * J, PAIRS):
        i, j = _pairs(tile, J, PAIRS)
        there = (i < n)[:, None]
        real = there & (j < n)[:, None]
        place = kept3 + (block * (atoms * atoms) + i * n + j)[:, None] * M + m
        z = tl.load(place, mask=real, other=0.0).to(tl.float32)
        found = tl.where(real, _swish(z * factor + shift) * share, 0.0)
        place = _places(weights, i, j, atoms, M, J)
        tl.store(place, found.to(weights.dtype.element_ty), mask=there)


# A batch norm of entries z is z ↦ factor z + shift. The gradient before it, from g after it, is
# factor g - offset - slope z: offset and slope follow from sums over all pairs, one pass before.


@jit
def _entries(kept, tile, n, atoms, SIZE: tl.constexpr, PAIRS: tl.constexpr):
    """What was kept of a layer, for a tile of pairs."""
    place = _kept_places(kept, tile, atoms, SIZE, PAIRS)
    return tl.load(place, mask=_are_pairs(tile, n, PAIRS)[:, None], other=0.0).to(tl.float32)


@jit
def _arriving(
    gradient,
    tile,
    n,
    share,
    M: tl.constexpr,
    atoms,
    J: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """The gradient after the last swish, for a tile of pairs."""
    i, j = _pairs(tile, n, PAIRS)
    real = _are_pairs(tile, n, PAIRS)[:, None]
    place = _places(gradient, i, j, atoms, M, J)
    return tl.load(place, mask=real, other=0.0).to(tl.float32) * share


@jit
def _slope(sums, variance, weight, count, eps, SIZE: tl.constexpr):
    """The slope of a norm's gradient: zero where the variance counts as eps, and does not move."""
    spread = _vector(variance, SIZE)
    scale = _scale(spread, eps)
    share = scale * scale * _vector(weight, SIZE) / tl.maximum(tl.load(count), 1.0)
    return tl.where(spread < eps, 0.0, _vector(sums, SIZE) * share)


@jit
def _offset(sums, mean, variance, weight, slope, count, eps, SIZE: tl.constexpr):
    """The offset of a norm's gradient."""
    of_bias = _vector(sums + tl.num_programs(1) * SIZE, SIZE)
    share = _factor(variance, weight, eps, SIZE) / tl.maximum(tl.load(count), 1.0)
    return of_bias * share - _vector(mean, SIZE) * slope


@jit
def _store_norm_sums(parts, weighed, plain, mean, variance, eps, SIZE: tl.constexpr):
    """For all networks: parts of the gradients of the norm's weight, then of its bias.

    From sums over pairs of g z, and of g.
    """
    h = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    weighed, plain = tl.sum(weighed, axis=0), tl.sum(plain, axis=0)
    scale = _scale(tl.load(variance + h), eps)
    tl.store(parts + h, (weighed - tl.load(mean + h) * plain) * scale)
    tl.store(parts + tl.num_programs(1) * SIZE + h, plain)


@jit
def _pair_third_sums_kernel(
    starts,
    kept3,
    mean3,
    variance3,
    weight3,
    bias3,
    gradient,
    parts,
    eps3,
    M: tl.constexpr,
    atoms,
    J: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Parts of the gradients of the third norm."""
    n = _size(starts)
    share = 1.0 / tl.maximum(n, 1).to(tl.float32)
    factor = _factor(variance3, weight3, eps3, M)
    shift = _vector(bias3, M) - _vector(mean3, M) * factor
    weighed, plain = tl.zeros((PAIRS, M), tl.float32), tl.zeros((PAIRS, M), tl.float32)
    for tile in range(0, n * n, PAIRS):
        z = _entries(kept3, tile, n, atoms, M, PAIRS)
        g = _arriving(gradient, tile, n, share, M, atoms, J, PAIRS)
        g = g * _swish_slope(z * factor + shift)
        weighed += g * z
        plain += g
    parts += tl.program_id(0) * tl.num_programs(1) * (2 * M)
    _store_norm_sums(parts, weighed, plain, mean3, variance3, eps3, M)


@jit
def _pair_second_sums_kernel(
    starts,
    kept2,
    mean2,
    variance2,
    weight2,
    bias2,
    third,
    kept3,
    mean3,
    variance3,
    weight3,
    bias3,
    gradient,
    sums3,
    parts,
    count,
    eps2,
    eps3,
    H: tl.constexpr,
    M: tl.constexpr,
    atoms,
    J: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Parts of the gradients of the second norm, and of the third matrix."""
    n = _size(starts)
    share = 1.0 / tl.maximum(n, 1).to(tl.float32)
    factor3 = _factor(variance3, weight3, eps3, M)
    shift3 = _vector(bias3, M) - _vector(mean3, M) * factor3
    slope3 = _slope(sums3, variance3, weight3, count, eps3, M)
    offset3 = _offset(sums3, mean3, variance3, weight3, slope3, count, eps3, M)
    factor2 = _factor(variance2, weight2, eps2, H)
    shift2 = _vector(bias2, H) - _vector(mean2, H) * factor2
    own3 = _matrix(third, M, H)
    weighed, plain = tl.zeros((PAIRS, H), tl.float32), tl.zeros((PAIRS, H), tl.float32)
    of_third = tl.zeros((M, H), tl.float32)
    for tile in range(0, n * n, PAIRS):
        real = _are_pairs(tile, n, PAIRS)
        z3 = _entries(kept3, tile, n, atoms, M, PAIRS)
        g3 = _arriving(gradient, tile, n, share, M, atoms, J, PAIRS)
        g3 = g3 * _swish_slope(z3 * factor3 + shift3) * factor3 - offset3 - slope3 * z3
        g3 = tl.where(real[:, None], g3, 0.0)
        z2 = _entries(kept2, tile, n, atoms, H, PAIRS)
        u2 = z2 * factor2 + shift2
        g2 = tl.dot(g3, own3) * _swish_slope(u2)
        weighed += g2 * z2
        plain += g2
        of_third = tl.dot(tl.trans(g3), _swish(u2), of_third)
    networks = tl.num_programs(1)
    parts += tl.program_id(0) * networks * (2 * H + M * H)
    _store_norm_sums(parts, weighed, plain, mean2, variance2, eps2, H)
    parts += networks * (2 * H) + tl.program_id(1) * (M * H)
    tl.store(parts + tl.arange(0, M)[:, None] * H + tl.arange(0, H)[None, :], of_third)


@jit
def _pair_first_sums_kernel(
    positions,
    starts,
    first,
    second,
    kept2,
    mean2,
    variance2,
    weight2,
    bias2,
    third,
    kept3,
    mean3,
    variance3,
    weight3,
    bias3,
    gradient,
    sums3,
    sums2,
    parts,
    of_positions,
    count,
    rows,
    eps2,
    eps3,
    H: tl.constexpr,
    M: tl.constexpr,
    A: tl.constexpr,
    atoms,
    J: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """The gradient of the positions, and parts of those of the second matrix and the first map."""
    start, n = _start(starts), _size(starts)
    share = 1.0 / tl.maximum(n, 1).to(tl.float32)
    factor3 = _factor(variance3, weight3, eps3, M)
    shift3 = _vector(bias3, M) - _vector(mean3, M) * factor3
    slope3 = _slope(sums3, variance3, weight3, count, eps3, M)
    offset3 = _offset(sums3, mean3, variance3, weight3, slope3, count, eps3, M)
    factor2 = _factor(variance2, weight2, eps2, H)
    shift2 = _vector(bias2, H) - _vector(mean2, H) * factor2
    slope2 = _slope(sums2, variance2, weight2, count, eps2, H)
    offset2 = _offset(sums2, mean2, variance2, weight2, slope2, count, eps2, H)
    first_matrix = _first_matrix(first, A, H)
    own2, own3 = _matrix(second, H, H), _matrix(third, M, H)
    to_own, to_other = _towards_atom(first, 0, H, A), _towards_atom(first, 3, H, A)
    atom = tl.arange(0, J)[None, :]
    of_second, of_first = tl.zeros((H, H), tl.float32), tl.zeros((H, A), tl.float32)
    of_atoms = tl.zeros((J, A), tl.float32)
    for tile in range(0, n * n, PAIRS):
        i, j = _pairs(tile, n, PAIRS)
        real = _are_pairs(tile, n, PAIRS)
        z3 = _entries(kept3, tile, n, atoms, M, PAIRS)
        g3 = _arriving(gradient, tile, n, share, M, atoms, J, PAIRS)
        g3 = g3 * _swish_slope(z3 * factor3 + shift3) * factor3 - offset3 - slope3 * z3
        g3 = tl.where(real[:, None], g3, 0.0)
        z2 = _entries(kept2, tile, n, atoms, H, PAIRS)
        g2 = tl.dot(g3, own3) * _swish_slope(z2 * factor2 + shift2)
        g2 = g2 * factor2 - offset2 - slope2 * z2
        g2 = tl.where(real[:, None], g2, 0.0)
        seen = _seen(positions, start, i, j, real, A)
        u1 = _first_layer(seen, first_matrix)
        of_second = tl.dot(tl.trans(g2), _swish(u1), of_second)
        g1 = tl.dot(g2, own2) * _swish_slope(u1)
        of_first = tl.dot(tl.trans(g1), seen, of_first)
        # Every pair sends something to both of its atoms, which collect it.
        mine = ((i[:, None] == atom) & real[:, None]).to(tl.float32)
        of_atoms = tl.dot(tl.trans(mine), tl.dot(g1, to_own), of_atoms)
        mine = ((j[:, None] == atom) & real[:, None]).to(tl.float32)
        of_atoms = tl.dot(tl.trans(mine), tl.dot(g1, to_other), of_atoms)
    network, networks = tl.program_id(1), tl.num_programs(1)
    h, axis = tl.arange(0, H)[:, None], tl.arange(0, A)[None, :]
    # For all networks the second matrix, then for all of them the rows of the first map.
    parts += tl.program_id(0) * networks * (H * H + 7 * H)
    tl.store(parts + network * (H * H) + h * H + tl.arange(0, H)[None, :], of_second)
    parts += networks * (H * H) + network * (7 * H)
    tl.store(parts + axis * H + h, of_first, mask=(axis < 7) & (h < H))
    row = tl.arange(0, J)[:, None]
    at = (network * rows + start + row) * 3 + axis
    tl.store(of_positions + at, of_atoms, mask=(axis < 3) & (row < n))


# Nodes of the graph.


def _tiles(size: int, tile: int) -> int:
    return -(-size // tile)


def _statistics(
    sums: Float[Tensor, "parts columns"],
    spreads: Float[Tensor, "parts columns"],
    counts: Float[Tensor, " parts"],
    running: Running,
) -> tuple[Tensor, Tensor]:
    """Mean and variance from parts; the running ones are updated."""
    parts, columns = sums.shape
    mean, variance = sums.new_empty(2, columns)
    _statistics_kernel[(_tiles(columns, _FEW_COLUMNS),)](
        sums, spreads, counts, mean, variance, running.mean, running.variance, running.momentum,
        parts, channels=columns, PARTS=_PARTS, COLUMNS=_FEW_COLUMNS, num_warps=8,
    )  # fmt: skip
    return mean, variance


def _total(parts: Float[Tensor, "parts columns"]) -> Float[Tensor, " columns"]:
    """The sum of all parts."""
    total = parts.new_empty(parts.shape[1])
    _total_kernel[(_tiles(len(total), _FEW_COLUMNS),)](
        parts, total, *parts.shape, PARTS=_PARTS, COLUMNS=_FEW_COLUMNS, num_warps=8
    )
    return total


def _sweep(x: Tensor, most: int = _PROGRAMS) -> tuple[tuple[int, int], dict[str, int]]:
    """Grid and sizes of a pass over all activations, in so many parts at most."""
    rows, columns = x.shape
    of_columns = _tiles(columns, _COLUMNS)
    parts = min(_tiles(rows, _ROWS), most, max(_PROGRAMS // of_columns, 1))
    sizes = {"channels": columns, "ROWS": _ROWS, "COLUMNS": _COLUMNS, "num_warps": 1}
    return (of_columns, parts), sizes


def _norm_forward(
    ctx: Any,
    x: Tensor,
    change: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    packing: Packing,
) -> tuple[Tensor, Tensor]:
    """The residual sum, and swish of its batch norm."""
    add = change is not None
    total, y = torch.empty_like(x) if add else x, torch.empty_like(x)
    mean, variance = running.mean, running.variance
    with torch.cuda.device_of(x):
        if add or running.training:
            grid, sizes = _sweep(x, _MOST_PARTS)
            sums, spreads = weight.new_empty(2, grid[1], x.shape[1])
            counts = weight.new_empty(grid[1])
            _moments_kernel[grid](
                x, change if add else x, total, sums, spreads, counts, packing.n_atoms, len(x),
                ADD=add, **sizes,
            )  # fmt: skip
            if running.training:
                mean, variance = _statistics(sums, spreads, counts, running)
        grid, sizes = _sweep(x)
        _norm_swish_kernel[grid](
            total, y, mean, variance, weight, bias, packing.n_atoms, len(x), running.eps, **sizes
        )
    ctx.save_for_backward(total, mean, variance, weight, bias)
    ctx.packing, ctx.eps = packing, running.eps
    return total, y


def _norm_backward(
    ctx: Any, passed_on: Tensor | None, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x (or of what was added to it), weight and bias."""
    x, *common = ctx.saved_tensors
    packing: Packing = ctx.packing
    gradient = gradient.contiguous()
    grid, sizes = _sweep(x, _MOST_PARTS)
    parts = common[-1].new_empty(grid[1], 2 * x.shape[1])
    _norm_swish_sums_kernel[grid](x, gradient, *common, parts, packing.n_atoms, ctx.eps, **sizes)
    sums = _total(parts)
    of_x = torch.empty_like(x)
    add = passed_on is not None
    grid, sizes = _sweep(x)
    _norm_swish_backward_kernel[grid](
        x, gradient, passed_on.contiguous() if add else x, of_x, *common, sums,
        packing.n_atoms, len(x), ctx.eps, ADD=add, **sizes,
    )  # fmt: skip
    of_weight, of_bias = sums.view(2, -1)
    return of_x, of_weight, of_bias


class _NormSwish(torch.autograd.Function):
    """Batch norm and swish."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, running: Running, packing: Packing
    ) -> Tensor:
        return _norm_forward(ctx, x, None, weight, bias, running, packing)[1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return *_norm_backward(ctx, None, gradient), None, None


class _AddNormSwish(torch.autograd.Function):
    """A residual sum, and swish of its batch norm."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any,
        x: Tensor,
        change: Tensor,
        weight: Tensor,
        bias: Tensor,
        running: Running,
        packing: Packing,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return _norm_forward(ctx, x, change, weight, bias, running, packing)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, passed_on: Tensor | None, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        of_x, *of_norm = _norm_backward(ctx, passed_on, gradient)
        return of_x, of_x, *of_norm, None, None


class _Convolve(torch.autograd.Function):
    """For every molecule the product of its pair weights and its rows."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, weights: Tensor, x: Tensor, packing: Packing
    ) -> Tensor:
        molecules, atoms, channels, padded = weights.shape
        rows, columns = x.shape
        ctx.sizes = {
            "channels": columns, "M": channels, "atoms": atoms, "J": padded,
            "ROWS": _GATHERED_ROWS, "COLUMNS": _COLUMNS, "WIDE": not x.is_cuda, "num_warps": 4,
        }  # fmt: skip
        y = x.new_empty(rows, channels * columns)
        with torch.cuda.device_of(x):
            _convolve_kernel[(_tiles(columns, _COLUMNS), molecules + _FILLERS)](
                weights, x, y, packing.starts, molecules, rows, FILLERS=_FILLERS, **ctx.sizes
            )
        ctx.save_for_backward(weights, x)
        ctx.starts = packing.starts
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        weights, x = ctx.saved_tensors
        molecules, atoms, channels, _ = weights.shape
        # Where there are no atoms nothing is written, and nobody reads.
        of_weights, of_x = torch.empty_like(weights), torch.empty_like(x)
        column_tiles = _tiles(x.shape[1], _COLUMNS)
        roles = column_tiles + _tiles(atoms * channels, _GATHERED_ROWS)
        _convolve_backward_kernel[(roles, molecules)](
            weights, x, gradient.contiguous(), of_weights, of_x, ctx.starts,
            column_tiles=column_tiles, **ctx.sizes,
        )  # fmt: skip
        return of_weights, of_x, None


class _Pool(torch.autograd.Function):
    """The mean over the atoms of every molecule, in float32."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, x: Tensor, packing: Packing
    ) -> Tensor:
        columns = x.shape[1]
        y = x.new_empty(packing.molecules, columns, dtype=torch.float32)
        with torch.cuda.device_of(x):
            _pool_kernel[(_tiles(columns, _COLUMNS), packing.molecules)](
                x, y, packing.starts, channels=columns, J=_MOST_ATOMS, COLUMNS=_COLUMNS,
                num_warps=1,
            )  # fmt: skip
        ctx.packing, ctx.dtype = packing, x.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        packing: Packing = ctx.packing
        owners = gradient.to(ctx.dtype).index_select(0, packing.slots // packing.atoms)
        return owners * packing.inverse.to(ctx.dtype).unsqueeze(1), None


class _PairWeights(torch.autograd.Function):
    """The networks on pairs, the first layer of which is an affine map."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any,
        positions: Tensor,
        first: Tensor,
        second: Tensor,
        weight2: Tensor,
        bias2: Tensor,
        running2: Running,
        third: Tensor,
        weight3: Tensor,
        bias3: Tensor,
        running3: Running,
        packing: Packing,
        dtype: torch.dtype,
    ) -> tuple[Tensor, ...]:
        networks, channels, hidden = third.shape
        atoms = packing.atoms
        grid = (packing.molecules, networks)
        # Nothing is loaded ahead of its use: that would take the registers of another program.
        launch = {"atoms": atoms, "PAIRS": _PAIRS, "num_warps": 4, "num_stages": 1}

        def empty(*shape: int) -> Tensor:
            return positions.new_empty(networks, packing.molecules, *shape, dtype=dtype)

        def statistics(parts: Tensor, running: Running) -> tuple[Tensor, Tensor]:
            if not running.training:
                return running.mean, running.variance
            return _statistics(parts[0], parts[1], packing.in_pairs, running)

        kept2, kept3 = empty(atoms * atoms, hidden), empty(atoms * atoms, channels)
        weights = empty(atoms, channels, _MOST_ATOMS)
        with torch.cuda.device_of(positions):
            parts = positions.new_empty(2, packing.molecules, networks * hidden)
            _pair_second_kernel[grid](
                positions, packing.starts, first, second, kept2, parts[0], parts[1],
                H=hidden, A=_AXES, **launch,
            )  # fmt: skip
            norm2 = (*statistics(parts, running2), weight2, bias2)
            parts = positions.new_empty(2, packing.molecules, networks * channels)
            _pair_third_kernel[grid](
                packing.starts, kept2, *norm2, third, kept3, parts[0], parts[1], running2.eps,
                H=hidden, M=channels, **launch,
            )  # fmt: skip
            norm3 = (*statistics(parts, running3), weight3, bias3)
            _pair_last_kernel[grid](
                packing.starts, kept3, *norm3, weights, running3.eps,
                M=channels, J=_MOST_ATOMS, **launch,
            )  # fmt: skip
        ctx.save_for_backward(
            positions, packing.starts, first, second, kept2, *norm2, third, kept3, *norm3
        )
        ctx.n_pairs, ctx.eps = packing.in_pairs.sum(), (running2.eps, running3.eps)
        ctx.launch = {"M": channels, "J": _MOST_ATOMS, **launch}
        return weights.unbind(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        positions, starts, first, second, kept2, *norm2, third, kept3, m, v, w, b = (
            ctx.saved_tensors
        )
        of_third_layer = (kept3, m, v, w, b, torch.stack(gradients))
        networks, channels, hidden = third.shape
        grid = (kept2.shape[1], networks)

        def empty(*sizes: int) -> Tensor:
            return positions.new_empty(grid[0], sum(sizes))

        parts = empty(2 * networks * channels)
        _pair_third_sums_kernel[grid](starts, *of_third_layer, parts, ctx.eps[1], **ctx.launch)
        of_norm3 = _total(parts)
        sizes = (2 * networks * hidden, third.numel())
        parts = empty(*sizes)
        _pair_second_sums_kernel[grid](
            starts, kept2, *norm2, third, *of_third_layer, of_norm3, parts, ctx.n_pairs, *ctx.eps,
            H=hidden, **ctx.launch,
        )  # fmt: skip
        of_norm2, of_third = _total(parts).split(sizes)
        sizes = (second.numel(), first.numel())
        parts = empty(*sizes)
        of_positions = positions.new_zeros(networks, *positions.shape)
        _pair_first_sums_kernel[grid](
            positions, starts, first, second, kept2, *norm2, third, *of_third_layer,
            of_norm3, of_norm2, parts, of_positions, ctx.n_pairs, len(positions), *ctx.eps,
            H=hidden, A=_AXES, **ctx.launch,
        )  # fmt: skip
        of_second, of_first = _total(parts).split(sizes)
        return (
            of_positions.sum(0), of_first.view_as(first),
            of_second.view_as(second), *of_norm2.view(2, networks, hidden), None,
            of_third.view_as(third), *of_norm3.view(2, networks, channels), None,
            None, None,
        )  # fmt: skip


def norm_swish(
    x: Float[Tensor, "rows columns"],
    weight: Float[Tensor, " columns"],
    bias: Float[Tensor, " columns"],
    running: Running,
    packing: Packing,
) -> Float[Tensor, "rows columns"]:
    """Swish of a batch norm over the atoms; zero after the last one; differentiable once.

    Parameters
    ----------
    x
        In any floating type, and finite also after the last atom.
    weight, bias
        float32, and so are their gradients.
    running
        Used as they are, or updated in training.
    packing
        Which rows are atoms.
    """
    return _NormSwish.apply(x.contiguous(), weight, bias, running, packing)


def add_norm_swish(
    x: Float[Tensor, "rows columns"],
    change: Float[Tensor, "rows columns"],
    weight: Float[Tensor, " columns"],
    bias: Float[Tensor, " columns"],
    running: Running,
    packing: Packing,
) -> tuple[Float[Tensor, "rows columns"], Float[Tensor, "rows columns"]]:
    """Residual sum x + change, and `norm_swish` of it; differentiable once.

    Parameters
    ----------
    x, change
        Of one floating type, zero after the last atom.
    weight, bias, running, packing
        As for `norm_swish`.
    """
    return _AddNormSwish.apply(x.contiguous(), change.contiguous(), weight, bias, running, packing)


def convolve(
    pair_weights: Float[Tensor, "molecules atoms m padded"],
    x: Float[Tensor, "rows columns"],
    packing: Packing,
) -> Float[Tensor, "rows m_columns"]:
    """For atom i and weight m the sum over the atoms j of its molecule of k_ij^m x_j.

    (rows, m · columns), zero after the last atom; differentiable once.

    Parameters
    ----------
    pair_weights
        k_ij^m at [molecule, i, m, j], one of the results of `pair_weights`; finite also for j
        after a molecule's last atom, where x counts as zero.
    x
        Of the same floating type.
    packing
        Which rows belong to which molecule.
    """
    return _Convolve.apply(pair_weights, x.contiguous(), packing)


def pool(x: Float[Tensor, "rows columns"], packing: Packing) -> Float[Tensor, "molecules columns"]:
    """The mean over the atoms of every molecule, in float32; differentiable once."""
    return _Pool.apply(x.contiguous(), packing)


def pair_weights(
    positions: Float[Tensor, "rows 3"],
    first: Float[Tensor, "networks 7 hidden"],
    second: Float[Tensor, "networks hidden hidden"],
    weight2: Float[Tensor, "networks hidden"],
    bias2: Float[Tensor, "networks hidden"],
    running2: Running,
    third: Float[Tensor, "networks m hidden"],
    weight3: Float[Tensor, "networks m"],
    bias3: Float[Tensor, "networks m"],
    running3: Running,
    packing: Packing,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "molecules atoms m padded"], ...]:
    """The weights of all pairs over the number of neighbours, for each network.

    k_ij^m is at [molecule, i, m, j], zero for j after the molecule's last atom, and not written for
    such i. In float32 (products in tf32) but for what is kept; differentiable once.

    Parameters
    ----------
    positions
        Of the atoms, float32.
    first
        The first layer with its batch norm, an affine map of (x_i, x_j): the columns of its matrix,
        and its shift.
    second, weight2, bias2, running2
        The second layer and its batch norm.
    third, weight3, bias3, running3
        The third; hidden and m are powers of two, at least 16.
    packing
        Which rows belong to which molecule.
    dtype
        Of the result, and of the second and third layer, which are kept for the gradient.
    """
    return _PairWeights.apply(
        positions.contiguous(), first.contiguous(),
        second, weight2, bias2, running2, third, weight3, bias3, running3, packing, dtype,
    )  # fmt: skip

"""The matrix exponential, and its action on vectors, by Taylor series of a degree known in advance.

Two things set these apart from ``torch.linalg.matrix_exp``. The degree and the scaling can follow
from a bound on the norm that the caller knows without looking at the data, so that nothing waits
for the device and the whole step can be captured in a CUDA graph. And with one generator the powers
of L are computed once and shared by all samples and views: exp(wL)x = sum_t w^t/t! L^t x.

The backward passes are written by hand: at d = 8 the time goes into the number of small
operations, not into arithmetic. They can be differentiated once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from lieaugmenter.lie import native
from lieaugmenter.lie.constants import constant

# One series sums terms as large as e^bound: at 6 the cancellation costs float32 about 2e-5 of |x|.
LARGEST_SERIES = 6.0
# What a truncated series may leave out, in units of rounding: the sums and squarings round by more.
_TRUNCATION = 4.0
# The longest series: `series_length(LARGEST_SERIES, float64)` is below it.
_LONGEST = 64
# Up to this size a product written as multiply-and-sum over a trailing batch beats bmm.
_SMALL = 4


@lru_cache(maxsize=256)
def series_length(bound: float, dtype: torch.dtype) -> int:
    """Degree at which the Taylor series of exp, at norm `bound`, is exact to rounding.

    >>> series_length(1.0, torch.float32), series_length(6.0, torch.float32)
    (9, 26)
    """
    tolerance = _TRUNCATION * torch.finfo(dtype).eps
    term = 1.0
    for degree in range(1, _LONGEST):
        term *= bound / degree
        # What is left after this term is below the next one's geometric series.
        ratio = bound / (degree + 1)
        if ratio < 1 and term * ratio / (1 - ratio) < tolerance:
            return degree
    return _LONGEST


@lru_cache(maxsize=256)
def squarings(bound: float, dtype: torch.dtype) -> int:
    """Number of halvings after which the degree-8 series is exact to rounding.

    >>> squarings(0.5, torch.float32), squarings(10.0, torch.float32)
    (0, 4)
    """
    reach = (_TRUNCATION * torch.finfo(dtype).eps * math.factorial(9)) ** (1 / 9)
    return max(0, math.ceil(math.log2(max(bound, 1e-30) / reach)))


def may_measure(tensor: Tensor) -> bool:
    """Whether a norm is worth measuring where a bound is known.

    On a GPU it would have to be waited for, and in a graph of ``torch.compile`` every norm would be
    a number to compile for. Else it costs less than a series for a loose bound.
    """
    return not (tensor.is_cuda or torch.compiler.is_compiling())


def spectral_bound(matrix: Float[Tensor, "d d"]) -> float:
    """An upper bound on the spectral norm: √(‖L‖₁ ‖L‖∞) or ‖L‖_F; waits for the device."""
    matrix = matrix.detach()
    sizes = matrix.abs()
    by_sums = math.sqrt(float(sizes.sum(0).max()) * float(sizes.sum(1).max()))
    # Not min(), which would hide a non-finite sum behind a finite norm.
    by_squares = float(matrix.norm())
    return by_squares if by_squares < by_sums else by_sums


def largest_norm(generator: Float[Tensor, "d d"], weights: Tensor) -> float:
    """An upper bound on the norm of every w L; waits for the device."""
    return spectral_bound(generator) * float(weights.detach().abs().max())


@constant
def _reciprocals(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1, 1/2, …, 1/length: the ratios of successive Taylor weights."""
    return 1.0 / torch.arange(1, length + 1, dtype=dtype, device=device)


def _taylor_weights(weights: Float[Tensor, "b k"], length: int) -> Float[Tensor, "b k t"]:
    """w^t / t! for t = 1 … length."""
    ratios = weights.unsqueeze(-1) * _reciprocals(length, weights.dtype, weights.device)
    return torch.cumprod(ratios, dim=-1)


def _powers(matrix: Float[Tensor, "d d"], length: int) -> Float[Tensor, "height d"]:
    """A, A², …, A^length on top of each other, by doubling: the first m times A^m are the next."""
    d = matrix.shape[-1]
    powers, highest, known = matrix, matrix, 1
    while known < length:
        count = min(known, length - known)
        new = (powers if count == known else powers[: count * d]) @ highest
        powers = torch.cat([powers, new])
        highest = new[-d:]
        known += count
    return powers


def _powers_backward(
    gradient: Float[Tensor, "height d"], powers: Float[Tensor, "height d"]
) -> Float[Tensor, "d d"]:
    """Gradient of `_powers` with respect to its matrix; overwrites `gradient`.

    With G_t the gradient of A^t and a_t = sum_j G_(t+j) (Aᵀ)^j, it is sum_t (A^(t-1))ᵀ a_t; the
    a_t are a suffix scan, done by doubling.
    """
    height, d = powers.shape
    reach = d
    while reach < height:
        shifted = gradient[reach:] @ powers[reach - d : reach].mT
        gradient[: height - reach].add_(shifted)
        reach *= 2
    return torch.addmm(gradient[:d], powers[: height - d].mT, gradient[d:])


def share_powers(
    generator: Float[Tensor, "d d"],
    weights: Float[Tensor, "batch views"],
    x: Float[Tensor, "batch n d"],
    length: int,
) -> list[Tensor]:
    """exp(w L) x by one series for all samples and views, without gradients.

    Inside, the n vectors of a sample are n samples with the same weights.

    Returns
    -------
    list of Tensor
        What `share_powers_backward` needs; the result, (batch · n, views, d), comes first.
    """
    batch, n, d = x.shape
    powers = _powers(generator, length)
    taylor = _taylor_weights(weights, length)
    if n > 1:
        taylor = taylor.unsqueeze(1).expand(-1, n, -1, -1).flatten(0, 1)
    vectors = x.reshape(batch * n, d)
    images = (vectors @ powers.mT).view(batch * n, length, d)
    moved = torch.baddbmm(vectors.unsqueeze(1), taylor, images)
    return [moved, taylor, vectors, powers]


def share_powers_backward(
    gradient: Float[Tensor, "m views d"], taylor: Tensor, vectors: Tensor, powers: Tensor
) -> tuple[Float[Tensor, "d d"], Float[Tensor, "m width"]]:
    """Gradients of `share_powers` with respect to the generator, and to the images L^t x."""
    of_images = torch.bmm(taylor.mT, gradient).view(len(vectors), -1)
    return _powers_backward(of_images.mT @ vectors, powers), of_images


class _OneGenerator(torch.autograd.Function):
    """exp(w L) x for every weight w of a sample."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, generator: Tensor, weights: Tensor, x: Tensor, length: int
    ) -> Tensor:
        batch, n, d = x.shape
        moved, taylor, vectors, powers = share_powers(generator, weights, x, length)
        ctx.save_for_backward(generator, taylor, vectors, moved, powers)
        ctx.n = n
        return moved.view(batch, n, -1, d).transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        generator, taylor, vectors, moved, powers = ctx.saved_tensors
        d = vectors.shape[-1]
        # Made contiguous: an expanded gradient (of a sum, say) would send bmm down a slow path.
        gradient = gradient.transpose(1, 2).contiguous().view(moved.shape)
        of_generator = of_weights = of_x = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[2]:
            of_generator, of_images = share_powers_backward(gradient, taylor, vectors, powers)
            if ctx.needs_input_grad[2]:
                of_x = (gradient.sum(1) + of_images @ powers).view(-1, ctx.n, d)
        if ctx.needs_input_grad[1]:
            # d/dw exp(wL)x = L exp(wL)x
            speed = (gradient * (moved @ generator.mT)).sum(-1)
            of_weights = speed.view(-1, ctx.n, speed.shape[-1]).sum(1)
        return of_generator, of_weights, of_x, None


# The degree-8 Taylor polynomial of exp in three products (Bader, Blanes and Casas, 2019).
_R = math.sqrt(177.0)
_X3 = 2 / 3
_X1 = _X3 * (1 + _R) / 88
_X2 = _X3 * (1 + _R) / 352
_X4 = (-271 + 29 * _R) / (315 * _X3)
_X5 = 11 * (-1 + _R) / (1260 * _X3)
_X6 = 11 * (-9 + _R) / (5040 * _X3)
_X7 = (89 - _R) / (5040 * _X3**2)
_Y2 = (857 - 58 * _R) / 630


class _Stack:
    """Products in a stack of n matrices that share their shape and their last, zero rows.

    A generator in homogeneous coordinates has a last row of zeros, and so have its powers and
    exp(A) - I: only the first `rows` rows are kept. For a small d the stack is (rows, d, n) and a
    product is multiply-and-sum; else it is (n, d, d) and a product is bmm.
    """

    def __init__(self, d: int, rows: int) -> None:
        self.d = d
        self.small = d <= _SMALL
        self.rows = rows if self.small else d

    def combine(self, basis: Tensor, coefficients: Tensor) -> Tensor:
        """sum_i w_i L_i."""
        flat = basis[:, : self.rows].flatten(1)
        if self.small:
            return (flat.mT @ coefficients.mT).view(self.rows, self.d, -1)
        return (coefficients @ flat).view(-1, self.d, self.d)

    def of_basis(self, gradient: Tensor, coefficients: Tensor) -> Tensor:
        """Gradient of `combine` with respect to the basis."""
        if not self.small:
            return (coefficients.mT @ gradient.flatten(1)).view(-1, self.d, self.d)
        flat = (gradient.flatten(0, 1) @ coefficients).mT.view(-1, self.rows, self.d)
        return torch.nn.functional.pad(flat, (0, 0, 0, self.d - self.rows))

    def of_coefficients(self, gradient: Tensor, basis: Tensor) -> Tensor:
        """Gradient of `combine` with respect to the coefficients."""
        flat = basis[:, : self.rows].flatten(1).mT
        return self.leave(gradient).flatten(1) @ flat

    def enter(self, matrices: Tensor) -> Tensor:
        """(n, rows or d, d) to the stack."""
        matrices = matrices[:, : self.rows]
        return matrices.permute(1, 2, 0).contiguous() if self.small else matrices

    def leave(self, stack: Tensor) -> Tensor:
        """The stack to (n, rows, d)."""
        return stack.permute(2, 0, 1) if self.small else stack

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """A B."""
        if not self.small:
            return torch.bmm(a, b)
        return (a[:, : self.rows].unsqueeze(2) * b.unsqueeze(0)).sum(1)

    def add_of_left(self, to: Tensor, g: Tensor, b: Tensor) -> Tensor:
        """Add the gradient of A B with respect to A, which is G Bᵀ."""
        if not self.small:
            return to.baddbmm_(g, b.mT)
        to[:, : self.rows].add_((g.unsqueeze(1) * b.unsqueeze(0)).sum(2))
        return to

    def of_right(self, a: Tensor, g: Tensor) -> Tensor:
        """The gradient of A B with respect to B, which is Aᵀ G."""
        if not self.small:
            return torch.bmm(a.mT, g)
        return (a[:, : self.rows].unsqueeze(2) * g.unsqueeze(1)).sum(0)

    def norm(self, a: Tensor) -> float:
        """The largest Frobenius norm; waits for the device."""
        # Squares and a sum: ten times faster here than vector_norm over leading dimensions.
        return math.sqrt(float((a * a).sum((0, 1) if self.small else (1, 2)).max()))


def _exponentiate(a: Tensor, stack: _Stack, bound: float | None) -> list[Tensor]:
    """exp(A) - I by scaling and squaring of the degree-8 series; overwrites `a`.

    Returns what the backward pass needs, and the result last.
    """
    bound = stack.norm(a) if bound is None else bound
    doublings = squarings(bound, a.dtype) if math.isfinite(bound) else 0
    a = a.mul_(0.5**doublings)
    a2 = stack.product(a, a)
    p4 = torch.mul(a, _X1).add_(a2, alpha=_X2)
    a4 = stack.product(a2, p4)
    left = torch.add(a4, a2, alpha=_X3)
    right = torch.mul(a, _X5).add_(a2, alpha=_X6).add_(a4, alpha=_X7)
    result = stack.product(left, right).add_(left, alpha=_X4).add_(a).add_(a2, alpha=_Y2)
    chain = [result]
    for _ in range(doublings):
        # (I + X)² - I = X² + 2X
        chain.append(stack.product(chain[-1], chain[-1]).add_(chain[-1], alpha=2.0))
    return [a, a2, p4, left, right, *chain]


def _exponentiate_backward(g: Tensor, saved: Sequence[Tensor], stack: _Stack) -> Tensor:
    """Gradient of `_exponentiate` with respect to A; `saved` is its result without the last."""
    a, a2, p4, left, right, *chain = saved
    for root in reversed(chain):
        of_root = stack.of_right(root, g).add_(g, alpha=2.0)
        g = stack.add_of_left(of_root, g, root)
    of_left = stack.add_of_left(g * _X4, g, right)
    of_right = stack.of_right(left, g)
    of_a4 = torch.add(of_left, of_right, alpha=_X7)
    of_p4 = stack.of_right(a2, of_a4)
    of_a2 = torch.mul(g, _Y2).add_(of_left, alpha=_X3).add_(of_right, alpha=_X6)
    of_a2 = stack.add_of_left(of_a2.add_(of_p4, alpha=_X2), of_a4, p4)
    of_a = stack.of_right(a, of_a2).add_(g).add_(of_right, alpha=_X5).add_(of_p4, alpha=_X1)
    return stack.add_of_left(of_a, of_a2, a).mul_(0.5 ** len(chain))


class _Exponentials(torch.autograd.Function):
    """exp(sum_i w_i L_i) - I as matrices, without the rows that are zero."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, basis: Tensor, coefficients: Tensor, bound: float | None, rows: int
    ) -> Tensor:
        stack = _Stack(basis.shape[-1], rows)
        *ctx.saved, result = _exponentiate(stack.combine(basis, coefficients), stack, bound)
        ctx.save_for_backward(basis, coefficients)
        ctx.stack = stack
        return stack.leave(result)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        basis, coefficients = ctx.saved_tensors
        stack = ctx.stack
        of_sum = _exponentiate_backward(stack.enter(gradient), ctx.saved, stack)
        return (
            stack.of_basis(of_sum, coefficients) if ctx.needs_input_grad[0] else None,
            stack.of_coefficients(of_sum, basis) if ctx.needs_input_grad[1] else None,
            None,
            None,
        )


class _ManyGenerators(torch.autograd.Function):
    """exp(sum_i w_i L_i) x: the matrices of a sample's views lie side by side in one product."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, basis: Tensor, coefficients: Tensor, x: Tensor, bound: float | None, rows: int
    ) -> Tensor:
        batch, n, d = x.shape
        views = coefficients.shape[1]
        stack = _Stack(d, rows)
        flat = coefficients.reshape(batch * views, -1)
        *ctx.saved, result = _exponentiate(stack.combine(basis, flat), stack, bound)
        matrices = stack.leave(result).unflatten(0, (batch, views))
        side_by_side = matrices.permute(0, 3, 1, 2).reshape(batch, d, views, stack.rows)
        side_by_side.diagonal(dim1=1, dim2=3).add_(1.0)
        side_by_side = side_by_side.flatten(2)
        ctx.save_for_backward(basis, flat, x, side_by_side)
        ctx.stack = stack
        return torch.bmm(x, side_by_side).view(batch, n, views, stack.rows).transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        basis, flat, x, side_by_side = ctx.saved_tensors
        stack = ctx.stack
        batch, n, d = x.shape
        gradient = gradient.transpose(1, 2).reshape(batch, n, -1)
        of_basis = of_coefficients = of_x = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            of_matrices = torch.bmm(x.mT, gradient).view(batch, d, -1, stack.rows)
            if stack.small:
                of_matrices = of_matrices.permute(3, 1, 0, 2).reshape(stack.rows, d, -1)
            else:
                of_matrices = of_matrices.permute(0, 2, 3, 1).reshape(-1, d, d)
            of_sum = _exponentiate_backward(of_matrices, ctx.saved, stack)
            if ctx.needs_input_grad[0]:
                of_basis = stack.of_basis(of_sum, flat)
            if ctx.needs_input_grad[1]:
                of_coefficients = stack.of_coefficients(of_sum, basis).view(batch, -1, len(basis))
        if ctx.needs_input_grad[2]:
            of_x = torch.bmm(gradient, side_by_side.mT)
        return of_basis, of_coefficients, of_x, None, None


def exponentials(
    basis: Float[Tensor, "c d d"],
    coefficients: Float[Tensor, "n c"],
    bound: float | None = None,
    rows: int | None = None,
) -> Float[Tensor, "n d d"]:
    """exp(sum_i w_i L_i) as matrices, Eq. (1).

    Parameters
    ----------
    basis
        The generators L_i, (c, d, d).
    coefficients
        w, (n, c).
    bound
        An upper bound on the norm of every sum_i w_i L_i; it fixes the number of squarings.
        Without it the norm is measured, which waits for the device.
    rows
        How many leading rows of the generators may differ from zero (d - 1 in homogeneous
        coordinates); all unless given.

    Returns
    -------
    Tensor
        (n, d, d), once differentiable.

    Examples
    --------
    >>> turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]])
    >>> exponentials(turn, torch.tensor([[math.pi / 2]])).round(decimals=4).abs()
    tensor([[[0., 1.],
             [1., 0.]]])
    """
    d = basis.shape[-1]
    moved = _Exponentials.apply(basis, coefficients, bound, rows or d)
    identity = torch.eye(d, dtype=basis.dtype, device=basis.device)
    if moved.shape[1] < d:
        moved = torch.nn.functional.pad(moved, (0, 0, 0, d - moved.shape[1]))
    return moved + identity


def act_by_one_generator(
    generator: Float[Tensor, "d d"],
    weights: Float[Tensor, "batch views"],
    x: Float[Tensor, "batch n d"],
    bound: float | None = None,
) -> Float[Tensor, "batch views n d"]:
    """exp(w L) x for every weight w of every sample, without forming a matrix per view.

    Parameters
    ----------
    generator
        L, (d, d).
    weights
        w, (batch, views).
    x
        n vectors for each sample, (batch, n, d): all of them are moved by the same element.
    bound
        An upper bound on the norm of every w L; measured if not given, which waits for the device.

    Returns
    -------
    Tensor
        (batch, views, n, d), once differentiable in all three tensors.
    """
    bound = largest_norm(generator, weights) if bound is None else bound
    batch, views = weights.shape
    _, n, d = x.shape
    steps, length = plan_series(bound, x.dtype)
    weights = weights / steps if steps > 1 else weights
    moved = _OneGenerator.apply(generator, weights, x, length)
    for _ in range(steps - 1):
        moved = _OneGenerator.apply(
            generator, weights.reshape(-1, 1), moved.reshape(-1, n, d), length
        )
    return moved.reshape(batch, views, n, d)


def plan_series(bound: float, dtype: torch.dtype) -> tuple[int, int]:
    """In how many steps to take the exponential, and how many terms each needs."""
    if not math.isfinite(bound):
        # Non-finite coefficients or generators: one step, whose result is non-finite as well.
        return 1, 1
    steps = max(1, math.ceil(bound / LARGEST_SERIES))
    return steps, series_length(bound / steps, dtype)


def act_by_matrices(
    basis: Float[Tensor, "c d d"],
    coefficients: Float[Tensor, "batch views c"],
    x: Float[Tensor, "batch n d"],
    bound: float | None = None,
    rows: int | None = None,
) -> Float[Tensor, "batch views n r"]:
    """exp(sum_i w_i L_i) x by a matrix for each view: the cheapest way for a small d.

    Parameters
    ----------
    basis
        The generators L_i, (c, d, d).
    coefficients
        w, (batch, views, c).
    x
        (batch, n, d).
    bound
        An upper bound on the norm of every sum_i w_i L_i, measured if not given.
    rows
        How many leading rows of the generators may differ from zero; all unless given.

    Returns
    -------
    Tensor
        (batch, views, n, r), once differentiable in all three tensors. For d up to 4 only the
        first r = `rows` coordinates, the others do not move; else all of them, r = d.
    """
    rows = rows or basis.shape[-1]
    if bound is None and native.acts_by_matrices(basis, coefficients, x):
        return native.ActByMatrices.apply(basis, coefficients, x, rows)
    return _ManyGenerators.apply(basis, coefficients, x, bound, rows)


def act_by_series(
    basis: Float[Tensor, "c d d"],
    coefficients: Float[Tensor, "batch views c"],
    x: Float[Tensor, "batch n d"],
    bound: float | None = None,
) -> Float[Tensor, "batch views n d"]:
    """exp(sum_i w_i L_i) x by applying the scaled Taylor series to the vectors themselves.

    For large d this is cheaper than forming the matrices: a term costs c d^2 a vector, not d^3.

    Parameters
    ----------
    basis
        The generators L_i, (c, d, d).
    coefficients
        w, (batch, views, c).
    x
        (batch, n, d).
    bound
        An upper bound on the norm of every sum_i w_i L_i, measured if not given.

    Returns
    -------
    Tensor
        (batch, views, n, d).
    """
    c, d, _ = basis.shape
    if bound is None:
        norms = torch.stack([basis.new_tensor(spectral_bound(generator)) for generator in basis])
        bound = float((coefficients.detach().abs() @ norms).max())
    steps, length = plan_series(bound, x.dtype)
    stacked = basis.permute(2, 0, 1).reshape(d, c * d)
    weights = (coefficients / steps)[:, :, None, :, None]
    moved = x[:, None].expand(-1, coefficients.shape[1], -1, -1)
    for _ in range(steps):
        term = moved
        for t in range(1, length + 1):
            term = ((term @ stacked).unflatten(-1, (c, d)) * weights).sum(-2) / t
            moved = moved + term
    return moved

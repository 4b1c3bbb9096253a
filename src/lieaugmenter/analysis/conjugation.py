"""Changes of coordinates: which one takes one span of generators onto another.

Coordinates are orthonormal, linear, or the axes in another order; in homogeneous matrices the
origin moves as well.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.lie import catalogue
from lieaugmenter.lie.brackets import balancing, bracket, conjugate, moments

# Relative error of generators as they are learned.
USUAL_NOISE = 0.03
# Brackets, forms and eigenvalues add up the noise of several generators.
SMALL = 4.0
# Farther than this from orthonormal, coordinates are another symmetry's: a rotation sheared
# without end is a shear.
LARGEST_CONDITION = 10.0
_STARTS = 8
_STEPS = 40
_PATIENCE = 5


def orthonormal_rows(bases: Float[Tensor, "*b c d d"]) -> Float[Tensor, "*b c e"]:
    """Orthonormal bases of many spans at once, flattened."""
    return torch.linalg.qr(bases.flatten(-2).mT).Q.mT


def linear_part(span: Float[Tensor, "c d d"], n: int, small: float) -> Float[Tensor, "k n n"]:
    """An orthonormal basis of the linear parts, without those small enough to be noise."""
    _, sizes, directions = torch.linalg.svd(span[:, :n, :n].flatten(1), full_matrices=False)
    return directions[sizes > small].unflatten(1, (n, n))


def shift(span: Float[Tensor, "c d d"], n: int) -> Float[Tensor, "d d"]:
    """Homogeneous coordinates with the origin where the generators move it least."""
    change = torch.eye(span.shape[-1], dtype=span.dtype)
    if n < span.shape[-1]:
        linear, translation = span[:, :n, :n].flatten(0, 1), span[:, :n, n].flatten()
        # What is small may be noise, and its fixed point anywhere.
        inverse = torch.linalg.pinv(linear, atol=SMALL * USUAL_NOISE, rtol=0.0)
        change[:n, n] = inverse @ translation
    return change


def centred(span: Float[Tensor, "c d d"], n: int) -> Float[Tensor, "c d d"]:
    """The generators with the origin where they move it least."""
    return conjugate(span, shift(span, n))


def skew_free(span: Float[Tensor, "c d d"], n: int) -> Float[Tensor, "d d"]:
    """`balancing` of the linear part, in homogeneous coordinates where they are."""
    change = torch.eye(span.shape[-1], dtype=span.dtype)
    linear = linear_part(span, n, SMALL * USUAL_NOISE)
    if len(linear):
        change[:n, :n] = balancing(linear, largest_condition=LARGEST_CONDITION)
    return change


def infinitesimal_changes(d: int, n: int, *, rigid: bool) -> Float[Tensor, "k d d"]:
    """The infinitesimal changes of coordinates, orthonormal or linear, and of the origin."""
    linear = catalogue.gl(n)
    if rigid:
        linear = catalogue.so(n) if n > 1 else linear[:0]
    if n < d:
        linear = torch.cat([catalogue.lift(linear), catalogue.translations(n)])
    return linear.double()


def likely_changes(
    canonical: Float[Tensor, "c d d"],
    span: Float[Tensor, "c d d"],
    n: int,
    rng: torch.Generator,
) -> Float[Tensor, "b d d"]:
    """Orthonormal changes that take the axes of the moments of one span to those of another.

    Where moments leave axes open, and always in sign, they are drawn.
    """
    weights = torch.rand(_STARTS, 3, generator=rng, dtype=span.dtype)
    blur = torch.randn(_STARTS, n, n, generator=rng, dtype=span.dtype) * 1e-3

    def axes(basis: Tensor) -> Tensor:
        mixed = torch.einsum("bm,mij->bij", weights, moments(basis)[:, :n, :n])
        return torch.linalg.eigh(mixed + blur + blur.mT)[1]

    signs = torch.randint(0, 2, (_STARTS, 1, n), generator=rng).to(span.dtype) * 2 - 1
    old, new = axes(canonical), axes(span) * signs
    # No descent leads from one orientation to the other: half of the starts have each.
    wanted = torch.tensor([1.0, -1.0], dtype=span.dtype).repeat(_STARTS // 2)
    new[..., 0] *= (torch.linalg.det(new @ old.mT) * wanted).sign()[:, None]
    changes = torch.eye(span.shape[-1], dtype=span.dtype).repeat(_STARTS, 1, 1)
    changes[:, :n, :n] = new @ old.mT
    return changes


def descend(
    canonical: Float[Tensor, "c d d"],
    target: Float[Tensor, "c d d"],
    change: Float[Tensor, "b d d"],
    directions: Float[Tensor, "k d d"],
) -> tuple[Float[Tensor, "d d"], float]:
    """The change of coordinates, from several starts, that takes a span nearest to a target.

    Levenberg and Marquardt on what the span leaves over of the target's generators, with steps
    exp(X) P. Also its norm relative to that of the target.
    """
    wanted = target.flatten(1)

    def moved(changes: Tensor) -> tuple[Tensor, Tensor]:
        rows = orthonormal_rows(conjugate(canonical, changes))
        return rows, off(wanted, rows).square().sum((-2, -1))

    rows, sizes = moved(change)
    damping = torch.full_like(sizes, 1e-2)
    best, waiting = float(sizes.min()), 0
    for _ in range(_STEPS if len(directions) else 0):
        step = _damped_step(rows, wanted, directions, damping)
        trial = torch.linalg.matrix_exp(step) @ change
        trial_rows, trial_sizes = moved(trial)
        better = (trial_sizes < sizes) & (torch.linalg.cond(trial) < LARGEST_CONDITION)
        change = torch.where(better[:, None, None], trial, change)
        rows = torch.where(better[:, None, None], trial_rows, rows)
        sizes = torch.where(better, trial_sizes, sizes)
        damping = torch.where(better, damping / 5, damping * 5).clamp(1e-9, 1e6)
        waiting = 0 if float(sizes.min()) < 0.99 * best else waiting + 1
        best = float(sizes.min())
        if best < 1e-24 or waiting > _PATIENCE:
            break
    return change[int(sizes.argmin())], math.sqrt(best) / float(wanted.norm())


def off(rows: Float[Tensor, "*b m e"], onto: Float[Tensor, "*a n e"]) -> Tensor:
    """What orthonormal rows leave over of others."""
    return rows - rows @ onto.mT @ onto


def _damped_step(
    rows: Float[Tensor, "b c e"],
    wanted: Float[Tensor, "c e"],
    directions: Float[Tensor, "k d d"],
    damping: Float[Tensor, " b"],
) -> Float[Tensor, "b d d"]:
    """The infinitesimal change that takes orthonormal rows towards others, of norm 1 at most.

    [X, L] moves a span only as far as it leaves it.
    """
    k, d = directions.shape[:2]
    generators = rows.unflatten(-1, (d, d)).unsqueeze(1)
    moved = off(bracket(directions[:, None], generators).flatten(-2), rows.unsqueeze(1))
    slopes = -((wanted @ rows.mT).unsqueeze(1) @ moved).flatten(2)
    normal = slopes @ slopes.mT
    scale = normal.diagonal(dim1=1, dim2=2).mean(1)
    # Changes that leave the span where it is have no slope: never divide by zero.
    normal = normal + torch.diag_embed((damping * scale + 1e-12)[:, None].expand(-1, k))
    missed = off(wanted, rows).flatten(1).unsqueeze(-1)
    step = -torch.linalg.solve(normal, slopes @ missed).squeeze(-1)
    step = step / step.norm(dim=1, keepdim=True).clamp_min(1.0)
    return torch.einsum("bk,kij->bij", step, directions)


def _signed_swaps(d: int, n: int) -> Float[Tensor, "m d d"]:
    """The signed permutations of the first n axes that swap two, and that reverse one."""
    moves = []
    for i in range(n):
        flip = torch.eye(d, dtype=torch.float64)
        flip[i, i] = -1.0
        moves.append(flip)
        for j in range(i):
            order = list(range(d))
            order[i], order[j] = j, i
            moves.append(torch.eye(d, dtype=torch.float64)[order])
    return torch.stack(moves)


def along_axes(
    canonical: Float[Tensor, "c d d"],
    target: Float[Tensor, "c d d"],
    change: Float[Tensor, "d d"],
    n: int,
    rng: torch.Generator,
) -> tuple[Float[Tensor, "d d"], float]:
    """`descend` over the signed permutations of axes, by exchanges.

    Starts at the one nearest to `change`, and at random ones.
    """
    d = target.shape[-1]
    moves = _signed_swaps(d, n)
    orders = [torch.randperm(n, generator=rng) for _ in range(_STARTS - 1)]
    orders.append(_nearest_order(change[:n, :n]))
    current = torch.eye(d, dtype=target.dtype).repeat(_STARTS, 1, 1)
    for start, order in zip(current, orders, strict=True):
        start[:n, :n] = torch.eye(n, dtype=target.dtype)[order]

    def overlap(changes: Tensor) -> Tensor:
        turned = changes.unsqueeze(-3) @ canonical @ changes.mT.unsqueeze(-3)
        return torch.einsum("...iab,jab->...ij", turned, target).square().sum((-2, -1))

    shared = overlap(current)
    for _ in range(3 * d):
        trial = moves @ current.unsqueeze(1)
        found, index = overlap(trial).max(1)
        better = found > shared + 1e-12
        if not bool(better.any()):
            break
        chosen = trial[torch.arange(_STARTS), index]
        current = torch.where(better[:, None, None], chosen, current)
        shared = torch.where(better, found, shared)
    at = int(shared.argmax())
    missed = max(1.0 - float(shared[at] / target.square().sum()), 0.0)
    return current[at], math.sqrt(missed)


def _nearest_order(change: Float[Tensor, "n n"]) -> Tensor:
    """For each new axis the old one that it mostly is, best pairs first."""
    weights = change.square().clone()
    order = torch.zeros(len(change), dtype=torch.long)
    for _ in range(len(change)):
        row, column = divmod(int(weights.argmax()), len(change))
        order[row] = column
        weights[row] = -1.0
        weights[:, column] = -1.0
    return order

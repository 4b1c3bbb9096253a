"""How close a learned basis is to a known one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.lie.brackets import orthonormal


def absolute_cosine(a: Float[Tensor, "*x d d"], b: Float[Tensor, "*y d d"]) -> Tensor:
    """|<A, B>_F| / (‖A‖ ‖B‖): 1 for the same direction, whatever sign and scale.

    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> float(absolute_cosine(-3 * turn, turn))
    1.0
    """
    inner = (a * b).sum((-2, -1))
    # Rounding can leave a cosine just above 1.
    return (inner / (_norm(a) * _norm(b))).abs().clamp(max=1.0)


def cosine_on_span(
    learned: Float[Tensor, "d d"],
    truth: Float[Tensor, "d d"],
    x: Float[Tensor, "*n d"],
    tolerance: float = 1e-4,
) -> float:
    """`absolute_cosine` of two generators as they act on the span of the data.

    Matrices that differ only off that span move every sample alike: where q₂ = -q₁, turning q₂ is
    the same as turning -q₁.

    Parameters
    ----------
    learned, truth
        The generators.
    x
        The data, one vector in each row.
    tolerance
        Directions in which the data are smaller than this fraction of the largest do not count.
    """
    vectors = x.reshape(-1, x.shape[-1]).double()
    sizes, directions = torch.linalg.eigh(vectors.mT @ vectors)
    span = directions[:, sizes > tolerance**2 * sizes.max()]
    return float(absolute_cosine(_restricted(learned, span), _restricted(truth, span)))


def _restricted(generator: Tensor, span: Float[Tensor, "d k"]) -> Float[Tensor, "d d"]:
    """A generator before which everything off the span is dropped."""
    return generator.double() @ span @ span.mT


def frobenius_projection(
    learned: Float[Tensor, "*x d d"], truth: Float[Tensor, "*y d d"]
) -> Tensor:
    """|<L, L*>_F| / ‖L*‖²: how much of the true generator is in the learned one, scale included."""
    return ((learned * truth).sum((-2, -1)) / _norm(truth).square()).abs()


def principal_cosines(a: Float[Tensor, "m d d"], b: Float[Tensor, "n d d"]) -> Float[Tensor, " k"]:
    """Cosines of the principal angles between two spans, largest first; all 1 when they agree.

    They do not depend on the bases chosen within the spans. With different dimensions there are
    as many as the smaller has.
    """
    cosines = torch.linalg.svdvals(_orthonormal(a).mT @ _orthonormal(b))
    return cosines.clamp(max=1.0).to(a.dtype)


def _orthonormal(basis: Float[Tensor, "m d d"]) -> Float[Tensor, "n k"]:
    """An orthonormal basis of the span as columns; dependent generators count once."""
    directions, sizes, _ = torch.linalg.svd(basis.flatten(1).double().mT, full_matrices=False)
    return directions[:, sizes > 1e-6 * sizes.max()]


def nearest_in_span(
    generators: Float[Tensor, "m d d"], basis: Float[Tensor, "c d d"]
) -> Float[Tensor, "m d d"]:
    """Of all combinations of a basis the one nearest to each generator.

    Which basis of its span was learned is chance; this is not.

    >>> turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]])
    >>> mixed = torch.cat([turn + torch.eye(2), turn - torch.eye(2)])
    >>> torch.allclose(nearest_in_span(turn, mixed), turn)
    True
    """
    span = orthonormal(basis).flatten(1)
    flat = generators.flatten(1).to(span)
    return (flat @ span.mT @ span).view_as(generators).to(generators)


def principal_angles(a: Float[Tensor, "m d d"], b: Float[Tensor, "n d d"]) -> Float[Tensor, " k"]:
    """Principal angles between two spans in radians, smallest first."""
    return principal_cosines(a, b).acos()


@dataclass(frozen=True)
class Matching:
    """Learned generators put in the order and sign of a canonical basis.

    Attributes
    ----------
    order
        For each canonical generator, the index of the learned one matched to it.
    signs
        +1 or -1: with it the matched pair has a positive inner product.
    cosines
        Their absolute cosines.
    generators
        The learned generators, reordered and signed, (n, d, d).
    """

    order: list[int]
    signs: list[float]
    cosines: list[float]
    generators: Tensor


def match(learned: Float[Tensor, "m d d"], canonical: Float[Tensor, "n d d"]) -> Matching:
    """Match each canonical generator to a different learned one, best pairs first.

    Needs at least as many learned generators as canonical ones.
    """
    if len(learned) < len(canonical):
        raise ValueError(
            f"{len(learned)} learned generators cannot be matched to {len(canonical)} canonical"
        )
    left = absolute_cosine(canonical.unsqueeze(1), learned.unsqueeze(0)).clone()
    order = [-1] * len(canonical)
    for _ in canonical:
        row, column = divmod(int(left.argmax()), left.shape[1])
        order[row] = column
        left[row] = -1.0
        left[:, column] = -1.0
    chosen = learned[order]
    inner = (chosen * canonical).sum((-2, -1))
    signs = torch.where(inner < 0, -1.0, 1.0)
    cosines = absolute_cosine(chosen, canonical)
    return Matching(
        order, signs.tolist(), cosines.tolist(), chosen * signs.to(chosen.dtype)[:, None, None]
    )


def _norm(a: Tensor) -> Tensor:
    return a.flatten(-2).norm(dim=-1).clamp_min(1e-30)

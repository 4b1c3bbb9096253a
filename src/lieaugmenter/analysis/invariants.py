"""What a span of generators shows of its Lie algebra, whatever its basis."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.analysis.conjugation import (
    LARGEST_CONDITION,
    SMALL,
    USUAL_NOISE,
    centred,
    linear_part,
)
from lieaugmenter.lie.brackets import (
    balancing,
    centre_dimension,
    closure_residual,
    conjugate,
    derived_series,
    killing_form,
    lower_central_series,
    orthonormal,
    preserved_forms,
    signature,
    structure_constants,
)


@dataclass(frozen=True)
class Invariants:
    """What the learned span shows of its algebra, whatever its basis.

    Sizes below a few times the noise count as zero.

    Attributes
    ----------
    dimension
        Of the span.
    closure
        How far brackets leave the span, 0 for an algebra.
    structure_constants
        (c, c, c), in an orthonormal basis of the span.
    killing
        Eigenvalues of the Killing form in that basis, ascending.
    killing_signature
        How many of them are negative, zero and positive.
    centre
        Dimension of the centre.
    derived, lower_central
        Dimensions of the two series until they settle.
    rank
        Dimension of a Cartan subalgebra: what commutes with a generator in general position.
    metrics, symplectic
        How many independent symmetric and antisymmetric forms are preserved.
    metric_signature
        Negative, zero and positive directions of the symmetric form, if there is just one, signed
        so that most are positive.
    moved
        Dimension of the subspace that the generators reach.
    translations
        How many independent pure translations there are.
    compact
        Whether all of it is rotation: in some coordinates every generator is antisymmetric.
    """

    dimension: int
    closure: float
    structure_constants: Tensor
    killing: tuple[float, ...]
    killing_signature: tuple[int, int, int]
    centre: int
    derived: tuple[int, ...]
    lower_central: tuple[int, ...]
    rank: int
    metrics: int
    symplectic: int
    metric_signature: tuple[int, int, int] | None
    moved: int
    translations: int
    compact: bool

    @property
    def kind(self) -> str:
        """The narrowest of the usual classes: abelian, nilpotent, solvable, semisimple, …"""
        classes = (
            ("abelian", self.derived[1:] == (0,)),
            ("nilpotent", self.lower_central[-1] == 0),
            ("solvable", self.derived[-1] == 0),
            ("semisimple", self.killing_signature[1] == 0),
            ("reductive", self._killing_rank == self.derived[-1] == self.dimension - self.centre),
        )
        return next((name for name, holds in classes if holds), "neither solvable nor reductive")

    @property
    def _killing_rank(self) -> int:
        negative, _, positive = self.killing_signature
        return negative + positive


def measure(
    generators: Float[Tensor, "c d d"], *, rows: int | None = None, noise: float = USUAL_NOISE
) -> Invariants:
    """The invariants of a span of generators.

    Parameters
    ----------
    generators
        (c, d, d), any basis.
    rows
        `Action.rows`: fewer than d where matrices are homogeneous.
    noise
        Relative error of the generators.

    Examples
    --------
    >>> from lieaugmenter.lie import catalogue
    >>> found = measure(catalogue.named("so(1,3)"), noise=1e-6)
    >>> found.killing_signature, found.metric_signature, found.kind
    ((3, 0, 3), (1, 0, 3), 'semisimple')
    """
    span = orthonormal(generators)
    n = span.shape[-1] if rows is None else rows
    small = SMALL * noise
    linear = linear_part(span, n, small)
    metrics = preserved_forms(linear, small)
    killing = killing_form(span)
    lower_central = lower_central_series(span, small)
    reached = torch.linalg.svdvals(span.permute(1, 0, 2).flatten(1))
    return Invariants(
        dimension=len(span),
        closure=closure_residual(span),
        structure_constants=structure_constants(span),
        killing=tuple(float(value) for value in torch.linalg.eigvalsh(killing)),
        killing_signature=signature(killing, small),
        centre=centre_dimension(span, small),
        derived=derived_series(span, small),
        lower_central=lower_central,
        # A nilpotent algebra is its own Cartan subalgebra; noise spreads its eigenvalues, all zero.
        rank=_rank(span, small) if lower_central[-1] else len(span),
        metrics=len(metrics),
        symplectic=len(preserved_forms(linear, small, symmetric=False)),
        metric_signature=_signature_of_one(metrics, small),
        moved=int((reached > small).sum()),
        translations=len(span) - len(linear) if n < span.shape[-1] else 0,
        compact=_is_compact(span, n, small),
    )


def _signature_of_one(forms: Float[Tensor, "m n n"], small: float) -> tuple[int, int, int] | None:
    """The signature of the only form there is, up to its sign."""
    if len(forms) != 1:
        return None
    negative, zero, positive = signature(forms[0], small)
    return min(negative, positive), zero, max(negative, positive)


def _rank(span: Float[Tensor, "c d d"], small: float) -> int:
    """How many eigenvalues of ad(x) vanish, for x in general position."""
    f = structure_constants(span)
    weights = torch.randn(8, len(f), dtype=f.dtype, generator=torch.Generator().manual_seed(0))
    weights = weights / weights.norm(dim=1, keepdim=True)
    values = torch.linalg.eigvals(torch.einsum("si,ijk->sjk", weights, f)).abs()
    return int((values < small).sum(1).min())


def _is_compact(span: Float[Tensor, "c d d"], n: int, small: float) -> bool:
    """Whether balanced generators are antisymmetric, and leave a point where it is."""
    about_origin = centred(span, n)
    if n < span.shape[-1] and float(about_origin[:, :n, n].norm(dim=1).max()) > small:
        return False
    linear = about_origin[:, :n, :n]
    change = balancing(linear, largest_condition=LARGEST_CONDITION / 2)
    balanced = orthonormal(conjugate(linear, change))
    return float((balanced + balanced.mT).flatten(1).norm(dim=1).max()) / 2 < small

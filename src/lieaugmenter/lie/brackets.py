"""The algebra of generators: brackets, structure constants, what they preserve."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def bracket(a: Float[Tensor, "*x d d"], b: Float[Tensor, "*y d d"]) -> Float[Tensor, "*z d d"]:
    """[A, B] = AB - BA.

    >>> from lieaugmenter.lie.catalogue import so
    >>> x, y, z = so(3)
    >>> bool(torch.equal(bracket(x, y), z))
    True
    """
    return a @ b - b @ a


def _coordinates(matrices: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Least-squares coordinates of matrices in a basis, and what the basis leaves over."""
    columns = basis.flatten(1).mT
    flat = matrices.flatten(-2)
    # Double precision: the residual of a closed algebra should show zero, not rounding.
    inverse = torch.linalg.pinv(columns.double())
    coordinates = flat.double() @ inverse.mT
    remainder = flat.double() - coordinates @ columns.double().mT
    return coordinates.to(matrices.dtype), remainder.to(matrices.dtype)


def structure_constants(basis: Float[Tensor, "c d d"]) -> Float[Tensor, "c c c"]:
    """f[i, j, k] with [L_i, L_j] = sum_k f[i, j, k] L_k, in the least-squares sense."""
    brackets = bracket(basis.unsqueeze(1), basis.unsqueeze(0))
    return _coordinates(brackets, basis)[0]


def closure_residual(basis: Float[Tensor, "c d d"]) -> float:
    """How far the brackets leave the span: 0 for a Lie algebra.

    The norm of what the span leaves over, relative to the product of the norms of the generators
    bracketed; the root mean square over pairs.

    >>> from lieaugmenter.lie.catalogue import se
    >>> closure_residual(se(3)) < 1e-6
    True
    """
    c = basis.shape[0]
    if c < 2:
        return 0.0
    brackets = bracket(basis.unsqueeze(1), basis.unsqueeze(0))
    remainder = _coordinates(brackets, basis)[1].norm(dim=-1)
    norms = basis.flatten(1).norm(dim=1)
    relative = remainder / (norms.unsqueeze(1) * norms.unsqueeze(0))
    i, j = torch.triu_indices(c, c, offset=1)
    return float(relative[i, j].square().mean().sqrt())


def killing_form(basis: Float[Tensor, "c d d"]) -> Float[Tensor, "c c"]:
    """K(L_i, L_j) = tr(ad L_i ad L_j); negative definite for compact semisimple algebras.

    >>> from lieaugmenter.lie.catalogue import so
    >>> torch.diagonal(killing_form(so(3)))
    tensor([-2., -2., -2.])
    """
    f = structure_constants(basis)
    return torch.einsum("ikl,jlk->ij", f, f)


def preserved_forms(
    basis: Float[Tensor, "c d d"], tolerance: float = 1e-3
) -> Float[Tensor, "m d d"]:
    """Symmetric bilinear forms B with LᵀB + BL = 0 for every generator.

    Parameters
    ----------
    basis
        (c, d, d).
    tolerance
        A form counts as preserved when its residual is below this fraction of the largest.

    Returns
    -------
    Tensor
        An orthonormal basis of the forms, (m, d, d); m may be 0.
    """
    d = basis.shape[-1]
    rows, columns = torch.triu_indices(d, d)
    forms = torch.zeros(len(rows), d, d, dtype=torch.float64)
    forms[torch.arange(len(rows)), rows, columns] = 1.0
    forms[torch.arange(len(rows)), columns, rows] = 1.0
    forms /= forms.flatten(1).norm(dim=1)[:, None, None]
    generators = basis.detach().double().cpu()
    residuals = torch.einsum("cji,fjk->fcik", generators, forms)
    residuals = residuals + torch.einsum("fij,cjk->fcik", forms, generators)
    _, sizes, directions = torch.linalg.svd(residuals.flatten(1).mT, full_matrices=True)
    sizes = torch.nn.functional.pad(sizes, (0, len(rows) - len(sizes)))
    kept = directions[sizes <= tolerance * sizes.max().clamp_min(1e-30)]
    return torch.einsum("mf,fij->mij", kept, forms).to(basis.dtype)

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


def orthonormal(basis: Float[Tensor, "c d d"], tolerance: float = 1e-4) -> Float[Tensor, "k d d"]:
    """A basis of the same span, orthonormal for the Frobenius product, in double precision.

    What is computed from it and does not change when it is rotated belongs to the span alone.

    Parameters
    ----------
    basis
        (c, d, d).
    tolerance
        Directions smaller than this fraction of the largest are dropped: k ≤ c.
    """
    flat = basis.detach().double().cpu().flatten(1)
    flat = flat / flat.norm(dim=1, keepdim=True).clamp_min(1e-30)
    _, sizes, directions = torch.linalg.svd(flat, full_matrices=False)
    return directions[sizes > tolerance * sizes.max()].unflatten(1, basis.shape[1:])


def _row_space(matrix: Float[Tensor, "m c"], tolerance: float) -> Float[Tensor, "k c"]:
    """Orthonormal rows that span those of a matrix, up to a size per square root of columns."""
    _, sizes, directions = torch.linalg.svd(matrix, full_matrices=False)
    return directions[sizes > tolerance * max(1, matrix.shape[1]) ** 0.5]


def _series(basis: Tensor, tolerance: float, with_itself: bool) -> tuple[int, ...]:
    """Dimensions of g, [h, g'], … with h the whole algebra or g' itself, until they settle."""
    f = structure_constants(orthonormal(basis))
    whole = torch.eye(len(f), dtype=f.dtype)
    current, dimensions = whole, [len(f)]
    while dimensions[-1]:
        other = current if with_itself else whole
        brackets = torch.einsum("ijk,ai,bj->abk", f, other, current).flatten(0, 1)
        current = _row_space(brackets, tolerance)
        if len(current) >= dimensions[-1]:
            break
        dimensions.append(len(current))
    return tuple(dimensions)


def derived_series(basis: Float[Tensor, "c d d"], tolerance: float = 1e-3) -> tuple[int, ...]:
    """Dimensions of g, [g, g], [[g, g], [g, g]], … until they settle; 0 last: solvable.

    Parameters
    ----------
    basis
        (c, d, d).
    tolerance
        Brackets of orthonormal generators below it (root mean square) count as zero.

    Examples
    --------
    >>> from lieaugmenter.lie.catalogue import se, so
    >>> derived_series(se(2)), derived_series(so(3))
    ((3, 2, 0), (3,))
    """
    return _series(basis, tolerance, with_itself=True)


def lower_central_series(basis: Float[Tensor, "c d d"], tolerance: float = 1e-3) -> tuple[int, ...]:
    """Dimensions of g, [g, g], [g, [g, g]], … until they settle; 0 last: nilpotent.

    The parameters are those of `derived_series`.

    >>> from lieaugmenter.lie.catalogue import heisenberg, se
    >>> lower_central_series(heisenberg(3)), lower_central_series(se(2))
    ((3, 1, 0), (3, 2))
    """
    return _series(basis, tolerance, with_itself=False)


def centre_dimension(basis: Float[Tensor, "c d d"], tolerance: float = 1e-3) -> int:
    """Dimension of what commutes with the whole algebra.

    The parameters are those of `derived_series`.

    >>> from lieaugmenter.lie.catalogue import gl, heisenberg, so
    >>> [centre_dimension(basis) for basis in (so(3), gl(3), heisenberg(3))]
    [0, 1, 1]
    """
    f = structure_constants(orthonormal(basis))
    # Rows of zeros of the adjoint representation, as a map from the algebra.
    return len(f) - len(_row_space(f.permute(1, 2, 0).flatten(0, 1), tolerance))


def signature(form: Float[Tensor, "n n"], tolerance: float = 1e-3) -> tuple[int, int, int]:
    """How many eigenvalues of a symmetric form are negative, zero and positive.

    Parameters
    ----------
    form
        (n, n).
    tolerance
        Eigenvalues of at most this size count as zero.

    Examples
    --------
    >>> from lieaugmenter.lie.catalogue import named
    >>> signature(killing_form(named("so(1,3)")))
    (3, 0, 3)
    """
    values = torch.linalg.eigvalsh(form.double())
    negative, positive = int((values < -tolerance).sum()), int((values > tolerance).sum())
    return negative, len(values) - negative - positive, positive


def preserved_forms(
    basis: Float[Tensor, "c d d"], tolerance: float = 1e-3, *, symmetric: bool = True
) -> Float[Tensor, "m d d"]:
    """Bilinear forms B with LᵀB + BL = 0 for every generator.

    Parameters
    ----------
    basis
        (c, d, d).
    tolerance
        A form of norm 1 counts as preserved when its residual is below this fraction of the norm
        of the generators.
    symmetric
        Look for symmetric forms (metrics), or for antisymmetric ones (symplectic forms).

    Returns
    -------
    Tensor
        An orthonormal basis of the forms, (m, d, d); m may be 0.
    """
    d = basis.shape[-1]
    rows, columns = torch.triu_indices(d, d, offset=0 if symmetric else 1)
    forms = torch.zeros(len(rows), d, d, dtype=torch.float64)
    forms[torch.arange(len(rows)), rows, columns] = 1.0
    forms[torch.arange(len(rows)), columns, rows] = 1.0 if symmetric else -1.0
    forms /= forms.flatten(1).norm(dim=1)[:, None, None]
    generators = basis.detach().double().cpu()
    residuals = torch.einsum("cji,fjk->fcik", generators, forms)
    residuals = residuals + torch.einsum("fij,cjk->fcik", forms, generators)
    # Many equations of few unknowns: their triangular factor has the same singular directions.
    equations = torch.linalg.qr(residuals.flatten(1).mT, mode="r").R
    _, sizes, directions = torch.linalg.svd(equations, full_matrices=True)
    sizes = torch.nn.functional.pad(sizes, (0, len(rows) - len(sizes)))
    kept = directions[sizes <= tolerance * generators.norm()]
    return torch.einsum("mf,fij->mij", kept, forms).to(basis.dtype)


def conjugate(
    basis: Float[Tensor, "*c d d"], change: Float[Tensor, "*b d d"]
) -> Float[Tensor, "*e d d"]:
    """P L P⁻¹: the same generators (c, d, d) after the change of coordinates x ↦ P x."""
    change = change.unsqueeze(-3)
    return change @ basis @ torch.linalg.inv(change)


def moments(span: Float[Tensor, "*b c d d"]) -> Float[Tensor, "*b 3 d d"]:
    """Σ LLᵀ, Σ LᵀL and Σ (LL + LᵀLᵀ) / 2 over an orthonormal basis.

    They depend on the span alone, and turn with it when coordinates do.

    >>> from lieaugmenter.lie.catalogue import so
    >>> moments(orthonormal(so(2)))[0]
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]], dtype=torch.float64)
    """
    squares = span @ span
    sums = [span @ span.mT, span.mT @ span, (squares + squares.mT) / 2]
    return torch.stack([total.sum(-3) for total in sums], dim=-3)


def fingerprint(span: Float[Tensor, "*b c d d"]) -> Float[Tensor, "*b m"]:
    """Numbers that depend on the span alone, not on its basis nor on orthonormal coordinates.

    The spectra of the moments and of the Killing form. Unlike ranks and signatures they change
    little with a little noise, so that they can be compared without a threshold.

    Parameters
    ----------
    span
        (…, c, d, d), orthonormal.
    """
    sizes = torch.linalg.eigvalsh(moments(span)).flatten(-2)
    c = span.shape[-3]
    products = (span.unsqueeze(-3) @ span.unsqueeze(-4)).flatten(-4, -3).flatten(-2)
    along = (products @ span.flatten(-2).mT).unflatten(-2, (c, c))
    f = along - along.transpose(-3, -2)
    killing = f.flatten(-2) @ f.mT.flatten(-2).mT
    return torch.cat([sizes, torch.linalg.eigvalsh(killing)], dim=-1)


def balancing(
    basis: Float[Tensor, "c d d"], *, largest_condition: float = 10.0, tolerance: float = 1e-4
) -> Float[Tensor, "d d"]:
    """The change of coordinates P in which the span of P L P⁻¹ is balanced: Σ [L, Lᵀ] = 0.

    It takes the skew out of coordinates. The balanced ones have the smallest Gram determinant,
    whose logarithm is convex along exp(tX), so that there is one minimum at most. A reductive
    algebra has one; there it is closed under transposition, and what was conjugate before differs
    by an orthonormal change only (Kempf and Ness). Others have none, and are left where the
    change becomes too far from orthonormal.

    Parameters
    ----------
    basis
        (c, d, d), any basis.
    largest_condition
        Of the change.
    tolerance
        Norm of Σ [L, Lᵀ] that counts as zero.

    Examples
    --------
    >>> skewed = torch.tensor([[[0.0, -2.0], [0.5, 0.0]]])
    >>> conjugate(skewed.double(), balancing(skewed)).round(decimals=3)
    tensor([[[ 0., -1.],
             [ 1.,  0.]]], dtype=torch.float64)
    """
    basis = basis.detach().double().cpu()
    change = torch.eye(basis.shape[-1], dtype=basis.dtype)
    for _ in range(200):
        span = orthonormal(conjugate(basis, change))
        along, across, _ = moments(span)
        slope = along - across
        length = float(slope.norm())
        if length < tolerance:
            break
        moved = bracket(slope, span).flatten(1)
        off = moved - moved @ span.flatten(1).mT @ span.flatten(1)
        step = min(length**2 / max(2 * float(off.square().sum()), 1e-30), 0.5 / length)
        following = torch.linalg.matrix_exp(-step * slope) @ change
        if float(torch.linalg.cond(following)) > largest_condition:
            break
        change = following
    return change

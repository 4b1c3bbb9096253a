"""Named canonical bases of Lie algebras, as (c, d, d) tensors.

Conventions: E_ij is the matrix with a single 1 in row i, column j. A rotation in the plane (i, j),
i < j, is E_ji - E_ij, which turns axis i towards axis j. Affine algebras act on homogeneous
coordinates (x, 1), so that their matrices are one larger than the space. The metric of so(p, q)
has its p negative directions first: so(1, 3) acts on (E, px, py, pz).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import combinations, product

import torch
from jaxtyping import Float
from torch import Tensor


def _unit(d: int, *entries: tuple[int, int, float]) -> Tensor:
    matrix = torch.zeros(d, d)
    for i, j, value in entries:
        matrix[i, j] += value
    return matrix


def _stack(matrices: Iterable[Tensor]) -> Float[Tensor, "c d d"]:
    return torch.stack(list(matrices))


def _check_size(n: int, least: int, name: str) -> None:
    if n < least:
        raise ValueError(f"{name}({n}): the size must be at least {least}")


def so(n: int) -> Float[Tensor, "c n n"]:
    """Rotations of R^n: n(n-1)/2 generators.

    >>> so(2)[0]
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    """
    _check_size(n, 2, "so")
    return _stack(_unit(n, (j, i, 1.0), (i, j, -1.0)) for i, j in combinations(range(n), 2))


def so_pq(p: int, q: int) -> Float[Tensor, "c n n"]:
    """Rotations and boosts that preserve diag(-1, …, -1, 1, …, 1) with p minus signs."""
    n = p + q
    _check_size(n, 2, "so")
    generators = []
    for i, j in combinations(range(n), 2):
        is_boost = i < p <= j
        generators.append(_unit(n, (j, i, 1.0), (i, j, 1.0 if is_boost else -1.0)))
    return _stack(generators)


def lift(linear: Float[Tensor, "c n n"]) -> Float[Tensor, "c m m"]:
    """Linear generators in homogeneous coordinates: a row and a column of zeros more."""
    return torch.nn.functional.pad(linear, (0, 1, 0, 1))


def translations(n: int) -> Float[Tensor, "c m m"]:
    """Translations of R^n in homogeneous coordinates: n generators of size n + 1."""
    _check_size(n, 1, "translations")
    return _stack(_unit(n + 1, (i, n, 1.0)) for i in range(n))


def se(n: int) -> Float[Tensor, "c m m"]:
    """Rigid motions of R^n in homogeneous coordinates: rotations, then translations."""
    return torch.cat([lift(so(n)), translations(n)])


def gl(n: int) -> Float[Tensor, "c n n"]:
    """All linear maps: n² generators E_ij."""
    _check_size(n, 1, "gl")
    return _stack(_unit(n, (i, j, 1.0)) for i, j in product(range(n), repeat=2))


def sl(n: int) -> Float[Tensor, "c n n"]:
    """Linear maps of trace zero: the E_ij with i ≠ j, then E_ii - E_(i+1)(i+1)."""
    _check_size(n, 2, "sl")
    off = [_unit(n, (i, j, 1.0)) for i, j in product(range(n), repeat=2) if i != j]
    on = [_unit(n, (i, i, 1.0), (i + 1, i + 1, -1.0)) for i in range(n - 1)]
    return _stack(off + on)


def aff(n: int) -> Float[Tensor, "c m m"]:
    """Affine maps of R^n in homogeneous coordinates: gl(n), then translations."""
    return torch.cat([lift(gl(n)), translations(n)])


def sp(n: int) -> Float[Tensor, "c n n"]:
    """Linear maps that preserve the symplectic form on (q, p) of R^n, n even."""
    if n < 2 or n % 2:
        raise ValueError(f"sp({n}): the size must be even and at least 2")
    m = n // 2
    generators = [
        _unit(n, (i, j, 1.0), (m + j, m + i, -1.0)) for i, j in product(range(m), repeat=2)
    ]
    for i, j in product(range(m), repeat=2):
        if i <= j:
            pair = [(i, j), (j, i)] if i != j else [(i, i)]
            generators.append(_unit(n, *[(a, m + b, 1.0) for a, b in pair]))
            generators.append(_unit(n, *[(m + a, b, 1.0) for a, b in pair]))
    return _stack(generators)


def heisenberg(n: int = 3) -> Float[Tensor, "c n n"]:
    """Strictly upper triangular matrices with entries in the first row and last column."""
    _check_size(n, 3, "heisenberg")
    middle = range(1, n - 1)
    rows = [_unit(n, (0, i, 1.0)) for i in middle]
    columns = [_unit(n, (i, n - 1, 1.0)) for i in middle]
    return _stack([*rows, *columns, _unit(n, (0, n - 1, 1.0))])


def scaling(n: int) -> Float[Tensor, "1 n n"]:
    """The uniform scaling of R^n: the identity matrix."""
    _check_size(n, 1, "scaling")
    return torch.eye(n).unsqueeze(0)


def scalings(n: int) -> Float[Tensor, "c n n"]:
    """Independent scalings of the n axes."""
    _check_size(n, 1, "scalings")
    return _stack(_unit(n, (i, i, 1.0)) for i in range(n))


def shears(n: int) -> Float[Tensor, "c n n"]:
    """The E_ij with i < j: shears of axis i along axis j (all unipotent maps)."""
    _check_size(n, 2, "shears")
    return _stack(_unit(n, (i, j, 1.0)) for i, j in combinations(range(n), 2))


def torus(n: int) -> Float[Tensor, "c d d"]:
    """Independent rotations of the n planes (0, 1), (2, 3), …"""
    _check_size(n, 1, "torus")
    planes = range(0, 2 * n, 2)
    return _stack(_unit(2 * n, (i + 1, i, 1.0), (i, i + 1, -1.0)) for i in planes)


def diagonal(basis: Float[Tensor, "c n n"], copies: int) -> Float[Tensor, "c m m"]:
    """The same generators on every one of `copies` blocks, as one element moves all of them.

    >>> diagonal(so(2), 4).shape
    torch.Size([1, 8, 8])
    """
    return _stack(torch.block_diag(*[generator] * copies) for generator in basis)


_FAMILIES: dict[str, Callable[[int], Tensor]] = {
    "aff": aff,
    "gl": gl,
    "heisenberg": heisenberg,
    "scaling": scaling,
    "scalings": scalings,
    "se": se,
    "shears": shears,
    "sl": sl,
    "so": so,
    "sp": sp,
    "torus": torus,
    "translations": translations,
}


def names() -> list[str]:
    """The families that `named` knows."""
    return sorted(_FAMILIES)


def named(name: str) -> Float[Tensor, "c d d"]:
    """The canonical basis of a name such as ``"so(3)"``, ``"se(2)"`` or ``"so(1,3)"``.

    >>> named("so(1,3)").shape, named("se(3)").shape
    (torch.Size([6, 4, 4]), torch.Size([6, 4, 4]))
    """
    match = re.fullmatch(r"\s*([a-z]+)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)\s*", name.lower())
    if match is None or match[1] not in _FAMILIES or (match[3] and match[1] != "so"):
        known = ", ".join(f"{family}(n)" for family in names())
        raise ValueError(f"unknown group {name!r}; choose from {known}, so(p,q)")
    if match[3]:
        return so_pq(int(match[2]), int(match[3]))
    return _FAMILIES[match[1]](int(match[2]))

"""Named canonical bases of Lie algebras, as (c, d, d) tensors.

Conventions: E_ij is the matrix with a single 1 in row i, column j. A rotation in the plane (i, j),
i < j, is E_ji - E_ij, which turns axis i towards axis j. Affine algebras act on homogeneous
coordinates (x, 1), so that their matrices are one larger than the space. The metric of so(p, q)
has its p negative directions first: so(1, 3) acts on (E, px, py, pz).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from itertools import combinations, islice, product

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


def u(n: int) -> Float[Tensor, "c m m"]:
    """Unitary maps of C^n as real ones of R^2n, on (real parts, imaginary parts).

    >>> u(1)
    tensor([[[ 0., -1.],
             [ 1.,  0.]]])
    """
    _check_size(n, 1, "u")
    pairs = list(combinations(range(n), 2))
    real = [_unit(n, (j, i, 1.0), (i, j, -1.0)) for i, j in pairs]
    imaginary = [_unit(n, (j, i, 1.0), (i, j, 1.0)) for i, j in pairs]
    imaginary += [_unit(n, (i, i, 1.0)) for i in range(n)]
    return _complex(real, imaginary)


def su(n: int) -> Float[Tensor, "c m m"]:
    """Unitary maps of C^n of determinant one, as real maps of R^2n; trace i(E_jj - E_kk) last."""
    _check_size(n, 2, "su")
    whole = u(n)
    phases = whole[-n:]
    return torch.cat([whole[:-n], phases[:-1] - phases[1:]])


def _complex(real: list[Tensor], imaginary: list[Tensor]) -> Tensor:
    """A + iB as [[A, -B], [B, A]], for purely real and for purely imaginary matrices."""
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    return _stack(
        [torch.kron(torch.eye(2), a) for a in real] + [torch.kron(turn, b) for b in imaginary]
    )


def heisenberg(n: int = 3) -> Float[Tensor, "c n n"]:
    """Strictly upper triangular matrices with entries in the first row and last column."""
    _check_size(n, 3, "heisenberg")
    middle = range(1, n - 1)
    rows = [_unit(n, (0, i, 1.0)) for i in middle]
    columns = [_unit(n, (i, n - 1, 1.0)) for i in middle]
    return _stack([*rows, *columns, _unit(n, (0, n - 1, 1.0))])


def jordan(n: int) -> Float[Tensor, "1 n n"]:
    """The nilpotent E_01 + E_12 + …: every axis is moved by the next. A shear for n = 2."""
    _check_size(n, 2, "jordan")
    return _unit(n, *[(i, i + 1, 1.0) for i in range(n - 1)]).unsqueeze(0)


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


def direct_sum(*parts: Float[Tensor, "_ _ _"]) -> Float[Tensor, "c m m"]:
    """Independent algebras on complementary subspaces, each moving its own.

    >>> direct_sum(so(3), scaling(2)).shape
    torch.Size([4, 5, 5])
    """
    size = sum(part.shape[-1] for part in parts)
    dtype = reduce(torch.promote_types, [part.dtype for part in parts], torch.get_default_dtype())
    total = torch.zeros(sum(len(part) for part in parts), size, size, dtype=dtype)
    row, at = 0, 0
    for part in parts:
        k, m = part.shape[:2]
        total[row : row + k, at : at + m, at : at + m] = part
        row, at = row + k, at + m
    return total


_FAMILIES: dict[str, Callable[[int], Tensor]] = {
    "aff": aff,
    "gl": gl,
    "heisenberg": heisenberg,
    "jordan": jordan,
    "scaling": scaling,
    "scalings": scalings,
    "se": se,
    "shears": shears,
    "sl": sl,
    "so": so,
    "sp": sp,
    "su": su,
    "torus": torus,
    "translations": translations,
    "u": u,
}


# gl(100) takes 400 MB, and a number is quickly typed.
_LARGEST_NAMED = 100


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
        raise ValueError(f"unknown group {name[:40]!r}; choose from {known}, so(p,q)")
    sizes = [size for size in match.groups()[1:] if size]
    if any(len(size) > len(str(_LARGEST_NAMED)) or int(size) > _LARGEST_NAMED for size in sizes):
        raise ValueError(
            f"{name[:40]}: by name at most {_LARGEST_NAMED} dimensions; give the generators of a "
            f"larger group"
        )
    if match[3]:
        return so_pq(int(match[2]), int(match[3]))
    return _FAMILIES[match[1]](int(match[2]))


@dataclass(frozen=True)
class Family:
    """A row of the table of algebras that direct sums are made of.

    Attributes
    ----------
    name
        With ``{n}`` for the size.
    build
        The canonical basis of a size.
    least, step, most
        The sizes: `least`, `least` + `step`, … up to `most`, where there is one.
    copied
        Whether it may move several subspaces alike.
    scaled
        Whether the scaling of its own subspace may be one generator more.
    moving, similar
        Its name together with the translations of its subspace, and with the scaling as well.
    homogeneous
        Whether it is affine, and linear only in homogeneous coordinates.
    """

    name: str
    build: Callable[[int], Tensor]
    least: int
    step: int = 1
    most: int | None = None
    copied: bool = False
    scaled: bool = False
    moving: str = "{name} ⋉ translations({n})"
    similar: str = "({name} ⊕ scaling) ⋉ translations({n})"
    homogeneous: bool = False


PARTS = (
    Family("so({n})", so, 2, copied=True, scaled=True, moving="se({n})", similar="sim({n})"),
    *(
        Family(f"so({p},{{n}})", partial(so_pq, p), p, copied=True, scaled=True)
        for p in range(1, 5)
    ),
    Family("sl({n})", sl, 2, copied=True),
    Family("gl({n})", gl, 2, copied=True, moving="aff({n})"),
    Family("sp({n})", sp, 4, step=2, scaled=True),
    Family("su({n})", su, 2, scaled=True),
    Family("u({n})", u, 2, scaled=True),
    Family("scaling", scaling, 1),
    Family("shear", shears, 2, most=2, copied=True),
    Family("jordan({n})", jordan, 3),
    Family("heisenberg({n})", heisenberg, 3),
    Family("shears({n})", shears, 4),
    Family("se({n})", se, 2, homogeneous=True),
    Family("aff({n})", aff, 1, homogeneous=True),
    Family("translations({n})", translations, 2, homogeneous=True),
)
# More sums than any space of up to ten dimensions has.
_MOST_SUMS = 5000
# Several parts of one name.
_PLURALS = {"so(2)": "torus T^{k}", "scaling": "scalings({k})"}
# What a composed name is called; None where another sum is the same algebra.
_USUAL: dict[str, str | None] = {
    "scaling ⋉ translations(1)": "aff(1)",
    "so(1,1) ⊕ scaling": None,
}


@dataclass(frozen=True, eq=False)
class Part:
    """A named algebra on a subspace of its own.

    Attributes
    ----------
    name
        Of the algebra.
    linear
        Its linear generators, (k, m, m) on a subspace of dimension m.
    copies
        How many subspaces it moves alike, of dimension m together.
    translates
        Whether the translations of its subspace belong to it.
    """

    name: str
    linear: Tensor
    copies: int = 1
    translates: bool = False

    @property
    def size(self) -> int:
        """Dimension of the subspace."""
        return self.linear.shape[-1]

    @property
    def dimension(self) -> int:
        """Number of generators."""
        return len(self.linear) + self.size * self.translates

    def describe(self, space: int, axes: Sequence[int] | None = None) -> str:
        """What acts where in R^space, on which axes if it acts along axes.

        >>> Part("so(2)", diagonal(so(2), 2), copies=2).describe(5, [0, 1, 2, 3])
        'so(2) on 2 planes of R^5 at once (axes 0, 1, 2, 3)'
        """
        each = self.size // self.copies
        noun = {1: "direction", 2: "plane"}.get(each, f"{each}-dimensional subspace")
        if self.copies > 1:
            where = f"{self.copies} {noun}s of R^{space} at once"
        else:
            where = f"R^{space}" if self.size == space else f"a {noun} of R^{space}"
        return f"{self.name} on {where}{_along(axes if self.size < space else None)}"


def _along(axes: Sequence[int] | None) -> str:
    return f" (axes {', '.join(map(str, axes))})" if axes else ""


@dataclass(frozen=True, eq=False)
class NamedAlgebra:
    """An algebra with a name: a direct sum of parts, or one that has none.

    Attributes
    ----------
    name
        What it is called.
    generators
        Its canonical basis, (c, d, d).
    parts
        What it is a sum of, on consecutive axes.
    free
        How many directions nothing depends on, the last ones.
    note
        What the parts leave open.
    """

    name: str
    generators: Tensor
    parts: tuple[Part, ...] = ()
    free: int = 0
    note: str = ""

    def describe(self, space: int, axes: Sequence[int] | None = None) -> str:
        """What acts where; `axes` are what the canonical ones became, if they became axes."""
        sentences, at = [], 0
        for part in self.parts:
            own = None if axes is None else sorted(axes[at : at + part.size])
            sentences.append(part.describe(space, own))
            at += part.size
        if self.free:
            own = None if axes is None else sorted(axes[space - self.free : space])
            sentences.append(
                f"free({self.free}): anything may be added along {self.free} of the "
                f"directions{_along(own)}, because nothing depends on them"
            )
        return "; ".join([*sentences, self.note] if self.note else sentences)


@lru_cache(maxsize=16)
def direct_sums(d: int, rows: int, dimension: int) -> tuple[NamedAlgebra, ...]:
    """The algebras of that many generators of size d × d that have a name.

    Parts on complementary subspaces; to them the scaling of the whole space may be added, or
    directions that are free: anything may be added along them, because nothing depends on them.

    Parameters
    ----------
    d, rows
        Size of the matrices, and how many of their rows may differ from zero: d - 1 in
        homogeneous coordinates, where there are translations too.
    dimension
        Number of generators.

    Examples
    --------
    >>> sorted({algebra.name for algebra in direct_sums(2, 2, 2)})
    ['aff(1)', 'scalings(2)', 'so(2) ⊕ scaling']
    """
    parts = _Multisets(_parts(rows, dimension, rows < d))
    found: list[NamedAlgebra] = []
    # Sums of few parts come first, because in a large space there is no end of the others.
    for count in range(min(dimension, rows) + 1):
        more = islice(_sums_of(parts, count, d, rows, dimension), _MOST_SUMS + 1 - len(found))
        following = [*found, *more]
        if len(following) > _MOST_SUMS:
            break
        found = following
    return tuple(found)


def _sums_of(
    parts: _Multisets, count: int, d: int, rows: int, dimension: int
) -> Iterator[NamedAlgebra]:
    """Sums of so many parts: alone, with the scaling of the whole space, with free directions."""
    for chosen in parts.chosen(count, rows, dimension):
        yield _sum_of(chosen, d, rows)
    for chosen in parts.chosen(count, rows, dimension - 1):
        if _scaling_is_new(chosen, rows):
            yield _sum_of(chosen, d, rows, scaled=True)
    for free in range(1, rows):
        for chosen in parts.chosen(count, rows - free, dimension - free * d):
            # All directions but one, and nothing else, are aff(n) in homogeneous coordinates.
            if chosen or free < d - 1:
                yield _sum_of(chosen, d, rows, free=free)


@lru_cache(maxsize=64)
def _parts(largest: int, dimension: int, affine: bool) -> tuple[Part, ...]:
    """Every part that fits into a space and has at most so many generators."""
    found = [part for family in PARTS for part in _of(family, largest, dimension, affine)]
    if affine:
        found += [Part(f"translations({m})", _none(m), 1, True) for m in range(1, largest + 1)]
    fitting = [part for part in found if part.dimension <= dimension]
    # The larger first, as names list them; translations last, as `_chosen` relies on.
    return tuple(sorted(fitting, key=lambda part: (not len(part.linear), -part.dimension)))


def _none(n: int) -> Float[Tensor, "0 n n"]:
    return torch.zeros(0, n, n)


def _of(family: Family, largest: int, dimension: int, affine: bool) -> Iterator[Part]:
    """The parts of a family: copied, scaled, and with translations where there are any."""
    if family.homogeneous and affine:
        return
    for n in range(family.least, min(largest, family.most or largest) + 1, family.step):
        basis = family.build(n)
        if len(basis) > dimension:
            return
        name, m = family.name.format(n=n), basis.shape[-1]
        scaled = _usual(f"{name} ⊕ scaling") if family.scaled else None
        for copies in range(1, (largest // m if family.copied else min(1, largest // m)) + 1):
            alike = diagonal(basis, copies)
            yield Part(name, alike, copies)
            if scaled:
                yield Part(scaled, torch.cat([alike, scaling(m * copies)]), copies)
        moving = _usual(family.moving.format(name=name, n=m))
        if affine and moving and m <= largest:
            yield Part(moving, basis, translates=True)
            if scaled:
                similar = family.similar.format(name=name, n=m)
                yield Part(similar, torch.cat([basis, scaling(m)]), translates=True)


def _usual(name: str) -> str | None:
    return _USUAL.get(name, name)


class _Multisets:
    """Multisets of parts by their number, generators, and the space they need.

    In a large space most choices lead nowhere, so that it is known of each whether it does.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.shapes = [(part.size, part.dimension) for part in parts]
        # Where the parts begin that may follow one: it may come again, but translations of two
        # subspaces are those of their sum.
        self.following = [i if len(p.linear) else len(parts) for i, p in enumerate(parts)]
        self._known: dict[tuple[int, int, int, int], bool] = {}

    def chosen(
        self, count: int, size: int, dimension: int, begin: int = 0
    ) -> Iterator[tuple[Part, ...]]:
        """Every multiset of so many parts with that many generators that fits into the space."""
        if count == 0 and dimension == 0:
            yield ()
        for index in range(begin, len(self.parts)):
            if self._leads_on(index, count, size, dimension):
                part, (own, k) = self.parts[index], self.shapes[index]
                later = self.following[index]
                for rest in self.chosen(count - 1, size - own, dimension - k, later):
                    yield (part, *rest)

    def _leads_on(self, index: int, count: int, size: int, dimension: int) -> bool:
        """Whether there is such a multiset whose first part is this one."""
        own, k = self.shapes[index]
        left, size, dimension = count - 1, size - own, dimension - k
        # Every part takes some space, and has a generator.
        if left < 0 or size < left or dimension < left:
            return False
        if left == 0:
            return dimension == 0
        key = (self.following[index], left, size, dimension)
        if key not in self._known:
            later = range(key[0], len(self.parts))
            self._known[key] = any(self._leads_on(i, left, size, dimension) for i in later)
        return self._known[key]


def _scaling_is_new(parts: tuple[Part, ...], rows: int) -> bool:
    """Whether parts and the scaling of the whole space are none of the other sums."""
    traceless = all(not part.linear.diagonal(dim1=1, dim2=2).sum(1).any() for part in parts)
    fills = len(parts) == 1 and parts[0].size == rows
    still = not any(part.translates for part in parts)
    return bool(parts) and traceless and still and not fills


def _sum_of(
    parts: tuple[Part, ...], d: int, rows: int, *, scaled: bool = False, free: int = 0
) -> NamedAlgebra:
    """Parts on consecutive axes, the scaling of the whole space, and free directions last."""
    rest = rows - sum(part.size for part in parts)
    linear = direct_sum(*(part.linear for part in parts), _none(rest))
    generators = [linear if rows == d else lift(linear)]
    at = 0
    for part in parts:
        if part.translates:
            generators.append(translations(rows)[at : at + part.size])
        at += part.size
    names, note = _together([part.name for part in parts]), ""
    if scaled:
        generators.append(scaling(rows) if rows == d else lift(scaling(rows)))
        names.append("scaling")
        note = f"scaling on R^{rows}"
    name = " ⊕ ".join(names)
    if free:
        generators.append(
            _stack(_unit(d, (rows - i, j, 1.0)) for i in range(free, 0, -1) for j in range(d))
        )
        name = (
            f"({name}) ⋉ free({free})" if len(names) > 1 else " ⋉ ".join([*names, f"free({free})"])
        )
    return NamedAlgebra(name, torch.cat(generators), parts, free, note)


def _together(names: list[str]) -> list[str]:
    """Names of parts, equal ones as one where that has a name."""
    together: list[str] = []
    for name, count in Counter(names).items():
        plural = _PLURALS.get(name) if count > 1 else None
        together += [plural.format(k=count)] if plural else [name] * count
    return together

"""Tree amplitudes of a quark line that emits a Z boson and gluons, from Feynman rules.

The sum over diagrams is organised as a recursion (Berends and Giele 1988): gluons that come next to
each other in the order of colours join to off-shell currents by three- and four-gluon vertices, and
the quark line emits such currents and the Z one after another. Every diagram is in it once.

The metric is (+, -, -, -). Arrays hold components first and events last, so that numpy runs along
the events; between them is one axis for the polarisation of each boson that has a say in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache, reduce
from itertools import chain, combinations, permutations

import numpy as np

Order = tuple[int, ...]


def orders(gluons: int) -> list[Order]:
    """The orders of colours, as `ordered_amplitudes` and `colour_matrix` list them.

    >>> orders(2)
    [(0, 1), (1, 0)]
    """
    return list(permutations(range(gluons)))


def ordered_amplitudes(
    momenta: np.ndarray, z_fields: np.ndarray, gluon_fields: Sequence[np.ndarray]
) -> np.ndarray:
    """Amplitudes A(σ) of a left-handed quark, without couplings and colours.

    The amplitude for colours a of the gluons is g^n g_L Σ_σ (T^aσ1 … T^aσn) A(σ), with the quark's
    couplings g to gluons and g_L to the Z.

    Parameters
    ----------
    momenta
        Of quark, antiquark (both incoming), Z and gluons (outgoing), (events, particles, 4).
    z_fields
        Polarisation vectors of the Z, (polarisations, 4, events).
    gluon_fields
        The same for each gluon; replace one by the gluon's momentum, and the amplitude is zero.

    Returns
    -------
    ndarray
        (orders, polarisations of gluon 1, …, of gluon n, of the Z, events), complex.
    """
    bosons = len(gluon_fields) + 1

    def field(vectors: np.ndarray, boson: int) -> np.ndarray:
        axes = [1] * bosons
        axes[boson] = len(vectors)
        return vectors.swapaxes(0, 1).reshape(4, *axes, -1)

    # (particles, 4, 1, …, 1, events)
    quark, antiquark, z_momentum, *gluon_momenta = np.moveaxis(momenta, 0, -1)[
        :, :, *[None] * bosons
    ]
    z_field = field(z_fields, bosons - 1)
    ket = left_handed(quark)

    def momentum(gluons: Order) -> np.ndarray:
        return _total(gluon_momenta[i] for i in gluons)

    @cache
    def current(gluons: Order) -> np.ndarray:
        """What neighbouring gluons join to, with the propagator."""
        if len(gluons) == 1:
            return field(gluon_fields[gluons[0]], gluons[0])
        cuts = range(1, len(gluons))
        of_two = (
            _three_gluons(current(a), current(b), momentum(a), momentum(b))
            for a, b in ((gluons[:i], gluons[i:]) for i in cuts)
        )
        of_three = (
            _four_gluons(current(gluons[:i]), current(gluons[i:j]), current(gluons[j:]))
            for i, j in combinations(cuts, 2)
        )
        return _total(chain(of_two, of_three)) / square(momentum(gluons))

    @cache
    def line(gluons: Order, with_z: bool) -> np.ndarray:
        """The antiquark's end of the line after these emissions, with the propagator."""
        if not gluons and not with_z:
            return left_handed(antiquark).conj()
        outgoing = [gluon_momenta[i] for i in gluons] + [z_momentum] * with_z
        inward = _total(outgoing) - antiquark
        # i from the vertex and i from the propagator.
        return -_propagated(emitted(gluons, with_z), inward) / square(inward)

    def emitted(gluons: Order, with_z: bool) -> np.ndarray:
        """The same without the propagator: the last to be emitted is a current or the Z."""
        last = [_vertex(line(gluons[:i], with_z), current(gluons[i:])) for i in range(len(gluons))]
        if with_z:
            last.append(_vertex(line(gluons, False), z_field))
        return _total(last)

    found = [np.sum(emitted(order, True) * ket, axis=0) for order in orders(bosons - 1)]
    # Functions that call themselves live until the garbage collector comes; their arrays need not.
    current.cache_clear()
    line.cache_clear()
    return np.stack(found)


@cache
def colour_matrix(gluons: int) -> np.ndarray:
    """The sums over colours tr(T^aσ1 … T^aσn (T^aτ1 … T^aτn)†), for every two orders σ, τ.

    >>> colour_matrix(2).round(6)
    array([[ 5.333333, -0.666667],
           [-0.666667,  5.333333]])
    """
    product = np.eye(3, dtype=complex)
    for _ in range(gluons):
        product = np.einsum("...ij,ajk->...aik", product, _su3())
    # Axis k of the product carries the colour of gluon order[k].
    strings = [
        product.transpose(*np.argsort(order), gluons, gluons + 1).ravel()
        for order in orders(gluons)
    ]
    return np.real(np.stack(strings) @ np.stack(strings).conj().T)


def gluon_polarisations(momentum: np.ndarray) -> np.ndarray:
    """Two unit vectors across the direction of flight, (2, 4, events) of (4, events).

    Linear polarisations are real, which makes currents of gluons real as well, and span what
    helicities span.
    """
    direction = momentum[1:] / np.linalg.norm(momentum[1:], axis=0)
    # The axis that the direction is farthest from, so that the cross product is never small.
    farthest = np.eye(3)[np.abs(direction).argmin(axis=0)].T
    first = np.cross(direction, farthest, axis=0)
    first /= np.linalg.norm(first, axis=0)
    across = np.stack([first, np.cross(direction, first, axis=0)])
    return np.concatenate([np.zeros_like(across[:, :1]), across], axis=1)


def massive_polarisations(momentum: np.ndarray) -> np.ndarray:
    """Three unit vectors, axes of space in the rest frame, (3, 4, events) of (4, events)."""
    mass = np.sqrt(square(momentum))
    energy, space = momentum[0], momentum[1:]
    along = space / mass
    vectors = np.eye(3)[..., None] + along[:, None] * (space / (energy + mass))
    return np.concatenate([along[:, None], vectors], axis=1)


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The Minkowski product, components on the first axis."""
    return a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3]


def square(a: np.ndarray) -> np.ndarray:
    """The Minkowski square, components on the first axis."""
    return dot(a, a)


def left_handed(momentum: np.ndarray) -> np.ndarray:
    """The spinor u of a massless particle with u u† = E - p·σ, (2, …) of (4, …).

    In the chiral basis it is the half of Dirac's spinor that a left-handed quark has; without a
    mass, emissions do not mix it with the other half.
    """
    energy, x, y, z = momentum
    # E + |p_z| is never small; the other entry follows from the determinant, which is 0.
    large = np.sqrt(energy + np.abs(z))
    forward = z > 0
    across = -(x - 1j * y) / large
    return np.stack([np.where(forward, across, large), np.where(forward, large, across.conj())])


def _vertex(bra: np.ndarray, a: np.ndarray) -> np.ndarray:
    """The row of two times a·σ̄ = a⁰ + a·σ."""
    across = a[1] + 1j * a[2]
    return np.stack(
        [
            bra[0] * (a[0] + a[3]) + bra[1] * across,
            bra[0] * across.conj() + bra[1] * (a[0] - a[3]),
        ]
    )


def _propagated(bra: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The row of two times q·σ = q⁰ - q·σ."""
    return _vertex(bra, np.concatenate([q[:1], -q[1:]]))


def _three_gluons(a: np.ndarray, b: np.ndarray, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Two conserved currents of momenta p and q at a vertex."""
    return 2 * dot(q, a) * b - 2 * dot(p, b) * a + dot(a, b) * (p - q)


def _four_gluons(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Three currents at a vertex, in their order."""
    return 2 * dot(a, c) * b - dot(b, c) * a - dot(a, b) * c


def _total(terms: Iterable[np.ndarray]) -> np.ndarray:
    return reduce(np.add, terms)


@cache
def _su3() -> np.ndarray:
    """Generators T^a of SU(3) in the fundamental representation, tr(T^a T^b) = δ^ab / 2."""
    matrices = np.zeros((8, 3, 3), dtype=complex)
    for index, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
        matrices[2 * index, [i, j], [j, i]] = 1
        matrices[2 * index + 1, [i, j], [j, i]] = -1j, 1j
    matrices[6] = np.diag([1, -1, 0])
    matrices[7] = np.diag([1, 1, -2]) / math.sqrt(3)
    return matrices / 2

"""Events of a quark and an antiquark that become a Z boson and gluons: kinematics only.

Momenta are (E, px, py, pz) in GeV on the last axis. An event lists quark, antiquark, Z, gluons.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

Z_MASS = 91.188
# Those of the reference set, of gluons only: so that none is soft or collinear.
LEAST_PT = 20.0
LEAST_SEPARATION = 0.4


def scatter(
    n: int,
    gluons: int,
    rng: np.random.Generator,
    *,
    energies: tuple[float, float] = (200.0, 2000.0),
    rapidity: float = 1.5,
) -> np.ndarray:
    """Events in the laboratory, with the beam along z and the quark moving upwards.

    Energies in the centre of mass have a uniform logarithm; final states are uniform in phase
    space. Gluons have a transverse momentum above 20 GeV and are apart by ΔR > 0.4. Events that
    fail these cuts are drawn anew with their energies, which makes small energies rarer.

    Parameters
    ----------
    n
        Number of events.
    gluons
        Number of gluons, at least 1.
    rng
        Source of randomness.
    energies
        Least and largest energy in the centre of mass.
    rapidity
        Largest rapidity of the centre of mass along the beam, which is uniform up to it.

    Returns
    -------
    ndarray
        (n, 3 + gluons, 4).

    Examples
    --------
    >>> event = scatter(1, 2, np.random.default_rng(0))[0]
    >>> bool(np.allclose(event[:2].sum(0), event[2:].sum(0)))
    True
    """
    if gluons < 1:
        raise ValueError(f"gluons={gluons}: at least one is needed")
    if not Z_MASS < energies[0] <= energies[1]:
        raise ValueError(f"energies={energies}: least and largest, above the Z's {Z_MASS} GeV")
    kept = [np.empty((0, 3 + gluons, 4))]
    while (missing := n - sum(map(len, kept))) > 0:
        # Few draws cost as much as many.
        drawn = max(2 * missing, 1000)
        logarithms = rng.uniform(math.log(energies[0]), math.log(energies[1]), drawn)
        events = collide(np.exp(logarithms), gluons, rng)
        events = events[passes_cuts(events[:, 3:])]
        if not len(events):
            raise ValueError(
                f"energies={energies}: none of {drawn} events passes the cuts, pT > {LEAST_PT} GeV "
                f"and ΔR > {LEAST_SEPARATION}; raise the energies"
            )
        kept.append(events)
    events = np.concatenate(kept)[:n]
    return _along_beam(rng.uniform(-rapidity, rapidity, n), events)


def collide(energy: np.ndarray, gluons: int, rng: np.random.Generator) -> np.ndarray:
    """Events in the centre of mass without cuts, uniform in phase space, beam along z.

    Parameters
    ----------
    energy
        In the centre of mass, (n,); above the mass of the Z.
    gluons
        Number of gluons, at least 1.
    rng
        Source of randomness.

    Returns
    -------
    ndarray
        (n, 3 + gluons, 4).
    """
    n = len(energy)
    beam = np.zeros((n, 2, 4))
    beam[:, :, 0] = energy[:, None] / 2
    beam[:, :, 3] = energy[:, None] / 2 * [1, -1]
    recoil = _recoiling_mass(energy, gluons, rng) if gluons > 1 else np.zeros(n)
    z, others = decay(energy, Z_MASS, recoil, _directions(n, rng))
    others = others[:, None]
    if gluons > 1:
        others = boosted(massless(recoil, gluons, rng), others)
    return np.concatenate([beam, z[:, None], others], axis=1)


def passes_cuts(gluons: np.ndarray) -> np.ndarray:
    """Whether all gluons are hard and apart, (events,) of (events, gluons, 4).

    ΔR² = Δη² + Δφ², with pseudorapidity η and azimuth φ. Boosts along the beam do not change it.
    """
    pt = np.hypot(gluons[..., 1], gluons[..., 2])
    eta = np.arcsinh(gluons[..., 3] / pt)
    phi = np.arctan2(gluons[..., 2], gluons[..., 1])
    passed = pt.min(axis=1) > LEAST_PT
    for i, j in combinations(range(gluons.shape[1]), 2):
        turn = np.abs(phi[:, i] - phi[:, j])
        distance = np.hypot(eta[:, i] - eta[:, j], np.minimum(turn, 2 * math.pi - turn))
        passed &= distance > LEAST_SEPARATION
    return passed


def random_lorentz(n: int, rng: np.random.Generator, rapidity: float) -> np.ndarray:
    """Rotations, uniform, followed by boosts in uniform directions, (n, 4, 4).

    Parameters
    ----------
    n
        Number of matrices.
    rng
        Source of randomness.
    rapidity
        Of the boosts: uniform from 0 to this.
    """
    # Gram-Schmidt of normal vectors is uniform once the signs are those of a rotation.
    frames, triangular = np.linalg.qr(rng.standard_normal((n, 3, 3)))
    frames *= np.sign(np.diagonal(triangular, axis1=1, axis2=2))[:, None]
    frames[..., 0] *= np.linalg.det(frames)[:, None]
    rotations = np.zeros((n, 4, 4))
    rotations[:, 0, 0] = 1
    rotations[:, 1:, 1:] = frames
    chi = rng.uniform(0, rapidity, n)[:, None]
    velocities = np.concatenate([np.cosh(chi), np.sinh(chi) * _directions(n, rng)], axis=1)
    # Rows of a transposed matrix are images of the unit vectors.
    return boosted(rotations.mT, velocities[:, None]).mT


def boosted(momenta: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """Momenta of a rest frame, as seen where that frame has momentum `frame`.

    Parameters
    ----------
    momenta, frame
        (…, 4); `frame` must be timelike.
    """
    # The mass from factors: the difference of squares would lose digits at large boosts.
    size = np.linalg.norm(frame[..., 1:], axis=-1, keepdims=True)
    energy = frame[..., :1]
    mass = np.sqrt((energy - size) * (energy + size))
    along = np.sum(momenta[..., 1:] * frame[..., 1:], axis=-1, keepdims=True) / mass
    time = energy / mass * momenta[..., :1] + along
    shift = (momenta[..., :1] + along * mass / (energy + mass)) / mass
    return np.concatenate([time, momenta[..., 1:] + shift * frame[..., 1:]], axis=-1)


def decay(
    mass: np.ndarray, first: float, second: np.ndarray, directions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The two products of a decay at rest, with these masses; the first goes along `directions`.

    Parameters
    ----------
    mass, second
        (n,).
    first
        Mass of the first product.
    directions
        Unit vectors, (n, 3).
    """
    size = _root_of_triangle(mass, first, second) / (2 * mass)
    momentum = size[:, None] * directions

    def product(own_mass: np.ndarray | float, vector: np.ndarray) -> np.ndarray:
        return np.concatenate([np.hypot(own_mass, size)[:, None], vector], axis=1)

    return product(first, momentum), product(second, -momentum)


def massless(mass: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """So many massless particles of a total mass, at rest together, uniform in phase space.

    RAMBO (Kleiss, Stirling and Ellis 1986): independent isotropic momenta, boosted to their rest
    frame and scaled.

    Parameters
    ----------
    mass
        Total mass of each event, (n,).
    count
        Number of particles, at least 2.
    rng
        Source of randomness.

    Returns
    -------
    ndarray
        (n, count, 4).
    """
    n = len(mass)
    sizes = rng.gamma(2.0, size=(n, count, 1))
    free = np.concatenate([sizes, sizes * _directions((n, count), rng)], axis=-1)
    total = free.sum(axis=1, keepdims=True)
    opposite = total * [1, -1, -1, -1]
    at_rest = boosted(free, opposite)
    return at_rest * (mass / at_rest[..., 0].sum(axis=1))[:, None, None]


def _recoiling_mass(energy: np.ndarray, gluons: int, rng: np.random.Generator) -> np.ndarray:
    """Masses M of all gluons together.

    Phase space is that of the decay into Z and M, times that of M into gluons: the density of M² is
    √λ(s, m_Z², M²) (M²)^(n - 2). The power is drawn, and the root, which falls with M, accepted.
    """
    mass = np.empty_like(energy)
    open_events = np.arange(len(energy))
    while len(open_events):
        e = energy[open_events]
        share = rng.uniform(size=len(e)) ** (1 / (gluons - 1))
        drawn = np.sqrt(share) * (e - Z_MASS)
        root = _root_of_triangle(e, Z_MASS, drawn) / (e**2 - Z_MASS**2)
        mass[open_events] = drawn
        open_events = open_events[rng.uniform(size=len(e)) > root]
    return mass


def _root_of_triangle(a: np.ndarray, b: float, c: np.ndarray) -> np.ndarray:
    """√λ(a², b², c²), with the triangle function λ in factors."""
    return np.sqrt((a - b - c) * (a + b + c) * (a - b + c) * (a + b - c))


def _directions(shape: int | tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Uniform unit vectors, (…, 3)."""
    upwards = rng.uniform(-1, 1, shape)
    azimuth = rng.uniform(0, 2 * math.pi, shape)
    across = np.sqrt(1 - upwards**2)
    return np.stack([across * np.cos(azimuth), across * np.sin(azimuth), upwards], axis=-1)


def _along_beam(rapidity: np.ndarray, events: np.ndarray) -> np.ndarray:
    still = np.zeros_like(rapidity)
    frame = np.stack([np.cosh(rapidity), still, still, np.sinh(rapidity)], axis=-1)
    return boosted(events, frame[:, None])

"""Scattering amplitudes: Feynman rules, phase space, the task, and the published file."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import combinations, permutations
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from lieaugmenter.data.amplitudes import (
    ALPHA_STRONG,
    FEATURES,
    SIN2_WEAK,
    FourMomenta,
    amplitudes,
    amplitudes_from_file,
    pair_mass,
    squared_amplitude,
    z_couplings,
)
from lieaugmenter.data.feynman import (
    colour_matrix,
    dot,
    gluon_polarisations,
    massive_polarisations,
    ordered_amplitudes,
    square,
)
from lieaugmenter.data.files import DataError
from lieaugmenter.data.phase_space import (
    Z_MASS,
    boosted,
    collide,
    decay,
    massless,
    random_lorentz,
    scatter,
)
from lieaugmenter.data.task import Task
from lieaugmenter.lie.catalogue import so_pq

METRIC = np.diag([1.0, -1.0, -1.0, -1.0])
STRONG = 4 * math.pi * ALPHA_STRONG  # g²
CF, CA = 4 / 3, 3.0


@pytest.fixture
def stream() -> np.random.Generator:
    return np.random.default_rng(0)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The Minkowski product along the last axis."""
    return dot(np.moveaxis(a, -1, 0), np.moveaxis(b, -1, 0))


def directions(n: int, rng: np.random.Generator) -> np.ndarray:
    vectors = rng.standard_normal((n, 3))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# -- what a squared amplitude must satisfy --------------------------------------------------------


@pytest.mark.parametrize("gluons", [1, 2, 3])
def test_gluon_polarised_along_its_momentum_does_not_couple(
    gluons: int, stream: np.random.Generator
) -> None:
    events = scatter(100, gluons, stream)
    z_fields = massive_polarisations(events[:, 2].T)
    fields = [gluon_polarisations(events[:, 3 + i].T) for i in range(gluons)]

    def largest(gluon_fields: list[np.ndarray]) -> np.ndarray:
        found = ordered_amplitudes(events, z_fields, gluon_fields)
        return np.abs(found).reshape(-1, len(events)).max(axis=0)

    usual = largest(fields)
    for i in range(gluons):
        momentum = events[:, 3 + i].T[None]
        along = largest([*fields[:i], momentum, *fields[i + 1 :]])
        assert (along / (usual * momentum[0, 0])).max() < 1e-10


def test_polarisation_along_a_wrong_vector_does_couple(stream: np.random.Generator) -> None:
    events = scatter(100, 2, stream)
    z_fields = massive_polarisations(events[:, 2].T)
    fields = [gluon_polarisations(events[:, 3].T), events[:, 3].T[None]]
    assert np.abs(ordered_amplitudes(events, z_fields, fields)).max() > 1e-3


@pytest.mark.parametrize("gluons", [1, 2, 3])
def test_squared_amplitude_is_lorentz_invariant(gluons: int, stream: np.random.Generator) -> None:
    events = scatter(200, gluons, stream)
    moved = events @ random_lorentz(200, stream, rapidity=2.0).mT
    assert not np.allclose(moved, events, rtol=0.1)
    assert np.allclose(squared_amplitude(moved), squared_amplitude(events), rtol=1e-10, atol=0)


@pytest.mark.parametrize("gluons", [1, 2, 3])
def test_squared_amplitude_is_the_same_in_a_mirror(
    gluons: int, stream: np.random.Generator
) -> None:
    events = scatter(50, gluons, stream)
    assert np.allclose(
        squared_amplitude(events * [1, 1, -1, 1]), squared_amplitude(events), rtol=1e-10, atol=0
    )


@pytest.mark.parametrize("gluons", [1, 2, 3])
def test_squared_amplitude_has_its_dimension(gluons: int, stream: np.random.Generator) -> None:
    """All momenta twice as large, that of the Z with its mass: GeV^(2 - 2n)."""
    events = scatter(50, gluons, stream)
    expected = 2.0 ** (2 - 2 * gluons) * squared_amplitude(events)
    assert np.allclose(squared_amplitude(2 * events), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("gluons", [2, 3])
def test_gluons_may_be_exchanged_and_others_not(gluons: int, stream: np.random.Generator) -> None:
    events = scatter(50, gluons, stream)
    expected = squared_amplitude(events)
    for order in permutations(range(3, 3 + gluons)):
        exchanged = events[:, [0, 1, 2, *order]]
        assert np.allclose(squared_amplitude(exchanged), expected, rtol=1e-10, atol=0)
    wrong = events.copy()
    wrong[:, [0, 3]] = events[:, [3, 0]]
    assert not np.allclose(squared_amplitude(wrong), expected, rtol=0.1)


@pytest.mark.parametrize("gluons", [1, 2, 3])
def test_quark_and_antiquark_may_be_exchanged(gluons: int, stream: np.random.Generator) -> None:
    events = scatter(50, gluons, stream)
    exchanged = events[:, [1, 0, *range(2, 3 + gluons)]]
    assert np.allclose(squared_amplitude(exchanged), squared_amplitude(events), rtol=1e-10, atol=0)


def test_the_z_couples_as_to_up_type_quarks() -> None:
    # The vector and axial couplings are 1/2 - 4/3 sin²θ and 1/2, up to one factor.
    left, right = z_couplings()
    assert (left + right) / (left - right) == pytest.approx(1 - 8 / 3 * SIN2_WEAK, rel=1e-12)


def test_one_gluon_has_the_closed_formula(stream: np.random.Generator) -> None:
    events = scatter(500, 1, stream)
    quark, antiquark, z = (events[:, i].T for i in range(3))
    s, t, u = square(quark + antiquark), square(quark - z), square(antiquark - z)
    left, right = z_couplings()
    coupling = STRONG * (left**2 + right**2) / 2
    closed = 8 / 9 * coupling * (t**2 + u**2 + 2 * s * Z_MASS**2) / (t * u)
    assert np.allclose(squared_amplitude(events), closed, rtol=1e-10, atol=0)


def test_two_gluons_agree_with_eight_diagrams(stream: np.random.Generator) -> None:
    events = scatter(10, 2, stream)
    expected = [square_of_eight_diagrams(*event) for event in events]
    assert np.allclose(squared_amplitude(events), expected, rtol=1e-10, atol=0)


def square_of_eight_diagrams(
    p: np.ndarray, pbar: np.ndarray, z: np.ndarray, k1: np.ndarray, k2: np.ndarray
) -> float:
    """|M|² with Dirac's 4 × 4 matrices, traces over the quarks' spins, and f^abc."""
    left, right = z_couplings()
    gamma = dirac_matrices()
    gamma5 = 1j * gamma[0] @ gamma[1] @ gamma[2] @ gamma[3]
    chiral = (left * (np.eye(4) - gamma5) + right * (np.eye(4) + gamma5)) / 2
    z_vertex = 1j * gamma @ chiral
    gluon_vertex = 1j * math.sqrt(STRONG)

    def slash(a: np.ndarray) -> np.ndarray:
        return np.einsum("m,mij->ij", METRIC @ a, gamma)

    def chain(*emissions: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Vertices and momenta of what the line emits, from the antiquark's end on."""
        vertices, momenta = zip(*emissions, strict=True)
        total, inward = vertices[0], -pbar
        for vertex, momentum in zip(vertices[1:], momenta[:-1], strict=True):
            inward = inward + momentum
            propagator = 1j * slash(inward) / (inward @ METRIC @ inward)
            total = total @ propagator @ vertex
        return total

    sum_of_z = -METRIC + np.outer(METRIC @ z, METRIC @ z) / Z_MASS**2
    both = k1 + k2
    total = 0.0
    for e1 in gluon_polarisations(k1[:, None])[..., 0]:
        for e2 in gluon_polarisations(k2[:, None])[..., 0]:
            g1, g2 = (gluon_vertex * slash(e1), k1), (gluon_vertex * slash(e2), k2)
            # All three momenta come in: -k1, -k2 and their sum.
            joint = (
                (e1 @ METRIC @ e2) * (k2 - k1)
                + (e1 @ METRIC @ (-k2 - both)) * e2
                + (e2 @ METRIC @ (both + k1)) * e1
            )
            joint = joint * math.sqrt(STRONG) * (-1j / (both @ METRIC @ both))
            g3 = (gluon_vertex * slash(joint), both)
            z0 = (z_vertex, z)
            parts = [
                chain(z0, g1, g2) + chain(g1, z0, g2) + chain(g1, g2, z0),
                chain(z0, g2, g1) + chain(g2, z0, g1) + chain(g2, g1, z0),
                chain(z0, g3) + chain(g3, z0),
            ]
            barred = [gamma[0] @ part.conj().mT @ gamma[0] for part in parts]
            for i, part in enumerate(parts):
                for j, other in enumerate(barred):
                    spins = np.einsum(
                        "ab,mbc,cd,nda,mn->", slash(pbar), part, slash(p), other, sum_of_z
                    )
                    total += (colours()[i, j] * spins).real
    return total / 36 / 2


def dirac_matrices() -> np.ndarray:
    """γ^μ in Dirac's basis, not the chiral one of the code."""
    pauli = np.array([[[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]])
    spatial = np.kron(np.array([[0, 1], [-1, 0]]), pauli)
    return np.stack([np.diag([1, 1, -1, -1]), *spatial])


def colours() -> np.ndarray:
    """Sums over colours of T^a T^b, T^b T^a and f^abc T^c with each other's conjugates."""
    generators = []
    for i, j in combinations(range(3), 2):
        for entry in (1, -1j):
            matrix = np.zeros((3, 3), dtype=complex)
            matrix[i, j], matrix[j, i] = entry, np.conj(entry)
            generators.append(matrix / 2)
    generators += [np.diag([1, -1, 0]) / 2, np.diag([1, 1, -2]) / math.sqrt(12)]
    t = np.array(generators)
    ab = np.einsum("aij,bjk->abik", t, t)
    ba = ab.swapaxes(0, 1)
    f = -2j * np.einsum("abij,cji->abc", ab - ba, t)
    fc = np.einsum("abc,cij->abij", f, t)
    basis = np.stack([ab, ba, fc]).reshape(3, -1)
    return basis @ basis.conj().T


def test_colours_of_three_gluons_are_the_known_ninths() -> None:
    """64/9 with itself; -8/9 with neighbours exchanged; 1/9 turned round; 10/9 backwards."""
    known = {(0, 1, 2): 64, (0, 2, 1): -8, (1, 0, 2): -8, (1, 2, 0): 1, (2, 0, 1): 1, (2, 1, 0): 10}
    assert np.allclose(9 * colour_matrix(3)[0], list(known.values()), atol=1e-12)


# -- limits ---------------------------------------------------------------------------------------


def with_extra_gluon(
    quark: np.ndarray, antiquark: np.ndarray, extra: np.ndarray, ways: np.ndarray
) -> np.ndarray:
    """Events of a Z, a gluon and an extra gluon: the first two along `ways` in their rest frame."""
    rest = quark + antiquark - extra
    mass = np.sqrt(product(rest, rest))
    z, gluon = decay(mass, Z_MASS, np.zeros(len(mass)), ways)
    outgoing = boosted(np.stack([z, gluon], axis=1), rest[:, None])
    return np.concatenate(
        [np.stack([quark, antiquark], 1), outgoing, extra[:, None]],
        axis=1,
    )


def test_soft_gluon_factorises_into_dipoles(stream: np.random.Generator) -> None:
    n = 50
    quark, antiquark = scatter(n, 1, stream)[:, :2].swapaxes(0, 1)
    ways = directions(n, stream)
    soft = 100 * np.concatenate([np.ones((n, 1)), directions(n, stream)], axis=1)
    hard = with_extra_gluon(quark, antiquark, np.zeros((n, 4)), ways)[:, :4]
    gluon = hard[:, 3]

    def dipole(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return product(a, b) / (product(a, soft) * product(b, soft))

    eikonal = CA * (dipole(quark, gluon) + dipole(antiquark, gluon))
    eikonal -= dipole(quark, antiquark) / CA
    limit = STRONG * eikonal * squared_amplitude(hard)

    def error(scale: float) -> np.ndarray:
        events = with_extra_gluon(quark, antiquark, scale * soft, ways)
        # 2! of the two gluons against 1! of one.
        return np.abs(2 * scale**2 * squared_amplitude(events) / limit - 1)

    assert np.median(error(1e-3)) > 1e-4
    assert np.median(error(1e-5)) < 1e-4
    assert error(1e-7).max() < 1e-4


def test_gluon_along_the_quark_factorises_into_the_quarks_splitting(
    stream: np.random.Generator,
) -> None:
    n = 50
    hard_quark, antiquark = scatter(n, 1, stream)[:, :2].swapaxes(0, 1)
    ways, x = directions(n, stream), stream.uniform(0.3, 0.7, (n, 1))
    quark = hard_quark / x
    extra = collinear((1 - x) * quark, antiquark, size=1e-2)
    hard = with_extra_gluon(hard_quark, antiquark, np.zeros((n, 4)), ways)[:, :4]
    splitting = CF * (1 + x**2) / (1 - x) / x
    limit = STRONG * splitting[:, 0] / product(quark, extra) * squared_amplitude(hard)
    found = 2 * squared_amplitude(with_extra_gluon(quark, antiquark, extra, ways))
    assert np.allclose(found, limit, rtol=2e-3, atol=0)


@pytest.mark.parametrize("gluons", [2, 3])
def test_collinear_gluons_factorise_into_the_gluons_splitting(
    gluons: int, stream: np.random.Generator
) -> None:
    n = 20
    hard = scatter(n, gluons - 1, stream)
    z = stream.uniform(0.3, 0.7, (n, 1))
    parent, antiquark = hard[:, -1], hard[:, 1]
    ratios = []
    # Spins make the plane of the splitting matter; its mean over directions does not.
    for angle in np.arange(8) * math.pi / 4:
        first = collinear(z * parent, antiquark, size=1e-2, angle=angle)
        second = collinear((1 - z) * parent, antiquark, size=1e-2, angle=angle + math.pi)
        events = np.concatenate([hard[:, :-1], first[:, None], second[:, None]], axis=1)
        # Both lean on the antiquark's momentum, which pays for it.
        events[:, 1] += first + second - parent
        splitting = 2 * CA * (z / (1 - z) + (1 - z) / z + z * (1 - z))[:, 0]
        limit = STRONG * splitting / product(first, second) * squared_amplitude(hard)
        ratios.append(gluons * squared_amplitude(events) / limit)
    assert np.std(ratios, axis=0).max() > 1e-3
    assert np.allclose(np.mean(ratios, axis=0), 1, rtol=1e-4, atol=0)


def collinear(
    momentum: np.ndarray, other: np.ndarray, size: float, angle: float = 0.0
) -> np.ndarray:
    """A massless momentum that is off `momentum` by so much across it and across `other`."""
    basis = np.moveaxis(gluon_polarisations(momentum.T), -1, 1)
    across = size * (math.cos(angle) * basis[0] + math.sin(angle) * basis[1])
    overlap = product(momentum, other)[:, None]
    across = across - product(across, other)[:, None] / overlap * momentum
    return momentum + across + size**2 / (2 * overlap) * other


# -- events ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("gluons", [1, 2, 3])
def test_events_conserve_momentum_are_on_shell_and_pass_the_cuts(
    gluons: int, stream: np.random.Generator
) -> None:
    events = scatter(2000, gluons, stream, energies=(300.0, 1000.0), rapidity=1.0)
    assert events.shape == (2000, 3 + gluons, 4)
    assert np.allclose(events[:, :2].sum(1), events[:, 2:].sum(1), atol=1e-9)
    masses = product(events, events)
    assert np.allclose(masses[:, 2], Z_MASS**2, atol=1e-6)
    assert np.allclose(np.delete(masses, 2, axis=1), 0, atol=1e-6)
    assert (events[:, :2, 1:3] == 0).all()
    assert (events[:, 0, 3] > 0).all()
    total = events[:, :2].sum(1)
    energy = np.sqrt(product(total, total))
    assert 300 - 1e-6 <= energy.min() < 350
    assert 900 < energy.max() <= 1000 + 1e-6
    assert 0.9 < np.abs(np.arctanh(total[:, 3] / total[:, 0])).max() < 1.0 + 1e-9
    px, py, pz = np.moveaxis(events[:, 3:, 1:], -1, 0)
    pt = np.hypot(px, py)
    assert 20 < pt.min() < 25
    eta, phi = np.arctanh(pz / events[:, 3:, 0]), np.angle(px + 1j * py)
    for i, j in combinations(range(gluons), 2):
        turn = np.angle(np.exp(1j * (phi[:, i] - phi[:, j])))
        assert 0.4 < np.hypot(eta[:, i] - eta[:, j], turn).min() < 0.6


def test_two_gluons_are_uniform_in_the_dalitz_plane(stream: np.random.Generator) -> None:
    """At a squared mass x of Z and gluon the plane is (s - x)(x - m²) / x wide."""
    n, energy = 100_000, 250.0
    events = collide(np.full(n, energy), 2, stream)
    pair = events[:, 2] + events[:, 3]
    found = product(pair, pair)
    x = np.linspace(Z_MASS**2, energy**2, 10_001)
    width = (energy**2 - x) * (x - Z_MASS**2) / x
    for power in (1, 2):
        moment = (x**power * width).sum() / width.sum()
        error = (found**power).std() / math.sqrt(n)
        assert abs((found**power).mean() - moment) < 4 * error


def test_massless_particles_have_the_energies_of_flat_phase_space(
    stream: np.random.Generator,
) -> None:
    """Of three, 2E / M has density 2x: its mean is 2/3, its mean square 1/2."""
    momenta = massless(np.full(50_000, 10.0), 3, stream)
    assert np.allclose(momenta.sum(1), [10, 0, 0, 0], atol=1e-10)
    assert np.allclose(product(momenta, momenta), 0, atol=1e-10)
    share = momenta[:, 0, 0] / 5
    for power, expected in ((1, 2 / 3), (2, 1 / 2)):
        assert abs((share**power).mean() - expected) < 4 * (share**power).std() / math.sqrt(50_000)


def test_random_frames_are_proper_and_as_fast_as_asked(stream: np.random.Generator) -> None:
    matrices = random_lorentz(2000, stream, rapidity=1.5)
    assert np.allclose(matrices.mT @ METRIC @ matrices, METRIC, atol=1e-12)
    assert np.allclose(np.linalg.det(matrices), 1)
    chi = np.arccosh(matrices[:, 0, 0])
    assert abs(chi.mean() - 0.75) < 4 * 1.5 / math.sqrt(12 * 2000)
    assert chi.max() <= 1.5
    assert np.abs(matrices[:, 1:, 1:].mean(0)).max() < 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rng: scatter(1, 0, rng), "gluons=0: at least one is needed"),
        (lambda rng: scatter(1, 1, rng, energies=(90.0, 200.0)), "least and largest, above"),
        (lambda rng: scatter(1, 1, rng, energies=(300.0, 200.0)), "least and largest, above"),
        (lambda rng: scatter(1, 1, rng, energies=(95.0, 100.0)), "none of 1000 events passes"),
        (lambda rng: squared_amplitude(np.ones((2, 3, 4))), r"momenta have shape \(2, 3, 4\)"),
    ],
)
def test_impossible_requests_are_refused(
    call: Callable[[np.random.Generator], object], message: str, stream: np.random.Generator
) -> None:
    with pytest.raises(ValueError, match=message):
        call(stream)


# -- tasks ----------------------------------------------------------------------------------------


def raw(task: FourMomenta, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Momenta and logarithms as they were before they were standardised."""
    x, y = getattr(task, f"x_{part}").double(), getattr(task, f"y_{part}").double()
    return (task.unit * x).numpy(), (task.log_mean + task.log_deviation * y[:, 0]).numpy()


def whole(task: FourMomenta) -> tuple[torch.Tensor, torch.Tensor]:
    assert task.x_validation is not None
    assert task.y_validation is not None
    x = torch.cat([task.x_train, task.x_validation, task.x_test])
    return x, torch.cat([task.y_train, task.y_validation, task.y_test])


@pytest.mark.parametrize("gluons", [1, 2])
def test_amplitudes_are_a_task_with_the_lorentz_algebra(gluons: int) -> None:
    task = amplitudes(400, 100, 500, gluons=gluons)
    assert isinstance(task, Task)
    assert task.name == "z" + "g" * gluons
    assert task.feature_names == FEATURES
    assert task.kinds == (0, 0, 1, *[2] * gluons)
    assert task.x_train.shape == (400, 3 + gluons, 4)
    assert task.y_test.shape == (500, 1)
    assert task.x_train.dtype == task.y_train.dtype == torch.float32
    assert torch.equal(task.generator, so_pq(1, 3))
    x, y = whole(task)
    assert float(x.std()) == pytest.approx(1, rel=1e-3)
    assert float(y.mean()) == pytest.approx(0, abs=1e-5)
    assert float(y.std(correction=0)) == pytest.approx(1, rel=1e-5)


def test_target_is_the_logarithm_of_the_squared_amplitude() -> None:
    task = amplitudes(20, 10, 200)
    momenta, logarithms = raw(task, "test")
    # What single precision leaves of small invariants.
    assert np.allclose(np.log(squared_amplitude(momenta)), logarithms, atol=1e-2)


def test_random_frames_move_events_and_not_their_targets() -> None:
    laboratory, moved = amplitudes(40, 10, 50), amplitudes(40, 10, 50, boost=1.0)
    assert torch.allclose(laboratory.y_train, moved.y_train, atol=1e-6)
    assert float(laboratory.x_train[:, :2, 1:3].abs().max()) == 0
    assert float(moved.x_train[:, 0, 1:].abs().min(0).values.max()) > 0
    before, after = (raw(task, "train")[0] for task in (laboratory, moved))
    change = product(after, after) - product(before, before)
    assert (np.abs(change) / (after[..., 0] ** 2 + before[..., 0] ** 2)).max() < 1e-6


def test_seed_fixes_a_task_and_sizes_do_not_change_its_other_parts() -> None:
    task, again, other = (amplitudes(40, 10, 50, seed=seed) for seed in (0, 0, 1))
    smaller = amplitudes(20, 10, 50)
    assert torch.equal(task.x_train, again.x_train)
    assert not torch.allclose(task.x_train, other.x_train)
    assert np.allclose(raw(task, "test")[0], raw(smaller, "test")[0], rtol=1e-5)
    assert np.allclose(raw(task, "test")[1], raw(smaller, "test")[1], atol=1e-4)
    with pytest.raises(ValueError, match="n_validation=0: at least one sample"):
        amplitudes(1, 0, 1)


def test_lorentz_algebra_is_all_that_leaves_the_mass_of_a_pair_alone() -> None:
    """d/dt log m² along L is 2 Pᵀ η L P / m²: 16 unknowns, a null space of dimension 6."""
    task = pair_mass(500, 10, 10)
    total = raw(task, "train")[0].sum(1)
    rows = np.einsum("ni,nj->nij", total @ METRIC, total).reshape(-1, 16)
    rows = rows / product(total, total)[:, None]
    singular = np.linalg.svd(rows, compute_uv=False)
    assert singular[9] > 1e-2 * singular[0]
    assert singular[10] < 1e-12 * singular[0]
    assert np.abs(rows @ so_pq(1, 3).double().reshape(6, 16).T.numpy()).max() < 1e-12
    masses = product(*[raw(task, "train")[0]] * 2)
    assert 0.2 < masses.min() < 0.3
    assert 2.2 < masses.max() < 2.3


# -- the published file ---------------------------------------------------------------------------


def published(gluons: int = 2, n: int = 100) -> np.ndarray:
    """Rows as in the published arrays."""
    events = scatter(n, gluons, np.random.default_rng(0))
    return np.concatenate([events.reshape(n, -1), squared_amplitude(events)[:, None]], axis=1)


def check_published(task: FourMomenta, rows: np.ndarray) -> None:
    """40 % for training, then 50 % for testing, then 10 % for validation."""
    n = len(rows)
    for part, piece in (
        ("train", rows[: int(0.4 * n)]),
        ("test", rows[int(0.4 * n) : int(0.9 * n)]),
        ("validation", rows[int(0.9 * n) :]),
    ):
        momenta, logarithms = raw(task, part)
        assert len(momenta) == len(piece)
        assert np.allclose(momenta.reshape(len(piece), -1), piece[:, :-1], rtol=1e-5, atol=1e-3)
        assert np.allclose(logarithms, np.log(piece[:, -1]), atol=1e-5)


@pytest.mark.parametrize("gluons", [1, 2, 3])
def test_array_of_a_process_is_read_and_split_in_its_order(tmp_path: Path, gluons: int) -> None:
    rows, path = published(gluons), tmp_path / "rows.npy"
    np.save(path, rows)
    task = amplitudes_from_file(path, gluons=gluons)
    assert task.name == "z" + "g" * gluons
    check_published(task, rows)
    check_published(amplitudes_from_file(path, gluons=gluons, events=50), rows[:50])


def test_hdf5_is_read_by_the_name_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / "amplitudes.hdf5"
    with h5py.File(path, "w") as file:
        file["zg"], file["zgg"] = published(1), published(2)
    check_published(amplitudes_from_file(path), published(2))
    check_published(amplitudes_from_file(path, gluons=1, events=20), published(1)[:20])
    with pytest.raises(DataError, match="no array 'zggg'; the file has zg, zgg"):
        amplitudes_from_file(path, gluons=3)
    path.write_text("zgg")
    with pytest.raises(DataError, match="not a readable HDF5 file"):
        amplitudes_from_file(path)


def test_hdf5_without_h5py_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    path = tmp_path / "amplitudes.hdf5"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"HDF5 needs: pip install 'lieaugmenter\[hdf5\]'\. A"):
        amplitudes_from_file(path)


def damaged(column: int, value: float) -> np.ndarray:
    rows = published()
    rows[7, column] = value
    return rows


def reordered(particles: list[int], components: list[int]) -> np.ndarray:
    rows = published()
    momenta = rows[:, :-1].reshape(len(rows), 5, 4)[:, particles][:, :, components]
    return np.concatenate([momenta.reshape(len(rows), -1), rows[:, -1:]], axis=1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (published(1), r"shape \(100, 17\); with 2 gluons expected \(events, 21\)"),
        (published()[0], r"shape \(21,\)"),
        (np.float64(1.0), "not a readable .npy of the process zgg"),
        (published()[:9], "9 events; at least 10"),
        (published().astype("U9"), "dtype <U9; floats"),
        (published().astype(object), "not a readable .npy .*Python objects"),
        (damaged(3, np.nan), "the array has 1 non-finite value"),
        (damaged(-1, 0.0), "row 7 has a squared amplitude that is not positive"),
        (reordered([0, 1, 2, 3, 4], [1, 2, 3, 0]), r"has a mass, .*each as \(E, px, py, pz\)"),
        (reordered([0, 1, 3, 2, 4], [0, 1, 2, 3]), "the gluon has a mass, .*in this order"),
        (damaged(3, 0.0), "in row 7 the quark has a mass"),
    ],
)
def test_each_damaged_file_gets_its_message(tmp_path: Path, rows: object, message: str) -> None:
    path = tmp_path / "zgg.npy"
    np.save(path, rows)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match=message):
        amplitudes_from_file(path)


@pytest.mark.parametrize("precision", [np.float16, np.float32, np.float64])
def test_rounding_to_any_precision_leaves_momenta_on_their_shells(
    tmp_path: Path, precision: type[np.floating]
) -> None:
    path = tmp_path / "zgg.npy"
    rows = published()
    # Half precision has no squared amplitudes this small; their unit is nobody's concern.
    rows[:, -1] /= rows[:, -1].mean()
    np.save(path, rows.astype(precision))
    assert len(amplitudes_from_file(path).x_train) == 40


def test_too_few_events_are_not_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "zgg.npy"
    np.save(path, published())
    for events in (-3, 0, 9):
        with pytest.raises(ValueError, match=f"events={events}: at least 10"):
            amplitudes_from_file(path, events=events)


def test_missing_and_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such file. The published events are .*lorentz-gatr"):
        amplitudes_from_file(tmp_path / "none.npy")
    path = tmp_path / "zgg.npy"
    np.save(path, published())
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"not a readable \.npy"):
        amplitudes_from_file(path)
    other = tmp_path / "zgg.txt"
    other.write_text("1 2 3")
    with pytest.raises(DataError, match=r"unknown kind of file '\.txt'; choose from \.npy, \.h5"):
        amplitudes_from_file(other)

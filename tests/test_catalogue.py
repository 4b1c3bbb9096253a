"""Named bases: as many generators as the textbook says, closed, and preserving what they should."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
import torch

from lieaugmenter.lie import catalogue
from lieaugmenter.lie.brackets import closure_residual

# name: (number of generators, size of the matrices)
SIZES = {
    "so(2)": (1, 2),
    "so(3)": (3, 3),
    "so(5)": (10, 5),
    "so(1,3)": (6, 4),
    "so(2,2)": (6, 4),
    "so(1,1)": (1, 2),
    "se(2)": (3, 3),
    "se(3)": (6, 4),
    "gl(1)": (1, 1),
    "gl(3)": (9, 3),
    "sl(2)": (3, 2),
    "sl(3)": (8, 3),
    "aff(2)": (6, 3),
    "sp(2)": (3, 2),
    "sp(4)": (10, 4),
    "sp(6)": (21, 6),
    "heisenberg(3)": (3, 3),
    "heisenberg(5)": (7, 5),
    "jordan(3)": (1, 3),
    "scaling(4)": (1, 4),
    "scalings(4)": (4, 4),
    "shears(2)": (1, 2),
    "shears(4)": (6, 4),
    "torus(3)": (3, 6),
    "translations(3)": (3, 4),
    "su(2)": (3, 4),
    "su(3)": (8, 6),
    "u(1)": (1, 2),
    "u(2)": (4, 4),
}
every_name = pytest.mark.parametrize("name", SIZES)


@every_name
def test_dimensions_are_the_textbooks(name: str) -> None:
    count, size = SIZES[name]
    assert catalogue.named(name).shape == (count, size, size)


@every_name
def test_generators_are_independent(name: str) -> None:
    basis = catalogue.named(name)
    assert int(torch.linalg.matrix_rank(basis.flatten(1))) == len(basis)


@every_name
def test_every_family_is_closed_under_brackets(name: str) -> None:
    assert closure_residual(catalogue.named(name)) < 1e-6


def test_every_family_is_tested() -> None:
    assert {name.split("(")[0] for name in SIZES} == set(catalogue.names())


@pytest.mark.parametrize(("p", "q"), [(0, 3), (1, 1), (1, 3), (2, 2), (3, 1)])
def test_so_pq_preserves_its_metric(p: int, q: int) -> None:
    metric = torch.diag(torch.tensor([-1.0] * p + [1.0] * q))
    basis = catalogue.so_pq(p, q)
    assert torch.equal(basis.mT @ metric + metric @ basis, torch.zeros_like(basis))


def test_so_0_n_is_so_n() -> None:
    assert torch.equal(catalogue.so_pq(0, 3), catalogue.so(3))


@pytest.mark.parametrize("n", [2, 4, 6])
def test_sp_preserves_the_symplectic_form(n: int) -> None:
    zero, one = torch.zeros(n // 2, n // 2), torch.eye(n // 2)
    omega = torch.cat([torch.cat([zero, one], 1), torch.cat([-one, zero], 1)])
    basis = catalogue.sp(n)
    assert torch.equal(basis.mT @ omega + omega @ basis, torch.zeros_like(basis))


@pytest.mark.parametrize("n", [2, 4])
def test_sl_has_no_trace(n: int) -> None:
    assert bool((catalogue.sl(n).diagonal(dim1=1, dim2=2).sum(1) == 0).all())


@pytest.mark.parametrize("name", ["se(2)", "se(3)", "aff(2)", "translations(3)"])
def test_affine_algebras_have_a_last_row_of_zeros(name: str) -> None:
    assert bool((catalogue.named(name)[:, -1] == 0).all())


def test_a_rotation_turns_the_first_axis_towards_the_second() -> None:
    turned = torch.linalg.matrix_exp(torch.pi / 2 * catalogue.so(3)[0]) @ torch.eye(3)[0]
    torch.testing.assert_close(turned, torch.eye(3)[1], atol=1e-6, rtol=0)


def test_diagonal_moves_all_blocks_alike() -> None:
    basis = catalogue.diagonal(catalogue.so(2), 3)
    assert basis.shape == (1, 6, 6)
    # The rows of three planes, each with its own columns.
    assert torch.equal(basis[0].view(3, 2, 3, 2).diagonal(dim1=0, dim2=2)[..., 1], basis[0, :2, :2])
    assert float(basis.norm()) ** 2 == pytest.approx(3 * 2)


@pytest.mark.parametrize("spelling", ["so(3)", "SO(3)", " so ( 3 ) "])
def test_names_are_read_generously(spelling: str) -> None:
    assert torch.equal(catalogue.named(spelling), catalogue.so(3))


@pytest.mark.parametrize("wrong", ["s0(3)", "so", "so(3", "so(a)", "se(1,3)", "so(1,2,3)", ""])
def test_a_wrong_name_is_answered_with_the_right_ones(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"unknown group .* aff\(n\), gl\(n\), .* so\(p,q\)"):
        catalogue.named(wrong)


@pytest.mark.parametrize(
    ("small", "message"),
    [
        ("so(1)", r"so\(1\): the size must be at least 2"),
        ("sl(1)", "at least 2"),
        ("sp(3)", "must be even"),
        ("heisenberg(2)", "at least 3"),
        ("translations(0)", "at least 1"),
        ("su(1)", "at least 2"),
        ("jordan(1)", "at least 2"),
    ],
)
def test_a_size_too_small_is_refused_readably(small: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        catalogue.named(small)


@pytest.mark.parametrize("n", [2, 3])
def test_unitary_maps_are_rotations_that_commute_with_i(n: int) -> None:
    i = torch.kron(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), torch.eye(n))
    for basis in (catalogue.u(n), catalogue.su(n)):
        assert torch.equal(basis, -basis.mT)
        assert torch.equal(basis @ i, i @ basis)
    # The complex trace is zero: its imaginary part is half the trace of -iL.
    assert not bool((catalogue.su(n) @ i).diagonal(dim1=1, dim2=2).sum(1).any())


def test_a_direct_sum_has_the_highest_precision_of_its_parts() -> None:
    third = catalogue.scaling(2).double() / 3
    total = catalogue.direct_sum(catalogue.so(3), third)
    assert torch.equal(total[3:, 3:, 3:], third)
    assert catalogue.direct_sum(catalogue.so(3), catalogue.so(2)).dtype == torch.float32


def test_a_direct_sum_acts_on_each_part_alone() -> None:
    basis = catalogue.direct_sum(catalogue.so(3), catalogue.sl(2))
    assert basis.shape == (6, 5, 5)
    assert torch.equal(basis[:3, :3, :3], catalogue.so(3))
    assert torch.equal(basis[3:, 3:, 3:], catalogue.sl(2))
    assert not bool(basis[:3, 3:].any())
    assert not bool(basis[3:, :3].any())


@pytest.mark.parametrize(("d", "rows"), [(2, 2), (3, 3), (3, 2), (4, 4), (4, 3), (5, 5)])
@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 6])
def test_every_direct_sum_is_an_algebra_of_its_dimension(d: int, rows: int, dimension: int) -> None:
    for algebra in catalogue.direct_sums(d, rows, dimension):
        generators = algebra.generators
        assert generators.shape == (dimension, d, d), algebra.name
        assert int(torch.linalg.matrix_rank(generators.flatten(1))) == dimension, algebra.name
        assert closure_residual(generators) < 1e-6, algebra.name
        assert not bool(generators[:, rows:].any()), algebra.name


def test_direct_sums_are_called_by_their_usual_names() -> None:
    planes = {algebra.name for algebra in catalogue.direct_sums(4, 4, 2)}
    assert {"torus T^2", "so(2) ⊕ scaling", "scalings(2)", "so(2) ⊕ shear"} <= planes
    moving = {algebra.name for algebra in catalogue.direct_sums(3, 2, 3)}
    assert {"se(2)", "scaling ⋉ translations(2)", "aff(1) ⊕ scaling"} <= moving
    assert "sim(2)" in {algebra.name for algebra in catalogue.direct_sums(3, 2, 4)}
    free = {algebra.name for algebra in catalogue.direct_sums(3, 3, 4)}
    assert {"so(2) ⋉ free(1)", "so(3) ⊕ scaling", "gl(2)"} <= free


def test_directions_on_which_nothing_depends_are_told_by_their_axes() -> None:
    (found,) = [a for a in catalogue.direct_sums(4, 4, 9) if a.name == "so(2) ⋉ free(2)"]
    said = "free(2): anything may be added along 2 of the directions"
    assert f"{said} (axes 0, 3), because nothing" in found.describe(4, [2, 1, 3, 0])
    assert f"{said}, because nothing" in found.describe(4)


@pytest.mark.parametrize(
    ("rows", "dimension", "affine"), [(3, 4, False), (4, 5, False), (3, 6, True)]
)
def test_multisets_of_parts_are_those_that_fit(rows: int, dimension: int, affine: bool) -> None:
    """As all multisets tell, of which translations of a subspace may be no part but once."""
    parts = catalogue._parts(rows, dimension, affine)
    for count in range(rows + 1):
        fitting = [
            chosen
            for chosen in combinations_with_replacement(parts, count)
            if sum(part.size for part in chosen) <= rows
            and sum(part.dimension for part in chosen) == dimension
            and sum(not len(part.linear) for part in chosen) <= 1
        ]
        assert list(catalogue._Multisets(parts).chosen(count, rows, dimension)) == fitting


def test_algebras_beside_many_irrelevant_columns_are_listed() -> None:
    """Of twelve columns a plane that turns, and seven on which nothing depends."""
    names = {algebra.name for algebra in catalogue.direct_sums(12, 12, 85)}
    assert "so(2) ⋉ free(7)" in names
    assert len(names) < 200


def test_there_is_an_end_of_direct_sums_in_a_large_space() -> None:
    found = catalogue.direct_sums(16, 16, 6)
    assert 100 < len(found) <= 5000
    assert "so(1,3)" in {algebra.name for algebra in found}

"""The algebra of generators."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lieaugmenter.lie import catalogue
from lieaugmenter.lie.brackets import (
    balancing,
    bracket,
    centre_dimension,
    closure_residual,
    conjugate,
    derived_series,
    fingerprint,
    killing_form,
    lower_central_series,
    moments,
    orthonormal,
    preserved_forms,
    signature,
    structure_constants,
)

ALGEBRAS = ["so(3)", "so(1,3)", "sl(2)", "sl(3)", "se(3)", "aff(2)", "heisenberg(3)", "sp(4)"]
every_algebra = pytest.mark.parametrize("name", ALGEBRAS)


def mixed(basis: Tensor, rng: torch.Generator) -> Tensor:
    """Another basis of the same span."""
    c = len(basis)
    mixing = torch.eye(c) + 0.3 * torch.randn(c, c, generator=rng)
    return torch.einsum("ij,jab->iab", mixing, basis)


def test_brackets_of_rotations_cycle() -> None:
    x, y, z = catalogue.so(3)
    assert torch.equal(bracket(x, y), z)
    assert torch.equal(bracket(y, x), -z)
    assert torch.equal(bracket(x, x), torch.zeros(3, 3))


@every_algebra
def test_structure_constants_rebuild_the_brackets(name: str, rng: torch.Generator) -> None:
    basis = mixed(catalogue.named(name), rng)
    rebuilt = torch.einsum("ijk,kab->ijab", structure_constants(basis), basis)
    expected = bracket(basis.unsqueeze(1), basis.unsqueeze(0))
    torch.testing.assert_close(rebuilt, expected, atol=1e-5, rtol=1e-5)


@every_algebra
def test_structure_constants_are_antisymmetric(name: str, rng: torch.Generator) -> None:
    f = structure_constants(mixed(catalogue.named(name), rng))
    torch.testing.assert_close(f, -f.transpose(0, 1), atol=1e-5, rtol=0)


@every_algebra
def test_structure_constants_satisfy_jacobi(name: str, rng: torch.Generator) -> None:
    f = structure_constants(mixed(catalogue.named(name), rng)).double()
    # [L_i, [L_j, L_k]] = f_jkm f_iml L_l; its cyclic sum over i, j, k is zero.
    nested = torch.einsum("jkm,iml->ijkl", f, f)
    cyclic = nested + nested.permute(2, 0, 1, 3) + nested.permute(1, 2, 0, 3)
    assert float(cyclic.abs().max()) < 1e-4 * max(1.0, float(nested.abs().max()))


@every_algebra
def test_closure_does_not_depend_on_the_basis(name: str, rng: torch.Generator) -> None:
    assert closure_residual(mixed(catalogue.named(name), rng)) < 1e-6


def test_closure_of_what_is_no_algebra_is_clearly_off(rng: torch.Generator) -> None:
    two_rotations = catalogue.so(3)[:2]
    # The bracket is the third rotation, of norm √2, divided by the norms √2 · √2.
    assert closure_residual(two_rotations) == pytest.approx(2**-0.5, abs=1e-6)
    assert closure_residual(torch.randn(3, 4, 4, generator=rng)) > 0.1


def test_closure_does_not_see_the_scale(rng: torch.Generator) -> None:
    basis = torch.randn(2, 3, 3, generator=rng)
    assert closure_residual(7.0 * basis) == pytest.approx(closure_residual(basis), rel=1e-5)


def test_one_generator_is_always_closed(rng: torch.Generator) -> None:
    assert closure_residual(torch.randn(1, 5, 5, generator=rng)) == 0.0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("so(3)", (3, 0, 0)),
        ("so(4)", (6, 0, 0)),
        ("so(1,3)", (3, 0, 3)),
        ("sl(2)", (1, 0, 2)),
        ("se(3)", (3, 3, 0)),
        ("heisenberg(3)", (0, 3, 0)),
    ],
)
def test_killing_form_has_the_textbooks_signature(
    name: str, expected: tuple[int, int, int], rng: torch.Generator
) -> None:
    basis = catalogue.named(name)
    assert signature(killing_form(basis)) == expected
    assert signature(killing_form(mixed(basis, rng))) == expected


def test_killing_form_of_so_n_is_a_multiple_of_the_trace_form() -> None:
    basis = catalogue.so(5)
    trace = torch.einsum("iab,jba->ij", basis, basis)
    torch.testing.assert_close(killing_form(basis), (5 - 2) * trace, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("so(3)", [1.0, 1.0, 1.0]),
        ("so(1,3)", [-1.0, 1.0, 1.0, 1.0]),
        ("so(2,2)", [-1.0, -1.0, 1.0, 1.0]),
    ],
)
def test_preserved_form_is_the_metric(name: str, form: list[float], rng: torch.Generator) -> None:
    found = preserved_forms(mixed(catalogue.named(name), rng))
    assert found.shape == (1, len(form), len(form))
    metric = torch.diag(torch.tensor(form))
    cosine = (found[0] * metric).sum() / (found[0].norm() * metric.norm())
    assert abs(float(cosine)) == pytest.approx(1.0, abs=1e-5)


def test_preserved_forms_are_an_orthonormal_set_of_all() -> None:
    """Three independent planes keep three lengths; four planes moved alike keep more."""
    found = preserved_forms(catalogue.torus(3))
    assert found.shape == (3, 6, 6)
    gram = torch.einsum("mij,nij->mn", found, found)
    torch.testing.assert_close(gram, torch.eye(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(found, found.mT)
    # Symmetric commuting with J on R^2 ⊗ R^2: a 2 × 2 Hermitian form, four real numbers.
    assert len(preserved_forms(catalogue.diagonal(catalogue.so(2), 2))) == 4


def test_scalings_and_symplectic_maps_preserve_no_symmetric_form() -> None:
    assert len(preserved_forms(catalogue.scaling(3))) == 0
    assert len(preserved_forms(catalogue.sp(4))) == 0


def test_a_slightly_wrong_basis_keeps_its_form_within_the_tolerance(rng: torch.Generator) -> None:
    basis = catalogue.so(3) + 1e-3 * torch.randn(3, 3, 3, generator=rng)
    assert len(preserved_forms(basis, tolerance=1e-6)) == 0
    assert len(preserved_forms(basis, tolerance=1e-2)) == 1


def test_symplectic_maps_preserve_one_antisymmetric_form() -> None:
    omega = preserved_forms(catalogue.sp(4), symmetric=False)
    assert omega.shape == (1, 4, 4)
    torch.testing.assert_close(omega, -omega.mT)
    assert len(preserved_forms(catalogue.so(4), symmetric=False)) == 0
    assert len(preserved_forms(catalogue.scaling(1), symmetric=False)) == 0


@every_algebra
def test_an_orthonormal_basis_has_the_same_span(name: str, rng: torch.Generator) -> None:
    basis = mixed(catalogue.named(name), rng)
    found = orthonormal(basis)
    gram = torch.einsum("iab,jab->ij", found, found)
    torch.testing.assert_close(gram, torch.eye(len(basis), dtype=torch.float64))
    both = torch.cat([found, basis.double()]).flatten(1)
    assert int(torch.linalg.matrix_rank(both, rtol=1e-5)) == len(basis)


def test_dependent_generators_are_dropped() -> None:
    x, y, z = catalogue.so(3)
    assert len(orthonormal(torch.stack([x, y, z, x + y]))) == 3


@pytest.mark.parametrize(
    ("name", "derived", "lower_central", "centre"),
    [
        ("so(3)", (3,), (3,), 0),
        ("so(2)", (1, 0), (1, 0), 1),
        ("gl(3)", (9, 8), (9, 8), 1),
        ("se(2)", (3, 2, 0), (3, 2), 0),
        ("se(3)", (6,), (6,), 0),
        ("aff(1)", (2, 1, 0), (2, 1), 0),
        ("heisenberg(3)", (3, 1, 0), (3, 1, 0), 1),
        ("shears(4)", (6, 3, 0), (6, 3, 1, 0), 1),
        ("scalings(3)", (3, 0), (3, 0), 3),
        ("su(2)", (3,), (3,), 0),
        ("u(2)", (4, 3), (4, 3), 1),
    ],
)
def test_series_and_centre_are_the_textbooks(
    name: str,
    derived: tuple[int, ...],
    lower_central: tuple[int, ...],
    centre: int,
    rng: torch.Generator,
) -> None:
    basis = mixed(catalogue.named(name), rng)
    assert derived_series(basis) == derived
    assert lower_central_series(basis) == lower_central
    assert centre_dimension(basis) == centre


def test_noise_is_no_bracket_within_the_tolerance(rng: torch.Generator) -> None:
    basis = catalogue.scalings(3) + 0.01 * torch.randn(3, 3, 3, generator=rng)
    assert derived_series(basis, tolerance=1e-4) != (3, 0)
    assert derived_series(basis, tolerance=0.1) == (3, 0)
    assert centre_dimension(basis, tolerance=0.1) == 3


@every_algebra
def test_moments_turn_with_the_span_and_the_fingerprint_stays(
    name: str, rng: torch.Generator
) -> None:
    basis = catalogue.named(name)
    axes = torch.linalg.qr(torch.randn(*basis.shape[1:], generator=rng, dtype=torch.float64)).Q
    before = orthonormal(basis)
    after = orthonormal(conjugate(mixed(basis, rng).double(), axes))
    torch.testing.assert_close(moments(after), axes @ moments(before) @ axes.mT)
    torch.testing.assert_close(fingerprint(after), fingerprint(before), atol=1e-6, rtol=0)


def test_fingerprints_of_different_algebras_differ() -> None:
    """Five algebras of dimension 3 on R^3."""
    prints = [
        fingerprint(orthonormal(catalogue.named(name)))
        for name in ("so(3)", "so(1,2)", "scalings(3)", "se(2)", "heisenberg(3)")
    ]
    apart = torch.cdist(torch.stack(prints), torch.stack(prints)) + torch.eye(5)
    assert float(apart.min()) > 0.3


@pytest.mark.parametrize("name", ["so(3)", "so(1,3)", "sp(4)", "scalings(3)", "torus(2)"])
def test_balancing_undoes_any_skew(name: str, rng: torch.Generator) -> None:
    """Closed under transposition afterwards, as the canonical basis is."""
    basis = catalogue.named(name)
    d = basis.shape[-1]
    skew = torch.linalg.matrix_exp(0.3 * torch.randn(d, d, generator=rng, dtype=torch.float64))
    skewed = conjugate(basis.double(), skew)
    balanced = orthonormal(conjugate(skewed, balancing(skewed)))
    assert len(orthonormal(torch.cat([balanced, balanced.mT]), tolerance=1e-2)) == len(basis)
    torch.testing.assert_close(
        fingerprint(balanced), fingerprint(orthonormal(basis)), atol=1e-3, rtol=0
    )


def test_what_cannot_be_balanced_is_left_in_time() -> None:
    """A shear becomes shorter without end."""
    change = balancing(catalogue.shears(2), largest_condition=5.0)
    assert float(torch.linalg.cond(change)) <= 5.0

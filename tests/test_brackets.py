"""The algebra of generators."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lieaugmenter.lie import catalogue
from lieaugmenter.lie.brackets import (
    bracket,
    closure_residual,
    killing_form,
    preserved_forms,
    structure_constants,
)

ALGEBRAS = ["so(3)", "so(1,3)", "sl(2)", "sl(3)", "se(3)", "aff(2)", "heisenberg(3)", "sp(4)"]
every_algebra = pytest.mark.parametrize("name", ALGEBRAS)


def mixed(basis: Tensor, rng: torch.Generator) -> Tensor:
    """Another basis of the same span."""
    c = len(basis)
    mixing = torch.eye(c) + 0.3 * torch.randn(c, c, generator=rng)
    return torch.einsum("ij,jab->iab", mixing, basis)


def signature(form: Tensor) -> tuple[int, int, int]:
    """How many eigenvalues are negative, zero and positive."""
    values = torch.linalg.eigvalsh(form.double())
    negative, positive = int((values < -1e-4).sum()), int((values > 1e-4).sum())
    return negative, len(values) - negative - positive, positive


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

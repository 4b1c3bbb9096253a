"""Algebras get their right name through any basis, any coordinates and a little noise."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.identify import identify, snap
from lieaugmenter.analysis.invariants import measure
from lieaugmenter.lie import catalogue
from lieaugmenter.lie.brackets import conjugate, orthonormal
from lieaugmenter.lie.catalogue import diagonal, direct_sum, lift, named, translations


def embedded(basis: Tensor, more: int) -> Tensor:
    """The same generators in a space of more dimensions, which they leave alone."""
    return torch.nn.functional.pad(basis, (0, more, 0, more))


def unit(d: int, *entries: tuple[int, int]) -> Tensor:
    """The matrices with a single 1."""
    matrices = torch.zeros(len(entries), d, d)
    for matrix, (i, j) in zip(matrices, entries, strict=True):
        matrix[i, j] = 1.0
    return matrices


def row(d: int, i: int) -> Tensor:
    """All maps onto one axis."""
    return unit(d, *[(i, j) for j in range(d)])


so2, so3, scaling = catalogue.so(2), catalogue.so(3), catalogue.scaling

# What acts on vectors. Names of the catalogue, and what they are found to be.
FROM_CATALOGUE = {
    "so(2)": "so(2)",
    "so(3)": "so(3)",
    "so(4)": "so(4)",
    "so(5)": "so(5)",
    "so(1,1)": "so(1,1)",
    "so(1,2)": "so(1,2)",
    "so(1,3)": "so(1,3)",
    "so(2,2)": "so(2,2)",
    "so(1,4)": "so(1,4)",
    "so(2,3)": "so(2,3)",
    "gl(1)": "scaling",
    "gl(2)": "gl(2)",
    "gl(3)": "gl(3)",
    "sl(2)": "sl(2)",
    "sl(3)": "sl(3)",
    "sp(2)": "sl(2)",
    "sp(4)": "sp(4)",
    "su(2)": "su(2)",
    "su(3)": "su(3)",
    "u(1)": "so(2)",
    "u(2)": "u(2)",
    "heisenberg(3)": "heisenberg(3)",
    "heisenberg(5)": "heisenberg(5)",
    "jordan(3)": "jordan(3)",
    "shears(2)": "shear",
    "shears(3)": "heisenberg(3)",
    "shears(4)": "shears(4)",
    "scaling(4)": "scaling",
    "scalings(2)": "scalings(2)",
    "scalings(3)": "scalings(3)",
    "torus(2)": "torus T^2",
    "torus(3)": "torus T^3",
    "se(2)": "se(2)",
    "se(3)": "se(3)",
    "aff(1)": "aff(1)",
    "aff(2)": "aff(2)",
    "translations(2)": "translations(2)",
    "translations(3)": "translations(3)",
}
# A label, the expected name, the generators.
COMPOSED = {
    "a plane of R^5": ("so(2)", embedded(so2, 3)),
    "so(3) in R^5": ("so(3)", embedded(so3, 2)),
    "so(4) in R^6": ("so(4)", embedded(catalogue.so(4), 2)),
    "gl(2) in R^3": ("gl(2)", embedded(catalogue.gl(2), 1)),
    "sl(2) in R^4": ("sl(2)", embedded(catalogue.sl(2), 2)),
    "boost in R^4": ("so(1,1)", embedded(named("so(1,1)"), 2)),
    "shear in R^4": ("shear", embedded(catalogue.shears(2), 2)),
    "scaling of a plane of R^5": ("scaling", embedded(scaling(2), 3)),
    "four planes alike": ("so(2)", diagonal(so2, 4)),
    "two planes of R^6 alike": ("so(2)", embedded(diagonal(so2, 2), 2)),
    "two vectors alike": ("so(3)", diagonal(so3, 2)),
    "two four-momenta alike": ("so(1,3)", diagonal(named("so(1,3)"), 2)),
    "sl(2) twice": ("sl(2)", diagonal(catalogue.sl(2), 2)),
    "complex numbers": ("so(2) ⊕ scaling", torch.cat([so2, scaling(2)])),
    "similar vectors": ("so(3) ⊕ scaling", torch.cat([so3, scaling(3)])),
    "scaling of the rest": ("so(3) ⊕ scaling", direct_sum(so3, scaling(2))),
    "scaling of all": ("so(3) ⊕ scaling", torch.cat([embedded(so3, 2), scaling(5)])),
    "massless": ("so(1,3) ⊕ scaling", torch.cat([named("so(1,3)"), scaling(4)])),
    "two scalings": ("scalings(2)", direct_sum(scaling(2), scaling(3))),
    "so(3) and so(2)": ("so(3) ⊕ so(2)", direct_sum(so3, so2)),
    "so(3) and so(3)": ("so(3) ⊕ so(3)", direct_sum(so3, so3)),
    "so(3) and so(3) in R^8": ("so(3) ⊕ so(3)", embedded(direct_sum(so3, so3), 2)),
    "sl(2) and so(2)": ("sl(2) ⊕ so(2)", direct_sum(catalogue.sl(2), so2)),
    "sl(2) and sl(2)": ("sl(2) ⊕ sl(2)", direct_sum(catalogue.sl(2), catalogue.sl(2))),
    "so(1,3) and so(2)": ("so(1,3) ⊕ so(2)", direct_sum(named("so(1,3)"), so2)),
    "torus in R^6": ("torus T^2", embedded(catalogue.torus(2), 2)),
    "uneven torus": ("torus T^2", direct_sum(diagonal(so2, 2), so2)),
    "rotation and shear": ("so(2) ⊕ shear", direct_sum(so2, catalogue.shears(2))),
    "heisenberg and scaling": (
        "heisenberg(3) ⊕ scaling",
        direct_sum(catalogue.heisenberg(3), scaling(1)),
    ),
    "one feature is free": ("free(1)", row(4, 3)),
    "rotation, one feature is free": (
        "so(2) ⋉ free(1)",
        torch.cat([embedded(so2, 1), row(3, 2)]),
    ),
    "upper triangular": ("scaling ⋉ free(1)", unit(2, (0, 0), (0, 1), (1, 1))),
}
ONE_PARAMETER = {
    "rates 1:2": ("so(2) with rates 1:2", direct_sum(so2, 2 * so2).sum(0, keepdim=True)),
    "rates 1:3": (
        "so(2) with rates 1:3",
        embedded(direct_sum(so2, 3 * so2).sum(0, keepdim=True), 1),
    ),
    "rates 1:1.618": ("torus line", direct_sum(so2, 1.618 * so2).sum(0, keepdim=True)),
    "spiral": ("spiral", so2 + 0.5 * scaling(2)),
    "unequal scaling": ("anisotropic scaling", torch.diag(torch.tensor([1.0, 2.0, -0.5]))[None]),
}
# What acts on points of space in homogeneous coordinates.
AFFINE = {
    "se(2)": ("se(2)", named("se(2)")),
    "se(3)": ("se(3)", named("se(3)")),
    "aff(1)": ("aff(1)", named("aff(1)")),
    "aff(2)": ("aff(2)", named("aff(2)")),
    "aff(3)": ("aff(3)", named("aff(3)")),
    "translations(1)": ("translations(1)", translations(1)),
    "translations(2)": ("translations(2)", translations(2)),
    "translations(2) of R^3": ("translations(2)", translations(3)[:2]),
    "translation of R^3": ("translations(1)", translations(3)[:1]),
    "so(2)": ("so(2)", lift(so2)),
    "so(3)": ("so(3)", lift(so3)),
    "sl(2)": ("sl(2)", lift(catalogue.sl(2))),
    "gl(2)": ("gl(2)", lift(catalogue.gl(2))),
    "scaling": ("scaling", lift(scaling(2))),
    "shear": ("shear", lift(catalogue.shears(2))),
    "complex": ("so(2) ⊕ scaling", lift(torch.cat([so2, scaling(2)]))),
    "sim(2)": ("sim(2)", torch.cat([lift(so2), lift(scaling(2)), translations(2)])),
    "sim(3)": ("sim(3)", torch.cat([lift(so3), lift(scaling(3)), translations(3)])),
    "zoom and move": (
        "scaling ⋉ translations(2)",
        torch.cat([lift(scaling(2)), translations(2)]),
    ),
    "keeps areas": ("sl(2) ⋉ translations(2)", torch.cat([lift(catalogue.sl(2)), translations(2)])),
    "se(2) of R^3": ("se(2)", torch.cat([lift(embedded(so2, 1)), translations(3)[:2]])),
    "cylinder": (
        "so(2) ⊕ translations(1)",
        torch.cat([lift(embedded(so2, 1)), translations(3)[2:]]),
    ),
    "cylinder and plane": (
        "se(2) ⊕ translations(1)",
        torch.cat([lift(embedded(so2, 1)), translations(3)]),
    ),
    "screw": ("screw", lift(embedded(so2, 1)) + 0.7 * translations(3)[2:]),
}
ON_VECTORS = (
    {name: (expected, named(name)) for name, expected in FROM_CATALOGUE.items()}
    | COMPOSED
    | ONE_PARAMETER
)
CASES = [(label, expected, basis, 0) for label, (expected, basis) in ON_VECTORS.items()]
CASES += [(f"affine {label}", expected, basis, 1) for label, (expected, basis) in AFFINE.items()]
every_case = pytest.mark.parametrize(
    ("expected", "basis", "affine"),
    [pytest.param(*case, id=label) for label, *case in CASES],
)

# Algebras that have no name here.
UNNAMED = {
    "triangular of trace zero": torch.tensor([[[1.0, 0.0], [0.0, -1.0]], [[0.0, 1.0], [0.0, 0.0]]]),
    "a torus within a torus": torch.stack(
        [
            catalogue.torus(3)[0] + 2 * catalogue.torus(3)[1],
            catalogue.torus(3)[1] - catalogue.torus(3)[2],
        ]
    ),
    "rates 1:2 and scaling": torch.cat([ONE_PARAMETER["rates 1:2"][1], scaling(4)]),
}


def orthogonal(n: int, rng: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(n, n, generator=rng, dtype=torch.float64)).Q


def learned(
    basis: Tensor, rows: int, noise: float, seed: int, skew: float = 0.0
) -> tuple[Tensor, Tensor]:
    """A basis as it might be learned, and the true one in the same coordinates.

    Coordinates are turned, stretched by up to exp(±skew) and, in homogeneous ones, moved; the
    basis is another one of the same span; every generator is off by `noise` times its norm.
    """
    rng = torch.Generator().manual_seed(seed)
    change = torch.eye(basis.shape[-1], dtype=torch.float64)
    stretches = torch.exp(skew * (2 * torch.rand(rows, generator=rng, dtype=torch.float64) - 1))
    change[:rows, :rows] = orthogonal(rows, rng) @ torch.diag(stretches) @ orthogonal(rows, rng)
    if rows < len(change):
        change[:rows, rows] = 0.3 * torch.randn(rows, generator=rng, dtype=torch.float64)
    truth = orthonormal(conjugate(basis.double(), change))
    c = len(truth)
    strengths = torch.diag(0.5 + torch.rand(c, generator=rng, dtype=torch.float64))
    mixing = orthogonal(c, rng) @ strengths @ orthogonal(c, rng)
    other = torch.einsum("ij,jab->iab", mixing, truth)
    errors = torch.randn(truth.shape, generator=rng, dtype=torch.float64)
    errors[:, rows:] = 0.0
    sizes = other.flatten(1).norm(dim=1) / errors.flatten(1).norm(dim=1)
    return other + noise * sizes[:, None, None] * errors, truth


def sine(a: Tensor, b: Tensor) -> float:
    """Of the largest principal angle between spans of the same dimension."""
    assert len(a) == len(b)
    rows = orthonormal(a).flatten(1)
    other = orthonormal(b).flatten(1)
    return float(torch.linalg.matrix_norm(rows - rows @ other.mT @ other, ord=2))


@every_case
def test_exact_generators_are_named_and_snapped_exactly(
    expected: str, basis: Tensor, affine: int
) -> None:
    rows = basis.shape[-1] - affine
    generators, truth = learned(basis, rows, noise=0.0, seed=0)
    found = identify(generators, rows=rows)
    assert found.name == expected
    assert found.exact is not None
    assert sine(found.exact, truth) < 1e-5
    assert found.cosine == pytest.approx(1.0, abs=1e-9)


@every_case
@pytest.mark.parametrize(("noise", "seed"), [(0.01, 1), (0.03, 2)])
def test_noisy_generators_are_named_and_snapping_improves_them(
    expected: str, basis: Tensor, affine: int, noise: float, seed: int
) -> None:
    rows = basis.shape[-1] - affine
    generators, truth = learned(basis, rows, noise, seed)
    found = identify(generators, rows=rows)
    assert found.name == expected
    assert found.exact is not None
    assert sine(found.exact, truth) <= sine(generators, truth) + 1e-9


REDUCTIVE = ["so(2)", "so(3)", "so(1,3)", "so(2,2)", "sl(3)", "sp(4)", "scalings(3)", "torus(2)"]


@pytest.mark.parametrize("name", REDUCTIVE)
def test_skewed_coordinates_do_not_hide_an_algebra(name: str) -> None:
    basis = named(name)
    generators, truth = learned(basis, basis.shape[-1], noise=0.0, seed=0, skew=0.7)
    found = identify(generators)
    assert found.name == FROM_CATALOGUE[name]
    assert found.exact is not None
    assert sine(found.exact, truth) < 1e-5
    noisy, _ = learned(basis, basis.shape[-1], noise=0.03, seed=0, skew=0.7)
    assert identify(noisy).name == FROM_CATALOGUE[name]


@pytest.mark.parametrize("name", ["so(3)", "so(1,3)", "sl(3)", "sp(4)", "se(3)", "torus(3)"])
def test_any_basis_of_a_noisy_span_will_do(name: str) -> None:
    """Also one whose generators are nearly dependent."""
    basis = named(name)
    noisy, _ = learned(basis, basis.shape[-1], noise=0.03, seed=0)
    rng = torch.Generator().manual_seed(0)
    mixing = torch.randn(len(basis), len(basis), generator=rng, dtype=torch.float64)
    assert identify(torch.einsum("ij,jab->iab", mixing, noisy)).name == FROM_CATALOGUE[name]


@pytest.mark.parametrize("affine", [0, 1])
def test_random_subspaces_are_never_named(affine: int) -> None:
    rng = torch.Generator().manual_seed(0)
    for d in (3, 4, 5):
        for c in (2, 3, 4, 5):
            for _ in range(5):
                generators = torch.randn(c, d, d, generator=rng)
                found = identify(generators, rows=d - affine)
                assert not found.named, found
                assert found.exact is None
                assert found.cosine is None


def test_what_does_not_close_is_said_with_its_residual() -> None:
    found = identify(so3[:2])
    assert found.name == "not closed (residual 0.71)"
    assert found.invariants.closure == pytest.approx(2**-0.5, abs=1e-6)


@pytest.mark.parametrize("label", UNNAMED)
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_an_algebra_that_is_not_listed_stays_unnamed(label: str, noise: float) -> None:
    basis = UNNAMED[label]
    found = identify(learned(basis, basis.shape[-1], noise, seed=0)[0])
    assert found.name.startswith("unnamed 2-dimensional")
    assert found.alternatives
    assert any("No named algebra" in reason for reason in found.reasons)


def test_an_unnamed_algebra_is_classed() -> None:
    assert identify(UNNAMED["triangular of trace zero"]).name == (
        "unnamed 2-dimensional solvable algebra"
    )
    assert identify(UNNAMED["a torus within a torus"]).name == (
        "unnamed 2-dimensional compact abelian algebra"
    )


def test_isomorphic_algebras_are_told_apart_by_how_they_act() -> None:
    """sl(2), so(1,2) and sp(2) are one algebra; so are so(3) and su(2)."""
    assert [identify(named(name)).name for name in ("so(3)", "su(2)")] == ["so(3)", "su(2)"]
    assert [identify(named(name)).name for name in ("sl(2)", "so(1,2)")] == ["sl(2)", "so(1,2)"]
    assert identify(named("so(4)")).name == "so(4)"
    assert identify(direct_sum(so3, so3)).name == "so(3) ⊕ so(3)"


def test_the_description_says_where() -> None:
    assert identify(embedded(so2, 3)).description == "so(2) on a plane of R^5 (axes 0, 1)"
    assert identify(diagonal(so2, 4)).description == "so(2) on 4 planes of R^8 at once"
    tilted = identify(learned(embedded(so2, 3), 5, 0.0, seed=0)[0])
    assert tilted.description == "so(2) on a plane of R^5"
    assert tilted.coordinates == "orthonormal"
    both = identify(torch.cat([embedded(so3, 2), scaling(5)]))
    assert both.description == (
        "so(3) on a 3-dimensional subspace of R^5 (axes 0, 1, 2); scaling on R^5"
    )


@pytest.mark.parametrize("name", ["so(3)", "so(1,3)", "sp(4)", "scalings(3)", "heisenberg(3)"])
def test_along_axes_the_pattern_is_exact(name: str) -> None:
    """In any order of the axes, and through noise that hides the zeros."""
    rng = torch.Generator().manual_seed(0)
    basis = named(name)
    order = torch.randperm(basis.shape[-1], generator=rng)
    truth = basis[:, order][:, :, order]
    noisy = orthonormal(truth) + 0.02 * torch.randn(basis.shape, generator=rng) / len(order)
    found = identify(noisy)
    assert found.coordinates == "axes"
    assert found.exact is not None
    sizes = found.exact.abs() / found.exact.abs().amax((1, 2), keepdim=True)
    assert bool(((sizes == 0) | (sizes == 1)).all())
    assert sine(found.exact, truth) < 1e-12


def test_snapped_generators_have_the_norm_of_a_learned_basis() -> None:
    turn = embedded(so2, 3)
    assert float(snap(turn).norm()) == pytest.approx(5**0.5)
    assert float(snap(turn, space_dim=2).norm()) == pytest.approx(2**0.5)
    motions = snap(named("se(2)"), rows=2)
    torch.testing.assert_close(motions.flatten(1).norm(dim=1), torch.full((3,), 2**0.5))


def test_snapping_keeps_sign_and_type() -> None:
    turn = -(so2 + 0.01).float()
    snapped = snap(turn)
    assert snapped.dtype == torch.float32
    assert torch.equal(snapped, -so2)


def test_snapping_to_a_name_that_is_given() -> None:
    """However far it is, and to what `identify` found without looking again."""
    skewed = torch.tensor([[[0.0, -1.0], [0.7, 0.0]]])
    assert snap(skewed, "so(1,1)").shape == (1, 2, 2)
    found = identify(so3)
    assert snap(so3, found) is found.exact
    with pytest.raises(ValueError, match=r"no 'so\(3\)' with 1 generators of size 2; choose from"):
        snap(skewed, "so(3)")


def test_there_is_nothing_to_snap_an_unnamed_algebra_to() -> None:
    with pytest.raises(ValueError, match="unnamed 2-dimensional solvable algebra: there is no"):
        snap(UNNAMED["triangular of trace zero"])


def test_a_rotation_about_another_point_is_a_rotation() -> None:
    move = torch.eye(3, dtype=torch.float64)
    move[:2, 2] = torch.tensor([0.5, -0.3])
    generators = conjugate(lift(so2).double(), move)
    found = identify(generators, rows=2)
    assert found.name == "so(2)"
    assert found.invariants.compact
    assert found.exact is not None
    assert sine(found.exact, generators) < 1e-6


def test_noise_decides_what_is_told_apart() -> None:
    """A slow spiral is a rotation within 3 %, and a spiral for who knows better."""
    slow = so2 + 0.02 * scaling(2)
    assert identify(slow).name == "so(2)"
    assert identify(slow, noise=0.002).name == "spiral"


def test_dependent_generators_count_once() -> None:
    found = identify(torch.cat([so3, so3[:1] + so3[1:2]]))
    assert found.name == "so(3)"
    assert "The 4 generators span 3 dimensions." in found.reasons


def test_a_generator_too_many_is_suspected(rng: torch.Generator) -> None:
    noise = 0.03 * torch.randn(3, 3, generator=rng)
    found = identify(torch.cat([so3, so3[:1] + noise]))
    assert not found.named
    assert any("one generator too many" in reason for reason in found.reasons)


def test_two_of_three_rotations_are_no_algebra() -> None:
    assert identify(so3[:1]).name == "so(2)"
    assert not identify(so3[:2]).named
    assert identify(so3).name == "so(3)"


def test_the_evidence_is_the_textbooks() -> None:
    lorentz = measure(learned(named("so(1,3)"), 4, 0.03, seed=0)[0])
    assert lorentz.killing_signature == (3, 0, 3)
    assert lorentz.metric_signature == (1, 0, 3)
    assert (lorentz.rank, lorentz.centre, lorentz.derived) == (2, 0, (6,))
    assert lorentz.kind == "semisimple"
    assert not lorentz.compact
    motions = measure(named("se(3)"), rows=3)
    assert motions.translations == 3
    assert motions.derived == (6,)
    assert motions.kind == "neither solvable nor reductive"
    assert measure(catalogue.gl(3)).kind == "reductive"
    assert measure(catalogue.heisenberg(3)).kind == "nilpotent"
    assert measure(named("se(2)"), rows=2).kind == "solvable"
    turn = measure(embedded(so2, 3))
    assert (turn.kind, turn.compact, turn.moved, turn.translations) == ("abelian", True, 2, 0)
    assert (measure(catalogue.sp(4)).metrics, measure(catalogue.sp(4)).symplectic) == (0, 1)


def test_reasons_and_plain_values_can_be_written_down() -> None:
    found = identify(learned(named("so(1,3)"), 4, 0.03, seed=0)[0])
    assert any("Killing signature (3, 0, 3)" in reason for reason in found.reasons)
    assert all(name != found.name for name, _ in found.alternatives)
    content = json.loads(json.dumps(found.to_json()))
    assert content["name"] == "so(1,3)"
    assert content["invariants"]["killing_signature"] == [3, 0, 3]
    assert str(identify(so3[:2])) == "not closed (residual 0.71)"


def test_the_same_seed_gives_the_same_answer() -> None:
    generators = learned(diagonal(so3, 2), 6, 0.03, seed=0)[0]
    first, second = identify(generators, seed=3).exact, identify(generators, seed=3).exact
    assert first is not None
    assert second is not None
    assert torch.equal(first, second)


def test_a_large_space_is_searched_in_reasonable_time() -> None:
    found = identify(learned(diagonal(so2, 6), 12, 0.01, seed=0)[0])
    assert found.description == "so(2) on 6 planes of R^12 at once"


@pytest.mark.parametrize(
    ("wrong", "rows", "message"),
    [
        (torch.ones(3, 3), None, r"expected \(c, d, d\)"),
        (torch.ones(1, 2, 3), None, r"expected \(c, d, d\)"),
        (torch.zeros(1, 3, 3), None, "not all zero"),
        (torch.full((1, 2, 2), torch.nan), None, "finite"),
        (torch.eye(3)[None], 1, "rows=1: generators of size 3 have 3 rows, or 2 if affine"),
    ],
)
def test_wrong_input_is_refused_readably(wrong: Tensor, rows: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        identify(wrong, rows=rows)


def test_what_shrinks_and_shifts_is_no_screw() -> None:
    found = identify(torch.tensor([[[-1.0, 0, 0], [0, 0, 1], [0, 0, 0]]]), rows=2)
    assert found.name != "screw"


def test_scalings_with_weights_are_named_and_their_weights_made_exact() -> None:
    """Of pressure, volume and temperature those that keep pV/T, seen with an error of 2 %."""
    units = torch.diag_embed(torch.tensor([[1.0, -1.0, 0.0], [1.0, 0.0, 1.0]]))
    noise = torch.randn(units.shape, generator=torch.Generator().manual_seed(0))
    found = identify(units + 0.02 * noise)
    assert found.name == "weighted scalings(2)"
    assert found.exact is not None
    assert float(principal_cosines(found.exact, units).min()) > 1 - 1e-6
    # Not everything that commutes is of this kind, nor what has a plainer name.
    assert identify(catalogue.scalings(2)).name == "scalings(2)"
    assert not identify(catalogue.so(3)[:2]).named


def test_equal_rates_in_skewed_coordinates_are_one_rotation() -> None:
    """Found in orbits: positions and velocities turn alike, and velocities leak into positions."""
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    leaking = torch.block_diag(turn, turn)
    leaking[1, 3] = 0.15
    assert identify(leaking[None]).name == "so(2)"


@pytest.mark.parametrize("seed", range(5))
def test_an_arbitrary_generator_is_no_scaling_in_skewed_coordinates(seed: int) -> None:
    """Every matrix with real eigenvalues is one in some coordinates, which says nothing."""
    arbitrary = torch.randn(1, 2, 2, generator=torch.Generator().manual_seed(seed))
    found = identify(arbitrary)
    assert found.coordinates != "linear" or found.name not in ("anisotropic scaling", "spiral")


def test_eigenvalues_are_told_without_the_size_and_sign_of_the_generator() -> None:
    generator = torch.tensor([[[-2.0, 3.0], [0.0, -1.0]]])
    for factor in (1.0, -4.0):
        assert identify(factor * generator).description == "eigenvalues in the ratios 1, 0.5"
    decaying = torch.tensor([[[-0.5, -1.0], [1.0, -0.5]]])
    assert "± 0.89i" in identify(decaying).description

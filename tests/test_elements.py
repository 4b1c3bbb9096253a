"""Elements against SciPy's exponential, and every hand-written gradient against differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from lieaugmenter.actions import (
    AffineAction,
    DirectSumAction,
    InvariantAction,
    StructuredAction,
    VectorAction,
)
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.objective import Objective
from lieaugmenter.lie import catalogue, exponential
from lieaugmenter.lie.basis import GeneratorBasis, block_mask
from lieaugmenter.lie.elements import Elements

F64 = torch.float64


def normal(rng: torch.Generator, *shape: int, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(shape, generator=rng, dtype=dtype)


def unit_basis(rng: torch.Generator, c: int, d: int, rows: int | None = None) -> Tensor:
    """Random generators of Frobenius norm 1, so that coefficients are norms."""
    basis = normal(rng, c, d, d)
    basis[:, d if rows is None else rows :] = 0.0
    return basis / basis.flatten(1).norm(dim=1)[:, None, None]


def reference(elements: Elements) -> Tensor:
    """The elements straight from Eq. (1) and (12), with SciPy's exponential, one by one."""
    coefficients, basis = elements.coefficients.double(), elements.basis.double()
    components, index = elements.components, elements.component_index
    result = torch.empty(elements.batch, elements.views, *basis.shape[1:], dtype=F64)
    for i, j in np.ndindex(elements.batch, elements.views):
        g = np.eye(elements.dim)
        for w in coefficients[i, j]:
            g = g @ scipy.linalg.expm((w[:, None, None] * basis).sum(0).numpy())
        if components is not None and index is not None:
            r = components[index[i, j]].double().numpy()
            g = g @ r if elements.component_first else r @ g
        result[i, j] = torch.from_numpy(g)
    return result


@dataclass(frozen=True)
class Case:
    """One way through `Elements.apply`."""

    c: int
    d: int
    n: int = 1
    rows: int | None = None
    factors: int = 1
    components: bool = False
    inverted: bool = False
    norm: float = 1.0

    def elements(self, rng: torch.Generator, batch: int = 2, views: int = 3) -> Elements:
        basis = unit_basis(rng, self.c, self.d, self.rows)
        draw = normal(rng, batch, views, self.factors, self.c)
        coefficients = draw / draw.norm(dim=-1, keepdim=True) * self.norm
        components = index = None
        if self.components:
            components = torch.eye(self.d, dtype=F64) + 0.3 * normal(rng, 3, self.d, self.d)
            if self.rows is not None:
                components[:, self.rows :] = torch.eye(self.d, dtype=F64)[self.rows :]
            index = torch.randint(3, (batch, views), generator=rng)
        elements = Elements(
            coefficients, basis, components=components, component_index=index, rows=self.rows
        )
        return elements.inverse() if self.inverted else elements

    def vectors(self, rng: torch.Generator, batch: int = 2) -> Tensor:
        return normal(rng, batch, self.n, self.d)


CASES = {
    "one generator": Case(1, 3),
    "one generator, several vectors": Case(1, 4, n=3),
    "one generator, several steps": Case(1, 3, n=2, norm=9.0),
    "one generator, rows": Case(1, 3, rows=2),
    "one generator, factors": Case(1, 2, factors=3),
    "few generators, d = 2": Case(2, 2, n=2),
    "few generators, d = 4": Case(3, 4),
    "few generators, d = 4, far": Case(2, 4, norm=8.0),
    "few generators, rows": Case(3, 3, n=2, rows=2),
    "few generators, rows, factors": Case(3, 3, n=2, rows=2, factors=2),
    "few generators, rows, components": Case(2, 3, n=4, rows=2, components=True),
    "few generators, rows, components, inverted": Case(
        2, 3, n=4, rows=2, components=True, inverted=True
    ),
    "matrices, d = 6": Case(3, 6, n=2),
    "matrices, d = 6, far": Case(2, 6, norm=8.0),
    "matrices, d = 6, rows": Case(2, 6, rows=5),
    "matrices, d = 18, as many vectors": Case(2, 18, n=18),
    "series, d = 20": Case(3, 20),
    "series, d = 20, several steps": Case(2, 20, norm=13.0),
    "factors": Case(2, 3, factors=3),
    "factors, d = 20": Case(2, 20, factors=2),
    "components, one generator": Case(1, 3, components=True),
    "components": Case(2, 3, n=2, components=True),
    "components, inverted": Case(2, 3, n=2, components=True, inverted=True),
    "components, one generator, inverted": Case(1, 3, n=2, components=True, inverted=True),
    "components, factors, inverted": Case(2, 3, factors=2, components=True, inverted=True),
    "components, d = 20, inverted": Case(2, 20, components=True, inverted=True),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
HOMOGENEOUS = {name: case for name, case in CASES.items() if case.rows is not None}
homogeneous_case = pytest.mark.parametrize("case", HOMOGENEOUS.values(), ids=HOMOGENEOUS.keys())


def assert_near(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Within the tolerance of the largest entry: rounding is relative to the whole."""
    expected = expected.to(actual.dtype)
    assert actual.shape == expected.shape
    assert float((actual - expected).abs().max() / expected.abs().max()) < tolerance


# --- values -------------------------------------------------------------------------------------


@every_case
def test_matrices_are_scipys(case: Case, rng: torch.Generator) -> None:
    elements = case.elements(rng)
    assert_near(elements.matrices(), reference(elements), 1e-11)


@every_case
def test_apply_is_the_matrix_times_the_vectors(case: Case, rng: torch.Generator) -> None:
    elements, x = case.elements(rng), case.vectors(rng)
    expected = torch.einsum("bvij,bnj->bvni", reference(elements), x)
    # A series of norm 6 loses three digits to cancellation.
    assert_near(elements.apply(x), expected, 1e-10)


@every_case
def test_apply_in_float32(case: Case, rng: torch.Generator) -> None:
    elements, x = case.elements(rng), case.vectors(rng)
    single = replace(
        elements,
        coefficients=elements.coefficients.float(),
        basis=elements.basis.float(),
        components=None if elements.components is None else elements.components.float(),
    )
    assert single.apply(x.float()).dtype == torch.float32
    expected = torch.einsum("bvij,bnj->bvni", reference(elements), x)
    assert_near(single.apply(x.float()), expected, 1e-4)


@every_case
def test_inverse_is_the_inverse_matrix(case: Case, rng: torch.Generator) -> None:
    elements = case.elements(rng)
    assert_near(elements.inverse().matrices(), torch.linalg.inv(reference(elements)), 1e-9)
    x = case.vectors(rng)
    there = elements.apply(x).flatten(0, 1)
    back = elements.per_view().inverse().apply(there).view(2, 3, case.n, case.d)
    # The far ones are badly conditioned.
    torch.testing.assert_close(back, x.unsqueeze(1).expand_as(back), atol=1e-7, rtol=1e-7)


@every_case
def test_per_view_are_the_same_elements(case: Case, rng: torch.Generator) -> None:
    elements = case.elements(rng)
    own = elements.per_view()
    assert (own.batch, own.views) == (6, 1)
    assert_near(own.matrices().view(2, 3, case.d, case.d), reference(elements), 1e-11)


@every_case
def test_for_each_gives_all_samples_the_same_elements(case: Case, rng: torch.Generator) -> None:
    elements = case.elements(rng, batch=1)
    shared, x = elements.for_each(4), case.vectors(rng, batch=4)
    assert (shared.batch, shared.views) == (4, 3)
    expected = torch.einsum("vij,bnj->bvni", reference(elements)[0], x)
    assert_near(shared.apply(x), expected, 1e-10)


@pytest.mark.parametrize("trusted", [False, True], ids=["as on a CPU", "as on a GPU"])
@every_case
def test_a_loose_bound_changes_nothing(
    case: Case, trusted: bool, rng: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may cost time, never precision. On a GPU it takes the place of a measured norm."""
    elements, x = case.elements(rng), case.vectors(rng)
    expected = elements.apply(x), elements.matrices()
    if trusted:
        monkeypatch.setattr(Elements, "_known_norm", property(lambda self: self.bound))
    # Generators of norm 1: the norm of the sum is at most the sum of the coefficients.
    for factor in (1.0, 4.0):
        loose = replace(elements, bound=factor * case.norm * math.sqrt(case.c))
        assert_near(loose.apply(x), expected[0], 1e-10)
        assert_near(loose.matrices(), expected[1], 1e-10)


@homogeneous_case
def test_knowing_the_zero_rows_changes_nothing(case: Case, rng: torch.Generator) -> None:
    elements, x = case.elements(rng), case.vectors(rng)
    plain = replace(elements, rows=None)
    assert_near(elements.apply(x), plain.apply(x), 1e-12)
    assert_near(elements.matrices(), plain.matrices(), 1e-12)


@homogeneous_case
def test_points_move_by_the_affine_map(case: Case, rng: torch.Generator) -> None:
    elements = case.elements(rng)
    points = normal(rng, 2, case.n, case.d - 1)
    g = reference(elements)
    linear, shift = g[..., :-1, :-1], g[..., :-1, -1]
    expected = torch.einsum("bvij,bnj->bvni", linear, points) + shift.unsqueeze(2)
    assert_near(elements.apply_to_points(points), expected, 1e-10)


@pytest.mark.parametrize("d", [2, 3, 4, 5, 8, 13, 20])
@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("norm", [1e-6, 0.5, 3.0, 20.0])
def test_exponentials_are_scipys(d: int, c: int, norm: float, rng: torch.Generator) -> None:
    basis = unit_basis(rng, c, d)
    w = normal(rng, 2, c)
    w = w / w.norm(dim=1, keepdim=True) * norm
    expected = reference(Elements(w.unsqueeze(1), basis))[:, 0]
    for bound in (None, c * norm, 10.0 * c * norm):
        actual = exponential.exponentials(basis, w, bound)
        assert_near(actual, expected, 1e-10)
        # Relative to what moves: a small element must not drown in the identity.
        identity = torch.eye(d, dtype=F64)
        assert_near(actual - identity, expected - identity, 1e-9)


def test_without_squarings_it_is_the_taylor_polynomial_of_degree_8() -> None:
    """The powers of a shift do not mix: each diagonal shows one coefficient, 1/k!."""
    shift = torch.diag(torch.ones(8, dtype=F64), 1).unsqueeze(0)
    # A bound so small that nothing is halved.
    result = exponential.exponentials(shift, torch.ones(1, 1, dtype=F64), bound=1e-3)[0]
    expected = torch.tensor([1 / math.factorial(k) for k in range(9)], dtype=F64)
    torch.testing.assert_close(result[0], expected, atol=0, rtol=1e-10)


@pytest.mark.parametrize("d", [2, 4, 8, 20])
@pytest.mark.parametrize("norm", [0.1, 2.0, 10.0])
def test_float32_equals_torchs_matrix_exp(d: int, norm: float, rng: torch.Generator) -> None:
    basis = unit_basis(rng, 2, d).float()
    w = normal(rng, 5, 2, dtype=torch.float32)
    w = w / w.norm(dim=1, keepdim=True) * norm
    expected = torch.linalg.matrix_exp(torch.einsum("nc,cij->nij", w, basis))
    assert_near(exponential.exponentials(basis, w), expected, 1e-4)


@pytest.mark.parametrize("norm", [0.3, 5.0, 14.0])
@pytest.mark.parametrize(("c", "d"), [(1, 2), (1, 20), (4, 5), (4, 20)])
def test_the_ways_to_act_agree(c: int, d: int, norm: float, rng: torch.Generator) -> None:
    basis, x = unit_basis(rng, c, d), normal(rng, 2, 3, d)
    w = normal(rng, 2, 4, c)
    w = w / w.norm(dim=-1, keepdim=True) * norm
    expected = exponential.act_by_matrices(basis, w, x)
    # Generators of norm 1: the bound on the sum is the sum of the weights.
    bound = float(w.abs().sum(-1).max())
    assert_near(exponential.act_by_series(basis, w, x, bound), expected, 1e-9)
    if c == 1:
        alone = exponential.act_by_one_generator(basis[0], w[..., 0], x, bound)
        assert_near(alone, expected, 1e-9)


def test_a_rotation_turns_axis_one_towards_axis_two() -> None:
    """The sign that everything else hangs on: E_21 - E_12 is counter-clockwise."""
    quarter = Elements(torch.full((1, 1, 1), math.pi / 2), catalogue.so(2))
    moved = quarter.apply(torch.tensor([[1.0, 0.0]]))
    torch.testing.assert_close(moved, torch.tensor([[[0.0, 1.0]]]), atol=1e-6, rtol=0)


def test_products_are_in_the_order_of_their_factors(rng: torch.Generator) -> None:
    basis = catalogue.so(3)
    a, b = torch.randn(2, 1, 1, 3, generator=rng)
    both = Elements(torch.stack([a, b], dim=2), basis).matrices()
    g, h = Elements(a, basis).matrices(), Elements(b, basis).matrices()
    torch.testing.assert_close(both, g @ h)
    assert float((both - h @ g).norm()) > 0.1


def test_a_reflection_acts_after_the_rotation(rng: torch.Generator) -> None:
    """g = r exp(A): x is turned, then reflected; the inverse reflects first."""
    reflection = torch.diag(torch.tensor([1.0, -1.0])).unsqueeze(0)
    index = torch.zeros(1, 1, dtype=torch.int64)
    quarter = Elements(
        torch.full((1, 1, 1), math.pi / 2),
        catalogue.so(2),
        components=reflection,
        component_index=index,
    )
    x = torch.tensor([[1.0, 0.0]])
    moved = quarter.apply(x)
    torch.testing.assert_close(moved, torch.tensor([[[0.0, -1.0]]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(quarter.inverse().apply(moved[:, 0])[:, 0], x)
    torch.testing.assert_close(quarter.inverse().inverse().matrices(), quarter.matrices())


@pytest.mark.parametrize("c", [1, 2])
def test_double_data_and_float_elements_work_together(c: int, rng: torch.Generator) -> None:
    """ "Float32 or better": data of a higher precision keeps it."""
    basis, x = catalogue.gl(3)[:c], normal(rng, 2, 3)
    w = normal(rng, 2, 4, c, dtype=torch.float32)
    expected = Elements(w, basis).apply(x.float())
    moved = Elements(w, basis).apply(x)
    assert moved.dtype == F64
    torch.testing.assert_close(moved.float(), expected, atol=1e-5, rtol=1e-5)


def test_half_precision_data_is_moved_in_float32(rng: torch.Generator) -> None:
    x = normal(rng, 2, 3).bfloat16()
    elements = Elements(normal(rng, 2, 4, 3, dtype=torch.float32), catalogue.so(3))
    moved = elements.apply(x)
    # Only the result is rounded, so that a half-precision model can take it.
    torch.testing.assert_close(moved, elements.apply(x.float()).bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize(("d", "n"), [(2, 1), (3, 5), (8, 1), (20, 20)])
def test_one_generator_goes_far_by_squaring(d: int, n: int, rng: torch.Generator) -> None:
    """A norm of 400 is 70 series in a row, whose errors add up, or ten squarings."""
    turn = torch.zeros(1, d, d)
    turn[0, 0, 1], turn[0, 1, 0] = -1.0, 1.0
    w, x = torch.full((2, 3, 1), 400.0), normal(rng, 2, n, d, dtype=torch.float32)
    angle = torch.tensor(400.0, dtype=F64)
    expected = x.double().clone()
    expected[..., 0] = x[..., 0] * angle.cos() - x[..., 1] * angle.sin()
    expected[..., 1] = x[..., 0] * angle.sin() + x[..., 1] * angle.cos()
    for elements in (Elements(w, turn), Elements(w, turn, bound=600.0)):
        moved = elements.apply(x).double()
        assert float((moved - expected.unsqueeze(1)).norm() / expected.norm()) < 1e-4


@pytest.mark.parametrize("c", [1, 2])
def test_no_samples_give_no_samples(c: int) -> None:
    elements = Elements(torch.zeros(0, 3, c), catalogue.gl(2)[:c])
    assert elements.apply(torch.zeros(0, 2)).shape == (0, 3, 2)
    assert elements.matrices().shape == (0, 3, 2, 2)


@pytest.mark.parametrize("case", [Case(1, 3), Case(2, 3), Case(2, 6), Case(2, 20)], ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_stays_so_without_an_error(
    case: Case, bad: float, rng: torch.Generator
) -> None:
    """A diverged run ends with a loss that says so, not with a failed conversion."""
    elements = replace(case.elements(rng), coefficients=torch.full((2, 3, 1, case.c), bad).double())
    assert not bool(elements.apply(case.vectors(rng)).isfinite().any())
    assert not bool(elements.matrices().isfinite().all())


def test_use_in_inference_mode_does_not_spoil_training() -> None:
    """What is cached there must be usable in a backward pass later."""
    # Coefficients of a size that no other test has, so that nothing is cached yet.
    w, basis = torch.full((1, 1, 1), 0.0123), 1.7 * catalogue.so(2)
    x = torch.ones(1, 2)
    with torch.inference_mode():
        Elements(w, basis).apply(x)
    leaf = basis.clone().requires_grad_()
    Elements(w, leaf).apply(x).sum().backward()
    assert leaf.grad is not None


def test_coefficients_must_fit_the_basis() -> None:
    # A TypeError where shape annotations are executed, as in our own tests.
    with pytest.raises((ValueError, TypeError), match=r"coefficients"):
        Elements(torch.zeros(2, 3, 1, 2), catalogue.so(2))


# --- gradients ----------------------------------------------------------------------------------


def check_gradients(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Against central differences; a random direction at a time where there are many numbers."""
    many = sum(t.numel() for t in inputs) > 150
    leaves = tuple(t.detach().clone().requires_grad_() for t in inputs)
    assert gradcheck(function, leaves, fast_mode=many, atol=1e-6, rtol=1e-4)


@every_case
def test_gradients_of_apply(case: Case, rng: torch.Generator) -> None:
    """With respect to basis, coefficients and x, along every way through it."""
    given, x = case.elements(rng), case.vectors(rng)

    def apply(basis: Tensor, coefficients: Tensor, x: Tensor) -> Tensor:
        # What must stay zero stays zero when differences are taken, too.
        basis = torch.cat([basis, given.basis[:, basis.shape[1] :]], dim=1)
        return replace(given, coefficients=coefficients, basis=basis, bound=None).apply(x)

    check_gradients(apply, given.basis[:, : case.rows], given.coefficients, x)


@every_case
def test_gradients_of_matrices(case: Case, rng: torch.Generator) -> None:
    given = case.elements(rng)

    def matrices(basis: Tensor, coefficients: Tensor) -> Tensor:
        basis = torch.cat([basis, given.basis[:, basis.shape[1] :]], dim=1)
        return replace(given, coefficients=coefficients, basis=basis, bound=None).matrices()

    check_gradients(matrices, given.basis[:, : case.rows], given.coefficients)


@pytest.mark.parametrize("bound", [None, 2.0, 50.0])
@pytest.mark.parametrize(("c", "d"), [(1, 2), (2, 4), (2, 5)])
def test_gradients_of_exponentials(
    c: int, d: int, bound: float | None, rng: torch.Generator
) -> None:
    def exponentials(basis: Tensor, w: Tensor) -> Tensor:
        return exponential.exponentials(basis, w, bound)

    check_gradients(exponentials, unit_basis(rng, c, d), 0.7 * normal(rng, 2, c))


def test_gradients_of_points(rng: torch.Generator) -> None:
    def points(basis: Tensor, w: Tensor, p: Tensor) -> Tensor:
        whole = torch.cat([basis, torch.zeros(2, 1, 3, dtype=F64)], dim=1)
        return Elements(w, whole, rows=2).apply_to_points(p)

    check_gradients(points, normal(rng, 2, 2, 3), normal(rng, 2, 2, 1, 2), normal(rng, 2, 3, 2))


@pytest.mark.parametrize("mask", [None, block_mask([2, 1])], ids=["all", "blocks"])
def test_gradients_of_normalisation(mask: Tensor | None, rng: torch.Generator) -> None:
    basis = GeneratorBasis(2, 3, mask=mask, generator=rng).double()
    with torch.no_grad():
        basis.raw.copy_(normal(rng, 2, 3, 3))
    # The function of a module's own parameter: gradcheck moves it in place.
    assert gradcheck(lambda _: basis(), (basis.raw,))


@every_case
def test_only_the_gradients_asked_for(case: Case, rng: torch.Generator) -> None:
    """Each input alone gives the gradient that all together give."""
    given, x = case.elements(rng), case.vectors(rng)
    inputs = {"coefficients": given.coefficients, "basis": given.basis, "x": x}

    def gradients(wanted: list[str]) -> list[Tensor]:
        leaves = {k: t.detach().clone().requires_grad_(k in wanted) for k, t in inputs.items()}
        elements = replace(given, coefficients=leaves["coefficients"], basis=leaves["basis"])
        moved = elements.apply(leaves["x"])
        return list(torch.autograd.grad(moved.sin().sum(), [leaves[k] for k in wanted]))

    for name, expected in zip(inputs, gradients(list(inputs)), strict=True):
        torch.testing.assert_close(gradients([name])[0], expected)


@every_case
def test_a_second_backward_pass_gives_the_same(case: Case, rng: torch.Generator) -> None:
    """The backward passes work in place: not on what they saved."""
    given, x = case.elements(rng), case.vectors(rng)
    basis = given.basis.clone().requires_grad_()
    moved = replace(given, basis=basis).apply(x).square().sum()
    first, second = (torch.autograd.grad(moved, basis, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, second)


class _Smooth(nn.Module):
    """A predictor without kinks."""

    def __init__(self, inputs: int, *out: int) -> None:
        super().__init__()
        self.out = out
        self.inner, self.outer = nn.Linear(inputs, 3), nn.Linear(3, math.prod(out))

    def forward(self, x: Tensor | tuple[Tensor, ...]) -> Tensor:
        fields = x if isinstance(x, tuple) else (x,)
        flat = torch.cat([t.flatten(1) for t in fields], dim=1)
        return self.outer(self.inner(flat).tanh()).view(-1, *self.out)


@dataclass(frozen=True)
class Whole:
    """An augmenter, a shape of x for each field, and a shape of y (none: class labels)."""

    settings: dict
    x: tuple[tuple[int, ...], ...]
    y: tuple[int, ...] | None


REFLECTION = torch.diag(torch.tensor([-1.0, 1.0, 1.0])).unsqueeze(0)
PARTS = [(VectorAction(2), 2), (InvariantAction(), 1)]
WHOLES = {
    "vector, one generator": Whole({"dim": 3}, ((3,),), (3,)),
    "vectors, two generators": Whole({"dim": 3, "n_generators": 2}, ((2, 3),), (2, 3)),
    "large vectors": Whole({"dim": 17, "n_generators": 2}, ((17,),), (17,)),
    "blocks": Whole({"dim": 4, "blocks": [2, 2]}, ((4,),), (4,)),
    "invariant": Whole({"dim": 3, "n_generators": 2, "output": "invariant"}, ((3,),), (1,)),
    "classes": Whole({"dim": 3, "output": "invariant"}, ((3,),), None),
    "factors": Whole({"dim": 2, "n_generators": 2, "n_factors": 2}, ((2,),), (2,)),
    "points": Whole({"action": "affine", "dim": 2, "n_generators": 2}, ((3, 2),), (2,)),
    "reflected points": Whole(
        {"action": "affine", "dim": 2, "n_generators": 2, "components": REFLECTION},
        ((3, 2),),
        (2,),
    ),
    "images": Whole({"action": "image", "output": "invariant"}, ((1, 4, 5),), None),
    "direct sum": Whole({"action": DirectSumAction(PARTS)}, ((3,),), (3,)),
    "structured": Whole(
        {"action": StructuredAction({1: AffineAction(2)}), "output": "invariant"},
        ((2,), (3, 2)),
        (1,),
    ),
}
ALL_TERMS = Objective(
    prediction=1.0, equivariance=2.0, similarity=0.7, sparsity=0.1, alignment=0.5, proximity=0.3
)


@pytest.mark.parametrize("sampler", ["uniform", "learnable"])
@pytest.mark.parametrize("whole", WHOLES.values(), ids=WHOLES.keys())
def test_gradients_from_sampler_to_objective(
    whole: Whole, sampler: str, rng: torch.Generator
) -> None:
    augmenter = LieAugmenter(
        **whole.settings,
        n_views=2,
        range=0.8,
        sampler=sampler,
        warmup_steps=0,
        objective=ALL_TERMS,
        init="tie-breaking",
    ).double()
    fields = tuple(normal(rng, 2, *shape) for shape in whole.x)
    x = fields if len(fields) > 1 else fields[0]
    y = torch.tensor([0, 2]) if whole.y is None else normal(rng, 2, *whole.y)
    model = _Smooth(sum(t[0].numel() for t in fields), *(whole.y or (3,))).double()

    def loss(*_: Tensor) -> Tensor:
        # The same draw in every call; gradcheck moves the parameters in place.
        return augmenter.loss(model, x, y, generator=torch.Generator().manual_seed(3))

    learned = [p for p in augmenter.parameters() if p.numel() < 150]
    assert gradcheck(loss, (*learned, model.inner.bias, model.outer.bias), atol=1e-6, rtol=1e-4)
    # In a random direction where the generators have many entries.
    assert gradcheck(loss, (augmenter.basis.raw,), fast_mode=True, atol=1e-6, rtol=1e-4)

"""The symmetry of a predictor, read from its Lie derivatives."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from lieaugmenter.actions import AffineAction, FunctionAction, InvariantAction, VectorAction
from lieaugmenter.actions.structured import StructuredAction
from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.equivariance import lie_derivative
from lieaugmenter.analysis.polarization import displacement_cosines, polarize
from lieaugmenter.baselines.emlp import EMLP
from lieaugmenter.data.dynamics import true_generator, two_body
from lieaugmenter.lie import catalogue
from lieaugmenter.lie.basis import block_mask
from lieaugmenter.testing import equivariance_error

# torch.func.jvp still scripts its own decompositions, and warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

VECTOR, INVARIANT = VectorAction(3), InvariantAction()


def normal(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def squared_length(x: Tensor) -> Tensor:
    return x.square().sum(-1, keepdim=True)


def radial(x: Tensor) -> Tensor:
    return x * squared_length(x).sin()


def agree(found: Tensor, truth: Tensor) -> bool:
    """Whether two bases have the same span."""
    cosines = principal_cosines(found, truth)
    return len(found) == len(truth) == len(cosines) and float(cosines.min()) > 1 - 1e-8


def n_symmetries(spectrum: Tensor) -> int:
    return int((spectrum < 1e-12 * spectrum[-1]).sum())


# --- what it finds ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "output"), [(squared_length, INVARIANT), (radial, VECTOR)], ids=["invariant", "same"]
)
def test_rotations_are_the_symmetry_of_what_depends_on_lengths(
    model: object, output: object, rng: torch.Generator
) -> None:
    found = polarize(model, normal(rng, 200, 3), action=VECTOR, output=output)
    assert n_symmetries(found.spectrum) == 3
    assert agree(found.span(3), catalogue.so(3).double())
    assert found.variance == float(found.spectrum.min())
    assert len(found.generators) == 9
    assert len(found.idle) == 0


def test_several_vectors_that_move_alike_share_a_generator(rng: torch.Generator) -> None:
    """|x₁|² and x₁ · x₂ of pairs, samples of shape (2, 3)."""

    def products(x: Tensor) -> Tensor:
        return torch.einsum("bid,bjd->bij", x, x).flatten(1)

    found = polarize(products, normal(rng, 200, 2, 3), action=VECTOR, output=INVARIANT)
    assert n_symmetries(found.spectrum) == 3
    assert agree(found.span(3), catalogue.so(3).double())


def test_partial_permutation_has_eleven_dimensions(rng: torch.Generator) -> None:
    """x₁ + x₂ + x₃ + x₄² - x₅²: ten that keep the sum of the first three, and a boost."""

    def function(x: Tensor) -> Tensor:
        return (x[:, :3].sum(1) + x[:, 3].square() - x[:, 4].square()).unsqueeze(1)

    x = torch.rand(500, 5, generator=rng, dtype=torch.float64) * 200 - 100
    found = polarize(function, x, action=VectorAction(5), output=INVARIANT)
    truth = torch.zeros(11, 5, 5, dtype=torch.float64)
    for column in range(5):
        truth[2 * column, :2, column] = torch.tensor([1.0, -1.0])
        truth[2 * column + 1, 1:3, column] = torch.tensor([1.0, -1.0])
    truth[10, 3, 4] = truth[10, 4, 3] = 1.0
    assert n_symmetries(found.spectrum) == 11
    assert agree(found.span(11), truth)


def test_discrete_rotation_is_continuous_only_in_its_radius(rng: torch.Generator) -> None:
    """z / (1 + angle mod 2π/6) does not change with the radius; with the angle it does."""

    def function(x: Tensor) -> Tensor:
        angle = torch.atan2(x[:, 1], x[:, 0]) % (2 * math.pi / 6)
        return (x[:, 2] / (1 + angle)).unsqueeze(1)

    found = polarize(function, normal(rng, 500, 3), action=VECTOR, output=INVARIANT)
    assert n_symmetries(found.spectrum) == 1
    assert agree(found.span(1), torch.diag(torch.tensor([1.0, 1.0, 0.0]).double()).unsqueeze(0))


def test_rigid_motions_are_found_in_homogeneous_coordinates(rng: torch.Generator) -> None:
    """Distances between points, by an action whose last row is masked."""

    def distances(x: Tensor) -> Tensor:
        return (x[:, 1:] - x[:, :1]).square().sum(-1)

    found = polarize(distances, normal(rng, 200, 4, 2), action=AffineAction(2), output=INVARIANT)
    assert len(found.generators) == 6
    assert n_symmetries(found.spectrum) == 3
    assert agree(found.span(3), catalogue.se(2).double())


def test_an_action_known_only_by_its_elements_will_do(rng: torch.Generator) -> None:
    """Its differential is a central difference, good to a few digits."""

    def by_matrix(g: Tensor, x: Tensor) -> Tensor:
        return torch.einsum("nij,nj->ni", g, x)

    x = normal(rng, 200, 3)
    action = FunctionAction(by_matrix, 3, x[:5].float())
    found = polarize(squared_length, x, action=action, output=INVARIANT)
    assert float(found.spectrum[2]) < 1e-8 * float(found.spectrum[3])
    assert float(principal_cosines(found.span(3), catalogue.so(3).double()).min()) > 1 - 1e-6


def test_samples_may_be_dictionaries(rng: torch.Generator) -> None:
    def weighted(x: dict[str, Tensor]) -> Tensor:
        return x["mass"] * squared_length(x["position"])

    x = {"position": normal(rng, 100, 3), "mass": normal(rng, 100, 1)}
    action = StructuredAction({"position": VECTOR})
    found = polarize(weighted, x, action=action, output=INVARIANT)
    assert n_symmetries(found.spectrum) == 3
    assert agree(found.span(3), catalogue.so(3).double())


def test_random_perceptron_has_no_symmetry(rng: torch.Generator) -> None:
    model = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 3)).double()
    found = polarize(model, normal(rng, 500, 3), action=VECTOR, output=VECTOR)
    assert found.variance > 1e-3


# --- what the numbers are -----------------------------------------------------------------------


def test_spectrum_is_the_squared_lie_derivative_per_squared_displacement(
    rng: torch.Generator,
) -> None:
    model = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 3)).double()
    x, both = normal(rng, 50, 3), {"action": VECTOR, "output": VECTOR}
    found = polarize(model, x, **both)
    expected = [
        float(lie_derivative(model, x, generator, **both).square().sum() / moved.square().sum())
        for generator in found.generators
        for moved in [x @ generator.mT]
    ]
    torch.testing.assert_close(found.spectrum, torch.tensor(expected).double())
    assert bool((found.spectrum.diff() >= 0).all())
    torch.testing.assert_close(found.generators.flatten(1).norm(dim=1), torch.ones(9).double())


def test_small_features_do_not_come_first(rng: torch.Generator) -> None:
    """x ↦ Ax has the derivative [A, L]x: 2 % of what E₁₂ moves, half of what E₁₃ moves.

    But E₁₃ moves by the tiny third feature: at equal norm of the generators it would look better.
    """
    x = normal(rng, 200, 3) * torch.tensor([1.0, 1.0, 1e-3]).double()
    stretch = torch.tensor([1.0, 1.02, 0.5]).double()
    found = polarize(lambda x: stretch * x, x, action=VECTOR, output=VECTOR)
    assert n_symmetries(found.spectrum) == 3
    torch.testing.assert_close(
        found.spectrum[3:5], torch.full((2,), 0.02**2).double(), atol=0, rtol=0.02
    )
    expected = catalogue.gl(3).double()[[0, 4, 8, 1, 3]]
    cosines = displacement_cosines(found.span(5), expected, x, action=VECTOR)
    assert len(cosines) == 5
    assert float(cosines.min()) > 0.99


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_chunks_do_not_change_the_result(chunk: int, rng: torch.Generator) -> None:
    x, both = normal(rng, 100, 3), {"action": VECTOR, "output": INVARIANT}
    whole = polarize(squared_length, x, **both)
    found = polarize(squared_length, x, **both, chunk=chunk)
    torch.testing.assert_close(found.spectrum, whole.spectrum, atol=1e-12, rtol=1e-12)
    assert agree(found.span(3), whole.span(3))


def test_candidates_restrict_the_search(rng: torch.Generator) -> None:
    """Within the blocks of a mask only one rotation is left; a repeated candidate counts once."""
    mask = block_mask([2, 1])
    entries = catalogue.gl(3)[mask.flatten()].double()
    x, both = normal(rng, 200, 3), {"action": VECTOR, "output": INVARIANT}
    found = polarize(squared_length, x, **both, candidates=torch.cat([entries, 3 * entries[:2]]))
    assert found.generators.shape == (5, 3, 3)
    assert bool((found.generators[:, ~mask].abs() < 1e-12).all())
    assert n_symmetries(found.spectrum) == 1
    assert agree(found.span(1), catalogue.so(3)[:1].double())


# --- data that do not fill their space ----------------------------------------------------------


def test_directions_that_move_nothing_are_set_aside(rng: torch.Generator) -> None:
    """Flat samples, z = 0: whatever multiplies z is idle, and is not taken for a symmetry."""
    x = normal(rng, 200, 3) * torch.tensor([1.0, 1.0, 0.0]).double()
    found = polarize(squared_length, x, action=VECTOR, output=INVARIANT)
    columns = catalogue.gl(3).double()[[2, 5, 8]]
    assert agree(found.idle, columns)
    # What is left: the turn of the plane, and lifting it along z, which |x|² feels only later.
    lifts = catalogue.gl(3).double()[[6, 7]]
    assert n_symmetries(found.spectrum) == 3
    assert agree(found.span(3), torch.cat([lifts, catalogue.so(3)[:1].double()]))


def test_opposite_bodies_leave_half_of_the_directions_idle() -> None:
    """q₂ = -q₁ and p₂ = -p₁: four of eight dimensions are there, 8 × 4 directions move them."""
    x, rotation = two_body(20, 1).x_train.double(), true_generator().double()
    network, action = EMLP(rotation, (8,), (8,)), VectorAction(8)

    def opposite(x: Tensor) -> Tensor:
        """Equivariant, and its two bodies are opposite as well."""
        state = network(x)
        return state - state.roll(4, dims=1)

    found = polarize(opposite, x, action=action, output=action)
    assert found.idle.shape == (32, 8, 8)
    assert float(torch.einsum("kij,bj->kbi", found.idle, x).abs().max()) < 1e-10
    assert n_symmetries(found.spectrum) == 1
    # On the samples it is the rotation; off them it is not determined.
    cosine = displacement_cosines(found.span(1), rotation, x, action=action)
    assert float(cosine) == pytest.approx(1.0, abs=1e-10)
    assert float(principal_cosines(found.span(1), rotation)) == pytest.approx(2**-0.5)


def test_displacement_cosines_see_only_what_the_samples_feel(rng: torch.Generator) -> None:
    x = normal(rng, 100, 3) * torch.tensor([1.0, 1.0, 0.0]).double()
    turn, lift, other, *_ = catalogue.so(3).double()
    idle = catalogue.gl(3).double()[2]
    cosines = displacement_cosines(
        torch.stack([-2 * turn + 5 * idle, lift]), turn.unsqueeze(0), x, action=VECTOR
    )
    torch.testing.assert_close(cosines, torch.ones(1).double())
    # Of norm √2 each; on the plane one lifts x, the other y.
    one, two = lift.unsqueeze(0), (lift + other).unsqueeze(0)
    found = float(displacement_cosines(one, two, x, action=VECTOR))
    expected = torch.nn.functional.cosine_similarity(x[:, 0], x[:, 0] + x[:, 1], dim=0)
    assert found == pytest.approx(abs(float(expected)))


def test_samples_at_rest_are_refused() -> None:
    with pytest.raises(ValueError, match="no candidate moves any sample"):
        polarize(squared_length, torch.zeros(5, 3), action=VECTOR, output=INVARIANT)


def wrong_in_its_own_way(seed: int) -> nn.Module:
    """Lengths, plus a small error as a trained network has it."""
    torch.manual_seed(seed)
    error = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1)).double()

    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return squared_length(x) + 0.1 * error(20 * x)

    return Wrong()


def test_independent_errors_average_out_between_two_predictors(rng: torch.Generator) -> None:
    x = normal(rng, 2000, 3)
    one, two = wrong_in_its_own_way(1), wrong_in_its_own_way(2)
    alone = polarize(one, x, action=VECTOR, output=INVARIANT).spectrum
    crossed = polarize(one, x, action=VECTOR, output=INVARIANT, other=two).spectrum
    # Three rotations: their part of the spectrum shrinks, the others' stays.
    assert float(crossed[:3].abs().max()) < 0.3 * float(alone[:3].max())
    assert float(crossed[3] / alone[3]) == pytest.approx(1.0, abs=0.3)


def test_a_predictor_beside_itself_is_itself(rng: torch.Generator) -> None:
    x, model = normal(rng, 100, 3), wrong_in_its_own_way(1)
    alone = polarize(model, x, action=VECTOR, output=INVARIANT)
    both = polarize(model, x, action=VECTOR, output=INVARIANT, other=model)
    torch.testing.assert_close(both.spectrum, alone.spectrum)


def test_asking_a_network_for_its_symmetry_leaves_it_as_it_was() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1))
    x, options = torch.randn(32, 3) + 5, {"action": VectorAction(3), "output": InvariantAction()}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, second = (polarize(model, x, **options).spectrum for _ in range(2))
    assert torch.equal(first, second)
    errors = {equivariance_error(model, catalogue.so(3), x, **options) for _ in range(2)}
    assert len(errors) == 1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert model[1].training


def test_a_predictor_of_single_numbers_may_leave_out_their_axis() -> None:
    x = torch.randn(40, 2, dtype=torch.float64)
    options = {"action": VectorAction(2), "output": InvariantAction()}
    with_axis = polarize(lambda x: x.norm(dim=1, keepdim=True), x, **options)
    without = polarize(lambda x: x.norm(dim=1), x, **options)
    torch.testing.assert_close(without.spectrum, with_axis.spectrum)


def test_samples_that_are_not_finite_are_named() -> None:
    x = torch.full((4, 2), torch.nan)
    with pytest.raises(ValueError, match="not all finite"):
        polarize(lambda x: x, x, action=VectorAction(2), output=VectorAction(2))


def test_checks_of_equivariance_say_what_they_need() -> None:
    x, so2 = torch.randn(5, 3), catalogue.so(2)
    with pytest.raises(TypeError, match="give an Action, such as VectorAction"):
        equivariance_error(nn.Identity(), so2, x, action="vector")  # pyright: ignore
    with pytest.raises(ValueError, match=r"\(1, 2, 2\); generators of .* are \(c, 3, 3\)"):
        equivariance_error(nn.Identity(), so2, x, action=VectorAction(3))
    found = catalogue.so(3).numpy()  # as estimators give them
    assert equivariance_error(nn.Identity(), found, x, action=VectorAction(3)) > 0  # pyright: ignore

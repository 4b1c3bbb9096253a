"""Comparing bases, and measuring how equivariant a model is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lieaugmenter import testing
from lieaugmenter.actions import Action, InvariantAction, StructuredAction, VectorAction
from lieaugmenter.analysis.compare import (
    absolute_cosine,
    frobenius_projection,
    match,
    principal_angles,
    principal_cosines,
)
from lieaugmenter.analysis.equivariance import (
    averaged_equivariance_error,
    distance_from_identity,
    equivariance_error,
    lie_derivative,
    lie_derivatives,
    push_forward,
)
from lieaugmenter.lie import catalogue
from lieaugmenter.lie.elements import Elements

# torch.func.jvp still scripts its own decompositions, and warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

SO3 = catalogue.so(3)


# --- bases --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, -1.0, 1e-3, -250.0])
def test_absolute_cosine_sees_neither_sign_nor_scale(scale: float) -> None:
    torch.testing.assert_close(absolute_cosine(scale * SO3, SO3), torch.ones(3))


def test_absolute_cosine_is_zero_across_and_between_otherwise(rng: torch.Generator) -> None:
    assert float(absolute_cosine(SO3[0], SO3[1])) == 0.0
    half = absolute_cosine(SO3[0] + SO3[1], SO3[0])
    assert float(half) == pytest.approx(2**-0.5)
    a, b = torch.randn(2, 50, 4, 4, generator=rng)
    assert float(absolute_cosine(a, b).max()) < 1.0


@pytest.mark.parametrize("scale", [1.0, -2.0, 0.3])
def test_frobenius_projection_is_the_scale(scale: float) -> None:
    across = scale * SO3 + torch.eye(3)
    torch.testing.assert_close(frobenius_projection(across, SO3), torch.full((3,), abs(scale)))


def test_principal_cosines_do_not_depend_on_the_bases(rng: torch.Generator) -> None:
    a, b = torch.randn(2, 3, 4, 4, generator=rng)
    mixing = torch.eye(3) + 0.3 * torch.randn(3, 3, generator=rng)
    other = torch.einsum("ij,jab->iab", mixing, b)
    torch.testing.assert_close(
        principal_cosines(a, other), principal_cosines(a, b), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(principal_cosines(b, other), torch.ones(3), atol=1e-6, rtol=0)


def test_principal_cosines_of_known_spans() -> None:
    tilted = torch.stack([SO3[0], SO3[1] + SO3[2]])
    cosines = principal_cosines(SO3[:2], tilted)
    torch.testing.assert_close(cosines, torch.tensor([1.0, 2**-0.5]), atol=1e-6, rtol=0)
    # As many as the smaller span has, largest first.
    torch.testing.assert_close(principal_cosines(SO3, tilted), torch.ones(2), atol=1e-6, rtol=0)
    angles = principal_angles(SO3[:2], tilted)
    torch.testing.assert_close(angles, torch.tensor([0.0, torch.pi / 4]), atol=1e-3, rtol=0)


def test_matching_finds_order_and_sign(rng: torch.Generator) -> None:
    noise = 0.05 * torch.randn(3, 3, 3, generator=rng)
    learned = torch.stack([-2.0 * SO3[2], 0.5 * SO3[0], -SO3[1]]) + noise
    found = match(learned, SO3)
    assert found.order == [1, 2, 0]
    assert found.signs == [1.0, -1.0, -1.0]
    assert min(found.cosines) > 0.95
    assert bool(((found.generators * SO3).sum((1, 2)) > 0).all())
    torch.testing.assert_close(found.generators[0], learned[1])


def test_matching_gives_each_canonical_generator_its_own() -> None:
    """Two learned generators near the same canonical one: the nearer takes it."""
    near, nearer = SO3[0] + 0.5 * SO3[1], SO3[0] + 0.1 * SO3[1]
    found = match(torch.stack([near, nearer]), SO3[:2])
    assert found.order == [1, 0]
    assert match(SO3.flip(0), SO3[:1]).order == [2]


def test_matching_needs_enough_generators() -> None:
    with pytest.raises(ValueError, match="2 learned generators cannot be matched to 3"):
        match(SO3[:2], SO3)


# --- equivariance -------------------------------------------------------------------------------


def radial(x: Tensor) -> Tensor:
    """x · f(‖x‖): equivariant under rotations."""
    return x * x.square().sum(-1, keepdim=True).sin()


def norm(x: Tensor) -> Tensor:
    return x.norm(dim=-1, keepdim=True)


def random_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 3))


def sample(rng: torch.Generator, n: int = 20, views: int = 8) -> tuple[Tensor, Elements]:
    x = torch.randn(n, 3, generator=rng)
    return x, Elements(torch.randn(n, views, 3, generator=rng), SO3)


VECTOR, INVARIANT = VectorAction(3), InvariantAction()


@pytest.mark.parametrize(("model", "output"), [(radial, VECTOR), (norm, INVARIANT)])
def test_errors_of_an_equivariant_model_are_zero(
    model: object, output: Action, rng: torch.Generator
) -> None:
    x, elements = sample(rng)
    for error in (equivariance_error, averaged_equivariance_error):
        assert error(model, x, elements, action=VECTOR, output=output) < 1e-4
    assert testing.equivariance_error(model, SO3, x, action=VECTOR, output=output) < 1e-4
    for generator in SO3:
        defect = lie_derivative(model, x, generator, action=VECTOR, output=output)
        assert float(defect.abs().max()) < 1e-4
    testing.assert_equivariant(model, SO3, x, action=VECTOR, output=output)


@pytest.mark.parametrize("output", [VECTOR, INVARIANT], ids=["same", "invariant"])
def test_random_mlp_is_not_equivariant(output: Action, rng: torch.Generator) -> None:
    x, elements = sample(rng)
    model = random_mlp()
    both = {"action": VECTOR, "output": output}
    assert equivariance_error(model, x, elements, **both) > 0.1
    assert averaged_equivariance_error(model, x, elements, **both) > 0.1
    assert testing.equivariance_error(model, SO3, x, **both) > 0.1
    assert float(lie_derivative(model, x, SO3[0], **both).abs().mean()) > 0.05
    with pytest.raises(AssertionError, match="equivariance error"):
        testing.assert_equivariant(model, SO3, x, **both)


def test_whole_numbers_are_generators_like_any_other(rng: torch.Generator) -> None:
    x, _ = sample(rng)
    model = random_mlp()
    found = testing.equivariance_error(model, SO3.long(), x, action=VECTOR)
    assert found == testing.equivariance_error(model, SO3, x, action=VECTOR) > 0.1


def test_one_number_for_each_sample_is_a_prediction(rng: torch.Generator) -> None:
    x, _ = sample(rng)
    assert testing.equivariance_error(lambda v: v.norm(dim=1), SO3, x, action=VECTOR) < 1e-4
    assert testing.equivariance_error(lambda v: v[:, 0], SO3, x, action=VECTOR) > 0.1


def test_no_samples_certify_nothing() -> None:
    with pytest.raises(ValueError, match="no samples"):
        testing.equivariance_error(random_mlp(), SO3, torch.zeros(0, 3), action=VECTOR)


def test_errors_are_the_papers_equations(rng: torch.Generator) -> None:
    """Eq. (40) and the second error, sample by sample and element by element."""
    x, elements = sample(rng, n=4, views=3)
    model, g = random_mlp(), elements.matrices()
    gap = [[model(g[i, j] @ x[i]) - g[i, j] @ model(x[i]) for j in range(3)] for i in range(4)]
    each = sum(float(e.detach().abs().sum()) for row in gap for e in row) / 12
    averaged = sum(float((sum(row) / 3).detach().abs().sum()) for row in gap) / 4
    both = {"action": VECTOR, "output": VECTOR}
    assert equivariance_error(model, x, elements, **both) == pytest.approx(each, rel=1e-4)
    found = averaged_equivariance_error(model, x, elements, **both)
    assert found == pytest.approx(averaged, rel=1e-4)


def test_averaging_first_never_gives_a_larger_error(rng: torch.Generator) -> None:
    both = {"action": VECTOR, "output": VECTOR}
    for _ in range(5):
        x, elements = sample(rng)
        model = random_mlp()
        averaged = averaged_equivariance_error(model, x, elements, **both)
        assert averaged <= equivariance_error(model, x, elements, **both)


@pytest.mark.parametrize("outputs", [(), (1,), (3,), (2, 3)])
def test_many_derivatives_are_those_along_each_generator(
    rng: torch.Generator, outputs: tuple[int, ...]
) -> None:
    """Nine generators of three numbers are put together from three derivatives."""
    size = 1
    for number in outputs:
        size *= number
    network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, size))
    asked = []

    def model(x: Tensor) -> Tensor:
        asked.append(len(x))
        return network(x).reshape(len(x), *outputs)

    x, generators = torch.randn(5, 3, generator=rng), torch.randn(9, 3, 3, generator=rng)
    output = VECTOR if outputs and outputs[-1] == 3 else InvariantAction()
    found = lie_derivatives(model, x, generators, action=VECTOR, output=output)
    assert len(asked) == 3
    one_by_one = [lie_derivative(model, x, g, action=VECTOR, output=output) for g in generators]
    assert found.shape == (9, 5, size)
    assert torch.allclose(found, torch.stack(one_by_one), atol=1e-5)


def test_many_derivatives_of_structured_inputs_leave_fixed_fields_alone(
    rng: torch.Generator,
) -> None:
    action = StructuredAction({"position": VectorAction(3)})
    x = {
        "position": torch.randn(4, 3, generator=rng),
        "mass": torch.rand(4, 1, generator=rng),
        "charge": torch.tensor([1, 6, 7, 8]),
    }

    def model(x: dict[str, Tensor]) -> Tensor:
        return x["position"].square().sum(1) * x["mass"].squeeze(1) * x["charge"]

    generators = torch.randn(9, 3, 3, generator=rng)
    both = {"action": action, "output": InvariantAction()}
    found = lie_derivatives(model, x, generators, **both)
    one_by_one = [lie_derivative(model, x, g, **both) for g in generators]
    assert torch.allclose(found, torch.stack(one_by_one), atol=1e-5)


def test_many_derivatives_of_what_returns_a_part_of_the_sample(rng: torch.Generator) -> None:
    generators, both = torch.randn(9, 3, 3, generator=rng), {"action": VECTOR}
    x, output = torch.randn(4, 3, generator=rng), InvariantAction()
    found = lie_derivatives(lambda x: x[:, 1:], x, generators, **both, output=output)
    assert torch.allclose(found, (x @ generators.mT)[:, :, 1:], atol=1e-6)


def test_lie_derivative_is_the_slope_of_the_defect(rng: torch.Generator) -> None:
    """d/dt [Ψ(e^{tL} x) - e^{tL} Ψ(x)] at 0, in double precision."""
    x, model = torch.randn(5, 3, generator=rng).double(), random_mlp().double()
    generator, t = SO3[1].double(), 1e-5
    ends = torch.tensor([t, -t]).double().expand(5, 2).unsqueeze(-1)
    elements = Elements(ends, generator.unsqueeze(0))
    with torch.no_grad():
        defect = model(elements.apply(x)) - elements.apply(model(x))
    expected = (defect[:, 0] - defect[:, 1]) / (2 * t)
    found = lie_derivative(model, x, generator, action=VECTOR, output=VECTOR)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-6)


class Sine(torch.autograd.Function):
    """A function that torch has no forward derivative of."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.sin()


def sine(x: Tensor) -> Tensor:
    return Sine.apply(x).sum(1, keepdim=True)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def slope_of_sine(x: Tensor, velocity: Tensor) -> Tensor:
    return (x.double().cos() * velocity.double()).sum(1, keepdim=True)


@pytest.mark.parametrize("mean", [0.0, 400.0, -1e4])
@pytest.mark.parametrize("speed", [1e-6, 1.0, 400.0, 1e8])
def test_slopes_without_a_forward_derivative_depend_on_neither_mean_nor_speed(
    mean: float, speed: float, rng: torch.Generator
) -> None:
    x = mean + torch.randn(200, 3, generator=rng)
    velocity = speed * torch.randn(200, 3, generator=rng)
    prediction, pushed = push_forward(sine, x, velocity)
    assert torch.equal(prediction, sine(x))
    # At -1e4 numbers in single precision are 0.001 apart, a tenth of a step.
    assert relative_error(pushed, slope_of_sine(x, velocity)) < (0.1 if mean < 0 else 0.005)


def test_features_that_are_constant_or_stand_still_do_not_change_a_slope(
    rng: torch.Generator,
) -> None:
    x, velocity = 400 + torch.randn(200, 3, generator=rng), torch.zeros(200, 3)
    x[:, 1:] = torch.tensor([0.0, 7.0])
    velocity[:, :2] = torch.tensor([400.0, 1.0])
    assert relative_error(push_forward(sine, x, velocity)[1], slope_of_sine(x, velocity)) < 0.005
    still = push_forward(sine, x, torch.zeros_like(x))[1]
    assert torch.equal(still, torch.zeros(200, 1))
    for alone in (x[:1], x[:1].expand(5, 3)):
        pushed = push_forward(sine, alone, velocity[: len(alone)])[1]
        assert relative_error(pushed, slope_of_sine(alone, velocity[: len(alone)])) < 0.005


@pytest.mark.parametrize("slope", ["forward", "difference"])
def test_fields_of_whole_numbers_stay(slope: str, rng: torch.Generator) -> None:
    function = sine if slope == "difference" else lambda x: torch.sin(x).sum(1, keepdim=True)
    x = {"x": torch.randn(50, 3, generator=rng), "n": torch.arange(50), "odd": torch.arange(50) > 9}
    velocity = {"x": torch.ones(50, 3), "n": torch.zeros(50).long(), "odd": torch.zeros(50).bool()}

    def model(given: dict[str, Tensor]) -> Tensor:
        return function(given["x"]) * given["n"].unsqueeze(1) * given["odd"].unsqueeze(1)

    factor = x["n"] * x["odd"]
    prediction, pushed = push_forward(model, x, velocity)
    assert torch.equal(prediction, model(x))
    expected = push_forward(function, x["x"], velocity["x"])[1] * factor.unsqueeze(1)
    assert relative_error(pushed, expected) < 1e-3
    velocity["n"][3] = 1
    with pytest.raises(ValueError, match="every field that moves"):
        push_forward(model, x, velocity)


@pytest.mark.parametrize(("kind", "tolerance"), [(torch.float16, 0.05), (torch.bfloat16, 0.2)])
def test_slopes_in_half_precision_are_right_to_a_few_per_cent(
    kind: torch.dtype, tolerance: float, rng: torch.Generator
) -> None:
    x = torch.randn(200, 3, generator=rng).to(kind)
    velocity = 30 * torch.randn(200, 3, generator=rng).to(kind)
    pushed = push_forward(sine, x, velocity)[1]
    assert pushed.dtype == kind
    assert relative_error(pushed, slope_of_sine(x, velocity)) < tolerance


def test_every_field_of_a_structured_batch_moves_in_units_of_its_own(rng: torch.Generator) -> None:
    near, far = torch.randn(2, 200, 3, generator=rng)
    x = {"near": near, "rest": (1e3 * far, 400 + near[:, 0])}
    velocity = {"near": far, "rest": (1e3 * near, torch.zeros(200))}

    def model(batch: dict) -> Tensor:
        wide, single = batch["rest"]
        return sine(batch["near"]) + sine(wide / 1e3) + sine(single[:, None])

    expected = slope_of_sine(near, far) + slope_of_sine(far, near)
    assert relative_error(push_forward(model, x, velocity)[1], expected) < 0.005


def test_attention_without_a_forward_derivative_has_its_slope(rng: torch.Generator) -> None:
    """In evaluation mode the layer takes a fast path that torch cannot differentiate."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation="gelu", batch_first=True)
    layer = layer.eval().requires_grad_(False)
    x = 4 + torch.randn(50, 4, 8, generator=rng)
    velocity = 100 * torch.randn(50, 4, 8, generator=rng)
    with pytest.raises(NotImplementedError):
        torch.func.jvp(layer, (x,), (velocity,))
    _, found = push_forward(layer, x, velocity)
    exact, step = layer.double(), 1e-8 * velocity.double()
    expected = (exact(x.double() + step) - exact(x.double() - step)) / 2e-8
    assert relative_error(found, expected) < 0.005


def test_too_little_memory_does_not_change_how_a_slope_is_taken(rng: torch.Generator) -> None:
    calls = []

    def too_large(x: Tensor) -> Tensor:
        calls.append(len(x))
        raise torch.OutOfMemoryError("out of memory")

    x = torch.randn(5, 3, generator=rng)
    with pytest.raises(torch.OutOfMemoryError):
        push_forward(too_large, x, x)
    assert len(calls) == 1


def test_distance_from_identity_of_a_rotation() -> None:
    """‖R(θ) - I‖_F = 2√2 |sin(θ/2)|."""
    angles = torch.tensor([[0.3, -1.0], [2.0, 3.0]])
    elements = Elements(angles.unsqueeze(-1), catalogue.so(2))
    expected = float((2 * 2**0.5 * (angles / 2).sin().abs()).mean())
    assert distance_from_identity(elements) == pytest.approx(expected, rel=1e-5)
    still = Elements(torch.zeros(2, 3, 1), catalogue.so(2))
    assert distance_from_identity(still) == 0.0


def test_dependent_generators_count_once_in_a_span() -> None:
    x, y, z = catalogue.so(3)
    assert principal_cosines(torch.stack([x, 2 * x, y]), torch.stack([x, y, z])).shape == (2,)
    assert principal_cosines(torch.stack([x, 2 * x]), z.unsqueeze(0)).max() < 1e-6

"""The equivariant multilayer perceptron is equivariant whatever its weights, and can be trained."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from lieaugmenter import testing
from lieaugmenter.actions import InvariantAction, VectorAction
from lieaugmenter.baselines.emlp import EMLP
from lieaugmenter.data.dynamics import true_generator, two_body
from lieaugmenter.lie import catalogue
from lieaugmenter.nets import MLP
from lieaugmenter.nets.equivariant import equivariant_maps

ROTATION = true_generator()
ALGEBRAS = {
    "two-body": ROTATION,
    "so(3)": catalogue.so(3),
    "so(1,3)": catalogue.so_pq(1, 3),
    "se(2)": catalogue.se(2),
    "scaling": catalogue.scaling(3),
    "gl(2)": catalogue.gl(2),
    "two planes": catalogue.torus(2),
}
every_algebra = pytest.mark.parametrize("generators", ALGEBRAS.values(), ids=ALGEBRAS)
ROUNDING = {torch.float64: 1e-10, torch.float32: 1e-5}
every_dtype = pytest.mark.parametrize("dtype", ROUNDING, ids=str)


def shaken(model: nn.Module) -> nn.Module:
    """Parameters, biases among them, at random: equivariance must not rest on the first ones."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def error(model: nn.Module, generators: Tensor, x: Tensor, output: str) -> float:
    action = VectorAction(generators.shape[-1])
    moved = {"same": action, "invariant": InvariantAction()}[output]
    return testing.equivariance_error(model, generators, x, action=action, output=moved)


# --- equivariance -------------------------------------------------------------------------------


@every_dtype
@every_algebra
@pytest.mark.parametrize("n", [1, 3])
def test_outputs_move_with_inputs(generators: Tensor, n: int, dtype: torch.dtype) -> None:
    generators, d = generators.to(dtype), generators.shape[-1]
    x = torch.randn(20, n, d, dtype=dtype)
    model = shaken(EMLP(generators, (n, d), (2, d)))
    assert model(x).shape == (20, 2, d)
    assert model(x).dtype == dtype
    assert float(model(x).detach().std()) > 0.1
    assert error(model, generators, x, "same") < ROUNDING[dtype]


@every_dtype
@pytest.mark.parametrize("name", ["two-body", "so(3)", "so(1,3)", "two planes"])
def test_invariant_outputs_do_not_move(name: str, dtype: torch.dtype) -> None:
    generators = ALGEBRAS[name].to(dtype)
    d = generators.shape[-1]
    x = torch.randn(20, 3, d, dtype=dtype)
    model = shaken(EMLP(generators, (3, d), (4,), output="invariant"))
    assert model(x).shape == (20, 4)
    # They tell one sample from another: constants would be invariant too.
    assert float(model(x).detach().std(0).min()) > 1e-2
    assert error(model, generators, x, "invariant") < ROUNDING[dtype]


@pytest.mark.parametrize("output", ["same", "invariant"])
def test_plain_perceptron_is_not_equivariant(output: str) -> None:
    x = torch.randn(20, 8)
    assert error(MLP((8,), (8,), (40, 40, 40)), ROTATION, x, output) > 0.1


def test_one_generator_of_three_leaves_the_others_free() -> None:
    """Equivariant under what it was given and under nothing else."""
    turns, x = catalogue.so(3).double(), torch.randn(20, 3, dtype=torch.float64)
    model = shaken(EMLP(turns[:1], (3,), (3,)))
    assert error(model, turns[:1], x, "same") < 1e-10
    assert error(model, turns[1:], x, "same") > 0.1


def test_length_of_a_generator_does_not_matter() -> None:
    """A generator a million times shorter than another still counts."""
    scaled = catalogue.so(3).double() * torch.tensor([1.0, 1e-6, 1e6]).double()[:, None, None]
    x = torch.randn(20, 3, dtype=torch.float64)
    assert error(EMLP(scaled, (3,), (3,)), catalogue.so(3).double(), x, "same") < 1e-10


def test_samples_may_come_with_or_without_an_axis_of_vectors() -> None:
    x = torch.randn(5, 8)
    torch.manual_seed(1)
    flat = EMLP(ROTATION, (8,), (8,))
    torch.manual_seed(1)
    stacked = EMLP(ROTATION, (1, 8), (1, 8))
    assert torch.equal(flat(x), stacked(x.unsqueeze(1)).squeeze(1))


# --- equivariant maps ---------------------------------------------------------------------------


def test_maps_that_commute_with_the_two_body_rotation_are_complex_linear() -> None:
    """4 × 4 complex numbers, each a turn and a scaling of a plane: 32 dimensions."""
    maps = equivariant_maps(ROTATION, ROTATION)
    assert maps.shape == (32, 8, 8)
    gram = torch.einsum("kij,lij->kl", maps, maps)
    torch.testing.assert_close(gram, torch.eye(32), atol=1e-5, rtol=0)
    torch.testing.assert_close(maps @ ROTATION, ROTATION @ maps, atol=1e-5, rtol=0)


def test_only_multiples_of_the_identity_commute_with_an_irreducible_algebra() -> None:
    for generators in (catalogue.so(3), catalogue.so_pq(1, 3), catalogue.gl(2)):
        maps, d = equivariant_maps(generators, generators), generators.shape[-1]
        assert len(maps) == 1
        torch.testing.assert_close(maps[0] / maps[0, 0, 0], torch.eye(d), atol=1e-6, rtol=0)


def test_preserved_form_is_the_metric() -> None:
    boosts = catalogue.so_pq(1, 3)
    form = equivariant_maps(boosts, -boosts.mT)
    assert len(form) == 1
    metric = torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0]))
    torch.testing.assert_close(form[0] / form[0, 3, 3], metric, atol=1e-6, rtol=0)


def test_invariant_vectors_are_those_that_no_generator_moves() -> None:
    turn = catalogue.so(3)[:1]  # leaves the third axis
    axis = equivariant_maps(torch.zeros(1, 1, 1), turn).flatten()
    torch.testing.assert_close(axis.abs(), torch.tensor([0.0, 0.0, 1.0]))
    assert len(equivariant_maps(torch.zeros(3, 1, 1), catalogue.so(3))) == 0
    # Hence a bias in one network and none in the other.
    still = torch.zeros(1, 3)
    assert abs(float(shaken(EMLP(turn, (3,), (3,)))(still)[0, 2].detach())) > 1e-2
    assert float(shaken(EMLP(catalogue.so(3), (3,), (3,)))(still).detach().abs().max()) < 1e-12


def test_noisy_generator_needs_a_tolerance_of_its_noise(rng: torch.Generator) -> None:
    """Exactly, only its own powers commute with it, 8 of them, and it preserves no form."""
    noisy = ROTATION + 1e-3 * torch.randn(1, 8, 8, generator=rng)
    assert len(equivariant_maps(noisy, noisy, tolerance=1e-5)) == 8
    assert len(equivariant_maps(noisy, -noisy.mT, tolerance=1e-5)) == 0
    assert len(equivariant_maps(noisy, noisy, tolerance=1e-2)) == 32
    assert len(equivariant_maps(noisy, -noisy.mT, tolerance=1e-2)) == 32
    x = torch.randn(20, 8, generator=rng)
    assert error(shaken(EMLP(noisy, (8,), (8,))), noisy, x, "same") < 1e-4
    assert error(shaken(EMLP(noisy, (8,), (8,), tolerance=1e-2)), ROTATION, x, "same") < 1e-2


# --- training -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two-body", "so(3)", "so(1,3)"])
@pytest.mark.parametrize("n", [1, 10])
def test_outputs_start_of_the_size_of_the_inputs(name: str, n: int) -> None:
    d = ALGEBRAS[name].shape[-1]
    x, sizes = torch.randn(200, n, d), []
    for _ in range(20):
        model = EMLP(ALGEBRAS[name], (n, d), (n, d))
        sizes.append(float(model(x).detach().square().mean().sqrt()))
    assert 0.3 < sorted(sizes)[10] < 5.0


@pytest.mark.parametrize("output", ["same", "invariant"])
def test_stacked_networks_give_what_each_gives_alone(output: str) -> None:
    shape = (3, 8) if output == "same" else (2,)
    models = [EMLP(ROTATION.double(), (3, 8), shape, output=output) for _ in range(4)]
    x = torch.randn(4, 6, 3, 8, dtype=torch.float64)
    parameters, buffers = torch.func.stack_module_state(models)
    skeleton = copy.deepcopy(models[0]).to("meta")

    def run(p: dict[str, Tensor], b: dict[str, Tensor], batch: Tensor) -> Tensor:
        return torch.func.functional_call(skeleton, (p, b), (batch,))

    together = torch.func.vmap(run)(parameters, buffers, x)
    alone = torch.stack([model(batch) for model, batch in zip(models, x, strict=True)])
    torch.testing.assert_close(together, alone, atol=1e-12, rtol=1e-12)


def test_every_parameter_has_a_finite_gradient() -> None:
    model = EMLP(ROTATION, (2, 8), (2, 8))
    model(torch.randn(30, 2, 8)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        assert parameter.numel() == 0 or float(parameter.grad.abs().max()) > 0, name


def test_learns_two_body_motion_where_no_orbit_was_seen() -> None:
    """Trained on one half plane, tested on the other, against predicting that nothing moves."""
    task = two_body(40, 40)
    model = EMLP(task.generator, (8,), (8,))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(300):
        chosen = torch.randint(len(task.x_train), (64,))
        loss = (model(task.x_train[chosen]) - task.y_train[chosen]).square().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        found = float((model(task.x_test) - task.y_test).square().mean())
    still = float((task.x_test - task.y_test).square().mean())
    assert found < still / 4
    assert error(model, task.generator, task.x_test, "same") < 1e-5


def test_state_can_be_saved_and_loaded() -> None:
    x, model, other = torch.randn(3, 8), EMLP(ROTATION, (8,), (8,)), EMLP(ROTATION, (8,), (8,))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generators", "message"),
    [
        (torch.zeros(8, 8), r"shape \(8, 8\); expected \(c, d, d\)"),
        (torch.zeros(1, 8, 7), r"shape \(1, 8, 7\); expected \(c, d, d\)"),
        (torch.zeros(0, 8, 8), "needs at least 1"),
        (torch.full((1, 8, 8), float("nan")), "non-finite"),
    ],
)
def test_malformed_generators_are_refused(generators: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EMLP(generators, (8,), (8,))


def test_shapes_and_outputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"in_shape=\(3,\): the generators move vectors of 8"):
        EMLP(ROTATION, (3,), (8,))
    with pytest.raises(ValueError, match=r"out_shape=\(8, 3\): the generators move vectors of 8"):
        EMLP(ROTATION, (8,), (8, 3))
    with pytest.raises(ValueError, match="unknown output 'scalar'; choose from invariant, same"):
        EMLP(ROTATION, (8,), (1,), output="scalar")

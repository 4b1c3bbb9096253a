"""Networks built from an algebra are equivariant whatever their weights, and learn from little."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lieaugmenter import testing
from lieaugmenter.actions import (
    Action,
    AffineAction,
    DisplacementAction,
    InvariantAction,
    VectorAction,
)
from lieaugmenter.lie import catalogue
from lieaugmenter.nets import MLP
from lieaugmenter.nets.equivariant import EquivariantNetwork, equivariant_maps, tensor_square

# Generators, and whether they are affine.
ALGEBRAS = {
    "so(2)": (catalogue.so(2), False),
    "so(3)": (catalogue.so(3), False),
    "so(1,3)": (catalogue.so_pq(1, 3), False),
    "sl(2)": (catalogue.sl(2), False),
    "torus(2)": (catalogue.torus(2), False),
    "se(2)": (catalogue.se(2), True),
    "se(3)": (catalogue.se(3), True),
    "translations(2)": (catalogue.translations(2), True),
    "scaling": (catalogue.scaling(3), False),
}
every_algebra = pytest.mark.parametrize("name", ALGEBRAS)
either_order = pytest.mark.parametrize("exchangeable", [False, True], ids=["list", "set"])


def shaken(model: nn.Module) -> nn.Module:
    """Parameters, biases among them, at random: equivariance must not rest on the first ones."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def action_of(name: str) -> Action:
    generators, affine = ALGEBRAS[name]
    d = generators.shape[-1] - affine
    return AffineAction(d) if affine else VectorAction(d)


# --- equivariance -------------------------------------------------------------------------------


@every_algebra
@either_order
def test_outputs_move_with_inputs(name: str, exchangeable: bool) -> None:
    generators, affine = ALGEBRAS[name]
    action, shape = action_of(name), (4, generators.shape[-1] - affine)
    model = EquivariantNetwork(
        generators, shape, shape, output="same", affine=affine, exchangeable=exchangeable
    )
    x = torch.randn(20, *shape)
    error = testing.equivariance_error(shaken(model), generators, x, action=action, output=action)
    assert error < 1e-5
    assert float((model(x) - x).detach().std()) > 0.1


@every_algebra
@either_order
@pytest.mark.parametrize("vectors", [(4,), (), (2,)], ids=["one a point", "one", "two"])
def test_vectors_turn_with_inputs_but_are_not_translated(
    name: str, exchangeable: bool, vectors: tuple[int, ...]
) -> None:
    """In double precision: the mean of a set hardly has a direction of its own."""
    generators, affine = ALGEBRAS[name][0].double(), ALGEBRAS[name][1]
    d = generators.shape[-1] - affine
    model = EquivariantNetwork(
        generators,
        (4, d),
        (*vectors, d),
        output="vector",
        affine=affine,
        exchangeable=exchangeable,
    )
    x = torch.randn(20, 4, d, dtype=torch.float64)
    moved = DisplacementAction(d) if affine else VectorAction(d)
    error = testing.equivariance_error(
        shaken(model), generators, x, action=action_of(name), output=moved
    )
    assert error < 1e-10
    assert model(x).shape == (20, *vectors, d)


@pytest.mark.parametrize("name", [name for name in ALGEBRAS if name != "scaling"])
@either_order
def test_invariant_outputs_do_not_move(name: str, exchangeable: bool) -> None:
    generators, affine = ALGEBRAS[name]
    shape = (4, generators.shape[-1] - affine)
    model = EquivariantNetwork(generators, shape, (2,), affine=affine, exchangeable=exchangeable)
    x = torch.randn(20, *shape)
    error = testing.equivariance_error(shaken(model), generators, x, action=action_of(name))
    assert error < 1e-5
    # They tell one sample from another: constants would be invariant too.
    assert float(model(x).detach().std(0).min()) > 1e-3


def test_skewed_coordinates_in_single_precision_are_no_worse() -> None:
    skew = torch.tensor([[1.0, 0.4, 0.1], [0.0, 1.5, -0.3], [0.2, 0.0, 0.7]])
    generators = skew @ catalogue.so(3) @ torch.linalg.inv(skew)
    model = shaken(EquivariantNetwork(generators, (4, 3), (2,)))
    x = torch.randn(20, 4, 3)
    assert testing.equivariance_error(model, generators, x, action=VectorAction(3)) < 1e-5
    assert float(model(x).detach().std(0).min()) > 1e-2


def test_plain_network_is_not_equivariant() -> None:
    x = torch.randn(20, 3)
    model = MLP((3,), (1,), (32, 32))
    assert testing.equivariance_error(model, catalogue.so(3), x, action=VectorAction(3)) > 0.1


@pytest.mark.parametrize("output", ["invariant", "same"])
def test_units_of_the_data_do_not_spoil_equivariance(output: str) -> None:
    """Points a thousand units apart, moved by hundreds of units."""
    generators = catalogue.se(2) * torch.tensor([1.0, 500.0, 500.0])[:, None, None]
    action = AffineAction(2)
    model = EquivariantNetwork(
        generators,
        (3, 2),
        (3, 2) if output == "same" else (1,),
        output=output,
        affine=True,
        scale=1000.0,
    )
    moved = action if output == "same" else InvariantAction()
    x = 1000 * torch.randn(20, 3, 2)
    error = testing.equivariance_error(shaken(model), generators, x, action=action, output=moved)
    assert error < 1e-5
    assert float(model(x).detach().std(0).max()) > 1e-2


def test_turn_about_another_centre_keeps_the_distance_from_it() -> None:
    """Not a translation in sight: the centre is found in the null space."""
    centre = torch.tensor([3.0, -1.0])
    turn = catalogue.lift(catalogue.so(2))
    turn[0, :2, 2] = -turn[0, :2, :2] @ centre
    model = shaken(EquivariantNetwork(turn, (2,), (1,), affine=True))
    radii = torch.tensor([1.0, 1.0, 2.0])[:, None]
    x = centre + radii * nn.functional.normalize(torch.randn(3, 2))
    near, again, far = model(x).detach().flatten()
    assert abs(float(near - again)) < 1e-5
    assert abs(float(near - far)) > 1e-3


@pytest.mark.parametrize("output", ["invariant", "same"])
def test_order_of_a_set_does_not_matter(output: str) -> None:
    shape = (5, 3) if output == "same" else (2,)
    x, order = torch.randn(7, 5, 3), torch.tensor([3, 1, 0, 4, 2])
    sets = shaken(
        EquivariantNetwork(catalogue.so(3), (5, 3), shape, output=output, exchangeable=True)
    )
    lists = shaken(EquivariantNetwork(catalogue.so(3), (5, 3), shape, output=output))

    def apart(model: nn.Module) -> float:
        direct = model(x)[:, order] if output == "same" else model(x)
        return float((model(x[:, order]) - direct).detach().abs().max())

    assert apart(sets) < 1e-5
    assert apart(lists) > 1e-2


def test_mirror_images_are_told_apart() -> None:
    """so(3) says nothing about reflections, so the network must not be blind to them."""
    x = torch.randn(20, 3, 3)
    mirrored = x * torch.tensor([-1.0, 1.0, 1.0])
    sighted = EquivariantNetwork(catalogue.so(3), (3, 3), (1,))
    blind = EquivariantNetwork(catalogue.so(3), (3, 3), (1,), products=False)
    assert float((blind(x) - blind(mirrored)).detach().abs().max()) < 1e-6
    assert float((sighted(x) - sighted(mirrored)).detach().abs().max()) > 1e-4


def test_products_of_vectors_are_equivariant() -> None:
    turns = catalogue.so(3).double()
    (cross,) = equivariant_maps(tensor_square(turns), turns)
    x, y = torch.randn(2, 3, dtype=torch.float64)
    product = (cross @ torch.kron(x, y)) / cross[2, 1]
    torch.testing.assert_close(product, torch.linalg.cross(x, y))
    assert len(equivariant_maps(tensor_square(catalogue.so(2)), catalogue.so(2))) == 0


# --- learning -----------------------------------------------------------------------------------


def trained(model: nn.Module, x: Tensor, y: Tensor, steps: int = 400) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        chosen = torch.randint(len(x), (64,))
        loss = (model(x[chosen]) - y[chosen]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


METRIC = torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0]))


@pytest.mark.parametrize(
    ("generators", "target"),
    [
        (catalogue.so(3), lambda x: x.square().sum(1, keepdim=True)),
        (catalogue.so_pq(1, 3), lambda x: ((x @ METRIC) * x).sum(1, keepdim=True)),
    ],
    ids=["squared length", "Minkowski norm"],
)
def test_learns_an_invariant_from_few_samples_better_than_a_plain_network(
    generators: Tensor, target: Callable[[Tensor], Tensor]
) -> None:
    d = generators.shape[-1]
    x, held_out = torch.randn(500, d), torch.randn(1000, d)
    models = [
        EquivariantNetwork(generators, (d,), (1,), hidden=(16, 16)),
        MLP((d,), (1,), (64, 64)),
    ]
    errors = []
    for model in models:
        found = trained(model, x, target(x))(held_out).detach()
        errors.append(float((found - target(held_out)).square().mean()))
    assert errors[0] < errors[1] / 10
    assert errors[0] < 1e-3 * float(target(held_out).var())


def test_learns_a_volume() -> None:
    """The triple product changes sign in a mirror: out of reach without products of vectors."""
    x, held_out = torch.randn(500, 3, 3), torch.randn(500, 3, 3)
    y, truth = torch.linalg.det(x)[:, None], torch.linalg.det(held_out)[:, None]
    model = trained(EquivariantNetwork(catalogue.so(3), (3, 3), (1,), hidden=(16, 16)), x, y)
    with torch.no_grad():
        assert float((model(held_out) - truth).square().mean()) < 0.05 * float(truth.var())


def test_every_parameter_has_a_finite_gradient() -> None:
    model = EquivariantNetwork(catalogue.se(3), (4, 3), (1,), affine=True, exchangeable=True)
    model(torch.randn(30, 4, 3)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generators", "shape", "affine"),
    [
        (catalogue.scaling(3), (4, 3), False),
        (catalogue.gl(2), (3, 2), False),
        (catalogue.sl(2), (2,), False),
        (catalogue.se(2), (2,), True),
    ],
    ids=["scaling", "gl(2)", "sl(2) on one vector", "se(2) on one point"],
)
def test_missing_invariants_are_an_error_not_a_constant(
    generators: Tensor, shape: tuple[int, ...], affine: bool
) -> None:
    with pytest.raises(ValueError, match=r"no invariant network.*no polynomial is invariant"):
        EquivariantNetwork(generators, shape, (1,), affine=affine)


def test_shapes_and_generators_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="move vectors of 2 numbers"):
        EquivariantNetwork(catalogue.se(2), (5, 3), (1,), affine=True)
    with pytest.raises(ValueError, match=r"must be in_shape=\(5, 2\)"):
        EquivariantNetwork(catalogue.se(2), (5, 2), (1, 2), output="same", affine=True)
    with pytest.raises(ValueError, match="last row of zeros"):
        EquivariantNetwork(catalogue.so(3), (5, 2), (1,), affine=True)
    with pytest.raises(ValueError, match="unknown output 'scalar'; choose from invariant, same"):
        EquivariantNetwork(catalogue.so(3), (3,), (1,), output="scalar")
    with pytest.raises(ValueError, match="a set needs"):
        EquivariantNetwork(catalogue.so(3), (3,), (1,), exchangeable=True)

"""Discrete components: told from two predictors, beside the identity component, or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lieaugmenter import LieAugmenter, fit
from lieaugmenter.actions import (
    Action,
    AffineAction,
    FourVectorAction,
    ImageAction,
    InvariantAction,
    VectorAction,
)
from lieaugmenter.analysis.components import (
    UNJUDGED,
    Candidate,
    Components,
    components,
    outcome_of,
    reached,
)
from lieaugmenter.lie import catalogue
from lieaugmenter.nets import MLP

INVARIANT = InvariantAction()
Function = Callable[[Tensor], Tensor]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def length(x: Tensor) -> Tensor:
    return x.norm(dim=-1, keepdim=True)


def even_in_z(x: Tensor) -> Tensor:
    return x[:, :2].norm(dim=1, keepdim=True) + 0.5 * x[:, 2:] ** 2


def odd_in_z(x: Tensor) -> Tensor:
    return x[:, :2].norm(dim=1, keepdim=True) + 0.5 * x[:, 2:] ** 3


def triple_product(x: Tensor) -> Tensor:
    return torch.linalg.det(x)[:, None]


def angle(x: Tensor) -> Tensor:
    return torch.atan2(x[:, 1:], x[:, :1])


def four_petals(x: Tensor) -> Tensor:
    return length(x).square() * torch.cos(4 * angle(x))


def twisted_petals(x: Tensor) -> Tensor:
    """Petals that turn with the radius, so that no mirror is left."""
    return length(x).square() * torch.cos(4 * angle(x) + length(x))


def alike_in_three(x: Tensor) -> Tensor:
    three = x[:, :3]
    return three.prod(1, keepdim=True) + three.sum(1, keepdim=True) + torch.sin(2 * x[:, 3:])


def sides(x: Tensor) -> Tensor:
    return torch.stack([(x[:, i] - x[:, j]).norm(dim=1) for i, j in ((0, 1), (1, 2), (0, 2))], 1)


def perimeter(x: Tensor) -> Tensor:
    return sides(x).sum(1, keepdim=True)


def signed_area(x: Tensor) -> Tensor:
    a, b = x[:, 1] - x[:, 0], x[:, 2] - x[:, 0]
    return (a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])[:, None]


def mass(x: Tensor) -> Tensor:
    return x[:, :1] ** 2 - x[:, 1:].square().sum(1, keepdim=True)


def four_momenta(n: int) -> Tensor:
    momenta, masses = normal(n, 3), normal(n, 1, seed=1).abs() + 0.2
    return torch.cat([(masses**2 + momenta.square().sum(1, keepdim=True)).sqrt(), momenta], 1)


def trained_pair(target: Function, x: Tensor, epochs: int) -> tuple[list[nn.Module], Tensor]:
    """Predictors of two halves of four fifths of the samples, and the samples that are left."""
    y = target(x)
    y = (y - y.mean()) / y.std() + 0.01 * normal(*y.shape, seed=2)
    half = 2 * len(x) // 5
    models = []
    for number in (0, 1):
        torch.manual_seed(number)
        model = MLP(x.shape[1:], (1,), hidden=(64, 64))
        part = slice(number * half, (number + 1) * half)
        fit(
            model, None, (x[part], y[part]), epochs=epochs, lr=3e-3, seed=number, device="cpu",
            progress=False,
        )  # fmt: skip
        models.append(model.requires_grad_(False))
    return models, x[2 * half :]


@cache
def found_in(
    target: Function,
    shape: tuple[int, ...],
    action: Action,
    group: str | None,
    epochs: int = 25,
    samples: int = 5000,
) -> Components:
    models, held_out = trained_pair(target, normal(samples, *shape), epochs)
    generators = None
    if group is not None:
        generators = catalogue.named(group)
        if generators.shape[-1] < action.dim:
            generators = catalogue.lift(generators)
    return components(*models, held_out, action=action, output=INVARIANT, generators=generators)


def of_functions(
    function: Function, x: Tensor, action: Action, output: Action = INVARIANT, **settings: Any
) -> Components:
    return components(function, function, x, action=action, output=output, **settings)


def outcomes(found: Components) -> dict[str, str]:
    return {c.candidate.name: c.outcome for c in found.components}


# -- trained predictors ----------------------------------------------------------------------------


def test_length_has_the_whole_orthogonal_group() -> None:
    found = found_in(length, (3,), VectorAction(3), "so(3)")
    assert found.group == "O(3)"
    (mirror,) = found.components
    assert mirror.upper < 0.1
    assert "parity" in mirror.alike
    # Half turns and permutations of even parity are rotations already.
    assert {"reflection of axes 0, 1", "cycle of all axes"} <= set(found.contained)


def test_triple_product_has_rotations_only() -> None:
    found = found_in(triple_product, (3, 3), VectorAction(3), "so(3)")
    assert found.group == "SO(3)"
    assert set(outcomes(found).values()) == {"absent"}
    assert "swap of points 0 and 1" in outcomes(found)


def test_even_and_odd_dependence_on_the_axis_of_rotation_are_told_apart() -> None:
    even = found_in(even_in_z, (3,), VectorAction(3), "so(2)")
    odd = found_in(odd_in_z, (3,), VectorAction(3), "so(2)")
    assert outcomes(even)["reflection of axis 2"] == "present"
    assert outcomes(odd)["reflection of axis 2"] == "absent"
    assert outcomes(odd)["reflection of axis 0"] == "present"
    assert even.group == "O(2) with reflection of axis 2"
    assert odd.group == "O(2)"


def test_finite_rotations_are_found_where_there_is_no_continuous_one() -> None:
    found = found_in(four_petals, (2,), VectorAction(2), None)
    assert found.group == "D4"
    assert outcomes(found)["rotation of axes 0, 1 by 1/4 turn"] == "present"
    assert outcomes(found)["rotation of axes 0, 1 by 1/3 turn"] == "absent"


def test_petals_that_turn_with_the_radius_have_no_mirror() -> None:
    found = found_in(twisted_petals, (2,), VectorAction(2), None, epochs=60, samples=10_000)
    assert found.group == "C4"
    assert outcomes(found)["reflection of axis 0"] == "absent"


def test_permutations_of_features_are_found_and_no_others() -> None:
    found = found_in(alike_in_three, (4,), VectorAction(4), None)
    assert found.group == "S3 on axes 0, 1, 2"
    assert {c.candidate.name for c in found.with_outcome("present")} == {
        f"swap of axes {i} and {j}" for i, j in ((0, 1), (0, 2), (1, 2))
    }


def test_rigid_motions_with_and_without_mirrors_are_told_apart() -> None:
    mirrored = found_in(perimeter, (3, 2), AffineAction(2), "se(2)")
    oriented = found_in(signed_area, (3, 2), AffineAction(2), "se(2)")
    assert mirrored.group == "E(2) with swap of points 0 and 1, swap of points 1 and 2"
    assert oriented.group == "SE(2)"


def test_predictors_that_have_learned_nothing_show_nothing() -> None:
    x = normal(300, 3)
    for seed in range(6):
        torch.manual_seed(seed)
        pair = [MLP((3,), (1,), hidden=(32, 32)).requires_grad_(False) for _ in range(2)]
        found = components(*pair, x, action=VectorAction(3), output=INVARIANT)
        assert not found.with_outcome("present")


# -- what the samples can tell ---------------------------------------------------------------------


def test_time_reversal_of_particles_cannot_be_judged() -> None:
    found = of_functions(
        mass, four_momenta(600), FourVectorAction(), generators=catalogue.so_pq(1, 3)
    )
    assert outcomes(found)["time reversal"] == "cannot be judged"
    assert outcomes(found)["reflection of axis 1"] == "present"
    assert found.group == "at least O⁺(1,3)"
    assert any("time reversal" in reason for reason in found.reasons)


@pytest.mark.parametrize(
    ("function", "group"),
    [
        (mass, "O(1,3)"),
        (lambda x: mass(x) + (x[:, :1] > 0) * (mass(x) > 0) * mass(x), "O⁺(1,3)"),
    ],
)
def test_the_components_of_the_lorentz_group_have_their_names(
    function: Function, group: str
) -> None:
    x = normal(600, 4)
    found = of_functions(function, x, FourVectorAction(), generators=catalogue.so_pq(1, 3))
    assert found.group == group


def test_a_mirror_image_of_the_region_cannot_be_judged() -> None:
    x = normal(500, 3)
    x[:, 0] = x[:, 0].abs() + 0.5
    found = of_functions(lambda x: x[:, :1] ** 2 + x[:, 1:2], x, VectorAction(3))
    assert outcomes(found)["reflection of axis 0"] == "cannot be judged"
    assert outcomes(found)["reflection of axis 1"] == "absent"
    assert outcomes(found)["reflection of axis 2"] == "present"


def test_a_swap_of_points_leaves_vectors_that_are_not_theirs() -> None:
    """Two vectors that describe four points, none of which they belong to."""

    def two_vectors(x: Tensor) -> Tensor:
        return torch.stack([x.mean(1), x.square().sum((1, 2))[:, None] * x.sum(1)], dim=1)

    space = VectorAction(3)
    found = components(two_vectors, two_vectors, normal(300, 4, 3), action=space, output=space)
    assert outcomes(found)["swap of points 0 and 1"] == "present"


def test_features_of_different_size_cannot_be_swapped() -> None:
    x = normal(500, 2) * torch.tensor([1.0, 10.0])
    found = of_functions(lambda x: x.sum(1, keepdim=True), x, VectorAction(2))
    assert outcomes(found)["swap of axes 0 and 1"] == "cannot be judged"


def test_what_hardly_moves_samples_does_not_pass_for_a_symmetry() -> None:
    """The mirror changes the output by a twentieth of its spread, but moves the samples less."""
    x = normal(500, 3) * torch.tensor([1.0, 1.0, 0.01])
    found = outcomes(of_functions(lambda x: x[:, :1] + 5 * x[:, 2:], x, VectorAction(3)))
    # In units of the spread it moves them as far as any other mirror, and changes little.
    assert found["reflection of axis 2"] == "unclear"
    noticed = outcomes(of_functions(lambda x: x[:, :1] + 10 * x[:, 2:], x, VectorAction(3)))
    assert noticed["reflection of axis 2"] == "absent"


@pytest.mark.parametrize("unit", [1e-4, 0.01, 1.0, 1000.0])
def test_components_do_not_depend_on_the_units_of_columns(unit: float) -> None:
    def third_column(x: Tensor) -> Tensor:
        return x[:, :1] ** 3 + 2 * x[:, 2:] / unit + 0.1 * (x[:, 1:2] / unit) ** 2

    x = normal(500, 3) * torch.tensor([1.0, unit, unit])
    found = outcomes(of_functions(third_column, x, VectorAction(3)))
    assert found["reflection of axis 2"] == "absent"
    assert found["reflection of axis 0"] == "absent"
    assert found["reflection of axis 1"] == "present"


def test_what_moves_no_sample_is_not_listed_as_a_symmetry() -> None:
    x = normal(200, 3)
    x[:, 2] = 0.0
    found = of_functions(lambda x: x[:, :1].exp(), x, VectorAction(3))
    assert "reflection of axis 2" not in outcomes(found)
    assert "Moves no sample: reflection of axis 2." in found.reasons


def test_errors_that_the_predictors_do_not_share_are_no_asymmetry() -> None:
    x = normal(2000, 3)

    def first(x: Tensor) -> Tensor:
        return length(x) + 0.3 * torch.sin(3 * x[:, :1])

    def second(x: Tensor) -> Tensor:
        return length(x) + 0.3 * torch.sin(3 * x[:, :1]) * x[:, 1:2].sign()

    settings: dict[str, Any] = {
        "action": VectorAction(3),
        "output": INVARIANT,
        "generators": catalogue.so(3),
    }
    alone = components(first, first, x, **settings)
    together = components(first, second, x, **settings)
    assert alone.group == "SO(3)"
    assert together.group != "SO(3)"
    assert abs(together.components[0].defect) < 0.3 * alone.components[0].defect


def test_equivariant_outputs_move_with_the_inputs() -> None:
    x, vector = normal(400, 2, 3), VectorAction(3)

    def polar(x: Tensor) -> Tensor:
        return x[:, 0] * x[:, 1].norm(dim=1, keepdim=True)

    def axial(x: Tensor) -> Tensor:
        return torch.linalg.cross(x[:, 0], x[:, 1])

    settings = {"output": vector, "generators": catalogue.so(3)}
    assert of_functions(polar, x, vector, **settings).group == "O(3)"
    assert of_functions(axial, x, vector, **settings).group == "SO(3)"


@pytest.mark.parametrize("side", [6, 20])
def test_images_have_mirrors(side: int) -> None:
    x = normal(300, 1, side, side)
    weights = torch.linspace(0, 1, side)[:, None].expand(side, side)
    found = of_functions(lambda x: (x * weights).sum((1, 2, 3))[:, None], x, ImageAction())
    assert outcomes(found)["reflection of axis 0"] == "present"
    assert outcomes(found)["reflection of axis 1"] == "absent"


# -- the identity component ------------------------------------------------------------------------


def test_only_what_is_connected_to_the_identity_is_reached() -> None:
    eye = torch.eye(4)
    quarter = torch.eye(4)[[1, 0, 2, 3]] * torch.tensor([[-1.0], [1], [1], [1]])
    candidates = torch.stack([eye, -eye, quarter, torch.diag(torch.tensor([-1.0, 1, 1, 1]))])
    assert reached(candidates, catalogue.so(4)).tolist() == [True, True, True, False]
    # Reversing space and time keeps the orientation, and yet nothing leads there.
    assert reached(candidates, catalogue.so_pq(1, 3)).tolist() == [True, False, False, False]
    assert reached(candidates, catalogue.lift(catalogue.so(3))).tolist()[2]


def test_generators_that_are_a_little_off_reach_the_same() -> None:
    off = catalogue.so(3) + 0.03 * normal(3, 3, 3)
    turns = torch.stack([torch.diag(torch.tensor(s)) for s in ([-1.0, -1, 1], [1.0, -1, -1])])
    assert reached(turns, off).all()


def test_what_would_enlarge_the_continuous_symmetry_is_not_tested() -> None:
    found = of_functions(
        even_in_z, normal(300, 3), VectorAction(3), generators=catalogue.lift(catalogue.so(2))
    )
    assert "swap of axes 0 and 2" not in outcomes(found)
    assert any("swap of axes 0 and 2" in reason for reason in found.reasons)


def test_candidates_of_the_user_are_tested() -> None:
    turn = math.pi * 2 / 7
    matrix = torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    found = of_functions(
        lambda x: length(x) * torch.cos(7 * angle(x)),
        normal(400, 2),
        VectorAction(2),
        candidates=[Candidate("a seventh of a turn", matrix)],
    )
    assert outcomes(found) == {"a seventh of a turn": "present"}
    assert found.group == "C7"


# -- the result ------------------------------------------------------------------------------------


def test_result_can_be_read_written_and_used() -> None:
    found = found_in(length, (3,), VectorAction(3), "so(3)")
    assert "reflection of axis 0  present" in str(found)
    assert json.loads(json.dumps(found.to_json()))["group"] == "O(3)"
    augmenter = LieAugmenter(
        "vector", 3, output="invariant", components=found.representatives.float()
    )
    assert augmenter.views(normal(4, 3)).shape[0] == 4


@pytest.mark.parametrize(
    ("bounds", "agreement", "outcome"),
    [
        ((0.0, -0.1, 0.05), 0.1, "present"),
        ((0.5, 0.3, 0.6), 0.9, "absent"),
        ((0.5, 0.3, 0.6), 0.3, "unclear"),
        ((0.1, 0.05, 0.2), 0.9, "unclear"),
        ((-0.6, -0.7, -0.5), -0.9, "unclear"),
    ],
)
def test_outcome_follows_from_bounds_and_agreement(
    bounds: tuple[float, float, float], agreement: float, outcome: str
) -> None:
    assert outcome_of(*bounds, agreement, bound=0.1) == outcome


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 20 samples"):
        of_functions(length, normal(10, 3), VectorAction(3))


def test_nothing_tested_has_no_representatives() -> None:
    assert Components("trivial", None, []).representatives.shape == (0, 0, 0)


@pytest.mark.parametrize(("masses", "outcome"), [((1.0, 1.0), "present"), ((0.5, 1.0), UNJUDGED)])
def test_a_swap_that_no_sample_shows_cannot_be_judged(
    masses: tuple[float, float], outcome: str
) -> None:
    """Particles of different mass: a swapped pair is never seen, whatever predictors say of it."""
    momenta = torch.randn(400, 2, 3, generator=torch.Generator().manual_seed(0))
    energies = (momenta.square().sum(-1) + torch.tensor(masses).square()).sqrt()
    x = torch.cat([energies.unsqueeze(-1), momenta], dim=-1)

    def mass(x: Tensor) -> Tensor:
        whole = x.sum(1)
        return (whole[:, 0] ** 2 - whole[:, 1:].square().sum(1)).unsqueeze(1)

    found = components(mass, mass, x, action=FourVectorAction(), output=InvariantAction())
    (swap,) = [c for c in found.components if c.candidate.name == "swap of points 0 and 1"]
    assert swap.outcome == outcome


def test_a_mirror_of_the_axes_that_turn_makes_them_the_whole_orthogonal_group() -> None:
    def partly(x: Tensor) -> Tensor:
        return (x[:, :3].norm(dim=1) + x[:, 3] ** 2 + x[:, 4]).unsqueeze(1)

    turns = catalogue.lift(catalogue.lift(catalogue.so(3)))
    found = components(
        partly, partly, normal(400, 5), action=VectorAction(5), output=INVARIANT, generators=turns
    )
    assert found.group == "O(3) with reflection of axis 3"


def test_generators_without_a_name_are_no_group_by_their_number() -> None:
    def lopsided(x: Tensor) -> Tensor:
        return (x[:, :1] - 2 * x[:, 1:2] + x[:, 2:] ** 2).exp()

    found = of_functions(lopsided, normal(400, 3), VectorAction(3), generators=normal(1, 3, 3))
    assert found.identity is None
    assert not found.group
    assert "group: unnamed" in str(found)


def test_a_parity_is_no_mirror_of_a_slanted_plane_that_turns() -> None:
    """Turns about a slanted axis, and minus one: no mirror of the plane is among them."""
    axis = torch.tensor([1.0, 2.0, 3.0]) / 14**0.5
    turn = torch.linalg.cross(axis.expand(3, 3), torch.eye(3)).mT.unsqueeze(0)

    def handed(x: Tensor) -> Tensor:
        first, second = x.unbind(1)
        across = torch.linalg.cross(first, second) @ axis
        return torch.stack([across, (first @ axis) * (second @ axis), first.norm(dim=1)], dim=1)

    found = components(
        handed, handed, normal(400, 2, 3), action=VectorAction(3), output=INVARIANT, generators=turn
    )
    assert found.group.removeprefix("at least ") == "SO(2) with parity"

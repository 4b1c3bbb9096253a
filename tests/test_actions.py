"""Every action against the contract, and what is particular to each."""

from __future__ import annotations

import math

import pytest
import torch
from contracts.action_contract import ActionContract, moved_once, relative_gap
from torch import Tensor

from lieaugmenter.actions import (
    Action,
    AffineAction,
    DirectSumAction,
    DisplacementAction,
    FourVectorAction,
    FunctionAction,
    ImageAction,
    InvariantAction,
    StructuredAction,
    VectorAction,
)
from lieaugmenter.actions.base import Batch, batch_size, composition_error, map_tensors
from lieaugmenter.lie import catalogue
from lieaugmenter.lie.elements import Elements
from lieaugmenter.testing import assert_action, differential_error


def blobs(rng: torch.Generator, *shape: int) -> Tensor:
    """Smooth images: a Gaussian blob away from the centre in each channel, zero at the edge."""
    *leading, height, width = shape
    size = min(height, width)
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    offset = (torch.rand(*leading, 2, 1, 1, generator=rng) - 0.5) * size / 4
    down = y - (height - 1) / 2 - offset[..., 0, :, :]
    right = x - (width - 1) / 2 - offset[..., 1, :, :]
    # Longer than wide: a round blob would hardly show a rotation.
    return torch.exp(-((down / (size / 12)) ** 2) / 2 - (right / (size / 8)) ** 2 / 2)


def constant(basis: Tensor, *coefficients: float, batch: int = 1) -> Elements:
    """The same single element for every sample."""
    return Elements(torch.tensor(coefficients).expand(batch, 1, -1), basis)


# --- the contract -------------------------------------------------------------------------------


class TestVector(ActionContract):
    def make_action(self) -> Action:
        return VectorAction(3)

    def make_batch(self, rng: torch.Generator) -> Batch:
        return torch.randn(4, 3, generator=rng)

    def basis(self) -> Tensor:
        return catalogue.gl(3)

    def bad_batches(self) -> list[tuple[Batch, str]]:
        message = r"expects \(N, 3\)"
        return [(torch.zeros(5, 4), message), (torch.zeros(3), message), ({}, "is a dict")]


class TestVectorOneGenerator(TestVector):
    """One generator goes another way: no matrix is formed."""

    def basis(self) -> Tensor:
        return catalogue.so(3)[:1]


class TestVectorStack(TestVector):
    """Time steps or particles: all vectors of a sample are moved alike."""

    def make_batch(self, rng: torch.Generator) -> Batch:
        return torch.randn(4, 5, 2, 3, generator=rng)


class TestFourVector(ActionContract):
    def make_action(self) -> Action:
        return FourVectorAction()

    def make_batch(self, rng: torch.Generator) -> Batch:
        return torch.randn(4, 6, 4, generator=rng)

    def basis(self) -> Tensor:
        return catalogue.named("so(1,3)")

    def bad_batches(self) -> list[tuple[Batch, str]]:
        return [(torch.zeros(5, 3), r"\(E, px, py, pz\)"), ((torch.zeros(5, 4),), "is a tuple")]


class TestInvariant(ActionContract):
    def make_action(self) -> Action:
        return InvariantAction()

    def make_batch(self, rng: torch.Generator) -> Batch:
        return torch.randn(4, 2, generator=rng)

    def basis(self) -> Tensor:
        return catalogue.so(2)

    def test_gradients_reach_every_generator(self, rng: torch.Generator) -> None:
        """Here none must: nothing moves."""
        basis = self.basis().requires_grad_()
        elements = Elements(torch.ones(4, 2, 1), basis)
        assert not self.make_action().act(elements, self.make_batch(rng)).requires_grad


class TestDirectSum(ActionContract):
    """Two positions, a mass that stays, a velocity."""

    def make_action(self) -> Action:
        return DirectSumAction([(VectorAction(3), 6), (InvariantAction(), 1), (VectorAction(3), 3)])

    def make_batch(self, rng: torch.Generator) -> Batch:
        return torch.randn(4, 10, generator=rng)

    def basis(self) -> Tensor:
        return catalogue.so(3)

    def bad_batches(self) -> list[tuple[Batch, str]]:
        return [(torch.zeros(5, 9), r"\(N, 10\)"), (torch.zeros(5, 2, 10), r"\(N, 10\)")]


class TestDirectSumOfPoints(ActionContract):
    """Two points of the plane and a weight that stays."""

    def make_action(self) -> Action:
        return DirectSumAction([(AffineAction(2), 4), (InvariantAction(), 1)])

    def make_batch(self, rng: torch.Generator) -> Batch:
        return torch.randn(4, 5, generator=rng)

    def basis(self) -> Tensor:
        return catalogue.aff(2)


class TestAffine(ActionContract):
    def make_action(self) -> Action:
        return AffineAction(3)

    def make_batch(self, rng: torch.Generator) -> Batch:
        return torch.randn(4, 5, 3, generator=rng)

    def basis(self) -> Tensor:
        return catalogue.aff(3)

    def bad_batches(self) -> list[tuple[Batch, str]]:
        message = r"expects \(N, 3\) or \(N, points, 3\)"
        return [(torch.zeros(5, 4), message), ([1.0], "photos is a list; this action moves a")]


class TestAffineSinglePoint(TestAffine):
    def make_batch(self, rng: torch.Generator) -> Batch:
        return torch.randn(4, 3, generator=rng)


class TestDisplacement(ActionContract):
    """Turned and stretched about a point, whose place does not matter."""

    def make_action(self) -> Action:
        return DisplacementAction(3)

    def make_batch(self, rng: torch.Generator) -> Batch:
        return torch.randn(4, 5, 3, generator=rng)

    def basis(self) -> Tensor:
        basis = catalogue.lift(catalogue.gl(3))
        basis[:, :3, 3] = -basis[:, :3, :3] @ torch.tensor([1.0, -2.0, 3.0])
        return basis

    def bad_batches(self) -> list[tuple[Batch, str]]:
        message = r"\(N, 3\) or \(N, …, 3\)"
        return [(torch.zeros(5, 4), message), (torch.zeros(3), message), ({}, "is a dict")]


class TestDisplacementSingleVector(TestDisplacement):
    def make_batch(self, rng: torch.Generator) -> Batch:
        return torch.randn(4, 3, generator=rng)


class TestPositionsAndVelocities(ActionContract):
    """Columns of both kinds under one element."""

    def make_action(self) -> Action:
        return DirectSumAction([(AffineAction(2), 4), (DisplacementAction(2), 4)])

    def make_batch(self, rng: torch.Generator) -> Batch:
        return torch.randn(4, 8, generator=rng)

    def basis(self) -> Tensor:
        return catalogue.aff(2)


class TestImage(ActionContract):
    # Bilinear interpolation of a blob 3 pixels wide: about 2 % in each warp.
    tolerance = 4e-2
    scale = 0.15
    shape = (3, 3, 32, 32)

    def make_action(self) -> Action:
        return ImageAction()

    def make_batch(self, rng: torch.Generator) -> Batch:
        return blobs(rng, *self.shape)

    def basis(self) -> Tensor:
        return catalogue.aff(2)

    def bad_batches(self) -> list[tuple[Batch, str]]:
        return [
            (torch.zeros(5, 28, 28), r"without a channel axis pass photos\[:, None\]"),
            (torch.zeros(5, 28, 28, 3), r"photos\.transpose\(0, 3, 1, 2\)"),
        ]


class TestWideImage(TestImage):
    shape = (2, 1, 32, 45)


class TestMolecule(ActionContract):
    """A dict with padded points: charges and mask stay, positions move where they are real."""

    mask_dtype = torch.float32

    def make_action(self) -> Action:
        return StructuredAction({"positions": AffineAction(3)}, masks={"positions": "real"})

    def make_batch(self, rng: torch.Generator) -> Batch:
        real = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]])
        return {
            "charges": torch.randn(3, 4, generator=rng),
            "positions": torch.randn(3, 4, 3, generator=rng) * real.unsqueeze(-1),
            "real": real.to(self.mask_dtype),
        }

    def basis(self) -> Tensor:
        return catalogue.se(3)

    def bad_batches(self) -> list[tuple[Batch, str]]:
        flat = {"positions": torch.zeros(5, 4, 2), "real": torch.ones(5, 4)}
        return [(flat, r"photos\['positions'\] has shape"), (torch.zeros(3), "expected a dict")]


class TestMoleculeBooleanMask(TestMolecule):
    mask_dtype = torch.bool


class TestTuple(ActionContract):
    """Two fields of a tuple move, one stays."""

    def make_action(self) -> Action:
        return StructuredAction({0: VectorAction(2), 2: VectorAction(2)})

    def make_batch(self, rng: torch.Generator) -> Batch:
        return tuple(torch.randn(*s, generator=rng) for s in [(4, 2), (4, 5), (4, 3, 2)])

    def basis(self) -> Tensor:
        return catalogue.gl(2)


class TestUsersOwn(ActionContract):
    """Symmetric matrices under S ↦ g S gᵀ: a user's action in a few lines."""

    def make_action(self) -> Action:
        example = torch.randn(4, 2, 2, generator=torch.Generator().manual_seed(0))
        return FunctionAction(lambda g, s: g @ s @ g.mT, dim=2, example=example)

    def make_batch(self, rng: torch.Generator) -> Batch:
        return torch.randn(4, 2, 2, generator=rng)

    def basis(self) -> Tensor:
        return catalogue.gl(2)


# --- linear -------------------------------------------------------------------------------------


def test_vectors_are_multiplied_by_the_matrices(rng: torch.Generator) -> None:
    elements = Elements(torch.randn(4, 3, 9, generator=rng) * 0.3, catalogue.gl(3))
    x = torch.randn(4, 5, 3, generator=rng)
    expected = torch.einsum("bvij,bnj->bvni", elements.matrices(), x)
    torch.testing.assert_close(VectorAction(3).act(elements, x), expected, atol=1e-5, rtol=1e-5)


def test_lorentz_elements_preserve_masses(rng: torch.Generator) -> None:
    p = torch.randn(4, 6, 4, generator=rng)
    boosts = Elements(torch.randn(4, 2, 6, generator=rng) * 0.5, catalogue.named("so(1,3)"))
    metric = torch.tensor([1.0, -1.0, -1.0, -1.0])
    before = (p.square() * metric).sum(-1).unsqueeze(1).expand(-1, 2, -1)
    after = (FourVectorAction().act(boosts, p).square() * metric).sum(-1)
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)


def test_direct_sum_leaves_its_invariant_columns(rng: torch.Generator) -> None:
    action = DirectSumAction([(VectorAction(2), 2), (InvariantAction(), 3)])
    x = torch.randn(4, 5, generator=rng)
    moved = moved_once(action, constant(catalogue.so(2), 1.0, batch=4), x)
    assert torch.equal(moved[:, 2:], x[:, 2:])
    assert float((moved[:, :2] - x[:, :2]).norm()) > 0.1


def test_direct_sum_refuses_parts_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="share one size of matrix"):
        DirectSumAction([(VectorAction(2), 2), (VectorAction(3), 3)])
    with pytest.raises(ValueError, match="whole vectors of 3 columns, not 4"):
        DirectSumAction([(VectorAction(3), 4)])


def test_direct_sum_of_points_keeps_their_last_row_masked() -> None:
    """Homogeneous coordinates: the last row of a generator means nothing, and D is the space's."""
    action = DirectSumAction([(AffineAction(2), 2), (InvariantAction(), 1)])
    assert (action.dim, action.rows, action.space_dim) == (3, 2, 2)


def test_direct_sum_gives_a_users_action_its_columns_as_they_are(rng: torch.Generator) -> None:
    """A vector and a symmetric matrix in three numbers, which are no whole vectors."""

    def congruence(g: Tensor, s: Tensor) -> Tensor:
        moved = g @ s[:, [0, 1, 1, 2]].view(-1, 2, 2) @ g.mT
        return moved.flatten(1)[:, [0, 1, 3]]

    packed = FunctionAction(congruence, 2, torch.randn(4, 3, generator=rng))
    action = DirectSumAction([(VectorAction(2), 2), (packed, 3)])
    assert_action(action, catalogue.gl(2), torch.randn(4, 5, generator=rng))


# --- space --------------------------------------------------------------------------------------


def test_displacements_are_differences_of_points(rng: torch.Generator) -> None:
    elements = Elements(torch.randn(4, 3, 12, generator=rng) * 0.3, catalogue.aff(3))
    p, q = torch.randn(2, 4, 5, 3, generator=rng)
    points = AffineAction(3)
    expected = points.act(elements, p) - points.act(elements, q)
    moved = DisplacementAction(3).act(elements, p - q)
    torch.testing.assert_close(moved, expected, atol=1e-5, rtol=1e-5)


def test_translations_do_not_move_displacements(rng: torch.Generator) -> None:
    v = torch.randn(4, 5, 3, generator=rng)
    shift = constant(catalogue.translations(3), 1.0, -2.0, 3.0, batch=4)
    assert torch.equal(moved_once(DisplacementAction(3), shift, v), v)
    assert not DisplacementAction(3).differential(catalogue.translations(3)[0], v).any()


ROTATION = catalogue.se(2)[:1]


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("size", [8, 9, 28, 31])
@pytest.mark.parametrize("quarters", [1, 2, 3, -1])
def test_quarter_turn_is_rot90(
    size: int, channels: int, quarters: int, rng: torch.Generator
) -> None:
    x = torch.rand(2, channels, size, size, generator=rng)
    turned = moved_once(ImageAction(), constant(ROTATION, quarters * math.pi / 2, batch=2), x)
    torch.testing.assert_close(turned, torch.rot90(x, quarters, (2, 3)), atol=1e-5, rtol=0)


def test_half_turn_of_a_wide_image_is_rot90_twice(rng: torch.Generator) -> None:
    x = torch.rand(2, 3, 9, 16, generator=rng)
    turned = moved_once(ImageAction(), constant(ROTATION, math.pi, batch=2), x)
    torch.testing.assert_close(turned, torch.rot90(x, 2, (2, 3)), atol=1e-5, rtol=0)


def test_quarter_turn_of_a_wide_image_keeps_its_shapes(rng: torch.Generator) -> None:
    """A rotation is a rotation for any aspect ratio: the inner square turns as if alone."""
    x = torch.zeros(1, 1, 8, 14)
    x[..., 3:11] = torch.rand(1, 1, 8, 8, generator=rng)
    turned = moved_once(ImageAction(), constant(ROTATION, math.pi / 2), x)
    expected = torch.rot90(x[..., 3:11], 1, (2, 3))
    torch.testing.assert_close(turned[..., 3:11], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 12), (12, 7)])
def test_translations_move_right_and_up(height: int, width: int, rng: torch.Generator) -> None:
    """x to the right, y up, half of the longer side as the unit; zeros enter from outside."""
    x = torch.rand(1, 2, height, width, generator=rng)
    pixel = 2.0 / max(height, width)
    right, up = 2 * pixel, 1 * pixel
    moved = moved_once(ImageAction(), constant(catalogue.translations(2), right, up), x)
    expected = torch.zeros_like(x)
    expected[:, :, :-1, 2:] = x[:, :, 1:, :-2]
    torch.testing.assert_close(moved, expected, atol=1e-5, rtol=0)


def test_two_actions_compose_in_order(rng: torch.Generator) -> None:
    """Rotation and translation do not commute: gh is right where hg is clearly wrong."""
    action, x = ImageAction(), blobs(rng, 1, 1, 40, 40)
    basis = catalogue.se(2)
    turn, shift = (math.pi / 2, 0.0, 0.0), (0.0, 0.4, 0.0)
    g, h = constant(basis, *turn), constant(basis, *shift)
    twice = moved_once(action, g, moved_once(action, h, x))
    gh = Elements(torch.tensor([turn, shift])[None, None], basis)
    hg = Elements(torch.tensor([shift, turn])[None, None], basis)
    assert relative_gap(moved_once(action, gh, x), twice) < 1e-3
    assert relative_gap(moved_once(action, hg, x), twice) > 0.5


def test_double_images_and_float_elements_work_together(rng: torch.Generator) -> None:
    x = torch.rand(1, 1, 6, 6, generator=rng, dtype=torch.float64)
    turned = moved_once(ImageAction(), constant(ROTATION, math.pi / 2), x)
    torch.testing.assert_close(turned, torch.rot90(x, 1, (2, 3)), atol=1e-5, rtol=0)


def test_points_are_turned_and_shifted(rng: torch.Generator) -> None:
    points = torch.randn(3, 5, 2, generator=rng)
    g = Elements(
        torch.tensor([[0.0, 3.0, -1.0], [math.pi / 2, 0.0, 0.0]]).expand(3, 1, 2, 3),
        catalogue.se(2),
    )
    moved = moved_once(AffineAction(2), g, points)
    expected = torch.stack([3.0 - points[..., 1], -1.0 + points[..., 0]], dim=-1)
    torch.testing.assert_close(moved, expected, atol=1e-5, rtol=1e-5)


# --- structured ---------------------------------------------------------------------------------


def test_padded_points_stay_put_and_real_ones_move(rng: torch.Generator) -> None:
    contract = TestMolecule()
    action, x = contract.make_action(), contract.make_batch(rng)
    moved = moved_once(action, constant(catalogue.se(3), *[0.7] * 6, batch=3), x)
    real = x["real"].bool()
    assert torch.equal(moved["positions"][~real], x["positions"][~real])
    assert float((moved["positions"] - x["positions"])[real].norm(dim=-1).min()) > 0.1
    assert torch.equal(moved["charges"], x["charges"])
    velocity = action.differential(catalogue.se(3)[3], x)["positions"]
    assert bool((velocity[~real] == 0).all())
    assert bool((velocity[real][:, 0] == 1).all())


def test_structured_input_says_which_field_is_missing(rng: torch.Generator) -> None:
    action = StructuredAction({"positions": VectorAction(2)})
    with pytest.raises(ValueError, match=r"no field 'positions'; it has \['places'\]"):
        action.check({"places": torch.zeros(3, 2)})


def test_structured_action_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="share one size of matrix"):
        StructuredAction({"a": VectorAction(2), "b": VectorAction(3)})
    with pytest.raises(ValueError, match="masks name fields that do not move: charges"):
        StructuredAction({"a": VectorAction(2)}, masks={"charges": "a"})


def test_batches_are_tensors_in_dicts_and_tuples() -> None:
    with pytest.raises(TypeError, match="found str"):
        map_tensors(lambda t: t, {"a": "text"})
    with pytest.raises(ValueError, match=r"different lengths: \[2, 3\]"):
        batch_size((torch.zeros(2), torch.zeros(3)))


# --- a user's own -------------------------------------------------------------------------------


def test_an_action_that_multiplies_in_the_wrong_order_is_refused(rng: torch.Generator) -> None:
    with pytest.raises(ValueError, match="wrong order"):
        FunctionAction(
            lambda g, x: (x.unsqueeze(-2) @ g).squeeze(-2), 2, torch.randn(4, 2, generator=rng)
        )


def test_the_contragredient_action_is_accepted(rng: torch.Generator) -> None:
    """x ↦ g⁻ᵀ x: the same product as above, with the inverse that puts it in order."""
    dual = FunctionAction(
        lambda g, x: (x.unsqueeze(-2) @ torch.linalg.inv(g)).squeeze(-2),
        2,
        torch.randn(4, 2, generator=rng),
    )
    assert_action(dual, catalogue.gl(2), torch.randn(4, 2, generator=rng))


def test_an_action_of_a_smaller_group_is_told_how_to_be_checked(rng: torch.Generator) -> None:
    def spin2(g: Tensor, x: Tensor) -> Tensor:
        return (g @ g @ x.unsqueeze(-1)).squeeze(-1)

    x = torch.randn(4, 2, generator=rng)
    with pytest.raises(ValueError, match=r"tried on all matrices; .*check_on="):
        FunctionAction(spin2, 2, x)
    assert_action(FunctionAction(spin2, 2, x, check_on=catalogue.so(2)), catalogue.so(2), x)
    with pytest.raises(ValueError, match=r"in the group$"):
        FunctionAction(spin2, 2, x, check_on=catalogue.gl(2))


def test_a_users_action_may_be_one_of_homogeneous_coordinates(rng: torch.Generator) -> None:
    """A torque about a point that moves along: only its block of rotations is looked at."""

    def pseudovector(g: Tensor, t: Tensor) -> Tensor:
        block = g[:, :3, :3]
        return torch.linalg.det(block)[:, None] * (block @ t.unsqueeze(-1)).squeeze(-1)

    torque = FunctionAction(pseudovector, 4, torch.randn(4, 3, generator=rng), rows=3)
    points = AffineAction(3)
    assert (torque.dim, torque.rows, torque.space_dim) == (points.dim, points.rows, 3)
    assert torch.equal(torque.mask, points.mask)


def test_an_action_that_moves_under_the_identity_is_refused(rng: torch.Generator) -> None:
    with pytest.raises(ValueError, match="not an action"):
        FunctionAction(lambda g, x: 0 * x, 2, torch.randn(4, 2, generator=rng))


def test_a_function_that_is_no_number_at_the_identity_is_refused(rng: torch.Generator) -> None:
    """x plus the logarithm of the volume, by a formula with 0 / 0 at the identity."""

    def logarithm(g: Tensor, x: Tensor) -> Tensor:
        stretch = torch.linalg.det(g) - 1
        return x + (torch.log1p(stretch) / stretch * stretch).unsqueeze(-1)

    example = torch.randn(4, 2, generator=rng)
    with pytest.raises(ValueError, match="differs from act\\(gh, x\\) by nan"):
        FunctionAction(logarithm, 2, example, check_on=catalogue.scaling(2))


def test_a_function_that_changes_the_shape_is_refused(rng: torch.Generator) -> None:
    with pytest.raises(ValueError, match=r"shape \(2,\) into \(1,\); an action must keep"):
        FunctionAction(lambda g, x: x[:, :1], 2, torch.randn(4, 2, generator=rng))


def test_a_function_may_move_a_dict(rng: torch.Generator) -> None:
    """Velocities turn like positions but are not translated: beyond a StructuredAction."""

    def motion(g: Tensor, x: Batch) -> Batch:
        turned = {key: (g[:, :2, :2] @ t.unsqueeze(-1)).squeeze(-1) for key, t in x.items()}
        return {"at": turned["at"] + g[:, :2, 2], "speed": turned["speed"]}

    x = {key: torch.randn(4, 2, generator=rng) for key in ("at", "speed")}
    action = FunctionAction(motion, 3, x, check_on=catalogue.se(2), space_dim=2)
    assert_action(action, catalogue.se(2), x)


# --- the checks are checked ---------------------------------------------------------------------


class _WrongSign(VectorAction):
    def differential(self, generator: Tensor, x: Tensor) -> Tensor:
        return -super().differential(generator, x)


class _RightAction(VectorAction):
    def act(self, elements: Elements, x: Tensor) -> Tensor:
        return super().act(elements.inverse(), x)


def test_the_checks_see_a_wrong_differential_and_a_right_action(rng: torch.Generator) -> None:
    x = torch.randn(4, 3, generator=rng)
    assert differential_error(_WrongSign(3), catalogue.so(3)[0], x) == pytest.approx(2, abs=1e-2)
    assert composition_error(_RightAction(3), catalogue.so(3), x) > 1e-2
    with pytest.raises(AssertionError, match="differential differs"):
        assert_action(_WrongSign(3), catalogue.so(3), x)
    with pytest.raises(AssertionError, match="differs from act"):
        assert_action(_RightAction(3), catalogue.so(3), x)


def test_the_distance_between_vectors_of_a_sample_is_no_spread() -> None:
    rng = torch.Generator().manual_seed(0)
    position = torch.randn(400, 2, generator=rng) + torch.tensor([100.0, 0.0])
    velocity = torch.randn(400, 2, generator=rng)
    both = DirectSumAction([(VectorAction(2), 2), (VectorAction(2), 2)])
    fields = StructuredAction({"x": VectorAction(2), "v": VectorAction(2)})
    together = both.spread(torch.cat([position, velocity], dim=1))
    assert torch.allclose(together, fields.spread({"x": position, "v": velocity}))
    stacked = VectorAction(2).spread(torch.stack([position, velocity], dim=1))
    assert torch.allclose(together, stacked)
    assert (together - 1).abs().max() < 0.1


def test_padded_items_of_several_axes_have_a_spread() -> None:
    action = StructuredAction({"p": VectorAction(3)}, masks={"p": "real"})
    real = torch.tensor([[1, 1, 0]]).expand(50, -1)
    pairs = torch.randn(50, 3, 2, 3, generator=torch.Generator().manual_seed(0))
    pairs[:, 2] = 1e6
    spread = action.spread({"p": pairs, "real": real})
    assert spread.shape == (3,)
    assert spread.max() < 2

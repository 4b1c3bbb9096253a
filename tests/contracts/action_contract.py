"""What every action must satisfy. A new action subclasses this in about ten lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors, tensors_of
from lieaugmenter.lie.elements import Elements
from lieaugmenter.testing import differential_error

VIEWS = 3
PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def moved_once(action: Action, elements: Elements, x: Batch) -> Batch:
    """g·x for elements with a single view, in the shape of x."""
    return map_tensors(lambda t: t.squeeze(1), action.act(elements, x))


def relative_gap(a: Batch, b: Batch) -> float:
    """The largest ‖a - b‖ / ‖b‖ over the fields of two batches."""
    pairs = zip(tensors_of(a), tensors_of(b), strict=True)
    return max(float((p.double() - q.double()).norm() / q.double().norm()) for p, q in pairs)


def in_precision(x: Batch, dtype: torch.dtype) -> Batch:
    """The batch with its real numbers in that precision."""
    return map_tensors(lambda t: t.to(dtype) if t.is_floating_point() else t, x)


def product(g: Elements, h: Elements) -> Elements:
    """gh from torch's own exponentials, as discrete components next to exp(0)."""
    sums = [torch.einsum("bc,cij->bij", e.coefficients[:, 0, 0], e.basis) for e in (g, h)]
    matrices = torch.linalg.matrix_exp(sums[0]) @ torch.linalg.matrix_exp(sums[1])
    index = torch.arange(g.batch).unsqueeze(1)
    still = torch.zeros_like(g.coefficients)
    return Elements(still, g.basis, components=matrices, component_index=index)


class ActionContract(ABC):
    """Subclass it, name the class Test…, and give the three methods.

    Attributes
    ----------
    tolerance
        Largest relative error of composition, and half that of the inverse: rounding for exact
        actions; images pay for their interpolation.
    differential_tolerance
        Largest relative error of the differential: a float32 difference quotient is good to 1e-3.
    scale
        Size of the coefficients of the elements that are tried.
    """

    tolerance = 1e-5
    differential_tolerance = 2e-3
    scale = 0.4

    @abstractmethod
    def make_action(self) -> Action:
        """The action to test."""

    @abstractmethod
    def make_batch(self, rng: torch.Generator) -> Batch:
        """A few samples, batch axis first."""

    @abstractmethod
    def basis(self) -> Tensor:
        """Generators, (c, d, d); two that do not commute where the action has them."""

    def bad_batches(self) -> list[tuple[Batch, str]]:
        """Batches that must be refused, and what the message must say."""
        return []

    def elements(self, rng: torch.Generator, x: Batch, views: int, factors: int = 1) -> Elements:
        basis = self.basis()
        shape = (batch_size(x), views, factors, len(basis))
        return Elements(torch.randn(shape, generator=rng) * self.scale, basis)

    def test_act_adds_an_axis_of_views(self, rng: torch.Generator) -> None:
        x = self.make_batch(rng)
        moved = self.make_action().act(self.elements(rng, x, VIEWS), x)
        for before, after in zip(tensors_of(x), tensors_of(moved), strict=True):
            assert after.shape == (len(before), VIEWS, *before.shape[1:])
            assert after.dtype == before.dtype

    def test_no_samples_give_no_views(self, rng: torch.Generator) -> None:
        x = map_tensors(lambda t: t[:0], self.make_batch(rng))
        moved = self.make_action().act(self.elements(rng, x, VIEWS), x)
        for before, after in zip(tensors_of(x), tensors_of(moved), strict=True):
            assert after.shape == (0, VIEWS, *before.shape[1:])

    def test_acting_twice_is_acting_by_the_product(self, rng: torch.Generator) -> None:
        action, x = self.make_action(), self.make_batch(rng)
        g, h = self.elements(rng, x, views=1), self.elements(rng, x, views=1)
        twice = moved_once(action, g, moved_once(action, h, x))
        assert relative_gap(twice, moved_once(action, product(g, h), x)) < self.tolerance

    def test_the_identity_moves_nothing(self, rng: torch.Generator) -> None:
        action, x = self.make_action(), self.make_batch(rng)
        still = Elements(torch.zeros(batch_size(x), 1, len(self.basis())), self.basis())
        assert relative_gap(moved_once(action, still, x), x) < 1e-5

    def test_the_inverse_undoes(self, rng: torch.Generator) -> None:
        action, x = self.make_action(), self.make_batch(rng)
        elements = self.elements(rng, x, views=1, factors=2)
        there = moved_once(action, elements, x)
        back = moved_once(action, elements.inverse(), there)
        # Two warps against none, where the product is two against one.
        assert relative_gap(back, x) < 2 * self.tolerance

    def test_each_sample_is_moved_by_its_own_elements(self, rng: torch.Generator) -> None:
        action, x = self.make_action(), self.make_batch(rng)
        elements = self.elements(rng, x, VIEWS)
        last = map_tensors(lambda t: t[-1:], x)
        of_last = Elements(elements.coefficients[-1:, 1:2], elements.basis)
        expected = map_tensors(lambda t: t[-1:, 1:2], action.act(elements, x))
        assert relative_gap(action.act(of_last, last), expected) < 1e-5

    def test_differential_is_the_derivative(self, rng: torch.Generator) -> None:
        action, x = self.make_action(), self.make_batch(rng)
        for generator in self.basis():
            assert differential_error(action, generator, x) < self.differential_tolerance

    def test_differential_keeps_the_shape(self, rng: torch.Generator) -> None:
        x = self.make_batch(rng)
        velocity = self.make_action().differential(self.basis()[0], x)
        assert [t.shape for t in tensors_of(velocity)] == [t.shape for t in tensors_of(x)]

    def test_autocast_leaves_full_precision(self, rng: torch.Generator) -> None:
        action, x = self.make_action(), self.make_batch(rng)
        elements = self.elements(rng, x, VIEWS)
        plain = action.act(elements, x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            under_autocast = action.act(elements, x)
        for before, after in zip(tensors_of(plain), tensors_of(under_autocast), strict=True):
            assert after.dtype == before.dtype
        # bfloat16 would be wrong by 1e-2.
        assert relative_gap(under_autocast, plain) < 1e-6

    @pytest.mark.parametrize("of_basis", [torch.bfloat16, torch.float32, torch.float64])
    @pytest.mark.parametrize("of_x", PRECISIONS)
    def test_views_are_as_precise_as_the_data(
        self, of_x: torch.dtype, of_basis: torch.dtype, rng: torch.Generator
    ) -> None:
        """Whatever the basis is given in, only the data are rounded to their precision."""
        action, x = self.make_action(), in_precision(self.make_batch(rng), of_x)
        given = self.elements(rng, x, VIEWS, factors=2)
        given = replace(given, basis=given.basis.to(of_basis))
        moved = action.act(given, x)
        assert [t.dtype for t in tensors_of(moved)] == [t.dtype for t in tensors_of(x)]
        exact = replace(given, basis=given.basis.double(), coefficients=given.coefficients.double())
        expected = action.act(exact, in_precision(x, torch.float64))
        assert relative_gap(moved, expected) < 30 * torch.finfo(of_x).eps

    @pytest.mark.parametrize("of_generator", [torch.float32, torch.float64])
    @pytest.mark.parametrize("of_x", PRECISIONS)
    def test_velocities_are_as_precise_as_the_data(
        self, of_x: torch.dtype, of_generator: torch.dtype, rng: torch.Generator
    ) -> None:
        action, x = self.make_action(), in_precision(self.make_batch(rng), of_x)
        generator = self.basis()[0].to(of_generator)
        velocity = action.differential(generator, x)
        assert [t.dtype for t in tensors_of(velocity)] == [t.dtype for t in tensors_of(x)]
        expected = action.differential(generator.double(), in_precision(x, torch.float64))
        gap = (action.moving(velocity).double() - action.moving(expected)).norm()
        # A difference quotient in float32 has its own error.
        allowed = 10 * torch.finfo(of_x).eps + self.differential_tolerance
        assert float(gap) <= allowed * float(action.moving(expected).norm())

    def test_gradients_reach_every_generator(self, rng: torch.Generator) -> None:
        action, x = self.make_action(), self.make_batch(rng)
        elements = self.elements(rng, x, VIEWS)
        basis = self.basis().requires_grad_()
        moved = action.act(Elements(elements.coefficients, basis), x)
        # Squares: a sum of pixels would not see a warp.
        sum(t.square().sum() for t in tensors_of(moved) if t.is_floating_point()).backward()
        assert basis.grad is not None
        assert bool(basis.grad.isfinite().all())
        assert bool((basis.grad.flatten(1).norm(dim=1) > 1e-4).all())

    def test_moving_numbers_are_flat(self, rng: torch.Generator) -> None:
        x = self.make_batch(rng)
        flat = self.make_action().moving(x)
        assert flat.ndim == 2
        assert len(flat) == batch_size(x)

    def test_good_batches_pass_the_check(self, rng: torch.Generator) -> None:
        self.make_action().check(self.make_batch(rng))

    def test_wrong_shapes_are_refused_readably(self) -> None:
        action = self.make_action()
        for batch, message in self.bad_batches():
            with pytest.raises(ValueError, match=message) as caught:
                action.check(batch, "photos")
            # The user's own name for the array stands in the message.
            assert "photos" in str(caught.value)

    def test_mask_fits_the_generators(self) -> None:
        action = self.make_action()
        assert action.mask.shape == (action.dim, action.dim)
        assert bool((action.mask[: action.rows] == 1).all())
        assert bool((action.mask[action.rows :] == 0).all())

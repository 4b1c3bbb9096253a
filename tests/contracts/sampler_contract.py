"""What every sampler of coefficients must satisfy."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from copy import deepcopy

import torch

from lieaugmenter.lie.samplers import Sampler

N_GENERATORS = 3
SHAPE = (50, 4, 2, N_GENERATORS)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class SamplerContract(ABC):
    """Subclass it, name the class Test…, and give `make_sampler`."""

    @abstractmethod
    def make_sampler(self, warmup_steps: int = 0) -> Sampler:
        """A sampler for `N_GENERATORS` generators with a range of at least 1."""

    def test_coefficients_stay_within_reach(self) -> None:
        sampler = self.make_sampler()
        draw = sampler((2000, 1, 1, N_GENERATORS), seeded()).detach()
        assert float(draw.abs().max()) <= sampler.reach * (1 + 1e-6)

    def test_both_signs_are_drawn_alike(self) -> None:
        draw = self.make_sampler()((2000, 1, 1, N_GENERATORS), seeded()).flatten(0, 2)
        # Five standard errors of the mean of 2000 draws.
        assert bool((draw.mean(0).abs() < 5 * draw.std(0) / 2000**0.5).all())

    def test_shape_and_dtype(self) -> None:
        sampler = self.make_sampler()
        assert sampler(SHAPE).shape == SHAPE
        assert sampler(SHAPE).dtype == torch.float32
        assert sampler.double()(SHAPE).dtype == torch.float64

    def test_same_seed_same_draw(self) -> None:
        sampler = self.make_sampler()
        assert torch.equal(sampler(SHAPE, seeded(1)), sampler(SHAPE, seeded(1)))
        assert not torch.equal(sampler(SHAPE, seeded(1)), sampler(SHAPE, seeded(2)))

    def test_a_given_generator_leaves_the_global_one_alone(self) -> None:
        before = torch.get_rng_state()
        self.make_sampler()(SHAPE, seeded())
        assert torch.equal(torch.get_rng_state(), before)

    def test_warm_up_grows_from_a_tenth_to_the_whole_range(self) -> None:
        steps = 20
        sampler, full = self.make_sampler(warmup_steps=steps), self.make_sampler().ranges()
        grown = [sampler.ranges()]
        for _ in range(steps):
            sampler.advance()
            grown.append(sampler.ranges())
        torch.testing.assert_close(grown[0], 0.1 * full)
        torch.testing.assert_close(grown[-1], full)
        assert all(bool((a < b).all()) for a, b in itertools.pairwise(grown))
        sampler.advance()
        torch.testing.assert_close(sampler.ranges(), full)

    def test_draws_grow_with_the_warm_up(self) -> None:
        sampler, full = self.make_sampler(warmup_steps=1), self.make_sampler()
        early = sampler(SHAPE, seeded()).detach()
        sampler.advance()
        torch.testing.assert_close(sampler(SHAPE, seeded()), full(SHAPE, seeded()))
        late = full(SHAPE, seeded()).detach()
        assert float(early.abs().max()) < 0.5 * float(late.abs().max())

    def test_state_dict_continues_the_warm_up(self) -> None:
        sampler, resumed = self.make_sampler(warmup_steps=10), self.make_sampler(warmup_steps=10)
        for _ in range(4):
            sampler.advance()
        resumed.load_state_dict(sampler.state_dict())
        for _ in range(7):
            assert torch.equal(resumed.ranges(), sampler.ranges())
            assert torch.equal(resumed(SHAPE, seeded()), sampler(SHAPE, seeded()))
            sampler.advance()
            resumed.advance()

    def test_deepcopy_is_independent(self) -> None:
        sampler = self.make_sampler(warmup_steps=10)
        sampler.advance()
        copied = deepcopy(sampler)
        assert torch.equal(copied.ranges(), sampler.ranges())
        copied.advance()
        assert bool((copied.ranges() > sampler.ranges()).all())

    def test_warm_up_is_counted_in_steps_not_draws(self) -> None:
        sampler = self.make_sampler(warmup_steps=10)
        before = sampler.ranges()
        sampler(SHAPE)
        assert torch.equal(sampler.ranges(), before)

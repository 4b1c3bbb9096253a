"""The four laws of the coefficients."""

from __future__ import annotations

from typing import Any

import jaxtyping
import pytest
import torch
from contracts.sampler_contract import N_GENERATORS, SHAPE, SamplerContract, seeded

from lieaugmenter.lie.samplers import (
    SAMPLERS,
    IntegerGrid,
    LearnableRange,
    Normal,
    Sampler,
    Uniform,
    make_sampler,
)


class TestUniform(SamplerContract):
    def make_sampler(self, warmup_steps: int = 0) -> Sampler:
        return Uniform(2.0, warmup_steps=warmup_steps)


class TestIntegerGrid(SamplerContract):
    def make_sampler(self, warmup_steps: int = 0) -> Sampler:
        return IntegerGrid(10.0, warmup_steps=warmup_steps)


class TestNormal(SamplerContract):
    def make_sampler(self, warmup_steps: int = 0) -> Sampler:
        return Normal(1.5, warmup_steps=warmup_steps)


class TestLearnableRange(SamplerContract):
    def make_sampler(self, warmup_steps: int = 0) -> Sampler:
        return LearnableRange(2.0, N_GENERATORS, warmup_steps=warmup_steps)


def test_uniform_fills_its_range_evenly(rng: torch.Generator) -> None:
    draw = Uniform(2.0)((8000, 1), rng)
    counts = torch.histc(draw, bins=8, min=-2.0, max=2.0)
    # Five standard deviations of a bin's count.
    assert float((counts - 1000).abs().max()) < 5 * 1000**0.5


def test_integer_grid_hits_every_integer_alike_both_ends_included(rng: torch.Generator) -> None:
    draw = IntegerGrid(2.0)((10_000, 1), rng)
    values, counts = draw.unique(return_counts=True)
    assert values.tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0]
    assert float((counts - 2000).abs().max()) < 5 * 2000**0.5


def test_integer_grid_stays_a_grid_during_warm_up(rng: torch.Generator) -> None:
    sampler = IntegerGrid(5.0, warmup_steps=10)
    for _ in range(10):
        draw = sampler(SHAPE, rng)
        assert torch.equal(draw, draw.round())
        sampler.advance()


def test_normal_has_its_standard_deviation(rng: torch.Generator) -> None:
    draw = Normal(1.5)((20_000,), rng)
    assert float(draw.std()) == pytest.approx(1.5, rel=0.03)


def test_learnable_range_starts_at_its_range_for_every_generator() -> None:
    sampler = LearnableRange(2.0, N_GENERATORS, cap=3.0)
    torch.testing.assert_close(sampler.learned(), torch.full((N_GENERATORS,), 2.0))


def test_learnable_range_is_per_generator_and_capped(rng: torch.Generator) -> None:
    sampler = LearnableRange(2.0, 2, cap=3.0)
    with torch.no_grad():
        sampler.logit.copy_(torch.tensor([100.0, -2.0]))
    draw = sampler((2000, 2), rng).detach().abs().amax(0)
    learned = sampler.learned().detach()
    assert float(learned[0]) == sampler.cap == sampler.reach
    assert bool((draw <= learned).all())
    assert bool((draw > 0.98 * learned).all())


def test_learnable_range_receives_the_reparameterised_gradient(rng: torch.Generator) -> None:
    sampler = LearnableRange(2.0, N_GENERATORS)
    draw = sampler((500, N_GENERATORS), rng)
    draw.square().sum().backward()
    gamma = sampler.learned().detach()
    # w = γ u, so d(Σw²)/dγ = 2 Σw²/γ, and dγ/dθ = γ (1 - γ/cap).
    expected = 2 * draw.detach().square().sum(0) * (1 - gamma / sampler.cap)
    torch.testing.assert_close(sampler.logit.grad, expected)


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_name_makes_a_sampler(name: str) -> None:
    sampler = make_sampler(name, 2.0, N_GENERATORS, warmup_steps=5)
    assert sampler.range == 2.0
    assert sampler.warmup_steps == 5
    assert sampler(SHAPE, seeded()).shape == SHAPE


def test_an_unknown_sampler_lists_the_right_ones() -> None:
    expected = "unknown sampler 'unifrom'; choose from integer-grid, learnable, normal, uniform"
    with pytest.raises(ValueError, match=expected):
        make_sampler("unifrom", 1.0, 1)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_range_must_be_positive_and_finite(bad: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Uniform(bad)


def test_other_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="whole number"):
        IntegerGrid(1.5)
    with pytest.raises(ValueError, match="larger than the starting range"):
        LearnableRange(2.0, 1, cap=2.0)
    with pytest.raises(ValueError, match="warm-up"):
        Uniform(1.0, warmup_steps=-1)
    with pytest.raises(ValueError, match="warm-up"):
        Uniform(1.0, warmup_steps=5, warmup_start=0.0)


@pytest.mark.parametrize("steps", [0.1, 2.5, float("nan"), float("inf")])
def test_a_warm_up_has_whole_steps(steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fraction of a step would take the share of the range beyond 1."""
    # Users have no checks of types, which would find it first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match="whole number of steps"):
        Uniform(1.0, warmup_steps=steps)


@pytest.mark.parametrize("start", [0.1, 1 / 3, 0.7, 1.0])
def test_a_warm_up_ends_at_the_whole_range_and_never_passes_it(start: float) -> None:
    sampler = Uniform(2.0, warmup_steps=7, warmup_start=start)
    for _ in range(9):
        assert start <= sampler.share <= 1.0
        sampler.advance()
    assert sampler.share == pytest.approx(1.0)

"""The augmenter's own bookkeeping; what it computes is tested with its parts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lieaugmenter import LieAugmenter, Objective
from lieaugmenter.baselines.augerino import AugerinoPlus
from lieaugmenter.baselines.liegan import LieGAN


def test_non_triviality_weighs_the_same_at_every_range() -> None:
    """At a tenth of the range a rotation moves a tenth as far: its cosine falls a hundredth."""
    objective = Objective(similarity=1.0, proximity=0.5)
    augmenter = LieAugmenter("vector", 2, objective=objective, warmup_steps=10)
    order = augmenter.terms
    start = augmenter.term_weights.clone()
    assert float(start[order.index("similarity")]) == pytest.approx(100.0)
    assert float(start[order.index("proximity")]) == pytest.approx(50.0)
    assert float(start[order.index("equivariance")]) == objective.equivariance
    for _ in range(10):
        augmenter.advance()
    assert float(augmenter.term_weights[order.index("similarity")]) == pytest.approx(1.0)
    assert float(augmenter.vector_weights[2]) == pytest.approx(1.0)


def test_a_wide_range_starts_as_near_the_identity_as_the_usual_one() -> None:
    for wide in (2.0, 5.0, 21.0):
        augmenter = LieAugmenter("vector", 2, range=wide, warmup_steps=10)
        assert float(augmenter.sampler.ranges()) == pytest.approx(0.2)
    narrow = LieAugmenter("vector", 2, range=0.5, warmup_steps=10)
    assert float(narrow.sampler.ranges()) == pytest.approx(0.05)


def test_weights_of_a_loaded_augmenter_are_those_of_its_warm_up() -> None:
    trained = LieAugmenter("vector", 2, warmup_steps=10)
    for _ in range(5):
        trained.advance()
    loaded = LieAugmenter("vector", 2, warmup_steps=10)
    loaded.load_state_dict(trained.state_dict())
    assert torch.equal(loaded.term_weights, trained.term_weights)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LieAugmenter("vector", 2, output="invariant", warmup_steps=10),
        lambda: LieGAN("vector", 2, output="invariant", similarity=0.7),
        lambda: AugerinoPlus("vector", 2, output="invariant", similarity=0.7),
    ],
)
def test_weights_survive_a_recount_and_a_state_dict(make) -> None:
    augmenter = make()
    before = augmenter.term_weights.clone()
    augmenter.recount()
    assert torch.equal(augmenter.term_weights, before)
    augmenter.load_state_dict(make().state_dict())
    assert torch.equal(augmenter.term_weights, before)


@pytest.mark.parametrize("steps", [100, 5000])
def test_a_state_of_another_warm_up_leaves_range_and_weights_in_step(steps: int) -> None:
    trained = LieAugmenter("vector", 2, warmup_steps=1000)
    for _ in range(1000):
        trained.advance()
    loaded = LieAugmenter("vector", 2, warmup_steps=steps)
    loaded.load_state_dict(trained.state_dict())
    share = float(loaded.sampler.grown)
    assert share == pytest.approx(loaded.sampler.share)
    weight = float(loaded.term_weights[loaded.terms.index("proximity")])
    assert weight == pytest.approx(loaded.objective.proximity / share**2)


@pytest.mark.parametrize("by_hand", [True, False])
def test_losses_of_several_batches_go_backward_together_during_warm_up(by_hand: bool) -> None:
    """The weights of the terms change with the range, not under a loss that waits."""
    augmenter = LieAugmenter(
        "vector", 3, 1 if by_hand else 2, "invariant", n_views=2, warmup_steps=4
    )
    model, (x, y) = nn.Linear(3, 1), (torch.randn(8, 3), torch.randn(8, 1))
    (augmenter.loss(model, x, y) + augmenter.loss(model, x, y)).backward()
    assert augmenter.basis.raw.grad is not None
    assert bool(augmenter.basis.raw.grad.isfinite().all())

"""The augmenter's own bookkeeping; what it computes is tested with its parts."""

from __future__ import annotations

import pytest
import torch

from lieaugmenter import LieAugmenter, Objective


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


def test_weights_of_a_loaded_augmenter_are_those_of_its_warm_up() -> None:
    trained = LieAugmenter("vector", 2, warmup_steps=10)
    for _ in range(5):
        trained.advance()
    loaded = LieAugmenter("vector", 2, warmup_steps=10)
    loaded.load_state_dict(trained.state_dict())
    assert torch.equal(loaded.term_weights, trained.term_weights)

"""The hand-written step for vectors under one generator equals the general one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lieaugmenter import LieAugmenter, Objective
from lieaugmenter.learning.objective import PAPER_TWO_BODY
from lieaugmenter.nets import MLP


def losses(
    shape: tuple[int, ...], output: str, objective: Objective
) -> list[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Terms and gradients by hand and in general, on the same draw, in double precision."""
    results = []
    x = torch.randn(5, *shape, 4, dtype=torch.float64)
    y = torch.randn_like(x) if output == "same" else torch.randn(5, 2, dtype=torch.float64)
    model = nn.Sequential(MLP((*shape, 4), y.shape[1:], hidden=(16,)), nn.Tanh()).double()
    augmenter = LieAugmenter(
        "vector", 4, output=output, n_views=3, blocks=[2, 2], objective=objective, range=1.5
    ).double()
    with torch.no_grad():
        augmenter.basis.raw.copy_(torch.randn(1, 4, 4))
    assert augmenter._gradients_by_hand
    rng = torch.Generator()
    for by_hand in (True, False):
        augmenter.zero_grad()
        model.zero_grad()
        rng.manual_seed(3)
        if by_hand:
            loss = augmenter.loss(model, x, y, rng)
            loss.backward()
            terms = loss.parts.values_tensor
        else:
            joined, terms_of = augmenter._prepare(x, y, rng)
            terms = terms_of(model(joined))
            torch.dot(terms, augmenter.term_weights).backward()
        parameters = [*model.parameters(), *augmenter.parameters()]
        results.append((terms.detach(), [p.grad.clone() for p in parameters]))
    return results


@pytest.mark.parametrize("output", ["same", "invariant"])
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize(
    "objective",
    [
        PAPER_TWO_BODY,
        Objective(proximity=0.0, similarity=0.0),
        Objective(1.0, 2.0, 3.0, 0.0, 0.0, 0.0),
    ],
)
def test_terms_and_gradients_are_those_of_the_general_step(
    shape: tuple[int, ...], output: str, objective: Objective
) -> None:
    (by_hand, hand_gradients), (general, gradients) = losses(shape, output, objective)
    assert torch.allclose(by_hand, general, rtol=1e-12, atol=1e-14)
    for mine, theirs in zip(hand_gradients, gradients, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def test_loss_takes_the_fast_way_for_the_paper_setting_and_reports_its_parts() -> None:
    augmenter = LieAugmenter("vector", 8, blocks=[2] * 4, objective=PAPER_TWO_BODY)
    loss = augmenter.loss(MLP((8,), (8,)), torch.randn(6, 8), torch.randn(6, 8))
    loss.backward()
    assert list(loss.parts) == ["prediction", "equivariance", "similarity", "sparsity"]
    assert augmenter.basis.raw.grad.abs().sum() > 0


def test_prediction_of_the_wrong_size_is_named_on_the_fast_way_too() -> None:
    augmenter = LieAugmenter("vector", 4, objective=PAPER_TWO_BODY)
    with pytest.raises(ValueError, match=r"returns \(6, 3\) for targets of shape \(6, 4\)"):
        augmenter.loss(MLP((4,), (3,)), torch.randn(6, 4), torch.randn(6, 4))


def paper_augmenter(**options: object) -> LieAugmenter:
    settings: dict = {"objective": PAPER_TWO_BODY, "n_views": 3, "warmup_steps": 0} | options
    augmenter = LieAugmenter("vector", 4, **settings)
    with torch.no_grad():
        augmenter.basis.raw.copy_(torch.randn(1, 4, 4))
    return augmenter


def gradient(augmenter: LieAugmenter, by_hand: bool, autocast: bool) -> torch.Tensor:
    torch.manual_seed(1)
    x, y, model = torch.randn(6, 4), torch.randn(6, 4), MLP((4,), (4,), hidden=(8,))
    rng = torch.Generator().manual_seed(3)
    augmenter.zero_grad()

    def in_float32(batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return model(batch)

    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        assert augmenter._gradients_by_hand
        if by_hand:
            loss: torch.Tensor = augmenter.loss(in_float32, x, y, rng)
        else:
            joined, terms_of = augmenter._prepare(x, y, rng)
            terms = terms_of(in_float32(joined))
            loss = (terms * augmenter.term_weights).sum()
    loss.backward()
    assert augmenter.basis.raw.grad is not None
    return augmenter.basis.raw.grad.clone()


def test_autocast_does_not_reach_the_hand_written_step() -> None:
    augmenter = paper_augmenter()
    exact = gradient(augmenter, by_hand=True, autocast=False)
    assert torch.equal(gradient(augmenter, by_hand=True, autocast=True), exact)
    assert torch.allclose(gradient(augmenter, by_hand=False, autocast=False), exact, rtol=1e-4)


def test_largest_range_of_the_fast_way_is_as_exact_as_the_general_one() -> None:
    augmenter = paper_augmenter(range=3.0, sampler="integer-grid")  # reaches norm 6
    by_hand = gradient(augmenter, by_hand=True, autocast=False)
    general = gradient(augmenter, by_hand=False, autocast=False)
    assert float((by_hand - general).norm() / general.norm()) < 2e-4


def test_labels_with_a_gradient_take_the_general_way() -> None:
    augmenter = paper_augmenter()
    y = torch.randn(6, 4, requires_grad=True)
    augmenter.loss(MLP((4,), (4,), hidden=(8,)), torch.randn(6, 4), y).backward()
    assert y.grad is not None


def test_predictions_may_have_any_memory_layout() -> None:
    augmenter = paper_augmenter()
    layer = nn.Linear(4, 4)
    augmenter.loss(lambda x: layer(x).T.contiguous().T, torch.randn(6, 4), torch.randn(6, 4))

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
            terms = augmenter._terms_of(model, x, y, rng)
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

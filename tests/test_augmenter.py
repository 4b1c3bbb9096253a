"""The augmenter's own bookkeeping; what it computes is tested with its parts."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import jaxtyping
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from lieaugmenter import LieAugmenter, Objective
from lieaugmenter.baselines.augerino import AugerinoPlus
from lieaugmenter.baselines.liegan import LieGAN
from lieaugmenter.learning.objective import PAPER_TWO_BODY


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


def _vectors() -> tuple[nn.Module, Tensor, Tensor]:
    return nn.Linear(2, 2), *torch.randn(2, 8, 2)


def _images() -> tuple[nn.Module, Tensor, Tensor]:
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    return model, torch.rand(3, 1, 6, 6), torch.tensor([0, 1, 2])


def _graphs_and_gap(
    augmenter: LieAugmenter, model: nn.Module, x: Tensor, y: Tensor, steps: int
) -> tuple[list[int], float]:
    """Graphs compiled after each step, and how far losses and gradients are from the plain ones."""
    plain, counter = deepcopy(augmenter), CompileCounterWithBackend("aot_eager")
    graphs, gaps = [], []

    def numbers(owner: LieAugmenter, loss: Callable[..., Tensor], seed: int) -> Tensor:
        torch.manual_seed(seed)
        owner.zero_grad()
        value = loss(model, x, y)
        value.backward()
        return torch.cat([value.detach().view(1), owner.basis.raw.grad.flatten()])

    compiled = torch.compile(augmenter.loss, backend=counter)
    for seed in range(steps):
        found, expected = numbers(augmenter, compiled, seed), numbers(plain, plain.loss, seed)
        gaps.append(float((found - expected).norm() / expected.norm()))
        graphs.append(counter.frame_count)
    assert augmenter.sampler.steps_taken == plain.sampler.steps_taken == steps
    return graphs, max(gaps)


# The compiler warns of what it does itself, and of our caches, which it reads through.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("settings", "data"),
    [
        ({"dim": 2, "objective": PAPER_TWO_BODY}, _vectors),
        ({"dim": 2}, _vectors),
        ({"dim": 2, "n_generators": 3, "sampler": "learnable"}, _vectors),
        ({"action": "image", "output": "invariant"}, _images),
    ],
    ids=["by hand", "one generator", "several", "images"],
)
def test_a_compiled_loss_is_compiled_once(
    settings: dict,
    data: Callable[[], tuple[nn.Module, Tensor, Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither the count of the warm-up nor a measured norm is a constant of the graph."""
    # The checks of types, which users have not, cannot be compiled.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    torch.compiler.reset()
    augmenter = LieAugmenter(**settings, n_views=3, warmup_steps=6)
    # The usual start fixes some points, at which the gradient of a warp is what rounding makes it.
    augmenter.basis.start_at(torch.randn(augmenter.basis.raw.shape))
    graphs, gap = _graphs_and_gap(augmenter, *data(), steps=6)
    assert graphs == [graphs[0]] * 6
    assert gap < 1e-5

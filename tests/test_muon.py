"""Muon: orthogonalised steps for the matrices of hidden layers, Adam's for everything else."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.engine import fit
from lieaugmenter.learning.muon import Muon, orthogonal
from lieaugmenter.learning.trainer import TimeIsUp
from lieaugmenter.runs import RunFolder

LR = 1e-2


def network(seed: int = 0) -> nn.Module:
    """Thin at both ends, with a wide, a tall and a square matrix between."""
    torch.manual_seed(seed)
    sizes = (4, 64, 96, 96, 64, 1)
    layers = [nn.Linear(n, m) for n, m in pairwise(sizes)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.SiLU())))[:-1]


def hidden(model: nn.Module) -> list[str]:
    return [n for n, p in model.named_parameters() if p.ndim == 2 and min(p.shape) >= 64]


def task(n: int = 256) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(1))
    return x, x.norm(dim=1, keepdim=True)


def step_of(optimizer: type[torch.optim.Adam], model: nn.Module) -> dict[str, Tensor]:
    """How one step moves every parameter."""
    made = optimizer(model.parameters(), lr=LR)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    x, y = task()
    (model(x) - y).square().mean().backward()
    made.step()
    return {name: p.detach() - before[name] for name, p in model.named_parameters()}


def test_orthogonal_keeps_singular_vectors_and_makes_values_alike() -> None:
    matrices = torch.randn(3, 64, 96, generator=torch.Generator().manual_seed(0))
    matrices *= torch.logspace(0, -1, 64)[:, None]
    u, _, vh = torch.linalg.svd(matrices, full_matrices=False)
    between = u.mT @ orthogonal(matrices) @ vh.mT
    values = between.diagonal(dim1=1, dim2=2)
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.3
    assert float((between - torch.diag_embed(values)).abs().max()) < 1e-3


def test_a_matrix_of_zeros_stays_one() -> None:
    assert torch.equal(orthogonal(torch.zeros(1, 64, 64)), torch.zeros(1, 64, 64))


def test_hidden_matrices_take_other_steps_and_everything_else_adams() -> None:
    muon, adam = step_of(Muon, network()), step_of(torch.optim.Adam, network())
    model = network()
    assert len(hidden(model)) == 3
    for name, step in muon.items():
        assert torch.equal(step, adam[name]) != (name in hidden(model))


def test_steps_of_a_matrix_are_as_long_as_those_of_adam_usually_are() -> None:
    """Root mean square 0.2 of the rate where all directions are there."""
    model = network()
    steps = step_of(Muon, model)
    for name in hidden(model):
        values = torch.linalg.svdvals(steps[name])
        longest = 0.2 * LR * max(steps[name].shape) ** 0.5
        assert float(values[0]) == pytest.approx(longest, rel=0.3)
        assert float(steps[name].square().mean().sqrt()) < 0.25 * LR


def test_a_tall_matrix_steps_as_its_wide_transpose() -> None:
    wide, tall = torch.randn(64, 96), torch.randn(64, 96)
    gradient = torch.randn(64, 96)
    first, second = nn.Parameter(wide.clone()), nn.Parameter(tall.mT.clone())
    first.grad, second.grad = gradient.clone(), gradient.mT.clone()
    Muon([first, second], lr=LR).step()
    torch.testing.assert_close(first.detach() - wide, (second.detach() - tall.mT).mT)


def test_gradients_are_there_after_the_step() -> None:
    model = network()
    step_of(Muon, model)
    assert all(p.grad is not None and float(p.grad.abs().sum()) > 0 for p in model.parameters())


def test_directions_of_small_gradients_are_learned_sooner_than_by_adam() -> None:
    """A linear map whose inputs differ in size a hundredfold, in a basis that Adam does not see."""
    rng = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(64, 64, generator=rng)).Q
    x = torch.randn(512, 64, generator=rng) * torch.logspace(0, -2, 64) @ turn
    y = x @ torch.randn(64, 64, generator=rng)

    def error(optimizer: type[torch.optim.Adam], lr: float) -> float:
        matrix = nn.Parameter(torch.zeros(64, 64))
        made = optimizer([matrix], lr=lr)
        for step in range(200):
            made.param_groups[0]["lr"] = lr * (1 - step / 200)
            made.zero_grad()
            (x @ matrix - y).square().mean().backward()
            made.step()
        return float((x @ matrix.detach() - y).square().mean())

    best = {
        optimizer: min(error(optimizer, lr) for lr in (0.1, 0.3, 1.0))
        for optimizer in (Muon, torch.optim.Adam)
    }
    assert best[Muon] < 0.1 * best[torch.optim.Adam]


def test_fit_by_muon_goes_on_from_a_checkpoint_to_the_bit(tmp_path: Path) -> None:
    def build(seed: int) -> tuple[nn.Module, LieAugmenter]:
        return network(seed), LieAugmenter(
            "vector", 4, output="invariant", n_views=2, warmup_steps=4
        )

    options = {"epochs": 2, "optimizer": "muon", "progress": False, "device": "cpu"}
    model, augmenter = build(0)
    fit(model, augmenter, task(), **options)
    again, its_augmenter = build(0)
    run = RunFolder(tmp_path)
    with pytest.raises(TimeIsUp):
        fit(again, its_augmenter, task(), run=run, time_limit=1e-9, **options)
    again, its_augmenter = build(1)  # what it starts from must not matter
    fit(again, its_augmenter, task(), run=run, resume=True, **options)
    both = (
        {**m.state_dict(), **a.state_dict()}
        for m, a in ((model, augmenter), (again, its_augmenter))
    )
    one, other = both
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_name_that_is_no_optimizer_is_answered_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="unknown optimizer 'sgd'; choose from adam, muon"):
        fit(network(), None, task(), optimizer="sgd", progress=False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_step_of_muon_gives_the_numbers_of_the_plain_one() -> None:
    weights = []
    for capture in (False, True):
        model = network()
        fit(
            model, None, task(), epochs=2, optimizer="muon", progress=False, device="cuda",
            capture=capture,
        )  # fmt: skip
        weights.append([p.detach().cpu() for p in model.parameters()])
    for plain, captured in zip(*weights, strict=True):
        torch.testing.assert_close(captured, plain)

"""LieGAN and Augerino+: each trains what it says it trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity, mse_loss

from lieaugmenter import Objective, block_mask, catalogue, fit
from lieaugmenter.analysis.compare import absolute_cosine
from lieaugmenter.baselines.augerino import AugerinoPlus
from lieaugmenter.baselines.liegan import (
    DISCRIMINATOR_RATE,
    Discriminator,
    LieGAN,
    UnnormalisedBasis,
)
from lieaugmenter.lie.samplers import Uniform
from lieaugmenter.runs import RunError, RunFolder


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def reference_game(
    liegan: LieGAN, discriminator: nn.Module, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Both players' losses and gradients by the textbook: two passes, one player frozen in each."""
    elements = liegan.sample(len(x), views=1, generator=seeded(5))
    moved_x = liegan.action.act(elements, x).squeeze(1)
    moved_y = liegan.output.act(elements, y).squeeze(1)
    logits = discriminator((moved_x, moved_y))
    generator_loss = (
        binary_cross_entropy_with_logits(logits, torch.ones_like(logits))
        + cosine_similarity(x.flatten(1), moved_x.flatten(1)).mean().abs()
    )
    (of_basis,) = torch.autograd.grad(generator_loss, [liegan.basis.raw])
    real, fake = discriminator((x, y)), discriminator((moved_x.detach(), moved_y.detach()))
    discriminator_loss = 0.5 * (
        binary_cross_entropy_with_logits(real, torch.ones_like(real))
        + binary_cross_entropy_with_logits(fake, torch.zeros_like(fake))
    )
    of_discriminator = torch.autograd.grad(discriminator_loss, list(discriminator.parameters()))
    return discriminator_loss, of_basis, list(of_discriminator)


@pytest.mark.parametrize("output", ["same", "invariant"])
def test_each_player_of_liegan_gets_its_own_gradient(output: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(32, 3)
    y = torch.randn(32, 3) if output == "same" else torch.randn(32, 1)
    liegan = LieGAN("vector", 3, output=output, generator=seeded())
    discriminator = Discriminator(3, y.shape[1], width=16)
    loss, of_basis, of_discriminator = reference_game(liegan, discriminator, x, y)
    mine = liegan.loss(discriminator, x, y, seeded(5))
    mine.backward()
    assert float(mine.parts["discriminator"]) == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(liegan.basis.raw.grad, of_basis, rtol=1e-4, atol=1e-6)
    for parameter, expected in zip(discriminator.parameters(), of_discriminator, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-6)


def test_the_players_learn_at_the_published_rates() -> None:
    x = torch.randn(64, 2)
    liegan = LieGAN("vector", 2, output="invariant", generator=seeded())
    seen: list[tuple[float, tuple[float, float]]] = []

    def note(_: dict) -> None:
        seen.append((liegan.optimizer_options["rate_scale"], liegan.optimizer_options["betas"]))

    fit(
        Discriminator(2, 1, width=8), liegan, (x, x.norm(dim=1, keepdim=True)), epochs=1,
        lr=DISCRIMINATOR_RATE, schedule="constant", progress=False, device="cpu", on_epoch=note,
    )  # fmt: skip
    assert seen == [(pytest.approx(5.0), (0.5, 0.999))]


def test_liegan_finds_the_rotation_of_a_disc() -> None:
    torch.manual_seed(0)
    x = torch.randn(2000, 2)
    y = x.norm(dim=1, keepdim=True)
    liegan = LieGAN("vector", 2, output="invariant", generator=seeded(1))
    fit(
        Discriminator(2, 1, width=64), liegan, (x, y), epochs=30, lr=DISCRIMINATOR_RATE,
        schedule="constant", progress=False, device="cpu",
    )  # fmt: skip
    found = liegan.generators.detach()[0]
    assert float(absolute_cosine(found, catalogue.so(2)[0])) > 0.95


def test_the_range_of_liegan_grows_with_its_weight_of_the_cosine() -> None:
    x = torch.randn(64, 2)
    grows = Uniform(2.0, warmup_steps=4, warmup_start=0.5)
    liegan = LieGAN("vector", 2, output="invariant", sampler=grows)
    weighed = [float(liegan.term_weights[2])]
    for _ in range(5):
        liegan.loss(Discriminator(2, 1), x, x.norm(dim=1, keepdim=True))
        weighed.append(float(liegan.term_weights[2]))
    assert liegan.sampler.steps_taken == 4
    assert weighed[0] == pytest.approx(4.0)
    assert weighed[-2:] == [1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_liegan_takes_data_in_double_precision(dtype: torch.dtype) -> None:
    x = torch.randn(16, 2, dtype=torch.float64)
    liegan = LieGAN("vector", 2, output="invariant")
    discriminator = Discriminator(2, 1, width=8).to(dtype)
    liegan.loss(discriminator, x, x.norm(dim=1, keepdim=True)).backward()
    assert liegan.basis.raw.grad is not None
    assert bool(liegan.basis.raw.grad.any())


def test_a_game_does_not_go_on_by_other_rules(tmp_path: Path) -> None:
    x = torch.randn(16, 2, generator=seeded())

    def play(**options: object) -> None:
        rules: dict = {"output": "invariant", "generator": seeded()} | options
        resume = bool(rules.pop("resume", False))
        fit(
            Discriminator(2, 1, width=4),
            LieGAN("vector", 2, **rules),
            (x, x.norm(dim=1, keepdim=True)),
            epochs=1,
            run=RunFolder(tmp_path / "run"),
            resume=resume,
            progress=False,
            device="cpu",
        )

    play(rate=1e-3)
    play(rate=1e-3, resume=True)
    with pytest.raises(RunError, match=r"rate: 0\.001 then, 0\.002 now"):
        play(rate=2e-3, resume=True)


def test_liegan_sees_class_labels() -> None:
    x, y = torch.randn(32, 2), torch.arange(32) % 3
    liegan = LieGAN("vector", 2, output="invariant", generator=seeded())
    loss = liegan.loss(Discriminator(2, 3, width=8), x, y)
    loss.backward()
    assert liegan.basis.raw.grad is not None
    assert bool(liegan.basis.raw.grad.isfinite().all())


def test_augmentation_by_liegan_keeps_its_basis_and_its_law() -> None:
    liegan = LieGAN("vector", 2, output="invariant", generator=seeded())
    augmenter = liegan.augmenter()
    assert not augmenter.basis.learnable
    torch.testing.assert_close(augmenter.generators, liegan.generators.detach())
    assert augmenter.sampler is liegan.sampler
    assert augmenter.terms == ["prediction", "equivariance"]
    weighed = liegan.augmenter(Objective(equivariance=3.0, similarity=1.0))
    assert weighed.term_weights.tolist() == [1.0, 3.0]


def test_augerino_learns_from_the_moved_sample_alone() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(16, 2), torch.randn(16, 2)
    model = nn.Linear(2, 2)
    augerino = AugerinoPlus("vector", 2, similarity=0.7, generator=seeded())
    loss = augerino.loss(model, x, y, seeded(3))
    elements = augerino.sample(16, views=1, generator=seeded(3))
    moved_x = augerino.action.act(elements, x).squeeze(1)
    moved_y = augerino.action.act(elements, y).squeeze(1)
    expected = mse_loss(model(moved_x), moved_y, reduction="sum") / 16
    expected = expected + 0.7 * cosine_similarity(x, moved_x).mean().abs()
    torch.testing.assert_close(torch.as_tensor(loss), expected)


def test_augerino_averages_over_its_elements_when_it_predicts() -> None:
    augerino = AugerinoPlus("vector", 2, output="invariant", generator=seeded())
    model, x = nn.Linear(2, 1), torch.randn(8, 2)
    assert not torch.allclose(augerino.predict(model, x), augerino.predict(model, x, views=0))


def test_several_generators_are_kept_apart() -> None:
    augerino = AugerinoPlus("vector", 3, n_generators=2, output="invariant", generator=seeded())
    x = torch.randn(8, 3)
    assert "alignment" in augerino.loss(nn.Linear(3, 1), x, x[:, :1]).parts
    liegan = LieGAN("vector", 3, n_generators=2, output="invariant", generator=seeded())
    assert "alignment" in liegan.loss(Discriminator(3, 1, width=8), x, x[:, :1]).parts


def test_unnormalised_basis_is_masked_and_bounded() -> None:
    basis = UnnormalisedBasis(2, 4, scale=50.0, mask=block_mask([2, 2]), generator=seeded())
    generators = basis().detach()
    assert float(generators[:, :2, 2:].abs().max()) == 0.0
    torch.testing.assert_close(generators.flatten(1).norm(dim=1), torch.full((2,), 8.0))
    short = UnnormalisedBasis(1, 4, scale=0.01, generator=seeded())
    torch.testing.assert_close(short(), short.raw.detach())

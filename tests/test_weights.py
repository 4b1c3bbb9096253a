"""Weights: their running average, the file of half the size, and stopping by the clock."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.engine import fit
from lieaugmenter.learning.trainer import TimeIsUp
from lieaugmenter.learning.weights import WeightAverage, half, load_weights, save_weights
from lieaugmenter.nets.lieconv import LieConv, MaskedBatchNorm
from lieaugmenter.runs import RunError, RunFolder

MOST_BYTES = 48e6


def build(seed: int = 0) -> tuple[nn.Module, LieAugmenter]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.SiLU(), nn.Linear(16, 1))
    return model, LieAugmenter("vector", 2, output="invariant", n_views=2, warmup_steps=6)


def ring(n: int = 256) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(1))
    return x, x.norm(dim=1, keepdim=True)


def options(**more: Any) -> dict[str, Any]:
    return {"epochs": 3, "progress": False, "device": "cpu", "validation": ring(64), **more}


def states(*modules: nn.Module) -> list[Tensor]:
    return [t for module in modules for t in module.state_dict().values()]


@pytest.mark.filterwarnings("ignore:The model has batch norm")
def test_a_training_of_many_sittings_equals_one_to_the_bit(tmp_path: Path) -> None:
    """Weights, generators, averages, rate, warm-up and records; every sitting is one step."""
    model, augmenter = build()
    whole = fit(model, augmenter, ring(), **options(average=0.2, schedule="warm-cosine"))
    run, sittings = RunFolder(tmp_path), 0
    while True:
        again, its_augmenter = build(seed=sittings)  # what it starts from must not matter
        if sittings == 0:
            again, its_augmenter = build()
        try:
            resumed = fit(
                again, its_augmenter, ring(), run=run, resume=True, time_limit=1e-9,
                save_every=3600.0, **options(average=0.2, schedule="warm-cosine"),
            )  # fmt: skip
            break
        except TimeIsUp:
            sittings += 1
    assert sittings == 12  # one for each step: four an epoch
    pairs = zip(states(model, augmenter), states(again, its_augmenter), strict=True)
    assert all(torch.equal(then, now) for then, now in pairs)
    for then, now in zip(whole.records, resumed.records, strict=True):
        assert {**then, "seconds": 0} == {**now, "seconds": 0}


def test_a_time_limit_needs_a_place_for_the_state() -> None:
    with pytest.raises(ValueError, match="needs run="):
        fit(*build(), ring(), **options(time_limit=1.0))


@pytest.mark.filterwarnings("ignore:The model has batch norm")
def test_checkpoints_are_as_rare_as_asked_and_the_last_is_there(tmp_path: Path) -> None:
    written: list[int] = []

    class Watched(RunFolder):
        def write_metrics(self, records: list[dict[str, Any]]) -> None:
            written.append(len(records))
            super().write_metrics(records)

    fit(*build(), ring(), run=Watched(tmp_path / "rare"), save_every=3600.0, **options())
    assert written == [3]
    written.clear()
    fit(*build(), ring(), run=Watched(tmp_path / "usual"), **options())
    assert written == [1, 2, 3]


@pytest.mark.filterwarnings("ignore:The model has batch norm", "ignore:the range grows")
def test_the_average_is_that_of_the_steps() -> None:
    """Against the recursion by hand, and what a fit without it ends with is left alone."""
    plain, _ = build()
    fit(plain, build()[1], ring(), **options(epochs=1, batch_size=256, schedule="constant"))
    one_step = [t.clone() for t in states(plain) if t.is_floating_point()]
    model, augmenter = build()
    start = [t.clone() for t in states(model) if t.is_floating_point()]
    length = 0.5
    one = options(epochs=1, batch_size=256, schedule="constant")
    fit(model, augmenter, ring(), average=length, **one)
    share = 1 - math.exp(-1 / length)
    found = [t for t in states(model) if t.is_floating_point()]
    for before, after, now in zip(start, one_step, found, strict=True):
        torch.testing.assert_close(now, before + share * (after - before))


def test_averages_are_lent_to_a_block_only() -> None:
    model = nn.Linear(2, 1)
    average = WeightAverage(model, length=10.0)
    with torch.no_grad():
        model.weight.fill_(5.0)
    with average.in_use():
        assert not bool((model.weight == 5.0).any())
    assert bool((model.weight == 5.0).all())
    average.write()
    assert not bool((model.weight == 5.0).any())


def test_half_precision_keeps_what_it_cannot_hold() -> None:
    assert half(torch.ones(200, 200)).dtype == torch.float16
    assert half(torch.full((200, 200), 1e6)).dtype == torch.float32
    assert half(torch.ones(200)).dtype == torch.float32


def test_the_full_network_fits_in_48_megabytes_and_comes_back(tmp_path: Path) -> None:
    """A network as large as the paper's; its predictions change by a thousandth of their spread."""
    torch.manual_seed(0)
    model, augmenter = LieConv(), LieAugmenter("affine", 3, n_generators=6, output="invariant")
    for module in model.modules():
        if isinstance(module, MaskedBatchNorm):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 2.0)
    path = tmp_path / "weights.safetensors"
    save_weights(path, model, augmenter, about={"epoch": 7})
    assert path.stat().st_size < MOST_BYTES
    again, its_augmenter = LieConv(), LieAugmenter("affine", 3, n_generators=6, output="invariant")
    assert load_weights(path, again, its_augmenter) == {"epoch": 7}
    assert torch.equal(augmenter.generators, its_augmenter.generators)
    rng = torch.Generator().manual_seed(0)
    charges = torch.tensor([1, 6, 7, 8, 9])[torch.randint(5, (16, 5), generator=rng)]
    x = {"positions": torch.randn(16, 5, 3, generator=rng), "charges": charges}
    x["mask"] = charges > 0
    with torch.no_grad():
        then, now = model.eval()(x), again.eval()(x)
    assert float((then - now).abs().max() / then.std()) < 5e-3
    with pytest.raises(RunError, match="another network"):
        load_weights(path, LieConv(width=64, n_blocks=1), its_augmenter)


@pytest.mark.filterwarnings("ignore:The model has batch norm")
def test_a_run_keeps_the_weights_that_it_would_end_with(tmp_path: Path) -> None:
    model, augmenter = build()
    started = time.monotonic()
    fit(
        model, augmenter, ring(), run=RunFolder(tmp_path), keep_weights=True,
        **options(average=0.1),
    )  # fmt: skip
    assert time.monotonic() - started < 60
    again, its_augmenter = build(seed=1)
    about = load_weights(RunFolder(tmp_path).weights_path, again, its_augmenter)
    assert about == {"epoch": 3, "step": 0}
    # Small tensors keep all their bits, so that these are the averages exactly.
    assert all(map(torch.equal, states(model), states(again)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:The model has batch norm")
def test_a_captured_step_averages_as_a_plain_one() -> None:
    on_gpu = {**options(average=0.2), "device": "cuda", "batch_size": 64}
    found = []
    for capture in (True, False):
        model, augmenter = build()
        fit(model, augmenter, ring(), capture=capture, **on_gpu)
        found.append(states(model))
    for captured, plain in zip(*found, strict=True):
        torch.testing.assert_close(captured, plain, rtol=1e-3, atol=1e-4)

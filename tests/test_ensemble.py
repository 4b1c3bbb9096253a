"""A stacked ensemble is each of its members trained alone."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from lieaugmenter import LieAugmenter, TrainingDiverged, fit
from lieaugmenter.baselines.augerino import AugerinoPlus
from lieaugmenter.data.dynamics import two_body
from lieaugmenter.learning import ensemble
from lieaugmenter.learning.batches import TensorBatches
from lieaugmenter.learning.ensemble import fit_ensemble
from lieaugmenter.learning.objective import PAPER_TWO_BODY
from lieaugmenter.nets import CNN, MLP

SEEDS = (0, 1, 7)


def networks(*shape: int, seeds: tuple[int, ...] = SEEDS) -> list[nn.Module]:
    made: list[nn.Module] = []
    for seed in seeds:
        torch.manual_seed(seed)
        made.append(MLP(shape, shape, hidden=(16, 16)))
    return made


def by_hand() -> LieAugmenter:
    return LieAugmenter(
        "vector", 8, blocks=[2] * 4, n_views=3, objective=PAPER_TWO_BODY, warmup_steps=10
    )


def general() -> LieAugmenter:
    return LieAugmenter("vector", 8, n_generators=2, n_views=3, warmup_steps=10)


def augerino() -> AugerinoPlus:
    return AugerinoPlus("vector", 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("make", [by_hand, general, augerino, None])
def test_every_member_ends_where_it_would_alone(make) -> None:
    task = two_body(8, 2)
    data = (task.x_train, task.y_train)
    options = {"epochs": 3, "batch_size": 32, "device": "cpu", "progress": False}
    stacked, alone = networks(8), networks(8)
    torch.manual_seed(0)
    augmenters = None if make is None else [make() for _ in SEEDS]
    own = [None] * len(SEEDS) if augmenters is None else copy.deepcopy(augmenters)
    histories = fit_ensemble(stacked, augmenters, data, seeds=SEEDS, **options)
    for member, seed in enumerate(SEEDS):
        history = fit(alone[member], own[member], data, seed=seed, **options)
        for mine, theirs in zip(
            stacked[member].parameters(), alone[member].parameters(), strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
        if augmenters is not None:
            learned = own[member]
            assert learned is not None
            torch.testing.assert_close(
                augmenters[member].generators, learned.generators, rtol=1e-3, atol=1e-5
            )
        assert histories[member].column("prediction") == pytest.approx(
            history.column("prediction"), rel=1e-3
        )
        assert histories[member].column("range") == history.column("range")


def test_members_differ_in_order_and_noise() -> None:
    task = two_body(8, 2)
    same = networks(8, seeds=(0, 0))
    fit_ensemble(
        same,
        [by_hand(), by_hand()],
        (task.x_train, task.y_train),
        seeds=(0, 1),
        epochs=1,
        progress=False,
        device="cpu",
    )
    first, second = (next(model.parameters()) for model in same)
    assert not torch.allclose(first, second)


def test_images_and_classes_can_be_stacked() -> None:
    x, y = torch.rand(24, 1, 8, 8), torch.arange(24) % 3
    models = [CNN((1, 8, 8), 3) for _ in range(2)]
    augmenters = [
        LieAugmenter("image", output="invariant", n_views=2, warmup_steps=0) for _ in range(2)
    ]
    before = [next(model.parameters()).clone() for model in models]
    fit_ensemble(
        models, augmenters, (x, y), seeds=(0, 1), epochs=1, batch_size=8, device="cpu",
        progress=False,
    )  # fmt: skip
    for model, old in zip(models, before, strict=True):
        assert not torch.equal(next(model.parameters()), old)


def test_a_seed_that_diverges_is_named() -> None:
    x = torch.randn(64, 8)
    augmenters = [by_hand(), by_hand()]
    with torch.no_grad():
        augmenters[1].basis.raw.fill_(float("nan"))
    with pytest.raises(TrainingDiverged, match="seed 5"):
        fit_ensemble(
            networks(8, seeds=(0, 5)), augmenters, (x, x), seeds=(0, 5), epochs=1, device="cpu",
            progress=False,
        )  # fmt: skip


def test_numbers_of_members_must_agree() -> None:
    x = torch.randn(8, 8)
    with pytest.raises(ValueError, match="one of each"):
        fit_ensemble(networks(8), [by_hand()], (x, x), seeds=(0,))


def test_models_of_other_shapes_or_with_batch_norm_are_refused() -> None:
    x = torch.randn(8, 8)
    with pytest.raises(ValueError, match="same parameters"):
        fit_ensemble([nn.Linear(8, 8), MLP((8,), (8,))], None, (x, x), seeds=(0, 1))
    normed = [nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(2)]
    with pytest.raises(ValueError, match="BatchNorm1d"):
        fit_ensemble(normed, None, (x, x), seeds=(0, 1))


def test_plain_training_lowers_the_prediction_loss() -> None:
    task = two_body(8, 2)
    model = MLP((8,), (8,), hidden=(16,))
    history = fit(
        model, None, (task.x_train, task.y_train), epochs=40, lr=1e-2, device="cpu", progress=False
    )
    losses = history.column("prediction")
    assert losses[-1] < 0.5 * losses[0]
    assert set(history.records[0]) == {"epoch", "prediction", "lr", "range", "seconds"}


@pytest.mark.parametrize("kind", [torch.int32, torch.bool])
def test_plain_training_takes_the_labels_that_an_augmenter_takes(kind: torch.dtype) -> None:
    x, y = torch.randn(16, 2), (torch.arange(16) % 2).to(kind)
    fit(MLP((2,), (2,), hidden=(4,)), None, (x, y), epochs=1, device="cpu", progress=False)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epochs": -1}, ValueError, "epochs=-1.*all must be positive"),
        ({"batch_size": 0}, ValueError, "batch_size=0.*all must be positive"),
        ({"epochs": 2.5}, TypeError, r"epochs=2\.5: give a whole number"),
        ({"seeds": (2**45,)}, ValueError, r"between -2\*\*43 and 2\*\*43"),
        ({"train": (torch.zeros(4, 2), np.zeros(4))}, TypeError, r"torch\.as_tensor\(y\)"),
    ],
)
def test_an_ensemble_refuses_what_fit_refuses(
    options: dict, error: type[Exception], message: str
) -> None:
    given = {"train": (torch.randn(4, 2), torch.randn(4, 1)), "seeds": (0,)} | options
    with pytest.raises(error, match=message):
        fit_ensemble([nn.Linear(2, 1)], None, **given, progress=False, device="cpu")


def test_all_members_share_one_copy_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Counted(TensorBatches):
        def __init__(self, *args, **options) -> None:
            made.append(self)
            super().__init__(*args, **options)

    monkeypatch.setattr(ensemble, "TensorBatches", Counted)
    x = torch.randn(16, 2)
    models = [nn.Linear(2, 2) for _ in SEEDS]
    fit_ensemble(models, None, (x, x), seeds=SEEDS, epochs=1, device="cpu", progress=False)
    assert len(made) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_data_that_do_not_fit_on_a_gpu_train_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    task, found = two_body(8, 2), []
    for fits in (True, False):
        monkeypatch.setattr("lieaugmenter.learning.batches._fits", lambda *_, fits=fits: fits)
        models = networks(8)
        augmenters = [by_hand() for _ in SEEDS]
        data = (task.x_train, task.y_train)
        fit_ensemble(models, augmenters, data, seeds=SEEDS, epochs=2, device="cuda", progress=False)
        found.append(torch.cat([p.detach().flatten() for m in models for p in m.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)

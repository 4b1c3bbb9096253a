"""LieAugmenterModule: the plain engine's numbers from lightning.Trainer."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lieaugmenter import LieAugmenter, TrainingDiverged, fit
from lieaugmenter.baselines.liegan import (
    DISCRIMINATOR_RATE,
    GENERATOR_RATE,
    Discriminator,
    LieGAN,
)
from lieaugmenter.nets import CNN, MLP

pytest.importorskip("lightning", reason="needs: pip install 'lieaugmenter[lightning]'")

from lightning import Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from lieaugmenter.learning.lightning import LieAugmenterModule, tensor_loader

pytestmark = [
    # Lightning's own, and what it remarks about few batches.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*(does not have many workers|no `val_dataloader`)"),
]

Case = tuple[nn.Module, LieAugmenter, Tensor, Tensor]


def vectors() -> Case:
    x = torch.randn(150, 3)
    augmenter = LieAugmenter("vector", 3, n_generators=3, output="same", warmup_steps=10)
    return MLP((3,), (3,), hidden=(32, 32)), augmenter, x, x * x.norm(dim=1, keepdim=True)


def one_generator() -> Case:
    x = torch.randn(150, 4)
    augmenter = LieAugmenter("vector", 4, output="invariant", n_views=4, warmup_steps=10)
    return MLP((4,), (1,), hidden=(32,)), augmenter, x, x.norm(dim=1, keepdim=True)


def images() -> Case:
    x = torch.rand(150, 1, 8, 8)
    augmenter = LieAugmenter("image", output="invariant", n_views=2, warmup_steps=10)
    return CNN((1, 8, 8), 3, width=8), augmenter, x, torch.randint(3, (150,))


def trainer(folder: Path, epochs: int, **options: Any) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    quiet |= {"logger": False, "enable_checkpointing": False, "log_every_n_steps": 1}
    return Trainer(
        max_epochs=epochs, accelerator="cpu", default_root_dir=folder, **(quiet | options)
    )


def furthest(a: nn.Module, b: nn.Module) -> float:
    """The largest difference between the states of two modules."""
    theirs = b.state_dict()
    return max(float((v - theirs[k]).abs().max()) for k, v in a.state_dict().items())


@pytest.mark.parametrize("case", [vectors, one_generator, images])
def test_after_20_steps_the_numbers_are_the_engines(
    case: Callable[[], Case], tmp_path: Path
) -> None:
    """150 samples in batches of 32 are 5 steps an epoch, the last of them smaller."""
    model, augmenter, x, y = case()
    theirs = copy.deepcopy(model), copy.deepcopy(augmenter)
    history = fit(
        *theirs, (x, y), validation=(x, y), epochs=4, batch_size=32, lr=2e-3, seed=3, progress=False
    )
    module = LieAugmenterModule(model, augmenter, lr=2e-3, seed=3)
    loader = tensor_loader(x, y, batch_size=32, seed=3)
    state = torch.get_rng_state()
    done = trainer(tmp_path, 4)
    done.fit(module, loader, val_dataloaders=tensor_loader(x, y, batch_size=150))
    assert done.global_step == 20
    assert furthest(model, theirs[0]) < 1e-6
    assert furthest(augmenter, theirs[1]) < 1e-6
    assert torch.equal(torch.get_rng_state(), state)
    for name in (*augmenter.terms, "range", "validation"):
        expected = history.records[-1][name]
        assert float(done.callback_metrics[name]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_another_seed_gives_other_numbers(tmp_path: Path) -> None:
    model, augmenter, x, y = vectors()
    others = copy.deepcopy(model), copy.deepcopy(augmenter)
    for parts, seed in (((model, augmenter), 0), (others, 1)):
        module = LieAugmenterModule(*parts, seed=seed)
        trainer(tmp_path, 1).fit(module, tensor_loader(x, y, batch_size=32))
    assert furthest(augmenter, others[1]) > 1e-4


def test_the_range_grows_and_validation_does_not_count_as_training(tmp_path: Path) -> None:
    model, augmenter, x, y = vectors()
    assert float(augmenter.sampler.grown) == pytest.approx(0.1)
    module = LieAugmenterModule(model, augmenter)
    done = trainer(tmp_path, 1)
    done.fit(
        module,
        tensor_loader(x, y, batch_size=32),
        val_dataloaders=tensor_loader(x, y, batch_size=22),
    )
    # 5 of 10 steps.
    assert float(augmenter.sampler.grown) == pytest.approx(0.1 + 0.9 * 0.5)
    assert float(done.callback_metrics["range"]) == pytest.approx(2.0 * 0.55)


def test_validation_averages_the_prediction(tmp_path: Path) -> None:
    model, augmenter, x, y = one_generator()
    module = LieAugmenterModule(model, augmenter)
    done = trainer(tmp_path, 1)
    done.fit(module, tensor_loader(x, y), val_dataloaders=tensor_loader(x, y, batch_size=150))
    averaged = augmenter.predict(model, x)
    expected = (averaged - y).square().sum() / len(y)
    assert float(done.callback_metrics["validation_averaged"]) == pytest.approx(float(expected))
    assert done.callback_metrics["validation"] != done.callback_metrics["validation_averaged"]
    (predicted,) = done.predict(module, DataLoader(TensorDataset(x), batch_size=150)) or []
    assert torch.allclose(predicted, averaged)  # pyright: ignore[reportArgumentType]
    (tested,) = done.test(module, tensor_loader(x, y, batch_size=150), verbose=False)
    assert tested["test_averaged"] == pytest.approx(float(expected))


def test_labels_of_32_bits_are_validated_as_they_are_trained(tmp_path: Path) -> None:
    model, augmenter, x, y = images()
    loader = tensor_loader(x, y.int(), batch_size=150)
    done = trainer(tmp_path, 1)
    done.fit(LieAugmenterModule(model, augmenter), loader, val_dataloaders=loader)
    assert done.callback_metrics["validation"] > 0


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(tmp_path: Path) -> None:
    model, augmenter, x, y = vectors()
    whole = copy.deepcopy(model), copy.deepcopy(augmenter)
    halves = copy.deepcopy(model), copy.deepcopy(augmenter)
    loader = tensor_loader(x, y, batch_size=32)
    trainer(tmp_path, 4).fit(LieAugmenterModule(*whole, schedule="constant"), loader)

    first = trainer(tmp_path, 2)
    first.fit(LieAugmenterModule(*halves, schedule="constant"), loader)
    first.save_checkpoint(tmp_path / "half.ckpt")
    # New modules and a new loader: all that goes on is in the file.
    resumed = LieAugmenterModule(model, augmenter, schedule="constant")
    anew = tensor_loader(x, y, batch_size=32)
    trainer(tmp_path, 4).fit(resumed, anew, ckpt_path=tmp_path / "half.ckpt", weights_only=True)
    assert furthest(model, whole[0]) == 0
    assert furthest(augmenter, whole[1]) == 0
    assert furthest(augmenter, halves[1]) > 1e-5


def test_terms_reach_loggers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model, augmenter, x, y = vectors()
    loggers = [TensorBoardLogger(tmp_path, name="board"), CSVLogger(tmp_path, name="table")]
    done = trainer(tmp_path, 2, logger=loggers)
    done.fit(
        LieAugmenterModule(model, augmenter),
        tensor_loader(x, y, batch_size=32),
        val_dataloaders=tensor_loader(x, y, batch_size=150),
    )
    events = EventAccumulator(loggers[0].log_dir).Reload()
    names = {*augmenter.terms, "range", "validation", "validation_averaged"}
    assert names <= set(events.Tags()["scalars"])
    assert len(events.Scalars("equivariance")) == 2
    header = (Path(str(loggers[1].log_dir)) / "metrics.csv").read_text().splitlines()[0]
    assert names <= set(header.split(","))


def test_what_becomes_non_finite_stops_training_with_its_name(tmp_path: Path) -> None:
    model, augmenter, x, y = vectors()
    x[0, 0] = float("inf")
    module = LieAugmenterModule(model, augmenter)
    with pytest.raises(TrainingDiverged, match="prediction"):
        trainer(tmp_path, 1).fit(module, tensor_loader(x, y))


def test_an_unknown_schedule_is_answered_with_the_known_ones() -> None:
    model, augmenter, _, _ = vectors()
    with pytest.raises(ValueError, match="constant, cosine"):
        LieAugmenterModule(model, augmenter, schedule="linear")


def test_generators_with_a_rate_of_their_own_learn_at_it(tmp_path: Path) -> None:
    liegan = LieGAN("vector", 2, output="invariant")
    x = torch.randn(32, 2)
    module = LieAugmenterModule(Discriminator(2, 1), liegan, lr=DISCRIMINATOR_RATE)
    done = trainer(tmp_path, 1, limit_train_batches=1)
    rates: list[list[float]] = []
    step = module.training_step

    def watched(*args: Any) -> Any:
        rates.append([group["lr"] for group in done.optimizers[0].param_groups])
        return step(*args)

    module.training_step = watched
    done.fit(module, tensor_loader(x, x.norm(dim=1, keepdim=True)))
    assert rates == [[pytest.approx(DISCRIMINATOR_RATE), pytest.approx(GENERATOR_RATE)]]


def test_the_warm_up_counts_steps_of_the_optimiser_not_batches(tmp_path: Path) -> None:
    """Nine batches in fours are three steps, the last of them of one batch."""
    model, augmenter, x, y = vectors()
    module = LieAugmenterModule(model, augmenter)
    done = trainer(tmp_path, 1, accumulate_grad_batches=4)
    done.fit(module, tensor_loader(x[:144], y[:144], batch_size=16))
    assert done.global_step == augmenter.sampler.steps_taken == 3


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes saw of `lightning_cases`."""
    folder = tmp_path_factory.mktemp("two")
    script = str(Path(__file__).parent / "lightning_cases.py")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launcher, "--nproc-per-node=2", script, str(folder)],
        # Gloo, by the loopback alone: a machine without a network has no address of its own.
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"seen-{number}.pt") for number in (0, 1)]


def test_processes_of_a_resumed_run_go_on_with_their_own_elements(
    two_processes: list[dict[str, Any]],
) -> None:
    for seen in two_processes:
        assert torch.equal(seen["rest"], seen["whole"][4:])
    first, second = two_processes
    assert not torch.isclose(first["rest"], second["rest"]).any()


def test_logged_losses_are_means_over_processes(two_processes: list[dict[str, Any]]) -> None:
    first, second = (seen["logged"] for seen in two_processes)
    assert {"prediction", "validation", "validation_averaged"} <= set(first)
    assert first == second

"""fit(): it learns, stops, resumes to the bit, and says clearly what went wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from lieaugmenter import LieAugmenter, Objective, TrainingDiverged, fit
from lieaugmenter.actions import DirectSumAction, InvariantAction, VectorAction
from lieaugmenter.analysis.compare import absolute_cosine
from lieaugmenter.learning.devices import lay_channels_last
from lieaugmenter.learning.optimizer import rate_at
from lieaugmenter.learning.progress import TextProgress
from lieaugmenter.lie import catalogue
from lieaugmenter.lie.samplers import LearnableRange, Uniform
from lieaugmenter.nets import MLP
from lieaugmenter.runs import RunError, RunFolder

# The runs here are too short for any warm-up; one test asks for the warning.
pytestmark = pytest.mark.filterwarnings("ignore:the range grows over")


def ring(n: int = 512) -> tuple[Tensor, Tensor]:
    """A target that depends on the radius alone: symmetric under rotations of the plane."""
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
    return x, x.norm(dim=1, keepdim=True)


class Noisy(nn.Module):
    """A network with dropout, so that the global random state matters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def build(seed: int = 0, **options: object) -> tuple[nn.Module, LieAugmenter]:
    torch.manual_seed(seed)
    settings: dict = {"output": "invariant", "n_views": 3, "warmup_steps": 20} | options
    return Noisy(), LieAugmenter("vector", 2, **settings)


def new_run(path: Path) -> RunFolder:
    return RunFolder.create(path, {})


def state(*modules: nn.Module) -> list[Tensor]:
    return [tensor.clone() for module in modules for tensor in module.state_dict().values()]


def assert_same_to_the_bit(a: list[Tensor], b: list[Tensor]) -> None:
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_rotation_is_found_in_a_radial_target() -> None:
    torch.manual_seed(0)
    model = MLP((2,), (1,), hidden=(64, 64))
    augmenter = LieAugmenter("vector", 2, output="invariant", n_views=4, warmup_steps=100)
    history = fit(model, augmenter, ring(1024), epochs=25, lr=3e-3, progress=False, device="cpu")
    assert float(absolute_cosine(augmenter.generators.detach(), catalogue.so(2))) > 0.99
    assert history.records[-1]["prediction"] < 0.1 * history.records[0]["prediction"]


def test_the_same_seed_gives_the_same_run_to_the_bit() -> None:
    runs = []
    for _ in range(2):
        model, augmenter = build()
        fit(model, augmenter, ring(), epochs=2, progress=False, device="cpu")
        runs.append(state(model, augmenter))
    assert_same_to_the_bit(*runs)


def test_global_random_state_is_left_as_it_was() -> None:
    model, augmenter = build()
    before = torch.get_rng_state()
    fit(model, augmenter, ring(), epochs=1, progress=False, device="cpu")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    "options",
    [{"sampler": "uniform"}, {"sampler": "learnable"}, {"nimble": True, "n_generators": 2}],
)
def test_resumed_run_equals_an_uninterrupted_one_to_the_bit(tmp_path: Path, options: dict) -> None:
    whole_model, whole_augmenter = build(**options)
    whole = fit(
        whole_model,
        whole_augmenter,
        ring(),
        validation=ring(64),
        epochs=4,
        progress=False,
        device="cpu",
    )

    class StopHereError(Exception):
        pass

    def stop_after_two(record: dict) -> None:
        if record["epoch"] == 2:
            raise StopHereError

    run = new_run(tmp_path / "run")
    model, augmenter = build(**options)
    common: dict = {"validation": ring(64), "epochs": 4, "progress": False, "run": run}
    with pytest.raises(StopHereError):
        fit(model, augmenter, ring(), on_epoch=stop_after_two, device="cpu", **common)
    model, augmenter = build(seed=99, **options)  # what it starts from must not matter
    resumed = fit(model, augmenter, ring(), resume=True, device="cpu", **common)
    assert_same_to_the_bit(state(whole_model, whole_augmenter), state(model, augmenter))
    for then, now in zip(whole.records, resumed.records, strict=True):
        assert {**then, "seconds": 0} == {**now, "seconds": 0}
    assert len(run.metrics()) == 4


def test_interrupt_in_the_middle_of_an_epoch_resumes_to_the_bit(tmp_path: Path) -> None:
    # Not always Python's own: a process in the background of a shell ignores the signal.
    before = signal.getsignal(signal.SIGINT)
    whole_model, whole_augmenter = build()
    whole = fit(whole_model, whole_augmenter, ring(), epochs=2, progress=False, device="cpu")
    run = new_run(tmp_path / "run")
    model, augmenter = build()
    calls = 0

    class InterruptsItself(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            if calls == 11:  # the third step of the second epoch
                os.kill(os.getpid(), signal.SIGINT)
            return self.inner(x)

    with pytest.raises(KeyboardInterrupt, match="resume"):
        fit(
            InterruptsItself(model),
            augmenter,
            ring(),
            epochs=2,
            progress=False,
            run=run,
            device="cpu",
        )
    resumed_model, resumed_augmenter = build(seed=5)
    wrapped = InterruptsItself(resumed_model)
    calls = 100
    resumed = fit(
        wrapped,
        resumed_augmenter,
        ring(),
        epochs=2,
        progress=False,
        run=run,
        resume=True,
        device="cpu",
    )
    assert_same_to_the_bit(
        state(whole_model, whole_augmenter), state(resumed_model, resumed_augmenter)
    )
    assert whole.records[1]["prediction"] == resumed.records[1]["prediction"]
    assert signal.getsignal(signal.SIGINT) is before


def test_non_finite_term_is_named_with_the_last_good_checkpoint(tmp_path: Path) -> None:
    x, y = ring(256)
    y = y.clone()

    class Explodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 1)
            self.calls = 0

        def forward(self, batch: Tensor) -> Tensor:
            self.calls += 1
            # Only the views explode: the first 64 samples of a batch are the originals.
            factor = torch.ones(len(batch), 1)
            if self.calls > 4 and len(batch) > 64:
                factor[64:] = float("inf")
            return self.linear(batch) * factor

    run = new_run(tmp_path / "run")
    augmenter = LieAugmenter("vector", 2, output="invariant", n_views=2)
    with pytest.raises(TrainingDiverged, match=r"the equivariance term .* epoch 2") as caught:
        fit(Explodes(), augmenter, (x, y), epochs=3, progress=False, run=run, device="cpu")
    assert "checkpoint" in str(caught.value)
    assert "epoch 1" in str(caught.value)


def test_data_loader_gives_batches_and_trains() -> None:
    loader = DataLoader(TensorDataset(*ring(128)), batch_size=32, shuffle=True)
    model, augmenter = build()
    history = fit(model, augmenter, loader, epochs=2, progress=False, device="cpu")
    assert len(history.records) == 2


def test_structured_input_trains() -> None:
    from lieaugmenter import AffineAction, StructuredAction

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = MLP((3,), (1,), hidden=(8,))

        def forward(self, x: dict[str, Tensor]) -> Tensor:
            return (self.mlp(x["positions"].flatten(0, 1)).view(x["real"].shape) * x["real"]).sum(1)

    x = {"positions": torch.randn(64, 4, 3), "real": torch.ones(64, 4)}
    action = StructuredAction({"positions": AffineAction(3)}, masks={"positions": "real"})
    augmenter = LieAugmenter(action, n_generators=2, output="invariant", n_views=2, range=0.3)
    history = fit(Sum(), augmenter, (x, torch.randn(64)), epochs=1, progress=False, device="cpu")
    assert set(history.records[0]) >= {"prediction", "equivariance", "alignment"}


def test_bf16_runs_the_model_and_not_the_exponentials_in_half_precision() -> None:
    seen = []

    class Spy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 1)

        def forward(self, x: Tensor) -> Tensor:
            out = self.linear(x)
            seen.append((x.dtype, out.dtype))
            return out

    _, augmenter = build()
    fit(Spy(), augmenter, ring(64), epochs=1, precision="bf16", progress=False, device="cpu")
    assert seen[0] == (torch.float32, torch.bfloat16)
    assert augmenter.generators.dtype == torch.float32


def test_own_optimizer_keeps_its_rates_and_follows_the_schedule() -> None:
    model, augmenter = build()
    made = []

    def sgd(groups: list[dict]) -> torch.optim.Optimizer:
        groups[1]["lr"] = 1e-3
        made.append(torch.optim.SGD(groups, lr=1e-2))
        return made[0]

    fit(model, augmenter, ring(64), epochs=2, lr=1e-2, optimizer=sgd, progress=False, device="cpu")
    first, second = (group["lr"] for group in made[0].param_groups)
    assert first == pytest.approx(10 * second)
    assert first < 1e-2


def test_a_warm_schedule_rises_to_the_rate_and_falls_to_a_hundredth() -> None:
    rates = [rate_at(progress / 100, 2.0, "warm-cosine") for progress in range(101)]
    assert rates[0] == 0.0
    assert rates.index(max(rates)) == 5
    assert rates[5:] == [rate_at(progress / 100, 2.0, "cosine") for progress in range(5, 101)]
    assert rates[-1] == pytest.approx(0.02)


def test_warm_up_grows_the_range_in_training() -> None:
    model, augmenter = build(warmup_steps=8)
    history = fit(model, augmenter, ring(256), epochs=3, progress=False, device="cpu")
    ranges = history.column("range")
    assert ranges[0] < ranges[1] == pytest.approx(2.0)


def test_fixed_basis_trains_the_model_alone() -> None:
    torch.manual_seed(0)
    model = MLP((2,), (1,), hidden=(8,))
    augmenter = LieAugmenter(
        "vector", 2, output="invariant", basis=catalogue.so(2), objective=Objective(proximity=0.0)
    )
    fit(model, augmenter, ring(128), epochs=1, progress=False, device="cpu")
    assert torch.equal(augmenter.generators, catalogue.so(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "half"}, "unknown precision 'half'; choose from bf16, float32"),
        ({"schedule": "step"}, "unknown schedule 'step'; choose from constant, cosine"),
        ({"epochs": 0}, "epochs=0"),
        ({"resume": True}, "resume=True needs run="),
        ({"device": "cuda"}, "no usable CUDA device"),
    ],
)
def test_wrong_option_is_answered_with_the_right_ones(options: dict, message: str) -> None:
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    model, augmenter = build()
    with pytest.raises(ValueError, match=message):
        fit(model, augmenter, ring(), progress=False, **options)


def test_lengths_that_differ_are_named() -> None:
    model, augmenter = build()
    with pytest.raises(ValueError, match="X has 512 rows, y has 511"):
        fit(model, augmenter, (ring()[0], ring()[1][:-1]), progress=False, device="cpu")


def test_damaged_checkpoint_is_refused_with_its_name(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    model, augmenter = build()
    fit(model, augmenter, ring(64), epochs=1, progress=False, run=run, device="cpu")
    run.checkpoint_path.write_bytes(run.checkpoint_path.read_bytes()[:100])
    with pytest.raises(RunError, match=r"state\.safetensors is damaged"):
        fit(model, augmenter, ring(64), epochs=1, progress=False, run=run, resume=True)


def test_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    model, augmenter = build()
    fit(model, augmenter, ring(64), epochs=1, progress=False, run=run, device="cpu")
    with pytest.raises(RunError, match="another network"):
        fit(MLP((2,), (1,)), augmenter, ring(64), epochs=1, progress=False, run=run, resume=True)


def test_failed_write_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lieaugmenter.runs import write_atomically

    path = tmp_path / "file.json"
    write_atomically(path, "old")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_metrics_are_one_json_object_a_line(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    model, augmenter = build()
    fit(model, augmenter, ring(64), epochs=2, progress=False, run=run, device="cpu")
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]


def test_progress_shows_losses_and_time_left() -> None:
    import io

    stream = io.StringIO()
    bar = TextProgress(10, stream=stream)
    bar.update(1, {"prediction": 1.0})
    bar.update(5, {"prediction": 0.25})
    bar.close()
    assert "prediction 0.25" in stream.getvalue()
    assert " 50 %" in stream.getvalue()
    assert "left" in stream.getvalue()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("loader", [False, True])
def test_captured_step_gives_the_numbers_of_the_plain_one(loader: bool) -> None:
    """On 500 samples, of which the last batch is smaller."""
    results = []
    for capture in (False, True):
        model, augmenter = build()
        data = ring(500)
        train = DataLoader(TensorDataset(*data), batch_size=64) if loader else data
        fit(model, augmenter, train, epochs=2, progress=False, device="cuda", capture=capture)
        results.append(state(model, augmenter))
    assert_same_to_the_bit(*results)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_after_a_step_that_cannot_be_captured_others_can() -> None:
    class Waits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) * float(x.detach().abs().max())

    _, augmenter = build()
    with pytest.warns(UserWarning, match="cannot be captured"):
        fit(Waits(), augmenter, ring(200), epochs=1, progress=False, device="cuda")
    assert float(torch.randn(100, device="cuda").std()) > 0
    model, augmenter = build()
    fit(model, augmenter, ring(200), epochs=1, progress=False, device="cuda")


def test_loader_without_a_length_is_counted() -> None:
    class Some(IterableDataset):
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            yield from zip(*ring(10), strict=True)

    model, augmenter = build()
    fit(model, augmenter, DataLoader(Some(), batch_size=4), progress=False, device="cpu", epochs=2)
    assert augmenter.sampler._steps_taken == 6


def test_loader_of_something_else_than_pairs_is_named() -> None:
    model, augmenter = build()
    loader = DataLoader(TensorDataset(ring(8)[0]), batch_size=4)
    with pytest.raises(ValueError, match="must come as pairs"):
        fit(model, augmenter, loader, progress=False, device="cpu")


def test_batch_norm_is_warned_of() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    _, augmenter = build()
    with pytest.warns(UserWarning, match="mixes the statistics"):
        fit(model, augmenter, ring(64), epochs=1, progress=False, device="cpu")


def test_checkpoint_never_holds_weights_that_are_not_finite(tmp_path: Path) -> None:
    """The loss stays finite, but the last gradient of an epoch does not."""

    class BreaksItsWeight(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 1)
            self.linear.weight.register_hook(lambda gradient: gradient * float("nan"))

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)

    run = new_run(tmp_path / "run")
    _, augmenter = build()
    with pytest.raises(TrainingDiverged, match="a weight of the network"):
        fit(BreaksItsWeight(), augmenter, ring(64), epochs=1, progress=False, run=run, device="cpu")
    assert not run.checkpoint_path.exists()


def test_what_fit_cannot_train_on_is_named() -> None:
    model, augmenter = build()
    loader = DataLoader(TensorDataset(*ring(8)), batch_size=4)
    with pytest.raises(TypeError, match=r"fit trains an nn\.Module"):
        fit(lambda x: x, augmenter, ring(8), progress=False)
    with pytest.raises(TypeError, match=r"validation is a DataLoader; expected a pair \(x, y\)"):
        fit(model, augmenter, loader, validation=loader, progress=False)
    with pytest.raises(TypeError, match=r"train is a Tensor; expected a pair \(x, y\)"):
        fit(model, augmenter, ring(8)[0], progress=False)


def test_warm_up_longer_than_training_is_warned_of() -> None:
    model, augmenter = build(warmup_steps=1000)
    with pytest.warns(UserWarning, match="the range grows over 1000 steps"):
        fit(model, augmenter, ring(64), epochs=1, progress=False, device="cpu")


def test_resume_of_a_network_with_several_outputs_equals_an_uninterrupted_run(
    tmp_path: Path,
) -> None:
    """Its last layer is stored column by column, and the moments with it."""
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    options = {"epochs": 4, "batch_size": 16, "device": "cpu", "progress": False}

    def made() -> tuple[MLP, LieAugmenter]:
        torch.manual_seed(0)
        return MLP((2,), (2,), hidden=(16,)), LieAugmenter("vector", 2, warmup_steps=4)

    whole, augmenter = made()
    fit(whole, augmenter, (x, x), **options)
    first, augmenter = made()
    run = RunFolder.create(tmp_path / "run", {})

    class StoppedError(Exception):
        pass

    def stop(record: dict) -> None:
        if record["epoch"] == 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        fit(first, augmenter, (x, x), run=run, on_epoch=stop, **options)
    resumed, augmenter = made()
    fit(resumed, augmenter, (x, x), run=run, resume=True, **options)
    for mine, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine, theirs)


# The compiler's own imports use what torch has deprecated.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_trains_to_the_same_numbers() -> None:
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    y = x.norm(dim=1, keepdim=True)
    weights = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        augmenter = LieAugmenter("vector", 2, output="invariant", n_views=3, warmup_steps=1)
        # 40 samples in batches of 16: the last batch of an epoch is smaller.
        fit(
            model, augmenter, (x, y), epochs=2, batch_size=16, compile=compiled, progress=False,
            device="cpu",
        )  # fmt: skip
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*weights, atol=1e-5, rtol=1e-4)


def test_nimble_generators_stay_as_short_as_they_began_where_others_grow() -> None:
    lengths = {}
    for nimble in (False, True):
        model, augmenter = build(nimble=nimble)
        began = augmenter.basis.raw.norm().item()
        fit(model, augmenter, ring(), epochs=4, progress=False, device="cpu")
        lengths[nimble] = augmenter.basis.raw.norm().item() / began
    # The last step is not shortened any more, but the rate has fallen by then.
    assert lengths[True] < 1.01
    assert lengths[False] > 1.2


def test_weights_of_convolutions_are_laid_out_and_all_others_left_alone() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv3d(3, 4, 3), nn.Linear(2, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    lay_channels_last(model)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert model[1].weight.is_contiguous()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_on_a_cpu_convolutions_are_trained_in_their_fast_layout() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.LazyLinear(1))
    x = torch.randn(32, 2, 5, 5)
    model(x)
    fit(model, None, (x, x.mean((1, 2, 3))[:, None]), epochs=1, progress=False, device="cpu")
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_a_network_that_convolves_channels_by_themselves_keeps_its_layout() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, groups=4))
    lay_channels_last(model)
    assert all(layer.weight.is_contiguous() for layer in model)


def test_what_is_changed_between_epochs_is_in_the_checkpoint(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    model, augmenter = build()

    def prune(record: dict) -> None:
        augmenter.basis.mask[0, 0] = 0.0

    fit(model, augmenter, ring(64), epochs=1, progress=False, run=run, device="cpu", on_epoch=prune)
    again, restored = build()
    fit(again, restored, ring(64), epochs=1, progress=False, run=run, resume=True, device="cpu")
    assert restored.basis.mask[0, 0] == 0


class ReadOnce(IterableDataset[tuple[Tensor, Tensor]]):
    """Pairs that are gone once they were read."""

    def __init__(self) -> None:
        x = torch.randn(20, 2)
        self.pairs = iter(list(zip(x, x.norm(dim=1), strict=True)))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.pairs


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: DataLoader(data, batch_size=5)])
def test_data_that_are_gone_after_one_reading_are_no_perfect_fit(wrap) -> None:
    with pytest.raises(ValueError, match="must begin anew each time"):
        fit(nn.Linear(2, 1), None, wrap(ReadOnce()), epochs=3, progress=False)


def test_a_loader_without_a_batch_is_refused() -> None:
    data = TensorDataset(torch.randn(20, 2), torch.randn(20, 1))
    loader = DataLoader(data, batch_size=64, drop_last=True)
    with pytest.raises(ValueError, match="the DataLoader has no batch"):
        fit(nn.Linear(2, 1), None, loader, epochs=1, progress=False)


def test_an_optimizer_that_is_made_already_is_answered_with_how_to_give_one() -> None:
    model = nn.Linear(2, 1)
    made = torch.optim.SGD(model.parameters(), lr=0.1)
    data = (torch.randn(8, 2), torch.randn(8, 1))
    with pytest.raises(TypeError, match=r"lambda groups: torch\.optim\.SGD\(groups"):
        fit(model, None, data, optimizer=made, progress=False)  # pyright: ignore


@pytest.mark.parametrize("name", ["epochs", "batch_size"])
def test_half_an_epoch_is_refused(name: str) -> None:
    data = (torch.randn(8, 2), torch.randn(8, 1))
    with pytest.raises(TypeError, match=rf"{name}=2\.5: give a whole number"):
        fit(nn.Linear(2, 1), None, data, **{name: 2.5}, progress=False)  # pyright: ignore


@pytest.mark.parametrize("learner", [None, LieAugmenter("vector", 3, output="invariant")])
def test_labels_beyond_the_logits_are_named(learner: LieAugmenter | None) -> None:
    data = (torch.randn(8, 3), torch.tensor([0, 1, 2, 3] * 2))
    with pytest.raises(ValueError, match="labels from 0 to 3, and the model returns 2 logits"):
        fit(nn.Linear(3, 2), learner, data, epochs=1, device="cpu", progress=False)


def test_data_that_are_not_finite_are_what_is_to_be_mended() -> None:
    x = torch.randn(8, 2).index_fill(0, torch.tensor([3]), torch.nan)
    with pytest.raises(TrainingDiverged, match="The batch itself holds values that are not finite"):
        fit(nn.Linear(2, 1), None, (x, torch.randn(8, 1)), epochs=1, progress=False)


def test_plain_networks_may_have_a_label_for_every_pixel_and_none_for_some() -> None:
    x, y = torch.randn(8, 1, 4, 4), torch.randint(0, 3, (8, 4, 4))
    y[:, 0, 0] = -100
    model = nn.Conv2d(1, 3, 1)
    history = fit(model, None, (x, y), epochs=1, device="cpu", progress=False)
    assert history.records[0]["prediction"] > 0


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("learner", [None, LieAugmenter("vector", 3, output="invariant")])
def test_labels_of_any_whole_type_are_validated_as_they_are_trained(
    learner: LieAugmenter | None, kind: torch.dtype
) -> None:
    x, y = torch.randn(8, 3), torch.tensor([0, 1] * 4)
    options: dict = {"epochs": 1, "lr": 1e-9, "device": "cpu", "progress": False}
    model = nn.Linear(3, 2)
    found = [
        fit(model, learner, (x, labels), validation=(x, labels), **options).column("validation")
        for labels in (y, y.to(kind))
    ]
    assert found[0] == pytest.approx(found[1])


def test_validation_labels_beyond_the_logits_are_named() -> None:
    x, y = torch.randn(8, 3), torch.tensor([0, 1] * 4)
    with pytest.raises(ValueError, match="labels from 0 to 2, and the model returns 2 logits"):
        fit(nn.Linear(3, 2), None, (x, y), validation=(x, 2 * y), epochs=1, progress=False)


@pytest.mark.parametrize("learner", [None, LieAugmenter("vector", 3, output="invariant")])
def test_labels_that_do_not_count_are_refused_where_batches_are_cut(
    learner: LieAugmenter | None,
) -> None:
    """A chunk of them alone would have no mean, and the others the wrong weight."""
    x, y = torch.randn(8, 3), torch.tensor([0, 1, 1, 0, -100, -100, 1, 0])
    options: dict = {"epochs": 1, "device": "cpu", "progress": False}
    fit(nn.Linear(3, 2), learner, (x, y), **options)
    with pytest.raises(ValueError, match=r"labels of -100.*Leave these samples out"):
        fit(nn.Linear(3, 2), learner, (x, y), chunk=2, **options)


def test_numbers_of_numpy_can_be_kept_in_a_checkpoint(tmp_path: Path) -> None:
    def train(**options: object) -> None:
        torch.manual_seed(0)
        augmenter = LieAugmenter(
            "vector",
            2,
            np.int64(1),  # pyright: ignore[reportArgumentType]
            output="invariant",
            n_views=np.int64(3),  # pyright: ignore[reportArgumentType]
            n_factors=np.int64(2),  # pyright: ignore[reportArgumentType]
        )
        fit(
            nn.Linear(2, 1),
            augmenter,
            ring(32),
            epochs=np.int64(2),  # pyright: ignore[reportArgumentType]
            batch_size=np.int64(8),  # pyright: ignore[reportArgumentType]
            lr=np.float32(1e-3),  # pyright: ignore[reportArgumentType]
            seed=np.int64(4),  # pyright: ignore[reportArgumentType]
            average=np.float64(0.1),
            run=RunFolder(tmp_path / "run"),
            device="cpu",
            progress=False,
            **options,  # pyright: ignore[reportArgumentType]
        )

    train()
    train(resume=True)
    assert len(RunFolder(tmp_path / "run").metrics()) == 2


def test_weights_of_numpy_become_pythons_own() -> None:
    assert {type(value) for value in asdict(Objective(sparsity=np.float64(0.1))).values()} == {
        float,
        bool,
    }


@pytest.mark.parametrize("seed", [2**45, -(2**45)])
def test_a_seed_that_is_too_large_is_answered_with_the_largest(seed: int) -> None:
    with pytest.raises(ValueError, match=r"between -2\*\*43 and 2\*\*43"):
        fit(nn.Linear(2, 1), None, ring(8), seed=seed, progress=False, device="cpu")
    fit(nn.Linear(2, 1), None, ring(8), seed=seed // 4, epochs=1, progress=False, device="cpu")


def test_labels_of_numpy_are_answered_with_how_to_give_them() -> None:
    x, y = ring(8)
    for data in ({"train": (x, y.numpy())}, {"train": (x, y), "validation": (x, y.numpy())}):
        with pytest.raises(TypeError, match=r"is a ndarray; pass a tensor, torch\.as_tensor\(y\)"):
            fit(nn.Linear(2, 1), None, **data, progress=False, device="cpu")  # pyright: ignore


TURN, SCALING = catalogue.so(2), torch.eye(2)[None]


@pytest.mark.parametrize(
    ("then", "now", "name"),
    [
        ({}, {"mask": torch.tensor([[0, 1], [1, 0]])}, "basis.mask"),
        ({"basis": TURN}, {"basis": SCALING}, "basis.generators"),
        ({"basis": TURN}, {}, "basis.learned"),
        ({"components": -TURN}, {"components": TURN}, "components"),
        (
            {"sampler": LearnableRange(1.0, 1)},
            {"sampler": LearnableRange(1.0, 1, cap=3.0)},
            "reach",
        ),
        (
            {"sampler": Uniform(1.0, warmup_steps=4)},
            {"sampler": Uniform(1.0, warmup_steps=4, warmup_start=0.5)},
            "warmup_start",
        ),
        ({"warmup_steps": 4}, {"warmup_steps": 5}, "grows over 4 steps"),
        ({"range": 1.0000001}, {"range": 1.0000002}, "range"),
    ],
)
def test_a_run_does_not_go_on_with_an_augmenter_that_was_built_otherwise(
    tmp_path: Path, then: dict, now: dict, name: str
) -> None:
    run = new_run(tmp_path / "run")
    options: dict = {"epochs": 1, "progress": False, "run": run, "device": "cpu"}
    # A state that both could take up, so that nothing else stops it.
    common = {"objective": Objective(proximity=0.0)}
    fit(*build(**(common | then)), ring(64), **options)
    with pytest.raises(RunError, match=f"started with other settings .*{name}"):
        fit(*build(**(common | now)), ring(64), resume=True, **options)
    fit(*build(**(common | then)), ring(64), resume=True, **options)


def test_a_direct_sum_does_not_go_on_as_another_one(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    moves, stays = VectorAction(2), InvariantAction()

    def train(parts: list, **options: object) -> None:
        augmenter = LieAugmenter(DirectSumAction(parts), output="invariant", n_views=2)
        given: dict = {"epochs": 1, "progress": False, "run": run, "device": "cpu"} | options
        fit(nn.Linear(4, 1), augmenter, (x, x[:, :1]), **given)

    train([(moves, 2), (stays, 2)])
    with pytest.raises(RunError, match=r"action\.built"):
        train([(stays, 2), (moves, 2)], resume=True)


def test_the_augmenter_that_was_pruned_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """In the same session, with the object at hand."""
    run = new_run(tmp_path / "run")
    model, augmenter = build()

    def prune_and_stop(record: dict) -> None:
        if record["epoch"] == 2:
            raise KeyboardInterrupt
        augmenter.basis.mask[0, 0] = 0.0

    options: dict = {"epochs": 3, "progress": False, "run": run, "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        fit(model, augmenter, ring(64), on_epoch=prune_and_stop, **options)
    assert len(fit(model, augmenter, ring(64), resume=True, **options).records) == 3
    assert augmenter.basis.mask[0, 0] == 0

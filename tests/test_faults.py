"""What survives: kills, full disks, damaged files, other processes, no memory, no numbers."""

from __future__ import annotations

import ast
import errno
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lieaugmenter import LieAugmenter, Objective, SymmetryRegressor, TrainingDiverged, fit
from lieaugmenter.baselines.augerino import Augerino, AugerinoPlus
from lieaugmenter.cli import main
from lieaugmenter.experiments.catalogue import find_experiment
from lieaugmenter.experiments.runner import Settings, run_method
from lieaugmenter.learning.unaugmented import Unaugmented
from lieaugmenter.nets import MLP
from lieaugmenter.runs import (
    RunError,
    RunFolder,
    WriteError,
    read_json,
    read_tensors,
    write_atomically,
    write_json,
    write_tensors,
)

STRESS = Path(__file__).parent.parent / "benchmarks" / "kills.py"
# The runs here are too short for any warm-up.
pytestmark = pytest.mark.filterwarnings("ignore:the range grows over")


def ring(n: int = 128) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
    return x, x.norm(dim=1, keepdim=True)


def train(run: RunFolder | None = None, **options: object) -> tuple[nn.Module, LieAugmenter]:
    torch.manual_seed(0)
    model = options.pop("model", None) or MLP((2,), (1,), hidden=(8,))
    augmenter = LieAugmenter("vector", 2, output="invariant", n_views=3, warmup_steps=2)
    settings: dict = {"epochs": 3, "batch_size": 32, "progress": False, "device": "cpu"}
    fit(model, augmenter, options.pop("data", ring()), run=run, **(settings | options))
    return model, augmenter


def weights(*modules: nn.Module) -> list[Tensor]:
    return [tensor for module in modules for tensor in module.state_dict().values()]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


class StopHereError(Exception):
    pass


def stopping_after(epoch: int) -> Callable[[dict], None]:
    def look(record: dict) -> None:
        if record["epoch"] == epoch:
            raise StopHereError

    return look


def stopped_run(path: Path, after: int = 3) -> RunFolder:
    """A run of three epochs that ended before the checkpoint of the last."""
    run = RunFolder(path)
    with pytest.raises(StopHereError):
        train(run, on_epoch=stopping_after(after))
    return run


# -- kills -----------------------------------------------------------------------------------------


def test_killed_runs_resume_to_the_bit_with_every_file_whole(tmp_path: Path) -> None:
    """A few kills of what `make stress` does a hundred times."""
    out = tmp_path / "kills.json"
    done = subprocess.run(
        [sys.executable, STRESS, "--kills", "3", "--workloads", "0", "--out", out],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads(out.read_text())
    assert content["survived"] == content["kills"] >= 3


def test_metrics_lost_between_two_files_are_written_again(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    train(run)
    complete = run.metrics()
    run.write_metrics(complete[:-1])
    train(run, resume=True)
    assert run.metrics() == complete


def test_long_epoch_is_kept_on_the_way(tmp_path: Path) -> None:
    class Stops(Explodes):
        def forward(self, x: Tensor) -> Tensor:
            if self.training and self.count in self.calls:
                raise StopHereError
            self.count += 1
            return self.inner(x)

    whole, run = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "run")
    expected = train(whole, model=Stops(set()))
    with pytest.raises(StopHereError):
        train(run, model=Stops({6}), save_every=0.0)
    again = Stops(set())
    found = train(run, model=again, resume=True)
    assert again.count == 12 - 6
    assert equal(weights(*expected), weights(*found))
    times = {"seconds": 0}
    assert [r | times for r in run.metrics()] == [r | times for r in whole.metrics()]


def test_checkpoint_that_was_just_being_replaced_is_found_under_its_old_name(
    tmp_path: Path,
) -> None:
    whole = weights(*train())
    run = stopped_run(tmp_path / "run")
    run.checkpoint_path.replace(run.previous_checkpoint_path)
    assert equal(whole, weights(*train(run, resume=True)))


def test_stacked_seeds_that_were_killed_between_two_results_are_trained_together_again(
    tmp_path: Path,
) -> None:
    """Alone, a seed would round otherwise than in its stack."""
    experiment = find_experiment("two-body")
    task, method = experiment.task(None, True), experiment.method("trivial")
    settings = Settings(seeds=(0, 1), quick=True, device="cpu", progress=False)
    run_method(experiment, method, task, tmp_path, settings)
    second = tmp_path / "trivial" / "seed-1"
    before = read_tensors(second / "network.safetensors")[0]
    (second / "result.json").unlink()
    write_json(tmp_path / "trivial" / "begun.json", {"seeds": [0, 1]})
    _, result = run_method(experiment, method, task, tmp_path, settings)
    assert result["stacked"]
    after = read_tensors(second / "network.safetensors")[0]
    assert equal(list(before.values()), list(after.values()))
    assert not (tmp_path / "trivial" / "begun.json").exists()


def test_networks_of_the_teams_are_not_trained_again(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(120, 2))
    options: dict = {"n_generators": "auto", "epochs": 1, "hidden": (8,), "random_state": 0}
    model = SymmetryRegressor(run_directory=tmp_path / "run", device="cpu", **options)
    model.fit(x, np.hypot(*x.T))
    states = sorted((tmp_path / "run" / "teams").rglob("state.safetensors"))
    assert len(states) == 4
    before = [path.stat().st_mtime_ns for path in states]
    (tmp_path / "run" / "verdict.json").unlink()
    again = SymmetryRegressor(run_directory=tmp_path / "run", device="cpu", **options)
    again.fit(x, np.hypot(*x.T), resume=True)
    assert [path.stat().st_mtime_ns for path in states] == before
    assert np.array_equal(again.generators_, model.generators_)
    assert again.verdict_.to_json() == model.verdict_.to_json()


# -- writing ---------------------------------------------------------------------------------------


# A download that grows and is checked, a compiler's output that is named by its digest, and the
# locks of a sweep, whose lines say who was at work.
# predicting.py makes an .npz in memory, which is then written like all others.
OWN_WRITERS = {"cli/predicting.py", "data/store.py", "lie/native.py", "runs.py", "sweeps.py"}


def writes_a_file(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name in ("open", "fdopen"):
        words = [a.value for a in call.args if isinstance(a, ast.Constant)]
        return any(isinstance(w, str) and set(w) & set("wax+") and len(w) < 4 for w in words)
    owner = getattr(getattr(call.func, "value", None), "id", "")
    of_a_library = owner in ("np", "torch") and name.startswith("save")
    return of_a_library or name in ("write_text", "write_bytes", "save_file", "to_csv")


def test_every_file_is_written_by_one_function() -> None:
    package = STRESS.parent.parent / "src" / "lieaugmenter"
    found = set()
    for path in package.rglob("*.py"):
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        if any(writes_a_file(call) for call in calls):
            found.add(str(path.relative_to(package)))
    assert found <= OWN_WRITERS
    assert "runs.py" in found  # or the search finds nothing at all


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KB, if this process may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip("mounting is not allowed")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_full_disk_gives_one_message_and_leaves_what_was_there(small_disk: Path) -> None:
    path = small_disk / "numbers.safetensors"
    write_tensors(path, {"a": torch.arange(10)})
    with pytest.raises(WriteError, match=r"No space left on device\. Make room on that disk"):
        write_tensors(path, {"a": torch.zeros(100_000)})
    assert torch.equal(read_tensors(path)[0]["a"], torch.arange(10))
    assert [p.name for p in small_disk.iterdir()] == [path.name]


def test_training_on_a_disk_that_fills_up_goes_on_when_there_is_room(small_disk: Path) -> None:
    whole = weights(*train())
    run = RunFolder(small_disk / "run")
    filler = small_disk / "filler"

    def fill(record: dict) -> None:
        if record["epoch"] == 2:
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(b"0" * 4096)

    with pytest.raises(WriteError, match="Make room on that disk"):
        train(run, on_epoch=fill)
    filler.unlink(missing_ok=True)
    assert len(run.metrics()) == 1
    assert equal(whole, weights(*train(run, resume=True)))


def test_limit_on_the_size_of_files_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "numbers.safetensors"
    write_tensors(path, {"a": torch.arange(10)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(WriteError, match="File too large"):
            write_tensors(path, {"a": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert torch.equal(read_tensors(path)[0]["a"], torch.arange(10))
    assert list(tmp_path.iterdir()) == [path]


def test_read_only_folder_gives_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a refusal of the system's own call, because permissions do not bind root."""
    run = RunFolder(tmp_path / "run")
    train(run)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}

    def refused(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr("io.open", refused)
    message = r"Read-only file system\. Choose a folder that can be written to"
    with pytest.raises(WriteError, match=message):
        write_atomically(run.path / "metrics.jsonl", "new")
    with pytest.raises(WriteError, match=message), run.alone():
        pass
    monkeypatch.undo()
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


@pytest.mark.skipif(os.getuid() == 0, reason="permissions do not bind root")
def test_folder_without_permission_gives_one_message(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(WriteError, match="Choose a folder that you may write to"):
            train(RunFolder(tmp_path / "run"))
    finally:
        tmp_path.chmod(0o700)


def test_traces_of_a_killed_writer_are_cleared_and_never_in_the_way(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    (run.path / ".config.json.x1.tmp").write_bytes(b"ha")
    (run.path / ".lock").write_bytes(b"process 1")
    (run.path / "command.json").write_text("{}")
    RunFolder.create(run.path, {})
    (run.path / "checkpoint").mkdir()
    (run.path / "checkpoint" / ".state.safetensors.x2.tmp").write_bytes(b"half")
    with run.alone():
        pass
    assert not list(run.path.rglob(".*"))


# -- two processes ---------------------------------------------------------------------------------

_HOLDER = """
import sys, time
from pathlib import Path
import lieaugmenter
from lieaugmenter.runs import RunFolder
with RunFolder(sys.argv[1]).alone():
    print("held", flush=True)
    time.sleep(600)
"""


def test_second_process_is_refused_and_a_dead_one_does_not_block(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, run.path], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(RunError, match=f"is in use by process {holder.pid} on .* wait for it"):
        train(run)
    assert not run.checkpoint_path.exists()
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert (run.path / ".lock").exists()
    train(run)
    assert not (run.path / ".lock").exists()


def test_second_thread_is_refused_and_the_same_may_ask_again(tmp_path: Path) -> None:
    run, refused = RunFolder(tmp_path / "run"), []

    def intrude() -> None:
        try:
            with RunFolder(run.path).alone():
                pass
        except RunError as error:
            refused.append(str(error))

    with run.alone(), RunFolder(run.path).alone():
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
    assert len(refused) == 1
    assert "another thread" in refused[0]
    intrude()
    assert len(refused) == 1


def test_second_command_on_a_folder_does_not_touch_the_first_ones_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    np.savez(tmp_path / "ring.npz", X=x, y=np.hypot(*x.T))
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    (run.path / "command.json").write_text("of the first")
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, run.path], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        with pytest.raises(SystemExit) as stop:
            main(["discover", str(tmp_path / "ring.npz"), "-o", str(run.path)])
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert stop.value.code == 2
    assert "is in use by process" in capsys.readouterr().err
    assert (run.path / "command.json").read_text() == "of the first"


# -- what is resumed -------------------------------------------------------------------------------


def flip_a_bit(path: Path) -> None:
    """In the middle of the numbers, where only a checksum can tell."""
    content = bytearray(path.read_bytes())
    content[-len(content) // 4] ^= 1
    path.write_bytes(bytes(content))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize("damage", [flip_a_bit, cut])
def test_damaged_checkpoint_is_told_and_the_one_before_it_gives_the_same_result(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    whole = weights(*train())
    run = stopped_run(tmp_path / "run")
    damage(run.checkpoint_path)
    with pytest.warns(UserWarning, match=r"state\.safetensors is damaged.* goes on from the"):
        resumed = train(run, resume=True)
    assert equal(whole, weights(*resumed))


def test_two_damaged_checkpoints_stop_the_run_and_say_what_to_do(tmp_path: Path) -> None:
    run = stopped_run(tmp_path / "run")
    flip_a_bit(run.checkpoint_path)
    flip_a_bit(run.previous_checkpoint_path)
    with pytest.raises(RunError, match=r"There is no other checkpoint: remove .*checkpoint"):
        train(run, resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 4}, "epochs: 3 then, 4 now"),
        ({"lr": 2e-3}, "lr: 0.001 then, 0.002 now"),
        ({"seed": 1}, "seed: 0 then, 1 now"),
        ({"data": ring(160)}, "samples: 128 then, 160 now; data: '.*' then, '.*' now"),
        ({"data": (ring()[0] + 1, ring()[1])}, "data: '.*' then, '.*' now"),
    ],
)
def test_resume_with_something_else_lists_both_values(
    tmp_path: Path, changes: dict, message: str
) -> None:
    run = stopped_run(tmp_path / "run")
    before = run.checkpoint_path.read_bytes()
    with pytest.raises(RunError, match=f"other settings .*{message}"):
        train(run, resume=True, **changes)
    assert run.checkpoint_path.read_bytes() == before


def test_resume_with_another_objective_or_version_lists_both_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stopped_run(tmp_path / "run")
    other = LieAugmenter(
        "vector", 2, output="invariant", n_views=4, warmup_steps=2, objective=Objective(2.0)
    )
    expected = "n_views: 3 then, 4 now; objective.prediction: 1.0 then, 2.0 now"
    with pytest.raises(RunError, match=expected):
        fit(
            MLP((2,), (1,), hidden=(8,)), other, ring(), epochs=3, batch_size=32, run=run,
            resume=True, progress=False, device="cpu",
        )  # fmt: skip
    monkeypatch.setattr("lieaugmenter.__version__", "99.0")
    with pytest.raises(RunError, match=r"lieaugmenter: '\S+' then, '99\.0' now"):
        train(run, resume=True)


def test_estimator_of_another_version_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = SymmetryRegressor(
        epochs=1, hidden=(8,), run_directory=tmp_path / "run", device="cpu", random_state=0
    ).fit(x, np.hypot(*x.T))
    monkeypatch.setattr("lieaugmenter.__version__", "99.0")
    with pytest.raises(RunError, match=r"lieaugmenter: '\S+' then, '99\.0' now"):
        model.fit(x, np.hypot(*x.T), resume=True)


def test_training_that_was_begun_is_not_begun_again(tmp_path: Path) -> None:
    run = stopped_run(tmp_path / "run")
    with pytest.raises(RunError, match="never overwritten; continue it with resume=True"):
        train(run)


def test_run_killed_before_it_began_to_learn_is_started_by_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    np.savez(tmp_path / "ring.npz", X=x, y=np.hypot(*x.T))
    words = ["--epochs", "1", "--views", "2", "--generators", "1", "--device", "cpu", "--json"]
    outputs = []
    for name in ("whole", "killed"):
        if name == "killed":
            request = read_json(tmp_path / "whole" / "command.json")
            write_json(tmp_path / "killed" / "command.json", request)
            command = ["resume", str(tmp_path / "killed"), "--json"]
        else:
            command = ["discover", str(tmp_path / "ring.npz"), "-o", str(tmp_path / name), *words]
        with pytest.raises(SystemExit) as stop:
            main(command)
        assert not stop.value.code
        outputs.append(json.loads(capsys.readouterr().out)["generators"])
    assert outputs[0] == outputs[1]


# -- memory ----------------------------------------------------------------------------------------


def gradients(augmenter: LieAugmenter | Unaugmented, model: nn.Module) -> list[Tensor]:
    parameters = [*model.parameters(), *augmenter.parameters()]
    return [p.grad for p in parameters if p.grad is not None]


EVERY_TERM = Objective(
    prediction=1.0, equivariance=2.0, similarity=0.5, sparsity=0.1, alignment=0.7, proximity=0.3
)


@pytest.mark.parametrize(
    "options",
    [
        {"n_generators": 2, "objective": EVERY_TERM},
        {"n_generators": 1, "objective": Objective(similarity=1.0, proximity=0.0)},
        {"sampler": "learnable"},
        {"sampler": "normal", "components": torch.diag(torch.tensor([1.0, -1.0]))[None]},
        {"output": "same", "n_factors": 2, "n_generators": 2},
    ],
)
def test_chunks_have_the_loss_and_the_gradients_of_the_whole_batch(options: dict) -> None:
    settings = {"output": "invariant", "n_views": 3, "warmup_steps": 0} | options
    x, y = ring(17)
    x = x.double()
    y = x.flip(1) if settings["output"] == "same" else y.double()
    found = []
    for size in (None, 5):
        torch.manual_seed(0)
        augmenter = LieAugmenter("vector", 2, **settings).double()
        model = MLP((2,), tuple(y.shape[1:]), hidden=(8,)).double()
        rng = torch.Generator().manual_seed(1)
        if size is None:
            losses = [augmenter.loss(model, x, y, rng)]
            losses[0].backward()
        else:
            losses = []
            for share in augmenter.loss_in_chunks(model, x, y, size, rng):
                share.backward()
                losses.append(share)
        terms = torch.stack([loss.parts.values_tensor for loss in losses]).sum(0)
        total = torch.stack([loss.detach() for loss in losses]).sum()
        found.append([total, terms, *gradients(augmenter, model), rng.get_state().float()])
    assert len(found[0]) > 4
    for whole, chunked in zip(*found, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=1e-10, atol=1e-12)


def test_dropout_is_not_repeated_from_chunk_to_chunk() -> None:
    masks = []

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            kept = nn.functional.dropout(torch.ones(len(x), 1), 0.5)
            masks.append(kept)
            return kept

    augmenter = LieAugmenter("vector", 2, output="invariant", n_views=3)
    list(augmenter.loss_in_chunks(Spy(), *ring(16), 8))
    assert len(masks) == 2
    assert not torch.equal(*masks)


@pytest.mark.parametrize("alone", [False, True])
def test_training_in_chunks_gives_the_same_result(alone: bool) -> None:
    def result(chunk: int | None) -> list[Tensor]:
        torch.manual_seed(0)
        model = MLP((2,), (1,), hidden=(8,))
        augmenter = None if alone else LieAugmenter("vector", 2, output="invariant", n_views=3)
        fit(
            model, augmenter, ring(100), epochs=3, batch_size=32, chunk=chunk, progress=False,
            device="cpu",
        )  # fmt: skip
        return weights(model, *([] if augmenter is None else [augmenter]))

    for whole, chunked in zip(result(None), result(7), strict=True):
        torch.testing.assert_close(chunked, whole, rtol=1e-4, atol=1e-5)


class Small(nn.Module):
    """A network on a device whose memory holds so many samples and no more."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.inner = MLP((2,), (1,), hidden=(8,))
        self.most = most
        self.largest = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            if len(x) > self.most:
                raise torch.OutOfMemoryError("out of memory")
            self.largest = max(self.largest, len(x))
        return self.inner(x)


def test_out_of_memory_halves_the_chunks_with_the_same_result() -> None:
    expected = weights(*train(model=Small(10_000)))
    small = Small(40)
    # 32 samples with three views each are 128; in chunks of 8 they are 32.
    with pytest.warns(UserWarning, match="out of memory") as told:
        found = weights(*train(model=small))
    assert [str(w.message).split("of ")[-1] for w in told] == ["16 samples", "8 samples"]
    assert small.largest == 32
    for whole, chunked in zip(expected, found, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:out of memory", "ignore:The model has batch norm")
def test_out_of_memory_leaves_no_trace_in_running_statistics() -> None:
    """Neither in those that are changed in place, as by batch norm, nor in those replaced."""

    class Normed(Small):
        seen: Tensor

        def __init__(self, most: int) -> None:
            super().__init__(most)
            self.norm = nn.BatchNorm1d(2)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(x)
            self.seen = self.seen + 1
            return super().forward(x)

    model, batch = Normed(40), ring(32)
    # Chunks of 8 samples, which are 32 with their views; those before did not fit.
    train(model=model, data=batch, epochs=1)
    assert model.largest == 32
    assert int(model.norm.num_batches_tracked) == int(model.seen) == 4
    in_chunks = Normed(10_000)
    train(model=in_chunks, data=batch, epochs=1, chunk=8)
    torch.testing.assert_close(model.norm.running_mean, in_chunks.norm.running_mean)
    torch.testing.assert_close(model.norm.running_var, in_chunks.norm.running_var)


@pytest.mark.filterwarnings("ignore:out of memory")
def test_one_sample_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        train(model=Small(3))


def test_losses_that_are_no_means_are_not_taken_in_chunks() -> None:
    model = MLP((2,), (1,), hidden=(8,))
    augerino = AugerinoPlus("vector", 2, output="invariant")
    with pytest.raises(ValueError, match="AugerinoPlus cannot be taken in chunks"):
        fit(model, augerino, ring(), chunk=4, epochs=1, progress=False, device="cpu")
    with pytest.raises(ValueError, match="Augerino cannot be taken in chunks"):
        fit(
            model, Augerino("affine", 2, output="invariant"), ring(), chunk=4, epochs=1,
            progress=False, device="cpu",
        )  # fmt: skip
    # Without `fit` as well, and even where one chunk would hold them all.
    with pytest.raises(ValueError, match="AugerinoPlus cannot be taken in chunks"):
        next(augerino.loss_in_chunks(model, *ring(8), size=8))
    with pytest.raises(ValueError, match="chunk=0"):
        train(chunk=0)


# -- numbers that are none -------------------------------------------------------------------------


class Explodes(nn.Module):
    """A network whose output, or only whose gradient, is not finite in some of its calls."""

    def __init__(self, calls: set[int], *, silently: bool = False) -> None:
        super().__init__()
        self.inner = MLP((2,), (1,), hidden=(8,))
        self.calls, self.silently, self.count = calls, silently, 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return self.inner(x)
        self.count += 1
        out = self.inner(x)
        if self.count not in self.calls:
            return out
        if self.silently:
            out.register_hook(lambda gradient: gradient * float("nan"))
            return out
        return out * float("inf")


def test_stop_names_the_batch_that_can_be_inspected(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    # Four steps in an epoch: the sixth call is the second step of the second epoch.
    with pytest.raises(TrainingDiverged, match=r"epoch 2, step 2\. The batch is kept in") as stop:
        train(run, model=Explodes({6}))
    (path,) = (run.path / "non-finite").iterdir()
    assert str(path) in str(stop.value)
    tensors, about = read_tensors(path)
    assert (about["epoch"], about["step"]) == (2, 2)
    assert tensors["x.0"].shape == (32, 2)
    torch.testing.assert_close(tensors["x.0"].norm(dim=1, keepdim=True), tensors["y"])
    # The checkpoint before it is whole, and gives the same result as if nothing had happened.
    assert equal(
        weights(train(run, model=Explodes(set()), resume=True)[0].inner),
        weights(train(model=Explodes(set()))[0].inner),
    )


def test_batch_of_a_data_loader_is_kept_as_well(tmp_path: Path) -> None:
    run, seen = RunFolder(tmp_path / "run"), []

    class Watched(Explodes):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x[:32].clone())
            return super().forward(x)

    loader = DataLoader(TensorDataset(*ring()), batch_size=32, shuffle=True)
    with pytest.raises(TrainingDiverged, match="step 3"):
        train(run, model=Watched({3}), data=loader)
    (path,) = (run.path / "non-finite").iterdir()
    assert torch.equal(read_tensors(path)[0]["x.0"], seen[2])


@pytest.mark.parametrize("silently", [False, True])
def test_skip_leaves_out_the_step_and_nothing_else(tmp_path: Path, silently: bool) -> None:
    run = RunFolder(tmp_path / "run")
    model, augmenter = train(run, model=Explodes({2, 7}, silently=silently), on_non_finite="skip")
    assert all(bool(tensor.isfinite().all()) for tensor in weights(model, augmenter))
    assert [record.get("skipped", 0) for record in run.metrics()] == [1, 1, 0]
    assert all(np.isfinite(record["prediction"]) for record in run.metrics())
    kept = sorted(path.name for path in (run.path / "non-finite").iterdir())
    assert kept == ["epoch-1-step-2.safetensors", "epoch-2-step-3.safetensors"]


@pytest.mark.filterwarnings("ignore:.*batch norm")
def test_running_statistics_know_nothing_of_a_skipped_batch() -> None:
    class Normed(Explodes):
        def __init__(self) -> None:
            super().__init__({2})
            self.norm = nn.BatchNorm1d(1)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(super().forward(x))

    model = Normed()
    train(model=model, on_non_finite="skip")
    norm = model.norm
    assert norm.running_mean is not None
    assert norm.running_mean.isfinite().all()
    # Three epochs of four steps, one of which was skipped.
    assert norm.num_batches_tracked == 11


def test_skip_stops_when_nothing_else_is_left_to_do() -> None:
    with pytest.raises(TrainingDiverged, match="10 steps in a row"):
        train(model=Explodes(set(range(2, 100))), on_non_finite="skip", epochs=9)


@pytest.mark.parametrize("known", [True, False], ids=["checkpoint", "older checkpoint"])
def test_a_resumed_run_stops_after_as_many_skipped_steps_as_a_whole_one(
    tmp_path: Path, known: bool
) -> None:
    class Killed(Explodes):
        def forward(self, x: Tensor) -> Tensor:
            if self.training and self.count == 7:
                raise StopHereError
            return super().forward(x)

    options: dict = {"on_non_finite": "skip", "epochs": 9, "save_every": 0.0}
    run, bad = RunFolder(tmp_path / "run"), set(range(2, 100))
    with pytest.raises(StopHereError):
        train(run, model=Killed(bad), **options)
    if not known:
        tensors, metadata = read_tensors(run.checkpoint_path)
        del metadata["progress"]["skipped_in_a_row"]
        write_tensors(run.checkpoint_path, tensors, metadata)
    # Four steps in an epoch: the 11th of all is the tenth that is skipped. One was taken and six
    # were skipped before the kill, of which an older version does not know.
    where = "epoch 3, step 3" if known else "epoch 5, step 1"
    with pytest.raises(TrainingDiverged, match=f"10 steps in a row became .* in {where}"):
        train(run, model=Explodes(bad | {1}), resume=True, **options)


def test_unknown_policy_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown on_non_finite 'pray'; choose from skip, stop"):
        train(on_non_finite="pray")

"""Two processes train to what one of them would alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from distributed_cases import CASES, STEPS
from safetensors.torch import load_file
from torch import Tensor

from lieaugmenter.runs import RunFolder

HERE = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
# Gloo, by the loopback alone: a machine without a network has no address of its own.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
VIEWS = 3


def run(command: list[str], folder: Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, **options
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All cases by one process, and by two."""
    script = str(HERE / "distributed_cases.py")
    folders = {}
    for name, launcher in (("one", [sys.executable]), ("two", TORCHRUN)):
        folder = tmp_path_factory.mktemp(name)
        with RunFolder(folder / "in-use").alone():
            done = run([*launcher, script, str(folder)], folder)
        assert done.returncode == 0, done.stderr
        (folder / "stderr").write_text(done.stderr)
        folders[name] = folder
    return folders


def weights(path: Path) -> dict[str, Tensor]:
    return {k: v.double() for k, v in load_file(path).items() if k.startswith("weight.")}


def listed(path: Path, kind: str) -> list[Tensor]:
    tensors = load_file(path)
    return [tensors[key] for key in sorted(tensors) if key.startswith(f"{kind}.")]


def apart(joined: Tensor) -> tuple[Tensor, Tensor]:
    """Originals and views of what a network was shown."""
    n = len(joined) // (VIEWS + 1)
    return joined[:n], joined[n:].unflatten(0, (n, VIEWS))


@pytest.mark.parametrize("case", [name for name in CASES if "dropout" not in name])
def test_two_processes_end_where_one_does(trained: dict[str, Path], case: str) -> None:
    """With chunks, steps left out and an interruption as well."""
    assert STEPS >= 20
    bound = 1e-6 if "single" in case else 1e-12
    one = weights(trained["one"] / f"{case}-0.safetensors")
    two = weights(trained["two"] / f"{case}-0.safetensors")
    for name, value in one.items():
        assert float((value - two[name]).abs().max()) < bound, name


@pytest.mark.parametrize("case", CASES)
def test_all_processes_have_the_same_weights_to_the_bit(
    trained: dict[str, Path], case: str
) -> None:
    first, second = (
        load_file(trained["two"] / f"{case}-{number}.safetensors") for number in (0, 1)
    )
    for name in first:
        if name.startswith("weight."):
            assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("case", ["by-hand", "general", "classes"])
def test_processes_draw_different_elements_which_together_are_those_of_one(
    trained: dict[str, Path], case: str
) -> None:
    """In every step, the last and uneven one of an epoch included."""
    one = [apart(shown) for shown in listed(trained["one"] / f"{case}-0.safetensors", "shown")]
    first, second = (
        [apart(s) for s in listed(trained["two"] / f"{case}-{number}.safetensors", "shown")]
        for number in (0, 1)
    )
    assert len(one) == len(first) == len(second) == STEPS
    for whole, a, b in zip(one, first, second, strict=True):
        assert torch.equal(whole[0], torch.cat([a[0], b[0]]))
        assert torch.allclose(whole[1], torch.cat([a[1], b[1]]), rtol=0, atol=1e-10)
        # How far each view is from its original, which the element decides alone.
        n = min(len(a[0]), len(b[0]))
        moved = [
            (views - x.unsqueeze(1)).norm(dim=-1) / x.norm(dim=-1, keepdim=True)
            for x, views in (a, b)
        ]
        assert not torch.isclose(moved[0][:n], moved[1][:n], atol=1e-4).all(1).any()


def test_dropout_differs_between_processes_and_leaves_the_elements_alone(
    trained: dict[str, Path],
) -> None:
    first, second = (
        listed(trained["two"] / f"dropout-{number}.safetensors", "mask") for number in (0, 1)
    )
    for a, b in zip(first, second, strict=True):
        n = min(len(a), len(b))
        # A half of the units is dropped: two masks agree in a half.
        assert 0.4 < float((a[:n] == b[:n]).float().mean()) < 0.6
    # A process takes its 15 rows in chunks of 8 and 7, which have different masks as well.
    first, second = (
        mask[:7] for mask in listed(trained["two"] / "dropout-0.safetensors", "mask")[:2]
    )
    assert not torch.equal(first, second)
    one = listed(trained["two"] / "general-0.safetensors", "shown")
    assert {len(shown) for shown in one} == {15 * (VIEWS + 1), 3 * (VIEWS + 1)}


def test_dropout_differs_from_step_to_step_where_no_elements_are_drawn(
    trained: dict[str, Path],
) -> None:
    masks = listed(trained["two"] / "dropout-alone-0.safetensors", "mask")
    assert len(masks) == STEPS
    full = [mask for mask in masks if len(mask) == len(masks[0])]
    for before, after in pairwise(full):
        assert 0.3 < float((before == after).float().mean()) < 0.7


def test_dropout_of_a_resumed_run_is_that_of_an_uninterrupted_one(trained: dict[str, Path]) -> None:
    whole, resumed = (
        weights(trained["two"] / f"{case}-0.safetensors")
        for case in ("dropout-alone", "dropout-alone-resumed")
    )
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name


def test_only_the_first_process_writes_and_shows_progress(trained: dict[str, Path]) -> None:
    shown = (trained["two"] / "stderr").read_text()
    assert shown.count("plain") == (trained["one"] / "stderr").read_text().count("plain") > 0
    records = [
        [json.loads(line) for line in (path / "general" / "metrics.jsonl").read_text().splitlines()]
        for path in trained.values()
    ]
    for one, two in zip(*records, strict=True):
        for name in ("prediction", "equivariance", "sparsity"):
            assert np.isclose(one[name], two[name], rtol=1e-5)


def test_a_process_that_fails_ends_all_with_its_message(tmp_path: Path) -> None:
    script = str(HERE / "distributed_cases.py")
    started = time.monotonic()
    done = run([*TORCHRUN, script, str(tmp_path), "fail"], tmp_path, timeout=150)
    assert done.returncode != 0
    assert "process 2 has had enough" in done.stderr
    assert time.monotonic() - started < 120


def test_processes_leave_out_the_same_steps(trained: dict[str, Path]) -> None:
    """Of the sample without a finite answer, which only one of two processes has seen."""
    for folder in trained.values():
        records = RunFolder(folder / "skip").metrics()
        assert [record.get("skipped") for record in records] == [1] * len(records)
        assert len(list((folder / "skip" / "non-finite").iterdir())) == len(records)


def test_folder_in_use_refuses_every_process_alike(trained: dict[str, Path]) -> None:
    said = [(trained["two"] / f"in-use-{number}.txt").read_text() for number in (0, 1)]
    assert said[0] == said[1]
    assert f"in use by process {os.getpid()} on" in said[0]


def test_loss_that_is_no_mean_over_samples_is_not_shared(trained: dict[str, Path]) -> None:
    for number in (0, 1):
        said = (trained["two"] / f"no-mean-{number}.txt").read_text()
        assert "AugerinoPlus is no mean over samples" in said
    assert not list(trained["one"].glob("no-mean-*"))


def test_labels_that_do_not_count_are_not_shared(trained: dict[str, Path]) -> None:
    for number in (0, 1):
        assert "labels of -100" in (trained["two"] / f"no-label-{number}.txt").read_text()
    assert not list(trained["one"].glob("no-label-*"))


def test_discover_by_two_processes_is_one_run(trained: dict[str, Path]) -> None:
    one, two = (
        json.loads((folder / "discovered-0.json").read_text()) for folder in trained.values()
    )
    assert (trained["two"] / "discovered-1.json").read_text() == ""
    assert np.allclose(one["generators"], two["generators"], atol=1e-5)
    files = [{p.name for p in (f / "discovered").iterdir()} for f in trained.values()]
    assert files[0] == files[1]


def test_command_that_is_refused_ends_all_processes_with_one_reason(tmp_path: Path) -> None:
    np.savez(tmp_path / "ring.npz", X=np.eye(40, 2), y=np.arange(40.0))
    words = ["discover", "ring.npz", "--generators", "1", "--out", "taken"]
    with RunFolder(tmp_path / "taken").alone():
        done = run([*TORCHRUN, "-m", "lieaugmenter", *words], tmp_path, timeout=150)
    assert done.returncode != 0
    assert "is in use by process" in done.stderr
    assert list((tmp_path / "taken").iterdir()) == []

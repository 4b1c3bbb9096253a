"""Many runs side by side: what is one job, and what becomes of results that are there already."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lieaugmenter.experiments.catalogue import EXPERIMENTS
from lieaugmenter.experiments.results import merged, read_results, write_results
from lieaugmenter.runs import RunError, RunFolder, read_json, write_json

sys.path.insert(0, str(Path(__file__).parents[1]))
try:
    from benchmarks import reproduce_all
finally:
    sys.path.pop(0)

TOY = EXPERIMENTS["pair-mass"]
RESULTS = Path(__file__).parents[1] / "results"
SETTINGS: dict[str, Any] = {
    "quick": False, "epochs": 20, "batch_size": 128, "lr": 1e-3, "hidden": [128, 128, 128],
    "n_views": 4, "range": 0.3, "source": "generated",
}  # fmt: skip


def content(*runs: tuple[str, int, float], **settings: Any) -> dict[str, Any]:
    results = [{"method": method, "seed": seed, "mse": mse} for method, seed, mse in runs]
    settings = {**SETTINGS, **settings}
    return {"experiment": TOY.name, "settings": settings, "results": results}


def test_a_stack_is_one_job_and_seeds_by_themselves_are_one_each() -> None:
    stacked = reproduce_all.jobs(["two-body"], ["trivial"], 3)
    assert [job.seeds for job in stacked] == [(0, 1, 2)]
    alone = reproduce_all.jobs(["pair-mass"], ["trivial"], 3)
    assert [job.seeds for job in alone] == [(0,), (1,), (2,)]
    folders = {job.folder(Path("out")) for job in alone}
    assert len(folders) == 3  # a folder belongs to one process at a time


def test_an_experiment_has_as_many_seeds_as_it_says() -> None:
    assert len(reproduce_all.jobs(["qm9-homo"], ["trivial"], None)) == 1
    assert len(reproduce_all.jobs(["pair-mass"], ["trivial"], None)) == TOY.n_seeds > 1


def called(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(reproduce_all.__file__)), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_nothing_is_trained_for_a_file_of_other_settings(tmp_path: Path) -> None:
    write_json(tmp_path / "pair-mass.json", content(("trivial", 0, 1.0), epochs=40))
    out = tmp_path / "runs"
    done = called("pair-mass", "--out", str(out), "--results", str(tmp_path))
    assert done.returncode == 1
    assert "epochs: 40 then, 20 now" in done.stderr
    assert not out.exists()


def test_exit_codes_tell_what_is_left_and_what_failed(tmp_path: Path) -> None:
    words = (
        "pair-mass", "--methods", "trivial", "--seeds", "1", "--epochs", "1", "--quick",
        "--device", "cpu", "--out", str(tmp_path / "runs"), "--results", str(tmp_path),
    )  # fmt: skip
    assert called(*words, "--limit", "0").returncode == 4
    assert called(*words).returncode == 0
    assert len(read_results(tmp_path / "pair-mass.json")["results"]) == 1
    assert reproduce_all._exit_code(["3 s", "failed\nTraceback"], 2) == 1


def test_the_longest_jobs_come_first() -> None:
    found = reproduce_all.jobs(["rotated-mnist"], None, 1)
    assert found[0].method == "liegan"
    assert found[-1].method.startswith("trivial")


def test_an_unknown_method_is_answered_with_the_right_ones() -> None:
    with pytest.raises(SystemExit, match=r"no method trivail; choose from .*trivial"):
        reproduce_all.jobs(["pair-mass"], ["trivail"], 1)


def test_results_of_other_methods_and_seeds_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "pair-mass.json"
    write_json(path, content(("gone", 0, 5.0), ("trivial", 0, 1.0), ("lieaugmenter", 0, 3.0)))
    new = content(("lieaugmenter", 0, 2.0), ("trivial", 1, 4.0))
    found = merged(new, TOY, path)
    assert [(r["method"], r["seed"], r["mse"]) for r in found["results"]] == [
        ("trivial", 0, 1.0), ("trivial", 1, 4.0), ("lieaugmenter", 0, 2.0), ("gone", 0, 5.0)
    ]  # fmt: skip


def test_how_far_a_stopped_training_came_is_kept_until_it_is_finished(tmp_path: Path) -> None:
    path, runs = tmp_path / "pair-mass.json", tmp_path / "runs" / "pair-mass"
    out = tmp_path / "runs"
    words = (
        "pair-mass", "--methods", "trivial", "--seeds", "1", "--epochs", "2", "--quick",
        "--device", "cpu", "--out", str(out), "--results", str(tmp_path),
    )  # fmt: skip
    assert called(*words).returncode == 0
    records = [{"test": 3.0, "seconds": 1.0}, {"test": 2.0, "seconds": 1.0}]
    for method, epochs in (("oracle", records), ("lieaugmenter", [{"seconds": 1.0}])):
        folder = out / "seeds" / "0" / "pair-mass" / method / "seed-0" / "training"
        folder.mkdir(parents=True)
        RunFolder(folder).write_metrics(epochs)
    reproduce_all._gather(out)
    experiment = replace(TOY, quick_epochs=2)
    left = write_results(experiment, runs, path)["unfinished"]
    # Of the one whose test error is not followed there is nothing to show.
    assert left == [
        {
            "method": "oracle", "seed": 0, "epochs": 2, "of": 2,
            "test-curve": [3.0, 2.0], "curve-seconds": [1.0, 2.0],
        }
    ]  # fmt: skip
    assert read_results(path)["unfinished"] == left
    finished = {**read_json(runs / "trivial" / "seed-0" / "result.json"), "method": "oracle"}
    shutil.copytree(runs / "trivial" / "seed-0", runs / "oracle" / "seed-0", dirs_exist_ok=True)
    write_json(runs / "oracle" / "seed-0" / "result.json", finished)
    write_results(experiment, runs, path)
    assert "unfinished" not in read_results(path)
    assert len(read_results(path)["results"]) == 2


def test_results_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "pair-mass.json"
    write_json(path, content(("trivial", 0, 1.0), epochs=40))
    with pytest.raises(RunError, match="epochs: 40 then, 20 now"):
        merged(content(("trivial", 1, 4.0)), TOY, path)


def test_a_method_with_epochs_of_its_own_is_added(tmp_path: Path) -> None:
    """L-GATr has fewer than the others, which is no other setting of the experiment."""
    path, experiment = tmp_path / "amplitudes.json", EXPERIMENTS["amplitudes"]
    sizes = {"epochs": experiment.epochs, "batch_size": 256, "hidden": [128, 8], "n_views": 3}
    write_json(path, content(("trivial", 0, 1.0), **sizes) | {"experiment": "amplitudes"})
    new = content(("lgatr", 0, 0.5), **{**sizes, "epochs": experiment.epochs_of["lgatr"]})
    found = merged(new, experiment, path)
    assert [run["method"] for run in found["results"]] == ["trivial", "lgatr"]
    assert found["settings"]["epochs"] == experiment.epochs


def test_data_from_another_file_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "pair-mass.json"
    write_json(path, content(("trivial", 0, 1.0)))
    with pytest.raises(RunError, match=r"source: 'generated' then, 'other\.npz' now"):
        merged(content(("trivial", 1, 4.0), source="other.npz"), TOY, path)
    write_json(path, content(("trivial", 0, 1.0), source="other.npz"))
    both = merged(content(("trivial", 1, 4.0), source="other.npz"), TOY, path)
    assert len(both["results"]) == 2


def test_quick_runs_are_added_to_quick_ones_only(tmp_path: Path) -> None:
    path, quick = tmp_path / "pair-mass.json", content(("trivial", 0, 1.0), quick=True)
    write_json(path, merged(quick, TOY, path))
    again = content(("trivial", 1, 4.0), quick=True)
    assert len(merged(again, TOY, path)["results"]) == 2
    with pytest.raises(RunError, match="quick"):
        merged(content(("trivial", 1, 4.0)), TOY, path)


def test_nothing_is_begun_after_the_limit_and_the_same_call_continues(tmp_path: Path) -> None:
    (job,) = reproduce_all.jobs(["pair-mass"], ["trivial"], 1)
    arguments = argparse.Namespace(
        epochs=1, data=None, quick=True, device="cpu", out=tmp_path / "runs", workers=3
    )
    assert reproduce_all.run(job, arguments, time.time() - 1) == "not begun"
    assert not (tmp_path / "runs").exists()
    assert reproduce_all.run(job, arguments, time.time() + 0.01) == "stopped at the limit"
    assert reproduce_all.run(job, arguments, time.time() + 600).endswith(" s")
    kept = job.kept(tmp_path / "runs", 0)
    kept.mkdir(parents=True)  # as a kill in the middle of gathering would leave it
    reproduce_all._gather(tmp_path / "runs")
    assert (kept / "result.json").exists()
    assert (kept / "network.safetensors").exists()
    assert read_json(kept / "environment.json")["workers"] == 3
    assert reproduce_all.run(job, arguments, time.time() + 600) == "was finished"


def test_experiments_on_published_data_name_them() -> None:
    named = {name: experiment.data for name, experiment in EXPERIMENTS.items()}
    assert named["rotated-mnist-ablations"] == "mnist"
    assert named["histology-vit"] == "colorectal5_64px_all.npz"
    assert named["qm9-homo"] == "qm9"
    assert named["amplitudes"] == "generated"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_published_results_are_of_the_present_settings(path: Path) -> None:
    published = read_results(path)
    found = merged({"settings": published["settings"], "results": []}, EXPERIMENTS[path.stem], path)
    assert len(found["results"]) == len(published["results"])

"""Every experiment runs end to end in its quick form, and keeps what it measured."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lieaugmenter.data.images import digits
from lieaugmenter.experiments.catalogue import EXPERIMENTS, IMAGES, VECTORS, find_experiment
from lieaugmenter.experiments.measuring import LOSSES
from lieaugmenter.experiments.results import collect, statistic, summary
from lieaugmenter.experiments.runner import Settings, run_method
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.experiments.targets import TARGETS
from lieaugmenter.experiments.training import train
from lieaugmenter.experiments.vectors import MASKS
from lieaugmenter.runs import RunError, RunFolder

QUICK = Settings(seeds=(0, 1), quick=True, device="cpu", progress=False)


def one_of_each_setting(experiment: Experiment) -> list[Method]:
    """All methods; of an ablation, the first value of each setting with own settings."""
    found: dict[str, Method] = {}
    for method in experiment.methods:
        setting = method.setting
        if setting is None or setting[0] == "data":
            found.setdefault(method.kind, method)
        elif method.ours:
            found.setdefault(setting[0], method)
    return list(found.values()) if experiment.methods[0].setting else list(experiment.methods)


@pytest.mark.skipif(
    "LIEAUGMENTER_DATA" not in os.environ,
    reason="set LIEAUGMENTER_DATA to a folder with mnist/*.gz and crc/",
)
@pytest.mark.parametrize("name", IMAGES)
def test_every_method_on_images_runs(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    task = experiment.task(None, True)
    for method in one_of_each_setting(experiment):
        alone = replace(QUICK, seeds=(0,))
        (result,) = run_method(experiment, method, task, tmp_path, alone)
        if "diverged" in result:
            assert method.kind in ("augerino", "liegan")
            continue
        assert 0 <= result["accuracy"] <= 100
        assert sum(map(sum, result["confusion"])) == len(task.x_test)
        assert "equivariance" in result
        finder = method.kind in ("augerino", "liegan", "lieaugmenter", "lieaugmenter-paper")
        assert ("cosine" in result or "span-cosine" in result) == finder
        assert ("losses" in result) == experiment.losses


@pytest.mark.parametrize("name", VECTORS)
def test_every_method_of_an_experiment_runs(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    task = experiment.task(None, True)
    results = []
    for method in experiment.methods:
        results += run_method(experiment, method, task, tmp_path, QUICK)
    assert len(results) == 2 * len(experiment.methods)
    for result in results:
        kind = experiment.method(result["method"]).kind
        if "diverged" in result:
            assert kind in ("augerino", "liegan")
            continue
        assert ("mse" in result) == (kind != "liegg")
        assert ("cosine" in result) == (
            task.generator is not None
            and kind in ("augerino", "liegan", "liegg", "lieaugmenter", "lieaugmenter-paper")
        )
    collected = collect(experiment, tmp_path)
    assert len(collected["results"]) == len(results)
    assert collected["settings"]["quick"] is True
    lines = summary(experiment, results)
    assert len(lines) == 1 + len(experiment.methods)


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    experiment = find_experiment("two-body")
    task, method = experiment.task(None, True), Method("trivial")
    first = run_method(experiment, method, task, tmp_path, QUICK)
    path = tmp_path / "trivial" / "seed-1" / "result.json"
    kept = path.stat().st_mtime_ns
    more = replace(QUICK, seeds=(0, 1, 2))
    again = run_method(experiment, method, task, tmp_path, more)
    assert again[:2] == first
    assert path.stat().st_mtime_ns == kept
    assert again[2]["seed"] == 2


def test_results_of_other_settings_are_not_taken_over(tmp_path: Path) -> None:
    experiment = find_experiment("two-body")
    task, method = experiment.task(None, True), Method("trivial")
    run_method(experiment, method, task, tmp_path, QUICK)
    longer = replace(experiment, quick_epochs=experiment.quick_epochs + 1)
    with pytest.raises(RunError, match="other settings"):
        run_method(longer, method, task, tmp_path, QUICK)


def test_stacked_and_single_training_give_the_same_numbers(tmp_path: Path) -> None:
    experiment = find_experiment("two-body")
    task, method = experiment.task(None, True), Method("lieaugmenter", "mask2")
    stacked = run_method(experiment, method, task, tmp_path / "a", QUICK)
    alone = run_method(experiment, method, task, tmp_path / "b", replace(QUICK, stacked=False))
    for mine, theirs in zip(stacked, alone, strict=True):
        assert mine["mse"] == pytest.approx(theirs["mse"], rel=1e-2)
        assert mine["cosine"] == pytest.approx(theirs["cosine"], abs=1e-3)


def test_a_run_folder_says_how_it_was_made(tmp_path: Path) -> None:
    experiment = find_experiment("two-body-3")
    method = Method("lieaugmenter", "mask4")
    run_method(experiment, method, experiment.task(None, True), tmp_path, QUICK)
    folder = tmp_path / "lieaugmenter-mask4" / "seed-0"
    found = {path.name for path in folder.iterdir()}
    assert found == {
        "config.json", "environment.json", "metrics.jsonl", "basis.safetensors",
        "network.safetensors", "result.json",
    }  # fmt: skip
    config = json.loads((folder / "config.json").read_text())
    assert config["objective"]["similarity"] == 3.0
    assert config["source"] == "generated"
    assert json.loads((folder / "environment.json").read_text())["precision"] == "float32"


def test_a_cpu_takes_the_precision_that_is_asked_for(tmp_path: Path) -> None:
    experiment = find_experiment("two-body")
    half = replace(QUICK, seeds=(0,), precision="bf16")
    run_method(experiment, Method("trivial"), experiment.task(None, True), tmp_path, half)
    folder = tmp_path / "trivial" / "seed-0"
    assert json.loads((folder / "environment.json").read_text())["precision"] == "bf16"
    assert json.loads((folder / "config.json").read_text())["precision"] == "bf16"


def test_losses_end_with_the_generators_that_are_measured(tmp_path: Path) -> None:
    experiment = find_experiment("rotated-mnist-losses")
    task = digits(100, 50)
    for method in experiment.methods:
        alone = replace(QUICK, seeds=(0,))
        (result,) = run_method(experiment, method, task, tmp_path, alone)
        losses = result["losses"]
        # One generator has nothing to be aligned with.
        assert set(losses) == set(LOSSES) - {"alignment"}
        assert {len(column) for column in losses.values()} == {experiment.quick_epochs}
        assert losses["cosine"][-1] == pytest.approx(result["cosine"], abs=1e-5)


def test_every_row_of_the_paper_has_a_method() -> None:
    for name, row, _ in TARGETS:
        experiment = EXPERIMENTS[name]
        rows = {method.row for method in experiment.methods}
        # Runs of the experiment that an ablation varies stand for these.
        rows |= {f"lieaugmenter-{key}-{value:g}" for key, value in experiment.unchanged.items()}
        assert row in rows, (name, row)


def test_masks_are_those_of_the_paper() -> None:
    assert [int(MASKS[name].sum()) for name in ("mask2", "mask4", "mask0")] == [16, 32, 64]
    positions = torch.tensor([1, 1, 0, 0, 1, 1, 0, 0.0])
    assert torch.equal(MASKS["mask4"] @ positions, 4 * positions)


def test_statistics_are_over_seeds_and_of_the_population() -> None:
    found = statistic([{"mse": 1.0}, {"mse": 3.0}, {"diverged": "…"}], "mse")
    assert found is not None
    assert (found.mean, found.std, found.n) == (2.0, 1.0, 2)
    assert statistic([{"seed": 0}], "mse") is None


def test_unknown_names_are_answered_with_the_right_ones() -> None:
    with pytest.raises(ValueError, match="choose from two-body"):
        find_experiment("three-body")
    with pytest.raises(ValueError, match="has no method"):
        find_experiment("two-body").method("sorcery")
    with pytest.raises(ValueError, match="generates its data"):
        find_experiment("discrete-rotation").task(Path("x.npz"), True)


def test_augmentations_by_a_fixed_basis_have_the_weights_of_their_task(tmp_path: Path) -> None:
    """What a run folder says of the objective is what was trained."""
    experiment = find_experiment("no-symmetry")
    task = experiment.task(None, True)
    alone = replace(QUICK, seeds=(0,))
    for kind in ("oracle-paper", "liegan"):
        folder = RunFolder(tmp_path / kind)
        ((_, trained),) = train(experiment, Method(kind), task, [0], alone, folder)
        assert trained.augmenter is not None
        assert trained.augmenter.objective == experiment.objective.losses_only()


def test_an_ablation_sets_what_its_name_says() -> None:
    experiment = find_experiment("rotated-mnist-ablations")
    as_set = experiment.run_as(Method("lieaugmenter", "range-5"), quick=False)
    assert (as_set.range, as_set.n_views) == (5.0, experiment.n_views)
    as_set = experiment.run_as(Method("lieaugmenter", "sparsity-0.1"), quick=False)
    assert as_set.own_objective == replace(experiment.own_objective, sparsity=0.1)
    assert experiment.run_as(Method("lieaugmenter", "generators-4"), quick=False).n_generators == 4
    assert experiment.run_as(Method("lieaugmenter", "views-32"), quick=True).n_views == 2


def test_few_data_are_trained_on_for_as_many_steps() -> None:
    experiment = find_experiment("rotated-mnist-samples")
    as_set = experiment.run_as(Method("oracle", "data-0.01"), quick=False)
    assert as_set.for_samples(54_000).epochs == experiment.epochs
    assert as_set.for_samples(540).epochs == 167  # of nine steps
    quick = experiment.run_as(Method("oracle", "data-0.01"), quick=True)
    assert quick.for_samples(2).epochs == experiment.quick_epochs


def test_own_settings_are_told_by_a_run_that_has_them(tmp_path: Path) -> None:
    experiment = find_experiment("two-body")
    task = experiment.task(None, True)
    older = replace(experiment, own_lr=0.5)
    run_method(older, Method("trivial-paper"), task, tmp_path, QUICK)
    run_method(experiment, Method("trivial"), task, tmp_path, QUICK)
    assert collect(experiment, tmp_path)["settings"]["own_lr"] == experiment.own_lr


def test_a_run_of_before_a_setting_existed_still_counts(tmp_path: Path) -> None:
    experiment = find_experiment("two-body")
    task, method = experiment.task(None, True), Method("trivial")
    run_method(experiment, method, task, tmp_path, QUICK)
    path = tmp_path / "trivial" / "seed-0" / "config.json"
    config = json.loads(path.read_text())
    del config["prune"], config["warmup"]
    path.write_text(json.dumps(config))
    run_method(experiment, method, task, tmp_path, QUICK)
    config["epochs"] += 1
    path.write_text(json.dumps(config))
    with pytest.raises(RunError, match="other settings"):
        run_method(experiment, method, task, tmp_path, QUICK)

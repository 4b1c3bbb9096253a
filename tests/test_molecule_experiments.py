"""Experiments on molecules: all methods run, a stopped one goes on to the same end, se(3) shows."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lieaugmenter import cli
from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.baselines.augerino import Augerino
from lieaugmenter.baselines.liegan import Discriminator, LieGAN
from lieaugmenter.data.molecules import (
    PROPERTIES,
    Molecules,
    MoleculeTask,
    molecule_task,
    qm9,
)
from lieaugmenter.experiments import catalogue
from lieaugmenter.experiments.catalogue import MOLECULES, find_experiment
from lieaugmenter.experiments.measuring import measure
from lieaugmenter.experiments.results import read_results
from lieaugmenter.experiments.runner import Settings, run_method
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.experiments.training import train
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.trainer import TimeIsUp
from lieaugmenter.lie.catalogue import aff, se
from lieaugmenter.runs import RunError, RunFolder, read_tensors

QUICK = Settings(seeds=(0,), quick=True, device="cpu", progress=False)
HOMO = MOLECULES["qm9-homo"]
DATA = os.environ.get("LIEAUGMENTER_DATA", "")
needs_qm9 = pytest.mark.skipif(
    not Path(DATA, "qm9", "qm9.npz").is_file(),
    reason="set LIEAUGMENTER_DATA to a folder with qm9/qm9.npz, see read_qm9()",
)


def clusters(n: int = 256) -> MoleculeTask:
    """Clusters of 8 to 12 charges, whose "orbital" is a sum over pairs that falls with distance."""
    rng = torch.Generator().manual_seed(0)
    counts = torch.randint(8, 13, (n, 1), generator=rng)
    real = torch.arange(12) < counts
    drawn = torch.tensor([1, 6, 7, 8, 9])[torch.randint(5, (n, 12), generator=rng)]
    charges = (drawn * real).to(torch.uint8)
    positions = 1.5 * torch.randn(n, 12, 3, generator=rng) * real.unsqueeze(-1)
    apart = torch.cdist(positions, positions)
    both = (real.unsqueeze(1) & real.unsqueeze(2)) * (1 - torch.eye(12))
    energies = ((-apart).exp() * both).sum((1, 2)) / counts.squeeze(1)
    targets = torch.zeros(n, len(PROPERTIES), dtype=torch.float64)
    targets[:, list(PROPERTIES).index("homo")] = energies.double()
    molecules = Molecules(positions, charges, torch.arange(1, n + 1), targets)
    train_rows, validation, test = torch.arange(n).split([n - 64, 32, 32])
    return molecule_task(molecules, "homo", (train_rows, validation, test))


def short(epochs: int = 2) -> Experiment:
    return replace(
        HOMO, quick_epochs=epochs, quick_settings={**HOMO.quick_settings, "own_views": 2}
    )


def overlap(generators: Tensor) -> float:
    return float(principal_cosines(generators, se(3)).square().mean())


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("method", HOMO.methods, ids=lambda method: method.name)
def test_every_method_on_molecules_runs(method: Method, tmp_path: Path) -> None:
    task = clusters(128)
    (result,) = run_method(short(), method, task, tmp_path, QUICK)
    assert result["mae"] > 0
    assert {"equivariance", "equivariance-2"} <= set(result)
    assert len(result["test-curve"]) == len(result["curve-seconds"]) == 2
    # The last epoch ends with the network, and with the averages, that are measured.
    assert result["test-curve"][-1] == pytest.approx(result["mae-direct"], rel=1e-3)
    finder = method.kind in ("liegan", "lieaugmenter-paper", "lieaugmenter")
    assert ("span-cosine" in result) == finder
    assert (len(result.get("span-cosines", [])) == 6) == finder
    assert ("closure" in result) == finder
    assert ("widths" in result) == method.kind.startswith("augerino-widths")
    found = {path.name for path in (tmp_path / method.name / "seed-0").iterdir()}
    assert "training" not in found  # the checkpoints of a finished run are gone


def test_errors_are_absolute_and_in_mev(tmp_path: Path) -> None:
    """Of a predictor that always says the mean of the labels."""
    task = clusters(128)
    ((_, trained),) = train(short(1), Method("trivial"), task, [0], QUICK, RunFolder(tmp_path))
    predictor = trained.predictor
    assert predictor is not None
    with torch.no_grad():
        for parameter in predictor.network.parameters():
            parameter.zero_()
    result = measure(short(1), Method("trivial"), task, trained, 0, QUICK)
    by_hand = (task.y_test - task.y_train.mean()).abs().mean()
    assert result["mae"] == pytest.approx(1000 * float(by_hand), rel=1e-5)
    assert float(predictor.y_scale) == pytest.approx(float(task.y_train.std()))


@pytest.mark.parametrize("kind", ["lieaugmenter", "liegan"])
def test_a_stopped_run_goes_on_to_the_same_end(kind: str, tmp_path: Path) -> None:
    """To the bit: weights, generators, records. Every sitting is one step."""
    task, method = clusters(112), Method(kind)
    (whole,) = run_method(short(), method, task, tmp_path / "whole", QUICK)
    sittings = 0
    while True:
        hurried = replace(QUICK, deadline=time.monotonic())
        try:
            (result,) = run_method(short(), method, task, tmp_path / "parts", hurried)
            break
        except TimeIsUp:
            sittings += 1
            assert sittings < 100
    assert sittings >= 6
    then, now = (tmp_path / name / kind / "seed-0" for name in ("whole", "parts"))
    for name in ("network.safetensors", "basis.safetensors"):
        before, after = read_tensors(then / name)[0], read_tensors(now / name)[0]
        assert all(torch.equal(before[key], after[key]) for key in before)
    for before, after in zip(records(then), records(now), strict=True):
        assert {**before, "seconds": 0} == {**after, "seconds": 0}
    same = {"mae", "mae-direct", "validation", "equivariance", "equivariance-2", "span-cosines"}
    assert {key: whole[key] for key in same} == {key: result[key] for key in same}


def test_what_was_begun_with_other_settings_is_not_continued(tmp_path: Path) -> None:
    task, hurried = clusters(112), replace(QUICK, deadline=time.monotonic() + 1.0)
    with pytest.raises(TimeIsUp):
        run_method(short(500), Method("trivial"), task, tmp_path, hurried)
    with pytest.raises(RunError, match="other settings"):
        run_method(short(501), Method("trivial"), task, tmp_path, QUICK)


def test_the_span_moves_towards_se3_and_the_loss_falls(tmp_path: Path) -> None:
    assert_the_quick_run_moves(clusters(320), tmp_path)


@needs_qm9
def test_on_qm9_the_span_moves_towards_se3_and_the_loss_falls(tmp_path: Path) -> None:
    assert_the_quick_run_moves(HOMO.task(None, True), tmp_path)


def assert_the_quick_run_moves(task: Any, folder: Path) -> None:
    experiment, method = HOMO.run_as(Method("lieaugmenter"), quick=True), Method("lieaugmenter")
    torch.manual_seed(0)
    at_first = LieAugmenter(task.action, n_generators=experiment.n_generators, output="invariant")
    (result,) = run_method(HOMO, method, task, folder, QUICK)
    assert overlap(at_first.generators.detach()) < 0.5
    assert result["span-overlap"] > 0.6
    losses = [
        record["prediction"] + record["equivariance"]
        for record in records(folder / "lieaugmenter" / "seed-0")
    ]
    # The range grows all the while, and what is asked with it.
    assert min(losses) < 0.9 * losses[0]
    assert losses[-1] < losses[0]


def test_the_network_and_the_weights_are_the_papers() -> None:
    for experiment in MOLECULES.values():
        assert (experiment.n_generators, experiment.n_views, experiment.range) == (6, 3, 3.0)
        assert (experiment.epochs, experiment.batch_size, experiment.lr) == (500, 125, 1e-3)
        weights = experiment.objective
        assert (weights.prediction, weights.equivariance, weights.similarity) == (1.0, 3.0, 0.1)
        assert (weights.sparsity, weights.alignment, weights.proximity) == (1e-3, 1.0, 0.0)
        network = experiment.network(Method("lieaugmenter"), clusters(70), experiment.hidden)
        assert sum(p.numel() for p in network.parameters()) == 21_302_593


def test_only_positions_are_scaled_and_only_labels_standardised(tmp_path: Path) -> None:
    task = clusters(128)
    ((_, trained),) = train(
        short(1), Method("trivial-paper"), task, [0], QUICK, RunFolder(tmp_path / "a")
    )
    assert trained.predictor is not None
    assert trained.predictor.x_scale == 1.0
    assert float(trained.predictor.y_shift) == pytest.approx(float(task.y_train.mean()))
    by_length = replace(short(1), standardised=False)
    ((_, trained),) = train(
        by_length, Method("trivial"), task, [0], QUICK, RunFolder(tmp_path / "b")
    )
    assert trained.predictor is not None
    size = task.action.moving(task.x_train).square().mean().sqrt()
    assert trained.predictor.x_scale == pytest.approx(float(size))
    seen = trained.predictor.scale_x(task.x_test)
    assert torch.equal(seen["charges"], task.x_test["charges"])


def test_a_share_of_the_molecules_has_all_their_fields(tmp_path: Path) -> None:
    task = clusters(128)
    method = Method("trivial", "data-0.25")
    ((_, trained),) = train(short(1), method, task, [0], QUICK, RunFolder(tmp_path))
    assert trained.predictor is not None
    assert float(trained.predictor.y_shift) == pytest.approx(float(task.y_train[:16].mean()))


def test_augerino_has_all_affine_generators_and_learns_how_far() -> None:
    augerino = Augerino("affine", 3, output="invariant", absolute=True)
    assert principal_cosines(augerino.generators, aff(3)).tolist() == pytest.approx([1.0] * 12)
    coefficients = augerino.sample(64, 4).coefficients.detach()
    assert float(coefficients.min()) >= 0
    assert float(coefficients.max()) <= 1
    x = torch.randn(32, 5, 3)
    loss = augerino.loss(lambda v: v.sum((1, 2)).unsqueeze(1), x, x.sum((1, 2)).unsqueeze(1))
    assert float(loss.detach()) == pytest.approx(
        float(loss.parts["prediction"]) - 1e-3 * 12, rel=1e-5
    )
    loss.backward()
    slopes = augerino.sampler.theta.grad
    assert slopes is not None
    assert int((slopes != 0).sum()) == 12


def test_liegan_plays_on_molecules_with_gradients_to_the_generators() -> None:
    task = clusters(128)
    liegan = LieGAN(task.action, n_generators=6, output="invariant")
    discriminator = Discriminator(12 * 5, 1)
    liegan.loss(discriminator, task.x_train, task.y_train).backward()
    slopes = liegan.basis.raw.grad
    assert slopes is not None
    assert bool((slopes[:, :3] != 0).all())
    assert all(p.grad is not None for p in discriminator.parameters())


@needs_qm9
def test_small_molecules_are_the_first_of_the_split(tmp_path: Path) -> None:
    sizes = {"n_validation": 5, "n_test": 5, "most_atoms": 12}
    task = qm9("homo", n_train=20, **sizes)
    assert task.x_train["positions"].shape == (20, 12, 3)
    assert int(task.x_train["mask"].sum(1).max()) <= 12
    fewer = qm9("homo", n_train=10, **sizes)
    assert torch.equal(fewer.x_train["charges"], task.x_train["charges"][:10])
    with pytest.raises(ValueError, match=r"from 1 to \d+ molecules"):
        qm9("homo", n_train=100_000, **sizes)


def test_the_command_line_stops_by_the_clock_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = clusters(112)
    small = replace(short(), task=lambda path, quick: task)
    monkeypatch.setitem(catalogue.EXPERIMENTS, "qm9-homo", small)  # type: ignore[arg-type]
    words = [
        "reproduce",
        "qm9-homo",
        "--quick",
        "--methods",
        "trivial",
        "--json",
        "-o",
        str(tmp_path),
    ]

    def call(*more: str) -> int:
        with pytest.raises(SystemExit) as stopped:
            cli.main([*words, *more])
        return int(stopped.value.code or 0)

    assert call("--time-limit", "0.001s") == cli.STOPPED
    said = capsys.readouterr()
    assert "the same command goes on" in said.err
    assert "the same command goes on" in json.loads(said.out)["stopped"]
    assert call("--time-limit", "10m") == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["seed"] == 0
    # What is finished is not lost for what is not.
    kept = tmp_path / "kept.json"
    more = ("--methods", "oracle", "--time-limit", "0.001s", "--results", str(kept))
    assert call(*more) == cli.STOPPED
    assert [run["method"] for run in read_results(kept)["results"]] == ["trivial"]
    capsys.readouterr()
    assert call("--time-limit", "soon") == cli.BAD_INPUT
    assert "such as 9m" in capsys.readouterr().err


def test_the_experiments_are_found_by_name() -> None:
    assert find_experiment("qm9-lumo").n_seeds == 1

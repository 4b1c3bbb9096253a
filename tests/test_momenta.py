"""Experiments on four-momenta: what events cover, what is measured, what the document says."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from matplotlib.text import Text

from lieaugmenter.actions import FourVectorAction
from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.coverage import coverage
from lieaugmenter.cli import main
from lieaugmenter.data.amplitudes import FourMomenta, amplitudes, pair_mass, squared_amplitude
from lieaugmenter.data.files import DataError
from lieaugmenter.data.phase_space import scatter
from lieaugmenter.experiments.catalogue import AMPLITUDES, find_experiment
from lieaugmenter.experiments.momenta import BEAM_TURN, NAMES, compare_with_lorentz, defects
from lieaugmenter.experiments.results import collect, summary
from lieaugmenter.experiments.runner import Settings, run_method
from lieaugmenter.experiments.spec import Method
from lieaugmenter.lie.catalogue import so_pq
from lieaugmenter.nets.transformer import ParticleTransformer
from lieaugmenter.report.finished import Finished
from lieaugmenter.report.momenta_figures import momenta_figures
from lieaugmenter.report.reproduction import reproduction, write_reproduction
from lieaugmenter.runs import write_json

QUICK = Settings(seeds=(0,), quick=True, device="cpu", progress=False)
LORENTZ = so_pq(1, 3)
CONSTANT = "lieaugmenter-constant"
BOOST_Z = NAMES.index("boost z")
SCALING = torch.eye(4)


# -- which motions lead from events to events ------------------------------------------------------


def test_in_the_laboratory_only_turn_and_boost_along_the_beam_lead_to_events() -> None:
    found = coverage(amplitudes(500, 10, 10).x_train.double(), action=FourVectorAction())
    along = LORENTZ[[BOOST_Z, BEAM_TURN]].double()
    assert len(found.generators) == 2
    assert float(principal_cosines(found.generators, along).min()) > 1 - 1e-6
    off = [found.leaving(generator) for generator in LORENTZ]
    assert [value < 1e-5 for value in off] == [name.endswith("z") for name in NAMES]


def test_in_random_frames_the_whole_lorentz_algebra_leads_to_events() -> None:
    task = amplitudes(500, 10, 10, boost=1.0)
    found = coverage(task.x_train.double(), action=FourVectorAction())
    assert found.generators.shape == (6, 4, 4)
    assert float(principal_cosines(found.generators, LORENTZ.double()).min()) > 1 - 1e-6
    # Four equations of momentum conservation, and five mass shells.
    assert found.equations == 4 + 5
    # Only the mass of the Z tells that events were scaled.
    assert 1e-4 < found.leaving(SCALING) < 0.1


def test_samples_that_fulfil_no_equation_are_left_by_nothing() -> None:
    found = coverage(pair_mass(500, 10, 10).x_train.double(), action=FourVectorAction())
    assert (found.equations, len(found.generators), found.leaving(SCALING)) == (0, 16, 0.0)


# -- measures --------------------------------------------------------------------------------------


def test_learned_generators_are_compared_with_boosts_and_turns() -> None:
    task = amplitudes(500, 10, 10)
    mixed = torch.einsum("ij,jkl->ikl", torch.randn(6, 6), LORENTZ)
    whole = compare_with_lorentz(task, mixed)
    assert min(whole["principal-cosines"]) > 0.999
    assert min(whole["generator-cosines"]) > 0.999
    # One of them is replaced by a scaling: the span has lost it, and nothing else.
    without = LORENTZ.clone()
    without[BEAM_TURN] = SCALING
    found = compare_with_lorentz(task, without[[5, 4, 3, 2, 1, 0]])
    assert found["fifth-cosine"] > 0.999
    assert found["beam-cosine"] < 1e-3
    assert found["covered-cosine"] < 1e-3
    assert found["generator-cosines"][BOOST_Z] > 0.999
    assert found["matched"] == [5, 4, 3, 2, 1, 0]
    assert found["matched-cosines"][0] == pytest.approx(1.0)


class Mass(torch.nn.Module):
    """The squared mass of the first two particles: invariant under the Lorentz group."""

    def __init__(self) -> None:
        super().__init__()
        self.metric = torch.nn.Parameter(torch.diag(torch.tensor([1.0, -1.0, -1.0, -1.0])))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x[:, :2].sum(1)
        return ((total @ self.metric) * total).sum(1, keepdim=True)


def test_defects_tell_a_symmetric_network_from_another() -> None:
    task = amplitudes(10, 10, 100, boost=1.0)
    assert max(defects(Mass(), task.x_test, LORENTZ)) < 1e-3
    assert defects(Mass(), task.x_test, SCALING[None])[0] > 0.3
    plain = ParticleTransformer(task.kinds, channels=16, blocks=1, momenta=task.x_test)
    assert max(defects(plain, task.x_test, LORENTZ)) > 0.1


# -- the experiments -------------------------------------------------------------------------------


def test_toy_finds_the_lorentz_algebra_in_its_quick_form(tmp_path: Path) -> None:
    """The bar of a quick run on a CPU: all principal cosines with so(1,3) at least 0.95."""
    experiment = find_experiment("pair-mass")
    task = experiment.task(None, True)
    (found,) = run_method(experiment, Method("lieaugmenter"), task, tmp_path, QUICK)
    assert found["span-cosine"] >= 0.95
    assert len(found["test-curve"]) == experiment.quick_epochs
    assert found["test-curve"][-1] < 0.1 * found["test-curve"][0]
    assert f"{found['span-cosine']:.4f}" in summary(experiment, [found])[1]


def published(path: Path, n: int = 300) -> Path:
    events = scatter(n, 2, np.random.default_rng(0))
    with h5py.File(path, "w") as file:
        file["zgg"] = np.c_[events.reshape(n, -1), squared_amplitude(events)]
    return path


def test_every_method_runs_on_events_of_the_published_file(tmp_path: Path) -> None:
    experiment = find_experiment("amplitudes")
    task = experiment.task(published(tmp_path / "amplitudes.hdf5"), True)
    assert isinstance(task, FourMomenta)
    assert len(task.x_train) == 102
    results = []
    for method in experiment.methods:
        results += run_method(experiment, method, task, tmp_path / "runs", QUICK)
        assert (results[-1]["covered"], len(results[-1]["defects"])) == (2, 6)
        assert len(results[-1]["test-curve"]) == 1
        assert ("matched" in results[-1]) == method.kind.startswith("lieaugmenter")
        # Where generators begin is measured where they do not begin at the constant.
        assert ("start-span-cosine" in results[-1]) == (method.name == "lieaugmenter")
        assert results[-1]["covered-cosines"] == pytest.approx([1.0, 1.0], abs=1e-5)
    assert [result["method"] for result in results] == [m.name for m in experiment.methods]
    lgatr = results[-1]
    assert lgatr["method"] == "lgatr"
    assert lgatr["equivariance-2"] < 1e-4
    assert len(collect(experiment, tmp_path / "runs")["results"]) == len(results)
    damaged = tmp_path / "damaged.hdf5"
    damaged.write_bytes(b"zgg")
    with pytest.raises(DataError, match="not a readable HDF5 file"):
        experiment.task(damaged, True)


@pytest.mark.parametrize("name", ["amplitudes-boosted", "pair-mass"])
def test_generated_events_have_no_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="generates its data"):
        find_experiment(name).task(tmp_path / "amplitudes.hdf5", True)


def test_augmentation_in_random_frames_runs_in_its_quick_form(tmp_path: Path) -> None:
    experiment = find_experiment("amplitudes-boosted")
    task = experiment.task(None, True)
    for method in (Method("oracle", "whole"), Method("lieaugmenter")):
        (result,) = run_method(experiment, method, task, tmp_path, QUICK)
        assert result["covered"] == 6
        assert {"mse-averaged", "mse-direct", "inference"} <= result.keys()


def test_networks_standardise_the_momenta_that_they_are_given(tmp_path: Path) -> None:
    """Own settings divide momenta by one number: the network's means must be of the quotient."""
    experiment = find_experiment("amplitudes")
    task = experiment.task(None, True)
    larger = replace(task, **{f"x_{p}": 7 * getattr(task, f"x_{p}") for p in ("train", "test")})
    larger = replace(larger, x_validation=7 * task.x_validation)
    found = [
        run_method(experiment, Method("trivial"), one, tmp_path / name, QUICK)[0]["mse"]
        for name, one in (("task", task), ("larger", larger))
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_each_component_is_standardised_inside_the_network() -> None:
    experiment = find_experiment("amplitudes")
    task = experiment.task(None, True)
    network = experiment.network(Method("trivial"), task, (16, 2))
    assert isinstance(network, ParticleTransformer)
    flat = task.x_train.flatten(0, 1)
    assert torch.allclose(network.mean, flat.mean(0))
    assert torch.allclose(network.deviation, flat.std(0))
    # Momenta along the beam are spread further than those across: one number would not do.
    assert float(network.deviation.max() / network.deviation.min()) > 1.5


def test_lgatr_has_epochs_of_its_own() -> None:
    experiment = find_experiment("amplitudes")
    of = {m.name: experiment.run_as(m, quick=False).epochs for m in experiment.methods}
    assert of["lgatr"] == experiment.epochs_of["lgatr"] < of["trivial"] == experiment.epochs
    assert experiment.run_as(Method("lgatr"), quick=True).epochs == experiment.quick_epochs


def test_generators_act_on_momenta_of_one_unit() -> None:
    """A Lorentz transformation keeps masses of the task's momenta: they are not standardised."""
    task = amplitudes(50, 10, 10)
    squares = task.x_train.square() @ torch.tensor([1.0, -1.0, -1.0, -1.0])
    assert float(squares[:, [0, 1, 3, 4]].abs().max()) < 1e-4
    assert float(squares[:, 2].std()) < 1e-4
    assert isinstance(task.action, type(FourVectorAction()).__base__)


# -- the document ----------------------------------------------------------------------------------


def run(method: str, seed: int, **measures: Any) -> dict[str, Any]:
    common: dict[str, Any] = {
        "mse-direct": 2e-3, "train-seconds": 100.0, "device": "cuda", "equations": 37,
        "covered": 2, "leaving": [5.0, 5.0, 0.0, 0.0, 5.0, 5.0], "defects": [0.1] * 6,
        "test-curve": [1.0, 0.1, 0.01],
    }  # fmt: skip
    return {"method": method, "seed": seed, **common, **measures}


def found_by(seed: int, mse: float, beam: float, fifth: float) -> dict[str, Any]:
    return run(
        "lieaugmenter", seed, mse=mse, **{
            "beam-cosine": beam, "fifth-cosine": fifth, "span-cosine": 0.3,
            "covered-cosine": 0.97, "principal-cosines": [1.0] * 4 + [fifth, 0.3],
            "generator-cosines": [0.5, 0.5, 0.99, beam, 0.4, 0.4], "matched": [0, 1, 2, 3, 4, 5],
            "matched-cosines": [0.5] * 6, "generators": (2 * LORENTZ).tolist(),
        },
    )  # fmt: skip


def write(folder: Path, name: str, results: list[dict[str, Any]], *, quick: bool = False) -> None:
    experiment = AMPLITUDES[name]
    settings = {
        "quick": quick, "epochs": experiment.epochs, "batch_size": experiment.batch_size,
        "lr": 1e-3, "own_lr": None, "hidden": [128, 8], "n_views": 3, "range": 0.3,
        "source": "generated",
    }  # fmt: skip
    write_json(folder / f"{name}.json", {"settings": settings, "results": results})


def laboratory(ours: float, *, beam: float = 0.995) -> list[dict[str, Any]]:
    others = {"trivial": 1e-3, "oracle-whole": 5e-3, "lgatr": 5e-4}
    results = [run(name, seed, mse=mse) for name, mse in others.items() for seed in (0, 1)]
    return [*results, *(found_by(seed, ours, beam, 0.8) for seed in (0, 1))]


def outcomes(text: str) -> list[str]:
    part = text.split("## Requirements on four-momenta")[1].split("\n## ")[0]
    return [line.split(" | ")[-1].rstrip(" |") for line in part.splitlines() if "`" in line]


def test_requirements_are_judged(tmp_path: Path) -> None:
    assert outcomes(reproduction(tmp_path)) == ["not run"] * 5
    write(tmp_path, "amplitudes", laboratory(1.1e-3))
    write(tmp_path, "amplitudes-boosted", [found_by(0, 1e-3, 0.9, 0.96)])
    known = "reached, but known from the inputs before training"
    text = reproduction(tmp_path)
    assert outcomes(text)[:4] == [
        "reached, as validation data chose to predict; of direct predictions 2.00e-03 against "
        "2.00e-03",
        "reached", known, known,
    ]  # fmt: skip
    assert "Of 5 requirements: 4 reached (3 of them with a remark), 1 not run." in text
    write(tmp_path, "amplitudes", laboratory(6e-3, beam=0.98))
    write(tmp_path, "amplitudes-boosted", [found_by(0, 1e-3, 0.9, 0.94)])
    assert outcomes(reproduction(tmp_path)) == [
        "**missed**, × 1.20", "**missed**, × 5.0", "**missed**, on 2 of 2 seeds",
        "**missed**, on 1 of 1 seeds", "not run",
    ]  # fmt: skip
    write(tmp_path, "amplitudes", laboratory(1.1e-3), quick=True)
    assert outcomes(reproduction(tmp_path))[0] == "not judged, quick run"


def section(text: str, name: str) -> str:
    return text.split(f"## {AMPLITUDES[name].title}\n")[1].split("\n## ")[0]


def test_means_that_are_closer_than_their_spreads_are_told_so(tmp_path: Path) -> None:
    near, far = {"mse": 0.8e-3, "mse-direct": 1e-3}, {"mse": 1.4e-3, "mse-direct": 1e-3}
    ours = [found_by(seed, 1e-3, 1.0, 0.8) | found for seed, found in enumerate((near, far))]
    whole = [run("oracle-whole", seed, **{**far, "mse": 1.3e-3}) for seed in (0, 1)]
    write(tmp_path, "amplitudes", [*ours, *whole])
    assert "chose to predict, by less than the sum of both" in outcomes(reproduction(tmp_path))[0]


def test_section_says_what_the_events_can_tell(tmp_path: Path) -> None:
    write(tmp_path, "amplitudes", laboratory(1.1e-3))
    text = section(reproduction(tmp_path), "amplitudes")
    assert "37 linearly independent equations" in text
    assert "are: boost z and turn about z." in text
    assert "(boost x, boost y, turn about y and turn about x) lead to where" in text
    assert "| turn about z | no | 0.995 |" in text
    assert "| boost x | 5 | 0.500 |" in text
    assert "| L-GATr | – | – | 5.00e-04 ± 0.00e+00 |" in text
    assert "oracle, the whole group" in text


def test_where_generators_began_stands_below_where_they_ended(tmp_path: Path) -> None:
    start = {"start-fifth-cosine": 0.25, "start-span-cosine": 0.125, "start-beam-cosine": 1.0}
    ours = found_by(0, 1e-3, 0.995, 0.8) | start
    write(tmp_path, "amplitudes", [ours, found_by(0, 2e-3, 0.5, 0.4) | {"method": CONSTANT}])
    text = section(reproduction(tmp_path), "amplitudes")
    assert "| LieAugmenter | own | 0.8000 | 0.3000 | 0.9950 | 0.9700 |" in text
    assert "| LieAugmenter, before training | own | 0.2500 | 0.1250 | 1.0000 | – |" in text
    assert "| LieAugmenter, from the constant start | own | 0.4000 |" in text
    assert text.count("before training |") == 1


def test_every_method_has_its_place_in_the_pictures(tmp_path: Path) -> None:
    methods = AMPLITUDES["amplitudes"].methods
    write(tmp_path, "amplitudes", [run(method.name, 0, mse=1e-3) for method in methods])
    finished = Finished.read(tmp_path, AMPLITUDES["amplitudes"])
    assert finished is not None
    (curves,) = dict(momenta_figures(finished)).values()
    assert len(curves.axes[0].lines) == len(methods)


def test_an_equivariant_network_that_was_not_trained_long_enough_is_told_so(tmp_path: Path) -> None:
    write(tmp_path, "amplitudes", [run("trivial", 0, mse=1e-3), run("lgatr", 0, mse=2e-3)])
    assert "not trained long enough" in section(reproduction(tmp_path), "amplitudes")
    write(tmp_path, "amplitudes", [run("trivial", 0, mse=1e-3), run("lgatr", 0, mse=5e-4)])
    assert "not trained long enough" not in section(reproduction(tmp_path), "amplitudes")


def test_the_study_of_starts_is_shown_where_it_was_run(tmp_path: Path) -> None:
    assert "Where generators on four-momenta begin" not in reproduction(tmp_path / "results")
    found = {
        "experiment": "amplitudes", "method": CONSTANT, "mse": 0.5, "beam-cosine": 0.75,
        "fifth-cosine": 0.5, "principal-cosines": [1.0] * 4 + [0.5, 0.25],
    }  # fmt: skip
    study = {
        "settings": {"hidden": [32, 3], "events": [20_000, 2_000, 5_000], "epochs": 20},
        "environment": {"torch": "2.0", "time": "2030-01-02T03"},
        "results": [{**found, "seed": 0}, {**found, "seed": 1, "beam-cosine": 0.25}],
    }
    write_json(tmp_path / "benchmarks" / "results" / "event_starts.json", study)
    text = reproduction(tmp_path / "results").split("## Where generators on four-momenta begin")[1]
    assert (
        "| laboratory | constant | 0.5000 ± 0.2500: 0.7500, 0.2500 | 0.5000 ± 0.0000: 0.5000, "
        "0.5000 | 0.2500 ± 0.0000: 0.2500, 0.2500 | 5.00e-01 ± 0.00e+00 |" in text
    )
    assert "| random frames | own start | not run | not run | not run | not run |" in text


def test_section_of_data_without_equations_says_so(tmp_path: Path) -> None:
    free: dict[str, Any] = {"equations": 0, "covered": 16, "leaving": [0.0] * 6}
    write(tmp_path, "pair-mass", [found_by(0, 1e-3, 0.999, 0.999) | free])
    assert "every linear motion leads to" in section(reproduction(tmp_path), "pair-mass")


def test_pictures_are_written_and_linked(tmp_path: Path) -> None:
    write(tmp_path, "amplitudes", laboratory(1.1e-3))
    write_reproduction(tmp_path, tmp_path / "docs" / "reproduction.md")
    written = {path.name for path in (tmp_path / "docs" / "images").iterdir()}
    names = {f"reproduction-amplitudes-{key}.png" for key in ("curves", "generators")}
    assert written == names
    text = (tmp_path / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert all(f"images/{name}" in text for name in names)


def test_pictures_show_the_nearest_of_the_span_and_write_no_mathematics(tmp_path: Path) -> None:
    mixed = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)) @ LORENTZ.flatten(1)
    results = [*laboratory(1.1e-3), run("trivial-paper", 0, **{"test-curve": [1.0, None, 0.1]})]
    for result in results:
        if "generators" in result:
            result["generators"] = mixed.view(6, 4, 4).tolist()
    write(tmp_path, "amplitudes", results)
    finished = Finished.read(tmp_path, AMPLITUDES["amplitudes"])
    assert finished is not None
    drawn = dict(momenta_figures(finished))
    for figure in drawn.values():
        figure.draw_without_rendering()
        assert not any("$" in text.get_text() for text in figure.findobj(Text))
    ticks = drawn["reproduction-amplitudes-curves.png"].axes[0].get_yticklabels()
    assert "10⁻¹" in [tick.get_text() for tick in ticks]
    panels = drawn["reproduction-amplitudes-generators.png"].axes
    assert [ax.get_xlabel() for ax in panels[6:12]] == ["cosine 1.0000"] * 6


def test_results_of_a_run_are_plain_json(tmp_path: Path) -> None:
    experiment = find_experiment("pair-mass")
    task = pair_mass(200, 50, 50)
    short = replace(experiment, quick_epochs=1)
    run_method(short, Method("lieaugmenter"), task, tmp_path, QUICK)
    path = tmp_path / "lieaugmenter" / "seed-0" / "result.json"
    assert len(json.loads(path.read_text())["principal-cosines"]) == 6


@pytest.mark.parametrize("begun", [True, False])
def test_generators_begin_where_a_plain_network_changes_least(begun: bool, tmp_path: Path) -> None:
    experiment = replace(find_experiment("amplitudes"), own_start=begun)
    run_method(experiment, Method("lieaugmenter"), amplitudes(300, 50, 50), tmp_path, QUICK)
    result = json.loads((tmp_path / "lieaugmenter" / "seed-0" / "result.json").read_text())
    assert (result["beam-cosine"] > 0.99) is begun


def test_command_line_says_which_extra_a_method_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lgatr", None)
    monkeypatch.delitem(sys.modules, "lieaugmenter.baselines.lgatr", raising=False)
    command = ["reproduce", "amplitudes", "--quick", "--seeds", "1", "--device", "cpu"]
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--methods", "lgatr", "--out", str(tmp_path)])
    assert stopped.value.code == 2
    assert "pip install 'lieaugmenter[lgatr]'" in capsys.readouterr().err

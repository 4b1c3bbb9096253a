from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from lieaugmenter.data.dynamics import true_generator
from lieaugmenter.experiments.catalogue import EXPERIMENTS, VECTORS
from lieaugmenter.experiments.targets import TARGETS
from lieaugmenter.report.comparison import rows_of
from lieaugmenter.report.explanations import EXPLANATIONS, TABLE_NOTES
from lieaugmenter.report.finished import Finished
from lieaugmenter.report.measures import comparable_value, factor, measures_of
from lieaugmenter.report.paper_figures import aligned
from lieaugmenter.report.reproduction import main, reproduction, write_reproduction
from lieaugmenter.report.sensitivity import sensitivity
from lieaugmenter.runs import write_json

ROOT = Path(__file__).parent.parent
PNG = b"\x89PNG\r\n\x1a\n"
RAN = {
    "lieaugmenter": "0.1.0",
    "torch": "2.11.0",
    "device": "Some GPU",
    "threads": 1,
    "time": "2030-01-02T03:04:05+00:00",
    "workers": 1,
}


def run(method: str, seed: int, **measures: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in measures.items()}
    return {
        "method": method,
        "seed": seed,
        "train-seconds": 2.5,
        "device": "cuda",
        "stacked": True,
        "environment": RAN,
        **named,
    }


def seeds(method: str, *errors: float, **measures: Any) -> list[dict[str, Any]]:
    return [run(method, seed, mse=error, **measures) for seed, error in enumerate(errors)]


def write(folder: Path, name: str, results: list[dict[str, Any]], *, quick: bool = False) -> None:
    experiment = VECTORS[name]
    content = {
        "experiment": name,
        "title": experiment.title,
        "settings": {
            "quick": quick,
            "epochs": experiment.quick_epochs if quick else experiment.epochs,
            "batch_size": 64,
            "lr": 1e-3,
            "hidden": [128, 128, 128],
            "n_views": 10,
            "range": experiment.range,
            "source": "generated",
        },
        "results": results,
    }
    write_json(folder / f"{name}.json", content)


def row(text: str, label: str) -> list[str]:
    """The cells of the first table row with that label."""
    found = re.search(rf"^\| {re.escape(label)} \|(.*)\|$", text, flags=re.M)
    assert found, f"no row {label!r}"
    return [cell.strip() for cell in found[1].split(" | ")]


def requirement(text: str, start: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    assert len(lines) == 1, start
    return [cell.strip() for cell in lines[0].strip("| ").split(" | ")]


def test_lowest_of_a_row_is_bold(tmp_path: Path) -> None:
    write(
        tmp_path,
        "two-body",
        [
            *seeds("emlp", 1e-5, 3e-5),
            *seeds("trivial-paper", 6e-3, 6e-3),
            *seeds("trivial", 1e-3, 1e-3),
            *seeds("lieaugmenter-paper-mask2", 1e-6, 1e-6),
            *seeds("lieaugmenter-mask2", 2e-6, 2e-6),
        ],
    )
    text = reproduction(tmp_path)
    assert row(text, "EMLP") == ["**1.74e-06 ± 1.50e-06**", "2.00e-05 ± 1.00e-05", "–"]
    assert row(text, "no augmentation") == [
        "5.16e-03 ± 2.79e-03",
        "6.00e-03 ± 0.00e+00",
        "**1.00e-03 ± 0.00e+00**",
    ]
    assert row(text, "LieAugmenter, mask 2")[1] == "**1.00e-06 ± 0.00e+00**"
    assert row(text, "LieAugmenter, mask 4") == ["1.45e-05 ± 6.15e-06", "not run", "not run"]
    assert "2 seeds (0, 1), 100 epochs" in text
    assert "Some GPU, torch 2.11.0, lieaugmenter 0.1.0, 2030-01-02" in text
    assert "divided by its members" in text


def test_runs_made_elsewhere_or_later_are_told_apart(tmp_path: Path) -> None:
    processor = {**RAN, "torch": "2.13.0", "device": "Some GPU", "threads": 2, "workers": 3}
    later = {**RAN, "time": "2030-02-03T00:00:00+00:00"}
    write(
        tmp_path,
        "two-body",
        [
            *seeds("lieaugmenter-mask2", 1e-6, 1e-6),
            *seeds("emlp", 1e-5, environment=later),
            *seeds("trivial-paper", 1e-3, device="cpu", environment=processor),
        ],
    )
    text = reproduction(tmp_path)
    assert (
        "Some GPU, torch 2.11.0, lieaugmenter 0.1.0, 2030-01-02 to 2030-02-03; "
        "no augmentation: CPU (2 threads), torch 2.13.0, lieaugmenter 0.1.0, 2030-01-02." in text
    )
    assert "ours is CPU (2 threads) and Some GPU" in text
    assert "Up to 3 trainings shared the device" in text
    assert "The seconds of what ran on a CPU are left out: no augmentation." in text
    times = text.split("### Training time")[1]
    assert row(times, "EMLP")[1] == "**2.5 (1 seed)**"
    assert row(times, "no augmentation")[1] == "–"


def test_a_run_that_does_not_tell_where_it_was_made_is_shown_so(tmp_path: Path) -> None:
    write(tmp_path, "two-body", seeds("emlp", 1e-5, environment={}))
    assert "cuda, torch unknown, lieaugmenter unknown, date unknown." in reproduction(tmp_path)


def test_differences_beyond_both_spreads_are_said(tmp_path: Path) -> None:
    # The paper: 5.16e-03 ± 2.79e-03 without augmentation, 1.74e-06 ± 1.50e-06 for EMLP.
    write(
        tmp_path,
        "two-body",
        [
            *seeds("trivial-paper", 6e-3, 6e-3),
            *seeds("trivial", 5.16e-4, 5.16e-4),
            *seeds("emlp", 1.74e-5, 1.74e-5),
        ],
    )
    said = [line for line in reproduction(tmp_path).splitlines() if "both spreads and" in line]
    assert len(said) == 2
    assert "the paper's settings" in said[0]
    assert "**higher** than the paper's for EMLP (× 10.0)." in said[0]
    assert "no augmentation" not in said[0]
    assert "**lower** than the paper's for no augmentation (× 10.0)." in said[1]


def test_a_miss_is_shown_as_a_miss(tmp_path: Path) -> None:
    write(
        tmp_path,
        "two-body",
        [
            *seeds("oracle", 1e-5, 1e-5),
            *seeds("lieaugmenter-mask2", 2.6e-5, 2.6e-5, cosine=0.9995),
            *seeds("lieaugmenter-mask4", 1e-5, 1e-5, cosine_on_data=0.9999),
            run("lieaugmenter-mask0", 0, mse=1e-6),
            run("lieaugmenter-mask0", 1, diverged="a loss is nan", train_seconds=0.0),
        ],
    )
    write(
        tmp_path,
        "two-body-ood",
        [
            run("lieaugmenter-mask2", 0, mse=1e-5, cosine=0.9999),
            run("lieaugmenter-mask2", 1, mse=1e-5, cosine=0.9989),
        ],
    )
    text = reproduction(tmp_path)
    paper = "MSE at most the paper's"
    assert requirement(text, f"`two-body`, mask 2: {paper}")[1:] == [
        "2.60e-05 ± 0.00e+00 (2 seeds)",
        "1.30e-05 ± 5.58e-06",
        "**missed**, × 2.0",
    ]
    assert requirement(text, f"`two-body`, mask 4: {paper}")[3] == "reached"
    assert (
        requirement(text, f"`two-body`, no mask: {paper}")[3] == "**missed**, 1 of 2 seeds diverged"
    )
    assert requirement(text, "`two-body`, mask 2: cosine")[3] == "reached"
    assert requirement(text, "`two-body-ood`, mask 2: cosine")[1:] == [
        "least 0.998900 (2 seeds)",
        "≥ 0.999",
        "**missed**, on 1 of 2 seeds",
    ]
    assert requirement(text, "`two-body`, mask 2: MSE at most 1.5 ×")[2:] == [
        "1.50e-05",
        "**missed**, × 1.73",
    ]
    assert requirement(text, f"`two-body-3`, mask 2: {paper}")[3] == "not run"
    assert requirement(text, "`two-body`, mask 4: cosine on data")[3] == "reached"
    summaries = re.findall(r"Of (\d+) requirements: (.*?)\.", text)
    missed = 0
    for total, summary in summaries:
        counts = {word: int(n) for n, word in re.findall(r"(\d+) ([a-z ]+)", summary)}
        assert int(total) == sum(counts.values())
        missed += counts.get("missed", 0)
    assert len(summaries) == 4
    assert missed == text.count("**missed**")


def test_a_fallback_on_the_plain_network_is_told(tmp_path: Path) -> None:
    ways = {"inference": "plain", "mse_averaged": 3e-4}
    write(tmp_path, "no-symmetry", seeds("lieaugmenter", 1e-4, 1e-4, **ways))
    text = reproduction(tmp_path)
    told = requirement(text, "`no-symmetry`: MSE at most the paper's")[1]
    assert "(2 seeds, 2 of them by the plain network)" in told
    assert "LieAugmenter: 2 × plain; all averaged 3.00e-04" in text


def test_seeds_that_diverged_are_counted(tmp_path: Path) -> None:
    write(
        tmp_path,
        "two-body",
        [
            run("augerino-mask2", 0, mse=3.0, cosine=0.5),
            run("augerino-mask2", 1, mse=None),
            run("augerino-mask0", 0, diverged="a loss is nan", train_seconds=0.0),
            run("augerino-mask0", 1, diverged="a loss is nan", train_seconds=0.0),
        ],
    )
    text = reproduction(tmp_path)
    # The mean of the seeds that are left is not the best, however low.
    assert row(text, "Augerino+, mask 2")[:2] == [
        "**9.67e+03 ± 1.37e+04**",
        "3.00e+00 (1 of 2 diverged)",
    ]
    assert row(text, "Augerino+, no mask")[1] == "diverged (2 of 2)"
    diverged = "`augerino-mask0` (2 of 2 seeds) and `augerino-mask2` (1 of 2 seeds)"
    assert f"Training diverged for {diverged}." in text
    # A run that stopped has no time to be averaged.
    assert "0 ± 0" not in text.split("### Training time")[1].split("###")[0]


def test_missing_results_are_said_and_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "discrete-rotation", seeds("trivial", 1e-3))
    text = reproduction(tmp_path)
    assert text.count("Not run: there is no") == len(EXPERIMENTS) - 1
    assert "there is no `no-symmetry.json` among the results" in text
    for experiment in EXPERIMENTS.values():
        assert f"## {experiment.title}\n" in text


def test_a_quick_run_is_labelled_and_not_compared(tmp_path: Path) -> None:
    write(tmp_path, "two-body", seeds("lieaugmenter-mask2", 1e-9, 1e-9, cosine=1.0), quick=True)
    text = reproduction(tmp_path)
    assert "Quick runs, whose numbers mean nothing: `two-body`" in text
    assert "**Quick run: few samples and few epochs." in text
    assert row(text, "LieAugmenter, mask 2")[2] == "1.00e-09 ± 0.00e+00"
    assert "both spreads and" not in text
    assert requirement(text, "`two-body`, mask 2: cosine")[3] == "not judged, quick run"


def test_both_readings_of_the_task_without_symmetry_stand_beside_the_paper(tmp_path: Path) -> None:
    for name in ("no-symmetry", "no-symmetry-deviation"):
        write(
            tmp_path,
            name,
            [
                *seeds("trivial", 1e-4, 3e-4),
                *seeds("oracle", 1e-4, displacement=0.0, distance=0.0),
                *seeds("lieaugmenter", 2.9e-4, displacement=5.0, distance=6.0),
            ],
        )
    text = reproduction(tmp_path)
    paper = TARGETS["no-symmetry", "lieaugmenter", "mse"]
    assert text.count(f"| LieAugmenter | **{paper.mean:.2e} ± {paper.std:.2e}** |") == 2
    assert text.count("| LieAugmenter | 10.66 ± 4.489 | not run | **5.000 (1 seed)** |") == 2
    trivial = [line for line in text.splitlines() if "that of no augmentation, ours" in line]
    assert [line.split(" | ")[-2:] for line in trivial] == [["3.00e-04", "reached |"]] * 2
    assert text.count("There is no true generator to compare with.") == 2


def test_every_seed_of_a_discovery_is_listed_and_liegg_is_among_them(tmp_path: Path) -> None:
    measures = {"cosine_on_data": 0.75, "cosine_on_span": 0.85, "projection": 0.25}
    write(
        tmp_path,
        "two-body",
        [
            run("liegg-mask2", 0, cosine=0.5, **measures),
            run("liegg-mask2", 1, cosine=0.7, **measures),
            run("lieaugmenter-mask2", 0, mse=1e-5, cosine=1.0, **measures),
            run("lieaugmenter-mask2", 1, diverged="a loss is nan"),
        ],
    )
    text = reproduction(tmp_path)
    assert row(text, "LieGG, mask 2") == [
        "published",
        "0.6000 ± 0.1000: 0.5000, 0.7000",
        "0.7500 ± 0.0000: 0.7500, 0.7500",
        "0.8500 ± 0.0000: 0.8500, 0.8500",
        "0.2500 ± 0.0000: 0.2500, 0.2500",
    ]
    assert "| LieAugmenter, mask 2 | own | 1.0000 ± 0.0000: 1.0000, diverged |" in text
    # It predicts nothing, so it has no row anywhere else.
    assert text.count("LieGG, mask 2") == 1


def test_time_of_liegan_itself_is_given_apart(tmp_path: Path) -> None:
    write(tmp_path, "discrete-rotation", seeds("liegan", 1e-2, 1e-2, discovery_seconds=7.0))
    text = reproduction(tmp_path)
    assert "| LieGAN | 561 | **2.5** | – |" in text
    assert "each seed by itself, in seconds: LieGAN: 7." in text


def test_document_and_its_figures_are_written(tmp_path: Path) -> None:
    truth = true_generator()[0]
    learned = truth + 0.1 * torch.randn(8, 8)
    measures = {"cosine": 0.9, "cosine_on_data": 0.95, "projection": 1.0}
    write(
        tmp_path / "results",
        "two-body",
        [
            *seeds("trivial", 1e-3, 1e-3),
            *seeds("lieaugmenter-mask2", 1e-5, 1e-5, generators=[learned.tolist()], **measures),
            *seeds("lieaugmenter-mask4", 1e-5, 1e-5, generators=[(-learned).tolist()], **measures),
            run("lieaugmenter-mask0", 0, diverged="a loss is nan"),
        ],
    )
    rotation = [[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]
    write(
        tmp_path / "results",
        "discrete-rotation",
        seeds("lieaugmenter-discrete", 1e-3, generators=rotation, **measures),
    )
    write(tmp_path / "results", "no-symmetry", seeds("trivial", 1e-4))
    document = tmp_path / "docs" / "reproduction.md"
    main([str(tmp_path / "results"), str(document)])
    text = document.read_text(encoding="utf-8")
    assert text == reproduction(tmp_path / "results")
    linked = re.findall(r"\]\((images/[^)]+)\)", text)
    assert len(linked) == 5
    for link in linked:
        assert (document.parent / link).read_bytes().startswith(PNG), link
    written = {path.name for path in (document.parent / "images").iterdir()}
    assert written == {Path(link).name for link in linked}


def test_no_results_at_all_still_give_a_document(tmp_path: Path) -> None:
    document = tmp_path / "reproduction.md"
    write_reproduction(tmp_path / "nowhere", document)
    assert document.read_text(encoding="utf-8").count("Not run") == len(EXPERIMENTS)
    assert not (tmp_path / "images").exists()


def test_aligned_has_the_sign_and_norm_of_the_truth() -> None:
    truth = true_generator()[0]
    torch.testing.assert_close(aligned(-5.0 * truth, truth), truth)


def test_factor_is_of_the_larger_to_the_smaller() -> None:
    assert factor(3.0, 2.0) == factor(2.0, 3.0) == "× 1.50"


def test_every_explanation_has_its_row() -> None:
    for name, row in EXPLANATIONS:
        assert row in ["", *rows_of(EXPERIMENTS[name])]


def test_every_note_has_its_table() -> None:
    for name, key in TABLE_NOTES:
        assert key in [measure.key for measure in measures_of(EXPERIMENTS[name])]


@pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="no results are kept here")
def test_reproduction_document_is_what_the_results_give() -> None:
    written = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert written == reproduction(ROOT / "results"), "run: make reproduction"


def test_results_may_hold_numbers_that_json_cannot(tmp_path: Path) -> None:
    write(tmp_path, "two-body", [run("augerino-mask2", 0, mse=float("inf"))])
    assert json.loads((tmp_path / "two-body.json").read_text())["results"][0]["mse"] is None
    assert row(reproduction(tmp_path), "Augerino+, mask 2")[1] == "diverged (1 of 1)"


def differing_baselines() -> list[tuple[str, str]]:
    """Rows of other methods that are recorded farther from the paper's than both spreads."""
    found = []
    for name, experiment in EXPERIMENTS.items():
        finished = Finished.read(ROOT / "results", experiment)
        measure = measures_of(experiment)[0]
        for method in experiment.methods:
            reported = comparable_value(experiment, method.row, measure)
            if finished is None or reported is None or reported.std is None:
                continue
            ours = finished.statistic(method, measure.key)
            if method.ours or "lieaugmenter" in method.kind or ours is None:
                continue
            if abs(ours.mean - reported.mean) > ours.std + reported.std:
                found.append((name, method.row))
    return found


@pytest.mark.parametrize("row", differing_baselines(), ids="-".join)
def test_every_baseline_that_differs_from_the_paper_is_explained(row: tuple[str, str]) -> None:
    assert row in EXPLANATIONS


def test_an_explanation_points_to_a_section_that_is_there() -> None:
    text = reproduction(ROOT / "results")
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    for target in re.findall(r"\]\(#([^)]+)\)", text):
        assert target in headings


@pytest.mark.parametrize(
    ("measured", "place"),
    [
        ([1.0, 3.0], "between"),
        ([1.95, 5.0], "within the spreads at 0"),
        ([3.0, 5.0], "outside"),
    ],
)
def test_where_the_papers_error_lies_among_the_varied_ones(
    measured: list[float], place: str, tmp_path: Path
) -> None:
    row = {"experiment": "two-body-ood", "method": "trivial-paper"}
    reported = TARGETS["two-body-ood", "trivial", "mse"]
    results = [
        {**row, "seed": 0, "width": float(i), "mse": value * reported.mean / 2}
        for i, value in enumerate(measured)
    ]
    content = {"environment": {"device": "some device"}, "results": results}
    write_json(tmp_path / "sensitivity" / "width.json", content)
    line = next(line for line in sensitivity(tmp_path).splitlines() if "`two-body-ood`" in line)
    assert place in line


def test_without_studies_there_is_no_section_on_them(tmp_path: Path) -> None:
    assert sensitivity(tmp_path) == ""

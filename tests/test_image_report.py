"""The reproduction document on images: tables, requirements, pictures, with much or little run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lieaugmenter.data.files import DataError
from lieaugmenter.data.images import digits
from lieaugmenter.data.task import Task
from lieaugmenter.experiments.catalogue import IMAGES, find_experiment
from lieaugmenter.experiments.results import summary
from lieaugmenter.experiments.spec import Method
from lieaugmenter.experiments.targets import TARGETS
from lieaugmenter.report import image_figures
from lieaugmenter.report.finished import Finished
from lieaugmenter.report.measures import ACCURACY, MSE
from lieaugmenter.report.reproduction import reproduction, write_reproduction
from lieaugmenter.report.words import label
from lieaugmenter.runs import RunError, write_json

ROTATION = [[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]
PNG = b"\x89PNG\r\n\x1a\n"


def confusion(wrong: int = 0) -> list[list[int]]:
    """Ten digits of each class, so many of the sixes taken for nines."""
    counts = [[10 * (i == j) for j in range(10)] for i in range(10)]
    counts[6][6] -= wrong
    counts[6][9] += wrong
    return counts


def run(method: str, seed: int, accuracy: float | None, **measures: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in measures.items()}
    return {
        "method": method,
        "seed": seed,
        "accuracy": accuracy,
        "train-seconds": 2.5,
        "device": "cuda",
        "stacked": False,
        "confusion": confusion(),
        **named,
    }


def seeds(method: str, *accuracies: float, **measures: Any) -> list[dict[str, Any]]:
    return [run(method, seed, accuracy, **measures) for seed, accuracy in enumerate(accuracies)]


def write(folder: Path, name: str, results: list[dict[str, Any]], *, quick: bool = False) -> None:
    experiment = IMAGES[name]
    content = {
        "experiment": name,
        "title": experiment.title,
        "settings": {
            "quick": quick,
            "epochs": experiment.epochs,
            "batch_size": 64,
            "lr": 1e-3,
            "hidden": list(experiment.hidden),
            "n_views": experiment.n_views,
            "range": experiment.range,
            "source": "mnist",
        },
        "results": results,
    }
    write_json(folder / f"{name}.json", content)


def part(text: str, name: str) -> str:
    """The section of an experiment."""
    return text.split(f"## {IMAGES[name].title}\n")[1].split("\n## ")[0]


def row(text: str, first: str) -> list[str]:
    """The cells of the first table row with that first cell."""
    found = re.search(rf"^\| {re.escape(first)} \|(.*)\|$", text, flags=re.M)
    assert found, f"no row {first!r}"
    return [cell.strip() for cell in found[1].split(" | ")]


def outcome(text: str, start: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    assert len(lines) == 1, start
    return lines[0].strip("| ").split(" | ")[3]


# --------------------------------------------------------------------------------------- tables


def test_highest_accuracy_of_a_row_is_bold(tmp_path: Path) -> None:
    write(
        tmp_path,
        "rotated-mnist",
        [
            *seeds("gcnn", 97.5, 97.5),
            *seeds("gcnn-pooled", 97.0, 98.0),
            *seeds("trivial-paper", 96.0, 96.0),
            *seeds("trivial", 95.0, 95.0),
        ],
    )
    text = part(reproduction(tmp_path), "rotated-mnist")
    assert row(text, "p4 CNN, flattened head") == ["96.78 ± 0.36", "**97.50 ± 0.00**", "–"]
    assert row(text, "p4 CNN, invariant head") == ["–", "97.50 ± 0.50", "–"]
    assert row(text, "no augmentation") == ["**96.17 ± 0.34**", "96.00 ± 0.00", "95.00 ± 0.00"]
    assert row(text, "LieAugmenter") == ["99.08 ± 0.06", "not run", "not run"]


def test_differences_of_accuracies_are_in_points(tmp_path: Path) -> None:
    write(
        tmp_path,
        "rotated-mnist-ood",
        [*seeds("trivial-paper", 50.0, 50.0), *seeds("lieaugmenter", 99.0, 99.0)],
    )
    said = [line for line in reproduction(tmp_path).splitlines() if "both spreads and" in line]
    assert "by the points in brackets, **lower** than the paper's for no augmentation" in said[0]
    assert "(5.24 points)" in said[0]
    assert "**higher** than the paper's for LieAugmenter (8.18 points)" in said[1]
    assert "×" not in said[0] + said[1]


def test_inference_without_averaging_has_the_papers_rows_only(tmp_path: Path) -> None:
    write(
        tmp_path,
        "rotated-mnist",
        [
            *seeds("trivial", 96.0, accuracy_direct=96.0),
            *seeds("lieaugmenter", 99.0, accuracy_direct=98.5, accuracy_averaged=98.9),
        ],
    )
    text = part(reproduction(tmp_path), "rotated-mnist").split("### Alternative inference")[1]
    table = text.split("\n### ")[0]
    assert row(table, "LieAugmenter") == ["**98.55 ± 0.08**", "not run", "98.50"]
    assert "no augmentation" not in table
    assert "in points: LieAugmenter (own settings) +0.40." in table


def test_equivariance_errors_are_not_compared_with_those_of_an_unknown_unit(tmp_path: Path) -> None:
    write(tmp_path, "rotated-mnist", seeds("lieaugmenter", 99.0, 99.0, equivariance=0.5))
    text = part(reproduction(tmp_path), "rotated-mnist").split("### Equivariance")[1]
    # The better of ours would be bold, but there is only one.
    assert row(text, "LieAugmenter") == ["3.10 ± 0.320", "not run", "0.500 ± 0.00"]
    assert "both spreads" not in text.split("\n### ")[0]
    # 3.10 / 0.5.
    assert "a sum over the 10 logits, which would be 10 times our means" in text
    assert "with own settings LieAugmenter 6.2." in text


def test_settings_of_an_image_network_have_a_width(tmp_path: Path) -> None:
    for name in IMAGES:
        method = IMAGES[name].methods[0].name
        write(tmp_path, name, seeds(method, 99.0))
    text = reproduction(tmp_path)
    for name in IMAGES:
        line = next(x for x in part(text, name).splitlines() if x.startswith("`lieaugmenter"))
        assert "hidden widths" not in line
        named = {"histology-efficientnet": "EfficientNet-B0", "histology-vit": "Transformer"}
        assert named.get(name, "width 32") in line


def test_other_data_are_said_and_not_compared(tmp_path: Path) -> None:
    write(tmp_path, "histology-cnn", seeds("oracle", 80.0))
    text = part(reproduction(tmp_path), "histology-cnn")
    assert "**A stand-in, not the paper's data.**" in text
    assert "| | paper, on NCT-CRC-HE-100K | ours, own settings |" in text
    assert row(text, "oracle") == ["85.27 ± 3.34", "80.00"]
    assert "both spreads and" not in text


def test_seeds_that_diverged_are_counted(tmp_path: Path) -> None:
    write(tmp_path, "rotated-mnist", [run("augerino", 0, 99.9), run("augerino", 1, None)])
    text = part(reproduction(tmp_path), "rotated-mnist")
    assert row(text, "Augerino+")[:2] == ["**96.85 ± 0.30**", "99.90 (1 of 2 diverged)"]


def test_methods_that_find_a_generator_may_not_have_run(tmp_path: Path) -> None:
    write(tmp_path, "rotated-mnist", seeds("oracle", 99.0))
    text = part(reproduction(tmp_path), "rotated-mnist").split("### Discovery")[1]
    assert row(text, "LieAugmenter") == ["the paper's", "not run", "not run"]
    assert "images/" not in text


def test_summary_shows_accuracies() -> None:
    results = [*seeds("trivial", 95.0, 96.0), *seeds("lieaugmenter", 99.0, cosine=0.5)]
    lines = summary(find_experiment("rotated-mnist"), results)
    assert [line.split("  ")[0] for line in lines] == ["method", "trivial", "lieaugmenter"]
    assert "accuracy" in lines[0]
    assert "MSE" not in lines[0]
    assert "95.50 ± 0.50  96.17 ± 0.34" in lines[1]
    assert lines[2].endswith("  0.5000")  # one seed has no spread
    # The paper's number is of other data.
    tissue = summary(find_experiment("histology-cnn"), seeds("oracle", 80.0))
    assert tissue[1].split() == ["oracle", "80.00", "-", "-"]


# ------------------------------------------------------------------------------ ablations, samples


def test_an_ablation_stands_beside_the_papers_where_it_has_numbers(tmp_path: Path) -> None:
    write(
        tmp_path,
        "rotated-mnist-ablations",
        [
            *seeds("lieaugmenter-range-5", 99.0, 99.0, cosine=0.9999),
            *seeds("lieaugmenter-paper-range-5", 95.0, cosine=0.5),
            *seeds("lieaugmenter-generators-4", 98.0, 98.0, span_cosine=0.995),
        ],
    )
    text = part(reproduction(tmp_path), "rotated-mnist-ablations")
    ranges = text.split("### Range of the coefficients, γ")[1]
    assert row(ranges, "5") == [
        "95.97 ± 3.24",
        "95.00 (1 seed)",
        "99.00 ± 0.00",
        "0.7860 ± 0.3026",
        "0.5000 (1 seed)",
        "0.9999 ± 0.0000",
    ]
    assert row(ranges, "8")[1:3] == ["not run", "not run"]
    generators = text.split("### Number of generators, C")[1]
    assert row(generators, "4") == ["98.00 ± 0.00", "0.9950 ± 0.0000"]
    assert "10 views, γ = 3," in text


def test_samples_are_a_table_of_methods_and_shares(tmp_path: Path) -> None:
    write(tmp_path, "rotated-mnist-samples", seeds("lieaugmenter-data-0.1", 95.0, 97.0))
    text = part(reproduction(tmp_path), "rotated-mnist-samples")
    assert row(text, "test accuracy (%)") == ["1 %", "3 %", "10 %", "30 %", "100 %"]
    ours = row(text, "LieAugmenter, own settings")
    assert ours == ["not run", "not run", "96.00 ± 1.00", "not run", "not run"]


def test_runs_of_the_experiment_itself_stand_for_its_values_in_an_ablation(tmp_path: Path) -> None:
    write(tmp_path, "rotated-mnist", seeds("lieaugmenter", 99.5, cosine=0.9999))
    write(tmp_path, "rotated-mnist-samples", seeds("lieaugmenter-data-0.1", 95.0))
    write(tmp_path, "rotated-mnist-ablations", seeds("lieaugmenter-range-5", 98.0, cosine=0.99))
    text = reproduction(tmp_path)
    shares = row(part(text, "rotated-mnist-samples"), "LieAugmenter, own settings")
    assert shares[-1] == "99.50"
    ranges = part(text, "rotated-mnist-ablations").split("### Range of the coefficients, γ")[1]
    assert row(ranges, "3")[1:3] == ["not run", "99.50"]


def falling(epochs: int) -> dict[str, list[float]]:
    """Losses that halve with every epoch, while the cosine and the range grow."""
    halves = [0.5**epoch for epoch in range(epochs)]
    return {
        "prediction": halves,
        "equivariance": [2 * loss for loss in halves],
        "validation": [3 * loss for loss in halves],
        "range": [1.0 + epoch for epoch in range(epochs)],
        "cosine": [1 - loss for loss in halves],
    }


def test_losses_are_told_at_first_after_a_third_and_at_the_end(tmp_path: Path) -> None:
    write(tmp_path, "rotated-mnist-losses", [run("lieaugmenter", 0, 99.0, losses=falling(6))])
    text = part(reproduction(tmp_path), "rotated-mnist-losses")
    lines = [line for line in text.splitlines() if line.startswith("| own |")]
    assert lines == [
        "| own | 1 | 1.0000 | 2.0000 | 3.0000 | 0.0000 |",
        "| own | 2 | 0.5000 | 1.0000 | 1.5000 | 0.5000 |",
        "| own | 6 | 0.0312 | 0.0625 | 0.0938 | 0.9688 |",
    ]


def test_losses_that_do_not_go_together_are_a_damaged_file(tmp_path: Path) -> None:
    losses = {**falling(6), "cosine": [1.0]}
    write(tmp_path, "rotated-mnist-losses", [run("lieaugmenter", 0, 99.0, losses=losses)])
    with pytest.raises(RunError, match="losses of different lengths"):
        reproduction(tmp_path)


# --------------------------------------------------------------------------------- requirements


def test_accuracies_are_required_to_be_high(tmp_path: Path) -> None:
    bar = TARGETS["rotated-mnist", "lieaugmenter", "accuracy"].mean
    write(tmp_path, "rotated-mnist", seeds("lieaugmenter", bar + 0.03, bar - 0.03, cosine=0.9985))
    write(
        tmp_path,
        "rotated-mnist-ood",
        [
            *seeds("oracle", 99.0, 99.0, equivariance=0.5),
            *seeds("lieaugmenter", 98.4, 98.5, equivariance=0.6, cosine=1.0),
        ],
    )
    text = reproduction(tmp_path)
    assert outcome(text, "`rotated-mnist`: accuracy") == "reached"
    assert outcome(text, "`rotated-mnist`: cosine") == "**missed**, on 2 of 2 seeds"
    assert outcome(text, "`rotated-mnist-ood`: accuracy |") == "**missed**, 0.05 points"
    near = outcome(text, "`rotated-mnist-ood`: accuracy near our oracle's")
    assert near == "**missed**, on 1 of 2 seeds"
    assert outcome(text, "`rotated-mnist-ood`: cosine") == "reached"
    against_oracle = outcome(text, "`rotated-mnist-ood`: equivariance error at most our")
    assert against_oracle == "**missed**, × 1.20"


def test_an_equivariance_error_is_judged_both_ways(tmp_path: Path) -> None:
    write(tmp_path, "rotated-mnist", seeds("lieaugmenter", 99.0, equivariance=0.5))
    write(tmp_path, "rotated-mnist-ood", seeds("lieaugmenter", 99.0, equivariance=0.1))
    text, start = reproduction(tmp_path), "equivariance error at most the paper's"
    by_mean = (
        "reached, by the mean over the logits; by their sum, as the paper's formula is printed"
    )
    assert outcome(text, f"`rotated-mnist`: {start}") == f"{by_mean}, 5.00: missed, × 1.61"
    assert outcome(text, f"`rotated-mnist-ood`: {start}") == f"{by_mean}, 1.00: reached as well"


def test_the_oracle_with_the_papers_settings_is_mentioned_where_it_is_better(
    tmp_path: Path,
) -> None:
    ours = [*seeds("lieaugmenter", 99.0, equivariance=0.5), *seeds("oracle", 99.0, equivariance=1)]
    start = "`rotated-mnist`: equivariance error at most our oracle's"
    write(tmp_path, "rotated-mnist", [*ours, *seeds("oracle-paper", 99.0, equivariance=0.6)])
    assert outcome(reproduction(tmp_path), start) == "reached"
    write(tmp_path, "rotated-mnist", [*ours, *seeds("oracle-paper", 99.0, equivariance=0.4)])
    assert outcome(reproduction(tmp_path), start) == (
        "reached, but the oracle with the paper's settings has 0.400"
    )


def test_hard_settings_and_tissue_have_their_requirements(tmp_path: Path) -> None:
    write(
        tmp_path,
        "rotated-mnist-ablations",
        [
            *seeds("lieaugmenter-range-5", 99.0, 99.0, cosine=0.995),
            run("lieaugmenter-range-8", 0, 99.0, cosine=0.995),
            run("lieaugmenter-range-8", 1, 99.0, cosine=0.5),
            *seeds("lieaugmenter-generators-4", 99.0, span_cosine=0.995, directions=1),
            run("lieaugmenter-generators-6", 0, 99.0, span_cosine=0.98, directions=1),
            run("lieaugmenter-generators-6", 1, 99.0, span_cosine=1.0, directions=3),
        ],
    )
    write(
        tmp_path,
        "histology-vit",
        [*seeds("oracle", 80.0), *seeds("lieaugmenter", 79.2, cosine=0.98)],
    )
    text = reproduction(tmp_path)
    assert outcome(text, "`rotated-mnist-ablations`, γ = 5:") == "reached"
    assert outcome(text, "`rotated-mnist-ablations`, γ = 8:") == "**missed**, on 1 of 2 seeds"
    assert outcome(text, "`rotated-mnist-ablations`, γ = 13:") == "not run"
    for value, measure, said in (
        (4, "span cosine", "reached"), (4, "independent directions", "reached"),
        (6, "span cosine", "**missed**, on 1 of 2 seeds"),
        (6, "independent directions", "**missed**, on 1 of 2 seeds"),
    ):  # fmt: skip
        assert outcome(text, f"`rotated-mnist-ablations`, C = {value}: {measure}") == said
    assert "by seed: 4 generators: 1; 6 generators: 1, 3." in text
    assert outcome(text, "`histology-vit`: accuracy") == "reached"
    assert outcome(text, "`histology-vit`: cosine") == "**missed**, on 1 of 1 seeds"
    assert outcome(text, "`histology-cnn`: accuracy") == "not run"


@pytest.mark.parametrize(("ratio", "judged"), [(1.2, "**missed**, by 0.050"), (1.1, "reached")])
def test_speed_is_judged_from_the_benchmark(ratio: float, judged: str, tmp_path: Path) -> None:
    content = {
        "environment": {"device": "Some GPU"},
        "sizes": {"fitted_images": 54_000},
        "ratio": ratio,
        "fit": {"epochs": 15, "seconds": 13.0},
    }
    write_json(tmp_path / "benchmarks" / "results" / "image_step.json", content)
    text = reproduction(tmp_path / "results")
    assert outcome(text, "speed: a step") == judged
    assert outcome(text, "speed: seconds") == "reached"


def test_quick_runs_are_not_judged(tmp_path: Path) -> None:
    write(tmp_path, "rotated-mnist", seeds("lieaugmenter", 99.9, cosine=1.0), quick=True)
    text = reproduction(tmp_path)
    assert outcome(text, "`rotated-mnist`: accuracy") == "not judged, quick run"
    assert row(part(text, "rotated-mnist"), "LieAugmenter")[2] == "99.90"
    assert "Quick runs, whose numbers mean nothing: `rotated-mnist`" in text


# ------------------------------------------------------------------------------------- pictures


def everything(name: str) -> list[dict[str, Any]]:
    """A result of every method."""
    measures = {"cosine": 0.9, "projection": 1.0, "generators": ROTATION}
    kept = {"losses": falling(4)} if IMAGES[name].losses else {}
    return [run(method.name, 0, 99.0, **measures, **kept) for method in IMAGES[name].methods]


def written(folder: Path) -> list[str]:
    """The pictures beside a document that was just written, which are those that it links."""
    document = folder / "docs" / "reproduction.md"
    write_reproduction(folder / "results", document)
    linked = re.findall(r"\]\(images/([^)]+)\)", document.read_text(encoding="utf-8"))
    found = sorted(path.name for path in (document.parent / "images").iterdir())
    for name in found:
        assert (document.parent / "images" / name).read_bytes().startswith(PNG)
    assert found == sorted(linked)
    return found


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("rotated-mnist-ood", ["closeness", "confusion", "generators"]),
        ("rotated-mnist-ablations", ["sizes", "weights"]),
        ("rotated-mnist-samples", ["accuracy"]),
        ("rotated-mnist-losses", ["losses"]),
        ("histology-cnn", ["closeness", "generators"]),
    ],
)
@pytest.mark.parametrize("results", [everything, lambda name: everything(name)[-1:]])
def test_pictures_are_drawn_from_all_methods_or_one(
    name: str,
    keys: list[str],
    results: Callable[[str], list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    write(tmp_path / "results", name, results(name))
    assert written(tmp_path) == [f"reproduction-{name}-{key}.png" for key in keys]


def test_views_are_drawn_of_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = find_experiment("rotated-mnist")
    write(tmp_path / "results", task.name, everything(task.name))
    monkeypatch.setattr(image_figures, "rotated_mnist", small_digits)
    assert "reproduction-rotated-mnist-views.png" in written(tmp_path)


def test_without_mnist_the_picture_of_views_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**sizes: int) -> None:
        raise DataError("nothing to be had")

    monkeypatch.setattr(image_figures, "rotated_mnist", missing)
    write(tmp_path / "results", "rotated-mnist", everything("rotated-mnist"))
    picture = tmp_path / "docs" / "images" / "reproduction-rotated-mnist-views.png"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(PNG + b"as it was")
    assert picture.name in written(tmp_path)
    assert picture.read_bytes() == PNG + b"as it was"


def small_digits(*, n_train: int, n_validation: int, n_test: int) -> Task:
    """In the place of MNIST, which may have to be downloaded."""
    task = digits(100, 50)
    return replace(task, x_test=task.x_test[:n_test])


def test_sixes_taken_for_nines_are_counted(tmp_path: Path) -> None:
    results = [run("lieaugmenter", seed, 97.0, confusion=confusion(3)) for seed in range(2)]
    write(tmp_path, "rotated-mnist-ood", results)
    text = part(reproduction(tmp_path), "rotated-mnist-ood")
    assert "Of the 200 predictions" in text
    assert "(2 seeds) 6 are wrong, and 6 of these take a 6 for a 9" in text


def test_the_paper_has_ranges_that_are_not_run_here() -> None:
    finished = Finished(IMAGES["rotated-mnist-ablations"], {"quick": False}, [])
    values = [1.0, 2.0]
    curves = image_figures._ablation_curves(finished, "range", values, cosine=False)
    paper = curves[-1]
    assert paper.label == "paper"
    assert [value for value, _ in paper.points] == [1, 2, 3, 5, *range(8, 18), 21]
    assert paper.points[2][1].mean == 99.08
    assert all(not curve.points for curve in curves[:-1])


# -------------------------------------------------------------------------------------- labels


def test_rows_have_labels() -> None:
    for experiment in IMAGES.values():
        for method in experiment.methods:
            assert label(method.row)
    assert label("gcnn-pooled") == "p4 CNN, invariant head"
    assert label(Method("lieaugmenter", "range-5").row) == "LieAugmenter, γ = 5"


def test_a_measure_knows_what_is_better() -> None:
    assert ACCURACY.is_better(99.0, 98.0)
    assert not MSE.is_better(99.0, 98.0)

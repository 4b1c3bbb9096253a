"""The paper's numbers: spot values, and the whole transcription against the paper's source."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from lieaugmenter.experiments.targets import TABLES, TARGETS, Reported, Table

# What the paper calls a row, and what we call the method.
METHODS = {
    "EMLP": "emlp",
    "Trivial": "trivial",
    "No aug": "trivial",
    "Oracle": "oracle",
    "Augerino+": "augerino",
    "LieGAN": "liegan",
    "LieAugmenter": "lieaugmenter",
}
ROW = re.compile(
    rf"({'|'.join(map(re.escape, METHODS))})(?:\\_ ?(?P<mask>\d)| \((?P<sampling>\w+)\))?"
)
NUMBER = re.compile(r"\d+(?::\d\d)+|\d+\.\d+(?:e[+-]\d\d)?")


@pytest.fixture(scope="module")
def tabulars() -> dict[str, str]:
    """Each label of the paper's source with the tabular next to it."""
    folder = os.environ.get("LIEAUGMENTER_DATA")
    path = Path(folder or ".").resolve().parent / "paper" / "lieaugmenter.tex"
    if not folder or not path.is_file():
        pytest.skip("LIEAUGMENTER_DATA/../paper/lieaugmenter.tex is not there")
    text = path.read_text(encoding="utf-8")
    found = list(re.finditer(r"\\begin{tabular}.*?\\end{tabular}", text, flags=re.S))

    def next_to(position: int) -> str:
        def distance(tabular: re.Match[str]) -> int:
            return min(abs(tabular.start() - position), abs(tabular.end() - position))

        return min(found, key=distance)[0]

    return {
        label[1]: next_to(label.start()) for label in re.finditer(r"\\label{(tab:[^}]+)}", text)
    }


def rows_of_the_paper(tabular: str) -> list[tuple[str, list[str]]]:
    rows = []
    for line in tabular.splitlines():
        head, dollar, cells = line.partition("$")
        row = ROW.search(head)
        if dollar and row:
            suffix = f"-mask{row['mask']}" if row["mask"] else ""
            suffix += f"-{row['sampling']}" if row["sampling"] else ""
            rows.append((METHODS[row[1]] + suffix, NUMBER.findall(cells)))
    return rows


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.label)
def test_transcription_is_the_papers(table: Table, tabulars: dict[str, str]) -> None:
    """Every row, in order, and in it every number, digit by digit."""
    ours = [
        (method, [number for cell in cells for number in cell.split("±")])
        for method, *cells in (line.split() for line in table.text.strip().splitlines())
    ]
    assert ours == rows_of_the_paper(tabulars[table.label])


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.label)
def test_no_number_of_a_paper_table_is_left_out(table: Table, tabulars: dict[str, str]) -> None:
    body = tabulars[table.label].partition("rule")[2]
    numbers = re.findall(r"\d+(?::\d\d)+|\d+\.\d+e[+-]\d\d|\d+\.\d{4}", body)
    assert numbers == NUMBER.findall(table.text)


@pytest.mark.parametrize(
    ("key", "mean", "std"),
    [
        (("two-body", "emlp", "mse"), 1.74e-6, 1.50e-6),
        (("two-body", "lieaugmenter-mask2", "mse"), 1.30e-5, 5.58e-6),
        (("two-body", "lieaugmenter-mask2", "equivariance"), 3.28e-3, 9.36e-4),
        (("two-body-ood", "lieaugmenter-mask2", "mse"), 3.73e-5, 2.97e-5),
        (("two-body-ood", "liegan-mask4", "equivariance"), 2.78e-3, 3.62e-4),
        (("two-body", "oracle", "equivariance-2"), 6.35e-3, 1.44e-3),
        (("two-body", "lieaugmenter-mask2", "train-seconds"), 508, None),
        (("two-body-ood", "augerino-mask4", "test-seconds"), 2, None),
        (("two-body-3", "augerino-mask2", "mse"), 8.70, 10.0),
        (("two-body-3-ood", "lieaugmenter-mask0", "mse"), 1.59e-4, 1.93e-4),
        (("two-body-3-ood", "lieaugmenter-mask2", "equivariance-2"), 2.13e-2, 2.66e-3),
        (("two-body-3", "emlp", "train-seconds"), 1052, None),
        (("discrete-rotation", "lieaugmenter-discrete", "mse"), 3.36e-3, 4.56e-4),
        (("discrete-rotation", "trivial", "equivariance-2"), 1.24e-1, 2.39e-3),
        (("discrete-rotation", "lieaugmenter-discrete", "train-seconds"), 891, None),
        (("partial-permutation", "liegan", "mse"), 1.24e4, 2.90e3),
        (("partial-permutation", "oracle", "equivariance"), 14.1, 2.06),
        (("no-symmetry", "lieaugmenter", "distance"), 5.5936, 0.0123),
        (("no-symmetry", "lieaugmenter", "displacement"), 10.6570, 4.4892),
        (("no-symmetry", "oracle", "mse"), 6.31e-4, 4.24e-4),
        (("no-symmetry", "liegan", "train-seconds"), 208, None),
    ],
)
def test_spot_values(key: tuple[str, str, str], mean: float, std: float | None) -> None:
    assert TARGETS[key] == Reported(mean, std)


def test_no_key_is_given_twice() -> None:
    assert len(TARGETS) == sum(len(list(table.entries())) for table in TABLES)


def test_every_experiment_and_measure_is_there() -> None:
    count = {"two-body": 60, "two-body-ood": 60, "two-body-3": 60, "two-body-3-ood": 60}
    count |= {"discrete-rotation": 30, "partial-permutation": 30, "no-symmetry": 21}
    experiments = [experiment for experiment, _, _ in TARGETS]
    assert {name: experiments.count(name) for name in set(experiments)} == count
    errors = {"mse", "equivariance", "equivariance-2"}
    times = {"train-seconds", "test-seconds"}
    assert {measure for _, _, measure in TARGETS} == errors | times | {"displacement", "distance"}

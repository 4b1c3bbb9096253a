"""The paper's numbers: spot values, and the whole transcription against the paper's source."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from lieaugmenter.experiments.targets import (
    OTHER_DATA,
    PAPER_ONLY,
    TABLES,
    TARGETS,
    Reported,
    Table,
    TurnedTable,
)

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
# A row of the range's ablation has nothing but its value; it is one of LieAugmenter.
RANGE = re.compile(r"^\s*(\d+)\.0\s*&\s*$")
# What the paper calls a row of a table that has a column for each method: its split and measure.
SPLIT_ROW = re.compile(r"\b(ID|OOD) (Acc|Equiv|train time|test time)")
NUMBER = re.compile(r"\d+(?::\d\d)+|\d+\.\d+(?:e[+-]\d\d)?")
# Tables of a row or two without spreads.
OF_MOLECULES = [table for table in TABLES if "qm9" in table.label]
OTHERS = [table for table in TABLES if table not in OF_MOLECULES]
BY_METHOD = [table for table in OTHERS if isinstance(table, Table)]
TURNED = [table for table in OTHERS if isinstance(table, TurnedTable)]
LABELS = list(dict.fromkeys(table.label for table in BY_METHOD))


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
        elif dollar and (value := RANGE.match(head)):
            rows.append((f"lieaugmenter-range-{value[1]}", NUMBER.findall(cells)))
    return rows


def texts_of(label: str) -> str:
    """What we have of a table; one that is of several experiments is in parts."""
    return "".join(table.text for table in BY_METHOD if table.label == label)


def turned_rows_of_the_paper(tabular: str) -> list[tuple[str, str, list[str]]]:
    rows = []
    for line in tabular.splitlines():
        row = SPLIT_ROW.search(line)
        if row:
            rows.append((row[1], row[2], NUMBER.findall(line)))
    return rows


@pytest.mark.parametrize("label", LABELS)
def test_transcription_is_the_papers(label: str, tabulars: dict[str, str]) -> None:
    """Every row, in order, and in it every number, digit by digit."""
    lines = [line.split() for line in texts_of(label).splitlines() if line.strip()]
    ours = [
        (method, [number for cell in cells for number in cell.split("±")])
        for method, *cells in lines
    ]
    assert ours == rows_of_the_paper(tabulars[label])


@pytest.mark.parametrize("table", TURNED, ids=lambda table: table.label)
def test_transcription_of_turned_tables_is_the_papers(
    table: TurnedTable, tabulars: dict[str, str]
) -> None:
    """Every row with its split and measure, in order, and in it every number, digit by digit."""
    measures = {"accuracy": "Acc", "train-seconds": "train time", "test-seconds": "test time"}
    ours = []
    for line in table.text.strip().splitlines():
        split, measure, *cells = line.split()
        numbers = [number for cell in cells for number in cell.split("±")]
        ours.append((split, measures.get(measure.removesuffix("-direct"), "Equiv"), numbers))
    assert ours == turned_rows_of_the_paper(tabulars[table.label])


@pytest.mark.parametrize("table", TURNED, ids=lambda table: table.label)
def test_columns_of_turned_tables_are_the_papers(
    table: TurnedTable, tabulars: dict[str, str]
) -> None:
    names = {"GCNN": "gcnn", "Rotation": "oracle", **METHODS}
    # The last row before the numbers names the columns.
    head = tabulars[table.label].partition(r"\midrule")[0].rpartition("}\n")[2]
    cells = [re.sub(r"\(.*?\)|Aug\.|\\\\", "", cell).strip() for cell in head.split("&")[1:]]
    assert tuple(names[cell] for cell in cells) == table.methods


@pytest.mark.parametrize("table", OF_MOLECULES, ids=lambda table: table.label)
def test_transcription_of_tables_of_molecules_is_the_papers(
    table: Table | TurnedTable, tabulars: dict[str, str]
) -> None:
    """Every number, digit by digit, in order."""
    assert NUMBER.findall(table.text) == NUMBER.findall(tabulars[table.label])


@pytest.mark.parametrize("label", [*LABELS, *(table.label for table in TURNED)])
def test_no_number_of_a_paper_table_is_left_out(label: str, tabulars: dict[str, str]) -> None:
    body = tabulars[label].partition("rule")[2]
    numbers = re.findall(r"\d+(?::\d\d)+|\d+\.\d+e[+-]\d\d|\d+\.\d{4}|\b\d+\.\d\d(?=[^\de])", body)
    text = texts_of(label) + "".join(table.text for table in TURNED if table.label == label)
    assert numbers == NUMBER.findall(text)


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
        (("rotated-mnist", "lieaugmenter", "accuracy"), 99.08, 0.06),
        (("rotated-mnist", "gcnn", "equivariance"), 5.31, 1.16),
        (("rotated-mnist-ood", "lieaugmenter", "accuracy"), 90.82, 6.49),
        (("rotated-mnist-ood", "lieaugmenter", "accuracy-direct"), 93.40, 2.46),
        (("rotated-mnist-ood", "oracle", "equivariance-2"), 4.75, 0.38),
        (("rotated-mnist", "lieaugmenter", "train-seconds"), 467, None),
        (("rotated-mnist", "liegan", "train-seconds-direct"), 585, None),
        (("rotated-mnist-ablations", "lieaugmenter-range-13", "cosine"), 0.9812, 0.0178),
        (("histology-vit", "lieaugmenter", "accuracy"), 85.63, 2.93),
        (("qm9-homo", "lieaugmenter", "mae"), 37.1, None),
        (("qm9-lumo", "oracle", "mae"), 29.8, None),
        (("qm9-lumo", "lieaugmenter", "equivariance-2"), 0.0019, None),
        (("qm9-homo", "lieaugmenter", "train-seconds"), 55_032, None),
    ],
)
def test_spot_values(key: tuple[str, str, str], mean: float, std: float | None) -> None:
    assert TARGETS[key] == Reported(mean, std)


def test_no_key_is_given_twice() -> None:
    entries = sum(len(list(table.entries())) for table in TABLES)
    assert len(TARGETS) + len(PAPER_ONLY) == entries


def test_what_only_the_paper_has_is_kept_apart() -> None:
    assert not TARGETS.keys() & PAPER_ONLY.keys()
    key = ("rotated-mnist-ablations", "lieaugmenter-range-12", "accuracy")
    assert PAPER_ONLY[key] == Reported(96.74, 2.14)


def test_data_that_are_not_the_papers_are_named() -> None:
    networks = ("cnn", "efficientnet", "vit")
    assert {f"histology-{name}": "NCT-CRC-HE-100K" for name in networks} == OTHER_DATA


def test_every_experiment_and_measure_is_there() -> None:
    count = {"two-body": 60, "two-body-ood": 60, "two-body-3": 60, "two-body-3-ood": 60}
    count |= {"discrete-rotation": 30, "partial-permutation": 30, "no-symmetry": 21}
    count |= {"rotated-mnist": 48, "rotated-mnist-ood": 48, "rotated-mnist-ablations": 14}
    count |= {"qm9-homo": 8, "qm9-lumo": 8}
    count |= {"histology-cnn": 6, "histology-efficientnet": 6, "histology-vit": 6}
    experiments = [experiment for experiment, _, _ in TARGETS]
    assert {name: experiments.count(name) for name in set(experiments)} == count
    errors = {"mse", "mae", "accuracy", "equivariance", "equivariance-2"}
    times = {"train-seconds", "test-seconds"}
    direct = {f"{measure}-direct" for measure in errors - {"mse", "mae"} | times}
    others = {"displacement", "distance", "cosine"}
    assert {measure for _, _, measure in TARGETS} == errors | times | direct | others

"""Documents that cannot rot: commands run, code runs, every equation has its home."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def fenced(text: str, language: str) -> list[str]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.M | re.S)
    return [content for found, content in fences if found == language]


# Blocks run one after the other, each with names of its own: what takes long is starting Python.
RUN_BLOCKS = """
import json, sys
for number, code in enumerate(json.load(sys.stdin)):
    exec(compile(code, f"block {number}", "exec"), {"__name__": "__main__"})
"""


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/guide.md",
        "docs/export.md",
        "docs/check.md",
        "docs/faults.md",
        "docs/scale.md",
    ],
)
def test_python_of_the_documents_runs(name: str, tmp_path: Path) -> None:
    blocks = fenced((ROOT / name).read_text(encoding="utf-8"), "python")
    assert blocks
    done = subprocess.run(
        [sys.executable, "-c", RUN_BLOCKS],
        input=json.dumps(blocks),
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{name}: {done.stderr}"


def test_commands_of_the_readme_run(tmp_path: Path) -> None:
    """In the README's order; only the length of training is cut."""
    x = np.random.default_rng(0).normal(size=(200, 3))
    np.savez(tmp_path / "data.npz", X=x, y=x[:, 0])
    np.savez(tmp_path / "new.npz", X=x)
    commands = [
        line
        for block in fenced(README, "")
        for line in block.splitlines()
        if line.startswith("lieaugmenter ")
    ]
    assert len(commands) == 10
    for command in commands:
        words = shlex.split(command)[1:]
        if words[0] in ("demo", "discover", "sweep"):
            words += ["--epochs", "1"]
        done = subprocess.run(
            [sys.executable, "-m", "lieaugmenter.cli", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_make_targets_of_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"^make (\w+)", (ROOT / name).read_text(), flags=re.M):
            assert re.search(rf"^{target}:", makefile, flags=re.M), f"{name}: make {target}"


def test_every_equation_is_mapped_and_its_home_says_so() -> None:
    rows = re.findall(
        r"^\| \((\d+)\)(?:–\((\d+)\))? \|[^|]*\| ([^|]*) \|",
        (ROOT / "docs" / "equations.md").read_text(encoding="utf-8"),
        flags=re.M,
    )
    covered: set[int] = set()
    for first, last, home in rows:
        numbers = range(int(first), int(last or first) + 1)
        covered |= set(numbers)
        path = re.fullmatch(r"`(src/.*)`", home.strip())
        if path:
            text = (ROOT / path[1]).read_text(encoding="utf-8")
            for number in numbers:
                assert f"Eq. ({number})" in text, f"{path[1]} does not say Eq. ({number})"
    assert covered == set(range(1, 41))


def test_no_equation_of_the_code_is_beyond_the_paper() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        for number in re.findall(r"Eq\. \((\d+)\)", path.read_text(encoding="utf-8")):
            assert 1 <= int(number) <= 40, f"{path.name} names Eq. ({number})"


def test_numbers_of_the_readme_come_from_results(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import readme
    finally:
        sys.path.pop(0)
    assert readme.with_results(README) == README, "run: python benchmarks/readme.py"


def test_numbers_of_the_performance_page_come_from_results() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import performance
    finally:
        sys.path.pop(0)
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert performance.with_tables(page) == page, "run: python benchmarks/performance.py"
    kernels = {
        "_norm_swish_kernel": "batch norm, swish, residual sum",
        "_pair_second_kernel": "networks on pairs",
    }
    assert {name: performance.group_of(name) for name in kernels} == kernels


def test_results_carry_seed_settings_and_device() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        content = json.loads(path.read_text())
        assert {"torch", "device", "time"} <= set(content["environment"]), path.name


def test_version_is_the_same_everywhere() -> None:
    import lieaugmenter

    citation = (ROOT / "CITATION.cff").read_text()
    assert f"version: {lieaugmenter.__version__}" in citation
    assert f"## {lieaugmenter.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_links_between_documents_lead_somewhere() -> None:
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").rglob("*.py")), ids=lambda p: p.stem)
def test_benchmarks_ask_for_nothing_that_is_gone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most need hours or a GPU; what they import of this project is there all the same."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    for module, names in _imported(path):
        found = importlib.import_module(module)
        for name in names:
            is_there = hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}")
            assert is_there, f"{path.name}: {module} has no {name}"


def _imported(path: Path) -> Iterator[tuple[str, list[str]]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("lieaug", "steps")):
            yield str(node.module), [alias.name for alias in node.names]

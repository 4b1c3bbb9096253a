"""The report: one page that holds everything, believes no string, and is the same every time."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor

pytest.importorskip("matplotlib")

import matplotlib

from lieaugmenter.analysis.verdict import Verdict
from lieaugmenter.data.dynamics import FEATURES, true_generator, two_body
from lieaugmenter.lie.catalogue import lift, scaling, se, so, translations
from lieaugmenter.report import orbits, plots
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.html import format_value, render, write_report
from lieaugmenter.runs import RunFolder, read_json

SECTIONS = ("verdict", "numbers", "generators", "action", "training", "reproduce")
HOSTILE = "<script>alert(1)</script>"
MATHS = ("$x^2$", "_a$b", r"\frac{1}{", "a & b", 'id="x"', "]]>", "温度", "two\nlines")


def verdict(outcome: str = "inconclusive", dimension: int = 1) -> Verdict:
    return Verdict(outcome, None, dimension, 0.0231234, 0.0291, 0.998, ["A reason.", "Another."])


def history(epochs: int) -> list[dict[str, Any]]:
    return [
        {
            "epoch": epoch,
            "prediction": math.exp(-epoch),
            "equivariance": 3 * math.exp(-epoch / 2),
            "sparsity": 9.0,
            "validation": math.exp(-epoch / 2) if epoch % 2 else None,
            "lr": 1e-3,
            "range": min(2.0, 0.5 * epoch),
            "seconds": 0.1,
        }
        for epoch in range(1, epochs + 1)
    ]


def noisy(basis: Tensor) -> Tensor:
    noise = torch.randn(basis.shape, generator=torch.Generator().manual_seed(0))
    return basis + 0.02 * noise


@cache
def orbits_findings() -> Findings:
    return Findings(
        title="Two bodies",
        sentence="One rotation was found.",
        verdict=verdict(),
        generators=-noisy(true_generator()),
        ranges=[2.0],
        action="vector",
        feature_names=list(FEATURES),
        samples=two_body(4, 4).x_train,
        truth=true_generator(),
        history=history(20),
        numbers={"test loss": 1.23456e-5, "samples": 72},
        settings={"action": "vector", "objective": {"prediction": 1.0}, "widths": [64, 64]},
        environment={"torch": "2.13"},
        command="lieaugmenter demo --seed 0",
    )


def points_findings() -> Findings:
    cloud = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(1))
    return replace(
        orbits_findings(),
        title="Clouds",
        verdict=verdict("refuted", 3),
        generators=noisy(lift(so(3))),
        ranges=[1.0, 2.0, 0.5],
        action="affine",
        feature_names=["x", "y", "z"],
        samples=cloud,
        truth=lift(so(3)),
    )


def image_findings(channels: int = 1, side: int = 8) -> Findings:
    pixels = torch.rand(3, channels, side, side, generator=torch.Generator().manual_seed(2))
    return replace(
        orbits_findings(),
        title="Digits",
        verdict=Verdict("certified", "so(2)", 1, 0.01, 0.02, 0.97, []),
        generators=noisy(lift(so(2))),
        action="image",
        feature_names=["x", "y", "1"],
        samples=pixels,
        truth=None,
        history=[],
        command=None,
    )


KINDS = {"vector": orbits_findings, "affine": points_findings, "image": image_findings}


@cache
def page_of(kind: str) -> str:
    return render(KINDS[kind]())


def text_of(figure: Any) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", plots.svg(figure)))


@pytest.mark.parametrize("kind", list(KINDS))
class TestEveryPage:
    def test_has_all_sections_and_pictures(self, kind: str) -> None:
        page, findings = page_of(kind), KINDS[kind]()
        for section in SECTIONS:
            assert f'<section id="{section}"' in page
        assert page.count("<svg") == 3
        assert findings.title in page
        assert findings.verdict.outcome in page
        assert all(reason in page for reason in findings.verdict.reasons)

    def test_loads_nothing_and_runs_nothing(self, kind: str) -> None:
        page = page_of(kind)
        assert "<script" not in page.lower()
        assert "javascript:" not in page.lower()
        assert "@import" not in page
        without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
        assert "http://" not in without_names
        assert "https://" not in without_names
        targets = re.findall(r'(?:\bsrc|\bhref)="([^"]*)"', page)
        assert all(target.startswith(("#", "data:")) for target in targets)
        assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))

    def test_names_every_id_once_and_refers_to_its_own(self, kind: str) -> None:
        page = page_of(kind)
        ids = Counter(re.findall(r'\bid="([^"]*)"', page))
        assert max(ids.values()) == 1
        assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', page)) <= set(ids)

    def test_is_the_same_twice(self, kind: str) -> None:
        assert render(KINDS[kind]()) == page_of(kind)


def test_the_svg_is_well_formed() -> None:
    for picture in re.findall(r"<svg.*?</svg>", page_of("vector"), flags=re.DOTALL):
        ElementTree.fromstring(picture)


def test_verdict_shows_its_word_sign_and_numbers() -> None:
    page = page_of("vector")
    assert 'class="card verdict inconclusive"' in page
    assert "0.02312" in page
    assert "95 % upper bound 0.0291" in page
    assert "✓" in page_of("image")
    assert "so(2)" in page_of("image")


def test_unknown_outcome_promises_nothing() -> None:
    page = render(replace(image_findings(), verdict=verdict('odd" onclick="x')))
    assert 'class="card verdict inconclusive"' in page
    assert 'onclick="' not in page


def test_strings_are_text_wherever_they_stand() -> None:
    names = [HOSTILE, *MATHS][:8]
    hostile = replace(
        orbits_findings(),
        title=HOSTILE,
        sentence=f"{HOSTILE} {{{{ 7 * 7 }}}}",
        verdict=Verdict(HOSTILE, HOSTILE, 1, None, None, None, [HOSTILE]),
        feature_names=names,
        history=[{"epoch": 1, HOSTILE: 1.0}, {"epoch": 2, HOSTILE: 0.5}],
        numbers={HOSTILE: HOSTILE},
        settings={HOSTILE: {HOSTILE: [HOSTILE]}},
        environment={HOSTILE: HOSTILE},
        command=HOSTILE,
    )
    page = render(hostile)
    assert "<script" not in page
    assert "{{ 7 * 7 }}" in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 11
    for picture in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        ElementTree.fromstring(picture)


@pytest.mark.parametrize("name", MATHS)
def test_feature_names_are_drawn_as_they_are(name: str) -> None:
    # Two names, so that one is an axis of an orbit and both are ticks of the heat-map.
    findings = replace(
        orbits_findings(),
        generators=so(2),
        truth=None,
        feature_names=[name, "y"],
        samples=torch.ones(2, 2),
    )
    shown = plots.clean(name)
    assert shown in text_of(plots.generator_heatmaps(findings))
    assert shown in text_of(orbits.orbits(findings))


def test_lone_surrogates_do_not_stop_the_file(tmp_path: Path) -> None:
    findings = replace(image_findings(), title="\ud800", feature_names=["\ud800", "y", "1"])
    assert write_report(findings, tmp_path / "report.html").read_text(encoding="utf-8")


def test_report_survives_a_run_folder(tmp_path: Path) -> None:
    asked = orbits_findings()
    run = RunFolder.create(tmp_path / "run", {"parameters": asked.settings})
    run.write_metrics(asked.history)
    findings = replace(asked, environment=read_json(run.path / "environment.json"))
    findings.save(run)
    path = write_report(Findings.load(run), run.path / "report.html")
    assert path == run.path / "report.html"
    assert path.read_text(encoding="utf-8") == render(findings)


def test_writing_leaves_nothing_but_the_report(tmp_path: Path) -> None:
    write_report(image_findings(), tmp_path / "new" / "report.html")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["report.html"]


def test_learned_generators_are_matched_to_the_true_ones() -> None:
    findings = replace(
        points_findings(), generators=torch.stack([lift(so(3))[1], -lift(so(3))[0], lift(so(3))[2]])
    )
    words = text_of(plots.generator_heatmaps(findings))
    assert words.index("−L2, learned") < words.index("L1, learned") < words.index("L3, learned")
    assert words.count("cosine similarity 1.0000") == 3
    assert "true span: 1.0000" in render(findings)


def test_fewer_learned_than_true_ones_are_shown_without_a_difference() -> None:
    findings = replace(
        points_findings(), generators=noisy(lift(so(3)))[:1], truth=se(3), ranges=[1.0]
    )
    words = text_of(plots.generator_heatmaps(findings))
    assert "difference" not in words
    assert "true 6 of 6" in words
    assert "fewer than the 6 true ones" in render(findings)


def test_without_truth_nothing_is_compared() -> None:
    words = text_of(plots.generator_heatmaps(replace(orbits_findings(), truth=None)))
    assert "L1, learned" in words
    assert "true" not in words


@pytest.mark.parametrize(
    ("generator", "affine", "planes"),
    [
        (true_generator()[0], False, [(0, 1), (2, 3), (4, 5)]),
        (noisy(true_generator())[0], False, [(0, 1), (2, 3), (4, 5)]),
        (scaling(2)[0], False, [(0,), (1,)]),
        (lift(so(3))[1], True, [(0, 2)]),
        (translations(2)[0], True, [(0, 1)]),
        (translations(1)[0], True, [(0,)]),
        (torch.zeros(3, 3), False, []),
    ],
)
def test_planes_are_those_that_the_generator_moves(
    generator: Tensor, affine: bool, planes: list[tuple[int, ...]]
) -> None:
    assert orbits.moving_planes(generator, affine=affine) == planes


@pytest.mark.parametrize(
    ("action", "generators", "samples"),
    [
        ("vector", torch.ones(1, 1, 1), torch.ones(4, 1)),
        ("vector", torch.zeros(2, 3, 3), torch.zeros(4, 3)),
        ("vector", 1e6 * so(3), torch.randn(4, 3)),
        ("affine", 1e6 * translations(2), torch.randn(4, 2)),
        ("vector", torch.full((1, 2, 2), torch.nan), torch.randn(4, 2)),
        ("vector", so(2), torch.zeros(0, 2)),
        ("points", so(2), torch.zeros(2, 3, 2)),
        ("affine", translations(1), torch.randn(4, 1)),
        ("fourvector", 9 * torch.eye(4).unsqueeze(0), torch.randn(4, 2, 4)),
        ("vector", so(7), torch.randn(4, 7)),
        ("vector", so(40)[:1], torch.randn(4, 40)),
        ("direct sum", so(3), torch.randn(4, 7)),
        ("image", lift(so(2)), torch.rand(1, 3, 200, 150)),
        ("image", lift(so(2)), torch.zeros(5, 2, 6, 6, dtype=torch.uint8)),
    ],
    ids=[
        "line",
        "zero",
        "fast-turn",
        "long-shift",
        "not-finite",
        "no-samples",
        "sets-at-the-origin",
        "shift-of-a-line",
        "growing",
        "many-generators",
        "many-features",
        "unknown-shape",
        "large-colour-image",
        "empty-image",
    ],
)
def test_unusual_findings_still_make_a_page(
    action: str, generators: Tensor, samples: Tensor
) -> None:
    findings = Findings(
        "t", "s", verdict(), generators, [2.0] * len(generators), action, [], samples
    )
    assert render(findings).count("<svg") == 3


@pytest.mark.parametrize(
    "records",
    [
        [],
        [{}],
        history(1),
        [{"prediction": None, "range": None}],
        [{"epoch": 1, "prediction": 0.0}, {"epoch": 2, "prediction": math.nan}],
        [{"epoch": 1, "prediction": 0.3}, {"epoch": 2}, {"epoch": 3, "prediction": 0.31}],
        [{"epoch": 1, "range": 1.0}],
        [{"epoch": e, "prediction": 10.0**-e, "note": "text", "done": True} for e in range(1, 40)],
    ],
    ids=["empty", "blank", "one", "none", "not-positive", "gap", "only-range", "many-decades"],
)
def test_any_history_can_be_drawn(records: list[dict[str, Any]]) -> None:
    words = text_of(plots.loss_curves(replace(orbits_findings(), history=records)))
    assert "epoch" in words or "No training history" in words
    assert "note" not in words


def test_loss_curves_name_their_terms() -> None:
    words = text_of(plots.loss_curves(orbits_findings()))
    for name in ("prediction", "equivariance", "validation", "sparsity", "range of w"):
        assert name in words
    assert "seconds" not in words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.99612345, "0.9961"),
        (-2.5, "−2.5"),
        (1.23456e-5, "1.235 × 10⁻⁵"),
        (123456.0, "123500"),
        (3.2e12, "3.2 × 10¹²"),
        (math.nan, "–"),
        (None, "–"),
        (True, "yes"),
        (20240101, "20240101"),
        ((1, 2.0), "1, 2"),
        ([], "–"),
        ({"a": 1e-3}, "a: 0.001"),
        ("text", "text"),
    ],
)
def test_values_are_written_for_readers(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_settings_of_matplotlib_are_neither_used_nor_changed() -> None:
    with matplotlib.rc_context({"font.size": 30.0, "axes.facecolor": "black", "text.usetex": True}):
        before = dict(matplotlib.rcParams)
        page = render(orbits_findings())
        assert dict(matplotlib.rcParams) == before
    assert page == page_of("vector")


def test_pyplot_is_never_imported() -> None:
    program = (
        "import sys, torch\n"
        "from lieaugmenter.analysis.verdict import Verdict\n"
        "from lieaugmenter.report.findings import Findings\n"
        "from lieaugmenter.report.html import render\n"
        "turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]])\n"
        "found = Verdict('refuted', None, 1)\n"
        "render(Findings('t', 's', found, turn, [1.0], 'vector', ['x', 'y'], torch.ones(2, 2)))\n"
        "assert 'matplotlib.figure' in sys.modules\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("library", ["matplotlib", "jinja2"])
def test_missing_library_is_named_with_its_remedy(library: str) -> None:
    program = (
        f"import sys\nsys.modules[{library!r}] = None\n"
        "try:\n    import lieaugmenter.report.html\n"
        "except ImportError as error:\n    print(error)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip().endswith("pip install 'lieaugmenter[report]'")
    assert library in finished.stdout

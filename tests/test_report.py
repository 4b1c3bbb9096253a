"""The report: one page that holds everything, believes no string, and is the same every time."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, replace
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from report_cases import (
    KINDS,
    history,
    image_findings,
    noisy,
    nothing_findings,
    orbits_findings,
    points_findings,
    table,
    verdict,
)
from torch import Tensor

pytest.importorskip("matplotlib")

import matplotlib
from matplotlib.figure import Figure

from lieaugmenter.analysis.bench import Row
from lieaugmenter.analysis.verdict import Verdict
from lieaugmenter.lie.catalogue import lift, se, so, translations
from lieaugmenter.report import orbits, plots
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.heatmaps import heatmaps
from lieaugmenter.report.html import format_value, render, write_report
from lieaugmenter.runs import RunFolder, read_json

SECTIONS = ("verdict", "move", "dimensions", "predictor", "training", "numbers", "reproduce")
OF_WHAT_WAS_FOUND = ("generators", "departure", "algebra")
HOSTILE = "<script>alert(1)</script>"
MATHS = ("$x^2$", "_a$b", r"\frac{1}{", "a & b", 'id="x"', "]]>", "温度", "two\nlines")
# What the page itself runs: its script, and the data that the script reads.
OWN_SCRIPTS = 2


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
            assert f' id="{section}"' in page
        for section in OF_WHAT_WAS_FOUND:
            assert (f' id="{section}"' in page) == bool(len(findings.generators))
        assert findings.title in page
        assert findings.verdict.outcome in page
        assert all(reason in page for reason in findings.verdict.reasons)

    def test_loads_nothing_and_runs_only_its_own_script(self, kind: str) -> None:
        page = page_of(kind)
        scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, flags=re.DOTALL)
        assert len(scripts) == (OWN_SCRIPTS if KINDS[kind]().sweep else 0)
        for text in scripts[1:]:
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"script-src 'sha256-{digest}'" in page
        assert "javascript:" not in page.lower()
        assert "@import" not in page
        without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
        assert "http://" not in without_names
        assert "https://" not in without_names
        targets = re.findall(r'(?:\bsrc|\bhref)="([^"]*)"', page)
        assert all(target.startswith(("#", "data:")) for target in targets)
        assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))

    def test_is_small(self, kind: str) -> None:
        assert len(page_of(kind).encode()) < 1_000_000

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


def test_a_certificate_by_imposing_says_so_above_its_defect_from_before() -> None:
    tried = Verdict("certified", "so(2)", 1, 0.09, 0.104, 0.99, [], imposed=True)
    page = render(replace(orbits_findings(), verdict=tried))
    assert "certified by imposing it" in page
    assert "defect before" in page


def test_a_defect_below_zero_is_shown_as_none() -> None:
    below = Verdict("certified", "so(2)", 1, -0.0621, 0.03, 0.99, [])
    page = render(replace(orbits_findings(), verdict=below))
    assert "0.0621" not in page
    opposite = Verdict("inconclusive", None, 0, -0.3621, -0.3, 0.99, [])
    page = render(replace(orbits_findings(), verdict=opposite))
    assert "0.3621" not in page
    assert "the teams say the opposite of each other" in page


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
    assert page.count("<script") == OWN_SCRIPTS
    assert "{{ 7 * 7 }}" in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 11
    for picture in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        ElementTree.fromstring(picture)


def test_names_in_the_data_of_the_slider_cannot_end_it() -> None:
    kept = image_findings().sweep
    assert kept is not None
    hostile = replace(kept, outputs=["</script>" + HOSTILE, "<!--", "&amp;"], targets=[HOSTILE] * 3)
    page = render(replace(image_findings(), sweep=hostile))
    data = re.search(r'<script type="application/json" id="sweep">(.*?)</script>', page)
    assert data is not None
    assert json.loads(data[1])["outputs"] == hostile.outputs
    assert page.count("<script") == page.count("</script") == OWN_SCRIPTS


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
    assert heatmaps(findings)[0][0].names[0] == shown
    assert shown in unescape(render(findings))
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


def titles_of(findings: Findings) -> list[list[str]]:
    return [[shown.title for shown in row] for row in heatmaps(findings)]


def test_learned_generators_are_matched_to_the_true_ones() -> None:
    x, y, z = so(3)
    findings = replace(points_findings(), generators=torch.stack([y, -x, z]), truth=so(3))
    exactly = "difference · cosine 1.0000"
    assert titles_of(findings) == [
        ["−L2, learned", "true", exactly],
        ["L1, learned", "true", exactly],
        ["L3, learned", "true", exactly],
    ]
    assert "true span: 1.0000" in render(findings)


def test_fewer_learned_than_true_ones_are_shown_without_a_difference() -> None:
    findings = replace(points_findings(), generators=noisy(lift(so(3)))[:1], truth=se(3))
    learned, true = titles_of(findings)
    assert learned == ["L1, learned"]
    assert true[-1] == "true 6 of 6"
    assert "fewer than the 6 true ones" in render(findings)


def test_without_truth_the_exact_algebra_stands_beside() -> None:
    findings = points_findings()
    assert findings.truth is None
    learned, nearest, difference = heatmaps(findings)[0]
    assert (learned.title, nearest.title) == ("L1, learned", "nearest in the named algebra")
    diagonal = [row[i] for i, row in enumerate(nearest.rows)]
    assert {cell.sign for cell in diagonal} == {"zero"}
    assert max(cell.share for row in difference.rows for cell in row) < 10


def test_generators_that_were_made_exact_go_by_one_name_everywhere() -> None:
    """L1 of the page is L1 of the terminal; the basis that was learned may be any other."""
    x, y, z = so(3)
    mixed = torch.stack([x + y, x - y, z]) * 2**-0.5 + 1e-3
    exact = torch.stack([x, y, z])
    findings = replace(
        points_findings(), generators=exact, learned=mixed, exact=exact, ranges=[1.0] * 3
    )
    rows = heatmaps(findings)
    assert [row[0].title for row in rows] == ["L1, exact", "L2, exact", "L3, exact"]
    assert [shown.title for shown in rows[0][1:]] == [
        "nearest learned", "difference · cosine 1.0000"
    ]  # fmt: skip
    assert rows[0][0].rows[0][1].sign == rows[0][1].rows[0][1].sign == "minus"
    page = render(findings)
    assert "L1, exact, as it is used" in page
    assert "learned 1, from which they were made exact" in page


def test_without_truth_or_name_nothing_is_compared() -> None:
    findings = replace(points_findings(), exact=None)
    assert titles_of(findings) == [["L1, learned", "L2, learned", "L3, learned"]]


def test_heat_map_has_the_sign_and_size_of_its_entries() -> None:
    matrix = torch.tensor([[[0.0, -2.0], [1.0, 1e-9]]])
    ((shown,),) = heatmaps(replace(orbits_findings(), generators=matrix, truth=None))
    cells = [[(cell.text, cell.share, cell.sign) for cell in row] for row in shown.rows]
    assert cells == [
        [("0", 0, "zero"), ("−2.00", 100, "minus")],
        [("1.00", 50, "plus"), ("0", 0, "zero")],
    ]


def test_a_large_generator_is_a_picture_with_its_first_and_last_name() -> None:
    names = [f"sensor {i}" for i in range(40)]
    findings = replace(
        orbits_findings(), generators=noisy(so(40)[:1]), truth=None, feature_names=names
    )
    ((shown,),) = heatmaps(findings)
    assert shown.rows == []
    assert shown.picture.startswith("data:image/png;base64,")
    assert "from sensor 0 to sensor 39" in render(findings)


def test_structure_constants_and_killing_spectrum_are_those_of_the_algebra() -> None:
    page = render(replace(points_findings(), generators=so(3)))
    assert "[L₁, L₂] =</span> 1 L₃" in page
    # The Killing form of so(3) in a basis of norm 1 is -1 in all three directions.
    assert page.count('<li class="minus"><i style="--share:100"></i><span class="number">−1<') == 3


def test_rows_of_the_table_are_compared_with_no_generators() -> None:
    rows = table(2, [0.02, 0.05])
    page = render(replace(points_findings(), table=rows))
    assert "−50 %" in page
    assert (
        len(re.findall(r'<tr class="chosen" aria-current="true">\s*<td class="lead">2<', page)) == 1
    )
    assert "agreement</th>" not in page


def test_spectrum_draws_every_dimension_between_exact_and_arbitrary() -> None:
    words = text_of(plots.spectrum(orbits_findings()))
    for part in ("arbitrary direction", "bound 0.1", "number of generators"):
        assert part in words
    assert "No defect" in text_of(plots.spectrum(replace(orbits_findings(), table=[], spectrum=[])))


def test_only_spans_that_count_are_filled() -> None:
    """A defect far below zero is none, nor is a small one that is surely seen."""
    bounds = [(0.02, 0.0, 0.05), (0.06, 0.05, 0.08), (-0.36, -0.45, -0.2), (0.5, 0.4, 0.6)]
    rows = [
        Row(n, *values, closure=0.0, together=values[2]) for n, values in enumerate(bounds, start=1)
    ]
    # Runs of before did not write down what counts.
    old = [asdict(row) for row in rows]
    new = [{**asdict(row), "holds": row.holds(visible=0.03)} for row in rows]
    assert filled(plots.spectrum(replace(orbits_findings(), spectrum=new))) == [1]
    assert filled(plots.spectrum(replace(orbits_findings(), spectrum=old))) == [1, 2]


def filled(figure: Figure) -> list[int]:
    """Dimensions of the filled dots of a spectrum."""
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    return [int(n) for line in dots if line.get_mfc() != "white" for n in line.get_xdata()]


def test_departure_is_drawn_for_each_generator_and_for_random_ones() -> None:
    words = text_of(plots.departure_curves(points_findings()))
    for part in ("L1", "L2", "L3", "random generators", "prediction error"):
        assert part in words


def test_nothing_found_says_so_and_shows_what_was_looked_at() -> None:
    page = render(nothing_findings())
    assert "No generator was found" in page
    assert 'type="range"' not in page
    assert page.count("<svg") == 2
    assert "Spectrum" in page


def test_colours_of_pictures_follow_the_page() -> None:
    picture = plots.svg(plots.spectrum(orbits_findings()))
    assert "var(--quiet, #6b7280)" in picture
    assert not re.search(r"(?<!, )#6b7280", picture)


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
    page = render(findings)
    # The motion and the training; no spectrum, because nothing was measured.
    assert page.count("<svg") == 2
    assert 'type="range"' not in page


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


@pytest.mark.parametrize("which", ["x", "y"])
def test_a_logarithmic_axis_is_labelled_in_plain_text(which: Any) -> None:
    with plots.look():
        figure, axes = plots.grid((4, 3), 1, 1)
        ax = axes[0][0]
        plots.log_axis(ax, np.array([1e-5, np.nan, 0.0, 1e-2]), which)
        figure.draw_without_rendering()
    axis = ax.xaxis if which == "x" else ax.yaxis
    assert {"10⁻⁵", "10⁻³"} <= {tick.get_text() for tick in axis.get_ticklabels()}


def test_an_axis_without_positive_numbers_stays_linear() -> None:
    with plots.look():
        _, axes = plots.grid((4, 3), 1, 1)
        plots.log_axis(axes[0][0], np.array([0.0, -1.0, np.nan]))
    assert axes[0][0].get_yscale() == "linear"

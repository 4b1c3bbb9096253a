"""The report in a browser: it opens quickly and silently, and what should move moves."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("playwright", reason="needs playwright: pip install 'lieaugmenter[dev]'")

from hostile_readers import command_line
from playwright.sync_api import Browser, Page, sync_playwright
from report_cases import (
    KINDS,
    Rings,
    image_findings,
    tried,
)

from lieaugmenter.learning import LieAugmenter
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.html import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a browser: apt-get install chromium"
)
MOVING = ("vector", "points", "image")
PHONE = {"width": 375, "height": 812}
DESK = {"width": 1100, "height": 900}
# Names that would be more than text if a page let them.
HOSTILE = {
    "image": "<img src=x onerror=alert(1)>",
    "script": "<script>alert(1)</script>",
    "end of a script": "</script><script>alert(1)</script><!--",
    "end of an attribute": "\"><img src=x onerror='alert(1)'>",
    "handler": "' onmouseover=alert(1) style='width:100vw",
    "address": "javascript:alert(1)",
    "template": "{{7*7}} {% for x in y %} ${7*7} <%= 7 %>",
    "entity": "&lt;script&gt; &amp; &#60;img&#62; ]]> \x7f \u2028 \u2029",
    "direction": "\u202eevil\u202c \u200f \u200b \ufeff",
    "mathematics": r"$\\frac{1}{0}$ \u005c",
    "long": "n" * 20_000,
    "no characters": "\x00\x01\x1b[31m",
}
LARGEST_LOAD_MS = 1000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


class Opened:
    """A report in the browser, and what it complained about."""

    def __init__(self, browser: Browser, path: Path, **options: Any) -> None:
        self.page: Page = browser.new_page(**({"viewport": DESK} | options))
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def picture(self, selector: str = "#stage canvas") -> str:
        """What a canvas shows, as a data address."""
        return self.page.locator(selector).first.evaluate("canvas => canvas.toDataURL()")

    def load_time(self) -> float:
        """Milliseconds until it is loaded; the best of three, for the machine may be busy."""
        spent = []
        for _ in range(3):
            self.page.reload(wait_until="load")
            entry = "performance.getEntriesByType('navigation')[0]"
            spent.append(float(self.page.evaluate(f"{entry}.loadEventStart")))
        return min(spent)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def step(self) -> int:
        return int(self.page.locator("#weight").input_value())

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for something; the page's policy does not let playwright evaluate conditions."""
        for _ in range(200):
            if reached():
                return
            self.page.wait_for_timeout(20)
        raise AssertionError("it never happened")

    def press(self, key: str, times: int = 1) -> None:
        for _ in range(times):
            self.page.keyboard.press(key)


Open = Callable[..., Opened]


@pytest.fixture
def open_report(browser: Browser, paths: dict[str, Path]) -> Iterator[Open]:
    """Open the report of a kind, or a file; all are closed afterwards."""
    opened: list[Opened] = []

    def opener(what: str | Path, **options: Any) -> Opened:
        path = what if isinstance(what, Path) else paths[what]
        opened.append(Opened(browser, path, **options))
        return opened[-1]

    yield opener
    for report in opened:
        report.page.close()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {kind: write_report(make(), folder / f"{kind}.html") for kind, make in KINDS.items()}


@pytest.mark.parametrize("kind", list(KINDS))
class TestEveryPage:
    def test_opens_quickly_without_complaint_or_network(self, open_report: Open, kind: str) -> None:
        opened = open_report(kind)
        assert opened.load_time() < LARGEST_LOAD_MS
        assert opened.complaints == []
        assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []

    def test_fits_a_phone_in_the_dark(self, open_report: Open, kind: str) -> None:
        opened = open_report(kind, viewport=PHONE, color_scheme="dark")
        wide = opened.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE["width"]
        assert opened.complaints == []


@pytest.mark.parametrize("kind", MOVING)
class TestSlider:
    def test_moves_the_picture_and_the_prediction_by_keyboard(
        self, open_report: Open, kind: str
    ) -> None:
        opened = open_report(kind)
        before, chart, middle = opened.picture(), opened.picture("#chart"), opened.step()
        opened.page.locator("#weight").focus()
        opened.press("ArrowRight", 5)
        assert opened.step() == middle + 5
        assert opened.text("#weight-value") != "w = 0"
        assert opened.picture() != before
        assert opened.picture("#chart") != chart
        told = opened.page.locator("#weight").get_attribute("aria-valuetext")
        assert told is not None
        assert opened.text("#says").replace("\n", "") in told
        opened.press("ArrowLeft", 5)
        assert opened.picture() == before
        assert opened.complaints == []

    def test_reaches_both_ends(self, open_report: Open, kind: str) -> None:
        opened = open_report(kind)
        opened.page.locator("#weight").focus()
        opened.press("Home")
        assert opened.text("#weight-value") == "w = −2"
        opened.press("End")
        assert opened.text("#weight-value") == "w = 2"

    def test_plays_and_pauses(self, open_report: Open, kind: str) -> None:
        opened = open_report(kind)
        start = opened.step()
        play = opened.page.locator("#play")
        play.focus()
        opened.press("Enter")
        opened.until(lambda: opened.step() != start)
        opened.press("Enter")
        assert play.get_attribute("aria-pressed") == "false"
        stopped = opened.step()
        opened.page.wait_for_timeout(150)
        assert opened.step() == stopped

    def test_shows_another_sample(self, open_report: Open, kind: str) -> None:
        opened = open_report(kind)
        before = opened.picture()
        opened.page.locator("#sample-choice input").nth(0).focus()
        opened.press("ArrowRight")
        assert opened.picture() != before

    def test_is_drawn_in_the_colours_of_the_scheme(self, open_report: Open, kind: str) -> None:
        opened = open_report(kind, color_scheme="light")
        light = opened.picture("#chart")
        opened.page.emulate_media(color_scheme="dark")
        opened.page.wait_for_timeout(50)
        assert opened.picture("#chart") != light


def test_every_generator_has_its_own_motion(open_report: Open) -> None:
    opened = open_report("points")
    opened.page.locator("#weight").focus()
    opened.press("End")
    pictures = set()
    for number in range(3):
        opened.page.locator("#generator-choice .choice").nth(number).click()
        pictures.add(opened.picture())
    assert len(pictures) == 3


def test_points_in_space_can_be_looked_at_from_elsewhere(open_report: Open) -> None:
    opened = open_report("points")
    before = opened.picture()
    opened.page.locator("#stage canvas").hover()
    opened.page.mouse.down()
    opened.page.mouse.move(300, 500, steps=3)
    opened.page.mouse.up()
    assert opened.picture() != before


def test_an_output_can_be_chosen_for_the_chart(open_report: Open) -> None:
    opened = open_report("vector")
    before = opened.picture("#chart")
    opened.page.locator("#outputs button").nth(3).click()
    assert opened.picture("#chart") != before
    assert opened.page.locator("#outputs [aria-pressed=true] .name").inner_text() == "p1y"


def test_where_motion_is_unwelcome_it_goes_by_steps(open_report: Open) -> None:
    opened = open_report("vector", reduced_motion="reduce")
    start = opened.step()
    opened.page.locator("#play").click()
    opened.page.wait_for_timeout(200)
    assert opened.step() == start
    opened.until(lambda: opened.step() > start + 5)


def test_everything_to_press_shows_its_focus(open_report: Open) -> None:
    opened = open_report("points")
    seen = []
    for _ in range(40):
        opened.press("Tab")
        # A hidden radio button shows its focus on its label.
        outline = opened.page.evaluate(
            "(e => getComputedStyle(e.type === 'radio' ? e.parentElement : e).outlineStyle)"
            "(document.activeElement)"
        )
        tag = opened.page.evaluate("document.activeElement.tagName")
        if tag == "BODY":
            break
        seen.append(tag)
        assert outline != "none", tag
    assert {"A", "INPUT", "BUTTON", "SUMMARY"} <= set(seen)


def named_everywhere(findings: Findings, name: str) -> Findings:
    """Findings in which every string that comes from a user is that name."""
    assert findings.sweep is not None
    return replace(
        findings,
        title=name,
        sentence=name,
        action=findings.action,
        feature_names=[name] * len(findings.feature_names),
        verdict=replace(findings.verdict, group=name, reasons=[name, name], components=name),
        algebra={
            "name": name,
            "description": name,
            "alternatives": [[name, 0.5]],
            "invariants": {
                "kind": name, "rank": 1, "compact": True, "killing_signature": [0, 1, 0],
                "metric_signature": None,
            },
        },
        predictors=[{"predictor": name, "loss": 0.1, "moved": 0.2}],
        numbers={name: name},
        settings={name: {name: [name]}},
        environment={name: name},
        command=name,
        history=[{"epoch": 1, name: 0.5, "prediction": 0.5, "range": 1.0}],
        sweep=replace(
            findings.sweep,
            outputs=[name] * len(findings.sweep.outputs),
            targets=[name] * len(findings.sweep.targets),
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def plain_names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages with nothing hostile in the same places, to compare with."""
    folder = tmp_path_factory.mktemp("plain")
    return {
        kind: write_report(named_everywhere(KINDS[kind](), "x"), folder / f"{kind}.html")
        for kind in ("vector", "points", "image")
    }


@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("vector", name) for name in HOSTILE), ("points", "image"), ("image", "end of a script")],
)
def test_names_are_text_and_nothing_else(
    open_report: Open, tmp_path: Path, plain_names: dict[str, Path], kind: str, name: str
) -> None:
    findings, name = KINDS[kind](), HOSTILE[name]
    opened = open_report(write_report(named_everywhere(findings, name), tmp_path / "report.html"))
    # The character 0 is none in a page.
    shown = " ".join(name.replace("\x00", "").split())
    assert shown in " ".join(opened.page.locator("h1").text_content().split())
    # As many elements as with a good name: the name has made none, and run nothing.
    plain = open_report(plain_names[kind])
    for selector in ("img", "script", "svg", "iframe", "a", "[onerror], [onmouseover], [onload]"):
        assert opened.page.locator(selector).count() == plain.page.locator(selector).count()
    opened.page.locator("#weight").focus()
    opened.press("ArrowRight", 3)
    opened.page.mouse.move(200, 200)
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []
    wide = opened.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= DESK["width"]


def test_names_of_files_columns_and_classes_reach_the_page_as_text(
    open_report: Open, tmp_path: Path
) -> None:
    """From the command line on: the data file, its columns and its labels are hostile."""
    image, script = HOSTILE["image"], HOSTILE["script"].replace("/", "∕")
    rows = [f"{i % 7},{i % 5},{script if i % 3 else image}" for i in range(60)]
    data = tmp_path / f"{image}.csv"
    data.write_text("\n".join([f"{image},{script},label", *rows]))
    words = ["discover", str(data), "--target", "label", "--generators", "1", "--epochs", "1"]
    code, said = command_line([*words, "--views", "2", "-o", str(tmp_path / "run")])
    assert code == 0, said
    opened = open_report(tmp_path / "run" / "report.html")
    assert opened.text("h1") == data.name
    assert image in opened.page.locator("body").text_content()
    assert opened.page.locator("img[src=x]").count() == 0
    assert opened.complaints == []
    for form in ("json", "latex", "sympy"):
        code, said = command_line(["export", str(tmp_path / "run"), "--to", form])
        assert code == 0, said


def test_many_large_images_still_open_within_a_second(open_report: Open, tmp_path: Path) -> None:
    # Every entry of an affine generator, on noise in colour, which no compression makes smaller.
    basis = torch.eye(9)[:6].view(6, 3, 3)
    noise = torch.rand(8, 3, 96, 96, generator=torch.Generator().manual_seed(0))
    augmenter = LieAugmenter("image", output="invariant", basis=basis, n_views=2)
    predictor = Predictor(Rings(), augmenter, classes=3)
    labels = torch.arange(8) % 3
    tries = tried(predictor, noise, labels, names=["x", "y", "1"], labels=["a", "b", "c"])
    findings = replace(image_findings(), generators=basis, **tries)
    path = write_report(findings, tmp_path / "report.html")
    assert path.stat().st_size < 3_000_000
    opened = open_report(path)
    assert opened.load_time() < LARGEST_LOAD_MS
    assert opened.complaints == []

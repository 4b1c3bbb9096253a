"""The site: it builds without a warning, its code runs, it fetches nothing."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_documents import fenced

from lieaugmenter.cli import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
# Pages whose blocks of code belong together and run from top to bottom.
PAGES = [
    "index.md",
    "faq.md",
    *(str(path.relative_to(DOCS)) for path in sorted(DOCS.glob("tutorials/*.md"))),
    "howto/own.md",
]


def run_blocks(page: str, folder: Path) -> None:
    code = "\n".join(fenced((DOCS / page).read_text(encoding="utf-8"), "python"))
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{page}: {done.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_code_of_the_page_runs(page: str, tmp_path: Path) -> None:
    run_blocks(page, tmp_path)


def test_code_for_lightning_runs(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    pytest.importorskip("tensorboard")
    run_blocks("howto/lightning.md", tmp_path)


def test_commands_for_sweeps_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(120, 2))
    np.savez("data.npz", X=x, y=np.linalg.norm(x, axis=1))
    first = fenced((DOCS / "howto" / "sweeps.md").read_text(encoding="utf-8"), "")[0]
    commands = first.strip().splitlines()
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command)[1:]
        if "--epochs" in words:  # the length of training, and the number of seeds, are cut
            words[words.index("--epochs") + 1] = "1"
            words[words.index("--seeds") + 1] = "1"
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 0
        assert "range=2, views=10" in capsys.readouterr().out


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.M))
    assert named == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}


def test_every_picture_of_the_script_is_shown() -> None:
    sys.path.insert(0, str(DOCS))
    try:
        import pictures
    finally:
        sys.path.pop(0)
    concepts = (DOCS / "concepts.md").read_text(encoding="utf-8")
    for name in pictures.PICTURES:
        assert f"images/{name}.png" in concepts
        assert (DOCS / "images" / f"{name}.png").is_file()


def test_functions_of_the_equations_exist() -> None:
    rows = re.findall(r"^\| \(.*", (DOCS / "equations.md").read_text("utf-8"), flags=re.M)
    homes = re.findall(r"\| `src/(\S+)\.py` \| ([^|]*) \|", "\n".join(rows))
    assert len(homes) > 10
    import importlib

    for module, names in homes:
        room: Any = importlib.import_module(module.replace("/", "."))
        for name in re.findall(r"`([\w.]+)`", names):
            found = room
            for word in name.split("."):
                found = getattr(found, word)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="needs: pip install 'lieaugmenter[docs]'")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        # A proxy that is not there: whatever is fetched fails.
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_the_site_builds_without_a_warning_and_has_every_page(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file()
    reference = (site / "reference" / "learning.html").read_text(encoding="utf-8")
    assert "lieaugmenter.learning.augmenter.LieAugmenter.predict" in reference
    assert "lieaugmenter.learning.lightning.LieAugmenterModule" in reference


def test_nothing_of_the_site_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=[\"']?(https?:)?//")
    for page in site.rglob("*.html"):
        for tag in loaded.finditer(page.read_text(encoding="utf-8")):
            assert 'rel="canonical"' in tag[0], f"{page.name}: {tag[0]}"


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def page(site: Path) -> Iterator[Any]:
    pytest.importorskip("playwright")
    if CHROMIUM is None:
        pytest.skip("needs a browser: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser.new_page()
        browser.close()


@pytest.mark.parametrize("name", ["index", "concepts", "faq", "guide", "reference/learning"])
def test_pages_fit_a_phone_and_ask_for_nothing(page: Any, site: Path, name: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 375, "height": 812})
    page.goto((site / f"{name}.html").as_uri())
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked)
    width = page.evaluate("document.scrollingElement.scrollWidth")
    assert width <= 375
    broken = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
    assert page.evaluate(broken) == []


def test_search_works_from_a_file(page: Any, site: Path) -> None:
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto((site / "index.html").as_uri())
    # Key by key: the page looks at what is there when a key is let go.
    page.locator(".md-search__input").press_sequentially("Minkowski")
    page.locator(".md-search-result__item a").first.wait_for(state="attached")
    assert "Minkowski" in page.locator(".md-search-result__item").first.inner_text()

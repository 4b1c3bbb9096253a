"""The reproduction document on molecules: what is required, tables, and the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lieaugmenter.analysis.compare import nearest_in_span
from lieaugmenter.experiments.catalogue import MOLECULES
from lieaugmenter.experiments.results import summary
from lieaugmenter.lie.catalogue import se
from lieaugmenter.report.finished import Finished
from lieaugmenter.report.loss_figures import losses_of
from lieaugmenter.report.molecule_figures import molecule_figures
from lieaugmenter.report.molecule_requirements import molecule_requirements
from lieaugmenter.report.paper_figures import png
from lieaugmenter.report.reproduction import reproduction
from lieaugmenter.runs import RunError, write_json

HOMO = MOLECULES["qm9-homo"]
PNG = b"\x89PNG\r\n\x1a\n"


def run(method: str, mae: float, **measures: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in measures.items()}
    curve = {"test-curve": [2 * mae, 1.1 * mae], "curve-seconds": [100.0, 200.0]}
    return {
        "method": method, "seed": 0, "mae": mae, "train-seconds": 1500.0, "device": "cuda",
        "equivariance": 1e-3, "equivariance-2": 2e-3, **curve, **named,
    }  # fmt: skip


def ours(mae: float = 36.0, **changes: Any) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    mixed = torch.einsum(
        "ij,jab->iab", torch.linalg.qr(torch.randn(6, 6, generator=generator))[0], se(3)
    )
    found = {"span_cosine": 0.9995, "span_overlap": 0.9999, "closure": 0.01, "peak_gb": [9.0, 9.0]}
    return run("lieaugmenter", mae, **{**found, "generators": mixed.tolist(), **changes})


def write(folder: Path, results: list[dict[str, Any]], *stopped: dict[str, Any]) -> Finished:
    settings = {
        "quick": False, "epochs": 200, "batch_size": 125, "lr": 1e-3, "own_lr": 3e-3,
        "hidden": [1536, 6], "n_views": 3, "range": 3.0, "source": "generated",
    }  # fmt: skip
    content = {"experiment": "qm9-homo", "title": HOMO.title, "settings": settings}
    runs = {"results": results, "unfinished": list(stopped)}
    write_json(folder / "qm9-homo.json", {**content, **runs})
    finished = Finished.read(folder, HOMO)
    assert finished is not None
    return finished


def judged(finished: Finished | None, step: dict[str, Any] | None = None) -> dict[str, str]:
    found = molecule_requirements({"qm9-homo": finished, "qm9-lumo": None}, step)
    return {requirement.what: requirement.outcome for requirement in found}


def outcome(found: dict[str, str], *words: str) -> str:
    (value,) = [value for what, value in found.items() if all(word in what for word in words)]
    return value


def test_without_runs_nothing_is_claimed() -> None:
    assert set(judged(None).values()) == {"not run"}


def test_what_is_reached_is_said_and_what_is_missed_as_well(tmp_path: Path) -> None:
    beside = [run(name, 50.0) for name in ("trivial", "oracle", "augerino-widths")]
    found = judged(write(tmp_path, [ours(), *beside]))
    for words in (["MAE in meV"], ["same protocol"], ["span cosine"], ["memory"], ["seconds"]):
        assert outcome(found, "`qm9-homo`", *words) == "reached"
    worse = ours(40.0, span_cosine=0.9, peak_gb=[9.0, 9.9])
    found = judged(write(tmp_path, [worse, *beside[:2]]))
    assert outcome(found, "qm9-homo", "MAE in meV").startswith("missed, × 1.0")
    assert outcome(found, "qm9-homo", "same protocol") == "missed, without augerino-widths"
    assert outcome(found, "qm9-homo", "span cosine") == "missed, on 1 of 1 seeds"
    assert outcome(found, "qm9-homo", "memory") == "missed, grew by 10.0%"
    assert "the paper's error was not reached" in outcome(found, "qm9-homo", "seconds")


def test_a_training_that_is_too_long_is_a_miss(tmp_path: Path) -> None:
    found = judged(write(tmp_path, [ours(train_seconds=2000.0)]))
    assert outcome(found, "seconds of a training") == "missed, by 200 s"


@pytest.mark.parametrize(("ms", "said"), [(7.9, "reached"), (9.0, "missed, by 1.00")])
def test_the_step_is_judged_from_the_benchmark(ms: float, said: str) -> None:
    step = {"ms": {"augmented": ms}, "environment": {"device": "Some GPU"}}
    assert outcome(judged(None, step), "milliseconds") == said


def test_the_document_has_the_papers_numbers_beside_ours(tmp_path: Path) -> None:
    write(tmp_path, [ours(), run("trivial", 60.0), run("augerino-widths", 45.0)])
    text = reproduction(tmp_path)
    section = text.partition(f"## {HOMO.title}")[2]
    assert "| LieAugmenter | 37.1 | not run | **36.0** |" in section
    assert "| Augerino | **38.3** | not run | 45.0 |" in section
    assert "| LieAugmenter | own | 0.9995 |" in section
    assert "LieConv-Trivial" in section
    assert "images/reproduction-qm9-homo-generators.png" in section


def stopped(method: str, curve: list[float], of: int) -> dict[str, Any]:
    seconds = [100.0 * (i + 1) for i in range(len(curve))]
    run = {"method": method, "seed": 0, "epochs": len(curve), "of": of}
    return {**run, "test-curve": curve, "curve-seconds": seconds}


def test_a_training_that_was_stopped_is_shown_and_is_no_result(tmp_path: Path) -> None:
    found = write(tmp_path, [ours()], stopped("trivial", [90.0], 2))
    assert outcome(judged(found), "qm9-homo", "same protocol").startswith("missed, without trivial")
    section = reproduction(tmp_path).partition(f"## {HOMO.title}")[2]
    assert "| no augmentation | 52.7 | not run | not run |" in section
    # A curve is twice the error after one epoch of two, and 1.1 times it at the end.
    assert "| no augmentation | own | 1 of 2 | 90.0 | 72.0 |" in section
    assert "0.550 to 0.550 times" in section
    left, _ = dict(molecule_figures(found))["reproduction-qm9-homo-curves.png"].axes
    words = [text.get_text() for text in left.get_legend().get_texts()]
    assert words[0] == "no augmentation, own settings, stopped after 1 of 2"


def test_seconds_are_drawn_of_trainings_that_had_the_device_for_themselves(tmp_path: Path) -> None:
    beside = run("oracle", 35.0, environment={"workers": 6})
    found = write(tmp_path, [ours(), beside])
    left, right = dict(molecule_figures(found))["reproduction-qm9-homo-curves.png"].axes
    # And the paper's error.
    assert (len(left.lines), len(right.lines)) == (3, 2)


def test_a_curve_without_an_error_for_every_epoch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not have an error for every epoch"):
        write(tmp_path, [ours()], {**stopped("trivial", [90.0], 3), "epochs": 2})


def test_widths_tell_what_augerino_found(tmp_path: Path) -> None:
    widths = [10.0, 11.0, 10.5, *[0.001] * 5, 0.002, 9.9, 9.8, 9.7]
    write(tmp_path, [ours(), run("augerino-widths", 45.0, widths=widths)])
    text = reproduction(tmp_path)
    assert "turns 10.0, 11.0, 10.5; translations 9.9, 9.8, 9.7; the six that are no" in text
    assert "at most 0.002." in text


def test_losses_are_drawn_of_lieaugmenter_alone(tmp_path: Path) -> None:
    losses = {"prediction": [1.0, 0.5], "validation": [1.1, 0.6], "range": [0.3, 3.0]}
    kept = {**losses, "equivariance": [2.0, 1.0], "cosine": [0.1, 0.99]}
    runs = [
        ours(losses=kept),
        run("trivial", 60.0, losses=losses),
        run("liegan", 50.0, losses=kept),
    ]
    found = write(tmp_path, runs)
    assert set(losses_of(found)) == {"own"}
    figure = dict(molecule_figures(found))["reproduction-qm9-homo-losses.png"]
    assert png(figure).startswith(PNG)


def test_pictures_are_drawn(tmp_path: Path) -> None:
    drawn = dict(molecule_figures(write(tmp_path, [ours(), run("oracle", 35.0)])))
    assert len(drawn) == 2
    assert all(png(figure).startswith(PNG) for figure in drawn.values())
    panels = drawn["reproduction-qm9-homo-generators.png"].axes
    assert len(panels) == 3 * 6 + 1  # true, nearest, matched; and the scale of colours


def test_the_nearest_of_a_mixed_basis_is_the_true_generator(tmp_path: Path) -> None:
    mixed = torch.tensor(ours()["generators"])
    torch.testing.assert_close(nearest_in_span(se(3), mixed), se(3), atol=1e-5, rtol=0)


def test_the_summary_shows_absolute_errors() -> None:
    lines = summary(HOMO, [ours(), run("trivial", 60.0)])
    assert lines[0].split() == ["method", "MAE", "paper", "cosine"]
    assert lines[1].split() == ["trivial", "60.0", "52.7", "-"]
    assert lines[2].split()[-1] == "0.9995"  # one seed has no spread

"""Write the README's table of results from benchmarks/results."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from lieaugmenter.experiments.targets import TARGETS
from lieaugmenter.runs import write_atomically

# On molecules, beside LieAugmenter.
OTHERS = {
    "no augmentation": "trivial",
    "augmentation by the true group": "oracle",
    "Augerino": "augerino-widths",
}
KNOWN = "known from the inputs before training"
HERE = Path(__file__).parent
README = HERE.parent / "README.md"
IMAGE_STEP_RATIO = 1.15
MARKS = "<!-- results -->\n", "<!-- /results -->"


def load(name: str) -> dict[str, Any] | None:
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def spread(values: list[float], digits: int = 3) -> str:
    """Mean ± standard deviation over seeds, of the population as in all tables."""
    return f"{statistics.mean(values):.{digits}g} ± {statistics.pstdev(values):.2g}"


def two_body_rows(content: dict[str, Any]) -> list[str]:
    rows = []
    for key, what, paper in (
        ("demo", "two-body, our orbits", "–"),
        ("reference_orbits", "two-body, the paper's orbits", "1.30e-5"),
    ):
        runs = content.get(key)
        if not runs:
            continue
        seeds = ", ".join(str(run["seed"]) for run in runs)
        least = min(run["cosine"] for run in runs)
        rows.append(
            f"| {what}, seeds {seeds}: cosine to the true rotation, smallest | {least:.6f} | – |"
        )
        mse = spread([run["averaged_mse"] for run in runs])
        rows.append(f"| the same: test MSE, averaged prediction | {mse} | {paper} |")
        direct = spread([run["direct_mse"] for run in runs])
        rows.append(f"| the same: test MSE, direct prediction | {direct} | – |")
    seconds = spread([run["seconds"] for run in content["demo"]])
    cores = content["environment"]["threads"]
    rows.append(f"| `lieaugmenter demo`, {cores} CPU cores, seconds | {seconds} | 508 (A100) |")
    return rows


def stacked_rows(content: dict[str, Any]) -> list[str]:
    device = content["environment"]["device"]
    alone, together = min(content["one_run_seconds"]), min(content["three_stacked_seconds"])
    what = f"two-body training, 100 epochs, on one {device}, seconds"
    return [
        f"| {what} | {alone:.2f} | 508 (A100) |",
        f"| the same: three seeds trained as one stacked model | {together:.2f} "
        f"({content['ratio']:.2f} × one seed) | – |",
    ]


def runs_of(experiment: str, method: str = "lieaugmenter") -> list[dict[str, Any]]:
    """The finished runs of a method with own settings, in results/."""
    path = HERE.parent / "results" / f"{experiment}.json"
    results = json.loads(path.read_text())["results"] if path.is_file() else []
    return [run for run in results if run["method"] == method and "diverged" not in run]


def seeds_of(runs: list[dict[str, Any]]) -> str:
    return "seeds " + ", ".join(str(run["seed"]) for run in runs)


def digit_rows(experiment: str, what: str, paper: str) -> list[str]:
    runs = runs_of(experiment)
    if not runs:
        return []
    found = spread([run["accuracy"] for run in runs], digits=4)
    least = min(run["cosine"] for run in runs)
    return [
        f"| {what}, {seeds_of(runs)}: test accuracy, % | {found} | {paper} |",
        f"| the same: cosine to the rotation, smallest | {least:.6f} | – |",
    ]


def momenta_rows() -> list[str]:
    rows = []
    # On events it is known before training: their masses and sums say so. Here labels alone do.
    for experiment, what, known in (
        ("pair-mass", "invariant mass of two particles, from labels", ""),
        ("amplitudes-boosted", "events q q̄ → Z g g in random frames", f" ({KNOWN})"),
    ):
        if runs := runs_of(experiment):
            least = min(run["span-cosine"] for run in runs)
            cosines = f"{seeds_of(runs)}: smallest of six cosines with so(1,3)"
            rows.append(f"| {what}, {cosines} | {least:.6f}{known} | – |")
    if runs := runs_of("amplitudes"):
        least = min(run["beam-cosine"] for run in runs)
        what = f"the same in the laboratory, {seeds_of(runs)}"
        rows.append(f"| {what}: turn about the beam, cosine | {least:.6f} ({KNOWN}) | – |")
        methods = {
            "LieAugmenter": runs,
            "no augmentation": runs_of("amplitudes", "trivial"),
            "the whole Lorentz group": runs_of("amplitudes", "oracle-whole"),
        }
        for key, words in (
            ("mse", "as validation data chose to predict"),
            ("mse-direct", "direct"),
        ):
            found = "; ".join(
                f"{name} {spread([run[key] for run in own])}"
                for name, own in methods.items()
                if own
            )
            rows.append(f"| the same: test MSE, {words} | {found} | – |")
    return rows


def molecule_rows() -> list[str]:
    rows = []
    for orbital, paper in (("homo", "37.1"), ("lumo", "30.7")):
        for run in runs_of(f"qm9-{orbital}"):
            what = f"QM9, {orbital.upper()}, seed {run['seed']}"
            device = run["environment"]["device"]
            rows.append(f"| {what}: test MAE, meV | {run['mae']:.1f} | {paper} |")
            rows.append(
                f"| the same: training on one {device}, seconds | {run['train-seconds']:.0f} | "
                "55,000 (H100) |"
            )
            rows.append(
                f"| the same: smallest of six cosines with se(3) | {run['span-cosine']:.6f} | – |"
            )
        for name, method in OTHERS.items():
            for run in runs_of(f"qm9-{orbital}", method):
                reported = TARGETS[f"qm9-{orbital}", method, "mae"]
                rows.append(
                    f"| the same, {name}, seed {run['seed']}: test MAE, meV | {run['mae']:.1f} | "
                    f"{reported.mean} |"
                )
    return rows


def image_step_rows(content: dict[str, Any]) -> list[str]:
    device, ratio = content["environment"]["device"], content["ratio"]
    mark = "" if ratio <= IMAGE_STEP_RATIO else ", missed"
    rows = [
        f"| step on digits / plain step on as many images, {device}, bf16 | {ratio:.2f} "
        f"(aim <= {IMAGE_STEP_RATIO}{mark}) | – |"
    ]
    if "fit" in content:
        epochs = content["fit"]["epochs"]
        what = f"54,000 images of 28 × 28, {epochs} epochs on one {device}, seconds"
        rows.insert(0, f"| {what} | {content['fit']['seconds']:.1f} | 467 (A100) |")
    return rows


def captured_rows(content: dict[str, Any]) -> list[str]:
    device = content["environment"]["device"]
    rows = []
    for name, step in content["steps"].items():
        rows.append(
            f"| captured step against plain step, {name}, {device} | "
            f"{step['speed_up']:.1f} × faster, parameters "
            f"{step['largest_parameter_difference']:.1g} apart (two plain runs: "
            f"{step['largest_difference_of_two_plain_runs']:.1g}) | – |"
        )
    return rows


def ratio_rows(content: dict[str, Any]) -> list[str]:
    rows = []
    for name, ratio in content["ratios"].items():
        mark = "" if ratio["reached"] else ", missed"
        rows.append(f"| {name} | {ratio['ratio']:.2f} (aim {ratio['bar']}{mark}) | – |")
    return rows


def zoo_rows(content: dict[str, Any]) -> list[str]:
    """Rates of ``n_generators="auto"`` over the tasks of the zoo."""
    return [
        f"| {words} | {100 * found['rate']:.1f} % ({found['count']} of {found['of']}) | – |"
        for words, found in (
            ("tasks with a known symmetry: it is found", content["summary"]["detection"]),
            (
                "tasks with and without: the dimension is exactly right",
                content["summary"]["dimension_right"],
            ),
            (
                "tasks without a symmetry: one is certified",
                content["summary"]["false_certification"],
            ),
        )
    ]


def table() -> str:
    lines = ["| | here | paper |", "| --- | --- | --- |"]
    lines += digit_rows("rotated-mnist", "rotated digits", "99.08")
    lines += digit_rows("rotated-mnist-ood", "rotated digits, tested beyond 90 degrees", "90.82")
    lines += molecule_rows()
    lines += momenta_rows()
    for name, rows in (
        ("zoo", zoo_rows),
        ("two_body", two_body_rows),
        ("stacked", stacked_rows),
        ("image_step", image_step_rows),
        ("captured_step", captured_rows),
        ("ratios", ratio_rows),
    ):
        content = load(name)
        if content is not None:
            lines += rows(content)
    return "\n".join(lines) + "\n"


def with_results(text: str) -> str:
    """The README's text with its table made anew."""
    pattern = re.compile(f"({re.escape(MARKS[0])}).*?({re.escape(MARKS[1])})", re.DOTALL)
    return pattern.sub(lambda match: match[1] + table() + match[2], text)


if __name__ == "__main__":
    write_atomically(README, with_results(README.read_text(encoding="utf-8")))

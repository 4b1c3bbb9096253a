"""Write the tables of docs/performance.md: what a step costs at least, and what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import qm9_step
from qm9_step import Part, Sizes, account

HERE = Path(__file__).parent
DOCUMENT = HERE.parent / "docs" / "performance.md"
MARKS = "<!-- qm9-step -->\n", "<!-- /qm9-step -->"
NOT_MEASURED = "not measured"
# Parts of the account that share kernels, and what the names of these begin with or contain.
GROUPS = {
    "matrix products of atoms": (
        ("down and up", "16 · inner to inner"),
        r"gemm|nvjet|cutlass|xmma|splitk",
    ),
    "sums over neighbours": (("sums over neighbours",), r"^_convolve"),
    "networks on pairs": (("networks on pairs",), r"^_pair"),
    "batch norm, swish, residual sum": (
        ("residual sum, norm, swish", "norm, swish"),
        r"^_(moments|statistics|norm_swish|sum)",
    ),
    "Adam, change of type": (("Adam, change of type",), r"multi_tensor|adam|_shorten|foreach"),
}


def measured() -> dict[str, Any] | None:
    path = HERE / "results" / "qm9_step.json"
    return json.loads(path.read_text()) if path.is_file() else None


def group_of(kernel: str) -> str:
    for name, (_, pattern) in GROUPS.items():
        if re.search(pattern, kernel, flags=re.IGNORECASE):
            return name
    return "everything else"


def times_of(content: dict[str, Any] | None) -> dict[str, float]:
    """Microseconds of each group in an augmented step, as far as its kernels are listed."""
    found: dict[str, float] = {}
    for row in [] if content is None else content["kernels"]["augmented"]:
        name = group_of(row["name"])
        found[name] = found.get(name, 0.0) + row["us_per_step"]
    return found


def row(name: str, flop: float, moved: float, floor: float, taken: float | None) -> str:
    time = NOT_MEASURED if taken is None else f"{taken:.0f}"
    gap = "–" if taken is None or not floor else f"{taken / floor:.1f} ×"
    return f"| {name} | {flop / 1e9:.1f} | {moved / 1e6:.0f} | {floor:.0f} | {time} | {gap} |"


def step_table(content: dict[str, Any] | None) -> list[str]:
    parts, times = {part.name: part for part in account(Sizes())}, times_of(content)
    lines = [
        "| part | GFLOP | MB moved | at least, µs | measured, µs | measured / at least |",
        "|---|---|---|---|---|---|",
    ]
    for name, (members, _) in GROUPS.items():
        own = [parts[member] for member in members]
        taken = times.get(name, 0.0) if content is not None else None
        lines.append(row(name, *_sums(own), taken))
    other = times.get("everything else")
    lines.append(f"| everything else | – | – | – | {_or_not(other, content)} | – |")
    whole = None if content is None else 1e3 * content["ms"]["augmented"]
    lines.append(row("**a step**", *_sums(list(parts.values())), whole))
    return lines


def _or_not(value: float | None, content: dict[str, Any] | None) -> str:
    return NOT_MEASURED if content is None else f"{value or 0.0:.0f}"


def _sums(parts: list[Part]) -> tuple[float, float, float]:
    return (
        sum(part.flop for part in parts),
        sum(part.bytes for part in parts),
        sum(part.floor_us for part in parts),
    )


def padded_floor() -> float:
    """Milliseconds that the same step takes at least with every molecule padded to the largest."""
    real = qm9_step.ATOMS, qm9_step.ATOMS_SQUARED
    try:
        qm9_step.ATOMS = float(qm9_step.MOST_ATOMS)
        qm9_step.ATOMS_SQUARED = float(qm9_step.MOST_ATOMS**2)
        return sum(part.floor_us for part in account(Sizes())) / 1e3
    finally:
        qm9_step.ATOMS, qm9_step.ATOMS_SQUARED = real


def facts(content: dict[str, Any] | None) -> list[str]:
    floor = sum(part.floor_us for part in account(Sizes())) / 1e3
    lines = [
        f"- Padded to 29 atoms throughout, the same step would take at least {padded_floor():.1f} "
        f"ms instead of {floor:.1f}.",
    ]
    if content is None:
        return [*lines, f"- Step, memory and time until the first step: {NOT_MEASURED}."]
    device, ms, peak = content["environment"]["device"], content["ms"], content["peak_gb"]
    flop = sum(part.flop for part in account(Sizes()))
    return [
        *lines,
        f"- On one {device}: {ms['augmented']:.2f} ms a step with augmentation, "
        f"{ms['plain']:.2f} ms without it on as many molecules ({content['ratio']:.3f} ×); "
        f"{flop / ms['augmented'] / 1e9:.0f} TFLOP/s.",
        f"- By Adam, without validation data. Peak memory {peak['augmented']:.2f} GB. The first "
        f"step of a process comes after {content['start_up_s']['plain']:.1f} s, that of a second "
        f"training after {content['start_up_s']['augmented']:.1f} s.",
    ]


def without_table(content: dict[str, Any] | None) -> list[str]:
    """What the step takes without its measures."""
    if content is None or "without_ms" not in content:
        return [f"- What each measure brought: {NOT_MEASURED}."]
    whole = content["ms"]["augmented"]
    lines = ["", "| the augmented step | ms | against the whole |", "|---|---|---|"]
    lines.append(f"| with all measures | {whole:.2f} | 1.0 × |")
    for name, ms in content["without_ms"].items():
        lines.append(f"| {name} | {ms:.2f} | {ms / whole:.1f} × |")
    return lines


def with_tables(text: str) -> str:
    """The document's text with its tables made anew."""
    content = measured()
    parts = [*step_table(content), "", *facts(content), *without_table(content)]
    inner = "\n".join(parts) + "\n"
    pattern = re.compile(f"({re.escape(MARKS[0])}).*?({re.escape(MARKS[1])})", re.DOTALL)
    return pattern.sub(lambda match: match[1] + inner + match[2], text)


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")

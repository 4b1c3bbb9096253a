"""Kill runs at random moments, resume them, and compare each with a run that was left alone.

    python benchmarks/kills.py --kills 100

A run is started by the command line's own function in a process of its own, which gets SIGKILL at
a random moment of half the time that the whole run takes; then it is resumed, and
killed again, until it comes to its end. A kill is survived when every file that it left is whole,
and when the run that it belongs to ends with the numbers of the undisturbed run, to the bit.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lieaugmenter.cli import main as command_line
from lieaugmenter.runs import (
    RunError,
    RunFolder,
    digest_of,
    environment,
    read_json,
    read_tensors,
    write_json,
)

RESULTS = Path(__file__).parent / "results" / "kills.json"
# Of the time of the whole run: short enough to kill a run several times, long enough to end it.
_LONGEST_LIFE = 0.5
# A run that is killed so often is left alone, so that every trial ends.
_MOST_IN_A_ROW = 12


@dataclass(frozen=True)
class Workload:
    """A command to kill, and the share of all kills that it gets."""

    name: str
    share: float
    words: tuple[str, ...]

    def command(self, folder: Path) -> list[str]:
        """What starts it, or continues it."""
        if self.words[0] == "discover" and (folder / "command.json").exists():
            return ["resume", str(folder)]
        return [*self.words, "-o", str(folder)]


_DISCOVER = ("discover", "ring.npz", "--device", "cpu", "--views", "3")
_REPRODUCE = ("reproduce", "two-body", "--quick", "--device", "cpu", "--seeds", "2")
WORKLOADS = (
    Workload("discover", 0.5, (*_DISCOVER, "--generators", "1", "--epochs", "40")),
    Workload(
        "discover, counting generators, two seeds",
        0.3,
        (*_DISCOVER, "--generators", "auto", "--seeds", "2", "--epochs", "2"),
    ),
    Workload(
        "reproduce, one seed after the other and stacked",
        0.2,
        (*_REPRODUCE, "--methods", "trivial", "lieaugmenter-mask2", "liegg-mask2"),
    ),
)


def start(words: Sequence[str], log: Path) -> int:
    """Run the command line in a process of its own, its output in `log`; the process's number.

    Forked, so that kills fall into the work and not into the import of torch.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        command_line(words)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        # Nothing may return from here to what the parent was doing.
        traceback.print_exc()
    os._exit(code)


def run_to_the_end(words: Sequence[str], log: Path) -> float:
    """Run a command and wait for it; its seconds."""
    started = time.monotonic()
    _, status = os.waitpid(start(words, log), 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"lieaugmenter {' '.join(words)} failed:\n{log.read_text()[-2000:]}")
    return time.monotonic() - started


def killed(words: Sequence[str], log: Path, after: float) -> bool:
    """Whether a command had to be killed; False if it ended well before."""
    child = start(words, log)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code > 0:
        raise RuntimeError(f"lieaugmenter {' '.join(words)} failed:\n{log.read_text()[-2000:]}")
    return code == -signal.SIGKILL


def damaged(folder: Path) -> list[str]:
    """Files that a reader would stumble over."""
    found = []
    for path in sorted(folder.rglob("*")):
        try:
            if path.suffix == ".json":
                read_json(path)
            elif path.suffix == ".jsonl":
                RunFolder(path.parent).metrics()
            elif path.suffix == ".safetensors":
                read_tensors(path)
            elif path.suffix == ".html" and not path.read_text().rstrip().endswith("</html>"):
                raise RunError(f"{path} is cut")
        except RunError as error:
            found.append(str(error))
    return found


def numbers(folder: Path) -> dict[str, Any]:
    """All that a run came to, by file, without what tells the time."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("[!.]*")):
        name = str(path.relative_to(folder))
        if path.name == "environment.json":
            continue
        if path.suffix == ".json":
            found[name] = _timeless(read_json(path))
        elif path.suffix == ".jsonl":
            found[name] = _timeless(RunFolder(path.parent).metrics())
        elif path.suffix == ".safetensors":
            tensors, words = read_tensors(path)
            found[name] = [digest_of(tensors), _timeless(words)]
        elif path.suffix == ".html":
            # It shows the time; what else is in it comes from the other files.
            found[name] = "there"
    return found


def _timeless(content: Any) -> Any:
    if isinstance(content, dict):
        kept = {key: v for key, v in content.items() if "seconds" not in key and "time" not in key}
        return {key: _timeless(value) for key, value in kept.items()}
    return [_timeless(value) for value in content] if isinstance(content, list) else content


def reached(folder: Path) -> str:
    """How far a run had come when it was killed."""
    if (folder / "report.html").exists() or (folder / "verdict.json").exists():
        return "report"
    if (folder / "network.safetensors").exists():
        return "judging"
    return "training" if any(folder.rglob("state.safetensors")) else "start"


def trial(
    workload: Workload, folder: Path, whole: dict[str, Any], seconds: float, draw: random.Random
) -> tuple[list[str], int]:
    """Start a run and kill it until it ends; how far it was each time, and the kills survived."""
    log = folder.with_suffix(".log")
    kills: list[str] = []
    intact = 0
    while len(kills) < _MOST_IN_A_ROW and killed(
        workload.command(folder), log, after=draw.uniform(0, _LONGEST_LIFE * seconds)
    ):
        kills.append(reached(folder))
        broken = damaged(folder)
        intact += not broken
        print("".join(f"\n  {message}" for message in broken), end="", file=sys.stderr)
    run_to_the_end(workload.command(folder), log)
    found = numbers(folder)
    different = [name for name in whole.keys() | found.keys() if whole.get(name) != found.get(name)]
    if different:
        print(f"  {folder}: differs in {', '.join(sorted(different))}", file=sys.stderr)
    return kills, 0 if different else intact


def measure(workload: Workload, wanted: int, folder: Path, draw: random.Random) -> dict[str, Any]:
    """Kill one workload at least as often as wanted."""
    seconds = run_to_the_end(workload.command(folder / "whole"), folder / "whole.log")
    whole = numbers(folder / "whole")
    kills: list[str] = []
    survived = runs = 0
    while len(kills) < wanted:
        place = folder / f"run-{runs}"
        done, good = trial(workload, place, whole, seconds, draw)
        kills, survived, runs = kills + done, survived + good, runs + 1
        if len(done) == good:
            shutil.rmtree(place)
        print(f"{workload.name}: {survived} of {len(kills)} kills survived in {runs} runs")
    return {
        "command": ["lieaugmenter", *workload.words],
        "kills": len(kills),
        "survived": survived,
        "runs": runs,
        "reached": dict(Counter(kills)),
        "seconds_of_whole_run": round(seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workloads", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    # One thread: a process with more cannot be forked safely, and rounds differently.
    torch.set_num_threads(1)
    draw = random.Random(arguments.seed)
    started = time.monotonic()
    chosen = [WORKLOADS[number] for number in arguments.workloads]
    every = sum(workload.share for workload in chosen)
    found: dict[str, Any] = {}
    out = arguments.out.resolve()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        x = np.random.default_rng(0).normal(size=(400, 2))
        np.savez("ring.npz", X=x, y=np.linalg.norm(x, axis=1))
        for number, workload in enumerate(chosen):
            wanted = max(1, round(arguments.kills * workload.share / every))
            place = Path(name) / str(number)
            place.mkdir()
            found[workload.name] = measure(workload, wanted, place, draw)
        os.chdir(out.parent)
    kills = sum(one["kills"] for one in found.values())
    survived = sum(one["survived"] for one in found.values())
    content = {
        "environment": environment(),
        "seed": arguments.seed,
        "kills": kills,
        "survived": survived,
        "seconds": round(time.monotonic() - started, 1),
        "workloads": found,
    }
    write_json(out, content)
    print(f"{survived} of {kills} survived")
    sys.exit(survived != kills)


if __name__ == "__main__":
    main()

"""Coverage-guided fuzzing of every reader: `make fuzz`, recorded in ``results/fuzz.json``.

Each reader starts from the good files of ``tests/hostile_readers.py``. Atheris keeps what reaches
new lines of this package and changes it further, by libFuzzer's means and by those of
``tests/hostile_mutations.py``. An input is answered if it gives a value or the reader's promised
error in time; what is not answered is kept in ``build/fuzz`` to be looked at.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.metadata
import io
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stderr
from pathlib import Path
from random import Random
from typing import Any

import atheris

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
with redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["lieaugmenter"]):
    import hostile_readers
    from hostile_mutations import mutate
    from hostile_readers import READERS, Reader, UnansweredError, answer

    from lieaugmenter.runs import environment

RECORD = ROOT / "benchmarks" / "results" / "fuzz.json"
UNANSWERED = ROOT / "build" / "fuzz"
# Of a reader whose inputs take a second each.
SLOW_INPUTS = 20
LARGEST_INPUT = 2**18
# Beyond them the process is ended, which counts as no answer.
MEMORY_MIB, TIMEOUT_S = 4096, 60


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000, help="of all readers together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=list(READERS), help="names of readers")
    parser.add_argument("--record", type=Path, default=RECORD)
    asked = parser.parse_args()
    # Made once, and shared by all readers.
    hostile_readers.finished_run()
    start, found = time.perf_counter(), {}
    for name, inputs in shares(asked.only, asked.inputs).items():
        found[name] = fuzzed(READERS[name], inputs, asked.seed)
        said = ", ".join(f"{count} {kind}" for kind, count in found[name]["answers"].items())
        print(f"{name}: {found[name]['answered']} of {inputs} answered ({said})", flush=True)
    total = sum(row["inputs"] for row in found.values())
    answered = sum(row["answered"] for row in found.values())
    record = {
        "seed": asked.seed,
        "inputs": total,
        "answered": answered,
        "seconds": round(time.perf_counter() - start, 1),
        "peak_mib": max(row["peak_mib"] for row in found.values()),
        "atheris": importlib.metadata.version("atheris"),
        "environment": environment(),
        "readers": found,
    }
    asked.record.write_text(json.dumps(record, indent=2) + "\n")
    print(f"{answered} of {total} answered")
    return 0 if answered == total else 1


def shares(names: list[str], inputs: int) -> dict[str, int]:
    """How many inputs each reader gets; all of them together are as many as asked for."""
    quick = [name for name in names if not READERS[name].slow] or names
    found = {name: min(SLOW_INPUTS, inputs // len(names)) for name in names if name not in quick}
    each, left = divmod(inputs - sum(found.values()), len(quick))
    return {
        name: found.get(name, each + (name in quick[:left])) for name in READERS if name in names
    }


def fuzzed(reader: Reader, inputs: int, seed: int) -> dict[str, Any]:
    """What came of one reader, in a process of its own: a crash is no answer, but not the end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        child = os.fork()
        if not child:
            _fuzz(reader, inputs, seed, folder)
        _, status = os.waitpid(child, 0)
        record = folder / "record.json"
        if not record.exists():
            UNANSWERED.mkdir(parents=True, exist_ok=True)
            for path in folder.glob("crash-*"):
                (UNANSWERED / f"{reader.name}-{path.name}").write_bytes(path.read_bytes())
            end = os.waitstatus_to_exitcode(status)
            said = (folder / "log").read_text(errors="replace")[-2000:]
            raise SystemExit(f"{said}\n{reader.name}: its process ended with {end}")
        return json.loads(record.read_text())


def _fuzz(reader: Reader, inputs: int, seed: int, folder: Path) -> None:
    """Fuzz until all inputs are given, write what came of it, and end this process."""
    # What libFuzzer and the libraries say while they work; read only if it ends badly.
    with (folder / "log").open("wb") as log:
        os.dup2(log.fileno(), 2)
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, good in enumerate(reader.seeds()):
        (corpus / f"good-{number}").write_bytes(good)
    seeds = len(reader.seeds())
    answers: Counter[str] = Counter()
    start = time.perf_counter()

    def test(content: bytes) -> None:
        # The harness has a deadline in Python; this one also ends loops in C.
        faulthandler.dump_traceback_later(TIMEOUT_S, exit=True)
        try:
            answers[answer(reader, content)] += 1
        except UnansweredError as error:
            answers["unanswered"] += 1
            UNANSWERED.mkdir(parents=True, exist_ok=True)
            (UNANSWERED / f"{reader.name}-{answers['unanswered']}").write_bytes(content)
            print(f"  {error}"[:500], flush=True)
        finally:
            faulthandler.cancel_dump_traceback_later()
        if answers.total() == inputs:
            kept = len(list(corpus.iterdir())) - seeds
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            record = {
                "inputs": inputs,
                "answered": inputs - answers["unanswered"],
                "answers": dict(sorted(answers.items())),
                "kept_for_new_lines": kept,
                "seconds": round(time.perf_counter() - start, 1),
                "peak_mib": peak,
            }
            (folder / "record.json").write_text(json.dumps(record))
            sys.stdout.flush()
            # Not an exit, which libFuzzer takes for a crash.
            os.kill(os.getpid(), signal.SIGKILL)

    def change(content: bytes, largest: int, draw: int) -> bytes:
        random = Random(draw)
        if random.random() < 0.3:
            return atheris.Mutate(content, largest)
        return mutate(content, reader.kind, random)[:largest]

    options = (
        f"-seed={seed}", f"-max_len={LARGEST_INPUT}", f"-rss_limit_mb={MEMORY_MIB}",
        "-timeout=0", f"-artifact_prefix={folder}/", "-verbosity=0", "-mutate_depth=1",
    )  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(corpus)], test, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())

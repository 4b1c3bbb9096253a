"""Peak memory of learning from data that are read piece by piece, on some samples and on ten times
as many.

Each reading is a process of its own, whose peak of resident memory (VmHWM) counts, libraries
included. Memory maps are closed after each piece, so that pages of the file which the kernel could
drop are not counted as used. Beside it stands the same data read whole, which shows what the
numbers would be otherwise. Prints a table and writes benchmarks/results/memory.json (or --out).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from lieaugmenter import LieAugmenter, SymmetryRegressor, fit
from lieaugmenter.data.streaming import stream_data
from lieaugmenter.nets import MLP
from lieaugmenter.runs import environment, write_json

RESULTS = Path(__file__).parent / "results" / "memory.json"
TIMES = 10
FEATURES = 16
# Rows that are made at once.
_ROWS = 20_000
SETTINGS: dict[str, Any] = {"epochs": 1, "batch_size": 8192, "n_views": 2, "random_state": 0}


def pieces(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    for start in range(0, n, _ROWS):
        x = rng.normal(size=(min(_ROWS, n - start), FEATURES))
        yield x, np.linalg.norm(x[:, :3], axis=1)


def write_npy(folder: Path, n: int) -> None:
    make = np.lib.format.open_memmap
    x, y = (
        make(folder / "x.npy", "w+", "f8", (n, FEATURES)),
        make(folder / "y.npy", "w+", "f8", (n,)),
    )
    for number, (some, targets) in enumerate(pieces(n)):
        rows = slice(number * _ROWS, number * _ROWS + len(some))
        x[rows], y[rows] = some, targets


def write_parquet(folder: Path, n: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    names = [*(f"x{i + 1}" for i in range(FEATURES)), "y"]
    schema = pa.schema([(name, pa.float64()) for name in names])
    with parquet.ParquetWriter(folder / "d.parquet", schema) as writer:
        for x, y in pieces(n):
            columns = [*x.T, y]
            writer.write_table(pa.table(dict(zip(names, columns, strict=True)), schema))


class Made(IterableDataset):
    """Samples that are made when asked for."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in pieces(self.n):
            yield from zip(torch.from_numpy(x).float(), torch.from_numpy(y).float(), strict=True)


def by_estimator(folder: Path, n: int) -> None:
    estimator = SymmetryRegressor(hidden=(16,), device="cpu", **SETTINGS)
    estimator.fit(stream_data(folder / "x.npy", str(folder / "y.npy")))


def by_estimator_whole(folder: Path, n: int) -> None:
    estimator = SymmetryRegressor(hidden=(16,), device="cpu", **SETTINGS)
    estimator.fit(np.load(folder / "x.npy"), np.load(folder / "y.npy"))


def by_fit(folder: Path, n: int) -> None:
    model, augmenter = (
        MLP((FEATURES,), (1,), hidden=(16,)),
        LieAugmenter("vector", FEATURES, output="invariant", n_views=2, warmup_steps=0),
    )
    fit(model, augmenter, Made(n), epochs=1, batch_size=8192, device="cpu", progress=False)


def by_command(folder: Path, n: int) -> None:
    from lieaugmenter.cli import main

    words = ["discover", str(folder / "d.parquet"), "-o", str(folder / "run"), "--stream"]
    words += ["--generators", "1", "--epochs", "1", "--batch-size", "8192", "--views", "2"]
    try:
        main(words)
    except SystemExit as done:
        if done.code:
            raise


WAYS: dict[str, tuple[Callable[[Path, int], None], Callable[[Path, int], None] | None]] = {
    "estimator, .npy": (by_estimator, write_npy),
    "command line, .parquet": (by_command, write_parquet),
    "fit, IterableDataset": (by_fit, None),
    "estimator, .npy read whole": (by_estimator_whole, write_npy),
}


def peak() -> float:
    """Most resident memory of this process so far, in MiB."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


def measured(way: str, n: int) -> dict[str, float]:
    """The peak of a process that learns from n samples, and before it began to."""
    with tempfile.TemporaryDirectory() as folder:
        write = WAYS[way][1]
        if write is not None:
            write(Path(folder), n)
        done = subprocess.run(
            [sys.executable, __file__, "--child", way, folder, str(n)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout.splitlines()[-1])


def child(way: str, folder: str, n: str) -> None:
    before = peak()
    WAYS[way][0](Path(folder), int(n))
    print(json.dumps({"before": before, "peak": peak()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        child(*chosen.child)
        return
    results = {}
    for way in chosen.ways:
        few, many = (measured(way, n) for n in (chosen.samples, TIMES * chosen.samples))
        results[way] = {
            "ratio": many["peak"] / few["peak"],
            "peak_mib": [few["peak"], many["peak"]],
            "before_mib": [few["before"], many["before"]],
        }
        print(
            f"{way:30s} {few['peak']:7.0f} MiB  {many['peak']:7.0f} MiB  "
            f"ratio {results[way]['ratio']:.3f}",
            flush=True,
        )
    sizes = [FEATURES * 8 * n / 2**20 for n in (chosen.samples, TIMES * chosen.samples)]
    write_json(
        chosen.out,
        {
            "samples": [chosen.samples, TIMES * chosen.samples],
            "data_mib": sizes,
            "ways": results,
            "environment": environment(),
        },
    )


if __name__ == "__main__":
    main()

"""Events and squared amplitudes of q q̄ → Z + gluons per second, and how exact they are.

Prints and writes benchmarks/results/amplitudes.json (or --out).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from lieaugmenter.data.amplitudes import squared_amplitude
from lieaugmenter.data.phase_space import random_lorentz, scatter
from lieaugmenter.runs import environment, write_json

RESULTS = Path(__file__).parent / "results" / "amplitudes.json"
EVENTS = {1: 100_000, 2: 100_000, 3: 100_000, 4: 10_000}


def measure(gluons: int, events: int) -> dict[str, Any]:
    rng = np.random.default_rng(gluons)
    started = time.monotonic()
    momenta = scatter(events, gluons, rng)
    drawn = time.monotonic()
    squares = squared_amplitude(momenta)
    finished = time.monotonic()
    moved = squared_amplitude(momenta @ random_lorentz(events, rng, rapidity=1.0).mT)
    return {
        "events": events,
        "seconds_for_events": drawn - started,
        "seconds_for_amplitudes": finished - drawn,
        "seconds_for_100000": (finished - started) * 100_000 / events,
        "events_per_second": events / (finished - started),
        "largest_relative_change_in_random_frames": float(np.abs(moved / squares - 1).max()),
        "deviation_of_the_logarithm": float(np.log(squares).std()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    # The first events load libraries.
    squared_amplitude(scatter(1000, 1, np.random.default_rng(0)))
    gluons = {str(n): measure(n, events) for n, events in EVENTS.items()}
    write_json(arguments.out, {"environment": environment(), "gluons": gluons})
    for n, row in gluons.items():
        print(
            f"{n} gluons: {row['events_per_second']:.0f} events a second, "
            f"{row['seconds_for_100000']:.2f} s for 100,000, moved frames change |M|² by up to "
            f"{row['largest_relative_change_in_random_frames']:.1g}"
        )


if __name__ == "__main__":
    main()

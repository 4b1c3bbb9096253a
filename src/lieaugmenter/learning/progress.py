"""Progress of a long run, one line that rewrites itself (or a few lines in a log)."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TextIO

_BAR = 24
# In a log file: a line after every tenth of the work.
_LOG_LINES = 10


class TextProgress:
    """A progress bar with losses and time left, on standard error unless told otherwise.

    Parameters
    ----------
    total
        Number of steps of the whole run.
    label
        What is running.
    stream
        Where to write.
    """

    def __init__(self, total: int, label: str = "fit", stream: TextIO | None = None) -> None:
        self.total = max(total, 1)
        self.label = label
        self.stream = sys.stderr if stream is None else stream
        self.started = time.monotonic()
        self.first: int | None = None
        self.last_drawn = 0.0
        self.last_tenth = -1

    def update(self, done: int, values: Mapping[str, float]) -> None:
        """Show that `done` steps are finished; draws at most a few times a second."""
        now = time.monotonic()
        if self.first is None:
            self.first = done
        if self.stream.isatty():
            if now - self.last_drawn < 0.2 and done < self.total:
                return
            self.last_drawn = now
            self.stream.write("\r\x1b[2K" + self.line(done, values))
        else:
            tenth = done * _LOG_LINES // self.total
            if tenth == self.last_tenth:
                return
            self.last_tenth = tenth
            self.stream.write(self.line(done, values) + "\n")
        self.stream.flush()

    def line(self, done: int, values: Mapping[str, float]) -> str:
        """The text for a state of affairs."""
        filled = round(_BAR * done / self.total)
        losses = "  ".join(f"{name} {value:.3g}" for name, value in values.items())
        elapsed = time.monotonic() - self.started
        steps = done - (self.first or 0)
        left = f"{_clock(elapsed / steps * (self.total - done))} left" if steps > 0 else ""
        bar = "█" * filled + "·" * (_BAR - filled)
        return f"{self.label} {bar} {100 * done // self.total:3d} %  {left}  {losses}"

    def close(self) -> None:
        """End the line."""
        if self.stream.isatty():
            self.stream.write("\n")
            self.stream.flush()


def told(words: str) -> None:
    """A line on standard error, for what takes long and has no steps to count."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

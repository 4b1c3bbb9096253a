"""The program that holds all commands, and how errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import torch
from cyclopts import App, CycloptsError

import lieaugmenter
from lieaugmenter.cli.answers import answer, complain
from lieaugmenter.data.files import DataError
from lieaugmenter.learning import TrainingDiverged
from lieaugmenter.learning.distributed import joined
from lieaugmenter.processes import is_lost_connection, process_count
from lieaugmenter.runs import RunError, in_short

# Exit codes; 0 is done. A check above its limit:
ABOVE_LIMIT = 1
# One message, never a traceback.
BAD_INPUT = 2
# Only with --strict.
INCONCLUSIVE = 3
# By --time-limit; the same command continues.
STOPPED = 4
INTERRUPTED = 130
# Nobody reads on, as after `| head`: the code of programs that SIGPIPE ends.
CLOSED_PIPE = 141

app = App(
    name="lieaugmenter",
    help="Discover the continuous symmetry of a task, with a predictor that respects it.",
    version=lieaugmenter.__version__,
    # main() says how to continue.
    suppress_keyboard_interrupt=False,
)


class Stopped(Exception):  # noqa: N818  # it names what happened
    """A command reached its time limit; the message says how it goes on."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code.

    Parameters
    ----------
    arguments
        Words after the program's name; those of the process unless given.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _code_of(words)
        # Not left to the interpreter, which at its end would tell of a closed pipe.
        sys.stdout.flush()
    except BrokenPipeError:
        code = CLOSED_PIPE
    except SystemExit as stop:
        # Which rich makes of a closed pipe, with the code of a check above its limit.
        if not isinstance(stop.__context__, BrokenPipeError):
            raise
        code = CLOSED_PIPE
    except OSError as error:
        complain(f"the result cannot be written: {error}")
        code = BAD_INPUT
    _drop_what_cannot_be_written()
    sys.exit(code)


def _drop_what_cannot_be_written() -> None:
    """Let it vanish, for the interpreter tries again at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _code_of(words: Sequence[str]) -> int:
    """Run a command; the code to exit with."""
    try:
        with joined():
            code = app(words, exit_on_error=False, result_action="return_value")
    except CycloptsError as error:
        # cyclopts has printed its message.
        _answer_in_json(words, "error", str(error))
        code = BAD_INPUT
    except BrokenPipeError:
        # An OSError, but no bad input.
        raise
    except (DataError, RunError, TrainingDiverged, ImportError, ValueError, OSError) as error:
        # An ImportError says which extra is missing.
        code = _end(words, "error", str(error), BAD_INPUT)
    except (MemoryError, torch.OutOfMemoryError) as error:
        code = _end(words, "error", _no_memory(error), BAD_INPUT)
    except RuntimeError as error:
        # How torch says it of the memory of a CPU.
        if "can't allocate memory" in str(error):
            message = _no_memory(error)
        elif is_lost_connection(error):
            message = "another process of this run has ended; its message says why"
        else:
            raise
        code = _end(words, "error", message, BAD_INPUT)
    except Stopped as stop:
        code = _end(words, "stopped", str(stop), STOPPED)
    except KeyboardInterrupt as stop:
        code = _end(words, "stopped", str(stop) or "interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _end(words: Sequence[str], what: str, message: str, code: int) -> int:
    """Say why there is no result, and with which code to exit."""
    complain(message)
    _answer_in_json(words, what, message)
    return code


def _answer_in_json(words: Sequence[str], what: str, message: str) -> None:
    """The same for a program, if one asked: by the words, for what failed may be their parsing."""
    if "--json" in words:
        answer({what: message}, as_json=True, text=message)


def _no_memory(error: Exception) -> str:
    return f"not enough memory: {in_short(error)}. Try fewer --views, or a smaller data set"


def refuse_torchrun(command: str) -> None:
    """Refuse to run a command of many runs in processes that train together.

    Parameters
    ----------
    command
        Its name.
    """
    if process_count() > 1:
        raise ValueError(f"{command} trains each of its runs in one process: leave out torchrun")

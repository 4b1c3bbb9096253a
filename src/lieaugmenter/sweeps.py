"""Many runs: a grid of settings and seeds in one folder, which any number of workers share.

What is to be run, and what came of it, is an Optuna study in a journal file, so that Optuna's own
tools can read it. Which trials are being worked on is a matter of locks, one file for each trial:
the kernel lets go of a lock when the process that holds it ends, however it ends. A trial that is
said to be running while nobody holds its lock has lost its worker, and the next one takes it over.

The journal is read and written by one process at a time, the one that holds ``locks/journal``.
"""

from __future__ import annotations

import itertools
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from lieaugmenter.runs import RunError, RunFolder, read_json, write_json

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, TrialState
except ImportError:
    raise ImportError("sweeps need Optuna: pip install 'lieaugmenter[sweep]'") from None

try:
    import fcntl
except ImportError:  # Windows
    raise ImportError("sweeps need the file locks of Linux or macOS") from None

_STUDY = "lieaugmenter"
_LARGEST_SEED = 2**31 - 1
# A trial that cost this many workers their lives will cost the next one too.
_MOST_WORKERS_LOST = 3
# Seconds between looks at the trials of other workers.
_LOOK_EVERY = 1.0


class TrialFailed(Exception):  # noqa: N818  # it names what happened
    """The settings of a trial lead nowhere; the message says why. The sweep goes on."""


@dataclass(frozen=True)
class Plan:
    """What a sweep is to run: every setting of the grid with every seed.

    Attributes
    ----------
    options
        Words of the command line that all trials share, the data first.
    grid
        Values to combine, as words, by option.
    seeds
        Number of seeds, from 0 on.

    Examples
    --------
    >>> plan = Plan(["data.npz"], {"range": ["1", "2"]}, seeds=2)
    >>> [str(trial) for trial in plan.trials()]
    ['range=1, seed 0', 'range=2, seed 0', 'range=1, seed 1', 'range=2, seed 1']
    """

    options: list[str]
    grid: dict[str, list[str]]
    seeds: int

    def settings(self) -> list[dict[str, str]]:
        """Every combination of the grid's values; one empty setting where there is no grid."""
        combined = itertools.product(*self.grid.values())
        return [dict(zip(self.grid, values, strict=True)) for values in combined]

    def trials(self) -> list[Trial]:
        """All trials, seed by seed, so that a sweep that is stopped early has tried everything."""
        return [Trial(setting, seed) for seed in range(self.seeds) for setting in self.settings()]


@dataclass(frozen=True)
class Trial:
    """One run of a sweep.

    Attributes
    ----------
    setting
        Its values of the grid.
    seed
        Its seed.
    number
        Its place in the study; -1 before it has one.
    """

    setting: Mapping[str, str]
    seed: int
    number: int = -1

    def words(self) -> list[str]:
        """The trial as options of the command line."""
        words = [
            word for name, value in self.setting.items() for word in (f"--{name}", *value.split())
        ]
        return [*words, "--seed", str(self.seed)]

    def __str__(self) -> str:
        return ", ".join([*(f"{k}={v}" for k, v in self.setting.items()), f"seed {self.seed}"])


@dataclass
class Row:
    """What came of one setting.

    Attributes
    ----------
    setting
        Its values of the grid.
    losses
        Validation loss of each seed that is done.
    verdicts
        How often each verdict was given.
    failed
        Why seeds failed, one message each.
    running, waiting
        Seeds that are not done.
    """

    setting: dict[str, str]
    losses: dict[int, float] = field(default_factory=dict)
    verdicts: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    running: int = 0
    waiting: int = 0

    @property
    def mean(self) -> float | None:
        """Mean validation loss over the seeds that are done."""
        return statistics.fmean(self.losses.values()) if self.losses else None

    @property
    def std(self) -> float | None:
        """Their standard deviation, with the number of seeds as divisor."""
        return statistics.pstdev(self.losses.values()) if self.losses else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"mean": self.mean, "std": self.std}


class Sweep:
    """The folder of a sweep.

    ``sweep.json`` (the plan), ``journal.log`` (the study), ``trials/0000`` and so on (a run folder
    each), ``locks`` (who is at work), ``summary.json`` and ``summary.png``.

    Parameters
    ----------
    path
        A folder that holds a sweep; `Sweep.join` makes one.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.plan = _read_plan(self.path)

    @classmethod
    def join(cls, path: str | Path, plan: Plan, *, retry: bool = False) -> Sweep:
        """Take part in the sweep of a folder; it is begun if it is new.

        Parameters
        ----------
        path
            The folder.
        plan
            What to run. A sweep that is there already must be the same, but for more seeds.
        retry
            Put failed trials on the list again.
        """
        path = Path(path)
        _refuse_foreign_folder(path)
        with _held(path / "locks" / "journal"):
            if (path / "sweep.json").exists():
                plan = _agreed(path, _read_plan(path), plan)
            write_json(path / "sweep.json", asdict(plan))
        sweep = cls(path)
        with sweep._study() as study:
            sweep._enqueue(study, retry)
        return sweep

    def work(
        self,
        run: Callable[[Trial, RunFolder], float],
        *,
        wait: bool = True,
        say: Callable[[str], None] = print,
    ) -> None:
        """Do trials until there are none left.

        Parameters
        ----------
        run
            Does a trial in its run folder, which may hold the beginnings of another worker, and
            returns the validation loss. `TrialFailed` counts as a failure; with any other exception
            the worker ends and the trial is left to others.
        wait
            Stay until the trials of other workers are done, to take them over if their workers
            are killed.
        say
            Told about each trial.
        """
        while True:
            claimed = self._claim()
            if claimed is None:
                if not (wait and self._unfinished()):
                    return
                time.sleep(_LOOK_EVERY)
                continue
            trial, lock = claimed
            say(f"trial {trial.number}: {trial}")
            try:
                self._tell(trial, loss=run(trial, self.folder(trial.number)))
            except TrialFailed as failure:
                say(f"trial {trial.number} failed: {failure}")
                self._tell(trial, error=str(failure))
            except BaseException:
                _strike_last_worker(lock)
                raise
            finally:
                lock.close()

    def folder(self, number: int) -> RunFolder:
        """The run folder of a trial."""
        return RunFolder(self.path / "trials" / f"{number:04d}")

    def rows(self) -> list[Row]:
        """What came of each setting so far."""
        rows = {_key(setting): Row(setting) for setting in self.plan.settings()}
        with self._study() as study:
            trials = _latest(study.get_trials(deepcopy=False))
        for frozen in trials:
            trial = _trial_of(frozen)
            row = rows[_key(trial.setting)]
            if frozen.state == TrialState.COMPLETE and frozen.value is not None:
                row.losses[trial.seed] = frozen.value
                verdict = _verdict_in(self.folder(trial.number))
                row.verdicts[verdict] = row.verdicts.get(verdict, 0) + 1
            elif frozen.state == TrialState.FAIL:
                row.failed.append(f"seed {trial.seed}: {self._error(trial.number)}")
            elif frozen.state == TrialState.RUNNING:
                row.running += 1
            else:
                row.waiting += 1
        return list(rows.values())

    # -- the study ----------------------------------------------------------------------------

    @contextmanager
    def _study(self) -> Iterator[optuna.Study]:
        """The study, for this process alone."""
        journal = self.path / "journal.log"
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with _held(self.path / "locks" / "journal"):
            _drop_half_a_line(journal)
            yield optuna.create_study(
                study_name=_STUDY,
                storage=JournalStorage(JournalFileBackend(str(journal))),
                direction="minimize",
                load_if_exists=True,
            )

    def _enqueue(self, study: optuna.Study, retry: bool) -> None:
        """Put on the list what is not there yet."""
        again = (TrialState.FAIL,) if retry else ()
        latest = _latest(study.get_trials(deepcopy=False))
        listed = [_identity(_trial_of(trial)) for trial in latest if trial.state not in again]
        for trial in self.plan.trials():
            if _identity(trial) not in listed:
                study.enqueue_trial(
                    {**trial.setting, "seed": trial.seed},
                    user_attrs={"setting": dict(trial.setting), "seed": trial.seed},
                )

    def _distributions(self) -> dict[str, BaseDistribution]:
        """What Optuna has to know of parameters to record them; nothing is drawn."""
        grid = {name: CategoricalDistribution(values) for name, values in self.plan.grid.items()}
        return {**grid, "seed": IntDistribution(0, _LARGEST_SEED)}

    def _claim(self) -> tuple[Trial, IO[str]] | None:
        """A trial to do and its lock: one that has lost its worker, or else the next on the list.

        None where all are done or in good hands.
        """
        with self._study() as study:
            for frozen in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                lock = _take(self._lock(frozen.number))
                if lock is None:
                    continue
                lost = _workers(lock)
                if len(lost) < _MOST_WORKERS_LOST:
                    return self._begin(_trial_of(frozen), lock)
                lock.close()
                self._note_failure(study, frozen.number, f"its worker died {len(lost)} times")
            if not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                return None
            asked = study.ask(self._distributions())
            lock = _take(self._lock(asked.number))
            # Nobody else can hold it: trials are claimed by one process at a time.
            assert lock is not None
            attributes = asked.user_attrs
            trial = Trial(attributes["setting"], attributes["seed"], asked.number)
            return self._begin(trial, lock)

    @staticmethod
    def _begin(trial: Trial, lock: IO[str]) -> tuple[Trial, IO[str]]:
        lock.write(f"{platform.node()} {os.getpid()}\n")
        lock.flush()
        return trial, lock

    def _tell(self, trial: Trial, *, loss: float | None = None, error: str = "") -> None:
        with self._study() as study:
            # Optuna takes no loss that is not a number.
            if loss is None or loss != loss:
                error = error or "the validation loss is not a number"
                self._note_failure(study, trial.number, error)
            else:
                study.tell(trial.number, loss)

    def _note_failure(self, study: optuna.Study, number: int, error: str) -> None:
        write_json(self.folder(number).path / "failure.json", {"error": error})
        study.tell(number, state=TrialState.FAIL)

    def _error(self, number: int) -> str:
        return str(read_json(self.folder(number).path / "failure.json")["error"])

    def _unfinished(self) -> bool:
        with self._study() as study:
            return bool(
                study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.WAITING))
            )

    def _lock(self, number: int) -> Path:
        return self.path / "locks" / f"{number:04d}"


# -- what is in the files --------------------------------------------------------------------------


def _refuse_foreign_folder(path: Path) -> None:
    """Stop at a folder that holds something, but no sweep."""
    names = [entry.name for entry in path.iterdir()] if path.exists() else []
    # Another worker may be beginning the sweep at this moment: it makes these first.
    foreign = [name for name in names if not name.startswith(("locks", ".sweep.json"))]
    if foreign and not (path / "sweep.json").exists():
        raise RunError(
            f"{path} is not empty (it holds {min(foreign)}) and holds no sweep; choose another "
            f"folder, so that nothing of yours is overwritten"
        )


def _read_plan(path: Path) -> Plan:
    if not (path / "sweep.json").exists():
        raise RunError(f"{path} holds no sweep: it has no sweep.json")
    content = read_json(path / "sweep.json")
    try:
        return Plan(**content)
    except TypeError:
        raise RunError(f"{path / 'sweep.json'} is damaged: it is no plan of a sweep") from None


def _agreed(path: Path, then: Plan, now: Plan) -> Plan:
    """The plan of a sweep that is joined; only its seeds may become more."""
    differences = [
        f"{name}: {getattr(then, name)!r} then, {getattr(now, name)!r} now"
        for name in ("options", "grid")
        if getattr(then, name) != getattr(now, name)
    ]
    if differences:
        raise RunError(
            f"{path} holds a sweep with other settings ({'; '.join(differences)}). Choose another "
            f"folder"
        )
    return replace(then, seeds=max(then.seeds, now.seeds))


def _trial_of(frozen: FrozenTrial) -> Trial:
    return Trial(frozen.user_attrs["setting"], frozen.user_attrs["seed"], frozen.number)


def _key(setting: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(setting.items())


def _identity(trial: Trial) -> tuple[Any, int]:
    return _key(trial.setting), trial.seed


def _latest(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The last trial of each setting and seed: those before it failed and were done again."""
    return list({_identity(_trial_of(trial)): trial for trial in trials}.values())


def _verdict_in(folder: RunFolder) -> str:
    verdict = read_json(folder.path / "verdict.json")
    return " ".join(str(verdict[key]) for key in ("outcome", "group") if verdict.get(key))


def _drop_half_a_line(journal: Path) -> None:
    """Cut off what a worker was writing when it was killed: the journal could not be read again."""
    if not journal.exists():
        return
    content = journal.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(journal, whole)


# -- locks -----------------------------------------------------------------------------------------


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold the lock of a file, once nobody else does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _take(path: Path) -> IO[str] | None:
    """The file with its lock, to be closed when it is no longer needed; None if it is taken."""
    handle = path.open("a+")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    return handle


def _workers(lock: IO[str]) -> list[str]:
    """Who began the trial and neither finished it nor gave it back."""
    lock.seek(0)
    return lock.read().splitlines()


def _strike_last_worker(lock: IO[str]) -> None:
    """Give a trial back: its worker leaves in good order, and does not count as lost."""
    remaining = _workers(lock)[:-1]
    lock.truncate(0)
    lock.write("".join(f"{worker}\n" for worker in remaining))
    lock.flush()

"""Sweeps: every trial is done once, by whichever worker lives, and counted honestly."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from lieaugmenter.cli import main
from lieaugmenter.runs import RunError, RunFolder, read_json, read_tensors, write_json

pytest.importorskip("matplotlib")
pytest.importorskip("optuna", reason="needs Optuna: pip install 'lieaugmenter[sweep]'")

from lieaugmenter.report import many_runs
from lieaugmenter.sweeps import Plan, Sweep, Trial, TrialFailed

PLAN = Plan(["data.npz"], {"range": ["1", "2"]}, seeds=2)
# A worker whose trials take no training: it notes that it did each.
WORKER = """
import os, sys, time
from pathlib import Path
from lieaugmenter.runs import write_json
from lieaugmenter.sweeps import Plan, Sweep

def run(trial, folder):
    with Path("done").open("a") as file:
        file.write(f"{trial.number}\\n")
    time.sleep(float(sys.argv[1]))
    write_json(folder.path / "verdict.json", {"outcome": "inconclusive", "group": None})
    return 1.0

Sweep.join("sweep", Plan(["data.npz"], {"range": ["1", "2"]}, 6)).work(run)
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def wait_for(happened: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def text_of(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""


def finish(loss: Callable[[Trial], float]) -> Callable[[Trial, RunFolder], float]:
    """A trial without training, that leaves what the summary needs."""

    def run(trial: Trial, folder: RunFolder) -> float:
        write_json(folder.path / "verdict.json", {"outcome": "certified", "group": "so(2)"})
        return loss(trial)

    return run


def test_mean_and_std_are_over_the_seeds_of_a_setting() -> None:
    sweep = Sweep.join("sweep", PLAN)
    sweep.work(finish(lambda trial: float(trial.setting["range"]) + 2 * trial.seed))
    first, second = sweep.rows()
    assert (first.mean, first.std) == (2.0, 1.0)
    assert (second.mean, second.std) == (3.0, 1.0)
    assert first.verdicts == {"certified so(2)": 2}
    lines = many_runs.table(sweep.rows())
    assert " ".join(lines[1].split()) == ">> range=1 2 ± 1 2 2 × certified so(2)"
    assert not lines[2].startswith(">>")


def test_failures_are_counted_and_not_averaged() -> None:
    def run(trial: Trial, folder: RunFolder) -> float:
        if trial.seed == 1:
            raise TrialFailed("it diverged")
        return finish(lambda _: 5.0)(trial, folder)

    sweep = Sweep.join("sweep", PLAN)
    sweep.work(run)
    for row in sweep.rows():
        assert row.losses == {0: 5.0}
        assert row.failed == ["seed 1: it diverged"]
    assert "1, 1 failed" in many_runs.table(sweep.rows())[1]
    # A failure stays one until it is asked to be done again.
    Sweep.join("sweep", PLAN).work(finish(lambda _: 7.0))
    assert sweep.rows()[0].losses == {0: 5.0}
    Sweep.join("sweep", PLAN, retry=True).work(finish(lambda _: 7.0))
    assert sweep.rows()[0].losses == {0: 5.0, 1: 7.0}
    assert not sweep.rows()[0].failed


def test_a_loss_that_is_no_number_is_a_failure() -> None:
    sweep = Sweep.join("sweep", Plan(["x"], {}, 1))
    sweep.work(finish(lambda _: float("nan")))
    assert sweep.rows()[0].failed == ["seed 0: the validation loss is not a number"]


def test_the_study_can_be_read_by_optuna_itself() -> None:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    Sweep.join("sweep", PLAN).work(finish(lambda trial: float(trial.setting["range"])))
    storage = optuna.storages.JournalStorage(JournalFileBackend("sweep/journal.log"))
    study = optuna.load_study(study_name=None, storage=storage)
    assert study.best_params == {"range": "1", "seed": 0}
    assert study.best_value == 1.0


def test_an_interrupted_worker_gives_its_trial_back() -> None:
    def interrupted(trial: Trial, folder: RunFolder) -> float:
        raise KeyboardInterrupt

    sweep = Sweep.join("sweep", PLAN)
    # More often than workers may be lost: leaving in good order is no loss.
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            sweep.work(interrupted)
    assert text_of("sweep/locks/0000") == ""
    sweep.work(finish(lambda _: 1.0))
    assert [len(row.losses) for row in sweep.rows()] == [2, 2]


def test_another_plan_in_the_same_folder_is_refused_and_more_seeds_are_not() -> None:
    Sweep.join("sweep", PLAN).work(finish(lambda _: 1.0))
    with pytest.raises(RunError, match=r"grid: .*'2'.* then, .*'3'.* now"):
        Sweep.join("sweep", Plan(PLAN.options, {"range": ["1", "3"]}, 2))
    with pytest.raises(RunError, match="options"):
        Sweep.join("sweep", Plan(["other.npz"], PLAN.grid, 2))
    more = Sweep.join("sweep", Plan(PLAN.options, PLAN.grid, 3))
    assert [row.waiting for row in more.rows()] == [1, 1]
    # Fewer seeds do not take back what was asked.
    assert Sweep.join("sweep", PLAN).plan.seeds == 3


def test_a_folder_of_something_else_is_left_alone() -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("precious")
    with pytest.raises(RunError, match="not empty"):
        Sweep.join("mine", PLAN)
    assert [path.name for path in Path("mine").iterdir()] == ["notes.txt"]


def test_half_a_line_of_a_killed_writer_does_not_spoil_the_journal() -> None:
    sweep = Sweep.join("sweep", PLAN)
    sweep.work(finish(lambda _: 1.0))
    with Path("sweep/journal.log").open("ab") as journal:
        journal.write(b'{"op_code":5,"worker')
    assert [len(row.losses) for row in sweep.rows()] == [2, 2]
    more = Sweep.join("sweep", Plan(PLAN.options, PLAN.grid, 3))
    more.work(finish(lambda _: 1.0))
    assert [len(row.losses) for row in Sweep("sweep").rows()] == [3, 3]


def test_workers_share_trials_and_do_each_once() -> None:
    with process("-c", WORKER, "0.05") as a, process("-c", WORKER, "0.05") as b:
        assert a.wait(120) == b.wait(120) == 0
    assert sorted(text_of("done").split(), key=int) == [str(n) for n in range(12)]
    assert [len(row.losses) for row in Sweep("sweep").rows()] == [6, 6]


def test_a_trial_that_kills_its_workers_is_given_up() -> None:
    sweep = Sweep.join("sweep", Plan(["data.npz"], {"range": ["1", "2"]}, 6))
    with process("-c", WORKER, "1000") as worker:
        wait_for(lambda: text_of("done").split() == ["0"])
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    # Two more went the same way.
    with Path("sweep/locks/0000").open("a") as lock:
        lock.write("here 1\nthere 2\n")
    sweep.work(finish(lambda _: 1.0))
    assert sweep.rows()[0].failed == ["seed 0: its worker died 3 times"]
    assert [len(row.losses) for row in sweep.rows()] == [5, 6]


def save_ring() -> None:
    x = np.random.default_rng(0).normal(size=(300, 2))
    np.savez("ring.npz", X=x, y=np.linalg.norm(x, axis=1))


DISCOVER = ["ring.npz", "--generators", "1", "--epochs", "12", "--views", "2"]


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(words)
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_what_a_killed_worker_began_another_ends_with_the_same_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A real SIGKILL, in the middle of a training, while another worker waits for it."""
    save_ring()
    words = ["sweep", *DISCOVER, "--seeds", "2", "-o", "shared"]
    checkpoint = Path("shared/trials/0000/checkpoint/state.safetensors")
    with process("-m", "lieaugmenter.cli", *words) as first:
        wait_for(checkpoint.exists)
        # Alive, but not going on: its trial must stay its own.
        first.send_signal(signal.SIGSTOP)
        assert not Path("shared/trials/0000/verdict.json").exists()

        def kill_once_it_is_waited_for() -> None:
            wait_for(Path("shared/trials/0001/report.html").exists)
            time.sleep(1.5)
            left_alone.append(len(text_of("shared/locks/0000").splitlines()))
            first.send_signal(signal.SIGKILL)

        left_alone: list[int] = []
        watcher = threading.Thread(target=kill_once_it_is_waited_for)
        watcher.start()
        code, out, _ = call(capsys, *words, "--json")
        watcher.join()
    assert code == 0
    assert left_alone == [1]
    assert len(text_of("shared/locks/0000").splitlines()) == 2
    (row,) = json.loads(out)["settings"]
    assert set(row["losses"]) == {"0", "1"}
    assert not row["failed"]
    # Continued, not begun anew, and as if nothing had happened.
    assert call(capsys, "discover", *DISCOVER, "--seed", "0", "-o", "alone")[0] == 0
    expected, _ = read_tensors(Path("alone/basis.safetensors"))
    found, _ = read_tensors(Path("shared/trials/0000/basis.safetensors"))
    assert found["generators"].equal(expected["generators"])


def test_a_sweep_writes_its_summary_and_can_be_summarised_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_ring()
    words = ["ring.npz", "--generators", "1", "--epochs", "1", "--views", "2"]
    # Blocks of 3 do not fit two features: that setting fails, the others go on.
    code, out, err = call(capsys, "sweep", *words, "--grid", "blocks=1 1,3", "--seeds", "1")
    assert code == 0
    assert "blocks=1 1" in out
    assert "blocks sum to 3 but dim is 2" in out + err
    assert Path("sweeps/ring/summary.png").read_bytes().startswith(b"\x89PNG")
    rows = read_json(Path("sweeps/ring/summary.json"))
    assert [len(row["failed"]) for row in rows] == [0, 1]
    losses = read_tensors(Path("sweeps/ring/trials/0000/basis.safetensors"))[1]["table"]
    assert rows[0]["losses"]["0"] == losses[0]["validation_loss"]
    again = call(capsys, "sweep", "--summary", "sweeps/ring", "--json")
    assert json.loads(again[1])["settings"] == rows


def test_a_disk_that_cannot_be_written_to_ends_the_worker_and_fails_no_trial(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_ring()
    words = ["sweep", "ring.npz", "--generators", "1", "--epochs", "1", "--views", "2"]
    assert call(capsys, *words, "--seeds", "1")[0] == 0
    Path("sweeps/ring/trials").rename("elsewhere")
    Path("sweeps/ring/trials").write_text("no folder")
    code, _, err = call(capsys, *words, "--seeds", "2")
    assert code == 2
    assert "cannot write to sweeps/ring/trials/0001" in err
    Path("sweeps/ring/trials").unlink()
    Path("elsewhere").rename("sweeps/ring/trials")
    (row,) = Sweep("sweeps/ring").rows()
    assert (len(row.losses), row.failed) == (1, [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ring.npz", "--grid", "range"], "such as range=1,2,3"),
        (["ring.npz", "--grid", "range=1,1"], "once"),
        (["ring.npz", "--grid", "reach=1,2"], "Unknown option"),
        (["ring.npz", "--grid", "range=far"], "range"),
        (["ring.npz", "--seed", "3"], "a sweep has --seeds"),
        (["ring.npz", "--seeds", "0"], "at least one"),
        (["nowhere.npz"], "nowhere.npz"),
        (["--summary", "nowhere"], "holds no sweep"),
        ([], "give the data"),
    ],
)
def test_a_mistake_is_answered_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    save_ring()
    code, out, err = call(capsys, "sweep", *words)
    assert code == 2
    assert message in out + err
    assert not Path("sweeps").exists()


def test_without_optuna_one_message_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "from lieaugmenter.cli import main; main(['sweep', 'ring.npz'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'lieaugmenter[sweep]'" in done.stderr
    assert "Traceback" not in done.stderr

"""The command line: commands, exit codes, one clear message for each mistake."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lieaugmenter.cli import main
from lieaugmenter.data.files import read_data
from lieaugmenter.runs import RunFolder


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return int(stop.value.code or 0), captured.out, captured.err


def save_radial(path: str = "ring.npz", n: int = 300) -> None:
    x = np.random.default_rng(0).normal(size=(n, 2))
    np.savez(path, X=x, y=np.linalg.norm(x, axis=1))


def test_demo_says_what_it_found_and_writes_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "demo", "--epochs", "1", "--json")
    result = json.loads(out)
    assert code == 0
    assert "cosine" in result["sentence"]
    assert result["run"] == "runs/demo"
    page = Path(result["report"]).read_text(encoding="utf-8")
    assert "<svg" in page
    assert "q1x" in page
    assert "lieaugmenter demo --seed 0 --epochs 1" in page
    # A second demo takes the next free folder.
    _, out, _ = call(capsys, "demo", "--epochs", "1", "--json")
    assert json.loads(out)["run"] == "runs/demo-2"


def test_demo_on_digits_says_what_it_found_and_writes_a_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = call(capsys, "demo", "digits", "--epochs", "1", "--json")
    result = json.loads(out)
    assert code == 0
    assert "The rotation of the image plane was" in result["sentence"]
    assert result["run"] == "runs/demo-digits"
    assert 0 <= result["numbers"]["cosine to the true generator"] <= 1
    assert 0 <= result["numbers"]["test accuracy, averaged over the symmetry"] <= 1
    assert np.shape(result["generators"]) == (1, 3, 3)
    page = Path(result["report"]).read_text(encoding="utf-8")
    assert "lieaugmenter demo digits --seed 0 --epochs 1" in page
    code, _, err = call(capsys, "resume", "runs/demo-digits")
    assert code == 0
    assert "finished" in err


def test_demo_of_something_else_is_answered_with_what_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = call(capsys, "demo", "letters")
    assert code == 2
    assert "two-body" in out + err
    assert "digits" in out + err


@pytest.mark.parametrize("missing", ["cyclopts", "rich"])
def test_without_its_extra_the_command_line_says_how_to_get_it(missing: str) -> None:
    code = f"import sys; sys.modules['{missing}'] = None; from lieaugmenter.cli import main"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "the command line needs: pip install 'lieaugmenter[cli]'\n"


def save_images(folder: str = "tissue", size: tuple[int, int] = (12, 10)) -> None:
    """Class folders of colour images: a bright or a dark spot in the middle."""
    rng = np.random.default_rng(0)
    for kind, brightness in (("bright", 250), ("dark", 5)):
        Path(folder, kind).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(80, 170, (*size, 3)).astype(np.uint8)
            pixels[4:8, 4:8] = brightness
            Image.fromarray(pixels).save(Path(folder, kind, f"{i}.png"))


def test_discover_reads_class_folders_of_images(capsys: pytest.CaptureFixture[str]) -> None:
    save_images()
    words = ["--action", "image", "--epochs", "1", "--views", "2"]
    code, out, _ = call(capsys, "discover", "tissue", *words, "-o", "runs/x", "--json")
    assert code == 0
    assert np.shape(json.loads(out)["generators"]) == (1, 3, 3)
    run = RunFolder.open("runs/x")
    assert run.finished
    assert run.config()["estimator"] == "SymmetryClassifier"
    assert run.config()["data"]["x_shape"] == [24, 3, 12, 10]
    code, _, _ = call(capsys, "discover", "tissue", *words, "--size", "8", "-o", "runs/y")
    assert code == 0
    assert RunFolder.open("runs/y").config()["data"]["x_shape"] == [24, 3, 8, 8]
    assert "--size 8" in Path("runs/y/report.html").read_text(encoding="utf-8")


def test_discover_reads_an_archive_and_an_npz_of_images(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_images()
    shutil.make_archive("packed", "zip", "tissue")
    table = read_data("tissue")
    np.savez("grey.npz", X=table.x[:, :1], y=table.y)
    for data, channels in (("packed.zip", 3), ("grey.npz", 1)):
        words = ["discover", data, "--action", "image", "--epochs", "1", "--views", "2"]
        code, _, _ = call(capsys, *words, "-o", f"runs/{data}")
        assert code == 0
        shape = RunFolder.open(f"runs/{data}").config()["data"]["x_shape"]
        assert shape == [24, channels, 12, 10]


def test_doctor_looks_at_class_folders(capsys: pytest.CaptureFixture[str]) -> None:
    save_images()
    code, out, _ = call(capsys, "doctor", "tissue", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["X"] == {"shape": [24, 3, 12, 10], "dtype": "uint8"}
    assert facts["actions"] == ["image"]
    assert facts["task"] == "classification"
    assert any("y holds 2 words" in note["text"] for note in facts["notes"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["discover", "tissue"], "tissue: holds images; say so with --action image"),
        (["discover", "empty", "--action", "image"], "no class folders with images"),
        (["discover", "tissue/dark", "--action", "image"], "lies in no class folder"),
        (["doctor", "mixed"], "mixed: dark/zz.png has 3 × 3 pixels, bright/0.png has 12 × 10"),
        (["doctor", "d.npz", "--size", "8"], "a size is for folders and archives of images"),
        (["discover", "grey.npz", "--action", "image"], "for grey images without a channel axis"),
    ],
)
def test_images_that_do_not_fit_get_one_message_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    save_images()
    save_images("mixed")
    Image.new("RGB", (3, 3)).save("mixed/dark/zz.png")
    Path("empty").mkdir()
    save_radial("d.npz")
    np.savez("grey.npz", X=np.zeros((20, 8, 8), np.uint8), y=np.arange(20) % 2)
    code, _, err = call(capsys, *words)
    assert code == 2
    assert message in err
    assert not list(Path().glob("runs/*"))


def test_discover_reads_fits_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    save_radial()
    code, out, err = call(
        capsys, "discover", "ring.npz", "--epochs", "2", "--views", "2", "-o", "runs/ring"
    )
    assert code == 0
    assert "report: runs/ring/report.html" in out
    assert "left" in err  # the progress bar
    run = RunFolder.open("runs/ring")
    assert run.finished
    assert len(run.metrics()) == 2


def test_discover_takes_a_dipole_of_points_for_a_vector(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = np.random.default_rng(0).normal(size=(80, 4, 3))
    np.savez("atoms.npz", X=x, dipole=x[:, 0] - x[:, 1])
    asked = ("discover", "atoms.npz", "--target", "dipole", "--action", "points")
    quick = ("--generators", "3", "--epochs", "1", "--views", "2", "--json")
    code, out, err = call(capsys, *asked, "--output", "same", *quick)
    assert code == 2
    assert "output='vector'" in out + err
    code, out, err = call(capsys, *asked, "--output", "vector", "-o", "runs/atoms", *quick)
    assert code == 0
    code, out, err = call(capsys, "resume", "runs/atoms", "--json")
    assert code == 0


def test_discover_classifies_words_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{a},{b},{'out' if a * a + b * b > 1 else 'in'}" for a, b in rng.normal(size=(80, 2))]
    Path("ring.csv").write_text("px,py,where\n" + "\n".join(rows))
    code, out, _ = call(
        capsys,
        "discover",
        "ring.csv",
        "--target",
        "where",
        "--epochs",
        "1",
        "--views",
        "2",
        "--json",
    )
    assert code == 0
    config = RunFolder.open(json.loads(out)["run"]).config()
    assert config["estimator"] == "SymmetryClassifier"
    assert config["parameters"]["feature_names"] == ["px", "py"]


def save_table(path: str = "ring.csv", n: int = 80) -> None:
    """A ring, beside a number of each row and a word, with semicolons between the cells."""
    x = np.random.default_rng(0).normal(size=(n, 2))
    rows = [f"{i};word;{a};{b};{np.hypot(a, b)}" for i, (a, b) in enumerate(x)]
    Path(path).write_text("id;name;px;py;r\n" + "\n".join(rows))


@pytest.mark.parametrize(("columns", "told"), [(10, False), (11, True)])
def test_doctor_tells_what_a_wide_table_costs(
    capsys: pytest.CaptureFixture[str], columns: int, told: bool
) -> None:
    x = np.random.default_rng(0).normal(size=(100, columns))
    np.savez("wide.npz", X=x, y=x[:, 0])
    _, out, _ = call(capsys, "doctor", "wide.npz")
    assert ("121 directions, of which discover judges the likeliest 100" in out) == told


def test_arrays_have_the_names_of_their_action(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2, 4)).astype("float32")
    np.savez("momenta.npz", X=x, y=x[:, :, 0].sum(1))
    short = ["--generators", "1", "--epochs", "1", "--views", "2"]
    words = ["momenta.npz", "--target", "y", "--action", "fourvector", *short, "-o", "runs/m"]
    code, out, _ = call(capsys, "discover", *words)
    assert code == 0
    assert "L1 on E, px, py, pz:" in out
    assert RunFolder.open("runs/m").config()["parameters"]["feature_names"] is None


@pytest.mark.parametrize("chosen", [["--drop", "id,name"], ["--features", "px,py"]])
def test_a_run_remembers_which_columns_it_uses(
    capsys: pytest.CaptureFixture[str], chosen: list[str]
) -> None:
    save_table()
    words = ["ring.csv", "--target", "r", *chosen]
    code, out, _ = call(capsys, "doctor", *words, "--json")
    assert code == 0
    assert json.loads(out)["X"]["shape"] == [80, 2]
    short = ["--generators", "1", "--epochs", "1", "--views", "2"]
    code, _, _ = call(capsys, "discover", *words, *short, "-o", "runs/r")
    assert code == 0
    assert RunFolder.open("runs/r").config()["parameters"]["feature_names"] == ["px", "py"]
    assert " ".join(chosen) in Path("runs/r/report.html").read_text(encoding="utf-8")
    # As if it had been killed before it had begun.
    Path("runs/s").mkdir()
    shutil.copy("runs/r/command.json", "runs/s/command.json")
    code, out, _ = call(capsys, "resume", "runs/s", "--json")
    assert code == 0
    assert np.shape(json.loads(out)["generators"]) == (1, 2, 2)


def test_a_sweep_uses_the_columns_that_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    save_table()
    words = ["ring.csv", "--target", "r", "--generators", "1", "--epochs", "1", "--views", "2"]
    code, _, err = call(capsys, "sweep", *words, "--seeds", "1", "-o", "s")
    assert code == 2
    assert "--drop 'name'" in err
    code, _, _ = call(capsys, "sweep", *words, "--drop", "id,name", "--seeds", "1", "-o", "s")
    assert code == 0


def test_check_of_a_run_takes_the_columns_that_it_was_fitted_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_table()
    words = ["ring.csv", "--target", "r", "--generators", "1", "--epochs", "1", "--views", "2"]
    call(capsys, "discover", *words, "--features", "py,px", "-o", "runs/r")
    code, out, _ = call(capsys, "check", "runs/r", "ring.csv", "--group", "so(2)", "--json")
    assert code == 0
    samples = json.loads(out)["samples"]
    assert samples == 80
    told = ["check", "runs/r", "ring.csv", "--group", "so(2)", "--features", "py,px", "--json"]
    assert call(capsys, *told)[1] == out
    code, _, err = call(capsys, *told[:-2], "px,py,r")
    assert code == 2
    assert "3 columns are left for X, but runs/r was fitted on samples of shape (2,)" in err


def test_check_takes_axes_by_the_names_of_columns(capsys: pytest.CaptureFixture[str]) -> None:
    save_table()
    Path("mine.py").write_text("def radius(x):\n    return x[:, 1:].norm(dim=1, keepdim=True)\n")
    words = ["check", "mine.py:radius", "ring.csv", "--features", "id,px,py", "--group", "so(2)"]
    by_name = call(capsys, *words, "--axes", "px", "py")
    assert by_name == call(capsys, *words, "--axes", "1", "2")
    assert by_name[0] == 0
    code, _, err = call(capsys, *words, "--axes", "px", "pz")
    assert code == 2
    assert "--axes 'pz': no such column; choose from id, px, py" in err


def test_strict_exits_with_3_when_inconclusive(capsys: pytest.CaptureFixture[str]) -> None:
    save_radial()
    words = ["discover", "ring.npz", "--epochs", "1", "--views", "2", "--strict"]
    code, out, _ = call(capsys, *words)
    assert code == 3
    # And says why.
    assert "  - Two teams of predictors, trained without augmentation" in out


def test_interrupted_run_resumes_to_the_result_of_an_uninterrupted_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_radial(n=2000)
    options = ["--epochs", "20", "--views", "4", "--device", "cpu"]
    command = [sys.executable, "-m", "lieaugmenter.cli", "discover", "ring.npz", *options]
    process = subprocess.Popen(
        [*command, "-o", "runs/stopped"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    metrics = Path("runs/stopped/metrics.jsonl")
    deadline = time.monotonic() + 120
    while not metrics.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "lieaugmenter resume runs/stopped" in errors
    assert "Traceback" not in errors
    assert not RunFolder.open("runs/stopped").finished
    code, resumed, _ = call(capsys, "resume", "runs/stopped", "--json")
    assert code == 0
    # In a process of its own, like the first part: other thread counts round differently.
    whole = subprocess.run(
        [*command, "-o", "runs/whole", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(resumed)["generators"] == json.loads(whole.stdout)["generators"]


def test_finished_run_has_nothing_to_resume_and_is_reported_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_radial()
    call(capsys, "discover", "ring.npz", "--epochs", "1", "--views", "2", "-o", "runs/r")
    code, out, err = call(capsys, "resume", "runs/r", "--json")
    assert code == 0
    assert "finished" in err
    assert json.loads(out)["run"] == "runs/r"
    first = Path("runs/r/report.html").read_bytes()
    Path("runs/r/report.html").unlink()
    code, out, _ = call(capsys, "report", "runs/r")
    assert code == 0
    assert Path("runs/r/report.html").read_bytes() == first


def test_doctor_tells_what_the_data_can_show(capsys: pytest.CaptureFixture[str]) -> None:
    half = np.random.default_rng(0).normal(size=(400, 2)) * 3
    np.savez("d.npz", X=np.concatenate([half, -half], 1), y=half[:, 0])
    code, out, _ = call(capsys, "doctor", "d.npz", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["actions"] == ["vector", "affine", "fourvector"]
    assert any("rank 2 of 4" in note["text"] for note in facts["notes"])
    _, text, _ = call(capsys, "doctor", "d.npz")
    assert "rank 2 of 4" in text


@pytest.mark.parametrize("target", ["task", "actions", "notes", "X2"])
def test_doctor_tells_of_the_target_whatever_it_is_called(
    capsys: pytest.CaptureFixture[str], target: str
) -> None:
    x = np.random.default_rng(0).normal(size=(300, 2))
    np.savez("d.npz", **{"X": x, target: x[:, 0]})
    _, out, _ = call(capsys, "doctor", "d.npz", "--target", target, "--json")
    facts = json.loads(out)
    assert facts["y"] == {"name": target, "shape": [300], "dtype": "float64"}
    assert facts["task"] == "regression"


def bad(**arrays: Any) -> None:
    np.savez("bad.npz", **arrays)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["discover", "none.npz"], "none.npz: no such file"),
        (["discover", "bad.npz", "--target", "z"], "no array 'z'"),
        (["discover", "bad.npz"], "non-finite"),
        (["doctor", "bad.npz"], "non-finite"),
        (["discover", "large.npz"], "beyond 3.4e38"),
        (["doctor", "large.npz"], "beyond 3.4e38"),
        (["discover", "bad.npz", "--action", "pixels"], "pixels"),
        (["discover", "bad.npz", "--epochs", "many"], "many"),
        (["resume", "nowhere"], "nowhere is no run folder"),
        (["report", "nowhere"], "nowhere is no run folder"),
        (["dicover", "bad.npz"], "discover"),
        (["discover"], "data"),
    ],
)
def test_each_mistake_gets_one_message_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    x = np.ones((10, 3))
    x[4, 1] = np.nan
    bad(X=x, y=np.ones(10))
    np.savez("large.npz", X=np.full((10, 3), 1e39), y=np.ones(10))
    code, out, err = call(capsys, *arguments)
    assert code == 2
    assert message in (out + err).lower() or message in out + err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["doctor", "none.npz"], "none.npz: no such file"),
        (["doctor", "none.npz", "--stram"], "--stram"),
        (["dicover", "none.npz"], "dicover"),
        (["resume", "nowhere"], "nowhere is no run folder"),
    ],
)
def test_a_mistake_is_json_for_who_asks_for_it(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = call(capsys, *arguments, "--json")
    assert code == 2
    assert message in json.loads(out)["error"]
    assert message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "0", "--methods", "nonsense"], "--seeds, --methods: of which experiment?"),
        (["two-body", "--list", "--seeds", "-4"], "leave out 'two-body', --seeds"),
        (["--list", "--out", "elsewhere", "--quick"], "leave out --quick, --out"),
    ],
)
def test_a_list_of_experiments_ignores_nothing(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, out, err = call(capsys, "reproduce", *words)
    assert code == 2
    assert not out
    assert message in err


@pytest.mark.parametrize("words", [[], ["--list"]])
def test_experiments_are_listed(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, out, _ = call(capsys, "reproduce", *words, "--json")
    assert code == 0
    assert "two-body" in json.loads(out)


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        (
            {"X": np.ones((9, 8)), "y": np.ones(9)},
            ["--output", "same"],
            "needs y of the shape of X",
        ),
        ({"X": np.ones((9, 4, 4, 1)), "y": np.ones(9)}, ["--action", "fourvector"], "last"),
        ({"X": np.ones((9, 28, 28, 1)), "y": np.ones(9)}, ["--action", "image"], "channels first"),
        ({"X": np.ones((9, 8)), "y": np.ones(9)}, ["--blocks", "2", "2"], "blocks sum to 4"),
        ({"X": np.ones((9, 900)), "y": np.ones(9)}, [], "900 features"),
        ({"X": np.ones((9, 3)), "y": np.ones(9)}, ["--generators", "0"], "at least 1"),
        ({"X": np.ones((9, 3)), "y": np.ones(9)}, ["--range", "-1"], "must be positive"),
        ({"X": np.ones((9, 3)), "y": np.ones(9)}, ["--device", "tpu9"], "tpu9"),
        ({"X": np.ones((9, 3)), "y": np.ones(9)}, ["--batch-size", "0"], "batch_size=0: a step"),
        ({"X": np.ones((9, 3)), "y": np.ones(9)}, ["--batch-size", "-5"], "batch_size=-5: a step"),
    ],
)
def test_data_that_does_not_fit_gets_one_message_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arrays: dict[str, Any], options: list[str], message: str
) -> None:
    x = arrays["X"]
    # Rows that differ: copies of one would be refused for that.
    bad(X=x * np.arange(9.0).reshape(-1, *[1] * (x.ndim - 1)), y=arrays["y"])
    code, _, err = call(capsys, "discover", "bad.npz", "--epochs", "1", *options)
    assert code == 2
    assert message in err


def test_a_table_of_several_points_is_told_where_these_belong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = "x1,y1,x2,y2,fx1,fy1"
    rows = np.random.default_rng(0).normal(size=(20, 6))
    np.savetxt("forces.csv", rows, delimiter=",", header=names, comments="")
    words = ["forces.csv", "--target", "fx1,fy1", "--action", "points", "--output", "vector"]
    code, _, err = call(capsys, "discover", *words)
    assert code == 2
    assert "one point or vector of all its 4 columns; several points need X of shape" in err


def test_the_target_is_not_taken_out_of_the_features_in_silence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_table()
    code, _, err = call(capsys, "discover", "ring.csv", "--target", "r", "--features", "px,r")
    assert code == 2
    assert "ring.csv: 'r' is the target and among the features" in err


def test_an_index_without_a_name_is_dropped_by_the_name_that_doctor_tells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2))
    lines = [f"{i},{a},{b}" for i, (a, b) in enumerate(rows)]
    Path("index.csv").write_text(",a,y\n" + "\n".join(lines))
    _, out, _ = call(capsys, "doctor", "index.csv")
    assert "column 0 counts the rows" in out
    code, out, _ = call(capsys, "doctor", "index.csv", "--drop", "column 0", "--json")
    assert code == 0
    assert json.loads(out)["X"]["shape"] == [60, 1]


def test_arrays_are_read_whole_where_that_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).normal(size=(80, 2))
    np.save("x.npy", x)
    np.save("r.npy", np.hypot(*x.T))
    words = ["x.npy", "--target", "r.npy", "--no-stream"]
    code, out, _ = call(capsys, "doctor", *words, "--json")
    assert code == 0
    assert json.loads(out)["X"] == {"shape": [80, 2], "dtype": "float64"}
    short = ["--generators", "1", "--epochs", "1", "--views", "2"]
    assert call(capsys, "discover", *words, *short, "-o", "runs/r")[0] == 0
    assert call(capsys, "check", "runs/r", "x.npy", "--group", "so(2)")[0] == 0
    code, out, err = call(capsys, "predict", "runs/r", "x.npy", "--target", "r.npy")
    assert code == 0
    assert len(out.splitlines()) == 81
    assert "R2" in err


def test_check_of_a_run_on_images_turns_images(capsys: pytest.CaptureFixture[str]) -> None:
    save_images()
    words = ["--action", "image", "--epochs", "1", "--views", "2"]
    call(capsys, "discover", "tissue", *words, "-o", "runs/i")
    code, out, err = call(capsys, "check", "runs/i", "tissue", "--group", "so(2)", "--json")
    assert code == 0, err
    assert json.loads(out)["samples"] == 24


def test_finished_run_is_not_touched_by_a_second_one(capsys: pytest.CaptureFixture[str]) -> None:
    save_radial()
    call(capsys, "discover", "ring.npz", "--epochs", "1", "--views", "2", "-o", "runs/r")
    before = {path: path.read_bytes() for path in Path("runs/r").rglob("*") if path.is_file()}
    code, _, err = call(capsys, "discover", "ring.npz", "--epochs", "1", "-o", "runs/r")
    assert code == 2
    assert "never overwritten" in err
    after = {path: path.read_bytes() for path in Path("runs/r").rglob("*") if path.is_file()}
    assert before == after


def test_damaged_run_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    save_radial()
    call(capsys, "discover", "ring.npz", "--epochs", "1", "--views", "2", "-o", "runs/r")
    Path("runs/r/basis.safetensors").write_bytes(b"damaged")
    code, _, err = call(capsys, "report", "runs/r")
    assert code == 2
    assert "basis.safetensors is damaged" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    save_radial()
    Path("locked").mkdir(mode=0o500)
    code, _, err = call(capsys, "discover", "ring.npz", "-o", "locked/run")
    assert code == 2
    assert "cannot write" in err


def test_refused_request_leaves_its_folder_free(capsys: pytest.CaptureFixture[str]) -> None:
    save_radial()
    for wrong in (["--blocks", "2", "2"], ["--views", "1000000000000"], ["--generators", "99"]):
        code, _, _ = call(capsys, "discover", "ring.npz", "--epochs", "1", *wrong, "-o", "runs/r")
        assert code == 2
        assert not Path("runs/r").exists()
    code, _, _ = call(
        capsys, "discover", "ring.npz", "--epochs", "1", "--views", "2", "-o", "runs/r"
    )
    assert code == 0
    code, _, _ = call(capsys, "demo", "--seed", "-1", "-o", "runs/d")
    assert code == 2
    assert not Path("runs/d").exists()


def test_folder_with_files_of_the_user_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    save_radial()
    Path("mine").mkdir()
    Path("mine/metrics.jsonl").write_text("mine")
    code, _, err = call(capsys, "discover", "ring.npz", "-o", "mine")
    assert code == 2
    assert "is not empty (it holds metrics.jsonl)" in err
    assert Path("mine/metrics.jsonl").read_text() == "mine"


@pytest.mark.parametrize("name", ["verdict.json", "environment.json", "config.json"])
def test_run_with_an_emptied_file_is_named(capsys: pytest.CaptureFixture[str], name: str) -> None:
    save_radial()
    call(capsys, "discover", "ring.npz", "--epochs", "1", "--views", "2", "-o", "runs/r")
    Path("runs/r", name).write_text("{" if name == "environment.json" else "{}")
    code, _, err = call(capsys, "report", "runs/r")
    assert code == 2
    assert name in err


def test_many_whole_numbers_ask_for_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    np.savez("d.npz", X=rng.normal(size=(100, 2)), y=np.arange(100))
    code, _, err = call(capsys, "discover", "d.npz", "--epochs", "1")
    assert code == 2
    assert "--task classification or --task regression" in err
    code, _, _ = call(
        capsys, "discover", "d.npz", "--epochs", "1", "--views", "2", "--task", "regression"
    )
    assert code == 0


@pytest.mark.parametrize("stream", [False, True])
def test_whole_numbers_that_may_be_counts_are_told_to_be_classes(
    capsys: pytest.CaptureFixture[str], stream: bool
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    for name, y in (("counts", np.arange(60) % 24), ("labels", np.arange(60) % 2)):
        if stream:
            np.save("x.npy", x)
            np.save("y.npy", y)
            words = ["x.npy", "--target", "y.npy"]
        else:
            np.savez("d.npz", X=x, y=y)
            words = ["d.npz"]
        said = "24 different whole numbers, which are taken as classes"
        _, out, _ = call(capsys, "doctor", *words)
        assert (said in out) == (name == "counts")
        short = ["--generators", "1", "--epochs", "1", "--views", "2"]
        _, _, err = call(capsys, "discover", *words, *short)
        assert (said in err) == (name == "counts")
    _, _, err = call(capsys, "discover", *words, *short, "--task", "classification")
    assert "taken as classes" not in err


def test_run_in_the_place_of_a_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    save_radial()
    Path("taken").write_text("mine")
    code, _, err = call(capsys, "discover", "ring.npz", "-o", "taken")
    assert code == 2
    assert "is a file" in err
    assert Path("taken").read_text() == "mine"


def test_reproduce_names_its_experiments(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "reproduce", "--list", "--json")
    assert code == 0
    assert "lieaugmenter-mask2" in json.loads(out)["two-body"]
    assert call(capsys, "reproduce")[1].startswith("two-body: ")


def test_reproduce_shows_the_paper_beside_ours_and_continues(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["reproduce", "two-body", "--quick", "--seeds", "1", "--methods", "trivial"]
    code, out, err = call(capsys, *words)
    assert code == 0
    assert "5.16e-03 ± 2.79e-03" in out
    assert "two-body: trivial, seeds 0" in err
    # What is finished is not repeated, and another method joins it.
    code, out, err = call(capsys, *words, "oracle", "--results", "results/two-body.json", "--json")
    assert code == 0
    assert "two-body: trivial" not in err
    assert [result["method"] for result in json.loads(out)["results"]] == ["trivial", "oracle"]
    assert len(json.loads(Path("results/two-body.json").read_text())["results"]) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("three-body",), "choose from two-body"),
        (("two-body", "--methods", "sorcery"), "has no method"),
        (("two-body", "--data", "missing.npz"), "missing.npz: no such file"),
        (("no-symmetry", "--data", "missing.npz"), "generates its data"),
        (("two-body", "--seeds", "0"), "at least one"),
    ],
)
def test_reproduce_answers_mistakes_with_one_message(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    code, _, err = call(capsys, "reproduce", *words, "--quick")
    assert code == 2
    assert told in err
    assert not Path("runs").exists()


@pytest.mark.parametrize("option", ["--out", "--results"])
def test_reproduce_notices_a_place_it_cannot_write_before_it_trains(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    Path("afile").write_text("mine")
    code, _, err = call(capsys, "reproduce", "two-body", "--quick", option, "afile/x.json")
    assert code == 2
    assert "cannot write to afile" in err
    assert "seeds 0" not in err
    assert Path("afile").read_text() == "mine"


_PRINTS = """
import sys
from lieaugmenter.cli.answers import answer
from lieaugmenter.cli.program import app, main

@app.command
def fill(lines: int, *, mistake: bool = False, json: bool = False) -> int:
    if mistake:
        raise ValueError("bad input " * lines)
    many = [f"line {number}" for number in range(lines)]
    answer({"lines": many}, as_json=json, text="\\n".join(many))
    return 0

main(sys.argv[1:])
"""


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize(
    ("lines", "how"),
    [
        ("3", ["--json"]),
        ("100000", ["--json"]),
        ("100000", []),
        ("3", ["--json", "--mistake"]),
    ],
)
def test_output_that_nobody_reads_to_its_end_is_no_error(lines: str, how: list[str]) -> None:
    """Less than fits into a buffer is written when the program ends, more while it runs."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", _PRINTS, "fill", lines, *how]
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, env=buffered
    )
    os.close(writer)
    assert done.returncode == 141
    if "--mistake" in how:
        assert done.stderr == f"lieaugmenter: {'bad input ' * int(lines)}\n"
    else:
        assert done.stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_errors_that_nobody_reads_are_no_error_either() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", _PRINTS, "fill", "3", "--mistake"]
    done = subprocess.run(command, stdout=writer, stderr=writer, check=False)
    os.close(writer)
    assert done.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_output_that_finds_no_room_is_told_in_one_message() -> None:
    command = [sys.executable, "-c", _PRINTS, "fill", "3", "--json"]
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=buffered
        )
    assert done.returncode == 2
    assert "the result cannot be written" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_command_line_starts_without_loading_what_it_may_not_need() -> None:
    code = "import sys, lieaugmenter.cli; print([m for m in sys.modules if m == 'transformers'])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"

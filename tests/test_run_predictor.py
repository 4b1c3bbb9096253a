"""The predictor of a finished run predicts elsewhere what the estimator predicts."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from lieaugmenter import (
    FunctionAction,
    LieAugmenter,
    SymmetryClassifier,
    SymmetryRegressor,
    catalogue,
)
from lieaugmenter.actions import AffineAction, ImageAction, VectorAction
from lieaugmenter.cli import main
from lieaugmenter.export import load_predictor, save_program
from lieaugmenter.export.predictor import save_predictor
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.lie.elements import Elements
from lieaugmenter.nets import CNN, MLP
from lieaugmenter.runs import RunError, RunFolder, read_tensors, write_tensors

QUICK: dict[str, Any] = {"hidden": (16, 16), "epochs": 3, "random_state": 0}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def _open_sizes() -> Iterator[None]:
    """Types are not checked while torch.export looks at the code: sizes are no numbers then."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def predictor(kind: str, n_generators: int) -> tuple[Predictor, Tensor]:
    """An untrained predictor of each kind of data, and samples for it."""
    images, classes = kind == "image", 3 if kind == "image" else 0
    shape = {"vector": (4,), "points": (5, 3), "affine": (5, 3), "image": (1, 12, 12)}[kind]
    output = {"vector": "same", "points": "invariant", "affine": "vector", "image": "invariant"}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        targets = shape if kind in ("vector", "affine") else (1,)
        network = CNN((1, 12, 12), classes) if images else MLP(shape, targets, hidden=(8,))
        augmenter = LieAugmenter(
            kind,
            None if images else shape[-1],
            n_generators=n_generators,
            output=output[kind],
            n_views=3,
        )
    made = Predictor(network, augmenter, classes=classes, x_scale=1.7, y_scale=2.0, y_shift=0.3)
    return made.eval(), torch.from_numpy(normal(7, *shape)).float()


KINDS = ("vector", "points", "affine", "image")


@pytest.mark.parametrize("n_generators", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_frozen_predictions_are_the_predictors(kind: str, n_generators: int) -> None:
    own, x = predictor(kind, n_generators)
    assert own.views > 0
    assert torch.allclose(own.frozen().predict(x), own.predict(x), atol=1e-5)
    own.views = 0
    assert torch.allclose(own.frozen().predict(x), own.predict(x), atol=1e-6)


@pytest.mark.usefixtures("_open_sizes")
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_takes_any_number_of_samples(kind: str, tmp_path: Path) -> None:
    own, x = predictor(kind, 1)
    path = save_program(own.frozen(), x.shape[1:], tmp_path / "predictor")
    assert path.name == "predictor.pt2"
    program = torch.export.load(path).module()
    for some in (x[:1], x, torch.cat([x, x, x])):
        assert torch.allclose(program(some), own.predict(some), atol=1e-5)


@pytest.mark.usefixtures("_open_sizes")
def test_exporting_leaves_the_constants_of_actions_as_numbers(tmp_path: Path) -> None:
    # Of a size that nothing else uses, so that its constants are first asked for by the export.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = CNN((1, 9, 13), 2)
    own = Predictor(network, LieAugmenter("image", output="invariant", n_views=2), classes=2)
    save_program(own.frozen(), (1, 9, 13), tmp_path / "p.pt2")
    assert own.predict(torch.ones(2, 1, 9, 13)).isfinite().all()


def test_elements_given_as_matrices_act_as_those_of_generators() -> None:
    drawn = Elements(torch.tensor([[[0.3], [-1.2]]]), catalogue.so(2))
    given = Elements.of_matrices(drawn.matrices()[0])
    x = torch.from_numpy(normal(1, 2)).float()
    assert torch.allclose(given.apply(x), drawn.apply(x), atol=1e-6)
    back = given.inverse().per_view().apply(given.apply(x)[0])
    assert torch.allclose(back[:, 0], x.expand(2, 2), atol=1e-6)


@pytest.mark.parametrize("n", [1, 33, 2049])
@pytest.mark.parametrize("views", [0, 3])
@pytest.mark.parametrize("kind", ["vector", "points"])
def test_a_sample_is_predicted_to_the_bit_whatever_is_predicted_with_it(
    kind: str, views: int, n: int
) -> None:
    own, x = predictor(kind, 1)
    many = torch.from_numpy(normal(n, *x.shape[1:], seed=1)).float()
    together = own.predict(many, views=views)
    for row in {0, n // 2, n - 1}:
        alone = own.predict(many[row : row + 1], views=views)
        assert torch.equal(together[row], alone[0])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("action", "output", "shape"),
    [
        ("vector", "invariant", (2,)),
        (VectorAction(2), VectorAction(2), (2,)),
        (AffineAction(2), "vector", (3, 2)),
        ("points", "same", (3, 2)),
    ],
)
def test_a_run_predicts_as_its_regressor(action: Any, output: Any, shape: tuple[int, ...]) -> None:
    x = normal(200, *shape)
    moves = output != "invariant"
    y = x * np.linalg.norm(x, axis=-1, keepdims=True) if moves else np.linalg.norm(x, axis=-1)
    model = SymmetryRegressor(action=action, output=output, run_directory="run", **QUICK).fit(x, y)
    for views in (4, 0):
        model.predictor_.views = views
        found = _saved_again(model)
        assert found.labels is None
        assert found.sample_shape == shape
        predicted = found.module.predict(torch.from_numpy(x)).numpy().reshape(y.shape)
        assert np.allclose(predicted, model.predict(x), atol=1e-5)


def _saved_again(model: Any) -> Any:
    labels = getattr(model, "classes_", None)
    save_predictor(RunFolder("run"), model.predictor_, None if labels is None else labels.tolist())
    return load_predictor("run")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("action", ["image", ImageAction()])
def test_a_run_predicts_as_its_classifier(action: Any) -> None:
    x = normal(40, 1, 6, 6)
    y = np.where(x.mean((1, 2, 3)) > 0, "bright", "dark")
    model = SymmetryClassifier(action=action, epochs=1, random_state=0, run_directory="run")
    model.fit(x, y)
    found = load_predictor("run")
    assert found.labels == ["bright", "dark"]
    shares = found.module.predict(torch.from_numpy(x)).numpy()
    assert np.allclose(shares, model.predict_proba(x), atol=1e-5)


@pytest.mark.usefixtures("folder")
def test_what_a_run_cannot_predict_with_is_said() -> None:
    x = normal(60, 2)
    y = x[:, 0]
    SymmetryRegressor(nn.Linear(2, 1), epochs=1, random_state=0, run_directory="own").fit(x, y)
    with pytest.raises(RunError, match="its network is one of your own"):
        load_predictor("own")

    def turned(g: Tensor, x: Tensor) -> Tensor:
        return (g @ x.unsqueeze(-1)).squeeze(-1)

    action = FunctionAction(turned, dim=2, example=torch.randn(3, 2))
    SymmetryRegressor(action=action, run_directory="moved", **QUICK).fit(x, y)
    with pytest.raises(RunError, match="its action or output is one of your own"):
        load_predictor("moved")


@pytest.mark.usefixtures("folder")
def test_damaged_and_older_runs_are_answered() -> None:
    x = normal(60, 2)
    SymmetryRegressor(run_directory="run", **QUICK).fit(x, x[:, 0])
    views = len(read_tensors(Path("run/elements.safetensors"))[0]["matrices"])
    for matrices, words in (
        (torch.zeros(views, 3, 3), "matrices of shape"),
        (torch.zeros(views, 2, 2), "some matrices have no inverse" if views else ""),
    ):
        write_tensors(Path("run/elements.safetensors"), {"matrices": matrices})
        if words:
            with pytest.raises(RunError, match=words):
                load_predictor("run")
    weights, kept = read_tensors(Path("run/network.safetensors"))
    del kept["labels"]
    write_tensors(Path("run/network.safetensors"), weights, kept)
    with pytest.raises(RunError, match="made by an older version"):
        load_predictor("run")


# -- the command line ------------------------------------------------------------------------------


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


@pytest.fixture
def table(folder: Path) -> np.ndarray:
    """A .csv with columns that are no inputs, and a run for its numbers and one for its words."""
    x = normal(150, 2)
    y = np.hypot(x[:, 0], x[:, 1])
    with (folder / "d.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "px", "py", "y", "kind"])
        rows.writerows(
            [i, *place, value, "far" if value > 1 else "near"]
            for i, (place, value) in enumerate(zip(x, y, strict=True))
        )
    names = {"feature_names": ["px", "py"], **QUICK}
    SymmetryRegressor(run_directory="numbers", **names).fit(x, y)
    kinds = np.where(y > 1, "far", "near")
    SymmetryClassifier(run_directory="words", **names).fit(x, kinds)
    return x


def test_predict_prints_a_table(capsys: pytest.CaptureFixture[str], table: np.ndarray) -> None:
    code, out, err = call(capsys, "predict", "numbers", "d.csv")
    assert (code, err) == (0, "")
    header, *rows = csv.reader(io.StringIO(out))
    assert header == ["prediction"]
    expected = load_predictor("numbers").module.predict(torch.from_numpy(table)).flatten()
    assert np.allclose([float(row[0]) for row in rows], expected, atol=1e-5)


@pytest.mark.usefixtures("table")
def test_predict_tells_how_good_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "predict", "words", "d.csv", "--target", "kind", "-o", "p.npz")
    assert (code, out) == (0, "predictions: p.npz\n")
    assert "accuracy" in err
    with np.load("p.npz") as kept:
        assert kept["classes"].tolist() == ["far", "near"]
        shares = kept["probabilities"]
        assert np.allclose(shares.sum(1), 1, atol=1e-5)
        assert kept["prediction"].tolist() == kept["classes"][shares.argmax(1)].tolist()
    code, out, _ = call(capsys, "predict", "numbers", "d.csv", "--target", "y", "--json")
    answer = json.loads(out)
    assert len(answer["prediction"]) == 150
    assert answer["R2"] <= 1


@pytest.mark.usefixtures("table")
def test_predict_writes_tables(capsys: pytest.CaptureFixture[str]) -> None:
    for name, separator in (("p.csv", ","), ("p.tsv", "\t")):
        assert call(capsys, "predict", "words", "d.csv", "-o", name)[0] == 0
        lines = Path(name).read_text().splitlines()
        assert lines[0].split(separator) == ["prediction", "p(far)", "p(near)"]
        assert len(lines) == 151


def test_predict_names_the_numbers_of_an_output_by_their_place(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    x = normal(60, 2, 2)
    SymmetryRegressor(action="points", output="same", run_directory="r", **QUICK).fit(x, x)
    np.savez(folder / "d.npz", X=x)
    _, out, _ = call(capsys, "predict", "r", "d.npz")
    names = ["prediction_0_0", "prediction_0_1", "prediction_1_0", "prediction_1_1"]
    assert out.splitlines()[0].split(",") == names


def test_images_are_resized_as_the_run_was_told(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    for name, level in (("dark", 40), ("light", 200)):
        (folder / "tiles" / name).mkdir(parents=True)
        for i in range(12):
            noise = np.random.default_rng(i).integers(0, 40, (12, 12), dtype=np.uint8)
            Image.fromarray(noise + np.uint8(level)).save(folder / "tiles" / name / f"{i}.png")
    words = ["--action", "image", "--size", "8", "--epochs", "1", "--generators", "1"]
    assert call(capsys, "discover", "tiles", *words, "-o", "run")[0] == 0
    code, _, err = call(capsys, "predict", "run", "tiles", "-o", "p.csv")
    assert code == 0
    # Class folders say what is right.
    assert "accuracy" in err
    assert Path("p.csv").read_text().startswith("prediction,p(dark),p(light)")


@pytest.mark.usefixtures("table")
def test_predict_answers_what_does_not_fit(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "bad.csv").write_text("px,py\n1,nan\n")
    (folder / "other.csv").write_text("px,pz\n1,2\n")
    np.savez(folder / "wide.npz", X=normal(5, 3))
    for words, message in (
        (["numbers", "d.csv", "-o", "p.xlsx"], "p.xlsx: predictions are written as"),
        (["numbers", "bad.csv"], "bad.csv: "),
        (["numbers", "other.csv"], "no column 'py'"),
        (["numbers", "wide.npz"], "was fitted on samples of shape (2,)"),
        (["numbers", "nothing.csv"], "no such file"),
        (["nowhere", "d.csv"], "nowhere is no run folder"),
    ):
        code, out, err = call(capsys, "predict", *words)
        assert (code, out) == (2, "")
        assert message in err


@pytest.mark.usefixtures("table", "_open_sizes")
def test_an_exported_program_needs_torch_alone(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "export", "words", "--to", "torch")
    assert code == 2
    assert "-o predictor.pt2" in err
    assert call(capsys, "export", "words", "--to", "torch", "-o", "predictor.pt2")[0] == 0
    code = (
        "import sys, torch\n"
        "program = torch.export.load('predictor.pt2').module()\n"
        "print(program(torch.zeros(5, 2)).shape, 'lieaugmenter' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "torch.Size([5, 2]) False\n"

"""The audit of a trained model: defects, worst samples, conventions, and the command."""

from __future__ import annotations

import json
import math
import re
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lieaugmenter import SymmetryClassifier, SymmetryRegressor
from lieaugmenter.actions import (
    Action,
    AffineAction,
    DisplacementAction,
    FourVectorAction,
    FunctionAction,
    ImageAction,
    InvariantAction,
    VectorAction,
)
from lieaugmenter.analysis.audit import Audit, audit
from lieaugmenter.analysis.groups import generators_of
from lieaugmenter.analysis.models import ModelError, load_model
from lieaugmenter.cli import main
from lieaugmenter.data.files import read_data
from lieaugmenter.lie import catalogue
from lieaugmenter.runs import RunFolder

ROOT = Path(__file__).parent.parent
INVARIANT = InvariantAction()
METRIC = torch.tensor([-1.0, 1.0, 1.0, 1.0])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def arbitrary(inputs: int, outputs: int = 1) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 32), nn.Tanh(), nn.Linear(32, outputs))


class Radial(nn.Module):
    """Invariant by construction, or equivariant: a function of the length, or that times x."""

    def __init__(self, equivariant: bool = False) -> None:
        super().__init__()
        self.equivariant = equivariant
        self.inner = arbitrary(1)

    def forward(self, x: Tensor) -> Tensor:
        values = self.inner(x.norm(dim=-1, keepdim=True))
        return x * values if self.equivariant else values


def checked(
    model: Callable[[Tensor], Tensor],
    x: Tensor,
    group: str | Tensor = "so(3)",
    action: Action | None = None,
    output: Action = INVARIANT,
    **settings: Any,
) -> Audit:
    action = VectorAction(x.shape[-1]) if action is None else action
    return audit(model, x, group=group, action=action, output=output, **settings)


# -- defects ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("equivariant", [False, True])
def test_a_model_that_is_equivariant_by_construction_has_no_defect(equivariant: bool) -> None:
    output = VectorAction(3) if equivariant else INVARIANT
    found = checked(Radial(equivariant), normal(200, 3), output=output)
    assert found.defect is not None
    assert found.defect < 1e-5
    assert max(error for row in found.generators for error in row.errors) < 1e-4
    assert found.random[-1] > 0.05
    assert found.hint is None


def test_an_arbitrary_model_has_a_defect_of_about_one() -> None:
    found = checked(arbitrary(3), normal(200, 3))
    for row in found.generators:
        assert row.defect is not None
        assert 0.3 < row.defect < 3
    assert found.hint is None


def test_defect_grows_with_what_breaks_the_symmetry_and_lies_in_its_interval() -> None:
    x = normal(300, 3)

    def broken(strength: float) -> Audit:
        return checked(lambda x: x.norm(dim=1, keepdim=True) + strength * x[:, :1], x)

    defects = [broken(strength).defect or 0.0 for strength in (0.01, 0.1, 1.0)]
    assert defects == sorted(defects)
    assert defects[0] < 0.05 < 0.3 < defects[2]
    for row in broken(0.1).generators[:2]:
        assert row.lower is not None
        assert row.upper is not None
        assert row.lower < (row.defect or 0) < row.upper


def test_generators_are_judged_one_by_one() -> None:
    found = checked(lambda x: x[:, 2:].sin(), normal(200, 3))
    defects = {row.name: row.defect or 0.0 for row in found.generators}
    assert defects["rotation of axes 0, 1"] < 1e-6
    assert defects["rotation of axes 0, 2"] > 0.5
    assert found.defect == max(defects.values())


def test_defect_does_not_depend_on_units() -> None:
    x, model = normal(200, 3), arbitrary(3)
    one = checked(model, x)
    other = checked(lambda x: 1e3 * model(x / 100), 100 * x)
    assert other.defect == pytest.approx(one.defect, rel=1e-3)


def test_error_grows_with_the_coefficient() -> None:
    found = checked(arbitrary(3), normal(200, 3), coefficients=(0.01, 0.02, 0.5))
    small, twice, large = found.generators[0].errors
    assert twice == pytest.approx(2 * small, rel=0.05)
    assert large > 10 * twice


def test_worst_samples_are_the_planted_ones() -> None:
    x = normal(300, 3)
    planted = [17, 120, 255]
    x[planted] = torch.tensor([6.0, 0.0, 0.0]) + 0.1 * normal(3, 3, seed=1)

    def model(x: Tensor) -> Tensor:
        beside = (x - x.new_tensor([6.0, 1.0, 0.0])).square().sum(1, keepdim=True)
        return x.norm(dim=1, keepdim=True) + torch.exp(-beside)

    found = checked(model, x, worst=3)
    assert sorted(sample.index for sample in found.worst) == planted
    assert found.worst[0].residual >= found.worst[-1].residual > 0


def test_affine_points_and_images_are_audited() -> None:
    def distance(x: Tensor) -> Tensor:
        return (x[:, 0] - x[:, 1]).norm(dim=1, keepdim=True)

    found = checked(distance, normal(100, 2, 3) + 5, "se(3)", AffineAction(3))
    assert found.defect is not None
    assert found.defect < 1e-4
    assert "translation along axis 2" in {row.name for row in found.generators}
    images = checked(
        lambda x: x[:, :, 4:].mean((1, 2, 3)), normal(50, 1, 8, 8), "so(2)", ImageAction()
    )
    assert images.defect is not None
    assert images.defect > 0.1


def test_layers_without_a_forward_derivative_are_audited() -> None:
    gru = nn.GRU(3, 2, batch_first=True)
    found = checked(lambda x: gru(x[:, None])[0][:, 0], normal(60, 3))
    assert found.defect is not None
    assert 0.3 < found.defect < 3


def test_modules_are_evaluated_in_evaluation_mode_and_left_as_they_were() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(1)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x.norm(dim=1, keepdim=True))

    model = Normed().train()
    found = checked(model, normal(100, 3))
    assert model.training
    assert found.defect is not None
    assert found.defect < 1e-5
    assert model.norm.num_batches_tracked == 0


def test_what_moves_no_sample_is_not_judged() -> None:
    x = normal(100, 3)
    x[:, 1:] = 0.0
    found = checked(lambda x: x[:, :1].square(), x)
    assert [row.defect is None for row in found.generators] == [False, False, True]
    assert "rotation of axes 1, 2" in found.notes[0]


def test_a_constant_model_has_nothing_to_compare_with() -> None:
    found = checked(lambda x: torch.ones_like(x[:, :1]), normal(50, 3))
    assert found.defect is None
    assert "nothing to compare with" in found.notes[0]
    assert "NaN" not in json.dumps(found.to_json())
    assert "not measured" in str(found)


# -- conventions -----------------------------------------------------------------------------------


def test_a_transposed_rotation_is_named() -> None:
    flip, radial = torch.tensor([1.0, -1.0]), Radial(equivariant=True)
    found = checked(lambda x: flip * radial(x), normal(150, 2), "so(2)", output=VectorAction(2))
    assert (found.defect or 0) > 0.5
    assert found.hint is not None
    assert "transposed element gᵀ" in found.hint


def test_outputs_that_move_otherwise_than_said_are_named() -> None:
    x, vector = normal(100, 3), VectorAction(3)
    still = checked(lambda x: x.norm(dim=1, keepdim=True).expand(-1, 3), x, output=vector)
    assert still.hint is not None
    assert "they are invariant" in still.hint
    moving = checked(Radial(equivariant=True), x)
    assert moving.hint is not None
    assert "not invariant but 'same'" in moving.hint


def test_forces_are_told_from_points_that_are_translated() -> None:
    """Springs between points: they turn with them, wherever these are."""
    x, points = normal(150, 4, 3), AffineAction(3)
    for output in (points, InvariantAction()):
        found = checked(lambda x: x.mean(1, keepdim=True) - x, x, "se(3)", points, output)
        assert found.hint is not None
        assert "not translated: they are 'vector'" in found.hint
    vectors = DisplacementAction(3)
    right = checked(lambda x: x.mean(1, keepdim=True) - x, x, "se(3)", points, vectors)
    assert (right.defect or 0) < 1e-4


@pytest.mark.parametrize("said", [AffineAction(2), InvariantAction()], ids=["same", "invariant"])
def test_a_hint_promises_the_defect_that_its_advice_gives(said: Action) -> None:
    """On more samples than conventions are compared on, and beside the right random generators."""

    def springs(x: Tensor) -> Tensor:
        apart = x - x.mean(1, keepdim=True)
        return -apart * (1 + apart.square().sum((1, 2), keepdim=True)).sqrt() + 0.02 * x**2

    x, points = normal(1500, 3, 2), AffineAction(2)
    hint = checked(springs, x, "se(2)", points, said).hint
    advised = checked(springs, x, "se(2)", points, DisplacementAction(2)).defect
    assert hint is not None
    assert f"they are 'vector': the largest defect is then {advised:.2g} instead" in hint


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: x * float("inf"), "outputs are not finite .* on 200 of 200 samples; first"),
        (lambda x: x[:, :1].log(), "outputs are not finite .* on 1 of 200 samples; first sample 7"),
        (lambda x: torch.where(x[:, :1] > 0, 1.0, float("nan")), "on 1 of 200 samples"),
        (lambda x: (x[:, :1] - 9).abs().sqrt(), "derivatives are not finite .* on 1 of 200"),
    ],
)
def test_a_model_that_is_not_finite_on_the_samples_is_refused(
    model: Callable[[Tensor], Tensor], message: str
) -> None:
    x = normal(200, 3).abs() + 0.1
    x[7, 0], x[8, 0] = -1, 9
    with pytest.raises(ValueError, match=message):
        checked(model, x)


def test_outputs_that_are_not_finite_on_moved_samples_are_a_note() -> None:
    found = checked(lambda x: x[:, :1].log(), normal(200, 3).abs() + 0.1)
    assert found.defect is not None
    assert math.isfinite(found.defect)
    assert math.isnan(found.random[-1])
    assert "on moved samples" in found.notes[0]


def test_a_convention_under_which_the_model_is_not_finite_is_no_hint() -> None:
    def only_upright(x: Tensor) -> Tensor:
        return torch.where(x[:, 0, 1:2] > 0, x[:, 0, :1], float("nan"))

    x = normal(100, 3, 3)
    x[:, 0, 1], x[:, 1, 0] = 1.0, -1.0
    assert checked(only_upright, x).hint is None


def test_a_gradient_is_recognised_as_a_covector() -> None:
    def gradient(x: Tensor) -> Tensor:
        return METRIC * x * torch.tanh((METRIC * x * x).sum(1, keepdim=True))

    four = FourVectorAction()
    found = checked(gradient, normal(200, 4), "so(1,3)", four, four)
    assert found.hint is not None
    assert "covectors" in found.hint
    raised = checked(lambda x: METRIC * gradient(x), normal(200, 4), "so(1,3)", four, four)
    assert (raised.defect or 0) < 1e-4


def test_swapped_axes_of_points_are_named() -> None:
    x, vector = normal(100, 3, 3), VectorAction(3)
    inputs = checked(lambda x: (x.mT @ x).flatten(1)[:, :1], x)
    assert inputs.hint is not None
    assert "inputs for coordinates" in inputs.hint
    outputs = checked(lambda x: x.mT * x.norm(dim=(1, 2), keepdim=True), x, output=vector)
    assert outputs.hint is not None
    assert "outputs move along their other axis" in outputs.hint


def test_transposed_generators_are_named() -> None:
    shear = catalogue.shears(2)
    right = checked(lambda x: x[:, 1:], normal(100, 2), shear)
    wrong = checked(lambda x: x[:, 1:], normal(100, 2), shear.mT)
    assert right.hint is None
    assert right.defect == pytest.approx(0, abs=1e-6)
    assert wrong.hint is not None
    assert "written for rows" in wrong.hint


# -- which group -----------------------------------------------------------------------------------


def test_named_groups_take_the_size_of_the_data() -> None:
    assert torch.equal(generators_of("so(3)", AffineAction(3))[1], catalogue.lift(catalogue.so(3)))
    assert torch.equal(generators_of("se(3)", AffineAction(3))[1], catalogue.se(3))
    _, both = generators_of("so(2)", VectorAction(4), axes=[0, 1, 2, 3])
    assert torch.equal(both, catalogue.diagonal(catalogue.so(2), 2))
    _, placed = generators_of("se(2)", AffineAction(3), axes=[0, 2])
    assert torch.nonzero(placed[2]).tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("group", "action", "axes", "message"),
    [
        ("so(4)", VectorAction(3), None, "moves 4 coordinates, but samples have 3"),
        ("so(2)", VectorAction(3), [0, 1, 2], "3 axes are given"),
        ("so(2)", VectorAction(3), [0, 0], "give different ones of 0 to 2"),
        ("so(2)", VectorAction(3), [1, 3], "give different ones of 0 to 2"),
        ("so(2)", VectorAction(3), [], "0 axes are given"),
        ("se(3)", VectorAction(3), None, "use action 'affine'"),
        ("os(3)", VectorAction(3), None, "unknown group 'os\\(3\\)'; choose from"),
        (torch.zeros(2, 4, 4), VectorAction(3), None, "needs \\(c, 3, 3\\)"),
        (torch.full((1, 3, 3), torch.nan), VectorAction(3), None, "not finite"),
        (catalogue.se(2).mT, AffineAction(2), None, "Are they transposed"),
        (catalogue.so(3), VectorAction(3), [0], "axes are for named groups"),
    ],
)
def test_a_group_that_does_not_fit_is_refused(
    group: str | Tensor, action: Action, axes: list[int] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        generators_of(group, action, axes)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: (x, x), "returned a tuple of 2"),
        (lambda x: x.argmax(1), "one row of real numbers"),
        (lambda x: x.mean(), "one row of real numbers"),
        (nn.Linear(4, 1), "cannot be called on two samples, of shape \\(2, 3\\)"),
        (lambda x: x if len(x) < 3 else x.reshape(7, -1), "It must take any number of samples"),
    ],
)
def test_a_model_that_cannot_be_audited_is_refused(
    model: Callable[[Tensor], Tensor], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        checked(model, normal(50, 3))


def test_samples_that_are_not_finite_are_refused() -> None:
    x = normal(50, 3)
    x[3, 1] = torch.inf
    with pytest.raises(ValueError, match="non-finite"):
        checked(Radial(), x)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in TorchScript, and samples as .npz and as .csv with a target."""
    monkeypatch.chdir(tmp_path)
    x = normal(80, 3)
    save_script(Radial(), x, "radial.pt")
    save_script(arbitrary(3), x, "arbitrary.pt")
    np.savez("data.npz", X=x.numpy())
    header = "a,b,c,energy"
    np.savetxt("data.csv", np.c_[x, x[:, 0]], delimiter=",", header=header, comments="")
    Path("mine.py").write_text(
        "from beside import scale\nnumber = 3\n"
        "def model(x): return scale * x.norm(dim=1)\n"
        "class Kind: pass\n"
    )
    Path("beside.py").write_text("scale = 2.0\n")
    return tmp_path


def save_script(model: nn.Module, x: Tensor, path: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.trace(model, x[:2]).save(path)


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["check", *words])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return int(stop.value.code or 0), captured.out, captured.err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "words",
    [
        ("radial.pt", "data.npz"),
        ("radial.pt", "data.csv", "--target", "energy"),
        ("mine.py:model", "data.npz"),
    ],
)
def test_command_audits_scripts_and_code_on_arrays_and_tables(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capsys, *words, "--group", "so(3)", "--json", "--fail-above", "0.01")
    assert code == 0
    result = json.loads(out)
    assert result["defect"] < 1e-4
    assert result["samples"] == 80
    assert len(result["generators"]) == 3


@pytest.mark.usefixtures("folder")
def test_command_fails_above_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("arbitrary.pt", "data.npz", "--group", "so(2)", "--axes", "0", "2")
    code, out, _ = call(capsys, *words)
    assert code == 0
    assert "rotation of axes 0, 2" in out
    assert "worst samples" in out
    assert call(capsys, *words, "--fail-above", "0.2")[0] == 1
    assert call(capsys, *words, "--fail-above", "9")[0] == 0
    assert call(capsys, *words, "--fail-above", "nan")[0] == 1


@pytest.mark.usefixtures("folder")
def test_what_json_cannot_hold_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    Path("log.py").write_text("def model(x):\n    return (x[:, :1] + 3).log()\n")
    code, out, _ = call(capsys, "log.py:model", "data.npz", "--group", "so(3)", "--json")
    assert code == 0

    def refused(word: str) -> None:
        raise AssertionError(word)

    assert None in json.loads(out, parse_constant=refused)["random"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing.pt", "data.npz"), "no such file; a model is a TorchScript file"),
        (("data.npz", "data.npz"), "not a TorchScript file"),
        (("mine.py:absent", "data.npz"), "has no 'absent'"),
        (("mine.py:number", "data.npz"), "of type int"),
        (("mine.py:Kind", "data.npz"), "of type class"),
        (("other.py:model", "data.npz"), "other.py: no such file"),
        (("no.such.module:model", "data.npz"), "no Python module 'no'"),
        (("radial.pt", "data.csv"), "is the target among them"),
        (("radial.pt", "nothing.npz"), "no such file"),
        (("radial.pt", "data.npz", "--output", "same"), "the model's output has shape"),
        ((".", "data.npz"), "no run folder"),
    ],
)
def test_bad_input_is_one_message(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(capsys, *words, "--group", "so(3)")
    assert code == 2
    assert not out
    assert message in err


class Malicious:
    """A pickle that writes a file when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return _write, ("pwned.txt", "run")


def _write(path: str, text: str) -> None:
    Path(path).write_text(text)


def test_nothing_is_unpickled(folder: Path) -> None:
    torch.save(Malicious(), "evil.pt")
    torch.save(Malicious(), "evil.pt2")
    for name in ("evil.pt", "evil.pt2"):
        with pytest.raises(ModelError, match="could run any code"):
            load_model(name)
    assert not (folder / "pwned.txt").exists()


def test_code_that_fails_is_reported(folder: Path) -> None:
    (folder / "failing.py").write_text("raise RuntimeError('out of luck')\n")
    with pytest.raises(ModelError, match=r"cannot be run: RuntimeError: out of luck"):
        load_model("failing.py:model")


def test_runs_are_models_and_groups(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = normal(120, 3).numpy()
    y = np.linalg.norm(x, axis=1)
    settings = {"hidden": (16, 16), "epochs": 2, "random_state": 0}
    regressor = SymmetryRegressor(**settings, run_directory="regression").fit(x, y)
    classifier = SymmetryClassifier(**settings, run_directory="classes").fit(x, y > 1.5)
    inputs = torch.from_numpy(x)
    assert torch.allclose(
        load_model("regression")(inputs).flatten().double(),
        torch.from_numpy(regressor.predict(x, views=0)),
        atol=1e-5,
    )
    assert torch.allclose(
        load_model("classes")(inputs).exp().double(),
        torch.from_numpy(classifier.predict_proba(x, views=0)),
        atol=1e-5,
    )
    code, out, _ = call(capsys, "regression", "data.npz", "--group", "classes", "--json")
    assert code == 0
    assert json.loads(out)["group"] == "the generators of classes"
    plain = {"generators": regressor.export("json")["generators"]}
    (folder / "found.json").write_text(json.dumps(plain))
    name, generators = generators_of("found.json", VectorAction(3))
    assert name.endswith("found.json")
    assert np.allclose(generators.numpy(), regressor.generators_, atol=1e-6)
    (folder / "empty.json").write_text("{}")
    with pytest.raises(ValueError, match="holds no generators"):
        generators_of("empty.json", VectorAction(3))


@pytest.mark.usefixtures("folder")
def test_the_model_of_a_run_takes_any_precision_and_refuses_other_samples() -> None:
    x = normal(60, 3).double()
    y = x.norm(dim=1).numpy()
    SymmetryRegressor(hidden=(8,), epochs=1, random_state=0, run_directory="run").fit(x.numpy(), y)
    model: Any = load_model("run")
    assert torch.equal(model(x), model(x.float()))
    wrong = {"ndarray": x.numpy(), r"of shape \(60, 2\)": x[:, :2], "complex": x.cfloat()}
    for words, samples in wrong.items():
        with pytest.raises(ModelError, match=rf"takes a tensor \(N, 3\) .* found .*{words}"):
            model(samples)


@pytest.mark.usefixtures("folder")
def test_a_run_that_is_not_finished_says_how_to_finish_it() -> None:
    RunFolder.create("run", {})
    with pytest.raises(ValueError, match=r"run is not finished; first: fit\(X, y, resume=True\)"):
        load_model("run")
    Path("run/command.json").write_text("{}")
    with pytest.raises(ValueError, match="run is not finished; first: lieaugmenter resume run"):
        load_model("run")


@pytest.mark.usefixtures("folder")
def test_a_run_is_checked_for_how_it_was_told_that_samples_move(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = normal(80, 3, 2).numpy()
    np.savez("forces.npz", X=x)
    settings: dict[str, Any] = {"hidden": (8,), "epochs": 1, "random_state": 0}
    model = SymmetryRegressor(
        action="affine", output="vector", run_directory="forces", **settings
    ).fit(x, x.mean(1, keepdims=True) - x)
    words = ("forces", "forces.npz", "--group", "se(2)", "--json")
    untold, vector, same = (
        json.loads(call(capsys, *words, *more)[1])
        for more in (
            (),
            ("--action", "affine", "--output", "vector"),
            ("--output", "same"),
        )
    )
    assert untold == vector != same
    one = json.loads(call(capsys, *words, "--action", "affine")[1])
    assert one == vector
    assert model.predict(x).shape == x.shape


@pytest.mark.usefixtures("folder")
def test_a_run_with_an_action_of_the_users_own_asks_how_samples_move(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def turned(g: Tensor, x: Tensor) -> Tensor:
        return (g @ x.unsqueeze(-1)).squeeze(-1)

    x = normal(80, 3)
    own = FunctionAction(turned, dim=3, example=x[:4])
    SymmetryRegressor(action=own, hidden=(8,), epochs=1, random_state=0, run_directory="run").fit(
        x.numpy(), x.norm(dim=1).numpy()
    )
    code, _, err = call(capsys, "run", "data.npz", "--group", "so(3)")
    assert code == 2
    assert "its action is one of your own" in err
    assert call(capsys, "run", "data.npz", "--group", "so(3)", "--action", "vector")[0] == 0


@pytest.mark.usefixtures("folder")
def test_a_network_of_the_users_own_is_asked_for() -> None:
    x = normal(60, 3).numpy()
    model = SymmetryRegressor(nn.Linear(3, 1), epochs=1, random_state=0, run_directory="own")
    model.fit(x, x[:, 0])
    with pytest.raises(ValueError, match="its network is one of your own"):
        load_model("own")


@pytest.mark.usefixtures("folder")
def test_inputs_are_read_without_a_target() -> None:
    table = read_data("data.csv", None)
    assert table.x.shape == (80, 4)
    assert table.feature_names == ["a", "b", "c", "energy"]
    assert table.y.shape == (80, 0)
    assert read_data("data.npz", None).x.shape == (80, 3)


def test_the_commands_of_the_document_run_after_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)[0]
    commands = re.findall(r"^lieaugmenter check (.*)$", text, flags=re.M)
    assert len(commands) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        exec(code, {})
    for command in commands:
        code, out, err = call(capsys, *shlex.split(command))
        assert code == 0, err
        assert "largest defect" in out

"""What was found leaves as data, formulas and modules, and comes back as it was."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from lieaugmenter import FunctionAction, SymmetryClassifier, SymmetryRegressor, testing
from lieaugmenter.actions import AffineAction, ImageAction, InvariantAction, VectorAction
from lieaugmenter.analysis.identify import identify
from lieaugmenter.cli import main
from lieaugmenter.export import (
    Manifest,
    RandomTransform,
    load_manifest,
    manifest_of_run,
    save_manifest,
)
from lieaugmenter.export.symbols import escape, recognised
from lieaugmenter.lie import catalogue
from lieaugmenter.runs import RunError, RunFolder


def manifest(
    generators: Tensor,
    *,
    action: str = "vector",
    output: str = "invariant",
    exact: bool = True,
    in_shape: tuple[int, ...] | None = None,
    **more: Any,
) -> Manifest:
    """Generators as if they had been found, of the norm √D that exact ones have."""
    d = generators.shape[-1]
    space = d - 1 if action in ("affine", "image") else d
    norms = generators.flatten(1).norm(dim=1)[:, None, None]
    generators = generators * math.sqrt(space) / norms
    shape = (space,) if in_shape is None else in_shape
    return Manifest(
        generators=generators,
        exact=generators if exact else None,
        ranges=[1.5] * len(generators),
        action=action,
        output=output,
        feature_names=[f"x_{i}" for i in range(d)],
        in_shape=shape,
        out_shape=shape if output == "same" else (1,),
        algebra="so" if exact else None,
        **more,
    )


def nothing(**more: Any) -> Manifest:
    return Manifest(
        torch.zeros(0, 2, 2), None, [], "vector", "invariant", ["x", "y"], (2,), (1,), **more
    )


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("export") / "run"


@pytest.fixture(scope="module")
def fitted(run_folder: Path) -> SymmetryRegressor:
    """The rotation of the plane, found from the distance to the origin."""
    x = 10 * np.random.default_rng(0).normal(size=(400, 2))
    model = SymmetryRegressor(
        hidden=(64, 64),
        epochs=30,
        random_state=0,
        feature_names=["p_x", "p_y"],
        run_directory=run_folder,
    )
    return model.fit(x, np.linalg.norm(x, axis=1))


def same(a: Manifest, b: Manifest) -> bool:
    return a.to_json() == b.to_json() and a.generators.dtype == b.generators.dtype


# --- manifest -----------------------------------------------------------------------------------

KEPT = {
    "named": manifest(catalogue.so(3), scale=1 / 3),
    "double": manifest(catalogue.so(3).double() / 3),
    "unnamed": manifest(catalogue.so(3), exact=False),
    "affine": manifest(catalogue.se(2), action="affine", output="same", in_shape=(4, 2)),
    "nothing": nothing(verdict={"outcome": "refuted", "defect": None}),
}


@pytest.mark.parametrize("name", KEPT)
def test_manifest_comes_back_exactly_as_it_was(name: str, tmp_path: Path) -> None:
    found = KEPT[name]
    path = save_manifest(found, tmp_path / "so(1.3)")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["so(1.3).json", "so(1.3).safetensors"]
    for given_as in (path, tmp_path / "so(1.3)", path.with_name("so(1.3).safetensors")):
        assert same(load_manifest(given_as), found)
    # A dictionary that went through somebody's JSON is as good.
    again = save_manifest(json.loads(json.dumps(found.to_json())), tmp_path / "again.json")
    assert same(load_manifest(again), found)


def test_manifest_says_what_it_is_and_how_it_was_made(fitted: SymmetryRegressor) -> None:
    content = fitted.export("json")
    assert (content["schema"], content["version"]) == ("lieaugmenter.symmetry", 1)
    assert content["algebra"] == fitted.verdict_.group == "so(2)"
    assert content["feature_names"] == ["p_x", "p_y"]
    assert content["generators"] == fitted.generators_.tolist()
    assert content["verdict"]["outcome"] == fitted.verdict_.outcome
    assert content["made"]["seed"] == 0
    assert content["made"]["torch"] == torch.__version__
    changed = SymmetryRegressor(**(fitted.get_params() | {"lr": 2e-3}))
    changed.__dict__.update({k: v for k, v in vars(fitted).items() if k.endswith("_")})
    other = changed.export("json")["made"]["settings_sha256"]
    assert other != content["made"]["settings_sha256"]


def test_run_folder_holds_the_manifest_of_its_model(
    fitted: SymmetryRegressor, run_folder: Path
) -> None:
    of_run = manifest_of_run(RunFolder.open(run_folder)).to_json()
    of_model = fitted.export("json")
    of_run["made"].pop("time")
    of_model["made"].pop("time")
    assert of_run == of_model


def test_labels_of_a_classifier_are_outputs_that_stay(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(200, 4, 2))
    y = np.array(["a", "b", "c"])[np.arange(200) % 3]
    model = SymmetryClassifier(
        action="points", hidden=(8,), epochs=1, run_directory=tmp_path / "run", random_state=0
    ).fit(x, y)
    for found in (model.manifest(), manifest_of_run(RunFolder.open(tmp_path / "run"))):
        assert (found.in_shape, found.out_shape) == ((4, 2), (3,))
        assert (found.action, found.output) == ("points", "invariant")


def test_actions_given_as_objects_have_their_usual_names() -> None:
    found = replace(
        KEPT["named"], action="FourVectorAction", output="InvariantAction()", in_shape=(4,)
    )
    assert (found.action, found.output) == ("fourvector", "invariant")
    moved = replace(KEPT["named"], action="VectorAction(dim=3)", output="VectorAction(dim=3)")
    assert (moved.action, moved.output) == ("vector", "same")
    forces = replace(KEPT["affine"], output="DisplacementAction(space_dim=2)")
    assert (forces.action, forces.output) == ("affine", "vector")


def test_a_vector_among_vectors_is_not_taken_for_the_same_shape() -> None:
    """Several vectors in, one out: `same` would promise as many."""
    found = replace(
        KEPT["named"], action="vector", output="vector", in_shape=(4, 3), out_shape=(3,)
    )
    assert found.output == "vector"
    assert found.export("network")(torch.randn(5, 4, 3)).shape == (5, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "has version 2 of the schema; this version of lieaugmenter reads"),
        ({"version": None}, "has version None of the schema"),
        ({"schema": "other"}, "is no manifest of a symmetry"),
        ({"generators": [[[1.0, 2.0]]]}, r"generators have shape \(1, 1, 2\)"),
        ({"exact": [[[0.0]]]}, r"exact have shape \(1, 1, 1\); expected \(c, 3, 3\)"),
        ({"generators": [[[1.0], [2.0, 3.0]]]}, "damaged"),
        ({"generators": "pickle"}, "damaged"),
        ({"ranges": [1.0]}, "1 ranges for 3 generators"),
        ({"feature_names": ["x"]}, "1 feature names for generators of size 3"),
        ({"dtype": "complex64"}, "damaged"),
    ],
)
def test_manifest_that_does_not_fit_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = save_manifest(KEPT["named"], tmp_path / "found.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=message) as refusal:
        load_manifest(path)
    assert "found.json" in str(refusal.value)


def test_files_that_are_missing_damaged_or_strangers_are_named(tmp_path: Path) -> None:
    path = save_manifest(KEPT["named"], tmp_path / "found.json")
    other = save_manifest(KEPT["unnamed"], tmp_path / "other.json")
    numbers = path.with_suffix(".safetensors")
    right = numbers.read_bytes()
    numbers.write_bytes(other.with_suffix(".safetensors").read_bytes())
    with pytest.raises(ValueError, match="do not belong together: their exact differ"):
        load_manifest(path)
    torch.save({"generators": torch.zeros(1)}, numbers)
    with pytest.raises(RunError, match="damaged or no safetensors"):
        load_manifest(path)
    numbers.unlink()
    with pytest.raises(FileNotFoundError, match="a manifest is two files"):
        load_manifest(path)
    numbers.write_bytes(right)
    content = json.loads(path.read_text())
    del content["ranges"], content["law"]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="incomplete: it has no law, ranges"):
        load_manifest(path)
    path.write_text("{")
    with pytest.raises(RunError, match=r"found\.json is damaged"):
        load_manifest(path)


def test_unknown_form_is_answered_with_all_of_them(fitted: SymmetryRegressor) -> None:
    choices = "json, latex, network, sympy, transform"
    with pytest.raises(ValueError, match=f"unknown export 'onnx'; choose from {choices}, torch"):
        fitted.export("onnx")
    with pytest.raises(ValueError, match=f"unknown export 'torch'; choose from {choices}"):
        fitted.manifest().export("torch")
    with pytest.raises(ValueError, match=r"export\('torch'\) has no option exact"):
        fitted.export("torch", exact=True)


# --- transform ----------------------------------------------------------------------------------


def distances(points: Tensor) -> Tensor:
    return torch.cdist(points, points)


def test_vectors_turn_each_by_an_element_of_its_own(rng: torch.Generator) -> None:
    turn = manifest(catalogue.so(3)).export("transform")
    x = torch.randn(50, 3, generator=rng)
    moved = turn(x, generator=1)
    torch.testing.assert_close(moved.norm(dim=1), x.norm(dim=1))
    assert float((moved - x).norm(dim=1).min()) > 1e-3
    together = turn(x[:1].expand(50, 3), generator=1)
    assert float(together.std(0).min()) > 0.1


def test_seed_decides_and_generators_count_on() -> None:
    turn, x = manifest(catalogue.so(2)).export("transform"), torch.randn(5, 2)
    assert torch.equal(turn(x, generator=3), turn(x, generator=3))
    assert not torch.equal(turn(x, generator=3), turn(x, generator=4))
    source = torch.Generator().manual_seed(3)
    first, second = turn(x, generator=source), turn(x, generator=source)
    assert torch.equal(first, turn(x, generator=3))
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    drawn = turn(x)
    torch.manual_seed(0)
    assert torch.equal(turn(x), drawn)


@pytest.mark.parametrize("action", ["points", "affine"])
def test_points_of_a_sample_move_together(action: str, rng: torch.Generator) -> None:
    basis = catalogue.so(2) if action == "points" else catalogue.se(2)
    move = manifest(basis, action=action, in_shape=(6, 2)).export("transform")
    x = torch.randn(20, 6, 2, generator=rng)
    moved = move(x, generator=0)
    torch.testing.assert_close(distances(moved), distances(x), atol=1e-5, rtol=1e-5)
    shift = (moved.mean(1) - x.mean(1)).norm(dim=1) - 2 * x.mean(1).norm(dim=1)
    assert bool((shift > 0.1).any()) == (action == "affine")


def test_images_turn_as_the_action_turns_them(rng: torch.Generator) -> None:
    turn = manifest(catalogue.lift(catalogue.so(2)), action="image", in_shape=(3, 9, 9)).export(
        "transform"
    )
    x = torch.rand(4, 3, 9, 9, generator=rng)
    moved = turn(x, generator=0)
    expected = ImageAction().act(turn.elements(4, generator=0), x).squeeze(1)
    assert torch.equal(moved, expected)
    assert float((moved - x).abs().max()) > 0.1
    # One image without a batch axis, as in a pipeline of a data set.
    pipeline = torch.nn.Sequential(turn, torch.nn.Flatten(0))
    assert pipeline(x[0]).shape == (243,)


def test_law_and_range_are_those_that_were_learned() -> None:
    base = manifest(catalogue.torus(2), in_shape=(4,))
    uniform = replace(base, ranges=[0.5, 2.0], law="learnable").export("transform", exact=False)
    drawn = uniform.elements(4000, generator=0).coefficients.view(-1, 2)
    torch.testing.assert_close(drawn.abs().amax(0), torch.tensor([0.5, 2.0]), atol=0.01, rtol=0)
    normal = replace(base, ranges=[0.5, 2.0], law="normal").export("transform", exact=False)
    drawn = normal.elements(4000, generator=0).coefficients.view(-1, 2)
    torch.testing.assert_close(drawn.std(0), torch.tensor([0.5, 2.0]), atol=0.1, rtol=0)
    grid = replace(base, ranges=[3.0, 3.0], law="integer-grid").export("transform")
    drawn = grid.elements(4000, generator=0).coefficients.view(-1, 2)
    assert sorted(set(drawn.flatten().tolist())) == [-3, -2, -1, 0, 1, 2, 3]


def test_state_of_a_transform_lives_in_safetensors(tmp_path: Path) -> None:
    turn = manifest(catalogue.so(3)).export("transform")
    save_file(turn.state_dict(), tmp_path / "turn.safetensors")
    other = RandomTransform(VectorAction(3), torch.zeros(3, 3, 3), [1.0] * 3)
    other.load_state_dict(load_file(tmp_path / "turn.safetensors"))
    x = torch.randn(5, 3)
    assert torch.equal(other(x, generator=0), turn(x, generator=0))


def test_a_grid_that_is_loaded_is_drawn_from() -> None:
    """Its range is a buffer; how far draws go has to follow it."""
    turn = catalogue.so(2)
    wide = RandomTransform(VectorAction(2), turn, [5.0], law="integer-grid")
    loaded = RandomTransform(VectorAction(2), turn, [1.0], law="integer-grid")
    loaded.load_state_dict(wide.state_dict())
    drawn = loaded.elements(200, generator=0).coefficients
    assert torch.equal(drawn, wide.elements(200, generator=0).coefficients)
    assert float(drawn.abs().max()) == 5.0


def test_a_state_that_makes_no_sense_is_refused() -> None:
    transform = RandomTransform(VectorAction(2), catalogue.so(2), [1.0])
    with pytest.raises(ValueError, match="finite and not negative"):
        transform.load_state_dict(transform.state_dict() | {"ranges": torch.tensor([torch.nan])})


def test_transform_runs_where_the_estimators_cannot(tmp_path: Path) -> None:
    """Nothing of scikit-learn, matplotlib or the model is needed."""
    path = save_manifest(manifest(catalogue.so(3)), tmp_path / "found.json")
    code = (
        "import sys\n"
        "for name in 'sklearn matplotlib rich cyclopts jinja2 pandas'.split():\n"
        "    sys.modules[name] = None\n"
        "import torch\n"
        "from lieaugmenter.export import load_manifest\n"
        f"turn = load_manifest({str(path)!r}).export('transform')\n"
        "print(tuple(turn(torch.ones(2, 3), generator=0).shape))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(2, 3)", done.stderr


def test_transform_of_a_model_moves_as_its_views_do_in_units_of_the_data() -> None:
    x = 100 * np.random.default_rng(0).normal(size=(60, 3, 2))
    model = SymmetryRegressor(
        action="affine", n_generators=2, hidden=(8,), epochs=1, random_state=0
    ).fit(x, x[:, 0, 0])
    move = model.export("transform", exact=False)
    elements = move.elements(60, generator=0)
    assert move.ranges.tolist() == model.coef_range_
    scaled = torch.from_numpy(x).float() / model.predictor_.x_scale
    learned = model.augmenter_.generators.detach()
    views = model.augmenter_.action.act(replace(elements, basis=learned), scaled).squeeze(1)
    moved = move(torch.from_numpy(x).float(), generator=0)
    torch.testing.assert_close(moved, views * model.predictor_.x_scale, rtol=1e-4, atol=1e-2)


def test_action_of_the_users_own_moves_too() -> None:
    def spin2(g: Tensor, x: Tensor) -> Tensor:
        return (g @ g @ x.unsqueeze(-1)).squeeze(-1)

    action = FunctionAction(spin2, dim=2, example=torch.randn(4, 2), check_on=catalogue.so(2))
    found = replace(manifest(catalogue.so(2)), action="FunctionAction(dim=2)")
    x = torch.randn(5, 2)
    moved = found.export("transform", action=action)(x, generator=0)
    elements = found.export("transform", action=action).elements(5, generator=0)
    twice = VectorAction(2).act(replace(elements, coefficients=2 * elements.coefficients), x)
    torch.testing.assert_close(moved, twice.squeeze(1), atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match=r"cannot hold FunctionAction.*action=…"):
        found.export("transform")


def test_samples_and_generators_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"x has shape \(5, 4\).*vectors of 3 numbers"):
        manifest(catalogue.so(3)).export("transform")(torch.randn(5, 4))
    with pytest.raises(ValueError, match=r"needs \(c, 3, 3\)"):
        RandomTransform(AffineAction(2), catalogue.so(2), [1.0])
    with pytest.raises(ValueError, match="2 ranges for 1 generators"):
        RandomTransform(VectorAction(2), catalogue.so(2), [1.0, 2.0])
    for bad in (math.nan, math.inf, -1.0):
        with pytest.raises(ValueError, match="finite and not negative"):
            RandomTransform(VectorAction(2), catalogue.so(2), [bad])
    with pytest.raises(ValueError, match="non-finite"):
        RandomTransform(VectorAction(2), torch.full((1, 2, 2), math.nan), [1.0])
    with pytest.raises(ValueError, match="the last row of a generator is zero"):
        RandomTransform(AffineAction(2), catalogue.so(3)[:1].flip(1), [1.0])


# --- formulas -----------------------------------------------------------------------------------


def in_other_units(found: Manifest, unit: float) -> Manifest:
    """The translations of affine generators are lengths, of whatever size."""
    generators = found.generators.clone()
    generators[:, :-1, -1] *= unit
    return replace(found, generators=generators, exact=generators)


FORMULAS = {
    "so(2)": manifest(catalogue.so(2)),
    "so(3)": manifest(catalogue.so(3)),
    "so(1,3)": manifest(catalogue.so_pq(1, 3)),
    "su(3)": manifest(catalogue.su(3)),
    "torus(2)": manifest(catalogue.torus(2)),
    "se(2)": in_other_units(manifest(catalogue.se(2), action="affine"), 1.37194),
    "unnamed": manifest(catalogue.so(3) + 0.01 * torch.ones(3, 3, 3), exact=False),
    "large": manifest(catalogue.torus(6)),
}
every_formula = pytest.mark.parametrize("name", FORMULAS)


def value_of(text: str) -> float:
    """A number as LaTeX writes it."""
    text = re.sub(r"(\d)\\sqrt", r"\1*\\sqrt", text.strip())
    text = re.sub(r"\\sqrt\{(\d+)\}", r"sqrt(\1)", text)
    return float(sympy.sympify(re.sub(r"\\frac\{([^{}]*)\}\{(\d+)\}", r"(\1)/\2", text)))


def matrices_of(text: str) -> list[list[list[float]]]:
    found = re.findall(r"L_\{\d+\} &= (.*?)\\begin\{pmatrix\} (.*?) \\end\{pmatrix\}", text)
    return [
        [[value_of(factor or "1") * value_of(v) for v in row.split("&")] for row in b.split(r"\\")]
        for factor, b in ((factor.strip(), body) for factor, body in found)
    ]


@every_formula
def test_latex_shows_the_generators_that_were_found(name: str) -> None:
    found = FORMULAS[name]
    shown = torch.tensor(matrices_of(found.export("latex")))
    tolerance = 1e-5 if found.exact is not None and name != "se(2)" else 1e-3
    torch.testing.assert_close(shown, found.generators, atol=tolerance, rtol=1e-3)


# What plain LaTeX with amsmath knows, of what is used.
COMMANDS = {
    *("begin", "end", "centering", "caption", "setcounter", "left", "right", "frac", "sqrt"),
    *(
        "text",
        "quad",
        "approx",
        "oplus",
        "times",
        "mathrm",
        "textbackslash",
        "textasciicircum",
        "theta",
    ),
}


@every_formula
def test_latex_is_well_formed(name: str) -> None:
    names = ["a_b", "50%", "θ", "x^2", "é{", r"\end", "c&d", "#1", "$", "~", "<|>", "σ₁"]
    found = FORMULAS[name]
    d = found.generators.shape[-1]
    found = replace(found, feature_names=names[:d], algebra="so(3) ⊕ se(2) ⋉ free(1)")
    text = found.export("latex")
    assert text.isascii()
    assert set(re.findall(r"\\([a-zA-Z]+)", text)) <= COMMANDS | {"sigma", "textasciitilde"} | {
        "textless",
        "textbar",
        "textgreater",
    }
    opened = []
    for kind, environment in re.findall(r"\\(begin|end)\{(\S+?)\}", text):
        if kind == "begin":
            opened.append(environment)
        else:
            assert opened.pop() == environment
    assert not opened
    plain = re.sub(r"\\[\\{}$&#_%]", "", text)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert not re.search(r"[#%~]", plain)
    # Alignment: as many columns in every row; a bracket after a break would be its length.
    for body in re.findall(r"\\begin\{pmatrix\}(.*?)\\end\{pmatrix\}", text):
        assert {row.count("&") for row in body.split(r"\\")} == {d - 1}
    assert not re.search(r"\\\\\s*\[", text)
    assert (r"\setcounter{MaxMatrixCols}{12}" in text) == (d == 12)


def test_latex_of_rotations_reads_as_in_a_textbook() -> None:
    text = FORMULAS["so(3)"].export("latex")
    assert r"L_{1} &= \frac{\sqrt{6}}{2} \begin{pmatrix} 0 & -1 & 0 \\ 1 & 0 & 0" in text
    assert r"\left[L_{1}, L_{2}\right] &= \frac{\sqrt{6}}{2} L_{3}" in text
    assert r"\left[L_{i}, L_{j}\right] &= 0" in FORMULAS["torus(2)"].export("latex")
    assert r"acting on (x\_0, x\_1, x\_2)." in text


def test_brackets_that_leave_the_span_are_not_called_equal() -> None:
    text = manifest(catalogue.so(3)[:2], exact=False).export("latex")
    assert r"\left[L_{1}, L_{2}\right] &\approx 0" in text
    assert "vanish" not in text
    assert "Brackets leave the span of the generators by 0.7" in text
    assert "Brackets that are not listed vanish" in FORMULAS["se(2)"].export("latex")


@pytest.mark.parametrize("name", ["so(3)", "so(1,3)", "se(2)"])
def test_relations_of_latex_are_the_brackets(name: str) -> None:
    found = FORMULAS[name]
    basis, c = found.generators.double(), len(found.generators)
    pattern = r"\\left\[L_\{(\d+)\}, L_\{(\d+)\}\\right\] &= (.*?)(?: \\\\)?\n"
    relations = re.findall(pattern, found.export("latex"))
    brackets = basis[:, None] @ basis - basis @ basis[:, None]
    i, j = torch.triu_indices(c, c, offset=1)
    assert len(relations) == int(brackets[i, j].flatten(1).norm(dim=1).gt(1e-6).sum())
    for i, j, right in relations:
        terms = re.findall(r"([-+]?) ?([^L+-]*?) ?L_\{(\d+)\}", right)
        total = torch.zeros_like(basis[0])
        for sign, size, k in terms:
            total += (-1 if sign == "-" else 1) * value_of(size or "1") * basis[int(k) - 1]
        a, b = basis[int(i) - 1], basis[int(j) - 1]
        torch.testing.assert_close(a @ b - b @ a, total, atol=1e-3, rtol=1e-3)


def test_learned_generators_are_rounded_and_said_to_be() -> None:
    text = FORMULAS["unnamed"].export("latex", digits=3)
    assert "as learned" in text
    assert "rounded to 3 digits" in text
    assert "rounded to 4 digits" in FORMULAS["se(2)"].export("latex")
    assert "rounded" not in FORMULAS["so(3)"].export("latex")
    assert "Brackets leave the span of the generators by" in text
    assert all(len(number) <= 5 for number in re.findall(r"-?\d+\.\d+", text.split("caption")[0]))
    assert "as learned" in FORMULAS["so(3)"].export("latex", exact=False)
    with pytest.raises(ValueError, match="there is no exact algebra"):
        FORMULAS["unnamed"].export("latex", exact=True)


@every_formula
def test_sympy_has_the_numbers_that_were_found(name: str) -> None:
    found = FORMULAS[name]
    matrices = found.export("sympy")
    numbers = torch.tensor(np.array([np.array(m.evalf(), dtype=float) for m in matrices])).float()
    torch.testing.assert_close(numbers, found.generators, atol=1e-5, rtol=1e-5)
    floats = any(m.has(sympy.Float) for m in matrices)
    # A length in units of the data is no number that could be recognised.
    assert floats == (name in ("se(2)", "unnamed"))


def test_sympy_exponentiates_what_is_exact() -> None:
    (turn,) = FORMULAS["so(2)"].export("sympy")
    t = sympy.Symbol("t", real=True)
    expected = sympy.Matrix([[sympy.cos(t), -sympy.sin(t)], [sympy.sin(t), sympy.cos(t)]])
    found = (t * turn).exp().applyfunc(lambda entry: entry.rewrite(sympy.cos))
    assert sympy.simplify(found - expected) == sympy.zeros(2)
    x, y, z = FORMULAS["so(3)"].export("sympy")
    assert sympy.simplify(x * y - y * x - sympy.sqrt(6) / 2 * z) == sympy.zeros(3)


def test_missing_sympy_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sympy", None)
    with pytest.raises(ImportError, match=r"pip install 'lieaugmenter\[sympy\]'"):
        FORMULAS["so(2)"].export("sympy")


@settings(max_examples=200, deadline=None)
@given(st.integers(-12, 12), st.integers(1, 5), st.sampled_from([1, 2, 3, 5, 6]))
def test_fractions_and_roots_are_recognised_in_single_precision(p: int, q: int, r: int) -> None:
    value = float(np.float32(p * math.sqrt(r) / q))
    found = recognised(value)
    if found is None:
        assert Fraction(p * p * r, q * q).numerator > 32  # too large to be told from chance
    else:
        assert found[0] * math.sqrt(found[2]) / found[1] == pytest.approx(value, abs=1e-5)


def test_arbitrary_numbers_are_not_recognised() -> None:
    values = np.random.default_rng(0).normal(size=5000).tolist()
    assert sum(recognised(value) is not None for value in values) < 50


def test_text_of_any_kind_becomes_ascii() -> None:
    assert escape("λ_é µ½ 日") == r"$\lambda$\_e $\mu$1?2 ?"


# --- network ------------------------------------------------------------------------------------


def error(found: Manifest, x: Tensor) -> float:
    network = found.export("network")
    assert found.exact is not None
    affine = found.action == "affine"
    action = AffineAction(x.shape[-1]) if affine else VectorAction(x.shape[-1])
    moved = action if found.output == "same" else InvariantAction()
    assert float(network(x).detach().std()) > 1e-4
    return testing.equivariance_error(network, found.exact, x, action=action, output=moved)


@pytest.mark.parametrize("output", ["invariant", "same"])
@pytest.mark.parametrize("scale", [1.0, 50.0])
@pytest.mark.parametrize(
    ("generators", "action", "shape"),
    [
        (catalogue.so(3), "vector", (3,)),
        (catalogue.so(3), "points", (5, 3)),
        (catalogue.so_pq(1, 3), "fourvector", (2, 4)),
        (catalogue.se(2), "affine", (4, 2)),
    ],
    ids=["vector", "points", "fourvector", "affine"],
)
def test_network_of_a_manifest_is_equivariant_in_units_of_the_data(
    generators: Tensor, action: str, shape: tuple[int, ...], scale: float, output: str
) -> None:
    found = manifest(generators, action=action, output=output, in_shape=shape, scale=scale)
    assert error(found, scale * torch.randn(20, *shape)) < 1e-5


def test_points_are_a_set_unless_told() -> None:
    found = manifest(catalogue.so(3), action="points", in_shape=(5, 3))
    x, order = torch.randn(8, 5, 3), torch.tensor([4, 2, 0, 1, 3])
    for network, alike in (
        (found.export("network"), True),
        (found.export("network", exchangeable=False), False),
    ):
        apart = float((network(x) - network(x[:, order])).detach().abs().max())
        assert (apart < 1e-5) == alike


def test_network_of_a_fitted_model_respects_what_the_model_found(
    fitted: SymmetryRegressor,
) -> None:
    network = fitted.export("network", hidden=(8, 8))
    assert fitted.identity_ is not None
    exact = fitted.identity_.exact
    x = 10 * torch.randn(50, 2)
    assert network(x).shape == (50, 1)
    assert testing.equivariance_error(network, exact, x, action=VectorAction(2)) < 1e-5


@pytest.mark.parametrize("name", ["so(3)", "so(1,3)"])
def test_noisy_generators_in_tilted_coordinates_still_give_an_exact_network(
    name: str, rng: torch.Generator
) -> None:
    """What was learned is a hundredth off, and turned out of the axes; what it snaps to is not."""
    basis = catalogue.named(name)
    c, d, _ = basis.shape
    tilt = torch.linalg.qr(torch.randn(d, d, generator=rng)).Q
    mix = torch.linalg.qr(torch.randn(c, c, generator=rng)).Q
    mixed = torch.einsum("ij,jab->iab", mix, tilt @ basis @ tilt.T)
    mixed = mixed * math.sqrt(d) / mixed.flatten(1).norm(dim=1)[:, None, None]
    noisy = mixed + 0.01 * torch.randn(mixed.shape, generator=rng)
    identity = identify(noisy)
    assert identity.name == name
    found = replace(manifest(noisy, in_shape=(3, d)), exact=identity.exact)
    assert error(found, torch.randn(20, 3, d, generator=rng)) < 1e-5


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (manifest(catalogue.se(2), action="image", in_shape=(1, 8, 8)), "action='image'"),
        (replace(KEPT["named"], output="Custom()"), "output='Custom'"),
        (KEPT["unnamed"], "no named algebra to snap to"),
        (nothing(), "every network is equivariant under nothing"),
        (manifest(catalogue.scaling(3)), "no polynomial is invariant"),
    ],
    ids=["image", "own action", "unnamed", "nothing", "scaling"],
)
def test_network_that_cannot_be_is_refused_with_the_reason(found: Manifest, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        found.export("network")


# --- nothing found ------------------------------------------------------------------------------


def test_nothing_found_leaves_everything_where_it_is() -> None:
    found, x = nothing(), torch.randn(5, 2)
    moved = found.export("transform")(x, generator=0)
    assert torch.equal(moved, x)
    assert moved is not x
    assert found.export("sympy") == []
    assert found.export("json")["generators"] == []
    assert "There are no generators" in found.export("latex")
    assert "rounded" not in found.export("latex")


# --- command line -------------------------------------------------------------------------------


def call(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_command_exports_a_run(
    fitted: SymmetryRegressor,
    run_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = call(capsys, "export", run_folder)
    assert (code, json.loads(out)["algebra"]) == (0, "so(2)")
    _, out, _ = call(capsys, "export", run_folder, "--to", "latex")
    assert out.strip() == fitted.export("latex")
    _, out, _ = call(capsys, "export", run_folder, "--to", "latex", "--learned", "--json")
    assert json.loads(out)["latex"] == fitted.export("latex", exact=False)
    code, _, err = call(capsys, "export", run_folder, "--learned")
    assert code == 2
    assert "--learned is for formulas" in err
    _, out, _ = call(capsys, "export", run_folder, "--to", "sympy")
    assert sympy.sympify(out) == fitted.export("sympy")
    code, out, _ = call(capsys, "export", run_folder, "-o", tmp_path / "found.json", "--json")
    assert json.loads(out) == {"export": str(tmp_path / "found.json")}
    found, of_model = load_manifest(tmp_path / "found.json").to_json(), fitted.export("json")
    assert {**found, "made": None} == {**of_model, "made": None}
    call(capsys, "export", run_folder, "--to", "latex", "-o", tmp_path / "found.tex")
    assert (tmp_path / "found.tex").read_text().strip() == fitted.export("latex")


def test_command_refuses_what_it_cannot_write(
    fitted: SymmetryRegressor,
    run_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = call(capsys, "export", run_folder, "--to", "onnx")
    assert code == 2
    assert all(form in out + err for form in ("json", "latex", "sympy", "torch"))
    code, _, err = call(capsys, "export", tmp_path)
    assert code == 2
    assert "is no run folder" in err
    RunFolder.create(tmp_path / "begun", {})
    code, _, err = call(capsys, "export", tmp_path / "begun")
    assert code == 2
    assert "is not finished" in err

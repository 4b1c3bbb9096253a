"""What users import, and what importing it does not drag in."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys

import pytest
import torch

import lieaugmenter

PUBLIC = {
    "Action",
    "AffineAction",
    "DirectSumAction",
    "DisplacementAction",
    "Elements",
    "FourVectorAction",
    "FunctionAction",
    "GeneratorBasis",
    "ImageAction",
    "IntegerGrid",
    "InvariantAction",
    "LearnableRange",
    "LieAugmenter",
    "Normal",
    "Objective",
    "Predictor",
    "StructuredAction",
    "SymmetryClassifier",
    "SymmetryRegressor",
    "TrainingDiverged",
    "Uniform",
    "VectorAction",
    "Verdict",
    "block_mask",
    "catalogue",
    "fit",
}


def test_every_public_name_is_there_and_described() -> None:
    for name in PUBLIC:
        thing = getattr(lieaugmenter, name)
        assert inspect.getdoc(thing), f"{name} has no docstring"


def test_no_name_became_public_by_accident() -> None:
    rooms = {
        "actions",
        "baselines",
        "experiments",
        "export",
        "analysis",
        "cli",
        "data",
        "discovery",
        "estimators",
        "learning",
        "lie",
        "nets",
        "processes",
        "report",
        "runs",
        "sweeps",
        "testing",
    }
    found = {name for name in dir(lieaugmenter) if not name.startswith("_")}
    assert found - rooms - {"TYPE_CHECKING", "Any"} == PUBLIC


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'SymetryRegressor'"):
        _ = lieaugmenter.SymetryRegressor


def test_import_pulls_in_nothing_optional() -> None:
    code = (
        "import sys, lieaugmenter\n"
        "heavy = 'sklearn matplotlib lightning optuna rich cyclopts pandas pyarrow scipy'\n"
        "print([name for name in heavy.split() if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_core_runs_from_a_source_folder_with_nothing_optional_installed() -> None:
    """Blocks every optional library and trains a step."""
    code = (
        "import sys\n"
        "for name in 'sklearn matplotlib rich cyclopts pandas pyarrow scipy jinja2'.split():\n"
        "    sys.modules[name] = None\n"
        "import torch, lieaugmenter as la\n"
        "model = torch.nn.Linear(2, 1)\n"
        "augmenter = la.LieAugmenter('vector', 2, output='invariant')\n"
        "data = torch.randn(8, 2), torch.randn(8, 1)\n"
        "la.fit(model, augmenter, data, epochs=1, progress=False)\n"
        "try:\n"
        "    la.SymmetryRegressor\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'lieaugmenter[sklearn]'" in done.stdout, done.stderr


def test_augmenter_can_be_copied_saved_and_loaded() -> None:
    augmenter = lieaugmenter.LieAugmenter("vector", 4, n_generators=2, blocks=[2, 2])
    twin = copy.deepcopy(augmenter)
    assert torch.equal(twin.generators, augmenter.generators)
    other = lieaugmenter.LieAugmenter("vector", 4, n_generators=2)
    other.load_state_dict(augmenter.state_dict())
    assert torch.equal(other.generators, augmenter.generators)  # the mask came along

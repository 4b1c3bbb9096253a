"""Discover the continuous symmetry of a task together with a predictor that respects it."""

from typing import TYPE_CHECKING, Any

from lieaugmenter.actions import Action as Action
from lieaugmenter.actions import AffineAction as AffineAction
from lieaugmenter.actions import DirectSumAction as DirectSumAction
from lieaugmenter.actions import DisplacementAction as DisplacementAction
from lieaugmenter.actions import FourVectorAction as FourVectorAction
from lieaugmenter.actions import FunctionAction as FunctionAction
from lieaugmenter.actions import ImageAction as ImageAction
from lieaugmenter.actions import InvariantAction as InvariantAction
from lieaugmenter.actions import StructuredAction as StructuredAction
from lieaugmenter.actions import VectorAction as VectorAction
from lieaugmenter.analysis.verdict import Verdict as Verdict
from lieaugmenter.learning import LieAugmenter as LieAugmenter
from lieaugmenter.learning import Objective as Objective
from lieaugmenter.learning import TrainingDiverged as TrainingDiverged
from lieaugmenter.learning import fit as fit
from lieaugmenter.learning.predictor import Predictor as Predictor
from lieaugmenter.lie import Elements as Elements
from lieaugmenter.lie import GeneratorBasis as GeneratorBasis
from lieaugmenter.lie import IntegerGrid as IntegerGrid
from lieaugmenter.lie import LearnableRange as LearnableRange
from lieaugmenter.lie import Normal as Normal
from lieaugmenter.lie import Uniform as Uniform
from lieaugmenter.lie import block_mask as block_mask
from lieaugmenter.lie import catalogue as catalogue

if TYPE_CHECKING:
    from lieaugmenter.estimators import SymmetryClassifier as SymmetryClassifier
    from lieaugmenter.estimators import SymmetryRegressor as SymmetryRegressor

__version__ = "0.1.0"

# Loaded on first use: they need scikit-learn, which the core does not.
_ESTIMATORS = ("SymmetryClassifier", "SymmetryRegressor")


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        from lieaugmenter import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'lieaugmenter' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_ESTIMATORS])

"""How an element acts on data."""

from lieaugmenter.actions.base import Action as Action
from lieaugmenter.actions.base import FunctionAction as FunctionAction
from lieaugmenter.actions.linear import DirectSumAction as DirectSumAction
from lieaugmenter.actions.linear import FourVectorAction as FourVectorAction
from lieaugmenter.actions.linear import InvariantAction as InvariantAction
from lieaugmenter.actions.linear import VectorAction as VectorAction
from lieaugmenter.actions.spatial import AffineAction as AffineAction
from lieaugmenter.actions.spatial import DisplacementAction as DisplacementAction
from lieaugmenter.actions.spatial import ImageAction as ImageAction
from lieaugmenter.actions.structured import StructuredAction as StructuredAction

"""How a symmetry is learned and used."""

from lieaugmenter.learning.augmenter import LieAugmenter as LieAugmenter
from lieaugmenter.learning.engine import TrainingDiverged as TrainingDiverged
from lieaugmenter.learning.engine import fit as fit
from lieaugmenter.learning.objective import Objective as Objective

"""How a symmetry is learned and used."""

from lieaugmenter.learning.augmenter import LieAugmenter as LieAugmenter
from lieaugmenter.learning.engine import fit as fit
from lieaugmenter.learning.objective import Objective as Objective
from lieaugmenter.learning.trainer import TimeIsUp as TimeIsUp
from lieaugmenter.learning.trainer import TrainingDiverged as TrainingDiverged

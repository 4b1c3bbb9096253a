"""The experiments by name."""

from __future__ import annotations

from collections.abc import Mapping

from lieaugmenter.experiments.amplitudes import AMPLITUDE_EXPERIMENTS
from lieaugmenter.experiments.images import IMAGE_EXPERIMENTS
from lieaugmenter.experiments.molecules import MOLECULE_EXPERIMENTS
from lieaugmenter.experiments.spec import Experiment
from lieaugmenter.experiments.vectors import VECTOR_EXPERIMENTS

VECTORS: Mapping[str, Experiment] = {one.name: one for one in VECTOR_EXPERIMENTS}
IMAGES: Mapping[str, Experiment] = {one.name: one for one in IMAGE_EXPERIMENTS}
AMPLITUDES: Mapping[str, Experiment] = {one.name: one for one in AMPLITUDE_EXPERIMENTS}
MOLECULES: Mapping[str, Experiment] = {one.name: one for one in MOLECULE_EXPERIMENTS}
EXPERIMENTS: Mapping[str, Experiment] = {**VECTORS, **IMAGES, **AMPLITUDES, **MOLECULES}


def find_experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}; choose from {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]

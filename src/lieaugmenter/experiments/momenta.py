"""What is measured of generators on four-momenta: which part of the Lorentz algebra they are."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lieaugmenter.actions import FourVectorAction, InvariantAction
from lieaugmenter.analysis.compare import match, principal_cosines
from lieaugmenter.analysis.coverage import Coverage, coverage
from lieaugmenter.analysis.dimension import DerivativeBench
from lieaugmenter.data.amplitudes import FourMomenta

# The generators of `so_pq(1, 3)` in its order: boosts along an axis, rotations about one.
NAMES = ("boost x", "boost y", "boost z", "turn about z", "turn about y", "turn about x")
BEAM_TURN = NAMES.index("turn about z")
# Equations of the events are looked for on this many.
_SEEN = 2000


def compare_with_lorentz(task: FourMomenta, learned: Float[Tensor, "c 4 4"]) -> dict[str, Any]:
    """How the span of learned generators lies to the Lorentz algebra, and each to its nearest.

    Besides cosines these are ``"covered-cosine"``, the least cosine with the generators that lead
    from events to events, and ``"matched"``, which learned generator stands for which true one.
    """
    truth = task.generator
    covered = _coverage(task).generators.to(truth)
    cosines = principal_cosines(learned, truth).tolist()
    found: dict[str, Any] = {
        "principal-cosines": cosines,
        # Largest first: all of them but one are as large.
        "fifth-cosine": cosines[-2],
        "beam-cosine": float(principal_cosines(learned, truth[BEAM_TURN, None])[0]),
        "generator-cosines": [float(principal_cosines(learned, g[None])[0]) for g in truth],
        "covered-cosine": float(principal_cosines(learned, covered).min()),
    }
    if len(learned) >= len(truth):
        matching = match(learned, truth)
        found["matched"], found["matched-cosines"] = matching.order, matching.cosines
    return found


def before_training(task: FourMomenta, start: Float[Tensor, "c 4 4"]) -> dict[str, float]:
    """The same cosines of the generators that training began with, by names with ``"start-"``."""
    found = compare_with_lorentz(task, start)
    named = ("fifth-cosine", "beam-cosine", "covered-cosine")
    cosines = {f"start-{key}": found[key] for key in named}
    return {**cosines, "start-span-cosine": found["principal-cosines"][-1]}


def covered_by_events(task: FourMomenta) -> dict[str, Any]:
    """What the events themselves can say about the Lorentz algebra.

    ``"covered"`` is the number of generators, of all linear ones, that lead from events to events;
    ``"leaving"`` how far each of the Lorentz algebra leads off them; ``"covered-cosines"`` are
    those of what they span with the Lorentz algebra: what is known before a label was seen.
    """
    found = _coverage(task)
    inside = found.generators.to(task.generator)
    return {
        "equations": found.equations,
        "covered": len(inside),
        "covered-cosines": principal_cosines(inside, task.generator).tolist(),
        "leaving": [found.leaving(generator) for generator in task.generator],
    }


def _coverage(task: FourMomenta) -> Coverage:
    return coverage(task.x_train[:_SEEN].double(), action=FourVectorAction())


@torch.no_grad()
def defects(
    network: nn.Module, x: Float[Tensor, "events particles 4"], generators: Float[Tensor, "c 4 4"]
) -> list[float]:
    """How much a network's prediction changes along each generator.

    Relative to random directions: 0 for a symmetry of the network, about 1 for any direction.

    Parameters
    ----------
    network
        Predicts something invariant.
    x
        Events as the network sees them.
    generators
        (c, 4, 4).
    """
    x = x.to(next(network.parameters()).device)
    network.eval()
    bench = DerivativeBench(
        network, network, x, action=FourVectorAction(), output=InvariantAction()
    )
    return [bench.judge(generator[None].to(x)).defect for generator in generators]

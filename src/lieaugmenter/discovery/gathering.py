"""Teach two teams, and impose on them what may be a symmetry."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lieaugmenter.actions import ImageAction
from lieaugmenter.actions.base import Action, Batch
from lieaugmenter.analysis.bootstrap import LEAST_SAMPLES, bounds, resample
from lieaugmenter.analysis.verdict import CERTIFIED_QUALITY, Trial
from lieaugmenter.discovery.evidence import OF_HALF, Evidence, weigh
from lieaugmenter.discovery.teams import (
    Team,
    fresh,
    halves,
    sample_count,
    searched,
    some,
    standardising,
    taught,
)
from lieaugmenter.learning.augmenter import LieAugmenter, calculable_range
from lieaugmenter.learning.objective import Objective
from lieaugmenter.learning.progress import told
from lieaugmenter.learning.streams import Stream
from lieaugmenter.processes import number_from_first, process_number
from lieaugmenter.runs import RunFolder

# So many directions take seconds to be measured, in which nothing else is shown.
_MANY = 60
# How often generators are imposed on the teams, with how many views, up to which coefficient.
_TRIALS = 2
_TRIAL_VIEWS = 2
_TRIAL_RANGE = 0.5


def gather(
    make_network: Callable[[], nn.Module],
    train: tuple[Batch, Tensor] | Stream,
    held_out: tuple[Batch, Tensor],
    *,
    action: Action,
    output: Action,
    candidates: Float[Tensor, "n d d"] | None = None,
    classes: int = 0,
    members: int = 2,
    epochs: int = 200,
    most_steps: int = 6000,
    batch_size: int = 64,
    lr: float = 5e-3,
    device: str | torch.device = "auto",
    seed: int = 0,
    progress: bool = False,
    run: RunFolder | None = None,
    resume: bool = False,
) -> Evidence:
    """Train two teams on the halves of the training data, and ask them for symmetries.

    Parameters
    ----------
    make_network
        Makes an untrained network; called under a seed of its own for each member. Smooth networks
        have better derivatives.
    train, held_out
        Inputs and targets, scaled as the networks want them. Those to train on may be a stream; of
        a long one the teams see only as many samples, drawn at random, as the steps take.
    action, output
        How generators act.
    candidates
        As of `dimensions`.
    classes
        Number of classes, 0 for numbers.
    members
        Networks in a team.
    epochs, most_steps, batch_size, lr, device, seed, progress
        Of the training; `epochs` is cut where it would take more steps, and half of it is enough
        for labels, and where generators are tried out.
    run, resume
        A folder in which each network has its checkpoints, and whether to continue from them.

    Examples
    --------
    >>> from lieaugmenter.actions import InvariantAction, VectorAction
    >>> from lieaugmenter.nets import MLP
    >>> x = torch.randn(1200, 2, generator=torch.Generator().manual_seed(0))
    >>> y = x.norm(dim=1, keepdim=True)
    >>> found = gather(
    ...     lambda: MLP((2,), (1,), hidden=(32, 32), smooth=True),
    ...     (x[:1000], y[:1000]), (x[1000:], y[1000:]),
    ...     action=VectorAction(2), output=InvariantAction(), members=1, epochs=60,
    ... )
    >>> found.dimensions.count()
    1
    """
    parts = halves(train, most_steps * batch_size, seed)
    steps = -(-sample_count(parts[0]) // batch_size)
    epochs = max(1, min(epochs, -(-most_steps // steps)))
    half_as_many = -(-epochs // 2)
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "lr": lr,
        "device": device,
        "resume": resume,
    }
    inputs = searched(train, seed)
    directions = int(action.mask.sum()) if candidates is None else len(candidates)
    # A stream is not read once more for others.
    images = isinstance(action, ImageAction)
    known = [some(half, OF_HALF, seed) for half in parts] if images else []
    make_network = standardising(make_network, inputs)

    def teach(
        part: str,
        network: Callable[[int, int], nn.Module],
        imposed: Float[Tensor, "c d d"] | None,
        epochs: int,
    ) -> list[Team]:
        return [
            Team(
                [
                    taught(
                        network(side, i),
                        None if imposed is None else _imposing(imposed, action, output),
                        half,
                        seed=seed + members * side + i,
                        epochs=epochs,
                        progress=progress and _told(part, members * side + i + 1, 2 * members),
                        run=None if run is None else run.part(f"{part}-{side + 1}-{i + 1}"),
                        **options,
                    )
                    for i in range(members)
                ],
                classes,
            ).eval()
            for side, half in enumerate(parts)
        ]

    def asked(teams: list[Team]) -> Evidence:
        if progress and directions > _MANY and process_number() == 0:
            told(f"measuring {directions} directions, and naming what is found")
        return weigh(
            teams[0], teams[1], inputs, held_out, action=action, output=output, parts=known,
            candidates=candidates, device=device, seed=seed,
        )  # fmt: skip

    def untaught(side: int, i: int) -> nn.Module:
        return fresh(make_network, seed + members * side + i)

    def go_on(part: str, imposed: Float[Tensor, "c d d"] | None, latest: Evidence) -> list[Team]:
        """The teams after they have learned on, from what they had learned."""

        def learned(side: int, i: int) -> nn.Module:
            team = (latest.first, latest.second)[side]
            return copy.deepcopy(team.members[i]).requires_grad_(True)

        return teach(part, learned, imposed, half_as_many)

    def try_out(part: str, imposed: Float[Tensor, "c d d"], latest: Evidence) -> Evidence:
        return asked(go_on(part, imposed, latest))

    def learn_on(part: str, latest: Evidence) -> Evidence:
        # Only their losses are compared: what they say was asked before.
        first, second = go_on(part, None, latest)
        return replace(latest, first=first, second=second)

    # Labels are learned by heart before long, with derivatives that mean nothing.
    plain = asked(teach("plain", untaught, None, half_as_many if classes else epochs))
    y, tried = held_out[1], plain
    # On fewer nothing is decided, whatever is tried.
    if len(y) >= LEAST_SAMPLES:
        tried = _tried_out(plain, try_out, learn_on, y, labels=bool(classes))
    return tried.simplified().preferring_a_name()


def _told(part: str, number: int, total: int) -> str:
    """What is being trained, for the progress bar.

    >>> _told("plain", 1, 4)
    'looking for symmetries, network 1 of 4'
    >>> _told("trial-2", 3, 4)
    'trying them out (2), network 3 of 4'
    >>> _told("control-1", 3, 4)
    'learning on without them (1), network 3 of 4'
    """
    kind, _, trial = part.partition("-")
    what = {"trial": "trying them out", "control": "learning on without them"}.get(kind)
    told = "looking for symmetries" if what is None else f"{what} ({trial})"
    return f"{told}, network {number} of {total}"


def _tried_out(
    evidence: Evidence,
    try_out: Callable[[str, Tensor, Evidence], Evidence],
    learn_on: Callable[[str, Evidence], Evidence],
    y: Tensor,
    *,
    labels: bool,
) -> Evidence:
    """The evidence, or that of teams on which more generators were imposed, if these help.

    Learning on helps by itself, so that the teams also learn on without them, as long. Whether to
    train again is decided by the first process for all.
    """
    table, least = evidence.dimensions, CERTIFIED_QUALITY["labels" if labels else "numbers"]
    certified = table.count() if evidence.quality >= least else 0
    proposed, tried, control = number_from_first(table.possible()), evidence, evidence
    for number in range(1, _TRIALS + 1):
        if proposed <= number_from_first(certified):
            break
        span, _ = tried.named(proposed)
        tried = try_out(f"trial-{number}", span, tried)
        control = learn_on(f"control-{number}", control)
        trial = Trial(evidence.bench.judge(span), *_share_of_loss(tried, (evidence, control), y))
        _, identity = tried.named(max(1, tried.dimensions.count()))
        named = identity is not None and identity.named
        passed = trial.passed(tried.dimensions, tried.quality, named=named, labels=labels)
        if number_from_first(int(passed)):
            return replace(tried, trial=trial, before=evidence)
        # The wrong ones among them can be told apart now: what is left may still help.
        proposed = number_from_first(min(proposed - 1, tried.dimensions.count()))
    return evidence


def _imposing(generators: Float[Tensor, "c d d"], action: Action, output: Action) -> LieAugmenter:
    return LieAugmenter(
        action,
        output=output,
        n_views=_TRIAL_VIEWS,
        # In columns of unlike units the entries of a generator that mixes them are large.
        range=calculable_range(min(_TRIAL_RANGE, action.usual_range), generators),
        warmup_steps=0,
        objective=Objective().losses_only(),
        basis=generators.float().cpu(),
    )


def _share_of_loss(after: Evidence, others: Sequence[Evidence], y: Tensor) -> tuple[float, float]:
    """The held-out loss of teams as a share of the best of others', and its 95 % upper bound."""
    now = after.losses(y)
    then = min((other.losses(y) for other in others), key=lambda losses: float(losses.mean()))
    weights = resample(len(now), 0)
    share = (weights @ now) / (weights @ then).clamp_min(1e-30)
    return float(now.mean() / then.mean().clamp_min(1e-30)), float(bounds(share)[1])

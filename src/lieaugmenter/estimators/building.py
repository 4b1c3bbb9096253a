"""What is trained, before it is: a network, an augmenter, and for how long."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lieaugmenter.actions import ImageAction
from lieaugmenter.discovery import Discovery
from lieaugmenter.estimators.settings import Settings
from lieaugmenter.estimators.task import Task
from lieaugmenter.learning import LieAugmenter
from lieaugmenter.learning.augmenter import calculable_range
from lieaugmenter.learning.devices import pick_device
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.lie.samplers import warmup_share
from lieaugmenter.nets import CNN, MLP
from lieaugmenter.processes import from_first

NETWORKS = ("auto", "cnn", "mlp")
# Length of training unless given: so many epochs, and so many steps, of which a few hundred samples
# would take too few for the generators to settle.
EPOCHS = 50
_LEAST_STEPS = 1500
# The part of training over which the range grows. Images that are moved far before a network knows
# them teach nothing about the generator: with 5,400 digits three seeds of five missed the rotation
# with 0.15, and found it with 0.6.
_WARMUP, _IMAGE_WARMUP = 0.1, 0.6


@dataclass(frozen=True)
class Given:
    """Generators to train with, (c, d, d), and the range that suits them; or to begin from."""

    generators: Tensor
    range: float | None
    fixed: bool = True

    @classmethod
    def by(cls, discovery: Discovery) -> Given:
        """What was discovered; by the first process, where there are several."""
        reach = discovery.reach()
        known = from_first(torch.tensor([] if reach is None else [reach]))
        return cls(from_first(discovery.span.cpu()), float(known) if len(known) else None)


def build(settings: Settings, task: Task, seed: int, given: Given | None = None) -> Predictor:
    """The untrained network and augmenter of a seed."""
    pick_device(settings.device)
    steps = _steps_of_epoch(settings, task) * epochs_of(settings, task)
    usual = task.action.usual_range
    largest = settings.range if settings.range is not None or given is None else given.range
    if given is not None and given.fixed and len(given.generators):
        largest = _calculable(settings, usual if largest is None else largest, given.generators)
    warmup = warmup_share(_warmup(settings, task), usual if largest is None else largest, usual)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = build_network(settings, task)
        augmenter = LieAugmenter(
            task.action,
            output=task.output,
            n_views=int(settings.n_views),
            range=largest,
            sampler=settings.sampler,
            warmup_steps=round(warmup * steps),
            objective=settings.objective,
            **_basis(settings, given),
        )
    if given is not None and not given.fixed:
        augmenter.basis.start_at(given.generators)
    return Predictor(network, augmenter, classes=task.classes, **task.scales)


def _calculable(settings: Settings, largest: float, generators: Float[Tensor, "c d d"]) -> float:
    """The range, no larger than what can be calculated; if that is less, it is said."""
    if not isinstance(settings.sampler, str) or settings.sampler == "integer-grid":
        return largest
    within = calculable_range(largest, generators, settings.sampler)
    if within < largest:
        norm = float(generators.flatten(1).norm(dim=1).max())
        warnings.warn(
            f"In the units of these columns a generator has a norm of {norm:.2g}, so that the "
            f"predictor can be trained with, and averaged over, coefficients up to {within:.2g} "
            f"only, not {largest:.2g}. Divide columns of unlike units by their spread to have more "
            f"of it. What was found does not depend on units.",
            stacklevel=2,
        )
    return within


def _basis(settings: Settings, given: Given | None) -> dict[str, Any]:
    """What says which generators an augmenter has: those given, or how to make them."""
    if given is not None and given.fixed:
        return {"basis": given.generators}
    return {
        "n_generators": 1 if settings.n_generators == "auto" else int(settings.n_generators),
        "blocks": settings.blocks,
        "mask": None if settings.mask is None else torch.as_tensor(np.asarray(settings.mask)),
    }


def build_network(settings: Settings, task: Task) -> nn.Module:
    """The network that was asked for, of the shapes of the task."""
    in_shape, out_shape = task.shapes
    if isinstance(settings.network, nn.Module):
        return copy.deepcopy(settings.network)
    if callable(settings.network):
        return settings.network(in_shape, out_shape)
    if settings.network not in NETWORKS:
        raise ValueError(
            f"unknown network {settings.network!r}; choose from {', '.join(NETWORKS)}, or give a "
            f"module or a function of (in_shape, out_shape)"
        )
    image = isinstance(task.action, ImageAction)
    wants_cnn = settings.network == "cnn" or (settings.network == "auto" and image)
    if wants_cnn:
        if len(in_shape) != 3 or len(out_shape) != 1:
            raise ValueError(
                f"network='cnn' needs images (N, C, H, W) and a vector output; X has samples "
                f"of shape {in_shape}, outputs have shape {out_shape}. For others give network= a "
                f"module of your own"
            )
        return CNN(in_shape, out_shape[0])
    network = MLP(in_shape, out_shape, hidden=tuple(settings.hidden))
    if task.columns is None:
        return network
    return task.columns.seen_by(network, task.scales.get("x_scale", 1.0))


def untrained(network: nn.Module) -> nn.Module:
    """The network with new weights, in place: teams that share what it has learned would agree."""
    for module in network.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
    return network


def epochs_of(settings: Settings, task: Task) -> int:
    """Length of training."""
    if settings.epochs is not None:
        return settings.epochs
    return max(EPOCHS, -(-_LEAST_STEPS // _steps_of_epoch(settings, task)))


def _steps_of_epoch(settings: Settings, task: Task) -> int:
    return -(-task.n_train // min(settings.batch_size, task.n_train))


def _warmup(settings: Settings, task: Task) -> float:
    if settings.warmup is not None:
        return settings.warmup
    return _IMAGE_WARMUP if isinstance(task.action, ImageAction) else _WARMUP

"""Many seeds as one stacked model: the price of little more than one, on a GPU.

A small network leaves a GPU idle: its step is a chain of short operations. The networks of all
seeds are stacked into one, so that the chain is walked once for all of them. Each seed keeps its
own order of samples, its own random elements and its own augmenter, and ends where training it
alone would have ended, up to rounding.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim import Optimizer

from lieaugmenter.actions.base import Batch, map_tensors, tensors_of
from lieaugmenter.learning.arguments import (
    check_pair,
    check_schedule,
    length_of_training,
    seed_of_training,
)
from lieaugmenter.learning.augmenter import LieAugmenter, prepare_by_kernels
from lieaugmenter.learning.batches import TensorBatches
from lieaugmenter.learning.captured import CapturedStep
from lieaugmenter.learning.devices import pick_device
from lieaugmenter.learning.optimizer import (
    make_optimizer,
    optimizer_tensors,
    rate_at,
    set_rate,
    trainable,
)
from lieaugmenter.learning.progress import TextProgress
from lieaugmenter.learning.trainer import History, TrainingDiverged
from lieaugmenter.learning.unaugmented import Unaugmented


def fit_ensemble(
    models: Sequence[nn.Module],
    augmenters: Sequence[LieAugmenter] | None,
    train: tuple[Batch, Tensor],
    *,
    seeds: Sequence[int],
    epochs: int = 100,
    batch_size: int = 64,
    lr: float = 1e-3,
    schedule: str = "cosine",
    device: str | torch.device = "auto",
    capture: bool = True,
    progress: bool = True,
) -> list[History]:
    """Train several predictors, each with its own augmenter and seed, as one stacked model.

    Equal to ``fit(model, augmenter, train, seed=seed, ...)`` for each of them, up to rounding.

    Parameters
    ----------
    models
        One for each seed, of the same architecture: their parameters are stacked and run through
        `torch.func.vmap`. Without batch norm, dropout, or buffers of their own that change.
    augmenters
        One for each seed, made alike; None trains the predictors alone.
    train
        Inputs and labels, the same for all.
    seeds
        Of the order of samples and of the sampled elements.
    epochs, batch_size, lr, schedule, device, capture, progress
        As for `fit`.

    Returns
    -------
    list of History
        One for each seed; the models and augmenters are trained in place.

    Raises
    ------
    TrainingDiverged
        A term became non-finite; the message names the seed.
    """
    learners = [Unaugmented() for _ in models] if augmenters is None else list(augmenters)
    if not len(models) == len(learners) == len(seeds) or not models:
        raise ValueError(
            f"{len(models)} models, {len(learners)} augmenters, {len(seeds)} seeds: an ensemble "
            f"needs one of each for every member"
        )
    check_schedule(schedule)
    epochs, batch_size, lr = length_of_training(epochs, batch_size, lr)
    seeds = [seed_of_training(seed) for seed in seeds]
    check_pair("train", train)
    _check_alike(models)
    where = pick_device(device)
    first = TensorBatches(*train, batch_size, seed=seeds[0], device=where)
    batches = [first.reseeded(seed) for seed in seeds]
    stack = _Stack(models, learners, seeds, (first.x, first.y), where, lr)
    total = epochs * len(first)
    bar = TextProgress(total) if progress else None
    histories = [History() for _ in seeds]
    try:
        for epoch in range(epochs):
            started = time.monotonic()
            terms: list[Tensor] = []
            orders = torch.stack([own.order(epoch) for own in batches])
            for chosen in orders.split(first.size, dim=1):
                done = epoch * len(first) + len(terms)
                set_rate(stack.optimizer, rate_at(done / total, lr, schedule))
                terms.append(stack.step(chosen, capture=capture))
            means = torch.stack(terms).mean(0).cpu().double()
            seconds = (time.monotonic() - started) / len(seeds)
            for member, history in enumerate(histories):
                if not bool(means[member].isfinite().all()):
                    raise TrainingDiverged(
                        f"training stopped: a term of seed {seeds[member]} became non-finite in "
                        f"epoch {epoch + 1}"
                    )
                named = zip(learners[member].terms, means[member].tolist(), strict=True)
                record: dict[str, Any] = {"epoch": epoch + 1, **dict(named)}
                record["range"] = float(learners[member].sampler.ranges().max())
                history.records.append({**record, "seconds": seconds})
            if bar is not None:
                bar.update((epoch + 1) * len(first), _shown(histories))
    finally:
        if bar is not None:
            bar.close()
        stack.unstack(models)
        stack.graph = None  # it refers to the stack: only a garbage collection would free both
    return histories


class _Stack:
    """Stacked networks, their augmenters, and one optimiser for all."""

    def __init__(
        self,
        models: Sequence[nn.Module],
        learners: Sequence[LieAugmenter | Unaugmented],
        seeds: Sequence[int],
        train: tuple[Batch, Tensor],
        device: torch.device,
        lr: float,
    ) -> None:
        for module in (*models, *learners):
            module.to(device).train()
        self.parameters, self.buffers = stack_module_state(list(models))
        # The skeleton into which the stacked weights are put; its own are never used.
        self.skeleton = copy.deepcopy(models[0]).to("meta")
        self.learners = learners
        self.x, self.y = train
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        groups = [{"params": list(self.parameters.values())}]
        groups += [trainable(learner, **learner.optimizer_options) for learner in learners]
        self.optimizer: Optimizer = make_optimizer(groups, lr, device)
        self.device = device
        self.graph: CapturedStep | None = None

    def step(self, chosen: Int[Tensor, "members batch"], *, capture: bool) -> Tensor:
        """One step of all members, each on the samples chosen for it; the terms, (S, terms)."""
        # Data that do not fit on the device come batch by batch, which no graph can record.
        if not (capture and self.y.is_cuda):
            return self._step(chosen)
        if self.graph is None:
            self.graph = CapturedStep(self._step, (chosen,), self._state, self.generators)
            for learner in self.learners:
                learner.recount()
        if not self.graph.fits(chosen):
            return self._step(chosen)
        for learner in self.learners:
            learner.advance()
        return self.graph.replay(chosen)

    def _step(self, chosen: Int[Tensor, "members batch"]) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        x = map_tensors(lambda t: t[chosen].to(self.device), self.x)
        y = self.y[chosen].to(self.device)
        joined, finish = _prepare_members(self.learners, x, y, self.generators)
        losses, terms = finish(vmap(self._call)(self.parameters, self.buffers, joined))
        # A member's loss depends on its own weights alone, so one sum serves all.
        losses.sum().backward()
        self.optimizer.step()
        return terms

    def _call(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Batch) -> Tensor:
        return functional_call(self.skeleton, (parameters, buffers), (x,))

    def _state(self) -> list[Tensor]:
        modules = [tensor for learner in self.learners for tensor in learner.state_dict().values()]
        return [*self.parameters.values(), *modules, *optimizer_tensors(self.optimizer)]

    @torch.no_grad()
    def unstack(self, models: Sequence[nn.Module]) -> None:
        """Give every member its trained weights."""
        for member, model in enumerate(models):
            for name, parameter in model.named_parameters():
                parameter.copy_(self.parameters[name][member])


def _prepare_members(
    members: Sequence[LieAugmenter | Unaugmented],
    x: Batch,
    y: Tensor,
    generators: Sequence[torch.Generator],
) -> tuple[Batch, Callable[[Tensor], tuple[Tensor, Tensor]]]:
    """`LieAugmenter.prepare` for every member of an ensemble, made alike.

    Parameters
    ----------
    members
        The augmenters.
    x, y
        Batches, one for each member: (members, batch, …).
    generators
        Sources of the members' coefficients.

    Returns
    -------
    tuple
        What the models are to predict, (members, batch · (K + 1), …); and the function from their
        predictions to the losses, (members,), and the terms, (members, terms).
    """
    alike = [member for member in members if isinstance(member, LieAugmenter)]
    if alike and all(member.stacks(x, y) for member in alike):
        for i, member in enumerate(alike):
            member.begin(x[i], y[i])
        return prepare_by_kernels(alike, x, y, generators)
    halves = [
        member.prepare(map_tensors(lambda t, i=i: t[i], x), y[i], generator)
        for i, (member, generator) in enumerate(zip(members, generators, strict=True))
    ]

    def finish(predictions: Tensor) -> tuple[Tensor, Tensor]:
        losses = [end(predictions[i]) for i, (_, end) in enumerate(halves)]
        return torch.stack([*losses]), torch.stack([loss.parts.values_tensor for loss in losses])

    return _stack_batches([joined for joined, _ in halves]), finish


def _stack_batches(batches: Sequence[Batch]) -> Batch:
    """Batches of the members, (batch, …) each, as one of (S, batch, …)."""
    columns = zip(*(tensors_of(batch) for batch in batches), strict=True)
    stacked = iter([torch.stack(column) for column in columns])
    return map_tensors(lambda _: next(stacked), batches[0])


def _check_alike(models: Sequence[nn.Module]) -> None:
    shapes = [{name: p.shape for name, p in model.named_parameters()} for model in models]
    if any(other != shapes[0] for other in shapes):
        raise ValueError("the models of an ensemble must have the same parameters")
    for module in models[0].modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm | nn.modules.dropout._DropoutNd):
            raise ValueError(
                f"an ensemble cannot hold {type(module).__name__}: its members would no longer be "
                f"what each seed alone gives. Train them one by one with fit"
            )


def _shown(histories: Sequence[History]) -> dict[str, float]:
    """Terms of the last epoch, averaged over the members."""
    last = [history.records[-1] for history in histories]
    names = [name for name in ("prediction", "equivariance") if name in last[0]]
    return {name: sum(record[name] for record in last) / len(last) for name in names}

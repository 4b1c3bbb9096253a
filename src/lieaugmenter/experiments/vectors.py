"""The paper's experiments on vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lieaugmenter.baselines.emlp import EMLP
from lieaugmenter.data.dynamics import out_of_distribution, two_body, two_body_from_file
from lieaugmenter.data.synthetic import discrete_rotation, no_symmetry, partial_permutation
from lieaugmenter.data.task import Task
from lieaugmenter.experiments.spec import Experiment, LieGANSettings, Method
from lieaugmenter.learning.objective import PAPER_TWO_BODY, Objective
from lieaugmenter.lie.basis import block_mask
from lieaugmenter.nets import MLP


def _alternating() -> Float[Tensor, "8 8"]:
    """Positions interact with positions and momenta with momenta."""
    return torch.kron(torch.eye(2).repeat(2, 2), torch.ones(2, 2))


# mask2: four planes that do not interact; mask4: positions and momenta apart; mask0: no mask.
MASKS: Mapping[str, Tensor] = {
    "mask2": block_mask([2] * 4).float(),
    "mask4": _alternating(),
    "mask0": torch.ones(8, 8),
}


_WIDTHS = (128, 128, 128)


def _network(method: Method, task: Task, widths: tuple[int, ...]) -> nn.Module:
    in_shape, out_shape = task.x_train.shape[1:], task.y_train.shape[1:]
    if method.kind == "emlp":
        assert task.generator is not None  # only tasks with a symmetry list it
        return EMLP(task.generator, in_shape, out_shape, output=task.output)
    return MLP(in_shape, out_shape, hidden=widths)


# The methods of tasks without a mask.
_UNMASKED = (
    "trivial-paper", "trivial", "oracle-paper", "oracle", "augerino", "liegan", "liegg",
    "lieaugmenter-paper", "lieaugmenter",
)  # fmt: skip


def _two_body_methods() -> tuple[Method, ...]:
    per_mask = ("augerino", "liegan", "liegg", "lieaugmenter-paper", "lieaugmenter")
    single = [
        Method(kind) for kind in ("emlp", "trivial-paper", "trivial", "oracle-paper", "oracle")
    ]
    masked = [Method(kind, mask) for mask in ("mask0", "mask2", "mask4") for kind in per_mask]
    return (*single, *masked)


def _discrete_methods() -> tuple[Method, ...]:
    single = [Method(kind) for kind in _UNMASKED[:-2]]
    laws = [
        Method(kind, law)
        for law in ("continuous", "discrete")
        for kind in ("lieaugmenter-paper", "lieaugmenter")
    ]
    return (*single, *laws)


def _liegan_two_body(method: Method) -> LieGANSettings:
    # Masks 2 and 4 as published; without a mask the published default initialisation.
    return {
        "mask2": LieGANSettings(similarity=1.0, deviation=1.0, scale=1.0),
        "mask4": LieGANSettings(similarity=10.0, deviation=3.0, scale=0.01),
        "mask0": LieGANSettings(similarity=1.0, deviation=1.0),
    }[method.variant]


def _two_body_task(steps: int, shifted: bool) -> Callable[[Path | None, bool], Task]:
    def make(path: Path | None, quick: bool) -> Task:
        if path is not None:
            task = two_body_from_file(path, steps=steps)
        else:
            task = two_body(*((40, 40) if quick else (814, 790)), steps=steps)
        return out_of_distribution(task) if shifted else task

    return make


def _two_body(steps: int, shifted: bool) -> Experiment:
    name = "two-body" + ("" if steps == 1 else f"-{steps}") + ("-ood" if shifted else "")
    how = "other quadrants" if shifted else "the other half plane"
    times = "one time step" if steps == 1 else f"{steps} time steps"
    return Experiment(
        name=name,
        title=f"Two-body dynamics, {times} in and out, tested in {how}",
        task=_two_body_task(steps, shifted),
        methods=_two_body_methods(),
        objective=PAPER_TWO_BODY,
        range=2.0,
        epochs=100,
        # Losses are sums over time steps, so the cosine must count as often to be heard.
        own_objective=replace(PAPER_TWO_BODY, similarity=float(steps)),
        network=_network,
        hidden=_WIDTHS,
        liegan=_liegan_two_body,
        masks=MASKS,
        quick_epochs=4,
    )


def _sized(make: Callable[..., Task], **options: str) -> Callable[[Path | None, bool], Task]:
    def task(path: Path | None, quick: bool) -> Task:
        if path is not None:
            raise ValueError("this experiment generates its data; there is no file to read")
        sizes = {"n_train": 2000, "n_validation": 500, "n_test": 500} if quick else {}
        return make(**sizes, **options)

    return task


# The weights of both discrete tasks.
_DISCRETE = Objective(
    prediction=1.0, equivariance=5.0, similarity=0.1, sparsity=1e-3, alignment=0.0, proximity=0.0
)
_NO_SYMMETRY = Objective(
    prediction=1.0, equivariance=1.0, similarity=0.1, sparsity=0.1, alignment=0.0, proximity=0.0
)


def _absence(reading: str) -> Experiment:
    suffix = "" if reading == "variance" else f"-{reading}"
    return Experiment(
        name=f"no-symmetry{suffix}",
        title=f"No symmetry to find; weights of the target of {reading} 0.01",
        task=_sized(no_symmetry, reading=reading),
        methods=tuple(Method(kind) for kind in _UNMASKED),
        objective=_NO_SYMMETRY,
        range=5.0,
        epochs=25,
        own_objective=_NO_SYMMETRY,
        network=_network,
        hidden=_WIDTHS,
    )


VECTOR_EXPERIMENTS: tuple[Experiment, ...] = (
    _two_body(1, False),
    _two_body(1, True),
    _two_body(3, False),
    _two_body(3, True),
    Experiment(
        name="discrete-rotation",
        title="Rotations by multiples of 60 degrees",
        task=_sized(discrete_rotation),
        methods=_discrete_methods(),
        objective=_DISCRETE,
        range=3.0,
        epochs=50,
        own_objective=_DISCRETE,
        network=_network,
        hidden=_WIDTHS,
        liegan=lambda method: LieGANSettings(similarity=1e-2, integers=10),
    ),
    Experiment(
        name="partial-permutation",
        title="Permutations of three of five coordinates",
        task=_sized(partial_permutation),
        methods=_discrete_methods(),
        objective=_DISCRETE,
        range=3.0,
        epochs=50,
        own_objective=_DISCRETE,
        network=_network,
        hidden=_WIDTHS,
        liegan=lambda method: LieGANSettings(similarity=1e-2),
    ),
    _absence("variance"),
    _absence("deviation"),
)

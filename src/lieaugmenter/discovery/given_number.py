"""The likeliest generators, where it is known how many there are."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lieaugmenter.actions import ImageAction
from lieaugmenter.actions.base import Action, Batch
from lieaugmenter.analysis.polarization import entries, polarize
from lieaugmenter.discovery.spans import identities_of, normalised, on_the_data
from lieaugmenter.discovery.teams import SEARCHED, Team, fresh, sent, some, standardising, taught
from lieaugmenter.learning.devices import pick_device
from lieaugmenter.lie.brackets import orthonormal
from lieaugmenter.lie.units import in_spreads
from lieaugmenter.nets import GaussianProcess
from lieaugmenter.runs import RunFolder

# Up to so many samples a Gaussian process knows more than networks do.
_FEW = 500
# Matrices smaller than this, relative to what they are part of, are rounding.
_LEAST_SHARE = 1e-4


def known(
    make_network: Callable[[], nn.Module],
    data: tuple[Batch, Tensor],
    dimension: int,
    *,
    action: Action,
    output: Action,
    candidates: Float[Tensor, "n d d"] | None = None,
    classes: int = 0,
    members: int = 8,
    epochs: int = 60,
    most_steps: int = 6000,
    batch_size: int = 64,
    lr: float = 3e-3,
    device: str | torch.device = "auto",
    seed: int = 0,
    progress: bool = False,
    run: RunFolder | None = None,
    resume: bool = False,
) -> Float[Tensor, "c d d"]:
    """The likeliest generators where it is known how many there are, from few or noisy samples too.

    With nothing left to decide nothing is held back: all networks learn from all samples, briefly,
    and what they have in common is asked (`analysis.polarization`). From 500 samples or fewer,
    unless they are images, a Gaussian process learns in their place. It says nothing about whether
    there is a symmetry: `gather` and `discover` do.

    Parameters
    ----------
    make_network
        Makes an untrained network, where there are many samples; called under a seed of its own
        for each member.
    data
        Inputs and targets, scaled as the networks want them.
    dimension
        How many generators there are.
    action, output, candidates, classes
        As of `gather`.
    members
        How many networks.
    epochs, most_steps, batch_size, lr, device, seed, progress
        Of the training; `epochs` is cut where it would take more steps, and no more samples are
        looked at than the steps take.
    run, resume
        As of `gather`.

    Returns
    -------
    Tensor
        (c, d, d), each of norm √D; the exact algebra where it has a name.

    Examples
    --------
    >>> from lieaugmenter.actions import InvariantAction, VectorAction
    >>> from lieaugmenter.nets import MLP
    >>> from lieaugmenter.analysis.compare import principal_cosines
    >>> from lieaugmenter.lie.catalogue import so
    >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> y = x.square().sum(dim=1, keepdim=True)
    >>> found = known(
    ...     lambda: MLP((2,), (1,), hidden=(32, 32), smooth=True), (x, y), 1,
    ...     action=VectorAction(2), output=InvariantAction(), members=4, device="cpu",
    ... )
    >>> bool(principal_cosines(found, so(2)).min() > 0.95)
    True
    """
    if not 1 <= dimension <= action.dim * action.rows:
        raise ValueError(
            f"dimension={dimension}: there are between 1 and {action.dim * action.rows} generators"
        )
    x, y = data = some(data, most_steps * batch_size, seed)
    make_network = standardising(make_network, x)
    epochs = max(1, min(epochs, -(-most_steps // -(-len(y) // batch_size))))
    few = len(y) <= _FEW and isinstance(x, Tensor) and not isinstance(action, ImageAction)

    def team() -> Team:
        networks = [
            taught(
                fresh(make_network, seed + i),
                None,
                data,
                seed=seed + i,
                epochs=epochs,
                batch_size=batch_size,
                lr=lr,
                device=device,
                progress=f"network {i + 1} of {members}" if progress else False,
                run=None if run is None else run.part(f"network-{i + 1}"),
                resume=resume,
            )
            for i in range(members)
        ]
        return Team(networks, classes).eval()

    where = pick_device(device)
    # A derivative wants an axis for the numbers of a target, as networks have it.
    targets = y if classes or y.ndim > 1 else y.unsqueeze(1)
    predictor = GaussianProcess(x, targets, classes).to(where) if few else team()
    inputs = sent(x, SEARCHED, where)
    found = likeliest(
        predictor, inputs, dimension, action=action, output=output, candidates=candidates
    )
    spread = action.spread(inputs)
    identities = identities_of(found, action, spread)
    exact = next((identity.exact for identity in identities if identity.exact is not None), found)
    return normalised(exact.to(found), action, spread)


def likeliest(
    predictor: Callable[[Batch], Tensor],
    x: Batch,
    dimension: int,
    *,
    action: Action,
    output: Action,
    candidates: Float[Tensor, "n d d"] | None = None,
) -> Float[Tensor, "c d d"]:
    """The generators along which a predictor changes least, those that lead off the data last.

    Parameters
    ----------
    predictor
        A trained one, differentiable, in evaluation mode.
    x
        Samples, on the device of the predictor.
    dimension
        How many; fewer are returned where no more move the samples.
    action, output, candidates
        As of `gather`.

    Examples
    --------
    >>> from lieaugmenter.actions import InvariantAction, VectorAction
    >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    >>> turn = likeliest(
    ...     lambda x: x.norm(dim=1, keepdim=True), x, 1,
    ...     action=VectorAction(2), output=InvariantAction(),
    ... )
    >>> bool((turn[0] + turn[0].T).abs().max() < 1e-5)
    True
    """
    candidates = entries(action.mask) if candidates is None else candidates
    covered, _, _ = on_the_data(x, candidates, action)
    spread = action.spread(x)

    def best(among: Float[Tensor, "n d d"], count: int) -> Float[Tensor, "c d d"]:
        return polarize(
            predictor, x, action=action, output=output, candidates=among, spread=spread
        ).span(count)

    found = best(covered, dimension)
    # In units of the spread: in others small entries that count would be lost as rounding.
    beside = _beside(in_spreads(candidates, spread), in_spreads(covered, spread))
    others = in_spreads(beside, 1 / spread)
    if len(found) == dimension or not len(others):
        return found
    return torch.cat([found, best(others, dimension - len(found))])


def _beside(
    candidates: Float[Tensor, "n d d"], others: Float[Tensor, "m d d"]
) -> Float[Tensor, "k d d"]:
    """An orthonormal basis of what the candidates span beside others."""
    axes, rows = orthonormal(others).flatten(1), candidates.detach().double().cpu().flatten(1)
    _, sizes, directions = torch.linalg.svd(rows - rows @ axes.T @ axes, full_matrices=False)
    left = directions[sizes > _LEAST_SHARE * rows.norm()]
    return left.unflatten(1, candidates.shape[1:]).to(candidates)

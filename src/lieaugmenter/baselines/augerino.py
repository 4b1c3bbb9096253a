"""Augerino and Augerino+: a predictor trained on one transformed copy of each sample.

Augerino, Benton et al. (2020), learns how far to go along given generators. Augerino+ is the
variant that LieGAN's authors compare with: the generators themselves are learned, there is no
normalisation, and the coefficients are normal. Neither has a loss on the original sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from lieaugmenter.actions import Action
from lieaugmenter.actions.base import Batch, batch_size, map_tensors
from lieaugmenter.actions.words import make_action
from lieaugmenter.baselines.liegan import UnnormalisedBasis, mean_cosine
from lieaugmenter.learning.augmenter import LieAugmenter, joint_mask
from lieaugmenter.learning.labels import matched
from lieaugmenter.learning.objective import Objective, alignment, prediction_loss
from lieaugmenter.lie.catalogue import lift, scaling, sl, so, translations
from lieaugmenter.lie.elements import Elements
from lieaugmenter.lie.samplers import Normal, Sampler

# As published for molecules: every width starts at 1, a wider one than this is no longer rewarded,
# and a unit of a translation's coefficient is half a unit of length.
_FIRST_WIDTH = 1.0
_WIDEST = 10.0
_TRANSLATION = 0.5
# A width stays below this, which bounds the exponential.
_CAP = 12.0


class AugerinoPlus(LieAugmenter):
    """Joint training on Ψ(g x) ≈ g y with one element for each sample.

    Use it as a `LieAugmenter`: ``fit(model, AugerinoPlus(...), (x, y))``, then
    ``augerino.predict(model, x)``, which averages over `n_views` elements and their inverses.

    Parameters
    ----------
    action, dim, n_generators, output, mask, blocks
        As for `LieAugmenter`.
    n_views
        Elements that a prediction is averaged over.
    deviation
        Standard deviation of the normal coefficients.
    similarity
        Weight of |mean cos(x, g x)|, which keeps the elements away from the identity.
    correlation
        Weight of the sum over pairs of |<L_i, L_j>| at norm √d.
    scale
        Standard deviation of the initial entries, see `UnnormalisedBasis`.
    generator
        Source of the initial entries.

    Examples
    --------
    >>> augerino = AugerinoPlus("vector", 2, output="invariant")
    >>> x = torch.randn(16, 2)
    >>> list(augerino.loss(torch.nn.Linear(2, 1), x, x.norm(dim=1, keepdim=True)).parts)
    ['prediction', 'similarity']
    """

    mixes_views = False
    # Its cosine is the absolute value of a mean over samples.
    separable = False

    def __init__(
        self,
        action: str | Action = "vector",
        dim: int | None = None,
        n_generators: int = 1,
        output: str | Action = "same",
        n_views: int = 10,
        *,
        deviation: float = 1.0,
        similarity: float = 1.0,
        correlation: float = 1.0,
        mask: Tensor | None = None,
        blocks: Sequence[int] | None = None,
        scale: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        action = make_action(action, dim)
        super().__init__(
            action,
            output=output,
            n_views=n_views,
            sampler=Normal(deviation),
            basis=UnnormalisedBasis(
                n_generators,
                action.dim,
                scale=scale,
                mask=joint_mask(action, mask, blocks),
                generator=generator,
            ),
            objective=Objective(
                equivariance=0.0,
                similarity=similarity,
                sparsity=0.0,
                alignment=correlation * action.dim,
                proximity=0.0,
            ),
        )

    def _prepare(
        self, x: Batch, y: Tensor, generator: torch.Generator | None
    ) -> tuple[Batch, Callable[[Tensor], Float[Tensor, " terms"]]]:
        """One view in place of the original, and the terms on it."""
        elements, moved, target = _one_view(self, x, y, generator)

        def terms_of(predictions: Tensor) -> Float[Tensor, " terms"]:
            values = {
                "prediction": prediction_loss(*matched(predictions, target)),
                "similarity": mean_cosine(self.action.moving(x), self.action.moving(moved)),
                "alignment": alignment(elements.basis),
            }
            return torch.stack([values[name] for name in self.terms])

        return moved, terms_of


def _one_view(
    augmenter: LieAugmenter, x: Batch, y: Tensor, generator: torch.Generator | None
) -> tuple[Elements, Batch, Tensor]:
    """An element for each sample, and the sample and its label moved by it."""
    elements = augmenter.sample(batch_size(x), views=1, generator=generator)
    moved = map_tensors(lambda t: t.squeeze(1), augmenter.action.act(elements, x))
    return elements, moved, augmenter.output.act(elements, y).squeeze(1)


class Widths(Sampler):
    """w_i ~ U[0, softplus(θ_i)], one width for each generator, learned; never beyond a cap.

    One-sided as published for molecules: a rotation by a negative angle is not drawn.

    Parameters
    ----------
    n_generators
        c.
    """

    def __init__(self, n_generators: int) -> None:
        super().__init__(_CAP)
        start = torch.expm1(torch.tensor(_FIRST_WIDTH)).log()
        self.theta = nn.Parameter(start.repeat(n_generators))

    def learned(self) -> Float[Tensor, " c"]:
        """The widths."""
        return softplus(self.theta).clamp(max=_CAP)

    def ranges(self) -> Tensor:
        return self.learned().detach()

    def forward(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "..."]:
        drawn = torch.empty(shape, dtype=self.theta.dtype, device=self.theta.device)
        return drawn.uniform_(generator=generator) * self.learned()


class Augerino(LieAugmenter):
    """Learned widths along all affine generators, one element for each sample in training.

    The loss is that of the prediction on the transformed sample, less a reward for wide ranges:
    0.001 times the sum of the squared widths below 10, as published for molecules.

    Parameters
    ----------
    action, dim
        On points in homogeneous coordinates, of two dimensions or more.
    output, n_views
        As for `LieAugmenter`; predictions are averaged over `n_views` elements.
    absolute
        Absolute instead of squared errors.
    reward
        Weight of the squared widths.

    Examples
    --------
    >>> augerino = Augerino("affine", 3, output="invariant", n_views=4)
    >>> x = torch.randn(16, 5, 3)
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(15, 1))
    >>> loss = augerino.loss(model, x, x.norm(dim=(1, 2)).unsqueeze(1))
    >>> list(loss.parts), augerino.widths.tolist() == [1.0] * 12
    (['prediction', 'narrowness'], True)
    """

    mixes_views = False
    # Chunks are made of the originals and their views; here one view stands for the original.
    separable = False

    def __init__(
        self,
        action: str | Action = "affine",
        dim: int | None = None,
        output: str | Action = "same",
        n_views: int = 10,
        *,
        absolute: bool = False,
        reward: float = 1e-3,
    ) -> None:
        action = make_action(action, dim)
        super().__init__(
            action,
            output=output,
            n_views=n_views,
            sampler=Widths(action.rows * action.dim),
            basis=_affine(action),
            objective=Objective(absolute=absolute).losses_only(),
        )
        self._terms = ["prediction", "narrowness"]
        self.reward = float(reward)
        self.term_weights = torch.tensor([1.0, reward])

    @property
    def construction(self) -> dict[str, Any]:
        return {**super().construction, "reward": self.reward}

    @property
    def widths(self) -> Float[Tensor, " c"]:
        """How far a coefficient of each generator goes."""
        return self.sampler.ranges()

    def _prepare(
        self, x: Batch, y: Tensor, generator: torch.Generator | None
    ) -> tuple[Batch, Callable[[Tensor], Float[Tensor, " terms"]]]:
        """One view in place of the original, and the terms on it."""
        _, moved, target = _one_view(self, x, y, generator)

        def terms_of(predictions: Tensor) -> Float[Tensor, " terms"]:
            assert isinstance(self.sampler, Widths)
            widths = self.sampler.learned()
            narrow = -(widths.square() * (widths < _WIDEST)).sum()
            pair = matched(predictions, target)
            error = prediction_loss(*pair, absolute=self.objective.absolute)
            return torch.stack([error, narrow])

        return moved, terms_of


def _affine(action: Action) -> Float[Tensor, "c d d"]:
    """Rotations, shears E_ij + E_ji, squeezes of neighbouring axes, the scaling, translations."""
    n = action.rows
    turns = so(n)
    above = turns.triu(1)
    squeezes = sl(n)[n * (n - 1) :]
    linear = torch.cat([turns, above.abs() + above.abs().mT, squeezes, scaling(n)])
    return torch.cat([lift(linear), _TRANSLATION * translations(n)])

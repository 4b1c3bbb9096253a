"""Augerino+: generators and predictor trained together on one transformed copy of each sample.

The variant of Augerino that LieGAN's authors compare with: the generators themselves are learned,
not only the widths of given ones. There is no loss on the original sample, no normalisation, and
the coefficients are normal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions import Action
from lieaugmenter.actions.base import Batch, batch_size, map_tensors
from lieaugmenter.baselines.liegan import UnnormalisedBasis, mean_cosine
from lieaugmenter.learning.augmenter import LieAugmenter, joint_mask, make_action
from lieaugmenter.learning.averaging import shaped_like
from lieaugmenter.learning.objective import Objective, alignment, prediction_loss
from lieaugmenter.lie.samplers import Normal


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
        elements = self.sample(batch_size(x), views=1, generator=generator)
        moved = map_tensors(lambda t: t.squeeze(1), self.action.act(elements, x))
        target = self.output.act(elements, y).squeeze(1)

        def terms_of(predictions: Tensor) -> Float[Tensor, " terms"]:
            if y.is_floating_point():
                predictions = shaped_like(predictions, target)
            values = {
                "prediction": prediction_loss(predictions, target),
                "similarity": mean_cosine(self.action.moving(x), self.action.moving(moved)),
                "alignment": alignment(elements.basis),
            }
            return torch.stack([values[name] for name in self.terms])

        return moved, terms_of

"""LieGAN: generators that a discriminator cannot tell from the identity.

Yang et al. (2023). A sample and its label are moved together; the discriminator is trained to tell
moved pairs from original ones, the generators are trained to deceive it. The predictor plays no
part: what comes out is a basis, by which any predictor can then be augmented.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity

from lieaugmenter.actions import Action
from lieaugmenter.actions.base import Batch, batch_size, map_tensors, tensors_of
from lieaugmenter.actions.words import make_action
from lieaugmenter.learning.augmenter import LieAugmenter, joint_mask
from lieaugmenter.learning.objective import Loss, Objective, alignment
from lieaugmenter.lie.basis import GeneratorBasis
from lieaugmenter.lie.samplers import Normal, Sampler

# Generators longer than this many times √d are scaled back: far beyond any that were published,
# and it bounds the exponential.
_LONGEST = 4.0
# Learning rates of the published code.
GENERATOR_RATE = 1e-3
DISCRIMINATOR_RATE = 2e-4


class UnnormalisedBasis(GeneratorBasis):
    """Generators whose length is learned with their direction, up to 4 √d.

    Parameters
    ----------
    n_generators, dim
        c and d.
    scale
        Standard deviation of the initial entries; √2 / d (Kaiming's) unless given.
    mask
        (d, d) of 0 and 1: entries that may differ from zero.
    generator
        Source of the initial entries.

    Examples
    --------
    >>> basis = UnnormalisedBasis(1, 2, scale=100.0, generator=torch.Generator().manual_seed(0))
    >>> round(basis().norm().item(), 3)
    5.657
    """

    def __init__(
        self,
        n_generators: int,
        dim: int,
        *,
        scale: float | None = None,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(n_generators, dim, mask=mask)
        self.norm = _LONGEST * math.sqrt(dim)
        self._measure()
        scale = math.sqrt(2) / dim if scale is None else scale
        entries = torch.randn(self.raw.shape, generator=generator)
        self.raw = nn.Parameter(entries * scale)

    def forward(self) -> Float[Tensor, "c d d"]:
        masked = self.raw * self.mask
        length = masked.flatten(1).norm(dim=1).clamp_min(self.norm)
        return masked * (self.norm / length)[:, None, None]


def mean_cosine(x: Float[Tensor, "batch n"], moved: Float[Tensor, "batch n"]) -> Float[Tensor, ""]:
    """|mean cos(x, g x)|: LieGAN's non-triviality term, the absolute value after the mean."""
    return cosine_similarity(x, moved, dim=-1).mean().abs()


class Discriminator(nn.Module):
    """Logits of "this pair was not moved" for a flattened input and its label.

    Parameters
    ----------
    n_features
        Numbers in one input, in all its fields together.
    n_outputs
        Numbers in one label, or the number of classes.
    width
        Of the two hidden layers.
    """

    def __init__(self, n_features: int, n_outputs: int, width: int = 512) -> None:
        super().__init__()
        self.n_outputs = n_outputs
        self.layers = nn.Sequential(
            nn.Linear(n_features + n_outputs, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, 1),
        )

    def forward(self, pair: tuple[Batch, Tensor]) -> Float[Tensor, " batch"]:
        x, y = pair
        if not y.is_floating_point():
            y = nn.functional.one_hot(y, self.n_outputs)
        dtype = next(self.parameters()).dtype
        numbers = [t.reshape(len(t), -1).to(dtype) for t in (*tensors_of(x), y)]
        return self.layers(torch.cat(numbers, dim=1)).squeeze(1)


class ImageDiscriminator(nn.Module):
    """Logits of "this pair was not moved" for an image and its class, as published for digits.

    Five 3 × 3 convolutions with batch norm, two max-pools, dropout, the mean over the image, and
    the class as a learned vector beside it.

    Parameters
    ----------
    channels
        Of an image.
    classes
        Their number.
    width
        Channels of the first two convolutions, and size of the class's vector.
    """

    def __init__(self, channels: int, classes: int, width: int = 128) -> None:
        super().__init__()

        def convolution(before: int, after: int) -> list[nn.Module]:
            # Batch norm would take a bias out again.
            layer = nn.Conv2d(before, after, 3, padding=1, bias=False)
            return [layer, nn.BatchNorm2d(after), nn.ReLU()]

        self.features = nn.Sequential(
            *convolution(channels, width),
            *convolution(width, width),
            *convolution(width, 2 * width),
            nn.MaxPool2d(2),
            nn.Dropout2d(0.3),
            *convolution(2 * width, 2 * width),
            nn.MaxPool2d(2),
            nn.Dropout2d(0.3),
            *convolution(2 * width, 2 * width),
            nn.Dropout2d(0.3),
        )
        self.embedding = nn.Embedding(classes, width)
        self.head = nn.Linear(3 * width, 1)

    def forward(self, pair: tuple[Tensor, Tensor]) -> Float[Tensor, " batch"]:
        x, y = pair
        seen = self.features(x).mean((2, 3))
        return self.head(torch.cat([seen, self.embedding(y).to(seen.dtype)], dim=1)).squeeze(1)


def log_spectrum(x: Float[Tensor, "batch *n"]) -> Float[Tensor, "batch m"]:
    """log(1 + |F(x)|) over the last two axes: a turned image has a turned spectrum."""
    return torch.fft.fft2(x).abs().log1p().flatten(1)


def _leaf(moved: Tensor) -> Tensor:
    """The same numbers cut from the graph, to be differentiated in where they move."""
    return moved.detach().requires_grad_(moved.requires_grad)


class LieGAN(LieAugmenter):
    """Adversarial discovery of generators; `loss` trains both players at once.

    Train it with ``fit(discriminator, liegan, (x, y), lr=DISCRIMINATOR_RATE,
    schedule="constant")``; then ``liegan.generators`` is the basis, and ``liegan.augmenter()``
    augments by it.

    Parameters
    ----------
    action, dim, n_generators, output, mask, blocks
        As for `LieAugmenter`.
    n_views
        Views of the augmenter that `augmenter` makes; the game itself is played with one.
    sampler
        Law of the coefficients; normal with standard deviation 1 unless given.
    similarity
        Weight of `mean_cosine`.
    spectral
        Take the cosine between the images' spectra, `log_spectrum`, as published for images.
    correlation
        Weight of the sum over pairs of |<L_i, L_j>| at norm √d.
    rate
        Learning rate of the generators.
    scale
        Standard deviation of the initial entries, see `UnnormalisedBasis`.
    generator
        Source of the initial entries.

    Examples
    --------
    >>> liegan = LieGAN("vector", 2, output="invariant")
    >>> x = torch.randn(16, 2)
    >>> list(liegan.loss(Discriminator(2, 1), x, x.norm(dim=1, keepdim=True)).parts)
    ['discriminator', 'generator', 'similarity']
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
        sampler: Sampler | None = None,
        similarity: float = 1.0,
        spectral: bool = False,
        correlation: float = 1.0,
        rate: float = GENERATOR_RATE,
        mask: Tensor | None = None,
        blocks: Sequence[int] | None = None,
        scale: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        action = make_action(action, dim)
        basis = UnnormalisedBasis(
            n_generators,
            action.dim,
            scale=scale,
            mask=joint_mask(action, mask, blocks),
            generator=generator,
        )
        super().__init__(
            action,
            output=output,
            n_views=n_views,
            sampler=Normal(1.0) if sampler is None else sampler,
            basis=basis,
            objective=Objective(similarity=similarity),
        )
        self.spectral, self.rate, self.correlation = spectral, float(rate), float(correlation)
        weights = {"discriminator": 1.0, "generator": 1.0, "similarity": similarity}
        if n_generators > 1:
            weights["alignment"] = correlation * action.dim
        self._terms = [name for name, weight in weights.items() if weight]
        self.term_weights = torch.tensor([weights[name] for name in self._terms])
        self._weigh()

    @property
    def construction(self) -> dict[str, Any]:
        own = {"spectral": self.spectral, "rate": self.rate, "correlation": self.correlation}
        return {**super().construction, **own}

    @property
    def optimizer_options(self) -> dict[str, Any]:
        """The generators learn faster than the discriminator, and with less momentum."""
        return {"rate_scale": self.rate / DISCRIMINATOR_RATE, "betas": (0.5, 0.999)}

    def loss(
        self,
        model: Callable[[Any], Tensor],
        x: Batch,
        y: Tensor,
        generator: torch.Generator | None = None,
    ) -> Loss:
        """Both players' losses, for a discriminator in place of the predictor.

        Parameters
        ----------
        model
            Maps pairs (x, y) to logits, see `Discriminator`.
        x, y, generator
            As for `LieAugmenter.loss`.
        """
        return self._weighed(self._game(model, x, self.begin(x, y), generator))

    def _game(
        self, model: Callable[[Any], Tensor], x: Batch, y: Tensor, generator: torch.Generator | None
    ) -> Float[Tensor, " terms"]:
        """Both players' losses, whose gradients reach each player's own parameters only.

        The discriminator sees the moved pairs cut from the graph. The generators' gradient is
        that of their loss at those pairs, carried on to the pairs by hand: neither player's loss
        then touches the other's parameters, and one backward pass serves both.
        """
        elements = self.sample(batch_size(x), views=1, generator=generator)
        moved_x = map_tensors(lambda t: t.squeeze(1), self.action.act(elements, x))
        moved_y = self.output.act(elements, y).squeeze(1)
        real = model((x, y))
        # Leaves of their own, so that the generators' loss can be differentiated in them alone.
        seen_x, seen_y = (map_tensors(_leaf, part) for part in (moved_x, moved_y))
        fake = model((seen_x, seen_y))
        deceived = binary_cross_entropy_with_logits(fake, torch.ones_like(fake))
        seen, moved = tensors_of((seen_x, seen_y)), tensors_of((moved_x, moved_y))
        pairs = [(leaf, own) for leaf, own in zip(seen, moved, strict=True) if own.requires_grad]
        slopes = torch.autograd.grad(deceived, [leaf for leaf, _ in pairs], retain_graph=True)
        moves = [own for _, own in pairs]
        carried = torch.stack(
            [(slope * values).sum() for slope, values in zip(slopes, moves, strict=True)]
        ).sum()
        caught = binary_cross_entropy_with_logits(
            real, torch.ones_like(real)
        ) + binary_cross_entropy_with_logits(fake, torch.zeros_like(fake))
        values = {
            "discriminator": caught / 2,
            # The value of the loss, with the gradient of `carried`.
            "generator": deceived.detach() + carried - carried.detach(),
            "similarity": mean_cosine(self._seen(x), self._seen(moved_x)),
            "alignment": alignment(elements.basis),
        }
        return torch.stack([values[name] for name in self._terms])

    def _seen(self, x: Batch) -> Float[Tensor, "batch n"]:
        """What the cosine is taken of."""
        return log_spectrum(x) if self.spectral else self.action.moving(x)

    def augmenter(self, objective: Objective | None = None) -> LieAugmenter:
        """An augmentation by what was found: the basis fixed, the coefficients by the same law.

        Parameters
        ----------
        objective
            Weights of the two losses; the default ones unless given.
        """
        return LieAugmenter(
            self.action,
            output=self.output,
            n_views=self.n_views,
            sampler=self.sampler,
            basis=self.generators.detach(),
            objective=(objective or Objective()).losses_only(),
        )

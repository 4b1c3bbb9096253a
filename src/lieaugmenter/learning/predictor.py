"""A trained predictor ready for use: in the units of the data, averaged over the symmetry."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lieaugmenter.actions import ImageAction
from lieaugmenter.actions.base import Batch, map_tensors
from lieaugmenter.learning.augmenter import LieAugmenter


class Predictor(nn.Module):
    """A network, its augmenter, and the scales it was trained in.

    Inputs are divided by one number, never column by column: scaling columns differently would
    turn a rotation into something else.

    Parameters
    ----------
    network, augmenter
        As trained, on scaled data.
    x_scale
        Inputs are divided by it.
    y_scale, y_shift
        Outputs are multiplied by the first, then the second is added: numbers, or one for each
        output.
    classes
        Number of classes, 0 for a regressor.
    views
        Elements to average over when a call does not say; `augmenter.n_views` unless given, 0 for
        the direct prediction, which it is without generators.
    absolute
        Whether `loss` is of absolute instead of squared errors.

    Notes
    -----
    ``forward(x)`` gives values for a regressor and class probabilities for a classifier.
    """

    y_scale: Tensor
    y_shift: Tensor

    def __init__(
        self,
        network: nn.Module,
        augmenter: LieAugmenter,
        *,
        x_scale: float = 1.0,
        y_scale: Tensor | float = 1.0,
        y_shift: Tensor | float = 0.0,
        classes: int = 0,
        views: int | None = None,
        absolute: bool = False,
    ) -> None:
        super().__init__()
        self.absolute = absolute
        self.network = network
        self.augmenter = augmenter
        self.x_scale = x_scale
        self.classes = classes
        usual = augmenter.n_views if len(augmenter.generators) else 0
        self.views = usual if views is None else views
        self.register_buffer("y_scale", torch.as_tensor(y_scale, dtype=torch.float32))
        self.register_buffer("y_shift", torch.as_tensor(y_shift, dtype=torch.float32))

    def scale_x(self, x: Batch) -> Batch:
        """Inputs as the network sees them."""
        return map_tensors(lambda t: t / self.x_scale if t.is_floating_point() else t, x)

    def scale_y(self, y: Tensor) -> Tensor:
        """Targets as the network sees them; labels stay as they are."""
        if not y.is_floating_point():
            return y
        return (y - self.y_shift.to(y)) / self.y_scale.to(y)

    def forward(self, x: Batch, views: int | None = None) -> Tensor:
        device = self.y_scale.device
        scaled = self.scale_x(map_tensors(lambda t: _as_trained(t, device), x))
        average = "probabilities" if self.classes else "values"
        views = self.views if views is None else views
        prediction = self.augmenter.predict(self.network, scaled, views=views, average=average)
        return prediction if self.classes else prediction * self.y_scale + self.y_shift

    @torch.no_grad()
    def loss(self, x: Batch, y: Tensor, views: int | None = None) -> float:
        """Mean squared or absolute error, or negative log-likelihood, in the data's units."""
        prediction = self(x, views=views).cpu()
        if self.classes:
            return float(nn.functional.nll_loss(prediction.clamp_min(1e-12).log(), y.cpu()))
        error = prediction.reshape(y.shape) - y.cpu()
        return float(error.abs().mean() if self.absolute else error.square().mean())

    def choose_inference(
        self, x: Batch, y: Tensor, plain: nn.Module | None = None
    ) -> tuple[str, float]:
        """Predict from now on in the way that does best on these data.

        Parameters
        ----------
        x, y
            Data that were not trained on.
        plain
            The same network trained without augmentation; it takes the place of the augmented one
            where no symmetry is worth its price.

        Returns
        -------
        tuple
            ``"averaged"``, ``"direct"`` or ``"plain"``, and its loss.
        """
        losses = {"averaged": self.loss(x, y), "direct": self.loss(x, y, views=0)}
        if plain is not None:
            own, self.network = self.network, plain
            losses["plain"] = self.loss(x, y, views=0)
            self.network = own
        # A loss that is not a number must not win.
        best = min(losses, key=lambda way: losses[way] if losses[way] == losses[way] else math.inf)
        if best != "averaged":
            self.views = 0
        if best == "plain" and plain is not None:
            self.network = plain
        return best, losses[best]

    def generators(self) -> Tensor:
        """The generators in the units of the data, (c, d, d)."""
        return self.in_units_of_data(self.augmenter.generators.detach().cpu())

    def in_units_of_data(self, generators: Tensor) -> Tensor:
        """Generators of the scaled data as those of the data, (c, d, d).

        A linear generator is the same in all units; the translation column of an affine one is a
        length. Of an image the pixels are scaled, but not the plane.
        """
        generators = generators.clone()
        action = self.augmenter.action
        rows = action.rows
        if rows < action.dim and not isinstance(action, ImageAction):
            generators[:, :rows, rows:] *= self.x_scale
        return generators


def _as_trained(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device and, if it holds real numbers, in the precision of the network."""
    return tensor.to(device, torch.float32 if tensor.is_floating_point() else tensor.dtype)

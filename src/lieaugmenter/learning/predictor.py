"""A trained predictor ready for use: in the units of the data, averaged over the symmetry."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lieaugmenter.actions import ImageAction
from lieaugmenter.actions.base import Batch, map_tensors
from lieaugmenter.learning.augmenter import LARGEST_REACH, LieAugmenter
from lieaugmenter.learning.frozen import FrozenPredictor, precision_in
from lieaugmenter.learning.labels import matched
from lieaugmenter.lie.brackets import orthonormal
from lieaugmenter.lie.samplers import IntegerGrid, Uniform

# Averaging may go so many times as far along an axis as training did.
_REACHES = (1.0, 2.0, 4.0, 8.0)
# Samples on which they are compared.
_COMPARED = 4096


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

    Attributes
    ----------
    reach
        Where averages go along some directions only, or further than training did: how many times
        as far, by the number of the axis. See `choose_inference` and `axes`.

    Notes
    -----
    ``forward(x)`` gives values for a regressor and class probabilities for a classifier, with
    gradients; ``predict(x)`` the same without.
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
        # Of an average, whether or not predictions are averaged at present.
        self._usual_views = (views or augmenter.n_views) if len(augmenter.generators) else 0
        self.views = self._usual_views if views is None else views
        self.register_buffer("y_scale", torch.as_tensor(y_scale, dtype=torch.float32))
        self.register_buffer("y_shift", torch.as_tensor(y_shift, dtype=torch.float32))
        self.reach: dict[int, float] = {}

    def scale_x(self, x: Batch) -> Batch:
        """Inputs as the network sees them."""
        return map_tensors(lambda t: t / self.x_scale if t.is_floating_point() else t, x)

    def scale_y(self, y: Tensor) -> Tensor:
        """Targets as the network sees them; labels stay as they are."""
        if not y.is_floating_point():
            return y
        return (y - self.y_shift.to(y)) / self.y_scale.to(y)

    def forward(self, x: Batch, views: int | None = None) -> Tensor:
        scaled = self.scale_x(map_tensors(self._as_trained, x))
        average = "probabilities" if self.classes else "values"
        views = self.views if views is None else views
        if views and torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
            raise RuntimeError(
                "a trace would draw other elements at every call; trace predictor.frozen(), whose "
                "elements are drawn once"
            )
        prediction = self.averaged_over.average(self.network, scaled, views=views, average=average)
        return prediction if self.classes else prediction * self.y_scale + self.y_shift

    def _as_trained(self, tensor: Tensor) -> Tensor:
        """On the device and, if it holds real numbers, in the precision of the network."""
        if not tensor.is_floating_point():
            return tensor.to(self.y_scale.device)
        return tensor.to(self.y_scale.device, precision_in(self.network))

    @torch.no_grad()
    def predict(self, x: Batch, views: int | None = None) -> Tensor:
        """The same without gradients, on the CPU.

        For vectors and points to the bit, whatever else is predicted with a sample.
        """
        return self(x, views=views).cpu()

    @torch.no_grad()
    def loss(self, x: Batch, y: Tensor, views: int | None = None) -> float:
        """Mean squared or absolute error, or negative log-likelihood, in the data's units."""
        prediction, y = matched(self.predict(x, views=views), y.cpu())
        if self.classes:
            return float(nn.functional.nll_loss(prediction.clamp_min(1e-12).log(), y))
        error = prediction - y
        return float(error.abs().mean() if self.absolute else error.square().mean())

    @torch.no_grad()
    def matrices(self) -> Float[Tensor, "views d d"]:
        """The elements that predictions are averaged over at present; none where they are direct.

        Drawn on the device where the predictor is: another device draws others.
        """
        elements = self.averaged_over.elements_of_inference(self.views)
        d = self.augmenter.action.dim
        return self.y_scale.new_zeros(0, d, d) if elements is None else elements.matrices()[0]

    def frozen(self) -> FrozenPredictor:
        """What it predicts now, as a function of tensors with nothing random in it: a copy.

        ``torch.compile`` and ``torch.export`` take it, see `export.predictor.save_program`.
        """
        return FrozenPredictor(
            copy.deepcopy(self.network),
            self.matrices(),
            action=self.augmenter.action,
            output=self.augmenter.output,
            x_scale=self.x_scale,
            y_scale=self.y_scale,
            y_shift=self.y_shift,
            classes=self.classes,
        )

    @property
    def averaged_over(self) -> LieAugmenter:
        """Whose elements predictions are averaged over: the augmenter's, or those of `reach`."""
        own = self.augmenter
        if not self.reach:
            return own
        axes = self.axes()[list(self.reach)]
        times = axes.new_tensor(list(self.reach.values()))
        return LieAugmenter(
            own.action,
            output=own.output,
            n_views=own.n_views,
            sampler=Uniform(1.0),
            basis=axes * times[:, None, None],
        ).to(axes.device)

    def axes(self) -> Float[Tensor, "k d d"]:
        """Directions of the learned span, from those that turn to those that stretch.

        Which basis was learned is chance. Turns may hold all the way round, where stretching soon
        leads to where there are no data: directions that do one of them can be told how far to go,
        mixtures cannot. Each is as long as a generator times the widest range; there are as many
        as the span has dimensions.
        """
        own = self.augmenter
        generators = own.generators.detach()
        units = orthonormal(generators)
        stretching = (units + units.mT).flatten(1)
        _, mixtures = torch.linalg.eigh(stretching @ stretching.mT)
        length = generators.flatten(1).norm(dim=1).mean() * own.sampler.ranges().detach().max()
        return torch.einsum("ij,ikl->jkl", mixtures, units).to(generators) * length.to(generators)

    def go_further(self, reach: Mapping[int, float]) -> None:
        """Average along some axes only, so many times as far as training went.

        Parameters
        ----------
        reach
            Multiples of the range by the number of the axis, see `axes`; without any, predictions
            are averaged over the elements that were trained with.

        Raises
        ------
        ValueError
            If the elements are not drawn evenly from one exponential: they have several factors,
            discrete components, or whole numbers as coefficients.
        """
        own = self.augmenter
        jumps = own.components is not None or isinstance(own.sampler, IntegerGrid)
        if reach and (jumps or own.n_factors > 1):
            raise ValueError(
                "averages can only go further along elements of one factor, without components, "
                "and with coefficients other than whole numbers"
            )
        self.reach = dict(reach)

    def choose_inference(
        self, x: Batch, y: Tensor, plain: nn.Module | None = None, *, further: bool = False
    ) -> tuple[str, float]:
        """Predict from now on in the way that does best on these data, whatever it was before.

        Parameters
        ----------
        x, y
            Data that were not trained on.
        plain
            The same network trained without augmentation; it takes the place of the augmented one
            where no symmetry is worth its price.
        further
            Whether averages may also go along some of the `axes` only, and further than training
            did: a turn that was trained up to some angle may hold all the way round. Not for
            every law of the elements, see `go_further`.

        Returns
        -------
        tuple
            ``"averaged"``, ``"direct"``, ``"further"`` or ``"plain"``, and its loss. Without
            generators there is nothing to average over.
        """
        self.go_further({})
        usual, losses = self._usual_views, dict[str, float]()
        if usual:
            losses["averaged"] = self.loss(x, y, views=usual)
        losses["direct"] = self.loss(x, y, views=0)
        reach = self._best_reach(*_first(x, y, _COMPARED)) if further and usual else {}
        if reach:
            self.go_further(reach)
            losses["further"] = self.loss(x, y, views=usual)
            self.go_further({})
        if plain is not None:
            own, self.network = self.network, plain
            losses["plain"] = self.loss(x, y, views=0)
            self.network = own
        best = min(losses, key=lambda way: _or_never(losses[way]))
        self.views = usual if best in ("averaged", "further") else 0
        if best == "further":
            self.go_further(reach)
        if best == "plain" and plain is not None:
            self.network = plain
        return best, losses[best]

    def _best_reach(self, x: Batch, y: Tensor) -> dict[int, float]:
        """How far to average along which axes: each by itself, then together, the best first."""

        def loss(reach: Mapping[int, float]) -> float:
            self.go_further(reach)
            return _or_never(self.loss(x, y, views=self._usual_views))

        alone = []
        for number, axis in enumerate(self.axes()):
            near = [times for times in _REACHES if times * float(axis.norm()) <= LARGEST_REACH]
            alone += [(loss({number: times}), number, times) for times in near]
        self.go_further({})
        reach: dict[int, float] = {}
        least, tried = _or_never(self.loss(x, y, views=0)), set[int]()
        for _, number, times in sorted(alone):
            if number in tried:
                continue
            tried.add(number)
            more = {**reach, number: times}
            found = loss(more)
            if found < least:
                reach, least = more, found
        self.go_further({})
        return reach

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


def _first(x: Batch, y: Tensor, n: int) -> tuple[Batch, Tensor]:
    return map_tensors(lambda t: t[:n], x), y[:n]


def _or_never(loss: float) -> float:
    """A loss that is not a number must not win."""
    return math.inf if math.isnan(loss) else loss

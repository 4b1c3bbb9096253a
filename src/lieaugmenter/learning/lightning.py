"""LieAugmenterModule: a predictor and its augmenter for ``lightning.Trainer``.

The only door to Lightning. The loss, the warm-up of the range, the learning rate and the elements
that are drawn are those of `learning.engine`, so that on a CPU the same seed gives the same
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, Sampler

from lieaugmenter.actions.base import Batch, batch_size, map_tensors
from lieaugmenter.learning.arguments import check_schedule
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.batches import TensorBatches
from lieaugmenter.learning.checkpoint import lay_out_like_parameters
from lieaugmenter.learning.labels import matched
from lieaugmenter.learning.objective import Loss, prediction_loss
from lieaugmenter.learning.optimizer import make_optimizer, rate_at, set_rate, trainable
from lieaugmenter.learning.trainer import TrainingDiverged
from lieaugmenter.nets.mode import evaluating

try:
    from lightning import LightningModule
except ImportError:
    raise ImportError(
        "LieAugmenterModule needs Lightning: pip install 'lieaugmenter[lightning]'"
    ) from None


class LieAugmenterModule(LightningModule):
    """A predictor and its augmenter, trained together by a ``lightning.Trainer``.

    Logs, as means over an epoch, the terms of the objective under their names, ``range``, and where
    there are validation data ``validation`` (the prediction loss of model(x)) and
    ``validation_averaged`` (that of the averaged prediction).

    Parameters
    ----------
    model
        The predictor, any module that maps a batch of inputs to one tensor.
    augmenter
        The augmenter.
    lr, schedule
        Learning rate, ``"constant"`` or falling as a ``"cosine"`` to a hundredth.
    views
        Elements to average over in validation and prediction; those of the augmenter unless given,
        0 for direct predictions.
    seed
        Of the elements; every process of a distributed run draws its own. Torch's global random
        state is not used: dropout follows ``lightning.seed_everything``.

    Examples
    --------
    >>> module = LieAugmenterModule(nn.Linear(2, 1), LieAugmenter("vector", 2, output="invariant"))
    >>> module(torch.randn(5, 2)).shape
    torch.Size([5, 1])
    """

    def __init__(
        self,
        model: nn.Module,
        augmenter: LieAugmenter,
        *,
        lr: float = 1e-3,
        schedule: str = "cosine",
        views: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_schedule(schedule)
        self.save_hyperparameters(ignore=["model", "augmenter"])
        self.model = model
        self.augmenter = augmenter
        self.lr = lr
        self.schedule = schedule
        self.views = augmenter.n_views if views is None else views
        self.seed = seed
        self._rng: torch.Generator | None = None
        # Of a checkpoint that was loaded before the generator's device was known: of all processes.
        self._rng_states: Tensor | None = None

    def forward(self, x: Batch) -> Tensor:
        """The averaged prediction, or with ``views=0`` the direct one."""
        return self.augmenter.predict(self.model, x, views=self.views)

    def configure_optimizers(self) -> Any:
        groups = [trainable(self.model)]
        groups.append(trainable(self.augmenter, **self.augmenter.optimizer_options))
        optimizer = make_optimizer(groups, self.lr, torch.device("cpu"))
        set_rate(optimizer, self.lr)  # each group's own, which the schedule multiplies
        steps = max(1, int(self.trainer.estimated_stepping_batches))
        scheduler = LambdaLR(
            optimizer, lambda step: rate_at(min(step / steps, 1.0), 1.0, self.schedule)
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def on_train_start(self) -> None:
        # After everything is restored, optimisers too.
        for optimizer in self.trainer.optimizers:
            lay_out_like_parameters(optimizer)
        self._rng = torch.Generator(device=self.device).manual_seed(self.seed + self.global_rank)
        # A process that the run did not have before begins with its seed.
        if self._rng_states is not None and self.global_rank < len(self._rng_states):
            # A copy: torch crashes on a state that is a row of a larger tensor.
            self._rng.set_state(self._rng_states[self.global_rank].cpu().clone())
        self._rng_states = None

    def training_step(self, batch: tuple[Batch, Tensor], batch_idx: int) -> Loss:
        x, y = batch
        # The warm-up counts steps of the optimiser, for which several batches may be added up.
        counted = batch_idx % self.trainer.accumulate_grad_batches == 0
        with nullcontext() if counted else evaluating(self.augmenter):
            loss = self.augmenter.loss(self.model, x, y, self._rng)
        # One weight for every step, as the engine's means have it. Of all processes, so that all
        # stop where one has a term that is not finite.
        self.log_dict(dict(loss.parts), on_step=False, on_epoch=True, batch_size=1, sync_dist=True)
        return loss

    def on_train_epoch_end(self) -> None:
        self.log("range", self.augmenter.sampler.ranges().max())
        values = {"generators": self.augmenter.generators, **self.trainer.callback_metrics}
        bad = [name for name in ("generators", *self.augmenter.terms) if _not_finite(values, name)]
        if bad:
            raise TrainingDiverged(
                f"training stopped: {' and '.join(bad)} became non-finite in epoch "
                f"{self.current_epoch + 1}. Usual remedies: a smaller range of the coefficients, a "
                f"longer warm-up, a smaller learning rate, inputs scaled to about 1"
            )

    def validation_step(self, batch: tuple[Batch, Tensor], batch_idx: int) -> None:
        self._log_losses("validation", batch)

    def test_step(self, batch: tuple[Batch, Tensor], batch_idx: int) -> None:
        self._log_losses("test", batch)

    def _log_losses(self, name: str, batch: tuple[Batch, Tensor]) -> None:
        """Of the direct and of the averaged prediction."""
        x, y = batch
        n = batch_size(x)
        losses = {name: self._loss(self.model(x), y), f"{name}_averaged": self._loss(self(x), y)}
        self.log_dict(losses, batch_size=n, sync_dist=True)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self(batch[0] if isinstance(batch, tuple | list) else batch)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # All processes come here, though only the first one writes.
        if self._rng is not None:
            states = self.all_gather(self._rng.get_state())
            checkpoint["elements_rng"] = torch.atleast_2d(states).cpu()  # pyright: ignore[reportArgumentType]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if "elements_rng" in checkpoint:
            self._rng_states = torch.atleast_2d(checkpoint["elements_rng"])

    def _loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        absolute = self.augmenter.objective.absolute
        return prediction_loss(*matched(prediction, y), absolute=absolute)


def tensor_loader(
    x: Batch, y: Tensor, *, batch_size: int = 64, seed: int = 0
) -> DataLoader[tuple[Batch, Tensor]]:
    """Batches of tensors in the order in which `lieaugmenter.fit` takes them.

    Parameters
    ----------
    x, y
        Inputs and labels, kept in memory.
    batch_size
        Samples in a batch; the last of an epoch may be smaller.
    seed
        With the epoch it determines the order, in resumed runs as well.

    Returns
    -------
    DataLoader
        Of pairs (x, y). For data of other kinds give the trainer a DataLoader of your own.
    """
    order = _EpochOrder(TensorBatches(x, y, batch_size, seed=seed, device=torch.device("cpu")))
    # Whole batches are cut at once; a generator of its own leaves torch's global one alone.
    return DataLoader(_Rows(x, y), sampler=order, batch_size=None, generator=torch.Generator())


class _EpochOrder(Sampler[Tensor]):
    """Which rows make up the batches of an epoch."""

    def __init__(self, batches: TensorBatches) -> None:
        self.batches = batches
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before every epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Tensor]:
        # A generator, which asks late: Lightning makes the first one before it sets the epoch.
        yield from self.batches.order(self.epoch).split(self.batches.size)

    def __len__(self) -> int:
        return len(self.batches)


class _Rows(Dataset[tuple[Batch, Tensor]]):
    """Samples by rows, many at a time."""

    def __init__(self, x: Batch, y: Tensor) -> None:
        self.x, self.y = x, y

    def __getitem__(self, rows: Any) -> tuple[Batch, Tensor]:
        return map_tensors(lambda t: t[rows], self.x), self.y[rows]


def _not_finite(values: dict[str, Tensor], name: str) -> bool:
    return name in values and not bool(values[name].isfinite().all())

"""A trained predictor as a plain function of tensors, which can be kept, compiled and exported."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lieaugmenter.actions.base import Action
from lieaugmenter.learning.averaging import averaged, in_chunks
from lieaugmenter.lie.elements import Elements


def precision_in(network: nn.Module) -> torch.dtype:
    """The precision that a network computes in; float32 where it has no parameters."""
    real = (p.dtype for p in network.parameters() if p.is_floating_point())
    return next(real, torch.float32)


class FrozenPredictor(nn.Module):
    """A network with its scales and the elements that it is averaged over, drawn once and for all.

    It predicts what the `Predictor` that it was made of predicts, on any device, and nothing in it
    is random. All samples of a call are predicted at once, with as many views of each.

    Parameters
    ----------
    network
        As trained, on scaled data; put into evaluation mode.
    matrices
        The elements, (views, d, d), which all samples share; none for the direct prediction.
    action, output
        How they move inputs and outputs.
    x_scale
        Inputs are divided by it.
    y_scale, y_shift
        Outputs are multiplied by the first, then the second is added.
    classes
        Number of classes, whose probabilities it then gives; 0 for values.
    """

    matrices: Tensor
    y_scale: Tensor
    y_shift: Tensor

    def __init__(
        self,
        network: nn.Module,
        matrices: Float[Tensor, "views d d"],
        *,
        action: Action,
        output: Action,
        x_scale: float,
        y_scale: Tensor,
        y_shift: Tensor,
        classes: int,
    ) -> None:
        super().__init__()
        self.network = network
        self.action, self.output = action, output
        self.x_scale, self.classes = x_scale, classes
        for name, tensor in (("matrices", matrices), ("y_scale", y_scale), ("y_shift", y_shift)):
            self.register_buffer(name, tensor.detach().clone())
        # Some are laid out for the speed of training, which torch.export would warn of.
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.data = tensor.data.contiguous()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Values or probabilities in the units of the data, (batch, …)."""
        prediction = averaged(
            self.network,
            x.to(precision_in(self.network)) / self.x_scale,
            Elements.of_matrices(self.matrices) if len(self.matrices) else None,
            action=self.action,
            output=self.output,
            average="probabilities" if self.classes else "values",
        )
        return prediction if self.classes else prediction * self.y_scale + self.y_shift

    @torch.no_grad()
    def predict(self, x: Tensor, batch_size: int = 2048) -> Tensor:
        """The same without gradients, for any number of samples.

        Parameters
        ----------
        x
            Inputs, (n, …).
        batch_size
            Samples, transformed ones included, that the network sees at once.
        """
        return in_chunks(self, x, max(1, batch_size // (len(self.matrices) + 1)))

"""Perceptrons on flattened samples."""

from __future__ import annotations

import pytest
import torch

from lieaugmenter.nets import MLP, ProductMLP


def test_units_of_a_product_network_multiply() -> None:
    """With the smooth half cut off, x · tanh x is left: doubled, it is four times as large."""
    network = ProductMLP((1,), (1,), hidden=(2,))
    with torch.no_grad():
        network.layers[0].weight.copy_(torch.tensor([[0.0], [1.0], [1.0]]))
        network.layers[0].bias.zero_()
        network.last.weight.copy_(torch.tensor([[0.0, 1.0]]))
        network.last.bias.zero_()
        small, double = network(torch.tensor([[0.01], [0.02]]))
    assert float(double / small) == pytest.approx(4.0, rel=1e-3)


def test_an_odd_width_has_no_half() -> None:
    with pytest.raises(ValueError, match="even"):
        ProductMLP((2,), (1,), hidden=(7,))


@pytest.mark.parametrize("kind", [MLP, ProductMLP])
def test_samples_and_outputs_keep_their_shapes(kind: type[MLP] | type[ProductMLP]) -> None:
    assert kind((3, 2), (4, 1), hidden=(8, 8))(torch.zeros(5, 3, 2)).shape == (5, 4, 1)

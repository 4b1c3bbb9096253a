"""The p4 network turns with its input, layer by layer, and its pooled head does not turn at all."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lieaugmenter.baselines.p4cnn import HEADS, P4CNN, LiftingConv, P4Conv
from lieaugmenter.nets import CNN

PLANE = (-2, -1)
every_head = pytest.mark.parametrize("head", HEADS)
every_turn = pytest.mark.parametrize("turns", [1, 2, 3])


def turned(x: Tensor, turns: int) -> Tensor:
    return torch.rot90(x, turns, PLANE)


def turned_on_p4(features: Tensor, turns: int) -> Tensor:
    """The maps turn, and each moves on by `turns` orientations."""
    return turned(features.unflatten(1, (-1, 4)).roll(turns, 2).flatten(1, 2), turns)


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def images(*shape: int, rng: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=rng)


# --- equivariance -------------------------------------------------------------------------------


@every_turn
def test_every_layer_turns_with_the_input(turns: int, rng: torch.Generator) -> None:
    features = P4CNN((2, 28, 28), 10).features
    upright = images(3, 2, 28, 28, rng=rng)
    other = turned(upright, turns)
    for layer in features:
        upright, other = layer(upright), layer(other)
        assert (other - turned_on_p4(upright, turns)).abs().max() < 1e-5
        # Turning the maps alone is not enough, so the roll is part of what was checked.
        assert (other - turned(upright, turns)).abs().max() > 1e-2


@every_turn
def test_pooled_head_is_invariant(turns: int, rng: torch.Generator) -> None:
    model, x = P4CNN((1, 28, 28), 10, head="pooled"), images(5, 1, 28, 28, rng=rng)
    assert (model(turned(x, turns)) - model(x)).abs().max() < 1e-5
    assert model(x).std(0).min() > 1e-3  # not because it says the same of all images


@every_turn
def test_flatten_head_is_not_invariant(turns: int, rng: torch.Generator) -> None:
    model, x = P4CNN((1, 28, 28), 10), images(5, 1, 28, 28, rng=rng)
    assert (model(turned(x, turns)) - model(x)).abs().max() > 1e-3


def test_pooled_head_stays_invariant_in_training(rng: torch.Generator) -> None:
    model, x = P4CNN((1, 16, 16), 3, head="pooled", width=4), images(30, 1, 16, 16, rng=rng)
    labels = torch.arange(30) % 3
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    x = images(5, 1, 16, 16, rng=rng)
    error = (model(turned(x, 1)) - model(x)).abs().max()
    assert error < 1e-5 * model(x).abs().max()


def test_images_that_are_not_square_are_pooled_alike(rng: torch.Generator) -> None:
    model, x = P4CNN((1, 8, 12), 3, head="pooled"), images(4, 1, 8, 12, rng=rng)
    assert (model(turned(x, 1)) - model(x)).abs().max() < 1e-5


# --- against slow and plain code ----------------------------------------------------------------


def at(image: Tensor, row: int, column: int) -> float:
    """A pixel, zero outside."""
    height, width = image.shape
    inside = 0 <= row < height and 0 <= column < width
    return image[row, column].item() if inside else 0.0


def steps(row: int, column: int, turns: int) -> tuple[int, int]:
    """An offset (down, right) after quarter turns against the clock, as displayed."""
    for _ in range(turns):
        row, column = -column, row
    return row, column


def naive_p4(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Cohen & Welling, Eq. (11): sums over the group, the filter moved by each element."""
    n_out, n_in = weight.shape[:2]
    out = torch.zeros(n_out, 4, *x.shape[-2:])
    offsets = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    for o, r, row, column in torch.cartesian_prod(*map(torch.arange, out.shape)).tolist():
        total = bias[o].item()
        for i in range(n_in):
            for s in range(4):
                for down, right in offsets:
                    a, b = steps(down, right, r)
                    entry = weight[o, i, (s - r) % 4, down + 1, right + 1].item()
                    total += entry * at(x[i, s], row + a, column + b)
        out[o, r, row, column] = total
    return out


def test_p4_convolution_is_the_sum_over_the_group(rng: torch.Generator) -> None:
    layer, x = P4Conv(2, 3), images(1, 8, 5, 4, rng=rng)
    reference = naive_p4(x[0].unflatten(0, (2, 4)), layer.weight, layer.bias)
    assert torch.allclose(layer(x)[0].unflatten(0, (3, 4)), reference, atol=1e-5)


def test_lifting_is_a_p4_convolution_of_equal_orientations(rng: torch.Generator) -> None:
    """An image is a function on p4 that does not depend on the orientation."""
    lifting, conv, x = LiftingConv(2, 3), P4Conv(2, 3), images(2, 2, 6, 6, rng=rng)
    with torch.no_grad():
        conv.weight.copy_(lifting.weight[:, :, None] / 4)
        conv.bias.copy_(lifting.bias)
    assert torch.allclose(lifting(x), conv(x.repeat_interleave(4, dim=1)), atol=1e-5)


def test_first_orientation_of_lifting_is_the_plain_convolution(rng: torch.Generator) -> None:
    layer, x = LiftingConv(2, 3), images(2, 2, 6, 6, rng=rng)
    plain = functional.conv2d(x, layer.weight, layer.bias, padding=1)
    assert torch.allclose(layer(x)[:, ::4], plain, atol=1e-6)


# --- as a network -------------------------------------------------------------------------------


@pytest.mark.parametrize("in_shape", [(1, 28, 28), (3, 64, 64)])
def test_flatten_head_has_about_as_many_parameters_as_the_plain_network(
    in_shape: tuple[int, int, int],
) -> None:
    assert size(P4CNN(in_shape, 10)) == pytest.approx(size(CNN(in_shape, 10)), rel=0.01)


@every_head
def test_convolutions_have_about_as_many_parameters_as_the_plain_ones(head: str) -> None:
    features = P4CNN((1, 28, 28), 10, head=head).features
    assert size(features) == pytest.approx(size(CNN((1, 28, 28), 10).features), rel=0.01)


def test_numbers_of_parameters_are_those_of_the_description() -> None:
    described = {"flatten": "466,874", "pooled": "70,266"}
    for head, number in described.items():
        assert f"{size(P4CNN((1, 28, 28), 10, head=head)):,}" == number
        assert number in (P4CNN.__doc__ or "")


@every_head
def test_gradient_reaches_every_weight(head: str, rng: torch.Generator) -> None:
    model = P4CNN((1, 28, 28), 10, head=head)
    model(images(16, 1, 28, 28, rng=rng)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # A unit may be at rest for all images, so not every entry: more than a third of each
        # parameter, and of a filter every pixel in every orientation.
        assert (parameter.grad != 0).double().mean() > 0.35, name
        if parameter.dim() > 2:
            assert parameter.grad.abs().sum((0, 1)).min() > 0, name


@every_head
def test_outputs_have_the_shape_asked_for_under_autocast_too(head: str) -> None:
    model, x = P4CNN((3, 8, 12), 7, head=head, width=4, dense=5), torch.zeros(2, 3, 8, 12)
    assert model(x).shape == (2, 7)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x).dtype == torch.bfloat16


@every_head
def test_stacked_networks_say_what_each_says_alone(head: str, rng: torch.Generator) -> None:
    models = [P4CNN((1, 8, 8), 3, head=head, width=2) for _ in range(2)]
    x = images(4, 1, 8, 8, rng=rng)
    parameters, buffers = torch.func.stack_module_state(models)

    def call(member: dict[str, Tensor], state: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(models[0], (member, state), (x,))

    stacked = torch.func.vmap(call)(parameters, buffers)
    for model, outputs in zip(models, stacked, strict=True):
        assert torch.allclose(outputs, model(x), atol=1e-6)


@every_head
def test_forward_never_asks_the_device_for_a_value(head: str) -> None:
    """Meta tensors have none to give; a captured step may not wait for one either."""
    model = P4CNN((1, 28, 28), 10, head=head).to("meta")
    model(torch.zeros(2, 1, 28, 28, device="meta")).sum().backward()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_head
def test_forward_and_backward_can_be_captured(head: str) -> None:
    model = P4CNN((1, 28, 28), 10, head=head).cuda()
    x = torch.randn(8, 1, 28, 28, device="cuda")
    captured = torch.cuda.make_graphed_callables(model, (x.clone(),))
    captured(x).sum().backward()
    assert torch.allclose(captured(x), P4CNN.forward(model, x), atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head": "pool"}, "unknown head 'pool'; choose from flatten, pooled"),
        ({"in_shape": (1, 3, 8)}, "too small: at least 4 × 4"),
        ({"in_shape": (1, 30, 28), "head": "pooled"}, "pad them to sides that are divisible by 4"),
    ],
)
def test_what_cannot_be_built_is_said(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        P4CNN(**{"in_shape": (1, 28, 28), "n_outputs": 10, **arguments})


def test_images_whose_sides_are_odd_break_the_symmetry(rng: torch.Generator) -> None:
    """The reason for refusing them: a max-pool leaves out the last row, not the first."""
    model, x = P4CNN((1, 28, 28), 10, head="pooled"), images(5, 1, 30, 30, rng=rng)
    assert (model(turned(x, 1)) - model(x)).abs().max() > 1e-5

"""The GPU kernels of the CNN give the numbers of the torch code, gradients included."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional

from lieaugmenter.lie import kernels
from lieaugmenter.nets import CNN, cnn, cnn_kernels

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
BF16 = torch.bfloat16

with_kernels = pytest.mark.usefixtures("_kernels")


@pytest.fixture
def _kernels() -> None:
    if not kernels.available():
        pytest.skip("Triton is not installed")
    if not CUDA and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("kernels need a GPU, or TRITON_INTERPRET=1 set before Triton is imported")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def results(function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """The value, and the gradients of a random weighing of it."""
    leaves = [t.clone().requires_grad_() for t in inputs]
    value = function(*leaves)
    weights = normal(*value.shape, seed=9).to(value.dtype)
    return [value.detach(), *torch.autograd.grad(value, leaves, weights)]


def assert_all_close(ours: list[Tensor], theirs: list[Tensor], tolerance: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        size = float(b.float().abs().max())
        torch.testing.assert_close(a.float(), b.float(), atol=tolerance * size, rtol=0)


def rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    """float32 to the type, as the kernels do it: Triton's interpreter cuts digits off."""
    if dtype == BF16 and not CUDA:
        cut = (value.detach().view(torch.int32) & -(1 << 16)).view(torch.float32)
        value = value + (cut - value).detach()
    return value.to(dtype)


def biased_relu(x: Tensor, bias: Tensor) -> Tensor:
    """In one rounding, as the kernels do it."""
    return rounded(x.float() + bias.view(1, -1, 1, 1), x.dtype).relu()


def biased_pool(x: Tensor, bias: Tensor) -> Tensor:
    return functional.max_pool2d(biased_relu(x, bias), 2)


# (batch, channels, height, width); more than one tile, odd sides, channels of any number.
SHAPES = [(3, 32, 28, 28), (2, 64, 7, 9), (2, 5, 11, 6), (1, 33, 2, 3)]


@with_kernels
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize("shape", SHAPES)
def test_bias_and_relu(shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    x, bias = normal(*shape).to(dtype), normal(shape[1], seed=1)
    ours = results(cnn_kernels.bias_relu, x, bias)
    assert_all_close(ours, results(biased_relu, x, bias), 1e-6)
    assert ours[0].is_contiguous(memory_format=torch.channels_last)


@with_kernels
@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize("shape", SHAPES)
def test_bias_relu_and_pool(
    shape: tuple[int, int, int, int], dtype: torch.dtype, planar: bool
) -> None:
    x, bias = normal(*shape).to(dtype), normal(shape[1], seed=1)
    ours = results(lambda x, b: cnn_kernels.bias_relu_pool(x, b, planar=planar), x, bias)
    assert_all_close(ours, results(biased_pool, x, bias), 1e-6)
    layout = torch.contiguous_format if planar else torch.channels_last
    assert ours[0].is_contiguous(memory_format=layout)


@with_kernels
@pytest.mark.parametrize("values", [[0.0, 1.0], [-1.0, 0.0], [1.0], [0.0]])
def test_ties_and_zeros_follow_torch(values: list[float]) -> None:
    rng = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(values), (2, 8, 12, 12), generator=rng)
    x, bias = torch.tensor(values)[chosen].to(DEVICE), torch.zeros(8, device=DEVICE)
    for ours, theirs in (
        (cnn_kernels.bias_relu, biased_relu),
        (cnn_kernels.bias_relu_pool, biased_pool),
    ):
        assert_all_close(results(ours, x, bias), results(theirs, x, bias), 1e-6)


@with_kernels
def test_what_is_not_a_number_stays_so() -> None:
    x, bias = normal(1, 8, 4, 4), torch.zeros(8, device=DEVICE)
    x[0, 2, 1, 1] = x[0, 3, 2, 2] = float("nan")
    for ours, theirs in (
        (cnn_kernels.bias_relu, biased_relu),
        (cnn_kernels.bias_relu_pool, biased_pool),
    ):
        pairs = zip(results(ours, x, bias), results(theirs, x, bias), strict=True)
        for a, b in pairs:
            torch.testing.assert_close(a, b, equal_nan=True)
    weight = normal(8, 8, 3, 3)[:, :1].contiguous()
    assert bool(cnn_kernels.stem(x[:, 2:3], weight, bias).isnan()[:, :, :3, :3].all())


# (batch, channels, height, width), and channels of the result.
STEMS = [
    ((3, 1, 28, 28), 32),
    ((2, 3, 9, 7), 16),
    ((2, 2, 4, 5), 20),
    ((1, 1, 4, 4), 16),
    ((9, 1, 4, 4), 32),
    ((2, 1, 8, 8), 16),
    ((9, 1, 8, 8), 32),
    ((1, 1, 5, 5), 16),
    ((2, 3, 64, 64), 32),
]


@with_kernels
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize(("shape", "width"), STEMS)
def test_the_first_convolution(
    shape: tuple[int, int, int, int], width: int, dtype: torch.dtype
) -> None:
    x, weight, bias = normal(*shape), normal(width, shape[1], 3, 3, seed=1), normal(width, seed=2)

    def convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Sums in float32 of rounded images and weights, rounded at the end."""
        images, taps = (rounded(t, dtype).float() for t in (x, weight))
        return rounded(functional.conv2d(images, taps, bias, padding=1), dtype).relu()

    ours = results(lambda *inputs: cnn_kernels.stem(*inputs, dtype=dtype), x, weight, bias)
    # In bfloat16 what a pixel sends to its neighbours is rounded too.
    assert_all_close(ours, results(convolution, x, weight, bias), 1e-5 if dtype != BF16 else 1e-2)
    assert ours[0].is_contiguous(memory_format=torch.channels_last)


@with_kernels
def test_images_without_gradient_leave_the_others_as_they_are() -> None:
    x, weight, bias = normal(2, 1, 6, 6), normal(16, 1, 3, 3, seed=1), normal(16, seed=2)
    with_images = results(lambda *t: cnn_kernels.stem(*t, dtype=torch.float32), x, weight, bias)
    without = results(lambda *t: cnn_kernels.stem(x, *t, dtype=torch.float32), weight, bias)
    assert_all_close(without, [with_images[0], *with_images[2:]], 0.0)


@with_kernels
def test_sums_over_many_tiles() -> None:
    shape = (40, 32, 28, 28) if CUDA else (7, 32, 28, 28)
    x, bias = normal(*shape), normal(shape[1], seed=1)
    kept = cnn_kernels._MOST_PARTS
    try:
        cnn_kernels._MOST_PARTS = 5  # several tiles for every program
        assert_all_close(
            results(cnn_kernels.bias_relu, x, bias), results(biased_relu, x, bias), 1e-5
        )
        assert_all_close(
            results(cnn_kernels.bias_relu_pool, x, bias), results(biased_pool, x, bias), 1e-5
        )
        images, weight = x[:, :1].contiguous(), normal(32, 1, 3, 3, seed=3)
        ours = results(lambda *t: cnn_kernels.stem(*t, dtype=torch.float32), images, weight, bias)
        theirs = results(
            lambda x, w, b: functional.conv2d(x, w, b, padding=1).relu(), images, weight, bias
        )
        assert_all_close(ours, theirs, 1e-5)
    finally:
        cnn_kernels._MOST_PARTS = kept


def test_shortened_tensors_and_their_gradients() -> None:
    tensors = [normal(3, 4, 3, 3), normal(5, seed=1), normal(2, 7, seed=2)]
    tensors[0] = tensors[0].contiguous(memory_format=torch.channels_last)
    leaves = [t.clone().requires_grad_() for t in tensors]
    short = cnn_kernels.shorten(BF16, *leaves)
    for a, b in zip(short, tensors, strict=True):
        assert torch.equal(a, b.to(BF16))
        assert a.stride() == b.stride()
    sum((t.float().square().sum() for t in short), torch.zeros((), device=DEVICE)).backward()
    for leaf in leaves:
        assert leaf.grad is not None
        assert leaf.grad.dtype == torch.float32
        torch.testing.assert_close(leaf.grad, 2 * leaf.detach(), rtol=1e-2, atol=0)


def gradients_of(
    model: CNN, x: Tensor, forward: Callable[[Tensor], Tensor], *, short: bool = True
) -> list[Tensor]:
    """Predictions, then gradients of the images and all parameters."""
    model.zero_grad()
    images = x.clone().requires_grad_()
    with torch.autocast(DEVICE, dtype=BF16, enabled=short):
        prediction = forward(images)
    weights = normal(*prediction.shape, seed=5)
    (prediction.float() * weights).sum().backward()
    found = [prediction.float().detach(), images.grad, *(p.grad for p in model.parameters())]
    return [t.clone() for t in found if t is not None]


def assert_as_good(model: CNN, x: Tensor, forward: Callable[[Tensor], Tensor]) -> None:
    """In bfloat16 hardly further from float32 than the layers are.

    Triton's interpreter cuts digits off, so that more ReLUs switch: it is allowed more.
    """

    def layers(images: Tensor) -> Tensor:
        return model.head(model.features(images))

    ours, theirs = gradients_of(model, x, forward), gradients_of(model, x, layers)
    for a, b, c in zip(ours, theirs, gradients_of(model, x, layers, short=False), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        size = float(c.norm())
        factor, share = (1.5, 0.01) if CUDA else (2.0, 0.1)
        allowed = factor * float((b - c).norm()) + share * size
        assert float((a - c).norm()) < allowed


@with_kernels
@pytest.mark.parametrize("in_shape", [(1, 28, 28), (3, 13, 10), (5, 8, 8), (9, 8, 8)])
def test_the_whole_network_agrees_with_its_layers(in_shape: tuple[int, int, int]) -> None:
    model, x = CNN(in_shape, 10).to(DEVICE), normal(96 if CUDA else 6, *in_shape)
    assert_as_good(model, x, model._forward_by_kernels)


@with_kernels
def test_one_channel_may_also_be_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cnn, "_STEM_CHANNELS", 0)
    model, x = CNN((1, 12, 12), 10).to(DEVICE), normal(96 if CUDA else 6, 1, 12, 12)
    assert_as_good(model, x, model._forward_by_kernels)


def test_a_hook_on_a_layer_is_seen() -> None:
    model = CNN((1, 8, 8), 3)
    assert not cnn._has_hooks(model)
    model.features[1].register_forward_hook(lambda *_: None)
    assert cnn._has_hooks(model)


def test_on_a_cpu_nothing_but_the_layers_runs() -> None:
    model, x = CNN((1, 8, 8), 3), torch.randn(2, 1, 8, 8)
    assert list(model.state_dict())[:2] == ["features.0.weight", "features.0.bias"]
    assert torch.equal(model(x), model.head(model.features(x)))


needs_gpu = pytest.mark.skipif(not (CUDA and kernels.available()), reason="needs a GPU")


@needs_gpu
def test_kernels_are_taken_under_autocast_on_a_gpu_and_nowhere_else() -> None:
    model, x = CNN((1, 28, 28), 10).cuda(), normal(4, 1, 28, 28)
    assert not model._takes_kernels(x)
    with torch.autocast("cuda", dtype=torch.float16):
        assert not model._takes_kernels(x)
    with torch.autocast("cuda", dtype=BF16):
        assert model._takes_kernels(x)
        assert not model._takes_kernels(x[:0])
        assert not model._takes_kernels(x.expand(-1, 2, -1, -1))
        assert not copy.deepcopy(model).bfloat16()._takes_kernels(x)


@needs_gpu
@pytest.mark.parametrize("in_shape", [(1, 28, 28), (3, 17, 30), (5, 8, 8), (16, 9, 9)])
def test_a_gpu_gives_the_numbers_of_the_layers(in_shape: tuple[int, int, int]) -> None:
    model = CNN(in_shape, 10).cuda().to(memory_format=torch.channels_last)
    x = normal(96, *in_shape)
    assert_as_good(model, x, model)
    with torch.autocast("cuda", dtype=BF16):
        training = model(x)
        with torch.no_grad():
            assert torch.equal(model.eval()(x), training)


@needs_gpu
def test_two_runs_of_our_kernels_agree_to_the_bit() -> None:
    x, weight, bias = normal(96, 1, 28, 28), normal(32, 1, 3, 3, seed=1), normal(32, seed=2)

    def layers(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = cnn_kernels.bias_relu(cnn_kernels.stem(x, weight, bias), bias)
        return cnn_kernels.bias_relu_pool(y, bias, planar=True)

    for a, b in zip(
        results(layers, x, weight, bias), results(layers, x, weight, bias), strict=True
    ):
        assert torch.equal(a, b)


@needs_gpu
def test_the_network_can_be_captured_in_a_cuda_graph() -> None:
    model = CNN((1, 28, 28), 10).cuda().to(memory_format=torch.channels_last)
    x = normal(64, 1, 28, 28).requires_grad_()

    def step() -> list[Tensor]:
        with torch.autocast("cuda", dtype=BF16):
            prediction = model(x)
        return [prediction, *torch.autograd.grad(prediction.sum(), [x, *model.parameters()])]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    with torch.no_grad():
        x.copy_(normal(64, 1, 28, 28, seed=7))
    graph.replay()
    torch.cuda.synchronize()
    for ours, again in zip(recorded, step(), strict=True):
        assert float((ours - again).norm()) <= 0.01 * float(again.norm())


@needs_gpu
def test_vmap_and_jvp_take_the_layers() -> None:
    models = [CNN((1, 8, 8), 3).cuda() for _ in range(2)]
    parameters, buffers = stack_module_state(models)
    skeleton = copy.deepcopy(models[0]).to("meta")
    x = normal(2, 4, 1, 8, 8)
    with torch.autocast("cuda", dtype=BF16):
        stacked = vmap(lambda p, b, x: functional_call(skeleton, (p, b), (x,)))(
            parameters, buffers, x
        )
        alone = torch.stack([model(own) for model, own in zip(models, x, strict=True)])
        torch.func.jvp(models[0], (x[0],), (x[1],))
    torch.testing.assert_close(stacked.float(), alone.float(), atol=0.02, rtol=0.05)

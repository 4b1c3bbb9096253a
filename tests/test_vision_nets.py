"""The networks over transformers: plain modules, random weights, nothing downloaded."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import lieaugmenter
from lieaugmenter import nets
from lieaugmenter.nets import EfficientNet, VisionTransformer

Build = Callable[[tuple[int, int, int], int], nn.Module]


def small_vit(in_shape: tuple[int, int, int], n_outputs: int) -> nn.Module:
    return VisionTransformer(in_shape, n_outputs, patch=8, hidden=24, layers=2, heads=3)


def group_normed(in_shape: tuple[int, int, int], n_outputs: int) -> nn.Module:
    return EfficientNet(in_shape, n_outputs, norm="group")


NETS: dict[str, Build] = {"vit": small_vit, "batch": EfficientNet, "group": group_normed}
every_net = pytest.mark.parametrize("build", NETS.values(), ids=NETS)
by_itself = pytest.mark.parametrize("build", [small_vit, group_normed], ids=["vit", "group"])


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def quadrants(n: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise with one bright quadrant, and which it is."""
    x, labels = torch.randn(n, 3, 32, 32, generator=rng), torch.arange(n) % 4
    for label in range(4):
        row, column = 16 * (label // 2), 16 * (label % 2)
        x[labels == label, :, row : row + 16, column : column + 16] += 2
    return x, labels


# --- what comes out -----------------------------------------------------------------------------


@every_net
@pytest.mark.parametrize("in_shape", [(1, 32, 32), (3, 64, 64), (5, 40, 72)])
def test_any_channels_and_sides_give_a_plain_tensor(
    build: Build, in_shape: tuple[int, int, int]
) -> None:
    outputs = build(in_shape, 7)(torch.zeros(2, *in_shape))
    assert type(outputs) is Tensor
    assert outputs.shape == (2, 7)


@every_net
def test_one_output_is_enough(build: Build) -> None:
    assert build((1, 32, 32), 1)(torch.zeros(3, 1, 32, 32)).shape == (3, 1)


def test_odd_sides_will_do_for_efficientnet() -> None:
    assert EfficientNet((2, 33, 47), 4)(torch.zeros(2, 2, 33, 47)).shape == (2, 4)


@every_net
def test_outputs_tell_images_apart_from_the_start(build: Build, rng: torch.Generator) -> None:
    """The library's own start for EfficientNet fails this by thirty orders of magnitude."""
    outputs = build((3, 32, 32), 4)(torch.rand(8, 3, 32, 32, generator=rng))
    assert outputs.std(0).min() > 1e-3


@every_net
def test_autocast_is_respected(build: Build) -> None:
    model = build((1, 32, 32), 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(torch.zeros(2, 1, 32, 32)).dtype == torch.bfloat16


# --- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_efficientnet_has_the_published_number_of_parameters(norm: str) -> None:
    assert size(EfficientNet((3, 224, 224), 1000, norm=norm)) == 5_288_548


def test_default_transformer_has_the_parameters_of_its_layers() -> None:
    """Counted from the description of the network, not from the library."""
    hidden, patches, block = 192, 64, 0
    block += 2 * 2 * hidden  # two layer norms
    block += 4 * (hidden * hidden + hidden)  # queries, keys, values, and after attention
    block += 2 * 4 * hidden * hidden + 5 * hidden  # two dense layers
    embedding = 3 * 8 * 8 * hidden + hidden + (patches + 1) * hidden + hidden
    head = 2 * hidden + hidden * 9 + 9
    assert size(VisionTransformer((3, 64, 64), 9)) == embedding + 6 * block + head


# --- training -----------------------------------------------------------------------------------


@every_net
def test_gradient_reaches_every_parameter(build: Build, rng: torch.Generator) -> None:
    model = build((3, 64, 64), 4)
    model(torch.randn(4, 3, 64, 64, generator=rng)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # Softmax does not see what is added to all its scores, as a bias of the keys is.
        if ".k_proj.bias" not in name and ".key.bias" not in name:
            assert parameter.grad.abs().max() > 0, name


@every_net
def test_a_few_steps_learn_which_quadrant_is_bright(build: Build, rng: torch.Generator) -> None:
    x, labels = quadrants(32, rng)
    model = build((3, 32, 32), 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(60):
        loss = functional.cross_entropy(model(x), labels)
        if loss < 0.3:
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pytest.fail(f"loss {loss:.3f} after 60 steps")


@by_itself
def test_an_image_is_predicted_alike_in_any_company(build: Build, rng: torch.Generator) -> None:
    model, x = build((3, 32, 32), 4), torch.randn(6, 3, 32, 32, generator=rng)
    assert model.training
    assert torch.allclose(model(x)[:2], model(x[:2]), atol=1e-4)


def test_batch_norm_mixes_the_images_of_a_batch(rng: torch.Generator) -> None:
    model, x = EfficientNet((3, 32, 32), 4), torch.randn(6, 3, 32, 32, generator=rng)
    assert (model(x)[:2] - model(x[:2])).abs().max() > 1e-2


@every_net
def test_training_mode_draws_nothing_at_random(build: Build, rng: torch.Generator) -> None:
    model, x = build((3, 32, 32), 4), torch.randn(4, 3, 32, 32, generator=rng)
    assert model.training
    assert torch.equal(model(x), model(x))


def test_group_norms_keep_the_precision_of_a_network_in_bfloat16(rng: torch.Generator) -> None:
    model, seen = EfficientNet((3, 32, 32), 4, norm="group"), []
    for norm in (m for m in model.modules() if isinstance(m, nn.GroupNorm)):
        norm.register_forward_hook(lambda _, __, output: seen.append(output.dtype))
    x = torch.rand(2, 3, 32, 32, generator=rng)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(x)
    assert set(seen) == {torch.bfloat16}
    seen.clear()
    model(x)
    assert set(seen) == {torch.float32}


def test_running_statistics_keep_the_published_share() -> None:
    """99 % of what was there; the library would keep 1 %."""
    norms = [m for m in EfficientNet((3, 32, 32), 4).modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 49
    assert {norm.momentum for norm in norms} == {0.01}


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_fit_warns_of_batch_norm_alone(norm: str, rng: torch.Generator) -> None:
    x, labels = quadrants(8, rng)
    augmenter = lieaugmenter.LieAugmenter("image", output="invariant", n_views=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = EfficientNet((3, 32, 32), 4, norm=norm)
        lieaugmenter.fit(model, augmenter, (x, labels), epochs=1, progress=False, device="cpu")
    assert any("batch norm" in str(w.message) for w in caught) == (norm == "batch")


# --- what the rest of the library does with a network -------------------------------------------


@every_net
def test_forward_never_asks_the_device_for_a_value(build: Build) -> None:
    """Meta tensors have none to give; a captured step may not wait for one either."""
    model = build((3, 64, 64), 4).to("meta")
    model(torch.zeros(2, 3, 64, 64, device="meta")).sum().backward()


@every_net
def test_forward_derivative_is_that_of_the_backward_pass(
    build: Build, rng: torch.Generator
) -> None:
    """The Lie derivative of a model is a forward one; fused attention has none."""
    model = build((3, 32, 32), 4).eval()
    x, velocity = torch.randn(2, 2, 3, 32, 32, generator=rng)
    _, forward, *_ = torch.func.jvp(model, (x,), (velocity,))
    rows = torch.func.jacrev(model)(x)
    backward = torch.einsum("bobchw,bchw->bo", rows, velocity)
    assert (forward - backward).abs().max() < 1e-3 * forward.abs().max()


@every_net
def test_weights_can_be_saved_and_loaded(build: Build, rng: torch.Generator) -> None:
    model, other = build((3, 32, 32), 4).eval(), build((3, 32, 32), 4).eval()
    x = torch.randn(2, 3, 32, 32, generator=rng)
    assert not torch.equal(other(x), model(x))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_net
def test_forward_and_backward_can_be_captured(build: Build) -> None:
    model = build((3, 64, 64), 4).cuda().eval()
    x = torch.randn(8, 3, 64, 64, device="cuda")
    plain = model(x).detach()
    captured = torch.cuda.make_graphed_callables(model, (x.clone(),))
    captured(x).sum().backward()
    assert torch.allclose(captured(x), plain, atol=1e-2)


# --- the door -----------------------------------------------------------------------------------


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_nets_leaves_transformers_alone() -> None:
    assert run("import sys, lieaugmenter.nets; print('transformers' in sys.modules)") == "False"


@pytest.mark.parametrize(
    ("name", "subject"),
    [("VisionTransformer", "the Vision Transformer"), ("EfficientNet", "EfficientNet")],
)
def test_without_transformers_the_error_says_what_to_install(name: str, subject: str) -> None:
    printed = run(
        "import sys\n"
        "sys.modules['transformers'] = None\n"
        "from lieaugmenter import nets\n"
        "nets.CNN, nets.MLP\n"
        "try:\n"
        f"    nets.{name}\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    assert printed == f"{subject} needs: pip install 'lieaugmenter[vision]'"


def test_unknown_net_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ResNet'"):
        _ = nets.ResNet
    assert {"CNN", "EfficientNet", "MLP", "VisionTransformer"} <= set(dir(nets))


def test_what_cannot_be_built_is_said() -> None:
    with pytest.raises(ValueError, match="patch=8 does not divide images of 28 × 32 pixels"):
        VisionTransformer((1, 28, 32), 10)
    with pytest.raises(ValueError, match="heads=5 does not divide hidden=192"):
        VisionTransformer((1, 32, 32), 10, heads=5)
    with pytest.raises(ValueError, match="unknown norm 'layer'; choose from batch, group"):
        EfficientNet((1, 32, 32), 10, norm="layer")
    with pytest.raises(ValueError, match="too small: at least 32 × 32"):
        EfficientNet((1, 28, 28), 10)

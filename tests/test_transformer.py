"""The transformer on particles, L-GATr, and the frames that the oracle draws."""

from __future__ import annotations

import importlib
import sys
from unittest.mock import patch

import pytest
import torch

from lieaugmenter.actions import FourVectorAction, InvariantAction
from lieaugmenter.analysis.equivariance import push_forward
from lieaugmenter.baselines.lorentz import LorentzFrames
from lieaugmenter.data.amplitudes import amplitudes
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.engine import fit
from lieaugmenter.learning.trainer import History
from lieaugmenter.lie.catalogue import so_pq
from lieaugmenter.lie.elements import Elements
from lieaugmenter.nets.transformer import ParticleTransformer

KINDS = (0, 0, 1, 2, 2)
METRIC = torch.diag(torch.tensor([1.0, -1.0, -1.0, -1.0]))


def events(n: int = 6, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 5, 4, generator=torch.Generator().manual_seed(seed))


def small(momenta: torch.Tensor | None = None) -> ParticleTransformer:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ParticleTransformer(KINDS, channels=16, blocks=2, heads=4, momenta=momenta)


# -- the transformer -------------------------------------------------------------------------------


def test_reference_network_has_the_reference_number_of_parameters() -> None:
    count = sum(p.numel() for p in ParticleTransformer(KINDS).parameters())
    assert round(count / 1e6, 2) == 1.06


def test_particles_of_one_kind_can_be_exchanged_and_others_cannot() -> None:
    network, x = small(), events()
    direct = network(x)
    assert torch.allclose(network(x[:, [1, 0, 2, 4, 3]]), direct, atol=1e-5)
    assert not torch.allclose(network(x[:, [2, 1, 0, 3, 4]]), direct, atol=1e-3)


def test_momenta_are_standardised_by_the_first_layer() -> None:
    x = events(500) * torch.tensor([3.0, 1.0, 1.0, 20.0]) + torch.tensor([5.0, 0.0, 0.0, 0.0])
    network, plain = small(x), small()
    standard = (x - x.mean((0, 1))) / x.flatten(0, 1).std(0)
    assert torch.allclose(network(x), plain(standard), atol=1e-4)
    assert {"mean", "deviation"} <= network.state_dict().keys()


def test_a_component_that_is_constant_is_not_divided_by_zero() -> None:
    still = events()
    still[..., 1] = 2.0
    assert small(still)(still).isfinite().all()


def test_lie_derivative_is_a_forward_derivative() -> None:
    """Not the central difference, which is what attention without one would fall back to."""
    network, x = small().double(), events().double()
    velocity = FourVectorAction().differential(so_pq(1, 3)[0].double(), x)
    _, pushed = torch.func.jvp(network, (x,), (velocity,))[:2]
    h = 1e-6
    central = (network(x + h * velocity) - network(x - h * velocity)) / (2 * h)
    assert torch.allclose(pushed, central, rtol=1e-3, atol=1e-4)
    assert torch.equal(push_forward(network, x, velocity)[1], pushed)


@pytest.fixture(scope="module")
def learned() -> tuple[ParticleTransformer, History, torch.Tensor]:
    """A network that has learned an amplitude, how, and events that it has not seen."""
    task = amplitudes(2000, 10, 200, gluons=1, energies=(400.0, 500.0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = ParticleTransformer(
            task.kinds, channels=32, blocks=2, heads=4, momenta=task.x_train
        )
    history = fit(
        network, None, (task.x_train, task.y_train), epochs=8, lr=3e-3, device="cpu", progress=False
    )
    return network.requires_grad_(False), history, task.x_test


def test_it_learns_an_amplitude(
    learned: tuple[ParticleTransformer, History, torch.Tensor],
) -> None:
    assert learned[1].column("prediction")[-1] < 0.1


def test_bf16_stays_close_to_float32(
    learned: tuple[ParticleTransformer, History, torch.Tensor],
) -> None:
    network, _, x = learned
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = network(x)
    exact = network(x)
    assert rounded.dtype == torch.float32
    assert 0 < float((rounded - exact).abs().max()) < 0.02 * float(exact.std())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"heads": 3}, "heads=3 does not divide channels=128"), ({"kinds": (0, -1)}, "from 0 on")],
)
def test_impossible_settings_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ParticleTransformer(**{"kinds": KINDS, **options})


# -- L-GATr ----------------------------------------------------------------------------------------


def frames(n: int, seed: int = 0) -> Elements:
    rng = torch.Generator().manual_seed(seed)
    coefficients = LorentzFrames(0.3)((n, 1, 2, 6), rng).double()
    return Elements(coefficients, so_pq(1, 3).double(), bound=30.0)


def lorentz_transformer() -> torch.nn.Module:
    pytest.importorskip("lgatr")
    from lieaugmenter.baselines.lgatr import LorentzTransformer

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LorentzTransformer(KINDS, channels=4, blocks=2, heads=2)


def test_lgatr_is_invariant_and_the_transformer_is_not() -> None:
    x = events(20).double()
    moved = FourVectorAction().act(frames(20), x).squeeze(1)
    for network, invariant in ((lorentz_transformer(), True), (small(), False)):
        network = network.double().requires_grad_(False)
        apart = float((network(moved) - network(x)).abs().max() / network(x).std())
        assert (apart < 1e-4) == invariant, apart


def test_lgatr_sees_kinds_and_gives_gradients() -> None:
    network, x = lorentz_transformer(), events()
    assert not torch.allclose(network(x[:, [2, 1, 0, 3, 4]]), network(x), atol=1e-4)
    network(x).sum().backward()
    assert all(p.grad is not None for p in network.parameters() if p.requires_grad)


def test_published_lgatr_has_about_two_million_parameters() -> None:
    pytest.importorskip("lgatr")
    from lieaugmenter.baselines.lgatr import LorentzTransformer

    count = sum(p.numel() for p in LorentzTransformer(KINDS).parameters())
    assert 1.8e6 < count < 2.2e6


def test_without_lgatr_the_baseline_says_what_to_install() -> None:
    name = "lieaugmenter.baselines.lgatr"
    sys.modules.pop(name, None)
    with (
        patch.dict(sys.modules, {"lgatr": None}),
        pytest.raises(ImportError, match=r"pip install 'lieaugmenter\[lgatr\]'"),
    ):
        importlib.import_module(name)
    sys.modules.pop(name, None)


# -- frames of the oracle --------------------------------------------------------------------------


def test_frames_are_lorentz_transformations_of_the_stated_law() -> None:
    matrices = frames(4000).matrices().squeeze(1)
    metric = METRIC.double()
    assert torch.allclose(matrices.mT @ metric @ matrices, metric.expand_as(matrices), atol=1e-8)
    # The time component is the boost's, cosh of the rapidity; the rest is turned uniformly.
    rapidity = torch.acosh(matrices[:, 0, 0].clamp_min(1.0))
    assert rapidity.square().mean() == pytest.approx(3 * 0.3**2, rel=0.05)
    turned = frames(4000).coefficients[:, 0, 1, 3:].norm(dim=1)
    # Of uniform rotations the angle has density (1 - cos) / π: mean π/2 + 2/π, at most π.
    assert float(turned.mean()) == pytest.approx(torch.pi / 2 + 2 / torch.pi, rel=0.02)
    assert float(turned.max()) <= torch.pi + 1e-6


def test_frames_have_no_preferred_direction() -> None:
    space = frames(20_000).matrices().squeeze(1)[:, 1:, 1:]
    assert float(space.mean(0).abs().max()) < 0.03
    assert torch.allclose(space.square().mean(0), space.square().mean().expand(3, 3), rtol=0.05)


def test_frames_serve_an_augmenter() -> None:
    augmenter = LieAugmenter(
        FourVectorAction(), output=InvariantAction(), n_views=3, basis=so_pq(1, 3),
        sampler=LorentzFrames(), n_factors=LorentzFrames.factors,
    )  # fmt: skip
    x = events()
    moved = augmenter.views(x)
    squares = torch.einsum("bvpi,ij,bvpj->bvp", moved, METRIC, moved)
    expected = torch.einsum("bpi,ij,bpj->bp", x, METRIC, x).unsqueeze(1)
    assert torch.allclose(squares, expected.expand_as(squares), atol=1e-3)
    with pytest.raises(ValueError, match="2 factors of 6"):
        LorentzFrames()((4, 1, 1, 6))

"""The paper's lemmas and propositions, checked in numbers.

The draws are seeded; where a statement holds in expectation, the tolerance is a stated number of
standard errors.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from lieaugmenter.actions import VectorAction
from lieaugmenter.analysis.equivariance import equivariance_error
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.objective import Objective, equivariance_loss, sparsity
from lieaugmenter.lie import catalogue
from lieaugmenter.lie.basis import GeneratorBasis
from lieaugmenter.lie.elements import Elements

VECTOR = VectorAction(2)


def random_network(inputs: int = 2, outputs: int = 2) -> nn.Module:
    """Larger weights than torch's own, for a function that is far from linear."""
    model = nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))
    for parameter in model.parameters():
        parameter.data.mul_(3.0)
    return model.requires_grad_(False)


def random_elements(
    rng: torch.Generator, basis: Tensor, batch: int, views: int, range: float = 1.0
) -> Elements:
    draw = (torch.rand(batch, views, len(basis), generator=rng) * 2 - 1) * range
    return Elements(draw, basis)


def discrepancies(model: nn.Module, x: Tensor, y: Tensor, elements: Elements) -> Tensor:
    """Z = ‖Ψ(g x) - g y‖₁ of one sample for every element, (batch, views), one at a time."""
    batch, views = elements.batch, elements.views
    moved = elements.apply(x.expand(batch, -1)).flatten(0, 1)
    target = elements.apply(y.expand(batch, -1)).flatten(0, 1)
    gaps = zip(model(moved)[:, None, None], target[:, None, None], strict=True)
    return torch.stack([equivariance_loss(p, t) for p, t in gaps]).view(batch, views)


# --- Lemma 4.1: Monte Carlo ---------------------------------------------------------------------

REPEATS = 300
LARGEST_K = 16


@pytest.fixture(scope="module")
def draws() -> Tensor:
    """Independent discrepancies of one sample, (REPEATS, LARGEST_K)."""
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 2, generator=rng)
    elements = random_elements(rng, catalogue.gl(2), REPEATS, LARGEST_K)
    return discrepancies(random_network(), x, y, elements)


def test_the_equivariance_loss_is_the_mean_over_elements(rng: torch.Generator) -> None:
    """Eq. (13): the estimate with K elements is the mean of K discrepancies."""
    model, (x, y) = random_network(), torch.randn(2, 2, generator=rng)
    elements = random_elements(rng, catalogue.gl(2), 1, 5)
    together = equivariance_loss(
        model(elements.apply(x.unsqueeze(0))), elements.apply(y.unsqueeze(0))
    )
    torch.testing.assert_close(together, discrepancies(model, x, y, elements).mean())


@pytest.mark.parametrize("k", [2, 4, 16])
def test_its_variance_falls_as_one_over_k(draws: Tensor, k: int) -> None:
    """Eq. (15). Groups of K draws that share none, so that the estimates are independent."""
    estimates = draws.flatten().view(-1, k).mean(1)
    ratio = float(estimates.var() * k / draws.var())
    # The variance of n values is known to about √(2/n); five of those.
    assert abs(ratio - 1) < 5 * math.sqrt(2 / len(estimates))


def test_its_mean_does_not_depend_on_k(draws: Tensor) -> None:
    """Eq. (14): unbiased, so fresh draws agree within five standard errors."""
    half = len(draws) // 2
    one, many = draws[:half, 0], draws[half:].mean(1)
    error = math.sqrt(float(one.var() / len(one) + many.var() / len(many)))
    assert abs(float(one.mean() - many.mean())) < 5 * error


@pytest.mark.parametrize("epsilon", [0.05, 0.1, 0.2])
def test_hoeffding_bounds_its_deviations(draws: Tensor, epsilon: float) -> None:
    """P(|estimate - mean| ≥ ε) ≤ 2 exp(-2Kε²/B²), with ε in units of the bound B."""
    bound = float(draws.max())
    deviations = (draws.mean(1) - draws.mean()).abs()
    share = float((deviations >= epsilon * bound).float().mean())
    assert share <= 2 * math.exp(-2 * LARGEST_K * epsilon**2)


def test_averaged_representation_concentrates(rng: torch.Generator) -> None:
    """‖D_K - D_μ‖ falls as 1/√K; over the whole circle D_μ = 0."""
    sizes = {}
    for k in (4, 16, 64):
        elements = random_elements(rng, catalogue.so(2), 400, k, range=math.pi)
        mean = elements.matrices().mean(1)
        sizes[k] = float(torch.linalg.matrix_norm(mean, 2).square().mean())
        # A mean of K unit rotations is a complex number of mean square 1/K.
        assert sizes[k] * k == pytest.approx(1.0, abs=5 / math.sqrt(400))


# --- the gradient: unbiased, with a variance of 1/(BK) ------------------------------------------


def gradient(
    augmenter: LieAugmenter, model: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator
) -> Tensor:
    """Of the smoothed equivariance loss with respect to generators and ranges."""
    loss = augmenter.loss(model, x, y, generator=rng)
    parts = torch.autograd.grad(loss, list(augmenter.parameters()))
    return torch.cat([part.flatten() for part in parts])


def augmenter_for_gradients(views: int) -> LieAugmenter:
    only_equivariance = Objective(
        prediction=0.0,
        equivariance=1.0,
        sparsity=0.0,
        alignment=0.0,
        proximity=0.0,
        smoothing=0.1,
    )
    augmenter = LieAugmenter(
        dim=2,
        n_generators=2,
        n_views=views,
        range=0.8,
        sampler="learnable",
        warmup_steps=0,
        objective=only_equivariance,
        init="constant",
    )
    generators = [[[0.1, -1.0], [0.8, 0.3]], [[1.0, 0.2], [0.0, 0.7]]]
    with torch.no_grad():
        augmenter.basis.raw.copy_(torch.tensor(generators))
    return augmenter


def test_the_gradient_estimator_is_unbiased(rng: torch.Generator) -> None:
    """Minibatches of 4 with K = 4, on average, are the whole set with a large K."""
    model, (x, y) = random_network(), torch.randn(2, 12, 2, generator=rng)
    small = augmenter_for_gradients(views=4)
    estimates = []
    for _ in range(1500):
        chosen = torch.randperm(12, generator=rng)[:4]
        estimates.append(gradient(small, model, x[chosen], y[chosen], rng))
    estimates = torch.stack(estimates)
    large_k = 8000
    exact = gradient(augmenter_for_gradients(large_k), model, x, y, rng)
    # The large estimate has an error of its own: 12 · large_k draws in place of 4 · 4.
    error = estimates.std(0) * math.sqrt(1 / len(estimates) + 4 * 4 / (12 * large_k))
    assert bool(((estimates.mean(0) - exact).abs() < 5 * error).all())
    assert float(exact.norm()) > 8 * float(error.norm()), "a missing gradient would show"


def test_the_variance_of_the_gradient_falls_as_one_over_k(rng: torch.Generator) -> None:
    model, (x, y) = random_network(), torch.randn(2, 1, 2, generator=rng)
    spread = {}
    for k in (1, 8):
        augmenter = augmenter_for_gradients(k)
        drawn = [gradient(augmenter, model, x, y, rng) for _ in range(300)]
        spread[k] = float(torch.stack(drawn).var(0).sum())
    # Heavier tails than a normal law: the ratio of two such variances is known to some 25 %.
    assert spread[1] / spread[8] == pytest.approx(8, rel=0.4)


# --- Proposition 4.3: approximation implies consistency -----------------------------------------


def radial(x: Tensor) -> Tensor:
    """Equivariant under rotations."""
    return x * (1 + x.square().sum(-1, keepdim=True)).rsqrt()


def largest_column_sum(elements: Elements) -> float:
    """M_Y: the operator norm that belongs to the L1 norm."""
    return float(torch.linalg.matrix_norm(elements.matrices(), ord=1).max())


def test_an_approximation_of_an_equivariant_target_is_consistent(rng: torch.Generator) -> None:
    """sup‖Ψ - f‖₁ ≤ ε gives L_equiv ≤ ε and E_self ≤ (1 + M_Y) ε."""
    epsilon, wiggle = 0.1, random_network()

    def model(x: Tensor) -> Tensor:
        push = wiggle(x)
        return radial(x) + epsilon * push / push.abs().sum(-1, keepdim=True)

    x = torch.randn(30, 2, generator=rng)
    elements = random_elements(rng, catalogue.so(2), 30, 10, range=math.pi)
    label = equivariance_loss(model(elements.apply(x)), elements.apply(radial(x)))
    assert float(label) <= epsilon + 1e-5
    own = equivariance_error(model, x, elements, action=VECTOR, output=VECTOR)
    assert own <= (1 + largest_column_sum(elements)) * epsilon + 1e-5
    assert own > 0.1 * epsilon, "the bound is not met by being trivially far away"


# --- Lemma on self-consistency, Eq. (30) --------------------------------------------------------


@pytest.mark.parametrize("group", ["so(2)", "gl(2)", "scalings(2)", "shears(2)"])
@pytest.mark.parametrize("seed", range(5))
def test_self_consistency_is_bounded_by_label_consistency_and_error(group: str, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model, (x, y) = random_network(), torch.randn(2, 20, 2, generator=rng)
    # A label between noise and the model's own prediction: the bound is then not far from tight.
    y = model(x) + 0.3 * y
    elements = random_elements(rng, catalogue.named(group), 20, 6)
    own = equivariance_error(model, x, elements, action=VECTOR, output=VECTOR)
    label = float(equivariance_loss(model(elements.apply(x)), elements.apply(y)))
    error = float((y - model(x)).abs().sum(1).mean())
    assert own <= label + largest_column_sum(elements) * error + 1e-5


def test_the_bound_needs_the_norm_that_belongs_to_l1() -> None:
    """With the spectral norm, 1 for a rotation, Eq. (30) fails at 45 degrees.

    Ψ errs by (1, 0) on x and not at all on g x; turned, the error has the L1 norm √2.
    """
    x = torch.tensor([[1.0, 2.0]])
    elements = Elements(torch.full((1, 1, 1), math.pi / 4), catalogue.so(2))

    def model(z: Tensor) -> Tensor:
        return z - torch.eye(2)[0] * torch.isclose(z, x).all(-1, keepdim=True)

    own = equivariance_error(model, x, elements, action=VECTOR, output=VECTOR)
    label = float(equivariance_loss(model(elements.apply(x)), elements.apply(x)))
    error = float((x - model(x)).abs().sum())
    assert (label, error) == pytest.approx((0.0, 1.0), abs=1e-6)
    spectral = float(torch.linalg.matrix_norm(elements.matrices(), ord=2))
    assert own > label + spectral * error + 0.4
    assert own <= label + largest_column_sum(elements) * error + 1e-5


# --- Proposition 4.4: shifted distributions, Eq. (31) and (32) ----------------------------------


def risk(model: object, x: Tensor, y: Tensor) -> float:
    """Euclidean loss: invariant under rotations, and 1-Lipschitz in the L1 norm (L_ℓ = 1)."""
    return float((model(x) - y).norm(dim=-1).mean())


@pytest.mark.parametrize("seed", range(5))
def test_the_risk_under_a_shift_is_bounded_by_self_consistency(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = random_network(3, 3)
    x, noise = torch.randn(2, 30, 3, generator=rng)
    y = model(x) + 0.1 * noise
    shifted, own = [], []
    for _ in range(6):
        g = random_elements(rng, catalogue.so(3), 1, 1, range=2.0).for_each(30)
        shifted.append(risk(model, g.apply(x)[:, 0], g.apply(y)[:, 0]))
        own.append(equivariance_error(model, x, g, action=VectorAction(3), output=VectorAction(3)))
        assert shifted[-1] <= risk(model, x, y) + own[-1] + 1e-5
    # The same averaged over g, which is what training controls.
    assert sum(shifted) / 6 <= risk(model, x, y) + sum(own) / 6 + 1e-5
    assert max(shifted) > 2 * risk(model, x, y), "these shifts do hurt a network without symmetry"


def test_an_equivariant_predictor_has_the_same_risk_under_every_shift(rng: torch.Generator) -> None:
    x, y = torch.randn(2, 30, 2, generator=rng)
    for _ in range(5):
        g = random_elements(rng, catalogue.so(2), 1, 1, range=math.pi).for_each(30)
        shifted = risk(radial, g.apply(x)[:, 0], g.apply(y)[:, 0])
        assert shifted == pytest.approx(risk(radial, x, y), rel=1e-5)


# --- identifiability up to a change of basis ----------------------------------------------------


@pytest.mark.parametrize("name", ["so(3)", "se(2)", "gl(2)"])
def test_sampling_is_unchanged_under_a_change_of_basis(name: str, rng: torch.Generator) -> None:
    """L'_i = Σ_j B_ji L_j with w' = B⁻¹ w are the same elements, one by one."""
    basis = catalogue.named(name).double()
    c = len(basis)
    mixing = torch.eye(c).double() + 0.4 * torch.randn(c, c, generator=rng).double()
    w = torch.randn(4, 3, c, generator=rng).double()
    new_basis = torch.einsum("ji,jab->iab", mixing, basis)
    new_w = w @ torch.linalg.inv(mixing).mT
    torch.testing.assert_close(
        Elements(new_w, new_basis).matrices(), Elements(w, basis).matrices(), atol=1e-9, rtol=1e-9
    )


def test_zero_loss_holds_for_the_true_group_and_no_larger_one(rng: torch.Generator) -> None:
    """Identifiability: at Ψ = f the loss is zero for subgroups of the symmetry only."""
    x = torch.randn(30, 2, generator=rng)

    def loss(name: str) -> float:
        elements = random_elements(rng, catalogue.named(name), 30, 10)
        return float(equivariance_loss(radial(elements.apply(x)), elements.apply(radial(x))))

    assert loss("so(2)") < 1e-5
    for name in ("scaling(2)", "sl(2)", "gl(2)", "shears(2)"):
        assert loss(name) > 1e-2


# --- absence of symmetry ------------------------------------------------------------------------


def test_sparsity_is_smallest_for_a_single_entry(rng: torch.Generator) -> None:
    """‖M‖₁ ≥ ‖M‖_F, with equality for one entry: normalised generators cost at least √D."""
    basis = GeneratorBasis(1, 3)
    with torch.no_grad():
        for _ in range(20):
            basis.raw.copy_(torch.randn(1, 3, 3, generator=rng))
            assert float(sparsity(basis())) > math.sqrt(3) + 1e-3
        basis.raw.zero_()
        basis.raw[0, 1, 2] = -0.4
        assert float(sparsity(basis())) == pytest.approx(math.sqrt(3))

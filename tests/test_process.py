"""The Gaussian process: what it fits, what it takes for noise, and what it can be asked."""

from __future__ import annotations

import pytest
import torch

from lieaugmenter.nets import GaussianProcess


def errors(process: GaussianProcess, x: torch.Tensor, y: torch.Tensor) -> float:
    return float((process(x) - y).square().mean().sqrt())


def test_clean_samples_are_fitted_and_others_are_predicted(rng: torch.Generator) -> None:
    x = torch.randn(150, 2, generator=rng)
    y = (x[:, :1] * x[:, 1:]).sin()
    process = GaussianProcess(x[:100], y[:100])
    assert errors(process, x[:100], y[:100]) < 0.02
    assert errors(process, x[100:], y[100:]) < 0.1


def test_noise_is_not_fitted(rng: torch.Generator) -> None:
    x = torch.randn(400, 2, generator=rng)
    clean = x.square().sum(1, keepdim=True)
    noisy = clean + torch.randn(400, 1, generator=rng)
    process = GaussianProcess(x[:200], noisy[:200])
    assert errors(process, x[200:], clean[200:]) < 0.4


def test_labels_become_one_number_for_each_class(rng: torch.Generator) -> None:
    x = torch.randn(200, 3, generator=rng)
    y = (x.norm(dim=1) > 1.5).long()
    found = GaussianProcess(x[:150], y[:150], classes=2)(x[150:])
    assert found.shape == (50, 2)
    assert float((found.argmax(1) == y[150:]).float().mean()) > 0.8


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3, 2)])
def test_targets_keep_their_shape(shape: tuple[int, ...], rng: torch.Generator) -> None:
    x, y = torch.randn(4, 5, 2, generator=rng), torch.randn(shape, generator=rng)
    process = GaussianProcess(x, y)
    assert process(x[:3]).shape == (3, *shape[1:])


@pytest.mark.parametrize("n", [1, 5])
def test_inputs_that_are_all_alike_give_the_mean(n: int) -> None:
    process = GaussianProcess(torch.ones(n, 2), torch.arange(n).float()[:, None])
    found = process(torch.ones(1, 2))
    assert float(found) == pytest.approx((n - 1) / 2, abs=1e-4)


def test_derivatives_are_those_of_differences(rng: torch.Generator) -> None:
    x = torch.randn(60, 3, generator=rng).double()
    process = GaussianProcess(x, x.square().sum(1, keepdim=True))
    point, along = torch.randn(2, 8, 3, generator=rng).double()
    derivative = torch.func.jvp(process, (point,), (along,))[1]
    step = 1e-6
    differences = (process(point + step * along) - process(point - step * along)) / (2 * step)
    torch.testing.assert_close(derivative, differences, rtol=1e-5, atol=1e-6)

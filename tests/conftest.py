"""Shared by all tests: one thread, and a fixed seed for each test."""

from __future__ import annotations

import pytest
import torch

# The tensors of the tests are small: a second thread costs more than it brings.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Layers of torch.nn take their weights from the global generator only."""
    torch.manual_seed(0)


@pytest.fixture
def rng() -> torch.Generator:
    """The source of random inputs."""
    return torch.Generator().manual_seed(0)

"""Memory of a GPU: the same result in chunks where there is too little, and nothing kept."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from lieaugmenter import LieAugmenter, fit
from lieaugmenter.nets import MLP

SAMPLES = 4096

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    # The runs here are too short for any warm-up.
    pytest.mark.filterwarnings("ignore:the range grows over"),
    pytest.mark.filterwarnings("ignore:this step cannot be captured"),
]


@pytest.fixture
def limited_gpu() -> Iterator[Callable[[float], None]]:
    """Sets how many bytes of the GPU may be taken; afterwards all of them again."""
    total = torch.cuda.get_device_properties(0).total_memory

    def limit(most: float) -> None:
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(min(1.0, most / total))

    yield limit
    limit(total)


def trained_predictions(capture: bool) -> Tensor:
    x = torch.randn(SAMPLES, 2, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = MLP((2,), (1,), hidden=(2048, 2048))
    augmenter = LieAugmenter("vector", 2, output="invariant", n_views=3)
    torch.cuda.reset_peak_memory_stats()
    fit(
        model, augmenter, (x, x.norm(dim=1, keepdim=True)), epochs=3, batch_size=SAMPLES,
        progress=False, device="cuda", capture=capture,
    )  # fmt: skip
    with torch.no_grad():
        return model(x.cuda()).cpu()


@pytest.mark.parametrize("capture", [False, True])
def test_a_gpu_without_memory_for_a_batch_gives_the_same_result_in_chunks(
    capture: bool, limited_gpu: Callable[[float], None]
) -> None:
    whole = trained_predictions(capture)
    limited_gpu(0.6 * torch.cuda.max_memory_allocated())
    with pytest.warns(UserWarning, match="out of memory"):
        chunked = trained_predictions(capture)
    torch.testing.assert_close(chunked, whole, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("capture", [False, True])
def test_a_training_gives_its_memory_back_without_a_garbage_collection(capture: bool) -> None:
    trained_predictions(capture)  # what libraries take once and keep
    gc.collect()
    gc.disable()
    try:
        before = torch.cuda.memory_allocated()
        trained_predictions(capture)
        assert torch.cuda.memory_allocated() == before
    finally:
        gc.enable()

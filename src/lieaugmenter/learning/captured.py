"""A whole training step, recorded once and replayed: see `CapturedStep`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lieaugmenter.actions.base import Batch, map_tensors, tensors_of

# Steps on a side stream before a CUDA graph is captured, as its documentation asks.
_CAPTURE_WARMUP = 3


class CapturedStep:
    """One whole training step recorded in a CUDA graph, replayed on new batches.

    Parameters
    ----------
    step
        Takes the inputs, trains on them and returns the terms.
    inputs
        Batches of the shapes to record.
    state
        Every tensor that a step changes; the steps taken to record it are undone.
    generators
        Sources of random numbers other than the device's own.
    beside
        A step whose memory this one uses as well: nothing that one replay leaves there is needed
        by the next.
    """

    def __init__(
        self,
        step: Callable[..., Tensor],
        inputs: Sequence[Batch],
        state: Callable[[], list[Tensor]],
        generators: Sequence[torch.Generator] = (),
        *,
        beside: CapturedStep | None = None,
    ) -> None:
        # Kept, because a replay writes to whatever the step refers to.
        self._step = step
        self.inputs = [map_tensors(torch.clone, batch) for batch in inputs]
        # Detached: a copy with a history would tie the weights to the stream it was made on.
        before = {tensor.data_ptr(): tensor.detach().clone() for tensor in _filled(state())}
        random = torch.cuda.get_rng_state()
        own = [generator.get_state() for generator in generators]
        side = _recording_stream(torch.cuda.current_device())
        side.wait_stream(torch.cuda.current_stream())
        self.graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self.graph.register_generator_state(generator)
        try:
            with torch.cuda.stream(side):
                for _ in range(_CAPTURE_WARMUP):
                    step(*self.inputs)
            torch.cuda.current_stream().wait_stream(side)
            pool = None if beside is None else beside.graph.pool()
            with torch.cuda.graph(self.graph, pool=pool, stream=side):
                self.terms = step(*self.inputs)
        except RuntimeError:
            # They would go on believing that a graph is being recorded.
            for generator in (_device_generator(), *generators):
                _renew(generator)
            raise
        finally:
            with torch.no_grad():
                for tensor in _filled(state()):
                    # Optimiser state that was not there becomes zero.
                    known = before.get(tensor.data_ptr())
                    tensor.zero_() if known is None else tensor.copy_(known)
            torch.cuda.set_rng_state(random)
            for generator, kept in zip(generators, own, strict=True):
                generator.set_state(kept)

    def fits(self, *inputs: Batch) -> bool:
        """Whether batches have the shapes that were recorded."""
        pairs = zip(self._tensors(self.inputs), self._tensors(inputs), strict=True)
        return all(recorded.shape == new.shape for recorded, new in pairs)

    def replay(self, *inputs: Batch) -> Tensor:
        """Train on the inputs; the terms."""
        for static, new in zip(self._tensors(self.inputs), self._tensors(inputs), strict=True):
            static.copy_(new)
        self.graph.replay()
        return self.terms.clone()

    @staticmethod
    def _tensors(inputs: Sequence[Batch]) -> list[Tensor]:
        return [tensor for batch in inputs for tensor in tensors_of(batch)]


@functools.cache
def _recording_stream(device: int) -> torch.cuda.Stream:
    """Where steps are recorded: one of each device, for cuBLAS keeps memory for every stream."""
    return torch.cuda.Stream(device)


def _device_generator() -> torch.Generator:
    """The source of random numbers of the current device."""
    return torch.cuda.default_generators[torch.cuda.current_device()]


def _renew(generator: torch.Generator) -> None:
    """Give a generator a state that no graph knows."""
    generator.graphsafe_set_state(torch.Generator(generator.device).graphsafe_get_state())


def _filled(tensors: list[Tensor]) -> list[Tensor]:
    """Those that hold something: empty ones all have the same address."""
    return [tensor for tensor in tensors if tensor.numel()]

"""What `test_distributed` runs in one process and in two: short trainings, written to a folder.

``python distributed_cases.py OUT`` or ``torchrun --nproc-per-node=2 distributed_cases.py OUT``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lieaugmenter import LieAugmenter, Objective, fit
from lieaugmenter.learning import distributed
from lieaugmenter.learning.objective import PAPER_TWO_BODY
from lieaugmenter.runs import RunFolder, process_number

# Five full batches, and one of seven rows, which two processes cannot halve.
SAMPLES, BATCH, EPOCHS = 5 * 30 + 7, 30, 4
STEPS = 6 * EPOCHS


class Watched(nn.Module):
    """A network that keeps what it was shown in training."""

    def __init__(self, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, outputs)
        )
        self.shown: list[Tensor] = []
        self.masks: list[Tensor] = []
        self.layers[2].register_forward_hook(lambda *got: self.masks.append(got[2].detach() == 0))

    def forward(self, x: Tensor) -> Tensor:
        self.shown.append(x.detach().clone())
        return self.layers(x)


def data(labels: bool) -> tuple[Tensor, Tensor]:
    x = torch.randn(SAMPLES, 2, generator=torch.Generator().manual_seed(0))
    radius = x.norm(dim=1, keepdim=True)
    return x, (radius[:, 0] > 1).long() if labels else radius


def train(
    name: str,
    out: Path,
    *,
    labels: bool = False,
    dropout: float = 0.0,
    loader: bool = False,
    plain: bool = False,
    dtype: torch.dtype = torch.float64,
    **settings: object,
) -> None:
    """Train, and write the weights and what the network was shown."""
    torch.manual_seed(0)
    model = Watched(2 if labels else 1, dropout).to(dtype)
    options: dict = {"output": "invariant", "n_views": 3, "warmup_steps": 10} | settings
    augmenter = LieAugmenter("vector", 2, **options).to(dtype)
    x, y = data(labels)
    x, y = x.to(dtype), y if labels else y.to(dtype)
    fit(
        model,
        None if plain else augmenter,
        DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True) if loader else (x, y),
        epochs=EPOCHS,
        batch_size=BATCH,
        lr=1e-2,
        seed=3,
        run=RunFolder.create(out / name, {}),
        progress=name,
        device="cpu",
    )
    tensors = {f"weight.{key}": value for key, value in model.state_dict().items()}
    tensors["weight.generators"] = augmenter.generators.detach()
    tensors |= {f"shown.{i:02d}": shown for i, shown in enumerate(model.shown)}
    tensors |= {f"mask.{i:02d}": mask for i, mask in enumerate(model.masks)}
    save_file(
        {key: value.clone().contiguous() for key, value in tensors.items()},
        out / f"{name}-{process_number()}.safetensors",
    )


CASES: dict[str, Callable[[Path], None]] = {
    "by-hand": lambda out: train("by-hand", out, objective=PAPER_TWO_BODY),
    "by-hand-in-single-precision": lambda out: train(
        "by-hand-in-single-precision", out, objective=PAPER_TWO_BODY, dtype=torch.float32
    ),
    "general": lambda out: train("general", out, n_generators=2, sampler="learnable"),
    "classes": lambda out: train(
        "classes", out, labels=True, components=torch.tensor([[[1.0, 0.0], [0.0, -1.0]]])
    ),
    "loader": lambda out: train("loader", out, loader=True),
    "plain": lambda out: train("plain", out, plain=True, objective=Objective()),
    "dropout": lambda out: train("dropout", out, dropout=0.5),
}


def fail(out: Path) -> None:
    """The second process gives up in the middle of training."""

    class GivesUp(nn.Linear):
        calls = 0

        def forward(self, input: Tensor) -> Tensor:
            GivesUp.calls += 1
            if process_number() == 1 and GivesUp.calls == 5:
                raise ValueError("process 2 has had enough")
            return super().forward(input)

    augmenter = LieAugmenter("vector", 2, output="invariant", warmup_steps=0)
    fit(GivesUp(2, 1), augmenter, data(False), epochs=100_000, device="cpu", progress=False)


if __name__ == "__main__":
    # torchrun puts this in place where nothing else does.
    assert os.environ.get("OMP_NUM_THREADS") == "1"
    folder = Path(sys.argv[1])
    with distributed.joined():
        if sys.argv[2:] == ["fail"]:
            fail(folder)
        for case in CASES.values():
            case(folder)

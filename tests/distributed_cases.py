"""What `test_distributed` runs in one process and in two: short trainings, written to a folder.

``python distributed_cases.py OUT`` or ``torchrun --nproc-per-node=2 distributed_cases.py OUT``.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lieaugmenter import LieAugmenter, Objective, fit
from lieaugmenter.baselines.augerino import AugerinoPlus
from lieaugmenter.cli import main
from lieaugmenter.learning import distributed, trainer
from lieaugmenter.learning.objective import PAPER_TWO_BODY
from lieaugmenter.processes import process_number, wait_for_all
from lieaugmenter.runs import RunError, RunFolder, read_tensors

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


class Fussy(Watched):
    """A network that has no finite answer to one of the samples, as it is in the data."""

    def forward(self, x: Tensor) -> Tensor:
        answer = super().forward(x)
        disliked = (x == data(False)[0][0].to(x.dtype)).all(1, keepdim=True)
        return answer + torch.where(disliked, float("inf"), 0.0)


class StopHereError(Exception):
    pass


class Stopping(Watched):
    """A network that stops its first training in the middle of the second epoch."""

    most = 9

    def forward(self, x: Tensor) -> Tensor:
        if len(self.shown) == Stopping.most:
            raise StopHereError
        return super().forward(x)


def data(labels: bool) -> tuple[Tensor, Tensor]:
    x = torch.randn(SAMPLES, 2, generator=torch.Generator().manual_seed(0))
    radius = x.norm(dim=1, keepdim=True)
    return x, (radius[:, 0] > 1).long() if labels else radius


def train(
    name: str,
    out: Path,
    *,
    model: nn.Module | None = None,
    labels: bool = False,
    loader: bool = False,
    plain: bool = False,
    dtype: torch.dtype = torch.float64,
    options: dict | None = None,
    **settings: object,
) -> None:
    """Train, and write the weights and what the network was shown."""
    torch.manual_seed(0)
    model = (Watched(2 if labels else 1) if model is None else model).to(dtype)
    chosen: dict = {"output": "invariant", "n_views": 3, "warmup_steps": 10} | settings
    augmenter = LieAugmenter("vector", 2, **chosen).to(dtype)
    x, y = data(labels)
    x, y = x.to(dtype), y if labels else y.to(dtype)
    of_fit: dict = {"lr": 1e-2, "epochs": EPOCHS, "batch_size": BATCH} | (options or {})
    fit(
        model,
        None if plain else augmenter,
        DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True) if loader else (x, y),
        seed=3,
        run=RunFolder(out / name),
        progress=name,
        device="cpu",
        **of_fit,
    )
    tensors = {f"weight.{key}": value for key, value in model.state_dict().items()}
    tensors["weight.generators"] = augmenter.generators.detach()
    tensors |= {f"shown.{i:02d}": shown for i, shown in enumerate(model.shown)}
    tensors |= {f"mask.{i:02d}": mask for i, mask in enumerate(model.masks)}
    save_file(
        {key: value.clone().contiguous() for key, value in tensors.items()},
        out / f"{name}-{process_number()}.safetensors",
    )


def seeded(kind: Callable[..., Watched], **settings: object) -> Watched:
    torch.manual_seed(0)
    return kind(1, **settings)


def stop_and_resume(name: str, out: Path, *, dropout: float = 0.0, **settings: Any) -> None:
    """Stop in the middle of an epoch, after a checkpoint there, and go on from it."""
    trainer._SAVE_EVERY, trainer._LOOK_EVERY, Stopping.most = 0.0, 2, 9
    try:
        with suppress(StopHereError):
            train(name, out, model=seeded(Stopping, dropout=dropout), **settings)
        kept = read_tensors(RunFolder(out / name).checkpoint_path)[1]["progress"]
        assert kept["epoch"] == 1
        assert kept["step"] in (2, 3)  # several processes keep it when they look
        # Not before the others have read it as well.
        wait_for_all()
        Stopping.most = -1
        again = seeded(Stopping, dropout=dropout)
        train(name, out, model=again, options={"resume": True}, **settings)
    finally:
        trainer._SAVE_EVERY, trainer._LOOK_EVERY = 600.0, 50


def ask_for_what_is_refused(out: Path) -> None:
    """Every process writes down how it was refused, and all go on."""
    try:
        train("in-use", out)
    except RunError as refusal:
        (out / f"in-use-{process_number()}.txt").write_text(str(refusal))
    augerino = AugerinoPlus("vector", 2, output="invariant")
    try:
        fit(Watched(1), augerino, data(False), epochs=1, device="cpu", progress=False)
    except ValueError as refusal:
        (out / f"no-mean-{process_number()}.txt").write_text(str(refusal))
    x, labels = data(True)
    labels[:5] = -100
    try:
        fit(Watched(2), None, (x, labels), epochs=1, device="cpu", progress=False)
    except ValueError as refusal:
        (out / f"no-label-{process_number()}.txt").write_text(str(refusal))


def discover(out: Path) -> None:
    """The command line in these processes; what it says goes to a file for each."""
    x = np.random.default_rng(0).normal(size=(SAMPLES, 2)) * 2
    np.savez(out / f"ring-{process_number()}.npz", X=x, y=np.hypot(x[:, 0], x[:, 1]))
    words = ["discover", str(out / f"ring-{process_number()}.npz"), "--generators", "1"]
    words += ["--epochs", "2", "--views", "2", "--batch-size", str(BATCH), "--json"]
    said = io.StringIO()
    with redirect_stdout(said), suppress(SystemExit):
        main([*words, "--out", str(out / "discovered")])
    (out / f"discovered-{process_number()}.json").write_text(said.getvalue())


CASES: dict[str, Callable[[Path], None]] = {
    "by-hand": lambda out: train("by-hand", out, objective=PAPER_TWO_BODY),
    "by-hand-in-single-precision": lambda out: train(
        "by-hand-in-single-precision", out, objective=PAPER_TWO_BODY, dtype=torch.float32
    ),
    "default-in-single-precision": lambda out: train(
        "default-in-single-precision", out, dtype=torch.float32, options={"lr": 1e-3}
    ),
    "two-generators-in-single-precision": lambda out: train(
        "two-generators-in-single-precision",
        out,
        n_generators=2,
        dtype=torch.float32,
        options={"lr": 1e-3},
    ),
    "general": lambda out: train("general", out, n_generators=2, sampler="learnable"),
    "classes": lambda out: train(
        "classes", out, labels=True, components=torch.tensor([[[1.0, 0.0], [0.0, -1.0]]])
    ),
    "loader": lambda out: train("loader", out, loader=True),
    "plain": lambda out: train("plain", out, plain=True, objective=Objective()),
    "chunks": lambda out: train("chunks", out, n_generators=2, options={"chunk": 4}),
    "skip": lambda out: train("skip", out, model=seeded(Fussy), options={"on_non_finite": "skip"}),
    "resumed": lambda out: stop_and_resume("resumed", out),
    "dropout": lambda out: train(
        "dropout", out, model=seeded(Watched, dropout=0.5), options={"chunk": 8}
    ),
    "dropout-alone": lambda out: train(
        "dropout-alone", out, model=seeded(Watched, dropout=0.5), plain=True
    ),
    "dropout-alone-resumed": lambda out: stop_and_resume(
        "dropout-alone-resumed", out, dropout=0.5, plain=True
    ),
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
        for case in (*CASES.values(), ask_for_what_is_refused, discover):
            case(folder)

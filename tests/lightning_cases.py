"""What `test_lightning` runs in two processes: a training that stops, and goes on.

``torchrun --nproc-per-node=2 lightning_cases.py OUT``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from lightning import Trainer
from torch import Tensor, nn

from lieaugmenter import LieAugmenter
from lieaugmenter.learning.lightning import LieAugmenterModule, tensor_loader


class Watched(LieAugmenterModule):
    """Keeps the coefficients of the first element of every step."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # pyright: ignore[reportArgumentType]
        self.drawn: list[Tensor] = []
        self.augmenter.sampler.register_forward_hook(self._keep)

    def _keep(self, _module: nn.Module, _args: object, drawn: Tensor) -> None:
        if torch.is_grad_enabled():  # not those of predictions
            self.drawn.append(drawn.detach().flatten()[0])


def module() -> Watched:
    torch.manual_seed(0)
    augmenter = LieAugmenter("vector", 2, output="invariant", n_views=2, warmup_steps=0)
    return Watched(nn.Linear(2, 1), augmenter, schedule="constant")


def train(
    out: Path, module: LieAugmenterModule, epochs: int, resume: Path | None = None
) -> dict[str, Tensor]:
    """Train on the same samples in both processes, validate on others in each; what is logged."""
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    own = torch.randn(64, 2, generator=torch.Generator().manual_seed(int(os.environ["RANK"])))
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        default_root_dir=out,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(
        module,
        tensor_loader(x, x.norm(dim=1, keepdim=True), batch_size=16),
        tensor_loader(own, own.norm(dim=1, keepdim=True)),
        ckpt_path=resume,
    )
    if resume is None:
        trainer.save_checkpoint(out / f"{epochs}.ckpt")
    return dict(trainer.callback_metrics)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    whole, half, rest = module(), module(), module()
    logged = train(folder, whole, 2)
    train(folder, half, 1)
    train(folder, rest, 2, resume=folder / "1.ckpt")
    seen = {"whole": torch.stack(whole.drawn), "rest": torch.stack(rest.drawn), "logged": logged}
    torch.save(seen, folder / f"seen-{whole.global_rank}.pt")
    # Lightning leaves it to the end of the process, which gloo would abort.
    dist.barrier()
    dist.destroy_process_group()

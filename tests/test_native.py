"""The compiled loops give the numbers of the torch code, and are never needed."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from lieaugmenter.learning import vector_native, vector_step
from lieaugmenter.lie import exponential, native
from lieaugmenter.lie.exponential import act_by_matrices, series_length, squarings

needs_library = pytest.mark.skipif(native.loops() is None, reason="there is no C compiler")
TERM_WEIGHTS = [1.0, 10.0, 0.7, 0.05]


def assert_same(mine: list[Tensor], theirs: list[Tensor]) -> None:
    for a, b in zip(mine, theirs, strict=True):
        finite = b[b.isfinite()].abs()
        largest = max(1.0, float(finite.max())) if finite.numel() else 1.0
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * largest, equal_nan=True)


class Step:
    """Random inputs of a vector step; labels are vectors that move, or three numbers."""

    def __init__(
        self,
        d: int = 8,
        n_inputs: int = 1,
        n_labels: int = 1,
        views: int = 10,
        batch: int = 37,
        reach: float = 1.0,
        blocks: bool = False,
    ) -> None:
        self.raw, self.mask = torch.randn(1, d, d), torch.ones(d, d)
        if blocks:
            self.mask = (torch.rand(d, d) < 0.5).float().fill_diagonal_(1.0)
        self.weights = (2 * torch.rand(batch, views) - 1) * reach
        self.vectors = torch.randn(batch, n_inputs + n_labels, d)
        self.n_inputs, self.moving = n_inputs, n_labels > 0
        self.settings = (n_inputs, reach * d**0.5)
        out = n_labels * d if self.moving else 3
        self.y, self.layer = torch.randn(batch, out), torch.randn(n_inputs * d, out) / d
        self.terms = torch.tensor(TERM_WEIGHTS)

    def run(self, augment: Callable, total: Callable) -> list[Tensor]:
        raw, layer = self.raw.clone().requires_grad_(), self.layer.clone().requires_grad_()
        norm = math.sqrt(raw.shape[-1])
        joined, y_views, regularisers = augment(
            raw, self.mask, norm, self.weights, self.vectors, *self.settings
        )
        joined.retain_grad()
        batch, views = self.weights.shape
        prediction = (joined @ layer).tanh()
        labels = y_views.reshape(batch, views, -1)
        if not self.moving:
            labels = self.y.unsqueeze(1).expand(-1, views, -1)
        loss, terms = total(prediction, self.y, labels, regularisers, self.terms)
        assert not terms.requires_grad
        loss.backward()
        found = [joined, y_views, regularisers, loss, terms, raw.grad, layer.grad, joined.grad]
        return [tensor.detach() for tensor in found]

    def native(self) -> list[Tensor]:
        return self.run(vector_native.Augment.apply, vector_native.Total.apply)

    def torch(self) -> list[Tensor]:
        return self.run(vector_step._Augment.apply, vector_step._Total.apply)


STEPS = {
    "paper": {"batch": 64, "reach": 2.0},
    "mask": {"blocks": True},
    "invariant": {"n_labels": 0},
    "invariant, several vectors": {"n_labels": 0, "n_inputs": 3, "d": 3},
    "several vectors and labels": {"n_inputs": 2, "n_labels": 3, "d": 5},
    "d = 1": {"d": 1, "views": 3},
    "d = 16": {"d": 16, "batch": 16},
    "one sample, one view": {"batch": 1, "views": 1, "d": 2},
    "many views": {"views": 70, "d": 3, "batch": 18},
    "the longest series": {"d": 4, "reach": 3.0},
}


@needs_library
@pytest.mark.parametrize("options", STEPS.values(), ids=STEPS.keys())
def test_vector_step_is_that_of_torch(options: dict) -> None:
    step = Step(**options)
    assert_same(step.native(), step.torch())


@needs_library
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["raw", "weights", "vectors", "y"])
def test_what_is_not_finite_shows_in_the_vector_step_as_in_torch(where: str, wrong: float) -> None:
    step = Step(d=4, batch=20)
    getattr(step, where).view(-1)[3] = wrong
    for mine, theirs in zip(step.native(), step.torch(), strict=True):
        assert torch.equal(mine.isfinite(), theirs.isfinite())


@needs_library
@pytest.mark.parametrize("which", [0, 1, 2])
def test_every_output_alone_has_a_gradient(which: int) -> None:
    step, gradients = Step(d=3, n_inputs=2), []
    for function in (vector_native.Augment, vector_step._Augment):
        raw = step.raw.clone().requires_grad_()
        outputs = function.apply(raw, step.mask, 1.7, step.weights, step.vectors, *step.settings)
        outputs[which].square().sum().backward()
        gradients.append(raw.grad)
    assert_same(gradients[:1], gradients[1:])


@needs_library
def test_two_runs_agree_to_the_bit_and_a_graph_can_be_run_through_twice() -> None:
    step = Step()
    assert all(torch.equal(a, b) for a, b in zip(step.native(), step.native(), strict=True))
    raw = step.raw.clone().requires_grad_()
    joined, _, _ = vector_step.augment(
        raw, step.mask, 2.0, step.weights, step.vectors, *step.settings
    )
    once, again = (torch.autograd.grad(joined.sum(), raw, retain_graph=True) for _ in range(2))
    assert torch.equal(once[0], again[0])


@needs_library
def test_network_may_overwrite_its_input() -> None:
    step, gradients = Step(d=3), []
    for function in (vector_native.Augment, vector_step._Augment):
        raw = step.raw.clone().requires_grad_()
        joined, _, similarity = function.apply(
            raw, step.mask, 1.7, step.weights, step.vectors, *step.settings
        )
        (joined.tanh_().sum() + similarity.sum()).backward()
        gradients.append(raw.grad)
    assert_same(gradients[:1], gradients[1:])


def points(
    d: int, rows: int, c: int, n: int, batch: int = 7, views: int = 5, size: float = 1.0
) -> list[Tensor]:
    basis = torch.randn(c, d, d)
    basis[:, rows:] = 0.0
    return [basis, (2 * torch.rand(batch, views, c) - 1) * size, torch.randn(batch, n, d)]


def moved_and_gradients(function: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in given]
    moved = function(*leaves)
    # Not a function of the result, which would carry its rounding into the gradients.
    moved.backward(torch.linspace(-1.0, 1.0, moved.numel()).view(moved.shape))
    return [moved.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


SHAPES = [(4, 3, 6, 20), (4, 4, 16, 3), (4, 4, 1, 1), (3, 2, 2, 1), (3, 3, 9, 2), (2, 1, 2, 3)]


@needs_library
@pytest.mark.parametrize("size", [0.01, 1.0, 3.0])
@pytest.mark.parametrize(("d", "rows", "c", "n"), [*SHAPES, (2, 2, 1, 7), (1, 1, 1, 2)])
def test_points_move_as_with_torch(d: int, rows: int, c: int, n: int, size: float) -> None:
    given = points(d, rows, c, n, size=size / c)
    mine = moved_and_gradients(lambda *t: native.ActByMatrices.apply(*t, rows), given)
    theirs = moved_and_gradients(
        lambda *t: exponential._ManyGenerators.apply(*t, None, rows), given
    )
    assert len(mine) == 4
    assert_same(mine, theirs)


@needs_library
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_not_finite_shows_in_points_as_in_torch(which: int, wrong: float) -> None:
    given = points(3, 3, 2, 4)
    given[which].view(-1)[1] = wrong
    mine = native.ActByMatrices.apply(*given, 3)
    theirs = exponential._ManyGenerators.apply(*given, None, 3)
    assert torch.equal(mine.isfinite(), theirs.isfinite())


@needs_library
def test_lengths_of_series_are_those_of_torch() -> None:
    library = native.loops()
    assert library is not None
    for step in range(1, 600):
        bound = step / 100
        assert library.series_length(bound) == series_length(bound, torch.float32)
    for power in range(-30, 40):
        bound = 1.37**power
        assert library.squarings(bound) == squarings(bound, torch.float32)


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(*_: object) -> None:
        raise AssertionError("the compiled loops were called")

    for kind in (vector_native.Augment, vector_native.Total, native.ActByMatrices):
        monkeypatch.setattr(kind, "apply", called)


@pytest.mark.usefixtures("forbidden")
def test_other_tensors_take_the_torch_code() -> None:
    basis, coefficients, x = points(4, 3, 2, 5)
    act_by_matrices(basis.double(), coefficients.double(), x.double())
    act_by_matrices(basis, coefficients, x.mT.contiguous().mT)
    act_by_matrices(basis, coefficients, x, 5.0)
    act_by_matrices(*points(5, 5, 2, 3))
    step = Step(d=17, batch=3, reach=0.1)
    joined, _, _ = vector_step.augment(
        step.raw, step.mask, 1.0, step.weights, step.vectors, *step.settings
    )
    assert joined.shape == (33, 17)
    y_views = torch.randn(8, 10, 3).transpose(0, 1)
    vector_step.total(torch.randn(90, 3), torch.randn(10, 3), y_views, torch.ones(2), torch.ones(4))


@pytest.mark.usefixtures("forbidden")
def test_shapes_that_do_not_fit_are_left_to_torch_to_name() -> None:
    basis, coefficients, x = points(4, 3, 2, 5)
    with pytest.raises(RuntimeError):
        exponential._ManyGenerators.apply(basis, coefficients[1:], x, None, 4)
    assert not native.acts_by_matrices(basis, coefficients[1:], x)
    y_views, rest = torch.randn(10, 8, 3), (torch.ones(2), torch.ones(4))
    with pytest.raises(RuntimeError):
        vector_step.total(torch.randn(80, 3), torch.randn(10, 3), y_views, *rest)


@needs_library
def test_defaults_of_the_user_do_not_matter(fresh: Path) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert native.loops() is not None
    finally:
        torch.set_default_dtype(before)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A process that has not yet looked for the library, with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.loops.cache_clear()
    yield tmp_path
    native.loops.cache_clear()


def falls_back() -> bool:
    result = act_by_matrices(*points(3, 3, 2, 4))
    return native.loops() is None and bool(result.isfinite().all())


def test_switched_off(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIEAUGMENTER_NATIVE", "0")
    assert falls_back()
    assert not list(fresh.iterdir())


def test_no_compiler(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(fresh))
    assert falls_back()


@pytest.mark.parametrize("compiler", ["false", "true", "no-such-compiler", "'"])
def test_compiler_that_does_not_work(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    assert falls_back()


@needs_library
def test_cache_that_cannot_be_written(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fresh / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh / "file"))
    assert falls_back()


@needs_library
def test_cache_of_another_user_is_not_trusted(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert falls_back()


@needs_library
def test_damaged_library_is_replaced(fresh: Path) -> None:
    assert native.loops() is not None
    (path,) = (fresh / "lieaugmenter").iterdir()
    assert path.parent.stat().st_mode & 0o077 == 0
    whole = path.read_bytes()
    path.unlink()  # not overwritten: this process has it mapped
    path.write_bytes(whole[: len(whole) // 2])
    native.loops.cache_clear()
    assert native.loops() is not None
    (path,) = (fresh / "lieaugmenter").iterdir()
    assert len(path.read_bytes()) == len(whole)


@needs_library
def test_wrong_numbers_are_not_used(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = fresh / "native.c"
    text = native._SOURCE.read_text()
    source.write_text(text.replace("Lane sum = power[i];", "Lane sum = 2.0f * power[i];"))
    assert source.read_text() != text
    monkeypatch.setattr(native, "_SOURCE", source)
    assert falls_back()


@needs_library
def test_two_processes_may_compile_at_once(fresh: Path) -> None:
    program = "from lieaugmenter.lie import native; assert native.loops() is not None"
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    assert all(path.suffix == ".so" for path in (fresh / "lieaugmenter").iterdir())


def test_importing_the_package_compiles_nothing(fresh: Path) -> None:
    subprocess.run([sys.executable, "-c", "import lieaugmenter"], check=True)
    assert not list(fresh.iterdir())


def test_tensors_without_memory_are_left_to_torch() -> None:
    with FakeTensorMode():
        assert not native.suits(torch.empty(2, 2))


_TRACED = """
import torch
from lieaugmenter import LieAugmenter

for n_generators in (1, 3):
    model, x = torch.nn.Linear(3, 3), torch.randn(8, 3)
    augmenter = LieAugmenter("vector", 3, n_generators=n_generators, range=0.5, warmup_steps=0)

    def loss():
        return augmenter.loss(model, x, x)

    torch.manual_seed(1)
    eager = loss()
    torch.manual_seed(1)
    traced = torch.compile(loss, backend="eager")()
    torch.testing.assert_close(traced, eager)
"""


def test_a_traced_step_gives_the_numbers_of_an_eager_one() -> None:
    # In a process of its own: the checks of shapes that run in tests cannot be traced.
    done = subprocess.run(
        [sys.executable, "-c", _TRACED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

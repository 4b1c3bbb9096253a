"""The objective against the equations, term by term, and what LieAugmenter makes of it."""

from __future__ import annotations

import math
from dataclasses import replace

import jaxtyping
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from lieaugmenter.actions import (
    Action,
    AffineAction,
    DisplacementAction,
    StructuredAction,
    VectorAction,
)
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.objective import (
    PAPER_TWO_BODY,
    Objective,
    alignment,
    equivariance_loss,
    prediction_loss,
    proximity,
    similarity,
    smooth_abs,
    sparsity,
)
from lieaugmenter.lie import catalogue
from lieaugmenter.lie.elements import Elements
from lieaugmenter.lie.samplers import Uniform

ALL_TERMS = Objective(
    prediction=0.9, equivariance=2.0, similarity=0.7, sparsity=0.1, alignment=0.5, proximity=0.3
)
NAMES = ["prediction", "equivariance", "similarity", "proximity", "sparsity", "alignment"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


def make(**settings: object) -> LieAugmenter:
    """A small augmenter without warm-up; two-dimensional vectors unless told otherwise."""
    defaults = {"dim": 2, "n_views": 3, "warmup_steps": 0, "objective": ALL_TERMS}
    return LieAugmenter(**(defaults | settings))


# --- the equations ------------------------------------------------------------------------------


def cosine(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum() / (a.norm() * b.norm()))


def slow_terms(
    model: nn.Module, x: Tensor, y: Tensor, g: Tensor, basis: Tensor, *, invariant: bool
) -> dict[str, float]:
    """Eq. (3), (4), (6), (7), (8), one sample, one element, one number at a time."""
    n, k = g.shape[:2]
    terms = dict.fromkeys(NAMES, 0.0)

    def out(v: Tensor) -> Tensor:
        return model(v.unsqueeze(0)).squeeze(0)

    def cross_entropy(logits: Tensor, label: Tensor) -> float:
        return float(logits.exp().sum().log() - logits[int(label)])

    classes = not y.is_floating_point()
    for i in range(n):
        if classes:
            terms["prediction"] += cross_entropy(out(x[i]), y[i]) / n
        else:
            terms["prediction"] += sum(float(e) ** 2 for e in (y[i] - out(x[i]))) / n
        for j in range(k):
            view = g[i, j] @ x[i]
            if classes:
                terms["equivariance"] += cross_entropy(out(view), y[i]) / (n * k)
            else:
                target = y[i] if invariant else g[i, j] @ y[i]
                errors = out(view) - target
                terms["equivariance"] += sum(abs(float(e)) for e in errors) / (n * k)
            terms["similarity"] += abs(cosine(x[i], view)) / (n * k)
            # Ours, not the paper's: half of its own length is a long way for a sample.
            step = float((view - x[i]).norm() / (x[i].norm() / 2))
            terms["proximity"] += 1 / (1 + step**2) / (n * k)
    for i, generator in enumerate(basis):
        terms["sparsity"] += sum(abs(float(e)) for e in generator.flatten())
        for other in basis[i + 1 :]:
            terms["alignment"] += abs(cosine(generator, other))
    return terms


@pytest.mark.parametrize(
    ("output", "labels"),
    [("same", "vectors"), ("invariant", "numbers"), ("invariant", "classes")],
)
@pytest.mark.parametrize("n_generators", [1, 3])
def test_the_loss_is_the_papers_equation(
    output: str, labels: str, n_generators: int, rng: torch.Generator
) -> None:
    augmenter = make(dim=3, n_generators=n_generators, output=output)
    x = torch.randn(5, 3, generator=rng)
    y = {
        "vectors": torch.randn(5, 3, generator=rng),
        "numbers": torch.randn(5, 2, generator=rng),
        "classes": torch.randint(4, (5,), generator=rng),
    }[labels]
    model = mlp(3, {"vectors": 3, "numbers": 2, "classes": 4}[labels])
    loss = augmenter.loss(model, x, y, generator=seeded())
    with torch.no_grad():
        elements = augmenter.sample(5, generator=seeded())
        expected = slow_terms(
            model, x, y, elements.matrices(), elements.basis, invariant=output == "invariant"
        )
    assert list(loss.parts) == NAMES[: 6 if n_generators > 1 else 5]
    for name, value in loss.parts.items():
        assert float(value) == pytest.approx(expected[name], rel=1e-4), name
    total = sum(getattr(ALL_TERMS, name) * expected[name] for name in loss.parts)
    assert float(loss.detach()) == pytest.approx(total, rel=1e-4)


def test_losses_are_sums_over_outputs_and_means_over_the_rest(rng: torch.Generator) -> None:
    """An output repeated counts twice; a sample or a view repeated counts once."""
    p, y = torch.randn(2, 5, 3, generator=rng)
    views, target = torch.randn(2, 5, 4, 3, generator=rng)
    assert float(prediction_loss(p.repeat(1, 2), y.repeat(1, 2))) == pytest.approx(
        2 * float(prediction_loss(p, y)), rel=1e-5
    )
    assert float(prediction_loss(p.repeat(2, 1), y.repeat(2, 1))) == pytest.approx(
        float(prediction_loss(p, y)), rel=1e-5
    )
    single = float(equivariance_loss(views, target))
    for repeats, factor in [((1, 1, 2), 2), ((1, 2, 1), 1), ((2, 1, 1), 1)]:
        repeated = equivariance_loss(views.repeat(repeats), target.repeat(repeats))
        assert float(repeated) == pytest.approx(factor * single, rel=1e-5)


def test_absolute_prediction_loss(rng: torch.Generator) -> None:
    p, y = torch.randn(2, 5, 3, generator=rng)
    expected = sum(abs(float(e)) for e in (p - y).flatten()) / 5
    assert float(prediction_loss(p, y, absolute=True)) == pytest.approx(expected, rel=1e-5)


def test_a_scaling_looks_like_nothing_to_similarity_but_not_to_proximity() -> None:
    """Why the paper's term can never find a scaling, and ours can."""
    x = torch.randn(6, 3, generator=seeded())
    scaled = Elements(torch.full((6, 2, 1), 0.5), catalogue.scaling(3)).apply(x)
    still = x.unsqueeze(1).expand(-1, 2, -1)
    assert float(similarity(x, scaled)) == pytest.approx(1.0, abs=1e-6)
    assert float(similarity(x, still)) == pytest.approx(1.0, abs=1e-6)
    assert float(proximity(x, still)) == pytest.approx(1.0, abs=1e-6)
    # ‖e^0.5 x - x‖ = (e^0.5 - 1) ‖x‖.
    expected = 1 / (1 + (2 * (math.e**0.5 - 1)) ** 2)
    assert float(proximity(x, scaled)) == pytest.approx(expected, rel=1e-5)
    assert expected < 0.5


def test_similarity_and_proximity_survive_samples_at_the_origin() -> None:
    x, views = torch.zeros(2, 3), torch.zeros(2, 4, 3, requires_grad=True)
    for term in (similarity, proximity):
        value = term(x, views)
        (gradient,) = torch.autograd.grad(value, views)
        assert bool(value.isfinite())
        assert bool(gradient.isfinite().all())


def test_alignment_counts_each_pair_once() -> None:
    same = catalogue.so(2).repeat(3, 1, 1) * torch.tensor([1.0, -2.0, 5.0])[:, None, None]
    assert float(alignment(same)) == pytest.approx(3.0)
    assert float(alignment(catalogue.so(3))) == 0.0
    assert float(alignment(catalogue.so(2))) == 0.0


def test_gradients_of_the_terms(rng: torch.Generator) -> None:
    x, views = torch.randn(3, 4, generator=rng), torch.randn(3, 2, 4, generator=rng)
    views, x = views.double().requires_grad_(), x.double()
    basis = torch.randn(3, 2, 2, generator=rng).double().requires_grad_()
    for tau in (0.0, 0.1):
        assert gradcheck(lambda v, tau=tau: similarity(x, v, smoothing=tau), (views,))
        assert gradcheck(lambda b, tau=tau: alignment(b, smoothing=tau), (basis,))
        assert gradcheck(lambda b, tau=tau: sparsity(b, smoothing=tau), (basis,))
        assert gradcheck(lambda v, tau=tau: equivariance_loss(v, 0 * v, smoothing=tau), (views,))
    assert gradcheck(lambda v: proximity(x, v), (views,))


# --- the smooth surrogate -----------------------------------------------------------------------


def test_smooth_abs_is_above_and_within_tau(rng: torch.Generator) -> None:
    z = torch.randn(100, generator=rng)
    for tau in (0.0, 1e-3, 0.1, 1.0):
        gap = smooth_abs(z, tau) - z.abs()
        assert float(gap.min()) >= -1e-7
        assert float(gap.max()) <= tau + 1e-6


@pytest.mark.parametrize("absolute", [False, True])
def test_the_surrogate_tends_to_the_objective(absolute: bool, rng: torch.Generator) -> None:
    x, y, model = *torch.randn(2, 5, 2, generator=rng), mlp(2, 2)
    objective = replace(ALL_TERMS, absolute=absolute)

    def total(tau: float) -> float:
        augmenter = make(
            n_generators=2, init="constant", objective=replace(objective, smoothing=tau)
        )
        return float(augmenter.loss(model, x, y, generator=seeded()).detach())

    exact = float(
        make(n_generators=2, init="constant", objective=objective)
        .loss(model, x, y, generator=seeded())
        .detach()
    )
    assert total(0.0) == exact
    gaps = [total(tau) - exact for tau in (1.0, 0.1, 0.01)]
    assert gaps[0] > gaps[1] > gaps[2] >= 0
    assert gaps[2] < 1e-2 * gaps[0] + 1e-4


def test_smoothing_replaces_every_absolute_value(rng: torch.Generator) -> None:
    """Every term but the squared and the bounded one is larger with τ, absolute errors too."""
    x, y, model = *torch.randn(2, 5, 2, generator=rng), mlp(2, 2)
    parts = [
        make(
            basis=catalogue.gl(2)[:2],
            objective=replace(ALL_TERMS, absolute=True, smoothing=tau),
        )
        .loss(model, x, y, generator=seeded())
        .parts
        for tau in (0.0, 0.5)
    ]
    for name in NAMES:
        if name == "proximity":
            assert float(parts[1][name]) == float(parts[0][name])
        else:
            assert float(parts[1][name]) > float(parts[0][name]), name


# --- weights and parts --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, "smoothing"])
@pytest.mark.parametrize("bad", [-1e-3, math.nan, math.inf])
def test_weights_must_be_finite_and_not_negative(name: str, bad: float) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*must not be negative"):
        Objective(**{name: bad})


def test_terms_of_weight_zero_are_not_computed() -> None:
    assert PAPER_TWO_BODY.active(1) == ["prediction", "equivariance", "similarity", "sparsity"]
    augmenter = make(objective=Objective(similarity=0.0, proximity=0.0, sparsity=0.0))
    assert augmenter.terms == ["prediction", "equivariance"]
    loss = augmenter.loss(mlp(2, 2), torch.randn(4, 2), torch.randn(4, 2))
    assert list(loss.parts) == ["prediction", "equivariance"]
    assert len(loss.parts) == 2
    with pytest.raises(KeyError, match="no term 'sparsity'; the active ones are prediction"):
        loss.parts["sparsity"]


def test_parts_are_detached_and_print(rng: torch.Generator) -> None:
    loss = make().loss(mlp(2, 2), *torch.randn(2, 4, 2, generator=rng))
    assert not any(value.requires_grad for value in loss.parts.values())
    assert repr(loss.parts).startswith("prediction ")
    loss.backward()


def test_whole_numbers_are_weights_too(
    rng: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Users' calls are not type-checked; beartype takes no int for a float.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    whole = Objective(prediction=1, equivariance=2, sparsity=0, alignment=0, proximity=0)
    decimal = Objective(
        prediction=1.0, equivariance=2.0, sparsity=0.0, alignment=0.0, proximity=0.0
    )
    x, y = torch.randn(2, 4, 2, generator=rng)
    losses = [
        make(objective=objective).loss(lambda x: x, x, y, generator=seeded())
        for objective in (decimal, whole)
    ]
    torch.testing.assert_close(losses[1], losses[0])


# --- models and labels of all kinds -------------------------------------------------------------


@pytest.mark.parametrize("shapes", [((6, 1), (6,)), ((6,), (6, 1))], ids=["(n,1)", "(n,)"])
def test_a_column_and_a_flat_target_do_not_broadcast(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], rng: torch.Generator
) -> None:
    predicted, given = shapes
    x = torch.randn(6, 2, generator=rng)
    y = torch.randn(6, generator=rng)
    model = mlp(2, 1)
    augmenter = make(output="invariant")
    expected = augmenter.loss(model, x, y.view(6, 1), generator=seeded())
    loss = augmenter.loss(
        lambda x: model(x).view(-1, *predicted[1:]), x, y.view(given), generator=seeded()
    )
    torch.testing.assert_close(loss, expected)


def test_a_lambda_is_a_model(rng: torch.Generator) -> None:
    x, y = torch.randn(2, 4, 2, generator=rng)
    loss = make().loss(lambda x: 2 * x, x, y)
    assert float(loss.parts["prediction"]) == pytest.approx(
        float((2 * x - y).square().sum() / 4), rel=1e-5
    )


def test_the_model_sees_originals_and_views_in_one_call(rng: torch.Generator) -> None:
    seen = []

    def model(x: Tensor) -> Tensor:
        seen.append(x)
        return x

    x, y = torch.randn(2, 4, 2, generator=rng)
    augmenter = make()
    augmenter.loss(model, x, y, generator=seeded())
    assert [len(batch) for batch in seen] == [4 * (1 + 3)]
    views = augmenter.views(x, generator=seeded())
    torch.testing.assert_close(seen[0], torch.cat([x, views.flatten(0, 1)]))


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (lambda x: (x, x), TypeError, r"returned a tuple of 2, not a tensor.*lambda x: model\(x\)"),
        (lambda x: {"out": x}, TypeError, "returned a dict of 1"),
        (lambda x: None, TypeError, "returned a NoneType"),
        (lambda x: x.mean(), ValueError, "first axis must be the batch"),
        (lambda x: x.T, ValueError, "first axis must be the batch"),
        (lambda x: x[:, :1], ValueError, r"returns \(4, 1\) for targets of shape \(4, 2\)"),
    ],
)
def test_a_model_that_returns_something_else_is_refused_readably(
    model: object, error: type[Exception], message: str, rng: torch.Generator
) -> None:
    with pytest.raises(error, match=message):
        make().loss(model, *torch.randn(2, 4, 2, generator=rng))


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({}, torch.zeros(3, 2), "x has 4 rows, y has 3"),
        ({}, torch.zeros(4), r"y has shape \(4,\).*use output='invariant'"),
        ({}, torch.zeros(4, 3), r"y has shape \(4, 3\)"),
        ({}, torch.zeros(4).long(), "integer labels are classes.*output='invariant'"),
        ({"output": "invariant"}, torch.zeros(4, 1).long(), r"class labels must be \(N,\)"),
        ({"output": "invariant"}, torch.zeros(4, 2) + 1j, "y is complex"),
    ],
)
def test_labels_that_do_not_fit_are_refused_readably(
    settings: dict, y: Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(**settings).loss(lambda x: x, torch.randn(4, 2), y)


def test_inputs_that_do_not_fit_are_refused_readably() -> None:
    augmenter = make()
    for call in (
        lambda x: augmenter.loss(lambda x: x, x, x),
        augmenter.views,
        lambda x: augmenter.predict(lambda x: x, x),
    ):
        with pytest.raises(ValueError, match=r"shape \(4, 3\).*expects \(N, 2\)"):
            call(torch.randn(4, 3))


def test_classes_need_logits() -> None:
    labels = torch.tensor([0, 1, 1, 0])
    with pytest.raises(ValueError, match=r"must return logits \(batch, classes\).*\(4,\)"):
        make(output="invariant").loss(lambda x: x[:, 0], torch.randn(4, 2), labels)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool])
def test_any_integer_is_a_class(dtype: torch.dtype, rng: torch.Generator) -> None:
    augmenter, x = make(output="invariant"), torch.randn(4, 2, generator=rng)
    labels = torch.tensor([0, 1, 1, 0])
    expected = augmenter.loss(lambda x: x, x, labels, generator=seeded())
    loss = augmenter.loss(lambda x: x, x, labels.to(dtype), generator=seeded())
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("output", ["same", "invariant"])
def test_double_targets_and_a_float_augmenter_work_together(
    output: str, rng: torch.Generator
) -> None:
    """What torch.from_numpy gives by default must not end in a message about dot."""
    x, y = torch.randn(2, 4, 2, generator=rng)
    augmenter = make(output=output)
    expected = augmenter.loss(lambda x: x, x, y, generator=seeded())
    loss = augmenter.loss(lambda x: x, x, y.double(), generator=seeded())
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_double_data_and_a_float_augmenter_work_together(rng: torch.Generator) -> None:
    x, y = torch.randn(2, 4, 2, generator=rng)
    augmenter = make()
    expected = augmenter.loss(lambda x: x, x, y, generator=seeded())
    loss = augmenter.loss(lambda x: x, x.double(), y.double(), generator=seeded())
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_a_known_basis_in_double_works_with_float_data(rng: torch.Generator) -> None:
    x, y = torch.randn(2, 4, 2, generator=rng)
    losses = [
        make(basis=basis).loss(lambda x: x, x, y, generator=seeded())
        for basis in (catalogue.so(2), catalogue.so(2).double())
    ]
    assert float(losses[1]) == pytest.approx(float(losses[0]), rel=1e-5)


@pytest.mark.parametrize("n_generators", [1, 2])
@pytest.mark.parametrize("action", ["vector", "affine"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_basis_from_numpy_works_with_a_network_of_any_precision(
    dtype: torch.dtype, action: str, n_generators: int, rng: torch.Generator
) -> None:
    """NumPy's numbers are doubles, those of networks seldom are."""
    basis = catalogue.aff(2) if action == "affine" else catalogue.gl(2)
    basis = torch.from_numpy(basis[:n_generators].numpy().astype("float64"))
    model = mlp(2, 2).to(dtype)
    x, y = torch.randn(2, 4, 2, generator=rng).to(dtype)
    augmenter = make(action=action, basis=basis)
    assert augmenter.views(x).dtype == dtype
    augmenter.loss(model, x, y).backward()
    assert augmenter.predict(model, x).dtype == dtype


@pytest.mark.parametrize("objective", [ALL_TERMS, PAPER_TWO_BODY], ids=["general", "by hand"])
def test_exponentials_of_a_half_precision_augmenter_run_in_float32(
    objective: Objective, rng: torch.Generator
) -> None:
    """Lightning's bf16-true: all parameters and buffers are halves."""
    augmenter = make(objective=objective, range=2.0).bfloat16()
    x = torch.randn(50, 2, generator=rng).bfloat16()
    elements = augmenter.sample(50, generator=seeded())
    exact = replace(
        elements, basis=elements.basis.double(), coefficients=elements.coefficients.double()
    ).apply(x.double())
    seen = []

    def model(batch: Tensor) -> Tensor:
        seen.append(batch)
        return batch

    augmenter.loss(model, x, x, generator=seeded()).backward()
    views = seen[0][50:].unflatten(0, (50, -1))
    assert views.dtype == torch.bfloat16
    # Rounded once, in the end; a series in bfloat16 is wrong by ten times as much.
    assert float(((views - exact).norm() / exact.norm()).detach()) < 3e-3


def test_half_precision_components_have_their_inverses(rng: torch.Generator) -> None:
    augmenter = make(components=-torch.eye(2).unsqueeze(0), output="same").bfloat16()
    x = torch.randn(4, 2, generator=rng).bfloat16()
    found = augmenter.predict(lambda batch: batch, x)
    torch.testing.assert_close(found, x, atol=0.1, rtol=0.1)


def test_half_precision_images_suit_a_half_precision_network(rng: torch.Generator) -> None:
    x = torch.rand(4, 1, 8, 8, generator=rng).bfloat16()
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).bfloat16()
    augmenter = make(action="image", output="invariant")
    augmenter.loss(model, x, torch.tensor([0, 1, 2, 0])).backward()
    assert augmenter.predict(model, x).dtype == torch.bfloat16


def test_labels_follow_the_act_of_their_own_action(rng: torch.Generator) -> None:
    """Covectors: an action that builds on VectorAction but moves otherwise."""

    class Covectors(VectorAction):
        def act(self, elements: Elements, x: Tensor) -> Tensor:
            return torch.einsum("bvji,bj->bvi", elements.inverse().matrices(), x)

    augmenter = make(
        basis=catalogue.scaling(2), output=Covectors(2), objective=Objective(equivariance=1.0)
    )
    x, y = torch.randn(2, 4, 2, generator=rng)
    loss = augmenter.loss(lambda x: 0 * x, x, y, generator=seeded())
    elements = augmenter.sample(4, generator=seeded())
    expected = Covectors(2).act(elements, y).abs().sum(-1).mean()
    assert float(loss.parts["equivariance"]) == pytest.approx(float(expected), rel=1e-5)


def test_structured_input_is_moved_and_seen_whole(rng: torch.Generator) -> None:
    action = StructuredAction({"positions": AffineAction(2)}, masks={"positions": "real"})
    x = {
        "charges": torch.randint(1, 9, (4, 3), generator=rng),
        "positions": torch.randn(4, 3, 2, generator=rng),
        "real": torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]]).bool(),
    }

    def model(x: dict[str, Tensor]) -> Tensor:
        mass = x["charges"] * x["real"]
        return (x["positions"] * mass.unsqueeze(-1)).square().sum((1, 2))

    augmenter = make(action=action, dim=None, n_generators=2, output="invariant")
    loss = augmenter.loss(model, x, torch.randn(4, generator=rng))
    loss.backward()
    assert float(augmenter.basis.raw.grad.norm()) > 0
    assert augmenter.predict(model, x).shape == (4,)


def test_labels_that_are_vectors_turn_but_are_not_translated(rng: torch.Generator) -> None:
    """Forces on the atoms of a dict of fields, which has no shape that they could share."""
    action = StructuredAction({"positions": AffineAction(2)})
    x, forces = {"positions": torch.randn(4, 3, 2, generator=rng)}, torch.ones(4, 3, 2)
    settings = {"action": action, "dim": None, "objective": Objective(equivariance=1.0)}
    shifts, turn = catalogue.translations(2), catalogue.se(2)[:1]

    def missed(basis: Tensor) -> float:
        augmenter = make(output="vector", basis=basis, **settings)
        loss = augmenter.loss(lambda x: torch.ones_like(x["positions"]), x, forces)
        return float(loss.parts["equivariance"])

    assert missed(shifts) == 0
    assert missed(turn) > 0.1
    with pytest.raises(ValueError, match=r"a dict or tuple of fields\. .* output='vector'"):
        make(output="same", basis=shifts, **settings).loss(
            lambda x: torch.ones_like(x["positions"]), x, forces
        )


@pytest.mark.parametrize(
    ("action", "dim", "moved_by"),
    [
        ("vector", 3, VectorAction(3)),
        ("points", 3, VectorAction(3)),
        ("fourvector", None, VectorAction(4)),
        ("affine", 3, DisplacementAction(3)),
        ("image", None, DisplacementAction(2)),
    ],
)
def test_a_vector_is_one_of_the_space_that_elements_act_on(
    action: str, dim: int | None, moved_by: Action
) -> None:
    assert repr(make(action=action, dim=dim, output="vector").output) == repr(moved_by)


def test_bound_module_gives_the_loss_and_owns_all_parameters(rng: torch.Generator) -> None:
    x, y = torch.randn(2, 4, 2, generator=rng)
    model, augmenter = mlp(2, 2), make()
    joint = augmenter.bind(model)
    torch.manual_seed(5)
    expected = augmenter.loss(model, x, y)
    torch.manual_seed(5)
    loss = joint(x, y)
    assert torch.equal(loss, expected)
    assert list(loss.parts) == list(expected.parts)
    names = {name for name, _ in joint.named_parameters()}
    assert "augmenter.basis.raw" in names
    assert len(names) == 1 + len(list(model.parameters()))


def test_one_step_of_training_changes_model_and_generators(rng: torch.Generator) -> None:
    model, augmenter = mlp(2, 2), make(n_generators=2)
    joint = augmenter.bind(model)
    optimizer = torch.optim.Adam(joint.parameters(), lr=1e-2)
    before = [p.detach().clone() for p in joint.parameters()]
    joint(*torch.randn(2, 8, 2, generator=rng)).backward()
    optimizer.step()
    for old, new in zip(before, joint.parameters(), strict=True):
        assert not torch.equal(old, new)


def test_the_range_grows_with_each_training_loss_only(rng: torch.Generator) -> None:
    augmenter = make(warmup_steps=10)
    x, y = torch.randn(2, 4, 2, generator=rng)
    reach = [float(augmenter.sampler.ranges())]
    for training in (True, False, True):
        augmenter.train(training).loss(lambda x: x, x, y)
        augmenter.predict(lambda x: x, x)
        reach.append(float(augmenter.sampler.ranges()))
    assert reach[0] < reach[1] == reach[2] < reach[3]


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"action": "vectro"}, "unknown action 'vectro'; choose from affine, fourvector, image"),
        ({"output": "equal"}, "unknown output 'equal'; choose from invariant, same, vector"),
        ({"dim": None}, "action='vector' needs dim="),
        ({"n_views": 0}, "at least 1"),
        ({"output": VectorAction(3)}, r"do not share their matrices \(size 3"),
        ({"components": torch.zeros(1, 2, 2)}, "invertible"),
        ({"components": torch.eye(2)}, r"expected \(m, 2, 2\)"),
        ({"components": torch.full((1, 2, 2), math.nan)}, "invertible"),
        ({"action": "affine", "components": torch.eye(3)[[2, 1, 0]][None]}, "not projective maps"),
        ({"basis": catalogue.so(2), "mask": torch.ones(2, 2)}, "mask= beside basis="),
        ({"basis": catalogue.so(2), "blocks": [2], "init": "zzz"}, "blocks=, init= beside basis="),
        ({"basis": catalogue.so(2), "nimble": True}, r"GeneratorBasis\(…, nimble=…\)"),
        ({"basis": catalogue.so(2), "n_generators": 3}, "n_generators=3, but the basis has 1"),
        ({"sampler": Uniform(2.0), "range": -1.0}, "range=-1 beside a sampler"),
        ({"action": "image", "n_generators": 7}, "of which 6 entries are free"),
        ({"sampler": "gauss"}, "unknown sampler 'gauss'"),
    ],
)
def test_settings_that_do_not_fit_are_refused_readably(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**settings)


def test_a_basis_may_be_given_with_its_number_of_generators() -> None:
    assert make(dim=3, basis=catalogue.so(3), n_generators=3).basis.n_generators == 3


def test_components_always_hold_the_identity_once() -> None:
    reflection = torch.diag(torch.tensor([1.0, -1.0]))
    for given in (reflection.unsqueeze(0), torch.stack([reflection, torch.eye(2)])):
        components = make(components=given).components
        torch.testing.assert_close(components, torch.stack([torch.eye(2), reflection]))


def test_components_are_drawn_alike() -> None:
    augmenter = make(components=-torch.eye(2).unsqueeze(0))
    index = augmenter.sample(500, views=4, generator=seeded()).component_index
    # Five standard deviations of a fair coin.
    assert abs(float(index.float().mean()) - 0.5) < 5 * 0.5 / 2000**0.5


def test_freezing_stops_learning_and_changes_nothing(rng: torch.Generator) -> None:
    augmenter = make(n_generators=2)
    before = augmenter.generators.detach().clone()
    augmenter.freeze()
    assert torch.equal(augmenter.generators, before)
    assert not list(augmenter.parameters())
    assert "2 generator(s)" in augmenter.summary()


# --- prediction ---------------------------------------------------------------------------------


def radial(x: Tensor) -> Tensor:
    return x * x.square().sum(-1, keepdim=True).sin()


REFLECTION = torch.diag(torch.tensor([1.0, -1.0])).unsqueeze(0)


@pytest.mark.parametrize("components", [None, REFLECTION], ids=["rotations", "reflections too"])
@pytest.mark.parametrize("n_factors", [1, 2])
def test_averaging_an_equivariant_model_changes_nothing(
    components: Tensor | None, n_factors: int, rng: torch.Generator
) -> None:
    augmenter = make(basis=catalogue.so(2), components=components, n_factors=n_factors)
    x = torch.randn(7, 2, generator=rng)
    torch.testing.assert_close(augmenter.predict(radial, x), radial(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("n_generators", [1, 2])
def test_averaging_moves_points_back(n_generators: int, rng: torch.Generator) -> None:
    """The identity is equivariant under everything, reflected points included."""
    mirror = torch.diag(torch.tensor([-1.0, 1.0, 1.0])).unsqueeze(0)
    augmenter = make(action="affine", n_generators=n_generators, components=mirror)
    x = torch.randn(5, 4, 2, generator=rng)
    torch.testing.assert_close(augmenter.predict(lambda x: x, x), x, atol=1e-4, rtol=1e-4)


def test_averaging_is_the_papers_equation(rng: torch.Generator) -> None:
    """Eq. (39) by hand, each element undone by its inverse matrix."""
    augmenter, model = make(n_generators=2), mlp(2, 2)
    x = torch.randn(4, 2, generator=rng)
    with torch.no_grad():
        # All samples share the elements of a seed.
        g = augmenter.sample(1, generator=seeded(3)).matrices()[0]
        expected = model(x)
        for element in g:
            expected = expected + model(x @ element.mT) @ torch.linalg.inv(element).mT
    found = augmenter.predict(model, x, seed=3)
    torch.testing.assert_close(found, expected / 4, atol=1e-4, rtol=1e-4)


def test_prediction_is_deterministic_and_does_not_depend_on_chunks(rng: torch.Generator) -> None:
    augmenter, model = make(), mlp(2, 2)
    x = torch.randn(10, 2, generator=rng)
    first = augmenter.predict(model, x, seed=1)
    state = torch.get_rng_state()
    assert torch.equal(augmenter.predict(model, x, seed=1), first)
    assert torch.equal(torch.get_rng_state(), state), "the global generator is left alone"
    torch.testing.assert_close(augmenter.predict(model, x, seed=1, batch_size=3), first)
    assert not torch.allclose(augmenter.predict(model, x, seed=2), first)
    torch.testing.assert_close(augmenter.predict(model, x[4:5], seed=1), first[4:5])


def test_no_views_give_the_direct_prediction(rng: torch.Generator) -> None:
    augmenter, model = make(), mlp(2, 2)
    x = torch.randn(10, 2, generator=rng)
    found = augmenter.predict(model, x, views=0)
    assert torch.equal(found, model(x))
    assert not found.requires_grad


@pytest.mark.parametrize("views", [0, 4])
def test_probabilities_sum_to_one(views: int, rng: torch.Generator) -> None:
    augmenter, model = make(output="invariant"), mlp(2, 5)
    x = torch.randn(6, 2, generator=rng)
    found = augmenter.predict(model, x, views=views, average="probabilities")
    torch.testing.assert_close(found.sum(-1), torch.ones(6))
    assert bool((found >= 0).all())


@pytest.mark.parametrize("views", [0, 4])
def test_an_unknown_average_lists_the_right_ones(views: int) -> None:
    with pytest.raises(ValueError, match="unknown average 'mean'; choose from logits"):
        make().predict(lambda x: x, torch.zeros(2, 2), views=views, average="mean")


@pytest.mark.parametrize("training", [True, False])
def test_prediction_leaves_the_mode_of_the_model_as_it_was(
    training: bool, rng: torch.Generator
) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).train(training)
    augmenter, x = make(), torch.randn(6, 2, generator=rng)
    first, second = (augmenter.predict(model, x) for _ in range(2))
    assert torch.equal(first, second), "dropout is off during prediction"
    assert model.training is training


def test_prediction_leaves_a_frozen_layer_frozen(rng: torch.Generator) -> None:
    """A batch norm kept in evaluation mode while the rest trains, as in fine-tuning."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].eval()
    make().predict(model, torch.randn(6, 2, generator=rng))
    assert model.training
    assert not model[1].training


@pytest.mark.parametrize("n_generators", [1, 2])
def test_no_samples_give_no_predictions(n_generators: int) -> None:
    found = make(n_generators=n_generators).predict(mlp(2, 2), torch.zeros(0, 2))
    assert found.shape == (0, 2)


@pytest.mark.parametrize("by_hand", [True, False])
def test_no_samples_have_no_loss(by_hand: bool) -> None:
    augmenter = make(objective=PAPER_TWO_BODY if by_hand else ALL_TERMS)
    x = torch.zeros(0, 2)
    for ask in (augmenter.loss, lambda *batch: next(augmenter.loss_in_chunks(*batch, size=4))):
        with pytest.raises(ValueError, match="the batch is empty"):
            ask(mlp(2, 2), x, x)


def test_no_images_give_no_predictions() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    augmenter = make(action="image", output="invariant")
    assert augmenter.predict(model, torch.zeros(0, 1, 6, 6)).shape == (0, 3)


def test_all_weights_zero_is_refused() -> None:
    nothing = Objective(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="every weight of the objective is zero"):
        LieAugmenter("vector", 2, objective=nothing)


def test_whole_number_inputs_and_arrays_as_labels_are_named() -> None:
    augmenter = LieAugmenter("vector", 2, output="invariant")
    model = nn.Linear(2, 1)
    with pytest.raises(ValueError, match=r"dtype torch.int64; an element moves real numbers"):
        augmenter.loss(model, torch.ones(3, 2, dtype=torch.int64), torch.ones(3))
    with pytest.raises(TypeError, match="y is a ndarray; pass a tensor"):
        augmenter.loss(model, torch.ones(3, 2), torch.ones(3).numpy())


def test_prediction_is_never_folded_into_another_shape() -> None:
    augmenter = LieAugmenter("vector", 2, output="invariant")

    def transposed(x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(len(x), 3, 2)

    with pytest.raises(ValueError, match=r"returns \(4, 3, 2\) for targets of shape \(4, 2, 3\)"):
        augmenter.loss(transposed, torch.ones(4, 2), torch.ones(4, 2, 3))


def test_absurd_range_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"range=1e\+07: .* Use a smaller range"):
        LieAugmenter("vector", 2, range=1e7)


def test_basis_must_have_its_place_in_the_action() -> None:
    with pytest.raises(ValueError, match="the last row of a generator is zero"):
        LieAugmenter("affine", 2, basis=catalogue.so(3))
    with pytest.raises(ValueError, match="do not share their matrices"):
        LieAugmenter("vector", 3, output=AffineAction(2))
    with pytest.raises(ValueError, match="such as forces, move by output='vector'"):
        LieAugmenter("affine", 3, output=VectorAction(3))


def test_loss_without_gradients_does_not_advance_the_warm_up() -> None:
    augmenter = LieAugmenter("vector", 2, output="invariant", warmup_steps=10)
    with torch.no_grad():
        augmenter.loss(nn.Linear(2, 1), torch.ones(3, 2), torch.ones(3, 1))
    assert int(augmenter.sampler.step) == 0


def test_half_precision_model_and_data_work_together() -> None:
    augmenter = LieAugmenter("vector", 2, output="invariant")
    model = nn.Linear(2, 1).bfloat16()
    x, y = torch.randn(4, 2).bfloat16(), torch.randn(4, 1).bfloat16()
    augmenter.loss(model, x, y).backward()
    assert augmenter.predict(model, x).dtype == torch.bfloat16


def test_one_logit_for_class_labels_is_refused() -> None:
    augmenter = LieAugmenter("vector", 2, output="invariant")
    with pytest.raises(ValueError, match="one for each class"):
        augmenter.loss(nn.Linear(2, 1), torch.ones(3, 2), torch.tensor([0, 1, 1]))

"""How a trained predictor predicts: which elements it averages over."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lieaugmenter import LieAugmenter, catalogue
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.lie.samplers import LearnableRange, Uniform

# A turn and a scaling of the plane.
TURN_AND_SCALING = torch.stack([catalogue.so(2)[0], torch.eye(2)])


class Radius(nn.Module):
    """The length of a vector, with an error that changes its sign as the vector turns."""

    def __init__(self, error: float) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        angle = torch.atan2(x[:, 1], x[:, 0])
        return (x.norm(dim=1) + self.error * (2 * angle).sin()).unsqueeze(1)


# Another basis of the same span.
MIXED = torch.tensor([[1.0, 1.0], [1.0, -1.0]]).matmul(TURN_AND_SCALING.flatten(1)).view(2, 2, 2)


def predictor(
    error: float, sampler: nn.Module | None = None, basis: Tensor = TURN_AND_SCALING
) -> Predictor:
    sampler = Uniform(0.3) if sampler is None else sampler
    augmenter = LieAugmenter(
        "vector", 2, output="invariant", n_views=32, basis=basis, sampler=sampler
    )
    return Predictor(Radius(error), augmenter)


def samples(n: int = 200) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
    return x, x.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("basis", [TURN_AND_SCALING, MIXED], ids=["pure", "mixed"])
def test_averages_go_all_the_way_round_where_a_turn_was_trained_over_a_small_angle(
    basis: Tensor,
) -> None:
    model, data = predictor(0.3, basis=basis), samples()
    direct, averaged = model.loss(*data, views=0), model.loss(*data)
    way, loss = model.choose_inference(*data, further=True)
    assert way == "further"
    assert loss == pytest.approx(model.loss(*data))
    assert loss < 0.2 * min(direct, averaged)
    # The scaling is no symmetry.
    assert list(model.reach) == [0]
    assert model.reach[0] > 1


def test_averages_go_no_further_unless_asked() -> None:
    model, data = predictor(0.3), samples()
    assert model.choose_inference(*data)[0] in ("averaged", "direct")
    assert model.reach == {}


def test_nothing_is_averaged_where_the_network_is_right() -> None:
    model, data = predictor(0.0), samples()
    assert model.choose_inference(*data, further=True) == ("direct", 0.0)
    assert model.views == 0
    assert model.reach == {}


def test_axes_of_a_span_turn_first_whatever_its_basis() -> None:
    for basis in (TURN_AND_SCALING, MIXED):
        turn, scaling = predictor(0.0, basis=basis).axes()
        torch.testing.assert_close(turn, -turn.mT)
        torch.testing.assert_close(scaling, scaling.mT)
        length = 0.3 * basis.flatten(1).norm(dim=1).mean()
        torch.testing.assert_close(torch.stack([turn.norm(), scaling.norm()]), length.expand(2))


def test_reach_counts_from_the_range() -> None:
    x, _ = samples()
    one, other = predictor(0.3), predictor(0.3, LearnableRange(0.6, 2))
    one.go_further({0: 2.0})
    other.go_further({0: 1.0})
    torch.testing.assert_close(one(x), other(x))
    one.go_further({})
    torch.testing.assert_close(one(x), predictor(0.3)(x))


def test_a_reach_that_gives_no_number_is_not_taken() -> None:
    class Fragile(Radius):
        def forward(self, x: Tensor) -> Tensor:
            # 0 / 0 beyond a length of 4.
            near = (x.norm(dim=1, keepdim=True) < 4).float()
            return super().forward(x) * near / near

    augmenter = predictor(0.0).augmenter
    model, (x, _) = Predictor(Fragile(0.3), augmenter), samples()
    x = x / x.norm(dim=1, keepdim=True)
    way, loss = model.choose_inference(x, torch.ones(len(x), 1), further=True)
    assert (way, list(model.reach)) == ("further", [0])
    assert loss < 0.2


def test_what_goes_further_adds_nothing_to_the_state() -> None:
    model = predictor(0.3)
    before = list(model.state_dict())
    model.go_further({0: 8.0})
    assert list(model.state_dict()) == before
    assert torch.equal(model.generators(), TURN_AND_SCALING)


def test_without_generators_the_prediction_is_direct() -> None:
    augmenter = LieAugmenter("vector", 2, output="invariant", basis=torch.zeros(0, 2, 2))
    model, data = Predictor(Radius(0.3), augmenter), samples()
    assert model.choose_inference(*data, further=True)[0] == "direct"
    assert (model.reach, model.views) == ({}, 0)


def test_averaging_is_reconsidered_where_it_was_left_before() -> None:
    x, radius = samples()
    model = predictor(0.3)
    # What the network says, error and all, is best met without averaging.
    assert model.choose_inference(x, model.network(x))[0] == "direct"
    assert model.views == 0
    way, loss = model.choose_inference(x, radius)
    assert (way, loss) == predictor(0.3).choose_inference(x, radius)
    assert way == "averaged"
    assert model.views == 32
    model.choose_inference(x, model.network(x))
    assert model.choose_inference(x, radius, further=True)[0] == "further"
    assert model.views == 32


def test_a_number_of_views_that_was_given_is_the_one_that_is_chosen() -> None:
    x, radius = samples()
    model = Predictor(Radius(0.3), predictor(0.3).augmenter, views=64)
    model.choose_inference(x, model.network(x))
    model.choose_inference(x, radius)
    assert model.views == 64


def test_a_wide_range_goes_only_as_far_as_elements_can() -> None:
    model = predictor(0.3, Uniform(100.0), basis=TURN_AND_SCALING[:1])
    assert model.choose_inference(*samples(), further=True)[0] in ("averaged", "further")


def test_a_choice_does_not_depend_on_the_one_before() -> None:
    model, data = predictor(0.3), samples()
    assert model.choose_inference(*data, further=True)[0] == "further"
    way, loss = model.choose_inference(*data)
    assert (way, loss) == predictor(0.3).choose_inference(*data)
    assert model.reach == {}


@pytest.mark.parametrize(
    "law", [{"n_factors": 2}, {"components": -torch.eye(2)[None]}, {"sampler": "integer-grid"}]
)
def test_elements_of_other_laws_go_no_further(law: dict) -> None:
    model = Predictor(Radius(0.3), LieAugmenter("vector", 2, output="invariant", **law))
    with pytest.raises(ValueError, match="one factor"):
        model.go_further({0: 2.0})


def test_redundant_generators_make_one_axis() -> None:
    turn = TURN_AND_SCALING[:1]
    assert len(predictor(0.0, basis=torch.cat([turn, -2 * turn])).axes()) == 1


def test_predictions_of_a_module_have_gradients() -> None:
    model = predictor(0.3)
    x = torch.randn(5, *samples()[0].shape[1:], requires_grad=True)
    model(x, views=4).sum().backward()
    assert x.grad is not None
    step = 1e-2 * torch.randn_like(x)
    change = model.predict(x + step, views=4) - model.predict(x - step, views=4)
    torch.testing.assert_close(change.sum(), 2 * (x.grad * step).sum(), rtol=0.05, atol=1e-3)
    assert not model.predict(x).requires_grad


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")
def test_an_averaged_prediction_is_not_traced() -> None:
    model, (x, _) = predictor(0.3), samples()
    with pytest.raises(RuntimeError, match="would draw other elements at every call"):
        torch.jit.trace(model, x)


def test_a_classifier_has_the_same_loss_for_labels_of_any_whole_type() -> None:
    augmenter = LieAugmenter("vector", 2, output="invariant", basis=TURN_AND_SCALING)
    model, (x, y) = Predictor(nn.Linear(2, 2), augmenter, classes=2), samples()
    classes = (y[:, 0] > 1).long()
    for kind in (torch.int32, torch.uint8, torch.bool):
        assert model.loss(x, classes.to(kind)) == model.loss(x, classes)


@pytest.mark.parametrize("views", [0, 4])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_data_of_any_precision_suit_the_network(dtype: torch.dtype, views: int) -> None:
    augmenter = LieAugmenter("vector", 2, output="same", warmup_steps=0)
    model = Predictor(nn.Linear(2, 2).to(dtype), augmenter, y_scale=torch.ones(2))
    for given in (torch.float32, torch.float64):
        assert model.predict(samples()[0].to(given), views=views).isfinite().all()


def test_a_double_network_predicts_in_double() -> None:
    augmenter = LieAugmenter("vector", 2, output="same", basis=catalogue.so(2), warmup_steps=0)
    model = Predictor(nn.Linear(2, 2).double(), augmenter)
    x = samples()[0].double()
    torch.testing.assert_close(model.predict(x, views=0), model.network(x), atol=0, rtol=0)

"""The generators: normalised, masked, saved, fixed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.lie import catalogue
from lieaugmenter.lie.basis import INITIAL_VALUE, GeneratorBasis, block_mask

UPPER = torch.ones(3, 3).triu()


def trained(basis: GeneratorBasis, steps: int = 5) -> GeneratorBasis:
    """A few steps of Adam with weight decay, which touches every entry of the parameter."""
    optimizer = torch.optim.AdamW(basis.parameters(), lr=0.05, weight_decay=0.1)
    target = torch.arange(basis.raw.numel(), dtype=torch.float32).view(basis.raw.shape)
    for _ in range(steps):
        optimizer.zero_grad()
        (basis() * target.cos()).sum().backward()
        optimizer.step()
    return basis


@pytest.mark.parametrize("mask", [None, UPPER, block_mask([1, 2])], ids=["all", "upper", "blocks"])
@pytest.mark.parametrize(("space_dim", "squared"), [(None, 3.0), (2, 2.0)])
def test_norm_is_the_root_of_the_space_dimension_after_masking(
    mask: Tensor | None, space_dim: int | None, squared: float
) -> None:
    basis = trained(GeneratorBasis(2, 3, space_dim=space_dim, mask=mask))
    norms = basis().flatten(1).norm(dim=1)
    torch.testing.assert_close(norms, torch.full((2,), math.sqrt(squared)))
    assert basis.norms == pytest.approx([math.sqrt(squared)] * 2)


def test_normalisation_does_not_see_the_scale_of_the_parameter() -> None:
    basis = GeneratorBasis(2, 3)
    before = basis()
    with torch.no_grad():
        basis.raw.mul_(torch.tensor([1e-3, 50.0])[:, None, None])
    torch.testing.assert_close(basis(), before)


def test_masked_entries_are_zero_and_get_no_gradient() -> None:
    basis = GeneratorBasis(2, 3, mask=UPPER)
    generators = basis()
    generators.exp().sum().backward()
    assert basis.raw.grad is not None
    assert bool((generators[:, UPPER == 0] == 0).all())
    assert bool((basis.raw.grad[:, UPPER == 0] == 0).all())
    assert bool((basis.raw.grad[:, UPPER == 1] != 0).any())


def test_masked_entries_stay_zero_through_training() -> None:
    basis = trained(GeneratorBasis(2, 3, mask=UPPER))
    assert bool((basis()[:, UPPER == 0] == 0).all())


def test_the_mask_travels_with_the_checkpoint() -> None:
    saved = trained(GeneratorBasis(2, 3, mask=UPPER))
    loaded = GeneratorBasis(2, 3)
    loaded.load_state_dict(saved.state_dict())
    assert torch.equal(loaded(), saved())
    assert torch.equal(trained(loaded)()[:, UPPER == 0], torch.zeros(2, 3))


def test_blocks_keep_features_apart() -> None:
    expected = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]]).bool()
    assert torch.equal(block_mask([2, 1]), expected)
    augmenter = LieAugmenter(dim=3, blocks=[2, 1])
    assert torch.equal(augmenter.generators[0] != 0, expected)


def test_a_mask_is_joined_with_the_actions_own() -> None:
    """The last row of homogeneous coordinates stays zero, whatever the user allows."""
    augmenter = LieAugmenter("affine", dim=2, mask=torch.ones(3, 3))
    assert bool((augmenter.generators[:, 2] == 0).all())
    assert float(augmenter.generators.norm().detach()) == pytest.approx(math.sqrt(2))


def test_constant_initialisation_has_equal_entries() -> None:
    one = GeneratorBasis(1, 3)
    assert torch.equal(one.raw.detach(), torch.full((1, 3, 3), INITIAL_VALUE))
    several = GeneratorBasis(3, 2, init="constant")
    assert bool((several().detach() == several().detach()[0, 0, 0]).all())


def test_ties_are_broken_between_generators_by_default() -> None:
    generators = GeneratorBasis(3, 4).raw.detach()
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        assert not torch.allclose(generators[i], generators[j], atol=1e-5)
    # The noise is small: they still start as almost the same.
    assert float((generators - INITIAL_VALUE).abs().max()) < INITIAL_VALUE


def test_tie_breaking_follows_its_generator() -> None:
    first, second, other = (
        GeneratorBasis(2, 3, generator=torch.Generator().manual_seed(seed)).raw
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_a_fixed_basis_is_untouched() -> None:
    given = 3.7 * catalogue.se(2)
    basis = GeneratorBasis.fixed(given)
    assert torch.equal(basis(), given)
    assert not basis.learnable
    assert not list(basis.parameters())
    assert basis.norms == pytest.approx([3.7 * 2**0.5, 3.7, 3.7])
    given.zero_()
    assert float(basis().norm()) > 1, "the basis keeps its own copy"


def test_freezing_keeps_the_generators() -> None:
    basis = trained(GeneratorBasis(2, 3, mask=UPPER))
    frozen = basis.freeze()
    assert not frozen.learnable
    assert torch.equal(frozen(), basis())
    assert (frozen.n_generators, frozen.dim) == (2, 3)


def test_the_norms_of_a_fixed_basis_follow_its_checkpoint() -> None:
    """They bound the exponential: a bound of another basis would cut the series short."""
    basis = GeneratorBasis.fixed(catalogue.so(2))
    basis.load_state_dict(GeneratorBasis.fixed(10 * catalogue.so(2)).state_dict())
    assert basis.norms == pytest.approx([10 * 2**0.5])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mask": torch.ones(2, 3)}, r"mask has shape \(2, 3\).*must be \(3, 3\)"),
        ({"mask": torch.zeros(3, 3)}, "mask forbids every entry"),
        ({"mask": torch.full((3, 3), 0.5)}, "mask must hold only 0 and 1"),
        ({"init": "random"}, "unknown init 'random'; choose from constant, tie-breaking"),
        ({"dim": 784}, r"dim=784: 614,656 entries per generator.*action='image'"),
        ({"dim": 0}, "at least 1"),
        ({"n_generators": 0}, "at least 1"),
    ],
)
def test_bad_settings_are_refused_readably(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GeneratorBasis(**({"n_generators": 1, "dim": 3} | settings))


def test_bad_blocks_are_refused_readably() -> None:
    with pytest.raises(ValueError, match="blocks sum to 4 but dim is 3"):
        LieAugmenter(dim=3, blocks=[2, 2])
    with pytest.raises(ValueError, match="at least 1"):
        block_mask([2, 0])
    with pytest.raises(ValueError, match="give mask= or blocks=, not both"):
        LieAugmenter(dim=3, blocks=[3], mask=UPPER)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.zeros(2, 3), r"shape \(2, 3\); expected \(c, d, d\)"),
        (torch.zeros(1, 2, 3), r"expected \(c, d, d\)"),
        (torch.full((1, 2, 2), math.nan), "non-finite"),
    ],
)
def test_bad_fixed_generators_are_refused_readably(given: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GeneratorBasis.fixed(given)


def test_a_basis_of_another_size_than_the_action_is_refused() -> None:
    with pytest.raises(ValueError, match=r"matrices of size 2, but VectorAction\(dim=3\) needs 3"):
        LieAugmenter(dim=3, basis=catalogue.so(2))


@pytest.mark.parametrize("fraction", [-0.1, 1.5, float("nan")])
def test_a_fraction_that_would_prune_everything_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        GeneratorBasis(1, 2).prune(fraction)


def test_a_fixed_basis_is_not_pruned() -> None:
    with pytest.raises(ValueError, match="nothing to prune"):
        GeneratorBasis.fixed(torch.eye(2)[None]).prune(0.1)


def test_an_entry_that_one_generator_needs_stays_for_all() -> None:
    basis = GeneratorBasis(2, 2)
    basis.raw.data = torch.tensor([[[1.0, 0.01], [0.0, 0.01]], [[0.01, 1.0], [0.0, 0.01]]])
    assert basis.prune(0.1) == 2
    assert torch.equal(basis.mask, torch.tensor([[1.0, 1.0], [0.0, 0.0]]))


def test_learning_begins_at_given_generators_within_the_mask() -> None:
    basis = GeneratorBasis(1, 3, mask=block_mask([2, 1]))
    turn_and_more = catalogue.so(3).sum(0, keepdim=True)
    basis.start_at(5 * turn_and_more)
    assert basis.learnable
    torch.testing.assert_close(
        basis().detach(), turn_and_more * block_mask([2, 1]) * math.sqrt(1.5)
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.ones(2, 2, 2), "this basis has"),
        (torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]), "no finite entry"),
        (torch.full((1, 2, 2), torch.nan), "no finite entry"),
    ],
)
def test_a_start_that_is_none_is_refused(given: Tensor, message: str) -> None:
    basis = GeneratorBasis(1, 2, mask=torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(ValueError, match=message):
        basis.start_at(given)
    with pytest.raises(ValueError, match="has no start"):
        GeneratorBasis.fixed(torch.eye(2)[None]).start_at(torch.eye(2)[None])


def test_a_nimble_generator_is_never_longer_than_it_began() -> None:
    basis = GeneratorBasis(2, 2, nimble=True, mask=torch.tensor([[0, 1], [1, 1]]))
    began = (basis.raw * basis.mask).flatten(1).norm(dim=1)
    with torch.no_grad():
        basis.raw[0].mul_(50)
        basis.raw[1].mul_(0.5)
    before = basis().detach()
    basis.shorten()
    lengths = (basis.raw * basis.mask).flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, began * torch.tensor([1.0, 0.5]))
    torch.testing.assert_close(basis().detach(), before)


def test_a_basis_is_nimble_only_if_asked() -> None:
    basis = GeneratorBasis(1, 2)
    basis.raw.data.mul_(50)
    before = basis.raw.clone()
    basis.shorten()
    assert torch.equal(basis.raw, before)


def test_a_nimble_basis_keeps_the_length_of_a_given_start() -> None:
    basis = GeneratorBasis(1, 2, nimble=True)
    basis.start_at(catalogue.so(2))
    before = basis.raw.clone()
    basis.raw.data.mul_(50)
    basis.shorten()
    torch.testing.assert_close(basis.raw, before)


def test_shortening_leaves_a_generator_that_is_not_finite_for_training_to_notice() -> None:
    basis = GeneratorBasis(1, 2, nimble=True)
    basis.raw.data[0, 0, 0] = torch.inf
    basis.shorten()
    assert not basis.raw.isfinite().all()


def test_a_given_basis_is_not_made_nimble_in_silence() -> None:
    with pytest.raises(ValueError, match="nimble"):
        LieAugmenter(dim=2, basis=catalogue.so(2), nimble=True)

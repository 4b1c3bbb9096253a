"""What methods and settings are called in documents."""

from __future__ import annotations

from collections.abc import Sequence

from lieaugmenter.experiments.spec import Method

KINDS = {
    "emlp": "EMLP",
    "lgatr": "L-GATr",
    "gcnn": "p4 CNN, flattened head",
    "gcnn-pooled": "p4 CNN, invariant head",
    "trivial": "no augmentation",
    "oracle": "oracle",
    "augerino": "Augerino+",
    "augerino-widths": "Augerino",
    "liegan": "LieGAN",
    "liegg": "LieGG",
    "lieaugmenter": "LieAugmenter",
}
VARIANTS = {
    "mask0": "no mask",
    "mask2": "mask 2",
    "mask4": "mask 4",
    "continuous": "continuous",
    "discrete": "discrete",
    "whole": "the whole group",
    "constant": "from the constant start",
}
# What an ablation sets, as the paper writes it.
SYMBOLS = {
    "prediction": "α",
    "equivariance": "β",
    "similarity": "λ",
    "sparsity": "ν",
    "views": "K",
    "range": "γ",
    "generators": "C",
    "data": "share of the training data",
}
PRECISIONS = {"bf16": "bfloat16", "float32": "float32"}


def seed_count(count: int) -> str:
    """That many seeds, in words."""
    return "1 seed" if count == 1 else f"{count} seeds"


def label(row: str) -> str:
    """A row of the paper, for readers.

    >>> label("lieaugmenter-mask2"), label("trivial")
    ('LieAugmenter, mask 2', 'no augmentation')
    """
    # The longest, for one kind's name may begin with another's.
    kind = max((kind for kind in KINDS if f"{row}-".startswith(f"{kind}-")), key=len)
    variant = row[len(kind) + 1 :]
    return f"{KINDS[kind]}, {variant_words(variant)}" if variant else KINDS[kind]


def variant_words(variant: str) -> str:
    """A mask, a law of the coefficients or a setting, for readers.

    >>> variant_words("mask2"), variant_words("range-5")
    ('mask 2', 'γ = 5')
    """
    if variant in VARIANTS:
        return VARIANTS[variant]
    name, _, value = variant.partition("-")
    return f"{SYMBOLS[name]} = {value}"


def listed(words: Sequence[str]) -> str:
    """Words with commas and a last "and"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def whose(method: Method) -> str:
    """Whose settings a method has."""
    if method.ours:
        return "own"
    return "the paper's" if method.kind.endswith("-paper") else "published"

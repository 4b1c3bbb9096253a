"""Actions by the words that stand for them, and how labels move beside inputs."""

from __future__ import annotations

from torch import Tensor

from lieaugmenter.actions.base import Action
from lieaugmenter.actions.linear import FourVectorAction, InvariantAction, VectorAction
from lieaugmenter.actions.spatial import AffineAction, DisplacementAction, ImageAction

ACTIONS = ("affine", "fourvector", "image", "points", "vector")
# The words for actions and outputs that are given as objects.
_WORDS: dict[type[Action], str] = {
    AffineAction: "affine",
    FourVectorAction: "fourvector",
    ImageAction: "image",
    VectorAction: "vector",
}
_OUTPUT_WORDS: dict[type[Action], str] = {
    DisplacementAction: "vector",
    InvariantAction: "invariant",
    VectorAction: "vector",
}


def make_action(action: str | Action, dim: int | None) -> Action:
    """The action of that name; `dim` is the number of coordinates of a vector or point."""
    if isinstance(action, Action):
        return action
    if action not in ACTIONS:
        raise ValueError(f"unknown action {action!r}; choose from {', '.join(ACTIONS)}")
    if action == "image":
        return ImageAction()
    if action == "fourvector":
        return FourVectorAction()
    if dim is None:
        raise ValueError(f"action={action!r} needs dim=, the number of coordinates")
    return AffineAction(dim) if action == "affine" else VectorAction(dim)


def words_for(action: str | Action, output: str | Action) -> tuple[str, str]:
    """What to call an action and an output, so that `make_action` and `make_output` make them.

    One of the user's own is called what it says of itself, of which nothing can be made.

    >>> words_for(AffineAction(3), AffineAction(3)), words_for("image", InvariantAction())
    (('affine', 'same'), ('image', 'invariant'))
    """
    word = action if isinstance(action, str) else _WORDS.get(type(action), str(action))
    if isinstance(output, str):
        return word, output
    if isinstance(action, Action) and type(output) is type(action) in _WORDS:
        return word, "same"
    return word, _OUTPUT_WORDS.get(type(output), str(output))


def make_output(output: str | Action, action: Action) -> Action:
    """How labels move: ``"invariant"``, ``"same"``, ``"vector"``, or an action.

    ``"same"`` is like the inputs, ``"vector"`` as a vector of the space that elements act on: by
    their matrix, or where they translate as well, by its linear part.
    """
    if isinstance(output, Action):
        if output.dim and (output.dim, output.rows) != (action.dim, action.rows):
            raise ValueError(
                f"{output} and {action} do not share their matrices (size {output.dim} with "
                f"{output.rows} free rows, size {action.dim} with {action.rows}): one element must "
                f"move both. Labels that are vectors of the space, such as forces, move by "
                f"output='vector'"
            )
        return output
    if output == "same":
        return action
    if output == "vector":
        translates = action.rows < action.dim
        return DisplacementAction(action.rows) if translates else VectorAction(action.dim)
    if output == "invariant":
        return InvariantAction()
    raise ValueError(
        f"unknown output {output!r}; choose from invariant, same, vector, or an Action"
    )


def check_moving_labels(output: Action, y: Tensor) -> None:
    """Refuse labels of a shape that `output` cannot move, with what may have been meant."""
    try:
        output.check(y, "y")
    except ValueError as error:
        raise ValueError(
            f"{error}. For a scalar target use output='invariant', for vectors of the space, such "
            f"as forces or a dipole, output='vector'"
        ) from None

"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print the result as JSON.")]
Strict = Annotated[
    bool, Parameter(negative="", help="Exit with 3 when the verdict is inconclusive.")
]
Folder = Annotated[
    Path | None,
    Parameter(name=["--out", "-o"], help="Run folder; a new one in runs/ if not given."),
]
Size = Annotated[
    int | None, Parameter(help="Side in pixels to resize images to; they must be of one size else.")
]
Stream = Annotated[
    bool | None,
    Parameter(
        help="Read the file piece by piece instead of whole; unless given, an .npy, and a .parquet "
        "that holds more than 1 GiB."
    ),
]
Features = Annotated[
    str | None,
    Parameter(
        help="Columns of a table to use as X, separated by commas, in this order; all but the "
        "target unless given."
    ),
]
Drop = Annotated[
    str | None, Parameter(help="Columns of a table to leave out, separated by commas.")
]
Output = Literal["invariant", "same", "vector"]
Action = Literal["vector", "points", "affine", "fourvector", "image"]

"""For the reference: examples in docstrings are shown as code wherever they stand."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

# From a prompt to the next empty line.
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", flags=re.M | re.S)


class Doctests(Extension):
    """Put fences around doctests: Markdown would take their prompts for quotations."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            fenced = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
            obj.docstring.value = fenced

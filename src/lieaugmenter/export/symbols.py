"""Generators as formulas: LaTeX, and matrices of SymPy.

Numbers that came from an exact algebra are recognised as p√r / q where they are; all others are
rounded.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.lie.brackets import closure_residual, structure_constants

# Relative error of a number in single precision.
_ROUNDING = 2e-6
# Fractions, and fractions under a root, with larger numbers than these would fit anything.
_LARGEST_DENOMINATOR = 12
_LARGEST_NUMERATOR = 144
_LARGEST_UNDER_ROOT = 32
# pmatrix has ten columns unless told.
_USUAL_COLUMNS = 10
# Brackets that leave the span by less do not leave it.
_CLOSED = 1e-4
_NEARLY = r"\approx"

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "⊕": r"$\oplus$",
    "⋉": r"$\times_{\mathrm{s}}$",
}
# Those that LaTeX has a command for.
_GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"


def recognised(value: float) -> tuple[int, int, int] | None:
    """(p, q, r) with value = p√r / q, small whole numbers and r free of squares; None otherwise.

    >>> recognised(0.75), recognised(-math.sqrt(1.5)), recognised(0.7391)
    ((3, 4, 1), (-1, 2, 6), None)
    """
    rounding = _ROUNDING * max(1.0, abs(value))
    plain = Fraction(value).limit_denominator(_LARGEST_DENOMINATOR)
    if abs(plain - value) <= rounding and abs(plain.numerator) <= _LARGEST_NUMERATOR:
        return plain.numerator, plain.denominator, 1
    square = Fraction(value**2).limit_denominator(_LARGEST_UNDER_ROOT)
    if square.numerator > _LARGEST_UNDER_ROOT:
        return None
    if abs(math.sqrt(square) - abs(value)) > rounding:
        return None
    # √(a/b) = √(ab) / b, and what is a square under the root goes before it.
    under, outside = square.numerator * square.denominator, 1
    for factor in range(2, math.isqrt(under) + 1):
        while under % factor**2 == 0:
            under, outside = under // factor**2, outside * factor
    before = Fraction(outside if value > 0 else -outside, square.denominator)
    return before.numerator, before.denominator, under


def latex(
    generators: Float[Tensor, "c d d"],
    names: Sequence[str],
    *,
    title: str,
    exact: bool,
    digits: int = 4,
) -> str:
    r"""A table for a LaTeX document: the generators, their brackets, a caption. Needs amsmath.

    Parameters
    ----------
    generators
        (c, d, d).
    names
        Of the axes, for the caption; escaped here.
    title
        First sentence of the caption; escaped here.
    exact
        Whether the numbers are those of an exact algebra, in which fractions and roots may be
        recognised.
    digits
        Significant digits of what is rounded, of the largest entry of a generator.

    Examples
    --------
    >>> from lieaugmenter.lie.catalogue import so
    >>> print(latex(so(2), ["x_1", "x_2"], title="Generators of so(2)", exact=True))
    \begin{table}[ht]
    \centering
    \begin{align*}
    L_{1} &= \begin{pmatrix} 0 & -1 \\ 1 & 0 \end{pmatrix}
    \end{align*}
    \caption{Generators of so(2), acting on (x\_1, x\_2).}
    \end{table}
    """
    lines = [f"L_{{{i}}} &= {_matrix(g, exact, digits)}" for i, g in enumerate(generators, 1)]
    residual = closure_residual(generators)
    relations = _relations(generators, exact, digits, closed=residual <= _CLOSED)
    notes = [f"{escape(title)}, acting on ({', '.join(map(escape, names))})."]
    if len(relations) < math.comb(len(generators), 2):
        if relations:
            notes.append("Brackets that are not listed vanish.")
        else:
            relations = [r"\left[L_{i}, L_{j}\right] &= 0 \quad \text{for all } i, j"]
    if residual > _CLOSED:
        notes.append(f"Brackets leave the span of the generators by {residual:.2g}.")
    lines += relations
    if any("." in line for line in lines):
        notes.append(f"Decimals are rounded to {digits} digits of the largest entry.")
    if not lines:
        lines = [r"\text{There are no generators: nothing but the identity.}"]
    wide = generators.shape[-1] > _USUAL_COLUMNS
    columns = [rf"\setcounter{{MaxMatrixCols}}{{{generators.shape[-1]}}}"] if wide else []
    return "\n".join(
        [
            r"\begin{table}[ht]",
            r"\centering",
            *columns,
            r"\begin{align*}",
            " \\\\\n".join(lines),
            r"\end{align*}",
            rf"\caption{{{' '.join(notes)}}}",
            r"\end{table}",
        ]
    )


def sympy_matrices(generators: Float[Tensor, "c d d"], *, exact: bool) -> list[Any]:
    """The generators as SymPy matrices; numbers that are not recognised are floating-point ones.

    Parameters
    ----------
    generators
        (c, d, d).
    exact
        Whether the numbers are those of an exact algebra, in which fractions and roots may be
        recognised.

    Examples
    --------
    >>> from lieaugmenter.lie.catalogue import so
    >>> sympy_matrices(so(2), exact=True)
    [Matrix([
    [0, -1],
    [1,  0]])]
    """
    try:
        import sympy
    except ImportError:
        raise ImportError("the export to SymPy needs: pip install 'lieaugmenter[sympy]'") from None

    def number(value: float) -> Any:
        found = recognised(value) if exact else None
        if found is None:
            return sympy.Float(value)
        p, q, r = found
        return sympy.Rational(p, q) * sympy.sqrt(r)

    def matrix(generator: Tensor) -> Any:
        factor, entries = _factored(generator, exact)
        return number(factor) * sympy.Matrix([[number(v) for v in row] for row in entries])

    return [matrix(generator) for generator in generators]


def escape(text: str) -> str:
    r"""Text as LaTeX shows it, in ASCII: accents and small digits go, Greek letters stay.

    >>> escape("m_1 & θ²")
    'm\\_1 \\& $\\theta$2'
    """
    simple = unicodedata.normalize("NFKD", text)
    return "".join(_escaped(letter) for letter in simple if not unicodedata.combining(letter))


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character in _GREEK:
        # Unicode spells one of them its own way.
        name = unicodedata.name(character).split(" ")[-1].replace("LAMDA", "LAMBDA")
        return rf"$\{name.lower() if character.islower() else name.capitalize()}$"
    if character.isascii():
        return character if character.isprintable() else " "
    return "?"


def _factored(generator: Float[Tensor, "d d"], exact: bool) -> tuple[float, list[list[float]]]:
    """A number before the matrix, and its entries: the largest, if it leaves plain numbers."""
    rows = generator.tolist()
    largest = float(generator.abs().max()) if generator.numel() else 0.0
    if exact and largest:
        divided = (generator.double() / largest).tolist()
        if all(recognised(value) is not None for row in divided for value in row):
            return largest, divided
    return 1.0, rows


def _matrix(generator: Float[Tensor, "d d"], exact: bool, digits: int) -> str:
    factor, entries = _factored(generator, exact)
    largest = max((abs(value) for row in entries for value in row), default=0.0)
    rows = [" & ".join(_number(value, exact, digits, largest) for value in row) for row in entries]
    shown = r"\begin{pmatrix} " + r" \\ ".join(rows) + r" \end{pmatrix}"
    if factor == 1.0:
        return shown
    before = _number(factor, exact, digits, factor)
    return shown if before == "1" else f"{before} {shown}"


def _number(value: float, exact: bool, digits: int, largest: float) -> str:
    """A number in LaTeX: exact if it is recognised, else with the decimals that `largest` has."""
    found = recognised(value) if exact else None
    if found is None:
        decimals = max(0, digits - 1 - math.floor(math.log10(largest))) if largest else 0
        rounded = f"{value:.{decimals}f}"
        return rounded if float(rounded) else "0"
    p, q, r = found
    root = rf"\sqrt{{{r}}}" if r > 1 else ""
    size = f"{abs(p)}{root}" if abs(p) != 1 or not root else root
    sign = "-" if p < 0 else ""
    return rf"{sign}\frac{{{size}}}{{{q}}}" if q > 1 else f"{sign}{size}"


def _relations(
    generators: Float[Tensor, "c d d"], exact: bool, digits: int, *, closed: bool
) -> list[str]:
    """[L_i, L_j] = Σ_k f_ij^k L_k for i < j, without those that vanish to the digits shown.

    Where brackets leave the span: all of them, as near as the span comes.
    """
    c = len(generators)
    if c < 2:
        return []
    constants = structure_constants(generators.double())
    largest = float(constants.abs().max())
    small = max(_CLOSED, 0.0 if exact else 10.0 ** (1 - digits)) * max(largest, 1.0)
    lines = []
    for i, j in torch.triu_indices(c, c, offset=1).mT.tolist():
        terms = [
            _term(value, k, exact, digits, largest)
            for k, value in enumerate(constants[i, j].tolist(), start=1)
            if abs(value) > small
        ]
        if terms or not closed:
            # Not a bare bracket: after a line break it would be the length of the break.
            left = rf"\left[L_{{{i + 1}}}, L_{{{j + 1}}}\right] &{'=' if closed else _NEARLY}"
            lines.append(f"{left} {' '.join(terms).removeprefix('+ ') or '0'}")
    return lines


def _term(value: float, k: int, exact: bool, digits: int, largest: float) -> str:
    size = _number(abs(value), exact, digits, largest)
    return f"{'-' if value < 0 else '+'} {'' if size == '1' else size + ' '}L_{{{k}}}"

"""The paper's own numbers for the experiments, as its tables give them.

`TABLES` is the transcription, `TARGETS` the same numbers by experiment, method and measure. Means
and standard deviations are over three seeds; of molecules there is one run, and all numbers but
LieAugmenter's are taken from other papers. The measures:

- ``"mse"``: mean squared error on the test set;
- ``"mae"``: mean absolute error on the test set, in meV;
- ``"accuracy"``: per cent of the test set;
- ``"equivariance"``: the error between averages over elements, of the main tables;
- ``"equivariance-2"``: the average over elements of the error, of the appendix;
- ``"train-seconds"``, ``"test-seconds"``: for LieGAN without the training of LieGAN itself;
- ``"displacement"``: E‖gx - x‖₂, and ``"distance"``: E‖g - I‖_F;
- ``"cosine"``: absolute cosine of the learned generator with the true one;
- a name that ends in ``"-direct"``: the same of predictions without averaging over elements.

>>> TARGETS["two-body", "lieaugmenter-mask2", "mse"]
Reported(mean=1.3e-05, std=5.58e-06)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True)
class Reported:
    """A mean, and its standard deviation where the paper gives one."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Table:
    """One of the paper's tables.

    Attributes
    ----------
    label
        In the paper's source.
    experiments, measures
        The columns: all measures of the first experiment, then all of the second.
    text
        A line for each row: the method, then a cell for each column. A cell is ``mean±std``, a
        number without a spread, or a duration, ``MM:SS`` or ``HH:MM:SS``.
    paper_only
        Methods that no experiment here has.
    other_data
        The paper's data, where the experiment here has others: the numbers do not compare.
    """

    label: str
    experiments: tuple[str, ...]
    measures: tuple[str, ...]
    text: str
    paper_only: tuple[str, ...] = ()
    other_data: str = ""

    def entries(self) -> Iterator[tuple[tuple[str, str, str], Reported]]:
        """The numbers, each after its experiment, method and measure."""
        columns = list(product(self.experiments, self.measures))
        for line in self.text.strip().splitlines():
            method, *cells = line.split()
            for (experiment, measure), cell in zip(columns, cells, strict=True):
                yield (experiment, method, measure), _parse(cell)


# The experiments of the tables that have a column for each method, as their rows call them.
_SPLITS = {
    "ID": "rotated-mnist", "OOD": "rotated-mnist-ood", "HOMO": "qm9-homo", "LUMO": "qm9-lumo",
}  # fmt: skip


@dataclass(frozen=True)
class TurnedTable:
    """One of the paper's tables that has a column for each method.

    Attributes
    ----------
    label
        In the paper's source.
    methods
        The columns.
    text
        A line for each row: the split, ``ID`` or ``OOD``, or the property, ``HOMO`` or ``LUMO``;
        the measure; then a cell for each column.
    """

    label: str
    methods: tuple[str, ...]
    text: str

    def entries(self) -> Iterator[tuple[tuple[str, str, str], Reported]]:
        """The numbers, each after its experiment, method and measure."""
        for line in self.text.strip().splitlines():
            split, measure, *cells = line.split()
            for method, cell in zip(self.methods, cells, strict=True):
                yield (_SPLITS[split], method, measure), _parse(cell)


def _parse(cell: str) -> Reported:
    """Read a cell.

    >>> _parse("1.30e-05±5.58e-06"), _parse("00:08:28"), _parse("37.1").std
    (Reported(mean=1.3e-05, std=5.58e-06), Reported(mean=508.0, std=None), None)
    """
    if ":" in cell:
        seconds = 0
        for part in cell.split(":"):
            seconds = 60 * seconds + int(part)
        return Reported(float(seconds))
    mean, _, std = cell.partition("±")
    return Reported(float(mean), float(std) if std else None)


_TWO_BODY = ("two-body", "two-body-ood")
_TWO_BODY_3 = ("two-body-3", "two-body-3-ood")
_ERRORS = ("mse", "equivariance")
_TIMES = ("train-seconds", "test-seconds")

_VECTOR_TABLES = (
    Table(
        "tab:results_nbody2_app",
        _TWO_BODY,
        _ERRORS,
        """
    emlp                1.74e-06±1.50e-06  5.32e-05±1.16e-05  4.64e-06±4.86e-06  5.27e-05±1.10e-05
    trivial             5.16e-03±2.79e-03  2.48e-02±7.37e-03  1.86e-02±3.74e-03  3.33e-02±2.56e-03
    oracle              2.13e-05±1.56e-05  3.03e-03±1.03e-03  3.03e-05±8.81e-06  3.70e-03±1.14e-03
    augerino-mask0      5.28e+00±4.23e-01  1.90e-01±1.92e-03  3.26e+00±7.30e-01  1.94e-01±4.15e-03
    liegan-mask0        3.23e-03±6.25e-04  1.91e-02±1.47e-03  1.15e-02±3.00e-03  2.84e-02±3.04e-03
    lieaugmenter-mask0  1.39e-05±6.08e-07  2.78e-03±4.88e-04  2.38e-05±9.04e-06  2.59e-03±9.89e-05
    augerino-mask2      9.67e+03±1.37e+04  2.37e-01±7.53e-02  1.48e+05±2.09e+05  1.95e-01±9.23e-03
    liegan-mask2        1.10e-03±6.98e-04  1.48e-02±4.80e-03  8.94e-03±9.31e-04  2.73e-02±1.10e-03
    lieaugmenter-mask2  1.30e-05±5.58e-06  3.28e-03±9.36e-04  3.73e-05±2.97e-05  5.96e-03±2.82e-03
    augerino-mask4      1.79e+00±2.77e-02  1.87e-01±2.92e-04  1.55e+00±8.59e-03  1.86e-01±5.90e-04
    liegan-mask4        2.85e-05±1.19e-05  3.02e-03±5.08e-04  5.12e-05±8.47e-06  2.78e-03±3.62e-04
    lieaugmenter-mask4  1.45e-05±6.15e-06  3.15e-03±9.78e-04  1.61e-05±1.22e-06  3.13e-03±2.79e-04
        """,
    ),
    Table(
        "tab:equiv_error_nbody",
        _TWO_BODY,
        ("equivariance-2",),
        """
    emlp                8.08e-05±1.76e-05  8.02e-05±1.72e-05
    trivial             4.84e-02±1.58e-02  8.91e-02±6.24e-03
    oracle              6.35e-03±1.44e-03  6.53e-03±1.25e-03
    augerino-mask0      4.20e-01±1.85e-03  4.21e-01±6.31e-03
    liegan-mask0        3.93e-02±1.73e-03  7.25e-02±1.01e-02
    lieaugmenter-mask0  5.75e-03±2.26e-04  4.53e-03±2.52e-04
    augerino-mask2      4.30e-01±5.04e-02  4.00e-01±6.40e-02
    liegan-mask2        2.83e-02±8.22e-03  6.68e-02±2.19e-03
    lieaugmenter-mask2  5.34e-03±1.35e-03  9.61e-03±4.93e-03
    augerino-mask4      4.16e-01±1.64e-03  4.16e-01±3.58e-05
    liegan-mask4        6.03e-03±8.00e-04  7.08e-03±1.67e-03
    lieaugmenter-mask4  6.17e-03±1.61e-03  5.79e-03±7.28e-04
        """,
    ),
    Table(
        "tab:times_nbody2",
        _TWO_BODY,
        _TIMES,
        """
    emlp                21:34  00:02  21:13  00:02
    trivial             02:00  00:00  02:01  00:00
    oracle              02:48  00:00  03:10  00:00
    augerino-mask0      05:25  00:02  05:25  00:02
    liegan-mask0        05:29  00:00  05:25  00:00
    lieaugmenter-mask0  08:18  00:00  08:20  00:00
    augerino-mask2      05:40  00:02  05:32  00:02
    liegan-mask2        05:19  00:00  05:15  00:00
    lieaugmenter-mask2  08:28  00:00  08:26  00:00
    augerino-mask4      05:33  00:02  05:30  00:02
    liegan-mask4        05:22  00:00  05:26  00:00
    lieaugmenter-mask4  08:27  00:00  08:26  00:00
        """,
    ),
    Table(
        "tab:results_nbody2_masks_t3",
        _TWO_BODY_3,
        _ERRORS,
        """
    emlp                4.54e-06±2.20e-06  2.91e-05±4.71e-06  6.30e-06±3.68e-06  2.90e-05±4.79e-06
    trivial             9.62e-03±4.32e-03  3.58e-02±7.57e-03  1.45e-02±1.30e-03  3.51e-02±1.39e-03
    oracle              3.96e-05±1.75e-05  5.08e-03±1.19e-03  4.92e-05±2.25e-05  3.88e-03±6.66e-04
    augerino-mask0      4.03e+00±3.49e-01  1.91e-01±2.17e-03  2.68e+00±4.94e-01  1.98e-01±9.13e-03
    liegan-mask0        8.83e-03±2.72e-03  3.59e-02±5.83e-03  1.88e-02±4.80e-03  4.15e-02±5.98e-03
    lieaugmenter-mask0  5.98e-05±2.17e-05  4.07e-03±1.50e-03  1.59e-04±1.93e-04  4.90e-03±1.88e-03
    augerino-mask2      8.70e+00±1.00e+01  1.96e-01±8.81e-03  1.09e+01±1.33e+01  1.87e-01±8.77e-03
    liegan-mask2        2.71e-03±2.39e-04  2.26e-02±1.16e-03  1.83e-02±4.37e-03  4.05e-02±3.98e-03
    lieaugmenter-mask2  1.75e-05±6.22e-06  4.58e-03±4.07e-04  3.67e-04±1.10e-04  7.97e-03±1.45e-03
    augerino-mask4      1.72e+00±1.03e-01  1.88e-01±1.83e-03  1.64e+00±7.75e-02  1.88e-01±2.73e-03
    liegan-mask4        8.86e-05±7.58e-05  4.24e-03±1.10e-03  7.94e-05±2.55e-05  4.78e-03±7.64e-04
    lieaugmenter-mask4  2.85e-05±3.92e-06  3.97e-03±6.82e-04  5.32e-05±1.28e-05  4.22e-03±1.75e-04
        """,
    ),
    Table(
        "tab:equiv_error_nbody_t3",
        _TWO_BODY_3,
        ("equivariance-2",),
        """
    emlp                4.47e-05±7.24e-06  4.46e-05±7.31e-06
    trivial             7.17e-02±1.53e-02  8.36e-02±3.20e-03
    oracle              1.10e-02±3.29e-03  8.62e-03±8.36e-04
    augerino-mask0      4.22e-01±3.07e-03  4.22e-01±8.34e-03
    liegan-mask0        7.20e-02±1.13e-02  9.55e-02±1.45e-02
    lieaugmenter-mask0  7.62e-03±1.95e-03  1.04e-02±4.38e-03
    augerino-mask2      4.13e-01±1.26e-02  4.13e-01±1.53e-03
    liegan-mask2        4.36e-02±2.40e-03  9.53e-02±1.06e-02
    lieaugmenter-mask2  8.50e-03±8.16e-04  2.13e-02±2.66e-03
    augerino-mask4      4.19e-01±4.20e-03  4.20e-01±3.19e-03
    liegan-mask4        8.10e-03±1.21e-03  9.62e-03±3.32e-03
    lieaugmenter-mask4  8.37e-03±9.29e-04  8.11e-03±3.96e-04
        """,
    ),
    Table(
        "tab:times_nbody2_t3",
        _TWO_BODY_3,
        _TIMES,
        """
    emlp                17:32  00:02  16:55  00:02
    trivial             01:36  00:00  01:32  00:00
    oracle              02:34  00:00  02:33  00:00
    augerino-mask0      04:20  00:01  04:20  00:01
    liegan-mask0        04:22  00:00  04:21  00:00
    lieaugmenter-mask0  06:37  00:00  06:35  00:00
    augerino-mask2      04:20  00:01  04:23  00:01
    liegan-mask2        04:16  00:00  04:16  00:00
    lieaugmenter-mask2  06:43  00:00  06:40  00:00
    augerino-mask4      04:21  00:01  04:25  00:01
    liegan-mask4        04:17  00:00  04:13  00:00
    lieaugmenter-mask4  06:46  00:00  06:48  00:00
        """,
    ),
    Table(
        "tab:results_discrete_rotation",
        ("discrete-rotation",),
        _ERRORS,
        """
    trivial                  4.06e-03±3.02e-04  9.57e-02±1.54e-03
    oracle                   2.10e-02±1.19e-03  2.31e-03±2.36e-04
    augerino                 2.09e-02±5.56e-04  1.08e-02±4.22e-03
    liegan                   2.10e-02±1.10e-03  3.28e-03±3.45e-04
    lieaugmenter-continuous  2.12e-02±1.24e-03  2.46e-03±3.29e-04
    lieaugmenter-discrete    3.36e-03±4.56e-04  3.09e-02±1.80e-03
        """,
    ),
    Table(
        "tab:equiv_error_discreterot",
        ("discrete-rotation",),
        ("equivariance-2",),
        """
    trivial                  1.24e-01±2.39e-03
    oracle                   2.91e-03±2.35e-04
    augerino                 1.36e-02±5.32e-03
    liegan                   4.21e-03±4.20e-04
    lieaugmenter-continuous  3.18e-03±4.07e-04
    lieaugmenter-discrete    4.41e-02±2.06e-03
        """,
    ),
    Table(
        "tab:results_discrete_rotation_app",
        ("discrete-rotation",),
        _TIMES,
        """
    trivial                  00:03:31  00:00:00
    oracle                   00:05:35  00:00:00
    augerino                 00:09:29  00:00:01
    liegan                   00:09:21  00:00:00
    lieaugmenter-continuous  00:14:24  00:00:00
    lieaugmenter-discrete    00:14:51  00:00:00
        """,
    ),
    Table(
        "tab:results_partial_permutation",
        ("partial-permutation",),
        _ERRORS,
        """
    trivial                  1.97e+03±1.20e+03  1.23e+01±3.21e+00
    oracle                   1.69e+03±8.44e+02  1.41e+01±2.06e+00
    augerino                 3.38e+03±8.96e+02  2.52e+01±4.52e+00
    liegan                   1.24e+04±2.90e+03  1.05e+01±2.12e+00
    lieaugmenter-continuous  1.77e+03±3.57e+02  1.37e+01±4.55e+00
    lieaugmenter-discrete    1.49e+03±6.55e+01  1.19e+01±2.76e+00
        """,
    ),
    Table(
        "tab:equiv_error_partialperm",
        ("partial-permutation",),
        ("equivariance-2",),
        """
    trivial                  1.58e+01±4.25e+00
    oracle                   1.80e+01±2.68e+00
    augerino                 3.20e+01±5.35e+00
    liegan                   1.34e+01±2.59e+00
    lieaugmenter-continuous  1.75e+01±5.80e+00
    lieaugmenter-discrete    1.49e+01±3.45e+00
        """,
    ),
    Table(
        "tab:results_partial_permutation_app",
        ("partial-permutation",),
        _TIMES,
        """
    trivial                  00:03:40  00:00:00
    oracle                   00:05:33  00:00:00
    augerino                 00:09:55  00:00:01
    liegan                   00:09:54  00:00:00
    lieaugmenter-continuous  00:15:09  00:00:00
    lieaugmenter-discrete    00:15:04  00:00:00
        """,
    ),
    Table(
        "tab:performance_no_symmetry",
        ("no-symmetry",),
        ("mse",),
        """
    trivial       2.29e-04±1.86e-04
    oracle        6.31e-04±4.24e-04
    augerino      2.22e-04±1.12e-04
    liegan        6.30e-04±4.31e-04
    lieaugmenter  1.99e-04±7.23e-05
        """,
    ),
    Table(
        "tab:metrics_no_symmetry",
        ("no-symmetry",),
        ("displacement", "distance"),
        """
    augerino      262.8388±199.6667  176.3353±192.0428
    liegan        6.9031±0.0805      3.4250±0.1813
    lieaugmenter  10.6570±4.4892     5.5936±0.0123
        """,
    ),
    Table(
        "tab:time_nosymmetry",
        ("no-symmetry",),
        _TIMES,
        """
    trivial       00:44  00:00
    oracle        01:12  00:00
    augerino      02:00  00:01
    liegan        03:28  00:00
    lieaugmenter  03:06  00:00
        """,
    ),
)

_IMAGE_METHODS = ("gcnn", "trivial", "oracle", "augerino", "liegan", "lieaugmenter")
_ALTERNATIVE_METHODS = ("oracle", "liegan", "lieaugmenter")

_TURNED_TABLES = (
    TurnedTable(
        "tab:results_rotmnist",
        _IMAGE_METHODS,
        """
    ID   accuracy      96.78±0.36  96.17±0.34  99.06±0.00  96.85±0.30  98.69±0.16  99.08±0.06
    ID   equivariance   5.31±1.16   5.52±0.23   4.01±0.29   5.09±0.70   5.04±0.19   3.10±0.32
    OOD  accuracy      55.60±1.45  55.24±1.14  99.09±0.08  57.68±1.45  91.59±1.07  90.82±6.49
    OOD  equivariance   5.78±1.23   7.19±0.54   3.87±0.35   3.97±0.51   5.82±0.47   3.26±0.62
        """,
    ),
    TurnedTable(
        "tab:equiv_err_rotmnist",
        _IMAGE_METHODS,
        """
    ID   equivariance-2  6.51±1.41  6.69±0.24  4.86±0.36  6.35±0.98  6.12±0.25  3.82±0.38
    OOD  equivariance-2  7.16±1.52  8.74±0.61  4.75±0.38  5.26±0.72  7.17±0.50  4.12±0.75
        """,
    ),
    TurnedTable(
        "tab:time_rotmnist",
        _IMAGE_METHODS,
        """
    ID   train-seconds  03:26  01:52  06:55  04:30  06:15  07:47
    ID   test-seconds   00:00  00:00  00:02  00:03  00:01  00:01
    OOD  train-seconds  03:56  01:50  06:57  04:47  05:03  07:04
    OOD  test-seconds   00:00  00:00  00:02  00:03  00:01  00:01
        """,
    ),
    TurnedTable(
        "tab:results_rotmnist_app",
        _ALTERNATIVE_METHODS,
        """
    ID   accuracy-direct      98.45±0.11  97.84±0.13  98.55±0.08
    ID   equivariance-direct   3.91±0.23   4.92±0.74   3.72±0.15
    OOD  accuracy-direct      98.35±0.11  84.97±0.43  93.40±2.46
    OOD  equivariance-direct   4.03±0.17   6.80±0.85   3.40±0.47
        """,
    ),
    TurnedTable(
        "tab:equiv_err_rotmnist_alt_inf",
        _IMAGE_METHODS,
        """
    ID   equivariance-2-direct  6.51±1.41  6.69±0.24  4.72±0.27  6.35±0.98  5.95±0.87  4.54±0.17
    OOD  equivariance-2-direct  7.16±1.52  8.74±0.61  4.96±0.13  5.26±0.72  8.35±0.97  4.29±0.56
        """,
    ),
    TurnedTable(
        "tab:time_rotmnist_alt_inf",
        _ALTERNATIVE_METHODS,
        """
    ID   train-seconds-direct  03:03  09:45  10:44
    ID   test-seconds-direct   00:00  00:00  00:00
    OOD  train-seconds-direct  06:57  06:18  10:48
    OOD  test-seconds-direct   00:00  00:00  00:00
        """,
    ),
)

_TISSUE = "NCT-CRC-HE-100K"
_IMAGE_ERRORS = ("accuracy", "equivariance")

_IMAGE_TABLES = (
    Table(
        "tab:ablation_gamma",
        ("rotated-mnist-ablations",),
        ("accuracy", "cosine"),
        """
    lieaugmenter-range-1   97.73±0.17  0.9999±0.0001
    lieaugmenter-range-2   98.04±0.22  1.0000±0.0000
    lieaugmenter-range-3   99.08±0.06  0.9997±0.0002
    lieaugmenter-range-5   95.97±3.24  0.7860±0.3026
    lieaugmenter-range-8   93.11±3.79  0.5706±0.3571
    lieaugmenter-range-9   94.93±4.94  0.6783±0.4549
    lieaugmenter-range-10  92.56±4.19  0.6273±0.2656
    lieaugmenter-range-11  89.28±2.96  0.3709±0.2551
    lieaugmenter-range-12  96.74±2.14  0.6881±0.4381
    lieaugmenter-range-13  96.98±0.72  0.9812±0.0178
    lieaugmenter-range-14  93.32±2.99  0.7236±0.2095
    lieaugmenter-range-15  91.89±2.20  0.5346±0.0607
    lieaugmenter-range-16  93.52±0.91  0.2104±0.1597
    lieaugmenter-range-17  90.28±3.33  0.2779±0.1739
    lieaugmenter-range-21  89.00±4.13  0.0006±0.0006
        """,
        paper_only=tuple(f"lieaugmenter-range-{n}" for n in (9, 10, 11, 12, 14, 15, 16, 17)),
    ),
    Table(
        "tab:results_crc",
        ("histology-cnn",),
        _IMAGE_ERRORS,
        """
    trivial       84.87±4.44  2.95±0.15
    oracle        85.27±3.34  1.75±0.29
    lieaugmenter  89.42±0.89  1.86±0.21
        """,
        other_data=_TISSUE,
    ),
    Table(
        "tab:results_crc",
        ("histology-efficientnet",),
        _IMAGE_ERRORS,
        """
    trivial       93.04±1.18  2.55±0.24
    oracle        93.35±1.93  1.49±0.14
    lieaugmenter  92.74±2.55  1.21±0.10
        """,
        other_data=_TISSUE,
    ),
    Table(
        "tab:results_crc",
        ("histology-vit",),
        _IMAGE_ERRORS,
        """
    trivial       75.69±3.90  2.02±0.42
    oracle        81.16±2.67  1.09±0.07
    lieaugmenter  85.63±2.93  0.82±0.15
        """,
        other_data=_TISSUE,
    ),
)

_ORBITALS = ("qm9-homo", "qm9-lumo")
_MOLECULE_TABLES = (
    TurnedTable(
        "tab:results_qm9",
        ("trivial", "oracle", "augerino-widths", "liegan", "lieaugmenter"),
        """
    HOMO  mae  52.7  36.5  38.3  43.5  37.1
    LUMO  mae  43.5  29.8  33.7  36.4  30.7
        """,
    ),
    Table(
        "tab:results_qm9_app",
        _ORBITALS,
        _TIMES,
        """
    lieaugmenter  15:17:12  00:00:04  15:19:15  00:00:04
        """,
    ),
    Table(
        "tab:equiv_error_qm9",
        _ORBITALS,
        ("equivariance-2",),
        """
    lieaugmenter  0.0045  0.0019
        """,
    ),
)

TABLES: tuple[Table | TurnedTable, ...] = (
    *_VECTOR_TABLES,
    *_TURNED_TABLES,
    *_IMAGE_TABLES,
    *_MOLECULE_TABLES,
)

_ALL: Mapping[tuple[str, str, str], Reported] = {
    key: reported for table in TABLES for key, reported in table.entries()
}
_PAPER_ONLY_METHODS = {method for table in _IMAGE_TABLES for method in table.paper_only}

TARGETS: Mapping[tuple[str, str, str], Reported] = {
    key: reported for key, reported in _ALL.items() if key[1] not in _PAPER_ONLY_METHODS
}
# What the paper reports of methods that no experiment here has, with the same keys.
PAPER_ONLY: Mapping[tuple[str, str, str], Reported] = {
    key: reported for key, reported in _ALL.items() if key[1] in _PAPER_ONLY_METHODS
}
# Experiments that have other data than the paper's, with the paper's.
OTHER_DATA: Mapping[str, str] = {
    name: table.other_data
    for table in _IMAGE_TABLES
    for name in table.experiments
    if table.other_data
}

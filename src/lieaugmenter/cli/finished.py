"""Commands on a finished run: report and export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from lieaugmenter.cli.answers import answer, as_text
from lieaugmenter.cli.options import Json
from lieaugmenter.cli.program import app
from lieaugmenter.export import load_predictor, manifest_of_run, save_manifest, save_program
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.html import write_report
from lieaugmenter.runs import RunFolder, write_atomically


@app.command
def report(
    run: Path,
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    json: Json = False,
) -> int:
    """Write the report of a finished run again.

    Parameters
    ----------
    run
        The run folder.
    out
        The .html file; report.html in the run folder unless given.
    """
    folder = finished_run(run)
    path = write_report(Findings.load(folder), out or folder.path / "report.html")
    answer({"report": str(path)}, as_json=json, text=f"report: {path}")
    return 0


@app.command
def export(
    run: Path,
    *,
    to: Literal["json", "latex", "sympy", "torch"] = "json",
    learned: Annotated[bool, Parameter(negative="")] = False,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    json: Json = False,
) -> int:
    """Print what a finished run found in another form, or write it to a file.

    Parameters
    ----------
    run
        The run folder.
    to
        A manifest in JSON, a table for a LaTeX document, matrices of SymPy, or the predictor as a
        program of torch.export, which needs torch alone.
    learned
        Formulas of the generators as learned, also where the algebra has a name; a manifest has
        both.
    out
        The file; to torch it must be given. A manifest is two: its tensors lie beside it as
        .safetensors.
    """
    if learned and to in ("json", "torch"):
        raise ValueError(
            "--learned is for formulas, --to latex or sympy: a manifest holds the generators as "
            "learned, and the exact ones beside them"
        )
    folder = finished_run(run)
    if to == "torch":
        if out is None:
            raise ValueError("--to torch writes a file; name it, for example -o predictor.pt2")
        found = load_predictor(folder.path)
        out = save_program(found.module, found.sample_shape, out)
        answer({"export": str(out)}, as_json=json, text=f"export: {out}")
        return 0
    manifest = manifest_of_run(folder)
    content = manifest.export(to, **({"exact": False} if learned else {}))
    text = as_text(content) if to == "json" else str(content)
    if out is None:
        # Not on the console, which would take a name between colons for an emoji.
        print(as_text({to: text}) if json and to != "json" else text)
        return 0
    if to == "json":
        out = save_manifest(manifest, out)
    else:
        write_atomically(out, text + "\n")
    answer({"export": str(out)}, as_json=json, text=f"export: {out}")
    return 0


def finished_run(run: Path) -> RunFolder:
    """The folder of a run that has come to its end."""
    folder = RunFolder.open(run)
    folder.check_finished()
    return folder

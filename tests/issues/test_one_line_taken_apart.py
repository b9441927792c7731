"""qtoolkit (jobflow-remote) takes `scontrol show job -o ID` apart at its blanks, and each piece at
its first "=". That works with every Slurm that has no `SubmitLine`, a field full of blanks."""

from __future__ import annotations

from unit.test_scontrol import cluster, shown_job
from views_support import invoke

from gsched_cli.scontrol import run


def test_each_piece_of_a_job_in_one_line_is_key_and_value() -> None:
    out, err, code = invoke(run, ["show", "job", "-o", "239"], cluster(shown_job(comment="")))
    assert (err, code) == ("", 0)
    pieces = dict(piece.split("=", 1) for piece in out.split())
    assert pieces["JobState"] == "RUNNING"
    assert (pieces["NumNodes"], pieces["NumCPUs"], pieces["TimeLimit"]) == ("2", "4", "00:20:00")


def test_several_lines_have_the_submit_line() -> None:
    out, _, _ = invoke(run, ["show", "job", "239"], cluster(shown_job()))
    assert "   SubmitLine=sbatch -J shown " in out, "as in the transcripts of 26.05"

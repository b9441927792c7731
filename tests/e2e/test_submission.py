"""What happens around a submission on a living cluster: a site's filter, licences, mail, components
of heterogeneous jobs, and the question when a job could start.
"""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import LocalCluster, until

FILTER = """
import time


def job_submit(request, uid):
    name = request["name"]
    if name == "refused":
        raise Refuse("say why:\\nno reason given")
    if name == "broken":
        1 / 0
    if name == "slow":
        time.sleep(60)
    if name == "changed":
        request["comment"] = f"uid {uid}"
        request["partitions"] = ["debug"]
    if name == "wrong":
        request["ntasks"] = "many"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with licences, a filter, and a mail program that writes what it is given."""
    base = tmp_path_factory.mktemp("site")
    program = base / "mail"
    program.write_text(f'#!/bin/sh\necho "$2 -> $3" >> {base}/mails\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    made = LocalCluster(
        *("--simulate", "peer", "--set", "KillWait=2", "--set", "Licenses=matlab:3"),
        *("--set", f"MailProg={program}", "--set", "JobSubmitPlugins=python"),
    )
    with made as cluster:
        (cluster.dir / "etc/job_submit.py").write_text(FILTER)
        cluster.base.joinpath("mails").symlink_to(base / "mails")
        yield cluster


def submit(cluster: LocalCluster, *words: str) -> tuple[int, str, str]:
    done = cluster.run(["sbatch", "-o", "/dev/null", *words, "--wrap", "true"], check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_filter_changes_and_refuses(site: LocalCluster) -> None:
    code, out, err = submit(site, "-J", "refused")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "sbatch: error: say why:",
        "sbatch: error: no reason given",
        "sbatch: error: Batch job submission failed: Unspecified error",
    ]
    code, out, err = submit(site, "-J", "changed", "-H")
    assert code == 0, err
    job_id = out.split()[-1]
    shown = site.run(["scontrol", "show", "job", job_id]).stdout
    assert re.search(r"Comment=uid \d+", shown) and "Partition=debug" in shown
    site.run(["scancel", job_id])


def test_a_filter_that_fails_refuses_with_a_sentence(site: LocalCluster) -> None:
    code, _, err = submit(site, "-J", "broken")
    assert code == 1
    assert "job_submit.py: ZeroDivisionError: division by zero, line 10" in err
    assert "Traceback" not in err
    assert "Traceback" in (site.dir / "log/frontend.log").read_text()
    assert "job_submit.py: ntasks: Expected `int`" in submit(site, "-J", "wrong")[2]


def test_a_slow_filter_is_ended_and_holds_nobody_up(site: LocalCluster) -> None:
    begin = time.monotonic()
    code, _, err = submit(site, "-J", "slow")
    assert code == 1 and "job_submit.py: no answer after 5 s" in err
    assert time.monotonic() - begin < 20
    assert submit(site, "-J", "fine")[0] == 0


def test_licences(site: LocalCluster) -> None:
    first = site.sbatch("-L", "matlab:2", "-o", "/dev/null", "--wrap", "sleep 60")
    second = site.sbatch("-L", "matlab:2", "-o", "/dev/null", "--wrap", "true")
    reason = ["squeue", "-h", "-j", str(second), "-o", "%r"]
    until("its reason", lambda: site.run(reason).stdout.strip() == "Licenses")
    assert site.run(["scontrol", "show", "licenses"]).stdout == (
        "LicenseName=matlab\n    Total=3 Used=2 Free=1 Reserved=0 Remote=no\n"
    )
    assert "Invalid license specification" in submit(site, "-L", "matlab:4")[2]
    site.run(["scancel", str(first)])
    site.ended(second)


def test_mail(site: LocalCluster) -> None:
    job_id = site.sbatch(
        *("-J", "m$(id)", "--mail-type=ALL", "--mail-user=bob@example.org", "-o", "/dev/null"),
        *("--wrap", "exit 3"),
    )
    site.ended(job_id)
    mails = Path(site.base / "mails")
    until("both mails", lambda: mails.exists() and len(mails.read_text().splitlines()) == 2)
    began, failed = sorted(mails.read_text().splitlines())
    assert began.startswith(f"Slurm Job_id={job_id} Name=m$(id) Began, Queued time 00:00:0")
    assert re.fullmatch(
        rf"Slurm Job_id={job_id} Name=m\$\(id\) Failed, Run time 00:00:\d\d, FAILED, ExitCode 3 "
        r"-> bob@example.org",
        failed,
    )


def test_when_a_job_could_start(site: LocalCluster) -> None:
    done = site.run(["sbatch", "--test-only", "-N4", "--exclusive", "--wrap", "true"])
    assert done.stdout == ""
    assert re.fullmatch(
        r"sbatch: Job \d+ to start at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d a using 64 processors "
        r"on nodes node\[1-4\] in partition gpu\n",
        done.stderr,
    )
    assert site.run(["squeue", "-h"]).stdout == ""


def test_a_heterogeneous_job(site: LocalCluster) -> None:
    out = site.work / "het"
    script = (
        "#!/bin/bash\n#SBATCH -n1 --gpus=1\n#SBATCH hetjob\n#SBATCH -n2 --exclusive\n"
        "env | grep SLURM | sort\nexit 4\n"
    )
    leader = site.sbatch("-o", str(out), script=script)
    # All of it is given back, and all of it has the script's exit code.
    both = ["squeue", "-h", "-t", "all", "-j", str(leader), "-o", "%i %T"]
    wanted = [f"{leader}+0 FAILED", f"{leader}+1 FAILED"]
    until("both have ended", lambda: sorted(site.run(both).stdout.splitlines()) == wanted)
    told = dict(line.split("=", 1) for line in out.read_text().splitlines())
    assert told["SLURM_HET_SIZE"] == "2" and told["SLURM_JOB_ID_HET_GROUP_1"] == str(leader + 1)
    assert told["SLURM_NTASKS_HET_GROUP_1"] == "2" and told["SLURM_GPUS_HET_GROUP_0"] == "1"
    assert "ExitCode=4:0" in site.run(["scontrol", "show", "job", str(leader + 1)]).stdout


def test_a_component_cannot_be_cancelled_alone(site: LocalCluster) -> None:
    leader = site.sbatch("-H", "-n1", "--wrap", "true", ":", "-n2")
    done = site.run(["scancel", str(leader + 1)], check=False)
    assert done.returncode == 60
    assert "Operation not permitted on individual component of heterogeneous job" in done.stderr
    site.run(["scancel", str(leader)])
    assert site.run(["squeue", "-h", "-j", f"{leader},{leader}"]).stdout == ""

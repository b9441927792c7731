"""Single option values that Slurm refuses, with its sentence and exit code (transcript 004 of
26.05; those marked 22.05 were read off that release)."""

from __future__ import annotations

import pytest
from sbatch_support import sbatch

E = "sbatch: error: "


@pytest.mark.parametrize(
    ("option", "code", "err"),
    [
        ("--nodes=abc", 255, E + '"abc" is not a valid node count'),
        ("--nodes=4-2", 255, E + "Maximum node count 2 is less than minimum node count 4"),
        ("--ntasks=-1", 1, E + 'Invalid numeric value "-1" for --ntasks.'),
        ("-n0", 1, E + 'Invalid numeric value "0" for --ntasks.'),
        ("--cpus-per-task=x", 1, E + 'Invalid numeric value "x" for --cpus-per-task.'),
        ("--mem=12Q", 255, E + "Invalid --mem specification"),
        ("--mem=-4", 255, E + "Invalid --mem specification"),
        ("--time=abc", 255, E + "Invalid --time specification"),
        ("--time=1:2:3:4", 255, E + "Invalid --time specification"),
        ("-t:30", 255, E + "Invalid --time specification"),
        ("--signal=FOO@60", 255, E + "Invalid --signal specification"),
        ("--mail-type=SOMETIMES", 255, E + "Invalid --mail-type specification"),
        ("--exclusive=foo", 255, E + "Invalid --exclusive specification"),
        ("--hint=foo", 1, E + 'unrecognized --hint argument "foo", see --hint=help'),
        ("--distribution=foo", 255, E + "Invalid --distribution specification"),
        ("--open-mode=foo", 255, E + "Invalid --open-mode specification"),
        (
            "--export-file=/nonexistent",
            1,
            E + "Could not open user environment file /nonexistent",
        ),
        ("--uid=nosuch", 255, E + "Invalid --uid specification"),
        ("--gpu-bind=foo", 255, E + "Invalid --gpu-bind argument: foo"),
        ("--wait-all-nodes=3", 255, E + "Invalid --wait-all-nodes specification"),
        (
            "--begin=tomorow",
            255,
            "Invalid time specification (pos=0): tomorow\n" + E + "Invalid --begin specification",
        ),
        (
            "--deadline=yesterday",
            255,
            "Invalid time specification (pos=0): yesterday\n"
            + E
            + "Invalid --deadline specification",
        ),
        (
            "-Fnosuchfile",
            255,
            E
            + "slurm_allocate_resources error opening file nosuchfile, No such file or directory\n"
            + E
            + "Invalid --nodefile node file",
        ),
        (
            "--clusters=nosuch",
            1,
            E
            + "No cluster 'nosuch' known by database.\n"
            + E
            + "'nosuch' can't be reached now, or it is an invalid entry for --cluster.  Use "
            + "'sacctmgr list clusters' to see available clusters.",
        ),
        # 22.05
        (
            "--nice=99999999999",
            255,
            E + "Invalid --nice value, out of range (+/- 2147483645)",
        ),
        ("--priority=-1", 255, E + "Priority must be >= 0"),
        ("--priority=4294967296", 255, E + "Priority must be < 4294967294"),
        ("--switches=x", 1, E + 'Invalid numeric value "x" for --switches.'),
        ("-Bx", 1, E + 'Invalid numeric value "x" for first arg of -B.'),
        ("--no-kill=x", 255, E + "Invalid --no-kill specification"),
        ("--kill-on-invalid-dep=x", 255, E + "Invalid --kill-on-invalid-dep specification"),
        ("--profile=foo", 255, E + "invalid --profile=foo option"),
        ("--gpu-freq=foo", 255, E + "Invalid --gpu-freq argument: gpu:foo"),
        (
            "--cpu-freq=foo",
            255,
            E + 'unrecognized --cpu-freq argument "foo"\n' + E + "Invalid --cpu-freq argument",
        ),
        ("--mem-bind=foo", 255, E + 'unrecognized --mem-bind argument "foo"'),
        ("--gres-flags=foo", 255, E + "Invalid --gres-flags specification"),
        ("--acctg-freq=foo", 255, E + "Invalid --acctg-freq specification: foo"),
        ("--get-user-env=x", 255, E + "Invalid --get-user-env specification"),
    ],
)
def test_refused(option: str, code: int, err: str) -> None:
    ran = sbatch(option, "--wrap", "true", cwd="/nonexistent")
    assert (ran.code, ran.out, ran.err) == (code, "", err + "\n")


@pytest.mark.parametrize(
    "option",
    [
        *("--time=-5", "--nice=abc", "--priority=abc", "--job-name=", "--gpus=0", "--switches=3@5"),
        *("--distribution=block:cyclic", "--distribution=block,pack", "--open-mode=a"),
        *("--gpu-bind=single:2", "--gpu-bind=map_gpu:0,1", "--use-min-nodes", "--oom-kill-step=1"),
        *("--chdir=/nonexistent", "--no-kill=off", "--get-user-env=3L", "--requeue=expedite"),
    ],
)
def test_taken(option: str) -> None:
    assert sbatch(option, "--wrap", "true").code == 0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        *(("5", 300), ("5:30", 360), ("1:02:03", 3780), ("1-2", 93600), ("1-2:3", 93780)),
        *(("1-02:03:04", 93840), ("0", 0), ("UNLIMITED", 0), ("infinite", 0), ("0:30", 60)),
        *(("1500", 90000), ("2-0", 172800), ("00:00:01", 60), ("1-", 86400), ("1:60", 120)),
    ],
)
def test_time_limits(value: str, seconds: int) -> None:
    # As transcript 014 shows them in scontrol.
    assert sbatch("-t", value, "--wrap", "true").sent.spec.time_limit == seconds

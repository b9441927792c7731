"""scontrol show config shows what is set."""

from __future__ import annotations

import pytest
from views_support import FakeReader, invoke

from gsched.config import keys, parse_config
from gsched.config.errors import ConfigError
from gsched_cli.scontrol import run

SMALL = """ClusterName=c
SlurmctldHost=h
NodeName=n[1-2] CPUs=4
PartitionName=p Nodes=ALL Default=YES
"""
#: Slurm shows none of these
NOT_SHOWN = {"accountingstorageloc", "sallocdefaultcommand"}
#: where the usual tries do not do
OTHER_VALUES = {
    "prologflags": "Alloc",
    "slurmctlddebug": "debug",
    "slurmddebug": "debug",
    "priorityweighttres": "CPU=1",
    "priorityflags": "MAX_TRES",
    "propagateresourcelimits": "CORE",
    "propagateresourcelimitsexcept": "CORE",
    "preemptmode": "CANCEL",
    "requeuefence": "proof",
    "slurmuser": "daemon",
    "slurmduser": "daemon",
    "licenses": "a:3",
    "accountingstorageenforce": "qos",
    "jobrequeue": "0",
    "returntoservice": "1",
    "mpidefault": "pmi2",
    "killonbadexit": "1",
    "jobfileappend": "1",
    "privatedata": "jobs",
}


def cluster() -> FakeReader:
    return FakeReader(clock=1795960000.0)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        # What a real Slurm 22.05 shows of them.
        ("PrivateData=users,jobs,reservations", "jobs,reservations,users"),
        (
            "PrivateData=all",
            "accounts,cloud,events,jobs,nodes,partitions,reservations,usage,users",
        ),
        ("LaunchParameters=use_interactive_step,slurmstepd_memlock", "as said"),
        ("MpiDefault=pmi2", "pmi2"),
        ("KillOnBadExit=1", "1"),
        ("WaitTime=7", "7 sec"),
        ("EnforcePartLimits=YES", "ANY"),
        ("AccountingStorageEnforce=all", "associations,limits,qos,safe,wckeys"),
        ("AccountingStorageEnforce=limits", "associations,limits"),
        ("OverTimeLimit=5", "5 min"),
        ("PrologFlags=Contain,Alloc", "Alloc,Contain"),
        ("PrologFlags=contain", "Alloc,Contain"),
        ("TaskPluginParam=autobind=cores", "autobind=cores"),
        ("ResvOverRun=5", "5 min"),
        ("SrunPortRange=6000-6100", "6000-6100"),
        ("PriorityFlags=max_tres", "MAX_TRES"),
        ("HealthCheckNodeState=IDLE,ALLOC", "IDLE,ALLOC"),
        ("HealthCheckInterval=60", "60 sec"),
        ("SlurmctldDebug=4", "verbose"),
        ("PropagateResourceLimitsExcept=MEMLOCK", "MEMLOCK"),
        ("UnkillableStepTimeout=120", "120 sec"),
        ("JobRequeue=0", "0"),
        ("PreemptMode=REQUEUE,GANG", "GANG,REQUEUE"),
        ("Licenses=a:3,b:1", "a:3,b:1"),
        ("JobFileAppend=1", "1"),
        ("PriorityMaxAge=1-0", "1-00:00:00"),
        ("PreemptExemptTime=00:10:00", "00:10:00"),
        ("CommunicationParameters=NoAddrCache", "NoAddrCache"),
        ("DependencyParameters=kill_invalid_depend", "kill_invalid_depend"),
        ("PrologEpilogTimeout=33", "33"),
        ("MailDomain=example.org", "example.org"),
        ("TopologyParam=TopoOptional", "TopoOptional"),
        ("ProctrackType=proctrack/linuxproc", "proctrack/linuxproc"),
        ("InactiveLimit=10", "10 sec"),
        ("SallocDefaultCommand=/bin/sh", None),
        ("TaskProlog=/etc/task", "/etc/task"),
        ("SrunEpilog=/etc/e", "/etc/e"),
        ("InteractiveStepOptions=--pty", "--pty"),
    ],
)
def test_what_is_configured_is_shown(said: str, shown: str | None) -> None:
    key, _, value = said.partition("=")
    reader = cluster()
    reader.conf = parse_config({"slurm.conf": f"{SMALL}{said}\n"})
    out, err, code = invoke(run, ["show", "config", key], reader)
    text = value if shown == "as said" else shown
    # Keys of former releases are not shown.
    assert (out, err, code) == ("" if text is None else f"{key:<23} = {text}\n", "", 0)


@pytest.mark.parametrize("key", sorted({*keys.FIELDS, *keys.AS_WRITTEN} - NOT_SHOWN))
def test_every_key_that_is_heeded_is_shown_as_it_is_set(key: str) -> None:
    """No row of it is a constant: another value gives another line."""

    def shown(text: str) -> str:
        reader = cluster()
        reader.conf = parse_config({"slurm.conf": f"{SMALL}{text}\n"})
        return invoke(run, ["show", "config"], reader)[0]

    word = OTHER_VALUES.get(key)
    tries = [word] if word else ["17", "/some/path", "ANY", "yes", "DAILY", "jobs", "plugin/x"]
    for value in tries:
        try:
            # The cluster's own lines go before.
            lines = [line for line in SMALL.splitlines() if not line.lower().startswith(f"{key}=")]
            text = "\n".join([*lines, f"{key}={value}"])
            reader = cluster()
            reader.conf = parse_config({"slurm.conf": f"{text}\n"})
        except ConfigError:
            continue
        assert invoke(run, ["show", "config"], reader)[0] != shown(""), (key, value)
        return
    raise AssertionError(f"no value for {key}")

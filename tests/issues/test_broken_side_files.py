"""A mistake in topology.conf, gres.conf or cgroup.conf stopped every command that reads slurm.conf,
and the frontends' new workers: only who goes by a file is told of it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from views_support import FakeReader

from gsched.config import ConfigError, load_config
from gsched.controller.verbs.reconfigure import NotTaken, Reload
from gsched.local import files
from gsched.local.cluster import Cluster
from gsched.local.command import group
from gsched.local.conf import Layout
from gsched.wire.identity import Admission
from gsched_cli import scontrol, sinfo
from gsched_cli.common import Streams
from slurmd_compat.configless import NEEDS

CONF = """\
ClusterName=c
SlurmctldHost=ctl
GresTypes=gpu
TopologyPlugin=topology/tree
NodeName=node[1-2] CPUs=4 Gres=gpu:2
PartitionName=p Nodes=ALL Default=YES
"""
GOOD = {
    "gres.conf": "NodeName=node[1-2] Name=gpu File=/dev/nvidia[0-1]\n",
    "cgroup.conf": "ConstrainDevices=yes\n",
    "topology.conf": "SwitchName=s Nodes=node[1-2]\n",
}
#: file -> (its text with a mistake in line 2, what is said of it)
BAD = {
    "gres.conf": ("\nName=gpu Fiel=/dev/nvidia0\n", '"Fiel" is not a key of gres.conf'),
    "cgroup.conf": (
        "\nConstrainDevices=maybe\n",
        '"maybe" is not a valid value for ConstrainDevices',
    ),
    "topology.conf": (
        "SwitchName=s Nodes=node1\nSwitchName=s Nodes=node2\n",
        "Switch (s) has already been defined",
    ),
}


def site(folder: Path, bad: str = "") -> str:
    texts = {"slurm.conf": CONF, **GOOD}
    if bad:
        texts[bad] = BAD[bad][0]
    for name, text in texts.items():
        (folder / name).write_text(text)
    return str(folder / "slurm.conf")


@pytest.mark.parametrize("bad", BAD)
def test_who_goes_by_the_file_is_told_the_line(tmp_path: Path, bad: str) -> None:
    conf = site(tmp_path, bad)
    with pytest.raises(ConfigError) as caught:
        load_config(conf)
    assert str(caught.value).startswith(f"{tmp_path}/{bad}:2: ")
    assert BAD[bad][1] in str(caught.value)


@pytest.mark.parametrize("bad", BAD)
def test_who_does_not_goes_on(tmp_path: Path, bad: str) -> None:
    conf = site(tmp_path, bad)
    config = load_config(conf, needs=())
    assert list(config.broken) == [bad]
    assert config.broken[bad].startswith(f"{tmp_path}/{bad}:2: ")
    assert list(config.nodes) == ["node1", "node2"]
    # What the other files say is not lost.
    said = {
        "gres.conf": bool(config.gres),
        "cgroup.conf": config.cgroup.constrain_devices,
        "topology.conf": bool(config.switches),
    }
    assert said == {name: name != bad for name in BAD}


@pytest.mark.parametrize("bad", BAD)
def test_a_file_that_cannot_be_read_is_a_mistake_in_it(tmp_path: Path, bad: str) -> None:
    conf = site(tmp_path)
    (tmp_path / bad).unlink()
    (tmp_path / bad).mkdir()
    config = load_config(conf, needs=())
    assert config.broken == {bad: f"{tmp_path}/{bad}: cannot read it: Is a directory"}


def test_gres_conf_with_too_few_devices(tmp_path: Path) -> None:
    conf = site(tmp_path)
    (tmp_path / "gres.conf").write_text("NodeName=node2 Name=gpu File=/dev/nvidia0\n")
    assert "slurm.conf promises 2" in load_config(conf, needs=()).broken["gres.conf"]


def test_a_mistake_in_slurm_conf_is_everybody_s(tmp_path: Path) -> None:
    conf = site(tmp_path)
    (tmp_path / "slurm.conf").write_text(f"{CONF}Foo=1\n")
    with pytest.raises(ConfigError):
        load_config(conf, needs=())


def test_a_node_does_not_go_by_the_network(tmp_path: Path) -> None:
    conf = site(tmp_path, "topology.conf")
    assert load_config(conf, needs=NEEDS).broken
    for bad in ("gres.conf", "cgroup.conf"):
        with pytest.raises(ConfigError):
            load_config(site(tmp_path, bad), needs=NEEDS)


@pytest.mark.parametrize("bad", BAD)
def test_reconfigure_keeps_what_was(tmp_path: Path, bad: str) -> None:
    """A controller that is told to read its files anew names the line and keeps the old ones."""
    old = load_config(site(tmp_path))
    reload = Reload(old, Admission(frozenset(), {}))
    site(tmp_path, bad)
    with pytest.raises(NotTaken) as caught:
        reload.read()
    assert str(caught.value).startswith(f"{tmp_path}/{bad}:2: ")
    assert reload.config is old


def run(conf: str, command: str, *argv: str) -> tuple[int, str, str]:
    streams = Streams(io.StringIO(), io.StringIO(), io.StringIO())
    reader = FakeReader(conf=load_config(conf, needs=()))
    one = {"sinfo": sinfo.run, "scontrol": scontrol.run}[command]
    code = one(argv, {}, "/", streams, reader)
    return code, streams.stdout.getvalue(), streams.stderr.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("bad", BAD)
def test_commands_that_do_not_need_the_file(tmp_path: Path, bad: str) -> None:
    conf = site(tmp_path, bad)
    for argv in (("scontrol", "show", "partition"), ("scontrol", "show", "config"), ("sinfo",)):
        code, out, err = run(conf, *argv)
        assert (code, err) == (0, "")
        assert out


def test_the_command_that_shows_the_network(tmp_path: Path) -> None:
    code, out, err = run(site(tmp_path, "topology.conf"), "scontrol", "show", "topology")
    assert (code, out) == (1, "")
    assert err.startswith(f"scontrol: fatal: {tmp_path}/topology.conf:2: Switch (s) has already")
    code, out, err = run(site(tmp_path, "gres.conf"), "scontrol", "show", "topology")
    assert (code, err) == (0, "")
    assert out.startswith("SwitchName=s")


def test_gsched_up_names_the_line_and_status_does_not_mind(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "c")
    files.make_run(layout)
    files.prepare(layout, files.Options(nodes=2, simulate="peer"))
    (layout.etc / "cgroup.conf").write_text(BAD["cgroup.conf"][0])
    said = CliRunner().invoke(group, ["up", "--dir", str(layout.dir)])
    assert isinstance(said.exception, files.FilesError)
    assert str(said.exception).startswith(f"{layout.etc}/cgroup.conf:2: ")
    assert len(Cluster.load(layout.dir).node_names) == 2

"""The parcel of files for nodes that have none."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gsched.config import ConfigError, load_config, parse_config
from gsched.config.bundle import MAX_BYTES, bundle, pack, unpack
from gsched.controller.configless import Files
from gsched.wire.codec import decode
from gsched.wire.nodes import ConfigFiles, ToNode
from gsched.wire.process import ProcessProblem
from slurmd_compat.configless import renew, servers

CONF = """\
ClusterName=c1
SlurmctldHost=ctl  # a remark
Include nodes-%c.conf
SlurmctldParameters=enable_configless
MailProg="/bin/my\\#mail"
PartitionName=gpu Nodes=ALL \\
  Default=YES
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "nodes-c1.conf").write_text("GresTypes=gpu\nNodeName=n[1-2] Gres=gpu:1\n")
    (tmp_path / "gres.conf").write_text("Name=gpu File=/dev/nvidia0\n")
    (tmp_path / "job_submit.py").write_text("secret")
    return tmp_path / "slurm.conf"


class Quiet:
    def error(self, text: str) -> None:
        raise AssertionError(text)


def test_what_is_sent_reads_as_what_was_read(site: Path) -> None:
    config = load_config(str(site))
    texts = unpack(pack(bundle(config)))
    assert set(texts) == {"slurm.conf", "gres.conf"}
    there = parse_config(texts)
    assert there.mail_prog == "/bin/my#mail"
    assert there.checksum == config.checksum
    assert there.gres_checksum("n1") == config.gres_checksum("n1")
    assert there.nodes == config.nodes


def test_files_that_have_changed_are_not_given_out(site: Path) -> None:
    config = load_config(str(site))
    site.write_text(CONF + "KillWait=7\n")
    with pytest.raises(ConfigError, match="it has changed since it was read"):
        bundle(config)


def refused(config: Any, log: Any) -> str:
    message = decode(ToNode, Files(config, log).answer("n1", 0.0) or b"")
    assert isinstance(message, ConfigFiles)
    assert bool(message.data) != bool(message.refused)
    return message.refused


def test_only_where_it_is_enabled_and_not_too_often(site: Path) -> None:
    config = load_config(str(site))
    assert refused(config, Quiet()) == ""
    files = Files(config, Quiet())
    assert files.answer("n1", 100.0)
    assert files.answer("n1", 100.5) is None
    assert files.answer("n2", 100.5)
    assert files.answer("n1", 101.5)
    site.write_text(CONF.replace("SlurmctldParameters", "#"))
    assert "enable_configless is not set" in refused(load_config(str(site)), Quiet())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        zlib.compress(b"\xc1"),
        pack({"gres.conf": ""}),
        pack({"slurm.conf": "", "../../etc/passwd": "root::0:0"}),
        pack({"slurm.conf": "#" * (MAX_BYTES + (1 << 17))}),
        pack({"slurm.conf": "x"})[:-5],
        zlib.compress(msgspec.msgpack.encode(["slurm.conf"])),
    ],
)
def test_a_bad_parcel_changes_nothing(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("old")
    assert renew(data, "n1", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["slurm.conf"]
    assert (tmp_path / "slurm.conf").read_text() == "old"


def test_a_new_parcel_replaces_all_files(site: Path, tmp_path: Path) -> None:
    data = pack(bundle(load_config(str(site))))
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "cgroup.conf").write_text("ConstrainCores=yes")
    assert renew(data, "n3", cache) == "n3 is not in it"
    assert renew(data, "n2", cache) == ""
    assert sorted(path.name for path in cache.iterdir()) == ["gres.conf", "slurm.conf"]
    assert load_config(str(cache / "slurm.conf")).checksum == load_config(str(site)).checksum


def test_conf_server() -> None:
    assert servers("ctl") == [("ctl", 6817)]
    assert servers("ctl:7000,10.0.0.2") == [("ctl", 7000), ("10.0.0.2", 6817)]
    for text in ("", ":1", "ctl:0", "ctl:x", "ctl,"):
        with pytest.raises(ProcessProblem, match="host:port is expected"):
            servers(text)

"""A cluster on this machine out of somebody's slurm.conf: its nodes, partitions and limits.

The file is taken line by line, so what gsched does not know itself stays as it is; only what ties
it to its own hosts (addresses, ports, directories, users, site scripts) is replaced.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from gsched import hostlist
from gsched.gpushare import KINDS
from gsched.local.shapes import BOXES, fake_nvml_dir

#: more node daemons than this on one machine are a mistake
MAX_NODES = 256

#: keys (lower case) whose values belong to the other cluster's hosts
REPLACED = {
    *("controlmachine", "controladdr", "backupcontroller", "backupaddr"),
    *("slurmctldhost", "slurmctldaddr", "slurmctldport", "slurmdport"),
    *("slurmuser", "slurmduser", "statesavelocation", "slurmdspooldir"),
    *("slurmctldpidfile", "slurmdpidfile", "slurmctldlogfile", "slurmdlogfile"),
    *("slurmctldsyslogdebug", "slurmdsyslogdebug", "slurmschedlogfile"),
    *("slurmdparameters", "srunportrange", "plugstackconfig", "plugindir", "authinfo"),
}

#: keys whose value is a program of the site: kept where the program exists
PROGRAMS = {
    *("prolog", "epilog", "prologslurmctld", "epilogslurmctld", "taskprolog", "taskepilog"),
    *("srunprolog", "srunepilog", "healthcheckprogram", "jobsubmitplugins", "mailprog"),
    *("resumeprogram", "suspendprogram", "resumefailprogram", "rebootprogram", "clifilterplugins"),
    *("unkillablestepprogram", "slurmctldprimaryonprog", "slurmctldprimaryoffprog"),
}


class ImportProblem(Exception):
    """A slurm.conf that cannot be taken over; the text is one sentence with file and line."""


@dataclass
class Imported:
    """What was taken over."""

    lines: list[str] = field(default_factory=list)
    #: node name -> (GPU type, count); nodes without GPUs are absent
    gpus: dict[str, tuple[str, int]] = field(default_factory=dict)
    node_names: list[str] = field(default_factory=list)
    cpus: int = 0
    mem_mb: int = 0
    remarks: list[str] = field(default_factory=list)
    #: topology.conf; "" none
    network: str = ""
    #: lines of gres.conf that are about something else than GPUs
    resources: str = ""


def logical_lines(path: Path, depth: int = 0) -> list[tuple[str, str]]:
    """(place, text) of every line that says something: continued lines joined, Include followed."""
    if depth > 8:
        raise ImportProblem(f"{path}: Include goes more than 8 files deep")
    try:
        raw = path.read_text(errors="surrogateescape").splitlines()
    except OSError as error:
        raise ImportProblem(f"{path}: {error.strerror}") from None
    found: list[tuple[str, str]] = []
    held, place = "", ""
    for number, line in enumerate(raw, 1):
        place = place or f"{path}:{number}"
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        text = re.sub(r"(?<!\\)#.*", "", held + line).strip()
        if text:
            words = text.split(None, 1)
            if words[0].lower() == "include" and len(words) == 2:
                found += logical_lines(path.parent / words[1], depth + 1)
            else:
                found.append((place, text))
        held, place = "", ""
    return found


def pairs(text: str) -> list[tuple[str, str]]:
    """KEY=value pairs of a line, in order, values unquoted."""
    found = re.findall(r'([A-Za-z]\w*)\s*\+?=\s*("[^"]*"|\S*)', text)
    return [(key, value.strip('"')) for key, value in found]


def joined(items: list[tuple[str, str]]) -> str:
    return " ".join(
        f"{key}={value}" if not re.search(r"\s", value) else f'{key}="{value}"'
        for key, value in items
    )


def take(directory: Path) -> Imported:
    """Reads `directory`/slurm.conf, and gres.conf and topology.conf where they are. ImportProblem
    says what cannot be taken over and where."""
    result = Imported()
    defaults: dict[str, str] = {}
    nodes: list[str] = []
    partitions: list[str] = []
    parameters = ["config_overrides"]
    for place, text in logical_lines(directory / "slurm.conf"):
        items = pairs(text)
        if not items:
            raise ImportProblem(f"{place}: {text!r} is not KEY=value")
        key, value = items[0][0].lower(), items[0][1]
        if key == "nodename":
            if value.upper() == "DEFAULT":
                items = [item for item in items if not _tied(item[0])]
                defaults.update((name.lower(), what) for name, what in items[1:])
                nodes.append(joined(items))
            else:
                nodes += _node_lines(result, place, items, defaults)
        elif key in {"partitionname", "downnodes", "nodeset"}:
            partitions.append(text)
        elif key == "slurmdparameters":
            parameters += [word for word in value.split(",") if word not in parameters]
        elif key in REPLACED or key == "frontendname":
            continue
        elif key in PROGRAMS and not _exists(value):
            result.remarks.append(f"{items[0][0]}={value} is left out: no such program here")
        elif key == "mpidefault" or key.startswith("accountingstorage"):
            result.lines.append(text)
        else:
            result.lines.append(text)
    if not result.node_names:
        raise ImportProblem(f"{directory / 'slurm.conf'}: no NodeName line")
    result.lines.append(f"SlurmdParameters={','.join(parameters)}")
    result.lines += [*nodes, *partitions]
    if (directory / "topology.conf").exists():
        lines = logical_lines(directory / "topology.conf")
        result.network = "".join(f"{text}\n" for _, text in lines)
    if (directory / "gres.conf").exists():
        for place, text in logical_lines(directory / "gres.conf"):
            result.resources += _resource(place, text)
    return result


def _resource(place: str, text: str) -> str:
    """A line of gres.conf as it holds here; "" for one that is about the GPUs themselves: those of
    this cluster find out what they are."""
    items = pairs(text)
    said = {key.lower(): value for key, value in items}
    if not items:
        raise ImportProblem(f"{place}: {text!r} is not KEY=value")
    name = said.get("name", "")
    if name in ("", "gpu"):
        return ""
    # A line may find out about GPUs beside what it is about.
    kept = [(key, value) for key, value in items if key.lower() != "autodetect"]
    files = said.get("file") or said.get("multiplefiles")
    if files and name not in KINDS:
        # Devices of the site's: there are as many here, and none is opened.
        kept = [(key, value) for key, value in kept if not key.lower().endswith(("file", "files"))]
        if "count" not in said:
            kept.append(("Count", str(_files(place, files))))
    return joined(kept) + "\n"


def _files(place: str, text: str) -> int:
    try:
        return len(hostlist.expand(text))
    except ValueError as error:
        raise ImportProblem(f"{place}: File={text}: {error}") from None


def _exists(program: str) -> bool:
    words = shlex.split(program)
    return bool(words) and Path(words[0]).is_file()


def _tied(key: str) -> bool:
    return key.lower() in {"nodeaddr", "nodehostname", "port", "bcastaddr"}


def _node_lines(
    result: Imported, place: str, items: list[tuple[str, str]], defaults: dict[str, str]
) -> list[str]:
    """One NodeName line as one line per node, each of which gets a place of its own here."""
    try:
        names = hostlist.expand(items[0][1])
    except ValueError as error:
        raise ImportProblem(f"{place}: NodeName={items[0][1]}: {error}") from None
    if len(result.node_names) + len(names) > MAX_NODES:
        raise ImportProblem(
            f"{place}: more than {MAX_NODES} nodes, each of which would be a daemon on this machine"
        )
    kept = [(key, value) for key, value in items[1:] if not _tied(key)]
    said = {**defaults, **{key.lower(): value for key, value in kept}}
    kept = [(key, _state(value) if key.lower() == "state" else value) for key, value in kept]
    lines = []
    for name in names:
        result.node_names.append(name)
        result.cpus += _number(said.get("cpus", "")) or (
            (_number(said.get("sockets", "")) or 1)
            * (_number(said.get("corespersocket", "")) or 1)
            * (_number(said.get("threadspercore", "")) or 1)
        )
        result.mem_mb += _number(said.get("realmemory", "")) or 1
        gpu = gpu_request(said.get("gres", ""))
        if gpu[1]:
            result.gpus[name] = gpu
        lines.append(joined([("NodeName", name), ("NodeHostname", name), *kept]))
    return lines


def _state(value: str) -> str:
    # Nodes that the cloud would create are started here like all others.
    return "UNKNOWN" if value.upper() in {"CLOUD", "FUTURE"} else value


def _number(text: str) -> int:
    found = re.match(r"\d+", text)
    return int(found.group()) if found else 0


def gpu_request(gres: str) -> tuple[str, int]:
    """GPU type and count in a Gres= value: "gpu:h100:8(S:0-1),nic:2" -> ("h100", 8)."""
    kind, count = "", 0
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        words = part.split(":")
        if words[0] != "gpu":
            continue
        if len(words) == 1:
            count += 1
        elif words[-1].isdigit():
            count += int(words[-1])
            kind = kind or (words[1] if len(words) > 2 else "")
        else:
            kind, count = kind or words[1], count + 1
    return kind, count


def topology_for(gpu_type: str) -> Path:
    """The topology file whose GPUs are nearest to a type: the same type, else an H100 box."""
    for name, box in BOXES.items():
        if gpu_type and gpu_type.startswith(box[4]):
            return fake_nvml_dir() / f"{name}.json"
    return fake_nvml_dir() / "dgx-h100.json"

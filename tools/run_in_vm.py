#!/usr/bin/env python3
"""Runs tests in a virtual machine whose kernel offers control groups of version 2 alone.

    tools/run_in_vm.py [--accel tcg] [--cpus N] [--memory MB] [PYTEST ARGUMENTS]     (make test-vm)

Needs root, QEMU, virtiofsd, a C compiler with static libraries, and a kernel below /boot with its
modules (Debian: qemu-system-x86 linux-image-cloud-amd64). Where one of them is missing it says so
and exits 0, as a skipped test does. The machine sees this one's files, read-only with an overlay in
its memory, so that it needs no disk and leaves nothing here. It runs on KVM where that boots, else
emulated (about ten times slower; the tests wait longer then, GSCHED_SLOW).
"""

from __future__ import annotations

import argparse
import lzma
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: what is run where nothing is named: all that depends on control groups
TESTS = (
    "tests/e2e/test_cgroups.py",
    "tests/e2e/test_step_groups.py",
    "tests/e2e/test_isolation.py",
)
#: an emulated machine needs more than the usual patience
OPTIONS = ("-p", "no:cacheprovider", "--color=no", "-o", "timeout=1800")
#: modules of the kernel that the machine's files need
MODULES = ("virtio_pci", "virtiofs", "overlay")
VIRTIOFSD = ("/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd", "/usr/lib/virtiofsd")
#: seconds within which a kernel on KVM must have said something; some hosts stop there for ever
KVM_S = 20
#: carried from here into the machine
CARRIED = ("GSCHED_SHARED", "GSCHED_SLOW", "GSCHED_STRAY_JOBS", "GSCHED_EXAMPLES")
END = re.compile(rb"GSCHED-VM-EXIT (\d+)")


class Missing(Exception):
    """Something that is not installed here; the text is a whole sentence."""


def virtiofsd() -> str:
    found = shutil.which("virtiofsd") or next((p for p in VIRTIOFSD if os.path.exists(p)), None)
    if found is None:
        raise Missing("virtiofsd is not installed (Debian: qemu-system-x86 or virtiofsd).")
    return found


def qemu() -> str:
    name = f"qemu-system-{os.uname().machine}"
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed (Debian: qemu-system-x86).")
    return found


def kernel() -> tuple[Path, Path]:
    """The newest kernel below /boot that has the modules it needs, and where those are."""
    named = os.environ.get("GSCHED_VM_KERNEL", "")
    images = [Path(named)] if named else sorted(Path("/boot").glob("vmlinuz-*"), reverse=True)
    for image in images:
        modules = Path("/lib/modules") / image.name.removeprefix("vmlinuz-")
        if (modules / "modules.dep").exists():
            try:
                order(modules)
            except KeyError:
                continue
            return image, modules
    raise Missing(
        f"no kernel below /boot has the modules {', '.join(MODULES)} "
        "(Debian: linux-image-cloud-amd64)."
    )


def order(modules: Path) -> list[Path]:
    """The files of MODULES and of all that they need, in the order of loading; those that are
    built in have none. KeyError for one that the kernel does not have."""
    needs: dict[str, tuple[Path, list[str]]] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, below = line.partition(":")
        needs[module_name(path)] = (modules / path, [module_name(one) for one in below.split()])
    built_in = {
        module_name(line) for line in (modules / "modules.builtin").read_text().splitlines()
    }
    found: dict[str, Path] = {}

    def take(name: str) -> None:
        if name not in needs and name in built_in:
            return
        path, below = needs[name]
        for one in below:
            take(one)
        found.setdefault(name, path)

    for name in MODULES:
        take(name)
    return list(found.values())


def module_name(path: str) -> str:
    return Path(path).name.partition(".")[0].replace("-", "_")


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dc", path], check=True, capture_output=True).stdout
    return data


def archive(files: dict[str, bytes]) -> bytes:
    """An initramfs (cpio, format newc) with these files; folders are made for them."""
    out = bytearray()
    entries = [(name, 0o100755, data) for name, data in files.items()]
    folders = sorted({str(Path(name).parent) for name in files} - {"."})
    entries = [*((name, 0o040755, b"") for name in folders), *entries, ("TRAILER!!!", 0, b"")]
    for number, (name, mode, data) in enumerate(entries, 1):
        raw = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + raw
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return bytes(out)


def init_program(folder: Path) -> bytes:
    out = folder / "init"
    source = ROOT / "tests" / "vm" / "init.c"
    compiler = os.environ.get("CC", "cc").split()
    done = subprocess.run(
        [*compiler, "-static", "-O1", "-Wall", "-Werror", "-o", out, source],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise Missing(f"no static program can be built here: {done.stderr.strip()[-500:]}")
    return out.read_bytes()


def script(arguments: list[str], accelerator: str, command: str) -> bytes:
    """What runs in the machine: pytest with this very interpreter, or `command`."""
    slow = {"GSCHED_SLOW": "10", "GSCHED_STRAY_JOBS": "2"}
    known = ({} if accelerator == "kvm" else slow) | os.environ
    words = [f"{name}={known[name]}" for name in CARRIED if name in known]
    lines = [
        f"cd {shlex.quote(str(ROOT))} || exit 1",
        *(f"export {shlex.quote(word)}" for word in words),
        # A group of its own: under v2 only the root and the leaves hold processes.
        "mkdir /sys/fs/cgroup/tests && echo $$ > /sys/fs/cgroup/tests/cgroup.procs",
        "uname -r; nproc; cat /sys/fs/cgroup/cgroup.controllers",
        command or shlex.join([sys.executable, "-P", "-m", "pytest", *OPTIONS, *arguments]),
    ]
    return "\n".join(lines).encode()


class Machine:
    """One boot. `run` gives the exit code of what ran in it, None if the kernel said nothing."""

    def __init__(self, folder: Path, image: Path, memory_mb: int, cpus: int) -> None:
        self.folder = folder
        self.image = image
        self.memory_mb = memory_mb
        self.cpus = cpus
        self.said = bytearray()

    def run(self, accelerator: str, timeout_s: float) -> int | None:
        socket = self.folder / "fs.sock"
        socket.unlink(missing_ok=True)
        with open(self.folder / "virtiofsd.log", "wb") as log:
            files = subprocess.Popen(
                [virtiofsd(), f"--socket-path={socket}", *self._shared()],
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        try:
            end = time.monotonic() + 10
            while not socket.exists():
                if files.poll() is not None or time.monotonic() > end:
                    text = (self.folder / "virtiofsd.log").read_text(errors="replace")
                    raise Missing(f"virtiofsd does not run here: {text.strip()[-500:]}")
                time.sleep(0.05)
            return self._boot(accelerator, timeout_s, socket)
        finally:
            files.kill()
            files.wait()

    def _shared(self) -> list[str]:
        """This machine's files, as Debian's two generations of virtiofsd are told."""
        text = subprocess.run([virtiofsd(), "--help"], capture_output=True, text=True).stdout
        if "--shared-dir" in text:
            return ["--shared-dir=/", "--sandbox=chroot", "--cache=always"]
        return ["-o", "source=/", "-o", "sandbox=chroot", "-o", "cache=always"]

    def _boot(self, accelerator: str, timeout_s: float, socket: Path) -> int | None:
        cpu = ["-accel", "kvm", "-cpu", "host,-arch-capabilities"]
        if accelerator != "kvm":
            cpu = ["-accel", "tcg,thread=multi", "-cpu", "max"]
        memory = f"memory-backend-memfd,id=mem,size={self.memory_mb}M,share=on"
        argv = [
            *(qemu(), *cpu, "-smp", str(self.cpus), "-m", str(self.memory_mb)),
            *("-object", memory, "-numa", "node,memdev=mem", "-no-reboot", "-nographic"),
            *("-nodefaults", "-serial", "stdio", "-monitor", "none"),
            *("-chardev", f"socket,id=fs,path={socket}"),
            *("-device", "vhost-user-fs-pci,chardev=fs,tag=root"),
            *("-kernel", str(self.image), "-initrd", str(self.folder / "initramfs")),
            "-append",
            "console=ttyS0 quiet panic=-1 cgroup_no_v1=all systemd.unified_cgroup_hierarchy=1",
        ]
        self.said.clear()
        machine = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        reader = threading.Thread(target=self._listen, args=(machine,), daemon=True)
        reader.start()
        began = time.monotonic()
        try:
            while reader.is_alive():
                reader.join(0.2)
                gone = time.monotonic() - began
                if accelerator == "kvm" and gone > KVM_S and b"init:" not in self.said:
                    return None
                if gone > timeout_s:
                    print(f"\nthe machine did not end within {timeout_s:g} s")
                    return 124
        finally:
            machine.send_signal(signal.SIGKILL)
            machine.wait()
        found = END.search(self.said)
        if found is None:
            return None if accelerator == "kvm" else 125
        return int(found[1])

    def _listen(self, machine: subprocess.Popen[bytes]) -> None:
        assert machine.stdout is not None
        while data := os.read(machine.stdout.fileno(), 4096):
            self.said += data
            sys.stdout.buffer.write(data.replace(b"\r\n", b"\n"))
            sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--memory", type=int, default=3072, help="of the machine, MB")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--command", default="", help="run this in a shell instead of tests")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds")
    parser.add_argument(
        "--accel",
        choices=("kvm", "tcg"),
        default="kvm" if os.access("/dev/kvm", os.R_OK | os.W_OK) else "tcg",
    )
    options, arguments = parser.parse_known_args()
    try:
        if os.geteuid() != 0:
            raise Missing("this needs root: the machine's files are this one's.")
        image, modules = kernel()
        qemu(), virtiofsd()
        with tempfile.TemporaryDirectory(prefix="gsched-vm-") as name:
            folder = Path(name)
            files = {"init": init_program(folder)}
            for number, path in enumerate(order(modules)):
                files[f"m/{number:02}.ko"] = unpacked(path)
            machine = Machine(folder, image, options.memory, options.cpus)
            for accelerator in dict.fromkeys((options.accel, "tcg")):
                files["run"] = script(arguments or [*TESTS, "-v"], accelerator, options.command)
                (folder / "initramfs").write_bytes(archive(files))
                code = machine.run(accelerator, options.timeout)
                if code is not None:
                    return code
                print(f"the machine does not start on {accelerator}: emulated instead")
            return 125
    except Missing as problem:
        print(f"tests in a virtual machine skipped: {problem}")
        return 0


if __name__ == "__main__":
    sys.exit(main())

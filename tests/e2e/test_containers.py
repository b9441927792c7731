"""--container-image of srun, sbatch and salloc: the site's launcher enters the image, as the user,
with plain words."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import LocalCluster

#: an image is a directory tree (which takes root), or a name: then the words are shown
LAUNCHER = """#!/bin/sh
image=$1; shift 2
case $image in
/*)
    # What it is shown is copied into it: a mount takes more than these tests have.
    for mount in $(echo "$SLURM_CONTAINER_MOUNTS" | tr , ' '); do
        target=$image${mount#*:}
        mkdir -p "${target%/*}" && cp -p "${mount%:*}" "$target"
    done
    exec /usr/sbin/chroot "$image" /bin/sh -c 'cd "$0" && exec "$@"' \\
        "${SLURM_CONTAINER_WORKDIR:-/}" "$@" ;;
esac
id -un
printf '<%s>' "$image" "$SLURM_CONTAINER_IMAGE" "$SLURM_CONTAINER_MOUNTS" \\
    "$SLURM_CONTAINER_WORKDIR" "$@"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    made = LocalCluster("--simulate", "peer")
    launcher = made.base / "enter-image"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    made.options = (*made.options, "--set", f"ContainerLauncher={launcher}")
    with made:
        yield made


@pytest.fixture(scope="module")
def image(cluster: LocalCluster) -> Path:
    """A tree with a shell, what it needs, and a program that only this tree has."""
    root = cluster.base / "image"
    listed = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    for name in ["/bin/sh", *re.findall(r"(?:=> )?(/\S+) \(0x", listed)]:
        target = root / name[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, target)
    program = root / "bin/only-in-the-image"
    program.write_text(
        '#!/bin/sh\nread -r words < /etc/which\necho "$words" "$SLURM_PROCID" "$@"\n'
    )
    program.chmod(0o755)
    (root / "etc").mkdir()
    (root / "etc/which").write_text("the tiny image\n")
    return root


@pytest.mark.root
def test_the_program_runs_in_the_image(cluster: LocalCluster, image: Path) -> None:
    assert shutil.which("only-in-the-image") is None
    words = ["srun", "-n2", "-l", f"--container-image={image}", "only-in-the-image", "a b", "$(x)"]
    done = cluster.run(words)
    assert sorted(done.stdout.splitlines()) == [
        "0: the tiny image 0 a b $(x)",
        "1: the tiny image 1 a b $(x)",
    ]
    # In a job; the next srun is outside again.
    out = cluster.work / "out"
    script = (
        f"#!/bin/sh\nsrun --container-image={image} only-in-the-image\n"
        "SLURM_CONTAINER_IMAGE=x srun sh -c 'echo ${SLURM_CONTAINER_IMAGE-none}; ls /etc/which'\n"
    )
    job = cluster.sbatch("-n1", "-o", str(out), script=script)
    cluster.ended(job)
    lines = out.read_text().splitlines()
    assert lines[:2] == ["the tiny image 0", "none"]
    assert "No such file" in lines[2]


@pytest.mark.root
def test_exit_codes_and_files_are_those_of_the_program(cluster: LocalCluster, image: Path) -> None:
    words = ["srun", "-o", "inside.%t", f"--container-image={image}", "sh", "-c"]
    done = cluster.run([*words, "echo here; exit 7"], check=False)
    assert done.returncode == 7
    assert (cluster.work / "inside.0").read_text() == "here\n"
    # What the image has not is the launcher's to say: chroot ends 127.
    done = cluster.run(["srun", f"--container-image={image}", "printenv"], check=False)
    assert done.returncode == 127
    assert "printenv" in done.stderr


@pytest.mark.root
def test_the_launcher_is_the_user_and_gets_words(cluster: LocalCluster, other_user: str) -> None:
    options = ("--container-mounts=/a b:/c:ro", "--container-workdir=/w", "-D", "/tmp")
    words = ["srun", "--container-image=lab/tool:2;id", *options, "no-such-program", "x y", "*", ""]
    done = cluster.run(words, user=other_user)
    shown = (
        "lab/tool:2;id",
        "lab/tool:2;id",
        "/a b:/c:ro",
        "/w",
        "no-such-program",
        "x y",
        "*",
        "",
    )
    assert done.stdout == other_user + "\n" + "".join(f"<{word}>" for word in shown)


@pytest.mark.root
def test_a_script_and_its_steps_in_the_image(cluster: LocalCluster, image: Path) -> None:
    out = cluster.work / "script.out"
    words = (f"--container-image={image}", "--container-workdir=/etc", "-o", str(out), "-n1")
    # read: what chroot makes the root is what the script sees, /etc/which of the image.
    script = '#!/bin/sh\nread -r words < which\necho "$words" "$0" "$@"\nonly-in-the-image\n'
    job = cluster.sbatch(*words, script=script)
    cluster.ended(job)
    first, second = out.read_text().splitlines()
    assert re.fullmatch(r"the tiny image /\S+/slurm_script", first)
    assert second == "the tiny image 0"
    # Steps have it too, and one that names another has that one; salloc's shell is here.
    words_of = "srun only-in-the-image a; srun --container-image=named prog; ls /etc/which"
    done = cluster.run(
        ["salloc", "-Q", "-n1", f"--container-image={image}", "sh", "-c", words_of], check=False
    )
    assert done.stdout.splitlines()[0] == "the tiny image 0 a"
    assert done.stdout.splitlines()[2:] == ["<named><named><><><prog>"]
    assert "No such file" in done.stderr

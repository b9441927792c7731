"""The compiled parts: the Cython core, the step supervisor and the fake NVML library.

Everything that can be said in pyproject.toml is said there.
"""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import subprocess
from pathlib import Path

from setuptools import Command, Distribution, Extension, find_packages, setup
from setuptools.command.build import build

CORE = "gsched/_core.pyx"

STEPD = "slurmd_compat.stepd"
PMIX = "slurmd_compat.pmix"
FAKE_NVML = "slurmd_compat.fake_nvml"

#: package -> (file to make in it, extra flags before the sources, libraries after them)
NATIVE: dict[str, tuple[str, list[str], list[str]]] = {
    STEPD: ("stepd", [], ["-lutil"]),
    PMIX: ("pmix-server", [], []),
    FAKE_NVML: (
        "libnvidia-ml.so.1",
        ["-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"],
        ["-lpthread"],
    ),
}


def core_extensions() -> list[Extension]:
    """The Cython core as one stable-ABI module; none while its source is absent."""
    if not Path(CORE).exists():
        return []
    # Imported late: Cython is a build requirement of this extension alone.
    from Cython.Build import cythonize

    extension = Extension(
        "gsched._core",
        sources=[CORE],
        depends=sorted(glob.glob("gsched/core/*.pxi")),
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        py_limited_api=True,
        extra_compile_args=["-O3"],
    )
    modules: list[Extension] = cythonize([extension], language_level=3)
    return modules


#: the thin client, and the names under which it is installed: the commands of cli/command.py, and
#: what the Python commands run to move a step's input and output
CLIENT = "cli/client"
COMMANDS = (
    *("sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct", "sstat", "sacctmgr"),
    *("srun", "salloc", "sattach", "sbcast", "sreport", "sprio", "sshare", "sdiag", "gsched-mover"),
)
PROGRAMS = [f"build/bin/{name}" for name in COMMANDS]


def pmix_flags() -> tuple[list[str], list[str]] | tuple[()]:
    """What the compiler must know of libpmix (version 4 or later); () where it is not installed:
    Open MPI programs then start through mpirun alone."""
    found = []
    for which in ("--cflags", "--libs"):
        argv = ["pkg-config", which, "pmix >= 4"]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return ()
        found.append(shlex.split(done.stdout))
    return found[0], found[1]


def native_sources(package: str) -> list[str]:
    """The C files of a package, relative to the project."""
    return sorted(glob.glob(f"{package.replace('.', '/')}/*.c"))


class BuildNative(Command):
    """Compile the C program and the C library that lie inside packages."""

    description = "compile the C parts that are not Python extensions"
    user_options: list[tuple[str, str | None, str]] = []

    #: Set by setuptools for editable installs: the results then lie beside their sources.
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def _source_dir(self, package: str) -> str:
        return self.get_finalized_command("build_py").get_package_dir(package)  # type: ignore[attr-defined]

    def _built(self) -> list[str]:
        return [
            package
            for package in NATIVE
            if native_sources(package) and (package != PMIX or pmix_flags())
        ]

    def _target(self, package: str) -> str:
        name = NATIVE[package][0]
        if self.editable_mode:
            return os.path.join(self._source_dir(package), name)
        assert self.build_lib is not None
        return os.path.join(self.build_lib, *package.split("."), name)

    def run(self) -> None:
        for package in self._built():
            self._compile(package, self._target(package))
        first, *others = PROGRAMS
        self._client(sorted(glob.glob(f"{CLIENT}/*.c")), first)
        for program in others:
            self._copy(first, program)

    def _client(self, sources: list[str], target: str) -> None:
        """Without a dynamic linker, which takes a quarter of what the program does in all: it asks
        neither for names of users nor of hosts. With one where there is no libc to link with."""
        if "-fsanitize" not in os.environ.get("CFLAGS", ""):
            try:
                self._make(sources, target, ["-static"], [])
                return
            except subprocess.CalledProcessError:
                print("no static libc: the commands start with the dynamic linker", flush=True)
        self._make(sources, target, [], [])

    def _copy(self, made: str, target: str) -> None:
        """The same program under another name."""
        temporary = f"{target}.new.{os.getpid()}"
        shutil.copy2(made, temporary)
        os.replace(temporary, target)

    def _compile(self, package: str, target: str) -> None:
        _, flags, libraries = NATIVE[package]
        if package == PMIX:
            flags, libraries = pmix_flags()
        self._make(native_sources(package), target, flags, libraries)

    def _make(
        self, sources: list[str], target: str, flags: list[str], libraries: list[str]
    ) -> None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        # A new file under the old name: a running program keeps its own text.
        temporary = f"{target}.new.{os.getpid()}"
        command = [
            *shlex.split(os.environ.get("CC", "cc")),
            *("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-D_GNU_SOURCE"),
            *shlex.split(os.environ.get("CFLAGS", "")),
            *flags,
            *("-o", temporary),
            *sources,
            *shlex.split(os.environ.get("LDFLAGS", "")),
            *libraries,
        ]
        print(shlex.join(command), flush=True)
        try:
            subprocess.run(command, check=True)
            os.replace(temporary, target)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def get_source_files(self) -> list[str]:
        files = []
        for package in NATIVE:
            files += native_sources(package)
            files += sorted(glob.glob(f"{package.replace('.', '/')}/*.h"))
        return files + sorted(glob.glob(f"{CLIENT}/*.[ch]"))

    def get_outputs(self) -> list[str]:
        return [self._target(package) for package in self._built()]

    def get_output_mapping(self) -> dict[str, str]:
        if not self.editable_mode:
            return {}
        assert self.build_lib is not None
        return {
            os.path.join(self.build_lib, *package.split("."), NATIVE[package][0]): self._target(
                package
            )
            for package in self._built()
        }


def packages() -> list[str]:
    """All packages; cli/ is installed as gsched_cli (see package-dir in pyproject.toml)."""
    ours = ["gsched", "gsched.*", "slurmd_compat", "slurmd_compat.*"]
    commands = [f"gsched_cli.{name}" for name in find_packages("cli")]
    return [*find_packages(include=ours), "gsched_cli", *commands]


class BinaryDistribution(Distribution):
    """Wheels hold machine code even while the Cython core is absent."""

    def has_ext_modules(self) -> bool:
        return True

    def has_data(self) -> bool:
        """Asked by editable installs alone, which would leave the programs out."""
        return True


build.sub_commands.append(("build_native", None))

setup(
    packages=packages(),
    distclass=BinaryDistribution,
    ext_modules=core_extensions(),
    cmdclass={"build_native": BuildNative},
    # Programs, not scripts: they go where scripts go.
    data_files=[("bin", PROGRAMS)],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)

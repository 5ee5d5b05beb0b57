"""A copy of the repository in a temporary folder, with an interpreter of its own, that may be broken and mended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from tests.mutants.mutant import PACKAGE, Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "examples", "pyproject.toml")
SCRIPT = "import sys\nfrom hermes_kanban.__main__ import main\nsys.exit(main())\n"
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL")
AGAIN = 0.05


@dataclass
class Ran:
    """What a command printed, its exit code (None: it took too long and was ended), and its seconds."""

    code: int | None
    out: str
    seconds: float


class Workshop:
    """One copy. Interpreters that are started without an environment find the copied package too, not the original."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        for name in COPIED:
            _copy(ROOT / name, folder / name)
        self._python = self._interpreter()
        self._process: subprocess.Popen[bytes] | None = None

    def _interpreter(self) -> Path:
        place = self.folder / ".venv"
        venv.EnvBuilder(symlinks=True, with_pip=False).create(place)
        python = place / "bin" / "python"
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
        lines = (str(self.folder / "src"), sysconfig.get_path("purelib"))
        (packages / "mutants.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
        script = place / "bin" / "hermes"
        script.write_text(f"#!{python}\n{SCRIPT}", encoding="utf-8")
        script.chmod(0o755)
        return python

    @contextmanager
    def broken(self, mutant: Mutant | None) -> Iterator[None]:
        """The copy has this mistake meanwhile (None: it is as it was)."""
        if mutant is None:
            yield
            return
        path = self.folder / PACKAGE / mutant.file
        whole = path.read_text(encoding="utf-8")
        _write(path, mutant.of(whole))
        try:
            yield
        finally:
            _write(path, whole)

    def run(self, argv: tuple[str, ...], seconds: float, **variables: str) -> Ran:
        """Run a module of the copy by its own interpreter; afterwards nothing of it is left."""
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        env |= {"TMPDIR": str(self.temporary), "PYTHONPATH": str(self.folder)} | variables
        began = time.monotonic()
        output = self.folder / "output.txt"
        with output.open("wb") as out:
            given = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
            command = [str(self._python), *argv]
            self._process = subprocess.Popen(command, cwd=self.folder, env=env, start_new_session=True, **given)
        try:
            code: int | None = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            self.close()
        text = output.read_text(encoding="utf-8", errors="replace")
        return Ran(code, text, time.monotonic() - began)

    def close(self) -> None:
        """End what runs here."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._clear()

    def _clear(self) -> None:
        """End what a broken product left running, and remove what it left lying."""
        while left := self._left():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(AGAIN)
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(exist_ok=True)

    def _left(self) -> list[int]:
        """Return the living processes of homes in our temporary folder, and those that run our interpreter."""
        signs = (f"HERMES_HOME={self.temporary}/", f"TMPDIR={self.temporary}")
        marks = tuple(sign.encode() for sign in signs)
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (entry / "environ").read_bytes().split(b"\0")
                if int(entry.name) != os.getpid() and any(word.startswith(marks) for word in words):
                    found.append(int(entry.name))
        return found


@contextmanager
def workshop(many: int) -> Iterator[list[Workshop]]:
    """So many copies, which are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mt") as folder:
        yield [Workshop(Path(folder) / str(number)) for number in range(many)]


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
    elif source.exists():
        shutil.copy2(source, target)


def _write(path: Path, text: str) -> None:
    """Write a source; what was compiled of it before might pass for current within the same second."""
    path.write_text(text, encoding="utf-8")
    if path.suffix == ".py":
        Path(cache_from_source(str(path))).unlink(missing_ok=True)

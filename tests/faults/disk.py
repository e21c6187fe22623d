"""A small file system of its own (ext4 in a file, through a loop device), which can be filled, made read-only, or made to vanish.

Only root can mount it; `available` says whether this machine allows it. Nothing else tells the service the truth: a quota or a limit
of the process fails in other calls than a disk does, and root may write to a read-only directory.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import subprocess
from pathlib import Path

MIB = 1024 * 1024
SIZE_MIB = 192
_EXT4_IOC_SHUTDOWN = 0x8004587D
_SHUTDOWN_WITHOUT_FLUSH = 2
TIMEOUT_S = 60


def available() -> bool:
    return os.geteuid() == 0 and Path("/dev/loop-control").exists() and bool(_which("mkfs.ext4"))


def _which(program: str) -> str | None:
    import shutil

    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "disk"
        self.path.mkdir()
        image = folder / "disk.img"
        with image.open("wb") as file:
            file.truncate(SIZE_MIB * MIB)
        _run("mkfs.ext4", "-q", "-m", "0", str(image))
        self._device = _run("losetup", "--find", "--show", str(image))
        self.mount()

    def mount(self) -> None:
        _run("blockdev", "--setrw", self._device)
        _run("mount", "-o", "errors=remount-ro", self._device, str(self.path))

    def unmount(self) -> None:
        _run("umount", str(self.path))

    def fill(self) -> None:
        """Until not one byte is free."""
        with contextlib.suppress(OSError), (self.path / "ballast").open("ab", buffering=0) as file:
            for size in (MIB, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"\0" * size)

    def free(self) -> None:
        (self.path / "ballast").unlink(missing_ok=True)

    def make_read_only(self) -> None:
        """Writes fail from now on; the file system notices and goes on read-only, as after an error of the disk."""
        _run("blockdev", "--setro", self._device)

    def vanish(self) -> None:
        """Every read and write fails from now on; what was not synced is lost."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _EXT4_IOC_SHUTDOWN, array.array("I", [_SHUTDOWN_WITHOUT_FLUSH]))
        finally:
            os.close(folder)

    def remove(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.unmount()
        _run("losetup", "--detach", self._device)


def _run(program: str, *arguments: str) -> str:
    path = _which(program)
    if path is None:
        raise FileNotFoundError(errno.ENOENT, "is not installed", program)
    done = subprocess.run([path, *arguments], check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    return done.stdout.strip()

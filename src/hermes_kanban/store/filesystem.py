"""What lies beneath a board: network file systems, where SQLite's locks do not hold, and read-only ones."""

from __future__ import annotations

import os
import sys

from hermes_kanban.base import lazy

_NAMES = """
nfs nfs4 cifs smb smb3 smbfs 9p afs afpfs webdav davfs ncpfs ceph glusterfs lustre gpfs beegfs ocfs2 gfs2 virtiofs
vboxsf prl_fs fuse.sshfs fuse.s3fs fuse.rclone fuse.glusterfs fuse.ceph fuse.davfs fuse.goofys
"""
NETWORK = frozenset(_NAMES.split())
MOUNTS = "/proc/self/mountinfo"


def type_of(path: str, mounts: str = MOUNTS) -> str:
    """Return the type of the file system that holds an existing path, "" where that cannot be known."""
    if sys.platform == "darwin":
        return _type_by_mount_command(path)
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                left, _, right = line.partition(" - ")
                if left.split(" ", 3)[2] == wanted:
                    return right.split(" ", 1)[0]
    except (OSError, IndexError):
        return ""
    return ""


def is_network(kind: str) -> bool:
    """Whether a file system of this type is shared over a network."""
    return kind in NETWORK


def is_read_only(path: str) -> bool:
    """Whether the file system is mounted read-only."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _type_by_mount_command(path: str) -> str:
    """macOS has no mount table to read: `statfs` through ctypes tells the type's name."""
    ctypes = lazy.module("ctypes")
    structure = ctypes.Structure

    class StatFs(structure):  # type: ignore[misc, valid-type]
        _fields_ = [  # noqa: RUF012
            ("head", ctypes.c_char * 72),
            ("type_name", ctypes.c_char * 16),
            ("rest", ctypes.c_char * 2080),
        ]

    found = StatFs()
    if ctypes.CDLL(None).statfs(os.fsencode(path), ctypes.byref(found)) != 0:
        return ""
    return str(found.type_name.decode("ascii", "replace"))

"""The control groups of the kernel (v2, v1) that this process is in."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def groups_of(controller: str) -> list[tuple[Path, bool]]:
    """Return the folders of the groups that a controller ("memory", "cpu") has this process in, the innermost first, and of each
    whether it is of version 2.
    """
    found = []
    for line in text_of(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            root = ROOT / controller
        elif controllers == "":
            root = ROOT
        else:
            continue
        own = root / path.lstrip("/")
        found += [(group, root == ROOT) for group in (own, *own.parents) if group.is_relative_to(root)]
    return found


def text_of(path: Path) -> str:
    """Return what a file of the kernel says; nothing where there is none."""
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""

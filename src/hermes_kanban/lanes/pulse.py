"""Signs of a run's life: what it printed and computed since the last beat, and how much memory it took (P13)."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from resource import struct_rusage

    from hermes_kanban.lanes.procset import Look

CPU_OF_ACTIVITY = 0.5  # seconds
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Pulse:
    """What the processes of a run used.

    Attributes:
        peak_memory: bytes of all of them together, at the looks; of each ended one alone.
    """

    def __init__(self) -> None:
        self.peak_memory = 0
        self._collected = 0.0
        self._living = 0.0
        self._cpu_told = 0.0
        self._output_told = 0

    def looked(self, look: Look) -> None:
        """Take in a look at the processes."""
        self._living = look.cpu
        self.peak_memory = max(self.peak_memory, look.memory)

    def collected(self, usage: struct_rusage) -> None:
        """Take in what a process used that has ended; it is seen by no look any more."""
        self._collected += usage.ru_utime + usage.ru_stime
        self.peak_memory = max(self.peak_memory, usage.ru_maxrss * MAXRSS_UNIT)

    def active(self, output: int) -> bool:
        """Whether there was output, or half a second of processor time, since this was last true (P13).

        Args:
            output: bytes that were printed so far. The processes should have been looked at just now.
        """
        cpu = self._collected + self._living
        if output == self._output_told and cpu - self._cpu_told < CPU_OF_ACTIVITY:
            return False
        self._output_told, self._cpu_told = output, cpu
        return True

"""SQLite files that survive kills and full disks: opened with care, written in transactions, locked by the kernel."""

from clockhands.databases._opening import Database
from clockhands.databases.store_errors import Form

__all__ = ["Database", "Form"]

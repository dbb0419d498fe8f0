"""SQLite files that survive killed processes and full disks: written in transactions, locked by the kernel."""

from clockhands.jobs.databases._opening import Database, cell
from clockhands.jobs.databases.store_errors import Form

__all__ = ["Database", "Form", "cell"]

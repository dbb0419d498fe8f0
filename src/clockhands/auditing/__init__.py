"""The audit of a model: what its files declare, what follows from it, and what is wrong.

`_audits` joins the parts; `findings` has a class for everything that can be found, with what it means and what to do.
"""

from clockhands.auditing._audits import Audit, audit, audit_opened
from clockhands.auditing.findings import CODES, SEVERITIES, Finding

__all__ = ["CODES", "SEVERITIES", "Audit", "Finding", "audit", "audit_opened"]

"""The audit of a model: what its files declare about positions, what is computed from it, and what is wrong.

`_audits` joins the parts; `findings` has a class for every finding, with its meaning and what to do about it.
"""

from clockhands.auditing._audits import CORRECT, Audit, audit, audit_opened
from clockhands.auditing.findings import CODES, SEVERITIES, Finding

__all__ = ["CODES", "CORRECT", "SEVERITIES", "Audit", "Finding", "audit", "audit_opened"]

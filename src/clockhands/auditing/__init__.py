"""Judge what a model is told about position: an `Audit` is what the files say plus what follows from it.

`audits` joins the parts, `rules` says how grave each thing is that was noticed while reading, `checks` looks at the
codes themselves (do all hands turn? does the table reach?), `arrays` looks at bare arrays.
"""

from clockhands.auditing.audits import Audit, audit
from clockhands.auditing.findings import SEVERITIES, Finding
from clockhands.auditing.rules import CODES

__all__ = ["CODES", "SEVERITIES", "Audit", "Finding", "audit"]

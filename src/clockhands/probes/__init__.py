"""Probes: what a trained model does with its positions, measured on the running model."""

from typing import TYPE_CHECKING, Any, NoReturn

from clockhands.errors import Unreadable

if TYPE_CHECKING:
    from clockhands.probes.probing import MEASUREMENTS, Probe, ProbeMeasurement, audit_running, probe
else:
    try:
        from clockhands.probes.probing import MEASUREMENTS, Probe, ProbeMeasurement, audit_running, probe
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise

        def _refused(*_: Any, **__: Any) -> NoReturn:
            raise Unreadable(
                "A probe runs the model with PyTorch, which is not installed.",
                "Install what it needs with `pip install 'clockhands[probe]'`.",
            )

        probe = audit_running = _refused

__all__ = ["MEASUREMENTS", "Probe", "ProbeMeasurement", "audit_running", "probe"]

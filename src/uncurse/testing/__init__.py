"""Models that need no training, and the checks that a score or a model of your own should pass."""

from uncurse.testing.checks import check_rescorer, check_step_model, check_stopping_rule
from uncurse.testing.models import RandomModel, TableModel, top_continuations

__all__ = [
    "RandomModel",
    "TableModel",
    "check_rescorer",
    "check_step_model",
    "check_stopping_rule",
    "top_continuations",
]

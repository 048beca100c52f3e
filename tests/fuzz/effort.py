"""How much to try: a little, always the same, in the suite; more and new in ``make fuzz``."""

import os
from typing import Final

from hypothesis import HealthCheck, settings

__all__ = ["EFFORT", "bounded"]

EFFORT: Final = int(os.environ.get("FUZZ_EFFORT", "1"))
"""How many times as much as in the suite."""


def bounded(examples: int) -> settings:
    """Return the settings of a property that starts from so many examples."""
    return settings(
        max_examples=examples * EFFORT,
        deadline=None,
        derandomize=EFFORT == 1,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        print_blob=True,
    )

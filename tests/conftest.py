"""One profile for all property tests, one seed for all that kill; a failure prints how to repeat it."""

import os
import random

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side; tiny tensors gain nothing from threads

os.environ.setdefault("UNCURSE_SEED", str(random.randrange(10**6)))

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "default", max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", parent=settings.get_profile("default"), max_examples=8)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=600)
settings.register_profile("unshrunk", parent=settings.get_profile("default"), phases=[Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_report_header() -> str:
    return f"moments of kills: UNCURSE_SEED={os.environ['UNCURSE_SEED']}"

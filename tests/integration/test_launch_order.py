"""The eight rows of the launch order on real processes, read off the times that each of them reports."""

from __future__ import annotations

import pytest

from services.launch_order import launch_order
from tests.services.test_launch_order import ROWS, layout_of

from .runs import Runs


@pytest.mark.parametrize("row", ROWS)
def test_services_start_in_the_order_of_their_row(runs: Runs, row: tuple[int, int, int]) -> None:
    places = launch_order(layout_of(row, experts=2 if row == (1, 1, 1) else 0))
    table = runs.table(
        *({"name": p.service, "impl": "Echo", "after": list(p.after), "replicas": p.replicas} for p in places)
    )
    runs.run("up", table, "--detach")
    services = runs.services()
    first_ready = min(service["ready_at"] for service in services.values())
    after = {place.service: place.after for place in places}
    for name, service in services.items():
        assert service["spawned_at"] <= service["hello_at"] <= service["imported_at"] <= service["setup_at"]
        assert service["setup_at"] <= service["ready_at"]
        assert service["spawned_at"] < first_ready, "all are spawned, and may import, before the first is ready"
        for other in after[name.partition("@")[0]]:
            earlier = [s for n, s in services.items() if n.partition("@")[0] == other]
            assert all(s["ready_at"] <= service["setup_at"] for s in earlier), f"{name} waits for {other}"
    if ROWS[row] == "cache first":
        assert services["cache"]["ready_at"] <= services["worker"]["setup_at"]
    elif ROWS[row] == "worker first":
        assert services["worker"]["ready_at"] <= services["cache"]["setup_at"]
    else:
        assert "cache" not in services
    runs.run("down")

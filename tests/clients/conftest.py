"""Real coding agents against scripted models. `make test-clients` fetches and runs them; `make test` does not."""

from __future__ import annotations

import os

if not os.environ.get("MICA_TEST_CLIENTS"):
    collect_ignore_glob = ["test_*.py"]

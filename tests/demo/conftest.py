"""The tests' data is a module beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import data  # noqa: F401 -- found by the tests as `data`

sys.path.pop(0)

"""The product's supervisor over one command: `python -m tests.chaos.supervised '["…", …]'`."""

from __future__ import annotations

import json
import signal
import sys

from streams.runtime.supervisor import Supervisor

supervisor = Supervisor([json.loads(sys.argv[1])])
signal.signal(signal.SIGTERM, supervisor.stop)
sys.exit(supervisor.run())

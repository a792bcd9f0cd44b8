"""`python -m sidecar` is `sidecar`."""

import sys

from sidecar.cli.main import main

sys.exit(main())

"""`python -m embedded.scripted`."""

import sys

from embedded.scripted.command import main

sys.exit(main(sys.argv[1:]))

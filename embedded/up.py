"""`python -m embedded up`: the stack, left running until someone stops it.

Guarantee: the address is printed only when a job would be heard. A part that ends by itself ends the whole.
"""

import time
from pathlib import Path

from embedded.fleet import EmbeddedFleet
from embedded.stack import Stack, running

_LOOK_SECONDS = 0.5


def up(home: Path, *, port: int, scripted: bool, fleet: Path | EmbeddedFleet) -> int:
    """Run the stack until a signal ends it. Raises EmbeddedError when a part fails."""
    print("starting ...", flush=True)
    with running(home, port=port, scripted=scripted, fleet=fleet) as stack:
        print(_welcome(stack, home), flush=True)
        try:
            while True:
                stack.check()
                time.sleep(_LOOK_SECONDS)
        finally:
            print("stopping ...", flush=True)


def _welcome(stack: Stack, home: Path) -> str:
    return f"""
Assizes is up: {stack.url}   (docs: {stack.url}/docs)
runtime:       {stack.runtime}
API key:       {stack.api_key_file}
more:          {home / "up.json"}, logs in {home / "logs"}

  curl -H "Authorization: Bearer $(cat {stack.api_key_file})" {stack.url}/v1/models

Ctrl-C stops it."""

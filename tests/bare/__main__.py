"""`python -m tests.bare` (`make bare`): README's commands on a bare machine."""

from __future__ import annotations

import sys

from tests import bare
from tools.image import ImageMissingError


def main() -> int:
    """0 when the commands are green, 1 when one is not, 3 when the root cannot be made."""
    try:
        with bare.made() as machine:
            codes = []
            for command in bare.typed():
                print(f"$ {command}", flush=True)
                code, seconds, _ = bare.ran(machine, command)
                print(f"exit code {code} after {seconds:.0f} s", flush=True)
                codes.append(code)
            print("$ make check", *bare.before_it_begins(machine, "make check"), sep="\n")
    except ImageMissingError as error:
        print(error, file=sys.stderr)
        return 3
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())

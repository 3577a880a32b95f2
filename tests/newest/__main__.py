"""`python -m tests.newest` (`make newest`): three tiers on the newest Python, and which branches tests leave out."""

from __future__ import annotations

import sys

from tests import newest
from tools.image import ImageMissingError


def main() -> int:
    """0 when all pass and enough is taken, 1 when not, 3 when the root cannot be made."""
    try:
        root = newest.root(lambda text: print(text, flush=True))
    except ImageMissingError as error:
        print(error, file=sys.stderr)
        return 3
    code = newest.tested(root)
    found = newest.counted(root)
    print(found)
    return 1 if code or found.percent < newest.WANTED else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.referee FILE...`: sequences with the answers of our pure core as expectations.

Look at each before you keep it. A file under work may expect anything (cpus: shared, mems: any, shared: 0) as long as
it is well formed. A number in place of a file is the seed of a random sequence.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.referee.generate import answered, generate
from tests.referee.sequence import read, text_of

if __name__ == "__main__":
    for name in sys.argv[1:]:
        sequence = generate(int(name)) if name.isdecimal() else answered(read(Path(name)))
        sys.stdout.write(text_of(sequence))

"""`python -m tools.chart` (`make chart`): write what is generated from the chart, schema first."""

from __future__ import annotations

import sys

from tools.chart import rendering, values_schema


def main() -> int:
    """Write the files that differ, and name them."""
    (rendering.CHART / "values.schema.json").write_text(values_schema.written(), "utf-8")
    for path, text in rendering.generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(path.relative_to(rendering.ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())

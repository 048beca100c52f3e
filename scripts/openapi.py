"""Write ``spec/openapi.yaml``: what the server answers at ``GET /openapi.yaml``.

python scripts/openapi.py           write it
python scripts/openapi.py --check   exit with 1 when the file is not up to date
"""

import sys
from pathlib import Path

from mail.server.app import DOCUMENT

FILE = Path(__file__).resolve().parent.parent / "spec" / "openapi.yaml"


def main() -> int:
    """Write or check the file."""
    made = DOCUMENT.as_yaml
    if "--check" in sys.argv[1:]:
        if FILE.is_file() and FILE.read_bytes() == made:
            return 0
        print("spec/openapi.yaml is not up to date: run 'make openapi'", file=sys.stderr)
        return 1
    FILE.write_bytes(made)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

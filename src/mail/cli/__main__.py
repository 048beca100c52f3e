"""``python -m mail.cli``."""

import sys

from mail.cli.commands import main

sys.exit(main())

"""``python -m forebay.bench``."""

from . import main

raise SystemExit(main())

"""``python -m forebay``: the `forebay` command."""

from forebay._cli import main

raise SystemExit(main())

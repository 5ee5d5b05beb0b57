"""A plugin of pytest for mutants: a failing history is enough, nobody needs the smallest one."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("hasty", phases=(Phase.explicit, Phase.generate), database=None)
settings.load_profile("hasty")

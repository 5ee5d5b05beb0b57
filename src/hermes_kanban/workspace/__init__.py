"""Where a card is worked on: folders and git worktrees."""

from hermes_kanban.workspace.base import Workspaces

__all__ = ["Workspaces"]

"""Hermes Kanban: a durable task board that AI agents and people share."""

__version__ = "0.1.0"

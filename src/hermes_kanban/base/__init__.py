"""Errors, time, ids, settings, processes: the doors to the world outside."""

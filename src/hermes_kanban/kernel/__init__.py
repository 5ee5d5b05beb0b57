"""The verbs: one transaction each. Database only: no files, no processes, no environment."""

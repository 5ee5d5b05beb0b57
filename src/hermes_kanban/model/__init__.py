"""Pure records and rules: no I/O, no clock, no SQL."""

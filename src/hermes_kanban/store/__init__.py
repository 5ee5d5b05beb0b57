"""Named SQL on the database engines."""

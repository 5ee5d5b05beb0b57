"""The dispatcher: it starts workers for ready cards and gives whatever happens to them the right verdict."""

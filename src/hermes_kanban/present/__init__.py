"""Records to JSON and to text for people."""

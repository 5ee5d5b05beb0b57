"""How work is executed: the shim that watches over a worker, and the kinds of workers there are."""

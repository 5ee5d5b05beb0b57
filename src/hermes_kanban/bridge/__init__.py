"""The pull bridge: claims the cards of one name, runs a program for each under a shim, and books how it ends."""

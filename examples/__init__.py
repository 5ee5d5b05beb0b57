"""A show of the board at work, and worker programs to copy from: see README.md in this folder.

Nothing here imports `hermes_kanban`: like a worker in any other language, all of it uses the command line.
"""

"""Definitions in RabbitMQ's JSON shape; pure functions, used by gateways and the management process.

schema.py    The shape of what is read.
rows.py      What exists, as rows of lists and definitions.
export.py    Writing definitions.
policies.py  Policies, operator policies and topic permissions, out and in.
parameters.py  Parameters of components, out and in; the states of shovels.
importer.py  Reading them, as an import plan: stages of commands, and what is skipped and why.
"""

"""Parameters of components, which are shovels.

parameters.py  Parameters, and the states of shovels.
"""

"""The SDK: one protocol core without I/O, and two fronts with the same file names.

aio/   The SDK for asyncio. What it lacks beside its twin (sockets, answers, workers) asyncio brings along.
api/   What a program sees, whichever front it uses.
core/  The protocol core: no sockets, threads or event loop.
sync/  The SDK for threads.
"""

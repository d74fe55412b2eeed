"""The description of the HTTP API in OpenAPI 3.1, made from its endpoints, and a page that people read.

document.py  The description: paths, parameters, bodies, answers, errors.
answers.py   Types of what is answered, by path.
checks.py     Types of what health checks answer.
own_answers.py  Types of what is answered below /api/shardmq, likewise.
bodies.py    Types of requests' bodies, by path, where the endpoint does not tell them.
readable.py  The description as a page without scripts.
"""

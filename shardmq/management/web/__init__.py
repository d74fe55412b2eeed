"""What all endpoints share.

endpoint.py        An endpoint as a value: path, right, handler, description; and answers.
call.py            One request: parameters, body, who asks, and the broker through their login.
body.py            Fields of a request's body, as clients of RabbitMQ send them.
authentication.py  Who asks: Basic authentication, and users of this machine alone.
audit.py           Who changed what, and who was refused: lines of the log.
errors.py          Errors in RabbitMQ's shape, and which of the broker's becomes which.
listing.py         Paging, sorting, filtering, columns of lists.
absent.py          What RabbitMQ has and this has not: 501, and why.
paged.py           Lists that the broker pages, filters and sorts.
long_lists.py      Lists of any length, some hundred rows at a time.
sorting.py         Long lists in any order, in little memory.
encoding.py        Answers as JSON.
streaming.py       Large answers, sent piece by piece.
"""

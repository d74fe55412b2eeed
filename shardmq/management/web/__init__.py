"""What all endpoints share.

endpoint.py        An endpoint as a value: path, right, handler, description; and answers.
call.py            One request: parameters, body, who asks, and the broker through their login.
authentication.py  Who asks: Basic authentication, and users of this machine alone.
errors.py          Errors in RabbitMQ's shape, and which of the broker's becomes which.
listing.py         Paging, sorting, filtering, columns of lists.
encoding.py        Answers as JSON.
"""

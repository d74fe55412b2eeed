"""etcd as the configuration manager: a client of its JSON gateway that never blocks, and the register kept there.

etcd 3.4 to 3.6. What depends on no socket is apart, and is tested byte by byte:

url.py             Where etcd is: `etcds://user:password@h1:2379,h2:2379/prefix?cacertfile=ca.pem`.
errors.py          What can go wrong: nothing was sent, refused, nobody knows, unreadable.
messages.py        Requests and answers of the gateway.
answers.py         Bytes of answers read: both shapes of errors, and streams of a watch split anywhere.
values.py          The register's values: brokers, hosts, groups.

What does I/O, driven by the loop of a process:

members/           Connections to members of etcd.
client.py          Calls with deadlines, from member to member.
watching/          Being told of what is written.
register.py        Read, compare-and-swap and watch of typed values.
change.py          A value that is changed until it is what it should be.

On a thread of its own:

background.py      The register for loops that do not wait for it.
news.py            What it tells them.
"""

"""Several hosts on one machine, and what may befall them. Means, all of `Hosts` unless another class is named:

    with Hosts() as hosts:                        three hosts, three members of etcd and a client, each in a network
                                                  namespace of its own, on one bridge; etcd runs
    hosts["a"].spawn([…])                         a process on a host: a Process, with freeze, thaw and kill
    with hosts["a"].inside(): …                   sockets that this thread makes are on that host

    hosts.cut("a", "b")                           two hosts, both ways
    hosts.cut("a", "b", one_way=True)             what a sends to b is lost; what b sends to a arrives
    hosts.isolate("a")                            a host from all others; or all of several from the rest
    hosts.lose("a", "b", 0.1)                     a tenth of what a sends to b, by chance
    hosts.delay("a", "b", 0.05)                   what a sends to b comes 50 ms later
    hosts.heal()                                  no cut, loss or delay any more
    hosts["a"].freeze(), .thaw(), .kill()         all processes on a host: SIGSTOP, SIGCONT, kill -9
    hosts.etcd.members[0].freeze(), .kill(), …    a member of etcd; hosts.etcd.leader() is the one that leads

    remove_leftovers()                            of runs that crashed: namespaces, their processes, folders of etcd

network.py     Namespaces on a bridge; cuts and loss by nft, delay by a delay line.
delay_line.py  The process that hands frames on later: a kernel need not have netem, and a delay is by pair and one way.
hosts.py       Hosts with processes, and etcd.
members.py     Members of etcd, on loopback or on hosts; processes that end with the test run.
broker.py      A broker on the hosts, started by the documented commands.
document.py    The commands of its documentation.
deployed.py    The same broker by the files of deploy/hosts, on an etcd with TLS and users.
pages.py       Types what pages say, line by line.
listening.py   All that hosts send one another, and words in it.
traffic.py     A client of it, which says what was confirmed.
publishing.py  Such a client beside a test, and what must be true of what it saw.
faults.py      Faults by a seed while clients publish and consume; run as a program.
"""

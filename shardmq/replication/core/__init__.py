"""One replica of a group, without I/O: `Replica.step(now, event)` returns effects.

    events ──► replica.py ──► primary.py or follower.py ──► effects
                                   │            │
                              catch_up.py    register.py     (who catches up and how; what etcd says and is asked)
                                   └── state.py, note.py ──┘ (what lies on disk)

A replica knows no sockets, disks or clocks. Whoever runs it hands in what happened and carries out what it asks for,
in order: sends messages, commits, reads, swaps. It makes ready what it answers clients by itself, beside the index of
the record that it rests on, and lets it go when `Replica.may_answer` says so.

    replica.py    One replica: hands each event to its role, changes roles.
    primary.py    The role of the primary: beats and lease, records, releases, who is in sync.
    changes.py    What a primary changes about its group: evictions, growth, transfers, moves.
    follower.py   The role of followers and learners: promises, acknowledgements, campaigns.
    catch_up.py   How a primary brings a follower up to its store: by touched keys, or by key ranges.
    register.py   The group's key in etcd: what is known of it, and the one swap that may be under way.
    state.py      What both roles share: the note on disk, commits under way, touched keys, the group's clock.
    note.py       The note on disk, and where two histories part.
    group.py      The value of the group's key in etcd, and the changes it knows.
    messages.py   What replicas tell one another.
    events.py     What happens to a replica.
    effects.py    What a replica wants done.
    timing.py     Seconds and sizes, each beside its reason.
"""

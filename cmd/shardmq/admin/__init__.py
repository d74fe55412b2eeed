"""Commands about what exists, one noun a file.

exchange.py     `shardmq exchange`.
queue.py        `shardmq queue`.
binding.py      `shardmq binding`.
vhost.py        `shardmq vhost`.
user.py         `shardmq user`.
permission.py   `shardmq permission`.
policy.py       `shardmq policy`.
limits.py       `shardmq user limits`, `vhost limits`, and `shardmq watermark`.
connection.py   `shardmq connection`, `channel` and `consumer`.
transaction.py  `shardmq transaction`.
definitions.py  `shardmq definitions`.
status.py       `shardmq status`.
rates.py        Rates and processor shares, from two looks at a broker.
"""

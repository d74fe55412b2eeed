"""The client of etcd and the register, against a real etcd."""

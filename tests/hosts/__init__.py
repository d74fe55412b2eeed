"""Several hosts on one machine: members of etcd, network namespaces, and what may befall them."""

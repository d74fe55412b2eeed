#!/bin/sh
# Makes what etcd needs for TLS: certificates.sh FOLDER NAME…
#
# NAME is a name or an address of a member, as hosts and members call it; all are in the one certificate that they share.
# FOLDER/members goes to all members, FOLDER/ca.pem to all hosts, FOLDER/ca.key to nobody. While that is there, a second
# call makes another certificate of the same authority: for other members, or before the first one ends.

set -eu
[ $# -ge 2 ] || { echo "usage: $0 FOLDER NAME…" >&2; exit 2; }
folder=$1
shift
names=DNS:localhost,IP:127.0.0.1
for name in "$@"; do
    case $name in
        *:*) names=$names,IP:$name ;;
        *[!0-9.]*) names=$names,DNS:$name ;;
        *) names=$names,IP:$name ;;
    esac
done
umask 077
mkdir -p "$folder/members"
cd "$folder"
pair="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc"
# shellcheck disable=SC2086  # words
[ -e ca.key ] || openssl req -x509 $pair -subj "/O=shardmq/CN=etcd" -days 3650 -keyout ca.key -out ca.pem \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign 2>&1
# shellcheck disable=SC2086
openssl req -x509 $pair -CA ca.pem -CAkey ca.key -subj "/O=shardmq" -days 825 -keyout members/member.key -out members/member.pem \
    -addext "subjectAltName=$names" -addext basicConstraints=critical,CA:FALSE \
    -addext keyUsage=critical,digitalSignature -addext extendedKeyUsage=serverAuth,clientAuth 2>&1
cp ca.pem members/
chmod 755 . members
chmod 644 ca.pem members/*.pem

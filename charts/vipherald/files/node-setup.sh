#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Loads kernel modules and sets what a pod without privileges cannot, once before the daemon of this node starts. What is set already, or stricter, stays.
# MODULES: names, with spaces between. INTERFACE: where routers and clients are; empty: the interfaces with a default route. SYSCTLS: more, KEY=VALUE a line.
set -eu

command -v modprobe >/dev/null || { echo "node-setup: no modprobe in this image; nodeSetup.image names another one" >&2; exit 1; }
for module in $MODULES; do
    modprobe "$module" || echo "node-setup: the kernel has no module $module" >&2
done

# A key as sysctl(8) has it: with a slash for the dot in the name of an interface.
set_to() {
    file=/proc/sys/$(echo "$1" | tr ./ /.)
    [ -e "$file" ] || { echo "node-setup: the kernel has no $1" >&2; return 0; }
    echo "$2" >"$file"
    echo "$1 = $2"
}

# The greater of `all` and the interface counts.
in_force() {
    all=$(cat "/proc/sys/net/ipv4/conf/all/$2")
    own=$(cat "/proc/sys/net/ipv4/conf/$1/$2")
    [ "$all" -gt "$own" ] && echo "$all" || echo "$own"
}

of_interface() {
    echo "$3" >"/proc/sys/net/ipv4/conf/$1/$2"
    echo "$2 of $1 = $3"
}

default_routes() {
    while read -r interface destination _ _ _ _ _ mask _; do
        [ "$destination$mask" != 0000000000000000 ] || echo "$interface"
    done </proc/net/route | sort -u
}

set_to net.ipv4.ip_forward 1
for key in conntrack expire_nodest_conn expire_quiescent_template snat_reroute; do set_to "net.ipv4.vs.$key" 1; done
for interface in ${INTERFACE:-$(default_routes)}; do
    [ -d "/proc/sys/net/ipv4/conf/$interface" ] || { echo "node-setup: there is no interface $interface" >&2; continue; }
    [ "$(in_force "$interface" arp_ignore)" -ge 1 ] || of_interface "$interface" arp_ignore 1
    [ "$(in_force "$interface" arp_announce)" -ge 2 ] || of_interface "$interface" arp_announce 2
    [ "$(in_force "$interface" rp_filter)" -ne 1 ] || of_interface "$interface" rp_filter 2
done
printf '%s\n' "$SYSCTLS" | while IFS='=' read -r key value; do
    [ -z "$key" ] || set_to "$key" "$value"
done

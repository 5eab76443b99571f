#!/bin/sh
# What systemd does for the service of Debian's HAProxy: a master that is told by a signal to read its
# configuration again, and is started when it isn't there. Nothing else is known.
if [ "$*" != "reload-or-restart haproxy.service" ]; then
	echo "systemctl $*: this is a guest of the testbed" >&2
	exit 1
fi
if pid=$(cat /run/haproxy.pid 2>/dev/null) && kill -USR2 "$pid" 2>/dev/null; then
	exit 0
fi
haproxy -c -q -f /etc/haproxy/haproxy.cfg || exit 1
haproxy -W -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid &

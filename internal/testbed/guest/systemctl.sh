#!/bin/sh
# Replaces systemd for the service of Debian's HAProxy: a signal makes the running master reload its configuration;
# otherwise it is started. Other commands aren't supported.
if [ "$*" != "reload-or-restart haproxy.service" ]; then
	echo "systemctl $*: this is a guest of the testbed" >&2
	exit 1
fi
if pid=$(cat /run/haproxy.pid 2>/dev/null) && kill -USR2 "$pid" 2>/dev/null; then
	exit 0
fi
haproxy -c -q -f /etc/haproxy/haproxy.cfg || exit 1
haproxy -W -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid &

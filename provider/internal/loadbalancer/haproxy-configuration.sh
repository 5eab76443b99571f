#!/bin/sh
# Gives HAProxy the configuration that is on the disk of the load balancer. The host writes it there, also
# while this runs. The first line of the area has the length and the hash of what follows, and nothing is
# taken that doesn't have them.
set -u
umask 077
disk=${1:-/dev/disk/by-label/cidata} target=${2:-/etc/haproxy/haproxy.cfg} reload=${3:-systemctl reload-or-restart haproxy.service}
direct=${4-iflag=direct} pause=${5:-3}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 0' TERM INT
seen='' taken=''

# take <hash> takes the configuration of that hash, which is in $work/new.
take() {
	if ! haproxy -c -f "$work/new" >/dev/null; then
		echo "HAProxy doesn't take the configuration $1; the one before stays"
		return 0 # it won't get better
	fi
	if ! cmp -s "$work/new" "$target"; then
		# One rename: HAProxy never finds half of a file.
		cp "$work/new" "$target.new" && chmod 0644 "$target.new" && mv "$target.new" "$target" || return 1
	fi
	$reload || return 1
	echo "HAProxy has the configuration $1"
}

while true; do
	# The host has changed the disk behind the kernel's back, whose cache must not be asked.
	if dd if="$disk" of="$work/area" bs=65536 skip=16 count=1 $direct 2>/dev/null; then
		mark='' size='' sum=''
		read -r mark size sum <"$work/area" || true
		case "$mark/$size/$sum" in
		haproxy.cfg/[1-9]*/"$taken") ;;
		haproxy.cfg/[1-9]*/?*)
			head -n 1 "$work/area" >"$work/line"
			tail -c +$(($(wc -c <"$work/line") + 1)) "$work/area" | head -c "$size" >"$work/new"
			if [ "$(sha256sum <"$work/new" | cut -d ' ' -f 1)" = "$sum" ] && take "$sum"; then
				taken=$sum
			fi
			;;
		*)
			[ "$seen" = "$mark" ] || echo "There is no configuration of HAProxy on $disk"
			seen=$mark
			;;
		esac
	fi
	sleep "$pause"
done

#!/bin/sh
# Applies the configuration on the disk of the load balancer to HAProxy. The host may write it while this runs. The first
# line of the area has the length and the hash of the configuration, which must match.
set -u
umask 077
disk=${1:-/dev/disk/by-label/cidata} target=${2:-/etc/haproxy/haproxy.cfg} reload=${3:-systemctl reload-or-restart haproxy.service}
direct=${4-iflag=direct} pause=${5:-3}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 0' TERM INT
seen='' taken=''

# take <hash> applies the configuration with the hash, which is in $work/new.
take() {
	if ! haproxy -c -f "$work/new" >/dev/null; then
		echo "HAProxy rejects the configuration $1; the previous configuration stays"
		return 0 # a retry won't help
	fi
	if ! cmp -s "$work/new" "$target"; then
		# The rename is atomic: HAProxy never reads an incomplete file.
		cp "$work/new" "$target.new" && chmod 0644 "$target.new" && mv "$target.new" "$target" || return 1
	fi
	$reload || return 1
	echo "HAProxy has the configuration $1"
}

while true; do
	# The host changes the disk without the guest's kernel: read without its cache.
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

# SPDX-License-Identifier: MIT OR Apache-2.0
# Boots systemd in the root $1 as a container, and installs, uses and purges the package $3 of the folder $2 there.
# Prints the state of the root before, a divider, and the state after; everything else goes to standard error.
set -eu
root=$1

groups=$(mktemp -d)
mount -t cgroup2 cgroup2 "$groups"
group=$groups/turbolane-package-$$
mkdir "$group"
unshare=
first=
end() {
	# The first process of a PID namespace takes all others with it, and it outlives its parent.
	kill -KILL $first $unshare || true
	wait
	# They take a moment to end.
	for _ in $(seq 50); do
		find "$group" -depth -type d -exec rmdir {} + 2> /dev/null || true
		[ -d "$group" ] || break
		sleep 0.2
	done
	umount "$groups"
	rmdir "$groups"
}
trap end EXIT

mount --bind "$root" "$root"
mount -t sysfs sysfs "$root/sys"
for folder in run tmp dev; do
	mount -t tmpfs tmpfs "$root/$folder"
done
for device in null zero full random urandom tty; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mount --bind "$2" "$root/mnt"

boot='mount -t proc proc "$1/proc"
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
exec chroot "$1" env -i container=turbolane PATH=/usr/sbin:/usr/bin \
	/usr/lib/systemd/systemd --log-target=console --show-status=no --unit=basic.target'
# Its own control group first: it is the root of those that the container sees.
(
	echo 0 > "$group/cgroup.procs"
	exec unshare --mount --propagation private --pid --fork --kill-child --cgroup sh -ec "$boot" sh "$root"
) >&2 &
unshare=$!

# Runs a command in the container.
inside() {
	nsenter --target "$first" --mount --pid --root "$@"
}

for _ in $(seq 120); do
	sleep 0.5
	first=$(pgrep -P "$unshare" || true)
	[ -n "$first" ] || continue
	case $(inside systemctl is-system-running 2>&1 || true) in
	running | degraded) break ;;
	esac
done
inside systemctl is-active basic.target >&2

# A line for each file with its kind, mode and owner, and one with the checksum of its contents.
state() {
	inside sh -c '
		all() {
			find / -xdev \( -path /mnt -o -path /var/log \) -prune -o \
				! -path /var/lib/dpkg/status-old ! -path /var/cache/ldconfig/aux-cache "$@"
		}
		all -printf "%p\t%y %m %U %G %l\n"
		all -type f -exec sha256sum {} + | sed "s,^\([0-9a-f]*\)  \(.*\),\2 (contents)\t\1,"'
	# What a run creates while the machine is up.
	inside find /run -name "*turbolane*" -printf "%p\t%y\n"
	inside systemctl list-unit-files --no-legend --no-pager | sed "s/\([^ ]*\) */unit \1\t/"
	inside systemctl list-units --all --no-legend --no-pager "turbolane*" | sed "s/.*/loaded &\t/"
	inside sh -c '
		grep -s ^turbolane /proc/modules | cut -d" " -f1 | sed "s/.*/module &\t/"
		# Without what the kernel itself changes.
		cd /proc/sys/kernel
		find . -type f -readable ! -path "./random/*" ! -path "./ns_*" ! -path "./pty/nr" \
			! -path ./perf_event_max_sample_rate ! -path "./keys/*" |
			while read -r name; do
				echo "kernel.${name#./}	$(tr "\n" " " < "$name" 2> /dev/null)"
			done
		# Affinity masks of all processes, each once.
		grep -hs ^Cpus_allowed_list: /proc/[0-9]*/status | sort -u | sed "s/.*/&\t/"'
}

install() {
	inside dpkg --install "/mnt/$1"
}

pid() {
	inside systemctl show turbolane.service --property=MainPID --value
}

# What a user would do next; each step must succeed.
use() {
	inside turbolane --version
	for page in man1/turbolane.1 man1/turbolane-run.1 man1/turbolane-enable.1 man3/tl_wide_begin.3; do
		inside test -s "/usr/share/man/$page.gz"
	done
	inside test -s /usr/include/turbolane.h
	inside sh -c 'ldconfig -p | grep -q libturbolane.so.0'
	for library in preload openssl marks hint; do
		inside env "LD_PRELOAD=libturbolane_$library.so" true 2> "$groups.err"
		[ ! -s "$groups.err" ]
	done
	rm "$groups.err"
	inside bash -n /usr/share/bash-completion/completions/turbolane
	inside turbolane run --check --mode affinity --config /usr/share/doc/turbolane/examples/turbolane.toml
	inside sh -c '! turbolane status'
	inside systemd-analyze verify --man=no /usr/lib/systemd/system/turbolane.service
}

# In affinity mode, which leaves the scheduler of this machine alone. The unit is the package's.
serve() {
	inside turbolane enable --mode affinity --slice-wide 10ms --metrics /srv/turbolane.prom
	inside turbolane status
	# Written every 10 s, by a service that may write to few places.
	inside timeout 20 sh -c 'until grep -q ^turbolane_run_info /srv/turbolane.prom; do sleep 0.2; done'
	inside test ! -e /etc/systemd/system/turbolane.service
	before=$(pid)
	install "$1"
	inside turbolane status
	[ "$(pid)" != "$before" ]
	inside turbolane disable
	inside test ! -e /etc/turbolane.toml
	inside test ! -e /srv/turbolane.prom
	# Purged while it runs, and with settings of the operator.
	inside cp /usr/share/doc/turbolane/examples/turbolane.toml /etc/turbolane.toml
	inside sed -i 's/^# mode = .*/mode = "affinity"/; s,^# metrics = .*,metrics = "/srv/turbolane.prom",' /etc/turbolane.toml
	inside turbolane enable
	inside turbolane status
	before=$(pid)
	inside sed -i 's/^# slice-wide = .*/slice-wide = "9ms"/' /etc/turbolane.toml
	inside systemctl reload turbolane
	inside sh -c 'turbolane ctl get slice-wide | grep -q 9ms'
	[ "$(pid)" = "$before" ]
}

state
(
	install "$3"
	use
	serve "$3"
	inside dpkg --purge turbolane
) >&2
echo "== after the purge =="
state

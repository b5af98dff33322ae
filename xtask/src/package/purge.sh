# SPDX-License-Identifier: MIT OR Apache-2.0
# A day of a machine that has never seen the package, in the folder $1: installed, used, upgraded, purged. Runs on a
# guest that has booted systemd. Prints the state of the machine before, a divider, and the state after; everything
# else goes to standard error.
set -eu
folder=$1
deb=$folder/turbolane.deb
metrics=/var/lib/prometheus/node-exporter/turbolane.prom
crypto=/usr/lib/x86_64-linux-gnu/libcrypto.so.3

step() {
	echo "== $(cut -d' ' -f1 /proc/uptime) s: $*" >&2
}

# A line for each file with its kind, mode and owner, and one with the checksum of its contents. By
# MD5: an emulated processor needs seven times as long for SHA-256 (42 s for 7,058 files).
state() {
	# Written by others while the machine is up: logs, metrics of others, what systemd keeps for the next boot.
	all() {
		find / -xdev \( -path "$folder" -o -path /var/log -o -path /out -o -path /root \
			-o -path /var/lib/systemd -o -path /var/lib/prometheus \) -prune -o \
			! -path /var/lib/dpkg/status-old ! -path /var/cache/ldconfig/aux-cache "$@"
	}
	all -printf "%p\t%y %m %U %G %l\n"
	all -type f -exec md5sum {} + | sed "s,^\([0-9a-f]*\)  \(.*\),\2 (contents)\t\1,"
	# What a run creates while the machine is up.
	find /run /var/lib/prometheus /var/lib/systemd /var/log -name "*turbolane*" -printf "%p\t%y\n"
	systemctl list-unit-files --no-legend --no-pager | sed "s/\([^ ]*\) */unit \1\t/"
	systemctl list-units --all --no-legend --no-pager "turbolane*" | sed "s/.*/loaded &\t/"
	grep -s ^turbolane /proc/modules | cut -d" " -f1 | sed "s/.*/module &\t/"
	echo "scheduler $(cat /sys/kernel/sched_ext/state)	"
	# Without what the kernel itself changes.
	(
		cd /proc/sys/kernel
		find . -type f -readable ! -path "./random/*" ! -path "./ns_*" ! -path "./pty/nr" \
			! -path ./perf_event_max_sample_rate ! -path "./keys/*" |
			while read -r name; do
				echo "kernel.${name#./}	$(tr "\n" " " < "$name" 2> /dev/null)"
			done
	)
	# Affinity masks of all processes, each once.
	grep -hs ^Cpus_allowed_list: /proc/[0-9]*/status | sort -u | sed "s/.*/&\t/"
}

# Waits at most $1 s until the command that follows succeeds. The limits are for an emulated machine that shares its
# processor: the scheduler took 8 to 34 s to start there.
within() {
	limit=$1
	shift
	timeout "$limit" sh -c 'until "$@"; do sleep 0.2; done' sh "$@" > /dev/null && return
	echo "not within $limit s: $*" >&2
	return 1
}

# For a command that must fail: a shell does not end at one after an exclamation mark.
fails() {
	if "$@"; then
		echo "should have failed: $*" >&2
		return 1
	fi
}

property() {
	systemctl show turbolane.service --property="$1" --value
}

scheduler() {
	cat /sys/kernel/sched_ext/root/ops 2> /dev/null || cat /sys/kernel/sched_ext/state
}

# Each step must succeed.
use() {
	step "use"
	turbolane --version
	for page in man1/turbolane.1 man1/turbolane-run.1 man1/turbolane-enable.1 man3/tl_wide_begin.3; do
		test -s "/usr/share/man/$page.gz"
	done
	test -s /usr/include/turbolane.h
	ldconfig -p | grep -q libturbolane.so.0
	for library in preload openssl marks hint; do
		env "LD_PRELOAD=libturbolane_$library.so" true 2> /tmp/said
		[ ! -s /tmp/said ]
	done
	bash -n /usr/share/bash-completion/completions/turbolane
	turbolane run --check --mode affinity --config /usr/share/doc/turbolane/examples/turbolane.toml
	fails turbolane status
	systemd-analyze verify --man=no /usr/lib/systemd/system/turbolane.service
}

serve_affinity() {
	step "affinity mode"
	turbolane enable --mode affinity --slice-wide 10ms --metrics /srv/turbolane.prom
	turbolane status
	# By a service that may write to few places.
	within 120 grep -q ^turbolane_run_info /srv/turbolane.prom
	test ! -e /etc/systemd/system/turbolane.service
	before=$(property MainPID)
	dpkg --install "$deb"
	turbolane status
	[ "$(property MainPID)" != "$before" ]
	turbolane disable
	test ! -e /etc/turbolane.toml
	test ! -e /srv/turbolane.prom
}

serve_scheduler() {
	step "the scheduler"
	turbolane enable --wide-cpus 1 --mark "$crypto:EVP_EncryptUpdate@2" --metrics "$metrics"
	[ "$(scheduler)" = turbolane ]
	turbolane status
	journalctl --no-pager --output json TURBOLANE_EVENT=started TURBOLANE_MODE=scx TURBOLANE_WIDE_CPUS=3 |
		grep '"_SYSTEMD_UNIT":"turbolane.service"'
	systemd-run --quiet --unit=crypt openssl speed -seconds 3000 -bytes 16384 -evp chacha20-poly1305
	within 120 sh -c 'turbolane stats --json | grep -q "\"mark_events\":[1-9]"'

	step "upgrade while it runs"
	before=$(property MainPID)
	since=$(property ActiveEnterTimestampMonotonic)
	dpkg --install "$deb"
	[ "$(property MainPID)" != "$before" ]
	[ "$(property ActiveEnterTimestampMonotonic)" = "$since" ]
	[ "$(property NRestarts)" = 0 ]
	[ "$(scheduler)" = turbolane ]
	turbolane status
	journalctl --no-pager --output json TURBOLANE_EVENT=took-over "TURBOLANE_OTHER_PID=$before" |
		grep '"TURBOLANE_GAP_US":"[0-9]*"'

	step "advise on a unit"
	turbolane advise --unit crypt --for 3s --machine xeon-gold-6130
	fails turbolane advise --unit crypto --for 3s

	step "a service that hangs"
	kill -STOP "$(property MainPID)"
	within 120 sh -c '[ "$(systemctl show turbolane --property=NRestarts --value)" = 1 ]'
	within 120 turbolane status
	[ "$(scheduler)" = turbolane ]
	journalctl --unit turbolane --no-pager --output cat | grep -i watchdog

	step "metrics by node_exporter and Prometheus"
	within 120 sh -c '/run/guest/bin/wget -q -O - http://127.0.0.1:9100/metrics | grep ^turbolane_run_info'
	cat > /tmp/prometheus.yml <<-END
		global: {scrape_interval: 2s, evaluation_interval: 2s}
		rule_files: [/usr/share/doc/turbolane/examples/prometheus/turbolane.rules.yml]
		scrape_configs: [{job_name: node, static_configs: [{targets: ["127.0.0.1:9100"]}]}]
	END
	systemd-run --quiet --unit=watch prometheus --config.file=/tmp/prometheus.yml \
		--storage.tsdb.path=/tmp/prometheus --web.listen-address=127.0.0.1:9091
	within 120 sh -c '/run/guest/bin/wget -q -O - "http://127.0.0.1:9091/api/v1/query?query=turbolane_run_info" |
		grep "\"mode\":\"scx\""'
	within 120 sh -c '/run/guest/bin/wget -q -O /tmp/rules http://127.0.0.1:9091/api/v1/rules &&
		grep "\"name\":\"TurbolaneStalled\".*\"health\":\"ok\"" /tmp/rules'
	fails grep -e '"health":"err"' -e '"state":"firing"' /tmp/rules
	systemctl stop watch
}

change() {
	step "settings of the operator"
	turbolane disable
	[ "$(scheduler)" = disabled ]
	cp /usr/share/doc/turbolane/examples/turbolane.toml /etc/turbolane.toml
	sed -i "s,^# metrics = .*,metrics = \"$metrics\"," /etc/turbolane.toml
	turbolane enable
	turbolane status
	before=$(property MainPID)
	sed -i 's/^# slice-wide = .*/slice-wide = "9ms"/' /etc/turbolane.toml
	systemctl reload turbolane
	turbolane ctl get slice-wide | grep -q 9ms
	[ "$(property MainPID)" = "$before" ]
}

state
(
	# What the service said, if a step fails.
	trap '[ $? = 0 ] || journalctl --unit turbolane --no-pager --lines 20' EXIT
	step "install"
	dpkg --install "$deb"
	use
	serve_affinity
	serve_scheduler
	change
	step "purge while it runs"
	dpkg --purge turbolane
	systemctl stop crypt
	step "done"
) >&2
echo "== after the purge =="
state

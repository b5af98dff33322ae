#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Records a web server as DIM 6.2.2 traced it: nginx, one worker on one CPU, a
# static text of 72 KiB, compressed by gzip as it is served, over TLS with
# ChaCha20-Poly1305 by OpenSSL's AVX-512 code. nginx-trace.md says what came out.
# As root, on Debian 12, AVX-512, two CPUs:
#
#     cargo build --release
#     docs/experiments/nginx-trace.sh OUT
#
# OUT gets, for each level of compression, nginx-gzipN.trace (the recording) and
# nginx-gzipN.jsonl (its timeline on the paper's machine). nginx and wrk are
# unpacked into a temporary folder and not installed, so no service starts;
# nothing but apt's lists (where there are none) changes, and nothing stays,
# however this ends. For some seconds a CPU is the server's alone.
#
# TURBOLANE names another program, DURATION another length of the recordings,
# LEVELS other levels [default: nginx's 1, zlib's 6, 9], PORT another port on
# localhost. PAIRS: requests per second with and without a recorder are measured
# so many times, in turns [default: 0].
set -eu

here=$(dirname "$0")
out=${1:?where results go}
TURBOLANE=$(realpath "${TURBOLANE:-$here/../../target/release/turbolane}")
DURATION=${DURATION:-1s}
LEVELS=${LEVELS:-1 6 9}
PORT=${PORT:-18443}
PAIRS=${PAIRS:-0}

refuse() {
	echo "nginx-trace: $1" >&2
	exit "${2:-2}"
}
[ "$(id -u)" = 0 ] || refuse "recording needs root: run it by sudo"
[ -x "$TURBOLANE" ] || refuse "there is no $TURBOLANE: cargo build --release, or set TURBOLANE"
grep -qw avx512f /proc/cpuinfo || refuse "this CPU has no AVX-512" 77
[ "$(nproc)" -ge 2 ] || refuse "the server and its clients need a CPU each" 77

mkdir -p "$out"
out=$(realpath "$out")
tmp=$(mktemp -d)
server= client= recorder=
stop() {
	[ -z "$1" ] || ! kill "$1" 2>/dev/null || wait "$1" 2>/dev/null || :
}
clean() {
	trap - EXIT
	stop "$recorder"
	stop "$client"
	stop "$server"
	rm -rf "$tmp"
}
trap clean EXIT
trap 'clean; exit 130' INT TERM HUP

# What is not installed in its newest version, unpacked.
packages="nginx-light wrk openssl"
for package in $packages; do
	apt-cache show "$package" >"$tmp/apt.log" 2>&1 || {
		apt-get update -qq
		break
	}
done
mkdir -p "$tmp/debs/partial" "$tmp/root"
apt-get install -qq -y --download-only --no-install-recommends -o APT::Sandbox::User=root \
	-o Dir::Cache::archives="$tmp/debs" $packages >"$tmp/apt.log" 2>&1 || {
	cat "$tmp/apt.log" >&2
	refuse "cannot download $packages"
}
for deb in "$tmp"/debs/*.deb; do
	[ ! -e "$deb" ] || dpkg -x "$deb" "$tmp/root"
done
PATH=$tmp/root/usr/sbin:$tmp/root/usr/bin:$PATH:/usr/sbin
export LD_LIBRARY_PATH="$tmp/root/usr/lib/x86_64-linux-gnu"
nginx=$(realpath "$(command -v nginx)")
crypto=$(realpath "$(ldd "$nginx" | awk '$1 ~ /^libcrypto/ { print $3 }')")
"$nginx" -v 2>&1
openssl version

# OpenSSL chooses its code by the CPU: if it is slower without AVX-512, it uses that.
speed() {
	openssl speed -seconds 1 -evp chacha20-poly1305 -bytes 16384 2>/dev/null | awk 'END { print $2 }'
}
echo "openssl speed, ChaCha20-Poly1305, 16 KiB, kB/s: $(speed); without AVX-512 $(OPENSSL_ia32cap=:~0x10000 speed)"

mkdir "$tmp/html"
(cd /usr/share/common-licenses && cat GPL-3 GPL-2 LGPL-2.1) | head -c 73728 >"$tmp/html/page.txt"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost \
	-keyout "$tmp/key.pem" -out "$tmp/cert.pem" 2>"$tmp/openssl.log"

# Starts nginx, which compresses at this level.
serve() {
	stop "$server"
	cat >"$tmp/nginx.conf" <<-EOF
		daemon off;
		master_process off;
		pid $tmp/pid;
		error_log $tmp/error.log;
		events { }
		http {
			access_log off;
			client_body_temp_path $tmp/body;
			proxy_temp_path $tmp/proxy;
			fastcgi_temp_path $tmp/fastcgi;
			uwsgi_temp_path $tmp/uwsgi;
			scgi_temp_path $tmp/scgi;
			types { text/plain txt; }
			gzip on;
			gzip_comp_level $1;
			gzip_types text/plain;
			keepalive_requests 1000000;
			server {
				listen 127.0.0.1:$PORT ssl;
				ssl_certificate $tmp/cert.pem;
				ssl_certificate_key $tmp/key.pem;
				ssl_protocols TLSv1.3;
				ssl_conf_command Ciphersuites TLS_CHACHA20_POLY1305_SHA256;
				root $tmp/html;
			}
		}
	EOF
	# ahead of what else runs there, which would cut requests in two
	chrt -f 10 taskset -c 0 "$nginx" -e "$tmp/error.log" -c "$tmp/nginx.conf" &
	server=$!
	tries=0
	until openssl s_client -connect "127.0.0.1:$PORT" </dev/null >"$tmp/hello" 2>&1; do
		if ! kill -0 "$server" 2>/dev/null || [ $((tries += 1)) -gt 50 ]; then
			cat "$tmp/error.log" >&2
			refuse "nginx does not serve on port $PORT; set PORT if it is taken"
		fi
		sleep 0.1
	done
	grep -q 'Cipher is TLS_CHACHA20_POLY1305_SHA256' "$tmp/hello" || refuse "nginx chose another cipher"
}

# Eight connections that always want something, so that the server never idles.
load() {
	chrt -f 10 taskset -c 1 wrk -t1 -c8 -d "$1" -H 'Accept-Encoding: gzip' "https://127.0.0.1:$PORT/page.txt"
}

# Records the server under load. The rest of the arguments are the recorder's.
under_load() {
	load 4s >"$tmp/load" &
	client=$!
	sleep 2
	record --duration "$DURATION" "$@"
	wait "$client"
	client=
	grep Requests/sec "$tmp/load"
}
record() {
	"$TURBOLANE" record -q --pid "$server" "$@"
}

code=0
"$TURBOLANE" scan --level 1 --marks "$tmp/wide.marks" "$crypto" >"$tmp/scan" || code=$?
[ "$code" = 1 ] || refuse "no wide functions were found in $crypto"
serve 1
echo "== OpenSSL's wide functions"
under_load --marks "$tmp/wide.marks" -o "$tmp/wide.trace"
"$TURBOLANE" trace "$tmp/wide.trace"

# SSL_read and SSL_write begin with an instruction that a probe would have to
# single-step; their callers in nginx do little else, and do not.
calls="--mark $nginx:ngx_ssl_recv@2 --mark $nginx:ngx_ssl_write@2"
for level in $LEVELS; do
	name=nginx-gzip$level
	echo "== calls into OpenSSL, gzip at level $level"
	serve "$level"
	under_load $calls -o "$out/$name.trace"
	"$TURBOLANE" trace "$out/$name.trace"
	"$TURBOLANE" trace "$out/$name.trace" --task "$server" --machine core-i9-7940x --no-turbo \
		--hint ngx_ssl_recv,ngx_ssl_write --timeline "$out/$name.jsonl"
	"$TURBOLANE" sim --replay "$out/$name.jsonl" --no-turbo \
		--dvfs hardware,fixed:2ms,fixed:180us,break-even,share,hints,oracle
done

rate() { load 3s | awk '/^Requests.sec/ { print $2 }'; }
[ "$PAIRS" = 0 ] || serve 1
for pair in $(seq "$PAIRS"); do
	plain=$(rate)
	record --duration 4s $calls -o "$tmp/load.trace" &
	recorder=$!
	sleep 0.5
	recorded=$(rate)
	wait "$recorder"
	recorder=
	echo "pair $pair: $plain requests/s, $recorded recorded"
done

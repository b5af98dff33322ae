#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The experiments of wide-bursts.md and web-bursts.md: builds the program and
# compares its variants by `turbolane verify`. As root, on Debian:
#
#     apt install gcc libopenblas-dev libssl-dev zlib1g-dev util-linux
#     cargo build --release
#     docs/experiments/bursts.sh wide|web OUT
#
# OUT gets each comparison as JSON. TURBOLANE and LIBRARY name another program
# and another folder of libturbolane.so, RUNS and SECONDS_EACH other amounts.
set -eu

here=$(dirname "$0")
load=${1:?which load, wide or web}
out=${2:?where results go}
TURBOLANE=${TURBOLANE:-$here/../../target/release/turbolane}
LIBRARY=${LIBRARY:-$here/../../target/release}
RUNS=${RUNS:-50}
SECONDS_EACH=${SECONDS_EACH:-0.3}

# How the program's library is told which form of its kernel to take: with
# AVX-512, with AVX2 at most, with neither.
case $load in
wide)
	libraries=-lopenblas
	wide="OPENBLAS_CORETYPE=SkylakeX"
	narrow="OPENBLAS_CORETYPE=Haswell"
	plain="OPENBLAS_CORETYPE=Nehalem"
	;;
web)
	# Bits of OPENSSL_ia32cap(3): see web-bursts.md. Quoted, for a shell may
	# replace ~; never empty, for that takes all bits away. On Skylake-SP and
	# Cascade Lake, where OpenSSL hides AVX512F, wide needs the whole vectors.
	libraries=-lcrypto
	wide="OPENSSL_ia32cap=':~0'"
	narrow="OPENSSL_ia32cap=':~0xc0230000'"
	plain="OPENSSL_ia32cap=':~0xc0230020'"
	;;
*)
	echo "bursts.sh: there is no load $load; there are wide and web" >&2
	exit 2
	;;
esac

mkdir -p "$out"
cc -O2 -Wall -I"$here/../../include" "$here/$load-bursts.c" -o "$out/$load-bursts" \
	"$libraries" -lz -L"$LIBRARY" -lturbolane
# the library's own name, by which a program asks for it
ln -sf "$(realpath "$LIBRARY")/libturbolane.so" "$out/libturbolane.so.0"
export LD_LIBRARY_PATH="$out" OPENBLAS_NUM_THREADS=1

# Ahead of everything else on its CPU, since other load would be all that is seen.
program="chrt -f 10 $out/$load-bursts"
lane="$TURBOLANE run --mode affinity --wide-cpus 1 --"

# NAME, PART of the request, A, B: is B's time of that part shorter than A's?
# 1 (worse) and 77 (cannot be told) are answers.
compare() {
	echo "== $1, $2 ($(uptime | sed 's/.*load/load/'))"
	code=0
	"$TURBOLANE" verify --runs "$RUNS" --less --metric "$2 {} us" \
		--a "$3" --b "$4" --json >"$out/$1.json" || code=$?
	case $code in
	0 | 1 | 77) sed 's/.*"effect":{"a":\([0-9]*\)[^,]*,"b":\([0-9]*\)[^,]*,.*"verdict":"\([^"]*\)"}$/\1, \2 us: \3/' "$out/$1.json" ;;
	*) exit 2 ;;
	esac
}

alone="$wide $program scalar $SECONDS_EACH"
on="$wide $program place $SECONDS_EACH"
off="$narrow $program place $SECONDS_EACH"
neither="$plain $program place $SECONDS_EACH"
delegated="$wide $lane $program delegate $SECONDS_EACH"
expected="$wide $lane $program expect $SECONDS_EACH"
hinted="$wide $lane $program hint $SECONDS_EACH"
glibc="GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW $on"

compare same "quiet scalar" "$on" "$on"
compare licence "quiet scalar" "$alone" "$on"
compare off-scalar "quiet scalar" "$on" "$off"
compare off-request request "$on" "$off"
compare neither-request request "$on" "$neither"
compare glibc-scalar "quiet scalar" "$on" "$glibc"
compare delegate-scalar "quiet scalar" "$on" "$delegated"
compare delegate-request request "$on" "$delegated"
compare expect-request request "$on" "$expected"
compare hint-scalar "quiet scalar" "$on" "$hinted"
compare hint-request request "$on" "$hinted"
compare delegate-or-off request "$off" "$delegated"
# For the simulator's scenario: each part alone, cycles at its own clock.
for part in "$wide $program scalar" "$wide $program wide" "$narrow $program wide" "$plain $program wide"; do
	echo "== $part"
	sh -c "$part 2"
done

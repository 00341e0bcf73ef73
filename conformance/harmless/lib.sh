# Sourced by each script: `. lib.sh DIR yes|no`. Works in DIR, which is empty. The second word says
# whether the script runs under `uringlet run`: it ends with 99 if that is not so.
# Lines that begin with "= " are the outcome; they are the same in each run.
set -eu
cd "$1"
is_attached=no
if grep -q liburinglet /proc/$$/maps; then is_attached=yes; fi
if [ "$is_attached" != "$2" ]; then
	echo "liburinglet.so is mapped: $is_attached, expected: $2"
	exit 99
fi
export LC_ALL=C TZ=UTC

# The output of a command, as outcome, then its exit status.
outcome() {
	local status=0
	"$@" > outcome.txt || status=$?
	sed 's/^/= /' outcome.txt
	echo "= $1: exit status $status"
}

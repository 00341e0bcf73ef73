# strace: follows a shell and its children, injects an error, attaches to a running process.
. "$(dirname "$0")/lib.sh" "$1" "$2"
wanted() { sed -E 's/^\[?(pid +)?[0-9]+\]? +//' | grep -oE '(openat|unlinkat|mkdir)\([^)]*(wanted|absent|folder)[^)]*\) = .*' | sed -E 's/= [0-9]+$/= N/'; }
strace -f -o trace.txt sh -c 'mkdir folder; echo x > wanted-a; cat wanted-a absent; perl -e "open F, q(<), q(wanted-a)"; exit 4' || echo "= status $?"
wanted < trace.txt | sort > calls.txt
outcome cat calls.txt
outcome strace -qq -o /dev/null -e trace=mkdir -e inject=mkdir:error=ENOSPC mkdir refused
outcome strace -f -c -o counts.txt sh -c 'true | cat; exit 2'
outcome sh -c 'sleep 1 & strace -q -o attached.txt -p $! ; grep -c "exited with 0" attached.txt'

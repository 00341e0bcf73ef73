# perl: processes, pipes, sockets, signals, threads, locks.
. "$(dirname "$0")/lib.sh" "$1" "$2"
cat > processes.pl <<'P'
use strict; use warnings; use POSIX qw(:sys_wait_h :signal_h dup2); use IPC::Open3; use Fcntl qw(:flock :DEFAULT :seek);
use Socket; use IO::Handle; use Time::HiRes qw(alarm sleep); use Symbol 'gensym';
$| = 1;
my $pid = fork() // die; exit 7 unless $pid; waitpid($pid, 0); print "fork ", $? >> 8, "\n";
print "backticks ", `echo a b | tr a-z A-Z`;
system("exit 5;"); print "system ", $? >> 8, "\n";
system("true"); print "list ", system("sh", "-c", "kill -9 \$\$") & 127, "\n";
open(my $in, "-|", "cat /etc/passwd") or die; my @lines = <$in>; close $in; print "pipe ", ($lines[0] =~ /^root/ ? 1 : 0), "\n";
open(my $out, "|-", "wc -c") or die; print $out "x" x 70000; close $out;
my $err = gensym; my $p3 = open3(my $w, my $r, $err, "sh", "-c", "cat; echo e >&2"); print $w "in\n"; close $w;
print "open3 ", join("", <$r>), join("", <$err>); waitpid($p3, 0);
socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die; $_->autoflush(1) for $a, $b;
if (my $child = fork()) { close $b; print $a "ping\n"; print "socket ", scalar <$a>; waitpid($child, 0) } else { close $a; my $l = <$b>; print $b "pong $l"; POSIX::_exit(0) }
my $hits = 0; local $SIG{ALRM} = sub { $hits++ }; alarm(0.05); my $rin = ""; my $n = select(undef, undef, undef, 2); print "alarm $hits ", ($n == -1 ? 1 : 0), "\n";
local $SIG{CHLD} = sub { 1 while waitpid(-1, WNOHANG) > 0; $hits++ }; fork() || POSIX::_exit(0); sleep 0.5; print "chld ", ($hits > 1 ? 1 : 0), "\n"; $SIG{CHLD} = 'DEFAULT';
sysopen(my $f, "file", O_RDWR | O_CREAT | O_TRUNC) or die; flock($f, LOCK_EX); syswrite($f, "hello"); sysseek($f, 1, SEEK_SET); sysread($f, my $buf, 3); print "file $buf\n";
truncate($f, 2); print "size ", -s "file", "\n"; close $f; rename("file", "moved"); print "gone ", (-e "file" ? 1 : 0), "\n";
opendir(my $d, ".") or die; print "dir ", join(" ", sort grep { !/^\./ } readdir $d), "\n";
my $set = POSIX::SigSet->new(SIGUSR1); sigprocmask(SIG_BLOCK, $set); my $usr = 0; $SIG{USR1} = sub { $usr++ }; kill USR1 => $$; print "blocked $usr "; sigprocmask(SIG_UNBLOCK, $set); print "then $usr\n";
eval { local $SIG{__DIE__} = sub { print "dying\n" }; die "x\n" }; print "eval $@";
open(my $saved, ">&", \*STDOUT); open(STDOUT, ">", "redirected"); print "inside\n"; system("echo child"); close STDOUT; open(STDOUT, ">&", $saved); open(my $red, "<", "redirected"); print "redirected ", join("", <$red>);
exec("sh", "-c", "echo exec \$0; exit 9", "zero");
P
cat > threads.pl <<'P'
use strict; use warnings; use Config; unless ($Config{useithreads}) { print "no threads\n"; exit }
require threads; require threads::shared; require Thread::Queue;
my $q = Thread::Queue->new; my $sum :shared = 0;
my @t = map { threads->create(sub { while (defined(my $x = $q->dequeue)) { lock $sum; $sum += $x } }) } 1 .. 4;
$q->enqueue($_) for 1 .. 1000; $q->end; $_->join for @t; print "sum $sum\n";
P
outcome perl processes.pl
outcome perl threads.pl

# gcc and make: a program of several files, an archive, a shared library, built by parallel jobs.
. "$(dirname "$0")/lib.sh" "$1" "$2"
for n in $(seq 6); do
	printf '#include <stdio.h>\n#include <math.h>\ndouble part_%s(double x) { return sqrt(x) + %s; }\n' $n $n > part-$n.c
done
{
	echo '#include <stdio.h>'
	for n in $(seq 6); do echo "double part_$n(double);"; done
	echo 'int main(void) { double sum = 0;'
	for n in $(seq 6); do echo "sum += part_$n($n);"; done
	echo 'printf("%.6f\n", sum); return 3; }'
} > main.c
cat > Makefile <<'M'
SHELL = /bin/bash
CFLAGS = -O2 -g -flto -pipe -fPIC
PARTS = $(patsubst %.c,%.o,$(wildcard part-*.c))
all: program shared
parts.a: $(PARTS)
	$(AR) rcs $@ $(sort $^)
libparts.so: $(PARTS)
	$(CC) -shared -o $@ $(sort $^) -lm
program: main.o parts.a
	$(CC) -O2 -flto=2 -o $@ $^ -lm
shared: main.o libparts.so
	$(CC) -O2 -o $@ main.o -L. -lparts -Wl,-rpath,'$$ORIGIN' -lm
M
make -s -j4
outcome ./program
outcome ./shared
echo 'int main(void) { return undeclared; }' > broken.c
outcome gcc -c broken.c
outcome make -s no-such-target
gcc -c -g0 -o part.o part-1.c
outcome nm part.o
outcome sh -c 'sha256sum part.o'

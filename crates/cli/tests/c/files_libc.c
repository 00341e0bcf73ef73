/*
 * Numbers that libc closes by itself, under an armed request: the request goes on with its file,
 * and the number's next user is a file like any other.
 */
#define _GNU_SOURCE
#include "robust_ring.h"
#include <dirent.h>

static FILE *stream;

static void by_fclose(void)
{
	fclose(stream);
}

static void by_freopen(void)
{
	check("reopened", freopen("/dev/null", "r", stream) == stream, 1);
	fclose(stream);
}

static void by_closefrom(void)
{
	/* Only of what this program opened last. */
	close_range(fileno(stream), fileno(stream), 0);
}

static void by_dup2(void)
{
	int null = open("/dev/null", O_RDONLY), number = fileno(stream);

	check("replaced", dup2(null, number), number);
	close(null);
	close(number);
}

static void closed_by(const char *how, void (*close_it)(void))
{
	uint64_t soonest = -1;

	section = how;
	struct ring r = new_ring(8);
	for (int round = 0; round < 8; round++) {
		char old = 0, new = 0, again = 0;
		int p[2], q[2];

		pipe(p);
		int number = p[0], ahead = dup(p[1]);
		stream = fdopen(number, "r");
		submit(&r, SQE(.opcode = READ, .fd = number, .addr = ADDR(&old), .len = 1, .user_data = 1));
		check("armed", comes(&r, 2), 0);
		close_it();
		pipe(q);
		check("the number is used again", q[0], number);
		write(q[1], "n", 1);
		check("not by the old request", comes(&r, 5), 0);
		submit(&r, SQE(.opcode = READ, .fd = number, .addr = ADDR(&new), .len = 1, .user_data = 2));
		struct cqe cqe = next_cqe(&r);
		check("the new request", cqe.user_data, 2);
		check("has the new file's byte", new, 'n');
		/* An armed one as well, and soon. */
		submit(&r, SQE(.opcode = READ, .fd = number, .addr = ADDR(&again), .len = 1, .user_data = 3));
		check("armed", comes(&r, 1), 0);
		uint64_t start = now_us();
		write(q[1], "m", 1);
		cqe = next_cqe(&r);
		uint64_t took = now_us() - start;
		soonest = took < soonest ? took : soonest;
		check("the next one", cqe.user_data, 3);
		check("has the next byte", again, 'm');
		check("the old file is open", write(ahead, "o", 1), 1);
		cqe = next_cqe(&r);
		check("the old request", cqe.user_data, 1);
		check("has the old file's byte", old, 'o');
		close(ahead);
		close(p[1]);
		close(q[0]);
		close(q[1]);
	}
	is_true("soon", soonest < 40000);
	end_ring(&r);
}

/* The shell writes after pclose() has closed the number: the request still has the file. */
static void by_pclose(void)
{
	char line[8] = "";

	section = "pclose";
	struct ring r = new_ring(8);
	int go[2];
	char command[64];

	pipe(go);
	snprintf(command, sizeof(command), "read x <&%d; echo late", go[0]);
	stream = popen(command, "r");
	submit(&r, SQE(.opcode = READ, .fd = fileno(stream), .addr = ADDR(line), .len = 5, .user_data = 1));
	check("armed", comes(&r, 2), 0);
	/* The line is written by a process that sleeps a little. */
	if (fork() == 0) {
		sleep_ms(20);
		write(go[1], "\n", 1);
		_exit(0);
	}
	check("it ends well", pclose(stream), 0);
	check("read", next(&r), 5);
	check("late", strcmp(line, "late\n"), 0);
	wait(0);
	end_ring(&r);
	close(go[0]);
	close(go[1]);
}

/* What was known of a directory is forgotten. */
static void by_closedir(void)
{
	section = "closedir";
	struct ring r = new_ring(8);
	char byte = 0;
	int p[2];

	DIR *dir = opendir(".");
	int number = dirfd(dir);
	check("a directory", run(&r, SQE(.opcode = READ, .fd = number, .addr = ADDR(&byte), .len = 1)), -EISDIR);
	closedir(dir);
	pipe(p);
	check("the number is used again", p[0], number);
	submit(&r, SQE(.opcode = READ, .fd = number, .addr = ADDR(&byte), .len = 1));
	check("armed", comes(&r, 2), 0);
	write(p[1], "x", 1);
	check("a pipe", next(&r), 1);
	end_ring(&r);
	close(p[0]);
	close(p[1]);
}

/* A stream in memory has no number, and that is no error. */
static void no_number(void)
{
	section = "no number";
	char room[8];
	FILE *memory = fmemopen(room, sizeof(room), "w");

	errno = 0;
	check("fclose", fclose(memory), 0);
	check("errno", errno, 0);
}

int main(void)
{
	block_if_asked();
	closed_by("fclose", by_fclose);
	closed_by("freopen", by_freopen);
	closed_by("close_range", by_closefrom);
	closed_by("dup2", by_dup2);
	by_pclose();
	by_closedir();
	no_number();
	return finish();
}

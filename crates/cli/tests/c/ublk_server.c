/*
 * An ordinary ublk server, under `uringlet run`: serves device 0 from memory until another process
 * stops it. usage: ublk_server FLAGS [bad|recover|fork]
 */
#include "ublk.h"

int main(int argc, char **argv)
{
	struct server server = { .depth = DEPTH };
	const char *mode = argc > 2 ? argv[2] : "";

	block_io_uring();
	server.flags = strtoull(argv[1], 0, 0);
	control_open();
	if (!strcmp(mode, "recover")) {
		check(control(START_RECOVERY, 0, 0, 0), 0);
	} else {
		check(add_device(server.flags, DEPTH), 0);
		check(set_params(), 0);
	}
	if (!strcmp(mode, "bad")) {
		/* The address is unmapped, and the server does not check it. */
		server.null = 1;
		for (int tag = 0; tag < DEPTH; tag++)
			server.buffers[tag] = (char *)0x10000;
	}
	server_start(&server);
	check(control(strcmp(mode, "recover") ? START_DEV : END_RECOVERY, 0, 0, getpid()), 0);
	check(device_state(), LIVE);
	if (!strcmp(mode, "fork") && fork() == 0) {
		/* A child that outlives the server, until the pipe that it reads from is closed. */
		char byte;
		_exit(read(0, &byte, 1) < 0);
	}
	printf("live\n");
	fflush(stdout);
	pthread_join(server.thread, 0);
	check(server.asked > 0, (server.flags & F_NEED_GET_DATA) != 0);
	(void)client_open, (void)client_close, (void)client_run;
	return failures != 0;
}

/* The entries of a ring's queues. */
#pragma once
#include <stdint.h>

#define ADDR(p) ((uint64_t)(uintptr_t)(p))

struct sqe {
	uint8_t opcode, flags;
	uint16_t ioprio;
	int32_t fd;
	uint64_t off, addr;
	uint32_t len, op_flags;
	uint64_t user_data;
	uint16_t buf_index, personality;
	union {
		int32_t file_index, fd_in;
	};
	union {
		struct {
			uint64_t addr3, pad2;
		};
		uint8_t cmd[16];
	};
};

struct cqe {
	uint64_t user_data;
	int32_t res;
	uint32_t flags;
};

// A ring by raw system calls, from goroutines whose stacks are small: NOPs, a timeout, a close.
package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	setup   = 425
	enter   = 426
	entries = 8

	offSQ   = 0
	offSQEs = 0x10000000

	opNop     = 0
	opTimeout = 11
	getEvents = 1
)

type offsets struct{ head, tail, mask, entries, flags, dropped, array, reserved uint32 }

type params struct {
	sqEntries, cqEntries, flags, cpu, idle, features, wqFd uint32
	_                                                      [3]uint32
	sq                                                     offsets
	_                                                      uint64
	cqHead, cqTail, cqMask, cqSize, cqOverflow, cqes       uint32
	_                                                      [4]uint32
}

type sqe struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off, addr     uint64
	length, op    uint32
	userData      uint64
	_             [3]uint64
}

type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

type ring struct {
	fd         uintptr
	memory, sq []byte
	p          params
}

func must(what string, value uintptr, errno syscall.Errno) uintptr {
	if errno != 0 {
		fmt.Println(what, errno)
		os.Exit(1)
	}
	return value
}

func mapRing(fd, length, offset uintptr) []byte {
	at, _, errno := syscall.Syscall6(syscall.SYS_MMAP, 0, length, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED, fd, offset)
	must("mmap", at, errno)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), int(length))
}

func newRing() *ring {
	r := &ring{}
	fd, _, errno := syscall.Syscall(setup, entries, uintptr(unsafe.Pointer(&r.p)), 0)
	r.fd = must("setup", fd, errno)
	r.memory = mapRing(fd, uintptr(max(r.p.cqes+16*r.p.cqSize, r.p.sq.array+4*r.p.sqEntries)), offSQ)
	r.sq = mapRing(fd, uintptr(64*r.p.sqEntries), offSQEs)
	return r
}

func (r *ring) word(offset uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.memory[offset])) }

// Submits one request and waits for its result.
func (r *ring) do(request sqe) cqe {
	tail := atomic.LoadUint32(r.word(r.p.sq.tail))
	index := tail & atomic.LoadUint32(r.word(r.p.sq.mask))
	*(*sqe)(unsafe.Pointer(&r.sq[64*index])) = request
	*r.word(r.p.sq.array + 4*index) = index
	atomic.StoreUint32(r.word(r.p.sq.tail), tail+1)
	toSubmit := uintptr(1)
	for {
		n, _, errno := syscall.Syscall6(enter, r.fd, toSubmit, 1, getEvents, 0, 0)
		// The runtime preempts goroutines by signals.
		if errno != syscall.EINTR {
			must("enter", n, errno)
			toSubmit = 0
		}
		head := atomic.LoadUint32(r.word(r.p.cqHead))
		if head != atomic.LoadUint32(r.word(r.p.cqTail)) {
			index := head & *r.word(r.p.cqMask)
			done := *(*cqe)(unsafe.Pointer(&r.memory[r.p.cqes+16*index]))
			atomic.StoreUint32(r.word(r.p.cqHead), head+1)
			return done
		}
	}
}

func work(number uint64) {
	r := newRing()
	for i := uint64(0); i < 100; i++ {
		if done := r.do(sqe{opcode: opNop, userData: i + number}); done.userData != i+number || done.res != 0 {
			fmt.Println("wrong result", done)
			os.Exit(1)
		}
	}
	wait := [2]int64{0, 20e6}
	done := r.do(sqe{opcode: opTimeout, fd: -1, addr: uint64(uintptr(unsafe.Pointer(&wait))), length: 1, userData: 7})
	if done.res != -int32(syscall.ETIME) {
		fmt.Println("timeout", done)
		os.Exit(1)
	}
	must("close", 0, func() syscall.Errno { _, _, errno := syscall.Syscall(syscall.SYS_CLOSE, r.fd, 0, 0); return errno }())
}

func main() {
	var all sync.WaitGroup
	for i := uint64(0); i < 4; i++ {
		all.Add(1)
		go func() { defer all.Done(); work(1000 * i) }()
	}
	all.Wait()
	fmt.Println("rings ok")
}

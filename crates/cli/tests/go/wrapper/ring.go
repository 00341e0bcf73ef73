// Package wrapper is a ring by raw system calls, as Go modules for io_uring have it.
package wrapper

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	sysSetup = 425
	sysEnter = 426

	offSqes   = 0x10000000
	getEvents = 1

	OpNop   = 0
	OpFsync = 3
	OpRead  = 22
	OpWrite = 23
	OpOpen  = 18
	OpClose = 19

	Async = 1 << 4
	Link  = 1 << 2
)

type offsets struct {
	head, tail, mask, entries, flags, dropped, array, reserved uint32
	userAddr                                                   uint64
}

type params struct {
	sqEntries, cqEntries, flags, cpu, idle, features, wq uint32
	reserved                                             [3]uint32
	sq, cq                                               offsets
}

// Sqe is a submission queue entry.
type Sqe struct {
	Opcode, Flags uint8
	ioprio        uint16
	Fd            int32
	Off, Addr     uint64
	Len, OpFlags  uint32
	UserData      uint64
	reserved      [3]uint64
}

// Cqe is a completion queue entry.
type Cqe struct {
	UserData uint64
	Res      int32
	Flags    uint32
}

// Ring belongs to one goroutine at a time.
type Ring struct {
	fd     uintptr
	p      params
	memory []byte
	sqes   []byte
	queued uint32
}

// New makes a ring. The error is the kernel's.
func New(entries uint32) (*Ring, error) {
	r := &Ring{}
	fd, _, errno := syscall.Syscall6(sysSetup, uintptr(entries), uintptr(unsafe.Pointer(&r.p)), 0, 0, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	r.fd = fd
	size := max(r.cqes()+16*r.p.cqEntries, r.p.sq.array+4*r.p.sqEntries)
	var err error
	if r.memory, err = mapped(fd, size, 0); err == nil {
		r.sqes, err = mapped(fd, 64*r.p.sqEntries, offSqes)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func mapped(fd uintptr, size uint32, offset int64) ([]byte, error) {
	return syscall.Mmap(int(fd), offset, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_POPULATE)
}

// Close ends the ring.
func (r *Ring) Close() {
	for _, memory := range [][]byte{r.memory, r.sqes} {
		if memory != nil {
			syscall.Munmap(memory)
		}
	}
	syscall.Close(int(r.fd))
}

// For the CQ the words are head, tail, mask, entries, overflow, cqes, flags.
func (r *Ring) cqes() uint32 { return r.p.cq.dropped }

func (r *Ring) word(at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.memory[at])) }

// Push queues a request.
func (r *Ring) Push(s Sqe) {
	tail := *r.word(r.p.sq.tail)
	index := tail & (r.p.sqEntries - 1)
	*(*Sqe)(unsafe.Pointer(&r.sqes[64*index])) = s
	*r.word(r.p.sq.array + 4*index) = index
	atomic.StoreUint32(r.word(r.p.sq.tail), tail+1)
	r.queued++
}

// Wait submits what is queued and returns as many completions.
func (r *Ring) Wait(count int) ([]Cqe, error) {
	var done []Cqe
	for {
		for len(done) < count {
			head := *r.word(r.p.cq.head)
			if head == atomic.LoadUint32(r.word(r.p.cq.tail)) {
				break
			}
			done = append(done, *(*Cqe)(unsafe.Pointer(&r.memory[r.cqes()+16*(head&(r.p.cqEntries-1))])))
			atomic.StoreUint32(r.word(r.p.cq.head), head+1)
		}
		if len(done) == count && r.queued == 0 {
			return done, nil
		}
		n, _, errno := syscall.Syscall6(sysEnter, r.fd, uintptr(r.queued), uintptr(count-len(done)), getEvents, 0, 0)
		if errno == 0 {
			r.queued -= uint32(n)
		} else if errno != syscall.EINTR {
			return nil, errno
		}
	}
}

// Transfer reads or writes all of a buffer.
func (r *Ring) Transfer(opcode, flags uint8, fd int, buffer []byte, offset uint64) (int32, error) {
	r.Push(Sqe{Opcode: opcode, Flags: flags, Fd: int32(fd), Off: offset, Addr: uint64(uintptr(unsafe.Pointer(&buffer[0]))), Len: uint32(len(buffer))})
	done, err := r.Wait(1)
	runtime.KeepAlive(buffer)
	if err != nil {
		return 0, err
	}
	return done[0].Res, nil
}

// A Go program with a ring of its own, without cgo: writes a file by several goroutines, reads it back
// and checks each byte; then a timer, a pipe that becomes readable later, and children.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	sysSetup, sysEnter     = 425, 426
	opNop, opRead, opWrite = 0, 22, 23
	opTimeout              = 11
	enterGetevents         = 1
	offSQ, offCQ, offSQEs  = 0, 0x8000000, 0x10000000
	block                  = 4096
)

type params struct {
	sqEntries, cqEntries, flags, cpu, idle, features, wq uint32
	resv                                                 [3]uint32
	sq                                                   struct {
		head, tail, mask, entries, flags, dropped, array, resv uint32
		userAddr                                               uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, resv uint32
		userAddr                                               uint64
	}
}
type sqe struct {
	op, flags uint8
	ioprio    uint16
	fd        int32
	off, addr uint64
	len, rw   uint32
	userData  uint64
	rest      [3]uint64
}
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}
type ring struct {
	sync.Mutex
	fd                     int
	rings                  []byte
	sqes                   []sqe
	sqTail, cqHead, cqTail *uint32
	sqMask, cqMask         uint32
	array                  []uint32
	cqes                   []cqe
}

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func errnoOf(e syscall.Errno) error {
	if e != 0 {
		return e
	}
	return nil
}

func newRing(entries uint32) *ring {
	var p params
	fd, _, e := syscall.Syscall(sysSetup, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	check(errnoOf(e))
	size := int(p.cq.cqes + p.cqEntries*16)
	if array := int(p.sq.array + p.sqEntries*4); array > size {
		size = array
	}
	rings, err := syscall.Mmap(int(fd), offSQ, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	sqes, err := syscall.Mmap(int(fd), offSQEs, int(p.sqEntries)*64, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&rings[off])) }
	return &ring{fd: int(fd), rings: rings, sqes: unsafe.Slice((*sqe)(unsafe.Pointer(&sqes[0])), p.sqEntries),
		sqTail: at(p.sq.tail), cqHead: at(p.cq.head), cqTail: at(p.cq.tail), sqMask: *at(p.sq.mask), cqMask: *at(p.cq.mask),
		array: unsafe.Slice(at(p.sq.array), p.sqEntries), cqes: unsafe.Slice((*cqe)(unsafe.Pointer(&rings[p.cq.cqes])), p.cqEntries)}
}

// do submits the requests and returns the result of each.
func (r *ring) do(requests ...sqe) []int32 {
	r.Lock()
	defer r.Unlock()
	for i := range requests {
		requests[i].userData = uint64(i)
		tail := atomic.LoadUint32(r.sqTail)
		r.sqes[tail&r.sqMask] = requests[i]
		r.array[tail&r.sqMask] = tail & r.sqMask
		atomic.StoreUint32(r.sqTail, tail+1)
	}
	left := len(requests)
	results := make([]int32, left)
	toSubmit := uintptr(left)
	for left > 0 {
		n, _, e := syscall.Syscall6(sysEnter, uintptr(r.fd), toSubmit, uintptr(left), enterGetevents, 0, 0)
		if e == syscall.EINTR {
			continue
		}
		check(errnoOf(e))
		toSubmit -= n
		for head := atomic.LoadUint32(r.cqHead); head != atomic.LoadUint32(r.cqTail); head++ {
			c := r.cqes[head&r.cqMask]
			results[c.userData] = c.res
			left--
			atomic.StoreUint32(r.cqHead, head+1)
		}
	}
	return results
}

func pattern(at int64) []byte { return bytes.Repeat([]byte{byte(at * 7 % 251)}, block) }

func rw(op uint8, fd uintptr, b []byte, off int64) sqe {
	return sqe{op: op, fd: int32(fd), addr: uint64(uintptr(unsafe.Pointer(&b[0]))), len: uint32(len(b)), off: uint64(off)}
}

func file(dir string) {
	f, err := os.CreateTemp(dir, "ring")
	check(err)
	defer os.Remove(f.Name())
	var all sync.WaitGroup
	for worker := int64(0); worker < 8; worker++ {
		all.Add(1)
		go func() {
			defer all.Done()
			r := newRing(16)
			for round := int64(0); round < 16; round++ {
				at := (worker*16 + round) * 4
				var pin runtime.Pinner
				var writes, reads []sqe
				var back [][]byte
				for i := at; i < at+4; i++ {
					out, in := pattern(i), make([]byte, block)
					pin.Pin(&out[0])
					pin.Pin(&in[0])
					writes, reads, back = append(writes, rw(opWrite, f.Fd(), out, i*block)), append(reads, rw(opRead, f.Fd(), in, i*block)), append(back, in)
				}
				for _, res := range append(r.do(writes...), r.do(reads...)...) {
					if res != block {
						check(fmt.Errorf("a block's result is %d", res))
					}
				}
				for i, in := range back {
					if !bytes.Equal(in, pattern(at+int64(i))) {
						check(fmt.Errorf("block %d came back otherwise", at+int64(i)))
					}
				}
				pin.Unpin()
				runtime.GC()
			}
			syscall.Close(r.fd)
		}()
	}
	all.Wait()
	read, err := os.ReadFile(f.Name())
	check(err)
	for i := int64(0); i < 512; i++ {
		if !bytes.Equal(read[i*block:(i+1)*block], pattern(i)) {
			check(fmt.Errorf("block %d of the file is wrong", i))
		}
	}
	fmt.Println("file")
}

func waits() {
	r := newRing(8)
	var fds [2]int
	check(syscall.Pipe(fds[:]))
	in := make([]byte, 5)
	go func() {
		time := syscall.NsecToTimespec(2e7)
		syscall.Nanosleep(&time, nil)
		syscall.Write(fds[1], []byte("later"))
	}()
	after := syscall.NsecToTimespec(1e7)
	results := r.do(rw(opRead, uintptr(fds[0]), in, -1), sqe{op: opTimeout, fd: -1, addr: uint64(uintptr(unsafe.Pointer(&after))), len: 1}, sqe{op: opNop})
	if results[0] != 5 || string(in) != "later" || syscall.Errno(-results[1]) != syscall.ETIME || results[2] != 0 {
		check(fmt.Errorf("waits: %v %q", results, in))
	}
	fmt.Println("waits")
}

func children() {
	if len(os.Args) > 2 {
		return
	}
	self, err := os.Executable()
	check(err)
	out, err := exec.Command(self, os.Args[1], "child").CombinedOutput()
	if err != nil || string(out) != "file\nwaits\nall well\n" {
		check(fmt.Errorf("child: %v %s", err, out))
	}
	out, err = exec.Command("sh", "-c", "exec \"$0\" \"$1\" grandchild", self, os.Args[1]).CombinedOutput()
	if err != nil || string(out) != "file\nwaits\nall well\n" {
		check(fmt.Errorf("grandchild: %v %s", err, out))
	}
	fmt.Println("children")
}

func main() {
	file(os.Args[1])
	waits()
	children()
	fmt.Println("all well")
}

// Goroutines with rings of their own, while the runtime preempts them by signals, collects garbage,
// profiles, and starts children. The argument is the path of the program. Exit status: 0 all as
// expected, 1 not, 77 no ring.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	setup      = 425
	enter      = 426
	getEvents  = 1
	extArg     = 8
	offSqes    = 0x10000000
	opNop      = 0
	opTimeout  = 11
	opRead     = 22
	opWrite    = 23
	forceAsync = 16
)

type offsets struct {
	head, tail, mask, entries, flags, dropped, array, resv1 uint32
	userAddr                                                uint64
}

type params struct {
	sqEntries, cqEntries, flags, cpu, idle, features, wq uint32
	resv                                                 [3]uint32
	sq, cq                                               offsets
}

type sqe struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off, addr     uint64
	length, rw    uint32
	userData      uint64
	pad           [3]uint64
}

type ring struct {
	fd     int
	p      params
	memory []byte
	sqes   []byte
}

var failures atomic.Int32

func expect(what string, got, want int) {
	if got != want {
		fmt.Printf("%s: %d, expected %d\n", what, got, want)
		failures.Add(1)
	}
}

func newRing(entries uint32) *ring {
	r := &ring{}
	fd, _, errno := syscall.Syscall(setup, uintptr(entries), uintptr(unsafe.Pointer(&r.p)), 0)
	if errno != 0 {
		fmt.Println("no ring:", errno)
		os.Exit(77)
	}
	r.fd = int(fd)
	size := max(r.cqes()+16*r.p.cqEntries, r.p.sq.array+4*r.p.sqEntries)
	var err error
	r.memory, err = syscall.Mmap(r.fd, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_POPULATE)
	if err == nil {
		r.sqes, err = syscall.Mmap(r.fd, offSqes, int(64*r.p.sqEntries), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_POPULATE)
	}
	if err != nil {
		fmt.Println("mmap:", err)
		os.Exit(1)
	}
	for i := uint32(0); i < r.p.sqEntries; i++ {
		*r.word(r.p.sq.array + 4*i) = i
	}
	return r
}

// Where the CQEs are: for the CQ the words are head, tail, mask, entries, overflow, cqes, flags.
func (r *ring) cqes() uint32 { return r.p.cq.dropped }

func (r *ring) word(at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.memory[at])) }

func (r *ring) push(s sqe) {
	tail := r.word(r.p.sq.tail)
	*(*sqe)(unsafe.Pointer(&r.sqes[64*(*tail&(r.p.sqEntries-1))])) = s
	atomic.StoreUint32(tail, *tail+1)
}

func (r *ring) take() (uint64, int32, bool) {
	head := r.word(r.p.cq.head)
	if atomic.LoadUint32(r.word(r.p.cq.tail)) == *head {
		return 0, 0, false
	}
	at := r.cqes() + 16*(*head&(r.p.cqEntries-1))
	data, res := *(*uint64)(unsafe.Pointer(&r.memory[at])), *(*int32)(unsafe.Pointer(&r.memory[at+8]))
	atomic.StoreUint32(head, *head+1)
	return data, res, true
}

// Waits for one CQE: by a call that the scheduler knows of, or by one that it does not.
func (r *ring) next(isRaw bool) int32 {
	for {
		if _, res, ok := r.take(); ok {
			return res
		}
		ts := [2]int64{0, 20_000_000}
		arg := [3]uint64{0, 0, uint64(uintptr(unsafe.Pointer(&ts)))}
		call := syscall.Syscall6
		if isRaw {
			call = syscall.RawSyscall6
		}
		_, _, errno := call(enter, uintptr(r.fd), 0, 1, getEvents|extArg, uintptr(unsafe.Pointer(&arg)), unsafe.Sizeof(arg))
		runtime.KeepAlive(&ts)
		if errno != 0 && errno != syscall.EINTR && errno != syscall.ETIME {
			fmt.Println("a wait:", errno)
			failures.Add(1)
			return -9999
		}
	}
}

func (r *ring) run(s sqe, isRaw bool) int32 {
	r.push(s)
	call := syscall.Syscall6
	if isRaw {
		call = syscall.RawSyscall6
	}
	for {
		n, _, errno := call(enter, uintptr(r.fd), 1, 0, 0, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		expect("submitted", int(n), 1)
		break
	}
	return r.next(isRaw)
}

// At a stack depth that grows step by step: the stack may be nearly full at any of these calls.
func deep(r *ring, depth int, isRaw bool) int32 {
	var room [40]byte
	room[depth%40] = 1
	if depth == 0 {
		return r.run(sqe{opcode: opNop}, isRaw)
	}
	return deep(r, depth-1, isRaw) + int32(room[(depth+1)%40])
}

func work(end time.Time, n int, rounds *atomic.Int64) {
	r := newRing(8)
	var pipe [2]int
	syscall.Pipe(pipe[:])
	buffer := make([]byte, 64)
	for i := 0; time.Now().Before(end); i++ {
		isRaw := (i+n)%2 == 0
		expect("a NOP", int(r.run(sqe{opcode: opNop}, isRaw)), 0)
		expect("a NOP at some depth", int(deep(r, i%200, isRaw)), 0)
		expect("a write", int(r.run(sqe{opcode: opWrite, fd: int32(pipe[1]), off: ^uint64(0), addr: uint64(uintptr(unsafe.Pointer(&buffer[0]))), length: 64}, isRaw)), 64)
		expect("a read", int(r.run(sqe{opcode: opRead, flags: uint8(i % 2 * forceAsync), fd: int32(pipe[0]), off: ^uint64(0), addr: uint64(uintptr(unsafe.Pointer(&buffer[0]))), length: 64}, isRaw)), 64)
		ts := [2]int64{0, 300_000}
		expect("a timer", int(r.run(sqe{opcode: opTimeout, addr: uint64(uintptr(unsafe.Pointer(&ts))), length: 1}, false)), -int(syscall.ETIME))
		rounds.Add(1)
		if i%50 == 0 {
			// The stack moves; garbage is made.
			go func() { _ = make([]byte, 1<<16) }()
		}
		runtime.KeepAlive(buffer)
	}
	_, errRead := syscall.Read(r.fd, buffer)
	if errRead != syscall.EINVAL {
		fmt.Println("read of a ring:", errRead)
		failures.Add(1)
	}
	syscall.Munmap(r.memory)
	syscall.Munmap(r.sqes)
	syscall.Close(r.fd)
	syscall.Close(pipe[0])
	syscall.Close(pipe[1])
}

func busy(end time.Time) {
	for x := 0; time.Now().Before(end); {
		for i := 0; i < 50_000_000; i++ {
			x += i
		}
	}
}

func children(end time.Time) {
	for time.Now().Before(end) {
		out, err := exec.Command("/bin/echo", "child").Output()
		if err != nil || string(out) != "child\n" {
			fmt.Printf("a child: %q %v\n", out, err)
			failures.Add(1)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func main() {
	own, err := os.Executable()
	if err != nil || own != os.Args[1] {
		fmt.Printf("os.Executable: %q %v, expected %q\n", own, err, os.Args[1])
		failures.Add(1)
	}
	debug.SetGCPercent(20)
	signals := make(chan os.Signal, 100)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGALRM)
	profile, _ := os.CreateTemp("", "profile")
	defer os.Remove(profile.Name())
	if err := pprof.StartCPUProfile(profile); err != nil {
		fmt.Println("profile:", err)
		failures.Add(1)
	}
	end := time.Now().Add(2 * time.Second)
	var rounds atomic.Int64
	var all sync.WaitGroup
	start := func(f func()) {
		all.Add(1)
		go func() { defer all.Done(); f() }()
	}
	for n := 0; n < 16; n++ {
		start(func() { work(end, n, &rounds) })
	}
	start(func() { busy(end) })
	start(func() { children(end) })
	start(func() {
		for time.Now().Before(end) {
			runtime.GC()
			syscall.Kill(syscall.Getpid(), syscall.SIGUSR1)
			time.Sleep(time.Millisecond)
		}
	})
	all.Wait()
	pprof.StopCPUProfile()
	if info, err := profile.Stat(); err != nil || info.Size() < 100 {
		fmt.Println("no profile", err)
		failures.Add(1)
	}
	if len(signals) == 0 {
		fmt.Println("no signal came")
		failures.Add(1)
	}
	if rounds.Load() < 50 {
		fmt.Println("rounds:", rounds.Load())
		failures.Add(1)
	}
	fmt.Println("failures:", failures.Load())
	if failures.Load() > 0 {
		os.Exit(1)
	}
}

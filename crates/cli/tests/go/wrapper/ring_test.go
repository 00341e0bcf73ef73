package wrapper

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"
)

// Where there is no ring, nothing is tested. Exit status 77 says so.
func TestMain(m *testing.M) {
	ring, err := New(8)
	if err != nil {
		fmt.Println("no ring:", err)
		os.Exit(77)
	}
	ring.Close()
	os.Exit(m.Run())
}

func newRing(t *testing.T) *Ring {
	ring, err := New(16)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ring.Close)
	return ring
}

func TestNopsCompleteInOrder(t *testing.T) {
	t.Parallel()
	ring := newRing(t)
	for round := 0; round < 200; round++ {
		for i := uint64(0); i < 16; i++ {
			ring.Push(Sqe{Opcode: OpNop, UserData: i})
		}
		done, err := ring.Wait(16)
		if err != nil {
			t.Fatal(err)
		}
		for i, cqe := range done {
			if cqe.UserData != uint64(i) || cqe.Res != 0 {
				t.Fatalf("CQE %d: %+v", i, cqe)
			}
		}
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ring := newRing(t)
	for i := 0; i < 100; i++ {
		block, back := bytes.Repeat([]byte{byte(i + 1)}, 4096), make([]byte, 4096)
		if n, err := ring.Transfer(OpWrite, uint8(i%2*Async), int(file.Fd()), block, uint64(4096*i)); err != nil || n != 4096 {
			t.Fatal("a write:", n, err)
		}
		other, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := ring.Transfer(OpRead, uint8(i%3/2*Async), int(other.Fd()), back, uint64(4096*i)); err != nil || n != 4096 {
			t.Fatal("a read:", n, err)
		}
		other.Close()
		if !bytes.Equal(block, back) {
			t.Fatal("the bytes of block", i)
		}
	}
	ring.Push(Sqe{Opcode: OpFsync, Flags: Link, Fd: -1, UserData: 1})
	ring.Push(Sqe{Opcode: OpNop, UserData: 2})
	done, err := ring.Wait(2)
	if err != nil || done[0].Res != -int32(syscall.EBADF) || done[1].Res != -int32(syscall.ECANCELED) {
		t.Fatal("a chain:", done, err)
	}
}

func TestGoroutinesWaitForEachOther(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for n := 0; n < 8; n++ {
		var pipe [2]int
		if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		reader, writer := newRing(t), newRing(t)
		message := []byte(fmt.Sprintf("message %d", n))
		all.Add(2)
		go func() {
			defer all.Done()
			back := make([]byte, len(message))
			if res, err := reader.Transfer(OpRead, 0, pipe[0], back, ^uint64(0)); err != nil || int(res) != len(message) || !bytes.Equal(back, message) {
				t.Error("read:", res, err, string(back))
			}
			syscall.Close(pipe[0])
		}()
		go func() {
			defer all.Done()
			runtime.GC()
			if res, err := writer.Transfer(OpWrite, 0, pipe[1], message, ^uint64(0)); err != nil || int(res) != len(message) {
				t.Error("written:", res, err)
			}
			syscall.Close(pipe[1])
		}()
	}
	all.Wait()
}

func TestARingOpensAndCloses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "opened")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	ring := newRing(t)
	name, back := append([]byte(path), 0), make([]byte, 7)
	ring.Push(Sqe{Opcode: OpOpen, Fd: -100, Addr: uint64(uintptr(unsafe.Pointer(&name[0]))), OpFlags: syscall.O_RDONLY})
	done, err := ring.Wait(1)
	runtime.KeepAlive(name)
	if err != nil || done[0].Res < 0 {
		t.Fatal("open:", done, err)
	}
	fd := int(done[0].Res)
	if n, err := ring.Transfer(OpRead, 0, fd, back, 0); err != nil || n != 7 || string(back) != "content" {
		t.Fatal("a read:", n, err, string(back))
	}
	ring.Push(Sqe{Opcode: OpClose, Fd: int32(fd)})
	if done, err = ring.Wait(1); err != nil || done[0].Res != 0 {
		t.Fatal("close:", done, err)
	}
}

// The child of a test is this program again: it finds itself, and has rings as well.
func TestAChildHasRings(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(own, "-test.run=^TestNopsCompleteInOrder$")
	output, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "PASS") {
		t.Fatalf("%v\n%s", err, output)
	}
}

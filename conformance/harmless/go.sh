# go: builds and tests a module without and with cgo. GOCACHE is shared by the runs; the packages of
# the module are built in each.
. "$(dirname "$0")/lib.sh" "$1" "$2"
export GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off GO111MODULE=on
printf 'module example.com/small\n\ngo 1.20\n' > go.mod
cat > small.go <<'G'
package small

import ("os"; "os/exec"; "strings"; "sync")

func Sum(n int) int { var wg sync.WaitGroup; var mu sync.Mutex; sum := 0
	for i := 0; i < n; i++ { wg.Add(1); go func(i int) { defer wg.Done(); mu.Lock(); sum += i; mu.Unlock() }(i) }
	wg.Wait(); return sum }

func Child(script string) (string, int) { out, err := exec.Command("sh", "-c", script).Output(); code := 0
	if e, ok := err.(*exec.ExitError); ok { code = e.ExitCode() } else if err != nil { code = -1 }
	return strings.TrimSpace(string(out)), code }

func Self() bool { path, err := os.Executable(); if err != nil { return false }; _, err = os.Stat(path); return err == nil && !strings.Contains(path, "uringlet") }
G
cat > small_test.go <<'G'
package small

import ("io"; "net"; "os"; "os/signal"; "runtime"; "syscall"; "testing"; "time")

func TestSum(t *testing.T) { if Sum(1000) != 499500 { t.Fatal(Sum(1000)) } }
func TestChild(t *testing.T) { if out, code := Child("echo a; exit 3"); out != "a" || code != 3 { t.Fatal(out, code) } }
func TestSelf(t *testing.T) { if !Self() { t.Fatal(os.Executable()) } }
func TestSignal(t *testing.T) { c := make(chan os.Signal, 1); signal.Notify(c, syscall.SIGUSR1); syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	select { case <-c: case <-time.After(10 * time.Second): t.Fatal("no signal") } }
func TestGC(t *testing.T) { for i := 0; i < 100; i++ { _ = make([]byte, 1<<20) }; runtime.GC() }
func TestNet(t *testing.T) { l, err := net.Listen("tcp", "127.0.0.1:0"); if err != nil { t.Fatal(err) }; defer l.Close()
	go func() { for { c, err := l.Accept(); if err != nil { return }; go func() { io.Copy(c, c); c.Close() }() } }()
	for i := 0; i < 20; i++ { c, err := net.Dial("tcp", l.Addr().String()); if err != nil { t.Fatal(err) }; c.Write([]byte("hello")); b := make([]byte, 5); if _, err := io.ReadFull(c, b); err != nil { t.Fatal(err) }; c.Close() } }
func TestPanic(t *testing.T) { defer func() { if recover() == nil { t.Fatal("no panic") } }(); var p *int; *p = 1 }
func TestFails(t *testing.T) { t.Fatal("as it must") }
G
mkdir program
printf 'package main\n\nimport ("fmt"; "example.com/small"; "os")\n\nfunc main() { fmt.Println(small.Sum(100), small.Self()); os.Exit(2) }\n' > program/main.go
for cgo in 0 1; do
	export CGO_ENABLED=$cgo
	go vet ./... || true
	outcome sh -c 'go test -count=1 -v ./... 2>&1 | grep -oE "^ *--- (PASS|FAIL): [A-Za-z]+" | sort'
	if [ $cgo = 1 ]; then
		printf 'package main\n\n// #include <unistd.h>\n// static int sum(int a, int b) { usleep(10); return a + b; }\nimport "C"\n\nfunc init() { println(C.sum(1, 2)) }\n' > program/cgo.go
	fi
	go build -o built ./program
	outcome ./built
done
outcome go build ./no-such-folder

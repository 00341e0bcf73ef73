// Starts children from many goroutines, in a program that the dynamic linker loads (cgo).
package main

import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
)

func main() {
	var children sync.WaitGroup
	for i := 0; i < 50; i++ {
		children.Add(1)
		go func() {
			defer children.Done()
			out, err := exec.Command("sh", "-c", "echo child").Output()
			if err != nil || string(out) != "child\n" {
				fmt.Println(err, string(out))
				os.Exit(1)
			}
			runtime.GC()
		}()
	}
	children.Wait()
}

//go:build cgo

package wrapper

import "testing"

func TestCIsCalled(t *testing.T) {
	if answer() != 42 {
		t.Fatal("C's answer")
	}
}

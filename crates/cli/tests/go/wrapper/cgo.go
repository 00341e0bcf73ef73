//go:build cgo

package wrapper

// static int answer(void) { return 42; }
import "C"

func answer() int { return int(C.answer()) }

package proc

import (
	"bytes"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what a figure depends on beside the code. What cannot be read is empty.
type Machine struct {
	Processor  string `json:"processor"`
	CPUs       int    `json:"cpus"` // that this process may use
	Kernel     string `json:"kernel"`
	Go         string `json:"go"` // that built this program
	Congestion string `json:"tcp_congestion_control"`
}

// DescribeMachine reads it.
func DescribeMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, after, _ := strings.Cut(string(text), "model name\t: ")
		m.Processor, _, _ = strings.Cut(after, "\n")
	}
	if text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil {
		m.Congestion = string(bytes.TrimSpace(text))
	}
	return m
}

package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// BenchmarkStore appends records of 200 bytes and stores them as one group, by the size of
// the group. cpu-us/record is that of the whole process, system calls included.
func BenchmarkStore(b *testing.B) {
	for _, size := range []int{30, 300, 3000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			j, err := Open(Options{Dir: b.TempDir()}, func(uint64, []byte) error { return nil })
			if err != nil {
				b.Fatal(err)
			}
			head, body := make([]byte, 40), make([]byte, 160)
			hold, held := make(chan struct{}), make(chan struct{})
			j.OnStored(func(uint64) { // the committer rests here while a group is gathered
				held <- struct{}{}
				<-hold
			})
			j.Append(head, body)
			<-held
			b.ReportAllocs()
			b.ResetTimer()
			begun, groups := cpu(b), 0
			for b.Loop() {
				for range size {
					j.Append(head, body)
				}
				hold <- struct{}{}
				<-held
				groups++
			}
			b.StopTimer()
			used := cpu(b) - begun
			b.ReportMetric(float64(used.Nanoseconds())/1e3/float64(groups*size), "cpu-us/record")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(groups), "us/group")
			j.OnStored(nil)
			close(hold)
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkBareFile writes and syncs as many bytes with nothing around them: the floor, and
// what tells a slow disk from a slow journal.
func BenchmarkBareFile(b *testing.B) {
	for _, size := range []int{30, 300, 3000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			const room = 64 << 20
			f, err := os.Create(filepath.Join(b.TempDir(), "bare"))
			if err == nil {
				err = syscall.Fallocate(int(f.Fd()), 0, 0, room)
			}
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			group := make([]byte, size*201)
			begun, at, groups := cpu(b), 0, 0
			for b.Loop() {
				if at += len(group); at+len(group) > room {
					at = 0
				}
				if _, err = f.WriteAt(group, int64(at)); err == nil {
					err = f.Sync()
				}
				if err != nil {
					b.Fatal(err)
				}
				groups++
			}
			b.ReportMetric(float64((cpu(b)-begun).Nanoseconds())/1e3/float64(groups*size), "cpu-us/record")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(groups), "us/group")
		})
	}
}

// cpu is the processor time this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAppend is the part of it that the caller's goroutine pays for.
func BenchmarkAppend(b *testing.B) {
	j, err := Open(Options{Dir: b.TempDir()}, func(uint64, []byte) error { return nil })
	if err != nil {
		b.Fatal(err)
	}
	head, body := make([]byte, 40), make([]byte, 160)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if mark := j.Append(head, body); n%10000 == 0 && j.Full() { // the disk is slower than this loop
			<-j.Done(mark)
		}
	}
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
}

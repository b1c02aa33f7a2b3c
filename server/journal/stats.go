package journal

import (
	"os"
	"syscall"
	"time"
)

// Stats are a journal's figures since it was opened.
type Stats struct {
	Groups, Records, Bytes uint64        // that were stored
	Unstored               int64         // bytes appended and not stored yet
	Syncs                  uint64        // fsync calls for groups
	SyncTime               time.Duration // that they took, together
	Failures               uint64        // tries that failed
	FailingSince           time.Time     // zero: it is not
	DiskBytes              int64         // what the log takes of the disk now
}

// Stats returns the figures. It looks at the directory, so call it no more often than a
// page of metrics is read.
func (j *Journal) Stats() Stats {
	s := Stats{
		Groups: j.count.groups.Load(), Records: j.count.records.Load(), Bytes: j.count.bytes.Load(),
		Unstored: j.unstored.Load(), Failures: j.count.failures.Load(),
		Syncs: uint64(j.times.count.Load()), SyncTime: time.Duration(j.times.nanos.Load()),
		DiskBytes: diskBytes(j.where.dir),
	}
	if f := j.failure.Load(); f != nil {
		s.FailingSince = f.since
	}
	return s
}

// StoredBytes is Stats.Bytes alone. Any goroutine; it does not look at the directory.
func (j *Journal) StoredBytes() uint64 { return j.count.bytes.Load() }

// diskBytes sums up the blocks of the files in a directory.
func diskBytes(dir string) (n int64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if st, err := e.Info(); err == nil {
			if sys, ok := st.Sys().(*syscall.Stat_t); ok {
				n += sys.Blocks * 512
			}
		}
	}
	return n
}

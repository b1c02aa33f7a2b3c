package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Info is what Inspect found.
type Info struct {
	Format                 int    // 0: not known, the file that says it is damaged or missing
	First, Last            uint64 // marks that can be read; 0: none
	Groups, Records, Bytes uint64
	Oldest, Newest         time.Time // when those groups were stored
	Segments               int
	DiskBytes              int64
	LostGroups, LostBytes  uint64   // that cannot be read
	Damage                 []string // what is wrong, in words
	Dir                    string   // where the log is
}

// Inspect reads a log and calls fn, if it is not nil, for every record that can be read;
// rec is borrowed. dir is Options.Dir, or a log's own directory, also one that was moved
// aside. It changes nothing, and a process may have the log open: then it sees what was
// stored at about that time, and perhaps the beginning of a group as bytes that are lost.
func Inspect(dir string, fn func(mark uint64, rec []byte) error) (Info, error) {
	if st, err := os.Stat(filepath.Join(dir, logName)); err == nil && st.IsDir() {
		dir = filepath.Join(dir, logName)
	}
	r, err := newReader(dir)
	if err != nil {
		return Info{}, fmt.Errorf("journal %s: %w", dir, err)
	}
	if r.fresh() {
		return Info{}, fmt.Errorf("journal %s: there is no journal", dir)
	}
	info := Info{Dir: dir, Segments: len(r.files), DiskBytes: diskBytes(dir)}
	if r.meta != nil {
		info.Format = r.meta.Format
	}
	err = r.each(func(g group) error {
		if info.Groups++; info.Groups == 1 {
			info.First, info.Oldest = g.mark, time.Unix(0, g.nanos)
		}
		info.Last, info.Newest = g.mark, time.Unix(0, g.nanos)
		info.Bytes += groupLen + uint64(len(g.records))
		return g.each(func(mark uint64, rec []byte) error {
			info.Records++
			if fn == nil {
				return nil
			}
			return fn(mark, rec)
		})
	})
	info.LostGroups, info.LostBytes, info.Damage = r.gaps, uint64(r.lost), r.damage
	if err != nil {
		return info, fmt.Errorf("journal %s: %w", dir, err)
	}
	return info, nil
}

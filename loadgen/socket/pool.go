package socket

import pool "github.com/panjf2000/gnet/v2/pkg/pool/goroutine"

// gnet starts a pool of goroutines in every process that it is linked into, a Gateway that
// generates no load included, and keeps time for it: three wake-ups a second, which is
// most of what an idle Gateway costs. Nothing that we use of gnet asks it for a goroutine.
func init() { pool.DefaultWorkerPool.Release() }

// Package report holds what a load run measured and shows it. The load generator's event
// loops and goroutines write into a [Recorder]; its main loop calls [Recorder.Tick] once a
// second and prints the line; at the end [Recorder.Report] gives a [Report], to which the
// scenario adds what only it knows (steps, storms, books), and which is written as text,
// JSON and one HTML file. Nobody else calls it, and it imports nothing of ours.
//
//	rec := report.NewRecorder(engine.Now)
//	shard, completed := rec.Shard(), rec.Code("COMPLETED") // per event loop
//	shard.Sent(report.WebSocket)
//	shard.Late(now - intended)
//	shard.Done(report.WebSocket, completed, now-intended)
//	fmt.Println(rec.Tick(engine.Now()).Line()) // once a second
//	rep := rec.Report(report.About{Scenario: "steady", IntendedPerSecond: 20000})
//	rep.WriteText(os.Stdout)
//
// # What counts as what
//
// A latency runs from the INTENDED instant of a command, which the caller gives, so a
// stall shows in every command it delayed (no coordinated omission). WebSocket, HTTP and
// HTTPWait are the channels of commands; their sums are the sent, done, errors and in
// flight of a second. A Callback is a second sight of a command that was counted when it
// was sent: it has counts of its own and is never in flight. A code other than COMPLETED
// and ACCEPTED is an error.
//
// # Bounds
//
// Latencies are kept from 1 us to 10 min with 3 digits (longer ones count as 10 min, but
// the maximum is exact); a histogram is 180 KB and comes with the first command of its
// channel in a shard, twice. Shards: maxShards, then they are shared. Codes: maxCodes,
// then "other". Seconds: maxPoints, then pairs are merged. The lists of a Report that the
// caller fills are shown up to maxRows each in text and HTML, and written whole in JSON.
//
// # Locks
//
// Shard.mu guards one shard's open second and is held for one record or one exchange of
// pointers. Recorder.mu guards everything else and is taken first.
package report

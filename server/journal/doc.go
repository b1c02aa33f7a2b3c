// Package journal is the Gateway's durable record (PROTOCOL.md section 9): a log of groups
// of records, which it reads back when it starts. What a record means is the caller's; so
// is when one is not needed any more.
//
//	j, err := journal.Open(o, replay)       // every record that was kept, oldest first
//	mark := j.Append(head, body)            // never waits for the disk
//	j.OnStored(func(mark uint64) { ... })   // told: all with this mark or a lower one are on stable storage
//	if j.Full() { refuse }                  // the disk takes nothing, or not enough
//	j.Truncate(mark)                        // after a checkpoint: what lives was appended anew
//
// # One group, one sync
//
// Append copies the record into the group being gathered and returns that group's mark. One
// goroutine, the committer, takes the group when the last one is stored and stores it with
// one fsync as one entry of a log of hashicorp/raft-wal, whose index is the mark. So a
// group is what came during the last fsync, one record or thousands. Groups are split at
// 4 MiB.
//
// While the disk refuses (full, broken, read-only) the group is kept and tried again, Full
// and Failing say so, and Append goes on taking records: the ends of commands that were
// accepted before. What bounds them is that nothing new is accepted. No restart is needed.
//
// # Damage
//
// Each group has a checksum, the log's id, and its mark, so it can be found in a segment
// whatever happened to the bytes around it. If a group is missing between others, or
// raft-wal does not see what is there, the log is built anew of all groups that can be
// read, the old directory is moved aside as journal.damaged-TIME, and one line at level
// ERROR says how much could not be read. If there is no room for that, Open fails and has
// changed nothing. Without the file "meta" groups that were truncated, but whose files had
// not been removed yet, may come back.
//
// A last group that is not whole was never said to be stored: it is cut off. So is one that
// was and is damaged, if nothing is behind it: the two look the same. The log says so.
//
// # What raft-wal 0.4.0 does behind its caller's back
//
//   - After any error of StoreLogs, and after a rotation that failed (which it only logs;
//     StoreLogs says ErrSealed from then on), it must be closed and opened again. try does.
//   - A process that ends between the group that fills a segment and the rotation behind it,
//     by a plain Close even, leaves a log that answers ErrSealed for good. mend finishes
//     the rotation.
//   - After a torn write the old bytes stay behind the end, and some look like frames, an
//     index even: ErrSealed again. mend clears them.
//   - A group found after a restart or a failed sync may be in the kernel's memory only, and
//     the kernel may take it for written. mend writes and syncs the last one once more. It
//     syncs the directory too, which raft-wal does at the first sync of a file but not if
//     it was opened anew before that.
//   - Reading looks at no checksum, recovery at that of the last commit only; a damaged
//     frame in the last segment ends the log there without a word, and its codec's Decode
//     panics on some bytes. So it is not used to read: reader is.
//   - It writes entries over 64 MiB and refuses to read them. Hence MaxRecord.
//   - Its own meta store is a bbolt file. That one is mapped into memory, where damage or a
//     hole on a full disk is a SIGBUS; has no checksum but on its first pages, and falls
//     back to the older of two without a word, upon which raft-wal removes the newest
//     segment; and Close leaves it open, so that opening the log again in the same process
//     waits for its lock for good. metaStore replaces it. Nothing is mapped now.
//   - DeleteRange of a tail makes what is left of that segment unreadable after a restart,
//     and a log emptied by it forgets its last index. Neither is done.
//   - Open leaves its files open when it fails; disk closes them.
//   - Each group is copied twice (encoded, then framed); its codec lets a buffer grow for
//     each, which is garbage then. codec takes its place, in the same format.
package journal

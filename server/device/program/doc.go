// Package program is a device's store of programs: it downloads what it is told to, holds
// it against its SHA-256 and makes it the active one in one step, so that a device always
// has a whole program, the old one or the new one.
//
//	store, err := program.Open(program.Options{Dir: dir})
//	store.Active()                               // also after a restart
//	store.Install(ctx, source, func(p Progress)) // one at a time
//
// On disk, in Options.Dir:
//
//	lock            held by the process that has the store
//	active.json     which program is active; replaced by rename
//	{sha256}        the active program's bytes
//	{sha256}.part   a download that is not complete; at most a few are kept
//	job.json        what is being installed for whom, see Begin
//
// A download that was cut, by the network or by the end of the process, goes on where it
// stopped (RFC 9110 section 14, Range). What ties the pieces together is the hash: where
// a download in pieces does not match, it is made once more in one piece.
package program

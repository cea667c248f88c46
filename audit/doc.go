// Package audit is the append-only record of what was granted, used and taken
// back: records chained by hash, under an RFC 6962 Merkle tree, in a file that
// goes on in a new one when it is full. The full ones, its segments, are beside
// it under numbered names; the oldest are removed when there are too many.
//
// A Set is the logs of one host: its own, and one for each device, its drivers, and each
// tenant, so that the records of one owner do not push out another's. The rest describes each
// of them.
//
// One process writes (Open holds a lock on the file); any number read or verify
// it, by Read and Verify, while it does. docs/audit.md describes the bytes, and
// the steps of a rotation.
//
// Proof. Verify finds every byte that was changed, moved, put in or taken out between the
// first record that is left and the end, and names the record, the file and the offset. It
// reports that the oldest segments are gone, and whether the log itself removed them. It
// cannot by itself find that the end was cut off, nor that all files were written anew: a
// process that may write them can do both. For that, keep a Head (a size and a root) out of
// its reach and give it to Verify later.
//
// Durability. Append returns once the record is in its place in memory; a goroutine writes
// and syncs all records that came in meanwhile at once. Records that Sync, Head and Snapshot
// report are on disk. When writing fails, records that were not yet on disk are given up, the
// file is cut back to its last synced record, and every Append tries anew and answers
// gpuerr.IO until one succeeds; that one is preceded by an "audit.lost" record with the
// number of those given up. So an index is final when Sync has returned nil. A record that a
// crash tore apart is cut off by the next Open, with an "audit.torn" record that says so. A
// rotation is a part of writing: Append does not wait for it, and after a crash at any of its
// steps the next Open finds a whole log.
//
// Kind, tenant and detail are stored byte for byte, with any contents. Show them with Format,
// which quotes characters that control a terminal.
//
// Locks: Log.mu guards the state; it is never held across a system call once the log is open.
// Set.mu is held while a log is opened. runCommit alone writes, rotates and removes.
package audit

// Package mapped maps the file of a model into memory, read-only.
//
// A mapping is not a copy. A process that can write the file changes the mapping's
// contents, and one that can truncate the file makes an access fault. Both must be
// expected of a file that is not trusted, so:
//
//   - read each number once, bound it, and use the local copy;
//   - read only within Guard, or by Copy: a fault there is an error (gpuerr.IO) and not
//     the end of the process.
//
// The bytes between the new end and the end of its page read as zero; only whole
// pages fault.
package mapped

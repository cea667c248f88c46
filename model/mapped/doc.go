// Package mapped maps the file of a model into memory, read-only.
//
// A mapping is not a copy: who can write the file changes what is seen through it, and
// who can truncate it makes an access fault where memory has no file behind it any more.
// Both are ordinary for a file that is not trusted, so:
//
//   - read each number once, bound it, and use the local copy;
//   - read only within Guard, or by Copy: a fault there is an error (gpuerr.IO) and not
//     the end of the process.
//
// What lies between a new end and the end of its page reads as zero; only whole pages
// fault.
package mapped

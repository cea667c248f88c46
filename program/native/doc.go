// Package native has fast bodies for programs that matter, found by the digest of
// their bundle, and proven equal to the lane engine within their tolerance.
package native

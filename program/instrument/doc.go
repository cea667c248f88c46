// Package instrument rewrites programs.
package instrument
